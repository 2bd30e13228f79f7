//! The bodies of `POST /execute` and `POST /v1/executions`.

use serde_json::{Value, json};
use stockade_daemon::fuzz;
use stockade_proto::Code;

use crate::{must, sentence};

pub(crate) fn check_execute(bytes: &[u8]) {
    match fuzz::execute(bytes) {
        Ok(wanted) => {
            assert!((1..=bytes.len()).contains(&wanted.command.len()));
            assert!(wanted.cwd.as_ref().is_none_or(|cwd| (1..=bytes.len()).contains(&cwd.len())));
            assert!((1000..=300_000).contains(&wanted.timeout_ms), "{}", wanted.timeout_ms);
            let again = json!({ "command": wanted.command, "cwd": wanted.cwd, "timeout": wanted.timeout_ms });
            assert_eq!(fuzz::execute(again.to_string().as_bytes()), Ok(wanted));
        }
        Err(answer) => {
            let answer: Value = must(serde_json::from_str(answer), "our own answer");
            sentence(answer["error"].as_str().unwrap_or_default());
        }
    }
}

pub(crate) fn check_start(bytes: &[u8]) {
    match fuzz::start(bytes) {
        Ok(start) => {
            let again = must(serde_json::to_vec(&start), "write");
            assert_eq!(fuzz::start(&again), Ok(start));
        }
        Err(denied) => {
            assert_eq!(denied.code(), Code::RequestInvalid);
            sentence(denied.message());
            sentence(denied.remedy());
        }
    }
}
