//! Attacks on files: reading, writing, moving, linking and marking what lies outside.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};

use crate::Op;
use crate::verdict::{Scene, Step, Stop, argument, check, errno, held, io, number, text, unable};

pub(crate) const OPS: &[(&str, Op)] = &[
    ("read", read),
    ("read-tree", read_tree),
    ("write", write),
    ("create", create),
    ("open-write", open_write),
    ("truncate", truncate),
    ("unlink", unlink),
    ("rmdir", rmdir),
    ("mkdir", mkdir),
    ("rename", rename),
    ("exchange", exchange),
    ("link", link),
    ("link-fd", link_fd),
    ("symlink", symlink),
    ("chmod", chmod),
    ("chown", chown),
    ("utimes", utimes),
    ("setxattr", setxattr),
    ("stat", stat),
    ("list", list),
    ("chdir", chdir),
    ("climb", climb),
    ("open-dir", open_dir),
    ("read-at", read_at),
    ("reopen-write", reopen_write),
    ("fd-read", fd_read),
    ("fd-read-at", fd_read_at),
    ("fd-extra", fd_extra),
    ("mknod", mknod),
    ("handle", handle),
    ("handle-root", handle_root),
    ("fill", fill),
    ("mmap-write", mmap_write),
];

/// Enough for any secret the suite plants; a runaway file does not fill the report.
const LOOT_BYTES: u64 = 4096;

fn read(scene: &mut Scene, arguments: &[String]) -> Step {
    let path = argument(arguments, 0, "path")?;
    let file = io("open", OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path))?;
    let mut bytes = Vec::new();
    io("read", file.take(LOOT_BYTES).read_to_end(&mut bytes))?;
    scene.loot = String::from_utf8_lossy(&bytes).into_owned();
    Ok(())
}

/// Every regular file below a directory: wins with the contents of all it could read.
fn read_tree(scene: &mut Scene, arguments: &[String]) -> Step {
    let mut open = vec![std::path::PathBuf::from(argument(arguments, 0, "directory")?)];
    let mut got = String::new();
    let mut last = libc::ENOENT;
    while let Some(directory) = open.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) => {
                last = error.raw_os_error().unwrap_or(0);
                continue;
            }
        };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(kind) if kind.is_file() => match fs::read(entry.path()) {
                    Ok(bytes) => got.push_str(&String::from_utf8_lossy(&bytes)),
                    Err(error) => last = error.raw_os_error().unwrap_or(0),
                },
                _ => {}
            }
        }
    }
    if got.is_empty() {
        return held("read-tree", last);
    }
    scene.loot = got;
    Ok(())
}

fn write(_: &mut Scene, arguments: &[String]) -> Step {
    let path = argument(arguments, 0, "path")?;
    let words = arguments.get(1).map_or("pwned", String::as_str);
    let mut file = io("open", OpenOptions::new().append(true).open(path))?;
    io("write", file.write_all(words.as_bytes()))
}

fn create(_: &mut Scene, arguments: &[String]) -> Step {
    let path = argument(arguments, 0, "path")?;
    let mut file = io("create", OpenOptions::new().write(true).create_new(true).open(path))?;
    io("write", file.write_all(b"pwned"))
}

/// Opens for writing and writes nothing: safe to win on a real host.
fn open_write(_: &mut Scene, arguments: &[String]) -> Step {
    let path = argument(arguments, 0, "path")?;
    io("open", OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path)).map(drop)
}

fn truncate(_: &mut Scene, arguments: &[String]) -> Step {
    let path = text(argument(arguments, 0, "path")?);
    check("truncate", i64::from(unsafe { libc::truncate(path.as_ptr(), 0) })).map(drop)
}

fn unlink(_: &mut Scene, arguments: &[String]) -> Step {
    io("unlink", fs::remove_file(argument(arguments, 0, "path")?))
}

fn rmdir(_: &mut Scene, arguments: &[String]) -> Step {
    io("rmdir", fs::remove_dir(argument(arguments, 0, "path")?))
}

fn mkdir(_: &mut Scene, arguments: &[String]) -> Step {
    io("mkdir", fs::create_dir(argument(arguments, 0, "path")?))
}

fn rename(_: &mut Scene, arguments: &[String]) -> Step {
    io("rename", fs::rename(argument(arguments, 0, "from")?, argument(arguments, 1, "to")?))
}

fn exchange(_: &mut Scene, arguments: &[String]) -> Step {
    let (from, to) = (text(argument(arguments, 0, "from")?), text(argument(arguments, 1, "to")?));
    let answer = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    };
    check("renameat2", answer).map(drop)
}

fn link(_: &mut Scene, arguments: &[String]) -> Step {
    io("link", fs::hard_link(argument(arguments, 0, "from")?, argument(arguments, 1, "to")?))
}

