//! Decisions of the live walls, from the plan alone: AF_UNIX here, hosts in `egress`. Pure and total: every
//! question has an answer, and where nothing matches the answer is no. Next: the supervisor asks.

mod egress;
mod ranges;

use stockade_proto::{Decision, SocketMode, SocketOperation, SocketPlan, SocketRule};

pub use egress::{EgressRules, EgressVerdict, NameGrant};
pub use ranges::{ClosedRange, closed_range};

use crate::socket_paths::Matcher;

/// A pattern of the plan that is no glob. The planner checked them, so this plan is not the planner's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the socket rule `{rule}` holds a glob that can't be read")]
pub struct PatternError {
    pub rule: String,
    #[source]
    pub source: globset::Error,
}

/// An address as the kernel would take it: a path once it is resolved in the target's root and working
/// directory, or an abstract name without its leading NUL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketAddress<'a> {
    Path(&'a [u8]),
    Abstract(&'a [u8]),
}

/// Who bound the socket that an address names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// A process of this execution did, and the supervisor saw it.
    Here,
    Elsewhere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct SocketVerdict<'r> {
    /// `Audit` where the mode is audit and the rule, or the want of one, would have denied.
    pub decision: Decision,
    /// None is the default denial.
    pub rule: Option<&'r SocketRule>,
}

#[derive(Debug, Clone)]
pub struct SocketRules {
    mode: SocketMode,
    rules: Vec<(SocketRule, Vec<Matcher>)>,
}

impl SocketRules {
    pub fn compile(plan: &SocketPlan) -> Result<Self, PatternError> {
        let compiled = |rule: &SocketRule| {
            let matchers = rule.patterns.iter().map(Matcher::new).collect::<Result<Vec<_>, _>>();
            matchers
                .map(|matchers| (rule.clone(), matchers))
                .map_err(|source| PatternError { rule: rule.name.clone(), source })
        };
        Ok(Self { mode: plan.mode, rules: plan.rules.iter().map(compiled).collect::<Result<_, _>>()? })
    }

    /// The first rule that matches decides. `same_object` says whether a literal path of a denial leads to
    /// the very object that is asked for: a hard link or a bind mount must not be a way around it. An
    /// allowance never follows an alias: the path that was resolved is what a person allowed.
    pub fn decide(
        &self,
        operation: SocketOperation,
        address: SocketAddress<'_>,
        bound: Bound,
        same_object: &dyn Fn(&[u8]) -> bool,
    ) -> SocketVerdict<'_> {
        let found = self.rules.iter().find(|(rule, matchers)| {
            rule.operations.contains(&operation)
                && matchers.iter().any(|matcher| {
                    matches(matcher, address, bound)
                        || (rule.decision == Decision::Deny && is_alias(matcher, address, same_object))
                })
        });
        let rule = found.map(|(rule, _)| rule);
        let decided = rule.map_or(Decision::Deny, |rule| rule.decision);
        let decision = match (self.mode, decided) {
            (SocketMode::Audit, Decision::Deny) => Decision::Audit,
            (SocketMode::Enforce | SocketMode::Audit, decided) => decided,
        };
        SocketVerdict { decision, rule }
    }
}

fn matches(matcher: &Matcher, address: SocketAddress<'_>, bound: Bound) -> bool {
    match (matcher, address) {
        (Matcher::Own, _) => bound == Bound::Here,
        (Matcher::Path(shape), SocketAddress::Path(bytes))
        | (Matcher::Abstract(shape), SocketAddress::Abstract(bytes)) => shape.matches(bytes),
        (Matcher::Path(_), SocketAddress::Abstract(_)) | (Matcher::Abstract(_), SocketAddress::Path(_)) => {
            false
        }
    }
}

