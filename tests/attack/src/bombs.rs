//! Using up the machine, and refusing to go.

use std::io::Write as _;

use crate::Op;
use crate::verdict::{Scene, Step, argument, check, errno, held, io, number, unable};

pub(crate) const OPS: &[(&str, Op)] = &[
    ("forks", forks),
    ("fork-bomb", fork_bomb),
    ("memory", memory),
    ("flood", flood),
    ("burn", burn),
    ("grind", grind),
    ("hold", hold),
    ("ignore-term", ignore_term),
    ("stop-tree", stop_tree),
    ("daemon", daemon),
    ("pipe-holder", pipe_holder),
    ("spread", spread),
];

fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

fn sit() -> ! {
    loop {
        unsafe { libc::pause() };
    }
}

/// N children alive at the same time.
fn forks(scene: &mut Scene, arguments: &[String]) -> Step {
    let wanted = number(arguments, 0, "children")?;
    let mut children = Vec::new();
    let mut refused = None;
    for _ in 0..wanted {
        match unsafe { libc::fork() } {
            0 => sit(),
            -1 => {
                refused = Some(errno());
                break;
            }
            child => children.push(child),
        }
    }
    say(&format!("FORKED {}", children.len()));
    for child in &children {
        unsafe { libc::kill(*child, libc::SIGKILL) };
    }
    for child in &children {
        let mut status = 0;
        unsafe { libc::waitpid(*child, &raw mut status, 0) };
    }
    scene.loot = children.len().to_string();
    refused.map_or(Ok(()), |errno| held("fork", errno))
}

/// The real thing: every child does the same, for ever. Never run without a process limit.
fn fork_bomb(_: &mut Scene, _: &[String]) -> Step {
    say("READY");
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    loop {
        unsafe { libc::fork() };
    }
}

/// MiB, touched page by page.
fn memory(scene: &mut Scene, arguments: &[String]) -> Step {
    let wanted = number(arguments, 0, "MiB")? as usize;
    const MIB: usize = 1 << 20;
    for done in 0..wanted {
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                MIB,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            say(&format!("TOUCHED {done}"));
            return held("mmap", errno());
        }
        for page in (0..MIB).step_by(4096) {
            unsafe { at.cast::<u8>().add(page).write_volatile(1) };
        }
    }
    scene.loot = format!("{wanted} MiB");
    Ok(())
}

/// MiB of one letter on stdout.
fn flood(scene: &mut Scene, arguments: &[String]) -> Step {
    let wanted = number(arguments, 0, "MiB")?;
    let mut chunk = vec![b'x'; 1 << 20];
    chunk.iter_mut().skip(99).step_by(100).for_each(|byte| *byte = b'\n');
    for _ in 0..wanted {
        if let Err(error) = std::io::stdout().write_all(&chunk) {
            return held("write", error.raw_os_error().unwrap_or(0));
        }
    }
    scene.loot = format!("{wanted} MiB");
    Ok(())
}

/// CPU until somebody ends it.
fn burn(_: &mut Scene, _: &[String]) -> Step {
    say("READY");
    let mut count = 0u64;
    loop {
        count = std::hint::black_box(count.wrapping_add(1));
    }
}

/// THREADS that, for so many SECONDS, send to a socket behind as many links as are followed, a thousand messages a call:
/// next to nothing for whoever calls, and much for whoever performs it.
fn grind(scene: &mut Scene, arguments: &[String]) -> Step {
    let (threads, seconds) = (number(arguments, 0, "threads")?, number(arguments, 1, "seconds")?);
    const LINKS: usize = 30;
    io("mkdir", std::fs::create_dir("d"))?;
    for at in 0..LINKS {
        let next = if at + 1 == LINKS { String::from("sink") } else { format!("link{}", at + 1) };
        io("symlink", std::os::unix::fs::symlink("d/../".repeat(800) + &next, format!("link{at}")))?;
    }
    let sink = io("bind", std::os::unix::net::UnixDatagram::bind("sink"))?;
    io("timeout", sink.set_read_timeout(Some(std::time::Duration::from_millis(100))))?;
    say("READY");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds as u64);
    let sent = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..threads).map(|_| scope.spawn(|| send_many("link0", end))).collect();
        while senders.iter().any(|sender| !sender.is_finished()) {
            let _ = sink.recv(&mut [0; 8]);
        }
        senders.into_iter().map(|sender| sender.join().unwrap_or(0)).sum::<u64>()
    });
    scene.loot = format!("{sent} messages");
    Ok(())
}

