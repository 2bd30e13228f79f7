//! Kernel interfaces that have no business in a sandbox.

use std::ffi::CString;
use std::mem::zeroed;

use crate::Op;
use crate::verdict::{Scene, Step, Stop, argument, check, errno, held, io, number, text};

pub(crate) const OPS: &[(&str, Op)] = &[
    ("io-uring", io_uring),
    ("io-uring-open", io_uring_open),
    ("bpf", bpf),
    ("perf", perf),
    ("key-read", key_read),
    ("key-add", key_add),
    ("userfaultfd", userfaultfd),
    ("userfaultfd-device", userfaultfd_device),
    ("raw", raw),
    ("raw-many", raw_many),
    ("shm-read", shm_read),
    ("mq-open", mq_open),
    ("core-limit", core_limit),
    ("core-zero", core_zero),
    ("crash", crash),
    ("ldt", ldt),
];

fn io_uring(_: &mut Scene, _: &[String]) -> Step {
    let mut parameters = [0u8; 120];
    check("io_uring_setup", unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) })
        .map(drop)
}

/// Opens a file without open(2): a ring whose memory this program maps, one OPENAT entry, one enter.
fn io_uring_open(scene: &mut Scene, arguments: &[String]) -> Step {
    let path = text(argument(arguments, 0, "path")?);
    let mut parameters = [0u8; 120];
    let word = |bytes: &[u8; 120], at: usize| {
        u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
    };
    let ring = check("io_uring_setup", unsafe {
        libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr())
    })? as i32;
    let map = |length: usize, offset: i64| unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            ring,
            offset,
        )
    };
    let (submission, completion, entries) = (map(4096, 0), map(4096, 0x800_0000), map(4096, 0x1000_0000));
    if [submission, completion, entries].contains(&libc::MAP_FAILED) {
        return held("mmap-ring", errno());
    }
    let mut entry = [0u8; 64];
    const IORING_OP_OPENAT: u8 = 18;
    entry[0] = IORING_OP_OPENAT;
    entry[4..8].copy_from_slice(&libc::AT_FDCWD.to_ne_bytes());
    entry[16..24].copy_from_slice(&(path.as_ptr() as u64).to_ne_bytes());
    unsafe { entries.cast::<[u8; 64]>().write_volatile(entry) };
    // sq_off starts at byte 40 (tail second, array seventh); cq_off at byte 80 (cqes sixth).
    let (tail, array) = (word(&parameters, 44), word(&parameters, 64));
    unsafe { submission.cast::<u8>().add(array).cast::<u32>().write_volatile(0) };
    unsafe { submission.cast::<u8>().add(tail).cast::<u32>().write_volatile(1) };
    const GETEVENTS: u32 = 1;
    check("io_uring_enter", unsafe { libc::syscall(libc::SYS_io_uring_enter, ring, 1, 1, GETEVENTS, 0, 0) })?;
    let cqes = word(&parameters, 100);
    let answer = unsafe { completion.cast::<u8>().add(cqes + 8).cast::<i32>().read_volatile() };
    if answer < 0 {
        return held("IORING_OP_OPENAT", -answer);
    }
    let mut bytes = [0u8; 512];
    let got = check("read", unsafe { libc::read(answer, bytes.as_mut_ptr().cast(), bytes.len()) } as i64)?;
    scene.loot = String::from_utf8_lossy(&bytes[..got as usize]).into_owned();
    Ok(())
}

fn bpf(_: &mut Scene, _: &[String]) -> Step {
    // BPF_MAP_CREATE: an array of one 4-byte value.
    let attributes = [2u32, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    check("bpf", unsafe { libc::syscall(libc::SYS_bpf, 0, attributes.as_ptr(), 72) }).map(drop)
}

fn perf(_: &mut Scene, _: &[String]) -> Step {
    let mut attributes = [0u64; 16];
    // type SOFTWARE, size 128; config CPU_CLOCK; flags exclude_kernel|exclude_hv.
    attributes[0] = 1 | (128 << 32);
    attributes[5] = (1 << 5) | (1 << 6);
    check("perf_event_open", unsafe {
        libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0)
    })
    .map(drop)
}

const KEYCTL_READ: i32 = 11;
const KEYCTL_SEARCH: i32 = 10;

