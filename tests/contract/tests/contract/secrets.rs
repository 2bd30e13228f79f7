//! Secrets over HTTP: what is kept is what can be redacted.

use std::process::Command;

use stockade_contract_tests::{Answer, Service, programs};

fn admin(service: &Service) -> String {
    let made = Command::new(programs().join("stockade"))
        .args(["token", "create", "keeper", "--scope", "admin", "--state"])
        .arg(service.path("state"))
        .output()
        .expect("stockade starts");
    assert!(made.status.success(), "{made:?}");
    format!("Authorization: Bearer {}", String::from_utf8_lossy(&made.stdout).trim())
}

#[test]
fn a_value_that_is_too_short_to_redact_is_not_kept() {
    let service = Service::plain();
    let admin = admin(&service);
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
