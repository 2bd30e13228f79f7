//! `stockade audit`: whether the log is as it was written, its last entries, and a copy. Reads only.

use std::io::{self, BufWriter};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;
use stockade_executor::Abort;
use stockade_proto::Bytes;
use stockade_store::AuditError;
use stockade_store::audit::{self, Broken, Entry, Kind, Verified};

use super::output::{self, Reader};
use super::state::{StateOption, audit_failed};
use super::text::clean;
use crate::report::create_output;
use crate::say;

/// The chain does not hold.
const BROKEN: u8 = 1;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check every entry against the next, and the log against its anchor; exit 1 with the first one that is wrong
    Verify {
        /// The verdict as one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: StateOption,
    },
    /// Print the last entries
    Tail {
        /// How many
        #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 10)]
        count: usize,
        /// As they are stored: one JSON object per line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: StateOption,
    },
    /// Copy all entries as they are stored, one JSON object per line
    Export {
        /// Where to [default: stdout]
        file: Option<PathBuf>,
        #[command(flatten)]
        at: StateOption,
    },
}

pub(super) fn audit(command: &AuditCommand) -> Result<u8, Abort> {
    match command {
        AuditCommand::Verify { json, at } => verify(&at.audit()?, *json),
        AuditCommand::Tail { count, json, at } => tail(&at.audit()?, *count, *json),
        AuditCommand::Export { file, at } => export(&at.audit()?, file.as_deref()),
    }
}

fn verify(directory: &Path, json: bool) -> Result<u8, Abort> {
    let (verdict, code) = match audit::verify(directory) {
        Ok(verified) => (if json { json_of(&verified) } else { sentence_of(&verified) }, 0),
        Err(AuditError::Broken(broken)) => {
            (if json { json_of_broken(&broken) } else { sentence_of_broken(&broken) }, BROKEN)
        }
        Err(error) => return Err(audit_failed(&error)),
    };
    output::print(&verdict).map(|_| code)
}

fn sentence_of(verified: &Verified) -> String {
    let Verified { entries, head, anchored, torn, .. } = verified;
    let mut text = format!("ok: {entries} entries, head {head}\n");
    if anchored < entries {
        text.push_str(&format!("  {} of them are younger than the anchor\n", entries - anchored));
    }
    if *torn > 0 {
        text.push_str(&format!("  {torn} bytes of an unfinished entry are behind them\n"));
    }
    text
}

fn json_of(verified: &Verified) -> String {
    let Verified { entries, first, head, anchored, torn } = verified;
    let verdict = json!({
        "ok": true, "entries": entries, "first": first, "head": head, "anchored": anchored, "torn": torn,
    });
    format!("{verdict}\n")
}

fn sentence_of_broken(broken: &Broken) -> String {
    format!(
        "broken: entry {} in {}: {}\n  what to do: keep a copy of the directory, and find out who changed it\n",
        broken.entry,
        Bytes::from(broken.path.as_path()),
        clean(&broken.reason.to_string())
    )
}

fn json_of_broken(broken: &Broken) -> String {
    let (file, reason) = (Bytes::from(broken.path.as_path()), broken.reason.to_string());
    format!("{}\n", json!({ "ok": false, "entry": broken.entry, "file": file, "reason": reason }))
}

fn tail(directory: &Path, count: usize, json: bool) -> Result<u8, Abort> {
    for line in audit::tail(directory, count).map_err(|error| audit_failed(&error))? {
        let line = if json { [&line[..], b"\n"].concat() } else { told(&line).into_bytes() };
        let put = output::put(io::stdout().as_fd(), &line);
        if put.map_err(|error| output::failed(&error))? == Reader::Gone {
            break;
        }
    }
    Ok(0)
}

/// One entry for people; what is none is shown as it is.
fn told(line: &[u8]) -> String {
    let Ok(entry) = Entry::parse(line) else { return format!("?  {}\n", Bytes::from(line)) };
    let kind = match entry.kind {
        Kind::Opened => "opened",
        Kind::Closed => "closed",
        Kind::Noted => "noted",
    };
    let execution = entry.execution.map_or_else(|| "-".to_owned(), |id| id.to_string());
    let (at, principal) = (clean(&entry.at), clean(&entry.principal));
    format!("{}  {at}  {kind:6}  {execution}  {principal}  {}\n", entry.seq, clean(&entry.body.to_string()))
}

fn export(directory: &Path, file: Option<&Path>) -> Result<u8, Abort> {
    let Some(file) = file else {
        return match audit::export(directory, &mut BufWriter::new(Raw), ..) {
            Err(AuditError::Export { source }) if source.kind() == io::ErrorKind::BrokenPipe => Ok(0),
            Err(error) => Err(audit_failed(&error)),
            Ok(_) => Ok(0),
        };
    };
    let target = create_output(file.as_os_str()).map_err(|why| {
        let message = format!("{} can't be written: {why}", Bytes::from(file));
        super::bad_option(message, "Give a regular file in a directory that you can write to.")
    })?;
    let mut target = BufWriter::new(std::fs::File::from(target));
    let count = audit::export(directory, &mut target, ..).map_err(|error| audit_failed(&error))?;
    say::warning(&format!("{count} entries written to {}", Bytes::from(file)));
    Ok(0)
}

/// stdout without the standard library's buffer.
struct Raw;

impl io::Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match output::put(io::stdout().as_fd(), bytes)? {
            Reader::There => Ok(bytes.len()),
            Reader::Gone => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
