//! The root of a stem, and what each of its inits puts into a copy of it. What lies in a private directory can't be
//! mounted before that directory is there: the stem keeps such trees in its stash, beside the masks, and a proc without
//! which the kernel would refuse others.

use core::ffi::CStr;

use stockade_launch::{MountStep, Mounts};
use stockade_nolibc::{
    CWD, Errno, Fd, List, bind_tree, fs_context, make_file, mkdirat, move_mount, move_onto, move_onto_name,
    open_path,
};

use super::{Builder, PLACE_MODE, ROOT_OPTIONS, SAFE, bound, decimal, device, fill, masks, new, new_root};
use crate::context::{About, Context, Failure};
use crate::stages::pivot::{enter, let_go_of_stash};
use crate::stages::place::{Places, ShortPath, relative};

/// Names in the stash, beside the numbers of trees.
const PROC: &CStr = c"proc";
const SCRATCH: &CStr = c"scratch";

/// Stem: everything that its inits share.
pub(super) fn ground(context: &mut Context) -> Result<(), Failure> {
    let host_proc = open_path(&CWD, c"/proc")?;
    let mut places = Places::new(new_root()?);
    let mounts = context.ground.mounts;
    let holders = Holders::of(mounts)?;
    let mut stashed: [Option<Fd>; MOST_STASHED] = [const { None }; MOST_STASHED];
    let (mut donated, mut count) = (0, 0);
    for (target, step) in mounts {
        let mut build = || match step {
            MountStep::BindPath { is_dir, .. } | MountStep::BindDonated { is_dir, .. } => {
                let tree = bound(step, &mut donated, &mut context.donations)?;
                if !holders.are_private(target) {
                    return places.mount(target, &tree, is_dir);
                }
                *stashed.get_mut(count).ok_or(Errno::BADMSG)? = Some(tree);
                count += 1;
                Ok(())
            }
            // What is in something private is made with it; a place for it has to be there.
            _ if holders.are_private(target) => Ok(()),
            MountStep::Dir { mode } => places.make_directory(target, mode),
            MountStep::Scratch { .. } | MountStep::DevPts | MountStep::Proc => {
                places.make_directory(target, PLACE_MODE)
            }
            MountStep::File { mode, contents } => fill(&places.new_file(target, mode)?, contents),
            MountStep::Symlink { to } => places.symlink(target, to),
            MountStep::Device => device(&mut places, target),
            // Laid over what is there when an init is.
            MountStep::Mask { .. } | MountStep::Cover { .. } | MountStep::Protect { .. } | MountStep::Pin => {
                Ok(())
            }
        };
        build().about(target.to_bytes())?;
    }
    stash(&places, context.ground.stash, &host_proc, &stashed).about(b"stash")?;
    // Everything that is bound is bound already: the host's paths are needed no more.
    enter(&places.root)
}

/// Binds below private directories: a few toolchains in a home.
const MOST_STASHED: usize = 128;

fn stash(places: &Places, at: &'static CStr, host_proc: &Fd, trees: &[Option<Fd>]) -> Result<(), Errno> {
    let stash = fs_context(c"tmpfs", &ROOT_OPTIONS, SAFE)?;
    let place = places.existing(at)?;
    move_onto(&stash, &place)?;
    mkdirat(&stash, SCRATCH, 0o700)?;
    masks(&stash, &ShortPath::new(relative(at)?.to_bytes())?)?;
    mkdirat(&stash, PROC, 0o700)?;
    move_onto_name(&bind_tree(host_proc)?, &stash, PROC)?;
    for (number, tree) in trees.iter().flatten().enumerate() {
        let mut digits = [0; 24];
        let name = decimal(number as u64, &mut digits)?;
        // A directory or a file, as the tree is.
        if stockade_nolibc::stat(tree)?.is_dir {
            mkdirat(&stash, name, 0o700)?;
        } else {
            make_file(&stash, name, 0o600)?;
        }
        move_onto_name(tree, &stash, name)?;
    }
    Ok(())
}

