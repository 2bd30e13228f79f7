//! Too many of everything: requests, connections, descriptors, bytes on the disk. Whatever it is, callers hear what is
//! the matter, nothing is lost, and afterwards all is as before.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;
use stockade_contract_tests::{Options, Service, deadline, runs, unique_sleep, until};

/// On a connection that goes on.
const TRUE: &[u8] =
    b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18\r\n\r\n{\"command\":\"true\"}";

/// One reply of a connection that goes on.
fn status(stream: &mut BufReader<TcpStream>) -> Option<u16> {
    let (mut line, mut status, mut length) = (String::new(), None, 0);
    loop {
        line.clear();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        status = status.or_else(|| line.split(' ').nth(1)?.parse().ok());
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    status
}

#[test]
fn ten_thousand_requests_are_all_answered() {
    let config = "[admission]\nrunning = 1\nwaiting = 64\nwait = \"2s\"\n".to_owned();
    let service = Service::start(Options { config, ..Options::default() });
    let sleep = unique_sleep();
    let holder = service.start_execution(&json!({ "shell": format!("exec sleep {sleep}") }));
    let id = holder.json()["id"].as_str().expect("an id").to_owned();
    until("it to run", || runs(&sleep).then_some(()));
    let (left, turned_away) = (AtomicUsize::new(10_000), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                let stream = service.connect();
                let mut stream = BufReader::new(stream);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1)).is_ok()
                {
                    stream.get_mut().write_all(TRUE).expect("it reads");
                    assert_eq!(status(&mut stream), Some(503));
                    turned_away.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(turned_away.into_inner(), 10_000);
    assert_eq!(service.ask(&format!("POST /v1/executions/{id}/stop"), &[], "").status, 200);
    until("a free place", || (service.get("/v1/doctor").json()["running"] == 0).then_some(()));
    assert_eq!(service.execute(r#"{"command":"echo hi"}"#).json()["stdout"], "hi");
    // Those that were turned away never were executions.
    let page = service.get("/v1/executions?limit=10").json();
    assert_eq!(page["executions"].as_array().map(Vec::len), Some(2), "{page}");
}

#[test]
fn without_descriptors_it_waits_and_goes_on() {
    let service = Service::plain();
    let pid = i32::try_from(service.pid()).ok().and_then(Pid::from_raw).expect("a pid");
    let few = Rlimit { current: Some(60), ..getrlimit(Resource::Nofile) };
    let Ok(before) = prlimit(Some(pid), Resource::Nofile, few) else {
        // It can't be looked into, which is right.
        drop(std::io::stderr().write_all(b"SKIP crowds: only root can change the limits of a service\n"));
        return;
    };
    let crowd: Vec<TcpStream> = (0..200).map(|_| service.connect()).collect();
    // Those that were accepted hold all that it has; an execution needs some.
    let mut one = crowd.first().expect("two hundred").try_clone().expect("a descriptor of ours");
    one.set_read_timeout(Some(deadline())).expect("a time");
    let request = service.request("POST /execute", &[], br#"{"command":"echo hi"}"#);
    one.write_all(&request).expect("it reads");
    let heard = status(&mut BufReader::new(one)).expect("an answer");
    assert!([200, 500, 503].contains(&heard), "{heard}");
    until("it to be out of descriptors", || service.said().contains("can't be accepted").then_some(()));
    drop(crowd);
    prlimit(Some(pid), Resource::Nofile, before).expect("it is ours");
    until("it to be well", || {
        let answer = service.execute(r#"{"command":"echo hi"}"#);
        (answer.status == 200 && answer.json()["stdout"] == "hi").then_some(())
    });
}
