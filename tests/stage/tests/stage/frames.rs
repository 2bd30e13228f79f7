//! STAGE-2: both framings on one socket; what is no frame gets an error reply, and the service goes on.

use serde_json::{Value, json};
use stockade_line_tests::World;
use stockade_proto::door::method;
use stockade_stage_tests::{Service, Wire, code};

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const LIMIT: usize = 16 * 1024 * 1024;

fn health(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"healthCheck"}}"#)
}

#[track_caller]
fn error(wire: &mut Wire) -> i64 {
    let frame = wire.heard().expect("an error reply");
    assert!(frame["id"].is_null(), "{frame}");
    code(&frame["error"])
}

#[test]
fn both_framings_are_served_side_by_side() {
    let world = World::new();
    let service = Service::start(&world);
    let (mut lines, mut counted) = (service.connect(), service.connect_counted());
    for wire in [&mut lines, &mut counted] {
        let result = wire.ok(method::HEALTH, &json!({}));
        assert_eq!(result["status"], "ok");
        assert!(result["version"].is_string() && result["capacity"].is_u64(), "{result}");
        assert!(!result["layers"].as_array().expect("the layers").is_empty(), "{result}");
    }
}

#[test]
fn an_id_comes_back_as_it_was_written() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    for id in [r#""a b""#, "-7", "0", "\"\\u00e9\"", "18446744073709551615"] {
        wire.frame(health(id));
        let frame = wire.heard().expect("an answer");
        assert_eq!(frame["id"], serde_json::from_str::<Value>(id).expect("an id"));
    }
}

#[test]
fn broken_frames_are_answered_and_the_connection_goes_on() {
    let world = World::new();
    let service = Service::start(&world);
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
    let broken: [(&[u8], i64); 8] = [
        (b"{", PARSE_ERROR),
        (b"nonsense", PARSE_ERROR),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"health\xff\xfe\"}", PARSE_ERROR),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\0b\"}", PARSE_ERROR),
        (deep.as_bytes(), PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"healthCheck\"}]", INVALID_REQUEST),
        (b"7", INVALID_REQUEST),
    ];
    for mut wire in [service.connect(), service.connect_counted()] {
        wire.is_well();
        for (frame, expected) in broken {
            wire.frame(frame);
            let shown =
                String::from_utf8_lossy(frame.get(..frame.len().min(60)).expect("a prefix")).into_owned();
            assert_eq!(error(&mut wire), expected, "{shown}");
            wire.is_well();
        }
    }
}

#[test]
fn a_request_that_is_no_request_is_answered_under_its_id() {
    let world = World::new();
    let service = Service::start(&world);
    let mut wire = service.connect();
    for frame in [
        r#"{"id":5,"method":"healthCheck"}"#,
        r#"{"jsonrpc":"1.0","id":5,"method":"healthCheck"}"#,
        r#"{"jsonrpc":"2.0","id":5,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":5}"#,
    ] {
        wire.frame(frame);
        let answer = wire.heard().expect("an answer");
        assert_eq!(
            (code(&answer["error"]), &answer["id"]),
            (INVALID_REQUEST, &json!(5)),
            "{frame}: {answer}"
        );
    }
    wire.is_well();
}

#[test]
fn an_oversize_frame_gets_an_error_reply() {
    let world = World::new();
    let service = Service::start(&world);
    let mut counted = service.connect_counted();
    counted.is_well();
    counted.write(&u32::try_from(LIMIT + 1).expect("a length").to_be_bytes()).expect("somebody reads");
    assert_eq!(error(&mut counted), INVALID_REQUEST);
    assert!(counted.heard().is_none(), "nobody can tell where the next frame begins");
    let mut lines = service.connect();
    lines.is_well();
    lines.frame(vec![b' '.saturating_add(1); LIMIT + 1]);
    assert_eq!(error(&mut lines), INVALID_REQUEST);
    lines.is_well();
}

#[test]
fn the_largest_frame_is_read() {
    let world = World::new();
    let service = Service::start(&world);
    for mut wire in [service.connect(), service.connect_counted()] {
        let frame = |blanks: usize| {
            format!(
                r#"{{"jsonrpc":"2.0","id":9,"method":"healthCheck","params":{{{}}}}}"#,
                " ".repeat(blanks)
            )
        };
        wire.frame(frame(LIMIT - frame(0).len()));
        assert_eq!(wire.heard().expect("an answer")["result"]["status"], "ok");
    }
}

#[test]
fn the_other_framing_on_the_same_connection_is_an_error() {
    let world = World::new();
    let service = Service::start(&world);
    let text = health("1");
    let mut lines = service.connect();
    lines.is_well();
    lines.write(&u32::try_from(text.len()).expect("a length").to_be_bytes()).expect("somebody reads");
    assert_eq!(error(&mut lines), INVALID_REQUEST);
    assert!(lines.heard().is_none());
    let mut counted = service.connect_counted();
    counted.is_well();
    counted.write(format!("{text}\n").as_bytes()).expect("somebody reads");
    assert_eq!(error(&mut counted), INVALID_REQUEST);
    assert!(counted.heard().is_none());
}

#[test]
fn a_frame_that_is_cut_off_is_answered() {
    let world = World::new();
    let service = Service::start(&world);
    let text = health("1");
    let half = text.get(..text.len() / 2).expect("half of it").as_bytes();
    let mut lines = service.connect();
    lines.write(half).expect("somebody reads");
    lines.end_writing();
    assert_eq!(error(&mut lines), PARSE_ERROR);
    let mut counted = service.connect_counted();
    counted.write(&[&[0, 0, 0, 200], half].concat()).expect("somebody reads");
    counted.end_writing();
    assert_eq!(error(&mut counted), PARSE_ERROR);
    let mut head = service.connect_counted();
    head.write(&[0, 0]).expect("somebody reads");
    head.end_writing();
    assert_eq!(error(&mut head), PARSE_ERROR);
    service.connect().is_well();
}

#[test]
fn bytes_that_dribble_and_frames_that_come_together_are_served() {
    let world = World::new();
    let service = Service::start(&world);
    let mut slow = service.connect();
    for byte in format!("{}\n", health("1")).bytes() {
        slow.write(&[byte]).expect("somebody reads");
    }
    assert_eq!(slow.heard().expect("an answer")["id"], 1);
    let mut together = service.connect();
    let frames: String = (0..50).map(|id| format!("{}\r\n", health(&id.to_string()))).collect();
    together.write(frames.as_bytes()).expect("somebody reads");
    let mut ids: Vec<u64> =
        (0..50).map(|_| together.heard().expect("an answer")["id"].as_u64().expect("an id")).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..50).collect::<Vec<u64>>());
}

#[test]
fn any_bytes_leave_the_service_well() {
    let world = World::new();
    let service = Service::start(&world);
    // A generator of one line: the same bytes in every run.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..200 {
        let mut bytes = Vec::new();
        for _ in 0..64 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend(state.to_le_bytes());
        }
        let mut wire = service.connect();
        // It may be closed while this is written.
        drop(wire.write(&bytes));
        wire.end_writing();
        while wire.heard().is_some() {}
    }
    service.connect().is_well();
}
