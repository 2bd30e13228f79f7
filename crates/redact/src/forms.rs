//! Every form in which a value may leave a command: as it is, base64, hex, percent-encoded, as JSON
//! string text, with terminal line ends, and a long value's lines one by one. Pure; visits each form
//! once or more, the trie drops repeats. What a form ends in matters: see `base64`.

use zeroize::Zeroizing;

/// A line of a multi-line value that is redacted on its own (a PEM body line has 64 or 70). Shorter
/// ones are often structure: braces, field names.
const MIN_LINE: usize = 16;
/// Line lengths of `base64` and MIME, of PEM and `openssl base64`.
const BASE64_WRAPS: [usize; 2] = [76, 64];
/// Line length of `xxd -p`.
const HEX_WRAP: usize = 60;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

type Visit<'a> = dyn FnMut(&[u8]) + 'a;

pub(crate) fn visit(value: &[u8], visit: &mut Visit<'_>) {
    raw(value, visit);
    for alphabet in [STANDARD, URL_SAFE] {
        for before in 0..3 {
            base64(value, before, alphabet, visit);
        }
    }
    for digits in [LOWER, UPPER] {
        hex(value, digits, visit);
        percent(value, digits, visit);
        json(value, digits, visit);
    }
}

fn scratch(capacity: usize) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(Vec::with_capacity(capacity))
}

fn raw(value: &[u8], visit: &mut Visit<'_>) {
    visit(value);
    if !value.contains(&b'\n') {
        return;
    }
    // A terminal prints every newline as CR LF; a file with CR LF may be normalised on the way.
    let mut lf = scratch(value.len());
    for (at, &b) in value.iter().enumerate() {
        if b != b'\r' || value.get(at + 1) != Some(&b'\n') {
            lf.push(b);
        }
    }
    visit(&lf);
    let mut crlf = scratch(lf.len() * 2);
    for &b in lf.iter() {
        if b == b'\n' {
            crlf.push(b'\r');
        }
        crlf.push(b);
    }
    visit(&crlf);
    for line in lf.split(|&b| b == b'\n').map(<[u8]>::trim_ascii) {
        // The armour is the same in everybody's key.
        if line.len() >= MIN_LINE && !line.starts_with(b"-----") {
            visit(line);
        }
    }
}

/// The characters that the value alone decides when `before` (mod 3) bytes precede it in a larger
/// text. The character after them carries the value's last 2 or 4 bits and someone else's: each of
/// its 16 or 4 spellings is a form, so that it goes too. The one before them keeps up to 4 bits of the
/// first byte: covering it would need every form 16 times.
fn base64(value: &[u8], before: usize, alphabet: &[u8; 64], visit: &mut Visit<'_>) {
    let mut bits = scratch(value.len() + 5);
    bits.resize(before, 0);
    bits.extend_from_slice(value);
    bits.extend_from_slice(&[0, 0]);
    let mut sextets = scratch(bits.len() / 3 * 4 + 4);
    for group in bits.chunks(3) {
        let byte = |at: usize| group.get(at).copied().unwrap_or(0);
        sextets.push(byte(0) >> 2);
        sextets.push((byte(0) & 3) << 4 | byte(1) >> 4);
        sextets.push((byte(1) & 15) << 2 | byte(2) >> 6);
        sextets.push(byte(2) & 63);
    }
    let known_bits = (before + value.len()) * 8;
    let (first, last) = ((before * 8).div_ceil(6), known_bits / 6);
    let mut text = scratch(sextets.len() + 2);
    text.extend(sextets[first..last].iter().map(|&s| alphabet[usize::from(s)]));
    let mut emit = |text: &[u8]| {
        visit(text);
        if before == 0 {
            BASE64_WRAPS.iter().for_each(|&width| wrap(text, width, visit));
        }
    };
    emit(&text);
    let pads: &[u8] = match known_bits % 6 {
        2 => b"==",
        4 => b"=",
        _ => return,
    };
    let open = 1_u8 << (2 * pads.len());
    for low in 0..open {
        text.push(alphabet[usize::from(sextets[last] | low)]);
        emit(&text);
        text.pop();
    }
    text.push(alphabet[usize::from(sextets[last])]);
    text.extend_from_slice(pads);
    emit(&text);
}

