//! BOX-1: the tools that people and agents use behave as they expect inside.

use stockade_line_tests::{Ran, World, have};

/// git's own variables of whoever runs the tests must not decide; the sandbox does not pass them on either way.
#[track_caller]
fn host_git(world: &World, directory: &str, words: &[&str]) {
    let mut git = std::process::Command::new("git");
    git.args(words).current_dir(world.base().join(directory)).env("HOME", world.home());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_")) {
        git.env_remove(name);
    }
    git.env("GIT_CONFIG_NOSYSTEM", "1");
    let done = git.output().expect("git runs");
    assert!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn git_world() -> Option<World> {
    if !have(&["git"]) {
        return None;
    }
    let mut world = World::new();
    if let Some(path) = std::env::var_os("PATH") {
        world.set("PATH", path);
    }
    world.plant("home/.gitconfig", "[user]\n\tname = Ada \"the\" First\n\temail = ada@example.org\n[credential]\n\thelper = store --file secret-place\n");
    Some(world)
}

#[test]
fn git_init_commit_log() {
    let Some(world) = git_world() else { return };
    let script = "set -e; git init -q .; echo text > file; git add file; git commit -q -m 'first words'; \
                  git log --format='%an <%ae> %s'; git status --short; git config user.name; \
                  git checkout -q -b other; echo more >> file; git commit -q -a -m second; git diff HEAD~1 --stat | tail -n 1; \
                  git stash list; git gc -q; git fsck";
    let ran = world.sh(script).timeout("50s").go().ends_with(0);
    assert!(ran.out().starts_with("Ada the First <ada@example.org> first words\n"), "{ran}");
    assert!(ran.out().contains("1 file changed"), "{ran}");
    // The rest of the caller's settings is not there.
    let ran = world.sh("git config --list; cat ~/.gitconfig").go();
    assert!(!ran.out().contains("secret-place"), "{ran}");
}

#[test]
fn git_in_a_repository_of_the_callers() {
    let Some(world) = git_world() else { return };
    host_git(&world, "work", &["init", "-q", "."]);
    world.plant("work/file", "text\n");
    let script = "set -e; git add file; git commit -q -m inside; git log --format=%s; \
                  ! git config core.fsmonitor evil; ! sh -c 'echo x > .git/hooks/post-commit'";
    let ran = world.sh(script).go().ends_with(0);
    assert!(ran.out().contains("inside"), "{ran}");
    host_git(&world, "work", &["log", "-1"]);
    assert!(!world.read("work/.git/config").contains("evil"));
    assert!(!world.work().join(".git/hooks/post-commit").exists());
}

#[test]
fn git_worktree() {
    let Some(world) = git_world() else { return };
    std::fs::create_dir(world.base().join("main")).expect("a fresh directory");
    host_git(&world, "main", &["init", "-q", "."]);
    world.plant("main/file", "text\n");
    host_git(&world, "main", &["add", "file"]);
    host_git(&world, "main", &["commit", "-q", "-m", "first"]);
    let tree = world.base().join("tree");
    host_git(&world, "main", &["worktree", "add", "-q", "-b", "side", &tree.display().to_string()]);
    let script = "set -e; git status --short; echo more >> file; git commit -q -a -m 'from the worktree'; git log --format=%s";
    let ran = world.sh(script).workspace(&tree).go().ends_with(0);
    assert_eq!(ran.out(), "from the worktree\nfirst\n", "{ran}");
    // The main checkout is not the workspace.
    let ran = world.sh("cat ../main/file; echo evil > ../main/.git/hooks/post-commit; echo evil >> ../main/.git/config; true").workspace(&tree).go();
    assert_eq!(ran.out(), "", "{ran}");
    assert!(!world.base().join("main/.git/hooks/post-commit").exists(), "{ran}");
    assert!(!world.read("main/.git/config").contains("evil"), "{ran}");
}

#[test]
fn cargo_builds_and_tests_offline() {
    if !have(&["cargo", "cc"]) {
        return;
    }
    let world = World::with_own_toolchains();
    world.plant("work/Cargo.toml", "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    world.plant(
        "work/src/lib.rs",
        "pub fn two() -> u32 { 2 }\n#[cfg(test)] mod tests { #[test] fn it_is_two() { assert_eq!(super::two(), 2); } }\n",
    );
    world.plant("work/src/main.rs", "fn main() { println!(\"made {}\", small::two()); }\n");
    let ran = world
        .sh("cargo build --offline -q && ./target/debug/small && cargo test --offline --lib 2>&1")
        .profile("build")
        .timeout("10m")
        .go();
    assert_eq!(ran.code(), 0, "{ran}");
    assert!(ran.out().starts_with("made 2\n"), "{ran}");
    assert!(ran.out().contains("1 passed"), "{ran}");
    assert!(world.work().join("target/debug/small").exists());
}

