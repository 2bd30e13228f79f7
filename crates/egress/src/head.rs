//! Reads one HTTP/1 request head, strictly: whatever two servers could understand differently is
//! refused, for the difference is where a second, unseen request hides.

/// Upgrades under which names would travel unseen. The request itself may pass; the switch may not.
const HIDING: [&str; 2] = ["h2c", "tls"];
/// Methods whose body some servers don't read: they take it for the next request.
const BODILESS: [&str; 5] = ["GET", "HEAD", "OPTIONS", "TRACE", "DELETE"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Length(u64),
    Chunked,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) host: Option<String>,
    /// The authority of an absolute-form target.
    pub(crate) target: Option<String>,
    pub(crate) body: Body,
    /// The server may answer 101, after which the bytes are no longer HTTP.
    pub(crate) upgrade: bool,
    /// No request may follow.
    pub(crate) last: bool,
}

/// `head` ends with the empty line, and each of its lines with CRLF.
pub(crate) fn parse(head: &str) -> Result<Request, &'static str> {
    let mut lines = head.split("\r\n");
    let Line { target, version, bodiless } = request_line(lines.next().unwrap_or_default())?;
    let mut fields = Fields::default();
    for line in lines.take_while(|line| !line.is_empty()) {
        fields.read(line)?;
    }
    if fields.host.is_none() && version == Version::OneOne {
        return Err("an HTTP/1.1 request without a Host");
    }
    let body = match (fields.length, fields.chunked) {
        (Some(_), true) => return Err("both Content-Length and Transfer-Encoding"),
        (None, true) if version == Version::OneZero => return Err("Transfer-Encoding in HTTP/1.0"),
        (None, true) => Body::Chunked,
        (length, false) => Body::Length(length.unwrap_or(0)),
    };
    let last = bodiless && body != Body::Length(0);
    if last && !fields.close.unwrap_or(false) {
        return Err("a body of a request that has none by its method, without Connection: close");
    }
    let upgrade = fields.upgrade.unwrap_or(false) && body == Body::Length(0);
    Ok(Request { host: fields.host, target, body, upgrade, last })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    OneZero,
    OneOne,
}

struct Line {
    target: Option<String>,
    version: Version,
    /// By its method.
    bodiless: bool,
}

fn request_line(line: &str) -> Result<Line, &'static str> {
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("a malformed request line");
    };
    let version = match version {
        "HTTP/1.1" => Version::OneOne,
        "HTTP/1.0" => Version::OneZero,
        "HTTP/2.0" => return Err("HTTP/2 in clear text"),
        _ => return Err("an unknown HTTP version"),
    };
    if method.is_empty() || !method.bytes().all(is_token) || target.is_empty() {
        return Err("a malformed request line");
    }
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a malformed request target");
    }
    // Some servers know methods in any case.
    if method.eq_ignore_ascii_case("CONNECT") {
        return Err("CONNECT");
    }
    let bodiless = BODILESS.iter().any(|known| method.eq_ignore_ascii_case(known));
    Ok(Line { target: authority(target)?, version, bodiless })
}

fn authority(target: &str) -> Result<Option<String>, &'static str> {
    if target.starts_with('/') || target == "*" {
        return Ok(None);
    }
    let Some((scheme, rest)) = target.split_once("://") else {
        return Err("a request target that is neither a path nor a URL");
    };
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err("a request target that is neither a path nor a URL");
    }
    Ok(Some(rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned()))
}

#[derive(Default)]
struct Fields {
    host: Option<String>,
    length: Option<u64>,
    chunked: bool,
    upgrade: Option<bool>,
    /// Every Connection header says so, and nothing else.
    close: Option<bool>,
}

impl Fields {
    fn read(&mut self, line: &str) -> Result<(), &'static str> {
        if line.starts_with([' ', '\t']) {
            return Err("a folded header line");
        }
        let (name, value) = line.split_once(':').ok_or("a header line without a colon")?;
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err("a malformed header name");
        }
        if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            return Err("a control character in a header");
        }
        let value = value.trim_matches([' ', '\t']);
        match name.to_ascii_lowercase().as_str() {
            "host" if self.host.is_some() => return Err("two Host headers"),
            "host" => self.host = Some(value.to_owned()),
            "content-length" => {
                let length = content_length(value)?;
                if self.length.is_some_and(|before| before != length) {
                    return Err("two differing Content-Lengths");
                }
                self.length = Some(length);
            }
            "transfer-encoding" if self.chunked => return Err("two Transfer-Encodings"),
            "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => self.chunked = true,
            "transfer-encoding" => return Err("a Transfer-Encoding other than chunked"),
            "upgrade" if self.upgrade.is_some() => return Err("two Upgrade headers"),
            "upgrade" => self.upgrade = Some(may_switch(value)),
            "connection" => {
                self.close = Some(self.close.unwrap_or(true) && value.eq_ignore_ascii_case("close"));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Digits only: `+5`, `5, 5` and `0x5` are read differently by different servers.
fn content_length(value: &str) -> Result<u64, &'static str> {
    const BROKEN: &str = "a malformed Content-Length";
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BROKEN);
    }
    value.parse().map_err(|_| BROKEN)
}

fn may_switch(value: &str) -> bool {
    value.split(',').all(|protocol| {
        let word = protocol.trim().to_ascii_lowercase();
        !word.is_empty() && !HIDING.iter().any(|hiding| word.starts_with(hiding))
    })
}

pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(head: &str) -> Request {
        parse(head).unwrap()
    }

    #[test]
    fn plain_requests_are_read() {
        let request = parsed("GET /x HTTP/1.1\r\nHost:\ta.example \r\n\r\n");
        assert_eq!(request.host.as_deref(), Some("a.example"));
        assert_eq!(request.body, Body::Length(0));
        let request = parsed("POST http://b.example:81?q HTTP/1.1\r\nhost: a\r\nContent-Length: 7\r\n\r\n");
        assert_eq!(request.target.as_deref(), Some("b.example:81"));
        assert_eq!(request.body, Body::Length(7));
        assert_eq!(
            parsed("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n").body,
            Body::Chunked
        );
        assert_eq!(parsed("GET / HTTP/1.0\r\n\r\n").host, None);
        assert!(parsed("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n").upgrade);
        assert!(!parsed("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n").upgrade);
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        for head in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
            "GET a.example HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
            "connect a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n\r\n",
        ] {
            assert!(parse(head).is_err(), "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,300}", lines in "([ -~]{0,40}\r\n){0,8}") {
            let results = [parse(&text), parse(&lines)];
            prop_assert_eq!(results.len(), 2);
        }
    }
}
