//! Git hooks and config: what a person's own git would run later, outside the sandbox.

use std::path::PathBuf;

use stockade_escape_tests::Sandbox;

fn repository() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.plant("work/.git/HEAD", "ref: refs/heads/main\n");
    sandbox.plant("work/.git/config", "[core]\n\tbare = false\n");
    sandbox.plant("work/.git/hooks/pre-commit.sample", "#!/bin/sh\n");
    sandbox.plant("work/.git/objects/x", "");
    sandbox.plant("work/.git/refs/x", "");
    sandbox
}

/// What git would run or read as orders, wherever the attack may have left it.
fn orders(sandbox: &Sandbox) -> Vec<(PathBuf, Vec<u8>)> {
    let git = sandbox.workspace().join(".git");
    let mut found = vec![(git.join("config"), std::fs::read(git.join("config")).unwrap_or_default())];
    for entry in std::fs::read_dir(git.join("hooks")).into_iter().flatten().flatten() {
        found.push((entry.path(), std::fs::read(entry.path()).unwrap_or_default()));
    }
    found.sort();
    found
}

#[track_caller]
fn unchanged(attack: &str) {
    let open = repository();
    let before = orders(&open);
    open.bare(attack).won();
    assert_ne!(
        before.iter().map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>(),
        orders(&open).iter().map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>(),
        "{attack} changes nothing without walls"
    );
    let closed = repository();
    let before = orders(&closed);
    let verdict = closed.attack(attack);
    assert_eq!(before, orders(&closed), "{attack}: {verdict:?}");
}

#[test]
fn a_new_hook() {
    unchanged("create ./.git/hooks/post-checkout");
}

#[test]
fn a_hook_that_exists() {
    unchanged("write ./.git/hooks/pre-commit.sample");
    unchanged(
        "rename ./.git/hooks/pre-commit.sample ./.git/hooks/pre-commit , write ./.git/hooks/pre-commit",
    );
    unchanged("unlink ./.git/hooks/pre-commit.sample");
}

#[test]
fn the_config() {
    unchanged("write ./.git/config");
    unchanged("truncate ./.git/config");
    unchanged("create ./.git/c , rename ./.git/c ./.git/config");
    unchanged("unlink ./.git/config , create ./.git/config");
}

#[test]
fn a_new_directory_of_hooks() {
    unchanged("rename ./.git/hooks ./.git/hooks2 , mkdir ./.git/hooks , create ./.git/hooks/pre-commit");
    unchanged("mkdir ./h , create ./h/pre-commit , exchange ./h ./.git/hooks");
}

#[test]
fn a_new_git_directory() {
    unchanged("rename ./.git ./.git2 , mkdir ./.git , mkdir ./.git/hooks , create ./.git/hooks/pre-commit");
    unchanged("mkdir ./g , mkdir ./g/hooks , create ./g/hooks/pre-commit , exchange ./g ./.git");
}

#[test]
fn a_hooks_directory_that_was_not_there() {
    let make = || {
        let sandbox = Sandbox::new();
        sandbox.plant("work/.git/HEAD", "ref: refs/heads/main\n");
        sandbox.plant("work/.git/config", "[core]\n");
        sandbox
    };
    let attack = "try mkdir ./.git/hooks , create ./.git/hooks/pre-commit";
    make().bare(attack).won();
    let closed = make();
    closed.attack(attack).held();
    assert!(!closed.workspace().join(".git/hooks/pre-commit").exists());
    assert!(!closed.workspace().join(".git/hooks").exists(), "the placeholder was left behind");
}

#[test]
fn a_repository_below() {
    let make = || {
        let sandbox = Sandbox::new();
        sandbox.plant("work/lib/inner/.git/HEAD", "ref: refs/heads/main\n");
        sandbox.plant("work/lib/inner/.git/config", "[core]\n");
        sandbox.plant("work/lib/inner/.git/hooks/x", "");
        sandbox
    };
    let attack = "create ./lib/inner/.git/hooks/pre-commit";
    make().bare(attack).won();
    make().attack(attack).held();
    make().attack("write ./lib/inner/.git/config").held();
    let closed = make();
    let verdict = closed.attack("rename ./lib ./lib2 , create ./lib2/inner/.git/hooks/pre-commit");
    assert!(!closed.workspace().join("lib2/inner/.git/hooks/pre-commit").exists(), "{verdict:?}");
}

