//! The service's configuration: a file of TOML that a person writes.

use std::time::Duration;

use stockade_daemon::config::Config;
use stockade_daemon::fuzz;
use stockade_policy::{Place, ProfileText, resolve_text};
use stockade_proto::Bytes;

use crate::{profile, refusal};

const HOUR: Duration = Duration::from_secs(60 * 60);
const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match fuzz::configuration(text) {
        Ok(settings) => {
            bounded(&settings.config);
            own_profile(&settings.config);
        }
        Err(error) => refusal(&error, text),
    }
}

/// What the rest of the service relies on without looking again.
fn bounded(config: &Config) {
    assert!(config.socket.is_some() || config.http.is_some(), "there is no door");
    assert!(config.socket.as_ref().is_none_or(|door| door.path.as_os_str().len() < 108));
    assert!(config.socket.as_ref().is_none_or(|door| door.path.is_absolute()));
    assert!(config.socket.as_ref().is_none_or(|door| !door.uids.contains(&u32::MAX)));
    assert!(config.state.is_absolute());
    let workspaces = &config.workspaces;
    assert!(!workspaces.roots.is_empty() && workspaces.roots.iter().all(|root| root.is_absolute()));
    assert!(workspaces.roots.iter().any(|root| workspaces.default.starts_with(root)));
    let capacity = &config.capacity;
    assert!((1..=256).contains(&capacity.running));
    assert!((1..=1_000_000).contains(&capacity.each_principal));
    assert!((1..=1_000_000).contains(&capacity.waiting));
    assert!(capacity.wait <= TEN_YEARS && config.keep.age <= TEN_YEARS && config.drain <= HOUR);
    assert!(config.stage_timeout.is_none_or(|timeout| !timeout.is_zero() && timeout <= TEN_YEARS));
    assert!(stockade_policy::is_profile_name(&config.profile));
}

/// The profile that `[limits]` makes says what it was made of: it is read, whatever the numbers are.
fn own_profile(config: &Config) {
    for own in &config.service.profiles {
        let text = ProfileText {
            place: Place::System,
            name: own.name.clone(),
            file: Bytes::from(own.origin.as_str()),
            text: own.text.clone().into(),
        };
        match resolve_text(text, &profile::Nothing) {
            Ok(_) => {}
            // The base may be anybody's; what we wrote below it is not what is wrong.
            Err(error) => {
                let line = error.refusal.origin.as_ref().map(|origin| origin.line);
                assert!(line.is_none_or(|line| line <= 2), "{error}\n{}", own.text);
                refusal(&error, &own.text);
            }
        }
    }
}
