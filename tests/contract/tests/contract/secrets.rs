//! Secrets over HTTP: what is kept is what can be redacted.

use stockade_contract_tests::{Answer, Service};

#[test]
fn a_value_that_is_too_short_to_redact_is_not_kept() {
    let service = Service::plain();
    let admin = service.token("keeper", &["admin"]);
    let set = |value: &str| -> Answer {
        service.ask("PUT /v1/secrets/API_KEY", &[&admin, "Content-Type: application/octet-stream"], value)
    };
    for value in ["", "1234567", "1234567\n", "\r\n\r\n\r\n\r\n\r\n"] {
        let refused = set(value);
        refused.is_problem(400, "SK-R040");
        assert!(!refused.text().contains("1234567"), "{}", refused.text());
    }
    let list = || service.ask("GET /v1/secrets", &[&admin], "").json()["secrets"].clone();
    assert_eq!(list(), serde_json::json!([]));
    let audit = service.ask("GET /v1/audit", &[&admin], "").text();
    assert!(!audit.contains("set secret"), "what was not done is not noted: {audit}");
    assert_eq!(set("12345678").status, 204);
    assert_eq!(list()[0]["name"], "API_KEY");
}

#[test]
fn a_name_may_be_as_long_as_the_document_says() {
    let service = Service::plain();
    let admin = service.token("keeper", &["admin"]);
    let document = service.get("/v1/openapi.json").json();
    let schema = &document["paths"]["/v1/secrets/{name}"]["put"]["parameters"][0]["schema"];
    let longest = usize::try_from(schema["maxLength"].as_u64().expect("a length")).expect("a short one");
    let set = |length: usize| {
        let line = format!("PUT /v1/secrets/{}", "A".repeat(length));
        service.ask(&line, &[&admin, "Content-Type: application/octet-stream"], "12345678").status
    };
    assert_eq!((set(longest), set(longest + 1)), (204, 400));
}
