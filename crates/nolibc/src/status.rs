//! What the kernel says about this process, all at once: `/proc/self/status` costs as much as fifty small calls,
//! and asking for every capability and signal by itself takes more than a hundred.

use crate::{CWD, Errno, Fd, openat, read};

/// Sets are bits, as the kernel prints them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Inheritable, permitted and effective capabilities together.
    pub capabilities: u64,
    /// Capabilities that an `execve` could give: the bounding and ambient sets.
    pub to_gain: u64,
    pub no_new_privs: bool,
    /// 0 none, 2 filter.
    pub seccomp: u64,
    /// Bit 0 is signal 1.
    pub ignored_signals: u64,
}

const HEX: u32 = 16;
const DECIMAL: u32 = 10;

/// Names as in the file, and how their numbers are written.
const FIELDS: [(&[u8], u32); 8] = [
    (b"SigIgn", HEX),
    (b"CapInh", HEX),
    (b"CapPrm", HEX),
    (b"CapEff", HEX),
    (b"CapBnd", HEX),
    (b"CapAmb", HEX),
    (b"NoNewPrivs", DECIMAL),
    (b"Seccomp", DECIMAL),
];

/// A line that is not there, or can't be read, is an error: what is not proven does not hold.
pub fn own_status() -> Result<Status, Errno> {
    let mut found = [None; FIELDS.len()];
    let file = openat(&CWD, c"/proc/self/status")?;
    each_line(&file, |line| {
        for (slot, (name, base)) in found.iter_mut().zip(FIELDS) {
            if let Some(value) = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(b":")) {
                let text = core::str::from_utf8(value).ok();
                *slot = text.and_then(|text| u64::from_str_radix(text.trim_ascii(), base).ok());
            }
        }
    })?;
    let [Some(ignored), Some(inheritable), Some(permitted), Some(effective), rest @ ..] = found else {
        return Err(Errno::BADMSG);
    };
    let [Some(bounding), Some(ambient), Some(no_new_privs), Some(seccomp)] = rest else {
        return Err(Errno::BADMSG);
    };
    Ok(Status {
        capabilities: inheritable | permitted | effective,
        to_gain: bounding | ambient,
        no_new_privs: no_new_privs == 1,
        seccomp,
        ignored_signals: ignored,
    })
}

/// Lines that don't fit (a list of thousands of groups) are passed over: none that is wanted is long.
fn each_line(file: &Fd, mut each: impl FnMut(&[u8])) -> Result<(), Errno> {
    let mut buffer = [0; 4096];
    let (mut held, mut passing_over) = (0, false);
    loop {
        let count = read(file, &mut buffer[held..])?;
        if count == 0 {
            return Ok(());
        }
        let end = held + count;
        let mut start = 0;
        while let Some(length) = buffer[start..end].iter().position(|byte| *byte == b'\n') {
            if !passing_over {
                each(&buffer[start..start + length]);
            }
            passing_over = false;
            start += length + 1;
        }
        buffer.copy_within(start..end, 0);
        held = end - start;
        if held == buffer.len() {
            (held, passing_over) = (0, true);
        }
    }
}
