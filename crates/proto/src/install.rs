//! The programs of an install, and where each looks for the others: beside itself, or in the install's `libexec`
//! directory; never through `PATH`.

use std::path::{Path, PathBuf};

/// Whoever can replace one of these decides what the others do.
pub const PROGRAMS: [&str; 5] =
    ["stockade", "stockade-client", "stockaded", "stockade-executor", "stockade-init"];

/// Where the program `own` looks for `name`, in this order.
pub fn places(own: &Path, name: &str) -> [PathBuf; 2] {
    let directory = own.parent().unwrap_or(Path::new("/"));
    [directory.join(name), directory.join("../libexec/stockade").join(name)]
}
