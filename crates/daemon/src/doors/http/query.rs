//! The part of a path behind `?`: names that the route knows, each once, each of its kind.

use stockade_proto::Code;
use stockade_store::ExecutionId;
use stockade_store::executions::State;

use super::route::{Kind, Param};
use crate::denied::Denied;

/// Checked already; what is left is to take the values.
#[derive(Debug, Default)]
pub(super) struct Query {
    values: Vec<(&'static str, Value)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Number(u64),
    Flag(bool),
    State(State),
    Execution(ExecutionId),
}

fn wrong(message: String, remedy: impl Into<String>) -> Denied {
    Denied::refuse(Code::RequestInvalid, message, remedy)
}

impl Query {
    pub(super) fn read(text: &str, params: &'static [Param]) -> Result<Self, Denied> {
        let mut values = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(param) = params.iter().find(|param| param.name == name) else {
                let names = params.iter().map(|param| param.name).collect::<Vec<_>>().join(", ");
                return Err(wrong(
                    "the query holds a name that this path does not know".into(),
                    if names.is_empty() { "Leave it out.".into() } else { format!("It knows: {names}.") },
                ));
            };
            if values.iter().any(|(known, _)| *known == param.name) {
                return Err(wrong(format!("`{}` is given twice", param.name), "Give it once."));
            }
            let value = param.kind.read(text).ok_or_else(|| {
                wrong(
                    format!("`{}` is not {}", param.name, param.kind.means()),
                    "Change it, or leave it out.",
                )
            })?;
            values.push((param.name, value));
        }
        Ok(Self { values })
    }

    fn get(&self, name: &str) -> Option<Value> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Number(number) => Some(number),
            Value::Flag(_) | Value::State(_) | Value::Execution(_) => None,
        }
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(Value::Flag(true))
    }

    pub(super) fn state(&self, name: &str) -> Option<State> {
        match self.get(name)? {
            Value::State(state) => Some(state),
            Value::Number(_) | Value::Flag(_) | Value::Execution(_) => None,
        }
    }

    pub(super) fn execution(&self, name: &str) -> Option<ExecutionId> {
        match self.get(name)? {
            Value::Execution(id) => Some(id),
            Value::Number(_) | Value::Flag(_) | Value::State(_) => None,
        }
    }
}

impl Kind {
    /// No value has a character that needs escaping, so none is undone.
    fn read(self, text: &str) -> Option<Value> {
        match self {
            Self::Number { least, most } => {
                let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let number = digits.then(|| text.parse().ok()).flatten()?;
                (least..=most).contains(&number).then_some(Value::Number(number))
            }
            Self::Flag => match text {
                "true" => Some(Value::Flag(true)),
                "false" => Some(Value::Flag(false)),
                _ => None,
            },
            Self::State => {
                let states = [State::Queued, State::Running, State::Ended];
                states.into_iter().find(|state| state.name() == text).map(Value::State)
            }
            Self::Execution => text.parse().ok().map(Value::Execution),
        }
    }

    fn means(self) -> String {
        match self {
            Self::Number { least, most } => format!("a whole number between {least} and {most}"),
            Self::Flag => "`true` or `false`".into(),
            Self::State => "`queued`, `running` or `ended`".into(),
            Self::Execution => "an execution's id".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: &[Param] = &[
        Param { name: "limit", kind: Kind::Number { least: 1, most: 10 }, about: "" },
        Param { name: "end", kind: Kind::Flag, about: "" },
    ];

    #[test]
    fn only_what_is_known_once_and_of_its_kind() {
        for wrong in [
            "limit=0",
            "limit=11",
            "limit=-1",
            "limit=1.0",
            "limit=",
            "limit",
            "limit=%31",
            "limit=1&limit=1",
            "limit=99999999999999999999999",
            "end=1",
            "end=TRUE",
            "other=1",
            "%6cimit=1",
            "=1",
            "limit=1\u{0}",
        ] {
            let refused = Query::read(wrong, PARAMS).unwrap_err();
            assert_eq!(refused.code(), Code::RequestInvalid, "{wrong}");
            assert!(!refused.message().contains("other"), "what was sent is not sent back");
        }
        let query = Query::read("&end=true&limit=10&", PARAMS).unwrap();
        assert_eq!((query.number("limit"), query.flag("end")), (Some(10), true));
        assert!(!Query::read("", PARAMS).unwrap().flag("end"));
    }
}
