//! Which protocol a client's first bytes start. Looks more leniently than any server: what might be taken
//! for a TLS record or a request line is read as one, strictly, by what follows. It holds only what could
//! still become a request line, for a protocol of another kind may wait for its answer.

use crate::head::is_token;

/// A request line, before it is known to be one.
const LINE_MOST: usize = 16 * 1024;
/// Blanks before it.
const BLANK_MOST: usize = 32;

/// The first word of the PROXY protocol, and what its second version starts with: a server that takes it reads
/// the request behind it, as coming from whomever it names.
const PROXY: &[u8] = b"PROXY";
const PROXY_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const BARE: &str = "an HTTP request without a version";
const PROXIED: &str = "an address of another client (PROXY protocol)";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    Unknown,
    Tls,
    Http,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Before,
    Word,
    Line,
}

/// How far the first line was looked at, so that dribbled bytes are looked at once.
#[derive(Debug)]
pub(crate) struct FirstLine {
    place: Place,
    looked: usize,
    start: usize,
}

impl FirstLine {
    pub(crate) fn new() -> Self {
        Self { place: Place::Before, looked: 0, start: 0 }
    }

    /// `bytes` is all that has come so far.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Opening, String> {
        match bytes {
            [] | [0x14..=0x17] => return Ok(Opening::Unknown),
            // Whatever calls itself a record, of whatever version, must turn out to be a ClientHello.
            [0x14..=0x17, 0..=0x0f, ..] => return Ok(Opening::Tls),
            bytes if bytes.starts_with(PROXY_2) => return Err(PROXIED.into()),
            bytes if PROXY_2.starts_with(bytes) => return Ok(Opening::Unknown),
            bytes if is_ldap(bytes) => return Ok(self.at_hand(bytes)),
            _ => {}
        }
        for (at, byte) in bytes.iter().copied().enumerate().skip(self.looked) {
            match self.step(bytes, at, byte)? {
                Opening::Unknown => {}
                known @ (Opening::Tls | Opening::Http | Opening::Other) => return Ok(known),
            }
        }
        self.looked = bytes.len();
        Ok(Opening::Unknown)
    }

    fn step(&mut self, bytes: &[u8], at: usize, byte: u8) -> Result<Opening, String> {
        match self.place {
            Place::Before if is_blank(byte) && at >= BLANK_MOST => {
                return Err("a first line that is blank for too long".into());
            }
            Place::Before if is_blank(byte) => return Ok(Opening::Unknown),
            Place::Before => {
                self.start = at;
                self.place = Place::Word;
                if !is_token(byte) {
                    return Ok(self.at_hand(bytes));
                }
            }
            Place::Word if is_blank(byte) && self.line(bytes, at).eq_ignore_ascii_case(PROXY) => {
                return Err(PROXIED.into());
            }
            Place::Word if is_blank(byte) => self.place = Place::Line,
            // No method has such a byte in it, however long it is.
            Place::Word if !byte.is_ascii_graphic() => return Ok(self.at_hand(bytes)),
            Place::Line if byte == 0 && is_git(self.line(bytes, at)) => return Ok(self.at_hand(bytes)),
            Place::Word | Place::Line => {}
        }
        let line = self.line(bytes, at + 1);
        if line.last_chunk::<5>().is_some_and(|end| contains_version(end)) {
            return Ok(Opening::Http);
        }
        match byte {
            b'\n' if is_bare_get(line) => Err(BARE.into()),
            b'\n' => Ok(Opening::Other),
            _ if line.len() > LINE_MOST => Err("a first line that is too long".into()),
            _ => Ok(Opening::Unknown),
        }
    }

    /// Nothing follows: some servers take a bare request at the end, too.
    pub(crate) fn end(&self, bytes: &[u8]) -> Result<(), String> {
        if is_bare_get(self.line(bytes, bytes.len())) { Err(BARE.into()) } else { Ok(()) }
    }

    /// No request line by its first bytes, and not held for more; unless it names the protocol already.
    fn at_hand(&self, bytes: &[u8]) -> Opening {
        let line = self.line(bytes, bytes.len());
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if contains_version(line) { Opening::Http } else { Opening::Other }
    }

    fn line<'a>(&self, bytes: &'a [u8], end: usize) -> &'a [u8] {
        bytes.get(self.start..end).unwrap_or_default()
    }
}

/// What splits words for any server: some decode the line as Latin-1 and split as Unicode has it.
fn is_blank(byte: u8) -> bool {
    matches!(byte, 0x09..=0x0d | 0x1c..=0x20 | 0x85 | 0xa0)
}

fn contains_version(line: &[u8]) -> bool {
    line.windows(5).any(|part| part.eq_ignore_ascii_case(b"HTTP/"))
}

