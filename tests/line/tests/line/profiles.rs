//! RUN-10: where profiles are found, what a workspace's own may do, and what it may not.

use std::path::Path;

use stockade_line_tests::{World, am_root, skip, unique};
use stockade_proto::{Code, Outcome};

fn with_variable(value: &str) -> String {
    format!("extends = \"default\"\n[env]\nset = {{ FROM = \"{value}\" }}\n")
}

#[test]
fn the_built_in_ones() {
    let world = World::new();
    for name in ["default", "readonly", "build", "host"] {
        let ran = world.line(&["true"]).profile(name).go().ends_with(0);
        assert_eq!(ran.result().profile, name, "{ran}");
    }
    world.line(&["touch", "made"]).profile("readonly").go().ends_with(1);
    assert!(!world.work().join("made").exists());
    world.line(&["touch", "made"]).profile("build").go().ends_with(0);
    // No walls: the caller's own files are there.
    world.plant("beside", "seen");
    let ran = world.sh("cat ../beside").profile("host").go().ends_with(0);
    assert_eq!(ran.out(), "seen");
}

#[test]
fn the_users_own_goes_before_the_built_in() {
    let world = World::new();
    world.profile("default", &with_variable("user"));
    let ran = world.sh("echo $FROM").go().ends_with(0);
    assert_eq!(ran.out(), "user\n");
    // XDG_CONFIG_HOME unset: below the home.
    let mut world = World::new();
    world.unset("XDG_CONFIG_HOME");
    world.plant("home/.config/stockade/profiles/mine.toml", with_variable("home"));
    let ran = world.sh("echo $FROM").profile("mine").go().ends_with(0);
    assert_eq!(ran.out(), "home\n");
}

#[test]
fn the_systems_goes_between() {
    if !am_root() {
        return skip("only root can write /etc/stockade/profiles");
    }
    struct Clean(Vec<std::path::PathBuf>);
    impl Drop for Clean {
        fn drop(&mut self) {
            for path in &self.0 {
                // Directories only if nothing else is in them.
                drop(std::fs::remove_file(path).or_else(|_| std::fs::remove_dir(path)));
            }
        }
    }
    let (world, name) = (World::new(), unique("line-test-"));
    let directory = Path::new("/etc/stockade/profiles");
    let mut made = Vec::new();
    for path in [directory.to_path_buf(), directory.parent().expect("/etc/stockade").to_path_buf()] {
        if !path.exists() {
            made.push(path);
        }
    }
    let file = directory.join(format!("{name}.toml"));
    made.insert(0, file.clone());
    let _clean = Clean(made);
    std::fs::create_dir_all(directory).expect("root makes it");
    std::fs::write(&file, with_variable("system")).expect("root writes it");
    let ran = world.sh("echo $FROM").profile(&name).go().ends_with(0);
    assert_eq!(ran.out(), "system\n");
    world.profile(&name, &with_variable("user"));
    let ran = world.sh("echo $FROM").profile(&name).go().ends_with(0);
    assert_eq!(ran.out(), "user\n");
    // One's own name means the same name at the next more trusted place.
    world.profile(&name, &format!("extends = \"{name}\"\n"));
    let ran = world.sh("echo $FROM").profile(&name).go().ends_with(0);
    assert_eq!(ran.out(), "system\n");
}

#[test]
fn an_unknown_name_is_a_refusal_never_host() {
    let world = World::new();
    for name in ["nothing", "Host", "hots", "../default", "default.toml", "a/b", "", "é", "host "] {
        let ran = world.line(&["touch", "ran"]).profile(name).go();
        let refusal = ran.refused(Code::ProfileUnknown);
        for known in ["build", "default", "host", "readonly"] {
            assert!(refusal.message.contains(known), "{ran}");
        }
        assert!(!refusal.remedy.contains("`host`"), "the one without walls is no remedy: {ran}");
        assert!(!world.work().join("ran").exists());
    }
    let refusal = world.line(&["true"]).profile("defualt").go().refused(Code::ProfileUnknown);
    assert!(refusal.remedy.contains("did you mean `default`"), "{refusal:?}");
}

