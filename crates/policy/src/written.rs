//! A profile as written: one text, nothing inherited yet. Unknown keys, wrong types and bad values are
//! refused at their line and column. It does not know other profiles or the host. Next: `resolve`.

mod egress;
mod sockets;

use std::ops::Range;

use stockade_proto::{Code, Layer, Mode, Refusal, Requirement};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::environment;
use crate::globs;
use crate::problem::{ProfileError, nearest};
use crate::profile::{Reach, View};
use crate::text::{At, ProfileText, Spot};
use crate::values::{self, LIMIT_COUNT, LIMITS, Unit};

pub(crate) use egress::Egress;
pub(crate) use sockets::{DECISIONS, WATCHES};
pub use sockets::{RuleText, SocketWatch};

pub type List = At<Vec<At<String>>>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    pub(crate) description: Option<At<String>>,
    pub(crate) extends: Option<At<String>>,
    pub(crate) mode: Option<At<Mode>>,
    pub(crate) fs: Option<At<View>>,
    pub(crate) readable: Option<List>,
    pub(crate) writable: Option<List>,
    pub(crate) deny: Option<List>,
    pub(crate) deny_write: Option<List>,
    pub(crate) toolchains: Option<At<bool>>,
    pub(crate) network: Option<At<Reach>>,
    pub(crate) egress: Egress,
    pub(crate) watch: Option<At<SocketWatch>>,
    pub(crate) socket_rules: Vec<RuleText>,
    pub(crate) env_allow: Option<List>,
    pub(crate) env_set: Vec<(At<String>, At<String>)>,
    pub(crate) shell: Shell,
    pub(crate) limits: [Option<At<Option<u64>>>; LIMIT_COUNT],
    pub(crate) layers: [Option<At<Requirement>>; Layer::ALL.len()],
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Shell {
    pub(crate) program: Option<At<String>>,
    pub(crate) args: Option<List>,
    pub(crate) allowed_programs: Option<List>,
    pub(crate) allowed_args: Option<List>,
}

pub(crate) const TOP_KEYS: [&str; 17] = [
    "description",
    "extends",
    "mode",
    "fs",
    "readable",
    "writable",
    "deny",
    "deny-write",
    "toolchains",
    "network",
    "egress",
    "unix-sockets-mode",
    "unix_sockets",
    "env",
    "shell",
    "limits",
    "layers",
];
const ENV_KEYS: [&str; 2] = ["allow", "set"];
const SHELL_KEYS: [&str; 4] = ["program", "args", "allowed-programs", "allowed-args"];

pub(crate) const MODES: [(&str, Mode); 2] = [("host", Mode::Host), ("sandbox", Mode::Sandbox)];
pub(crate) const VIEWS: [(&str, View); 3] = [
    ("inherit", View::Inherit),
    ("workspace-readonly", View::WorkspaceReadonly),
    ("workspace-rw", View::WorkspaceRw),
];
pub(crate) const REACHES: [(&str, Reach); 3] =
    [("inherit", Reach::Inherit), ("deny", Reach::Deny), ("allowlist", Reach::Allowlist)];
pub(crate) const REQUIREMENTS: [(&str, Requirement); 3] =
    [("must", Requirement::Must), ("prefer", Requirement::Prefer), ("off", Requirement::Off)];

/// The word a table has for a value.
pub(crate) fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, of)| of == value).map_or("?", |(word, _)| word)
}

type Value<'t> = Spanned<DeValue<'t>>;

/// The first problem of the text wins, by position.
pub(crate) fn parse(text: &ProfileText, index: usize) -> Result<Written, ProfileError> {
    let mut reader = Reader { text, index, problems: Vec::new() };
    let table = DeTable::parse(&text.text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let remedy = "correct the TOML at this place";
        ProfileError::new(Code::ProfileInvalid, text, reader.spot(span), error.message(), remedy)
    })?;
    let written = reader.top(table.get_ref());
    let problems = std::mem::take(&mut reader.problems);
    match problems.into_iter().min_by_key(|(span, _)| span.start) {
        Some((span, Refusal { code, message, remedy, .. })) => {
            Err(ProfileError::new(code, text, reader.spot(span), message, remedy))
        }
        None => Ok(written),
    }
}

struct Reader<'t> {
    text: &'t ProfileText,
    index: usize,
    /// Without pictures: each would hold the whole text, and a text may have a problem in every line.
    problems: Vec<(Range<usize>, Refusal)>,
}