fn hex(value: &[u8], digits: &[u8; 16], visit: &mut Visit<'_>) {
    let mut text = scratch(value.len() * 2);
    for &b in value {
        text.extend_from_slice(&pair(b, digits));
    }
    visit(&text);
    wrap(&text, HEX_WRAP, visit);
}

fn pair(b: u8, digits: &[u8; 16]) -> [u8; 2] {
    [digits[usize::from(b >> 4)], digits[usize::from(b & 15)]]
}

fn wrap(text: &[u8], width: usize, visit: &mut Visit<'_>) {
    if text.len() <= width {
        return;
    }
    for end in [&b"\n"[..], b"\r\n"] {
        let mut wrapped = scratch(text.len() + (text.len() / width + 1) * end.len());
        for (at, line) in text.chunks(width).enumerate() {
            if at > 0 {
                wrapped.extend_from_slice(end);
            }
            wrapped.extend_from_slice(line);
        }
        visit(&wrapped);
    }
}

/// What stays unescaped: nothing; RFC 3986 unreserved (curl, Python `quote(safe="")`); Python's
/// `quote`; JavaScript's `encodeURIComponent`; its `encodeURI`.
const PERCENT_KEEPS: [Option<&[u8]>; 5] =
    [None, Some(b"-._~"), Some(b"-._~/"), Some(b"-_.!~*'()"), Some(b"-_.!~*'();/?:@&=+$,#")];

fn percent(value: &[u8], digits: &[u8; 16], visit: &mut Visit<'_>) {
    for keeps in PERCENT_KEEPS {
        for plus in [false, true] {
            let mut text = scratch(value.len() * 3);
            for &b in value {
                match keeps {
                    Some(_) if plus && b == b' ' => text.push(b'+'),
                    Some(keeps) if b.is_ascii_alphanumeric() || keeps.contains(&b) => text.push(b),
                    _ => {
                        text.push(b'%');
                        text.extend_from_slice(&pair(b, digits));
                    }
                }
            }
            visit(&text);
        }
    }
}

/// The choices encoders differ in: `\/`, `\n` or `\u000a`, `\u003c` for HTML, `\u00e9` for `é`.
#[derive(Clone, Copy)]
struct JsonStyle<'a> {
    slash: bool,
    short: bool,
    html: bool,
    ascii: bool,
    digits: &'a [u8; 16],
}

fn json(value: &[u8], digits: &[u8; 16], visit: &mut Visit<'_>) {
    for bits in 0..16_u8 {
        let on = |n: u8| bits >> n & 1 == 1;
        let style = JsonStyle { slash: on(0), short: on(1), html: on(2), ascii: on(3), digits };
        visit(&json_text(value, style));
    }
}

fn json_text(value: &[u8], style: JsonStyle<'_>) -> Zeroizing<Vec<u8>> {
    let mut text = scratch(value.len() * 6);
    for part in value.utf8_chunks() {
        for c in part.valid().chars() {
            json_char(c, style, &mut text);
        }
        text.extend_from_slice(part.invalid());
    }
    text
}

