//! Follows the requests of one HTTP/1 connection, so that each of them, the pipelined and the kept-alive
//! ones too, names the host that was asked for. It tells how many bytes may go out; a head that is not
//! complete stays back. Bodies are only counted.

use crate::Rules;
use crate::asked::{Asked, shown};
use crate::head::{self, Body, Request};

/// Servers stop at 8 to 64 KiB; every connection may make us hold this much.
const HEAD_MOST: usize = 32 * 1024;
/// Of a chunk's size, leading zeros too: longer ones overflow in some servers.
const CHUNK_DIGITS_MOST: usize = 15;
/// A chunk's size and its extensions, which nobody uses.
const CHUNK_LINE_MOST: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Body(u64),
    ChunkSize,
    /// The data and the CRLF after it.
    Chunk {
        left: u64,
    },
    ChunkEnd,
    Trailers,
    /// The first request asked to switch protocols: nothing more goes out before the server has answered.
    AwaitsReply,
    /// It did switch.
    Switched,
    /// The last request, by its own word, is complete.
    Over,
}

#[derive(Debug)]
pub(crate) struct Tracker {
    state: State,
    requests: u64,
    /// The one whose body is passing is the last.
    last: bool,
    /// Bytes of the presented input that hold complete lines of an unfinished head.
    seen: usize,
    /// Bytes behind those that are known to hold no line's end, so that dribbled lines are looked at once.
    looked: usize,
}

/// What stands at the front of the input.
enum Lines {
    Incomplete,
    /// Up to and with the empty line.
    Until(usize),
}

impl Tracker {
    pub(crate) fn new() -> Self {
        Self { state: State::Head, requests: 0, last: false, seen: 0, looked: 0 }
    }

    pub(crate) fn awaits_reply(&self) -> bool {
        self.state == State::AwaitsReply
    }

    /// Bytes come in bulk.
    pub(crate) fn is_in_body(&self) -> bool {
        match self.state {
            State::Body(_) | State::Chunk { .. } | State::Switched => true,
            State::Head
            | State::ChunkSize
            | State::ChunkEnd
            | State::Trailers
            | State::AwaitsReply
            | State::Over => false,
        }
    }

    /// What the server's first response said; 0 where it said nothing of the kind.
    pub(crate) fn replied(&mut self, status: u16) {
        if self.state == State::AwaitsReply {
            self.state = if status == 101 { State::Switched } else { State::Head };
        }
    }

