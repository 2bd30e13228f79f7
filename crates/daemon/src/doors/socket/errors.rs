//! From what a caller is denied to a JSON-RPC error: one table of codes, the sentence as the message, and the
//! problem as data.

use serde::Serialize;
use serde_json::Value;
use stockade_proto::Code;
use stockade_proto::door::error;
use stockade_proto::link::NotRun;
use stockade_rpc::{BAD_PARAMS, Error};

use crate::denied::Denied;
use crate::doors::words;

/// Those that have a number of their own. Any other refusal is [`error::REFUSED`], any other fault
/// [`error::FAULT`].
const CODES: [(Code, i64); 8] = [
    (Code::TooBusy, error::BUSY),
    (Code::Draining, error::BUSY),
    (Code::NotPermitted, error::NOT_PERMITTED),
    (Code::WorkspaceNotAllowed, error::NOT_PERMITTED),
    (Code::RequestInvalid, BAD_PARAMS),
    (Code::ExecutionUnknown, error::UNKNOWN),
    (Code::ExecutionEnded, error::ENDED),
    (Code::ExecutorLost, error::EXECUTOR_LOST),
];

// Words of the product and of the peer that mean the same.
const _: () = assert!(error::BUSY == stockade_rpc::BUSY && error::NOT_PERMITTED == stockade_rpc::REFUSED);

pub(super) fn number(why: &NotRun) -> i64 {
    let (code, otherwise) = match why {
        NotRun::Refusal(refusal) => (refusal.code, error::REFUSED),
        NotRun::Fault(fault) => (fault.code, error::FAULT),
    };
    CODES.iter().find(|(known, _)| *known == code).map_or(otherwise, |(_, number)| *number)
}

pub(super) fn denied(denied: &Denied) -> Error {
    with(Error::new(number(&denied.why), denied.message()), &words::problem(denied))
}

/// An error with `data` that is one of ours.
pub(super) fn with<T: Serialize>(error: Error, data: &T) -> Error {
    match serde_json::to_value(data) {
        Ok(data) => error.with_data(data),
        // Our words are always JSON; without them the sentence is still there.
        Err(_) => error,
    }
}

pub(super) fn answer<T: Serialize>(value: &T) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|_| Error::internal())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_code_has_a_number_and_says_its_own_sentence() {
        let rpc = [stockade_rpc::CLOSING, stockade_rpc::INTERNAL, stockade_rpc::UNKNOWN_METHOD];
        for row in Code::TABLE {
            let fault = row.id.starts_with("SK-F");
            let why = if fault {
                Denied::fault(row.code, "a sentence", "a remedy")
            } else {
                Denied::refuse(row.code, "a sentence", "a remedy")
            };
            let error = denied(&why);
            assert!(!rpc.contains(&error.code), "{}", row.id);
            assert_eq!(error.message, "a sentence");
            let data = error.data.unwrap();
            assert_eq!((&data["code"], &data["remedy"]), (&row.id.into(), &"a remedy".into()));
        }
    }

    #[test]
    fn busy_says_when_to_try_again() {
        let busy = Denied::refuse(Code::TooBusy, "full", "later").after(Duration::from_secs(1));
        let error = denied(&busy);
        assert_eq!((error.code, &error.data.unwrap()["retry_after_ms"]), (error::BUSY, &1000.into()));
    }

    #[test]
    fn no_code_has_two_numbers() {
        let codes: BTreeSet<&str> = CODES.iter().map(|(code, _)| code.id()).collect();
        assert_eq!(codes.len(), CODES.len());
    }
}
