//! What is in force for one execution, layer by layer, and what a host offers before one is planned.

use std::fs;

use stockade_proto::{
    Code, Enforcement, Layer, Limits, Mode, Network, Plan, Refusal, Requirement, SocketMode, State,
};

use crate::cgroup::{self, CgroupError, Group, TreeKill};

/// Per layer: what stands, as the init verified it (it would not have started the command otherwise).
pub(crate) fn of(plan: &Plan, group: Option<&Group>) -> Vec<Enforcement> {
    Layer::ALL.into_iter().map(|layer| row(plan, group, layer)).collect()
}

/// Init verifies the walls before it starts the command; without a start, nothing was shown to stand.
pub(crate) fn proven(mut rows: Vec<Enforcement>, started: bool) -> Vec<Enforcement> {
    if !started {
        for row in &mut rows {
            row.state = State::Off;
            row.detail = "the command did not start".to_owned();
        }
    }
    rows
}

fn row(plan: &Plan, group: Option<&Group>, layer: Layer) -> Enforcement {
    let off = || (State::Off, "switched off by the profile".to_owned());
    let (state, detail) = match (plan.layers.get(layer), layer) {
        (Requirement::Off, _) => match plan.unavailable.iter().find(|(missing, _)| *missing == layer) {
            Some((_, why)) => (State::Missing, why.clone()),
            None if plan.mode == Mode::Host => (State::Off, "mode host has no such wall".to_owned()),
            None => off(),
        },
        (_, Layer::Filesystem) => (State::Enforced, format!("mount namespace, {} mounts", plan.mounts.len())),
        (_, Layer::Landlock) => match &plan.landlock {
            Some(landlock) => (
                State::Enforced,
                format!("Landlock ABI {}, {} rules", stockade_sys::landlock_abi(), landlock.rules.len()),
            ),
            None => off(),
        },
        (_, Layer::Process) => (
            State::Enforced,
            "user, pid, ipc, uts and cgroup namespaces; no capability; no_new_privs".to_owned(),
        ),
        (_, Layer::Network) => match &plan.network {
            Network::Deny => {
                (State::Enforced, format!("network namespace, loopback only{}", published(plan)))
            }
            Network::Allowlist(egress) => {
                let targets = egress.targets.len();
                (State::Enforced, format!("network namespace, {targets} allowed targets{}", published(plan)))
            }
            Network::Inherit => (State::Off, "the profile gives the host's network".to_owned()),
        },
        (_, Layer::Seccomp) => match &plan.seccomp {
            Some(name) => (State::Enforced, format!("filter {name}")),
            None => off(),
        },
        (_, Layer::Sockets) => match &plan.sockets {
            Some(sockets) => match sockets.mode {
                SocketMode::Enforce => (
                    State::Enforced,
                    format!("user-notify supervisor, {} rules, enforced", sockets.rules.len()),
                ),
                SocketMode::Audit => (State::Off, "audit: everything is allowed and recorded".to_owned()),
            },
            None => off(),
        },
        (_, Layer::Limits) => match group {
            Some(group) => (State::Enforced, group.detail()),
            None => (State::Missing, "no cgroup".to_owned()),
        },
    };
    Enforcement { layer, state, detail }
}

fn published(plan: &Plan) -> String {
    match plan.publish.len() {
        0 => String::new(),
        count => format!(", {count} published"),
    }
}

/// Why a layer can't be had on this host, and the command that changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerFact {
    pub layer: Layer,
    pub unavailable: Option<(String, String)>,
}

