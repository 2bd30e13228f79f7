//! `stockade run` begins with a seed of its sandbox, before it knows whether there will be one. What is started so early is
//! seen by nobody, and nothing is left of it where it was for nothing (`docs/design/0010`).

use stockade_line_tests::World;

/// Runs what follows; whoever outlives it becomes a child of this one, alive or not, and is told by the code.
const LAST: [&str; 3] = [
    "perl",
    "-e",
    "syscall(157, 36, 1, 0, 0, 0) == 0 or die; system(@ARGV); my $code = $? >> 8; \
     exit(waitpid(-1, 1) == -1 ? $code : 99)",
];

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
