//! The filters that ship: every rule decides something, every condition cuts where it should, and the
//! common calls are decided in few instructions.

use super::layout::assert_well_formed;
use super::{decide, default_set, run, sockets_set};
use crate::compile::compile;
use crate::model::{AUDIT_ARCH_I386, Action, Call, X32_BIT};
use crate::rules::RuleSet;
use crate::{Filter, errno, filter, filters, syscalls};

/// The goal for the shipped program: the kernel checks, translates and compiles it at every launch.
const LENGTH_GOAL: usize = 350;

/// Tests on the way of a call that a program makes all the time.
const FREQUENT_STEPS: usize = 10;

/// Tests on the way of any call without conditions: the tree may not become a list.
const ANY_STEPS: usize = 16;

fn default_filter() -> &'static Filter {
    filter("default").expect("ships")
}

/// Every filter that ships, with the rules that it was compiled from.
fn shipped() -> [(&'static Filter, RuleSet); 2] {
    [(default_filter(), default_set()), (filter("sockets").expect("ships"), sockets_set())]
}

fn answer(name: &str, args: &[u64]) -> Action {
    let number = syscalls::number(name).expect("known");
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    default_filter().decide(&Call::new(number, all))
}

fn refused(name: &str) -> Action {
    Action::Errno(errno::number(name).expect("known"))
}

#[test]
fn names_are_looked_up_exactly() {
    let names: Vec<&str> = filters().iter().map(|filter| filter.name).collect();
    assert_eq!(names, ["default", "sockets"]);
    for filter in filters() {
        assert!(std::ptr::eq(crate::filter(filter.name).expect("found"), filter));
        assert!(!filter.description.is_empty());
    }
    assert!(filter("Default").is_none() && filter("").is_none() && filter("none").is_none());
}

#[test]
fn the_built_program_is_the_compiled_rules() {
    for (filter, set) in shipped() {
        assert_eq!(filter.program, compile(&set).expect("fits"));
        assert_eq!((filter.default, filter.unknown, filter.foreign), (set.default, set.unknown, set.foreign));
        assert_eq!(filter.rules.len(), set.rows().count());
        for (built, row) in filter.rules.iter().zip(set.rows()) {
            assert_eq!(
                (built.number, built.action, built.reason),
                (row.number, row.rule.action, &*row.rule.reason)
            );
            assert_eq!(built.conditions, row.rule.conditions);
            assert_eq!(syscalls::number(built.syscall), Some(built.number));
        }
    }
}

#[test]
fn program_bytes_are_sock_filters() {
    let filter = default_filter();
    let bytes = filter.program_bytes();
    assert_eq!(bytes.len(), filter.program.len() * size_of::<libc::sock_filter>());
    for (chunk, one) in bytes.chunks_exact(8).zip(filter.program) {
        assert_eq!(u16::from_ne_bytes([chunk[0], chunk[1]]), one.code);
        assert_eq!((chunk[2], chunk[3]), (one.jt, one.jf));
        assert_eq!(u32::from_ne_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]), one.k);
    }
}

#[test]
fn the_program_is_short_and_shallow() {
    for (filter, _) in shipped() {
        short_and_shallow(filter);
    }
}

fn short_and_shallow(filter: &Filter) {
    assert_well_formed(filter.program);
    assert!(filter.program.len() < LENGTH_GOAL, "{}", filter.program.len());
    let steps =
        |name: &str| run(filter.program, &Call::new(syscalls::number(name).expect("known"), [0; 6])).steps;
    for name in ["read", "write", "close", "futex", "mmap", "openat", "clone"] {
        assert!(steps(name) <= FREQUENT_STEPS, "{name}: {}", steps(name));
    }
    // Its four requests are compared one by one.
    assert!(steps("ioctl") <= FREQUENT_STEPS + 4, "ioctl: {}", steps("ioctl"));
    let mut sum = 0;
    for (name, number) in syscalls::TABLE {
        let conditional = filter.rules.iter().any(|row| row.number == *number && !row.conditions.is_empty());
        sum += steps(name);
        assert!(conditional || steps(name) <= ANY_STEPS, "{name}: {}", steps(name));
    }
    println!(
        "{} instructions for {} rows; mean {:.1} per call, read {}, openat {}, ioctl {}, socket {}",
        filter.program.len(),
        filter.rules.len(),
        f64::from(u32::try_from(sum).expect("small"))
            / f64::from(u32::try_from(syscalls::TABLE.len()).expect("small")),
        steps("read"),
        steps("openat"),
        steps("ioctl"),
        steps("socket"),
    );
}

