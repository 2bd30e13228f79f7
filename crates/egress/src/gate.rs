//! What the client's bytes must pass before any of them goes out. The address already decides where a
//! connection goes; the gate closes what one address can serve for many names: TLS by its server name,
//! HTTP/1 by every request's Host. Other protocols pass untouched, and so does TLS or HTTP that starts
//! after an exchange of another kind (STARTTLS).

use std::sync::Arc;

use crate::Rules;
use crate::answer::Answer;
use crate::asked::{Asked, shown};
use crate::hello::{self, Hello, Scan};
use crate::http::Tracker;
use crate::opening::{FirstLine, Opening};

const RECORD_HEAD: usize = 5;
/// Larger records break the protocol; the server refuses them.
const RECORD_MOST: usize = 16 * 1024 + 2048;

const ENCRYPTED: &str = "a TLS server name that is encrypted (ECH); Chromium is to be started with \
                         --disable-features=EncryptedClientHello";

/// What may go out now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Just the bytes that were fed.
    All,
    /// These; the rest is held.
    Bytes(Vec<u8>),
}

enum Mode {
    Opening(FirstLine),
    /// Before the first ClientHello, and after it until the handshake is encrypted: the second hello that
    /// a server may ask for could name another host.
    Tls(Talk),
    Http(Tracker),
    Open,
}

/// The client's side of a TLS handshake.
#[derive(Debug, Clone, Copy, Default)]
struct Talk {
    /// Those that passed.
    hellos: usize,
    /// Bytes of a message that go on in the next record.
    left: usize,
}

pub(crate) struct Gate {
    asked: Asked,
    rules: Arc<dyn Rules>,
    mode: Mode,
    held: Vec<u8>,
    /// Nothing new can be said before this many bytes are held.
    need: usize,
    answer: Answer,
}

impl Gate {
    pub(crate) fn new(asked: Asked, rules: Arc<dyn Rules>) -> Self {
        let mode = Mode::Opening(FirstLine::new());
        Self { asked, rules, mode, held: Vec::new(), need: 0, answer: Answer::None }
    }

    /// The server's answer to a hello decides when the watch ends.
    pub(crate) fn awaits_answer(&self) -> bool {
        match &self.mode {
            Mode::Tls(_) => self.answer == Answer::None,
            Mode::Opening(_) | Mode::Http(_) | Mode::Open => false,
        }
    }

    /// To be told before the bytes that the client sent after it.
    pub(crate) fn answered(&mut self, answer: Answer) {
        self.answer = answer;
    }

    /// Nothing of the next read is likely to be held.
    pub(crate) fn is_in_bulk(&self) -> bool {
        match &self.mode {
            Mode::Open => true,
            Mode::Http(tracker) => tracker.is_in_body(),
            Mode::Opening(_) | Mode::Tls(_) => false,
        }
    }

