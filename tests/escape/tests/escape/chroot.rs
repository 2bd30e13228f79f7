//! chroot: the classic way to leave a root that is only a directory.

use stockade_escape_tests::{Sandbox, wall};

#[test]
fn chroot_is_refused() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.workspace().join("jail")).expect("a directory");
    wall(&sandbox, "try become-root , chroot ./jail");
    let secret = sandbox.secret().display().to_string();
    // Keep a directory outside the new root, chroot, climb.
    wall(&sandbox, &format!("try become-root , chroot ./jail , climb , read .{secret}"));
}
