//! One candidate: a place where a shape may have begun and how far it got. Threads are independent of
//! each other and of how the stream is cut. `mod.rs` starts and ends them.

use crate::known::SHOWABLE;

use super::pem::{Pem, Verdict};
use super::table::{ROWS, Row, Run, Step};

/// Digits of a port number.
const PORT: u32 = 5;

#[derive(Debug, Clone, Copy)]
pub(super) struct Thread {
    pub(super) row: usize,
    head: &'static [u8],
    /// 0 is the head, n the n-th step.
    step: usize,
    /// Bytes in this step.
    count: u32,
    digits: u32,
    pem: Pem,
    /// Where the secret part begins, once it is reached.
    secret: Option<u64>,
    /// End of what is certain to be secret.
    pub(super) certain: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Wants more bytes.
    Live,
    /// Ended; whatever is certain is all.
    Ended,
}

impl Thread {
    pub(super) fn new(row: usize, head: &'static [u8], start: u64) -> Self {
        let secret = (ROWS[row].shown == 0).then_some(start);
        Self { row, head, step: 0, count: 0, digits: 0, pem: Pem::START, secret, certain: None }
    }

    /// Whether what follows the head, as far as it is here, lets the row go on: most heads are chance,
    /// and this is cheaper than a thread.
    pub(super) fn can_begin(row: usize, after: &[u8]) -> bool {
        match (ROWS[row].steps, after) {
            ([Step::Run(first), Step::Literal([literal]), Step::Run(second), ..], [one, two, ..])
                if first.min == 0 && one == literal =>
            {
                second.class[usize::from(*two)]
            }
            ([Step::Run(run), ..], [one, ..]) if run.min > 0 => run.class[usize::from(*one)],
            ([Step::Literal(literal), ..], [one, ..]) => literal.first() == Some(one),
            _ => true,
        }
    }