fn send_many(path: &str, end: std::time::Instant) -> u64 {
    const MESSAGES: usize = 1024;
    let mut name: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    name.sun_family = libc::AF_UNIX as u16;
    for (slot, byte) in name.sun_path.iter_mut().zip(path.bytes()) {
        *slot = byte as libc::c_char;
    }
    let mut byte = 0u8;
    let mut piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut heads: Vec<libc::mmsghdr> = vec![unsafe { std::mem::zeroed() }; MESSAGES];
    for head in &mut heads {
        head.msg_hdr.msg_name = (&raw mut name).cast();
        head.msg_hdr.msg_namelen = std::mem::size_of_val(&name) as u32;
        head.msg_hdr.msg_iov = &raw mut piece;
        head.msg_hdr.msg_iovlen = 1;
    }
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0) };
    let mut sent = 0;
    while std::time::Instant::now() < end {
        let answer = unsafe { libc::sendmmsg(socket, heads.as_mut_ptr(), MESSAGES as u32, 0) };
        sent += u64::try_from(answer).unwrap_or(0);
    }
    sent
}

/// Says READY and stays. The argument is there to be found in `/proc/*/cmdline`.
fn hold(_: &mut Scene, _: &[String]) -> Step {
    say("READY");
    sit()
}

/// Ignores every polite signal, in itself and in a child.
fn ignore_term(_: &mut Scene, _: &[String]) -> Step {
    for signal in 1..64 {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP && signal != libc::SIGCHLD {
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
    let child = unsafe { libc::fork() };
    if child != 0 {
        say("READY");
    }
    loop {
        unsafe { libc::pause() };
    }
}

/// A tree that has stopped itself: it can't even run a handler for SIGTERM.
fn stop_tree(_: &mut Scene, _: &[String]) -> Step {
    for _ in 0..3 {
        if unsafe { libc::fork() } == 0 {
            unsafe { libc::raise(libc::SIGSTOP) };
            sit();
        }
    }
    say("READY");
    unsafe { libc::raise(libc::SIGSTOP) };
    sit()
}

/// The classic: fork, setsid, fork, and let go. With `keep` the grandchild keeps stdio open.
fn daemon(scene: &mut Scene, arguments: &[String]) -> Step {
    let keep = argument(arguments, 0, "keep|drop")? == "keep";
    let mut pipe = [0i32; 2];
    check("pipe", i64::from(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }))?;
    let child = unsafe { libc::fork() };
    if child == 0 {
        unsafe { libc::setsid() };
        if unsafe { libc::fork() } != 0 {
            unsafe { libc::_exit(0) };
        }
        for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGPIPE] {
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        if !keep {
            for fd in 0..3 {
                unsafe { libc::close(fd) };
            }
        }
        unsafe { libc::write(pipe[1], b"x".as_ptr().cast(), 1) };
        sit();
    }
    check("fork", i64::from(child))?;
    // Goes on only when the daemon is really there.
    let mut byte = 0u8;
    if unsafe { libc::read(pipe[0], (&raw mut byte).cast(), 1) } != 1 {
        return unable("the daemon did not start");
    }
    let mut status = 0;
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    scene.loot = String::from("daemon left behind");
    Ok(())
}

/// A child that keeps stdout open while the parent ends at once.
fn pipe_holder(scene: &mut Scene, _: &[String]) -> Step {
    let child = unsafe { libc::fork() };
    if child == 0 {
        unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
        sit();
    }
    check("fork", i64::from(child))?;
    scene.loot = String::from("holder left behind");
    Ok(())
}

/// A small forest of sessions and groups, for kill tests: DEPTH generations, two children each.
fn spread(_: &mut Scene, arguments: &[String]) -> Step {
    let depth = number(arguments, 0, "depth")?;
    let top = unsafe { libc::getpid() };
    for _ in 0..depth {
        for _ in 0..2 {
            if unsafe { libc::fork() } == 0 {
                unsafe { libc::setsid() };
                break;
            }
        }
    }
    if unsafe { libc::getpid() } == top {
        say("READY");
    }
    sit()
}
