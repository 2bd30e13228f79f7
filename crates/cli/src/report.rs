//! `--json`: the result of one execution as one JSON object, on a descriptor or in a file of the
//! caller's choice, while stdout stays the command's own.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, ftruncate, open, openat2};
use rustix::io::Errno;
use serde::Serialize;
use stockade_executor::Abort;
use stockade_proto::{Code, ExecutionResult, Fault, Refusal};

/// Where the result goes. Opened before anything runs: a result that can't be written is known then.
#[derive(Debug)]
pub(crate) struct Report {
    target: Option<File>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Body<'a> {
    Result(&'a ExecutionResult),
    Refusal(&'a Refusal),
    Fault(&'a Fault),
}

/// An option that names a place for our own words, and what was given.
#[derive(Debug, Clone, Copy)]
struct Target<'a> {
    option: &'a str,
    text: &'a str,
}

fn refuse(target: Target<'_>, why: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        Code::OptionInvalid,
        format!("{} {}: {why}", target.option, target.text),
        "Give a file that can be written, or fd:N for an open descriptor such as fd:3.",
    )
}

fn descriptor(target: Target<'_>, number: &str) -> Result<OwnedFd, Refusal> {
    let number: RawFd = number.parse().map_err(|error| refuse(target, &error))?;
    stockade_sys::borrow_inherited(number).map_err(|error| refuse(target, &error))?;
    // Reopened through /proc, so that a number that is not open, or not ours, is an error and not a guess.
    let path = format!("/proc/self/fd/{number}");
    match open(&path, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::APPEND, Mode::empty()) {
        Ok(fd) => Ok(fd),
        // Sockets can't be reopened; they can be copied.
        Err(Errno::NXIO) => duplicate(number).map_err(|error| refuse(target, &error)),
        Err(errno) => Err(refuse(target, &errno)),
    }
}

fn duplicate(number: RawFd) -> std::io::Result<OwnedFd> {
    let fd: BorrowedFd<'_> = stockade_sys::borrow_inherited(number)?;
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}

/// A file that a person named for output. An agent may have left something else at that name in the
/// workspace: a symlink would lead the caller's write out of it, a FIFO would hang the caller.
pub(crate) fn create_output(path: &OsStr) -> Result<OwnedFd, String> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = openat2(CWD, path, flags, Mode::from_raw_mode(0o644), ResolveFlags::NO_SYMLINKS);
    let fd = opened.map_err(|errno| match errno {
        Errno::LOOP => "leads through a symbolic link".to_owned(),
        Errno::NXIO => "is a FIFO or a socket".to_owned(),
        errno => errno.to_string(),
    })?;
    let kind =
        fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode)).map_err(|errno| errno.to_string())?;
    match kind {
        FileType::RegularFile => ftruncate(&fd, 0).map_err(|errno| errno.to_string())?,
        // `/dev/null`, a terminal.
        FileType::CharacterDevice => {}
        FileType::Directory
        | FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::BlockDevice
        | FileType::Unknown => return Err("is not a regular file".to_owned()),
    }
    Ok(fd)
}

/// A file, or `fd:N`.
pub(crate) fn open_target(option: &str, text: Option<&str>) -> Result<Option<OwnedFd>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    let target = Target { option, text };
    match text.strip_prefix("fd:") {
        Some(number) => descriptor(target, number).map(Some),
        None => create_output(OsStr::new(text)).map(Some).map_err(|why| refuse(target, &why)),
    }
}

impl Report {
    pub(crate) fn open(target: Option<&str>) -> Result<Self, Refusal> {
        Ok(Self { target: open_target("--json", target)?.map(File::from) })
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.target.is_some()
    }

    pub(crate) fn write(&mut self, ended: Result<&ExecutionResult, &Abort>) -> Result<(), Abort> {
        let Some(target) = &mut self.target else { return Ok(()) };
        let body = match ended {
            Ok(result) => Body::Result(result),
            Err(Abort::Refusal(refusal)) => Body::Refusal(refusal),
            Err(Abort::Profile(error)) => Body::Refusal(&error.refusal),
            Err(Abort::Fault(fault)) => Body::Fault(fault),
        };
        let text = match body {
            Body::Result(result) => serde_json::to_string(result),
            Body::Refusal(_) | Body::Fault(_) => serde_json::to_string(&body),
        };
        let written = text.map_err(std::io::Error::other).and_then(|text| writeln!(target, "{text}"));
        written.map_err(|error| {
            Fault::new(
                Code::OutputFailed,
                format!("the result could not be written: {error}"),
                "The command has ended; only its report is missing.",
            )
            .into()
        })
    }
}
