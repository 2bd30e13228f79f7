//! Looking at the log without opening it for writing: the last lines, or a range of them, as they are stored.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::ops::RangeBounds;
use std::path::Path;

use super::error::{AuditError, Broken, Reason};
use super::segments::{self, Line, Lines};

/// How many lines [`tail`] gives at most, and how many bytes it looks at.
pub const TAIL_LINES: usize = 10_000;
pub const TAIL_BYTES: usize = 16 << 20;
const FIRST_WINDOW: u64 = 1 << 16;

/// The last `count` stored lines without their newlines, oldest first. An unfinished one is left out.
pub fn tail(directory: &Path, count: usize) -> Result<Vec<Vec<u8>>, AuditError> {
    let count = count.min(TAIL_LINES);
    let mut budget = u64::try_from(TAIL_BYTES).unwrap_or(u64::MAX);
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for segment in segments::list(directory)?.iter().rev() {
        let wanted = count - lines.len();
        if wanted == 0 || budget == 0 {
            break;
        }
        let (mut earlier, looked) = last_lines(&segment.path, wanted, budget)
            .map_err(|source| AuditError::Read { path: segment.path.clone(), source })?;
        budget = budget.saturating_sub(looked);
        earlier.append(&mut lines);
        lines = earlier;
    }
    Ok(lines)
}

/// Doubles the window at the end of the file until it holds enough, and says how large it was.
fn last_lines(path: &Path, wanted: usize, budget: u64) -> io::Result<(Vec<Vec<u8>>, u64)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let most = length.min(budget);
    let mut window = FIRST_WINDOW.min(most);
    loop {
        let start = length - window;
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        (&file).take(window).read_to_end(&mut bytes)?;
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        // After the last newline is nothing, or a line that is being written.
        lines.pop();
        // Before the first newline is the end of a line that began earlier.
        if start > 0 && !lines.is_empty() {
            lines.remove(0);
        }
        if lines.len() >= wanted || window == most {
            let skip = lines.len().saturating_sub(wanted);
            return Ok((lines[skip..].iter().map(|line| line.to_vec()).collect(), window));
        }
        window = window.saturating_mul(2).min(most);
    }
}

/// Copies the entries whose numbers are in `range`, byte for byte, and says how many they were.
pub fn export(
    directory: &Path,
    writer: &mut dyn Write,
    range: impl RangeBounds<u64>,
) -> Result<u64, AuditError> {
    let (mut number, mut written) = (0, 0);
    for segment in segments::list(directory)? {
        let mut lines = Lines::open(&segment.path)?;
        while let Some(line) = lines.next()? {
            number += 1;
            match line {
                Line::Whole(mut bytes) if range.contains(&number) => {
                    bytes.push(b'\n');
                    writer.write_all(&bytes).map_err(|source| AuditError::Export { source })?;
                    written += 1;
                }
                Line::Whole(_) => {}
                Line::Torn(_) => break,
                Line::TooLong => {
                    let (path, reason) = (segment.path, Reason::TooLong);
                    return Err(Broken { entry: number, path, reason }.into());
                }
            }
        }
    }
    writer.flush().map_err(|source| AuditError::Export { source })?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_tail_crosses_segments_and_leaves_the_unfinished_line_out() {
        let directory = tempfile::tempdir().unwrap();
        let long = "x".repeat(100_000);
        fs::write(directory.path().join("000001.log"), format!("one\n{long}\ntwo\n")).unwrap();
        fs::write(directory.path().join("000002.log"), format!("three\n{long}\nfour\nfi")).unwrap();
        let tail = |count| {
            let lines = super::tail(directory.path(), count).unwrap();
            lines.iter().map(|line| String::from_utf8(line.clone()).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(tail(0), Vec::<String>::new());
        assert_eq!(tail(1), ["four"]);
        assert_eq!(tail(4), ["two", "three", &long, "four"]);
        assert_eq!(tail(100), ["one", &long, "two", "three", &long, "four"]);
    }

    #[test]
    fn an_export_is_byte_for_byte() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("000001.log"), "one\ntwo\n").unwrap();
        fs::write(directory.path().join("000002.log"), "three\nfo").unwrap();
        let mut bytes = Vec::new();
        assert_eq!(export(directory.path(), &mut bytes, 2..).unwrap(), 2);
        assert_eq!(bytes, b"two\nthree\n");
        bytes.clear();
        assert_eq!(export(directory.path(), &mut bytes, ..=1).unwrap(), 1);
        assert_eq!(bytes, b"one\n");
    }
}
