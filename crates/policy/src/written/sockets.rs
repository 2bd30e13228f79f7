//! `[[unix_sockets]]` and `unix-sockets-mode` as written.

use stockade_proto::{Decision, SocketOperation};
use toml::de::{DeTable, DeValue};

use super::{List, Reader, Value};
use crate::socket_paths;
use crate::text::{At, Place};

/// What is done about AF_UNIX, widest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SocketWatch {
    Off,
    /// Everything is allowed; what would have been denied is recorded.
    Audit,
    Enforce,
}

pub(crate) const WATCHES: [(&str, SocketWatch); 3] =
    [("enforce", SocketWatch::Enforce), ("audit", SocketWatch::Audit), ("off", SocketWatch::Off)];
pub(crate) const DECISIONS: [(&str, Decision); 3] =
    [("allow", Decision::Allow), ("deny", Decision::Deny), ("audit", Decision::Audit)];

/// One rule as a person wrote it.
#[derive(Debug, Clone)]
pub struct RuleText {
    pub name: At<String>,
    pub paths: List,
    /// In the order of `SocketOperation::ALL`, each once.
    pub operations: Vec<SocketOperation>,
    pub decision: At<Decision>,
    pub message: Option<At<String>>,
}

impl RuleText {
    /// Whether it lets something through to a socket that somebody else made.
    pub(crate) fn reaches(&self) -> bool {
        self.decision.value != Decision::Deny
            && (self.operations.contains(&SocketOperation::Connect)
                || self.operations.contains(&SocketOperation::Send))
    }

    /// The same words, wherever they stand.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        fn values(list: &List) -> impl Iterator<Item = &str> {
            list.value.iter().map(|item| item.value.as_str())
        }
        self.name.value == other.name.value
            && self.operations == other.operations
            && self.decision.value == other.decision.value
            && values(&self.paths).eq(values(&other.paths))
    }
}

const RULE_KEYS: [&str; 5] = ["name", "paths", "operations", "decision", "message"];

/// Rules are compared with each other when loaded, and with every call when running.
const MAX_RULES: usize = 256;
const MAX_PATHS: usize = 64;
const MAX_NAME: usize = 64;
const MAX_MESSAGE: usize = 512;

impl Reader<'_> {
    pub(super) fn socket_rules(&mut self, name: &str, value: &Value<'_>) -> Vec<RuleText> {
        let wanted = "a list of tables, each headed [[unix_sockets]]";
        let DeValue::Array(array) = value.get_ref() else {
            if matches!(value.get_ref(), DeValue::String(_)) {
                self.problem(
                    value.span(),
                    format!("`{name}` holds the rules; the mode has a key of its own"),
                    "write unix-sockets-mode = \"enforce\", \"audit\" or \"off\"",
                );
            } else {
                self.mistyped(name, value, wanted);
            }
            return Vec::new();
        };
        if array.len() > MAX_RULES {
            self.problem(
                value.span(),
                format!("there are more than {MAX_RULES} rules"),
                "join some with globs",
            );
            return Vec::new();
        }
        let mut rules: Vec<RuleText> = Vec::new();
        for item in array.iter() {
            let DeValue::Table(table) = item.get_ref() else {
                self.mistyped(name, item, wanted);
                continue;
            };
            let Some(rule) = self.socket_rule(item, table) else { continue };
            if let Some(known) = rules.iter().find(|known| known.name.value == rule.name.value) {
                let line = self.text.origin(known.name.spot.start).line;
                let message =
                    format!("a rule is named `{}` already, at line {line}", rule.name.value.escape_debug());
                self.problem(
                    rule.name.spot.start..rule.name.spot.end,
                    message,
                    "give each rule a name of its own",
                );
            }
            rules.push(rule);
        }
        rules
    }

    fn socket_rule(&mut self, item: &Value<'_>, table: &DeTable<'_>) -> Option<RuleText> {
        let before = self.problems.len();
        let (mut name, mut paths, mut decision, mut message) = (None, None, None, None);
        let mut operations = Some(SocketOperation::ALL.to_vec());
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "name" => name = self.short_text("unix_sockets.name", value, MAX_NAME),
                "paths" => paths = self.socket_paths(value),
                "operations" => operations = self.operations(value),
                "decision" => decision = self.word("unix_sockets.decision", value, &DECISIONS),
                "message" => message = self.short_text("unix_sockets.message", value, MAX_MESSAGE),
                other => self.unknown(key.span(), other, &RULE_KEYS),
            }
        }
        // A key that is there but wrong was told already.
        if self.problems.len() == before {
            let missing =
                [("name", name.is_none()), ("paths", paths.is_none()), ("decision", decision.is_none())];
            for (key, _) in missing.into_iter().filter(|(_, missing)| *missing) {
                let remedy = match key {
                    "name" => "write name = \"…\": events and denials tell it",
                    "paths" => "write paths = [\"/run/x.sock\"]",
                    _ => "write decision = \"allow\", \"deny\" or \"audit\"",
                };
                self.problem(item.span(), format!("this rule has no `{key}`"), remedy);
            }
        }
        Some(RuleText { name: name?, paths: paths?, operations: operations?, decision: decision?, message })
    }

    fn short_text(&mut self, name: &str, value: &Value<'_>, longest: usize) -> Option<At<String>> {
        let text = self.string(name, value)?;
        let sound = !text.value.trim().is_empty()
            && text.value.len() <= longest
            && !text.value.contains(char::is_control);
        if !sound {
            let message =
                format!("`{name}` is empty, longer than {longest} bytes or holds a control character");
            self.problem(value.span(), message, "write a short text of one line");
            return None;
        }
        Some(text)
    }

    fn socket_paths(&mut self, value: &Value<'_>) -> Option<List> {
        let fault = match self.text.place {
            Place::Workspace => socket_paths::workspace_fault,
            Place::User | Place::System | Place::BuiltIn => socket_paths::fault,
        };
        let list = self.checked("unix_sockets.paths", value, fault)?;
        if list.value.is_empty() || list.value.len() > MAX_PATHS {
            let message = format!("`unix_sockets.paths` holds no path, or more than {MAX_PATHS}");
            self.problem(value.span(), message, "name what the rule is for, or remove the rule");
        }
        Some(list)
    }

    fn operations(&mut self, value: &Value<'_>) -> Option<Vec<SocketOperation>> {
        let words = SocketOperation::ALL.map(|operation| (operation.name(), operation));
        let DeValue::Array(array) = value.get_ref() else {
            self.mistyped("unix_sockets.operations", value, "a list of strings");
            return None;
        };
        let named = array
            .iter()
            .filter_map(|item| self.word("unix_sockets.operations", item, &words))
            .map(|at| at.value)
            .collect::<Vec<_>>();
        if array.is_empty() {
            self.problem(
                value.span(),
                "`unix_sockets.operations` is empty, so the rule is for nothing",
                "name connect, bind, listen or send, or leave the key out for all four",
            );
        }
        Some(SocketOperation::ALL.into_iter().filter(|operation| named.contains(operation)).collect())
    }
}
