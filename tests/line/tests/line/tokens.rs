//! `stockade token`, beside a service or without one: the text is shown once, and nothing of it is kept.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::chown;
use stockade_line_tests::{Line, World, am_root, files_below, said_no, skip};

fn state(world: &World) -> String {
    world.base().join("state").display().to_string()
}

fn token<'w>(world: &'w World, words: &[&str]) -> Line<'w> {
    world.cli(&[&["token"], words].concat()).option("--state", state(world))
}

#[test]
fn a_token_is_shown_once_and_listed_without_what_opens() {
    let world = World::new();
    let made =
        token(&world, &["create", "ci", "--scope", "execute", "--scope", "read", "--scope", "read"]).go();
    let text = made.ends_with(0).out();
    let secret = text.trim_end_matches('\n');
    assert!(secret.starts_with("stk_") && secret.len() == 85 && !secret.contains('\n'), "{secret}");
    let id = &secret[4..20];

    let listed = token(&world, &["list"]).go().ends_with(0);
    let out = listed.out();
    assert!(out.starts_with("ID") && out.contains(id) && out.contains("execute,read  "), "{listed}");
    assert!(out.contains("never") && out.contains("valid") && !out.contains(&secret[21..]), "{listed}");
    let json = token(&world, &["list", "--json"]).go().ends_with(0);
    let value: serde_json::Value = serde_json::from_str(&json.out()).expect("one line of JSON");
    assert_eq!((&value["id"], &value["name"]), (&id.into(), &"ci".into()), "{json}");
    assert_eq!(value["scopes"], serde_json::json!(["execute", "read"]), "{json}");

    for file in files_below(&world.base().join("state")) {
        let bytes = fs::read(&file).expect("a file of ours");
        assert!(!bytes.windows(64).any(|window| window == &secret.as_bytes()[21..]), "{}", file.display());
        assert_eq!(
            fs::metadata(&file).expect("its mode").permissions().mode() & 0o077,
            0,
            "{}",
            file.display()
        );
    }
}

#[test]
fn a_token_is_revoked_by_name_or_id_and_only_once() {
    let world = World::new();
    for name in ["one", "two"] {
        token(&world, &["create", name, "--scope", "admin"]).go().ends_with(0);
    }
    let listed = token(&world, &["list", "--json"]).go().ends_with(0).out();
    let second: serde_json::Value =
        serde_json::from_str(listed.lines().nth(1).expect("two tokens")).expect("JSON");
    token(&world, &["revoke", "one"]).go().ends_with(0);
    token(&world, &["revoke", second["id"].as_str().expect("an id")]).go().ends_with(0);
    let out = token(&world, &["list"]).go().ends_with(0).out();
    assert_eq!(out.matches("revoked 20").count(), 2, "{out}");
    let again = token(&world, &["revoke", "one"]).go().ends_with(125);
    said_no(&again, "SK-R041");
    assert!(again.err().contains("no valid token `one`"), "{again}");
}

#[test]
fn mistakes_are_refused_and_make_nothing() {
    let world = World::new();
    for words in [
        &["create", "ci"][..],
        &["create", "--scope", "read"],
        &["create", "ci", "--scope", "root"],
        &["create", "ci", "--scope", ""],
    ] {
        let ran = token(&world, words).go().ends_with(125);
        assert!(
            ran.stdout.is_empty() && ran.err().contains("Usage") || ran.err().contains("error:"),
            "{ran}"
        );
    }
    assert!(!world.base().join("state").exists());
    // A list of nothing is no mistake; a directory that is not there is.
    said_no(&token(&world, &["list"]).go().ends_with(125), "SK-R041");
    assert!(!world.base().join("state").exists());

    token(&world, &["create", "ci", "--scope", "read"]).go().ends_with(0);
    let long = "n".repeat(200);
    for name in ["ci", "", "a\nb", &long] {
        let ran = token(&world, &["create", name, "--scope", "read"]).go().ends_with(125);
        said_no(&ran, "SK-R041");
        assert!(ran.stdout.is_empty(), "{ran}");
    }
    assert_eq!(token(&world, &["list"]).go().ends_with(0).out().lines().count(), 2);
}

#[test]
fn another_users_directory_is_left_alone() {
    if !am_root() {
        return skip("only root can give a directory away");
    }
    let world = World::new();
    let directory = world.base().join("state");
    fs::create_dir(&directory).expect("a fresh directory");
    let nobody = (rustix::fs::Uid::from_raw(65534), rustix::fs::Gid::from_raw(65534));
    chown(&directory, Some(nobody.0), Some(nobody.1)).expect("root gives it away");
    let ran = token(&world, &["create", "ci", "--scope", "read"]).go().ends_with(125);
    said_no(&ran, "SK-R051");
    assert!(ran.err().contains("belongs to uid 65534") && ran.err().contains("sudo -u '#65534'"), "{ran}");
    assert_eq!(fs::read_dir(&directory).expect("it is there").count(), 0);
}

#[test]
fn the_usual_place_is_below_the_home_of_an_ordinary_user() {
    if am_root() {
        return skip("root's is the system's");
    }
    let world = World::new();
    world.cli(&["token", "create", "ci", "--scope", "read"]).go().ends_with(0);
    assert!(world.home().join(".local/state/stockade/stockade.db").exists());
}

/// A token that nobody got is no token.
#[test]
fn a_reader_that_is_gone_leaves_no_token_behind() {
    let world = World::new();
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    drop(read);
    let ran = token(&world, &["create", "ci", "--scope", "read"]).stdout_to(write).go().ends_with(122);
    said_no(&ran, "SK-F005");
    let out = token(&world, &["list"]).go().ends_with(0).out();
    assert!(out.contains("revoked 20") && !out.contains("valid"), "{out}");
}
