//! The executor's half of the format. The sink is the caller's: this crate has no allocator.

use crate::{MAGIC, MountStep, VERSION};

pub trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

/// Writes a ground or a launch field by field, in the order in which its `read` reads them.
#[derive(Debug)]
pub struct Writer<'a, S: Sink> {
    sink: &'a mut S,
}

impl<'a, S: Sink> Writer<'a, S> {
    pub fn new(sink: &'a mut S) -> Self {
        sink.put(&MAGIC.to_ne_bytes());
        sink.put(&VERSION.to_ne_bytes());
        Self { sink }
    }

    pub fn u32(&mut self, value: u32) {
        self.sink.put(&value.to_ne_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.sink.put(&value.to_ne_bytes());
    }

    /// A length, the bytes and a NUL, so that the reader can hand them to the kernel in place.
    /// Plans are bounded far below `u32::MAX` bytes; a longer string reads as malformed.
    pub fn text(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.sink.put(bytes);
        self.sink.put(&[0]);
    }

    pub fn mount(&mut self, target: &[u8], step: MountStep<'_>) {
        let (tag, numbers, text): (u32, [u64; 4], &[u8]) = match step {
            MountStep::Dir { mode } => (1, [u64::from(mode), 0, 0, 0], b""),
            MountStep::File { mode, contents } => (2, [u64::from(mode), 0, 0, 0], contents),
            MountStep::Symlink { to } => (3, [0; 4], to.to_bytes()),
            MountStep::Scratch { mode } => (4, [u64::from(mode), 0, 0, 0], b""),
            MountStep::BindPath { source, dev, ino, is_dir, writable } => {
                (5, [dev, ino, u64::from(is_dir), u64::from(writable)], source.to_bytes())
            }
            MountStep::BindDonated { is_dir, writable } => {
                (6, [0, 0, u64::from(is_dir), u64::from(writable)], b"")
            }
            MountStep::Proc => (7, [0; 4], b""),
            MountStep::DevPts => (8, [0; 4], b""),
            MountStep::Device => (9, [0; 4], b""),
            MountStep::Mask { is_dir, optional } => (10, [0, 0, u64::from(is_dir), u64::from(optional)], b""),
            MountStep::Protect { optional } => (11, [0, 0, 0, u64::from(optional)], b""),
            MountStep::Pin => (12, [0; 4], b""),
            MountStep::Cover { contents } => (13, [0; 4], contents),
        };
        self.u32(tag);
        self.text(target);
        for number in numbers {
            self.u64(number);
        }
        self.text(text);
    }
}
