//! The survey against directories made for it: forged worktrees, planted links, profiles of strangers.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use stockade_policy::{
    Caller, Command, GitFacts, HostReport, LayerReport, Needs, Object, Place, Request, Resolved,
    Sources as _, needs, plan, resolve,
};
use stockade_proto::{Bytes, Code, MountKind, Plan, Refusal, Stdin};
use tempfile::TempDir;

use super::{Near, Outlook, Profiles, begin, complete, workspace};

/// Both steps.
fn survey(
    needs: &Needs,
    workspace: Object,
    caller: Caller,
    layers: LayerReport,
) -> Result<HostReport, Refusal> {
    complete(needs, begin(needs, workspace, &Near::of(caller, layers)), &Outlook::fresh())
}

fn planned(ground: &Ground, report: &HostReport) -> Plan {
    let (request, profile) = (ground.request(), ground.profile("default"));
    let stands_on = stockade_policy::ground(&request, &profile, report).expect("ground");
    plan(&stands_on, &request, &profile, report).expect("plan")
}

struct Ground {
    home: TempDir,
    work: TempDir,
}

impl Ground {
    fn new() -> Self {
        let made = || tempfile::tempdir().expect("directory");
        Self { home: made(), work: made() }
    }

    fn path(&self, below: &str) -> std::path::PathBuf {
        self.work.path().join(below)
    }

    fn write(&self, below: &str, text: &str) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().expect("parent")).expect("directory");
        fs::write(path, text).expect("file");
    }

    fn caller(&self) -> Caller {
        let mut caller = super::caller();
        caller.home = Bytes::from(self.home.path());
        caller.env.retain(|(name, _)| name.as_slice() != b"XDG_CONFIG_HOME");
        caller
    }

    fn profile(&self, name: &str) -> Resolved {
        let caller = self.caller();
        let root = workspace(&Bytes::from(self.work.path()), &caller).expect("workspace");
        resolve(name, &Profiles::new(&caller, Some(&root))).expect("profile")
    }

    fn look(&self, name: &str) -> Result<HostReport, Refusal> {
        let caller = self.caller();
        let root = workspace(&Bytes::from(self.work.path()), &caller)?;
        let needs = needs(&self.profile(name), &self.request(), &caller)?;
        survey(&needs, root, caller, LayerReport::all_available())
    }

    fn request(&self) -> Request {
        Request {
            command: Command::Argv(vec![Bytes::from("true")]),
            workspace: Bytes::from(self.work.path()),
            cwd: None,
            env: Vec::new(),
            timeout_ms: None,
            stdin: Stdin::Null,
            publish: Vec::new(),
            profile: "default".to_owned(),
        }
    }

    fn relative(&self, report: &HostReport) -> (Vec<String>, Vec<String>, Vec<String>) {
        let cut = |path: &Bytes| {
            path.as_path().strip_prefix(self.work.path()).expect("below").display().to_string()
        };
        (
            report.deny.iter().map(|found| cut(&found.path)).collect(),
            report.deny_write.iter().map(|found| cut(&found.path)).collect(),
            report.absent.iter().map(|held| cut(&held.path)).collect(),
        )
    }
}

#[test]
fn this_host_can_be_planned_for() {
    let ground = Ground::new();
    let report = ground.look("default").expect("report");
    assert!(
        report.capacity.memory_bytes > 1 << 20 && report.capacity.cores > 0 && report.capacity.pid_max > 100
    );
    assert!(report.path.iter().any(|dir| dir.as_slice() == b"/usr/bin"));
    let plan = planned(&ground, &report);
    let workspace = Bytes::from(ground.work.path());
    assert!(
        plan.mounts.iter().any(|mount| mount.target == workspace && matches!(mount.kind, MountKind::Bind(_)))
    );
    assert_eq!(plan.cwd, workspace);
}

