//! Regaining capabilities and rebuilding the mount tree.

use std::fs;

use crate::Op;
use crate::verdict::{Scene, Step, Stop, argument, check, errno, held, io, text, unable};

pub(crate) const OPS: &[(&str, Op)] = &[
    ("unshare", unshare),
    ("clone-user", clone_user),
    ("clone3-user", clone3_user),
    ("setns", setns),
    ("setns-pidfd", setns_pidfd),
    ("become-root", become_root),
    ("caps", caps),
    ("status", status),
    ("capset", capset),
    ("mount", mount),
    ("bind", bind),
    ("remount-rw", remount_rw),
    ("umount", umount),
    ("pivot-root", pivot_root),
    ("chroot", chroot),
    ("fsopen", fsopen),
    ("fspick", fspick),
    ("open-tree", open_tree),
    ("move-mount", move_mount),
    ("mount-setattr-rw", mount_setattr_rw),
    ("setuid", setuid),
    ("setgroups", setgroups),
    ("securebits", securebits),
    ("exec", exec),
];

fn flags(words: &[String]) -> Result<i32, Stop> {
    let mut flags = 0;
    for word in words {
        flags |= match word.as_str() {
            "user" => libc::CLONE_NEWUSER,
            "mnt" => libc::CLONE_NEWNS,
            "pid" => libc::CLONE_NEWPID,
            "net" => libc::CLONE_NEWNET,
            "ipc" => libc::CLONE_NEWIPC,
            "uts" => libc::CLONE_NEWUTS,
            "cgroup" => libc::CLONE_NEWCGROUP,
            "time" => 0x80,
            other => return unable(format!("no such namespace: {other}")),
        };
    }
    Ok(flags)
}

fn unshare(_: &mut Scene, arguments: &[String]) -> Step {
    check("unshare", i64::from(unsafe { libc::unshare(flags(arguments)?) })).map(drop)
}

fn reap(step: &str, pid: i64) -> Step {
    check(step, pid)?;
    if pid == 0 {
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    unsafe { libc::waitpid(pid as i32, &raw mut status, 0) };
    Ok(())
}

fn clone_user(_: &mut Scene, _: &[String]) -> Step {
    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
    reap("clone", unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })
}

/// clone3 hides its flags behind a pointer that a filter can't follow.
fn clone3_user(_: &mut Scene, _: &[String]) -> Step {
    let mut arguments = [0u64; 11];
    arguments[0] = libc::CLONE_NEWUSER as u64;
    arguments[4] = libc::SIGCHLD as u64;
    reap("clone3", unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), 88) })
}

fn setns(_: &mut Scene, arguments: &[String]) -> Step {
    let file = io("open", fs::File::open(argument(arguments, 0, "path")?))?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    check("setns", i64::from(unsafe { libc::setns(fd, 0) })).map(drop)
}

fn setns_pidfd(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = crate::verdict::number(arguments, 0, "pid")?;
    let pidfd = check("pidfd_open", unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    check("setns", i64::from(unsafe { libc::setns(pidfd as i32, flags(&arguments[1..])?) })).map(drop)
}

/// What any user may do on a host without walls: a user namespace gives every capability over a
/// private mount tree. A real root only takes the private mount tree, so that it can't hurt the host.
fn become_root(_: &mut Scene, _: &[String]) -> Step {
    let (uid, gid) = (unsafe { libc::geteuid() }, unsafe { libc::getegid() });
    if uid == 0 && effective()? != 0 {
        check("unshare(mnt)", i64::from(unsafe { libc::unshare(libc::CLONE_NEWNS) }))?;
    } else {
        check("unshare(user)", i64::from(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) }))?;
        io("setgroups", fs::write("/proc/self/setgroups", "deny"))?;
        io("uid_map", fs::write("/proc/self/uid_map", format!("0 {uid} 1")))?;
        io("gid_map", fs::write("/proc/self/gid_map", format!("0 {gid} 1")))?;
    }
    let (none, root) = (std::ptr::null(), text("/"));
    let private = libc::MS_REC | libc::MS_PRIVATE;
    check("make-private", i64::from(unsafe { libc::mount(none, root.as_ptr(), none, private, none.cast()) }))
        .map(drop)
}

fn status_field(name: &str) -> Result<String, Stop> {
    let status = io("status", fs::read_to_string("/proc/self/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(line.unwrap_or("?").trim().to_owned())
}

fn effective() -> Result<u64, Stop> {
    Ok(u64::from_str_radix(&status_field("CapEff")?, 16).unwrap_or(0))
}

/// Wins if any capability set holds anything.
fn caps(scene: &mut Scene, _: &[String]) -> Step {
    let mut any = false;
    let mut shown = Vec::new();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let value = status_field(set)?;
        any |= value.bytes().any(|digit| digit != b'0');
        shown.push(format!("{set}={value}"));
    }
    scene.loot = shown.join(" ");
    if any { Ok(()) } else { held("caps", libc::EPERM) }
}

fn status(scene: &mut Scene, arguments: &[String]) -> Step {
    let fields: Result<Vec<String>, Stop> =
        arguments.iter().map(|name| Ok(format!("{name}={}", status_field(name)?))).collect();
    scene.loot = fields?.join(" ");
    Ok(())
}

fn capset(_: &mut Scene, _: &[String]) -> Step {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let header = Header { version: 0x2008_0522, pid: 0 };
    // CAP_SYS_ADMIN and nothing else: 21 is in the first word.
    let sets = [[1u32 << 21, 1 << 21, 0], [0, 0, 0]];
    check("capset", unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) })?;
    if effective()? == 0 { held("capset-ignored", 0) } else { Ok(()) }
}

