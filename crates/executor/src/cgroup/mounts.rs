//! Reads `/proc/self/mountinfo` and `/proc/self/cgroup`: which hierarchies are mounted where, and where
//! in each this process sits. Pure; `Host` reads the files, `layout` chooses among the result.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::layout::Controller;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupMount {
    /// The part of the hierarchy that is shown, `/` unless it is a bind mount or a container's.
    pub(super) root: PathBuf,
    pub(super) point: PathBuf,
    pub(super) writable: bool,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only controllers this module uses; a named hierarchy (`name=systemd`) has none.
    V1(Vec<Controller>),
    V2,
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - cgroup cgroup rw,memory`
pub(super) fn parse_mountinfo(text: &[u8]) -> Vec<CgroupMount> {
    text.split(|byte| *byte == b'\n').filter_map(parse_mount).collect()
}

fn parse_mount(line: &[u8]) -> Option<CgroupMount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let root = fields.nth(3)?;
    let point = fields.next()?;
    let options = fields.next()?;
    // Any number of optional fields, closed by a lone dash.
    fields.by_ref().find(|field| *field == b"-")?;
    let kind = fields.next()?;
    let super_options = fields.nth(1)?;
    let kind = match kind {
        b"cgroup2" => Kind::V2,
        b"cgroup" => Kind::V1(
            super_options.split(|byte| *byte == b',').filter_map(Controller::from_kernel_name).collect(),
        ),
        _ => return None,
    };
    let writable = [options, super_options]
        .iter()
        .all(|options| options.split(|byte| *byte == b',').all(|option| option != b"ro"));
    Some(CgroupMount { root: unescape(root), point: unescape(point), writable, kind })
}

/// The kernel writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'\\'
            && let Some((digits, tail)) = after.split_at_checked(3)
            && let Some(value) = octal(digits)
        {
            plain.push(value);
            rest = tail;
        } else {
            plain.push(byte);
            rest = after;
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

fn octal(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0u8, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(digit - b'0'),
        _ => None,
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Membership {
    pub(super) kind: Kind,
    pub(super) path: PathBuf,
}

/// `4:memory:/some/path`, and `0::/some/path` for v2. A path may hold colons.
pub(super) fn parse_memberships(text: &[u8]) -> Vec<Membership> {
    text.split(|byte| *byte == b'\n').filter_map(parse_membership).collect()
}

fn parse_membership(line: &[u8]) -> Option<Membership> {
    let mut fields = line.splitn(3, |byte| *byte == b':');
    let id = fields.next()?;
    let controllers = fields.next()?;
    let path = PathBuf::from(OsString::from_vec(fields.next()?.to_vec()));
    let kind = if id == b"0" && controllers.is_empty() {
        Kind::V2
    } else {
        Kind::V1(controllers.split(|byte| *byte == b',').filter_map(Controller::from_kernel_name).collect())
    };
    Some(Membership { kind, path })
}

/// Where `path` (as `/proc/self/cgroup` gives it) is under this mount. `None` if the mount shows
/// another part of the hierarchy, or the path leads out of our cgroup namespace (`/..`).
pub(super) fn locate(mount: &CgroupMount, path: &Path) -> Option<PathBuf> {
    let below = path.strip_prefix(&mount.root).ok()?;
    if below.components().any(|part| part.as_os_str().as_bytes() == b"..") {
        return None;
    }
    if below.as_os_str().is_empty() { Some(mount.point.clone()) } else { Some(mount.point.join(below)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_a_hybrid_host() {
        let text = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 master:2 - cgroup cgroup rw,cpu,cpuacct\n\
            35 31 0:32 /docker/1 /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
        let mounts = parse_mountinfo(text);
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[0].kind, Kind::V1(vec![Controller::Cpu, Controller::Cpuacct]));
        assert!(mounts[0].writable);
        assert_eq!(mounts[1].root, Path::new("/docker/1"));
        assert!(!mounts[1].writable);
        assert_eq!(mounts[2].kind, Kind::V1(vec![]));
        assert_eq!(mounts[3].kind, Kind::V2);
    }

    #[test]
    fn escapes_are_undone_and_broken_ones_kept() {
        assert_eq!(unescape(b"/a\\040b\\011c\\134d\\012"), Path::new("/a b\tc\\d\n"));
        assert_eq!(unescape(b"/a\\04"), Path::new("/a\\04"));
        assert_eq!(unescape(b"/a\\999"), Path::new("/a\\999"));
        assert_eq!(unescape(b"/a\\777"), Path::new("/a\\777"));
        let text = b"1 2 0:3 /with\\040space /mnt/a\\040-\\040b rw - cgroup2 none rw\n";
        assert_eq!(parse_mountinfo(text)[0].point, Path::new("/mnt/a - b"));
    }

    #[test]
    fn a_cut_line_is_no_mount() {
        for line in ["", "1 2 0:3 / /x rw", "1 2 0:3 / /x rw -", "1 2 0:3 / /x rw - cgroup2 none"] {
            assert_eq!(parse_mountinfo(line.as_bytes()), vec![], "{line:?}");
        }
    }

    #[test]
    fn memberships_of_both_kinds() {
        let list =
            parse_memberships(b"4:memory:/a:b/c\n2:cpuacct,cpu:/\n1:name=systemd:/s\n0::/user.slice\n");
        assert_eq!(list[0].path, Path::new("/a:b/c"));
        assert_eq!(list[1].kind, Kind::V1(vec![Controller::Cpuacct, Controller::Cpu]));
        assert_eq!(list[2].kind, Kind::V1(vec![]));
        assert_eq!(list[3], Membership { kind: Kind::V2, path: "/user.slice".into() });
    }

    #[test]
    fn own_directory_under_the_mount() {
        let mount = |root: &str| CgroupMount {
            root: root.into(),
            point: "/cg".into(),
            writable: true,
            kind: Kind::V2,
        };
        assert_eq!(locate(&mount("/"), Path::new("/")), Some("/cg".into()));
        assert_eq!(locate(&mount("/"), Path::new("/a/b")), Some("/cg/a/b".into()));
        assert_eq!(locate(&mount("/docker/1"), Path::new("/docker/1/x")), Some("/cg/x".into()));
        assert_eq!(locate(&mount("/docker/1"), Path::new("/docker/10")), None);
        assert_eq!(locate(&mount("/"), Path::new("/../other")), None);
        assert_eq!(locate(&mount("/.."), Path::new("/")), None);
    }
}
