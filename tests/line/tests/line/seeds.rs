//! `stockade run` begins with a seed of its sandbox, before it knows whether there will be one. What is started so early is
//! seen by nobody, and nothing is left of it where it was for nothing (`docs/design/0010`).

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use stockade_line_tests::{Running, World, am_root, programs, slowness, unique_sleep, until};

/// Runs what follows; whoever outlives it becomes a child of this one, alive or not, and is told by the code.
const LAST: [&str; 3] = [
    "perl",
    "-e",
    "syscall(157, 36, 1, 0, 0, 0) == 0 or die; system(@ARGV); my $code = $? >> 8; \
     exit(waitpid(-1, 1) == -1 ? $code : 99)",
];

/// Without a stdin of the caller's there is no seed, and everything is made the other way.
const WITHOUT_A_SEED: [&str; 4] = ["sh", "-c", "exec \"$@\" 0<&-", "sh"];

fn child_of(running: &Running) -> Option<PathBuf> {
    let pid = running.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let child = PathBuf::from("/proc").join(children.split_whitespace().next()?);
    // Its own name is from its exec on.
    let name = std::fs::read_to_string(child.join("comm")).ok()?;
    (name.trim_end() == "stockade-init").then_some(child)
}

/// Held up before it has so much as read its profile: a secret comes through a pipe, and late.
fn held_up(world: &World, before: &[&str]) -> (Running, PathBuf) {
    world.profile("unlimited", "[layers]\nlimits = \"off\"\n");
    let pipe = world.base().join("secret");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    let line = world.line(&["readlink", "/proc/self/ns/net"]).profile("unlimited").before(before);
    (line.option("--secret-file", &pipe).start(), pipe)
}

#[test]
fn it_is_there_first_and_becomes_the_sandbox() {
    let world = World::new();
    let (running, pipe) = held_up(&world, &[]);
    let seed = until("a seed", || child_of(&running));
    // Others may not look into it.
    let network = am_root().then(|| {
        until("a network of its own", || {
            let own = std::fs::read_link("/proc/self/ns/net").expect("our own");
            std::fs::read_link(seed.join("ns/net")).ok().filter(|network| *network != own)
        })
    });
    std::fs::write(&pipe, "a secret that is long enough\n").expect("it waits for one");
    let ran = running.finish().ends_with(0);
    if let Some(network) = network {
        assert_eq!(ran.out().trim_end(), network.display().to_string(), "{ran}");
    }
}

#[test]
fn without_a_stdin_there_is_none() {
    let world = World::new();
    let (running, pipe) = held_up(&world, &WITHOUT_A_SEED);
    until("the wait for a writer", || {
        let at = std::fs::read_to_string(format!("/proc/{}/comm", running.pid())).ok()?;
        let state = std::fs::read_to_string(format!("/proc/{}/stat", running.pid())).ok()?;
        (at.trim_end() == "stockade" && state.contains(") S ")).then_some(())
    });
    assert_eq!(child_of(&running), None);
    std::fs::write(&pipe, "a secret that is long enough\n").expect("it waits for one");
    drop(running.finish().ends_with(0));
}

/// Everything that a command can see of itself and of its init, but for what is another one's every time. What init ignores
/// it has blocked as well, and a command does not inherit it.
const FACTS: &str = "\
    grep SigIgn /proc/self/status; for process in self 1; do grep -Ev '^(State|SigQ|SigIgn|Vm|Rss|Hugetlb|Mems|.*ctxt_switches|Pid|PPid|Tgid|Ngid|NS[a-z]*|StaBrk)' \
        /proc/$process/status; done; \
    cut -d' ' -f4- /proc/self/mountinfo | sort; cat /proc/self/limits /proc/self/oom_score_adj; \
    cut -d' ' -f4-8 /proc/self/stat; cut -d' ' -f4-8,41 /proc/1/stat; \
    for fd in /proc/self/fd/*; do readlink $fd | sed 's/[0-9][0-9]*//g'; done; \
    cat /proc/net/dev /proc/net/if_inet6 /proc/net/route; hostname; id; umask; env | sort; ls /proc | grep -v '^[0-9]'; \
    sed 's/stockade-x-[^/]*//' /proc/self/cgroup; ls -la /dev; ls -la / | grep -v ' proc$'";

#[test]
fn a_command_does_not_see_whether_there_was_one() {
    let world = World::new();
    let (with, without) =
        (world.sh(FACTS).go().ends_with(0), world.sh(FACTS).before(&WITHOUT_A_SEED).go().ends_with(0));
    // Times and devices are another sandbox's.
    let plain = |text: String| {
        let dated = |word: &&str| !(word.contains(':') && word.len() == 5);
        let line = |line: &str| line.split_whitespace().filter(dated).collect::<Vec<_>>().join(" ");
        text.lines().map(line).collect::<Vec<_>>()
    };
    let (seen, expected) = (plain(with.out()), plain(without.out()));
    assert!(seen.len() > 100, "{with}");
    let only = |own: &[String], other: &[String]| {
        own.iter().filter(|line| !other.contains(line)).cloned().collect::<Vec<_>>()
    };
    assert_eq!(only(&seen, &expected), only(&expected, &seen), "with a seed, and without");
    let moved: Vec<_> = seen.iter().zip(&expected).filter(|(one, other)| one != other).collect();
    assert!(moved.is_empty() && seen.len() == expected.len(), "in another order: {moved:#?}");
}