fn setting(path: &str) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Cheap facts only: a few settings of the kernel. `stockade doctor` proves by doing.
pub fn layer_facts() -> Vec<LayerFact> {
    let namespaces = namespaces_unavailable();
    let landlock = (stockade_sys::landlock_abi() == 0).then(|| {
        (
            "this kernel has no Landlock, or it is not among the active security modules".to_owned(),
            "Boot with `lsm=landlock,...` on a kernel 5.13 or newer: sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&lsm=landlock,lockdown,yama,apparmor,bpf /' /etc/default/grub && sudo update-grub && sudo reboot".to_owned(),
        )
    });
    let sockets = (!stockade_sys::has_patient_listeners()).then(|| {
        (
            "this kernel's seccomp has no listeners that wait (Linux 5.19), or a filter forbids new ones"
                .to_owned(),
            "Use a kernel 5.19 or newer; in a container, allow the seccomp system call.".to_owned(),
        )
    });
    Layer::ALL
        .into_iter()
        .map(|layer| LayerFact {
            layer,
            unavailable: match layer {
                Layer::Filesystem | Layer::Process | Layer::Network => namespaces.clone(),
                Layer::Landlock => landlock.clone(),
                // Seccomp is part of every kernel that has the rest; limits are asked of `cgroup`.
                Layer::Seccomp | Layer::Limits => None,
                Layer::Sockets => sockets.clone(),
            },
        })
        .collect()
}

/// One of each kind that takes a controller.
const LIMITS: Limits = Limits {
    memory_bytes: Some(1 << 30),
    cpu_millicores: Some(1000),
    cpu_seconds: None,
    processes: Some(64),
    open_files: None,
    file_size_bytes: None,
    wall_ms: None,
    output_bytes: None,
    scratch_bytes: 0,
    grace_ms: 0,
};

/// For a process that will have many executions, at its start: removes what dead ones left, takes its seat among
/// the cgroups, and tells whether limits can be held there.
pub fn settle_limits() -> LayerFact {
    let settled = cgroup::Host::detect().and_then(|host| {
        host.availability(&LIMITS, TreeKill::PidNamespace)?;
        // What it could not remove, every execution will try again and tell.
        drop(cgroup::sweep(&host));
        host.settle(&LIMITS, TreeKill::PidNamespace)
    });
    let unavailable = settled.err().map(|error: CgroupError| (error.to_string(), error.remedy()));
    LayerFact { layer: Layer::Limits, unavailable }
}

/// What would hold limits where this process can't, if systemd's user manager gave it a scope: why it can't. None where
/// it can, or where no scope would help.
pub fn limits_want_a_scope() -> Option<Refusal> {
    let unavailable = cgroup::Host::detect().ok()?.availability(&LIMITS, TreeKill::PidNamespace).err()?;
    let refusal = || Refusal::new(Code::LayerUnavailable, unavailable.to_string(), unavailable.remedy());
    unavailable.a_scope_helps().then(refusal)
}

/// A program with an AppArmor profile of its own may have been granted what others are denied; whether
/// it was, the spawn will tell.
fn is_unconfined() -> bool {
    let label = fs::read_to_string("/proc/self/attr/apparmor/current")
        .or_else(|_| fs::read_to_string("/proc/self/attr/current"));
    label.is_ok_and(|label| label.trim_end_matches(['\0', '\n']) == "unconfined")
}

fn namespaces_unavailable() -> Option<(String, String)> {
    if setting("/proc/sys/user/max_user_namespaces") == Some(0) {
        return Some((
            "user namespaces are switched off (user.max_user_namespaces is 0)".to_owned(),
            "sudo sysctl -w user.max_user_namespaces=15000".to_owned(),
        ));
    }
    if rustix::process::geteuid().is_root() {
        return None;
    }
    if setting("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return Some((
            "user namespaces are reserved for root (kernel.unprivileged_userns_clone is 0)".to_owned(),
            "sudo sysctl -w kernel.unprivileged_userns_clone=1".to_owned(),
        ));
    }
    if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) && is_unconfined() {
        return Some((
            "AppArmor strips user namespaces of their capabilities (kernel.apparmor_restrict_unprivileged_userns is 1)".to_owned(),
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0".to_owned(),
        ));
    }
    None
}
