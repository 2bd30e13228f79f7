//! Builds the new root: one row of the launch, one mount. Child, inside the user and mount
//! namespaces, with capabilities over them; host paths can still be named.

mod stem;

use core::ffi::CStr;

use stockade_launch::{MountStep, Mounts, wall};
use stockade_nolibc::{
    Attr, CWD, Errno, Fd, bind_tree, bind_tree_at, fs_context, make_file, make_private, mkdirat, move_onto,
    open_below, open_create, open_path, set_attr, set_attr_recursive, stat, write,
};

use super::place::Places;
use crate::context::{About, Context, Failure, NewRoot};

const SAFE: Attr = Attr::NOSUID.and(Attr::NODEV);
/// A page each, and enough for the directories of an empty one.
const BYTES_PER_INODE: u64 = 4096;
const FEWEST_INODES: u64 = 1024;
const MASK_FILE: &CStr = c"mask";
const MASK_DIR: &CStr = c"mask.d";
const COVER_MODE: u32 = 0o444;
/// Of a directory that something is mounted on.
const PLACE_MODE: u32 = 0o755;
/// The root itself holds only directories, links and a few small files.
const ROOT_OPTIONS: [(&CStr, &CStr); 2] = [(c"mode", c"0755"), (c"size", c"16m")];

/// What needs no plan: a new root with the plan's first mounts in it.
pub(crate) fn ground(context: &mut Context) -> Result<(), Failure> {
    if !context.ground.has(wall::MOUNT) {
        return Ok(());
    }
    make_private()?;
    if context.ground.is_stems() {
        return stem::ground(context);
    }
    // Over the host's `/proc`, which every host has and no step needs: it goes with the old root, which
    // costs one wait of the kernel's less than unmounting it by itself.
    let scratch = scratch(&open_path(&CWD, c"/proc")?, context.ground.scratch_bytes).about(b"scratch")?;
    let root = new_root()?;
    let masks = masks(&scratch).about(b"masks")?;
    let mut new = NewRoot { places: Places::new(root), scratch, masks, scratches: 0 };
    build(&mut new, context.ground.mounts, &mut context.donations)?;
    context.root = Some(new);
    Ok(())
}

/// What inits of one stem can't share: everything private, and their proc. Born of it, in a copy of its mounts.
pub(crate) fn own(context: &mut Context) -> Result<(), Failure> {
    if context.ground.is_stems() { stem::own(context) } else { Ok(()) }
}

/// The rest of the plan's mounts.
pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    let launch = context.launch()?;
    match &mut context.root {
        // The first descriptor of the packet was the launch itself.
        Some(new) => build(new, launch.mounts, &mut context.donations[1..]),
        None => Ok(()),
    }
}

fn build(new: &mut NewRoot, mounts: Mounts<'static>, donations: &mut [Option<Fd>]) -> Result<(), Failure> {
    let mut builder = Builder { new, donated: 0 };
    for (target, step) in mounts {
        builder.step(target, step, donations).about(target.to_bytes())?;
    }
    Ok(())
}

/// On top of the old one: no directory of the host is needed to stand on.
fn new_root() -> Result<Fd, Failure> {
    let root = fs_context(c"tmpfs", &ROOT_OPTIONS, SAFE).about(b"tmpfs")?;
    move_onto(&root, &open_path(&CWD, c"/")?).about(b"/")?;
    Ok(root)
}

/// One tmpfs behind every private directory, so that one size bounds them all; the masks live in it too.
fn scratch(host: &Fd, size: u64) -> Result<Fd, Errno> {
    let scratch = scratch_fs(size)?;
    move_onto(&scratch, host)?;
    Ok(scratch)
}

fn scratch_fs(size: u64) -> Result<Fd, Errno> {
    let (mut bytes, mut inodes) = ([0; 24], [0; 24]);
    let options = [
        (c"mode", c"0700"),
        (c"size", decimal(size, &mut bytes)?),
        // Empty files cost memory too.
        (c"nr_inodes", decimal((size / BYTES_PER_INODE).max(FEWEST_INODES), &mut inodes)?),
    ];
    fs_context(c"tmpfs", &options, SAFE)
}

fn masks(scratch: &Fd) -> Result<[Fd; 2], Errno> {
    make_file(scratch, MASK_FILE, 0)?;
    mkdirat(scratch, MASK_DIR, 0)?;
    Ok([open_below(scratch, MASK_FILE)?, open_below(scratch, MASK_DIR)?])
}

struct Builder<'a> {
    new: &'a mut NewRoot,
    donated: usize,
}

