use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stockade_rpc::{
    BUSY, Caller, Connection, Error, Framing, Limits, ListenError, Listener, Peer, Places, REFUSED, Speak,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::world::{Client, LONG, Seen, Stub, request};

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stockade.sock");
    (directory, path)
}

fn bind(path: &Path) -> Result<Listener, ListenError> {
    Listener::bind(path, Places::default())
}

fn anyone(_: Caller) -> Result<(), Error> {
    Ok(())
}

/// Serves whoever comes, with one stub for all; ends with the returned set.
fn serve(listener: Listener) -> (Arc<Seen>, JoinSet<()>) {
    let stub = Stub::default();
    let seen = Arc::clone(&stub.seen);
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok(admitted) = listener.accept(anyone).await {
            let limits = Limits { after_eof: Duration::ZERO, ..Limits::door() };
            let halves = admitted.stream.into_split();
            let connection = Connection::new(halves, Speak::Likewise, limits, stub.clone());
            connections.spawn(async move {
                connection.run().await;
                drop(admitted.seat);
            });
        }
    });
    (seen, serving)
}

async fn connect(path: &Path, framing: Framing) -> Peer {
    let stream = UnixStream::connect(path).await.unwrap();
    let client = Client(mpsc::unbounded_channel().0);
    let connection = Connection::new(stream.into_split(), Speak::This(framing), Limits::client(), client);
    let peer = connection.peer().clone();
    tokio::spawn(connection.run());
    peer
}

/// All that comes until the end.
async fn hear(stream: &mut UnixStream) -> Value {
    let mut heard = Vec::new();
    match timeout(LONG, stream.read_to_end(&mut heard)).await.expect("the connection never ends") {
        // A reset is an end, too.
        Ok(_) | Err(_) => {}
    }
    serde_json::from_slice(&heard).unwrap()
}

#[tokio::test]
async fn a_socket_has_its_mode_and_goes_with_its_listener() {
    let (directory, path) = place();
    let listener = bind(&path).unwrap();
    let there = fs::symlink_metadata(&path).unwrap();
    assert!(there.file_type().is_socket());
    assert_eq!(there.permissions().mode() & 0o7777, 0o660);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "something else is left");
    drop(listener);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_live_socket_is_not_taken() {
    let (_directory, path) = place();
    let first = bind(&path).unwrap();
    assert!(matches!(bind(&path), Err(ListenError::Live { .. })));
    // It still is the first one's.
    let (accepted, connected) = tokio::join!(first.accept(anyone), UnixStream::connect(&path));
    assert!(accepted.is_ok() && connected.is_ok());
    drop(first);
    // Neither is one whose backlog is full, nor one of another type.
    let full = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let _waits = std::os::unix::net::UnixStream::connect(&path).unwrap();
    assert!(matches!(bind(&path), Err(ListenError::Live { .. })));
    drop(full);
    fs::remove_file(&path).unwrap();
    let _other = UnixDatagram::bind(&path).unwrap();
    assert!(matches!(bind(&path), Err(ListenError::Live { .. })));
}

#[tokio::test]
async fn a_dead_socket_is_replaced() {
    let (_directory, path) = place();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "it was to be left behind");
    let listener = bind(&path).unwrap();
    let (accepted, connected) = tokio::join!(listener.accept(anyone), UnixStream::connect(&path));
    assert!(accepted.is_ok() && connected.is_ok());
}

