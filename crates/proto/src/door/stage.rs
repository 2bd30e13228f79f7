//! Agent stages, as stage workers ask for them and hear about them.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::Stream;
use crate::{Blocked, Bytes, Enforcement, Outcome, Usage};

/// The agent whose work is one command.
pub const COMMAND_AGENT: &str = "command";

/// Asks for an agent stage. Of an agent `command`, exactly one of `command` and `shell`; what is said to a model is
/// read and means nothing to it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartStage {
    /// The directory that the stage may change.
    pub workspace_path: Bytes,
    /// The caller's own name for it: the same caller with the same name means the same stage.
    #[serde(default)]
    pub stage_id: Option<String>,
    /// `command`, which may be left out where there is one.
    #[serde(default)]
    pub agent: Option<String>,
    #[serde(default)]
    pub command: Option<Vec<Bytes>>,
    #[serde(default)]
    pub shell: Option<Bytes>,
    #[serde(default)]
    pub profile: Option<String>,
    #[serde(default)]
    pub env: BTreeMap<String, Bytes>,
    #[serde(default, deserialize_with = "by_name")]
    pub limits: Option<StageLimits>,
    #[serde(default, deserialize_with = "by_name")]
    pub agent_config: Option<AgentConfig>,
    #[serde(default)]
    pub tools: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default, deserialize_with = "by_name")]
    pub context: Option<StageContext>,
}

/// An object or null. What serde derives would take a list as well, and its order is no promise of ours.
fn by_name<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct ByName<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for ByName<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }

    deserializer.deserialize_any(ByName(PhantomData))
}

/// A limit that is not known here is refused: nobody may think that it is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StageLimits {
    pub timeout_ms: Option<u64>,
}

/// For agents that talk to a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentConfig {
    pub provider: Option<String>,
    pub model: Option<String>,
    pub system_prompt: Option<String>,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageContext {
    pub spec_content: Option<String>,
    pub plan_content: Option<String>,
    pub memory_context: Option<String>,
    pub defects_content: Option<String>,
    pub implementation_summary: Option<String>,
}

/// Names a stage; either is its own name or its execution's id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CancelStage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageCancelled {
    pub stage_id: String,
    /// None for one that had not begun.
    pub execution: Option<String>,
    /// Whether there was anything left to end.
    pub cancelled: bool,
}

/// What a stage does meanwhile. What did not fit, or came faster than it is told, is counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageProgress {
    pub stage_id: String,
    pub execution: String,
    /// Counts what is told about this stage, from one.
    pub sequence: u64,
    pub step: StageStep,
    /// Of output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<Stream>,
    pub text: String,
    /// Bytes before `text` that are left out; `execution/read` has them.
    pub dropped_bytes: u64,
    pub elapsed_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageStep {
    Started,
    Output,
}

/// A stage that came to its own end, or was cancelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageResult {
    pub stage_id: String,
    /// None for one that was cancelled before it began.
    pub execution: Option<String>,
    #[serde(flatten)]
    pub output: StageOutput,
    /// The command ended with code zero.
    pub exit_ok: bool,
    pub exit_code: u8,
    pub outcome: Outcome,
    pub token_count: u64,
    pub wall_seconds: f64,
    pub memory_peak_bytes: u64,
    pub cpu_throttled_ms: u64,
    pub blocked: Vec<Blocked>,
    pub usage: Usage,
    pub enforcement: Vec<Enforcement>,
    /// Output that no progress was told of, about.
    pub progress_dropped_bytes: u64,
}

/// What it wrote, up to a bound each; `execution/read` has all that was kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageOutput {
    /// Of stdout.
    pub content: String,
    pub content_truncated: bool,
    pub stderr: String,
    pub stderr_truncated: bool,
}

/// The `data` of the error that a failed stage is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageFailure {
    /// `UZ-EXEC-…`
    pub code: String,
    pub class: String,
    /// One sentence.
    pub error: String,
    /// What to do next.
    pub remedy: String,
    /// `SK-…`, where it is a refusal or a fault of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Of bad params: the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    pub stage_id: Option<String>,
    pub execution: Option<String>,
    #[serde(flatten)]
    pub output: StageOutput,
    pub outcome: Option<Outcome>,
    pub exit_code: Option<u8>,
    pub usage: Option<Usage>,
    #[serde(default)]
    pub blocked: Vec<Blocked>,
    #[serde(default)]
    pub enforcement: Vec<Enforcement>,
}
