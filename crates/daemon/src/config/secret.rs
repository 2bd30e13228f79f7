//! The shared secret of the HTTP door: from a file that nobody else can read, or from the variable, which is taken
//! out of the process before anything else starts.
//!
//! A process shows the environment that it was started with in /proc, whatever it makes of it later, and hands it
//! down. So where the variable is set we start ourselves again without it, and the secret comes through a pipe.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::FileType;
use secrecy::{ExposeSecret as _, SecretString};

use super::surroundings::SECRET;
use super::{private, read_owned};

/// Fits a header line, and a pipe that nobody reads yet.
const LIMIT: usize = 4096;
/// Set for the one time that we start ourselves again.
const ON_STDIN: &str = "STOCKADE_SECRET_ON_STDIN";

/// The variable's value, once this process is one that was started without it. Comes back only then.
pub fn take() -> io::Result<Option<SecretString>> {
    match std::env::var_os(SECRET) {
        Some(secret) => Err(start_again(&secret)),
        None if std::env::var_os(ON_STDIN).is_some() => receive().map(Some),
        None => Ok(None),
    }
}

fn start_again(secret: &OsString) -> io::Error {
    if secret.len() > LIMIT {
        return io::Error::new(io::ErrorKind::InvalidInput, format!("{SECRET} is longer than {LIMIT} bytes"));
    }
    let start = || {
        let (read, mut write) = io::pipe()?;
        write.write_all(secret.as_bytes())?;
        drop(write);
        let program = std::env::current_exe()?;
        let mut again = Command::new(program);
        if let Some(name) = std::env::args_os().next() {
            again.arg0(name);
        }
        again
            .args(std::env::args_os().skip(1))
            .env_remove(SECRET)
            .env(ON_STDIN, "1")
            .stdin(Stdio::from(read));
        Ok(again.exec())
    };
    start().unwrap_or_else(|error| error)
}

fn receive() -> io::Result<SecretString> {
    let stdin = io::stdin();
    let is_pipe =
        rustix::fs::fstat(&stdin).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    if !is_pipe {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{ON_STDIN} is set, and stdin is no pipe"),
        ));
    }
    let mut text = String::new();
    stdin.lock().take(bound()).read_to_string(&mut text)?;
    Ok(SecretString::from(text))
}

/// One more than the limit, so that what is longer shows.
fn bound() -> u64 {
    u64::try_from(LIMIT).map_or(u64::MAX, |limit| limit + 1)
}

/// An empty variable is none: compose files set one for every variable that they pass on.
pub(super) fn given(secret: &SecretString) -> Result<Option<SecretString>, &'static str> {
    match secret.expose_secret() {
        "" => Ok(None),
        text => check(text).map(|()| Some(secret.clone())),
    }
}

pub(super) fn read(path: &Path) -> Result<SecretString, String> {
    let text = read_owned(path, bound(), &|there| private(there, 0o077))?;
    let secret = text.strip_suffix('\n').unwrap_or(&text);
    check(secret)?;
    Ok(SecretString::from(secret))
}

fn check(secret: &str) -> Result<(), &'static str> {
    if secret.is_empty() {
        return Err("is empty");
    }
    if secret.len() > LIMIT {
        return Err("is longer than 4096 bytes");
    }
    // What a header can't carry nobody could show.
    if !secret.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') || secret.trim() != secret {
        return Err("holds what an HTTP header can't: use printable ASCII without spaces around it");
    }
    Ok(())
}
