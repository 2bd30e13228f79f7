//! Attacks on other processes: looking into them, reading their memory, taking their descriptors.

use std::fs;

use crate::Op;
use crate::verdict::{Scene, Step, Stop, argument, check, errno, held, io, number};

pub(crate) const OPS: &[(&str, Op)] = &[
    ("scan-proc", scan_proc),
    ("see-pid", see_pid),
    ("count-pids", count_pids),
    ("trace", trace),
    ("seize", seize),
    ("vm-read", vm_read),
    ("vm-write", vm_write),
    ("proc-mem", proc_mem),
    ("pidfd-getfd", pidfd_getfd),
    ("kcmp", kcmp),
    ("prlimit", prlimit),
    ("affinity", affinity),
    ("priority", priority),
    ("own-auxv", own_auxv),
    ("own-env", own_env),
    ("init-secrets", init_secrets),
];

/// The marker comes in reversed, so that it is not in this program's own argv.
fn reversed(arguments: &[String]) -> Result<Vec<u8>, Stop> {
    Ok(argument(arguments, 0, "reversed marker")?.bytes().rev().collect())
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// Every way `/proc/PID` tells about a process, for each process that can be seen.
fn scan_proc(scene: &mut Scene, arguments: &[String]) -> Step {
    let marker = reversed(arguments)?;
    let mut last = libc::ENOENT;
    for entry in io("open", fs::read_dir("/proc"))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        for leaf in ["environ", "cmdline", "comm", "auxv", "maps", "mountinfo", "stat", "cgroup"] {
            match fs::read(format!("/proc/{name}/{leaf}")) {
                Ok(bytes) if contains(&bytes, &marker) => {
                    scene.loot = format!("/proc/{name}/{leaf}");
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) => last = error.raw_os_error().unwrap_or(0),
            }
        }
        for link in ["cwd", "root", "exe"] {
            let path = format!("/proc/{name}/{link}");
            match fs::read_link(&path) {
                Ok(target) if contains(target.as_os_str().as_encoded_bytes(), &marker) => {
                    scene.loot = path;
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) => last = error.raw_os_error().unwrap_or(0),
            }
        }
        if let Some(found) = scan_descriptors(&name, &marker) {
            scene.loot = found;
            return Ok(());
        }
    }
    held("scan-proc", last)
}

/// Larger files are data of others, not secrets of the suite; a host has many of them open.
const LARGEST_LOOK: u64 = 64 << 10;

fn scan_descriptors(pid: &str, marker: &[u8]) -> Option<String> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        let path = entry.path();
        let target = fs::read_link(&path).unwrap_or_default();
        if contains(target.as_os_str().as_encoded_bytes(), marker) {
            return Some(path.display().to_string());
        }
        let regular = fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() < LARGEST_LOOK);
        if regular && fs::read(&path).is_ok_and(|bytes| contains(&bytes, marker)) {
            return Some(path.display().to_string());
        }
    }
    None
}

fn see_pid(scene: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")?;
    scene.loot = io("open", fs::read_to_string(format!("/proc/{pid}/cmdline")))?.replace('\0', " ");
    Ok(())
}

fn count_pids(scene: &mut Scene, _: &[String]) -> Step {
    let pids: Vec<String> = io("open", fs::read_dir("/proc"))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    scene.loot = pids.join(" ");
    Ok(())
}

fn trace(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")? as i32;
    check("PTRACE_ATTACH", unsafe { libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0) })?;
    let mut status = 0;
    unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    check("PTRACE_DETACH", unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0) }).map(drop)
}

fn seize(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")? as i32;
    check("PTRACE_SEIZE", unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) }).map(drop)
}

fn vectors(buffer: &mut [u8], address: i64) -> (libc::iovec, libc::iovec) {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as usize as *mut libc::c_void, iov_len: buffer.len() };
    (local, remote)
}

/// PID ADDRESS LENGTH
fn vm_read(scene: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")? as i32;
    let mut buffer = vec![0u8; number(arguments, 2, "length")? as usize];
    let (local, remote) = vectors(&mut buffer, number(arguments, 1, "address")?);
    let got = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    check("process_vm_readv", got as i64)?;
    scene.loot = String::from_utf8_lossy(&buffer).into_owned();
    Ok(())
}

fn vm_write(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")? as i32;
    let mut buffer = *b"pwned";
    let (local, remote) = vectors(&mut buffer, number(arguments, 1, "address")?);
    let got = unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    check("process_vm_writev", got as i64).map(drop)
}

fn proc_mem(scene: &mut Scene, arguments: &[String]) -> Step {
    use std::os::unix::fs::FileExt as _;
    let pid = number(arguments, 0, "pid")?;
    let address = number(arguments, 1, "address")? as u64;
    let mut buffer = vec![0u8; number(arguments, 2, "length")? as usize];
    let file = io("open", fs::File::open(format!("/proc/{pid}/mem")))?;
    io("pread", file.read_exact_at(&mut buffer, address))?;
    scene.loot = String::from_utf8_lossy(&buffer).into_owned();
    Ok(())
}

