//! `stockade serve` by an ordinary user, wherever that user's shell sits among the cgroups.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::json;
use stockade_units_tests::{Socket, Who, programs, turn, until};

#[test]
fn limits_hold_in_a_scope_of_its_own() {
    let Some(_turn) = turn(Who::Ordinary) else { return };
    let base = std::env::home_dir().unwrap().join("units-serve");
    drop(fs::remove_dir_all(&base));
    fs::create_dir_all(base.join("work")).unwrap();
    let text = format!(
        "state = {:?}\ndrain = \"1s\"\n[http]\nenabled = false\n[socket]\npath = {:?}\n[limits]\nmemory = \"64M\"\n",
        base.join("state"),
        base.join("s")
    );
    fs::write(base.join("c.toml"), text).unwrap();
    let mut command = Command::new(programs().join("stockade"));
    command.arg("serve").arg("--config").arg(base.join("c.toml")).current_dir(base.join("work"));
    let log = fs::File::create(base.join("log")).unwrap();
    let mut child = command.stdin(Stdio::null()).stderr(log).spawn().unwrap();
    let mut socket = Socket::connect(&base.join("s"));
    let id = socket.start("python3 -c 'x = bytearray(300 << 20)'", None);
    let record = socket.ended(&id);
    let log = fs::read_to_string(base.join("log")).unwrap();
    assert_eq!(record["ending"]["result"]["exit_code"], 137, "{record}\n{log}");
    assert!(!socket.result("healthCheck", &json!({})).is_null());
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let status = until("its end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0), "{log}");
    fs::remove_dir_all(&base).unwrap();
}
