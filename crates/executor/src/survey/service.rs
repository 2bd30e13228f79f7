//! The profiles of a service: those that it read when it started, and no others. The files on the disk are not asked
//! again, so that nothing that came into a directory since then is trusted. A workspace's file still narrows them, as
//! it narrows any.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use stockade_policy::{Place, ProfileError, ProfileText, Resolved, Sources};
use stockade_proto::link::{Owner, ServiceProfile};
use stockade_proto::{Bytes, Code, Mode, Refusal};

use super::Profiles;
use super::profiles::MAX_PROFILE_BYTES;

#[derive(Debug, Default)]
pub struct ServiceProfiles {
    known: BTreeMap<(Owner, String), ServiceProfile>,
    walls_required: bool,
    /// What those that were asked for came to, for workspaces without a word of their own.
    resolved: Mutex<BTreeMap<String, Arc<Resolved>>>,
}

impl ServiceProfiles {
    pub fn new(profiles: Vec<ServiceProfile>) -> Result<Self, Refusal> {
        let mut known = BTreeMap::new();
        for profile in profiles {
            let refuse = |why: &str| {
                Refusal::new(
                    Code::ProfileInvalid,
                    format!("the service's profile `{}` {why}", Bytes::from(profile.name.as_str())),
                    "change the service's configuration",
                )
            };
            if !stockade_policy::is_profile_name(&profile.name) {
                return Err(refuse("has a name that no profile can have"));
            }
            if u64::try_from(profile.text.len()).map_or(true, |length| length > MAX_PROFILE_BYTES) {
                return Err(refuse("is longer than a profile may be"));
            }
            let key = (profile.owner, profile.name.clone());
            if known.contains_key(&key) {
                return Err(refuse("is there twice"));
            }
            known.insert(key, profile);
        }
        Ok(Self { known, walls_required: false, resolved: Mutex::default() })
    }

    /// From here on, a profile without walls is refused, wherever it comes from.
    #[must_use]
    pub fn with_walls_required(self) -> Self {
        Self { walls_required: true, ..self }
    }

    pub(crate) fn check(&self, profile: &Resolved) -> Result<(), Refusal> {
        if !self.walls_required || profile.mode.value != Mode::Host {
            return Ok(());
        }
        Err(Refusal::new(
            Code::NotPermitted,
            format!("the profile `{}` builds no walls, and this service runs nothing without", profile.name),
            "name another profile; `production = false` in the service's configuration would allow it",
        ))
    }

    /// Of the files, only a workspace's and those that are built in. What is not a workspace's never changes.
    pub(crate) fn resolve(&self, name: &str, files: Profiles) -> Result<Arc<Resolved>, ProfileError> {
        let bounded = |mut profile: Resolved| {
            stockade_policy::bound_output(&mut profile);
            Arc::new(profile)
        };
        let sources = ServiceFirst { service: self, files };
        if sources.find(Place::Workspace, name)?.is_some() {
            return stockade_policy::resolve(name, &sources).map(bounded);
        }
        let resolved = || self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        let known = resolved().get(name).cloned();
        match known {
            Some(known) => Ok(known),
            None => {
                let found = bounded(stockade_policy::resolve(name, &sources.without_workspace())?);
                resolved().insert(name.to_owned(), Arc::clone(&found));
                Ok(found)
            }
        }
    }
}

#[derive(Debug)]
struct ServiceFirst<'s> {
    service: &'s ServiceProfiles,
    files: Profiles,
}

impl ServiceFirst<'_> {
    /// A file that came since nobody was found is not to be kept for other workspaces.
    fn without_workspace(self) -> Self {
        Self { files: self.files.without_workspace(), ..self }
    }
}

impl Sources for ServiceFirst<'_> {
    fn find(&self, place: Place, name: &str) -> Result<Option<ProfileText>, Refusal> {
        let owner = match place {
            Place::Workspace | Place::BuiltIn => return self.files.find(place, name),
            Place::User => Owner::User,
            Place::System => Owner::System,
        };
        let known = self.service.known.get(&(owner, name.to_owned()));
        Ok(known.map(|profile| ProfileText {
            place,
            name: profile.name.clone(),
            file: Bytes::from(profile.origin.as_str()),
            text: Cow::Owned(profile.text.clone()),
        }))
    }

    /// For "did you mean": what lies on the disk and is not ours is not named.
    fn names(&self) -> Vec<String> {
        self.service.known.keys().map(|(_, name)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(name: &str, text: &str) -> ServiceProfile {
        let (name, origin, text) = (name.to_owned(), "service.toml".to_owned(), text.to_owned());
        ServiceProfile { name, owner: Owner::System, origin, text }
    }

    #[test]
    fn names_are_checked_and_none_comes_twice() {
        for (wrong, why) in [
            (vec![profile("../x", "")], "name"),
            (vec![profile("", "")], "name"),
            (vec![profile("a", ""), profile("a", "")], "twice"),
            (vec![profile("a", &"#".repeat(1 << 20))], "longer"),
        ] {
            let refusal = ServiceProfiles::new(wrong).unwrap_err();
            assert_eq!(refusal.code, Code::ProfileInvalid);
            assert!(refusal.message.contains(why), "{}", refusal.message);
        }
        ServiceProfiles::new(vec![profile("a", ""), profile("b", "")]).unwrap();
    }
}