/// Looks for a key of that name in every keyring a process can name, and reads it.
fn key_read(scene: &mut Scene, arguments: &[String]) -> Step {
    let (kind, name) = (text("user"), text(argument(arguments, 0, "description")?));
    let mut last = 0;
    // thread, process, session, user, user-session
    for ring in [-1i64, -2, -3, -4, -5] {
        let found =
            unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_SEARCH, ring, kind.as_ptr(), name.as_ptr(), 0) };
        if found < 0 {
            last = errno();
            continue;
        }
        let mut bytes = [0u8; 256];
        let got =
            unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_READ, found, bytes.as_mut_ptr(), bytes.len()) };
        if got < 0 {
            last = errno();
            continue;
        }
        scene.loot = String::from_utf8_lossy(&bytes[..got as usize]).into_owned();
        return Ok(());
    }
    held("keyctl", last)
}

fn key_add(_: &mut Scene, _: &[String]) -> Step {
    let (kind, name) = (text("user"), text("stockade-attack"));
    let answer =
        unsafe { libc::syscall(libc::SYS_add_key, kind.as_ptr(), name.as_ptr(), b"x".as_ptr(), 1, -2) };
    check("add_key", answer).map(drop)
}

fn userfaultfd(_: &mut Scene, _: &[String]) -> Step {
    const UFFD_USER_MODE_ONLY: i32 = 1;
    let flags = libc::O_CLOEXEC | UFFD_USER_MODE_ONLY;
    check("userfaultfd", unsafe { libc::syscall(libc::SYS_userfaultfd, flags) }).map(drop)
}

fn userfaultfd_device(_: &mut Scene, _: &[String]) -> Step {
    let file = io("open", std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd"))?;
    const USERFAULTFD_IOC_NEW: u64 = 0xaa00;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    check("USERFAULTFD_IOC_NEW", i64::from(unsafe { libc::ioctl(fd, USERFAULTFD_IOC_NEW, libc::O_CLOEXEC) }))
        .map(drop)
}

/// One raw system call in a child, so that one which kills its caller can be told from one that fails.
/// `VERDICT held raw ERRNO` for an error, `VERDICT held killed SIGNAL` for a death.
/// A `-` is a null pointer, `path:TEXT` a string, `buf:N` N zero bytes.
fn raw(scene: &mut Scene, arguments: &[String]) -> Step {
    let nr = number(arguments, 0, "number")?;
    let mut words = [0i64; 6];
    let mut strings: Vec<CString> = Vec::new();
    let mut buffers: Vec<Vec<u8>> = Vec::new();
    for (at, slot) in words.iter_mut().enumerate() {
        let Some(word) = arguments.get(at + 1) else { break };
        *slot = if word == "-" {
            0
        } else if let Some(path) = word.strip_prefix("path:") {
            strings.push(text(path));
            strings.last().map_or(0, |string| string.as_ptr() as i64)
        } else if let Some(size) = word.strip_prefix("buf:") {
            buffers.push(vec![0; size.parse().unwrap_or(64)]);
            buffers.last().map_or(0, |buffer| buffer.as_ptr() as i64)
        } else {
            number(arguments, at + 1, "argument")?
        };
    }
    match call_in_child(nr, words)? {
        Answer::Returned(value) => {
            scene.loot = value.to_string();
            Ok(())
        }
        Answer::Failed(errno) => held("raw", errno),
        Answer::Killed(signal) => held("killed", signal),
    }
}

/// Many calls, each a word `NUMBER:ARG:ARG:...`; one line `ANSWER INDEX ok|errno|killed VALUE` for each.
fn raw_many(scene: &mut Scene, arguments: &[String]) -> Step {
    for (index, word) in arguments.iter().enumerate() {
        let numbers: Vec<i64> = word.split(':').map(|part| part.parse::<u64>().unwrap_or(0) as i64).collect();
        let mut words = [0i64; 6];
        for (slot, value) in words.iter_mut().zip(numbers.iter().skip(1)) {
            *slot = *value;
        }
        match call_in_child(numbers[0], words)? {
            Answer::Returned(value) => println!("ANSWER {index} ok {value}"),
            Answer::Failed(errno) => println!("ANSWER {index} errno {errno}"),
            Answer::Killed(signal) => println!("ANSWER {index} killed {signal}"),
        }
    }
    scene.loot = arguments.len().to_string();
    Ok(())
}

enum Answer {
    Returned(i64),
    Failed(i32),
    Killed(i32),
}

fn call_in_child(nr: i64, words: [i64; 6]) -> Result<Answer, Stop> {
    let mut pipe = [0i32; 2];
    check("pipe", i64::from(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }))?;
    let child = unsafe { libc::fork() };
    if child == 0 {
        // A call that blocks is as good as one that worked: the alarm ends it.
        unsafe { libc::alarm(5) };
        let answer = unsafe { libc::syscall(nr, words[0], words[1], words[2], words[3], words[4], words[5]) };
        let told: [i64; 2] = [answer, if answer == -1 { i64::from(errno()) } else { 0 }];
        unsafe { libc::write(pipe[1], told.as_ptr().cast(), 16) };
        unsafe { libc::_exit(0) };
    }
    check("fork", i64::from(child))?;
    unsafe { libc::close(pipe[1]) };
    let mut told = [0i64; 2];
    let got = unsafe { libc::read(pipe[0], told.as_mut_ptr().cast(), 16) };
    unsafe { libc::close(pipe[0]) };
    unsafe { libc::kill(child, libc::SIGKILL) };
    let mut status = 0;
    unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) };
    if got != 16 {
        return Ok(Answer::Killed(if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 }));
    }
    Ok(if told[0] == -1 { Answer::Failed(told[1] as i32) } else { Answer::Returned(told[0]) })
}

