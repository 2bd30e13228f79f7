//! Socket rules with the servers and clients that they are for: PostgreSQL, Redis, an ssh agent, a daemon's control
//! socket. SOCK-1, SOCK-4.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use stockade_line_tests::{Daemon, Identity, Ran, World, have, skip};
use stockade_proto::Blocked;

/// Debian keeps each version's programs apart and has only clients on the PATH.
fn postgres_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok();
    let mut found: Vec<PathBuf> =
        versions.into_iter().flatten().flatten().map(|entry| entry.path().join("bin")).collect();
    found.retain(|programs| ["initdb", "postgres", "psql"].iter().all(|name| programs.join(name).is_file()));
    found.sort();
    if found.is_empty() {
        skip("no PostgreSQL server in /usr/lib/postgresql");
    }
    found.pop()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A server with its files in `base/postgres` and its socket in `run`; the server refuses to be root's.
fn postgres(world: &World, programs: &Path, run: &Path) -> (Daemon, PathBuf) {
    let identity = Identity::NeverRoot;
    let above = identity.directory(world.base().join("postgres"));
    let files = text(&above.join("files"));
    let initdb = text(&programs.join("initdb"));
    let words =
        [&initdb, "-D", &files, "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"];
    let made = identity.command(&words).current_dir(&above).output().expect("initdb runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let socket = run.join(".s.PGSQL.5432");
    let server = text(&programs.join("postgres"));
    let directory = text(run);
    let words = [&server, "-D", &files, "-k", &directory, "-c", "listen_addresses=", "-c", "fsync=off"];
    let daemon = Daemon::start(&words, &above, identity).stopped_by(Signal::QUIT);
    let psql = text(&programs.join("psql"));
    let daemon = daemon.ready("postgres", || {
        let words = ["-h", &directory, "-U", "tester", "-d", "postgres", "-c", "select 1"];
        socket.exists()
            && std::process::Command::new(&psql).args(words).output().is_ok_and(|done| done.status.success())
    });
    (daemon, socket)
}

fn redis(world: &World, run: &Path) -> (Daemon, PathBuf) {
    let socket = run.join("redis.sock");
    let directory = Identity::Caller.directory(world.base().join("redis"));
    let words = [
        "redis-server",
        "--port",
        "0",
        "--unixsocketperm",
        "777",
        "--save",
        "",
        "--unixsocket",
        &text(&socket),
    ];
    let daemon = Daemon::start(&words, &directory, Identity::Caller);
    let daemon = daemon.ready("redis", || UnixStream::connect(&socket).is_ok());
    (daemon, socket)
}

/// A directory of sockets that anybody may look into, as `/run` is.
fn run_directory(world: &World, identity: Identity) -> PathBuf {
    let path = identity.directory(world.base().join("run"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its owner sets its mode");
    path
}

/// One socket was refused, it is this one, and what would open it is said in the result and on stderr.
#[track_caller]
fn refused(ran: &Ran, socket: &Path) -> Blocked {
    let result = ran.result();
    let [blocked] = result.blocked.as_slice() else { panic!("one socket: {ran}") };
    assert_eq!(blocked.target.to_path_buf(), socket, "{ran}");
    assert_eq!((blocked.operation.as_str(), blocked.rule.as_deref()), ("connect", None), "{ran}");
    assert!(
        blocked.guidance.contains("[[unix_sockets]]") && blocked.guidance.contains(&text(socket)),
        "{ran}"
    );
    assert!(ran.err().contains(&format!("blocked connect {}", socket.display())), "{ran}");
    blocked.clone()
}

#[test]
fn psql_and_redis_cli_reach_the_allowed_server_and_not_the_other() {
    if !have(&["redis-server", "redis-cli", "setpriv"]) {
        return;
    }
    let Some(programs) = postgres_programs() else { return };
    let world = World::new();
    let run = run_directory(&world, Identity::NeverRoot);
    let (_postgres, database) = postgres(&world, &programs, &run);
    let (_redis, cache) = redis(&world, &run);
    let both = format!(
        "{}/psql -h {} -U tester -d postgres -Atc 'select 6 * 7'; redis-cli -s {} set walrus tusk; redis-cli -s {} get walrus",
        programs.display(),
        run.display(),
        cache.display(),
        cache.display()
    );
    let see = format!("extends = \"default\"\nreadable = [\"{}\"]\n", run.display());

    let rule = format!(
        "[[unix_sockets]]\nname = \"database\"\npaths = [\"{}\"]\noperations = [\"connect\"]\ndecision = \"allow\"\n",
        database.display()
    );
    world.profile("database", &(see.clone() + &rule));
    let ran = world.sh(&both).profile("database").go();
    assert_eq!(ran.out(), "42\n", "{ran}");
    assert!(ran.err().contains("Permission denied"), "{ran}");
    let blocked = refused(&ran, &cache);

    // What the refusal says opens the one that was shut, and only that.
    world.profile("cache", &(see.clone() + &blocked.guidance));
    let ran = world.sh(&both).profile("cache").go();
    assert_eq!(ran.out(), "OK\ntusk\n", "{ran}");
    let blocked = refused(&ran, &database);

    world.profile("both", &(see + &rule + &blocked.guidance.replace(&text(&database), &text(&cache))));
    let ran = world.sh(&both).profile("both").go().ends_with(0);
    assert_eq!(ran.out(), "42\nOK\ntusk\n", "{ran}");
    assert!(ran.result().blocked.is_empty(), "{ran}");
}

#[test]
fn an_ssh_agent_is_shut_by_default() {
    if !have(&["ssh-agent", "ssh-add", "setpriv"]) {
        return;
    }
    let mut world = World::new();
    let socket = world.work().join("agent.sock");
    let words = ["ssh-agent", "-D", "-a", &text(&socket)];
    let agent = Daemon::start(&words, &world.base().join("home"), Identity::Caller);
    let _agent = agent.ready("ssh-agent", || UnixStream::connect(&socket).is_ok());
    world.set("SSH_AUTH_SOCK", &socket);

    // The variable is not passed on; without it there is no agent to be asked.
    let ran = world.sh("ssh-add -l; echo $?").go().ends_with(0);
    assert_eq!(ran.out(), "2\n", "{ran}");
    // Who knows where it is gets no further, even where the socket is to be seen.
    let asking = "SSH_AUTH_SOCK=$PWD/agent.sock ssh-add -l";
    let ran = world.sh(asking).go().ends_with(2);
    assert!(ran.err().contains("Permission denied"), "{ran}");
    let blocked = refused(&ran, &socket);
    // The agent is there and would have answered: with the rule it does.
    world.profile("agent", &format!("extends = \"default\"\n{}", blocked.guidance));
    let ran = world.sh(asking).profile("agent").go().ends_with(1);
    assert!(ran.out().contains("The agent has no identities."), "{ran}");
}

#[test]
fn a_daemons_control_socket_is_shut_where_no_rule_opens_it() {
    if !have(&["curl"]) {
        return;
    }
    let world = World::new();
    let run = run_directory(&world, Identity::Caller);
    let socket = run.join("docker.sock");
    let listener = UnixListener::bind(&socket).expect("a free path");
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o777))
        .expect("its owner sets its mode");
    listener.set_nonblocking(true).expect("a flag");
    let ask =
        format!("curl -sS --max-time 20 --unix-socket {} http://localhost/containers/json", socket.display());

    // By default it is not even there.
    let ran = world.sh(&format!("{ask}; test -e {}", socket.display())).go().ends_with(1);
    assert_eq!(ran.out(), "", "{ran}");
    world.profile("see", &format!("extends = \"default\"\nreadable = [\"{}\"]\n", run.display()));
    let ran = world.sh(&format!("test -S {} && {ask}", socket.display())).profile("see").go().ends_with(7);
    assert_eq!(ran.out(), "", "{ran}");
    refused(&ran, &socket);
    assert!(listener.accept().is_err(), "nobody came");
}