impl Builder<'_> {
    fn step(
        &mut self,
        target: &'static CStr,
        step: MountStep<'static>,
        donations: &mut [Option<Fd>],
    ) -> Result<(), Errno> {
        let places = &mut self.new.places;
        match step {
            MountStep::Dir { mode } => places.make_directory(target, mode),
            MountStep::File { mode, contents } => fill(&places.new_file(target, mode)?, contents),
            MountStep::Symlink { to } => places.symlink(target, to),
            MountStep::Scratch { .. } | MountStep::Proc | MountStep::DevPts => {
                let tree = self.private(step)?;
                self.new.places.mount_directory(target, PLACE_MODE, &tree)
            }
            MountStep::BindPath { is_dir, .. } | MountStep::BindDonated { is_dir, .. } => {
                let tree = bound(step, &mut self.donated, donations)?;
                places.mount(target, &tree, is_dir)
            }
            MountStep::Device => device(places, target),
            MountStep::Mask { is_dir, optional } => {
                let [file, directory] = &self.new.masks;
                let tree = bind_tree(if is_dir { directory } else { file })?;
                set_attr(&tree, SAFE.and(Attr::NOEXEC).and(Attr::RDONLY))?;
                // Whatever it is: a link is covered like a file.
                match places.cover(target, &tree) {
                    Err(Errno::NOENT) if optional => Ok(()),
                    covered => covered,
                }
            }
            MountStep::Cover { contents } => {
                let file = self.hidden_file(contents)?;
                self.over(target, false, |_, _| Ok(file))
            }
            MountStep::Protect { optional } => self.over(target, optional, |_, place| {
                let tree = bind_tree(place)?;
                set_attr_recursive(&tree, SAFE.and(Attr::RDONLY))?;
                Ok(tree)
            }),
            MountStep::Pin => self.over(target, false, |_, place| bind_tree(place)),
        }
    }

    /// A new file system, or a new directory of the scratch's.
    fn private(&mut self, step: MountStep<'static>) -> Result<Fd, Errno> {
        match step {
            MountStep::Scratch { mode } => {
                let mut digits = [0; 24];
                let name = self.next_name(&mut digits)?;
                mkdirat(&self.new.scratch, name, mode)?;
                bind_tree_at(&self.new.scratch, name)
            }
            MountStep::Proc => fs_context(c"proc", &[], SAFE.and(Attr::NOEXEC)),
            MountStep::DevPts => {
                let options = [(c"ptmxmode", c"0666"), (c"mode", c"0620")];
                fs_context(c"devpts", &options, Attr::NOSUID.and(Attr::NOEXEC))
            }
            MountStep::Dir { .. }
            | MountStep::File { .. }
            | MountStep::Symlink { .. }
            | MountStep::BindPath { .. }
            | MountStep::BindDonated { .. }
            | MountStep::Device
            | MountStep::Mask { .. }
            | MountStep::Cover { .. }
            | MountStep::Protect { .. }
            | MountStep::Pin => Err(Errno::INVAL),
        }
    }

    /// A name in the scratch that nothing has yet.
    fn next_name<'d>(&mut self, digits: &'d mut [u8; 24]) -> Result<&'d CStr, Errno> {
        let name = decimal(u64::from(self.new.scratches), digits)?;
        self.new.scratches += 1;
        Ok(name)
    }

    /// A read-only mount of a file that has no other name inside.
    fn hidden_file(&mut self, contents: &[u8]) -> Result<Fd, Errno> {
        let mut digits = [0; 24];
        let name = self.next_name(&mut digits)?;
        fill(&open_create(&self.new.scratch, name, COVER_MODE)?, contents)?;
        let tree = bind_tree_at(&self.new.scratch, name)?;
        set_attr(&tree, SAFE.and(Attr::NOEXEC).and(Attr::RDONLY))?;
        Ok(tree)
    }

    /// Something new on top of what is at `target` already.
    fn over(
        &mut self,
        target: &'static CStr,
        optional: bool,
        tree: impl FnOnce(&NewRoot, &Fd) -> Result<Fd, Errno>,
    ) -> Result<(), Errno> {
        match self.new.places.existing(target) {
            Ok(place) => {
                let tree = tree(self.new, &place)?;
                self.new.places.mount_over(target, &place, &tree)
            }
            Err(Errno::NOENT) if optional => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// What a bind step shows, with its attributes. A donated tree is the next one.
fn bound(step: MountStep<'static>, donated: &mut usize, donations: &mut [Option<Fd>]) -> Result<Fd, Errno> {
    let (tree, writable) = match step {
        MountStep::BindPath { source, dev, ino, writable, .. } => {
            let found = open_path(&CWD, source)?;
            let stat = stat(&found)?;
            // Someone put another object there since the plan was made.
            if (stat.dev, stat.ino) != (dev, ino) {
                return Err(Errno::STALE);
            }
            (bind_tree(&found)?, writable)
        }
        MountStep::BindDonated { writable, .. } => {
            let tree = donations.get_mut(*donated).and_then(Option::take).ok_or(Errno::BADMSG)?;
            *donated += 1;
            (tree, writable)
        }
        MountStep::Dir { .. }
        | MountStep::File { .. }
        | MountStep::Symlink { .. }
        | MountStep::Scratch { .. }
        | MountStep::Proc
        | MountStep::DevPts
        | MountStep::Device
        | MountStep::Mask { .. }
        | MountStep::Cover { .. }
        | MountStep::Protect { .. }
        | MountStep::Pin => return Err(Errno::INVAL),
    };
    set_attr_recursive(&tree, if writable { SAFE } else { SAFE.and(Attr::RDONLY) })?;
    Ok(tree)
}

fn device(places: &mut Places, target: &'static CStr) -> Result<(), Errno> {
    let tree = bind_tree(&open_path(&CWD, target)?)?;
    set_attr(&tree, Attr::NOSUID.and(Attr::NOEXEC))?;
    places.mount_file(target, &tree)
}

fn fill(file: &Fd, contents: &[u8]) -> Result<(), Errno> {
    if write(file, contents)? == contents.len() { Ok(()) } else { Err(Errno::AGAIN) }
}

fn decimal(mut value: u64, digits: &mut [u8; 24]) -> Result<&CStr, Errno> {
    // The last byte stays NUL.
    let mut at = digits.len() - 1;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
        if value == 0 {
            return CStr::from_bytes_with_nul(&digits[at..]).map_err(|_| Errno::INVAL);
        }
    }
}
