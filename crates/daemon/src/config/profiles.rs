//! The profiles that this service has: the system's and its user's, read at start and at reload, and tried as a
//! whole. One that can't be used keeps the others from being used: a reload then changes nothing. Next: the executor
//! gets the texts, and looks at no file for them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use stockade_policy::{BUILT_IN, Place, ProfileError, ProfileText, Sources, is_profile_name, resolve};
use stockade_proto::link::{Owner, ServiceProfile};
use stockade_proto::{Bytes, Code, Mode, Refusal};

use super::resolve::invalid;
use super::surroundings::Surroundings;
use super::{private, read_owned};

const SYSTEM: &str = "/etc/stockade/profiles";
/// As an executor reads them.
const TEXT_LIMIT: u64 = 256 * 1024;
/// All of them travel in one frame, as JSON.
const TOTAL_LIMIT: usize = 512 << 10;
const MOST: usize = 250;

/// Texts by place and name.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    user: BTreeMap<String, ProfileText>,
    system: BTreeMap<String, ProfileText>,
}

/// What the service makes of them.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) texts: Vec<ServiceProfile>,
    pub(super) without_walls: Vec<String>,
}

impl Profiles {
    pub(super) fn read(around: &Surroundings) -> Result<Self, ProfileError> {
        // The same places as an executor of this user looks at.
        let home = || around.home.as_ref().map(|home| home.join(".config"));
        let user = around.config_home.clone().or_else(home).map(|config| config.join("stockade/profiles"));
        let user = user.map_or_else(|| Ok(BTreeMap::new()), |path| read_directory(&path, Place::User))?;
        Ok(Self { user, system: read_directory(Path::new(SYSTEM), Place::System)? })
    }

    /// `own` is the one that the configuration makes; `default` is asked for by who asks for none.
    pub(super) fn try_all(
        mut self,
        own: Option<ServiceProfile>,
        default: &str,
    ) -> Result<Tried, ProfileError> {
        if let Some(own) = &own {
            self.user.remove(&own.name);
            self.system.insert(own.name.clone(), text_of(own));
        }
        resolve(default, &self)?;
        let mut tried = Tried { texts: Vec::new(), without_walls: Vec::new() };
        let mut names = self.names();
        names.extend(BUILT_IN.iter().map(|(name, _)| (*name).to_owned()));
        names.sort();
        names.dedup();
        for name in names {
            let profile = resolve(&name, &self)?;
            if profile.mode.value == Mode::Host {
                tried.without_walls.push(name);
            }
        }
        tried.texts.extend(self.user.values().map(|text| passed(Owner::User, text)));
        tried.texts.extend(self.system.values().map(|text| passed(Owner::System, text)));
        let total: usize = tried.texts.iter().map(|text| text.text.len()).sum();
        if tried.texts.len() > MOST || total > TOTAL_LIMIT {
            return Err(invalid(
                format!("there are more than {MOST} profiles, or more than half a mebibyte of them"),
                "Remove some that nobody uses.",
            ));
        }
        Ok(tried)
    }
}

fn passed(owner: Owner, text: &ProfileText) -> ServiceProfile {
    let (name, origin, text) = (text.name.clone(), text.file.to_string(), text.text.to_string());
    ServiceProfile { name, owner, origin, text }
}

fn text_of(profile: &ServiceProfile) -> ProfileText {
    ProfileText {
        place: Place::System,
        name: profile.name.clone(),
        file: Bytes::from(profile.origin.as_str()),
        text: profile.text.clone().into(),
    }
}

impl Sources for Profiles {
    fn find(&self, place: Place, name: &str) -> Result<Option<ProfileText>, Refusal> {
        Ok(match place {
            Place::User => self.user.get(name).cloned(),
            Place::System => self.system.get(name).cloned(),
            Place::Workspace | Place::BuiltIn => None,
        })
    }

    fn names(&self) -> Vec<String> {
        self.user.keys().chain(self.system.keys()).cloned().collect()
    }
}

fn read_directory(directory: &Path, place: Place) -> Result<BTreeMap<String, ProfileText>, ProfileError> {
    // One that is not there holds nothing.
    let Ok(entries) = fs::read_dir(directory) else { return Ok(BTreeMap::new()) };
    let mut texts = BTreeMap::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".toml")) else { continue };
        if !is_profile_name(name) {
            continue;
        }
        if texts.len() > MOST {
            let message = format!("{} holds more than {MOST} profiles", directory.display());
            return Err(invalid(message, "Remove some that nobody uses."));
        }
        let path = entry.path();
        let text = read_owned(&path, TEXT_LIMIT, &|there| private(there, 0o022));
        let text = text.map_err(|why| unusable(&path, &why))?;
        let (name, file) = (name.to_owned(), Bytes::from(path));
        texts.insert(name.clone(), ProfileText { place, name, file, text: text.into() });
    }
    Ok(texts)
}

fn unusable(path: &Path, why: &str) -> ProfileError {
    Refusal::new(
        Code::ProfileInvalid,
        format!("the profile `{}` {why}", Bytes::from(path)),
        "make it a regular UTF-8 file that only the service's user or root can write",
    )
    .into()
}
