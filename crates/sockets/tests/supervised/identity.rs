//! A command that is someone else than the executor, or somewhere else, or confined.

use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixDatagram, UnixListener};

use stockade_proto::{Decision, SocketOperation};
use stockade_sockets::{Asked, Verdict};

use crate::raw::{self, Head, bind, connect, listen, stream, unix};
use crate::stage::{Cast, Inside, Outside, Scenes, Stage, USER, by_name, ran_as_ordinary_user};

pub(crate) const SCENES: Scenes =
    &[("impersonated", impersonated), ("elsewhere", elsewhere), ("confined", confined)];

fn impersonated(inside: &mut Inside) {
    let server = stream();
    assert_eq!(bind(server, &unix("own")), Ok(0));
    assert_eq!(raw::local_name(server), unix("own\0"));
    assert_eq!(listen(server, 2), Ok(0));
    let meta = std::fs::symlink_metadata("own").expect("made");
    assert_eq!((meta.uid(), meta.gid()), (USER, USER));
    let client = stream();
    assert_eq!(connect(client, &unix("own")), Ok(0));
    assert_eq!(raw::peer(client), (USER, USER), "who listens");
    let accepted = raw::call(libc::SYS_accept4, &[usize::try_from(server).expect("open"), 0, 0, 0]);
    let accepted = i32::try_from(accepted.expect("accepted")).expect("small");
    assert_eq!(raw::peer(accepted), (USER, USER), "who connected");
    // Messages carry who sent them, and by other ids than connections do.
    let (from, to) = UnixDatagram::pair().expect("a pair");
    raw::pass_credentials(to.as_raw_fd());
    assert_eq!(Head::new(b"", b"who", b"").send(from.as_raw_fd(), 0), Ok(3));
    assert_eq!(raw::sender(to.as_raw_fd()), (USER, USER), "who sent");
    assert_eq!(connect(stream(), &unix(inside.path("host"))), Ok(0));
    // Its own permissions hold, not the executor's.
    assert_eq!(connect(stream(), &unix(inside.path("closed"))), Err(libc::EACCES));
    assert_eq!(connect(stream(), &unix(inside.path("private/host"))), Err(libc::EACCES));
    assert_eq!(bind(stream(), &unix(inside.path("private/new"))), Err(libc::EACCES));
    assert_eq!(bind(stream(), &unix("/etc/new")), Err(libc::EACCES));
    let low = [&2_u16.to_ne_bytes()[..], &80_u16.to_be_bytes(), &[127, 0, 0, 1], &[0; 8]].concat();
    let inet = raw::socket(libc::AF_INET, libc::SOCK_STREAM);
    let floor = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").expect("read");
    if floor.trim().parse::<u32>().expect("a number") > 80 {
        assert_eq!(bind(inet, &low), Err(libc::EACCES), "no port of root's");
    }
}

#[test]
fn the_command_acts_as_its_own_user() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can be someone else");
        return;
    }
    let place = tempfile::tempdir_in("/tmp").expect("made");
    let at = |name: &str| place.path().join(name);
    let mode = |name: &str, mode| {
        std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).expect("set");
    };
    mode("", 0o777);
    std::fs::create_dir(at("private")).expect("made");
    let listeners =
        ["host", "closed", "private/host"].map(|name| UnixListener::bind(at(name)).expect("bound"));
    mode("host", 0o666);
    mode("closed", 0o600);
    mode("private", 0o700);
    mode("private/host", 0o666);
    let cast = Cast { user: Some(USER), ..Cast::plain("impersonated", place.path()) };
    let stage = Stage::with(cast, by_name, sandbox());
    let (visitor, _) = listeners[0].accept().expect("the host's socket was reached");
    assert_eq!(raw::peer(visitor.as_raw_fd()), (0, 0), "as the executor");
    let seen = stage.finish();
    assert!(seen.iter().all(|op| op.decision == Decision::Allow || op.detail.is_some()), "{seen:#?}");
    assert_eq!(rustix::process::geteuid().as_raw(), 0, "only the supervisor's threads changed");
}

fn sandbox() -> Outside {
    Outside { identity: Some((USER, USER)), ..Outside::default() }
}

