//! What is known about the host beside the probe's answers, and the remedy that follows from it. Reading is
//! one function; the rest is pure. A remedy is a command line that can be pasted wherever there is one.

use std::fs;
use std::path::Path;

use stockade_policy::SANDBOX_ROOT_UID;
use stockade_proto::{Code, Layer};

use super::ground::Ground;
use super::trial::Obstacle;

/// Landlock's first kernel; everything else that Stockade needs is older.
const OLDEST: (u32, u32) = (5, 13);

/// `f_type` of overlayfs.
const OVERLAY: i64 = 0x794c_7630;

const AS_AN_ORDINARY_USER: &str = "useradd -m agent && runuser -u agent -- stockade doctor";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    Docker,
    Podman,
    /// LXC, systemd-nspawn and others name themselves to their init.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) kernel: String,
    pub(super) uid: u32,
    pub(super) landlock_abi: u32,
    /// `/sys/kernel/security/lsm`, where it can be read.
    pub(super) modules: Option<String>,
    pub(super) max_user_namespaces: Option<i64>,
    pub(super) unprivileged_userns_clone: Option<i64>,
    pub(super) apparmor_restricts: Option<i64>,
    pub(super) container: Option<Container>,
    /// This is a command of a sandbox of ours.
    pub(super) inside_stockade: bool,
    /// The workspace's file system can't show its files to another uid.
    pub(super) overlay: bool,
    /// Root's sandboxes run as a uid that this user namespace does not know.
    pub(super) uid_unmapped: bool,
    /// Controllers sit on cgroup v1.
    pub(super) cgroup_v1: bool,
    pub(super) user_manager: bool,
}

fn setting(path: &str) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn container() -> Option<Container> {
    if Path::new("/run/.containerenv").exists() {
        return Some(Container::Podman);
    }
    if Path::new("/.dockerenv").exists() {
        return Some(Container::Docker);
    }
    let told = Path::new("/run/systemd/container").exists() || std::env::var_os("container").is_some();
    told.then_some(Container::Other)
}

