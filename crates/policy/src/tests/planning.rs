//! Plans from hand-made host reports.

use stockade_proto::{
    Access, Bytes, Code, Identity, Layer, Mode, Mount, MountKind, Network, Placeholder, PlaceholderKind,
    Plan, Refusal, Requirement, Stdin,
};

use super::{Texts, plan, user};
use crate::{
    Caller, Capacity, Command, Extra, GitFacts, GitIdentity, HostReport, LayerReport, MAX_STRING, Match,
    Object, Place, Request, Resolved, SANDBOX_ROOT_UID, Shown, SystemPath, Unavailable, Variable, explain,
    needs, resolve,
};

fn held(path: &str) -> Placeholder {
    Placeholder { path: Bytes::from(path), kind: PlaceholderKind::EmptyDirectory }
}

pub(super) fn object(path: &str, uid: u32) -> Object {
    let ino = u64::try_from(path.len()).expect("short");
    Object { path: Bytes::from(path), dev: 1, ino, is_dir: true, uid, gid: uid }
}

pub(super) fn caller(uid: u32, env: &[(&str, &str)]) -> Caller {
    let env = env.iter().map(|(name, value)| (Bytes::from(*name), Bytes::from(*value))).collect();
    Caller { uid, gid: uid, user: Some(Bytes::from("ada")), home: Bytes::from("/home/ada"), env }
}

pub(super) fn report(uid: u32) -> HostReport {
    HostReport {
        caller: caller(
            uid,
            &[("LANG", "C.UTF-8"), ("SECRET", "x"), ("LD_PRELOAD", "evil"), ("TMPDIR", "/x")],
        ),
        workspace: object("/home/ada/w", 1000),
        cwd: None,
        capacity: Capacity { memory_bytes: 8 << 30, cores: 2, pid_max: 32_768 },
        system: vec![
            SystemPath::Directory(object("/usr", 0)),
            SystemPath::Symlink { path: Bytes::from("/bin"), to: Bytes::from("usr/bin") },
            SystemPath::Directory(object("/etc", 0)),
        ],
        extras: Vec::new(),
        path: ["/usr/bin", "/home/ada/.cargo/bin", "/srv/hidden"].map(Bytes::from).to_vec(),
        shown: vec![Shown {
            object: object("/home/ada/.cargo/bin", 1000),
            reason: "the toolchain".to_owned(),
            credentials: vec![Match { path: Bytes::from("/home/ada/.cargo/bin/.npmrc"), is_dir: false }],
        }],
        scratch: vec![Bytes::from("/home/ada/.cargo")],
        deny: vec![Match { path: Bytes::from("/home/ada/w/a/.env"), is_dir: false }],
        deny_write: vec![
            Match { path: Bytes::from("/home/ada/w/.git/config"), is_dir: false },
            Match { path: Bytes::from("/home/ada/w/.git/hooks"), is_dir: true },
        ],
        deny_in_place: Vec::new(),
        absent: vec![held("/home/ada/w/.stockade")],
        guard_git: true,
        git: GitFacts::Directory,
        git_identity: GitIdentity { name: Some("Ada".to_owned()), email: None },
        name_files: ["/etc/hosts", "/etc/resolv.conf"].map(Bytes::from).to_vec(),
        sockets: Vec::new(),
        registries: Vec::new(),
        layers: LayerReport::all_available(),
        warnings: Vec::new(),
    }
}

pub(super) fn request(argv: &[&str]) -> Request {
    Request {
        command: Command::Argv(argv.iter().map(|arg| Bytes::from(*arg)).collect()),
        workspace: Bytes::from("/home/ada/w"),
        cwd: None,
        env: Vec::new(),
        timeout_ms: None,
        stdin: Stdin::Null,
        publish: Vec::new(),
        profile: "default".to_owned(),
    }
}

pub(super) fn built_in(name: &str) -> Resolved {
    resolve(name, &Texts::default()).expect(name)
}

fn planned(uid: u32) -> Plan {
    plan(&request(&["true"]), &built_in("default"), &report(uid)).expect("planned")
}

fn at(plan: &Plan, target: &str) -> usize {
    let found = plan.mounts.iter().rposition(|mount| mount.target == Bytes::from(target));
    found.unwrap_or_else(|| panic!("{target} is not in the plan"))
}

fn mount<'p>(plan: &'p Plan, target: &str) -> &'p Mount {
    &plan.mounts[at(plan, target)]
}

