//! The profile that overrides of the service make: the base that requests would have, with these limits.

use stockade_policy::ProfileError;
use stockade_proto::link::{Owner, ServiceProfile};

use super::resolve::{Resolve, invalid};
use super::surroundings::{self as variable, Surroundings};
use super::values::{Cores, Form as _, Size};
use super::written::{Network, Written};

const NAME: &str = "service";
const DEFAULT: &str = "default";
const MEBIBYTE: u64 = 1 << 20;

/// The profile of requests that name none, and its text where that is ours.
pub(super) fn make(
    resolve: &Resolve<'_>,
    written: &Written,
) -> Result<(String, Option<ServiceProfile>), ProfileError> {
    let around = resolve.around;
    let base = written.profile.as_ref().map_or(DEFAULT, |profile| profile.value.as_str());
    if !stockade_policy::is_profile_name(base) {
        let span = written.profile.as_ref().map(|profile| profile.span.clone()).unwrap_or_default();
        let message = format!("`{}` can't be a profile's name", base.escape_debug());
        return Err(resolve.problem(&span, message, "use letters, digits, - and _"));
    }
    let memory = memory(around)?.or(written.limits.memory);
    let cpu = cpu(around)?.or(written.limits.cpu);
    let network = network(around)?.or(written.limits.network);
    if memory.is_none() && cpu.is_none() && network.is_none() {
        return Ok((base.to_owned(), None));
    }
    if base == NAME {
        return Err(invalid(
            "the profile that [limits] makes is called `service`, and so is yours",
            "Call yours otherwise, or write the limits into it.",
        ));
    }
    let origin =
        resolve.file.map_or_else(|| "the service's variables".to_owned(), |file| file.name().to_string());
    let text = text(base, memory, cpu, network);
    let own = ServiceProfile { name: NAME.to_owned(), owner: Owner::System, origin, text };
    Ok((NAME.to_owned(), Some(own)))
}

fn text(base: &str, memory: Option<Size>, cpu: Option<Cores>, network: Option<Network>) -> String {
    let mut text = format!("extends = \"{base}\"\n");
    match network {
        Some(Network::Deny) => text.push_str("network = \"deny\"\n"),
        Some(Network::Registries) => {
            text.push_str("network = \"allowlist\"\n[egress]\nallow = [\"set:registries\"]\n");
        }
        None => {}
    }
    if memory.is_some() || cpu.is_some() {
        text.push_str("[limits]\n");
    }
    if let Some(Size(bytes)) = memory {
        text.push_str(&format!("memory = {bytes}\n"));
    }
    if let Some(cores) = cpu {
        text.push_str(&format!("cpu = {cores}\n"));
    }
    text
}

fn memory(around: &Surroundings) -> Result<Option<Size>, ProfileError> {
    let Some(number) = around.number(variable::MEMORY)? else { return Ok(None) };
    let size = number.checked_mul(MEBIBYTE).and_then(Size::from_number);
    size.map(Some).ok_or_else(|| around.wrong(variable::MEMORY))
}

fn cpu(around: &Surroundings) -> Result<Option<Cores>, ProfileError> {
    let Some(percent) = around.number(variable::CPU)? else { return Ok(None) };
    let thousandths = percent.checked_mul(10).filter(|thousandths| (1..=1_000_000_000).contains(thousandths));
    thousandths.map(|thousandths| Some(Cores(thousandths))).ok_or_else(|| around.wrong(variable::CPU))
}

fn network(around: &Surroundings) -> Result<Option<Network>, ProfileError> {
    match around.variables.get(variable::NETWORK).map(|value| value.as_encoded_bytes()) {
        None => Ok(None),
        Some(b"deny_all") => Ok(Some(Network::Deny)),
        Some(b"registry_allowlist") => Ok(Some(Network::Registries)),
        Some(_) => Err(around.wrong(variable::NETWORK)),
    }
}
