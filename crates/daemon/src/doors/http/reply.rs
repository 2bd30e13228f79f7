//! A reply before it is bytes on a wire: status, a few headers, and content that is in memory or is fetched as the
//! client takes it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde::Serialize;
use stockade_store::ExecutionId;
use tokio::sync::OwnedSemaphorePermit;

use super::pulse::Turn;

pub(super) const JSON: &str = "application/json";
pub(super) const EVENTS: &str = "text/event-stream";
pub(super) const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// More content of one stream; nothing ends it.
pub(super) type More = Pin<Box<dyn Future<Output = Option<(Bytes, Source)>> + Send>>;

/// Makes the next piece when it is asked, so that a client that does not read costs nothing.
pub(super) trait Pieces: Send {
    fn next(self: Box<Self>) -> More;
}

pub(super) type Source = Box<dyn Pieces>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Afterwards {
    KeepAlive,
    /// What follows on the connection can't be told from what was left of this request.
    Close,
}

pub(super) struct Reply {
    pub(super) status: StatusCode,
    /// For the log.
    pub(super) execution: Option<ExecutionId>,
    pub(super) afterwards: Afterwards,
    content_type: Option<&'static str>,
    content: Content,
    extra: Vec<(hyper::header::HeaderName, HeaderValue)>,
}

enum Content {
    Nothing,
    Whole(Vec<u8>, Option<OwnedSemaphorePermit>),
    Text(&'static str),
    Stream(Source),
}

impl Reply {
    fn new(status: StatusCode, content_type: Option<&'static str>, content: Content) -> Self {
        Self {
            status,
            execution: None,
            afterwards: Afterwards::KeepAlive,
            content_type,
            content,
            extra: Vec::new(),
        }
    }

    pub(super) fn nothing(status: StatusCode) -> Self {
        Self::new(status, None, Content::Nothing)
    }

    /// JSON as it stands here.
    pub(super) fn text(status: StatusCode, json: &'static str) -> Self {
        Self::new(status, Some(JSON), Content::Text(json))
    }

    pub(super) fn bytes(status: StatusCode, content_type: &'static str, bytes: Vec<u8>) -> Self {
        Self::new(status, Some(content_type), Content::Whole(bytes, None))
    }

    pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(bytes) => Self::bytes(status, JSON, bytes),
            // Our own words have string keys and no failing serializer.
            Err(_) => Self::text(StatusCode::INTERNAL_SERVER_ERROR, r#"{"error":"Internal error"}"#),
        }
    }

    pub(super) fn events(source: Source) -> Self {
        Self::new(StatusCode::OK, Some(EVENTS), Content::Stream(source))
    }

    /// Content that counts against a bound until the client has it.
    #[must_use]
    pub(super) fn holding(mut self, permit: OwnedSemaphorePermit) -> Self {
        if let Content::Whole(_, held) = &mut self.content {
            *held = Some(permit);
        }
        self
    }

    #[must_use]
    pub(super) fn of(mut self, execution: ExecutionId) -> Self {
        self.execution = Some(execution);
        self
    }

    #[must_use]
    pub(super) fn closing(mut self) -> Self {
        self.afterwards = Afterwards::Close;
        self
    }

    /// In whole seconds, and never "at once".
    #[must_use]
    pub(super) fn retry_after(mut self, wait: Option<Duration>) -> Self {
        if let Some(wait) = wait {
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            self.extra.push((RETRY_AFTER, HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX))));
        }
        self
    }

    #[must_use]
    pub(super) fn allow(mut self, methods: &str) -> Self {
        self.extra.extend(HeaderValue::from_str(methods).ok().map(|value| (ALLOW, value)));
        self
    }

    #[must_use]
    pub(super) fn location(mut self, path: &str) -> Self {
        self.extra.extend(HeaderValue::from_str(path).ok().map(|value| (LOCATION, value)));
        self
    }

    #[must_use]
    pub(super) fn ask_for_a_token(mut self) -> Self {
        self.extra.push((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        self
    }

    pub(super) fn into_response(self, turn: Turn) -> Response<Outgoing> {
        let content = match self.content {
            Content::Nothing => {
                Left::Whole(Bytes::from_owner(Held { bytes: Vec::new(), turn, _permit: None }))
            }
            Content::Text(text) => {
                Left::Whole(Bytes::from_owner(Held { bytes: text.into(), turn, _permit: None }))
            }
            Content::Whole(bytes, permit) => {
                turn.replying();
                Left::Whole(Bytes::from_owner(Held { bytes, turn, _permit: permit }))
            }
            Content::Stream(source) => Left::Stream(source.next(), turn),
        };
        let mut response = Response::new(Outgoing { left: content });
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(content_type) = self.content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if self.afterwards == Afterwards::Close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        headers.extend(self.extra);
        response
    }
}

/// Whole content until the last byte of it is with the kernel.
struct Held {
    bytes: Vec<u8>,
    turn: Turn,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.turn.over();
    }
}

/// What hyper writes.
pub(super) struct Outgoing {
    left: Left,
}

enum Left {
    Whole(Bytes),
    Stream(More, Turn),
    Over,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match std::mem::replace(&mut self.left, Left::Over) {
            Left::Over => None,
            Left::Whole(bytes) => (!bytes.is_empty()).then_some(bytes),
            Left::Stream(mut more, turn) => match more.as_mut().poll(context) {
                Poll::Pending => {
                    self.left = Left::Stream(more, turn);
                    return Poll::Pending;
                }
                Poll::Ready(Some((bytes, source))) => {
                    self.left = Left::Stream(source.next(), turn);
                    Some(bytes)
                }
                Poll::Ready(None) => {
                    turn.over();
                    None
                }
            },
        };
        Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.left {
            Left::Whole(bytes) => bytes.is_empty(),
            Left::Stream(..) => false,
            Left::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.left {
            Left::Whole(bytes) => SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            Left::Stream(..) => SizeHint::default(),
            Left::Over => SizeHint::with_exact(0),
        }
    }
}
