//! A grandchild that keeps the output pipe open must not delay the result.

use std::time::Duration;

use stockade_escape_tests::{Sandbox, find_marked, kill_marked, scaled};

#[test]
fn the_result_does_not_wait() {
    let sandbox = Sandbox::new();
    let bare = sandbox.run_bare("pipe-holder walrus-bare-holder");
    let held_open = !bare.pipes_closed;
    kill_marked("walrus-bare-holder");
    assert!(held_open, "the holder does not hold the pipe even without walls");
    let ran = sandbox.run_attack("pipe-holder walrus-holder");
    assert_eq!(ran.code(), 0, "{ran}");
    assert!(ran.pipes_closed, "{ran}");
    assert!(ran.wall < scaled(Duration::from_secs(5)), "{ran}");
    assert!(find_marked("walrus-holder").is_empty());
    assert!(ran.stdout_text().contains("VERDICT won"), "output before the end was lost: {ran}");
}