#[test]
fn a_worktree_points_elsewhere() {
    // `.git` is a file here; the repository it names lies outside the workspace.
    let sandbox = Sandbox::new();
    sandbox.plant("main/.git/HEAD", "ref: refs/heads/main\n");
    sandbox.plant("main/.git/config", "[core]\n");
    sandbox.plant("main/.git/hooks/x", "");
    sandbox.plant("main/.git/worktrees/w/gitdir", &format!("{}/.git\n", sandbox.workspace().display()));
    sandbox.plant("main/.git/worktrees/w/commondir", "../..\n");
    sandbox.plant("main/.git/worktrees/w/HEAD", "ref: refs/heads/main\n");
    let main = sandbox.base().join("main/.git");
    sandbox.plant("work/.git", &format!("gitdir: {}/worktrees/w\n", main.display()));
    let attack = format!("create {}/hooks/pre-commit", main.display());
    sandbox.attack(&attack).held();
    sandbox.attack(&format!("write {}/config", main.display())).held();
    assert!(!main.join("hooks/pre-commit").exists());
    sandbox.bare(&attack).won();
}

#[test]
fn a_lying_git_file_opens_nothing() {
    // The agent may write `.git` in one execution and run another: what it names must not be shown.
    let sandbox = Sandbox::new();
    let outside = sandbox.outside().display().to_string();
    sandbox.plant("work/.git", &format!("gitdir: {outside}\n"));
    let ran = sandbox.run_attack(&format!("read {outside}/secret"));
    assert!(!ran.stdout_text().contains("walrus"), "{ran}");
    let ran = sandbox.run_attack(&format!("create {outside}/new"));
    assert!(!sandbox.outside().join("new").exists(), "{ran}");
    // One that looks like a repository is no better: its secret is not ours to show.
    let sandbox = Sandbox::new();
    let outside = sandbox.outside().display().to_string();
    sandbox.plant("outside/HEAD", "ref: refs/heads/main\n");
    sandbox.plant("outside/objects/x", "");
    sandbox.plant("outside/refs/x", "");
    sandbox.plant("outside/commondir", ".\n");
    sandbox.plant("work/.git", &format!("gitdir: {outside}\n"));
    let ran = sandbox.run_attack(&format!("read {outside}/secret"));
    assert!(!ran.stdout_text().contains("walrus"), "{ran}");
}

/// In a repository's own directory `commondir` sends git to another directory's config and hooks.
#[test]
fn a_common_directory_of_the_attackers_own() {
    let attack = "mkdir ./evil , create ./evil/config , create ./.git/commondir";
    repository().bare(attack).won();
    let closed = repository();
    let ran = closed.run_attack(attack);
    assert!(!closed.workspace().join(".git/commondir").exists(), "git would obey ./evil/config now: {ran}");
}

/// Where the repository says that its worktrees have settings of their own, a new file is obeyed at once.
#[test]
fn settings_of_a_worktree() {
    let make = || {
        let sandbox = repository();
        sandbox.plant("work/.git/config", "[extensions]\n\tworktreeConfig = true\n");
        sandbox
    };
    make().bare("create ./.git/config.worktree").won();
    let closed = make();
    let ran = closed.run_attack("create ./.git/config.worktree");
    assert!(!closed.workspace().join(".git/config.worktree").exists(), "git would obey it now: {ran}");
}

/// A submodule's `.git` is a file that says where its repository is: git follows it from the top.
#[test]
fn a_submodules_git_file() {
    let make = || {
        let sandbox = repository();
        sandbox.plant("work/.git/modules/part/HEAD", "ref: refs/heads/main\n");
        sandbox.plant("work/.git/modules/part/config", "[core]\n\tworktree = ../../../part\n");
        sandbox.plant("work/.git/modules/part/objects/x", "");
        sandbox.plant("work/.git/modules/part/refs/x", "");
        sandbox.plant("work/part/.git", "gitdir: ../.git/modules/part\n");
        sandbox
    };
    for attack in [
        "write ./part/.git",
        "truncate ./part/.git",
        "unlink ./part/.git , create ./part/.git",
        "create ./new , rename ./new ./part/.git",
        "rename ./part ./part2 , mkdir ./part , create ./part/.git",
        "write ./.git/modules/part/config",
        "create ./.git/modules/part/hooks/pre-commit",
        "create ./.git/modules/part/commondir",
    ] {
        let closed = make();
        let ran = closed.run_attack(&format!("try mkdir ./.git/modules/part/hooks , {attack}"));
        let read = |path: &str| std::fs::read_to_string(closed.workspace().join(path)).unwrap_or_default();
        assert_eq!(read("part/.git"), "gitdir: ../.git/modules/part\n", "{attack}: {ran}");
        assert_eq!(
            read(".git/modules/part/config"),
            "[core]\n\tworktree = ../../../part\n",
            "{attack}: {ran}"
        );
        assert!(!closed.workspace().join(".git/modules/part/hooks/pre-commit").exists(), "{attack}: {ran}");
        assert!(!closed.workspace().join(".git/modules/part/commondir").exists(), "{attack}: {ran}");
        let open = make();
        open.bare(&format!("try mkdir ./.git/modules/part/hooks , {attack}")).won();
    }
}