#[test]
fn deny_matches_are_found_and_links_are_seen_through() {
    let ground = Ground::new();
    for file in [
        ".env",
        "a/b/.env",
        "node_modules/x/.env",
        ".git/config",
        ".git/HEAD",
        ".git/objects/aa/.env",
        "real",
    ] {
        ground.write(file, "x");
    }
    ground.write("sub/.git/hooks/pre-commit", "x");
    ground.write(".git/modules/m/HEAD", "x");
    ground.write(".git/modules/m/config", "x");
    fs::create_dir(ground.path("linked")).expect("directory");
    symlink("../real", ground.path("linked/.env")).expect("link");
    fs::create_dir(ground.path("loop")).expect("directory");
    symlink("..", ground.path("loop/.env")).expect("link");
    let report = ground.look("default").expect("report");
    let (deny, deny_write, absent) = ground.relative(&report);
    assert_eq!(deny, [".env", ".git/objects/aa/.env", "a/b/.env", "node_modules/x/.env", "real"]);
    assert_eq!(deny_write, [".git/config", ".git/modules/m/config", "sub/.git/hooks"]);
    assert_eq!(
        absent,
        [".git/commondir", ".git/hooks", ".git/modules/m/commondir", ".git/modules/m/hooks", ".stockade"]
    );
    let readonly = ground.look("host").expect("report");
    assert!(readonly.deny.is_empty() && readonly.system.is_empty(), "host mode looks at nothing");
}

#[test]
fn links_that_can_not_be_protected_are_refused() {
    for (link, to) in [(".git", "elsewhere"), (".git/hooks", "../x"), (".stockade", "elsewhere")] {
        let ground = Ground::new();
        fs::create_dir(ground.path("elsewhere")).expect("directory");
        let path = ground.path(link);
        fs::create_dir_all(path.parent().expect("parent")).expect("directory");
        symlink(to, &path).expect("link");
        let caller = ground.caller();
        let root = workspace(&Bytes::from(ground.work.path()), &caller).expect("workspace");
        let profile = resolve("default", &Profiles::new(&caller, None)).expect("profile");
        let needs = needs(&profile, &ground.request(), &caller).expect("needs");
        let refusal = survey(&needs, root, caller, LayerReport::all_available()).expect_err(link);
        assert_eq!(refusal.code, Code::WorkspaceForbidden, "{link}");
    }
}

#[test]
fn a_planted_commondir_is_refused() {
    let ground = Ground::new();
    ground.write(".git/config", "x");
    ground.write(".git/commondir", "../evil");
    let refusal = ground.look("default").expect_err("planted");
    assert_eq!(refusal.code, Code::WorkspaceForbidden);
    assert!(refusal.message.contains("commondir"), "{}", refusal.message);
}

fn repository(root: &Path, worktree: &Path) {
    let gitdir = root.join("worktrees/w");
    for directory in ["objects", "refs", "hooks", "worktrees/w"] {
        fs::create_dir_all(root.join(directory)).expect("directory");
    }
    for (file, text) in [("HEAD", "ref: refs/heads/main\n"), ("config", "[core]\n")] {
        fs::write(root.join(file), text).expect("file");
    }
    fs::write(gitdir.join("commondir"), "../..\n").expect("file");
    fs::write(gitdir.join("gitdir"), format!("{}\n", worktree.join(".git").display())).expect("file");
}

#[test]
fn a_true_worktree_is_followed() {
    let ground = Ground::new();
    let other = tempfile::tempdir().expect("directory");
    let root = other.path().join("r/.git");
    repository(&root, ground.work.path());
    ground.write(".git", &format!("gitdir: {}\n", root.join("worktrees/w").display()));
    let report = ground.look("default").expect("report");
    let GitFacts::Worktree { common, .. } = &report.git else { panic!("{:?}", report.git) };
    assert_eq!(common.path, Bytes::from(root.as_path()));
    let guarded = report.deny_write.iter().map(|found| found.path.clone()).collect::<Vec<_>>();
    for name in ["config", "hooks", "worktrees/w/commondir", "worktrees/w/gitdir"] {
        assert!(guarded.contains(&Bytes::from(root.join(name))), "{name}: {guarded:?}");
    }
}