/// PID FD: takes a copy of another process's descriptor and reads it.
fn pidfd_getfd(scene: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")?;
    let pidfd = check("pidfd_open", unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let fd = number(arguments, 1, "fd")?;
    let copy = check("pidfd_getfd", unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd, fd, 0) })?;
    let mut bytes = [0u8; 512];
    let got = unsafe { libc::pread(copy as i32, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    scene.loot = if got > 0 {
        String::from_utf8_lossy(&bytes[..got as usize]).into_owned()
    } else {
        String::from("taken")
    };
    Ok(())
}

fn kcmp(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")?;
    let me = unsafe { libc::getpid() };
    const KCMP_VM: i32 = 1;
    check("kcmp", unsafe { libc::syscall(libc::SYS_kcmp, me, pid, KCMP_VM, 0, 0) }).map(drop)
}

/// Sets a limit of another process to what it already is: harmless where it wins.
fn prlimit(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")? as i32;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let none = std::ptr::null();
    check(
        "prlimit-get",
        i64::from(unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, none, &raw mut limit) }),
    )?;
    let answer = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    check("prlimit-set", i64::from(answer)).map(drop)
}

fn affinity(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")? as i32;
    let mut set = [0u8; 128];
    let size = set.len();
    check(
        "sched_getaffinity",
        i64::from(unsafe { libc::sched_getaffinity(pid, size, set.as_mut_ptr().cast()) }),
    )?;
    let answer = unsafe { libc::sched_setaffinity(pid, size, set.as_ptr().cast()) };
    check("sched_setaffinity", i64::from(answer)).map(drop)
}

fn priority(_: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")? as u32;
    check("setpriority", i64::from(unsafe { libc::setpriority(libc::PRIO_PROCESS, pid, 10) })).map(drop)
}

/// The marker in this program's own inheritance: environment or auxiliary vector strings.
fn own_env(scene: &mut Scene, arguments: &[String]) -> Step {
    let marker = reversed(arguments)?;
    for (name, value) in std::env::vars_os() {
        if contains(name.as_encoded_bytes(), &marker) || contains(value.as_encoded_bytes(), &marker) {
            scene.loot = name.to_string_lossy().into_owned();
            return Ok(());
        }
    }
    held("own-env", libc::ENOENT)
}

/// Everything the kernel copied onto this program's stack at exec: argv, environment, auxv strings.
fn own_auxv(scene: &mut Scene, arguments: &[String]) -> Step {
    let marker = reversed(arguments)?;
    let maps = io("maps", fs::read_to_string("/proc/self/maps"))?;
    let Some(line) = maps.lines().find(|line| line.ends_with("[stack]")) else {
        return held("stack", libc::ENOENT);
    };
    let end =
        line.split([' ', '-']).nth(1).and_then(|word| usize::from_str_radix(word, 16).ok()).unwrap_or(0);
    let start = unsafe { libc::getauxval(libc::AT_EXECFN) } as usize & !0xffff;
    let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, end.saturating_sub(start)) };
    if contains(bytes, &marker) {
        scene.loot = String::from("[stack]");
        return Ok(());
    }
    held("own-auxv", libc::ENOENT)
}

/// PID: the in-sandbox PID 1 may be seen but not looked into. Wins with each door that opens.
fn init_secrets(scene: &mut Scene, arguments: &[String]) -> Step {
    let pid = number(arguments, 0, "pid")?;
    let mut open = Vec::new();
    let mut last = 0;
    for leaf in ["environ", "mem", "maps", "auxv", "stack", "pagemap", "syscall"] {
        let read = fs::File::open(format!("/proc/{pid}/{leaf}")).and_then(|mut file| {
            // Opening `mem` is the whole permission check; nothing is mapped at its start. The others answer
            // at the first read.
            if leaf == "mem" { Ok(1) } else { std::io::Read::read(&mut file, &mut [0u8; 64]) }
        });
        match read {
            Ok(0) => {}
            Ok(_) => open.push(String::from(leaf)),
            Err(error) => last = error.raw_os_error().unwrap_or(0),
        }
    }
    for link in ["cwd", "root", "exe"] {
        match fs::read_link(format!("/proc/{pid}/{link}")) {
            Ok(_) => open.push(String::from(link)),
            Err(error) => last = error.raw_os_error().unwrap_or(0),
        }
    }
    // The numbers alone are no secret; what stands behind them is.
    let mut descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    if descriptors.any(|entry| fs::read_link(entry.path()).is_ok()) {
        open.push(String::from("fd"));
    }
    if unsafe { libc::ptrace(libc::PTRACE_ATTACH, pid as i32, 0, 0) } == 0 {
        open.push(String::from("ptrace"));
    } else {
        last = errno();
    }
    if open.is_empty() {
        return held("init-secrets", last);
    }
    scene.loot = open.join(" ");
    Ok(())
}
