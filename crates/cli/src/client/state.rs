//! The service's state directory, opened from here: for what has to work without a service, and must not be asked
//! through a door. Only its owner writes there: a file of somebody else's would lock the service out.

use std::error::Error as _;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use clap::Args;
use stockade_executor::Abort;
use stockade_proto::{Bytes, Code, Fault, Refusal};
use stockade_store::{AuditError, Database, Store, StoreError, Unlogged};

use crate::say;

const SYSTEM: &str = "/var/lib/stockade";

#[derive(Debug, Args)]
pub(crate) struct StateOption {
    /// The service's state directory [default: for root /var/lib/stockade, else $XDG_STATE_HOME/stockade or
    /// ~/.local/state/stockade]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// What to do where there is no directory yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Refuse,
}

/// Where a service that this user starts keeps its state, as the service itself decides it.
pub(super) fn own() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(SYSTEM));
    }
    let home = || absolute("HOME").map(|home| home.join(".local/state"));
    absolute("XDG_STATE_HOME").or_else(home).map(|state| state.join("stockade"))
}

impl StateOption {
    fn directory(&self) -> Result<PathBuf, Refusal> {
        self.state.clone().or_else(own).ok_or_else(|| {
            super::bad_option(
                "neither HOME nor XDG_STATE_HOME says where the service keeps its state".to_owned(),
                "Give --state DIR.",
            )
        })
    }

    /// Its directory and its database, for its owner alone.
    pub(super) fn open(&self, missing: Missing) -> Result<(PathBuf, Database), Abort> {
        let directory = self.directory()?;
        if missing == Missing::Make {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
            made.map_err(|error| not_there(&directory, &error))?;
        }
        let found = fs::metadata(&directory).map_err(|error| not_there(&directory, &error))?;
        check_owner(&directory, &found, rustix::process::geteuid().as_raw())?;
        let database = Store::database(&directory).map_err(store_failed)?;
        Ok((directory, database))
    }

    /// Where the audit log is. Reading it changes nothing, so whoever can may.
    pub(super) fn audit(&self) -> Result<PathBuf, Abort> {
        let directory = Store::audit_directory(&self.directory()?);
        fs::metadata(&directory).map_err(|error| not_there(&directory, &error))?;
        Ok(directory)
    }
}

/// As the records name whoever is at this command line.
pub(super) fn me() -> String {
    format!("uid:{}", rustix::process::geteuid().as_raw())
}

/// A change was made, and its note with it. Where a service runs, that writes the log; else it is done here.
pub(super) fn log_changes(directory: &Path, database: Database) {
    let logged = Unlogged::new(database).log_unless_written(&Store::audit_directory(directory));
    if let Err(error) = logged {
        say::warning(&format!(
            "it is done, and the audit log has it only when that can be written again: {}",
            sentence(&error)
        ));
    }
}

fn check_owner(directory: &Path, found: &Metadata, me: u32) -> Result<(), Refusal> {
    let owner = found.uid();
    if owner == me {
        return Ok(());
    }
    let directory = Bytes::from(directory);
    Err(Refusal::new(
        Code::NotPermitted,
        format!("the state directory {directory} belongs to uid {owner}, and you are uid {me}"),
        format!(
            "Do it as that user, and name the directory: sudo -u '#{owner}' stockade … --state {directory}"
        ),
    ))
}

fn not_there(directory: &Path, error: &io::Error) -> Refusal {
    let directory = Bytes::from(directory);
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Refusal::new(
            Code::NotPermitted,
            format!("the state directory {directory} is closed to you"),
            "Do it as the service's own user (sudo -u USER), or name another directory with --state DIR.",
        );
    }
    super::bad_option(
        format!("the state directory {directory} can't be used: {error}"),
        "Start the service once with `stockade serve`, or name another directory with --state DIR.",
    )
}

/// The sentence with its reason. The store's sentences say what to do.
fn sentence(error: &dyn std::error::Error) -> String {
    let text = match error.source() {
        Some(source) => format!("{error} ({source})"),
        None => error.to_string(),
    };
    Bytes::from(text).to_string()
}

pub(super) fn store_failed(error: StoreError) -> Abort {
    let refused = |code| Refusal::new(code, sentence(&error), "").into();
    if let StoreError::Invalid { .. } | StoreError::TooLong { .. } | StoreError::NameTaken { .. } = &error {
        return refused(Code::OptionInvalid);
    }
    if denied(error.source()) || matches!(error, StoreError::KeyElsewhere { .. }) {
        return refused(Code::NotPermitted);
    }
    Fault::new(Code::RecordFailed, sentence(&error), "").into()
}

pub(super) fn audit_failed(error: &AuditError) -> Abort {
    if denied(error.source()) {
        return Refusal::new(Code::NotPermitted, sentence(error), "").into();
    }
    Fault::new(Code::RecordFailed, sentence(error), "").into()
}

fn denied(source: Option<&(dyn std::error::Error + 'static)>) -> bool {
    let io = source.and_then(|source| source.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_opens_it() {
        let directory = tempfile::tempdir().unwrap();
        let found = fs::metadata(directory.path()).unwrap();
        assert_eq!(check_owner(directory.path(), &found, found.uid()), Ok(()));
        for other in [found.uid() + 1, 0].into_iter().filter(|uid| *uid != found.uid()) {
            let refusal = check_owner(directory.path(), &found, other).unwrap_err();
            assert_eq!(refusal.code, Code::NotPermitted);
            assert!(refusal.remedy.contains(&format!("'#{}'", found.uid())), "{}", refusal.remedy);
        }
    }

    #[test]
    fn a_directory_is_made_private_and_only_where_that_is_meant() {
        let above = tempfile::tempdir().unwrap();
        let option = StateOption { state: Some(above.path().join("a/b")) };
        assert!(matches!(option.open(Missing::Refuse), Err(Abort::Refusal(_))));
        assert!(matches!(option.audit(), Err(Abort::Refusal(_))));
        assert!(!above.path().join("a").exists());
        let (directory, _database) = option.open(Missing::Make).unwrap();
        assert_eq!(fs::metadata(directory).unwrap().mode() & 0o777, 0o700);
        assert!(option.open(Missing::Refuse).is_ok());
    }

    #[test]
    fn a_mistake_is_a_refusal_and_a_shortage_is_a_fault() {
        let invalid = StoreError::Invalid { field: "secret's name", rule: "letters only" };
        assert!(
            matches!(store_failed(invalid), Abort::Refusal(refusal) if refusal.code == Code::OptionInvalid)
        );
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let key = StoreError::Key { path: "/k".into(), source: denied() };
        assert!(matches!(store_failed(key), Abort::Refusal(refusal) if refusal.code == Code::NotPermitted));
        assert!(matches!(store_failed(StoreError::WriterGone), Abort::Fault(_)));
        let read = AuditError::Read { path: "/a".into(), source: denied() };
        assert!(matches!(audit_failed(&read), Abort::Refusal(_)));
    }
}