fn json_char(c: char, style: JsonStyle<'_>, text: &mut Vec<u8>) {
    let short = match c {
        '"' | '\\' => Some(c),
        '/' if style.slash => Some('/'),
        '\n' if style.short => Some('n'),
        '\r' if style.short => Some('r'),
        '\t' if style.short => Some('t'),
        '\u{8}' if style.short => Some('b'),
        '\u{c}' if style.short => Some('f'),
        _ => None,
    };
    let long = c < ' '
        || style.ascii && c >= '\u{7f}'
        || style.html && matches!(c, '<' | '>' | '&' | '\'' | '\u{2028}' | '\u{2029}');
    let mut buffer = [0; 4];
    if let Some(short) = short {
        text.push(b'\\');
        text.extend_from_slice(short.encode_utf8(&mut buffer).as_bytes());
    } else if long {
        for unit in c.encode_utf16(&mut [0; 2]) {
            text.extend_from_slice(b"\\u");
            for b in unit.to_be_bytes() {
                text.extend_from_slice(&pair(b, style.digits));
            }
        }
    } else {
        text.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(value: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        visit(value, &mut |form| found.push(form.to_vec()));
        found.sort();
        found.dedup();
        found
    }

    fn has(value: &[u8], form: &[u8]) -> bool {
        all(value).iter().any(|known| known == form)
    }

    #[test]
    fn base64_standalone_and_inside_a_larger_text() {
        let value = b"hunter2-hunter2?"; // aHVudGVyMi1odW50ZXIyPw==
        for form in ["aHVudGVyMi1odW50ZXIyPw==", "aHVudGVyMi1odW50ZXIyPw", "aHVudGVyMi1odW50ZXIyP"] {
            assert!(has(value, form.as_bytes()), "{form}");
        }
        // base64("x" + value) is eGh1bnRlcjItaHVudGVyMj8=, base64("xy" + value) eHlodW50ZXIyLWh1bnRlcjI/.
        assert!(has(value, b"h1bnRlcjItaHVudGVyMj8="));
        assert!(has(value, b"odW50ZXIyLWh1bnRlcjI/"));
        assert!(has(value, b"odW50ZXIyLWh1bnRlcjI_"));
    }

    #[test]
    fn escapes_of_uri_and_json() {
        let value = b"a b/\"<\n\xc3\xa9&+";
        for form in [
            "a%20b%2F%22%3C%0A%C3%A9%26%2B",
            "a+b%2F%22%3C%0A%C3%A9%26%2B",
            "a%20b/%22%3c%0a%c3%a9%26%2b",
            "%61%20%62%2F%22%3C%0A%C3%A9%26%2B",
            "a b/\\\"<\\n\u{e9}&+",
            "a b\\/\\\"<\\n\\u00e9&+",
            "a b/\\\"\\u003c\\u000a\\u00E9\\u0026+",
            "6120622f223c0ac3a9262b",
            "6120622F223C0AC3A9262B",
        ] {
            assert!(has(value, form.as_bytes()) || form.contains("003c") && form.contains("00E9"), "{form}");
        }
        assert!(has(value, b"a b/\\\"\\u003c\\u000a\\u00e9\\u0026+"));
    }

    #[test]
    fn long_lines_alone_without_the_armour() {
        let value = b"-----BEGIN PRIVATE KEY-----\n0123456789abcdef\nshort\n-----END PRIVATE KEY-----";
        assert!(has(value, b"0123456789abcdef"));
        assert!(!has(value, b"short"));
        assert!(!has(value, b"-----BEGIN PRIVATE KEY-----"));
        assert!(all(value).iter().any(|form| form.windows(3).any(|w| w == b"f\r\n")));
    }

    #[test]
    fn wrapped_as_the_tools_wrap() {
        let value = [b'k'; 60];
        assert!(all(&value).iter().any(|form| form.get(76) == Some(&b'\n')));
        assert!(all(&value).iter().any(|form| form.get(60) == Some(&b'\n')));
    }

    #[test]
    fn no_form_is_shorter_than_the_shortest_secret() {
        for length in crate::MIN_SECRET..40 {
            let value: Vec<u8> = (0..length).map(|n| u8::try_from(n * 37 % 256).unwrap()).collect();
            assert!(all(&value).iter().all(|form| form.len() >= crate::MIN_SECRET));
        }
    }
}
