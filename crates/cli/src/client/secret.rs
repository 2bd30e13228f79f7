//! `stockade secret`: values that executions may be given, sealed at rest. A value comes from stdin and goes into the
//! store; nothing shows it again.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use clap::Subcommand;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use secrecy::SecretSlice;
use stockade_executor::Abort;
use stockade_proto::{Code, Fault, Refusal};
use stockade_redact::{MIN_SECRET, Secret};
use stockade_store::secrets::{SecretName, VALUE_LIMIT};
use stockade_store::{Database, Secrets, Store};
use stockade_sys::{Signal, SignalFd, mask_for_descriptor};
use zeroize::Zeroizing;

use super::output::{self, Reader};
use super::state::{Missing, StateOption, log_changes, me, store_failed};
use super::text::{self, clean, moment};
use crate::say;

/// Its newline, and one byte more by which a value that is too long is told.
const ROOM: usize = VALUE_LIMIT + 3;

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Keep a secret; its value is read from stdin, without the newline at its end
    Set {
        /// A name as environment variables have them
        name: String,
        /// Keep the newline at its end, too
        #[arg(long)]
        exact: bool,
        #[command(flatten)]
        at: StateOption,
    },
    /// List the names of the secrets; values are never shown
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: StateOption,
    },
    /// Forget a secret
    Rm {
        name: String,
        #[command(flatten)]
        at: StateOption,
    },
}

pub(super) fn secret(command: &SecretCommand) -> Result<u8, Abort> {
    match command {
        SecretCommand::Set { name, exact, at } => {
            // Before the store has a thread, which would take them.
            let signals = signals()?;
            // Before anybody types it for nothing.
            let (directory, database) = at.open(Missing::Make)?;
            let secrets = secrets(&directory, &database);
            let value = Value::read(name, signals)?;
            set(&secrets, name, &if *exact { value } else { value.without_newline() })?;
            log_changes(&directory, database);
            Ok(0)
        }
        SecretCommand::List { json, at } => {
            let (directory, database) = at.open(Missing::Refuse)?;
            list(&secrets(&directory, &database).list().map_err(store_failed)?, *json)
        }
        SecretCommand::Rm { name, at } => {
            let (directory, database) = at.open(Missing::Refuse)?;
            remove(&secrets(&directory, &database), name)?;
            log_changes(&directory, database);
            Ok(0)
        }
    }
}

fn secrets(directory: &Path, database: &Database) -> Secrets {
    Secrets::new(database.clone(), &Store::key_file(directory)).by(me())
}

fn set(secrets: &Secrets, name: &str, value: &Value) -> Result<(), Abort> {
    // What can't be redacted would show in the output of whoever gets it.
    Secret::new(name, value.bytes()).map_err(|error| {
        Refusal::new(
            Code::SecretInvalid,
            format!("the secret {} can't be kept: {error}", clean(name)),
            format!("Give a value of at least {MIN_SECRET} bytes on stdin."),
        )
    })?;
    // Of exactly its size, so that it is not moved again and no copy of it stays behind.
    secrets.set(name, &SecretSlice::from(value.bytes().to_vec())).map_err(store_failed)
}

fn list(names: &[SecretName], json: bool) -> Result<u8, Abort> {
    if !json {
        let row = |one: &SecretName| [clean(&one.name), moment(one.created_ms), moment(one.updated_ms)];
        let rows: Vec<_> = names.iter().map(row).collect();
        return output::print(&text::table(["NAME", "CREATED", "UPDATED"], &rows, None)).map(|_| 0);
    }
    for name in names {
        if output::print_json(name)? == Reader::Gone {
            break;
        }
    }
    Ok(0)
}

fn remove(secrets: &Secrets, name: &str) -> Result<(), Abort> {
    if secrets.remove(name).map_err(store_failed)? {
        return Ok(());
    }
    let message = format!("there is no secret `{}`", clean(name));
    Err(super::bad_option(message, "`stockade secret list` shows the names.").into())
}

