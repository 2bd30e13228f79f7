//! Deny globs: what they match below a workspace, and which of them can be found without walking it.
//! Simple shapes are compared by hand; a glob engine is built only for the others, since building one costs
//! more than loading a whole profile. Next: the survey looks, `plan` masks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

/// One glob, relative to the workspace. A trailing `/**` names the directory itself: what is below a masked
/// or protected directory is masked or protected with it, and so is what would be created there.
#[derive(Debug, Clone)]
enum Shape {
    /// `a/b`: found by one stat.
    Literal,
    /// `**/b/c`: the last components.
    Suffix,
    Pattern(GlobMatcher),
}

#[derive(Debug, Clone)]
pub struct Glob {
    /// As written, for sentences.
    pub written: String,
    /// Without `**/` in front and `/**` behind.
    core: String,
    shape: Shape,
    /// Written with `/**`: can only mean a directory.
    pub is_dir: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Globs(Vec<Glob>);

const META: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// What is wrong with a glob, as the end of a sentence.
pub(crate) fn fault(glob: &str) -> Option<String> {
    if glob.starts_with('/') || glob.starts_with('~') {
        return Some("is not relative to the workspace".to_owned());
    }
    if glob.contains('\0') || glob.split('/').any(|part| part == ".." || part == "." || part.is_empty()) {
        return Some("holds an empty part, `.`, `..` or a NUL".to_owned());
    }
    let (core, _, _) = cut(glob);
    if core.is_empty() || core == "**" {
        return Some("would cover the whole workspace".to_owned());
    }
    match shape(glob) {
        Ok(_) => None,
        Err(error) => Some(format!("can't be read: {}", error.kind())),
    }
}

fn cut(glob: &str) -> (&str, bool, bool) {
    let (core, is_dir) = glob.strip_suffix("/**").map_or((glob, false), |core| (core, true));
    let (core, is_suffix) = core.strip_prefix("**/").map_or((core, false), |core| (core, true));
    (core, is_suffix, is_dir)
}

fn shape(glob: &str) -> Result<Glob, globset::Error> {
    let (core, is_suffix, is_dir) = cut(glob);
    let shape = match (core.contains(META), is_suffix) {
        (false, false) => Shape::Literal,
        (false, true) => Shape::Suffix,
        (true, _) => {
            let whole = glob.strip_suffix("/**").unwrap_or(glob);
            Shape::Pattern(GlobBuilder::new(whole).literal_separator(true).build()?.compile_matcher())
        }
    };
    Ok(Glob { written: glob.to_owned(), core: core.to_owned(), shape, is_dir })
}

impl Glob {
    fn matches(&self, relative: &[u8]) -> bool {
        match &self.shape {
            Shape::Literal => relative == self.core.as_bytes(),
            Shape::Suffix => relative
                .strip_suffix(self.core.as_bytes())
                .is_some_and(|before| before.is_empty() || before.ends_with(b"/")),
            Shape::Pattern(matcher) => matcher.is_match(Path::new(OsStr::from_bytes(relative))),
        }
    }
}

impl Globs {
    /// The globs must have passed `fault`; one that has not is refused by its error.
    pub(crate) fn new<'g>(globs: impl IntoIterator<Item = &'g str>) -> Result<Self, globset::Error> {
        globs.into_iter().map(shape).collect::<Result<_, _>>().map(Self)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Paths that one stat can find, relative to the workspace.
    pub fn literals(&self) -> impl Iterator<Item = &Glob> {
        self.0.iter().filter(|glob| matches!(glob.shape, Shape::Literal))
    }

    /// Whether some glob needs the workspace walked.
    pub fn needs_walk(&self) -> bool {
        self.0.iter().any(|glob| !matches!(glob.shape, Shape::Literal))
    }

    /// `relative` has no leading slash. Literal globs are left to their stat.
    pub fn matches_in_walk(&self, relative: &[u8], is_dir: bool) -> bool {
        self.0
            .iter()
            .filter(|glob| is_dir || !glob.is_dir)
            .any(|glob| !matches!(glob.shape, Shape::Literal) && glob.matches(relative))
    }

    /// Whether what is here is matched by its own name alone, and so would be wherever else it is moved to.
    pub fn match_anywhere(&self, relative: &[u8], is_dir: bool) -> bool {
        let floats = |glob: &&Glob| glob.written.starts_with("**/") && !glob.core.contains('/');
        self.0.iter().filter(floats).any(|glob| (is_dir || !glob.is_dir) && glob.matches(relative))
    }

    /// Whether any glob covers the path itself.
    pub fn covers(&self, relative: &[u8]) -> bool {
        self.0.iter().any(|glob| glob.matches(relative))
    }
}

impl Glob {
    /// The path of a literal glob, relative to the workspace.
    pub fn path(&self) -> &str {
        &self.core
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(list: &[&str]) -> Globs {
        Globs::new(list.iter().copied()).expect("globs")
    }

    #[test]
    fn shapes_match_what_they_say() {
        let set = globs(&["**/.env", "**/.git/hooks/**", "certs/*.pem", "a/**/b.key"]);
        for hit in [".env", "a/.env", "a/b/.env", "certs/x.pem", "a/b.key", "a/x/y/b.key"] {
            assert!(set.matches_in_walk(hit.as_bytes(), false), "{hit}");
        }
        for miss in ["x.env", ".env/x", "certs/a/x.pem", "b.key", ".git/hooks"] {
            assert!(!set.matches_in_walk(miss.as_bytes(), false), "{miss}");
        }
        assert!(set.matches_in_walk(b".git/hooks", true));
        assert!(set.matches_in_walk(b"sub/.git/hooks", true));
        assert!(!set.matches_in_walk(b"sub/not.git/hooks", true));
    }

    #[test]
    fn only_a_name_is_the_same_everywhere() {
        let set = globs(&["**/.env", "**/conf/key", "certs/*.pem", "**/*.p12", "plain", "**/vault/**"]);
        for anywhere in [".env", "a/b/.env", "a/x.p12"] {
            assert!(set.match_anywhere(anywhere.as_bytes(), false), "{anywhere}");
        }
        for placed in ["conf/key", "a/conf/key", "certs/x.pem", "plain", "vault"] {
            assert!(!set.match_anywhere(placed.as_bytes(), false), "{placed}");
        }
        assert!(set.match_anywhere(b"a/vault", true));
    }

    #[test]
    fn literals_need_no_walk() {
        let set = globs(&[".stockade/**", "config/secret.toml"]);
        assert!(!set.needs_walk());
        assert_eq!(set.literals().map(Glob::path).collect::<Vec<_>>(), [".stockade", "config/secret.toml"]);
        assert!(set.covers(b".stockade"));
        assert!(globs(&["**/.env"]).needs_walk());
    }

    #[test]
    fn bad_globs_are_faults() {
        for bad in ["/etc/**", "../x", "a/../b", "", "**", "**/**", "a//b", "x[", "~/x"] {
            assert!(fault(bad).is_some(), "{bad}");
        }
        for good in ["**/.env", "a/b", "a/**", "*.pem", "{a,b}/c"] {
            assert_eq!(fault(good), None, "{good}");
        }
    }
}
