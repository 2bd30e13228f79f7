//! Landlock's rules, derived from the mount list by one function, so that the two walls can't disagree.
//! What each access means in kernel bits is the executor's table. Next: `plan`.

use stockade_proto::{Access, Bytes, LandlockPlan, LandlockRule, Mount, MountKind};

/// Where the rules will be resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    NewRoot,
    /// No filesystem layer: the host's own paths. Scratch does not exist there, and listing `/` would list
    /// the host.
    Host,
}

pub(crate) fn rules(mounts: &[Mount], ground: Ground) -> LandlockPlan {
    let mut rules: Vec<LandlockRule> = Vec::new();
    if ground == Ground::NewRoot {
        rules.push(LandlockRule { path: Bytes::from("/"), access: Access::List, is_dir: true });
    }
    for mount in mounts {
        let (access, is_dir) = match &mount.kind {
            MountKind::Bind(bind) if bind.writable => (Access::Write, bind.source.is_dir),
            MountKind::Bind(bind) => (Access::Read, bind.source.is_dir),
            MountKind::Scratch { .. } if ground == Ground::NewRoot => (Access::Write, true),
            MountKind::Proc => (Access::Proc, true),
            MountKind::DevPts => (Access::Device, true),
            MountKind::Device => (Access::Device, false),
            // Only devices are in there, and what has a rule of its own: one rule for all of them.
            MountKind::Dir { .. } if ground == Ground::NewRoot && mount.target.as_slice() == b"/dev" => {
                (Access::Device, true)
            }
            MountKind::Scratch { .. }
            | MountKind::Dir { .. }
            | MountKind::File { .. }
            | MountKind::Symlink { .. }
            | MountKind::Mask { .. }
            | MountKind::Cover { .. }
            | MountKind::Protect { .. }
            | MountKind::Pin => continue,
        };
        // A rule holds for everything below its path, mounts included, so a narrower one adds nothing.
        let covered = rules.iter().any(|rule| {
            rule.path.len() > 1
                && mount.target.as_path().starts_with(rule.path.as_path())
                && (rule.access == access || (rule.access == Access::Write && access == Access::Read))
        });
        if !covered {
            rules.push(LandlockRule { path: mount.target.clone(), access, is_dir });
        }
    }
    if ground == Ground::Host {
        rules.push(LandlockRule { path: Bytes::from("/dev/ptmx"), access: Access::Device, is_dir: false });
    }
    LandlockPlan { rules }
}
