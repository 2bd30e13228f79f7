//! Asks the kernel whether the walls stand: capabilities, no_new_privs, the filter, the mounts, the
//! descriptors. What the stages believe they did counts for nothing here.

use core::ffi::CStr;

use stockade_launch::{CONTROL_FD, MountStep, Mounts, wall};
use stockade_nolibc::{CWD, Errno, Fd, List, has_foreign_fd, is_mount_root, openat, own_status, read};

use crate::context::{About, Context, Failure};

const SECCOMP_MODE_FILTER: usize = 2;
/// A line of mountinfo: two paths of 4096 bytes, each byte perhaps escaped to four, is beyond any real host.
const MOUNTINFO_BUFFER: usize = 16 * 1024;

const fn unproven(subject: &'static [u8]) -> Failure {
    Failure { errno: Errno::PERM, subject }
}

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    let status = own_status(context.inherited).about(b"status")?;
    context.ignored_signals = status.ignored_signals;
    let (ground, launch) = (&context.ground, context.launch()?);
    if ground.has(wall::PRIVILEGES) && !status.no_new_privs {
        return Err(unproven(b"no_new_privs is not set"));
    }
    if ground.has(wall::PRIVILEGES) && status.capabilities != 0 {
        return Err(unproven(b"a capability is left"));
    }
    // An ordinary user's bounding set is full and no_new_privs is what keeps it from mattering.
    if (ground.has(wall::USER) || (ground.has(wall::PRIVILEGES) && ground.is_root)) && status.to_gain != 0 {
        return Err(unproven(b"a capability could be gained"));
    }
    if !launch.filter.is_empty() && status.seccomp != SECCOMP_MODE_FILTER {
        return Err(unproven(b"seccomp is not in filter mode"));
    }
    if ground.has(wall::MOUNT) {
        mounts(&mut Planned::new(ground.mounts, launch.mounts)?)?;
    }
    // While the kernel was asked the supervisor of sockets has begun; or what is for it is kept until the order.
    if launch.order.is_some() {
        if context.offered[0].is_some() {
            context.taken()?;
        }
        context.offered = [None, None, None];
    }
    context.ruleset = None;
    let (numbers, count) = context.offered_numbers();
    if context.ground.has(wall::MOUNT)
        && has_foreign_fd(CONTROL_FD, &numbers[..count]).about(b"/proc/self/fd")?
    {
        return Err(unproven(b"a descriptor is left open"));
    }
    Ok(())
}

/// Every mount is one that was asked for, every one that was asked for is there, and what was asked
/// to be read-only is.
fn mounts(planned: &mut Planned) -> Result<(), Failure> {
    let file = openat(&CWD, c"/proc/self/mountinfo").about(b"/proc/self/mountinfo")?;
    let mut lines = Lines { file, buffer: [0; MOUNTINFO_BUFFER], start: 0, end: 0 };
    let mut root_is_read_only = false;
    while let Some(line) = lines.next()? {
        let mut fields = line.split(|byte| *byte == b' ').skip(4);
        let (Some(path), Some(options)) = (fields.next(), fields.next()) else {
            return Err(unproven(b"mountinfo can't be read"));
        };
        // The first option is that, or `rw`.
        let read_only = matches!(options, b"ro" | [b'r', b'o', b',', ..]);
        if path == b"/" {
            root_is_read_only = read_only;
            continue;
        }
        match planned.covering(path) {
            None => return Err(unproven(b"a mount that is not in the plan")),
            Some(row) if row.read_only && !read_only => return Err(unproven(row.target)),
            Some(_) => {}
        }
    }
    if !root_is_read_only {
        return Err(unproven(b"the root is writable"));
    }
    match planned.0.as_slice().iter().find(|row| row.missing) {
        Some(row) => Err(unproven(row.target)),
        None => Ok(()),
    }
}

/// Nobody but us can have mounted anything since: what is a mount is the one that was proven.
pub(super) fn are_mounted(mounts: Mounts<'static>) -> Result<(), Failure> {
    for (target, step) in mounts {
        if is_required_mount(&step) && !is_mount_root(target).about(target.to_bytes())? {
            return Err(unproven(target.to_bytes()));
        }
    }
    Ok(())
}