/// Whoever has forgotten its children has them reaped by the kernel, and so would we.
#[test]
fn a_caller_that_ignores_the_end_of_its_children_is_served() {
    let world = World::new();
    let ignoring = ["perl", "-e", "$SIG{CHLD} = 'IGNORE'; exec @ARGV"];
    drop(world.sh("exit 3").before(&ignoring).go().ends_with(3));
}

/// The seed can't be started either, and says nothing: the one that is started in its place does.
#[test]
fn an_init_that_can_t_be_started_is_told_by_the_kernels_reason() {
    let world = World::new();
    let program = world.base().join("stockade");
    // By another process: a copy of ours could still be open for writing in somebody's fork.
    let copied = Command::new("cp").arg(programs().join("stockade")).arg(&program).status();
    assert!(copied.expect("cp runs").success());
    let init = world.base().join("stockade-init");
    std::fs::write(&init, "no program\n").expect("our own directory");
    std::fs::set_permissions(&init, std::fs::Permissions::from_mode(0o755)).expect("our own file");
    let line = world.line(&["true"]).no_json();
    let mut command = Command::new(program);
    let ran = command.args(line.command().get_args()).current_dir(world.work()).output().expect("it starts");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(said.contains("Exec format error"), "{said}");
}

/// At moments of the first milliseconds: before the first instruction, and where the seed is becoming the init.
#[test]
fn it_dies_with_us() {
    let (world, sleep) = (World::new(), unique_sleep());
    for step in 0..40_u32 {
        // The one before it becomes the parent of whoever is left, and tells whether anybody is for long.
        let delay = format!("{:.6}", f64::from(step * slowness()) * 0.000_15);
        let killing = [
            "perl",
            "-MTime::HiRes=sleep",
            "-e",
            "syscall(157, 36, 1, 0, 0, 0) == 0 or die; my $delay = shift; my $pid = fork // die; \
             if (!$pid) { exec @ARGV } sleep $delay; kill 'KILL', $pid; \
             for (1 .. 3000) { exit 0 if waitpid(-1, 1) == -1; sleep 0.01 } exit 99",
            &delay,
        ];
        let ran = world.line(&["sleep", &sleep]).no_json().before(&killing).go();
        assert_eq!(ran.code(), 0, "killed after {delay} s: {ran}");
    }
}

#[test]
fn nothing_is_left_of_one_that_nobody_needs() {
    let world = World::new();
    world.profile("open", "extends = \"host\"\n");
    world.profile("online", "network = \"inherit\"\n");
    let line = |words: &[&str]| world.line(words).no_json().before(&LAST);
    let lines = [
        (line(&["true"]), 0),
        (line(&["false"]), 1),
        (line(&["true"]).profile("open"), 0),
        (line(&["true"]).profile("online"), 0),
        (line(&["true"]).profile("nothing-of-that-name"), 125),
        (line(&["true"]).workspace("/no/such/directory"), 125),
        (line(&["true"]).flag("--no-such-option"), 125),
        (line(&[]), 125),
        (line(&["true"]).flag("--explain"), 0),
        (line(&["true"]).flag("--via=/no/such/socket"), 122),
        (line(&["true"]).option("--json", "fd:77"), 125),
        (line(&["/no/such/program"]), 127),
    ];
    for (line, code) in lines {
        let said = format!("{:?}", line.command());
        let ran = line.go();
        assert_eq!(ran.code(), code, "{said}: {ran}");
    }
}

#[test]
fn its_descriptors_are_nobody_elses() {
    let world = World::new();
    let closed = ["sh", "-c", "exec \"$@\" 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-", "sh"];
    for (option, number) in
        ["--json", "--events"].into_iter().flat_map(|option| (3..=9).map(move |n| (option, n)))
    {
        let line = world.line(&["touch", "it-ran"]).no_json().before(&closed);
        let ran = line.option(option, format!("fd:{number}")).go();
        assert_eq!(ran.code(), 125, "{option} fd:{number}: {ran}");
        assert!(!world.work().join("it-ran").exists(), "{option} fd:{number}");
    }
}

/// One of those numbers would be the seed's, and then somebody's output.
#[test]
fn a_caller_without_standard_streams_is_served() {
    let world = World::new();
    for redirection in ["0<&-", "1>&-", "2>&-", "0<&- 1>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"] {
        let script = format!("exec \"$@\" {redirection}");
        let ran = world
            .line(&["sh", "-c", "cat; echo out; echo err >&2"])
            .before(&["sh", "-c", &script, "sh"])
            .go();
        assert_eq!(ran.code(), 0, "{redirection}: {ran}");
        let result = ran.result();
        assert_eq!((result.stdout.bytes, result.stderr.bytes), (4, 4), "{redirection}: {ran}");
    }
}
