//! A reply as it came over the wire, and ways to hold it against what it should be.

use serde_json::Value;

#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// Lower-case names, in the order they came in.
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The first reply in `bytes`, and what is behind it.
    #[track_caller]
    pub fn first(bytes: &[u8]) -> (Self, &[u8]) {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no reply: {:?}", String::from_utf8_lossy(bytes)));
        let (head, body) = (&bytes[..end], &bytes[end + 4..]);
        let head = std::str::from_utf8(head).expect("a head is text");
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status line");
        let field = |line: &str| {
            let (name, value) = line.split_once(':').expect("a field has a colon");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let mut answer = Self {
            status: status.parse().expect("a status is a number"),
            fields: lines.map(field).collect(),
            body: Vec::new(),
        };
        let rest = answer.take_body(body);
        (answer, rest)
    }

    /// The only reply in `bytes`.
    #[track_caller]
    pub fn only(bytes: &[u8]) -> Self {
        let (answer, rest) = Self::first(bytes);
        assert!(rest.is_empty(), "more than one reply: {:?}", String::from_utf8_lossy(bytes));
        answer
    }

    fn take_body<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if let Some(length) = self.field("content-length") {
            let length: usize = length.parse().expect("a length is a number");
            assert!(bytes.len() >= length, "the body is cut: {} of {length}", bytes.len());
            self.body = bytes[..length].to_vec();
            return &bytes[length..];
        }
        if self.field("transfer-encoding") == Some("chunked") {
            let (body, rest) = chunks(bytes);
            self.body = body;
            return rest;
        }
        if !matches!(self.status, 100..200 | 204 | 304) {
            self.body = bytes.to_vec();
            return &[];
        }
        bytes
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    #[track_caller]
    pub fn is(&self, status: u16, body: &str) {
        assert_eq!((self.status, self.text().as_str()), (status, body), "{:?}", self.fields);
    }

    /// An error of `/v1`, or one with guidance of the compatible routes.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) {
        let problem = self.json();
        assert_eq!((self.status, problem["code"].as_str()), (status, Some(code)), "{}", self.text());
        for member in ["error", "remedy"] {
            assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{}", self.text());
        }
        assert_eq!(self.field("content-type"), Some("application/json"));
    }
}

/// Decodes as many chunks as there are: a stream may have been left before its end.
fn chunks(bytes: &[u8]) -> (Vec<u8>, &[u8]) {
    let (mut body, mut rest) = (Vec::new(), bytes);
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).expect("a chunk's size is text");
        let size = usize::from_str_radix(size, 16).expect("a chunk's size is in hex");
        let Some(piece) = rest.get(end + 2..end + 2 + size) else { break };
        body.extend_from_slice(piece);
        rest = rest.get(end + 4 + size..).unwrap_or_default();
        if size == 0 {
            break;
        }
    }
    (body, rest)
}

/// What differs from run to run in a body, by a name: `<ms>` and `<id>`.
pub fn pattern(body: &str) -> String {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let body = replace(body, "\"duration_ms\":", digits, "<ms>");
    replace(&body, "\"execution\":\"", |text| text.find('"').unwrap_or(0), "<id>")
}

fn replace(text: &str, behind: &str, length: impl Fn(&str) -> usize, by: &str) -> String {
    match text.split_once(behind) {
        Some((before, after)) => {
            let (value, rest) = after.split_at(length(after));
            if value.is_empty() { text.to_owned() } else { format!("{before}{behind}{by}{rest}") }
        }
        None => text.to_owned(),
    }
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub id: Option<u64>,
    pub name: String,
    pub value: Value,
}

/// The events of a stream; comments and what is not whole are left out.
pub fn events(text: &str) -> Vec<Event> {
    let whole = text.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
    let event = |block: &str| {
        let of = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        Some(Event {
            id: of("id: ").map(|id| id.parse().expect("an id is a sequence")),
            name: of("event: ")?.to_owned(),
            value: serde_json::from_str(of("data: ")?).expect("data is JSON"),
        })
    };
    whole.split("\n\n").filter_map(event).collect()
}