/// Links what a descriptor stands for: no path to the source is looked up.
fn link_fd(_: &mut Scene, arguments: &[String]) -> Step {
    let source = text(argument(arguments, 0, "from")?);
    let to = text(argument(arguments, 1, "to")?);
    let fd = check("open", i64::from(unsafe { libc::open(source.as_ptr(), libc::O_PATH) }))?;
    let name = text(&format!("/proc/self/fd/{fd}"));
    let answer = unsafe {
        libc::linkat(libc::AT_FDCWD, name.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    check("linkat", i64::from(answer)).map(drop)
}

fn symlink(_: &mut Scene, arguments: &[String]) -> Step {
    let answer = std::os::unix::fs::symlink(argument(arguments, 0, "to")?, argument(arguments, 1, "at")?);
    io("symlink", answer)
}

fn chmod(_: &mut Scene, arguments: &[String]) -> Step {
    let path = argument(arguments, 0, "path")?;
    let mode = u32::from_str_radix(argument(arguments, 1, "mode")?, 8).unwrap_or(0o777);
    io("chmod", fs::set_permissions(path, fs::Permissions::from_mode(mode)))?;
    // A filesystem may drop the setuid bit without an error: what counts is what is there afterwards.
    let now = io("stat", fs::metadata(path))?.permissions().mode() & 0o7777;
    if now == mode { Ok(()) } else { held("chmod-ignored", 0) }
}

fn chown(_: &mut Scene, arguments: &[String]) -> Step {
    let path = argument(arguments, 0, "path")?;
    let id = number(arguments, 1, "id")? as u32;
    io("chown", std::os::unix::fs::chown(path, Some(id), Some(id)))
}

fn utimes(_: &mut Scene, arguments: &[String]) -> Step {
    let path = text(argument(arguments, 0, "path")?);
    let times = [libc::timespec { tv_sec: 1, tv_nsec: 0 }; 2];
    let answer = unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), 0) };
    check("utimensat", i64::from(answer)).map(drop)
}

fn setxattr(_: &mut Scene, arguments: &[String]) -> Step {
    let path = text(argument(arguments, 0, "path")?);
    let name = text("user.stockade");
    let answer = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), b"pwned".as_ptr().cast(), 5, 0) };
    check("setxattr", i64::from(answer)).map(drop)
}

fn stat(_: &mut Scene, arguments: &[String]) -> Step {
    io("stat", fs::metadata(argument(arguments, 0, "path")?)).map(drop)
}

fn list(scene: &mut Scene, arguments: &[String]) -> Step {
    let entries = io("open", fs::read_dir(argument(arguments, 0, "path")?))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    scene.loot = names.join(" ");
    Ok(())
}

fn chdir(_: &mut Scene, arguments: &[String]) -> Step {
    io("chdir", std::env::set_current_dir(argument(arguments, 0, "path")?))
}

/// `..` until nothing is above, the way a chroot is left.
fn climb(_: &mut Scene, _: &[String]) -> Step {
    for _ in 0..64 {
        io("chdir", std::env::set_current_dir(".."))?;
    }
    Ok(())
}

fn open_dir(scene: &mut Scene, arguments: &[String]) -> Step {
    let path = text(argument(arguments, 0, "path")?);
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_DIRECTORY) };
    check("open", i64::from(fd))?;
    scene.fd = Some(fd);
    Ok(())
}

fn openat(directory: i32, path: &str, flags: i32) -> Result<File, Stop> {
    let path = text(path);
    let fd = check("openat", i64::from(unsafe { libc::openat(directory, path.as_ptr(), flags) }))?;
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

fn loot(scene: &mut Scene, file: File) -> Step {
    let mut bytes = Vec::new();
    io("read", file.take(LOOT_BYTES).read_to_end(&mut bytes))?;
    scene.loot = String::from_utf8_lossy(&bytes).into_owned();
    Ok(())
}

fn read_at(scene: &mut Scene, arguments: &[String]) -> Step {
    let Some(directory) = scene.fd else { return unable("read-at before open-dir") };
    let file = openat(directory, argument(arguments, 0, "path")?, libc::O_RDONLY)?;
    loot(scene, file)
}

/// Opens read-only, then again for writing through `/proc/self/fd`.
fn reopen_write(_: &mut Scene, arguments: &[String]) -> Step {
    let file = io("open", File::open(argument(arguments, 0, "path")?))?;
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut again = io("reopen", OpenOptions::new().append(true).open(name))?;
    io("write", again.write_all(b"pwned"))
}

fn fd_read(scene: &mut Scene, arguments: &[String]) -> Step {
    let fd = number(arguments, 0, "fd")? as i32;
    let mut bytes = [0u8; 512];
    let got = check("pread", unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), bytes.len(), 0) } as i64)?;
    scene.loot = String::from_utf8_lossy(&bytes[..got as usize]).into_owned();
    Ok(())
}

