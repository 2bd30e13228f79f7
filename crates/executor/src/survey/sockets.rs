//! What stands at the paths of socket rules. Links are followed one by one, so that none which a command could
//! have planted decides which of the host's sockets is opened to the next one. Next: `stockade_policy::plan`.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;
use stockade_policy::{FoundSocket, NeededSocket, Object, SocketObject, SocketPlace, name_matcher};
use stockade_proto::Bytes;

use super::{MAX_SCAN, list, of_stat, open_directory};

/// The kernel's own bound.
const MAX_LINKS: usize = 40;

/// `written` are the directories that commands can write, `uid` is the caller's.
pub fn look_at(needed: &[NeededSocket], written: &[PathBuf], uid: u32) -> Vec<FoundSocket> {
    let trust = Trust { written, uid };
    needed.iter().map(|needed| look(needed, &trust)).collect()
}

struct Trust<'t> {
    written: &'t [PathBuf],
    uid: u32,
}

enum Walked {
    /// Its directory is there; it is not.
    Missing(Option<PathBuf>),
    Planted,
    At(Object, FileType),
}

fn look(needed: &NeededSocket, trust: &Trust<'_>) -> FoundSocket {
    let path = match &needed.place {
        SocketPlace::Path(path) => path,
        SocketPlace::Glob { directory, .. } => directory,
    };
    let (real, what) = match (walk(path.as_path(), trust), &needed.place) {
        (Walked::Planted, _) => (None, SocketObject::Planted),
        (Walked::Missing(real), SocketPlace::Path(_)) => (real.map(Bytes::from), SocketObject::Missing),
        (Walked::Missing(_), SocketPlace::Glob { .. }) => (None, SocketObject::Missing),
        (Walked::At(object, kind), SocketPlace::Path(_)) => {
            let real = Some(object.path.clone());
            (real, if kind.is_socket() { SocketObject::Socket(object) } else { SocketObject::Other })
        }
        (Walked::At(object, _), SocketPlace::Glob { rest, .. }) => {
            let count = sockets_in(object.path.as_path(), rest);
            (Some(object.path), SocketObject::Matches(count))
        }
    };
    FoundSocket { needed: needed.clone(), real, what }
}

fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn walk(path: &Path, trust: &Trust<'_>) -> Walked {
    let mut real = PathBuf::from("/");
    let mut ahead: VecDeque<OsString> = parts(path).collect();
    let mut links = 0;
    let mut found = None;
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            real.pop();
            found = None;
            continue;
        }
        let here = real.join(&part);
        let stat = match rustix::fs::lstat(&here) {
            Ok(stat) => stat,
            Err(Errno::NOENT) if ahead.is_empty() => return Walked::Missing(Some(here)),
            Err(_) => return Walked::Missing(None),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !kind.is_symlink() {
            real = here;
            found = Some((stat, kind));
            continue;
        }
        let own = stat.st_uid == 0 || stat.st_uid == trust.uid;
        if !own || trust.written.iter().any(|directory| real.starts_with(directory)) {
            return Walked::Planted;
        }
        links += 1;
        let Ok(to) = rustix::fs::readlink(&here, Vec::new()) else { return Walked::Missing(None) };
        if links > MAX_LINKS {
            return Walked::Missing(None);
        }
        let to = Bytes::from(to.into_bytes()).to_path_buf();
        if to.is_absolute() {
            real = PathBuf::from("/");
        }
        parts(&to).rev().for_each(|part| ahead.push_front(part));
    }
    let found = found.or_else(|| {
        let stat = rustix::fs::lstat(&real).ok()?;
        Some((stat, FileType::from_raw_mode(stat.st_mode)))
    });
    match found {
        Some((stat, kind)) => Walked::At(of_stat(Bytes::from(real), &stat), kind),
        None => Walked::Missing(None),
    }
}

