//! Callers: one line of JSON-RPC over the Unix socket, and one HTTP request.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::{deadline, until};

#[derive(Debug)]
pub struct Socket {
    lines: BufReader<UnixStream>,
}

impl Socket {
    #[track_caller]
    pub fn connect(path: &Path) -> Self {
        let stream = until("the socket", || UnixStream::connect(path).ok());
        stream.set_read_timeout(Some(deadline())).expect("a deadline above zero");
        Self { lines: BufReader::new(stream) }
    }

    /// The whole answer.
    #[track_caller]
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.lines.get_mut().write_all(format!("{line}\n").as_bytes()).expect("a service that reads");
        loop {
            let mut answer = String::new();
            self.lines.read_line(&mut answer).expect("an answer");
            let answer: Value =
                serde_json::from_str(&answer).unwrap_or_else(|_| panic!("no JSON: {answer:?}"));
            if answer["id"] == 1 {
                return answer;
            }
        }
    }

    #[track_caller]
    pub fn result(&mut self, method: &str, params: &Value) -> Value {
        let mut answer = self.ask(method, params);
        assert!(answer["error"].is_null(), "{method} {params}: {answer}");
        answer["result"].take()
    }

    /// Its id; it goes on.
    #[track_caller]
    pub fn start(&mut self, shell: &str, workspace: Option<&Path>) -> String {
        let mut params = json!({ "shell": shell });
        if let Some(workspace) = workspace {
            params["workspace"] = json!(workspace);
        }
        let started = self.result("execution/start", &params);
        started["id"].as_str().unwrap_or_else(|| panic!("no id: {started}")).to_owned()
    }

    /// Its record, once it has ended.
    #[track_caller]
    pub fn ended(&mut self, id: &str) -> Value {
        until("its end", || {
            let record = self.result("execution/get", &json!({ "id": id }));
            (record["state"] == "ended").then_some(record)
        })
    }
}

/// To the HTTP door of the system's service: the status and the body.
#[track_caller]
pub fn post(path: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let mut stream = until("the HTTP door", || TcpStream::connect("127.0.0.1:3001").ok());
    stream.set_read_timeout(Some(deadline())).expect("a deadline above zero");
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("a service that reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
    (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {body:?}")))
}