#[test]
fn the_default_plan_stands_in_order() {
    let plan = planned(1000);
    let order = [
        "/usr",
        "/dev",
        "/dev/null",
        "/proc",
        "/proc/sys",
        "/tmp",
        "/var",
        "/home/ada",
        "/home/ada/.cargo",
        "/home/ada/.cargo/bin",
        "/home/ada/.cargo/bin/.npmrc",
        "/home/ada/.gitconfig",
        "/home/ada/w",
        "/home/ada/w/.git",
        "/home/ada/w/.git/config",
        "/home/ada/w/.git/hooks",
        "/home/ada/w/.stockade",
        "/home/ada/w/a/.env",
    ];
    let places = order.map(|target| at(&plan, target));
    assert!(places.is_sorted(), "{places:?}");
    assert!(matches!(&mount(&plan, "/bin").kind, MountKind::Symlink { to } if to.as_slice() == b"usr/bin"));
    assert!(matches!(&mount(&plan, "/usr").kind, MountKind::Bind(bind) if !bind.writable));
    assert!(
        matches!(&mount(&plan, "/home/ada/w").kind, MountKind::Bind(bind) if bind.writable && !bind.owner_mapped)
    );
    assert!(matches!(mount(&plan, "/home/ada/w/.git").kind, MountKind::Pin));
    assert!(matches!(mount(&plan, "/home/ada/w/.git/hooks").kind, MountKind::Protect { .. }));
    assert!(matches!(mount(&plan, "/home/ada/w/a/.env").kind, MountKind::Mask { is_dir: false, .. }));
    assert!(matches!(&mount(&plan, "/home/ada/.gitconfig").kind,
        MountKind::File { contents, .. } if contents.as_slice() == b"[user]\n\tname = \"Ada\"\n"));
    assert_eq!(plan.placeholders, [held("/home/ada/w/.stockade")]);
    assert_eq!((&plan.network, plan.seccomp.as_deref()), (&Network::Deny, Some("sockets")));
    assert_eq!((plan.hostname.as_str(), plan.cwd.clone()), ("stockade", Bytes::from("/home/ada/w")));
    assert!(plan.unavailable.is_empty() && plan.warnings.is_empty(), "{:?}", plan.warnings);
    assert!(plan.mounts.iter().all(|mount| !mount.reason.is_empty()));
}

