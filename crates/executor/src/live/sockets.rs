//! The policy's socket rules, as the supervisor asks them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use rustix::io::Errno;
use stockade_policy::{Bound, PatternError, SocketAddress, SocketRules, SocketVerdict};
use stockade_proto::{Bytes, Decision, SocketOperation, SocketPlan};
use stockade_sockets::{Address, Asked, Decide, Verdict};

/// Whether the command's abstract names are confined by Landlock, which the supervisor is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Domain,
    None,
}

/// What a path of the host leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    Is {
        dev: u64,
        ino: u64,
    },
    Absent,
    /// Something we may not look at.
    Hidden,
}

#[derive(Debug)]
pub(super) struct Rules {
    rules: SocketRules,
    scope: Scope,
    /// The literal paths of denials when the execution began. The supervisor's threads may see less: they
    /// are the sandbox's user.
    denied: BTreeMap<Vec<u8>, Object>,
}

fn look(path: &[u8]) -> Object {
    let path = Bytes::from(path);
    let path: &Path = path.as_path();
    match rustix::fs::stat(path) {
        Ok(stat) => Object::Is { dev: stat.st_dev, ino: stat.st_ino },
        Err(Errno::NOENT | Errno::NOTDIR) => Object::Absent,
        Err(_) => Object::Hidden,
    }
}

/// Every path that the rules would compare an object with.
fn denied_paths(rules: &SocketRules) -> Vec<Vec<u8>> {
    let paths = RefCell::new(Vec::new());
    let note = |path: &[u8]| {
        paths.borrow_mut().push(path.to_vec());
        false
    };
    for operation in
        [SocketOperation::Connect, SocketOperation::Bind, SocketOperation::Listen, SocketOperation::Send]
    {
        // Every pattern begins with a slash, so that none matches and all are asked for.
        match rules.decide(operation, SocketAddress::Path(b""), Bound::Elsewhere, &note).decision {
            Decision::Allow | Decision::Deny | Decision::Audit => {}
        }
    }
    paths.into_inner()
}

impl Rules {
    /// Called as the executor, before any thread of the supervisor is there.
    pub(super) fn new(plan: &SocketPlan, scope: Scope) -> Result<Self, PatternError> {
        let rules = SocketRules::compile(plan)?;
        let denied = denied_paths(&rules).into_iter().map(|path| (look(&path), path));
        let denied = denied.map(|(object, path)| (path, object)).collect();
        Ok(Self { rules, scope, denied })
    }

    /// Whether a denied path names this very object: a hard link or a mount gives it other names. What nobody
    /// may look at could be any socket, but not one that the execution made, or is about to make, itself.
    fn is_at(&self, path: &[u8], asked: &Asked<'_>, (dev, ino): (u64, u64)) -> bool {
        let (this, then) = (Object::Is { dev, ino }, self.denied.get(path).copied());
        let reaches = matches!(asked.operation, SocketOperation::Connect | SocketOperation::Send);
        match (look(path), then) {
            (now, _) if now == this => true,
            (_, Some(then)) if then == this => true,
            (Object::Hidden, None | Some(Object::Hidden)) => reaches && !asked.own,
            (Object::Hidden | Object::Is { .. } | Object::Absent, _) => false,
        }
    }

    /// Audit lets through what the rules alone would deny. Landlock would deny a name of another's too, and does
    /// not hold for the supervisor.
    fn is_out_of_scope(&self, asked: &Asked<'_>, verdict: &SocketVerdict<'_>) -> bool {
        let written = verdict.rule.is_some_and(|rule| rule.decision != Decision::Deny);
        let reaches = matches!(asked.operation, SocketOperation::Connect | SocketOperation::Send);
        verdict.decision == Decision::Audit
            && self.scope == Scope::Domain
            && reaches
            && !written
            && !asked.own
            && matches!(asked.address, Address::Abstract(_))
    }
}