#[test]
fn a_forged_git_file_opens_nothing() {
    let victim = tempfile::tempdir().expect("directory");
    fs::write(victim.path().join("id_rsa"), "secret").expect("file");
    let other = tempfile::tempdir().expect("directory");
    let elsewhere = other.path().join("r/.git");
    repository(&elsewhere, Path::new("/nowhere"));

    // A directory with no link back; another worktree's; and a whole forged repository inside the workspace
    // whose `commondir` names the victim.
    let forge = |ground: &Ground| {
        let fake = ground.path("fake/worktrees/w");
        fs::create_dir_all(&fake).expect("directory");
        fs::write(fake.join("gitdir"), ground.path(".git").as_os_str().as_encoded_bytes()).expect("file");
        fs::write(fake.join("commondir"), victim.path().as_os_str().as_encoded_bytes()).expect("file");
        fake
    };
    let cases: [&dyn Fn(&Ground) -> std::path::PathBuf; 3] =
        [&|_| victim.path().to_path_buf(), &|_| elsewhere.join("worktrees/w"), &forge];
    for (at, case) in cases.iter().enumerate() {
        let ground = Ground::new();
        let named = case(&ground);
        ground.write(".git", &format!("gitdir: {}\n", named.display()));
        let report = ground.look("default").expect("report");
        assert!(matches!(report.git, GitFacts::Unverified { .. }), "case {at}: {:?}", report.git);
        let plan = planned(&ground, &report);
        let shown = plan.mounts.iter().any(|mount| {
            matches!(&mount.kind, MountKind::Bind(bind)
                if bind.source.path.as_path().starts_with(victim.path())
                    || bind.source.path.as_path().starts_with(other.path()))
        });
        assert!(!shown, "case {at}");
        assert_eq!(plan.warnings.len(), 1, "case {at}: {:?}", plan.warnings);
    }
}

#[test]
fn workspaces_must_be_there_and_be_workspaces() {
    let ground = Ground::new();
    let caller = ground.caller();
    let code = |path: &str| workspace(&Bytes::from(path), &caller).expect_err(path).code;
    assert_eq!(code("/nonexistent/x"), Code::WorkspaceMissing);
    assert_eq!(code("/dev/null"), Code::WorkspaceMissing);
    assert_eq!(code("/usr"), Code::WorkspaceForbidden);
    assert_eq!(code("/proc/self/root"), Code::WorkspaceForbidden, "a link to / is /");
    assert_eq!(code(ground.home.path().to_str().expect("utf-8")), Code::WorkspaceForbidden);
}

#[test]
fn profiles_of_strangers_and_links_are_refused() {
    let ground = Ground::new();
    let caller = ground.caller();
    let root = workspace(&Bytes::from(ground.work.path()), &caller).expect("workspace");
    let profiles = Profiles::new(&caller, Some(&root));
    assert_eq!(profiles.find(Place::Workspace, "x").expect("none"), None);

    let own = ground.home.path().join(".config/stockade/profiles");
    fs::create_dir_all(&own).expect("directory");
    fs::write(own.join("x.toml"), "network = \"inherit\"\n").expect("file");
    fs::set_permissions(own.join("x.toml"), fs::Permissions::from_mode(0o600)).expect("mode");
    assert!(profiles.find(Place::User, "x").expect("read").is_some());
    assert_eq!(profiles.names(), ["x"]);
    fs::set_permissions(own.join("x.toml"), fs::Permissions::from_mode(0o666)).expect("mode");
    assert!(profiles.find(Place::User, "x").expect_err("writable").message.contains("by others"));

    ground.write("planted.toml", "network = \"inherit\"\n");
    symlink(ground.path("planted.toml"), own.join("y.toml")).expect("link");
    assert!(profiles.find(Place::User, "y").expect_err("inside").message.contains("lies in the workspace"));

    ground.write(".stockade/big.toml", &" ".repeat(256 * 1024 + 1));
    assert!(profiles.find(Place::Workspace, "big").expect_err("big").message.contains("larger"));
    fs::create_dir(ground.path(".stockade/dir.toml")).expect("directory");
    assert!(profiles.find(Place::Workspace, "dir").expect_err("directory").message.contains("regular"));
    symlink("/etc/passwd", ground.path(".stockade/link.toml")).expect("link");
    assert!(profiles.find(Place::Workspace, "link").expect_err("link").message.contains("symbolic link"));
    assert_eq!(profiles.find(Place::Workspace, "../../etc/x").expect("no name"), None);
}
