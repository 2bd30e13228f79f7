//! Typing into the caller's terminal.

use stockade_escape_tests::{Sandbox, skip, wall, wall_of};
use stockade_proto::Layer;

fn on_a_terminal() -> Sandbox {
    Sandbox::new().staged("on-pty walrus")
}

#[test]
fn injected_keys() {
    let sandbox = on_a_terminal();
    let bare = sandbox.run_bare("tiocsti walrus");
    if bare.stdout_text().contains("TYPED yes") {
        assert!(bare.stdout_text().contains("VERDICT won"), "{bare}");
    } else {
        stockade_escape_tests::skip("this kernel has TIOCSTI switched off (dev.tty.legacy_tiocsti=0)");
    }
    let ran = sandbox.run_attack("tiocsti walrus");
    assert!(ran.stdout_text().contains("TYPED no"), "{ran}");
    assert!(ran.stdout_text().contains("VERDICT held"), "{ran}");
}

#[test]
fn there_is_no_controlling_terminal() {
    let sandbox = on_a_terminal();
    let bare = sandbox.run_bare("has-tty");
    assert!(bare.stdout_text().contains("VERDICT won"), "{bare}");
    for attack in ["has-tty", "steal-tty"] {
        let ran = sandbox.run_attack(attack);
        assert!(ran.stdout_text().contains("VERDICT held"), "{attack}: {ran}");
    }
}

/// From Linux 6.2 on the kernel itself can be set to refuse it to those without privilege, and Debian's is.
/// Then only the half with the walls can be shown.
fn refused_by_the_kernel() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti");
    let refused = setting.is_ok_and(|setting| setting.trim() == "0");
    if refused {
        for attack in ["tiocsti-own-pty", "tiocsti-own-pty wide"] {
            Sandbox::new().attack(attack).held();
        }
        skip("this kernel refuses TIOCSTI by itself");
    }
    refused
}

#[test]
fn on_a_terminal_of_its_own() {
    if refused_by_the_kernel() {
        return;
    }
    let sandbox = Sandbox::new();
    wall(&sandbox, "tiocsti-own-pty");
    // The kernel looks at 32 bits of the request; a filter that compares 64 would let this through.
    wall(&sandbox, "tiocsti-own-pty wide");
}

#[test]
fn the_filter_is_what_stops_it() {
    if refused_by_the_kernel() {
        return;
    }
    wall_of(&[Layer::Seccomp], Sandbox::new, |_| String::from("tiocsti-own-pty"));
}

#[test]
fn selection_and_paste_on_a_console() {
    let sandbox = Sandbox::new();
    sandbox.attack("tioclinux").held();
    sandbox.attack("tioclinux wide").held();
    // With the filter the answer is the filter's own, terminal or not.
    let errno = sandbox.attack("raw 16 0 0x541c buf:8").held().1;
    assert_eq!(errno, rustix::io::Errno::PERM.raw_os_error());
}
