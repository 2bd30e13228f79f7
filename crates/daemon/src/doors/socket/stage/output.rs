//! What a stage wrote, as text with a bound, read once when it has ended.

use stockade_proto::door::StageOutput;
use stockade_store::ExecutionId;
use stockade_store::output::{Cursor, Rest, Stream};

use crate::core::Core;

/// Of each stream. As JSON it may be six times as long, and both must fit into a frame.
const LIMIT: usize = 1 << 20;
const STEP: usize = 1 << 20;
/// Pieces that are looked at: what is behind them is there for `execution/read`.
const STEPS: usize = 64;

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    more: bool,
}

impl Kept {
    fn take(&mut self, bytes: &[u8]) {
        let room = LIMIT.saturating_sub(self.bytes.len());
        self.more |= bytes.len() > room;
        self.bytes.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= LIMIT
    }

    /// A character that the bound cut in two is left out.
    fn text(mut self) -> (String, bool) {
        if self.more
            && let Err(error) = str::from_utf8(&self.bytes)
            && error.error_len().is_none()
        {
            self.bytes.truncate(error.valid_up_to());
        }
        let text = String::from_utf8(self.bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        (text, self.more)
    }
}

/// The beginning of it. Where it can't be read there is none, and that it is not all is said.
pub(super) async fn collect(core: &Core, id: ExecutionId) -> StageOutput {
    let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
    let mut cursor = Cursor::START;
    let mut all = false;
    for _ in 0..STEPS {
        let Ok(piece) = core.record.read(id, cursor, STEP).await else { break };
        for chunk in &piece.chunks {
            match chunk.stream {
                Stream::Stdout => stdout.take(&chunk.bytes),
                Stream::Stderr => stderr.take(&chunk.bytes),
                Stream::Event | Stream::End => {}
            }
        }
        cursor = piece.next;
        all = piece.rest == Rest::Ended;
        if piece.rest != Rest::More || (stdout.is_full() && stderr.is_full()) {
            break;
        }
    }
    stdout.more |= !all;
    stderr.more |= !all;
    let ((content, content_truncated), (stderr, stderr_truncated)) = (stdout.text(), stderr.text());
    StageOutput { content, content_truncated, stderr, stderr_truncated }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_cuts_between_characters() {
        let mut kept = Kept::default();
        kept.take(&vec![b'a'; LIMIT - 1]);
        kept.take("éé".as_bytes());
        let (text, more) = kept.text();
        assert!(more && text.len() == LIMIT - 1 && text.ends_with('a'));
    }

    #[test]
    fn what_is_no_text_is_shown_as_such() {
        let mut kept = Kept::default();
        kept.take(b"a\xffb\xc3");
        assert_eq!(kept.text(), ("a\u{fffd}b\u{fffd}".to_owned(), false));
    }
}