#[test]
fn cargo_in_the_default_profile() {
    if !have(&["cargo"]) {
        return;
    }
    let world = World::with_own_toolchains();
    let ran = world.sh("cargo --version && cargo new --vcs none thing 2>&1 && ls thing").go().ends_with(0);
    assert!(ran.out().starts_with("cargo "), "{ran}");
    assert!(world.work().join("thing/Cargo.toml").exists(), "{ran}");
}

#[test]
fn gcc_and_make() {
    if !have(&["gcc", "make"]) {
        return;
    }
    let world = World::with_own_toolchains();
    world.plant("work/hello.c", "#include <stdio.h>\nint main(void) { puts(\"compiled\"); return 3; }\n");
    world.plant("work/Makefile", "hello: hello.c\n\tgcc -O1 -o $@ $<\n");
    let ran = world.sh("make -s hello && ./hello").timeout("5m").go().ends_with(3);
    assert_eq!(ran.out(), "compiled\n", "{ran}");
}

#[test]
fn node() {
    if !have(&["node"]) {
        return;
    }
    let world = World::with_own_toolchains();
    world.plant(
        "work/a.js",
        "const fs = require('fs'); fs.writeFileSync('made', 'x'); \
         const { execSync } = require('child_process'); \
         new Promise(r => setTimeout(r, 10)).then(() => console.log(execSync('echo from a child').toString().trim(), process.pid > 0));",
    );
    let ran = world.line(&["node", "a.js"]).timeout("5m").go().ends_with(0);
    assert_eq!(ran.out(), "from a child true\n", "{ran}");
    assert!(world.work().join("made").exists());
}

/// A minimal python lacks part of its library: then it is not the sandbox that fails.
fn python_has(modules: &str) -> bool {
    if !have(&["python3"]) {
        return false;
    }
    let probe = std::process::Command::new("python3").args(["-c", &format!("import {modules}")]).output();
    let has = probe.is_ok_and(|done| done.status.success());
    if !has {
        stockade_line_tests::skip(&format!("python3 can't import {modules}"));
    }
    has
}

#[test]
fn python() {
    if !python_has("tempfile, subprocess, multiprocessing, json, hashlib") {
        return;
    }
    let world = World::with_own_toolchains();
    let program = "import tempfile, subprocess, multiprocessing, os, json, hashlib\n\
                   f = tempfile.NamedTemporaryFile(); f.write(b'x'); f.flush()\n\
                   with multiprocessing.Pool(2) as pool: print(sum(pool.map(abs, [-1, -2, -3])))\n\
                   print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip())\n\
                   print(len(os.urandom(4)), hashlib.sha256(b'').hexdigest()[:8])\n";
    let ran = world.line(&["python3", "-c", program]).timeout("5m").go().ends_with(0);
    assert_eq!(ran.out(), "6\nchild\n4 e3b0c442\n", "{ran}");
}

/// A wheel is a zip file with three text files in it.
const MAKE_WHEEL: &str = "import zipfile\n\
    z = zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w')\n\
    z.writestr('tiny.py', 'def hello():\\n    return \"from the wheel\"\\n')\n\
    z.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n\
    z.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
    z.writestr('tiny-1.0.dist-info/RECORD', 'tiny.py,,\\ntiny-1.0.dist-info/METADATA,,\\ntiny-1.0.dist-info/WHEEL,,\\ntiny-1.0.dist-info/RECORD,,\\n')\n\
    z.close()\n";

#[test]
fn python_venv_and_pip_from_a_wheel() {
    if !python_has("ensurepip, venv, zipfile") {
        return;
    }
    let world = World::with_own_toolchains();
    world.plant("work/wheel.py", MAKE_WHEEL);
    let script = "set -e; python3 wheel.py; python3 -m venv env; \
                  ./env/bin/pip install -q --no-index --disable-pip-version-check ./tiny-1.0-py3-none-any.whl; \
                  ./env/bin/python -c 'import tiny; print(tiny.hello())'";
    let ran = world.sh(script).timeout("10m").go().ends_with(0);
    assert_eq!(ran.out(), "from the wheel\n", "{ran}");
}