#[test]
fn every_sample_is_decided_by_its_row() {
    for (filter, _) in shipped() {
        for row in filter.rules {
            let call = Call::new(row.number, row.sample);
            assert_eq!(filter.decide(&call), row.action, "{}: {}", row.syscall, row.reason);
            let found = filter.rule_for(&call).expect("a row");
            assert!(std::ptr::eq(found, row), "{}: {}", row.syscall, row.reason);
            let asks = row.action == Action::Notify;
            assert!(!asks || filter.name == "sockets", "the default has no supervisor to ask");
        }
    }
}

/// Without a row, the program decides its sample differently: no row is there for nothing.
#[test]
fn every_rule_is_needed() {
    for (filter, set) in shipped() {
        for (at, row) in filter.rules.iter().enumerate() {
            let program = compile(&without_row(&set, at)).expect("fits");
            let call = Call::new(row.number, row.sample);
            assert_ne!(decide(&program, &call), row.action, "{}: {}", row.syscall, row.reason);
        }
    }
}

/// Where the default refuses, the supervised filter refuses the same; where it allows, the six calls wait.
#[test]
fn sockets_is_the_default_and_six_calls() {
    let sockets = filter("sockets").expect("ships");
    let added: Vec<(&str, usize)> = sockets.rules[default_filter().rules.len()..]
        .iter()
        .map(|row| (row.syscall, row.conditions.len()))
        .collect();
    assert_eq!(
        added,
        [("connect", 0), ("bind", 0), ("listen", 0), ("sendto", 1), ("sendmsg", 0), ("sendmmsg", 0)]
    );
    for (name, number) in syscalls::TABLE {
        for args in [[0; 6], [u64::MAX; 6], [1, 1, 0, 0, 0, 0], [3, 0, 0, 0, 1 << 40, 0]] {
            let call = Call::new(*number, args);
            let waits = match *name {
                "connect" | "bind" | "listen" | "sendmsg" | "sendmmsg" => true,
                "sendto" => args[4] != 0,
                _ => false,
            };
            let expected = if waits { Action::Notify } else { default_filter().decide(&call) };
            assert_eq!(sockets.decide(&call), expected, "{name} {args:x?}");
        }
    }
    for arch in [AUDIT_ARCH_I386, 0] {
        let call = Call { arch, ..Call::new(syscalls::number("connect").expect("known"), [0; 6]) };
        assert_eq!(sockets.decide(&call), refused("ENOSYS"), "a foreign call is never asked about");
    }
}

fn without_row(set: &RuleSet, row: usize) -> RuleSet {
    let mut set = set.clone();
    let mut seen = 0;
    for rule in &mut set.rules {
        let count = rule.syscalls.len();
        if (seen..seen + count).contains(&row) {
            rule.syscalls.remove(row - seen);
        }
        seen += count;
    }
    set
}

/// Noise above a 32-bit parameter changes no decision: the kernel cuts it off before the call runs.
#[test]
fn the_upper_half_of_an_int_is_ignored() {
    let filter = default_filter();
    for row in filter.rules {
        for noise in [1_u64 << 32, 0xdead_beef << 32, 0xffff_ffff << 32] {
            let mut args = row.sample;
            for condition in row.conditions.iter().filter(|one| one.width == crate::Width::Bits32) {
                args[usize::from(condition.arg)] |= noise;
            }
            let call = Call::new(row.number, args);
            assert_eq!(filter.decide(&call), row.action, "{}: {:x?}", row.syscall, args);
        }
    }
}

#[test]
fn foreign_and_unknown_calls_do_not_exist() {
    let filter = default_filter();
    let nosys = refused("ENOSYS");
    for (name, number) in syscalls::TABLE {
        let native = Call::new(*number, [0; 6]);
        assert_eq!(filter.decide(&Call { number: number | X32_BIT, ..native }), nosys, "{name}");
        for arch in [AUDIT_ARCH_I386, 0, u32::MAX, 0xc000_00b7] {
            assert_eq!(filter.decide(&Call { arch, ..native }), nosys, "{name}");
        }
    }
    for number in (337..424).chain(470..1100).chain([X32_BIT, 0x7fff_ffff, 0x8000_0000, u32::MAX]) {
        assert_eq!(filter.decide(&Call::new(number, [0; 6])), nosys, "{number}");
    }
}

