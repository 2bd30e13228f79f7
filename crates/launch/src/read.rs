//! Init's half of the format: borrowed slices of the mapped memfd, nothing copied.

use core::ffi::CStr;

use crate::{MAGIC, MountStep, VERSION};

/// The launch is not what this init understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_ne_bytes(self.take(4)?.try_into().map_err(|_| Malformed)?))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_ne_bytes(self.take(8)?.try_into().map_err(|_| Malformed)?))
    }

    /// The bytes without their NUL.
    pub fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        let bytes = self.take(length)?;
        if self.take(1)? == [0] { Ok(bytes) } else { Err(Malformed) }
    }

    pub fn c_str(&mut self) -> Result<&'a CStr, Malformed> {
        let length = self.u32()? as usize;
        CStr::from_bytes_with_nul(self.take(length + 1)?).map_err(|_| Malformed)
    }

    fn skip<T>(&mut self, read: fn(&mut Self) -> Result<T, Malformed>) -> Result<Items<'a, T>, Malformed> {
        let count = self.u32()?;
        let items = Items { reader: *self, left: count, read };
        for _ in 0..count {
            read(self)?;
        }
        Ok(items)
    }

    fn mount(&mut self) -> Result<(&'a CStr, MountStep<'a>), Malformed> {
        let tag = self.u32()?;
        let target = self.c_str()?;
        let [a, b, c, d] = [self.u64()?, self.u64()?, self.u64()?, self.u64()?];
        let length = self.u32()? as usize;
        let operand = self.take(length + 1)?;
        let contents = operand.strip_suffix(&[0]).ok_or(Malformed)?;
        let path = || CStr::from_bytes_with_nul(operand).map_err(|_| Malformed);
        let mode = u32::try_from(a).unwrap_or(0);
        let step = match tag {
            1 => MountStep::Dir { mode },
            2 => MountStep::File { mode, contents },
            3 => MountStep::Symlink { to: path()? },
            4 => MountStep::Scratch { mode },
            5 => MountStep::BindPath { source: path()?, dev: a, ino: b, is_dir: c == 1, writable: d == 1 },
            6 => MountStep::BindDonated { is_dir: c == 1, writable: d == 1 },
            7 => MountStep::Proc,
            8 => MountStep::DevPts,
            9 => MountStep::Device,
            10 => MountStep::Mask { is_dir: c == 1, optional: d == 1 },
            11 => MountStep::Protect { optional: d == 1 },
            12 => MountStep::Pin,
            13 => MountStep::Cover { contents },
            _ => return Err(Malformed),
        };
        Ok((target, step))
    }

    fn rule(&mut self) -> Result<(&'a CStr, u64), Malformed> {
        Ok((self.c_str()?, self.u64()?))
    }

    fn rlimit(&mut self) -> Result<(u32, u64), Malformed> {
        Ok((self.u32()?, self.u64()?))
    }
}

/// A list inside the launch. It was walked once when the launch was read, so that iterating can't fail.
#[derive(Debug, Clone, Copy)]
pub struct Items<'a, T> {
    reader: Reader<'a>,
    left: u32,
    read: fn(&mut Reader<'a>) -> Result<T, Malformed>,
}

impl<T> Iterator for Items<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        (self.read)(&mut self.reader).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl<T> ExactSizeIterator for Items<'_, T> {}

/// Steps of building the root, with their targets.
pub type Mounts<'a> = Items<'a, (&'a CStr, MountStep<'a>)>;

fn open<'a>(bytes: &'a [u8]) -> Result<Reader<'a>, Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.u32()? != MAGIC || reader.u32()? != VERSION {
        return Err(Malformed);
    }
    Ok(reader)
}

/// What a sandbox is made of before its plan is known. An init that has built this is parked.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    pub walls: u32,
    pub uid: u32,
    pub gid: u32,
    /// The executor is host root, and so are we until we take on the identity.
    pub is_root: bool,
    pub scratch_bytes: u64,
    pub hostname: &'a [u8],
    /// A directory of the new root that a stem keeps things in for its inits, and that they empty. Empty itself where
    /// this is no stem's ground.
    pub stash: &'a CStr,
    /// The first mounts of the plan: those that every plan of this host and profile begins with. A stem's: all that its
    /// inits have in common.
    pub mounts: Mounts<'a>,
}

impl<'a> Ground<'a> {
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = open(bytes)?;
        Ok(Self {
            walls: reader.u32()?,
            uid: reader.u32()?,
            gid: reader.u32()?,
            is_root: reader.u32()? == 1,
            scratch_bytes: reader.u64()?,
            hostname: reader.text()?,
            stash: reader.c_str()?,
            mounts: reader.skip(Reader::mount)?,
        })
    }

    pub const fn has(&self, wall: u32) -> bool {
        self.walls & wall != 0
    }

    pub const fn is_stems(&self) -> bool {
        !self.stash.is_empty()
    }
}

/// The rest of the plan, in the kernel's terms.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    pub mounts: Mounts<'a>,
    /// Landlock: `handled_fs` of zero means no Landlock layer.
    pub handled_fs: u64,
    pub scoped: u64,
    pub rules: Items<'a, (&'a CStr, u64)>,
    /// A `struct sock_filter` array; empty means no seccomp layer.
    pub filter: &'a [u8],
    /// The filter traps calls for a supervisor: its listener is offered before the command starts.
    pub is_supervised: bool,
    /// TCP ports on which the network namespace catches every address; empty means that there is no way out.
    pub ports: Items<'a, u32>,
    /// Connections at once that the host's loopback may make to ports inside; zero means that none is published.
    pub inside: u32,
    /// None where the walls are built before anybody knows what runs within them.
    pub order: Option<Order<'a>>,
}

/// What runs within the walls.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    pub cwd: &'a CStr,
    pub rlimits: Items<'a, (u32, u64)>,
    /// Files to try for the command, in order.
    pub candidates: Items<'a, &'a CStr>,
    pub argv: Items<'a, &'a CStr>,
    pub env: Items<'a, &'a CStr>,
}

impl<'a> Launch<'a> {
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = open(bytes)?;
        Ok(Self {
            mounts: reader.skip(Reader::mount)?,
            handled_fs: reader.u64()?,
            scoped: reader.u64()?,
            rules: reader.skip(Reader::rule)?,
            filter: reader.text()?,
            is_supervised: reader.u32()? == 1,
            ports: reader.skip(Reader::u32)?,
            inside: reader.u32()?,
            order: if reader.u32()? == 1 { Some(Order::next(&mut reader)?) } else { None },
        })
    }
}

impl<'a> Order<'a> {
    /// One that comes by itself.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Self::next(&mut open(bytes)?)
    }

    fn next(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            cwd: reader.c_str()?,
            rlimits: reader.skip(Reader::rlimit)?,
            candidates: reader.skip(Reader::c_str)?,
            argv: reader.skip(Reader::c_str)?,
            env: reader.skip(Reader::c_str)?,
        })
    }
}
