use super::*;
use crate::asked::tests::{OneName, asked};
use crate::hello::tests::{extension, hello, records, server_name_extension};
use proptest::prelude::*;

fn gate() -> Gate {
    Gate::new(asked("a.example", 443), Arc::new(OneName))
}

/// What goes out when the bytes come in pieces of `size`.
fn out(gate: &mut Gate, bytes: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    for piece in bytes.chunks(size.max(1)) {
        match gate.feed(piece)? {
            Pass::All => out.extend_from_slice(piece),
            Pass::Bytes(bytes) => out.extend(bytes),
        }
    }
    Ok(out)
}

fn passes(bytes: &[u8]) {
    for size in [1, 2, 5, 1000] {
        assert_eq!(out(&mut gate(), bytes, size).as_deref(), Ok(bytes), "in {size}s");
    }
}

fn refused(bytes: &[u8]) {
    for size in [1, 2, 5, 1000] {
        assert!(out(&mut gate(), bytes, size).is_err(), "{:?} in {size}s", bytes.escape_ascii().to_string());
    }
}

/// The hellos pass before the server has answered, the rest after it.
fn talk(hellos: &[u8], answer: Answer, rest: &[u8], size: usize) -> Result<(), String> {
    let mut gate = gate();
    assert_eq!(out(&mut gate, hellos, size)?, hellos, "in {size}s");
    assert!(gate.awaits_answer());
    gate.answered(answer);
    assert_eq!(out(&mut gate, rest, size)?, rest, "in {size}s");
    Ok(())
}

fn talk_passes(hellos: &[u8], answer: Answer, rest: &[u8]) {
    for size in [1, 2, 5, 1000] {
        assert_eq!(talk(hellos, answer, rest, size), Ok(()));
    }
}

fn talk_is_refused(hellos: &[u8], answer: Answer, rest: &[u8]) {
    for size in [1, 2, 5, 1000] {
        assert!(talk(hellos, answer, rest, size).is_err(), "{answer:?} in {size}s");
    }
}

const DATA: &[u8] = &[0x17, 3, 3, 0, 2, 9, 9];
const CHANGE: &[u8] = &[0x14, 3, 3, 0, 1, 1];

#[test]
fn tls_passes_with_the_asked_name_or_none() {
    let named = hello(&[server_name_extension("A.example")], 50);
    talk_passes(&named, Answer::Chosen, &[CHANGE, DATA].concat());
    talk_passes(&hello(&[], 50), Answer::Chosen, &[DATA, b"anything"].concat());
    refused(&hello(&[server_name_extension("b.example")], 50));
    let hidden = hello(&[server_name_extension("a.example"), extension(0xfe0d, &[1; 9])], 50);
    refused(&hidden);
    let reason = out(&mut gate(), &hidden, 9).unwrap_err();
    assert!(reason.contains("--disable-features=EncryptedClientHello"), "{reason}");
}

#[test]
fn nothing_goes_out_before_the_hello_is_read() {
    let bytes = hello(&[server_name_extension("b.example")], 50);
    let mut gate = gate();
    assert_eq!(out(&mut gate, &bytes[..bytes.len() - 1], 7), Ok(Vec::new()));
    assert!(gate.is_holding());
}

#[test]
fn the_second_hello_of_a_retry_is_checked() {
    let first = hello(&[server_name_extension("a.example")], 4096);
    let other = hello(&[server_name_extension("b.example")], 60);
    talk_passes(&first, Answer::Retry, &[CHANGE, &first, DATA].concat());
    talk_passes(&first, Answer::Retry, &[&first, CHANGE, DATA].concat());
    talk_is_refused(&first, Answer::Retry, &[CHANGE, &other].concat());
    refused(&[&first[..], CHANGE, &other].concat());
    refused(&[&first[..], &other].concat());
    let message = hello(&[server_name_extension("b.example")], 4096)[5..].to_vec();
    refused(&[&first[..], CHANGE, &records(&message, 3)].concat());
}

#[test]
fn a_second_hello_can_not_hide() {
    let first = hello(&[server_name_extension("a.example")], 4096);
    let other = hello(&[server_name_extension("b.example")], 4096);
    // Behind early data, which a server skips.
    refused(&hello(&[server_name_extension("a.example"), extension(42, &[])], 4096));
    refused(&[&first[..], DATA].concat());
    talk_is_refused(&first, Answer::Retry, &[DATA, &other].concat());
    // Behind a version of its own.
    let mut odd = other.clone();
    odd[9..11].copy_from_slice(&[4, 3]);
    refused(&[&first[..], CHANGE, &odd].concat());
    odd[1] = 4;
    refused(&[&first[..], &odd].concat());
    // Behind another message, or a record of another kind.
    let message = &other[5..];
    refused(&[&first[..], &records(&[&[16, 0, 0, 0][..], message].concat(), 4096)].concat());
    refused(&[&first[..], &[0x18, 3, 3, 0, 1, 1], &other].concat());
    let exchange = [&[16, 0, 0, 3, 1, 1, 1][..], message].concat();
    talk_is_refused(&first, Answer::Chosen, &records(&exchange, 4096));
    talk_is_refused(&first, Answer::Chosen, &records(&exchange, 6));
}