/// How many sockets right in the directory match, if that can be told.
fn sockets_in(directory: &Path, rest: &Bytes) -> Option<usize> {
    let matches = name_matcher(rest)?;
    let fd = open_directory(directory).ok()?;
    let (mut seen, mut count) = (0, 0);
    list(fd.as_fd(), &mut |name, kind| {
        seen += 1;
        count += usize::from(kind.is_socket() && matches(name));
        seen <= MAX_SCAN
    })
    .ok()?;
    (seen <= MAX_SCAN).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn ask(place: SocketPlace, written: &[PathBuf]) -> FoundSocket {
        let needed = NeededSocket { rule: 0, at: 0, place };
        let uid = rustix::process::geteuid().as_raw();
        look_at(&[needed], written, uid).pop().expect("one answer")
    }

    fn path(path: &Path, written: &[PathBuf]) -> FoundSocket {
        ask(SocketPlace::Path(Bytes::from(path)), written)
    }

    #[test]
    fn sockets_are_found_behind_links_that_nobody_could_plant() {
        let base = tempfile::tempdir().expect("directory");
        let base = base.path().canonicalize().expect("real");
        let work = base.join("work");
        for name in ["run", "work"] {
            std::fs::create_dir(base.join(name)).expect("directory");
        }
        let socket = base.join("run/x.sock");
        let _listener = UnixListener::bind(&socket).expect("bound");
        std::fs::write(base.join("run/file"), "").expect("file");
        symlink("run", base.join("link")).expect("link");
        symlink("../run/x.sock", work.join("planted.sock")).expect("link");
        symlink(&work, base.join("to-work")).expect("link");
        symlink("loop", base.join("loop")).expect("link");
        let written = [work.clone()];

        for spelling in ["run/x.sock", "link/x.sock"] {
            let found = path(&base.join(spelling), &written);
            assert_eq!(found.real, Some(Bytes::from(socket.as_path())), "{spelling}");
            assert!(matches!(&found.what, SocketObject::Socket(object) if !object.is_dir && object.ino != 0));
        }
        assert_eq!(path(&base.join("link/file"), &written).what, SocketObject::Other);
        let missing = path(&base.join("link/none"), &written);
        assert_eq!(
            (missing.real, missing.what),
            (Some(Bytes::from(base.join("run/none"))), SocketObject::Missing)
        );
        assert_eq!(path(&base.join("none/none"), &written).real, None);
        assert_eq!(path(&base.join("loop"), &written).what, SocketObject::Missing);
        for planted in ["work/planted.sock", "to-work/planted.sock"] {
            let found = path(&base.join(planted), &written);
            assert_eq!((found.real, found.what), (None, SocketObject::Planted), "{planted}");
        }
        assert!(matches!(path(&base.join("work/planted.sock"), &[]).what, SocketObject::Socket(_)));
    }

    #[test]
    fn globs_count_the_sockets_of_their_directory() {
        let base = tempfile::tempdir().expect("directory");
        let base = base.path().canonicalize().expect("real");
        let _listeners =
            ["a.sock", "b.sock", "c"].map(|name| UnixListener::bind(base.join(name)).expect("bound"));
        std::fs::write(base.join("d.sock"), "").expect("file");
        let glob = |rest: &str| {
            let directory = Bytes::from(format!("{}/", base.display()));
            ask(SocketPlace::Glob { directory, rest: Bytes::from(rest) }, &[]).what
        };
        assert_eq!(glob("*.sock"), SocketObject::Matches(Some(2)));
        assert_eq!(glob("z*"), SocketObject::Matches(Some(0)));
        assert_eq!(glob("**"), SocketObject::Matches(None));
        assert_eq!(glob("*/x"), SocketObject::Matches(None));
        let nowhere = SocketPlace::Glob { directory: Bytes::from("/no/such/"), rest: Bytes::from("*") };
        assert_eq!(ask(nowhere, &[]).what, SocketObject::Missing);
    }
}
