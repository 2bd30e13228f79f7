//! The daemon's part, played by a test: an executor with its link and its donations, and what it wrote.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stockade_frames::{HEADER, Header, Stream};
use stockade_proto::link::{
    self, Ended, Execute, Greeting, Hello, NotRun, Owner, ServiceProfile, Started, method,
};
use stockade_proto::{Bytes, Command as Words, ExecutionResult, Request, Stdin};
use stockade_rpc::{CallError, Connection, Context, Error, Framing, Limits, Params, Peer, Service, Speak};
use tokio::task::JoinHandle;

use crate::ran::Running;
use crate::world::{World, programs};
use crate::{deadline, unique};

/// What the executor told without being asked.
#[derive(Debug, Clone, Default)]
struct Notes(Arc<Mutex<Vec<(String, Value)>>>);

impl Service for Notes {
    type Answer = Value;

    async fn call(&self, method: &str, _: Params, _: Context) -> Result<Value, Error> {
        Err(Error::unknown_method(method))
    }

    async fn notified(&self, method: &str, params: Params, _: Context) {
        let note = (method.to_owned(), params.read().expect("any JSON"));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }
}

/// A running executor, and the daemon's ends of its sockets. Made within a runtime.
#[derive(Debug)]
pub struct Executor {
    pub running: Running,
    pub peer: Peer,
    pub donations: OwnedFd,
    notes: Notes,
    serving: JoinHandle<()>,
    outputs: PathBuf,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub stream: Stream,
    pub sequence: u64,
    pub bytes: Vec<u8>,
}

/// One execution under way.
#[derive(Debug)]
pub struct Execution {
    pub id: String,
    pub output: PathBuf,
    answer: JoinHandle<Result<ExecutionResult, CallError>>,
}

/// `sh -c SCRIPT` in the world's workspace.
pub fn request(world: &World, script: &str) -> Request {
    Request {
        command: Words::Argv(["sh", "-c", script].map(Bytes::from).to_vec()),
        workspace: Bytes::from(world.work()),
        cwd: None,
        env: Vec::new(),
        timeout_ms: None,
        stdin: Stdin::Null,
        publish: Vec::new(),
        profile: "default".to_owned(),
    }
}

impl Executor {
    /// Started with these, and nothing else.
    #[track_caller]
    pub fn spawn(world: &World, link: OwnedFd, donated: OwnedFd) -> Running {
        let program = programs().join("stockade-executor");
        assert!(program.exists(), "{} is missing: build stockade-executor first", program.display());
        let mut command = Command::new(program);
        command.env_clear().envs(world.environment().iter().map(|(name, value)| (name, value)));
        command.stdin(link).stdout(donated).stderr(Stdio::piped());
        Running::start(command, None)
    }

    /// Started, its link open, nothing said.
    #[track_caller]
    pub fn born(world: &World) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let flags = SocketFlags::CLOEXEC;
        let (donations, donated) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair of sockets");
        let running = Self::spawn(world, theirs.into(), donated);
        ours.set_nonblocking(true).expect("an open socket");
        let ours = tokio::net::UnixStream::from_std(ours).expect("an open socket");
        let notes = Notes::default();
        let (speak, limits) = (Speak::This(Framing::Lines), Limits { first_frame: None, ..Limits::link() });
        let connection = Connection::new(ours.into_split(), speak, limits, notes.clone());
        let peer = connection.peer().clone();
        let serving = tokio::spawn(async move { drop(connection.run().await) });
        let outputs = world.base().join("outputs");
        std::fs::create_dir_all(&outputs).expect("a directory");
        Self { running, peer, donations, notes, serving, outputs }
    }

    /// As `born`, and greeted.
    pub async fn start(world: &World, profiles: Vec<ServiceProfile>) -> Self {
        let executor = Self::born(world);
        let terms = link::Terms { profiles, walls_required: true };
        let hello = Hello { version: link::VERSION, terms };
        let greeting: Greeting = executor.call(method::HELLO, &hello).await.expect("a greeting");
        assert_eq!(greeting.version, link::VERSION);
        executor
    }

    /// From here on, what the service has: these profiles of its user.
    pub async fn profile(&self, name: &str, text: &str) {
        let (name, origin, text) = (name.to_owned(), format!("/srv/{name}.toml"), text.to_owned());
        let profiles = vec![ServiceProfile { name, owner: Owner::User, origin, text }];
        let terms = link::Terms { profiles, walls_required: true };
        self.call::<serde_json::Value>(method::TERMS, &terms).await.expect("terms are taken");
    }

    pub async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &(impl Serialize + Sync),
    ) -> Result<T, CallError> {
        call(&self.peer, method, params).await
    }

    pub fn donate(&self, id: &str, file: BorrowedFd<'_>) {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [file];
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)), "room for one descriptor");
        sendmsg(&self.donations, &[IoSlice::new(id.as_bytes())], &mut control, SendFlags::NOSIGNAL)
            .expect("the executor takes it");
    }

    /// As the daemon does with what it could not put on record.
    pub fn withdraw(&self, id: &str) {
        rustix::net::send(&self.donations, id.as_bytes(), SendFlags::NOSIGNAL)
            .expect("the executor takes it");
    }

    /// A new file, as the daemon makes it.
    pub fn output(&self, id: &str) -> (PathBuf, File) {
        let path = self.outputs.join(id);
        let file = OpenOptions::new().append(true).create_new(true).open(&path).expect("a fresh file");
        (path, file)
    }

    /// Donated and asked for. The answer comes when it comes.
    pub fn execute(&self, request: Request) -> Execution {
        let id = unique("x-");
        let (path, file) = self.output(&id);
        self.donate(&id, file.as_fd());
        self.execute_as(id, path, request)
    }

    /// Without a donation.
    pub fn execute_as(&self, id: String, output: PathBuf, request: Request) -> Execution {
        let (peer, execution, notes) = (self.peer.clone(), id.clone(), self.notes.clone());
        let answer = tokio::spawn(async move {
            let ended: Ended = call(&peer, method::EXECUTE, &execute(execution, request)).await?;
            if let Some(started) = ended.started {
                let word = serde_json::to_value(started).expect("a word of the link");
                let mut notes = notes.0.lock().unwrap_or_else(PoisonError::into_inner);
                notes.push((method::STARTED.to_owned(), word));
            }
            Ok(ended.result)
        });
        Execution { id, output, answer }
    }

    /// What `started` said of an execution.
    pub fn started(&self, id: &str) -> Option<Started> {
        let notes = self.notes.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = notes.iter().filter(|(method, _)| method == method::STARTED);
        of_it
            .map(|(_, params)| serde_json::from_value::<Started>(params.clone()).expect("a word of the link"))
            .find(|started| started.execution == id)
    }

    /// Closes the link as a daemon that dies does.
    pub async fn abandon(self) -> Running {
        self.serving.abort();
        drop(self.serving.await);
        self.running
    }
}