#[test]
fn the_first_record_must_be_a_hello() {
    let other = hello(&[server_name_extension("b.example")], 4096);
    refused(&[&[0x15, 3, 1, 0, 2, 1, 112][..], &other].concat());
    refused(&[&[0x16, 4][..], &other[2..]].concat());
    refused(b"\x16\x02rest");
    refused(&[CHANGE, &other].concat());
    refused(DATA);
}

#[test]
fn the_older_handshake_passes() {
    let first = hello(&[server_name_extension("a.example")], 4096);
    let exchange = records(&[16, 0, 0, 4, 1, 2, 3, 4], 100);
    let finished = records(&[1; 40], 100);
    talk_passes(&first, Answer::Chosen, &[&exchange, CHANGE, &finished, DATA].concat());
    talk_passes(&first, Answer::Chosen, &[CHANGE, &finished, DATA].concat());
    // A message that goes on in another record may look like anything there.
    let long = records(&[&[11, 0, 0, 16][..], &[1; 16], &[16, 0, 0, 1, 1]].concat(), 10);
    talk_passes(&first, Answer::Chosen, &[&long, CHANGE, &finished].concat());
}

#[test]
fn http_is_found_behind_blank_lines_and_held_to_its_host() {
    passes(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    passes(b"\r\nGET / HTTP/1.1\r\nHost: a.example:443\r\n\r\n");
    for request in [
        &b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n"[..],
        b"\r\n\r\nGET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
        b"\nGET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
        b" GET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
        b"GET\t/\tHTTP/1.1\r\nHost: b.example\r\n\r\n",
        b"get / http/1.1\r\nHost: b.example\r\n\r\n",
        b"GET / HTTP/1.1\rHost: b.example\r\r\n",
        b"GET /\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\nHost: b.example\r\n\r\n",
        b"GET /\x01 HTTP/1.1\r\nHost: b.example\r\n\r\n",
    ] {
        refused(request);
    }
}

#[test]
fn other_protocols_pass() {
    for bytes in [
        &b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n"[..],
        b"EHLO me.example\r\n",
        b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        b"{\"json\": 1}",
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"AMQP\0\0\x09\x01",
        b"0032git-upload-pack /p.git\0host=a\0",
        b"GET key\n",
        b"\x30\x0c\x02\x01\x01\x60",
    ] {
        passes(bytes);
    }
}

#[test]
fn an_end_releases_what_is_no_protocol_of_ours() {
    let mut gate = gate();
    assert_eq!(out(&mut gate, b"WORD and", 3), Ok(Vec::new()));
    assert_eq!(gate.finish(), Ok(Some(b"WORD and".to_vec())));
    let mut gate = Gate::new(asked("a.example", 443), Arc::new(OneName));
    assert_eq!(out(&mut gate, b"GET / HTTP/1.1\r\nHo", 3), Ok(Vec::new()));
    assert_eq!(gate.finish(), Ok(None));
}

#[test]
fn a_bare_request_is_none_at_the_end_either() {
    for request in [&b"GET /"[..], b"get http://b.example/", b" GET /x \r"] {
        let mut gate = gate();
        assert_eq!(out(&mut gate, request, 3), Ok(Vec::new()));
        assert_eq!(gate.finish(), Err("an HTTP request without a version".to_owned()));
    }
    let mut gate = gate();
    assert_eq!(out(&mut gate, b"GET key", 3), Ok(Vec::new()));
    assert_eq!(gate.finish(), Ok(Some(b"GET key".to_vec())));
}

#[test]
fn a_dialled_address_takes_listed_names_only() {
    let mut dialled = Gate::new(asked("192.0.2.1", 443), Arc::new(OneName));
    let listed = hello(&[server_name_extension("listed.example")], 90);
    assert_eq!(out(&mut dialled, &listed, 11).as_deref(), Ok(&listed[..]));
    let mut dialled = Gate::new(asked("192.0.2.1", 443), Arc::new(OneName));
    assert!(out(&mut dialled, &hello(&[server_name_extension("other.example")], 90), 11).is_err());
}

proptest! {
    #[test]
    fn bytes_never_panic_and_never_change(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        kind in 0_usize..4,
        size in 1_usize..60,
    ) {
        let start: &[&[u8]] = &[b"", b"GET ", &[0x16, 3, 1], b"POST / HTTP/1.1\r\nHost: a.example\r\n"];
        let bytes = [start[kind], &bytes].concat();
        let mut gate = gate();
        if let Ok(mut passed) = out(&mut gate, &bytes, size) {
            if let Ok(Some(rest)) = gate.finish() {
                passed.extend(rest);
            }
            prop_assert!(bytes.starts_with(&passed));
        }
    }
}
