//! The profiles that doctor runs its probe under: the built-in ones, and variants of `default` with some
//! layers off, which exist in memory only. Files of the user and of the system are not asked: what they
//! change is not the host's doing. Next: `trial`.

use std::borrow::Cow;

use stockade_policy::{Place, ProfileText, Sources};
use stockade_proto::{Bytes, Layer, Refusal};

const VARIANT: &str = "doctor";

/// What a probe that is to hit a limit runs under; `inside` uses twice as much.
pub(super) const MEMORY: &str = "memory = \"64M\"";
pub(super) const PROCESSES: &str = "processes = 16";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variant {
    profile: &'static str,
    text: Option<String>,
}

impl Variant {
    /// The profile that doctor answers for.
    pub(super) const fn default_profile() -> Self {
        Self { profile: "default", text: None }
    }

    /// No walls: what the probe's attempts come to without them.
    pub(super) const fn host() -> Self {
        Self { profile: "host", text: None }
    }

    /// `default` with these layers required, and no others.
    pub(super) fn only(layers: &[Layer]) -> Self {
        Self::limited(layers, "")
    }

    /// As `only`, with a line for `[limits]`.
    pub(super) fn limited(layers: &[Layer], limits: &str) -> Self {
        let has = |layer: Layer| layers.contains(&layer);
        let mut text = String::from("extends = \"default\"\n");
        // What no layer would enforce must not be asked for.
        if !has(Layer::Filesystem) && !has(Layer::Landlock) {
            text.push_str("fs = \"inherit\"\n");
        }
        // Without a new root, root's sandboxes could not even open a toolchain below /root.
        if !has(Layer::Filesystem) {
            text.push_str("toolchains = false\n");
        }
        if !has(Layer::Network) {
            text.push_str("network = \"inherit\"\n");
        }
        text.push_str("[layers]\n");
        for layer in Layer::ALL {
            text.push_str(&format!("{layer} = \"{}\"\n", if has(layer) { "must" } else { "off" }));
        }
        text.push_str(&format!("[limits]\n{limits}\n"));
        Self { profile: VARIANT, text: Some(text) }
    }

    pub(super) const fn profile(&self) -> &'static str {
        self.profile
    }
}

impl Sources for Variant {
    fn find(&self, place: Place, name: &str) -> Result<Option<ProfileText>, Refusal> {
        let text = self.text.as_ref().filter(|_| place == Place::User && name == self.profile);
        Ok(text.map(|text| ProfileText {
            place,
            name: name.to_owned(),
            file: Bytes::from("doctor's own profile"),
            text: Cow::Owned(text.clone()),
        }))
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_proto::Requirement;

    fn resolved(variant: &Variant) -> stockade_policy::Resolved {
        stockade_policy::resolve(variant.profile(), variant).expect("doctor's profiles are valid")
    }

    #[test]
    fn every_set_of_layers_that_can_stand_is_a_valid_profile() {
        for bits in 0_u32..1 << Layer::ALL.len() {
            let on: Vec<Layer> = (0..)
                .zip(Layer::ALL)
                .filter(|(at, _)| bits & (1 << at) != 0)
                .map(|(_, layer)| layer)
                .collect();
            let stands = |layer: Layer| !on.contains(&layer) || on.contains(&Layer::Process);
            let unfiltered = on.contains(&Layer::Sockets) && !on.contains(&Layer::Seccomp);
            if !stands(Layer::Filesystem) || !stands(Layer::Network) || unfiltered {
                continue;
            }
            let profile = resolved(&Variant::only(&on));
            for layer in Layer::ALL {
                let wanted = if on.contains(&layer) { Requirement::Must } else { Requirement::Off };
                assert_eq!(profile.layer(layer).value, wanted, "{layer} of {on:?}");
            }
        }
    }

    #[test]
    fn the_built_in_default_is_examined_and_every_layer_of_it_is_required() {
        let profile = resolved(&Variant::default_profile());
        assert!(Layer::ALL.into_iter().all(|layer| profile.layer(layer).value == Requirement::Must));
        assert!(profile.texts.iter().all(|text| text.place == Place::BuiltIn));
        resolved(&Variant::host());
    }

    #[test]
    fn limits_are_lowered() {
        for limit in [MEMORY, PROCESSES] {
            let all = resolved(&Variant::limited(&Layer::ALL, limit));
            let plain = resolved(&Variant::only(&Layer::ALL));
            let values = |profile: &stockade_policy::Resolved| profile.limits.each_ref().map(|at| at.value);
            assert_ne!(values(&all), values(&plain));
        }
    }
}
