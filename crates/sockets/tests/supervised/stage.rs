//! Starts the command behind the filter, hands its listener to a supervisor, and brings the curtain down.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stockade_charge::Charge;
use stockade_proto::{Decision, UnixSocketOp};
use stockade_sockets::{Address, Asked, Config, Decide, Sandbox, Supervisor, Verdict, Witness};
use stockade_sys::notify;

pub(crate) const SCENE: &str = "STOCKADE_SOCKETS_SCENE";
/// Whom the command is where the test is root's: root supervises for others only.
pub(crate) const USER: u32 = 65534;
const PLACE: &str = "STOCKADE_SOCKETS_PLACE";
const CURTAIN: Duration = Duration::from_secs(90);

pub(crate) type Scenario = fn(&mut Inside);
pub(crate) type Scenes = &'static [(&'static str, Scenario)];

/// The command's side.
pub(crate) struct Inside {
    pub(crate) place: PathBuf,
    link: UnixStream,
}

impl Inside {
    pub(crate) fn path(&self, name: &str) -> Vec<u8> {
        self.place.join(name).to_str().expect("text").as_bytes().to_vec()
    }

    /// Tells the test that something is reached.
    pub(crate) fn tell(&mut self) {
        self.link.write_all(b"!").expect("the test listens");
    }

    pub(crate) fn wait(&mut self) {
        self.link.read_exact(&mut [0]).expect("the test tells");
    }
}

/// Runs a scenario behind the filter; the link to the test is descriptor 0.
pub(crate) fn enter(scenario: Scenario) {
    // SAFETY: the test passed a socket as the standard input, and nothing else here uses it.
    let mut link = UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) });
    let place = PathBuf::from(std::env::var(PLACE).expect("a place"));
    let program = stockade_seccomp::filter("sockets").expect("ships").program_bytes();
    let listener = notify::listen_to_myself(&program).expect("the filter is taken");
    link.write_all(&listener.as_raw_fd().to_ne_bytes()).expect("the test listens");
    let mut inside = Inside { place, link };
    inside.wait();
    drop(listener);
    scenario(&mut inside);
}

#[derive(Default)]
pub(crate) struct Seen(Mutex<Vec<UnixSocketOp>>);

impl Witness for Seen {
    fn saw(&self, op: UnixSocketOp) {
        self.0.lock().expect("whole").push(op);
    }
}

/// The test's side of a command that runs.
pub(crate) struct Stage {
    pub(crate) child: Child,
    pub(crate) link: UnixStream,
    pub(crate) supervisor: Option<Supervisor>,
    pub(crate) charge: Arc<Charge>,
    seen: Arc<Seen>,
}

/// What the executor knows of the sandbox.
#[derive(Default)]
pub(crate) struct Outside {
    pub(crate) identity: Option<(u32, u32)>,
    pub(crate) landlock: Option<OwnedFd>,
    /// Of the CPU, in thousandths of a core.
    pub(crate) share: Option<u64>,
}

/// Who plays the command.
pub(crate) struct Cast<'a> {
    pub(crate) scene: &'a str,
    pub(crate) place: &'a Path,
    pub(crate) user: Option<u32>,
    /// What starts the command instead of the test itself: a program and its first arguments.
    pub(crate) through: &'a [&'a str],
}

impl<'a> Cast<'a> {
    pub(crate) fn plain(scene: &'a str, place: &'a Path) -> Self {
        Self { scene, place, user: None, through: &[] }
    }
}

/// Runs a test again as an ordinary user, if this one is root's: root may do what it likes. True if it did.
pub(crate) fn ran_as_ordinary_user(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let place = tempfile::tempdir_in("/tmp").expect("made");
    let program = place.path().join("test");
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("copied");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).expect("set");
    let status = Command::new(&program)
        .args(["--exact", test, "--nocapture"])
        .uid(USER)
        .gid(USER)
        .current_dir("/tmp")
        .status()
        .expect("ran");
    assert!(status.success(), "as an ordinary user");
    true
}

/// Makes everything below a path the command's.
fn give_away(path: &Path) {
    std::os::unix::fs::lchown(path, Some(USER), Some(USER)).expect("root may");
    if path.symlink_metadata().expect("there").is_dir() {
        for entry in std::fs::read_dir(path).expect("read") {
            give_away(&entry.expect("read").path());
        }
    }
}

