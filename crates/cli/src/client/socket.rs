//! Where the service's socket is: where a person says, else where services put theirs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

const VARIABLE: &str = "STOCKADE_SOCKET";
/// Of the system's service, and of one that root started.
const SYSTEM: &str = "/run/stockade/stockade.sock";

/// What decides, apart from what is on the disk.
#[derive(Debug, Default)]
struct Around {
    variable: Option<OsString>,
    runtime: Option<PathBuf>,
    state: Option<PathBuf>,
}

/// In the order in which they are tried; one that a person named is the only one.
pub(super) fn places(given: Option<&Path>) -> Vec<PathBuf> {
    let directory = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    choose(
        given,
        Around {
            variable: std::env::var_os(VARIABLE).filter(|value| !value.is_empty()),
            runtime: directory("XDG_RUNTIME_DIR"),
            state: super::state::own(),
        },
    )
}

fn choose(given: Option<&Path>, around: Around) -> Vec<PathBuf> {
    if let Some(path) = given {
        return vec![path.to_owned()];
    }
    if let Some(path) = around.variable {
        return vec![PathBuf::from(path)];
    }
    // A person's service without a runtime directory listens below its state directory.
    let own = around.runtime.map(|runtime| runtime.join("stockade/stockade.sock"));
    let own = own.or_else(|| around.state.map(|state| state.join("run/stockade.sock")));
    own.into_iter().chain([PathBuf::from(SYSTEM)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_names_is_the_only_place() {
        let around =
            || Around { variable: Some("/v".into()), runtime: Some("/r".into()), state: Some("/s".into()) };
        assert_eq!(choose(Some(Path::new("here")), around()), [Path::new("here")]);
        assert_eq!(choose(None, around()), [Path::new("/v")]);
        let around = || Around { variable: None, ..around() };
        assert_eq!(choose(None, around()), [Path::new("/r/stockade/stockade.sock"), Path::new(SYSTEM)]);
        let around = Around { runtime: None, ..around() };
        assert_eq!(choose(None, around), [Path::new("/s/run/stockade.sock"), Path::new(SYSTEM)]);
        assert_eq!(choose(None, Around::default()), [Path::new(SYSTEM)]);
    }
}
