//! `stockade policy init|check|show|explain`.

use stockade_line_tests::World;

#[test]
fn init_writes_a_profile_that_is_valid_and_changes_nothing() {
    let world = World::new();
    let ran = world.cli(&["policy", "init", "mine"]).go().ends_with(0);
    let file = world.base().join("config/stockade/profiles/mine.toml");
    assert!(file.exists() && ran.out().contains(&file.display().to_string()), "{ran}");
    let ran = world.cli(&["policy", "check", "mine"]).go().ends_with(0);
    assert!(ran.out().contains("mine: valid"), "{ran}");
    world.cli(&["policy", "check", &file.display().to_string()]).go().ends_with(0);
    world.line(&["true"]).profile("mine").go().ends_with(0);
    // It is not overwritten.
    std::fs::write(&file, "# mine\n").expect("its owner writes it");
    let ran = world.cli(&["policy", "init", "mine"]).go().ends_with(125);
    assert!(ran.err().contains("SK-R041"), "{ran}");
    assert_eq!(world.read("config/stockade/profiles/mine.toml"), "# mine\n");
}

#[test]
fn init_makes_its_directories() {
    let mut world = World::new();
    world.set("XDG_CONFIG_HOME", world.base().join("new/config"));
    world.cli(&["policy", "init"]).go().ends_with(0);
    assert!(world.base().join("new/config/stockade/profiles/default.toml").exists());
    world.line(&["true"]).go().ends_with(0);
}

#[test]
fn init_in_a_workspace() {
    let world = World::new();
    world.cli(&["policy", "init", "--workspace"]).go().ends_with(0);
    assert!(world.work().join(".stockade/default.toml").exists());
    world.line(&["true"]).go().ends_with(0);
    world.cli(&["policy", "check"]).go().ends_with(0);
}

#[test]
fn init_with_a_name_that_is_none() {
    let world = World::new();
    for name in ["../x", "a b", "", "x.toml", "é"] {
        let ran = world.cli(&["policy", "init", name]).go().ends_with(125);
        assert!(ran.err().contains("SK-R041"), "{ran}");
    }
    world.cli(&["policy", "init", "--user", "--workspace"]).go().ends_with(125);
}

#[test]
fn check_draws_the_mistake() {
    let world = World::new();
    let file = world.profile("wrong", "description = \"x\"\n[limits]\nmemroy = \"1G\"\n");
    for target in ["wrong".to_owned(), file.display().to_string()] {
        let ran = world.cli(&["policy", "check", &target]).go().ends_with(125);
        let shown = ran.out() + &ran.err();
        assert!(shown.contains(&format!("{}:3:1", file.display())), "{ran}");
        assert!(shown.contains("memroy = \"1G\""), "the line itself: {ran}");
        assert!(shown.contains("^^^^^^") && shown.contains("did you mean `memory`"), "{ran}");
        assert!(shown.contains("SK-R021") && !shown.contains('\u{1b}'), "{ran}");
    }
}

#[test]
fn check_judges_a_workspaces_file_as_the_workspaces() {
    let world = World::new();
    let file = world.workspace_profile("loose", "mode = \"host\"\n");
    let ran = world.cli(&["policy", "check", &file.display().to_string()]).go().ends_with(125);
    assert!((ran.out() + &ran.err()).contains("SK-R022"), "{ran}");
}

#[test]
fn check_of_what_is_not_there() {
    let world = World::new();
    for target in ["nothing", "./nothing.toml", "/etc", "/dev/zero", "/dev/null"] {
        let ran = world.cli(&["policy", "check", target]).go().ends_with(125);
        assert!((ran.out() + &ran.err()).contains("SK-R02"), "{target}: {ran}");
    }
}

#[test]
fn show_reads_back_as_the_same_profile() {
    let world = World::new();
    for name in ["default", "readonly", "build", "host"] {
        let shown = world.cli(&["policy", "show", name]).go().ends_with(0).out();
        assert!(shown.contains("[limits]") && shown.contains('#'), "{shown}");
        world.profile("copy", &shown);
        let again = world.cli(&["policy", "show", "copy"]).go().ends_with(0).out();
        let values = |text: &str| -> Vec<String> {
            text.lines().filter_map(|line| Some(line.split_once("  #")?.0.to_owned())).collect()
        };
        assert_eq!(values(&shown), values(&again), "{name}");
    }
}

#[test]
fn show_says_who_decided() {
    let world = World::new();
    let own = world.profile("default", "extends = \"default\"\n[limits]\nmemory = \"200M\"\n");
    let theirs = world.workspace_profile("default", "[limits]\nwall = \"1m\"\n");
    let shown = world.cli(&["policy", "show"]).go().ends_with(0).out();
    let line =
        |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    assert!(line("memory = \"200M\"").contains(&format!("{}:3", own.display())), "{shown}");
    assert!(line("wall = \"1m\"").contains(&format!("{}:2", theirs.display())), "{shown}");
    assert!(line("processes =").contains("built-in"), "{shown}");
    let told = world.cli(&["policy", "explain"]).go().ends_with(0).out();
    assert!(told.contains("memory is limited to 200M") && told.contains("There is no network."), "{told}");
    assert!(
        told.contains(&own.display().to_string()) && told.contains(&theirs.display().to_string()),
        "{told}"
    );
}

#[test]
fn explain_and_show_of_an_unknown_profile() {
    let world = World::new();
    for verb in ["show", "explain", "check"] {
        let ran = world.cli(&["policy", verb, "nothing"]).go().ends_with(125);
        assert!((ran.out() + &ran.err()).contains("SK-R020"), "{ran}");
    }
}

#[test]
fn a_reader_that_is_gone() {
    let world = World::new();
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    drop(reader);
    let ran = world.cli(&["policy", "show"]).stdout_to(writer).go();
    assert!(!ran.err().contains("panicked"), "{ran}");
}
