//! The programs of an install, and where each looks for the others: beside itself, or in the install's `libexec`
//! directory; never through `PATH`.

use std::path::{Path, PathBuf};

/// Whoever can replace one of these decides what the others do.
pub const PROGRAMS: [&str; 5] =
    ["stockade", "stockade-client", "stockaded", "stockade-executor", "stockade-init"];

/// Where the program `own` (its real path) looks for `name`, in this order.
pub fn places(own: &Path, name: &str) -> [PathBuf; 2] {
    let directory = own.parent().unwrap_or(Path::new("/"));
    let install = directory.parent().unwrap_or(directory);
    [directory.join(name), install.join("libexec/stockade").join(name)]
}