impl Decide for Rules {
    fn decide(&self, asked: &Asked<'_>) -> Verdict {
        let bound = if asked.own { Bound::Here } else { Bound::Elsewhere };
        let verdict = match asked.address {
            Address::Path { path, dev, ino } => {
                let same = |literal: &[u8]| self.is_at(literal, asked, (dev, ino));
                self.rules.decide(asked.operation, SocketAddress::Path(path), bound, &same)
            }
            Address::Abstract(name) => {
                self.rules.decide(asked.operation, SocketAddress::Abstract(name), bound, &|_| false)
            }
        };
        let decision = if self.is_out_of_scope(asked, &verdict) { Decision::Deny } else { verdict.decision };
        Verdict { decision, rule: verdict.rule.map(|rule| rule.name.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;
    use stockade_proto::{SocketMode, SocketPattern, SocketRule};

    fn rule(name: &str, pattern: SocketPattern, decision: Decision) -> SocketRule {
        SocketRule {
            name: name.to_owned(),
            patterns: vec![pattern],
            operations: vec![SocketOperation::Connect, SocketOperation::Send],
            decision,
            message: None,
            origin: None,
        }
    }

    fn abstract_name(name: &str) -> SocketPattern {
        SocketPattern::Abstract(Bytes::from(name))
    }

    #[test]
    fn audit_does_not_pass_landlocks_scope() {
        let rules = vec![
            rule("told", abstract_name("told"), Decision::Audit),
            rule("yes", abstract_name("yes"), Decision::Allow),
            rule("no", abstract_name("no"), Decision::Deny),
        ];
        let plan = SocketPlan { mode: SocketMode::Audit, rules };
        let decide = |scope, name: &[u8], own| {
            let rules = Rules::new(&plan, scope).expect("compiled");
            let operation = SocketOperation::Connect;
            rules.decide(&Asked { operation, address: Address::Abstract(name), own }).decision
        };
        for (name, own, expected) in [
            (&b"other"[..], false, Decision::Deny),
            (b"other", true, Decision::Audit),
            (b"no", false, Decision::Deny),
            (b"told", false, Decision::Audit),
            (b"yes", false, Decision::Allow),
        ] {
            assert_eq!(decide(Scope::Domain, name, own), expected, "{}", Bytes::from(name));
        }
        assert_eq!(decide(Scope::None, b"other", false), Decision::Audit);
    }

    #[test]
    fn a_denied_object_is_known_as_it_was_and_as_it_is() {
        let place = tempfile::tempdir().expect("made");
        let denied = place.path().join("denied");
        std::fs::write(&denied, "").expect("written");
        let first = std::fs::metadata(&denied).expect("there");
        let literal = SocketPattern::Path(Bytes::from(denied.clone()));
        let wide = SocketPattern::Path(Bytes::from("/**"));
        let rules = vec![rule("no", literal, Decision::Deny), rule("all", wide, Decision::Allow)];
        let rules =
            Rules::new(&SocketPlan { mode: SocketMode::Enforce, rules }, Scope::None).expect("compiled");
        std::fs::rename(&denied, place.path().join("first")).expect("renamed");
        std::fs::write(&denied, "").expect("written");
        let second = std::fs::metadata(&denied).expect("there");
        let decide = |(dev, ino), own| {
            let address = Address::Path { path: b"/elsewhere", dev, ino };
            rules.decide(&Asked { operation: SocketOperation::Connect, address, own }).decision
        };
        assert_eq!(decide((first.dev(), first.ino()), false), Decision::Deny);
        assert_eq!(decide((second.dev(), second.ino()), false), Decision::Deny);
        assert_eq!(decide((1, 2), false), Decision::Allow);
    }

    #[test]
    fn what_can_not_be_looked_at_is_denied() {
        // A name that is too long is an error for everybody, root too.
        let hidden = format!("/{}", "x".repeat(300));
        assert_eq!(look(hidden.as_bytes()), Object::Hidden);
        let literal = SocketPattern::Path(Bytes::from(hidden));
        let wide = SocketPattern::Path(Bytes::from("/**"));
        let rules = vec![rule("no", literal, Decision::Deny), rule("all", wide, Decision::Allow)];
        let rules =
            Rules::new(&SocketPlan { mode: SocketMode::Enforce, rules }, Scope::None).expect("compiled");
        let decide = |own| {
            let address = Address::Path { path: b"/elsewhere", dev: 1, ino: 2 };
            rules.decide(&Asked { operation: SocketOperation::Connect, address, own }).decision
        };
        assert_eq!(decide(false), Decision::Deny);
        assert_eq!(decide(true), Decision::Allow, "a file that the execution made is none of them");
    }

    #[test]
    fn what_the_executor_saw_stands() {
        if rustix::process::geteuid().is_root() {
            // Root looks everywhere; the case below is an ordinary user's.
            return;
        }
        let place = tempfile::tempdir().expect("made");
        let path = place.path().join("closed/s");
        std::fs::create_dir(place.path().join("closed")).expect("made");
        let mode = |bits| std::fs::Permissions::from_mode(bits);
        let literal = SocketPattern::Path(Bytes::from(path));
        let rules = vec![
            rule("no", literal, Decision::Deny),
            rule("all", SocketPattern::Path(Bytes::from("/**")), Decision::Allow),
        ];
        let rules =
            Rules::new(&SocketPlan { mode: SocketMode::Enforce, rules }, Scope::None).expect("compiled");
        std::fs::set_permissions(place.path().join("closed"), mode(0o000)).expect("set");
        let address = Address::Path { path: b"/elsewhere", dev: 1, ino: 2 };
        let asked = Asked { operation: SocketOperation::Connect, address, own: false };
        assert_eq!(rules.decide(&asked).decision, Decision::Allow, "it was not there when this began");
        std::fs::set_permissions(place.path().join("closed"), mode(0o700)).expect("set");
    }
}
