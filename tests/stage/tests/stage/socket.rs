//! STAGE-1: where it listens, whom it lets in, and that it takes no socket from a service that lives.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use stockade_line_tests::{World, am_root, have, settle, skip, unique_sleep, until};
use stockade_proto::door::{error, method};
use stockade_stage_tests::{Service, Settings, code};

/// A user and a group that own nothing here.
const NOBODY: u32 = 65534;
const OTHER_GROUP: u32 = 64999;

/// Part of every Debian, and where anybody can run it.
const PERL: &str = "/usr/bin/perl";

/// Sends a line and prints the first one that comes.
const CLIENT: &str = "use IO::Socket::UNIX; alarm 60; $SIG{PIPE} = 'IGNORE';
my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die \"connect: $!\";
print $s \"$ARGV[1]\\n\"; $s->flush; print scalar <$s>;";

/// What this user hears to one request.
#[track_caller]
fn as_nobody(service: &Service, group: u32, method: &str, params: &Value) -> Value {
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let output = Command::new("setpriv")
        .args([&format!("--reuid={NOBODY}"), &format!("--regid={group}"), "--clear-groups"])
        .args([PERL, "-e", CLIENT])
        .arg(service.socket())
        .arg(request)
        .stdin(Stdio::null())
        .output()
        .expect("a client");
    match serde_json::from_slice(&output.stdout) {
        Ok(answer) => answer,
        Err(error) => panic!("{error}: {output:?}"),
    }
}

fn others_can_be_tried() -> bool {
    if !am_root() {
        skip("only root can be somebody else");
        return false;
    }
    if !Path::new(PERL).exists() {
        skip("there is no perl");
        return false;
    }
    have(&["setpriv"])
}

#[test]
fn the_socket_is_for_its_user_and_group() {
    let world = World::new();
    let service = Service::start(&world);
    let there = fs::symlink_metadata(service.socket()).expect("a socket");
    assert!(there.file_type().is_socket() && there.mode() & 0o7777 == 0o660, "{:o}", there.mode());
}

#[test]
fn others_are_told_and_closed() {
    if !others_can_be_tried() {
        return;
    }
    let world = World::new();
    let service = Service::start(&world);
    fs::set_permissions(service.socket(), Permissions::from_mode(0o666)).expect("its owner sets its mode");
    let answer = as_nobody(&service, NOBODY, method::HEALTH, &json!({}));
    assert_eq!(code(&answer["error"]), error::NOT_PERMITTED, "{answer}");
    let sentence = answer["error"]["message"].as_str().expect("a sentence");
    assert!(sentence.contains("uid 65534") && sentence.contains("uids"), "{sentence}");
    let audit = world.base().join("state/audit/000001.log");
    stockade_line_tests::until("it to be on record", || {
        let log = std::fs::read_to_string(&audit).expect("it is there");
        (log.contains(r#""principal":"uid:65534""#) && log.contains(r#""event":"refused""#)).then_some(())
    });
    service.connect().is_well();
}

#[test]
fn the_configuration_lets_users_and_groups_in_to_what_is_theirs() {
    if !others_can_be_tried() {
        return;
    }
    for (socket, group) in
        [(format!("uids = [{NOBODY}]"), NOBODY), (format!("gids = [{OTHER_GROUP}]"), OTHER_GROUP)]
    {
        let world = World::new();
        let service = Service::with(&world, &Settings { socket, ..Settings::default() });
        fs::set_permissions(service.socket(), Permissions::from_mode(0o666))
            .expect("its owner sets its mode");
        let mut wire = service.connect();
        let start = json!({ "workspace": world.work(), "shell": "true" });
        let own = wire.ok(method::START, &start)["id"].clone();
        let ask = |method: &str, params: &Value| as_nobody(&service, group, method, params);
        assert_eq!(ask(method::HEALTH, &json!({}))["result"]["status"], "ok");
        for method in
            [method::GET, method::READ, method::STOP, method::WAIT, method::CANCEL_STAGE, method::WRITE]
        {
            let answer = ask(method, &json!({ "id": own }));
            assert_eq!(code(&answer["error"]), error::UNKNOWN, "{method}: {answer}");
        }
        assert_eq!(ask(method::LIST, &json!({}))["result"]["executions"], json!([]));
        let theirs = ask(method::START, &start)["result"].clone();
        assert_eq!(theirs["principal"], format!("uid:{NOBODY}"), "{theirs}");
        // The service's own user and root see everything.
        assert_eq!(wire.ok(method::WAIT, &json!({ "id": theirs["id"] }))["state"], "ended");
        assert_eq!(wire.ok(method::LIST, &json!({}))["executions"].as_array().map(Vec::len), Some(2));
    }
}

/// The same over one connection, once before and once after a line comes on its stdin.
const STAYS: &str = "use IO::Socket::UNIX; alarm 60; $| = 1; $SIG{PIPE} = 'IGNORE';
my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die \"connect: $!\";
print $s \"$ARGV[1]\\n\"; $s->flush; print scalar <$s>; <STDIN>;
print $s \"$ARGV[1]\\n\"; $s->flush; print scalar <$s>;";

/// A connection outlives the line that let it in, and its caller's rights do not.
#[test]
fn who_is_not_named_any_more_is_out_at_once() {
    if !others_can_be_tried() {
        return;
    }
    let world = World::new();
    let settings = Settings { socket: format!("uids = [{NOBODY}]"), ..Settings::default() };
    let service = Service::with(&world, &settings);
    fs::set_permissions(service.socket(), Permissions::from_mode(0o666)).expect("its owner sets its mode");
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method::HEALTH, "params": {} }).to_string();
    let mut client = Command::new("setpriv")
        .args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"])
        .args([PERL, "-e", STAYS])
        .arg(service.socket())
        .arg(request)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a client");
    let mut said = BufReader::new(client.stdout.take().expect("it is piped")).lines();
    let mut heard = || {
        let line = said.next()?.expect("text");
        Some(serde_json::from_str::<Value>(&line).expect("JSON"))
    };
    assert_eq!(heard().expect("a line")["result"]["status"], "ok");
    let text = fs::read_to_string(service.config()).expect("its configuration");
    fs::write(service.config(), text.replace(&settings.socket, "uids = []")).expect("an own file");
    service.signal(Signal::HUP);
    until("the reload", || service.log().contains("reloaded").then_some(()));
    client.stdin.take().expect("it is piped").write_all(b"\n").expect("it reads");
    // Its connection is closed, or about to be.
    if let Some(answer) = heard() {
        assert_eq!(code(&answer["error"]), error::NOT_PERMITTED, "{answer}");
    }
    assert!(client.wait().expect("it ends").success());
}

