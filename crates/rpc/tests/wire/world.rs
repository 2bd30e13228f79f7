//! A service with a little of everything, and a client that writes bytes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use stockade_rpc::{
    Bounds, Connection, Context, Ending, Error, Framing, Limits, Note, Params, Peer, Service, Speak,
    Subscription,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything takes on a loaded machine; nothing waits for it unless it hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// What the service did, for the test to see.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) running: AtomicUsize,
    pub(crate) dropped: AtomicUsize,
    /// Rung at every change of the above.
    pub(crate) changed: Notify,
    /// `hold` waits for it.
    pub(crate) release: Notify,
    pub(crate) notes: Mutex<Vec<(String, Option<String>)>>,
    pub(crate) subscriptions: Mutex<Vec<Arc<Subscription>>>,
}

impl Seen {
    pub(crate) async fn until(&self, what: &str, true_of: impl Fn(&Self) -> bool) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if true_of(self) {
                    return;
                }
                changed.await;
            }
        };
        timeout(LONG, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    pub(crate) async fn until_running(&self, count: usize) {
        self.until("as many calls run", |seen| seen.running.load(Ordering::SeqCst) == count).await;
    }
}

struct Running(Arc<Seen>);

impl Running {
    fn new(seen: &Arc<Seen>) -> Self {
        seen.running.fetch_add(1, Ordering::SeqCst);
        seen.changed.notify_waiters();
        Self(Arc::clone(seen))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Stub {
    pub(crate) seen: Arc<Seen>,
    stages: Arc<Mutex<HashMap<String, Arc<Notify>>>>,
}

#[derive(serde::Deserialize)]
struct Stage {
    id: String,
}

impl Service for Stub {
    type Answer = Value;

    async fn call(&self, method: &str, params: Params, context: Context) -> Result<Value, Error> {
        match method {
            "healthCheck" => Ok(json!({ "status": "ok" })),
            "echo" => params.read(),
            "sleep" => {
                #[derive(serde::Deserialize)]
                struct Sleep {
                    ms: u64,
                }
                let Sleep { ms } = params.read()?;
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(json!(ms))
            }
            "hold" => {
                let _running = Running::new(&self.seen);
                self.seen.release.notified().await;
                Ok(json!("released"))
            }
            "big" => Ok(json!("x".repeat(params.read::<(usize,)>()?.0))),
            "ask" => match context.peer().call("echo", &json!({ "back": 1 }), LONG).await {
                Ok(raw) => Ok(json!({ "heard": raw.get() })),
                Err(error) => Err(Error::new(1, error.to_string())),
            },
            "startStage" => self.stage(params, &context).await,
            "cancelStage" => {
                let Stage { id } = params.read()?;
                let stage = self.stages.lock().unwrap().get(&id).cloned();
                stage.ok_or_else(|| Error::bad_params("id", "no such stage"))?.notify_one();
                Ok(json!({ "cancelled": id }))
            }
            "events/subscribe" => {
                let last = Note::new("events/cut", &json!({ "reason": "too slow" })).unwrap();
                let bounds = Bounds { messages: 100, bytes: 100_000 };
                let subscription = context.peer().subscribe(bounds, last).map_err(|_| Error::internal())?;
                self.seen.subscriptions.lock().unwrap().push(Arc::new(subscription));
                Ok(Value::Null)
            }
            _ => Err(Error::unknown_method(method)),
        }
    }

    async fn notified(&self, method: &str, params: Params, _context: Context) {
        if method == "slow" {
            self.seen.release.notified().await;
        }
        let params = params.raw().map(|raw| raw.get().to_owned());
        self.seen.notes.lock().unwrap().push((method.to_owned(), params));
        self.seen.changed.notify_waiters();
    }

    fn urgent(&self, method: &str) -> bool {
        method == "healthCheck"
    }
}

impl Stub {
    /// Progress first, then the result.
    async fn stage(&self, params: Params, context: &Context) -> Result<Value, Error> {
        let Stage { id } = params.read()?;
        let cancel = Arc::new(Notify::new());
        self.stages.lock().unwrap().insert(id.clone(), Arc::clone(&cancel));
        let last = Note::new("stage/cut", &json!({})).unwrap();
        let progress = context.peer().subscribe(Bounds::default(), last).map_err(|_| Error::internal())?;
        for step in 0..5 {
            progress
                .publish(&Note::new("stage/progress", &json!({ "id": id, "step": step })).unwrap())
                .unwrap();
        }
        let _running = Running::new(&self.seen);
        cancel.notified().await;
        progress.finish().await;
        Ok(json!({ "id": id, "outcome": "cancelled" }))
    }
}

/// Bytes to and from a served connection.
pub(crate) struct Raw {
    pub(crate) read: BufReader<ReadHalf<DuplexStream>>,
    pub(crate) write: WriteHalf<DuplexStream>,
}

pub(crate) struct Served {
    pub(crate) raw: Raw,
    pub(crate) peer: Peer,
    pub(crate) seen: Arc<Seen>,
    pub(crate) ending: JoinHandle<Ending>,
}

/// A served connection with a pipe of `buffer` bytes to it.
pub(crate) fn serve(limits: Limits, buffer: usize) -> Served {
    let (here, there) = tokio::io::duplex(buffer);
    let stub = Stub::default();
    let seen = Arc::clone(&stub.seen);
    let connection = Connection::new(tokio::io::split(here), Speak::Likewise, limits, stub);
    let peer = connection.peer().clone();
    let ending = tokio::spawn(connection.run());
    let (read, write) = tokio::io::split(there);
    Served { raw: Raw { read: BufReader::new(read), write }, peer, seen, ending }
}

impl Served {
    pub(crate) async fn ended(self) -> Ending {
        timeout(LONG, self.ending).await.expect("the connection never ended").unwrap()
    }
}

pub(crate) fn request(id: &str, method: &str, params: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

impl Raw {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        timeout(LONG, self.write.write_all(bytes.as_ref())).await.expect("nobody reads").unwrap();
    }

    pub(crate) async fn line(&mut self, text: &str) {
        self.send(format!("{text}\n")).await;
    }

    pub(crate) async fn counted(&mut self, text: &str) {
        self.send(u32::try_from(text.len()).unwrap().to_be_bytes()).await;
        self.send(text).await;
    }

    /// The text of the next line; none at the end.
    pub(crate) async fn heard(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = timeout(LONG, self.read.read_line(&mut line)).await.expect("nothing comes").unwrap();
        (count > 0).then(|| line.trim_end().to_owned())
    }

    pub(crate) async fn value(&mut self) -> Value {
        serde_json::from_str(&self.heard().await.expect("the connection ended")).unwrap()
    }

    pub(crate) async fn counted_value(&mut self) -> Value {
        let length = timeout(LONG, self.read.read_u32()).await.expect("nothing comes").unwrap();
        let mut text = vec![0; usize::try_from(length).unwrap()];
        timeout(LONG, self.read.read_exact(&mut text)).await.expect("nothing comes").unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

/// A client that passes the notifications it gets on.
#[derive(Debug)]
pub(crate) struct Client(pub(crate) mpsc::UnboundedSender<(String, Value)>);

impl Service for Client {
    type Answer = Value;

    async fn call(&self, method: &str, params: Params, _context: Context) -> Result<Value, Error> {
        match method {
            "echo" => params.read(),
            _ => Err(Error::unknown_method(method)),
        }
    }

    async fn notified(&self, method: &str, params: Params, _context: Context) {
        match self.0.send((method.to_owned(), params.read().unwrap())) {
            // The test has seen enough.
            Ok(()) | Err(_) => {}
        }
    }
}

pub(crate) type Notes = mpsc::UnboundedReceiver<(String, Value)>;

/// Two peers, the second one a client of the first.
pub(crate) fn pair(framing: Framing, limits: Limits) -> (Peer, Notes, Arc<Seen>, JoinHandle<Ending>) {
    let (here, there) = tokio::io::duplex(4096);
    let stub = Stub::default();
    let seen = Arc::clone(&stub.seen);
    let server = Connection::new(tokio::io::split(here), Speak::Likewise, limits.clone(), stub);
    let ending = tokio::spawn(server.run());
    let (notes, heard) = mpsc::unbounded_channel();
    let client = Connection::new(tokio::io::split(there), Speak::This(framing), limits, Client(notes));
    let peer = client.peer().clone();
    tokio::spawn(client.run());
    (peer, heard, seen, ending)
}
