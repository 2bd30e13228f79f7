//! The host's resolver on a host of the test's making: its own `/etc/hosts`, a search list and a name server that
//! knows names below it only.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use stockade_charge::Charge;
use stockade_egress::{HostResolver, Resolve};

use crate::sandbox::skip;
use crate::world::ip;

const MARK: &str = "STOCKADE_EGRESS_LOOKUPS";
const RESOLV: &str = "nameserver 127.0.0.1\nsearch corp.test\noptions ndots:5 timeout:10 attempts:1\n";
const HOSTS: &str = "127.0.0.1 localhost\n192.0.2.7 Known.Test other.test # listed.test\n";
const PREPARE: &str = "ip link set lo up && mount --bind \"$1/hosts\" /etc/hosts && mount --bind \"$1/resolv\" /etc/resolv.conf && exec \"$0\" --exact lookups::the_search_list_makes_no_other_name --nocapture";

fn resolve(name: &str) -> Option<Vec<IpAddr>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let resolver = HostResolver { charge: Arc::new(Charge::new(None)) };
    let found = runtime.block_on(resolver.resolve(name)).ok();
    found.map(|mut found| {
        found.sort();
        found.dedup();
        found
    })
}

/// Answers for names below the search list's domain, and for `real.test`.
fn serve(socket: &UdpSocket, asked: &Mutex<Vec<String>>) {
    let mut buffer = [0; 2000];
    while let Ok((count, from)) = socket.recv_from(&mut buffer) {
        let query = Message::from_vec(&buffer[..count]).unwrap();
        let question = query.queries[0].clone();
        let name = question.name().to_string();
        let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
        reply.add_query(question.clone());
        if !name.ends_with(".corp.test.") && name != "real.test." {
            reply.metadata.response_code = ResponseCode::NXDomain;
        } else if question.query_type() == RecordType::A {
            let rdata = RData::A(A::new(192, 0, 2, 9));
            reply.add_answer(Record::from_rdata(question.name().clone(), 1, rdata));
        }
        asked.lock().unwrap().push(name);
        socket.send_to(&reply.to_vec().unwrap(), from).unwrap();
    }
}

#[test]
fn the_search_list_makes_no_other_name() {
    if std::env::var_os(MARK).is_none() {
        let place = std::env::temp_dir().join(format!("stockade-lookups-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("hosts"), HOSTS).unwrap();
        std::fs::write(place.join("resolv"), RESOLV).unwrap();
        let able =
            Command::new("unshare").args(["--user", "--map-root-user", "--net", "--mount", "true"]).status();
        let child = able.is_ok_and(|status| status.success()).then(|| {
            Command::new("unshare")
                .args(["--user", "--map-root-user", "--net", "--mount", "sh", "-c", PREPARE])
                .arg(std::env::current_exe().unwrap())
                .arg(&place)
                .env(MARK, "1")
                .status()
                .unwrap()
        });
        std::fs::remove_dir_all(&place).unwrap();
        match child {
            Some(status) => assert!(status.success()),
            None => skip("no user namespaces on this machine"),
        }
        return;
    }
    let asked = Arc::new(Mutex::new(Vec::new()));
    let server = Arc::clone(&asked);
    // Before anyone asks.
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    std::thread::spawn(move || serve(&socket, &server));
    assert_eq!(resolve("real.test"), Some(vec![ip("192.0.2.9")]), "{asked:?}");
    assert_eq!(resolve("listed.test"), None, "{asked:?}");
    let names = std::mem::take(&mut *asked.lock().unwrap());
    assert!(names.iter().all(|name| name == "real.test." || name == "listed.test."), "{names:?}");
    // A name without a dot is meant to be completed.
    assert_eq!(resolve("intranet"), Some(vec![ip("192.0.2.9")]), "{asked:?}");
    asked.lock().unwrap().clear();
    assert_eq!(resolve("known.test"), Some(vec![ip("192.0.2.7")]));
    assert_eq!(*asked.lock().unwrap(), Vec::<String>::new(), "known without asking");
}