impl Facts {
    pub(super) fn read(ground: &Ground) -> Self {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(std::path::PathBuf::from);
        Self {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            uid: rustix::process::geteuid().as_raw(),
            landlock_abi: stockade_sys::landlock_abi(),
            modules: fs::read_to_string("/sys/kernel/security/lsm").ok().map(|text| text.trim().to_owned()),
            max_user_namespaces: setting("/proc/sys/user/max_user_namespaces"),
            unprivileged_userns_clone: setting("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restricts: setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            container: container(),
            inside_stockade: std::env::var_os("STOCKADE").is_some(),
            overlay: rustix::fs::statfs(ground.workspace()).is_ok_and(|stat| stat.f_type == OVERLAY),
            uid_unmapped: fs::read_to_string("/proc/self/uid_map")
                .is_ok_and(|map| !holds(&map, SANDBOX_ROOT_UID)),
            cgroup_v1: !Path::new("/sys/fs/cgroup/cgroup.controllers").exists(),
            user_manager: runtime.is_some_and(|runtime| runtime.join("systemd/private").exists()),
        }
    }

    fn is_root(&self) -> bool {
        self.uid == 0
    }

    fn is_too_old(&self) -> bool {
        version(&self.kernel).is_some_and(|version| version < OLDEST)
    }

    /// Why a layer is missing, and what to do: the host's own reason where one is known, else the obstacle's.
    pub(super) fn explain(&self, layer: Layer, obstacle: &Obstacle) -> (String, String) {
        if obstacle.code == Some(Code::InitMissing) {
            return (obstacle.why.clone(), obstacle.remedy.clone());
        }
        let known = self.anywhere().or_else(|| match layer {
            Layer::Filesystem | Layer::Process | Layer::Network => self.namespaces(obstacle),
            Layer::Landlock => self.landlock(),
            Layer::Seccomp | Layer::Sockets => None,
            Layer::Limits => self.limits(),
        });
        match known {
            Some((Some(why), remedy)) => (why, remedy),
            Some((None, remedy)) => (obstacle.why.clone(), remedy),
            None => (obstacle.why.clone(), obstacle.remedy.clone()),
        }
    }

    fn anywhere(&self) -> Option<Known> {
        if self.inside_stockade {
            return Some((
                Some("this is already inside a sandbox of Stockade's, which allows no second one".to_owned()),
                "Run it outside: leave the sandbox, then `stockade doctor`".to_owned(),
            ));
        }
        self.is_too_old().then(|| {
            (
                Some(format!(
                    "Linux {} is too old: {}.{} is the oldest that has these walls",
                    self.kernel, OLDEST.0, OLDEST.1
                )),
                "sudo apt update && sudo apt full-upgrade && sudo reboot".to_owned(),
            )
        })
    }

    fn namespaces(&self, obstacle: &Obstacle) -> Option<Known> {
        let setting = |name: &str, value: &str| {
            format!(
                "echo {name}={value} | sudo tee /etc/sysctl.d/60-stockade.conf && sudo sysctl -w {name}={value}"
            )
        };
        if self.max_user_namespaces == Some(0) {
            let why = "user namespaces are switched off (user.max_user_namespaces is 0)";
            return Some((Some(why.to_owned()), setting("user.max_user_namespaces", "15000")));
        }
        if !self.is_root() && self.unprivileged_userns_clone == Some(0) {
            let why = "user namespaces are reserved for root (kernel.unprivileged_userns_clone is 0)";
            return Some((Some(why.to_owned()), setting("kernel.unprivileged_userns_clone", "1")));
        }
        if !self.is_root() && self.apparmor_restricts == Some(1) {
            let why = "AppArmor takes the capabilities out of user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1)";
            return Some((
                Some(why.to_owned()),
                setting("kernel.apparmor_restrict_unprivileged_userns", "0"),
            ));
        }
        if self.is_root() && self.uid_unmapped {
            let why = format!(
                "root's sandboxes run as uid {SANDBOX_ROOT_UID}, which the user namespace of this container does not know"
            );
            return Some((Some(why), AS_AN_ORDINARY_USER.to_owned()));
        }
        if self.is_root() && self.overlay && obstacle.stage.is_none() {
            return Some((None, self.off_the_overlay()));
        }
        self.container.map(|container| (self.nesting(container, obstacle), nested(container)))
    }

    /// A container engine masks parts of /proc, and the kernel lets nobody mount a fresh one that would show
    /// them again.
    fn nesting(&self, container: Container, obstacle: &Obstacle) -> Option<String> {
        const EPERM: i32 = 1;
        let masked = obstacle.stage.as_ref().is_some_and(|(stage, errno)| stage == "root" && *errno == EPERM);
        masked.then(|| {
            format!(
                "this {} does not allow nesting: a fresh /proc can't be mounted over its masked one ({})",
                container.name(),
                obstacle.why
            )
        })
    }

    fn off_the_overlay(&self) -> String {
        let engine = if self.container == Some(Container::Podman) { "podman" } else { "docker" };
        format!(
            "Keep workspaces on a volume: {engine} run -v \"$PWD\":/work -w /work ...; or run as an ordinary user: {AS_AN_ORDINARY_USER}"
        )
    }

    fn landlock(&self) -> Option<Known> {
        if self.landlock_abi > 0 {
            return None;
        }
        let active = |modules: &str| modules.split(',').any(|module| module == "landlock");
        match (&self.modules, self.container) {
            (Some(modules), Some(container)) if active(modules) => Some((
                Some(format!(
                    "the kernel has Landlock, and the filter of this {} forbids it",
                    container.name()
                )),
                nested(container),
            )),
            (Some(modules), _) => Some((
                Some(format!("Landlock is not among the active security modules ({modules})")),
                boot_with(&format!("lsm=landlock,{modules}")),
            )),
            (None, Some(container)) => Some((None, nested(container))),
            (None, None) => None,
        }
    }

    fn limits(&self) -> Option<Known> {
        if self.is_root() {
            let container = self.container?;
            return Some((
                None,
                match container {
                    Container::Docker => "docker run --cgroupns=private --privileged ...".to_owned(),
                    Container::Podman => "podman run --cgroupns=private --security-opt unmask=/sys/fs/cgroup ...".to_owned(),
                    Container::Other => "Start the container with its own writable cgroups (systemd-nspawn -D DIR -b; lxc config set NAME security.nesting true)".to_owned(),
                },
            ));
        }
        if self.cgroup_v1 {
            return Some((
                None,
                format!(
                    "As root now: sudo stockade run ...; for ordinary users cgroup v2 is needed: {}",
                    boot_with("systemd.unified_cgroup_hierarchy=1")
                ),
            ));
        }
        let delegate = "sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload && sudo systemctl restart user@$(id -u).service";
        let manager = "sudo loginctl enable-linger \"$USER\" && export XDG_RUNTIME_DIR=/run/user/$(id -u)";
        Some((None, if self.user_manager { delegate.to_owned() } else { manager.to_owned() }))
    }
}

/// A reason of the host's own, where it is better than the obstacle's, and a remedy.
type Known = (Option<String>, String);

impl Container {
    const fn name(self) -> &'static str {
        match self {
            Self::Docker => "Docker container",
            Self::Podman => "Podman container",
            Self::Other => "container",
        }
    }
}