/// A short LDAP message: a sequence, whose length may look like a blank, that starts with a number.
fn is_ldap(bytes: &[u8]) -> bool {
    matches!(bytes, [0x30, _, 0x02, 1..=4, ..])
}

/// The one packet of git's own protocol, which ends without a line's end: four digits and the service.
fn is_git(line: &[u8]) -> bool {
    line.split_at_checked(4).is_some_and(|(length, rest)| {
        length.iter().all(u8::is_ascii_hexdigit)
            && [&b"git-upload-pack "[..], b"git-receive-pack ", b"git-upload-archive "]
                .iter()
                .any(|service| rest.starts_with(service))
    })
}

/// `GET /…`, the request of HTTP/0.9, to which some servers still listen.
fn is_bare_get(line: &[u8]) -> bool {
    let mut words = line.split(|byte| is_blank(*byte)).filter(|word| !word.is_empty());
    words.next().is_some_and(|method| method.eq_ignore_ascii_case(b"GET"))
        && words.next().is_some_and(|target| target.starts_with(b"/") || target.contains(&b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In one piece and byte by byte.
    fn both(bytes: &[u8]) -> [Result<Opening, String>; 2] {
        let mut line = FirstLine::new();
        let mut dribbled = Ok(Opening::Unknown);
        for end in 1..=bytes.len() {
            dribbled = line.read(&bytes[..end]);
            if dribbled != Ok(Opening::Unknown) {
                break;
            }
        }
        [FirstLine::new().read(bytes), dribbled]
    }

    #[test]
    fn odd_request_lines_are_http() {
        let long = "M".repeat(5000);
        for text in [
            format!("{long} / HTTP/1.1\r\n"),
            "GET /\x01 HTTP/1.1\r\n".to_owned(),
            "GET /\0 HTTP/1.1\r\n".to_owned(),
            "GET\x0b\x02 http/1.1\n".to_owned(),
            "GET/ HTTP/1.1\r\n".to_owned(),
            "G(T / HTTP/1.1\r\n".to_owned(),
        ] {
            assert_eq!(both(text.as_bytes()), [Ok(Opening::Http), Ok(Opening::Http)], "{text:?}");
        }
        assert_eq!(FirstLine::new().read(b"\x01GET / HTTP/1.1\r\n"), Ok(Opening::Http));
    }

    #[test]
    fn a_word_is_held_until_its_line_ends_and_not_for_ever() {
        assert_eq!(both("M".repeat(5000).as_bytes()), [Ok(Opening::Unknown), Ok(Opening::Unknown)]);
        let [whole, dribbled] = both("M".repeat(LINE_MOST + 1).as_bytes());
        assert!(whole.is_err() && dribbled.is_err());
        assert!(both(b"GET /\x01\n").iter().all(Result::is_err));
    }

    #[test]
    fn records_of_any_version_are_tls() {
        for bytes in [&[0x15, 3, 1][..], &[0x16, 4, 1], &[0x14, 0], &[0x17, 15], &[0x16, 2]] {
            assert_eq!(both(bytes), [Ok(Opening::Tls), Ok(Opening::Tls)], "{bytes:?}");
        }
        assert_eq!(both(&[0x16]), [Ok(Opening::Unknown), Ok(Opening::Unknown)]);
    }

    #[test]
    fn another_clients_address_is_refused() {
        let request = b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n";
        let first = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n";
        let second = [PROXY_2, &[0x21, 0x11, 0, 12], &[1; 12]].concat();
        for opening in [&first[..], b"PROXY UNKNOWN\r\n", b"PROXY ", b"\r\nproxy\tTCP6", &second, PROXY_2] {
            for bytes in [opening, &[opening, request].concat()] {
                assert_eq!(both(bytes), [Err(PROXIED.to_owned()), Err(PROXIED.to_owned())], "{bytes:?}");
            }
        }
        assert_eq!(both(b"PROXYING is fine\n"), [Ok(Opening::Other), Ok(Opening::Other)]);
        assert_eq!(both(b"\r\n\r\n\0\r\nX"), [Ok(Opening::Other), Ok(Opening::Other)]);
    }

    #[test]
    fn each_byte_is_looked_at_once() {
        let mut line = FirstLine::new();
        let bytes = [b"WORD ".as_slice(), &[b'x'; 9000]].concat();
        assert_eq!(line.read(&bytes), Ok(Opening::Unknown));
        assert_eq!(line.looked, bytes.len());
        // What was looked at may not be looked at again: here it would end the line.
        let mut changed = bytes.clone();
        changed[100] = b'\n';
        changed.push(b'x');
        assert_eq!(line.read(&changed), Ok(Opening::Unknown));
    }
}
