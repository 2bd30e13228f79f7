//! Takes a request's body in: so many bytes, within so much time.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};

/// As the compatible server has it.
pub(super) const LIMIT: usize = 1_048_576;
/// From the end of the head to the end of the body.
const WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    TooLarge,
    TooSlow,
    /// Chunks that lie, or an end before the end.
    Broken,
}

pub(super) async fn read(body: Incoming, limit: usize) -> Result<Vec<u8>, BodyError> {
    tokio::time::timeout(WITHIN, collect(body, limit)).await.unwrap_or(Err(BodyError::TooSlow))
}

async fn collect(mut body: Incoming, limit: usize) -> Result<Vec<u8>, BodyError> {
    // What is announced is refused before it is sent.
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(BodyError::TooLarge);
    }
    let mut bytes = Vec::with_capacity(announced);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_| BodyError::Broken)?;
        let Ok(piece) = frame.into_data() else { continue };
        if bytes.len() + piece.len() > limit {
            return Err(BodyError::TooLarge);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
