//! How many descriptors this process may have open, as against how many it was born with: the command gets the
//! latter.

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// Enough for every connection of an egress while each is being dialled, or for hundreds of executions.
const DESCRIPTORS: u64 = 65_536;

static BORN_WITH: OnceLock<Rlimit> = OnceLock::new();

/// The usual soft limit of 1024 is for programs that use `select`. What is started afterwards is given the old
/// one back by [`as_born`].
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS, |hard| hard.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted) {
        BORN_WITH.get_or_init(|| limit);
        match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }) {
            // As many are taken as there is room for.
            Ok(()) | Err(_) => {}
        }
    }
}

/// For a child that has not run a line of the command's yet.
pub(crate) fn as_born(pid: u32) {
    let (Some(limit), Ok(pid)) = (BORN_WITH.get(), i32::try_from(pid)) else { return };
    match prlimit(Pid::from_raw(pid), Resource::Nofile, *limit) {
        // More descriptors than usual do no harm.
        Ok(_) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_of_descriptors_is_raised_and_never_lowered() {
        let before = getrlimit(Resource::Nofile);
        let set = |current| {
            setrlimit(Resource::Nofile, Rlimit { current, maximum: before.maximum }).expect("a soft limit");
        };
        set(Some(256));
        raise_descriptors();
        let most = before.maximum.map_or(DESCRIPTORS, |hard| hard.min(DESCRIPTORS));
        assert_eq!(getrlimit(Resource::Nofile).current, Some(most));
        set(before.maximum);
        raise_descriptors();
        assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: before.maximum, maximum: before.maximum });
    }

    #[test]
    fn a_child_has_what_we_were_born_with() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        BORN_WITH.get_or_init(|| Rlimit { current: Some(300), maximum: getrlimit(Resource::Nofile).maximum });
        as_born(child.id());
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).expect("it is there");
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        let soft = BORN_WITH.get().and_then(|limit| limit.current).expect("a limit").to_string();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
        assert_eq!(line.split_whitespace().nth(3), Some(soft.as_str()), "{line}");
    }
}
