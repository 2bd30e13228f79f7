//! The files that the log is in, `000001.log` and on, and their lines.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::error::AuditError;
use super::line::LINE_LIMIT;

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
}

pub(crate) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:06}.log"))
}

/// In their order. Gaps are the caller's to find.
pub(crate) fn list(directory: &Path) -> Result<Vec<Segment>, AuditError> {
    let failed = |source| AuditError::Read { path: directory.to_owned(), source };
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_suffix(".log")).and_then(|stem| stem.parse().ok());
        let Some(number) = number else { continue };
        let path = path(directory, number);
        // One spelling per number: `1.log` is no segment.
        if path.file_name() == Some(&name) {
            segments.push(Segment { number, path });
        }
    }
    segments.sort_by_key(|segment| segment.number);
    Ok(segments)
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Without its newline.
    Whole(Vec<u8>),
    /// So many bytes at the end of the file, and no newline.
    Torn(u64),
    TooLong,
}

/// Reads one segment from its start, one line in memory at a time.
#[derive(Debug)]
pub(crate) struct Lines {
    reader: BufReader<File>,
    path: PathBuf,
}

impl Lines {
    pub(crate) fn open(path: &Path) -> Result<Self, AuditError> {
        let file = File::open(path).map_err(|source| AuditError::Read { path: path.to_owned(), source })?;
        Ok(Self { reader: BufReader::with_capacity(1 << 16, file), path: path.to_owned() })
    }

    pub(crate) fn next(&mut self) -> Result<Option<Line>, AuditError> {
        self.read().map_err(|source| AuditError::Read { path: self.path.clone(), source })
    }

    fn read(&mut self) -> io::Result<Option<Line>> {
        let mut line = Vec::new();
        let limit = u64::try_from(LINE_LIMIT).unwrap_or(u64::MAX);
        let length = self.reader.by_ref().take(limit).read_until(b'\n', &mut line)?;
        Ok(match line.pop() {
            None => None,
            Some(b'\n') => Some(Line::Whole(line)),
            Some(_) if length == LINE_LIMIT => Some(Line::TooLong),
            Some(_) => Some(Line::Torn(u64::try_from(length).unwrap_or(u64::MAX))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_spelling_is_a_segment_and_the_order_is_of_numbers() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["000010.log", "000002.log", "1000000.log", "2.log", "0000002.log", "x.log", "anchor"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let numbers: Vec<u64> =
            list(directory.path()).unwrap().iter().map(|segment| segment.number).collect();
        assert_eq!(numbers, [2, 10, 1_000_000]);
    }

    #[test]
    fn lines_are_whole_torn_or_too_long() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("000001.log");
        let read = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            let mut lines = Lines::open(&path).unwrap();
            std::iter::from_fn(|| lines.next().unwrap()).take(4).collect::<Vec<_>>()
        };
        assert_eq!(read(b""), []);
        assert_eq!(read(b"a\n\nbc"), [Line::Whole(b"a".into()), Line::Whole(vec![]), Line::Torn(2)]);
        assert_eq!(read(&vec![b'x'; LINE_LIMIT + 1])[0], Line::TooLong);
        let mut longest = vec![b'x'; LINE_LIMIT];
        longest[LINE_LIMIT - 1] = b'\n';
        assert_eq!(read(&longest), [Line::Whole(vec![b'x'; LINE_LIMIT - 1])]);
    }
}