#[tokio::test]
async fn what_is_no_socket_is_left_alone() {
    let (directory, path) = place();
    fs::write(&path, "precious").unwrap();
    assert!(matches!(bind(&path), Err(ListenError::NotASocket { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    // A link, also one to a dead socket.
    fs::remove_file(&path).unwrap();
    let dead = directory.path().join("dead");
    drop(UnixListener::bind(&dead).unwrap());
    std::os::unix::fs::symlink(&dead, &path).unwrap();
    assert!(matches!(bind(&path), Err(ListenError::NotASocket { .. })));
}

#[tokio::test]
async fn the_directory_must_be_there_and_be_ours_alone() {
    let (directory, path) = place();
    for mode in [0o777, 0o1777, 0o775, 0o702] {
        fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
        let error = bind(&path).unwrap_err();
        assert!(matches!(error, ListenError::Directory { .. }), "{mode:o}: {error}");
    }
    for mode in [0o755, 0o700] {
        fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
        drop(bind(&path).unwrap());
    }
    let missing = directory.path().join("missing").join("s");
    assert!(matches!(bind(&missing), Err(ListenError::Look { .. })));
    assert!(matches!(bind(Path::new("s")), Err(ListenError::NotAbsolute { .. })));
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(directory.path(), Some(4242), None).unwrap();
        assert!(matches!(bind(&path), Err(ListenError::Directory { .. })));
    }
}

#[tokio::test]
async fn a_path_that_is_too_long_is_an_error_and_leaves_nothing() {
    let (directory, _) = place();
    let deep = directory.path().join("d".repeat(120));
    fs::create_dir(&deep).unwrap();
    assert!(matches!(bind(&deep.join("s")), Err(ListenError::Bind { .. })));
    assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
}

#[tokio::test]
async fn a_socket_that_is_no_longer_ours_stays() {
    let (_directory, path) = place();
    let first = bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let second = bind(&path).unwrap();
    drop(first);
    let (accepted, connected) = tokio::join!(second.accept(anyone), UnixStream::connect(&path));
    assert!(accepted.is_ok() && connected.is_ok());
}

#[tokio::test]
async fn an_inherited_socket_is_served_and_its_file_stays() {
    let (_directory, path) = place();
    let listener = Listener::inherited(UnixListener::bind(&path).unwrap().into(), Places::default()).unwrap();
    let (accepted, connected) = tokio::join!(listener.accept(anyone), UnixStream::connect(&path));
    assert!(accepted.is_ok() && connected.is_ok());
    drop(listener);
    assert!(path.exists());
    let stream = std::os::unix::net::UnixStream::pair().unwrap().0;
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let file = fs::File::open("/dev/null").unwrap();
    for other in [OwnedFd::from(stream), OwnedFd::from(tcp), OwnedFd::from(file)] {
        assert!(matches!(Listener::inherited(other, Places::default()), Err(ListenError::Inherited)));
    }
}

#[tokio::test]
async fn the_kernel_says_who_calls_and_who_may_not_is_told() {
    let (_directory, path) = place();
    let listener = bind(&path).unwrap();
    let asked = std::sync::Mutex::new(Vec::new());
    let admit = |caller: Caller| {
        let mut asked = asked.lock().unwrap();
        asked.push(caller);
        if asked.len() == 1 { Err(Error::refused("not you")) } else { Ok("terms") }
    };
    let refused = async {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        // Nothing of it is read.
        stream.write_all(b"{}\n").await.unwrap();
        assert_eq!(hear(&mut stream).await["error"]["code"], REFUSED);
        UnixStream::connect(&path).await.unwrap()
    };
    let (admitted, _stream) = tokio::join!(listener.accept(&admit), refused);
    let admitted = admitted.unwrap();
    assert_eq!(admitted.terms, "terms");
    let asked = asked.lock().unwrap().clone();
    let pid = i32::try_from(std::process::id()).unwrap();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    assert_eq!(asked, [Caller { uid, gid, pid: Some(pid) }; 2]);
    assert_eq!(admitted.caller, asked[1]);
}

#[tokio::test]
async fn places_are_bounded_and_given_back() {
    let usual = Places::default();
    for places in [Places { all: 2, each_user: 9, ..usual }, Places { all: 9, each_user: 2, ..usual }] {
        let (_directory, path) = place();
        let listener = Listener::bind(&path, places).unwrap();
        let connect = || UnixStream::connect(&path);
        let (first, _one) = tokio::join!(listener.accept(anyone), connect());
        let (_second, _two) = tokio::join!(listener.accept(anyone), connect());
        let turned_away = async {
            let mut third = connect().await.unwrap();
            let busy = hear(&mut third).await;
            assert_eq!(busy["error"]["code"], BUSY);
            assert!(busy["error"]["data"]["retry_after_ms"].as_u64().unwrap() > 0);
            drop(first);
            connect().await.unwrap()
        };
        let (fourth, _four) = tokio::join!(listener.accept(anyone), turned_away);
        assert!(fourth.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_on_many_connections_in_both_framings() {
    let (_directory, path) = place();
    let (_seen, _serving) = serve(bind(&path).unwrap());
    let mut calls = JoinSet::new();
    for framing in [Framing::Lines, Framing::Lengths] {
        for _ in 0..2 {
            let peer = connect(&path, framing).await;
            for index in 0..50_u64 {
                let peer = peer.clone();
                calls.spawn(async move {
                    let params = json!({ "index": index, "text": "x".repeat(5000) });
                    let answer = peer.call("echo", &params, LONG).await.unwrap();
                    assert_eq!(serde_json::from_str::<Value>(answer.get()).unwrap(), params);
                    let ms = (50 - index) % 7;
                    let answer = peer.call("sleep", &json!({ "ms": ms }), LONG).await.unwrap();
                    assert_eq!(answer.get(), ms.to_string());
                });
            }
        }
    }
    assert_eq!(calls.join_all().await.len(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_answers_on_a_real_socket_while_many_calls_run() {
    let (_directory, path) = place();
    let (seen, _serving) = serve(bind(&path).unwrap());
    let peer = connect(&path, Framing::Lines).await;
    for _ in 0..64 {
        let peer = peer.clone();
        tokio::spawn(async move { peer.call("hold", &json!({}), LONG).await });
    }
    seen.until_running(64).await;
    let mut best = LONG;
    for _ in 0..20 {
        let start = Instant::now();
        peer.call("healthCheck", &json!({}), LONG).await.unwrap();
        best = best.min(start.elapsed());
    }
    // The best of many: the machine may be busy with others, the connection isn't with itself.
    assert!(best < Duration::from_millis(100), "{best:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_in_a_call_leaves_nothing() {
    let (_directory, path) = place();
    let (seen, _serving) = serve(bind(&path).unwrap());
    let mut stream = UnixStream::connect(&path).await.unwrap();
    for id in ["1", "2", "3"] {
        stream.write_all(format!("{}\n", request(id, "hold", &json!({}))).as_bytes()).await.unwrap();
    }
    seen.until_running(3).await;
    drop(stream);
    seen.until_running(0).await;
    assert_eq!(seen.dropped.load(Ordering::SeqCst), 3);
    let peer = connect(&path, Framing::Lengths).await;
    peer.call("healthCheck", &json!({}), LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_that_is_too_long_gets_its_answer_on_a_real_socket() {
    let (_directory, path) = place();
    let (_seen, _serving) = serve(bind(&path).unwrap());
    let mut stream = UnixStream::connect(&path).await.unwrap();
    // Who writes all of it before reading is served as well.
    let length = 17 * 1024 * 1024_u32;
    stream.write_all(&length.to_be_bytes()).await.unwrap();
    let text = vec![b'x'; usize::try_from(length).unwrap()];
    timeout(LONG, stream.write_all(&text)).await.expect("nobody reads").unwrap();
    let announced = timeout(LONG, stream.read_u32()).await.expect("no answer").unwrap();
    let mut answer = vec![0; usize::try_from(announced).unwrap()];
    timeout(LONG, stream.read_exact(&mut answer)).await.expect("no answer").unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&answer).unwrap()["error"]["code"], -32600);
}