#[test]
fn a_group_that_nobody_has_lets_nobody_in() {
    if !others_can_be_tried() {
        return;
    }
    let world = World::new();
    let settings = Settings { socket: format!("gids = [{OTHER_GROUP}]"), ..Settings::default() };
    let service = Service::with(&world, &settings);
    fs::set_permissions(service.socket(), Permissions::from_mode(0o666)).expect("its owner sets its mode");
    let answer = as_nobody(&service, NOBODY, method::HEALTH, &json!({}));
    assert_eq!(code(&answer["error"]), error::NOT_PERMITTED, "{answer}");
}

#[test]
fn a_live_socket_is_not_taken() {
    let world = World::new();
    let first = Service::start(&world);
    let other = World::new();
    let socket = format!("path = {:?}", first.socket());
    let config = other.plant(
        "config.toml",
        format!("state = {:?}\n[http]\nenabled = false\n[socket]\n{socket}\n", other.base().join("state")),
    );
    let output = Command::new(stockade_stage_tests::stockaded())
        .arg("--config")
        .arg(config)
        .current_dir(other.work())
        .stdin(Stdio::null())
        .output()
        .expect("a second service");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("in use"), "{said}");
    first.connect().is_well();
}

#[test]
fn a_dead_socket_is_replaced_and_one_of_ours_is_removed() {
    let world = World::new();
    let mut first = Service::start(&world);
    let path = first.socket().clone();
    first.kill();
    assert!(path.exists(), "what is killed removes nothing");
    let mut second = Service::start(&world);
    second.connect().is_well();
    second.signal(Signal::TERM);
    assert!(second.ended().success(), "{}", second.log());
    assert!(!path.exists(), "what ends in order does");
}

#[test]
fn a_file_that_is_no_socket_stays() {
    let world = World::new();
    world.plant("s.sock", "precious");
    let mut service = Service::launch(&world, &Settings::default());
    assert!(!service.ended().success());
    assert!(service.log().contains("no socket"), "{}", service.log());
    assert_eq!(world.read("s.sock"), "precious");
}

#[test]
fn a_service_that_is_told_to_stop_lets_stages_end_and_answers_them() {
    let world = World::new();
    let mut service =
        Service::with(&world, &Settings { top: "drain = \"60s\"".to_owned(), ..Settings::default() });
    let mut wire = service.connect();
    let gate = world.work().join("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, 0o600.into()).expect("a pipe");
    let payload = json!({ "workspace_path": world.work(), "shell": "echo up; read line < gate; echo done" });
    let id = wire.ask(method::START_STAGE, &payload);
    while wire.note()["params"]["text"] != "up\n" {}
    service.signal(Signal::TERM);
    until("the service to drain", || {
        (wire.ok(method::HEALTH, &json!({}))["status"] == "draining").then_some(())
    });
    let refused = wire.error(method::START_STAGE, &payload);
    assert_eq!((code(&refused), &refused["data"]["reason"]), (error::BUSY, &json!("SK-R056")), "{refused}");
    fs::write(&gate, "go\n").expect("its reader waits");
    assert_eq!(wire.answer(id).expect("a result")["content"], "up\ndone\n");
    assert!(service.ended().success(), "{}", service.log());
}

#[test]
fn a_stage_that_outlives_the_drain_is_ended_and_answered() {
    let world = World::new();
    let mut service =
        Service::with(&world, &Settings { top: "drain = \"1s\"".to_owned(), ..Settings::default() });
    let mut wire = service.connect();
    let sleep = unique_sleep();
    let payload = json!({ "workspace_path": world.work(), "shell": format!("echo up; sleep {sleep}") });
    let id = wire.ask(method::START_STAGE, &payload);
    while wire.note()["params"]["text"] != "up\n" {}
    service.signal(Signal::TERM);
    let result = wire.answer(id).expect("a result");
    assert_eq!(
        (&result["outcome"]["kind"], &result["content"]),
        (&json!("cancelled"), &json!("up\n")),
        "{result}"
    );
    assert!(service.ended().success(), "{}", service.log());
    assert!(settle(&sleep).is_empty());
}
