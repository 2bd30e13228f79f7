//! Builds the new root: one row of the launch, one mount. Child, inside the user and mount
//! namespaces, with capabilities over them; host paths can still be named.

mod stem;

use core::ffi::CStr;

use stockade_launch::{MountStep, Mounts, wall};
use stockade_nolibc::{
    Attr, CWD, Errno, Fd, bind, bind_tree, bind_tree_at, fchdir, fs_context, make_file, make_private,
    mkdirat, mount_new, move_onto, open_create, open_path, set_attr, set_attr_at, set_attr_recursive, stat,
    write,
};

use super::place::{Places, ShortPath, relative};
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
    let scratch = || ShortPath::new(b"/proc");
    let mut new = new(Places::new(new_root()?), scratch()?, scratch()?, context.ground.scratch_bytes)?;
    masks(&new.scratch, &new.masks_at).about(b"masks")?;
    build(&mut Builder::of_a_ground(&mut new), context.ground.mounts, &mut context.donations)?;
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
        Some(new) => {
            let mut builder = Builder { new, donated: 0, names: Names::Anybodys };
            build(&mut builder, launch.mounts, &mut context.donations[1..])
        }
        None => Ok(()),
    }
}

fn build(
    builder: &mut Builder<'_>,
    mounts: Mounts<'static>,
    donations: &mut [Option<Fd>],
) -> Result<(), Failure> {
    for (target, step) in mounts {
        builder.step(target, step, donations).about(target.to_bytes())?;
    }
    Ok(())
}

/// On top of the old one: no directory of the host is needed to stand on. Names in it are relative ones from here on.
fn new_root() -> Result<Fd, Failure> {
    let root = fs_context(c"tmpfs", &ROOT_OPTIONS, SAFE).about(b"tmpfs")?;
    move_onto(&root, &open_path(&CWD, c"/")?).about(b"/")?;
    fchdir(&root)?;
    Ok(root)
}

/// With one tmpfs, at `at` for now, behind every private directory, so that one size bounds them all.
fn new(places: Places, at: ShortPath, masks_at: ShortPath, size: u64) -> Result<NewRoot, Failure> {
    let options = ScratchOptions::new(size)?;
    mount_new(c"tmpfs", at.as_c_str()?, SAFE, options.as_c_str()?).about(b"scratch")?;
    let scratch = open_path(&CWD, at.as_c_str()?)?;
    Ok(NewRoot { places, scratch, scratch_at: at, masks_at, scratches: 0 })
}

/// `mode=0700,size=BYTES,nr_inodes=COUNT`
struct ScratchOptions([u8; 96]);

impl ScratchOptions {
    fn new(size: u64) -> Result<Self, Errno> {
        let (mut bytes, mut inodes) = ([0; 24], [0; 24]);
        // Empty files cost memory too.
        let count = (size / BYTES_PER_INODE).max(FEWEST_INODES);
        let parts: [&[u8]; 4] = [
            b"mode=0700,size=",
            decimal(size, &mut bytes)?.to_bytes(),
            b",nr_inodes=",
            decimal(count, &mut inodes)?.to_bytes(),
        ];
        let (mut options, mut at) = (Self([0; 96]), 0);
        for part in parts {
            options.0.get_mut(at..at + part.len()).ok_or(Errno::INVAL)?.copy_from_slice(part);
            at += part.len();
        }
        Ok(options)
    }

    fn as_c_str(&self) -> Result<&CStr, Errno> {
        CStr::from_bytes_until_nul(&self.0).map_err(|_| Errno::INVAL)
    }
}

/// What covers a file, and what covers a directory, in a tmpfs at `at`: mounts of their own, so that every copy has their
/// attributes.
fn masks(tmpfs: &Fd, at: &ShortPath) -> Result<(), Errno> {
    make_file(tmpfs, MASK_FILE, 0)?;
    mkdirat(tmpfs, MASK_DIR, 0)?;
    for name in [MASK_FILE, MASK_DIR] {
        let path = at.join(name)?;
        let path = path.as_c_str()?;
        bind(path, path)?;
        set_attr_at(path, SAFE.and(Attr::NOEXEC).and(Attr::RDONLY))?;
    }
    Ok(())
}

/// Who could change what a name in the new root means while something is mounted there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Nobody: everything that is there we have just made.
    Ours,
    /// The workspace is in it.
    Anybodys,
}

struct Builder<'a> {
    new: &'a mut NewRoot,
    donated: usize,
    names: Names,
}

impl<'a> Builder<'a> {
    fn of_a_ground(new: &'a mut NewRoot) -> Self {
        Self { new, donated: 0, names: Names::Ours }
    }
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
                places.make_directory(target, PLACE_MODE)?;
                self.private(target, step)
            }
            MountStep::BindPath { is_dir, .. } | MountStep::BindDonated { is_dir, .. } => {
                let tree = bound(step, &mut self.donated, donations)?;
                places.mount(target, &tree, is_dir)
            }
            MountStep::Device => device(places, target),
            MountStep::Mask { is_dir, optional } => match self.mask(target, is_dir) {
                // The target is not there; without the mask nothing would be masked.
                Err(Errno::NOENT) if optional => {
                    open_path(&CWD, self.mask_of(is_dir)?.as_c_str()?).map(drop).map_err(|_| Errno::STALE)
                }
                masked => masked,
            },
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

    /// A new file system, or a new directory of the scratch's, at a place that is there. The planner puts none of them
    /// where the workspace is.
    fn private(&mut self, target: &'static CStr, step: MountStep<'static>) -> Result<(), Errno> {
        let place = relative(target)?;
        match step {
            MountStep::Scratch { mode } => {
                let mut digits = [0; 24];
                let name = self.next_name(&mut digits)?;
                mkdirat(&self.new.scratch, name, mode)?;
                bind(self.new.scratch_at.join(name)?.as_c_str()?, place)?;
            }
            MountStep::Proc => mount_new(c"proc", place, SAFE.and(Attr::NOEXEC), c"")?,
            MountStep::DevPts => {
                mount_new(c"devpts", place, Attr::NOSUID.and(Attr::NOEXEC), c"ptmxmode=0666,mode=0620")?;
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
            | MountStep::Pin => return Err(Errno::INVAL),
        }
        self.new.places.mounted(target)
    }

    fn mask_of(&self, is_dir: bool) -> Result<ShortPath, Errno> {
        self.new.masks_at.join(if is_dir { MASK_DIR } else { MASK_FILE })
    }

    fn mask(&mut self, target: &'static CStr, is_dir: bool) -> Result<(), Errno> {
        let mask = self.mask_of(is_dir)?;
        let mask = mask.as_c_str()?;
        if self.names == Names::Ours {
            bind(mask, relative(target)?)?;
            return self.new.places.mounted(target);
        }
        let tree = bind_tree_at(&CWD, mask)?;
        // Whatever it is: a link is covered like a file.
        self.new.places.cover(target, &tree)
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

/// The host's, of the same name: absolute names are still the old root's.
fn device(places: &mut Places, target: &'static CStr) -> Result<(), Errno> {
    places.make_file(target)?;
    let place = relative(target)?;
    bind(target, place)?;
    set_attr_at(place, Attr::NOSUID.and(Attr::NOEXEC))
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
