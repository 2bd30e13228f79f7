//! Clients that take their time: the limits as they are, so these tests take as long.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use stockade_contract_tests::{Answer, Service};

const LATE: &str = r#"{"error":"Request timeout"}"#;

fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("as this test needs it");
    bytes
}

/// Sends a byte now and then until nobody takes it.
fn dribble(mut stream: TcpStream, byte: u8) -> Vec<u8> {
    let mut writer = stream.try_clone().expect("as this test needs it");
    let writing = std::thread::spawn(move || {
        for _ in 0..200 {
            if writer.write_all(&[byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    });
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    // A reset may follow the answer, since there is always another byte on its way.
    while let Ok(read) = stream.read(&mut buffer) {
        if read == 0 {
            break;
        }
        bytes.extend_from_slice(&buffer[..read]);
    }
    drop(stream);
    writing.join().expect("as this test needs it");
    bytes
}

#[test]
fn heads_have_ten_seconds() {
    let service = Service::plain();
    let began = Instant::now();
    let silent = service.connect();
    let mut half = service.connect();
    half.write_all(b"POST /execute HTTP/1.1\r\nHost: local").expect("as this test needs it");
    let mut slow = service.connect();
    slow.write_all(b"GET /health HTTP/1.1\r\nX: ").expect("as this test needs it");
    // A head that comes late on a connection that was of use before.
    let mut second = service.connect();
    second.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("as this test needs it");
    let mut first = [0; 4096];
    let read = second.read(&mut first).expect("as this test needs it");
    assert!(first[..read].ends_with(br#"{"status":"ok"}"#));
    second.write_all(b"GET /hea").expect("as this test needs it");
    let slow = std::thread::spawn(move || dribble(slow, b'x'));
    for stream in [silent, half, second] {
        Answer::only(&rest(stream)).is(408, LATE);
        assert!((9..20).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }
    Answer::only(&slow.join().expect("as this test needs it")).is(408, LATE);
    service.get("/health").is(200, r#"{"status":"ok"}"#);
}

#[test]
fn bodies_have_thirty_seconds() {
    let service = Service::plain();
    let began = Instant::now();
    let head = "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{";
    let mut half = service.connect();
    half.write_all(head.as_bytes()).expect("as this test needs it");
    let mut slow = service.connect();
    slow.write_all(head.as_bytes()).expect("as this test needs it");
    let slow = std::thread::spawn(move || dribble(slow, b' '));
    let late = Answer::only(&rest(half));
    late.is(408, LATE);
    assert_eq!(late.field("connection"), Some("close"));
    Answer::only(&slow.join().expect("as this test needs it")).is(408, LATE);
    assert!((29..45).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}
