//! Paths as text.

use std::path::Path;

/// Absolute, and written as the kernel writes paths: if no symlink is on the way, it is its own real path.
pub fn is_plain(path: &Path) -> bool {
    let mut names = path.as_os_str().as_encoded_bytes().split(|byte| *byte == b'/').skip(1);
    path.is_absolute() && names.all(|name| !matches!(name, b"" | b"." | b".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_has_one_spelling() {
        for plain in ["/a", "/a/b", "/a/.b", "/a/..b"] {
            assert!(is_plain(Path::new(plain)), "{plain}");
        }
        for other in ["", "a", "/", "//a", "/a/", "/a//b", "/a/./b", "/a/../b", "/.."] {
            assert!(!is_plain(Path::new(other)), "{other}");
        }
    }
}