/// Starts the command and takes its listener.
pub(crate) fn raise(wanted: &Cast<'_>) -> (Child, UnixStream, OwnedFd) {
    let (mut link, theirs) = UnixStream::pair().expect("a pair");
    let program = std::env::current_exe().expect("this program");
    let mut command = match wanted.through {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    command
        .args(["--exact", "scene", "--nocapture", "--test-threads=1"])
        .env(SCENE, wanted.scene)
        .env(PLACE, wanted.place)
        .current_dir(wanted.place)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null());
    if let Some(user) = wanted.user {
        command.uid(user).gid(user);
    }
    let child = command.spawn().expect("started");
    let mut number = [0; 4];
    link.set_read_timeout(Some(CURTAIN)).expect("set");
    link.read_exact(&mut number).expect("the scene begins");
    let pidfd = notify::thread_pidfd(child.id()).expect("alive");
    let flags = rustix::process::PidfdGetfdFlags::empty();
    let listener = rustix::process::pidfd_getfd(&pidfd, i32::from_ne_bytes(number), flags).expect("taken");
    (child, link, listener)
}

impl Stage {
    pub(crate) fn new(scene: &str, place: &Path, decide: impl Decide + 'static) -> Self {
        Self::with(Cast::plain(scene, place), decide, Outside::default())
    }

    pub(crate) fn with(mut wanted: Cast<'_>, decide: impl Decide + 'static, mut outside: Outside) -> Self {
        if rustix::process::geteuid().is_root() && outside.identity.is_none() {
            give_away(wanted.place);
            wanted.user = Some(USER);
            outside.identity = Some((USER, USER));
        }
        let (child, mut link, listener) = raise(&wanted);
        let seen = Arc::new(Seen::default());
        let charge = Arc::new(Charge::new(outside.share));
        let prepared = Supervisor::prepare(Config {
            execution: "x1".into(),
            decide: Arc::new(decide),
            witness: Arc::<Seen>::clone(&seen),
            charge: Arc::clone(&charge),
            identity: outside.identity,
        });
        let diagnosis = stockade_sockets::diagnosis().expect("the kernel has it");
        let sandbox = Sandbox { listener, landlock: outside.landlock, diagnosis };
        let mut supervisor = prepared.expect("prepared").start(sandbox);
        supervisor.wake().expect("awake");
        link.write_all(b"!").expect("the scene listens");
        Self { child, link, supervisor: Some(supervisor), charge, seen }
    }

    /// Waits until the scenario has told.
    pub(crate) fn hear(&mut self) {
        self.link.read_exact(&mut [0]).expect("the scene tells");
    }

    /// Waits for the end and wants it good; what was seen.
    pub(crate) fn finish(mut self) -> Vec<UnixSocketOp> {
        let status = end(&mut self.child);
        let supervisor = self.supervisor.take().expect("running");
        assert!(!supervisor.failed().is_some_and(is_readable), "the supervisor failed");
        supervisor.stop().expect("stopped");
        assert!(status, "the scenario failed: its panic stands above");
        std::mem::take(&mut *self.seen.0.lock().expect("whole"))
    }
}

pub(crate) fn is_readable(fd: std::os::fd::BorrowedFd<'_>) -> bool {
    let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now)).expect("polled") > 0
}

/// Waits for a child, kills it when the time is up.
pub(crate) fn end(child: &mut Child) -> bool {
    let pidfd = notify::thread_pidfd(child.id()).expect("not reaped yet");
    let fd = pidfd.as_fd();
    let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    let time = rustix::event::Timespec { tv_sec: CURTAIN.as_secs().cast_signed(), tv_nsec: 0 };
    if rustix::event::poll(&mut fds, Some(&time)).expect("polled") == 0 {
        child.kill().expect("killed");
    }
    child.wait().expect("reaped").success()
}

/// Denies what is called `denied`, by path or abstract name.
pub(crate) fn by_name(asked: &Asked<'_>) -> Verdict {
    let name = match asked.address {
        Address::Path { path, .. } => path,
        Address::Abstract(name) => name,
    };
    if name.ends_with(b"denied") {
        Verdict { decision: Decision::Deny, rule: Some("no".into()) }
    } else {
        Verdict { decision: Decision::Allow, rule: None }
    }
}

/// A server outside that counts who comes.
pub(crate) struct Server {
    pub(crate) count: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn at(path: &Path) -> Self {
        let listener = UnixListener::bind(path).expect("bound");
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(stream);
            }
        });
        Self { count }
    }

    pub(crate) fn visits(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

/// For emulated machines; elsewhere it is a matter of milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something that happens in another thread or process.
pub(crate) fn until(mut met: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !met() {
        assert!(begun.elapsed() < PATIENCE, "it never happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}
