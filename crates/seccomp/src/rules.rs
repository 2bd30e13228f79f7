//! Reads a rule file in two steps: as written (unknown keys refused), then resolved to numbers. Every
//! mistake is reported with its line and column, because it stops a build. Compiles nothing: a
//! [`RuleSet`] goes to `compile.rs`.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

use crate::model::{Action, Call, Condition, Test, Width};
use crate::{model, syscalls};

#[derive(Debug, Error, PartialEq, Eq)]
#[error("{line}:{column}: {what}")]
pub(crate) struct RuleError {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) what: Mistake,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Mistake {
    #[error("{0}")]
    Toml(String),
    #[error("no action {0:?}: write allow, errno:NAME, nothing, kill-process or notify")]
    Action(String),
    #[error("no x86_64 system call is named {0:?}: correct the name or add it to syscalls.rs")]
    Syscall(String),
    #[error("{0:?} is listed twice in this rule: remove one")]
    Twice(String),
    #[error("a rule lists at least one system call")]
    NoSyscall,
    #[error("a rule's reason is a sentence: say why, and end it with a full stop")]
    Reason,
    #[error("an argument's index is 0 to 5, and this is {0}")]
    Arg(i64),
    #[error("a width is 32 or 64, as the kernel's own parameter is, and this is {0}")]
    Width(i64),
    #[error("{0:#x} does not fit the condition's width")]
    TooWide(i64),
    #[error("{op} needs `{key}`")]
    Missing { op: Op, key: &'static str },
    #[error("{op} takes no `{key}`")]
    Unused { op: Op, key: &'static str },
    #[error("this condition is {0} true for every argument: remove it or correct it")]
    Constant(&'static str),
    #[error("missing field `{0}`: a file that extends no other decides it itself")]
    Undecided(&'static str),
    #[error("`{0}` comes from the file that this one extends: remove it")]
    Inherited(&'static str),
    #[error("no file {0:?} to extend, or it extends another one itself")]
    Base(String),
}

/// The comparisons by the name that a file uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    MaskedEq,
    MaskedNe,
    MaskedNonzero,
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Eq => "eq",
            Self::Ne => "ne",
            Self::Lt => "lt",
            Self::Le => "le",
            Self::Gt => "gt",
            Self::Ge => "ge",
            Self::MaskedEq => "masked-eq",
            Self::MaskedNe => "masked-ne",
            Self::MaskedNonzero => "masked-nonzero",
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FileAsWritten {
    name: String,
    description: String,
    /// The file whose decisions and rules come first.
    extends: Option<Spanned<String>>,
    default: Option<Spanned<String>>,
    unknown: Option<Spanned<String>>,
    foreign: Option<Spanned<String>>,
    #[serde(default)]
    frequent: Vec<Spanned<String>>,
    #[serde(default, rename = "rule")]
    rules: Vec<RuleAsWritten>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RuleAsWritten {
    syscalls: Spanned<Vec<Spanned<String>>>,
    action: Spanned<String>,
    reason: Spanned<String>,
    #[serde(default)]
    when: Vec<Spanned<ConditionAsWritten>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ConditionAsWritten {
    arg: i64,
    op: Op,
    mask: Option<i64>,
    value: Option<i64>,
    // Required: leaving it out would be a silent choice between a filter that works and one that
    // noise in the upper half walks past.
    width: i64,
}

/// One rule of a file. All conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) syscalls: Vec<u32>,
    pub(crate) action: Action,
    pub(crate) reason: String,
    pub(crate) conditions: Vec<Condition>,
}

/// A rule file, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleSet {
    pub(crate) name: String,
    pub(crate) description: String,
    /// For a known call that no rule matches.
    pub(crate) default: Action,
    /// For a number that has no name in our table, x32 numbers included.
    pub(crate) unknown: Action,
    /// For a call of another architecture, whatever its number.
    pub(crate) foreign: Action,
    /// Calls that should be decided in few instructions. Changes speed, never a decision.
    pub(crate) frequent: Vec<u32>,
    pub(crate) rules: Vec<Rule>,
}

/// One rule as it applies to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub(crate) number: u32,
    pub(crate) rule: &'a Rule,
}

impl RuleSet {
    /// Reads a file; `base` finds the text of the one that it extends, which extends none itself.
    pub(crate) fn parse(text: &str, base: &dyn Fn(&str) -> Option<String>) -> Result<Self, RuleError> {
        let written: FileAsWritten = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            mistake(text, start, Mistake::Toml(error.message().to_owned()))
        })?;
        let mut set = match &written.extends {
            None => Self::alone(text, &written)?,
            Some(name) => {
                let keys = [
                    ("default", &written.default),
                    ("unknown", &written.unknown),
                    ("foreign", &written.foreign),
                ];
                for (key, value) in keys {
                    if let Some(value) = value {
                        return Err(mistake(text, value.span().start, Mistake::Inherited(key)));
                    }
                }
                // A mistake inside the base is reported where the base itself is compiled.
                base(name.get_ref())
                    .and_then(|base| Self::parse(&base, &|_| None).ok())
                    .ok_or_else(|| mistake(text, name.span().start, Mistake::Base(name.get_ref().clone())))?
            }
        };
        for name in &written.frequent {
            set.frequent.push(syscall(text, name)?);
        }
        for rule in &written.rules {
            set.rules.push(resolve(text, rule)?);
        }
        set.name = written.name;
        set.description = written.description;
        Ok(set)
    }

    /// What a file that extends no other starts from: its three decisions.
    fn alone(text: &str, written: &FileAsWritten) -> Result<Self, RuleError> {
        let own = |key, value: &Option<Spanned<String>>| match value {
            Some(value) => action(text, value),
            None => Err(mistake(text, 0, Mistake::Undecided(key))),
        };
        Ok(Self {
            name: String::new(),
            description: String::new(),
            default: own("default", &written.default)?,
            unknown: own("unknown", &written.unknown)?,
            foreign: own("foreign", &written.foreign)?,
            frequent: Vec::new(),
            rules: Vec::new(),
        })
    }

    /// One row per rule and call, in the order in which they are tried.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rules.iter().flat_map(|rule| rule.syscalls.iter().map(move |&number| Row { number, rule }))
    }

    /// The rules of each call that has some, in order.
    pub(crate) fn by_syscall(&self) -> BTreeMap<u32, Vec<&Rule>> {
        let mut map: BTreeMap<u32, Vec<&Rule>> = BTreeMap::new();
        for row in self.rows() {
            map.entry(row.number).or_default().push(row.rule);
        }
        map
    }

    /// What the rules say, read one after the other. The compiled program must say the same.
    pub(crate) fn decide(&self, call: &Call) -> Action {
        if call.arch != model::AUDIT_ARCH_X86_64 {
            return self.foreign;
        }
        if syscalls::name(call.number).is_none() {
            return self.unknown;
        }
        self.rows()
            .find(|row| {
                row.number == call.number && row.rule.conditions.iter().all(|one| one.holds(&call.args))
            })
            .map_or(self.default, |row| row.rule.action)
    }
}

fn mistake(text: &str, offset: usize, what: Mistake) -> RuleError {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    RuleError { line, column, what }
}

fn action(text: &str, written: &Spanned<String>) -> Result<Action, RuleError> {
    Action::parse(written.get_ref())
        .ok_or_else(|| mistake(text, written.span().start, Mistake::Action(written.get_ref().clone())))
}

fn syscall(text: &str, written: &Spanned<String>) -> Result<u32, RuleError> {
    syscalls::number(written.get_ref())
        .ok_or_else(|| mistake(text, written.span().start, Mistake::Syscall(written.get_ref().clone())))
}

fn resolve(text: &str, written: &RuleAsWritten) -> Result<Rule, RuleError> {
    let mut numbers = Vec::new();
    for name in written.syscalls.get_ref() {
        let number = syscall(text, name)?;
        if numbers.contains(&number) {
            return Err(mistake(text, name.span().start, Mistake::Twice(name.get_ref().clone())));
        }
        numbers.push(number);
    }
    if numbers.is_empty() {
        return Err(mistake(text, written.syscalls.span().start, Mistake::NoSyscall));
    }
    let reason = written.reason.get_ref().trim();
    if !reason.contains(' ') || !reason.ends_with('.') {
        return Err(mistake(text, written.reason.span().start, Mistake::Reason));
    }
    let conditions = written
        .when
        .iter()
        .map(|one| condition(one.get_ref()).map_err(|what| mistake(text, one.span().start, what)))
        .collect::<Result<_, _>>()?;
    Ok(Rule {
        syscalls: numbers,
        action: action(text, &written.action)?,
        reason: reason.to_owned(),
        conditions,
    })
}

fn condition(written: &ConditionAsWritten) -> Result<Condition, Mistake> {
    let arg = u8::try_from(written.arg).ok().filter(|arg| *arg < 6).ok_or(Mistake::Arg(written.arg))?;
    let width = match written.width {
        32 => Width::Bits32,
        64 => Width::Bits64,
        other => return Err(Mistake::Width(other)),
    };
    let fits = |number: i64| {
        u64::try_from(number).ok().filter(|n| *n <= width.mask()).ok_or(Mistake::TooWide(number))
    };
    let op = written.op;
    let value = written.value.map(fits).transpose()?;
    let mask = written.mask.map(fits).transpose()?;
    let masked = matches!(op, Op::MaskedEq | Op::MaskedNe | Op::MaskedNonzero);
    if !masked && mask.is_some() {
        return Err(Mistake::Unused { op, key: "mask" });
    }
    if op == Op::MaskedNonzero && value.is_some() {
        return Err(Mistake::Unused { op, key: "value" });
    }
    let value = || value.ok_or(Mistake::Missing { op, key: "value" });
    let mask = || mask.ok_or(Mistake::Missing { op, key: "mask" });
    let test = match op {
        Op::Eq => Test::Equal(value()?),
        Op::Ne => Test::NotEqual(value()?),
        Op::Lt => Test::Less(value()?),
        Op::Le => Test::LessOrEqual(value()?),
        Op::Gt => Test::Greater(value()?),
        Op::Ge => Test::GreaterOrEqual(value()?),
        Op::MaskedEq => Test::MaskedEqual { mask: mask()?, value: value()? },
        Op::MaskedNe => Test::MaskedNotEqual { mask: mask()?, value: value()? },
        Op::MaskedNonzero => Test::MaskedNonzero { mask: mask()? },
    };
    match constant(test, width) {
        Some(true) => Err(Mistake::Constant("always")),
        Some(false) => Err(Mistake::Constant("never")),
        None => Ok(Condition { arg, width, test }),
    }
}

/// Whether a test has the same answer for every argument.
fn constant(test: Test, width: Width) -> Option<bool> {
    match test {
        Test::Equal(_) | Test::NotEqual(_) => None,
        Test::Less(value) => (value == 0).then_some(false),
        Test::GreaterOrEqual(value) => (value == 0).then_some(true),
        Test::Greater(value) => (value == width.mask()).then_some(false),
        Test::LessOrEqual(value) => (value == width.mask()).then_some(true),
        Test::MaskedEqual { mask, value } if value & !mask != 0 => Some(false),
        Test::MaskedNotEqual { mask, value } if value & !mask != 0 => Some(true),
        Test::MaskedEqual { mask, .. } => (mask == 0).then_some(true),
        Test::MaskedNotEqual { mask, .. } | Test::MaskedNonzero { mask } => (mask == 0).then_some(false),
    }
}