fn is_alias(matcher: &Matcher, address: SocketAddress<'_>, same_object: &dyn Fn(&[u8]) -> bool) -> bool {
    match address {
        SocketAddress::Path(_) => matcher.literal_path().is_some_and(same_object),
        SocketAddress::Abstract(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_proto::{Bytes, SocketPattern};

    fn rule(name: &str, patterns: &[&str], operations: &[SocketOperation], decision: Decision) -> SocketRule {
        let pattern = |text: &&str| match text.strip_prefix('@') {
            Some(name) => SocketPattern::Abstract(Bytes::from(name)),
            None if *text == "own" => SocketPattern::Own,
            None => SocketPattern::Path(Bytes::from(*text)),
        };
        SocketRule {
            name: name.to_owned(),
            patterns: patterns.iter().map(pattern).collect(),
            operations: operations.to_vec(),
            decision,
            message: None,
            origin: None,
        }
    }

    fn rules(mode: SocketMode) -> SocketRules {
        use SocketOperation::{Bind, Connect, Listen};
        let rules = vec![
            rule("shut", &["/run/docker.sock", "@x11*"], &SocketOperation::ALL, Decision::Deny),
            rule("own", &["own"], &SocketOperation::ALL, Decision::Allow),
            rule("watched", &["/run/db/*"], &[Connect], Decision::Audit),
            rule("db", &["/run/**"], &[Connect], Decision::Allow),
            rule("private", &["/tmp/**", "@*"], &[Bind, Listen], Decision::Allow),
        ];
        SocketRules::compile(&SocketPlan { mode, rules }).expect("globs")
    }

    #[test]
    fn the_first_match_decides() {
        use Decision::{Allow, Audit, Deny};
        use SocketAddress::{Abstract, Path};
        use SocketOperation::{Bind, Connect, Listen, Send};
        let rules = rules(SocketMode::Enforce);
        let rows: [(SocketOperation, SocketAddress<'_>, Bound, Decision, Option<&str>); 14] = [
            (Connect, Path(b"/run/docker.sock"), Bound::Elsewhere, Deny, Some("shut")),
            (Connect, Path(b"/run/docker.sock"), Bound::Here, Deny, Some("shut")),
            (Connect, Path(b"/run/db/1"), Bound::Elsewhere, Audit, Some("watched")),
            (Connect, Path(b"/run/db/1/2"), Bound::Elsewhere, Allow, Some("db")),
            (Send, Path(b"/run/db/1"), Bound::Elsewhere, Deny, None),
            (Connect, Path(b"/tmp/x"), Bound::Elsewhere, Deny, None),
            (Connect, Path(b"/tmp/x"), Bound::Here, Allow, Some("own")),
            (Bind, Path(b"/tmp/x"), Bound::Elsewhere, Allow, Some("private")),
            (Listen, Path(b"/tmp/a/x"), Bound::Elsewhere, Allow, Some("private")),
            (Bind, Path(b"@x"), Bound::Elsewhere, Deny, None),
            (Bind, Abstract(b"x\0y"), Bound::Elsewhere, Allow, Some("private")),
            (Connect, Abstract(b"x\0y"), Bound::Elsewhere, Deny, None),
            (Connect, Abstract(b"x11-0"), Bound::Here, Deny, Some("shut")),
            (Bind, Abstract(b""), Bound::Elsewhere, Allow, Some("private")),
        ];
        for (operation, address, bound, decision, name) in rows {
            let verdict = rules.decide(operation, address, bound, &|_| false);
            let told = (verdict.decision, verdict.rule.map(|rule| rule.name.as_str()));
            assert_eq!(told, (decision, name), "{operation} {address:?} {bound:?}");
        }
    }

    #[test]
    fn only_denials_follow_an_alias() {
        let rules = rules(SocketMode::Enforce);
        let is_docker = |path: &[u8]| path == b"/run/docker.sock";
        let verdict = rules.decide(
            SocketOperation::Connect,
            SocketAddress::Path(b"/run/alias"),
            Bound::Here,
            &is_docker,
        );
        assert_eq!(verdict.rule.map(|rule| rule.name.as_str()), Some("shut"));
        // An alias of something allowed is not allowed by it.
        let allowing = SocketRules::compile(&SocketPlan {
            mode: SocketMode::Enforce,
            rules: vec![rule("db", &["/run/db"], &SocketOperation::ALL, Decision::Allow)],
        })
        .expect("globs");
        let address = SocketAddress::Path(b"/tmp/alias");
        let verdict = allowing.decide(SocketOperation::Connect, address, Bound::Elsewhere, &|_| true);
        assert_eq!((verdict.decision, verdict.rule), (Decision::Deny, None));
        let address = SocketAddress::Abstract(b"alias");
        let verdict = rules.decide(SocketOperation::Bind, address, Bound::Elsewhere, &|_| true);
        assert_eq!(verdict.decision, Decision::Allow, "an abstract name has no object on disk");
    }

    #[test]
    fn audit_denies_nothing_and_says_what_it_would_have() {
        let rules = rules(SocketMode::Audit);
        let ask = |path: &'static [u8]| {
            rules.decide(SocketOperation::Connect, SocketAddress::Path(path), Bound::Elsewhere, &|_| false)
        };
        assert_eq!(ask(b"/nowhere"), SocketVerdict { decision: Decision::Audit, rule: None });
        let verdict = ask(b"/run/docker.sock");
        assert_eq!(verdict.decision, Decision::Audit);
        assert_eq!(verdict.rule.map(|rule| rule.decision), Some(Decision::Deny));
        assert_eq!(ask(b"/run/x").decision, Decision::Allow);
    }

    #[test]
    fn a_forged_plan_is_an_error() {
        let rules = vec![rule("bad", &["/a["], &SocketOperation::ALL, Decision::Allow)];
        assert!(SocketRules::compile(&SocketPlan { mode: SocketMode::Enforce, rules }).is_err());
    }
}
