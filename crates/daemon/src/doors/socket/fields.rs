//! What params must be beyond their types, so that whoever sent them hears which field is wrong before anything is
//! admitted. What a command or a workspace may be is the planner's to say.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use stockade_proto::Bytes;
use stockade_proto::door::Start;
use stockade_rpc::{Error, Params, params};
use stockade_store::ExecutionId;
use stockade_store::executions::KEY_LIMIT;

/// What the kernel takes.
const PATH_LIMIT: usize = 4096;
/// A profile's name is a file's.
const PROFILE_LIMIT: usize = 255;
/// A stage's name is kept as a key, with a word before it.
pub(super) const STAGE_ID_LIMIT: usize = 200;

/// By name only: an order of fields is no promise of ours. An empty list has none.
pub(super) fn read<T: DeserializeOwned>(given: &Params) -> Result<T, Error> {
    let list = given.raw().map(|raw| raw.get()).and_then(|text| text.strip_prefix('['));
    match list.map(str::trim_start) {
        Some("]") => params("{}"),
        Some(_) => Err(Error::bad_params("params", "give the fields by name, in an object")),
        None => given.read(),
    }
}

pub(super) fn start(start: &Start) -> Result<(), Error> {
    command(start.command.as_deref(), start.shell.as_ref())?;
    variables(&start.env)?;
    if let Some(workspace) = &start.workspace {
        path("workspace", workspace)?;
    }
    if let Some(cwd) = &start.cwd {
        path("cwd", cwd)?;
    }
    if let Some(profile) = &start.profile {
        text("profile", profile, PROFILE_LIMIT)?;
    }
    match &start.idempotency_key {
        Some(key) => text("idempotency_key", key, KEY_LIMIT),
        None => Ok(()),
    }
}

/// Exactly one of them, and something in it.
fn command(argv: Option<&[Bytes]>, shell: Option<&Bytes>) -> Result<(), Error> {
    match (argv, shell) {
        (Some([]), None) => Err(Error::bad_params("command", "it is empty")),
        (Some(argv), None) => {
            argv.iter().enumerate().try_for_each(|(at, word)| whole(&format!("command[{at}]"), word))
        }
        (None, Some(shell)) if shell.is_empty() => Err(Error::bad_params("shell", "it is empty")),
        (None, Some(shell)) => whole("shell", shell),
        (Some(_), Some(_)) => Err(Error::bad_params("shell", "give either `command` or `shell`, not both")),
        (None, None) => Err(Error::bad_params("command", "give either `command` or `shell`")),
    }
}

fn variables(env: &BTreeMap<String, Bytes>) -> Result<(), Error> {
    for (name, value) in env {
        if name.is_empty() || name.contains(['\0', '=']) {
            return Err(Error::bad_params(&format!("env.{name}"), "this is no variable's name"));
        }
        whole(&format!("env.{name}"), value)?;
    }
    Ok(())
}

pub(super) fn path(field: &str, path: &Bytes) -> Result<(), Error> {
    if path.is_empty() || path.len() > PATH_LIMIT {
        return Err(Error::bad_params(field, format!("a path has 1 to {PATH_LIMIT} bytes")));
    }
    whole(field, path)
}

/// The kernel would take the part before a NUL for all of it.
fn whole(field: &str, bytes: &Bytes) -> Result<(), Error> {
    if bytes.as_slice().contains(&0) { Err(Error::bad_params(field, "it holds a NUL byte")) } else { Ok(()) }
}

/// A short text that can be shown.
pub(super) fn text(field: &str, text: &str, limit: usize) -> Result<(), Error> {
    if text.is_empty() || text.len() > limit {
        Err(Error::bad_params(field, format!("it must have 1 to {limit} bytes")))
    } else if text.chars().any(Bytes::is_unseen) {
        Err(Error::bad_params(field, "it holds characters that can't be seen"))
    } else {
        Ok(())
    }
}

/// Where a page begins.
pub(super) fn after(text: &str) -> Result<ExecutionId, Error> {
    text.parse().map_err(|invalid| Error::bad_params("after", invalid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(start: Start) -> Option<String> {
        let error = super::start(&start).err()?;
        Some(error.data.unwrap()["field"].as_str().unwrap().to_owned())
    }

    fn shell() -> Start {
        Start { shell: Some("true".into()), ..Start::default() }
    }

    #[test]
    fn the_field_at_fault_is_named() {
        assert_eq!(field(shell()), None);
        assert_eq!(field(Start::default()).as_deref(), Some("command"));
        assert_eq!(
            field(Start { command: Some(Vec::new()), ..Start::default() }).as_deref(),
            Some("command")
        );
        let both = Start { command: Some(vec!["true".into()]), ..shell() };
        assert_eq!(field(both).as_deref(), Some("shell"));
        let nul = Start { command: Some(vec!["a".into(), "b\0".into()]), ..Start::default() };
        assert_eq!(field(nul).as_deref(), Some("command[1]"));
        assert_eq!(field(Start { cwd: Some("a\0".into()), ..shell() }).as_deref(), Some("cwd"));
        let workspace = "a".repeat(PATH_LIMIT + 1).as_str().into();
        assert_eq!(field(Start { workspace: Some(workspace), ..shell() }).as_deref(), Some("workspace"));
        let env = BTreeMap::from([("A=B".to_owned(), Bytes::from("c"))]);
        assert_eq!(field(Start { env, ..shell() }).as_deref(), Some("env.A=B"));
        let key = Some("k".repeat(KEY_LIMIT + 1));
        assert_eq!(field(Start { idempotency_key: key, ..shell() }).as_deref(), Some("idempotency_key"));
        assert_eq!(field(Start { profile: Some("a\nb".to_owned()), ..shell() }).as_deref(), Some("profile"));
    }

    #[test]
    fn params_go_by_name() {
        let raw = |text: &str| {
            Params::new(Some(serde_json::value::RawValue::from_string(text.to_owned()).unwrap()))
        };
        assert!(read::<Start>(&raw("[]")).is_ok() && read::<Start>(&raw("[ ]")).is_ok());
        assert!(read::<Start>(&Params::default()).is_ok());
        let error = read::<Start>(&raw(r#"[["true"]]"#)).unwrap_err();
        assert_eq!(error.data.unwrap()["field"], "params");
    }
}