#[test]
fn bash_as_people_use_it() {
    if !have(&["bash"]) {
        return;
    }
    let world = World::new();
    let script = "set -euo pipefail; a=(one two); echo ${#a[@]}; diff <(echo a) <(echo a) && echo same; \
                  cat <<< here; mapfile -t l < <(printf '1\\n2\\n'); echo ${#l[@]}; echo $((2**10)); exec 3>&1; echo fd >&3";
    let ran = world.line(&["bash", "-c", script]).go().ends_with(0);
    assert_eq!(ran.out(), "2\nsame\nhere\n2\n1024\nfd\n", "{ran}");
}

fn works(world: &World, script: &str) -> Ran {
    let ran = world.sh(script).go();
    assert_eq!(ran.code(), 0, "{script}: {ran}");
    assert_eq!(ran.err(), "", "{script}: {ran}");
    ran
}

#[test]
fn everyday_programs() {
    let world = World::new();
    let ran = works(&world, "ls -la /");
    for name in ["bin", "dev", "etc", "lib", "proc", "tmp", "usr", "var"] {
        assert!(ran.out().split_whitespace().any(|word| word == name), "{name}: {ran}");
    }
    assert!(!ran.out().contains("????"), "{ran}");
    let ran = works(&world, "f=$(mktemp) && echo x > $f && cat $f && rm $f; d=$(mktemp -d) && ls -d $d");
    assert!(ran.out().starts_with("x\n/tmp/"), "{ran}");
    works(
        &world,
        "df . > /dev/null; stat . > /dev/null; date > /dev/null; uname -a > /dev/null; id > /dev/null",
    );
    works(&world, "find . -name x; seq 3 | sort -r | head -n 1; printf 'a b' | xargs -n 1 echo | wc -l");
    works(
        &world,
        "tar -cf a.tar -C / etc/hostname 2>/dev/null || tar -cf a.tar --files-from /dev/null; cp a.tar b.tar; rm a.tar b.tar",
    );
    works(&world, "whoami 2>/dev/null || id -u; hostname 2>/dev/null || cat /proc/sys/kernel/hostname");
    works(&world, "nproc; cat /proc/meminfo > /dev/null; cat /proc/cpuinfo > /dev/null");
    works(
        &world,
        "chmod 700 . && chmod 755 .; touch -d yesterday file; ln -sf file link; readlink link; rm file link",
    );
}

#[test]
fn ps_shows_its_own() {
    if !have(&["ps"]) {
        return;
    }
    let world = World::new();
    let ran = world.sh("ps -ef; ps aux").go().ends_with(0);
    assert!(ran.out().contains("ps -ef") && ran.out().contains("stockade-init"), "{ran}");
    assert!(ran.out().lines().count() < 16, "{ran}");
}

#[test]
fn sudo_and_su_fail_cleanly() {
    let world = World::new();
    for (program, words) in [("sudo", "sudo -n true"), ("su", "su -c true </dev/null")] {
        if !have(&[program]) {
            continue;
        }
        let ran = world.sh(words).timeout("20s").go();
        assert!(![0, 121, 122, 124, 125].contains(&ran.code()), "{ran}");
        assert!(!ran.err().is_empty(), "{ran}");
    }
}

#[test]
fn a_private_tmp_and_home() {
    let world = World::new();
    let name = stockade_line_tests::unique("stockade-line-tmp-");
    let ran = world
        .sh(&format!(
            "echo x > /tmp/{name} && echo y > ~/{name} && cat /tmp/{name} ~/{name}; ls -A /tmp | wc -l"
        ))
        .go();
    assert_eq!(ran.out(), "x\ny\n1\n", "{ran}");
    assert!(!std::path::Path::new("/tmp").join(&name).exists());
    assert!(!world.home().join(&name).exists());
}

#[test]
fn a_workspace_in_tmp() {
    let world = World::new();
    let place = tempfile_in_tmp();
    let ran = world.sh("echo x > made; pwd; ls /tmp").workspace(place.path()).go().ends_with(0);
    assert!(ran.out().starts_with(&format!("{}\n", place.path().display())), "{ran}");
    assert!(place.path().join("made").exists());
    let name = place.path().file_name().expect("a name").to_string_lossy().into_owned();
    assert!(ran.out().lines().skip(1).all(|line| line == name), "neighbours are seen: {ran}");
}

fn tempfile_in_tmp() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("stockade-line-").tempdir_in("/tmp").expect("a directory in /tmp")
}