/// A worktree's `.git` file can't be led elsewhere, nor can its administrative files.
#[test]
fn a_worktrees_own_files() {
    let make = || {
        let sandbox = Sandbox::new();
        for (path, text) in
            [("HEAD", "ref: refs/heads/main\n"), ("config", "[core]\n"), ("objects/x", ""), ("refs/x", "")]
        {
            sandbox.plant(&format!("main/.git/{path}"), text);
        }
        let git_file = format!("{}/.git\n", sandbox.workspace().display());
        sandbox.plant("main/.git/worktrees/w/gitdir", &git_file);
        sandbox.plant("main/.git/worktrees/w/commondir", "../..\n");
        sandbox.plant("main/.git/worktrees/w/HEAD", "ref: refs/heads/main\n");
        let admin = sandbox.base().join("main/.git/worktrees/w").display().to_string();
        sandbox.plant("work/.git", &format!("gitdir: {admin}\n"));
        (sandbox, admin)
    };
    for attack in [
        "write ./.git",
        "unlink ./.git",
        "rename ./.git ./x",
        "write ADMIN/commondir",
        "create ./c , rename ./c ADMIN/commondir",
        "write ADMIN/gitdir",
        "create ADMIN/config.worktree",
        "create ADMIN/../../commondir",
    ] {
        let (closed, admin) = make();
        let before = std::fs::read_to_string(closed.workspace().join(".git")).expect("the file");
        let ran = closed.run_attack(&attack.replace("ADMIN", &admin));
        let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(read(closed.workspace().join(".git").display().to_string()), before, "{attack}: {ran}");
        assert_eq!(read(format!("{admin}/commondir")), "../..\n", "{attack}: {ran}");
        assert!(read(format!("{admin}/gitdir")).ends_with("/work/.git\n"), "{attack}: {ran}");
        assert!(!closed.base().join("main/.git/commondir").exists(), "{attack}: {ran}");
        let (open, admin) = make();
        open.bare(&attack.replace("ADMIN", &admin)).won();
    }
}

/// A repository made inside and added to the outer index as a link: the caller's `git status` at the top
/// runs git in it, and that obeys its config.
#[test]
#[ignore = "known limit: a .git that is created during the execution can't be protected by mounts"]
fn a_new_repository_below() {
    let sandbox = Sandbox::new();
    sandbox.run_attack("mkdir ./sub , mkdir ./sub/.git , create ./sub/.git/config");
    assert!(!sandbox.workspace().join("sub/.git/config").exists());
}

/// The end of one execution must not open the place that another one protects.
#[test]
fn with_another_execution_that_ends_first() {
    let sandbox = Sandbox::new();
    sandbox.plant("work/.git/HEAD", "ref: refs/heads/main\n");
    sandbox.plant("work/.git/config", "[core]\n");
    let first = sandbox.start_attack("hold walrus-hooks");
    first.wait_line("READY");
    let made = std::process::Command::new("mkfifo").arg(sandbox.workspace().join("go")).status();
    assert!(made.expect("mkfifo runs").success());
    let attack =
        "echo READY; read word < go; ./attack try mkdir ./.git/hooks , create ./.git/hooks/pre-commit";
    let second = sandbox.start(&["sh", "-c", attack]);
    second.wait_line("READY");
    first.signal(rustix::process::Signal::TERM);
    first.reap();
    std::fs::write(sandbox.workspace().join("go"), "go\n").expect("the second waits for it");
    let ran = second.finish();
    assert!(
        !sandbox.workspace().join(".git/hooks/pre-commit").exists(),
        "the wall went with the first: {ran}"
    );
}
