//! Starting and stopping, and what the log holds.

use std::io::Write as _;

use stockade_contract_tests::{Answer, Options, Service, until};

#[test]
fn without_a_secret_it_warns_and_stays_on_loopback() {
    let service = Service::plain();
    assert!(service.said().contains("Auth: disabled"), "{}", service.said());
    assert!(service.address().ip().is_loopback());
    for address in ["0.0.0.0:0", "[::]:0"] {
        let said = Service::refused(&Options { address: Some(address.into()), ..Options::default() });
        assert!(said.to_lowercase().contains("secret"), "{said}");
    }
}

#[test]
fn the_log_has_one_line_for_each_request_and_nothing_that_was_in_it() {
    let secret = "hidden-word-5512";
    let service = Service::start(Options { secret: Some(secret.into()), ..Options::default() });
    service.execute(r#"{"command":"echo body-word-5513"}"#);
    service.get("/v1/executions?limit=0&query-word-5514=1");
    service.raw("GET /\u{1b}[31mred%0a\u{7f} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    service.get("/path-word-5515");
    let said = until("the lines", || Some(service.said()).filter(|said| said.contains("path-word-5515")));
    for word in [secret, "body-word-5513", "query-word-5514"] {
        assert!(!said.contains(word), "{word}: {said}");
    }
    let line = said.lines().find(|line| line.contains("/execute")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("POST") && line.contains("200"), "{line}");
    // The service may colour its own words on a terminal; this is none.
    assert!(!said.contains('\u{1b}') && !said.contains('\u{7f}'), "{said:?}");
}

#[test]
fn stopping_finishes_what_runs_and_takes_no_more() {
    let mut service = Service::plain();
    let mut stream = service.connect();
    let request = service.request("POST /execute", &[], br#"{"command":"sleep 1; echo finished"}"#);
    stream.write_all(&request).expect("as this test needs it");
    until("it to run", || {
        let page = service.get("/v1/executions?state=running").json();
        (!page["executions"].as_array().expect("as this test needs it").is_empty()).then_some(())
    });
    service.ask_to_stop();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut bytes).expect("as this test needs it");
    let answer = Answer::only(&bytes);
    assert_eq!((answer.status, answer.json()["stdout"].as_str()), (200, Some("finished")));
    service.stop();
    assert!(std::net::TcpStream::connect(service.address()).is_err());
}
