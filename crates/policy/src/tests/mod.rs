//! Tests that cross modules: texts in, refusals and plans out.

mod egress;
mod narrowing;
mod planning;
mod profiles;
mod sockets;

use std::borrow::Cow;

use stockade_proto::{Bytes, Plan, Refusal, Request};

use crate::{HostReport, Place, ProfileError, ProfileText, Resolved, Sources, ground, resolve};

#[derive(Default)]
pub(crate) struct Texts(Vec<(Place, &'static str, String)>);

impl Texts {
    pub(crate) fn with(mut self, place: Place, name: &'static str, text: impl Into<String>) -> Self {
        self.0.push((place, name, text.into()));
        self
    }
}

impl Sources for Texts {
    fn find(&self, place: Place, name: &str) -> Result<Option<ProfileText>, Refusal> {
        let found = self.0.iter().find(|(at, known, _)| *at == place && *known == name);
        Ok(found.map(|(place, name, text)| ProfileText {
            place: *place,
            name: (*name).to_owned(),
            file: Bytes::from(format!("/{}/{name}.toml", place.name())),
            text: Cow::Owned(text.clone()),
        }))
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|(_, name, _)| (*name).to_owned()).collect()
    }
}

pub(crate) fn user(text: &str) -> Result<Resolved, ProfileError> {
    resolve("p", &Texts::default().with(Place::User, "p", text))
}

pub(crate) fn plan(request: &Request, profile: &Resolved, report: &HostReport) -> Result<Plan, Refusal> {
    crate::plan(&ground(request, profile, report)?, request, profile, report)
}