#[test]
fn an_allowlist_has_its_own_files_of_names() {
    let text = "network = \"allowlist\"\n[egress]\nallow = [\"a.example\"]";
    let listed = user(text).expect("valid");
    let with = |report: &HostReport| plan(&request(&["true"]), &listed, report).expect("planned");
    let planned_so = with(&report(1000));
    assert!(matches!(&mount(&planned_so, "/etc/hosts").kind,
        MountKind::Cover { contents } if contents.as_slice() == b"127.0.0.1 localhost\n127.0.1.1 stockade\n::1 localhost stockade\n"));
    assert!(matches!(&mount(&planned_so, "/etc/resolv.conf").kind,
        MountKind::Cover { contents } if contents.as_slice() == b"nameserver 127.0.0.1\n"));
    assert!(explain(&planned_so).contains("replaced   /etc/hosts  (this host's names don't count"));
    let covers = |plan: &Plan| {
        let covers = plan.mounts.iter().filter(|mount| matches!(mount.kind, MountKind::Cover { .. }));
        covers.map(|mount| mount.target.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(covers(&planned(1000)), Vec::<String>::new(), "without an allowlist nobody is asked");
    // A link of the host leads nowhere inside, and is none to cover.
    let linked = HostReport { name_files: vec![Bytes::from("/etc/hosts")], ..report(1000) };
    assert_eq!(covers(&with(&linked)), ["/etc/hosts"]);
    let no_etc = HostReport { system: vec![SystemPath::Directory(object("/usr", 0))], ..report(1000) };
    assert_eq!(covers(&with(&no_etc)), Vec::<String>::new());
}

/// In the private home it is as private as that; elsewhere it takes a mount to be.
#[test]
fn a_toolchains_own_directory_is_in_the_home_or_a_mount() {
    let kind = |path: &str| {
        let report = HostReport { scratch: vec![Bytes::from(path)], ..report(1000) };
        let made = plan(&request(&["true"]), &user("").expect("valid"), &report).expect("planned");
        let at = made.mounts.into_iter().find(|mount| mount.target == Bytes::from(path));
        at.map(|mount| mount.kind)
    };
    assert_eq!(kind("/home/ada/.cargo"), Some(MountKind::Dir { mode: 0o755 }));
    assert_eq!(kind("/srv/cargo"), Some(MountKind::Scratch { mode: 0o755 }));
}

#[test]
fn the_environment_is_built_from_nothing() {
    let plan = planned(1000);
    let env = plan.env.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    assert_eq!(
        env,
        [
            "HOME=/home/ada",
            "LANG=C.UTF-8",
            "LOGNAME=ada",
            "PATH=/usr/bin:/home/ada/.cargo/bin",
            "SHELL=/bin/bash",
            "STOCKADE=1",
            "USER=ada",
        ]
    );
}

#[test]
fn variables_are_copied_set_or_refused() {
    let profile = user("[env]\nallow = [\"PATH\", \"LD_PRELOAD\"]\nset = { A = \"1\" }").expect("valid");
    let mut asked = request(&["true"]);
    asked.env = vec![
        Variable::Set { name: Bytes::from("B"), value: Bytes::from("2") },
        Variable::Copy { name: Bytes::from("SECRET") },
    ];
    let made = plan(&asked, &profile, &report(1000)).expect("planned");
    let names = made.env.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
    assert_eq!(names, ["A", "B", "PATH", "SECRET", "SHELL", "STOCKADE"]);
    assert!(made.warnings.iter().any(|warning| warning.contains("LD_PRELOAD")));
    for (variable, code) in [
        (Variable::Set { name: Bytes::from("LD_AUDIT"), value: Bytes::from("x") }, Code::EnvironmentRefused),
        (Variable::Copy { name: Bytes::from("LD_PRELOAD") }, Code::EnvironmentRefused),
        (Variable::Copy { name: Bytes::from("UNSET") }, Code::OptionInvalid),
        (Variable::Set { name: Bytes::from(""), value: Bytes::from("x") }, Code::EnvironmentRefused),
    ] {
        asked.env = vec![variable.clone()];
        assert_eq!(plan(&asked, &profile, &report(1000)).expect_err("refused").code, code, "{variable:?}");
    }
    asked.env = (0..100_000)
        .map(|n| Variable::Set { name: Bytes::from(format!("N{n}")), value: Bytes::from("0123456789") })
        .collect();
    let refusal = plan(&asked, &profile, &report(1000)).expect_err("too long");
    assert_eq!(refusal.code, Code::CommandTooLong);
    assert!(refusal.message.contains("100004 variables"), "{}", refusal.message);
}

#[test]
fn commands_are_checked_first() {
    let refuse = |argv: &[&str]| plan(&request(argv), &built_in("default"), &report(1000)).map(drop);
    let code = |result: Result<(), Refusal>| result.expect_err("refused").code;
    assert_eq!(code(refuse(&[])), Code::CommandEmpty);
    assert_eq!(code(refuse(&[""])), Code::CommandEmpty);
    assert_eq!(code(refuse(&["echo", "a\0b"])), Code::CommandByte);
    let refusal = refuse(&["echo", "x", "a\rb"]).expect_err("refused");
    assert!(
        refusal.code == Code::CommandByte && refusal.message.contains("argument 2"),
        "{}",
        refusal.message
    );
    assert!(refuse(&["echo", ""]).is_ok(), "an empty argument is an argument");
    assert!(refuse(&["echo", &"x".repeat(MAX_STRING)]).is_ok());
    assert_eq!(code(refuse(&["echo", &"x".repeat(MAX_STRING + 1)])), Code::CommandTooLong);
}

#[test]
fn shells_come_from_the_allowlist() {
    let shell = |program: Option<&str>, args: Option<&[&str]>| {
        let mut asked = request(&[]);
        asked.command = Command::Shell {
            text: Bytes::from("echo hi"),
            program: program.map(Bytes::from),
            args: args.map(|args| args.iter().map(|arg| Bytes::from(*arg)).collect()),
        };
        plan(&asked, &built_in("default"), &report(1000)).map(|plan| plan.command.argv)
    };
    assert_eq!(shell(None, None).expect("allowed"), ["/bin/bash", "-c", "echo hi"].map(Bytes::from));
    assert_eq!(
        shell(Some("/bin/sh"), Some(&["-lc"])).expect("allowed"),
        ["/bin/sh", "-lc", "echo hi"].map(Bytes::from)
    );
    for (program, args) in [(Some("bash"), None), (Some("/bin/bash "), None), (None, Some(&["-ic"][..]))] {
        assert_eq!(shell(program, args).expect_err("refused").code, Code::ShellNotAllowed);
    }
}

#[test]
fn host_root_is_never_mapped() {
    let plan = planned(0);
    let stand_in = SANDBOX_ROOT_UID;
    assert_eq!(plan.identity, Identity { uid: 1000, gid: 1000, host_uid: stand_in, host_gid: stand_in });
    assert!(matches!(&mount(&plan, "/home/ada/w").kind, MountKind::Bind(bind) if bind.owner_mapped));
    assert!(matches!(&mount(&plan, "/home/ada/.cargo/bin").kind, MountKind::Bind(bind) if bind.owner_mapped));
    assert!(matches!(&mount(&plan, "/usr").kind, MountKind::Bind(bind) if !bind.owner_mapped));
    assert_eq!(planned(1000).identity, Identity { uid: 1000, gid: 1000, host_uid: 1000, host_gid: 1000 });
}

#[test]
fn host_mode_has_no_walls() {
    let made = plan(&request(&["true"]), &built_in("host"), &report(0)).expect("planned");
    assert_eq!((made.mode, made.network), (Mode::Host, Network::Inherit));
    assert!(made.mounts.is_empty() && made.landlock.is_none() && made.seccomp.is_none());
    assert!(made.placeholders.is_empty());
    assert_eq!(made.identity.host_uid, 0);
    assert_eq!(made.layers.limits, Requirement::Prefer);
    assert!(
        Layer::ALL
            .iter()
            .filter(|layer| **layer != Layer::Limits)
            .all(|layer| made.layers.get(*layer) == Requirement::Off)
    );
    assert!(made.env.iter().all(|(name, _)| name.as_slice() != b"STOCKADE"));
}

#[test]
fn a_readonly_workspace_needs_no_guards_but_keeps_masks() {
    let made = plan(&request(&["true"]), &built_in("readonly"), &report(1000)).expect("planned");
    assert!(matches!(&mount(&made, "/home/ada/w").kind, MountKind::Bind(bind) if !bind.writable));
    assert!(!made.mounts.iter().any(|mount| matches!(mount.kind, MountKind::Pin)));
    assert!(made.placeholders.is_empty());
    assert!(matches!(mount(&made, "/home/ada/w/a/.env").kind, MountKind::Mask { .. }));
}

#[test]
fn landlock_says_what_the_mounts_say() {
    let rules = planned(1000).landlock.expect("landlock").rules;
    let access =
        |path: &str| rules.iter().find(|rule| rule.path == Bytes::from(path)).map(|rule| rule.access);
    assert_eq!(access("/"), Some(Access::List));
    assert_eq!(access("/usr"), Some(Access::Read));
    assert_eq!(access("/home/ada"), Some(Access::Write));
    assert_eq!(access("/proc"), Some(Access::Proc));
    assert_eq!(access("/dev"), Some(Access::Device));
    assert_eq!(access("/dev/null"), None, "its directory covers it");
    assert_eq!(access("/dev/shm"), Some(Access::Write));
    assert_eq!(access("/home/ada/w"), None, "the home covers it");
}

fn without(layers: &[Layer]) -> HostReport {
    let mut report = report(1000);
    let missing =
        || Unavailable { why: "user namespaces are off".to_owned(), remedy: "sysctl x=1".to_owned() };
    let slots = Layer::ALL.iter().zip(&mut report.layers.0).filter(|(layer, _)| layers.contains(layer));
    slots.for_each(|(_, slot)| *slot = Err(missing()));
    report
}

#[test]
fn must_refuses_and_prefer_says_so() {
    let refusal =
        plan(&request(&["true"]), &built_in("default"), &without(&[Layer::Process])).expect_err("must");
    assert_eq!(refusal.code, Code::LayerUnavailable);
    assert_eq!(refusal.remedy, "sysctl x=1");
    let profile =
        user("[layers]\nfilesystem = \"prefer\"\nprocess = \"prefer\"\nnetwork = \"prefer\"").expect("valid");
    let made = plan(&request(&["true"]), &profile, &without(&[Layer::Process])).expect("prefer");
    assert_eq!(made.unavailable.len(), 3);
    assert!(made.mounts.is_empty() && made.placeholders.is_empty());
    assert_eq!(made.network, Network::Inherit);
    assert_eq!(made.warnings.len(), 4, "{:?}", made.warnings);
    let rules = made.landlock.expect("landlock").rules;
    assert!(rules.iter().all(|rule| rule.access != Access::List && rule.path != Bytes::from("/tmp")));
    assert!(rules.iter().any(|rule| rule.path == Bytes::from("/home/ada/w") && rule.access == Access::Write));
    assert!(rules.iter().all(|rule| rule.path != Bytes::from("/home/ada")), "the host's home stays closed");
}

#[test]
fn root_without_user_namespaces_becomes_the_owner_or_nothing() {
    let profile =
        user("[layers]\nfilesystem = \"prefer\"\nprocess = \"prefer\"\nnetwork = \"prefer\"").expect("valid");
    let mut host = without(&[Layer::Process]);
    host.caller.uid = 0;
    assert_eq!(plan(&request(&["true"]), &profile, &host).expect("owner").identity.host_uid, 1000);
    host.workspace.uid = 0;
    assert_eq!(plan(&request(&["true"]), &profile, &host).expect_err("root").code, Code::LayerUnavailable);
}

#[test]
fn limits_are_held_against_the_host() {
    for (text, line, column) in [
        ("[limits]\nmemory = \"9G\"", 2, 10),
        ("[limits]\ncpu = 2.5", 2, 7),
        ("[limits]\nprocesses = 40000", 2, 13),
    ] {
        let refusal = plan(&request(&["true"]), &user(text).expect("valid"), &report(1000)).expect_err(text);
        assert_eq!(refusal.code, Code::LimitInvalid);
        let origin = refusal.origin.expect("origin");
        assert_eq!((origin.line, origin.column), (line, column));
    }
    let mut small = report(1000);
    small.capacity.memory_bytes = 1 << 30;
    let made = plan(&request(&["true"]), &built_in("build"), &small).expect("lowered");
    assert_eq!(made.limits.memory_bytes, Some(1 << 30));
    assert_eq!(made.warnings.len(), 2, "{:?}", made.warnings);
    let mut asked = request(&["true"]);
    asked.timeout_ms = Some(1500);
    assert_eq!(
        plan(&asked, &built_in("default"), &report(1000)).expect("planned").limits.wall_ms,
        Some(1500)
    );
    asked.timeout_ms = Some(0);
    assert_eq!(plan(&asked, &built_in("default"), &report(1000)).expect_err("zero").code, Code::LimitInvalid);
}

#[test]
fn the_working_directory_must_be_visible() {
    let with_cwd = |cwd: &str| {
        let mut report = report(1000);
        report.cwd = Some(Bytes::from(cwd));
        plan(&request(&["true"]), &built_in("default"), &report).map(|plan| plan.cwd)
    };
    assert_eq!(with_cwd("/home/ada/w/src").expect("inside"), Bytes::from("/home/ada/w/src"));
    for outside in ["/home/ada", "/home/ada/wx", "/srv", "/", "/home/ada/w/a/.env"] {
        assert_eq!(with_cwd(outside).expect_err(outside).code, Code::CwdOutside, "{outside}");
    }
}

#[test]
fn extra_paths_must_exist_and_a_workspaces_may_not_lead_out() {
    let asked = request(&["true"]);
    let with_extras = |profile: &Resolved, real: &[Option<&str>]| {
        let mut report = report(1000);
        let needed = needs(profile, &asked, &report.caller).expect("needs").paths;
        assert_eq!(needed.len(), real.len());
        let objects = real.iter().map(|path| path.map(|path| object(path, 1000)));
        report.extras =
            needed.into_iter().zip(objects).map(|(needed, object)| Extra { needed, object }).collect();
        plan(&asked, profile, &report)
    };
    let own = user("readable = [\"~/data\", \"/opt/x?\"]\nwritable = [\"/srv/out\"]").expect("valid");
    let made = with_extras(&own, &[Some("/home/ada/data"), None, Some("/srv/out")]).expect("planned");
    assert!(matches!(&mount(&made, "/srv/out").kind, MountKind::Bind(bind) if bind.writable));
    assert!(matches!(&mount(&made, "/home/ada/data").kind, MountKind::Bind(bind) if !bind.writable));
    let refusal = with_extras(&own, &[None, None, Some("/srv/out")]).expect_err("missing");
    assert_eq!(refusal.origin.expect("origin").column, 13);
    assert!(with_extras(&own, &[Some("/proc/1"), None, Some("/srv/out")]).is_err());

    let texts = Texts::default().with(Place::User, "p", "readable = [\"~/data\"]").with(
        Place::Workspace,
        "p",
        "readable = [\"~/data/x\"]",
    );
    let narrowed = resolve("p", &texts).expect("narrower as written");
    let inside = with_extras(&narrowed, &[Some("/home/ada/data/x"), Some("/home/ada/data")]);
    assert!(inside.is_ok());
    let outside =
        with_extras(&narrowed, &[Some("/home/ada/.ssh"), Some("/home/ada/data")]).expect_err("a link");
    assert_eq!(outside.code, Code::ProfileWidens);
}

#[test]
fn paths_expand_from_the_caller_only() {
    let expand = |text: &str, env: &[(&str, &str)]| {
        let profile = user(&format!("readable = [\"{text}\"]")).expect("valid");
        needs(&profile, &request(&["true"]), &caller(1000, env)).map(|needs| needs.paths[0].path.to_string())
    };
    assert_eq!(expand("~/x", &[]).expect("home"), "/home/ada/x");
    assert_eq!(expand("$HOME/x", &[("HOME", "/evil")]).expect("home"), "/home/ada/x");
    assert_eq!(expand("${C}/x", &[("C", "/cache")]).expect("variable"), "/cache/x");
    assert!(expand("$C/x", &[]).is_err());
    assert!(expand("$C/x", &[("C", "relative")]).is_err());
    assert!(expand("$C/x", &[("C", "/a/../..")]).is_err());
}

#[test]
fn a_worktree_shows_its_repository_with_its_hooks_protected() {
    let mut host = report(1000);
    host.git = GitFacts::Worktree {
        gitdir: object("/home/ada/r/.git/worktrees/w", 1000),
        common: object("/home/ada/r/.git", 1000),
    };
    host.deny_write = vec![Match { path: Bytes::from("/home/ada/r/.git/hooks"), is_dir: true }];
    let made = plan(&request(&["true"]), &built_in("default"), &host).expect("planned");
    assert!(matches!(&mount(&made, "/home/ada/r/.git").kind, MountKind::Bind(bind) if bind.writable));
    for pinned in ["/home/ada/r/.git/worktrees", "/home/ada/r/.git/worktrees/w"] {
        assert!(matches!(mount(&made, pinned).kind, MountKind::Pin), "{pinned}");
    }
    for protected in [
        "/home/ada/w/.git",
        "/home/ada/r/.git/hooks",
        "/home/ada/r/.git/worktrees/w/commondir",
        "/home/ada/r/.git/worktrees/w/gitdir",
    ] {
        assert!(matches!(mount(&made, protected).kind, MountKind::Protect { .. }), "{protected}");
    }
    host.git = GitFacts::Unverified { why: "it names /root".to_owned() };
    let made = plan(&request(&["true"]), &built_in("default"), &host).expect("planned");
    assert!(made.warnings.iter().any(|warning| warning.contains("/root")));
    assert!(!made.mounts.iter().any(|mount| mount.target == Bytes::from("/home/ada/r/.git")));
}

#[test]
fn guards_never_stand_on_what_a_mask_took_away() {
    let mut host = report(1000);
    let found = |path: &str, is_dir| Match { path: Bytes::from(path), is_dir };
    host.deny = vec![found("/home/ada/w/a", true), found("/home/ada/w/a/.env", false)];
    host.deny_write = vec![found("/home/ada/w/a/.git/config", false), found("/home/ada/w/a-b", true)];
    host.absent.clear();
    let made = plan(&request(&["true"]), &built_in("default"), &host).expect("planned");
    let below =
        made.mounts.iter().filter(|mount| mount.target.as_path().starts_with("/home/ada/w/a")).count();
    assert_eq!(below, 1);
}

#[test]
fn a_workspace_below_var_tmp_is_not_behind_a_link() {
    let mut host = report(1000);
    assert!(matches!(mount(&planned(1000), "/var/tmp").kind, MountKind::Symlink { .. }));
    host.workspace = object("/var/tmp/w", 1000);
    let made = plan(&request(&["true"]), &built_in("default"), &host).expect("planned");
    assert!(matches!(mount(&made, "/var/tmp").kind, MountKind::Scratch { .. }));
    host.caller.home = Bytes::from("/");
    let made = plan(&request(&["true"]), &built_in("default"), &host).expect("planned");
    assert!(made.env.contains(&(Bytes::from("HOME"), Bytes::from("/tmp"))));
}

#[test]
fn explain_tells_every_section() {
    let told = explain(&planned(0));
    for part in [
        "command\n",
        "identity\n",
        "never root there",
        "walls\n",
        "files\n",
        "landlock\n",
        "environment\n",
        "limits\n",
        "memory      512M",
        "masked     /home/ada/w/a/.env  (denied by the profile)",
        "made while it runs",
    ] {
        assert!(told.contains(part), "{part} in\n{told}");
    }
}
