//! Keys of the caller: session and user keyrings are inherited across everything but a new one.

use stockade_escape_tests::{Sandbox, wall};
use stockade_proto::Layer;

const KEY: &str = "stockade-escape-key";

fn with_key() -> Sandbox {
    Sandbox::new().staged(&format!("with-key {KEY} walrus"))
}

#[test]
fn a_key_of_the_caller() {
    let sandbox = with_key();
    assert_eq!(sandbox.bare(&format!("key-read {KEY}")).won(), "walrus");
    sandbox.attack(&format!("key-read {KEY}")).held();
}

#[test]
fn without_the_filter_the_session_keyring_is_still_new() {
    let sandbox = with_key().without(&[Layer::Seccomp]);
    sandbox.attack(&format!("key-read {KEY}")).held();
}

#[test]
fn keys_of_its_own() {
    wall(&Sandbox::new(), "key-add");
}

#[test]
fn the_list_of_keys() {
    let sandbox = with_key();
    let ran = sandbox.run(&["sh", "-c", "cat /proc/keys /proc/key-users 2>/dev/null"]);
    assert!(!ran.stdout_text().contains(KEY), "{ran}");
}
