//! Settings of the whole machine behind files: core_pattern, sysctl, sysrq, uevent helpers. The attack
//! opens them for writing and writes nothing, so that it may win on a real host.

use stockade_escape_tests::{Sandbox, wall};

const KNOBS: [&str; 18] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/panic",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/sys/fs/file-max",
    "/proc/sys/fs/suid_dumpable",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sysrq-trigger",
    "/proc/acpi/wakeup",
    "/proc/irq/0/smp_affinity",
    "/sys/kernel/uevent_helper",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/power/state",
];

#[test]
fn no_knob_opens_for_writing() {
    let sandbox = Sandbox::new();
    for knob in KNOBS {
        if std::path::Path::new(knob).exists() {
            wall(&sandbox, &format!("open-write {knob}"));
        }
        sandbox.attack(&format!("open-write {knob}")).held();
        sandbox.attack(&format!("try become-root , open-write {knob}")).held();
    }
}

#[test]
fn core_pattern_is_what_it_was() {
    let before = std::fs::read("/proc/sys/kernel/core_pattern").expect("core_pattern");
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["sh", "-c", "echo '|/tmp/evil' > /proc/sys/kernel/core_pattern"]);
    assert_ne!(ran.code(), 0, "{ran}");
    assert_eq!(std::fs::read("/proc/sys/kernel/core_pattern").expect("core_pattern"), before);
}

#[test]
fn every_file_below_proc_sys_is_closed_for_writing() {
    let sandbox = Sandbox::new();
    let script = "find /proc/sys /sys -type f -writable 2>/dev/null | head -5";
    let ran = sandbox.run(&["sh", "-c", script]);
    // -writable asks access(2), which sees read-only mounts and modes alike.
    assert!(ran.stdout.is_empty(), "{ran}");
}
