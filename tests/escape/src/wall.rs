//! The shape of nearly every test here: the attack works without the wall and fails with it.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use stockade_proto::Layer;

use crate::sandbox::Sandbox;
use crate::verdict::Verdict;

static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// Says loudly that (half of) a test did not happen, past libtest's capture. With
/// `STOCKADE_TEST_NO_SKIP` set it is a failure: then another machine must have shown it.
#[track_caller]
pub fn skip(why: &str) {
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    let place = std::panic::Location::caller();
    let thread = std::thread::current();
    let name = match thread.name() {
        Some("main") | None => format!("{}:{}", place.file(), place.line()),
        Some(name) => name.to_owned(),
    };
    let line = format!("SKIP {name}: {why} (skip {count})\n");
    // A closed stderr must not fail a test.
    drop(std::io::stderr().write_all(line.as_bytes()));
    assert!(std::env::var_os("STOCKADE_TEST_NO_SKIP").is_none(), "{line}");
}

pub fn am_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Error numbers that mean "this kernel has no such thing": ENOENT is not one of them.
fn kernel_lacks(errno: i32) -> bool {
    use rustix::io::Errno;
    [
        Errno::NOSYS,
        Errno::AFNOSUPPORT,
        Errno::PROTONOSUPPORT,
        Errno::SOCKTNOSUPPORT,
        Errno::OPNOTSUPP,
        Errno::NODEV,
    ]
    .iter()
    .any(|known| known.raw_os_error() == errno)
}

/// What an ordinary user is told where root would be let through.
fn wants_root(errno: i32) -> bool {
    use rustix::io::Errno;
    [Errno::PERM, Errno::ACCESS, Errno::ROFS].iter().any(|known| known.raw_os_error() == errno)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Host,
    /// Nobody has a capability there, so "needs root" explains nothing.
    Sandbox,
}

/// The first half. It may fail only for a reason that has nothing to do with walls, and says so.
#[track_caller]
fn works_without(attack: &str, without: &str, place: Where, verdict: &Verdict) {
    match verdict {
        Verdict::Won(_) => {}
        Verdict::Unable(why) => skip(&format!("`{attack}` {without}: {why}")),
        Verdict::Held { step, errno } if kernel_lacks(*errno) => {
            skip(&format!("`{attack}` {without}: this kernel answers {step} with errno {errno}"));
        }
        Verdict::Held { step, errno } if place == Where::Host && !am_root() && wants_root(*errno) => {
            skip(&format!("`{attack}` {without}: {step} needs root on this host (errno {errno})"));
        }
        Verdict::Held { .. } => panic!("`{attack}` {without} should have worked: {verdict:?}"),
    }
}

/// Works on the bare host, fails in the sandbox. Returns the error number of the refusal.
#[track_caller]
pub fn wall(sandbox: &Sandbox, attack: &str) -> i32 {
    works_without(attack, "without stockade", Where::Host, &sandbox.bare(attack));
    let (step, errno) = sandbox.attack(attack).held();
    assert_ne!(step, "exec", "`{attack}`: the attacker's tool was not there");
    errno
}

/// Works in a sandbox with exactly these layers off, fails with all of them on: the wall is theirs.
#[track_caller]
pub fn wall_of(layers: &[Layer], make: impl Fn() -> Sandbox, attack: impl Fn(&Sandbox) -> String) -> i32 {
    let open = make().without(layers);
    let steps = attack(&open);
    let names: Vec<&str> = layers.iter().map(|layer| layer.name()).collect();
    works_without(&steps, &format!("without {}", names.join("+")), Where::Sandbox, &open.attack(&steps));
    let closed = make();
    let steps = attack(&closed);
    closed.attack(&steps).held().1
}
