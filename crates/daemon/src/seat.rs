//! Where this process sits among the cgroups. Version 2 allows no process beside groups with controllers, and the
//! executor makes such groups in the unit that systemd delegated to us: so we leave the unit's own group for a child
//! of it before the executor is born, as `DelegateSubgroup=supervisor` does from systemd 254 on.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The executor looks for what it may use above a group of this name.
const SUPERVISOR: &str = "supervisor";
/// Where version 2 is, alone or beside version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Does nothing where the group we are in is not ours alone.
pub fn settle() -> io::Result<()> {
    let membership = fs::read_to_string("/proc/self/cgroup")?;
    let Some(path) = own_path(&membership) else { return Ok(()) };
    let groups = MOUNTS.map(|mount| Path::new(mount).join(path));
    match groups.into_iter().find(|group| group.join("cgroup.procs").exists()) {
        Some(group) if is_ours(&group) && is_only_ours(&group) => leave(&group),
        Some(_) | None => Ok(()),
    }
}

/// Of version 2, relative to its mount.
fn own_path(membership: &str) -> Option<&str> {
    membership.lines().find_map(|line| line.strip_prefix("0::/"))
}

/// Delegation is a change of owner; of root's own groups systemd's mark tells those that are meant.
fn is_ours(group: &Path) -> bool {
    let user = rustix::process::geteuid();
    let owned = |file: &str| {
        fs::symlink_metadata(group.join(file)).is_ok_and(|there: fs::Metadata| there.uid() == user.as_raw())
    };
    owned("cgroup.procs") && owned("cgroup.subtree_control") && (!user.is_root() || is_marked(group))
}

fn is_marked(group: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0u8; 2];
        matches!(rustix::fs::getxattr(group, *name, &mut value[..]), Ok(1) if value[0] == b'1')
    })
}

fn is_only_ours(group: &Path) -> bool {
    let ourselves = std::process::id().to_string();
    fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|list| list.trim() == ourselves)
}

fn leave(group: &Path) -> io::Result<()> {
    let child: PathBuf = group.join(SUPERVISOR);
    match fs::create_dir(&child) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // "0" is the writing process, with all its threads.
    fs::write(child.join("cgroup.procs"), "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_two_is_the_line_without_controllers() {
        let hybrid = "12:memory:/a\n1:name=systemd:/b\n0::/c/d.service\n";
        assert_eq!(own_path(hybrid), Some("c/d.service"));
        assert_eq!(own_path("0::/\n"), Some(""));
        assert_eq!(own_path("1:memory:/a\n"), None);
    }

    #[test]
    fn a_group_with_others_in_it_is_left_alone() {
        let group = tempfile::tempdir().unwrap();
        fs::write(group.path().join("cgroup.procs"), format!("1\n{}\n", std::process::id())).unwrap();
        assert!(!is_only_ours(group.path()));
        fs::write(group.path().join("cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
        assert!(is_only_ours(group.path()));
    }
}
