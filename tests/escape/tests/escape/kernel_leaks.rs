//! Files that tell about the machine or its other users.

use stockade_escape_tests::{Sandbox, am_root, wall};

const LEAKS: [&str; 10] = [
    "/proc/kcore",
    "/proc/kmsg",
    "/proc/keys",
    "/proc/timer_list",
    "/proc/kpagecount",
    "/proc/kallsyms",
    "/proc/vmallocinfo",
    "/proc/slabinfo",
    "/proc/sched_debug",
    "/sys/kernel/debug",
];

/// Empty is as good as absent: a mask over a file is an empty one.
fn tells(sandbox: &Sandbox, path: &str) -> bool {
    let ran = sandbox.run(&["sh", "-c", &format!("head -c 200 {path} 2>/dev/null; ls {path}/ 2>/dev/null")]);
    !ran.stdout.is_empty()
}

#[test]
fn they_tell_nothing() {
    let sandbox = Sandbox::new();
    for path in LEAKS {
        if path == "/proc/kallsyms" {
            // Addresses of zero tell nothing; names alone are in every distribution's package.
            let ran = sandbox.run(&["sh", "-c", "grep -v '^0000000000000000' /proc/kallsyms | head -1"]);
            assert!(ran.stdout.is_empty(), "{ran}");
            continue;
        }
        assert!(!tells(&sandbox, path), "{path} tells something");
    }
    if am_root() {
        sandbox.bare("read /proc/slabinfo").won();
    } else {
        stockade_escape_tests::skip("these files are root's on the bare host");
    }
}

#[test]
fn the_kernel_log_is_closed() {
    let sandbox = Sandbox::new();
    // syslog(SYSLOG_ACTION_SIZE_BUFFER) is number 103, action 10.
    wall(&sandbox, "raw 103 10 - 0");
    sandbox.attack("read /dev/kmsg").held();
}

#[test]
fn firmware_and_hardware_are_absent() {
    let sandbox = Sandbox::new();
    for path in ["/sys/firmware", "/proc/scsi", "/sys/kernel/security", "/proc/acpi"] {
        assert!(!tells(&sandbox, path), "{path} tells something");
    }
}
