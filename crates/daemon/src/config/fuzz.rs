//! The way in for `tests/fuzz`: a text is parsed and resolved, and nothing is opened for it but the list of users.

use std::path::Path;

use secrecy::SecretString;
use stockade_policy::ProfileError;

use super::{Scope, Settings, Surroundings, written};

/// What `stockaded` would make of a file with this text.
pub fn configuration(text: &str) -> Result<Settings, ProfileError> {
    let around = Surroundings {
        scope: Scope::Person,
        variables: Default::default(),
        home: Some("/home/ada".into()),
        runtime: Some("/run/user/1000".into()),
        state_home: None,
        config_home: None,
        current: Some("/home/ada/work".into()),
        credentials: None,
        program: None,
        // With one given, `secret_file` is not read: a text of the fuzzer's must not choose what is opened here.
        secret: Some(SecretString::from("fuzzed-0123456789abcdef")),
    };
    let file = written::File::parse(Path::new("/fuzzed.toml"), text.to_owned())?;
    super::settings(Some(&file), &around)
}