    fn spec(&self) -> &'static Row {
        &ROWS[self.row]
    }

    /// The certain stretch.
    pub(super) fn stretch(&self) -> Option<(u64, u64)> {
        Some((self.secret?, self.certain?))
    }

    /// The first byte that must be held, if any.
    pub(super) fn holds(&self) -> Option<u64> {
        self.certain.or(self.secret)
    }

    /// As `holds`, once the time is up. A head is no secret; of what follows, as little shows as of a
    /// known value. What is certain was announced; line ends after it may show.
    pub(super) fn holds_past_due(&self) -> Option<u64> {
        let few = |count: u32| (count as usize) < SHOWABLE;
        if self.certain.is_some() || self.step == 0 {
            return None;
        }
        let showable = match self.spec().steps.get(self.step - 1) {
            Some(Step::Run(run)) if self.all_public_before() => {
                few(self.count) || run.port && self.count <= PORT && self.digits == self.count
            }
            Some(Step::Literal(_)) => self.all_public_before(),
            Some(Step::PrivateKey) => few(self.pem.undecided()),
            Some(Step::Run(_) | Step::Ahead(_)) | None => false,
        };
        if showable { None } else { self.secret }
    }

    fn all_public_before(&self) -> bool {
        let shown = self.spec().shown.saturating_sub(1);
        let passed = self.spec().steps.get(shown..self.step - 1).unwrap_or_default();
        passed.iter().all(|step| matches!(step, Step::Literal(_)))
    }

    /// Up to which byte of the piece another thread of the same row would add nothing. That needs a last
    /// run that swallows a whole new head: in `Bearer …Bearer …` the first token ends inside the second
    /// head.
    pub(super) fn reach(&self, progress: Progress, piece: &[u8], base: u64) -> usize {
        let Some(Step::Run(last)) = self.spec().steps.last() else { return 0 };
        let swallows = |bytes: &[u8]| bytes.iter().all(|&byte| last.class[usize::from(byte)]);
        let closed = self.spec().steps.iter().all(|step| match step {
            Step::Literal(literal) => swallows(literal),
            Step::Run(_) | Step::Ahead(_) | Step::PrivateKey => true,
        });
        if !closed || !swallows(self.head) {
            return 0;
        }
        // With one run only, the older thread is ahead of a newer one even before it is certain.
        if progress == Progress::Live && self.step == 1 && self.spec().steps.len() == 1 {
            return piece.len();
        }
        self.certain.map_or(0, |end| usize::try_from(end.saturating_sub(base)).unwrap_or(0))
    }

    /// Reads `piece` from `at` on; the piece's first byte is number `base` of the stream.
    pub(super) fn advance(&mut self, piece: &[u8], mut at: usize, base: u64) -> Progress {
        loop {
            let ended = if self.step == 0 {
                self.literal(self.head, piece, &mut at)
            } else {
                match self.spec().steps.get(self.step - 1) {
                    Some(Step::Literal(literal)) => self.literal(literal, piece, &mut at),
                    Some(Step::Run(run)) => self.run(run, piece, &mut at, base),
                    Some(Step::Ahead(byte)) => self.ahead(*byte, piece, at, base),
                    Some(Step::PrivateKey) => self.private_key(piece, &mut at, base),
                    None => Some(Progress::Ended),
                }
            };
            if let Some(progress) = ended {
                return progress;
            }
            self.step += 1;
            self.count = 0;
            self.digits = 0;
            if self.step == self.spec().shown && self.step > 0 && !self.reads_armour() {
                self.secret = Some(base + at as u64);
            }
        }
    }

    fn reads_armour(&self) -> bool {
        matches!(self.spec().steps, [Step::PrivateKey])
    }

    /// `None` when the step is complete.
    fn literal(&mut self, literal: &[u8], piece: &[u8], at: &mut usize) -> Option<Progress> {
        while let Some(&expected) = literal.get(self.count as usize) {
            match piece.get(*at) {
                None => return Some(Progress::Live),
                Some(&byte) if byte == expected => {
                    *at += 1;
                    self.count += 1;
                }
                Some(_) => return Some(Progress::Ended),
            }
        }
        None
    }

    fn run(&mut self, run: &Run, piece: &[u8], at: &mut usize, base: u64) -> Option<Progress> {
        let last = self.step == self.spec().steps.len();
        let mut open = true;
        while let Some(&byte) = piece.get(*at) {
            open = run.class[usize::from(byte)] && (last || self.count < run.max);
            if !open {
                break;
            }
            *at += 1;
            self.count = self.count.saturating_add(1);
            self.digits += u32::from(byte.is_ascii_digit() && self.digits < PORT + 1);
        }
        let enough = self.count >= run.min && (!run.digit || self.digits > 0);
        if last && enough {
            self.certain = Some(base + *at as u64);
        }
        match (open, last, enough) {
            (true, ..) => Some(Progress::Live),
            (false, false, true) => None,
            (false, ..) => Some(Progress::Ended),
        }
    }

    fn ahead(&mut self, byte: u8, piece: &[u8], at: usize, base: u64) -> Option<Progress> {
        match piece.get(at) {
            None => Some(Progress::Live),
            Some(&next) => {
                if next == byte {
                    self.certain = Some(base + at as u64);
                }
                Some(Progress::Ended)
            }
        }
    }

    fn private_key(&mut self, piece: &[u8], at: &mut usize, base: u64) -> Option<Progress> {
        while let Some(&byte) = piece.get(*at) {
            let here = base + *at as u64;
            *at += 1;
            match self.pem.push(byte) {
                Verdict::Public | Verdict::Between => {}
                Verdict::Maybe => self.secret = self.secret.or(Some(here)),
                Verdict::Secret => self.certain = Some(here + 1),
                Verdict::Last => {
                    self.certain = Some(here + 1);
                    return Some(Progress::Ended);
                }
                Verdict::No | Verdict::Over => return Some(Progress::Ended),
            }
        }
        Some(Progress::Live)
    }
}
