//! `stockade doctor` through the command line, on a host where the rest of this suite runs.

use serde_json::Value;
use stockade_line_tests::World;

const LAYERS: [&str; 7] = ["filesystem", "landlock", "process", "network", "seccomp", "sockets", "limits"];

#[test]
fn every_layer_is_proven_by_attempts() {
    let world = World::new();
    let ran = world.cli(&["doctor", "--json"]).go().ends_with(0);
    let report: Value = serde_json::from_str(&ran.out()).expect("one JSON object");
    assert_eq!(report["ok"], true, "{ran}");
    let layers = report["layers"].as_array().expect("a list of layers");
    let names: Vec<&str> = layers.iter().filter_map(|layer| layer["layer"].as_str()).collect();
    assert_eq!(names, LAYERS, "{ran}");
    for layer in layers {
        assert_eq!(layer["state"], "enforced", "{layer}");
        let attempts = layer["attempts"].as_array().expect("a list of attempts");
        assert!(attempts.iter().any(|attempt| attempt["proven"] == true), "nothing proven: {layer}");
        assert!(attempts.iter().all(|attempt| attempt["with"] != "works"), "an attempt worked: {layer}");
    }
}

#[test]
fn text_has_one_line_per_layer() {
    let world = World::new();
    let ran = world.cli(&["doctor", "--text"]).go().ends_with(0);
    for layer in LAYERS {
        assert!(ran.out().lines().any(|line| line.starts_with(layer)), "{layer}: {ran}");
    }
    assert!(ran.out().contains("can be enforced in full"), "{ran}");
}
