//! The first bytes from the server, for the gate: the status of an HTTP response that it waits for, or
//! what a TLS server answered.

use std::sync::Mutex;

use tokio::sync::Notify;

use crate::answer::{self, Answer};
use crate::shared::lock;

/// `HTTP/1.1 101`
const LENGTH: usize = 12;

#[derive(Debug, Default)]
pub(crate) struct Reply {
    first: Mutex<First>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct First {
    bytes: Vec<u8>,
    over: bool,
}

impl Reply {
    /// The next bytes from the server; all but the first few are none of our business.
    pub(crate) fn see(&self, bytes: &[u8]) {
        let mut first = lock(&self.first);
        let room = answer::MOST.saturating_sub(first.bytes.len());
        if room > 0 {
            let before = first.bytes.len();
            first.bytes.extend(bytes.iter().take(room));
            if before < LENGTH && first.bytes.len() >= LENGTH {
                self.changed.notify_one();
            }
        }
    }

    /// The server says nothing more.
    pub(crate) fn over(&self) {
        lock(&self.first).over = true;
        self.changed.notify_one();
    }

    /// Waits for it; 0 where it is no HTTP response. The caller sets the deadline.
    pub(crate) async fn status(&self) -> u16 {
        loop {
            if let Some(status) = self.known() {
                return status;
            }
            self.changed.notified().await;
        }
    }

    pub(crate) fn answer(&self) -> Answer {
        answer::answer(&lock(&self.first).bytes)
    }

    fn known(&self) -> Option<u16> {
        let first = lock(&self.first);
        let Some(status) = first.bytes.get(..LENGTH) else { return first.over.then_some(0) };
        let digits = status.strip_prefix(b"HTTP/1.1 ").unwrap_or_default();
        Some(std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_known_from_the_first_bytes_only() {
        let reply = Reply::default();
        for byte in b"HTTP/1.1 10" {
            reply.see(&[*byte]);
            assert_eq!(reply.known(), None);
        }
        reply.see(b"1 Switching\r\n\r\nHTTP/1.1 200");
        assert_eq!(reply.known(), Some(101));
    }

    #[test]
    fn anything_else_is_no_status() {
        let reply = Reply::default();
        reply.see(b"SSH-2.0-server");
        assert_eq!(reply.known(), Some(0));
        let reply = Reply::default();
        reply.see(b"HTTP/1.1 ");
        reply.over();
        assert_eq!(reply.known(), Some(0));
    }
}
