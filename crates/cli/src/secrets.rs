//! Values that must never be shown, from `--secret-env` and `--secret-file`. They go into the
//! redactor and nowhere else: not into the plan, not into the command's environment.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use stockade_proto::{Code, Refusal};
use stockade_redact::{MAX_SECRET, Redactor, Secret, SecretError};
use zeroize::Zeroizing;

fn refuse(source: &str, why: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        Code::SecretInvalid,
        format!("the secret {source} can't be redacted: {why}"),
        "Give a variable that is set, or a readable file, of at least 8 bytes.",
    )
}

/// `NAME=PATH`, or a path whose file name is the secret's name.
fn from_file(argument: &str) -> Result<Secret, Refusal> {
    let (name, path) = match argument.split_once('=') {
        Some((name, path)) => (name, path),
        None => (argument.rsplit('/').next().unwrap_or(argument), argument),
    };
    let file = File::open(path).map_err(|error| refuse(path, &error))?;
    let mut value = Zeroizing::new(Vec::new());
    file.take(MAX_SECRET as u64 + 1).read_to_end(&mut value).map_err(|error| refuse(path, &error))?;
    Secret::new(name, &value).map_err(|error| refuse(path, &error))
}

fn from_environment(name: &str) -> Result<Secret, Refusal> {
    let value = std::env::var_os(name).ok_or_else(|| refuse(name, &"no such variable"))?;
    Secret::new(name, value.as_bytes()).map_err(|error| refuse(name, &error))
}

pub(crate) fn redactor(variables: &[String], files: &[String]) -> Result<Redactor, Refusal> {
    let mut secrets = Vec::new();
    for name in variables {
        secrets.push(from_environment(name)?);
    }
    for file in files {
        secrets.push(from_file(file)?);
    }
    Redactor::new(&secrets, true).map_err(|error: SecretError| refuse("set", &error))
}
