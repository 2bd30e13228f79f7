//! Tables, times and sizes for people.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use stockade_proto::Bytes;

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Between two columns.
const GAP: &str = "  ";

/// Milliseconds since the epoch, as the service counts them.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// From one moment to another; clocks that go back make it nothing.
pub(super) fn between(from: i64, to: i64) -> u64 {
    u64::try_from(to.saturating_sub(from)).unwrap_or(0)
}

/// In one unit, the largest that fits: `340 ms`, `12 s`, `5 min`, `3 h`, `8 d`.
pub(super) fn span(millis: u64) -> String {
    match millis {
        0..SECOND => format!("{millis} ms"),
        SECOND..MINUTE => format!("{} s", millis / SECOND),
        MINUTE..HOUR => format!("{} min", millis / MINUTE),
        HOUR..DAY => format!("{} h", millis / HOUR),
        DAY.. => format!("{} d", millis / DAY),
    }
}

/// To the millisecond: `1.234 s`.
pub(super) fn exact(millis: u64) -> String {
    format!("{}.{:03} s", millis / SECOND, millis % SECOND)
}

/// RFC 3339, in UTC.
pub(super) fn moment(millis: i64) -> String {
    Timestamp::from_millisecond(millis).map_or_else(|_| format!("{millis} ms"), |time| format!("{time:.3}"))
}

pub(super) fn bytes(count: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    match count {
        1 => "1 byte".to_owned(),
        0..KIB => format!("{count} bytes"),
        KIB..MIB => format!("{} KiB", count / KIB),
        MIB..GIB => format!("{} MiB", count / MIB),
        GIB.. => format!("{}.{} GiB", count / GIB, count % GIB * 10 / GIB),
    }
}

/// What others wrote, for a terminal.
pub(super) fn clean(text: &str) -> String {
    Bytes::from(text).to_string()
}

/// What a command wrote, piece by piece, for a terminal: newlines and tabs stay, and nothing else that a terminal obeys.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Of a character that the next piece goes on with.
    begun: Vec<u8>,
}

impl Seen {
    pub(super) fn more(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        self.begun = all.split_off(all.len() - unfinished(&all));
        lines(&all)
    }

    /// What never went on.
    pub(super) fn rest(&mut self) -> String {
        lines(&std::mem::take(&mut self.begun))
    }
}

fn lines(bytes: &[u8]) -> String {
    let mut text = String::new();
    for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\t')) {
        match piece.split_last() {
            Some((end @ (b'\n' | b'\t'), before)) => {
                text.push_str(&Bytes::from(before).to_string());
                text.push(char::from(*end));
            }
            Some(_) | None => text.push_str(&Bytes::from(piece).to_string()),
        }
    }
    text
}

/// Bytes at the end that begin a character and lack the rest of it.
fn unfinished(bytes: &[u8]) -> usize {
    let begins = |tail: &[u8]| {
        std::str::from_utf8(tail).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=bytes.len().min(3)).find(|length| begins(&bytes[bytes.len() - length..])).unwrap_or(0)
}

/// The same JSON without a character that a terminal obeys or a reader does not see: all of those are in strings.
pub(super) fn clean_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if Bytes::is_unseen(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")));
        } else {
            text.push(c);
        }
    }
    text
}

/// Rows under a head; every column but the last is as wide as its widest cell. Lines are cut at `width`.
pub(super) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]], width: Option<usize>) -> String {
    let length = |text: &str| text.chars().count();
    let mut widths = head.map(length);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(length(cell));
        }
    }
    let line = |cells: [&str; N]| {
        let mut line = String::new();
        for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let last = at + 1 == N;
            line.push_str(cell);
            if !last {
                line.extend(std::iter::repeat_n(' ', width.saturating_sub(length(cell))));
                line.push_str(GAP);
            }
        }
        cut(line.trim_end(), width)
    };
    let mut text = line(head);
    for row in rows {
        text.push('\n');
        text.push_str(&line(row.each_ref().map(String::as_str)));
    }
    text.push('\n');
    text
}

fn cut(line: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if width > 1 && line.chars().count() > width => {
            line.chars().take(width - 1).chain(['…']).collect()
        }
        Some(_) | None => line.to_owned(),
    }
}

/// Of the terminal on stdout, where it is one.
pub(super) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_one_unit() {
        let shown = [0, 999, 1000, 59_999, 60_000, 3_599_999, HOUR, DAY - 1, DAY, 400 * DAY].map(span);
        assert_eq!(
            shown,
            ["0 ms", "999 ms", "1 s", "59 s", "1 min", "59 min", "1 h", "23 h", "1 d", "400 d"]
        );
        assert_eq!([exact(5), exact(61_234)], ["0.005 s", "61.234 s"]);
        assert_eq!(
            [between(5, 8), between(8, 5), between(i64::MIN, i64::MAX)],
            [3, 0, i64::MAX.unsigned_abs()]
        );
    }

    #[test]
    fn moments_are_in_utc_and_any_number_is_one() {
        assert_eq!(moment(1_767_225_600_123), "2026-01-01T00:00:00.123Z");
        assert_eq!(moment(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(moment(i64::MAX), format!("{} ms", i64::MAX));
    }

    #[test]
    fn sizes() {
        let shown = [0, 1, 1023, 1024, 1 << 20, (5 << 30) + (1 << 29)].map(bytes);
        assert_eq!(shown, ["0 bytes", "1 byte", "1023 bytes", "1 KiB", "1 MiB", "5.5 GiB"]);
    }

    #[test]
    fn what_a_terminal_obeys_is_shown_and_characters_are_whole_over_pieces() {
        let mut seen = Seen::default();
        assert_eq!(seen.more("a\tb\n\u{1b}]0;x\u{7}\r\u{9b}2J\u{202e}é\n".as_bytes()), {
            "a\tb\n\\u{1b}]0;x\\u{7}\\r\\u{9b}2J\\u{202e}é\n"
        });
        let text = "é\n日本\u{1f600}";
        let shown: String = text.as_bytes().iter().map(|byte| seen.more(&[*byte])).collect();
        assert_eq!((shown.as_str(), seen.rest().as_str()), (text, ""));
        assert_eq!(
            [seen.more(b"\xff\xf0\x9f"), seen.more(b"x\xc3"), seen.rest()],
            ["\\xff", "\\xf0\\x9fx", "\\xc3"]
        );
        assert_eq!(seen.rest(), "");
    }

    #[test]
    fn json_means_the_same_when_it_is_clean() {
        let text = "\u{1b}\u{7f}\u{9b}\u{202e}\u{e0001}é日";
        let json = serde_json::to_string(&[text]).unwrap();
        let clean = clean_json(&json);
        assert!(!clean.contains(Bytes::is_unseen) && clean.contains("é日"), "{clean}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&clean).unwrap(), [text]);
    }

    #[test]
    fn columns_are_as_wide_as_needed_and_lines_end_at_the_terminal() {
        let rows = [["a".into(), "état".into(), "x".repeat(20)], ["long".into(), "b".into(), String::new()]];
        assert_eq!(
            table(["ID", "STATE", "COMMAND"], &rows, None),
            format!("ID    STATE  COMMAND\na     état   {}\nlong  b\n", "x".repeat(20))
        );
        let narrow = table(["ID", "STATE", "COMMAND"], &rows, Some(16));
        assert_eq!(narrow, "ID    STATE  CO…\na     état   xx…\nlong  b\n");
        assert_eq!(table(["A"], &[], Some(80)), "A\n");
    }
}
