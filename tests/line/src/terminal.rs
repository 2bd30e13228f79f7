//! A terminal of the test's own, and what appears on it.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Both ends of a terminal of the test's own.
pub fn terminal() -> (File, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&master).expect("ours");
    unlockpt(&master).expect("ours");
    let name = ptsname(&master, Vec::new()).expect("its name");
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).expect("its other end");
    (File::from(master), slave)
}

/// What appears on the terminal until it is closed or holds the word.
pub fn read_until(master: &mut File, word: &str) -> String {
    read_while(master, |shown| !shown.contains(word))
}

/// All that appears on the terminal until nobody has it open any more.
pub fn read_to_close(master: &mut File) -> String {
    read_while(master, |_| true)
}

fn read_while(master: &mut File, wanted: impl Fn(&str) -> bool) -> String {
    let mut shown = Vec::new();
    let mut buffer = [0u8; 4096];
    while wanted(&String::from_utf8_lossy(&shown)) {
        match master.read(&mut buffer) {
            Ok(got @ 1..) => shown.extend_from_slice(&buffer[..got]),
            Ok(0) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&shown).into_owned()
}
