//! Where a path leads that a person or a variable named. A symlink on the way may be the doing of an earlier command, which would
//! choose by it what the next one is shown; so a link that a command could have made leads no further than below its
//! own directory.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;
use stockade_policy::Object;
use stockade_proto::Bytes;

use super::object;

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Whose links are followed anywhere.
#[derive(Debug)]
pub(super) struct Ways<'a> {
    /// Directories that commands of this profile write.
    pub(super) written: &'a [PathBuf],
    /// Where it is named: those in the home itself, and those of root in directories that can be nobody's workspace.
    /// Otherwise all but `written`.
    pub(super) home: Option<&'a Bytes>,
    /// Shown anyway: a link may lead there from everywhere.
    pub(super) shown: &'a [PathBuf],
}

pub(super) fn is_below(path: &Path, directories: &[PathBuf]) -> bool {
    directories.iter().any(|directory| path.starts_with(directory))
}

impl<'a> Ways<'a> {
    /// Everybody's but those of commands of this profile.
    pub(super) fn but(written: &'a [PathBuf]) -> Self {
        Self { written, home: None, shown: &[] }
    }

    /// What is there; `LOOP` where a link leads further than it may.
    pub(super) fn follow(&self, path: &Path) -> Result<Object, Errno> {
        let found = object(path)?;
        if found.path.as_path() == path {
            return Ok(found);
        }
        let (real, doubtful) = self.walk(path)?;
        let meant = |directory: &PathBuf| real.starts_with(directory) || is_below(&real, self.shown);
        if !doubtful.iter().all(meant) {
            return Err(Errno::LOOP);
        }
        // What the kernel follows now is no other.
        if found.path.as_path() == real { Ok(found) } else { Err(Errno::AGAIN) }
    }

    fn trusts(&self, directory: &Path) -> bool {
        if is_below(directory, self.written) {
            return false;
        }
        let Some(home) = self.home else { return true };
        let others = stockade_policy::check_workspace(&Bytes::from(directory), home).is_ok();
        directory == home.as_path() || (!others && is_roots(directory))
    }

    /// The real path, and the directories of links that a command could have made.
    fn walk(&self, path: &Path) -> Result<(PathBuf, Vec<PathBuf>), Errno> {
        let mut rest: VecDeque<OsString> = names(path).collect();
        let (mut real, mut doubtful, mut links) = (PathBuf::from("/"), Vec::new(), 0);
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                real.pop();
                continue;
            }
            let next = real.join(&name);
            let kind = FileType::from_raw_mode(rustix::fs::lstat(&next)?.st_mode);
            if !kind.is_symlink() {
                real = next;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::LOOP);
            }
            if !self.trusts(&real) {
                doubtful.push(real.clone());
            }
            let to = std::fs::read_link(&next)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            if to.is_absolute() {
                real = PathBuf::from("/");
            }
            for name in names(&to).collect::<Vec<_>>().into_iter().rev() {
                rest.push_front(name);
            }
        }
        Ok((real, doubtful))
    }
}

/// Nobody else can put anything there.
fn is_roots(directory: &Path) -> bool {
    rustix::fs::lstat(directory).is_ok_and(|stat| stat.st_uid == 0 && stat.st_mode & 0o022 == 0)
}

fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Home(tempfile::TempDir);

    impl Home {
        fn new() -> Self {
            let home = tempfile::tempdir().expect("directory");
            for directory in ["work/.venv", "kept", "sdk/17/bin", "system"] {
                std::fs::create_dir_all(home.path().join(directory)).expect("directory");
            }
            Self(home)
        }

        fn at(&self, below: &str) -> PathBuf {
            self.0.path().canonicalize().expect("real").join(below)
        }

        fn follow(&self, below: &str) -> Result<PathBuf, Errno> {
            let (home, written, shown) = (Bytes::from(self.at("")), [self.at("work")], [self.at("system")]);
            let ways = Ways { written: &written, home: Some(&home), shown: &shown };
            ways.follow(&self.at(below)).map(|found| found.path.to_path_buf())
        }
    }

    #[test]
    fn a_link_that_a_command_could_have_made_leads_nowhere_else() {
        let home = Home::new();
        symlink(home.at("kept"), home.at("work/.venv/bin")).expect("link");
        symlink(home.at("kept"), home.at("sdk/elsewhere")).expect("link");
        symlink("work/.venv/bin", home.at("through")).expect("link");
        symlink("../../kept", home.at("work/.venv/up")).expect("link");
        for planted in
            ["work/.venv/bin", "sdk/elsewhere", "through", "work/.venv/up", "work/.venv/bin/../kept"]
        {
            assert_eq!(home.follow(planted), Err(Errno::LOOP), "{planted}");
        }
        assert_eq!(home.follow("missing"), Err(Errno::NOENT));
    }

    #[test]
    fn what_is_meant_is_followed() {
        let home = Home::new();
        symlink("17", home.at("sdk/current")).expect("link");
        symlink(home.at("kept"), home.at("bin")).expect("link");
        symlink(home.at("system"), home.at("sdk/system")).expect("link");
        for (named, leads) in [
            ("sdk/current/bin", "sdk/17/bin"),
            ("bin", "kept"),
            ("sdk/system", "system"),
            ("work/.venv", "work/.venv"),
        ] {
            assert_eq!(home.follow(named), Ok(home.at(leads)), "{named}");
        }
    }

    #[test]
    fn the_systems_own_links_are_meant_and_those_where_a_workspace_could_be_are_not() {
        let home = Bytes::from("/home/ada");
        let ways = Ways { written: &[], home: Some(&home), shown: &[] };
        for own in ["/", "/usr", "/usr/bin", "/etc", "/home/ada"] {
            assert!(ways.trusts(Path::new(own)), "{own}");
        }
        for anybodys in ["/opt/app", "/usr/local/src/app", "/tmp", "/home/ada/x", "/srv/app"] {
            assert!(!ways.trusts(Path::new(anybodys)), "{anybodys}");
        }
    }
}
