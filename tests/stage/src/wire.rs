//! A client that is nobody's library: it writes the bytes that a test says, in either framing, and reads frames.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stockade_line_tests::deadline;
use stockade_proto::door::method;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Lines,
    Lengths,
}

#[derive(Debug)]
pub struct Wire {
    stream: UnixStream,
    framing: Framing,
    buffer: Vec<u8>,
    last: u64,
    /// Answers that nobody has asked for yet.
    answers: Vec<Value>,
    /// Notifications, in their order.
    pub notes: VecDeque<Value>,
}

impl Wire {
    #[track_caller]
    pub fn connect(path: &Path, framing: Framing) -> Self {
        let stream = UnixStream::connect(path).expect("a socket that listens");
        stream.set_read_timeout(Some(deadline())).expect("a time is a time");
        stream.set_write_timeout(Some(deadline())).expect("a time is a time");
        Self { stream, framing, buffer: Vec::new(), last: 0, answers: Vec::new(), notes: VecDeque::new() }
    }

    /// Bytes as they are. An error is the test's to judge.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// A frame with this text.
    #[track_caller]
    pub fn frame(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        let bytes = match self.framing {
            Framing::Lines => [text, b"\n"].concat(),
            Framing::Lengths => {
                [&u32::try_from(text.len()).expect("a short frame").to_be_bytes(), text].concat()
            }
        };
        self.write(&bytes).expect("somebody reads");
    }

    /// A request whose params are this text.
    #[track_caller]
    pub fn ask_text(&mut self, method: &str, params: &str) -> u64 {
        self.last += 1;
        let id = self.last;
        self.frame(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
        id
    }

    #[track_caller]
    pub fn ask(&mut self, method: &str, params: &Value) -> u64 {
        self.ask_text(method, &params.to_string())
    }

    /// The result, or the error.
    #[track_caller]
    pub fn call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        let id = self.ask(method, params);
        self.answer(id)
    }

    #[track_caller]
    pub fn ok(&mut self, method: &str, params: &Value) -> Value {
        match self.call(method, params) {
            Ok(result) => result,
            Err(error) => panic!("{method}: {error}"),
        }
    }

    #[track_caller]
    pub fn error(&mut self, method: &str, params: &Value) -> Value {
        match self.call(method, params) {
            Ok(result) => panic!("{method} {params}: {result}"),
            Err(error) => error,
        }
    }

    #[track_caller]
    pub fn is_well(&mut self) {
        assert_eq!(self.ok(method::HEALTH, &json!({}))["status"], "ok");
    }

    /// The answer to a request, whatever else comes before it.
    #[track_caller]
    pub fn answer(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            if let Some(at) = self.answers.iter().position(|answer| answer["id"] == id) {
                let mut answer = self.answers.swap_remove(at);
                let error = answer["error"].take();
                return if error.is_null() { Ok(answer["result"].take()) } else { Err(error) };
            }
            self.listen();
        }
    }

    /// Whether it is here already.
    #[track_caller]
    pub fn is_answered(&mut self, id: u64, within: Duration) -> bool {
        let end = Instant::now() + within;
        loop {
            if self.answers.iter().any(|answer| answer["id"] == id) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.listen_within(left) {
                return false;
            }
        }
    }

    /// The next notification.
    #[track_caller]
    pub fn note(&mut self) -> Value {
        loop {
            if let Some(note) = self.notes.pop_front() {
                return note;
            }
            self.listen();
        }
    }

    #[track_caller]
    fn listen(&mut self) {
        match self.heard() {
            Some(frame) => self.sort(frame),
            None => panic!("the connection ended"),
        }
    }

    fn sort(&mut self, frame: Value) {
        if frame.get("method").is_some() {
            self.notes.push_back(frame);
        } else {
            self.answers.push(frame);
        }
    }

    fn listen_within(&mut self, time: Duration) -> bool {
        let time = time.max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(time)).expect("a time is a time");
        let frame = self.next();
        self.stream.set_read_timeout(Some(deadline())).expect("a time is a time");
        match frame {
            Ok(Some(frame)) => {
                self.sort(frame);
                true
            }
            Ok(None) => false,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// The next frame as it came; none at the end, which may come as a reset.
    #[track_caller]
    pub fn heard(&mut self) -> Option<Value> {
        match self.next() {
            Ok(frame) => frame,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("nothing is heard: {error}"),
        }
    }

    fn next(&mut self) -> std::io::Result<Option<Value>> {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            if let Some(frame) = self.take() {
                return Ok(Some(frame));
            }
            let count = self.stream.read(&mut chunk)?;
            if count == 0 {
                return Ok(None);
            }
            self.buffer.extend_from_slice(&chunk[..count]);
        }
    }

    fn take(&mut self) -> Option<Value> {
        let (frame, length) = match self.framing {
            Framing::Lines => {
                let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
                (&self.buffer[..end], end + 1)
            }
            Framing::Lengths => {
                let (head, rest) = self.buffer.split_first_chunk::<4>()?;
                let length = usize::try_from(u32::from_be_bytes(*head)).expect("a length");
                (rest.get(..length)?, 4 + length)
            }
        };
        let value = serde_json::from_slice(frame).expect("every frame is JSON");
        self.buffer.drain(..length);
        Some(value)
    }

    /// No more is written; there may be more to read.
    pub fn end_writing(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("a socket that is open");
    }
}

/// Of an error.
pub fn code(error: &Value) -> i64 {
    error["code"].as_i64().unwrap_or_default()
}

/// That bad params name.
pub fn field(error: &Value) -> &str {
    error["data"]["field"].as_str().unwrap_or_default()
}
