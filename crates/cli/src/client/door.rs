//! The way to the service: one connection, opened again where it breaks, and its answers in our own words. A question
//! that finds the connection gone is asked once more on the next one; what must not be asked twice is not asked
//! through `ask`.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stockade_executor::Abort;
use stockade_proto::door::Problem;
use stockade_proto::{Bytes, Code, Fault, Refusal};
use stockade_rpc::{
    BAD_PARAMS, BUSY, CallError, Connection, Context, Error, Framing, Limits, Params, Peer, REFUSED, Service,
    Speak,
};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::socket;

/// For an answer that needs nobody else.
pub(super) const SOON: Duration = Duration::from_secs(30);
/// For a service that is started again.
const COME_BACK: Duration = Duration::from_secs(5);
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);
/// For a place in the queue of a service that is busy accepting.
const CONNECT: Duration = Duration::from_secs(5);
/// For the one line that somebody is told who may not come in.
const TURNED_AWAY: Duration = Duration::from_secs(1);
const LONGEST_REASON: u64 = 64 * 1024;

#[derive(Debug)]
pub(super) struct Door {
    path: PathBuf,
    peer: Mutex<Peer>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The service's own words, as it said them.
    Error(Error),
    Abort(Abort),
}

impl From<NoAnswer> for Abort {
    fn from(why: NoAnswer) -> Self {
        match why {
            NoAnswer::Error(error) => in_our_words(&error),
            NoAnswer::Abort(abort) => abort,
        }
    }
}

/// The service asks us nothing.
struct Silent;

impl Service for Silent {
    type Answer = Value;

    async fn call(&self, method: &str, _: Params, _: Context) -> Result<Value, Error> {
        Err(Error::unknown_method(method))
    }
}

impl Door {
    /// At the first place where somebody answers.
    pub(super) async fn open(given: Option<&Path>) -> Result<Self, Abort> {
        let places = socket::places(given);
        for path in &places {
            match connect(path).await {
                Ok(peer) => return Ok(Self { path: path.clone(), peer: Mutex::new(peer) }),
                Err(error) if is_nobody(&error) => {}
                Err(error) => return Err(closed_to_us(path, &error)),
            }
        }
        Err(nobody(&places).into())
    }

    /// Asks, and once more if the connection is lost meanwhile.
    pub(super) async fn ask<P, T>(&self, method: &str, params: &P, within: Duration) -> Result<T, Abort>
    where
        P: Serialize + Sync,
        T: DeserializeOwned,
    {
        match self.ask_once(method, params, within).await {
            Err(NoAnswer::Abort(Abort::Fault(fault))) if fault.code == Code::ServiceLost => {}
            other => return Ok(other?),
        }
        Ok(self.ask_once(method, params, within).await?)
    }

    pub(super) async fn ask_once<P, T>(
        &self,
        method: &str,
        params: &P,
        within: Duration,
    ) -> Result<T, NoAnswer>
    where
        P: Serialize + Sync,
        T: DeserializeOwned,
    {
        let peer = self.peer().await.map_err(NoAnswer::Abort)?;
        let answer = match peer.call(method, params, within).await {
            Ok(answer) => answer,
            Err(CallError::Answered(error)) => return Err(NoAnswer::Error(error)),
            Err(CallError::Closed) => return Err(NoAnswer::Abort(self.why_closed().await)),
            Err(error @ (CallError::TimedOut { .. } | CallError::TooMany { .. })) => {
                return Err(NoAnswer::Abort(self.silent(&error).into()));
            }
            Err(error @ (CallError::TooLong { .. } | CallError::NotJson)) => {
                let remedy = "Shorten the command, its environment or its input.";
                let refusal = Refusal::new(Code::RequestInvalid, error.to_string(), remedy);
                return Err(NoAnswer::Abort(refusal.into()));
            }
        };
        serde_json::from_str(answer.get()).map_err(|error| {
            let message = format!("the service's answer to {method} can't be read: {error}");
            NoAnswer::Abort(not_understood(message).into())
        })
    }

    /// The connection that is there, or another one.
    async fn peer(&self) -> Result<Peer, Abort> {
        let mut peer = self.peer.lock().await;
        if peer.is_closed() {
            *peer = self.open_again().await?;
        }
        Ok(peer.clone())
    }

    async fn open_again(&self) -> Result<Peer, Abort> {
        let until = Instant::now() + COME_BACK;
        loop {
            match connect(&self.path).await {
                Ok(peer) => return Ok(peer),
                Err(error) if is_nobody(&error) && Instant::now() < until => sleep(PAUSE).await,
                Err(error) if is_nobody(&error) => return Err(self.lost().into()),
                Err(error) => return Err(closed_to_us(&self.path, &error)),
            }
        }
    }

    fn lost(&self) -> Fault {
        Fault::new(
            Code::ServiceLost,
            format!("the service on {} went away", shown(&self.path)),
            "See its log. When it is back, `stockade show ID` tells what became of an execution.",
        )
    }

    fn silent(&self, error: &CallError) -> Fault {
        Fault::new(
            Code::ServiceUnreachable,
            format!("the service on {} does not answer: {error}", shown(&self.path)),
            "See its log; it may be stuck or overloaded. Try again.",
        )
    }