impl Reader<'_> {
    fn spot(&self, span: Range<usize>) -> Spot {
        Spot { text: self.index, start: span.start, end: span.end }
    }

    fn problem(&mut self, span: Range<usize>, message: impl Into<String>, remedy: impl Into<String>) {
        self.problems.push((span, Refusal::new(Code::ProfileInvalid, message, remedy)));
    }

    fn top(&mut self, table: &DeTable<'_>) -> Written {
        let mut written = Written::default();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match name {
                "description" => written.description = self.string(name, value),
                "extends" => written.extends = self.string(name, value),
                "mode" => written.mode = self.word(name, value, &MODES),
                "fs" => written.fs = self.word(name, value, &VIEWS),
                "readable" => written.readable = self.paths(name, value),
                "writable" => written.writable = self.paths(name, value),
                "deny" => written.deny = self.globs(name, value),
                "deny-write" => written.deny_write = self.globs(name, value),
                "toolchains" => written.toolchains = self.boolean(name, value),
                "network" => written.network = self.word(name, value, &REACHES),
                "egress" => self.egress(name, value, &mut written.egress),
                "unix-sockets-mode" => written.watch = self.word(name, value, &WATCHES),
                "unix_sockets" => written.socket_rules = self.socket_rules(name, value),
                "env" => self.env(name, value, &mut written),
                "shell" => self.shell(name, value, &mut written.shell),
                "limits" => self.limits(name, value, &mut written),
                "layers" => self.layers(name, value, &mut written),
                _ => self.unknown(key.span(), name, &TOP_KEYS),
            }
        }
        written
    }

    fn unknown(&mut self, span: Range<usize>, name: &str, keys: &[&'static str]) {
        let remedy = match nearest(name, keys.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the keys here are: {}", keys.join(", ")),
        };
        self.problem(span, format!("unknown key `{}`", name.escape_debug()), remedy);
    }

    fn mistyped(&mut self, name: &str, value: &Value<'_>, wanted: &str) {
        let kind = value.get_ref().type_str();
        let article = if kind.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
        self.problem(
            value.span(),
            format!("`{name}` must be {wanted}, not {article} {kind}"),
            format!("write {wanted}"),
        );
    }

    fn string(&mut self, name: &str, value: &Value<'_>) -> Option<At<String>> {
        let DeValue::String(text) = value.get_ref() else {
            self.mistyped(name, value, "a string");
            return None;
        };
        Some(At::new(text.as_ref().to_owned(), self.spot(value.span())))
    }

    fn boolean(&mut self, name: &str, value: &Value<'_>) -> Option<At<bool>> {
        let DeValue::Boolean(flag) = value.get_ref() else {
            self.mistyped(name, value, "true or false");
            return None;
        };
        Some(At::new(*flag, self.spot(value.span())))
    }

    fn word<T: Copy>(&mut self, name: &str, value: &Value<'_>, words: &[(&'static str, T)]) -> Option<At<T>> {
        let written = self.string(name, value)?;
        if let Some((_, found)) = words.iter().find(|(word, _)| *word == written.value) {
            return Some(At::new(*found, written.spot));
        }
        let all = words.iter().map(|(word, _)| *word).collect::<Vec<_>>();
        let remedy = match nearest(&written.value, all.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("write one of: {}", all.join(", ")),
        };
        self.problem(
            value.span(),
            format!("`{name}` is one of {}, not \"{}\"", all.join(", "), written.value.escape_debug()),
            remedy,
        );
        None
    }

    fn strings(&mut self, name: &str, value: &Value<'_>) -> Option<List> {
        let DeValue::Array(array) = value.get_ref() else {
            self.mistyped(name, value, "a list of strings");
            return None;
        };
        let items = array.iter().filter_map(|item| self.string(name, item)).collect();
        Some(At::new(items, self.spot(value.span())))
    }

    /// Lists whose items are each checked by `fault`, which says what is wrong and what to write.
    fn checked(
        &mut self,
        name: &str,
        value: &Value<'_>,
        fault: impl Fn(&str) -> Option<(String, String)>,
    ) -> Option<List> {
        let list = self.strings(name, value)?;
        for item in &list.value {
            if let Some((message, remedy)) = fault(&item.value) {
                self.problem(item.spot.start..item.spot.end, message, remedy);
            }
        }
        Some(list)
    }

    fn paths(&mut self, name: &str, value: &Value<'_>) -> Option<List> {
        self.checked(name, value, |path| {
            let bare = path.strip_suffix('?').unwrap_or(path);
            let rooted =
                bare == "~" || bare.starts_with("~/") || bare.starts_with('/') || bare.starts_with('$');
            if !rooted {
                return Some((
                    format!("`{}` is not an absolute path", path.escape_debug()),
                    "start it with /, ~/ or $NAME".to_owned(),
                ));
            }
            if bare.contains('\0') || bare.split('/').any(|part| part == ".." || part == ".") {
                return Some((
                    format!("`{}` holds `.`, `..` or a NUL", path.escape_debug()),
                    "write the path it leads to".to_owned(),
                ));
            }
            None
        })
    }

    fn globs(&mut self, name: &str, value: &Value<'_>) -> Option<List> {
        self.checked(name, value, |glob| {
            globs::fault(glob).map(|fault| {
                (
                    format!("the glob `{}` {fault}", glob.escape_debug()),
                    "write it relative to the workspace, such as \"secrets/**\" or \"**/.env\"".to_owned(),
                )
            })
        })
    }

    fn table<'v, 't>(&mut self, name: &str, value: &'v Value<'t>) -> Option<&'v DeTable<'t>> {
        let DeValue::Table(table) = value.get_ref() else {
            self.mistyped(name, value, "a table");
            return None;
        };
        Some(table)
    }

    fn env(&mut self, name: &str, value: &Value<'_>, written: &mut Written) {
        let Some(table) = self.table(name, value) else { return };
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "allow" => written.env_allow = self.strings("env.allow", value),
                "set" => self.env_set(value, written),
                other => self.unknown(key.span(), other, &ENV_KEYS),
            }
        }
    }

    fn env_set(&mut self, value: &Value<'_>, written: &mut Written) {
        let Some(table) = self.table("env.set", value) else { return };
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let Some(text) = self.string(&format!("env.set.{name}"), value) else { continue };
            if let Err(refusal) = environment::check_set(name.as_bytes(), text.value.as_bytes()) {
                self.problems.push((key.span(), refusal));
            }
            written.env_set.push((At::new(name.to_owned(), self.spot(key.span())), text));
        }
    }

    fn shell(&mut self, name: &str, value: &Value<'_>, shell: &mut Shell) {
        let Some(table) = self.table(name, value) else { return };
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "program" => shell.program = self.string("shell.program", value),
                "args" => shell.args = self.strings("shell.args", value),
                "allowed-programs" => {
                    shell.allowed_programs = self.checked("shell.allowed-programs", value, |program| {
                        (!program.starts_with('/')).then(|| {
                            (
                                format!("the shell `{}` is not an absolute path", program.escape_debug()),
                                "write the whole path, such as \"/bin/bash\"".to_owned(),
                            )
                        })
                    });
                }
                "allowed-args" => shell.allowed_args = self.strings("shell.allowed-args", value),
                other => self.unknown(key.span(), other, &SHELL_KEYS),
            }
        }
    }

    fn limits(&mut self, name: &str, value: &Value<'_>, written: &mut Written) {
        let Some(table) = self.table(name, value) else { return };
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match LIMITS.iter().position(|row| row.key == name) {
                Some(at) => written.limits[at] = self.limit(at, value),
                None => self.unknown(key.span(), name, &LIMITS.map(|row| row.key)),
            }
        }
    }

    fn limit(&mut self, at: usize, value: &Value<'_>) -> Option<At<Option<u64>>> {
        let row = LIMITS[at];
        let text = match value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            DeValue::Integer(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => {
                self.mistyped(row.key, value, row.unit.form());
                return None;
            }
        };
        if text == "none" && row.may_be_none {
            return Some(At::new(None, self.spot(value.span())));
        }
        let number = match row.unit {
            Unit::Bytes => values::size(text),
            Unit::Cores => values::cores(text),
            Unit::Count | Unit::Seconds => text.parse().ok(),
            Unit::Duration => values::duration(text),
        };
        let none = if row.may_be_none { " or \"none\"" } else { "" };
        let wanted = format!("{}{none}", row.unit.form());
        match number {
            Some(0) => {
                let message = format!("the limit `{}` is zero, so nothing could run", row.key);
                let remedy = format!("write {wanted}, above zero");
                self.problems.push((value.span(), Refusal::new(Code::LimitInvalid, message, remedy)));
                None
            }
            Some(number) => Some(At::new(Some(number), self.spot(value.span()))),
            None => {
                let message = format!("`{}` must be {wanted}, not `{}`", row.key, text.escape_debug());
                self.problem(value.span(), message, format!("write {wanted}"));
                None
            }
        }
    }

    fn layers(&mut self, name: &str, value: &Value<'_>, written: &mut Written) {
        let Some(table) = self.table(name, value) else { return };
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match Layer::ALL.iter().position(|layer| layer.name() == name) {
                Some(at) => {
                    written.layers[at] = self.word(&format!("layers.{name}"), value, &REQUIREMENTS);
                }
                None => self.unknown(key.span(), name, &Layer::ALL.map(Layer::name)),
            }
        }
    }
}