async fn call<T: DeserializeOwned>(
    peer: &Peer,
    method: &str,
    params: &(impl Serialize + Sync),
) -> Result<T, CallError> {
    let answer = peer.call(method, params, deadline()).await?;
    Ok(serde_json::from_str(answer.get()).expect("a word of the link"))
}

impl Execution {
    pub async fn answer(self) -> Result<ExecutionResult, CallError> {
        self.answer.await.expect("a task that does not panic")
    }

    pub async fn result(self) -> ExecutionResult {
        self.answer().await.expect("a result")
    }

    pub async fn not_run(self) -> NotRun {
        match self.answer().await {
            Err(CallError::Answered(error)) if error.code == link::error::NOT_RUN => {
                serde_json::from_value(error.data.expect("a reason")).expect("a word of the link")
            }
            other => panic!("it was run, or not answered so: {other:?}"),
        }
    }

    /// The whole frames that are there now.
    pub fn pieces(&self) -> Vec<Piece> {
        pieces(&self.output)
    }

    /// Until a stream holds this.
    pub async fn wait_for(&self, stream: Stream, needle: &str) {
        let end = tokio::time::Instant::now() + deadline();
        while !text(&self.pieces(), stream).contains(needle) {
            assert!(tokio::time::Instant::now() < end, "no {needle:?} in {:?}", self.pieces());
            assert!(!self.answer.is_finished(), "it ended without {needle:?}: {:?}", self.pieces());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub fn pieces(path: &Path) -> Vec<Piece> {
    let mut bytes = Vec::new();
    File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).expect("an output file");
    let (mut rest, mut pieces) = (&bytes[..], Vec::new());
    while let Some((header, behind)) = rest.split_first_chunk::<HEADER>() {
        let header = Header::decode(header).expect("a header");
        let length = usize::try_from(header.length).expect("it fits");
        let Some((bytes, behind)) = behind.split_at_checked(length) else { break };
        pieces.push(Piece { stream: header.stream, sequence: header.sequence, bytes: bytes.to_vec() });
        rest = behind;
    }
    pieces
}

/// All of one stream.
pub fn text(pieces: &[Piece], stream: Stream) -> String {
    let of_it = pieces.iter().filter(|piece| piece.stream == stream);
    String::from_utf8_lossy(&of_it.flat_map(|piece| piece.bytes.clone()).collect::<Vec<_>>()).into_owned()
}

/// As a daemon that has looked at the workspace would say it.
pub fn execute(execution: String, request: Request) -> Execute {
    let found = std::fs::metadata(request.workspace.as_path());
    let place = found.map_or(link::Place { dev: 0, ino: 0 }, |found| {
        use std::os::unix::fs::MetadataExt as _;
        link::Place { dev: found.dev(), ino: found.ino() }
    });
    Execute { execution, request, place }
}
