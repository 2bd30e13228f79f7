//! A person's service, below the user's own manager.

use std::fs;

use serde_json::json;
use stockade_units_tests::{Manager, Socket, Who, is_running, turn, unique_sleep, until};

#[test]
fn the_socket_starts_it_and_limits_hold() {
    let Some(_turn) = turn(Who::Ordinary) else { return };
    let manager = Manager::install(Who::Ordinary);
    let workspace = std::env::home_dir().unwrap().join("units-workspace");
    fs::create_dir_all(&workspace).unwrap();
    manager.configure(&format!("workspaces = [{workspace:?}]\ndrain = \"1s\"\n[limits]\nmemory = \"64M\"\n"));
    manager.tell(&["start", "stockade.socket"]);
    let mut socket = Socket::connect(&manager.socket());
    assert!(!socket.result("healthCheck", &json!({})).is_null());
    assert!(manager.is_active(), "{}", manager.status());
    assert!(std::net::TcpStream::connect("127.0.0.1:3001").is_err(), "nobody asked for it");
    let id = socket.start("echo made > here", Some(&workspace));
    let record = socket.ended(&id);
    assert_eq!(record["ending"]["result"]["exit_code"], 0, "{record}\n{}", manager.journal());
    assert_eq!(fs::read_to_string(workspace.join("here")).unwrap(), "made\n");
    let id = socket.start("python3 -c 'x = bytearray(300 << 20)'", Some(&workspace));
    let record = socket.ended(&id);
    assert_eq!(record["ending"]["result"]["exit_code"], 137, "{record}");
    assert!(manager.is_active(), "{}", manager.status());

    let sleep = unique_sleep();
    socket.start(&format!("exec sleep {sleep}"), Some(&workspace));
    until("it to run", || is_running(&sleep).then_some(()));
    manager.tell(&["stop", "stockade.service"]);
    assert!(!is_running(&sleep));
    fs::remove_dir_all(&workspace).unwrap();
}
