//! The reply of a command that ran, from the frames that it left: one JSON object in one buffer, read off the file
//! as often as there are streams, so that nothing else is held of a large output.

use std::convert::Infallible;

use serde::Serialize;
use stockade_proto::{Blocked, ExecutionResult, Outcome};
use stockade_store::output::{Cursor, Piece, Rest, Stream};
use stockade_store::{ExecutionId, Store, StoreError};

use super::escape::{Fit, Text};

/// Of one reply: what the two streams may take in it as JSON. More is in the record, by cursor.
const STDOUT_LIMIT: usize = 48 << 20;
const STDERR_LIMIT: usize = 16 << 20;
/// Of the file at a time.
const STEP: usize = 1 << 20;
/// Bytes that one byte of output becomes at worst: `\u0000`.
const WORST: u64 = 6;

/// Room for everything beside the output.
const BESIDE: usize = 4 << 10;

/// What is said beside the output, and in which order.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Beside {
    #[serde(rename = "exitCode")]
    pub(super) exit_code: u8,
    pub(super) success: bool,
    pub(super) command: String,
    pub(super) duration_ms: u64,
    /// What really happened where `exitCode` is 1.
    pub(super) outcome: Outcome,
    pub(super) execution: String,
    /// What the walls refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(default))]
    pub(super) blocked: Vec<Blocked>,
    /// There was more output than is here.
    #[serde(skip_serializing_if = "is_false")]
    #[cfg_attr(test, schemars(default))]
    pub(super) truncated: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The most memory that the reply may take, in bytes.
pub(super) fn most(result: &ExecutionResult) -> usize {
    let bytes = result.stdout.bytes.saturating_add(result.stderr.bytes).saturating_mul(WORST);
    usize::try_from(bytes).unwrap_or(usize::MAX).min(STDOUT_LIMIT + STDERR_LIMIT)
}

/// Blocks while it reads. `expected` bytes are likely.
pub(super) fn json(
    store: &Store,
    id: ExecutionId,
    beside: Beside,
    expected: usize,
) -> Result<Vec<u8>, StoreError> {
    let first = store.executions.output(&id, Cursor::START, STEP)?;
    put_together(&first, |cursor| store.executions.output(&id, cursor, STEP), beside, expected)
}

/// The same of an output that is here.
pub(super) fn json_of(whole: &Piece, beside: Beside, expected: usize) -> Vec<u8> {
    let nothing = |next| Ok::<_, Infallible>(Piece { chunks: Vec::new(), next, rest: Rest::Ended });
    let Ok(json) = put_together(whole, nothing, beside, expected);
    json
}

/// `more` reads what is behind a cursor.
fn put_together<E>(
    first: &Piece,
    more: impl Fn(Cursor) -> Result<Piece, E>,
    mut beside: Beside,
    expected: usize,
) -> Result<Vec<u8>, E> {
    let expected = expected.min(STDOUT_LIMIT + STDERR_LIMIT);
    let mut out = Vec::with_capacity(expected + expected / 8 + beside.command.len() + BESIDE);
    out.extend_from_slice(b"{\"stdout\":\"");
    let stdout = stream(first, &more, Stream::Stdout, Text::new(&mut out, STDOUT_LIMIT))?;
    out.extend_from_slice(b"\",\"stderr\":\"");
    let stderr = stream(first, &more, Stream::Stderr, Text::new(&mut out, STDERR_LIMIT))?;
    out.extend_from_slice(b"\",");
    beside.truncated |= stdout == Fit::Truncated || stderr == Fit::Truncated;
    let rest = serde_json::to_vec(&beside).unwrap_or_default();
    // Its members, behind ours.
    out.extend_from_slice(rest.get(1..).unwrap_or_default());
    Ok(out)
}

/// The whole of one stream, whose first piece is read already.
fn stream<E>(
    first: &Piece,
    more: impl Fn(Cursor) -> Result<Piece, E>,
    which: Stream,
    mut text: Text<'_>,
) -> Result<Fit, E> {
    let mut add = |piece: &Piece| {
        piece.chunks.iter().filter(|chunk| chunk.stream == which).for_each(|chunk| text.push(&chunk.bytes));
    };
    add(first);
    let (mut next, mut rest) = (first.next, first.rest);
    while rest == Rest::More {
        let piece = more(next)?;
        add(&piece);
        (next, rest) = (piece.next, piece.rest);
    }
    let fit = text.finish();
    Ok(if rest == Rest::Damaged { Fit::Truncated } else { fit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::time::Instant;
    use stockade_store::Opened;
    use stockade_store::output::Frames;

    fn beside() -> Beside {
        Beside {
            exit_code: 0,
            success: true,
            command: "echo \"hi\"".into(),
            duration_ms: 3,
            outcome: Outcome::Exited { code: 0 },
            execution: "x".into(),
            blocked: Vec::new(),
            truncated: false,
        }
    }

    #[test]
    fn streams_are_put_together_over_frames_and_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let Opened { store, .. } = Store::open(&directory.path().join("state")).unwrap();
        let id = ExecutionId::new();
        let mut frames = Frames::new(store.output.create(&id).unwrap(), Instant::now());
        let mut stdout = vec![b' '];
        for _ in 0..3 << 4 {
            let piece = "é".repeat(32 << 10);
            stdout.extend_from_slice(piece.as_bytes());
            // Cut in the middle of a character each time.
            let (one, two) = piece.as_bytes().split_at(1001);
            frames.append(Stream::Stdout, one).unwrap();
            frames.append(Stream::Stderr, b"\xc3").unwrap();
            frames.append(Stream::Event, b"{}").unwrap();
            frames.append(Stream::Stdout, two).unwrap();
            frames.append(Stream::Stderr, b"\xa9\n").unwrap();
        }
        frames.end().unwrap();
        let json = json(&store, id, beside(), stdout.len()).unwrap();
        let value: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(value["stdout"], String::from_utf8(stdout).unwrap().trim());
        assert_eq!(value["stderr"], "é\n".repeat(48).trim());
        let members: Vec<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(members.len(), 8, "{members:?}");
    }

    #[test]
    fn the_members_are_in_the_order_of_the_compatible_server() {
        let directory = tempfile::tempdir().unwrap();
        let Opened { store, .. } = Store::open(&directory.path().join("state")).unwrap();
        let id = ExecutionId::new();
        Frames::new(store.output.create(&id).unwrap(), Instant::now()).end().unwrap();
        let whole = store.output.seal(&id).unwrap().whole.unwrap().piece;
        let json = json(&store, id, beside(), 0).unwrap();
        assert_eq!(json, json_of(&whole, beside(), 0));
        let json = String::from_utf8(json).unwrap();
        assert_eq!(
            json,
            concat!(
                r#"{"stdout":"","stderr":"","exitCode":0,"success":true,"command":"echo \"hi\"","#,
                r#""duration_ms":3,"outcome":{"kind":"exited","code":0},"execution":"x"}"#
            )
        );
    }
}
