//! A command's bytes as the inside of a JSON string, in one pass and into one buffer: decoded as UTF-8 over all of a
//! stream (a character may be cut by a frame's end), trimmed as JavaScript trims, escaped.

/// What replaces bytes that are no UTF-8.
const REPLACEMENT: &str = "\u{fffd}";

/// Takes a stream's bytes piece by piece.
#[derive(Debug)]
pub(super) struct Text<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    /// Behind the last character that is no white space; what is behind it may have to go again.
    end: usize,
    limit: usize,
    /// The beginning of a character whose rest is in the next piece.
    cut: Vec<u8>,
    truncated: bool,
}

/// Whether all of a stream is in its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Whole,
    Truncated,
}

impl<'a> Text<'a> {
    /// Appends to `out`, about `limit` bytes at most.
    pub(super) fn new(out: &'a mut Vec<u8>, limit: usize) -> Self {
        let start = out.len();
        Self { out, start, end: start, limit, cut: Vec::new(), truncated: false }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        // A character has four bytes at most, so this takes three of the next piece at most.
        while !self.cut.is_empty() {
            let Some((first, rest)) = bytes.split_first() else { return };
            let mut begun = std::mem::take(&mut self.cut);
            begun.push(*first);
            match std::str::from_utf8(&begun) {
                Ok(character) => {
                    self.add(character);
                    bytes = rest;
                }
                Err(error) if error.error_len().is_none() => {
                    self.cut = begun;
                    bytes = rest;
                }
                // The byte does not belong to it, and may begin something itself.
                Err(_) => self.add(REPLACEMENT),
            }
        }
        self.decode(bytes);
    }

    fn decode(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => return self.add(text),
                Err(error) => {
                    let (valid, invalid) = rest.split_at(error.valid_up_to());
                    self.add(std::str::from_utf8(valid).unwrap_or_default());
                    let Some(length) = error.error_len() else {
                        self.cut = invalid.to_vec();
                        return;
                    };
                    self.add(REPLACEMENT);
                    rest = invalid.get(length..).unwrap_or_default();
                }
            }
        }
    }

    fn add(&mut self, text: &str) {
        let text = if self.end == self.start { text.trim_start_matches(is_space) } else { text };
        if text.is_empty() || self.truncated {
            return;
        }
        if self.out.len() - self.start >= self.limit {
            self.truncated = true;
            return;
        }
        let solid = text.trim_end_matches(is_space);
        escape(self.out, solid);
        if !solid.is_empty() {
            self.end = self.out.len();
        }
        escape(self.out, text.get(solid.len()..).unwrap_or_default());
    }

    pub(super) fn finish(mut self) -> Fit {
        if !self.cut.is_empty() {
            self.add(REPLACEMENT);
        }
        self.out.truncate(self.end);
        if self.truncated { Fit::Truncated } else { Fit::Whole }
    }
}

/// What JavaScript's `trim` takes off: Unicode's white space without U+0085, and the byte order mark.
fn is_space(c: char) -> bool {
    c == '\u{feff}' || (c.is_whitespace() && c != '\u{85}')
}

/// As `JSON.stringify` does it: what must be escaped, and nothing else.
fn escape(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte < 0x20 || *byte == b'"' || *byte == b'\\') {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((byte, behind)) = special.split_first() else { return };
        match *byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            other => out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(other >> 4), hex(other & 15)]),
        }
        rest = behind;
    }
    out.extend_from_slice(rest);
}

const fn hex(digit: u8) -> u8 {
    if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pieces: &[&[u8]], limit: usize) -> (String, Fit) {
        let mut out = b"before ".to_vec();
        let mut text = Text::new(&mut out, limit);
        pieces.iter().for_each(|piece| text.push(piece));
        let fit = text.finish();
        (String::from_utf8(out).unwrap().strip_prefix("before ").unwrap().to_owned(), fit)
    }

    fn expected(bytes: &[u8]) -> String {
        let decoded = String::from_utf8_lossy(bytes);
        let json = serde_json::to_string(decoded.trim_matches(is_space)).unwrap();
        json[1..json.len() - 1].to_owned()
    }

    #[test]
    fn pieces_make_no_difference() {
        let wholes: [&[u8]; 9] = [
            b"",
            b" \n\t ",
            b"\xef\xbb\xbf hi \n there \x00\x1b[0m\"\\\x7f\n\n",
            "  é日本\u{1f600} \u{85}\u{a0}\u{2028}\u{3000}".as_bytes(),
            b"\xf0\x9f\x98",
            b"a\xf0\x9f\x98 \xff\xfe b \xc3",
            b"\xe2\x82\xe2\x82\xac\xed\xa0\x80 \xf4\x90\x80\x80",
            b"\xc3\xc3\xa9\xf0\x9f\xf0\x9f\x98\x80",
            b"\xa9 x \xef\xbb",
        ];
        for whole in wholes {
            let expected = (expected(whole), Fit::Whole);
            assert_eq!(text(&[whole], 1 << 20), expected, "{whole:02x?}");
            for size in 1..5 {
                let pieces: Vec<&[u8]> = whole.chunks(size).collect();
                assert_eq!(text(&pieces, 1 << 20), expected, "{whole:02x?} by {size}");
            }
        }
    }

    #[test]
    fn every_single_byte_is_as_serde_has_it() {
        for byte in 0..=255u8 {
            let whole = [b'x', byte, b'x'];
            assert_eq!(text(&[&whole], 100).0, expected(&whole), "{byte}");
        }
    }

    #[test]
    fn the_limit_is_kept_to_a_piece() {
        let (out, fit) = text(&[&[b'a'; 10], &[b'b'; 10], &[b'c'; 10]], 15);
        assert_eq!((out.len(), fit), (20, Fit::Truncated));
        assert_eq!(text(&[&[b'a'; 15]], 15).1, Fit::Whole);
    }
}