    /// How many bytes from the front may go out. The rest must be presented again, with more behind it.
    pub(crate) fn advance(
        &mut self,
        bytes: &[u8],
        asked: &Asked,
        rules: &dyn Rules,
    ) -> Result<usize, String> {
        let mut done = 0;
        // Each turn passes at least one byte or ends the loop.
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let passed = match self.state {
                State::Head => self.head(rest, asked, rules)?,
                State::Body(left) => {
                    let (passed, left) = skip(left, rest);
                    self.state = if left == 0 { self.next() } else { State::Body(left) };
                    passed
                }
                State::ChunkSize => self.chunk_size(rest)?,
                State::Chunk { left } => {
                    let (passed, left) = skip(left, rest);
                    self.state = if left == 0 { State::ChunkEnd } else { State::Chunk { left } };
                    passed
                }
                State::ChunkEnd => self.chunk_end(rest)?,
                State::Trailers => self.trailers(rest)?,
                State::AwaitsReply => 0,
                State::Switched => rest.len(),
                State::Over => return Err("more after a request with Connection: close".into()),
            };
            if passed == 0 {
                break;
            }
            done += passed;
        }
        Ok(done)
    }

    /// Once a body is complete.
    fn next(&self) -> State {
        if self.last { State::Over } else { State::Head }
    }

    fn head(&mut self, rest: &[u8], asked: &Asked, rules: &dyn Rules) -> Result<usize, String> {
        // One empty line before a request is a habit of old clients, which servers skip.
        if self.seen == 0 && rest.starts_with(b"\r\n") {
            return Ok(2);
        }
        if self.seen == 0 && rest == b"\r" {
            return Ok(0);
        }
        let end = match self.lines(rest)? {
            Lines::Incomplete if rest.len() > HEAD_MOST => {
                return Err("a request head that is too long".into());
            }
            Lines::Incomplete => return Ok(0),
            Lines::Until(end) => end,
        };
        let text = std::str::from_utf8(rest.get(..end).unwrap_or_default())
            .map_err(|_| "a request head that is no text".to_owned())?;
        let request = head::parse(text)?;
        named(&request, asked, rules)?;
        self.requests = self.requests.saturating_add(1);
        self.last = request.last;
        self.state = match request.body {
            // Only the first response of a connection can be told apart without reading them all, so
            // only the first request may switch.
            Body::Length(0) if request.upgrade && self.requests == 1 => State::AwaitsReply,
            Body::Length(0) => State::Head,
            Body::Length(length) => State::Body(length),
            Body::Chunked => State::ChunkSize,
        };
        Ok(end)
    }

    /// Looks for the empty line. Each line must end with CRLF: a lone LF or CR is an end to some servers
    /// and not to others.
    fn lines(&mut self, rest: &[u8]) -> Result<Lines, String> {
        while rest.get(self.seen + self.looked..).is_some_and(|news| news.contains(&b'\n'))
            && let Some(line) = line_of(rest.get(self.seen..).unwrap_or_default())?
        {
            self.seen += line;
            self.looked = 0;
            if line == 2 {
                return Ok(Lines::Until(std::mem::take(&mut self.seen)));
            }
        }
        self.looked = rest.len().saturating_sub(self.seen);
        Ok(Lines::Incomplete)
    }

    fn chunk_size(&mut self, rest: &[u8]) -> Result<usize, String> {
        let Some(length) = line_of(rest)? else {
            return if rest.len() > CHUNK_LINE_MOST {
                Err("a chunk line that is too long".into())
            } else {
                Ok(0)
            };
        };
        let line = rest.get(..length.saturating_sub(2)).unwrap_or_default();
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(digits)
            .ok()
            .filter(|text| {
                text.len() <= CHUNK_DIGITS_MOST && text.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
            .and_then(|text| u64::from_str_radix(text, 16).ok())
            .ok_or("a malformed chunk size")?;
        self.state = if size == 0 { State::Trailers } else { State::Chunk { left: size } };
        Ok(length)
    }

    fn chunk_end(&mut self, rest: &[u8]) -> Result<usize, String> {
        match rest {
            [b'\r', b'\n', ..] => {
                self.state = State::ChunkSize;
                Ok(2)
            }
            [b'\r'] => Ok(0),
            _ => Err("a chunk that is longer than its size".into()),
        }
    }

    fn trailers(&mut self, rest: &[u8]) -> Result<usize, String> {
        match self.lines(rest)? {
            Lines::Incomplete if rest.len() > HEAD_MOST => Err("trailers that are too long".into()),
            Lines::Incomplete => Ok(0),
            Lines::Until(end) => {
                self.state = self.next();
                Ok(end)
            }
        }
    }
}

fn named(request: &Request, asked: &Asked, rules: &dyn Rules) -> Result<(), String> {
    for said in request.target.iter().chain(&request.host) {
        if !asked.covers_authority(said, rules) {
            return Err(format!("an HTTP request for {:?}", shown(said)));
        }
    }
    Ok(())
}

fn skip(left: u64, bytes: &[u8]) -> (usize, u64) {
    let here = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if left >= here { (bytes.len(), left - here) } else { (usize::try_from(left).unwrap_or(bytes.len()), 0) }
}

/// The length of the first line with its CRLF; none where it isn't complete.
fn line_of(bytes: &[u8]) -> Result<Option<usize>, String> {
    match bytes.iter().position(|byte| *byte == b'\n') {
        None => Ok(None),
        Some(end) => {
            let line = bytes.get(..end).unwrap_or_default();
            match line.split_last() {
                Some((b'\r', line)) if !line.contains(&b'\r') => Ok(Some(end + 1)),
                _ => Err("a line that does not end with CRLF".into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::tests::{OneName, asked};
    use proptest::prelude::*;

    /// Feeds `text` in pieces of `size`; what went out, or why not.
    fn run(text: &[u8], size: usize) -> Result<usize, String> {
        let (asked, mut tracker) = (asked("a.example", 80), Tracker::new());
        let (mut held, mut out) = (Vec::new(), 0);
        for piece in text.chunks(size.max(1)) {
            held.extend_from_slice(piece);
            let passed = tracker.advance(&held, &asked, &OneName)?;
            held.drain(..passed);
            out += passed;
        }
        Ok(out)
    }

    fn passes(text: &str) {
        for size in [1, 2, 3, 7, text.len()] {
            assert_eq!(run(text.as_bytes(), size), Ok(text.len()), "{text:?} in {size}s");
        }
    }

    fn refused(text: &str) {
        for size in [1, 2, 3, 7, text.len()] {
            assert!(run(text.as_bytes(), size).is_err(), "{text:?} in {size}s");
        }
    }

    const GOOD: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    const OTHER: &str = "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n";

    #[test]
    fn requests_one_after_the_other_pass() {
        passes(GOOD);
        passes(&format!("{GOOD}\r\n{GOOD}"));
        passes(&format!("POST / HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: 5\r\n\r\nabcde{GOOD}"));
        passes(&format!(
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nab\r\n\r\n0\r\nT: 1\r\n\r\n{GOOD}"
        ));
    }

    #[test]
    fn each_request_is_checked() {
        refused(OTHER);
        refused(&format!("{GOOD}{OTHER}"));
        refused(&format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nabcde{OTHER}"));
        refused(&format!(
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n{OTHER}"
        ));
        refused("GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n");
        refused("GET http://a.example@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n");
    }

    #[test]
    fn a_request_in_a_body_is_no_request() {
        let body =
            format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n{OTHER}", OTHER.len());
        passes(&body);
    }

    #[test]
    fn broken_lines_are_refused() {
        refused("GET / HTTP/1.1\nHost: a.example\n\n");
        refused("GET / HTTP/1.1\r\nHost: a.example\r\nX: a\rHost: b.example\r\n\r\n");
        refused("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n");
        refused("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nabc\r\n");
        refused("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\r\nabc\r\n");
        refused(&format!("GET / HTTP/1.1\r\nHost: a.example\r\n{}", "X: y\r\n".repeat(20_000)));
    }

    #[test]
    fn a_body_that_servers_may_not_read_is_the_last() {
        let length = OTHER.len();
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "DELETE", "get"] {
            let sized = |more: &str| {
                format!(
                    "{method} / HTTP/1.1\r\nHost: a.example\r\n{more}Content-Length: {length}\r\n\r\n{OTHER}"
                )
            };
            let chunked = |more: &str| {
                format!(
                    "{method} / HTTP/1.1\r\nHost: a.example\r\n{more}Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
                )
            };
            for more in ["", "Connection: keep-alive\r\n", "Connection: close\r\nConnection: keep-alive\r\n"]
            {
                refused(&sized(more));
                refused(&chunked(more));
            }
            for text in [sized("Connection: close\r\n"), chunked("connection: Close\r\n")] {
                passes(&text);
                refused(&format!("{text}{GOOD}"));
            }
            passes(&format!("{method} / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n{GOOD}"));
        }
    }

    #[test]
    fn chunk_sizes_are_short() {
        let sized = |digits: &str| {
            format!(
                "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n{digits}\r\nab\r\n0\r\n\r\n"
            )
        };
        passes(&sized("000000000000002"));
        refused(&sized("0000000000000002"));
        refused(&sized("10000000000000002"));
    }

    #[test]
    fn a_switch_of_protocols_needs_the_servers_word() {
        let upgrade = b"GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\n\r\n";
        let (asked, mut tracker) = (asked("a.example", 80), Tracker::new());
        let with_more = [&upgrade[..], OTHER.as_bytes()].concat();
        assert_eq!(tracker.advance(&with_more, &asked, &OneName), Ok(upgrade.len()));
        assert!(tracker.awaits_reply());
        tracker.replied(200);
        assert!(tracker.advance(OTHER.as_bytes(), &asked, &OneName).is_err());

        let mut tracker = Tracker::new();
        assert_eq!(tracker.advance(&with_more, &asked, &OneName), Ok(upgrade.len()));
        tracker.replied(101);
        assert_eq!(tracker.advance(b"\x81\x05hello", &asked, &OneName), Ok(7));

        let mut tracker = Tracker::new();
        let second = [GOOD.as_bytes(), upgrade, OTHER.as_bytes()].concat();
        assert!(tracker.advance(&second, &asked, &OneName).is_err(), "only the first request may switch");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), size in 1_usize..40) {
            run(&bytes, size).ok();
            run(&[b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n", &bytes[..]].concat(), size).ok();
        }

        #[test]
        fn a_foreign_request_is_seen_wherever_it_stands(
            bodies in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 1..90)), 0..5),
            size in 1_usize..100,
        ) {
            let mut text = Vec::new();
            for (chunked, body) in &bodies {
                if *chunked {
                    text.extend(b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n");
                    for chunk in body.chunks(30) {
                        text.extend(format!("{:x}\r\n", chunk.len()).bytes());
                        text.extend(chunk);
                        text.extend(b"\r\n");
                    }
                    text.extend(b"0\r\n\r\n");
                } else {
                    text.extend(format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n", body.len()).bytes());
                    text.extend(body);
                }
            }
            prop_assert_eq!(run(&text, size), Ok(text.len()));
            text.extend(OTHER.bytes());
            prop_assert!(run(&text, size).is_err());
        }
    }
}
