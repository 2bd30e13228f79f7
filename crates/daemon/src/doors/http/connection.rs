//! One connection: hyper parses and writes, and here is what it must not do for longer than it may.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1::{Builder, Parts};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::answer::{Door, answer};
use super::pulse::{Overdue, Pulse, Watched};
use super::serve::told_to;

/// Of a request's line and its fields together; more is 431.
const HEAD_BYTES: usize = 32 << 10;
/// Fields; more is 431.
const HEAD_FIELDS: usize = 100;
/// What hyper reads ahead, and holds of streams that the client does not take.
const BUFFER: usize = 64 << 10;
/// For a last word that fits into any socket's buffer.
const LAST_WORD: Duration = Duration::from_secs(1);
/// A client that still sends when we close would lose our answer to a reset, so what it sends is thrown away for a
/// moment.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 16 << 20;

const TOO_SLOW: &[u8] = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\n\
    connection: close\r\ncontent-length: 27\r\n\r\n{\"error\":\"Request timeout\"}";
pub(super) const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
    connection: close\r\nretry-after: 1\r\ncontent-length: 32\r\n\r\n{\"error\":\"Too many connections\"}";

enum Ending {
    /// hyper is through with it.
    Over,
    Overdue(Overdue),
}

pub(super) async fn serve(door: Arc<Door>, stream: TcpStream, mut stop: watch::Receiver<bool>) {
    match stream.set_nodelay(true) {
        // Slower is no reason to refuse.
        Ok(()) | Err(_) => {}
    }
    let pulse = Pulse::new();
    let answers = {
        let pulse = pulse.clone();
        service_fn(move |request| {
            let (door, pulse) = (Arc::clone(&door), pulse.clone());
            async move { Ok::<_, Infallible>(answer(&door, &pulse, request).await) }
        })
    };
    let io = TokioIo::new(Watched::new(stream, pulse.clone()));
    let mut connection = builder().serve_connection(io, answers);
    let mut draining = false;
    let ending = loop {
        let look = match pulse.check(Instant::now()) {
            Ok(look) => look,
            Err(overdue) => break Ending::Overdue(overdue),
        };
        tokio::select! {
            done = &mut connection => {
                // An error is the client's: there is nobody to tell.
                drop(done);
                break Ending::Over;
            }
            () = sleep_until(look) => {}
            () = told_to(&mut stop), if !draining => {
                draining = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let Parts { io, .. } = connection.into_parts();
    let stream = io.into_inner().into_stream();
    match ending {
        Ending::Over => linger(stream).await,
        Ending::Overdue(Overdue::Head) => last_word(stream, TOO_SLOW).await,
        Ending::Overdue(Overdue::Idle | Overdue::Stalled) => {}
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    // Without a timer there must be no time limit either: ours are in `pulse`.
    builder.header_read_timeout(None);
    builder.max_headers(HEAD_FIELDS).max_header_size(HEAD_BYTES).max_buf_size(BUFFER);
    builder
}

pub(super) async fn last_word(mut stream: TcpStream, word: &[u8]) {
    if let Ok(Ok(())) = timeout(LAST_WORD, stream.write_all(word)).await {
        linger(stream).await;
    }
}

async fn linger(mut stream: TcpStream) {
    let thrown_away = async {
        stream.shutdown().await?;
        let (mut buffer, mut left) = (vec![0; 16 << 10], LINGER_BYTES);
        loop {
            match stream.read(&mut buffer).await? {
                0 => return std::io::Result::Ok(()),
                read if read > left => return Ok(()),
                read => left -= read,
            }
        }
    };
    match timeout(LINGER, thrown_away).await {
        // It is closed either way.
        Ok(Ok(()) | Err(_)) | Err(_) => {}
    }
}
