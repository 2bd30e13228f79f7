//! What the service is compared with: the barest server that could answer `POST /execute`. It runs what it is sent under bash,
//! as the service must, in no sandbox and on no record. How many answers it gives a second is this machine's limit.

use anyhow::{Context, Result, bail};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// Bytes of a request that are read at most.
const MOST: u64 = 16 << 10;

/// One of our own; ended when this goes.
#[derive(Debug)]
pub(super) struct Bare {
    child: Child,
    pub(super) address: String,
}

impl Bare {
    pub(super) fn start() -> Result<Self> {
        let own = std::env::current_exe().context("can't find this program")?;
        let mut command = Command::new(own);
        command.args(["bench", "--bare"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env_clear().envs(super::arm::service_environment());
        let mut child = command.spawn().context("can't start the bare server")?;
        let mut said = BufReader::new(child.stdout.take().context("its stdout is piped")?);
        let mut bare = Self { child, address: String::new() };
        said.read_line(&mut bare.address).context("the bare server can't be heard")?;
        bare.address.truncate(bare.address.trim_end().len());
        Ok(bare)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The hidden `--bare`: a thread per connection, until its stdin closes.
pub(super) fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").context("can't listen on loopback")?;
    println!("{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A caller that leaves ends its connection, and nothing else.
            std::thread::spawn(move || answer_all(stream));
        }
    });
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).map(drop).context("can't wait for the end")
}

fn answer_all(stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(command) = asked(&mut stream)? {
        let output = Command::new("/bin/bash").arg("-c").arg(command).stdin(Stdio::null()).output()?;
        let body = serde_json::json!({
            "stdout": String::from_utf8_lossy(&output.stdout).trim(),
            "stderr": String::from_utf8_lossy(&output.stderr).trim(),
            "exitCode": output.status.code(),
        });
        let body = body.to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.get_mut().write_all([head, body].concat().as_bytes())?;
    }
    Ok(())
}

/// The command of the next request; none where the caller has left.
fn asked(stream: &mut BufReader<TcpStream>) -> Result<Option<String>> {
    let (mut line, mut length) = (String::new(), 0_u64);
    loop {
        line.clear();
        if stream.by_ref().take(MOST).read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let body: serde_json::Value = serde_json::from_reader(stream.by_ref().take(length.min(MOST)))?;
    match body["command"].as_str() {
        Some(command) => Ok(Some(command.to_owned())),
        None => bail!("there is no command in it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_with_what_its_command_said() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || answer_all(listener.accept().unwrap().0));
        let mut caller = TcpStream::connect(address).unwrap();
        let body = r#"{"command":"echo hi; exit 3"}"#;
        write!(caller, "POST /execute HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        caller.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        caller.read_to_string(&mut answer).unwrap();
        server.join().unwrap().unwrap();
        assert!(answer.ends_with(r#"{"exitCode":3,"stderr":"","stdout":"hi"}"#), "{answer}");
    }
}
