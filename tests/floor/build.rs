//! Links `stockade-floor` without a C library: its entry point is in `stockade-nolibc`.

fn main() {
    for argument in
        ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-z,noexecstack"]
    {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