/// Init, born of the stem, in a copy of its mounts: all of them are its own to mount on and to let go of.
pub(super) fn own(context: &mut Context) -> Result<(), Failure> {
    let places = Places::new(open_path(&CWD, c"/")?);
    let stash = ShortPath::new(context.ground.stash.to_bytes())?;
    let masks = ShortPath::new(context.ground.stash.to_bytes())?;
    let mut new = new(places, stash.join(SCRATCH)?, masks, context.ground.scratch_bytes)?;
    let mut builder = Builder::of_a_ground(&mut new);
    let mounts = context.ground.mounts;
    let holders = Holders::of(mounts)?;
    let (mut stashed, mut standing) = (0, 0);
    for (target, step) in mounts {
        // What comes later holds nothing yet.
        let is_anybodys = holders.are_anybodys(target, standing);
        standing += usize::from(Holder::of(target, &step).is_some());
        let mut build = || match step {
            MountStep::BindPath { is_dir, .. } | MountStep::BindDonated { is_dir, .. } => {
                if !holders.are_private(target) {
                    return Ok(());
                }
                let mut digits = [0; 24];
                let tree = stash.join(decimal(stashed, &mut digits)?)?;
                stashed += 1;
                let places = &mut builder.new.places;
                // The copy is ours: it needs no copy of its own.
                if is_anybodys {
                    // It was there, and is not made again.
                    let place = places.existing(target)?;
                    return places.mount_over(target, &place, &open_path(&CWD, tree.as_c_str()?)?);
                }
                if is_dir {
                    make_directory(places, is_anybodys, target, PLACE_MODE)?;
                } else {
                    places.make_file(target)?;
                }
                move_mount(tree.as_c_str()?, relative(target)?)?;
                places.mounted(target)
            }
            MountStep::Dir { .. }
            | MountStep::File { .. }
            | MountStep::Symlink { .. }
            | MountStep::Device
                if !holders.are_private(target) =>
            {
                Ok(())
            }
            MountStep::Scratch { .. } | MountStep::Proc | MountStep::DevPts => {
                // Or the stem has made one.
                if holders.are_private(target) {
                    make_directory(&mut builder.new.places, is_anybodys, target, PLACE_MODE)?;
                }
                builder.private(target, step)
            }
            MountStep::Dir { mode } => make_directory(&mut builder.new.places, is_anybodys, target, mode),
            MountStep::Mask { .. } if is_anybodys => Err(Errno::INVAL),
            MountStep::File { .. }
            | MountStep::Symlink { .. }
            | MountStep::Device
            | MountStep::Mask { .. }
            | MountStep::Cover { .. }
            | MountStep::Protect { .. }
            | MountStep::Pin => builder.step(target, step, &mut []),
        };
        build().about(target.to_bytes())?;
    }
    context.root = Some(new);
    // The kernel takes its time for it: here, where nobody waits for us.
    if context.keeps_stash { Ok(()) } else { let_go_of_stash(context) }
}

/// At once, where the directory that it is in is there and nobody else could change what its name means.
fn make_directory(
    places: &mut Places,
    is_anybodys: bool,
    target: &'static CStr,
    mode: u32,
) -> Result<(), Errno> {
    if !is_anybodys {
        match mkdirat(&CWD, relative(target)?, mode) {
            Err(Errno::NOENT | Errno::EXIST) => {}
            made => return made,
        }
    }
    places.make_directory(target, mode)
}

/// What other places can be in: something that every init has its own of, or something of the host's.
struct Holders(List<Holder>);

#[derive(Clone, Copy)]
struct Holder {
    target: &'static [u8],
    is_private: bool,
}

impl Holder {
    fn of(target: &'static CStr, step: &MountStep<'static>) -> Option<Self> {
        let is_private = match step {
            MountStep::Scratch { .. } | MountStep::Proc | MountStep::DevPts => true,
            MountStep::BindPath { .. } | MountStep::BindDonated { .. } => false,
            MountStep::Dir { .. }
            | MountStep::File { .. }
            | MountStep::Symlink { .. }
            | MountStep::Device
            | MountStep::Mask { .. }
            | MountStep::Cover { .. }
            | MountStep::Protect { .. }
            | MountStep::Pin => return None,
        };
        Some(Self { target: target.to_bytes(), is_private })
    }

    fn holds(&self, target: &CStr) -> bool {
        matches!(target.to_bytes().strip_prefix(self.target), Some([b'/', ..]))
    }
}

impl Holders {
    fn of(mounts: Mounts<'static>) -> Result<Self, Errno> {
        let mut list = List::with_room(mounts.len())?;
        for (target, step) in mounts {
            if let Some(holder) = Holder::of(target, &step) {
                list.push(holder)?;
            }
        }
        Ok(Self(list))
    }

    /// Whether each init makes that itself.
    fn are_private(&self, target: &CStr) -> bool {
        self.0.as_slice().iter().any(|holder| holder.is_private && holder.holds(target))
    }

    /// Whether somebody else could change what the name means, when so many of them are there.
    fn are_anybodys(&self, target: &CStr, standing: usize) -> bool {
        self.0.as_slice().iter().take(standing).any(|holder| !holder.is_private && holder.holds(target))
    }
}