/// TYPE TARGET
fn mount(_: &mut Scene, arguments: &[String]) -> Step {
    let (kind, target) = (text(argument(arguments, 0, "type")?), text(argument(arguments, 1, "target")?));
    let none = std::ptr::null();
    let answer = unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, none) };
    check("mount", i64::from(answer)).map(drop)
}

fn bind(_: &mut Scene, arguments: &[String]) -> Step {
    let (source, target) = (text(argument(arguments, 0, "source")?), text(argument(arguments, 1, "target")?));
    let flags = libc::MS_BIND | libc::MS_REC;
    let none = std::ptr::null();
    let answer = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), none, flags, none.cast()) };
    check("bind", i64::from(answer)).map(drop)
}

fn remount_rw(_: &mut Scene, arguments: &[String]) -> Step {
    let target = text(argument(arguments, 0, "target")?);
    let none = std::ptr::null();
    let flags = libc::MS_BIND | libc::MS_REMOUNT;
    let answer = unsafe { libc::mount(none, target.as_ptr(), none, flags, none.cast()) };
    check("remount", i64::from(answer)).map(drop)
}

fn umount(_: &mut Scene, arguments: &[String]) -> Step {
    let target = text(argument(arguments, 0, "target")?);
    check("umount2", i64::from(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) })).map(drop)
}

fn pivot_root(_: &mut Scene, arguments: &[String]) -> Step {
    let new = text(argument(arguments, 0, "new root")?);
    check("pivot_root", unsafe { libc::syscall(libc::SYS_pivot_root, new.as_ptr(), new.as_ptr()) }).map(drop)
}

fn chroot(_: &mut Scene, arguments: &[String]) -> Step {
    let path = text(argument(arguments, 0, "path")?);
    check("chroot", i64::from(unsafe { libc::chroot(path.as_ptr()) })).map(drop)
}

fn fsopen(scene: &mut Scene, arguments: &[String]) -> Step {
    let kind = text(argument(arguments, 0, "type")?);
    let fd = check("fsopen", unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), 0) })?;
    const FSCONFIG_CMD_CREATE: i32 = 6;
    check("fsconfig", unsafe { libc::syscall(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, 0, 0, 0) })?;
    scene.fd = Some(check("fsmount", unsafe { libc::syscall(libc::SYS_fsmount, fd, 0, 0) })? as i32);
    Ok(())
}

fn fspick(_: &mut Scene, arguments: &[String]) -> Step {
    let path = text(argument(arguments, 0, "path")?);
    check("fspick", unsafe { libc::syscall(libc::SYS_fspick, libc::AT_FDCWD, path.as_ptr(), 0) }).map(drop)
}

fn open_tree(scene: &mut Scene, arguments: &[String]) -> Step {
    let path = text(argument(arguments, 0, "path")?);
    const OPEN_TREE_CLONE: i32 = 1;
    let flags = OPEN_TREE_CLONE | libc::AT_RECURSIVE;
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    scene.fd = Some(check("open_tree", fd)? as i32);
    Ok(())
}

fn move_mount(scene: &mut Scene, arguments: &[String]) -> Step {
    let target = text(argument(arguments, 0, "target")?);
    let from = scene.fd.unwrap_or(-1);
    let empty = text("");
    const MOVE_MOUNT_F_EMPTY_PATH: i32 = 4;
    let answer = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            from,
            empty.as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    check("move_mount", answer).map(drop)
}

/// Takes the read-only flag off a mount.
fn mount_setattr_rw(_: &mut Scene, arguments: &[String]) -> Step {
    let path = text(argument(arguments, 0, "path")?);
    const MOUNT_ATTR_RDONLY: u64 = 1;
    let attributes = [0u64, MOUNT_ATTR_RDONLY, 0, 0];
    let answer = unsafe {
        libc::syscall(libc::SYS_mount_setattr, libc::AT_FDCWD, path.as_ptr(), 0, attributes.as_ptr(), 32)
    };
    check("mount_setattr", answer).map(drop)
}

fn setuid(_: &mut Scene, arguments: &[String]) -> Step {
    let id = crate::verdict::number(arguments, 0, "uid")? as u32;
    check("setresuid", i64::from(unsafe { libc::setresuid(id, id, id) })).map(drop)
}

fn setgroups(_: &mut Scene, _: &[String]) -> Step {
    check("setgroups", i64::from(unsafe { libc::setgroups(0, std::ptr::null()) })).map(drop)
}

fn securebits(_: &mut Scene, _: &[String]) -> Step {
    check("PR_SET_SECUREBITS", i64::from(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, 1, 0, 0, 0) }))
        .map(drop)
}

/// Runs a program and wins if it ends with 0; its output is the loot.
fn exec(scene: &mut Scene, arguments: &[String]) -> Step {
    let Some((program, rest)) = arguments.split_first() else { return unable("exec needs a program") };
    let output = std::process::Command::new(program).args(rest).stdin(std::process::Stdio::null()).output();
    let output = io("exec", output)?;
    scene.loot =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        Ok(())
    } else {
        eprint!("{}", scene.loot);
        held(
            format!("exec:{}", program.rsplit('/').next().unwrap_or(program)),
            if errno() == 0 { 1 } else { errno() },
        )
    }
}
