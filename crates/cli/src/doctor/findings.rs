//! What doctor found, as values, and how a layer is judged by them. Pure. Next: `show`.

use serde::Serialize;
use stockade_proto::Layer;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// In force, and nothing that was tried got through.
    Enforced,
    /// In force, but something got through, or it could not be tried.
    Partial,
    Missing,
}

impl State {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Partial => "partial",
            Self::Missing => "missing",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Works,
    Refused,
    NotRun,
}

impl Verdict {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Refused => "refused",
            Self::NotRun => "not run",
        }
    }
}

/// One attempt, without the wall and with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Attempt {
    pub(super) name: String,
    pub(super) without: Verdict,
    pub(super) with: Verdict,
    /// It works without the wall and is refused with it. Where it does not work without either, it is not
    /// provable here.
    pub(super) proven: bool,
    /// The kernel's answer with the wall, or what was got.
    pub(super) detail: String,
}

impl Attempt {
    pub(super) fn new(
        name: impl Into<String>,
        without: Verdict,
        with: Verdict,
        detail: impl Into<String>,
    ) -> Self {
        let proven = without == Verdict::Works && with == Verdict::Refused;
        Self { name: name.into(), without, with, proven, detail: detail.into() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) layer: Layer,
    pub(super) state: State,
    /// How: `Landlock ABI 7, 21 rules`.
    pub(super) detail: String,
    /// Why it is not enforced.
    pub(super) why: Option<String>,
    pub(super) remedy: Option<String>,
    pub(super) attempts: Vec<Attempt>,
}

impl Finding {
    pub(super) fn missing(layer: Layer, (why, remedy): (String, String)) -> Self {
        let remedy = Some(remedy).filter(|remedy| !remedy.is_empty());
        Self {
            layer,
            state: State::Missing,
            detail: String::new(),
            why: Some(why),
            remedy,
            attempts: Vec::new(),
        }
    }

    /// A layer that init put up and verified, judged by what was tried against it.
    pub(super) fn standing(layer: Layer, detail: String, attempts: Vec<Attempt>) -> Self {
        let names = |verdict: Verdict| {
            let list: Vec<&str> = attempts
                .iter()
                .filter(|attempt| attempt.with == verdict)
                .map(|attempt| attempt.name.as_str())
                .collect();
            (!list.is_empty()).then(|| list.join(", "))
        };
        let (state, why, remedy) = match (names(Verdict::Works), names(Verdict::NotRun)) {
            (Some(through), _) => (
                State::Partial,
                Some(format!("got through: {through}")),
                Some("This is a hole. Report it with the output of: stockade doctor --json".to_owned()),
            ),
            (None, Some(untried)) => (
                State::Partial,
                Some(format!("could not be tried: {untried}")),
                Some("stockade doctor --text --verbose".to_owned()),
            ),
            (None, None) => (State::Enforced, None, None),
        };
        Self { layer, state, detail, why, remedy, attempts }
    }

    pub(super) fn proven(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.proven).count()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    pub(super) version: &'static str,
    pub(super) kernel: String,
    pub(super) uid: u32,
    /// Where stockade-init is.
    pub(super) init: Option<String>,
    /// The profile `default` can be enforced in full.
    pub(super) ok: bool,
    pub(super) layers: Vec<Finding>,
    pub(super) notes: Vec<String>,
}

impl Report {
    pub(super) fn new(kernel: String, uid: u32, init: Option<String>, layers: Vec<Finding>) -> Self {
        let all = Layer::ALL.into_iter().all(|layer| {
            layers.iter().any(|finding| finding.layer == layer && finding.state == State::Enforced)
        });
        Self { version: env!("CARGO_PKG_VERSION"), kernel, uid, init, ok: all, layers, notes: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(without: Verdict, with: Verdict) -> Attempt {
        Attempt::new("try", without, with, "")
    }

    #[test]
    fn only_works_without_and_refused_with_is_proof() {
        use Verdict::{NotRun, Refused, Works};
        for without in [Works, Refused, NotRun] {
            for with in [Works, Refused, NotRun] {
                let expected = (without, with) == (Works, Refused);
                assert_eq!(attempt(without, with).proven, expected);
                let finding = Finding::standing(Layer::Seccomp, String::new(), vec![attempt(without, with)]);
                assert_eq!(finding.state == State::Enforced, with == Refused, "{without:?} {with:?}");
            }
        }
    }

    #[test]
    fn ok_needs_every_layer() {
        let enforced = |layer| Finding::standing(layer, String::new(), Vec::new());
        let all: Vec<Finding> = Layer::ALL.map(enforced).to_vec();
        assert!(Report::new(String::new(), 0, None, all.clone()).ok);
        assert!(!Report::new(String::new(), 0, None, all[1..].to_vec()).ok);
        let mut one_missing = all;
        one_missing[6] = Finding::missing(Layer::Limits, ("why".to_owned(), String::new()));
        assert_eq!(one_missing[6].remedy, None);
        assert!(!Report::new(String::new(), 0, None, one_missing).ok);
    }
}