#[test]
fn a_workspaces_profile_narrows() {
    let world = World::new();
    world.workspace_profile(
        "default",
        "fs = \"workspace-readonly\"\ndeny = [\"private/**\"]\n[limits]\nmemory = \"100M\"\nwall = \"30s\"\n[env]\nallow = [\"PATH\"]\n",
    );
    world.plant("work/private/file", "secret");
    let ran = world.sh("touch made; cat private/file; env | cut -d= -f1 | sort | tr '\\n' ' '").go();
    assert!(!world.work().join("made").exists(), "{ran}");
    assert!(!ran.out().contains("secret"), "{ran}");
    assert!(!ran.out().contains("HOME") && !ran.out().contains("USER"), "{ran}");
    let ran = world.line(&["tail", "/dev/zero"]).go();
    assert_eq!(ran.result().outcome, Outcome::OomKilled, "{ran}");
    assert!(ran.result().usage.memory_peak_bytes < 110 << 20, "{ran}");
}

#[test]
fn a_workspaces_profile_can_t_widen() {
    let world = World::new();
    for (line, body) in [
        (1, "mode = \"host\"\n"),
        (1, "network = \"inherit\"\n"),
        (1, "fs = \"inherit\"\n"),
        (1, "readable = [\"/root\"]\n"),
        (1, "writable = [\"~/.ssh\"]\n"),
        (1, "extends = \"build\"\n"),
        (1, "extends = \"host\"\n"),
        (2, "[limits]\nmemory = \"1G\"\n"),
        (2, "[limits]\nwall = \"none\"\n"),
        (3, "[limits]\nmemory = \"1M\"\nprocesses = 100000\n"),
        (2, "[layers]\nseccomp = \"off\"\n"),
        (2, "[layers]\nnetwork = \"prefer\"\n"),
        (2, "[env]\nallow = [\"AWS_SECRET_ACCESS_KEY\"]\n"),
        (2, "[env]\nallow = [\"*\"]\n"),
        (2, "[shell]\nallowed-programs = [\"/usr/bin/env\"]\n"),
    ] {
        let file = world.workspace_profile("default", body);
        let ran = world.line(&["touch", "ran"]).go();
        let refusal = ran.refused(Code::ProfileWidens);
        let origin = refusal.origin.unwrap_or_else(|| panic!("no place: {ran}"));
        assert_eq!(origin.file.to_path_buf(), file, "{body}: {ran}");
        assert_eq!(origin.line, line, "{body}: {ran}");
        assert!(
            ran.err().contains(&format!("{}:{}:{}", file.display(), origin.line, origin.column)),
            "{ran}"
        );
        assert!(!world.work().join("ran").exists());
    }
}

#[test]
fn widening_names_both_values() {
    let world = World::new();
    world.profile("default", "extends = \"default\"\n[limits]\nmemory = \"200M\"\n");
    let theirs = world.workspace_profile("default", "[limits]\nmemory = \"300M\"\n");
    let ran = world.line(&["true"]).go();
    let refusal = ran.refused(Code::ProfileWidens);
    assert!(refusal.message.contains("300M") && refusal.message.contains("200M"), "{ran}");
    assert!(ran.err().contains(&theirs.display().to_string()), "{ran}");
}

#[test]
fn a_new_name_in_a_workspace_narrows_the_default() {
    let world = World::new();
    world.workspace_profile("fresh", "fs = \"workspace-readonly\"\n");
    let ran = world.line(&["touch", "made"]).profile("fresh").go();
    assert_ne!(ran.code(), 0, "{ran}");
    assert!(!world.work().join("made").exists());
    world.workspace_profile("fresh", "mode = \"host\"\n");
    world.line(&["true"]).profile("fresh").go().refused(Code::ProfileWidens);
}

#[test]
fn commands_can_t_write_the_workspaces_profile() {
    let world = World::new();
    let script = "mkdir -p .stockade; echo 'fs = \"inherit\"' > .stockade/default.toml; ls -A; mv .stockade away; \
                  rm -rf .stockade; ln -s /tmp .stockade; true";
    let ran = world.sh(script).go().ends_with(0);
    assert!(!world.work().join(".stockade").exists(), "a placeholder was left: {ran}");
    assert!(!world.work().join("away").exists(), "{ran}");
    world.line(&["true"]).go().ends_with(0);
}

#[test]
fn a_profile_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let file = world.profile("loose", &with_variable("x"));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).expect("its mode");
    let refusal = world.line(&["true"]).profile("loose").go().refused(Code::ProfileInvalid);
    assert!(refusal.message.contains("written by others"), "{refusal:?}");
}

#[test]
fn a_users_profile_inside_the_workspace_is_refused() {
    let mut world = World::new();
    world.set("XDG_CONFIG_HOME", world.work().join("config"));
    world.plant("work/config/stockade/profiles/mine.toml", with_variable("x"));
    let refusal = world.line(&["true"]).profile("mine").go().refused(Code::ProfileInvalid);
    assert!(refusal.message.contains("workspace"), "{refusal:?}");
}

