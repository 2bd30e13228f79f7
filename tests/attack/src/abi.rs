//! System calls by other doors: the 32-bit gate and the x32 numbers. Each runs in a child, so that a
//! filter that kills can be told from one that answers.

use crate::Op;
use crate::verdict::{Scene, Step, check, errno, held, unable};

pub(crate) const OPS: &[(&str, Op)] = &[("int80", int80), ("x32", x32)];

fn in_child(scene: &mut Scene, name: &str, call: fn() -> i64) -> Step {
    let mut pipe = [0i32; 2];
    check("pipe", i64::from(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }))?;
    let child = unsafe { libc::fork() };
    if child == 0 {
        let answer = call();
        unsafe { libc::write(pipe[1], std::ptr::from_ref(&answer).cast(), 8) };
        unsafe { libc::_exit(0) };
    }
    check("fork", i64::from(child))?;
    unsafe { libc::close(pipe[1]) };
    let mut answer = 0i64;
    let got = unsafe { libc::read(pipe[0], std::ptr::from_mut(&mut answer).cast(), 8) };
    let mut status = 0;
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if got != 8 {
        if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV {
            return unable("this kernel has no such gate");
        }
        return held("killed", if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 });
    }
    if answer < 0 {
        return held(name, (-answer) as i32);
    }
    scene.loot = answer.to_string();
    Ok(())
}

/// getpid is 20 through the i386 gate (and `writev` by the numbers of x86-64).
#[cfg(target_arch = "x86_64")]
fn int80(scene: &mut Scene, _: &[String]) -> Step {
    in_child(scene, "int80", || {
        let mut answer: i64 = 20;
        unsafe {
            std::arch::asm!("int 0x80", inlateout("rax") answer, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
        };
        i64::from(answer as i32)
    })
}

#[cfg(target_arch = "x86_64")]
fn x32(scene: &mut Scene, _: &[String]) -> Step {
    const X32_BIT: i64 = 0x4000_0000;
    in_child(scene, "x32", || {
        let answer = unsafe { libc::syscall(X32_BIT | libc::SYS_getpid) };
        if answer < 0 { -i64::from(errno()) } else { answer }
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn int80(_: &mut Scene, _: &[String]) -> Step {
    unable("no i386 gate on this architecture")
}

#[cfg(not(target_arch = "x86_64"))]
fn x32(_: &mut Scene, _: &[String]) -> Step {
    unable("no x32 on this architecture")
}