/// What came on stdin, in memory that never moves and is wiped.
struct Value {
    buffer: Zeroizing<Vec<u8>>,
    length: usize,
}

impl Value {
    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    fn without_newline(mut self) -> Self {
        for end in [b'\n', b'\r'] {
            if self.bytes().last() == Some(&end) {
                self.length -= 1;
            }
        }
        self
    }

    fn read(name: &str, terminal: Option<SignalFd>) -> Result<Self, Abort> {
        let mut value = Self { buffer: Zeroizing::new(vec![0; ROOM]), length: 0 };
        if let Some(signals) = terminal {
            say::warning(&format!("type the value of {} and Enter; it is not shown", clean(name)));
            let _quiet = Quiet::begin().map_err(|error| unreadable(&error))?;
            value.fill(Some(&signals))?;
        } else {
            value.fill(None)?;
        }
        Ok(value)
    }

    /// To its end, on a terminal to the end of the line, and never past the room.
    fn fill(&mut self, signals: Option<&SignalFd>) -> Result<(), Abort> {
        let stdin = io::stdin();
        while self.length < ROOM {
            if let Some(signals) = signals {
                wait(signals)?;
            }
            match rustix::io::read(stdin.as_fd(), &mut self.buffer[self.length..]) {
                Ok(0) => break,
                Ok(count) => self.length += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(unreadable(&errno).into()),
                },
                Err(errno) => return Err(unreadable(&errno).into()),
            }
            if signals.is_some() && self.bytes().ends_with(b"\n") {
                break;
            }
        }
        Ok(())
    }
}

/// On a terminal, signals as something to read: one that ended us would leave it as it is while a value is typed.
fn signals() -> Result<Option<SignalFd>, Abort> {
    if !isatty(io::stdin()) {
        return Ok(None);
    }
    let all = [Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Quit];
    mask_for_descriptor(&all).map(Some).map_err(|error| unreadable(&error).into())
}

/// Until somebody typed, or wants to leave.
fn wait(signals: &SignalFd) -> Result<(), Abort> {
    let stdin = io::stdin();
    loop {
        let mut both = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        match poll(&mut both, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(unreadable(&errno).into()),
        }
        let [typed, _] = both.map(|one| !one.revents().is_empty());
        match signals.read() {
            Ok(Some(_)) => {
                let refusal = Refusal::new(Code::SecretInvalid, "no value was given; nothing was kept", "");
                return Err(refusal.into());
            }
            Ok(None) if typed => return Ok(()),
            Ok(None) => {}
            Err(error) => return Err(unreadable(&error).into()),
        }
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> Fault {
    Fault::new(
        Code::HostUnreadable,
        format!("the value can't be read from stdin: {error}"),
        "Give it in a pipe or from a file: stockade secret set NAME < FILE",
    )
}

/// A terminal that shows nothing.
struct Quiet {
    before: Termios,
}

impl Quiet {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        // So that the cursor moves on when Enter is typed.
        quiet.local_modes.insert(LocalModes::ECHONL);
        // What was typed ahead was shown, and is not the value.
        tcsetattr(io::stdin(), OptionalActions::Flush, &quiet)?;
        Ok(Self { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        match tcsetattr(io::stdin(), OptionalActions::Flush, &self.before) {
            // A terminal that is gone shows nothing either.
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: &[u8]) -> Value {
        Value { buffer: Zeroizing::new(bytes.to_vec()), length: bytes.len() }
    }

    #[test]
    fn one_newline_is_taken_off() {
        for (given, kept) in [
            (&b"secret"[..], &b"secret"[..]),
            (b"secret\n", b"secret"),
            (b"secret\r\n", b"secret"),
            (b"secret\n\n", b"secret\n"),
            (b"\n", b""),
            (b"", b""),
        ] {
            assert_eq!(value(given).without_newline().bytes(), kept);
        }
    }
}
