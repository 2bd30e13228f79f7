//! The first instruction of `stockade` is not the C library's: see `stockade_sys::ahead`.

fn main() {
    println!("cargo:rustc-link-arg-bin=stockade=-Wl,-e,stockade_entry");
    println!("cargo:rerun-if-changed=build.rs");
}