    /// Whoever is turned away is told in a line and closed, and the request that crosses it on the way may lose it.
    /// Someone who only listens hears it.
    async fn why_closed(&self) -> Abort {
        let path = self.path.clone();
        let heard = tokio::task::spawn_blocking(move || listen(&path)).await;
        match heard {
            Ok(Some(error)) => in_our_words(&error),
            Ok(None) | Err(_) => self.lost().into(),
        }
    }
}

/// What the service says to one that it turns away; nothing to others.
fn listen(path: &Path) -> Option<Error> {
    let stream = std::os::unix::net::UnixStream::connect(path).ok()?;
    stream.set_read_timeout(Some(TURNED_AWAY)).ok()?;
    let mut said = Vec::new();
    match stream.take(LONGEST_REASON).read_to_end(&mut said) {
        // Too late, or too much: what came before that is all there is.
        Ok(_) | Err(_) => {}
    }
    let line = std::str::from_utf8(&said).ok()?.lines().next()?;
    match stockade_rpc::message::read(line) {
        Ok(stockade_rpc::message::Message::Response(response)) => response.outcome.err(),
        Ok(_) | Err(_) => None,
    }
}

async fn connect(path: &Path) -> io::Result<Peer> {
    let until = Instant::now() + CONNECT;
    let stream = loop {
        match UnixStream::connect(path).await {
            // Its queue is full.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                sleep(PAUSE).await;
            }
            connected => break connected?,
        }
    };
    let speak = Speak::This(Framing::Lines);
    let connection = Connection::new(stream.into_split(), speak, Limits::client(), Silent);
    let peer = connection.peer().clone();
    tokio::spawn(connection.run());
    Ok(peer)
}

/// There is no socket, or nobody listens on it any more.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn nobody(places: &[PathBuf]) -> Fault {
    let places = places.iter().map(|path| shown(path)).collect::<Vec<_>>().join(" nor on ");
    Fault::new(
        Code::ServiceUnreachable,
        format!("no service answers on {places}"),
        "Start one with `stockade serve`, or the system's with `systemctl start stockade`; --socket names another.",
    )
}

fn closed_to_us(path: &Path, error: &io::Error) -> Abort {
    if error.kind() == io::ErrorKind::PermissionDenied {
        let message = format!("you may not connect to the service on {}", shown(path));
        let remedy = "Ask whoever runs it to add you to `uids` or `gids` of [socket] in its configuration.";
        return Refusal::new(Code::NotPermitted, message, remedy).into();
    }
    let message = format!("the service on {} can't be reached: {error}", shown(path));
    Fault::new(Code::ServiceUnreachable, message, "Check that this is its socket.").into()
}

fn shown(path: &Path) -> String {
    Bytes::from(path).to_string()
}

fn not_understood(message: String) -> Fault {
    Fault::new(Code::ServiceAnswer, message, "Install the same version of stockade and stockaded.")
}

/// The service's "no" or failure, as if it were ours.
pub(super) fn in_our_words(error: &Error) -> Abort {
    let problem = error.data.clone().and_then(|data| serde_json::from_value::<Problem>(data).ok());
    let known = problem.and_then(|problem| {
        let row = Code::TABLE.iter().find(|row| row.id == problem.code)?;
        Some((row, problem))
    });
    // The service may quote what agents said.
    let clean = |text: &str| Bytes::from(text).to_string();
    let Some((row, problem)) = known else { return without_problem(error, clean(&error.message)) };
    let (message, remedy) = (clean(&problem.error), clean(&problem.remedy));
    if row.id.starts_with("SK-R") {
        Refusal::new(row.code, message, remedy).into()
    } else {
        Fault::new(row.code, message, remedy).into()
    }
}

fn without_problem(error: &Error, message: String) -> Abort {
    let (code, remedy) = match error.code {
        BUSY => (Code::TooBusy, "Try again in a moment."),
        REFUSED => (Code::NotPermitted, "Ask whoever runs the service."),
        BAD_PARAMS => (Code::RequestInvalid, "Check what was asked for."),
        _ => return not_understood(format!("the service answered: {message}")).into(),
    };
    Refusal::new(code, message, remedy).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_keeps_its_code_and_others_get_one() {
        let data = serde_json::json!({ "code": "SK-R053", "error": "no\u{1b}[31m such", "remedy": "look" });
        let Abort::Refusal(refusal) = in_our_words(&Error::new(-32003, "x").with_data(data)) else {
            panic!("a refusal")
        };
        assert_eq!((refusal.code, refusal.message.as_str()), (Code::ExecutionUnknown, "no\\u{1b}[31m such"));
        let data = serde_json::json!({ "code": "SK-F010", "error": "died", "remedy": "" });
        let Abort::Fault(fault) = in_our_words(&Error::new(-32007, "x").with_data(data)) else {
            panic!("a fault")
        };
        assert_eq!(fault.code, Code::ExecutorLost);
        for (error, code) in [
            (Error::busy("full", Duration::from_secs(1)), Code::TooBusy),
            (Error::refused("uid 7 may not"), Code::NotPermitted),
            (Error::bad_params("limit", "negative"), Code::RequestInvalid),
            (Error::unknown_method("x"), Code::ServiceAnswer),
            (Error::internal(), Code::ServiceAnswer),
        ] {
            let found = match in_our_words(&error) {
                Abort::Refusal(refusal) => refusal.code,
                Abort::Fault(fault) => fault.code,
                Abort::Profile(_) => panic!("no profile is read here"),
            };
            assert_eq!(found, code, "{error}");
        }
    }
}