const fn is_required_mount(step: &MountStep<'_>) -> bool {
    match step {
        MountStep::Dir { .. } | MountStep::File { .. } | MountStep::Symlink { .. } => false,
        MountStep::Mask { optional, .. } | MountStep::Protect { optional } => !*optional,
        MountStep::Scratch { .. }
        | MountStep::BindPath { .. }
        | MountStep::BindDonated { .. }
        | MountStep::Proc
        | MountStep::DevPts
        | MountStep::Device
        | MountStep::Cover { .. }
        | MountStep::Pin => true,
    }
}

const fn must_be_read_only(step: &MountStep<'_>) -> bool {
    match step {
        MountStep::BindPath { writable, .. } | MountStep::BindDonated { writable, .. } => !*writable,
        MountStep::Mask { .. } | MountStep::Cover { .. } | MountStep::Protect { .. } => true,
        MountStep::Dir { .. }
        | MountStep::File { .. }
        | MountStep::Symlink { .. }
        | MountStep::Scratch { .. }
        | MountStep::Proc
        | MountStep::DevPts
        | MountStep::Device
        | MountStep::Pin => false,
    }
}

/// A row of the plan that is a mount.
#[derive(Clone, Copy)]
struct Row {
    target: &'static [u8],
    read_only: bool,
    /// Until it was found.
    missing: bool,
}

/// The mounts of the plan, in its two parts, read once: every line of mountinfo is compared with all of them.
struct Planned(List<Row>);

impl Planned {
    fn new(ground: Mounts<'static>, launch: Mounts<'static>) -> Result<Self, Failure> {
        let mut rows = List::with_room(ground.len() + launch.len())?;
        for (target, step) in ground.chain(launch) {
            if matches!(step, MountStep::Dir { .. } | MountStep::File { .. } | MountStep::Symlink { .. }) {
                continue;
            }
            let (read_only, missing) = (must_be_read_only(&step), is_required_mount(&step));
            rows.push(Row { target: CStr::to_bytes(target), read_only, missing })?;
        }
        Ok(Self(rows))
    }

    /// The row of the plan whose mount `path` (as mountinfo writes it) is, or whose host tree brought it
    /// along: the one with the longest target. Of two mounts at one place the lower one stands first, there and here.
    fn covering(&mut self, path: &[u8]) -> Option<Row> {
        let rows = self.0.as_mut_slice();
        let longest =
            rows.iter().filter(|row| below(path, row.target).is_some()).map(|row| row.target.len()).max()?;
        let (mut found, mut at) = (None, 0);
        while let Some(row) = rows.get(at) {
            if row.target.len() == longest && below(path, row.target).is_some() {
                found = Some(at);
                if row.missing {
                    break;
                }
            }
            at += 1;
        }
        let row = rows.get_mut(found?)?;
        row.missing &= below(path, row.target) != Some(&[]);
        Some(*row)
    }
}

/// What is left of an escaped mountinfo path below a plain one; nothing if it is that very path.
fn below<'p>(escaped: &'p [u8], target: &[u8]) -> Option<&'p [u8]> {
    let mut rest = escaped;
    for wanted in target {
        let (byte, after) = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                ((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'), after)
            }
            [byte, after @ ..] => (*byte, after),
            [] => return None,
        };
        if byte != *wanted {
            return None;
        }
        rest = after;
    }
    matches!(rest, [] | [b'/', ..]).then_some(rest)
}

struct Lines {
    file: Fd,
    buffer: [u8; MOUNTINFO_BUFFER],
    start: usize,
    end: usize,
}

impl Lines {
    fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        loop {
            let held = &self.buffer[self.start..self.end];
            if let Some(length) = held.iter().position(|byte| *byte == b'\n') {
                let from = self.start;
                self.start += length + 1;
                return Ok(Some(&self.buffer[from..from + length]));
            }
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.end == self.buffer.len() {
                return Err(unproven(b"mountinfo has a line too long to check"));
            }
            let count = read(&self.file, &mut self.buffer[self.end..])?;
            if count == 0 {
                return if self.end == 0 { Ok(None) } else { Err(unproven(b"mountinfo is cut short")) };
            }
            self.end += count;
        }
    }
}