fn nested(container: Container) -> String {
    match container {
        Container::Docker => "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined ...",
        Container::Podman => "podman run --security-opt seccomp=unconfined --security-opt label=disable --security-opt unmask=ALL ...",
        Container::Other => "Allow nesting: lxc config set NAME security.nesting true && lxc restart NAME",
    }
    .to_owned()
}

fn boot_with(option: &str) -> String {
    format!(
        "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{option} /' /etc/default/grub && sudo update-grub && sudo reboot"
    )
}

/// Lines of `/proc/self/uid_map`: first inside, first outside, count.
fn holds(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(_)), Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&u64::from(uid))
    })
}

/// `6.1.0-18-amd64` is 6.1.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordinary() -> Facts {
        Facts {
            kernel: "6.12.9-cloud-amd64".to_owned(),
            uid: 1000,
            landlock_abi: 6,
            modules: Some("lockdown,capability,landlock,yama,apparmor".to_owned()),
            max_user_namespaces: Some(15_000),
            unprivileged_userns_clone: Some(1),
            apparmor_restricts: None,
            container: None,
            inside_stockade: false,
            overlay: false,
            uid_unmapped: false,
            cgroup_v1: false,
            user_manager: true,
        }
    }

    fn obstacle() -> Obstacle {
        Obstacle { why: "it is so".to_owned(), remedy: "do this".to_owned(), code: None, stage: None }
    }

    #[test]
    fn kernel_versions() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("5.10.0"), Some((5, 10)));
        assert_eq!(version("6.18-rc1"), Some((6, 18)));
        assert_eq!(version("linux"), None);
    }

    #[test]
    fn an_unknown_reason_keeps_the_obstacles_words() {
        let (why, remedy) = ordinary().explain(Layer::Process, &obstacle());
        assert_eq!((why.as_str(), remedy.as_str()), ("it is so", "do this"));
        assert_eq!(ordinary().explain(Layer::Seccomp, &obstacle()).1, "do this");
        assert_eq!(ordinary().explain(Layer::Landlock, &obstacle()).1, "do this");
    }

    #[test]
    fn settings_that_forbid_user_namespaces_are_named_with_their_remedy() {
        let cases = [
            (Facts { max_user_namespaces: Some(0), ..ordinary() }, "user.max_user_namespaces=15000"),
            (
                Facts { unprivileged_userns_clone: Some(0), ..ordinary() },
                "kernel.unprivileged_userns_clone=1",
            ),
            (
                Facts { apparmor_restricts: Some(1), ..ordinary() },
                "kernel.apparmor_restrict_unprivileged_userns=0",
            ),
        ];
        for (facts, command) in cases {
            for layer in [Layer::Filesystem, Layer::Process, Layer::Network] {
                let (why, remedy) = facts.explain(layer, &obstacle());
                assert!(remedy.contains(&format!("sysctl -w {command}")), "{remedy}");
                assert!(why.contains(command.split('=').next().expect("a name")), "{why}");
            }
            assert_eq!(facts.explain(Layer::Landlock, &obstacle()).1, "do this");
        }
        // Root may make them whatever the two other settings say.
        let root =
            Facts { uid: 0, unprivileged_userns_clone: Some(0), apparmor_restricts: Some(1), ..ordinary() };
        assert_eq!(root.explain(Layer::Process, &obstacle()).1, "do this");
    }

    #[test]
    fn an_old_kernel_is_named_with_its_version() {
        let old = Facts { kernel: "5.10.0-28-amd64".to_owned(), ..ordinary() };
        for layer in Layer::ALL {
            assert!(old.explain(layer, &obstacle()).0.contains("5.10.0-28-amd64"));
        }
        assert!(!Facts { kernel: "5.13.0".to_owned(), ..ordinary() }.is_too_old());
    }

    #[test]
    fn landlock_absent_from_the_list_is_put_in_front_of_it() {
        let facts = Facts { landlock_abi: 0, modules: Some("capability,yama".to_owned()), ..ordinary() };
        let (why, remedy) = facts.explain(Layer::Landlock, &obstacle());
        assert!(why.contains("capability,yama"));
        assert!(remedy.contains("lsm=landlock,capability,yama") && remedy.contains("update-grub"));
    }

    #[test]
    fn a_container_without_nesting_is_told_by_where_init_stopped() {
        let masked = Obstacle { stage: Some(("root".to_owned(), 1)), ..obstacle() };
        for (container, word) in [
            (Container::Docker, "systempaths=unconfined"),
            (Container::Podman, "unmask=ALL"),
            (Container::Other, "security.nesting"),
        ] {
            let facts = Facts { uid: 0, container: Some(container), ..ordinary() };
            let (why, remedy) = facts.explain(Layer::Filesystem, &masked);
            assert!(why.contains("nesting") && why.contains("it is so"), "{why}");
            assert!(remedy.contains(word), "{remedy}");
            assert_eq!(facts.explain(Layer::Process, &obstacle()).0, "it is so");
        }
    }

    #[test]
    fn a_missing_init_is_not_the_hosts_doing() {
        let facts = Facts { container: Some(Container::Docker), inside_stockade: true, ..ordinary() };
        let missing = Obstacle { code: Some(Code::InitMissing), ..obstacle() };
        assert_eq!(facts.explain(Layer::Process, &missing).1, "do this");
    }

    #[test]
    fn root_of_a_small_user_namespace_is_told_to_be_an_ordinary_user() {
        assert!(holds("         0          0 4294967295\n", SANDBOX_ROOT_UID));
        assert!(!holds("0 100000 65536\n", SANDBOX_ROOT_UID));
        assert!(holds("0 1000 1\n1 100000 65536\n", 65_536));
        assert!(!holds("nonsense", 0));
        let facts = Facts { uid: 0, uid_unmapped: true, container: Some(Container::Other), ..ordinary() };
        assert!(facts.explain(Layer::Process, &obstacle()).1.contains("runuser"));
    }

    #[test]
    fn the_other_hosts() {
        let inside = Facts { inside_stockade: true, ..ordinary() };
        assert!(inside.explain(Layer::Limits, &obstacle()).0.contains("already inside"));
        let overlay = Facts { uid: 0, overlay: true, container: Some(Container::Docker), ..ordinary() };
        assert!(overlay.explain(Layer::Filesystem, &obstacle()).1.contains("docker run -v"));
        assert!(ordinary().explain(Layer::Limits, &obstacle()).1.contains("Delegate=cpu"));
        let no_manager = Facts { user_manager: false, ..ordinary() };
        assert!(no_manager.explain(Layer::Limits, &obstacle()).1.contains("enable-linger"));
        let hybrid = Facts { cgroup_v1: true, ..ordinary() };
        assert!(hybrid.explain(Layer::Limits, &obstacle()).1.contains("unified_cgroup_hierarchy=1"));
        let root = Facts { uid: 0, ..ordinary() };
        assert_eq!(root.explain(Layer::Limits, &obstacle()).1, "do this");
    }
}