    /// Bytes wait for more.
    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty() && !self.awaits_reply()
    }

    pub(crate) fn awaits_reply(&self) -> bool {
        match &self.mode {
            Mode::Http(tracker) => tracker.awaits_reply(),
            Mode::Opening(_) | Mode::Tls(_) | Mode::Open => false,
        }
    }

    /// The server's first word, once [`awaits_reply`](Self::awaits_reply).
    pub(crate) fn replied(&mut self, status: u16) -> Result<Vec<u8>, String> {
        if let Mode::Http(tracker) = &mut self.mode {
            tracker.replied(status);
        }
        self.release()
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Pass, String> {
        if self.held.is_empty() {
            match &mut self.mode {
                Mode::Open => return Ok(Pass::All),
                // A body goes through without a copy.
                Mode::Http(tracker) => {
                    let passed = tracker.advance(bytes, &self.asked, self.rules.as_ref())?;
                    if passed == bytes.len() {
                        return Ok(Pass::All);
                    }
                    let (out, rest) = bytes.split_at_checked(passed).unwrap_or((bytes, &[]));
                    self.held.extend_from_slice(rest);
                    return Ok(Pass::Bytes(out.to_vec()));
                }
                Mode::Opening(_) | Mode::Tls(_) => {}
            }
        }
        self.held.extend_from_slice(bytes);
        if self.held.len() < self.need {
            return Ok(Pass::Bytes(Vec::new()));
        }
        self.release().map(Pass::Bytes)
    }

    /// The client is done. Held bytes that could be no protocol we know go out; none where it ended in the
    /// middle of a message.
    pub(crate) fn finish(&mut self) -> Result<Option<Vec<u8>>, String> {
        match &self.mode {
            Mode::Opening(line) => {
                line.end(&self.held)?;
                Ok(Some(std::mem::take(&mut self.held)))
            }
            Mode::Tls(_) | Mode::Http(_) | Mode::Open => Ok(self.held.is_empty().then(Vec::new)),
        }
    }

    fn release(&mut self) -> Result<Vec<u8>, String> {
        self.need = 0;
        if let Mode::Opening(line) = &mut self.mode {
            match line.read(&self.held)? {
                Opening::Unknown => return Ok(Vec::new()),
                Opening::Tls => self.mode = Mode::Tls(Talk::default()),
                Opening::Http => self.mode = Mode::Http(Tracker::new()),
                Opening::Other => self.mode = Mode::Open,
            }
        }
        let passed = match &mut self.mode {
            Mode::Opening(_) => 0,
            Mode::Open => self.held.len(),
            Mode::Http(tracker) => tracker.advance(&self.held, &self.asked, self.rules.as_ref())?,
            Mode::Tls(_) => self.records()?,
        };
        let rest = self.held.split_off(passed.min(self.held.len()));
        Ok(std::mem::replace(&mut self.held, rest))
    }

    /// Walks TLS records until no hello can follow in plain text. How many bytes may go out.
    fn records(&mut self) -> Result<usize, String> {
        let Mode::Tls(mut talk) = self.mode else { return Ok(0) };
        let mut done = 0;
        // Each turn passes a record or ends the loop.
        loop {
            let rest = self.held.get(done..).unwrap_or_default();
            match talk.record(rest, self.answer)? {
                Record::Need(count) => {
                    self.need = count;
                    break;
                }
                Record::Plain(length) => done += length,
                Record::Hello(hello) => {
                    self.greeting(&hello)?;
                    talk.hellos = talk.hellos.saturating_add(1);
                    done += hello.end;
                }
                Record::Encrypted => {
                    self.mode = Mode::Open;
                    return Ok(self.held.len());
                }
            }
        }
        self.mode = Mode::Tls(talk);
        Ok(done)
    }

    fn greeting(&self, hello: &Hello) -> Result<(), String> {
        if hello.encrypted {
            return Err(ENCRYPTED.into());
        }
        // Its data may hide a second hello: the server skips it when it asks for one.
        if hello.early {
            return Err("TLS early data".into());
        }
        match &hello.name {
            Some(name) if !self.asked.covers(name, self.rules.as_ref()) => {
                Err(format!("a TLS server name {:?}", shown(name)))
            }
            Some(_) | None => Ok(()),
        }
    }
}

enum Record {
    Need(usize),
    Plain(usize),
    Hello(Hello),
    Encrypted,
}

impl Talk {
    /// What stands at the front of `rest`, which starts with a record. The client speaks plain text until it
    /// has the server's choice; a hello that follows one is the second of a retry.
    fn record(&mut self, rest: &[u8], answer: Answer) -> Result<Record, String> {
        if self.hellos == 0 {
            return scanned(rest);
        }
        let &[kind, _, _, high, low, ref more @ ..] = rest else { return Ok(Record::Need(RECORD_HEAD)) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let may_encrypt = match answer {
            Answer::Chosen => true,
            Answer::Retry => self.hellos > 1,
            Answer::None => false,
        };
        match kind {
            0x17 if may_encrypt => return Ok(Record::Encrypted),
            0x17 => return Err("TLS data before the server's answer".into()),
            0x16 if answer != Answer::Chosen => return scanned(rest),
            0x14..=0x16 if length > RECORD_MOST => return Err("a TLS record that is too long".into()),
            0x14..=0x16 => {}
            _ => return Err("a TLS record of an unknown kind".into()),
        }
        let Some(body) = more.get(..length) else { return Ok(Record::Need(RECORD_HEAD + length)) };
        match kind {
            // Up to TLS 1.2 what follows is encrypted, and before a retry it may mean nothing at all.
            0x14 if answer == Answer::Chosen => return Ok(Record::Encrypted),
            0x16 => self.messages(body)?,
            // Change of cipher, alert: no names in them.
            _ => {}
        }
        Ok(Record::Plain(RECORD_HEAD + length))
    }

    /// The client's plain messages up to TLS 1.2. Old servers start over at a hello among them.
    fn messages(&mut self, mut body: &[u8]) -> Result<(), String> {
        // Each turn takes a message's head or ends the loop.
        loop {
            let (_, rest) = body.split_at_checked(self.left).unwrap_or((body, &[]));
            self.left -= body.len() - rest.len();
            body = rest;
            match *body {
                [] => return Ok(()),
                [1, ..] => return Err("a TLS hello after the server's answer".into()),
                [_, high, middle, low, ref rest @ ..] => {
                    let length = u32::from_be_bytes([0, high, middle, low]);
                    self.left = usize::try_from(length).unwrap_or(usize::MAX);
                    body = rest;
                }
                _ => return Err("a TLS handshake in pieces".into()),
            }
        }
    }
}

fn scanned(rest: &[u8]) -> Result<Record, String> {
    match hello::scan(rest) {
        Scan::Need(count) => Ok(Record::Need(count)),
        Scan::Found(hello) => Ok(Record::Hello(hello)),
        Scan::Malformed(reason) => Err(format!("a TLS hello that can't be read: {reason}")),
    }
}

#[cfg(test)]
mod tests;
