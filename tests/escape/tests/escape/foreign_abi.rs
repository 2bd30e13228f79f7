//! System calls by the numbers of another architecture: the 32-bit gate and x32.

use stockade_escape_tests::{Sandbox, wall, wall_of};
use stockade_proto::Layer;

#[test]
fn i386_by_int_0x80() {
    wall(&Sandbox::new(), "int80");
}

#[test]
fn the_filter_is_what_stops_i386() {
    wall_of(&[Layer::Seccomp], Sandbox::new, |_| String::from("int80"));
}

#[test]
fn x32_by_its_numbers() {
    wall(&Sandbox::new(), "x32");
}

#[test]
fn numbers_of_tomorrow() {
    // A call that no table knows must not be allowed by default; ENOSYS is what an older kernel says.
    let sandbox = Sandbox::new();
    for number in [500_u32, 511, 600, 4000, 0x3fff_ffff] {
        assert!(
            stockade_seccomp::syscalls::name(number).is_none(),
            "{number} has a name by now: take a higher one"
        );
        let (step, errno) = sandbox.attack(&format!("raw {number} 0 0 0 0")).held();
        assert!(
            step == "killed" || errno == rustix::io::Errno::NOSYS.raw_os_error(),
            "{number}: {step} {errno}"
        );
    }
}