#[test]
fn plain_rules_answer_as_written() {
    for (error, names) in [
        (
            "ENOSYS",
            "io_uring_setup io_uring_enter io_uring_register clone3 openat2 keyctl add_key request_key",
        ),
        (
            "ENOSYS",
            "kcmp modify_ldt uselib ustat sysfs _sysctl create_module vserver epoll_ctl_old lookup_dcookie",
        ),
        (
            "EPERM",
            "mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount",
        ),
        (
            "EPERM",
            "fspick mount_setattr setns bpf userfaultfd open_by_handle_at init_module finit_module reboot",
        ),
        (
            "EPERM",
            "delete_module kexec_load kexec_file_load swapon swapoff acct quotactl quotactl_fd iopl ioperm",
        ),
        (
            "EPERM",
            "settimeofday clock_settime adjtimex clock_adjtime sethostname setdomainname vhangup syslog",
        ),
        ("EPERM", "fanotify_init pidfd_getfd"),
        ("EACCES", "perf_event_open"),
        ("EOPNOTSUPP", "name_to_handle_at"),
    ] {
        for name in names.split(' ') {
            for args in [[0; 6], [u64::MAX; 6]] {
                assert_eq!(answer(name, &args), refused(error), "{name}");
            }
        }
    }
    for name in "read write futex execve fork vfork ptrace process_vm_readv kill seccomp prctl statmount mseal \
                 landlock_restrict_self memfd_create mkdir mkdirat inotify_init1 arch_prctl uretprobe file_getattr"
        .split_whitespace()
    {
        assert_eq!(answer(name, &[u64::MAX; 6]), Action::Allow, "{name}");
    }
}

#[test]
fn namespaces_are_refused_and_threads_are_not() {
    const THREAD: u64 = 0x003d_0f00;
    const VFORK: u64 = 0x4100 | 17;
    let (allow, eperm) = (Action::Allow, refused("EPERM"));
    for flag in [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000] {
        for base in [0, 17, THREAD, u64::MAX << 32] {
            assert_eq!(answer("clone", &[base | flag]), eperm, "{flag:#x}");
            assert_eq!(answer("unshare", &[base | flag]), eperm, "{flag:#x}");
        }
    }
    assert_eq!(answer("unshare", &[0x80]), eperm, "CLONE_NEWTIME");
    assert_eq!(answer("clone", &[0x80 | 17]), allow, "part of the exit signal");
    for flags in [17, THREAD, VFORK, 0x1_0000_0000] {
        assert_eq!(answer("clone", &[flags]), allow, "{flags:#x}");
    }
    assert_eq!(answer("unshare", &[0x600]), allow, "CLONE_FS and CLONE_FILES");
}

#[test]
fn set_id_bits_and_devices_are_refused() {
    let (allow, eperm) = (Action::Allow, refused("EPERM"));
    const CREATE: u64 = 0o101;
    const TMPFILE: u64 = 0o2020_0001;
    for (mode, expected) in
        [(0o755, allow), (0o1777, allow), (0o4755, eperm), (0o2755, eperm), (0o6000, eperm)]
    {
        for noise in [0, 0xffff_ffff_0000_0000] {
            let mode = mode | noise;
            assert_eq!(answer("chmod", &[0, mode]), expected, "{mode:o}");
            assert_eq!(answer("fchmod", &[0, mode]), expected, "{mode:o}");
            assert_eq!(answer("fchmodat", &[0, 0, mode]), expected, "{mode:o}");
            assert_eq!(answer("fchmodat2", &[0, 0, mode]), expected, "{mode:o}");
            assert_eq!(answer("creat", &[0, mode]), expected, "{mode:o}");
            assert_eq!(answer("mknod", &[0, 0o100_000 | mode]), expected, "{mode:o}");
            assert_eq!(answer("mknodat", &[0, 0, mode]), expected, "{mode:o}");
            for flags in [CREATE, TMPFILE] {
                assert_eq!(answer("open", &[0, flags, mode]), expected, "{mode:o}");
                assert_eq!(answer("openat", &[0, 0, flags, mode]), expected, "{mode:o}");
            }
            // O_DIRECTORY alone shares a bit with O_TMPFILE as libc defines it, and creates nothing.
            for flags in [0, 2, 0o200_000, 0o2_000_000] {
                assert_eq!(answer("open", &[0, flags, mode]), allow, "{flags:o}");
                assert_eq!(answer("openat", &[0, 0, flags, mode]), allow, "{flags:o}");
            }
        }
    }
    for (kind, expected) in [
        (0, allow),
        (0o010_000, allow),
        (0o020_000, eperm),
        (0o040_000, allow),
        (0o060_000, eperm),
        (0o100_000, allow),
        (0o120_000, allow),
        (0o140_000, allow),
    ] {
        assert_eq!(answer("mknod", &[0, kind | 0o666]), expected, "{kind:o}");
        assert_eq!(answer("mknodat", &[0, 0, kind | 0o666]), expected, "{kind:o}");
    }
}