/// Binds in a file system that only its own mount namespace has.
fn elsewhere(inside: &mut Inside) {
    std::env::set_current_dir(inside.place.join("tmp")).expect("there");
    for asked in [inside.path("tmp/absolute"), b"relative".to_vec(), inside.path("tmp/../tmp/dotted")] {
        let address = unix([&asked[..], b"\0"].concat());
        let server = stream();
        assert_eq!(bind(server, &address), Ok(0));
        assert_eq!(raw::local_name(server), address, "shown as it was asked for");
        assert_eq!(listen(server, 1), Ok(0));
        let client = stream();
        assert_eq!(connect(client, &address), Ok(0), "its own");
    }
    assert!(std::fs::symlink_metadata(inside.place.join("tmp/absolute")).is_ok());
    assert_eq!(bind(stream(), &unix(inside.path("tmp/absolute"))), Err(libc::EADDRINUSE));
    assert_eq!(connect(stream(), &unix(inside.path("host"))), Err(libc::EACCES), "not its own");
}

/// Allows what the execution bound itself.
fn own_only(asked: &Asked<'_>) -> Verdict {
    let allowed = asked.own || asked.operation == SocketOperation::Bind;
    Verdict { decision: if allowed { Decision::Allow } else { Decision::Deny }, rule: None }
}

fn play_elsewhere(through: &[&str], outside: Outside) {
    let place = tempfile::tempdir_in("/tmp").expect("made");
    let at = |name: &str| place.path().join(name);
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    std::fs::create_dir(at("tmp")).expect("made");
    let _host = UnixListener::bind(at("host")).expect("bound");
    std::fs::set_permissions(at("host"), std::fs::Permissions::from_mode(0o666)).expect("set");
    let cast = Cast { through, ..Cast::plain("elsewhere", place.path()) };
    let seen = Stage::with(cast, own_only, outside).finish();
    assert_eq!(std::fs::read_dir(at("tmp")).expect("read").count(), 0, "nothing appears outside");
    let paths = |operation| -> Vec<String> {
        seen.iter().filter(|op| op.operation == operation).map(|op| op.path.to_string()).collect()
    };
    let bound =
        ["absolute", "relative", "dotted", "absolute"].map(|name| at("tmp").join(name).display().to_string());
    assert_eq!(paths(SocketOperation::Bind), bound);
    assert_eq!(paths(SocketOperation::Listen), bound[..3]);
}

const MOUNT: &str = "mount -t tmpfs -o mode=777 none \"$STOCKADE_SOCKETS_PLACE/tmp\" && exec \"$@\"";

/// An ordinary user's executor, and a sandbox in a user namespace of its own.
#[test]
fn a_bind_happens_in_the_callers_namespaces() {
    if ran_as_ordinary_user("identity::a_bind_happens_in_the_callers_namespaces") {
        return;
    }
    play_elsewhere(&["unshare", "-Urm", "sh", "-c", MOUNT, "sh"], Outside::default());
}

/// Root's executor, and a sandbox of someone else in a mount namespace of its own.
#[test]
fn a_bind_happens_in_the_callers_mounts() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can be someone else");
        return;
    }
    let mount = MOUNT.replace("exec", "exec setpriv --reuid 65534 --regid 65534 --clear-groups");
    play_elsewhere(&["unshare", "-m", "sh", "-c", &mount, "sh"], sandbox());
}

fn confined(inside: &mut Inside) {
    assert_eq!(bind(stream(), &unix(inside.path("free/new"))), Ok(0));
    assert_eq!(bind(stream(), &unix(inside.path("new"))), Err(libc::EACCES));
    assert_eq!(bind(stream(), &unix("free/../new")), Err(libc::EACCES));
}

#[test]
fn a_bind_obeys_the_ruleset() {
    use landlock::{
        Access as _, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    };
    let place = tempfile::tempdir().expect("made");
    std::fs::create_dir(place.path().join("free")).expect("made");
    let all = AccessFs::from_all(landlock::ABI::V1);
    let free = PathFd::new(place.path().join("free")).expect("opened");
    let ruleset = Ruleset::default()
        .handle_access(all)
        .expect("handled")
        .create()
        .expect("created")
        .add_rule(PathBeneath::new(free, all))
        .expect("added");
    let landlock: Option<std::os::fd::OwnedFd> = ruleset.into();
    if landlock.is_none() {
        println!("SKIPPED: this kernel has no Landlock");
        return;
    }
    let outside = Outside { landlock, ..Outside::default() };
    Stage::with(Cast::plain("confined", place.path()), by_name, outside).finish();
    assert!(place.path().join("free/new").exists() && !place.path().join("new").exists());
}
