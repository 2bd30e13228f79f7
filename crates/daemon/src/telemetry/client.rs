//! One message to a collector over plain HTTP, on a connection of its own. How long it may take is the caller's to say.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError, ResponseBodyTooLarge};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tracing::debug;

/// Of an answer: whether spans were taken fits a line.
const ANSWER: usize = 64 << 10;
/// Others are put there from variables that are not ours, and this is no place to pass them on.
const PASSED: [HeaderName; 2] = [CONTENT_TYPE, USER_AGENT];

#[derive(Debug)]
pub(super) struct Client {
    addresses: Vec<SocketAddr>,
}

impl Client {
    /// To be tried in this order.
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Self {
        Self { addresses }
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let stream = TcpStream::connect(self.addresses.as_slice()).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Ends with us, whoever stops waiting.
        let mut driving = JoinSet::new();
        driving.spawn(connection);
        let response = sender.send_request(addressed(request)?).await?;
        let (head, body) = response.into_parts();
        Ok(Response::from_parts(head, whole(body).await?))
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // Whoever asked makes "network error" of it.
        self.send(request).await.inspect_err(|error| debug!("the collector: {error}"))
    }
}

/// As the collector itself is asked: by the path, with the host in a header.
fn addressed(request: Request<Bytes>) -> Result<Request<Once>, HttpError> {
    let (mut head, body) = request.into_parts();
    let host = head.uri.authority().map(|authority| HeaderValue::from_str(authority.as_str())).transpose()?;
    let passed = PASSED.into_iter().filter_map(|name| head.headers.remove(&name).map(|value| (name, value)));
    let passed: Vec<_> = passed.chain(host.map(|host| (HOST, host))).collect();
    head.headers = passed.into_iter().collect();
    head.uri = head.uri.path().parse()?;
    Ok(Request::from_parts(head, Once(Some(body))))
}

async fn whole(mut body: hyper::body::Incoming) -> Result<Bytes, HttpError> {
    let mut answer = Vec::new();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(data) = frame?.into_data() else { continue };
        if answer.len() + data.len() > ANSWER {
            return Err(ResponseBodyTooLarge::new().into());
        }
        answer.extend_from_slice(&data);
    }
    Ok(answer.into())
}

/// A body that is in memory.
#[derive(Debug)]
struct Once(Option<Bytes>);

impl Body for Once {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