/// A System V segment of the host, by its key.
fn shm_read(scene: &mut Scene, arguments: &[String]) -> Step {
    let key = number(arguments, 0, "key")? as i32;
    let id = check("shmget", i64::from(unsafe { libc::shmget(key, 0, 0) }))? as i32;
    let at = unsafe { libc::shmat(id, std::ptr::null(), libc::SHM_RDONLY) };
    if at as isize == -1 {
        return held("shmat", errno());
    }
    let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), 64) };
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(64);
    scene.loot = String::from_utf8_lossy(&bytes[..end]).into_owned();
    Ok(())
}

fn mq_open(_: &mut Scene, arguments: &[String]) -> Step {
    let name = text(argument(arguments, 0, "name")?);
    check("mq_open", unsafe { libc::syscall(libc::SYS_mq_open, name.as_ptr(), libc::O_RDWR, 0, 0) }).map(drop)
}

/// Asks for core dumps of any size.
fn core_limit(scene: &mut Scene, _: &[String]) -> Step {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    let mut now: libc::rlimit = unsafe { zeroed() };
    check("setrlimit", i64::from(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const limit) }))?;
    unsafe { libc::getrlimit(libc::RLIMIT_CORE, &raw mut now) };
    scene.loot = format!("hard={}", now.rlim_max);
    check("the limit", if now.rlim_max == limit.rlim_max { 0 } else { -1 }).map(drop)
}

/// Asks for no core files, by either call: then the kernel still feeds a handler.
fn core_zero(scene: &mut Scene, _: &[String]) -> Step {
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let mut now: libc::rlimit = unsafe { zeroed() };
    check("setrlimit", unsafe { libc::syscall(libc::SYS_setrlimit, libc::RLIMIT_CORE, &raw const limit) })?;
    check("prlimit", i64::from(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const limit) }))?;
    unsafe { libc::getrlimit(libc::RLIMIT_CORE, &raw mut now) };
    scene.loot = format!("soft={}", now.rlim_cur);
    check("the limit", if now.rlim_cur == 0 { 0 } else { -1 }).map(drop)
}

/// Dies with a core dump, as large as it is allowed to be.
fn crash(_: &mut Scene, _: &[String]) -> Step {
    let mut now: libc::rlimit = unsafe { zeroed() };
    unsafe { libc::getrlimit(libc::RLIMIT_CORE, &raw mut now) };
    now.rlim_cur = now.rlim_max;
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const now) };
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
    unsafe { libc::abort() }
}

/// Installs a descriptor-table entry: old, rarely used, and a source of kernel bugs.
fn ldt(_: &mut Scene, _: &[String]) -> Step {
    let entry = [0u32, 0, 0xfffff, 0x51];
    check("modify_ldt", unsafe { libc::syscall(libc::SYS_modify_ldt, 1, entry.as_ptr(), 16) }).map(drop)
}