#[test]
fn socket_families_types_and_protocols() {
    const FLAGS: u64 = 0o2_004_000;
    let allow = Action::Allow;
    let (family, protocol, kind) =
        (refused("EAFNOSUPPORT"), refused("EPROTONOSUPPORT"), refused("ESOCKTNOSUPPORT"));
    let table = [
        ([1, 1, 0], allow),
        ([1, 2, 0], allow),
        ([1, 3, 0], allow),
        ([1, 5, 0], allow),
        ([2, 1, 0], allow),
        ([2, 1, 6], allow),
        ([2, 2, 17], allow),
        ([2, 2, 1], allow),
        ([10, 1, 0], allow),
        ([10, 2, 58], allow),
        ([16, 3, 0], allow),
        ([16, 2, 0], allow),
        ([16, 3, 9], protocol),
        ([16, 3, 15], protocol),
        ([16, 2, 12], protocol),
        ([2, 3, 1], refused("EPERM")),
        ([2, 3, 255], refused("EPERM")),
        ([10, 3, 58], refused("EPERM")),
        ([2, 10, 3], kind),
        ([2, 5, 132], kind),
        ([2, 0, 0], kind),
        ([10, 6, 33], kind),
        ([2, 1, 262], protocol),
        ([10, 1, 262], protocol),
        ([2, 1, 132], protocol),
        ([2, 2, 136], protocol),
        ([0, 1, 0], family),
        ([17, 3, 0], family),
        ([38, 5, 0], family),
        ([40, 1, 0], family),
        ([0xffff_ffff, 1, 0], family),
    ];
    for ([domain, base, proto], expected) in table {
        for noise in [0, 1 << 32, 0xffff_ffff << 32] {
            for flags in [0, FLAGS] {
                let args = [domain | noise, base | flags | noise, proto | noise];
                assert_eq!(answer("socket", &args), expected, "{args:x?}");
            }
        }
    }
    for domain in 0..64 {
        let expected = if domain == 1 { allow } else { family };
        assert_eq!(answer("socketpair", &[domain, 1, 0]), expected);
        assert_eq!(answer("socketpair", &[domain | 1 << 32, 1, 0]), expected);
        if ![1, 2, 10, 16].contains(&domain) {
            assert_eq!(answer("socket", &[domain, 1, 0]), family, "{domain}");
        }
    }
}

#[test]
fn terminal_requests_and_personalities() {
    let eperm = refused("EPERM");
    for request in [0x5412, 0x541c, 0x541d, 0x5423] {
        for noise in [0, 1 << 32, 0xffff_ffff << 32, 1 << 63] {
            assert_eq!(answer("ioctl", &[0, request | noise]), eperm, "{request:#x}");
        }
    }
    for request in [0x5401, 0x5402, 0x5411, 0x5413, 0x5414, 0x541b, 0x5421, 0x5422, 0x5424, 0x1_5412] {
        assert_eq!(answer("ioctl", &[0, request]), Action::Allow, "{request:#x}");
    }
    for (value, expected) in [
        (0, Action::Allow),
        (0xffff_ffff, Action::Allow),
        (0x0004_0000, Action::Allow),
        (0x0040_0000, eperm),
        (0x0044_0000, eperm),
        (0x0010_0000, eperm),
        (8, eperm),
    ] {
        for noise in [0, 1 << 32, 0xffff_ffff << 32] {
            assert_eq!(answer("personality", &[value | noise]), expected, "{value:#x}");
        }
    }
}
