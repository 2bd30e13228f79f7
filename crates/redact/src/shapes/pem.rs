//! The body of a private key in PEM armour, byte by byte, after `-----BEGIN `: label, optional headers,
//! base64 lines, `-----END …-----`. Newlines may be CR LF or the `\n` of a JSON string, and lines may be
//! indented. Header and armour are no secret; they show.

/// `Proc-Type`, `DEK-Info` and PGP comments fit; a BEGIN line in prose is given up after this much.
const MAX_PREAMBLE: u32 = 512;
/// A 16,384-bit RSA key is 12.5 KiB. A block without an END stops being swallowed here.
const MAX_BODY: u32 = 16 * 1024;
const MAX_LABEL: u32 = 48;
/// Base64 in one piece: the first line of the shortest key has 64; no word of prose has 40.
const MIN_WORD: u32 = 40;
const KIND: &[u8] = b"PRIVATE KEY";
const DASHES: &[u8] = b"-----";
const END: &[u8] = b"-----END ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Label,
    Open,
    Preamble,
    Body,
    End,
    EndLabel,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Pem {
    phase: Phase,
    /// Bytes in this phase, or of the literal matched so far.
    count: u32,
    /// Of `KIND` in the label; then base64 characters in one piece.
    matched: u32,
    blank: bool,
    /// The byte before was a backslash (a dash, in the preamble).
    escape: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Armour; shows.
    Public,
    /// Undecided: hold.
    Maybe,
    /// Secret up to and with this byte.
    Secret,
    /// Between lines: secret if another line follows.
    Between,
    /// Never was a key.
    No,
    /// The key ended before this byte.
    Over,
    /// The key ends with this byte.
    Last,
}

impl Pem {
    pub(super) const START: Self =
        Self { phase: Phase::Label, count: 0, matched: 0, blank: true, escape: false };

    /// Undecided bytes so far.
    pub(super) fn undecided(&self) -> u32 {
        if self.phase == Phase::Preamble { self.count } else { 0 }
    }

    pub(super) fn push(&mut self, byte: u8) -> Verdict {
        self.count += 1;
        match self.phase {
            Phase::Label => self.label(byte),
            Phase::Open => self.open(byte),
            Phase::Preamble => self.preamble(byte),
            Phase::Body => self.body(byte),
            Phase::End => self.end(byte),
            Phase::EndLabel => match byte {
                b'-' if self.matched > 0 => self.dash(),
                b'-' => {
                    self.matched = 1;
                    Verdict::Secret
                }
                b'A'..=b'Z' | b'0'..=b'9' | b' ' if self.matched == 0 && self.count <= MAX_LABEL => {
                    Verdict::Secret
                }
                _ => Verdict::Over,
            },
        }
    }

    fn enter(&mut self, phase: Phase) {
        *self = Self { phase, ..Self::START };
    }

    fn label(&mut self, byte: u8) -> Verdict {
        let whole = self.matched as usize == KIND.len();
        match byte {
            b'-' if whole => {
                self.enter(Phase::Open);
                self.count = 1;
            }
            b'A'..=b'Z' | b'0'..=b'9' | b' ' if self.count <= MAX_LABEL => {
                if !whole {
                    let next = KIND[self.matched as usize] == byte;
                    self.matched = if next { self.matched + 1 } else { u32::from(byte == KIND[0]) };
                }
            }
            _ => return Verdict::No,
        }
        Verdict::Public
    }

    fn open(&mut self, byte: u8) -> Verdict {
        if byte != b'-' {
            return Verdict::No;
        }
        if self.count as usize == DASHES.len() {
            self.enter(Phase::Preamble);
        }
        Verdict::Public
    }

    fn preamble(&mut self, byte: u8) -> Verdict {
        // `DEK-Info` has dashes, but never two in a row: those are the next armour line.
        let dashes = std::mem::replace(&mut self.escape, byte == b'-') && byte == b'-';
        match byte {
            _ if dashes => return Verdict::No,
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => self.matched += 1,
            b' ' | b'\t' | b'\r' | b'\n' | b'\\' | b':' | b',' | b'-' | b'=' | b'.' | b'(' | b')' => {
                self.matched = 0;
            }
            _ => return Verdict::No,
        }
        if self.matched >= MIN_WORD {
            self.enter(Phase::Body);
            self.blank = false;
            return Verdict::Secret;
        }
        if self.count > MAX_PREAMBLE { Verdict::No } else { Verdict::Maybe }
    }

    fn body(&mut self, byte: u8) -> Verdict {
        if self.count > MAX_BODY {
            return Verdict::Over;
        }
        let escaped = std::mem::replace(&mut self.escape, byte == b'\\');
        match byte {
            b'n' | b'r' if escaped => self.blank = true,
            _ if escaped => return Verdict::Over,
            b'\\' => {}
            b'\n' | b'\r' => self.blank = true,
            b' ' | b'\t' if self.blank => {}
            b'-' if self.blank => {
                self.enter(Phase::End);
                self.count = 1;
                return Verdict::Between;
            }
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' | b'=' => {
                self.blank = false;
                return Verdict::Secret;
            }
            _ => return Verdict::Over,
        }
        Verdict::Between
    }

    fn end(&mut self, byte: u8) -> Verdict {
        if END[self.count as usize - 1] != byte {
            return Verdict::Over;
        }
        if self.count as usize == END.len() {
            self.enter(Phase::EndLabel);
        }
        Verdict::Between
    }

    fn dash(&mut self) -> Verdict {
        self.matched += 1;
        if self.matched as usize == DASHES.len() { Verdict::Last } else { Verdict::Secret }
    }
}
