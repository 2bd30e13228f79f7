//! Reads what the guest writes on its second serial port, line by line: frames of test output between
//! marked lines. Pure: `boot.rs` feeds it, `verdict.rs` judges what it has gathered.

/// A test that can't do its work here prints this first; libtest itself would call it passed.
pub(crate) const SKIP: &str = "SKIP ";
/// The last line of a libtest executable begins so.
const RESULT: &str = "test result: ";

/// What a line of the report meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The guest is up, this many seconds after power-on, by its own clock.
    Ready(String),
    Facts,
    Begun,
    /// An executable ended: index into [`Report::frames`].
    Ended(usize),
    Done,
    /// A line of a test's output, or noise between frames.
    Text,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
}

/// One executable, as one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) user: String,
    pub(crate) suite: String,
    pub(crate) executable: String,
    /// `None` until it has ended.
    pub(crate) code: Option<i32>,
    /// `None` until libtest has printed its result.
    pub(crate) tally: Option<Tally>,
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct Report {
    mark: String,
    pub(crate) frames: Vec<Frame>,
    /// The user, and the words of its line of facts.
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) done: bool,
}

impl Report {
    pub(crate) fn new(mark: &str) -> Self {
        Self { mark: mark.to_owned(), frames: Vec::new(), facts: Vec::new(), done: false }
    }

    pub(crate) fn line(&mut self, line: &str) -> Event {
        match line.strip_prefix(&self.mark).and_then(|rest| rest.strip_prefix(' ')) {
            Some(words) => self.marked(words),
            None => self.text(line),
        }
    }

    fn marked(&mut self, words: &str) -> Event {
        let (verb, rest) = words.split_once(' ').unwrap_or((words, ""));
        match (verb, rest.split(' ').collect::<Vec<_>>().as_slice()) {
            ("READY", [uptime]) => Event::Ready((*uptime).to_owned()),
            ("FACTS", [user, ..]) => {
                let facts = rest.split_once(' ').map_or("", |(_, facts)| facts);
                self.facts.push(((*user).to_owned(), facts.to_owned()));
                Event::Facts
            }
            ("BEGIN", [user, suite, executable]) => {
                self.frames.push(Frame {
                    user: (*user).to_owned(),
                    suite: (*suite).to_owned(),
                    executable: (*executable).to_owned(),
                    code: None,
                    tally: None,
                    text: String::new(),
                });
                Event::Begun
            }
            ("END", [user, suite, executable, code]) => {
                let last = self.frames.len().saturating_sub(1);
                match self.frames.last_mut() {
                    Some(frame) if frame.is(user, suite, executable) => {
                        frame.code = code.parse().ok();
                        Event::Ended(last)
                    }
                    Some(_) | None => Event::Text,
                }
            }
            ("DONE", _) => {
                self.done = true;
                Event::Done
            }
            _ => Event::Text,
        }
    }

    fn text(&mut self, line: &str) -> Event {
        if let Some(frame) = self.frames.last_mut().filter(|frame| frame.code.is_none()) {
            frame.text.push_str(line);
            frame.text.push('\n');
            if let Some(tally) = tally(line) {
                frame.tally = Some(tally.with_skips(&frame.text));
            }
        }
        Event::Text
    }
}

impl Frame {
    fn is(&self, user: &str, suite: &str, executable: &str) -> bool {
        self.user == user && self.suite == suite && self.executable == executable
    }
}

impl Tally {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }

    fn with_skips(self, text: &str) -> Self {
        let lines = text.lines().filter(|line| line.starts_with(SKIP)).count();
        let skips = u32::try_from(lines).unwrap_or(u32::MAX).min(self.passed);
        Self { passed: self.passed - skips, skipped: self.skipped + skips, ..self }
    }
}

/// `test result: ok. 41 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s`
fn tally(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix(RESULT)?.split_once(". ")?;
    let count =
        |name: &str| counts.split("; ").find_map(|part| part.strip_suffix(name)?.trim().parse::<u32>().ok());
    Some(Tally { passed: count("passed")?, failed: count("failed")?, skipped: count("ignored")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT_LINE: &str =
        "test result: FAILED. 41 passed; 1 failed; 2 ignored; 0 measured; 3 filtered out; finished in 0.01s";

    #[test]
    fn a_frame_holds_its_text_its_tally_and_its_code() {
        let mut report = Report::new("@m");
        assert_eq!(report.line("@m READY 12.50"), Event::Ready("12.50".into()));
        assert_eq!(report.line("@m FACTS root uid=0 landlock=2"), Event::Facts);
        assert_eq!(report.line("@m BEGIN root escape a-1"), Event::Begun);
        assert_eq!(report.line("SKIP cgroup: no v2 here"), Event::Text);
        assert_eq!(report.line(RESULT_LINE), Event::Text);
        assert_eq!(report.line("@m END root escape a-1 101"), Event::Ended(0));
        assert_eq!(report.line("noise after the frame"), Event::Text);
        assert_eq!(report.line("@m DONE"), Event::Done);
        let frame = &report.frames[0];
        assert_eq!(frame.tally, Some(Tally { passed: 40, failed: 1, skipped: 3 }));
        assert_eq!(frame.code, Some(101));
        assert!(!frame.text.contains("noise"));
        assert_eq!(report.facts, [("root".to_owned(), "uid=0 landlock=2".to_owned())]);
        assert!(report.done);
    }

    #[test]
    fn a_test_cannot_print_an_end() {
        let mut report = Report::new("@m-1");
        report.line("@m-1 BEGIN root escape a-1");
        assert_eq!(report.line("@m-2 END root escape a-1 0"), Event::Text);
        assert_eq!(report.line("@m-1 END root other a-1 0"), Event::Text);
        assert_eq!(report.frames[0].code, None);
    }

    #[test]
    fn an_unfinished_executable_has_no_tally() {
        let mut report = Report::new("@m");
        report.line("@m BEGIN root escape a-1");
        report.line("running 3 tests");
        report.line("@m END root escape a-1 134");
        assert_eq!(report.frames[0].tally, None);
        assert_eq!(report.frames[0].code, Some(134));
    }
}
