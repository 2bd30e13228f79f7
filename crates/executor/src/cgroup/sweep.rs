//! Removes what executors that died left behind: a group whose owner, told by its name, is dead. Live
//! executors' groups, and those of other PID namespaces, are not touched; two sweeps at once are
//! harmless. Where there is nothing, it costs one stat per hierarchy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::Host;
use super::dir::{Dir, is_barren};
use super::error::CgroupError;
use super::group::{Group, Part};
use super::layout::{Controller, Version};
use super::name::{Fate, Owner};
use super::seat::{SLICE, TOP};

/// For all leftovers of one sweep together: a start must not hang on a process stuck in the kernel.
const EMPTY_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub struct SweepReport {
    /// Groups of dead executors that are gone now.
    pub removed: Vec<String>,
    /// Groups of executors that live.
    pub alive: usize,
    /// Groups of executors in other PID namespaces.
    pub elsewhere: usize,
    /// What could not be looked at or removed.
    pub faults: Vec<CgroupError>,
}

pub fn sweep(host: &Host) -> SweepReport {
    let mut report = SweepReport::default();
    let mut leftovers: BTreeMap<String, Vec<Part>> = BTreeMap::new();
    for place in places(host) {
        if is_barren(&place.path) {
            continue;
        }
        // Another user's: what is left there is for that user to remove, and no fault of ours.
        if access(&place.path, Access::WRITE_OK) == Err(Errno::ACCESS) {
            continue;
        }
        let (base, names) = match list(&place.path) {
            Ok(found) => found,
            Err(fault) => {
                report.faults.push(fault);
                continue;
            }
        };
        let base = Arc::new(base);
        for name in names {
            let Some(owner) = Owner::of_group(&name) else { continue };
            match owner.fate(&host.owner) {
                Fate::Alive => report.alive += 1,
                Fate::Elsewhere => report.elsewhere += 1,
                Fate::Dead => leftovers.entry(name).or_default().push(Part::new(
                    Arc::clone(&base),
                    place.version,
                    place.controllers.clone(),
                )),
            }
        }
    }
    let deadline = Instant::now() + EMPTY_WITHIN;
    for (name, parts) in leftovers {
        match end(&name, parts, deadline) {
            Ok(()) => report.removed.push(name),
            Err(fault) => report.faults.push(fault),
        }
    }
    report
}

fn list(path: &Path) -> Result<(Dir, Vec<String>), CgroupError> {
    let base = Dir::open(path)?;
    let names = base.children().map_err(|source| CgroupError::Read { path: path.to_path_buf(), source })?;
    Ok((base, names))
}

/// The same three steps as for a live group.
fn end(name: &str, parts: Vec<Part>, deadline: Instant) -> Result<(), CgroupError> {
    let mut group = Group::named(name.to_owned(), String::new(), None);
    group.parts = parts;
    group.kill()?;
    if !group.wait_empty(deadline)? {
        return Err(CgroupError::StillPopulated { path: group.first_path() });
    }
    group.remove()
}

struct Place {
    path: PathBuf,
    version: Version,
    controllers: Vec<Controller>,
}

/// Everywhere `Host::create` may put a group.
fn places(host: &Host) -> Vec<Place> {
    let v1 = host.v1.iter().filter(|hierarchy| hierarchy.writable).filter_map(|hierarchy| {
        Some(Place {
            path: hierarchy.own.clone()?,
            version: Version::V1,
            controllers: hierarchy.controllers.clone(),
        })
    });
    let mut list: Vec<_> = v1.collect();
    let Some(mount) = host.v2.as_ref().filter(|mount| mount.writable) else { return list };
    let mut paths = vec![mount.point.join(TOP)];
    if let Some(own) = &mount.own {
        paths.extend(mount.reach(own).map(PathBuf::from));
        if let Some(slice) = own.ancestors().find(|path| path.ends_with(SLICE))
            && let Ok(slice) = Dir::open(slice)
        {
            for scope in slice.children().unwrap_or_default() {
                paths.push(slice.path().join(scope));
            }
        }
    }
    paths.sort();
    paths.dedup();
    list.extend(paths.into_iter().map(|path| Place { path, version: Version::V2, controllers: Vec::new() }));
    list
}