/// A leaked directory descriptor is a door to everything beside it.
fn fd_read_at(scene: &mut Scene, arguments: &[String]) -> Step {
    let fd = number(arguments, 0, "fd")? as i32;
    let file = openat(fd, argument(arguments, 1, "path")?, libc::O_RDONLY)?;
    loot(scene, file)
}

/// Wins with the list of descriptors beyond stdio that this program was born with.
fn fd_extra(scene: &mut Scene, _: &[String]) -> Step {
    let extra: Vec<String> = (3..4096)
        .filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0)
        .map(|fd| {
            let target = fs::read_link(format!("/proc/self/fd/{fd}"));
            format!("{fd}={}", target.map_or_else(|_| String::from("?"), |path| path.display().to_string()))
        })
        .collect();
    if extra.is_empty() {
        return held("fd-extra", libc::EBADF);
    }
    scene.loot = extra.join(" ");
    Ok(())
}

fn mknod(scene: &mut Scene, arguments: &[String]) -> Step {
    let path = argument(arguments, 0, "path")?;
    let kind = match argument(arguments, 1, "kind")? {
        "b" => libc::S_IFBLK,
        _ => libc::S_IFCHR,
    };
    let device = libc::makedev(number(arguments, 2, "major")? as u32, number(arguments, 3, "minor")? as u32);
    let name = text(path);
    check("mknod", i64::from(unsafe { libc::mknod(name.as_ptr(), kind | 0o666, device) }))?;
    let opened = File::open(path);
    let _ = fs::remove_file(path);
    let mut bytes = [0u8; 1];
    let mut file = io("open-node", opened)?;
    io("read-node", file.read_exact(&mut bytes))?;
    scene.loot = String::from("device opened");
    Ok(())
}

#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

fn open_handle(scene: &mut Scene, mount: i32, handle: &mut Handle) -> Step {
    let fd = unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, mount, std::ptr::from_mut(handle), libc::O_RDONLY)
    };
    let fd = check("open_by_handle_at", fd)?;
    scene.fd = Some(fd as i32);
    scene.loot = fs::read_link(format!("/proc/self/fd/{fd}"))
        .map_or_else(|_| String::from("opened"), |path| path.display().to_string());
    Ok(())
}

fn handle(scene: &mut Scene, arguments: &[String]) -> Step {
    let path = text(argument(arguments, 0, "path")?);
    let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
    let mut mount = 0i32;
    let answer = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            std::ptr::from_mut(&mut handle),
            std::ptr::from_mut(&mut mount),
            0,
        )
    };
    check("name_to_handle_at", answer)?;
    let directory = check("open", i64::from(unsafe { libc::open(path.as_ptr(), libc::O_RDONLY) }))?;
    open_handle(scene, directory as i32, &mut handle)
}

/// The root of an ext4 is inode 2, generation 0, whatever is mounted where: no lookup needed.
fn handle_root(scene: &mut Scene, arguments: &[String]) -> Step {
    let path = text(argument(arguments, 0, "path")?);
    let directory = check("open", i64::from(unsafe { libc::open(path.as_ptr(), libc::O_RDONLY) }))?;
    let mut handle = Handle { bytes: 8, kind: 1, data: [0; 128] };
    handle.data[..4].copy_from_slice(&2u32.to_ne_bytes());
    open_handle(scene, directory as i32, &mut handle)
}

/// Writes zeros into a new file until something stops it.
fn fill(scene: &mut Scene, arguments: &[String]) -> Step {
    let path = argument(arguments, 0, "path")?;
    let limit = number(arguments, 1, "MiB")?;
    let mut file = io("create", OpenOptions::new().write(true).create(true).truncate(true).open(path))?;
    let chunk = vec![0x5au8; 1 << 20];
    for written in 0..limit {
        if let Err(error) = file.write_all(&chunk) {
            println!("WROTE {written} MiB");
            return held("write", error.raw_os_error().unwrap_or(0));
        }
    }
    println!("WROTE {limit} MiB");
    scene.loot = format!("{limit} MiB");
    Ok(())
}

/// A shared writable mapping of a file: no write(2) is ever issued.
fn mmap_write(_: &mut Scene, arguments: &[String]) -> Step {
    let path = argument(arguments, 0, "path")?;
    let file = io("open", OpenOptions::new().read(true).write(true).open(path))?;
    let fd = file.into_raw_fd();
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0)
    };
    if at == libc::MAP_FAILED {
        return held("mmap", errno());
    }
    unsafe { at.cast::<u8>().write_volatile(b'X') };
    Ok(())
}
