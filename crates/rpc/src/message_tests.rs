use super::*;
use serde_json::json;

fn invalid(frame: &str) -> Invalid {
    read(frame).unwrap_err()
}

fn request_id(id: &str) -> Result<Id, Invalid> {
    match read(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#))? {
        Message::Request(request) => Ok(request.id),
        Message::Notification(_) | Message::Response(_) => panic!("{id} made it something else"),
    }
}

#[test]
fn ids_come_back_as_they_were_written() {
    let ids = ["0", "-1", "1.0", "1e400", "3.14159265358979323846264338327950288", "\"\"", r#""\u0061\n""#];
    for id in ids.into_iter().chain(["123456789012345678901234567890", "\"naïve\""]) {
        let read = request_id(id).unwrap();
        assert_eq!(read.text(), id);
        let answer = response(Some(&read), &Ok(json!(1)));
        assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":1}}"#));
    }
}

#[test]
fn what_is_no_id_is_refused() {
    let long = format!("\"{}\"", "x".repeat(LONGEST_ID));
    for id in ["null", "true", "[]", "{}", &long] {
        let invalid = request_id(id).unwrap_err();
        assert_eq!((invalid.error.code, invalid.id), (INVALID_REQUEST, None), "{id}");
        assert_eq!(invalid.from, Sender::Asks);
    }
}

/// A frame of one string is as long as a frame may be, and an answer to it is not.
#[test]
fn what_is_no_object_is_not_sent_back() {
    let long = format!("\"{}\"", "\\u202e\u{2066}x".repeat(100_000));
    let invalid = invalid(&long);
    assert_eq!(invalid.error.code, INVALID_REQUEST);
    let answer = response(invalid.id.as_ref(), &Err::<(), _>(invalid.error.clone()));
    assert!(answer.len() <= 2 * LONGEST_ID, "{} bytes", answer.len());
    assert!(!invalid.error.message.contains(['\u{202e}', '\u{2066}']), "{}", invalid.error.message);
}

#[test]
fn a_request_without_an_id_is_a_notification() {
    let frame = r#" {"jsonrpc":"2.0","method":"a\u002fb","params":[1, 2],"meta":{"x":1},"meta":2} "#;
    let Message::Notification(note) = read(frame).unwrap() else { panic!("no notification") };
    assert_eq!(note.method, "a/b");
    assert_eq!(note.params.raw().unwrap().get(), "[1, 2]");
}

#[test]
fn the_envelope_is_read_strictly() {
    let cases = [
        (r#"{"jsonrpc":"2.0","id":1,"method":"m""#, PARSE_ERROR, None),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m"} {}"#, PARSE_ERROR, None),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","id":2}"#, INVALID_REQUEST, None),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","i\u0064":2}"#, INVALID_REQUEST, None),
        (r#"{"id":1,"method":"m"}"#, INVALID_REQUEST, Some("1")),
        (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, INVALID_REQUEST, Some("1")),
        (r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#, INVALID_REQUEST, Some("1")),
        (r#"{"jsonrpc":"2.0","id":"a","method":7}"#, INVALID_REQUEST, Some("\"a\"")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":7}"#, BAD_PARAMS, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","result":7}"#, INVALID_REQUEST, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1}"#, INVALID_REQUEST, Some("1")),
        ("{}", INVALID_REQUEST, None),
        ("7", INVALID_REQUEST, None),
        ("\"x\"", INVALID_REQUEST, None),
        ("nonsense", PARSE_ERROR, None),
        ("", PARSE_ERROR, None),
    ];
    for (frame, code, id) in cases {
        let invalid = invalid(frame);
        assert_eq!((invalid.error.code, invalid.id.as_ref().map(Id::text)), (code, id), "{frame}");
        assert_eq!(invalid.from, Sender::Asks, "{frame}");
    }
}

#[test]
fn a_batch_is_refused_and_told_so() {
    let invalid = invalid(r#" [{"jsonrpc":"2.0","id":1,"method":"m"}]"#);
    assert_eq!(invalid.error.code, INVALID_REQUEST);
    assert!(invalid.error.message.contains("batches"), "{}", invalid.error.message);
}

#[test]
fn params_that_are_null_are_absent() {
    let frame = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#;
    let Message::Request(request) = read(frame).unwrap() else { panic!("no request") };
    assert!(request.params.raw().is_none());
}

#[test]
fn responses_of_both_kinds_are_read() {
    let ok = read(r#"{"jsonrpc":"2.0","id":7,"result":null}"#).unwrap();
    let Message::Response(Response { id: Some(id), outcome: Ok(raw) }) = ok else { panic!("{ok:?}") };
    assert_eq!((id.text(), raw.get()), ("7", "null"));
    let failed = read(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"x","data":[1]}}"#).unwrap();
    let Message::Response(Response { id: None, outcome: Err(error) }) = failed else { panic!("{failed:?}") };
    assert_eq!((error.code, error.data), (-1, Some(json!([1]))));
}

#[test]
fn a_broken_response_asks_for_no_answer() {
    for frame in [
        r#"{"jsonrpc":"2.0","id":7,"result":1,"error":{"code":1,"message":""}}"#,
        r#"{"jsonrpc":"2.0","id":7,"error":"x"}"#,
        r#"{"jsonrpc":"2.0","result":1}"#,
        r#"{"jsonrpc":"1.0","id":7,"result":1}"#,
        r#"{"jsonrpc":"2.0","id":{},"result":1}"#,
    ] {
        assert_eq!(invalid(frame).from, Sender::Answers, "{frame}");
    }
}

#[test]
fn what_is_written_is_read_again() {
    let sent = request(5, "execution/start", &json!({"command": "a\nb"})).unwrap();
    assert!(!sent.contains('\n'));
    let Message::Request(request) = read(&sent).unwrap() else { panic!("{sent}") };
    assert_eq!((request.id.text(), request.method.as_str()), ("5", "execution/start"));
    let sent = notification("output", &json!({})).unwrap();
    assert!(matches!(read(&sent), Ok(Message::Notification(_))), "{sent}");
    let sent = response(None, &Err::<(), _>(Error::internal()));
    assert!(matches!(read(&sent), Ok(Message::Response(Response { id: None, .. }))), "{sent}");
}