#[test]
fn a_symlink_as_a_workspaces_profile() {
    let world = World::new();
    world.plant("elsewhere.toml", "fs = \"workspace-readonly\"\n");
    std::fs::create_dir(world.work().join(".stockade")).expect("a fresh directory");
    let link = world.work().join(".stockade/default.toml");
    std::os::unix::fs::symlink(world.base().join("elsewhere.toml"), &link).expect("a link");
    let refusal = world.line(&["true"]).go().refused(Code::ProfileInvalid);
    assert!(refusal.message.contains("symbolic link"), "{refusal:?}");
    // A FIFO must not hold us forever.
    std::fs::remove_file(&link).expect("the link");
    let fifo = std::process::Command::new("mkfifo").arg(&link).status();
    if fifo.is_ok_and(|status| status.success()) {
        world.line(&["true"]).go().refused(Code::ProfileInvalid);
    }
}

#[test]
fn extra_paths_of_the_users_profile() {
    let mut world = World::new();
    world.set("EXTRA", world.base().join("by-variable"));
    world.plant("home/notes/file", "notes\n");
    world.plant("by-variable/file", "variable\n");
    world.plant("shared/file", "shared\n");
    let shared = world.base().join("shared").display().to_string();
    world.profile(
        "more",
        &format!(
            "extends = \"default\"\nreadable = [\"~/notes\", \"$EXTRA\", \"/no/such/path?\"]\nwritable = [\"{shared}\"]\n"
        ),
    );
    let script = format!(
        "cat ~/notes/file {0}/by-variable/file; echo x > ~/notes/new; echo made > {shared}/new",
        world.base().display()
    );
    let ran = world.sh(&script).profile("more").go().ends_with(0);
    assert_eq!(ran.out(), "notes\nvariable\n", "{ran}");
    assert!(!world.home().join("notes/new").exists(), "{ran}");
    assert_eq!(world.read("shared/new"), "made\n");
}

#[test]
fn deny_globs() {
    let world = World::new();
    for path in [".env", "deep/er/.env", "plain", ".git/hooks/pre-commit", ".git/config"] {
        world.plant(&format!("work/{path}"), "contents\n");
    }
    let script = "cat .env deep/er/.env; cat plain; echo evil > .git/hooks/pre-commit; echo evil > .git/hooks/new; \
                  echo evil >> .git/config; rm -rf .git/hooks; mv .git .tig; mv .env x; exit 0";
    let ran = world.sh(script).go().ends_with(0);
    assert_eq!(ran.out(), "contents\n", "{ran}");
    for path in [".env", "deep/er/.env", ".git/hooks/pre-commit", ".git/config"] {
        assert_eq!(world.read(&format!("work/{path}")), "contents\n", "{path}: {ran}");
    }
    assert!(!world.work().join(".git/hooks/new").exists());
}

#[test]
fn explain_runs_nothing() {
    let world = World::new();
    let ran = world.line(&["touch", "ran"]).flag("--explain").go().ends_with(0);
    assert!(!world.work().join("ran").exists());
    assert!(!world.work().join(".stockade").exists(), "not even a placeholder is made");
    for word in ["touch", "ran", "workspace", "network", "memory", "seccomp", "landlock"] {
        assert!(ran.out().to_lowercase().contains(word), "{word}: {ran}");
    }
    assert!(ran.json.as_deref().unwrap_or_default().is_empty(), "no execution, no result: {ran}");
    // A refusal is one here too.
    world.line(&["touch", "ran"]).flag("--explain").profile("nothing").go().refused(Code::ProfileUnknown);
    world.line(&[""]).flag("--explain").go().refused(Code::CommandEmpty);
}

#[test]
fn without_walls_only_by_a_flag_that_says_so() {
    let world = World::new();
    world.plant("beside", "seen\n");
    let ran = world.sh("cat ../beside").flag("--dangerously-without-walls").go().ends_with(0);
    assert_eq!(ran.out(), "seen\n");
    assert!(ran.err().contains("WITHOUT WALLS"), "{ran}");
    let ran = world
        .line(&["touch", "ran"])
        .flag("--dangerously-without-walls")
        .caller_env("STOCKADE_PRODUCTION", "1")
        .go();
    ran.refused(Code::HostUnsupported);
    assert!(!world.work().join("ran").exists());
}
