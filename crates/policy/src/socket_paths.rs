//! Paths of socket rules: what may be written, what it becomes for one caller and workspace, and how it is
//! matched. Works on bytes: a home or a workspace need not be UTF-8. Next: `sockets` plans, `decide` matches.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use stockade_proto::{Bytes, SocketPattern};

use crate::target::Mistake;

pub(crate) const OWN: &str = "own";

/// In socket rules this is the workspace, whatever the caller's environment says.
pub(crate) const WORKSPACE: &str = "WORKSPACE";

/// What a workspace's rules may name: the caller's other variables are not its business.
const WORKSPACE_VARIABLES: [&str; 3] = [WORKSPACE, "HOME", "XDG_RUNTIME_DIR"];

const META: &[u8] = b"*?[]{}\\";

/// What is wrong with a path as written.
pub(crate) fn fault(path: &str) -> Option<Mistake> {
    let wrong =
        |fault: &str, remedy: &str| Some((format!("`{}` {fault}", path.escape_debug()), remedy.to_owned()));
    if path == OWN {
        return None;
    }
    if let Some(name) = path.strip_prefix('@') {
        if name.is_empty() {
            return wrong("is an abstract name without a name", "write \"@name\", or \"@*\" for all of them");
        }
        return unreadable(path, &SocketPattern::Abstract(Bytes::from(name)));
    }
    if !path.starts_with('/') && !path.starts_with("~/") && !path.starts_with('$') {
        return wrong(
            "is not an absolute path",
            "start it with /, ~/ or $NAME; \"@name\" is an abstract name, \"own\" what the command bound itself",
        );
    }
    if path.contains('\0') {
        return wrong("holds a NUL, which no path can", "take it out");
    }
    if path.split('/').skip(1).any(|part| part.is_empty() || part == "." || part == "..") {
        return wrong("holds an empty part, `.` or `..`", "write the path it leads to");
    }
    unreadable(path, &SocketPattern::Path(Bytes::from(path)))
}

fn unreadable(path: &str, pattern: &SocketPattern) -> Option<Mistake> {
    let error = Matcher::new(pattern).err()?;
    Some((
        format!("the glob `{}` can't be read: {}", path.escape_debug(), error.kind()),
        "write `*` within one part of a path, `**` across parts, and a backslash before what is meant as it is"
            .to_owned(),
    ))
}

/// As `fault`, for a path in a workspace's text.
pub(crate) fn workspace_fault(path: &str) -> Option<Mistake> {
    let strange =
        path.strip_prefix('$').map(variable).filter(|(name, _)| !WORKSPACE_VARIABLES.contains(name));
    match strange {
        None => fault(path),
        Some((name, _)) => Some((
            format!("a workspace's rule may not use the variable `{}`", name.escape_debug()),
            format!("use one of {}, or write the path out", WORKSPACE_VARIABLES.join(", ")),
        )),
    }
}

/// A variable's name, and what follows it; `path` begins behind the `$`.
fn variable(path: &str) -> (&str, &str) {
    match path.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        Some(cut) => cut,
        None => path.split_at(path.find('/').unwrap_or(path.len())),
    }
}

/// What `~` and variables stand for.
pub(crate) struct Names<'n> {
    pub(crate) home: &'n Bytes,
    pub(crate) workspace: &'n Bytes,
    pub(crate) variable: &'n dyn Fn(&str) -> Option<Bytes>,
}

/// The pattern that a path as written becomes, or the variable that is missing or not a path.
pub(crate) fn expand(written: &str, names: &Names<'_>) -> Result<SocketPattern, Mistake> {
    if written == OWN {
        return Ok(SocketPattern::Own);
    }
    if let Some(name) = written.strip_prefix('@') {
        return Ok(SocketPattern::Abstract(Bytes::from(name)));
    }
    let (name, value, rest) = if let Some(rest) = written.strip_prefix('~') {
        ("HOME", names.home.clone(), rest)
    } else if let Some(rest) = written.strip_prefix('$') {
        let (name, rest) = variable(rest);
        let value = match name {
            WORKSPACE => Some(names.workspace.clone()),
            "HOME" => Some(names.home.clone()),
            other => (names.variable)(other).filter(|value| !value.is_empty()),
        };
        let value = value.ok_or_else(|| {
            (
                format!("the variable `{}` of this path is not set", name.escape_debug()),
                "set it, or write the path out".to_owned(),
            )
        })?;
        (name, value, rest)
    } else {
        return Ok(SocketPattern::Path(Bytes::from(written)));
    };
    let base = value.as_slice();
    let base = base.strip_suffix(b"/").unwrap_or(base);
    let sound = (base.is_empty() || base.starts_with(b"/"))
        && !base.split(|byte| *byte == b'/').any(|part| part == b".." || part == b".");
    if !sound || !rest.is_empty() && !rest.starts_with('/') {
        // Its value is the caller's own and may be a secret: whoever wrote the rule need not learn it.
        return Err((
            format!(
                "with the variable `{}` this path is not absolute, or holds `.` or `..`",
                name.escape_debug()
            ),
            "write the path out".to_owned(),
        ));
    }
    Ok(SocketPattern::Path(Bytes::from([escape(base), rest.as_bytes().to_vec()].concat())))
}

/// The pattern that matches these bytes and nothing else.
pub(crate) fn escape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if META.contains(byte) {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out
}

/// A pattern's literal beginning, and the rest as written.
struct Cut<'p> {
    literal: Vec<u8>,
    /// Position in `literal` behind its last slash, and the pattern from there on.
    directory: (usize, &'p [u8]),
    /// From the first wildcard on.
    rest: &'p [u8],
}

fn cut(pattern: &[u8]) -> Cut<'_> {
    let mut literal = Vec::new();
    let mut directory = (0, pattern);
    let mut at = 0;
    while let Some(byte) = pattern.get(at) {
        let (byte, step) = match pattern.get(at + 1) {
            Some(escaped) if *byte == b'\\' => (escaped, 2),
            Some(_) | None if META.contains(byte) => break,
            Some(_) | None => (byte, 1),
        };
        literal.push(*byte);
        at += step;
        if *byte == b'/' {
            directory = (literal.len(), pattern.get(at..).unwrap_or_default());
        }
    }
    Cut { literal, directory, rest: pattern.get(at..).unwrap_or_default() }
}

/// The path that a pattern without wildcards names.
pub(crate) fn literal(pattern: &Bytes) -> Option<Vec<u8>> {
    let cut = cut(pattern.as_slice());
    cut.rest.is_empty().then_some(cut.literal)
}

/// A glob's literal directory (with its slash) and what follows it, as written.
pub(crate) fn directory(pattern: &Bytes) -> (Vec<u8>, &[u8]) {
    let Cut { mut literal, directory: (end, rest), .. } = cut(pattern.as_slice());
    literal.truncate(end);
    (literal, rest)
}

/// How one pattern is compared. Simple shapes by hand: building a glob engine costs more than a decision.
#[derive(Debug, Clone)]
pub(crate) enum Matcher {
    Own,
    Path(Shape),
    Abstract(Shape),
}

#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Literal(Vec<u8>),
    /// Everything that begins so: `dir/**`, or `name*` of an abstract name.
    Prefix(Vec<u8>),
    Glob {
        prefix: Vec<u8>,
        rest: GlobMatcher,
    },
}

fn glob(rest: &[u8], crossing: Crossing) -> Result<GlobMatcher, globset::Error> {
    // Only what a person wrote can hold a wildcard, and profiles are UTF-8: nothing is lost here.
    let text = String::from_utf8_lossy(rest);
    let separator = crossing == Crossing::Components;
    let glob = GlobBuilder::new(&text).literal_separator(separator).backslash_escape(true).build()?;
    Ok(glob.compile_matcher())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crossing {
    Components,
    EveryByte,
}

impl Matcher {
    pub(crate) fn new(pattern: &SocketPattern) -> Result<Self, globset::Error> {
        match pattern {
            SocketPattern::Own => Ok(Self::Own),
            SocketPattern::Path(pattern) => {
                let whole = cut(pattern.as_slice());
                if whole.rest.is_empty() {
                    return Ok(Self::Path(Shape::Literal(whole.literal)));
                }
                let (prefix, rest) = directory(pattern);
                if rest == b"**" {
                    return Ok(Self::Path(Shape::Prefix(prefix)));
                }
                Ok(Self::Path(Shape::Glob { prefix, rest: glob(rest, Crossing::Components)? }))
            }
            SocketPattern::Abstract(pattern) => {
                let Cut { literal, rest, .. } = cut(pattern.as_slice());
                Ok(Self::Abstract(match rest {
                    b"" => Shape::Literal(literal),
                    b"*" | b"**" => Shape::Prefix(literal),
                    rest => Shape::Glob { prefix: literal, rest: glob(rest, Crossing::EveryByte)? },
                }))
            }
        }
    }

    pub(crate) fn literal_path(&self) -> Option<&[u8]> {
        match self {
            Self::Path(Shape::Literal(path)) => Some(path),
            Self::Path(Shape::Prefix(_) | Shape::Glob { .. }) | Self::Abstract(_) | Self::Own => None,
        }
    }

    /// Whether whatever `inner` matches is matched here too; "no" where that can't be told.
    pub(crate) fn covers(&self, inner: &Self) -> bool {
        match (self, inner) {
            (Self::Own, Self::Own) => true,
            (Self::Path(outer), Self::Path(inner)) | (Self::Abstract(outer), Self::Abstract(inner)) => {
                outer.covers(inner)
            }
            (Self::Own, Self::Path(_) | Self::Abstract(_))
            | (Self::Path(_), Self::Own | Self::Abstract(_))
            | (Self::Abstract(_), Self::Own | Self::Path(_)) => false,
        }
    }
}

impl Shape {
    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Literal(literal) => bytes == literal,
            Self::Prefix(prefix) => bytes.starts_with(prefix),
            Self::Glob { prefix, rest } => bytes
                .strip_prefix(prefix.as_slice())
                .is_some_and(|bytes| rest.is_match(Path::new(OsStr::from_bytes(bytes)))),
        }
    }

    fn covers(&self, inner: &Self) -> bool {
        match (self, inner) {
            (outer, Self::Literal(inner)) => outer.matches(inner),
            (Self::Prefix(outer), Self::Prefix(inner) | Self::Glob { prefix: inner, .. }) => {
                inner.starts_with(outer)
            }
            (Self::Glob { prefix: outer, rest: one }, Self::Glob { prefix: inner, rest: other }) => {
                outer == inner && one.glob() == other.glob()
            }
            (Self::Literal(_), Self::Prefix(_) | Self::Glob { .. })
            | (Self::Glob { .. }, Self::Prefix(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(written: &str) -> SocketPattern {
        let home = Bytes::from("/home/a[d]a");
        let workspace = Bytes::from(b"/srv/w\xff*".as_slice());
        let variable = |name: &str| match name {
            "XDG_RUNTIME_DIR" => Some(Bytes::from("/run/user/7/")),
            "BAD" => Some(Bytes::from("../x")),
            _ => None,
        };
        let names = Names { home: &home, workspace: &workspace, variable: &variable };
        expand(written, &names).expect(written)
    }

    fn matches(written: &str, bytes: &[u8]) -> bool {
        match Matcher::new(&pattern(written)).expect(written) {
            Matcher::Own => false,
            Matcher::Path(shape) | Matcher::Abstract(shape) => shape.matches(bytes),
        }
    }

    #[test]
    fn patterns_match_bytes() {
        let rows: [(&str, &[u8], bool); 26] = [
            ("/run/x.sock", b"/run/x.sock", true),
            ("/run/x.sock", b"/run/x.sockx", false),
            ("/run/*.sock", b"/run/x.sock", true),
            ("/run/*.sock", b"/run/a/x.sock", false),
            ("/run/*.sock", b"/run/\xff.sock", true),
            ("/run/**", b"/run/a/b", true),
            ("/run/**", b"/run", false),
            ("/run/**/x", b"/run/x", true),
            ("/run/**/x", b"/run/a/b/x", true),
            ("/run/{a,b}/x", b"/run/b/x", true),
            ("/run/[ab]", b"/run/c", false),
            ("/run/a\\*", b"/run/a*", true),
            ("/run/a\\*", b"/run/ab", false),
            ("~/x", b"/home/a[d]a/x", true),
            ("~/x", b"/home/ada/x", false),
            ("~/**", b"/home/a[d]a/x/y", true),
            ("~/*.s", b"/home/a[d]a/x.s", true),
            ("$WORKSPACE/**", b"/srv/w\xff*/x", true),
            ("$WORKSPACE/*.s", b"/srv/w\xff*/x.s", true),
            ("${WORKSPACE}/**", b"/srv/wx/x", false),
            ("$XDG_RUNTIME_DIR/f", b"/run/user/7/f", true),
            ("@app-*", b"app-\0/x", true),
            ("@app-*", b"ap", false),
            ("@*", b"", true),
            ("@a?c", b"a/c", true),
            ("@a\0", b"a\0", true),
        ];
        for (written, bytes, expected) in rows {
            assert_eq!(fault(written), None, "{written}");
            assert_eq!(matches(written, bytes), expected, "{written} {}", Bytes::from(bytes));
        }
        assert!(!matches("/a", b"a") && !matches("@a", b"@a"));
        assert_eq!(pattern("own"), SocketPattern::Own);
    }

    #[test]
    fn faults() {
        for bad in [
            "",
            "@",
            "x",
            "./x",
            "x/@y",
            "~x/y/../z",
            "/a/../b",
            "/a//b",
            "/a/",
            "/a\0b",
            "/a[",
            "@a[",
            "/{a",
            "Own",
        ] {
            assert!(fault(bad).is_some(), "{bad}");
        }
        let none = Bytes::from("/h");
        let variable = |name: &str| (name == "BAD").then(|| Bytes::from("../x"));
        let names = Names { home: &none, workspace: &none, variable: &variable };
        for (bad, name) in [("$NOPE/x", "NOPE"), ("$BAD/x", "BAD"), ("${HOME}x", "HOME")] {
            let (message, _) = expand(bad, &names).expect_err(bad);
            assert!(
                message.contains(name) && !message.contains("../x") && !message.contains("/h"),
                "{message}"
            );
        }
        for bad in ["$BAD/x", "${BAD}/x", "$AWS_SECRET", "$WORKSPACES/x", "$/x", "$HOME*/x", "x"] {
            assert!(workspace_fault(bad).is_some(), "{bad}");
        }
        for good in ["$WORKSPACE/x", "${HOME}/x", "$XDG_RUNTIME_DIR/x", "~/x", "/x", "@x", "own"] {
            assert_eq!(workspace_fault(good), None, "{good}");
        }
    }

    #[test]
    fn covering() {
        for (outer, inner, expected) in [
            ("/a/**", "/a/b", true),
            ("/a/**", "/a/b/**", true),
            ("/a/**", "/a/b*", true),
            ("/a/**", "/ab", false),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/b/c", false),
            ("/a/*", "/a/**", false),
            ("/a/*.s", "/a/*.s", true),
            ("/a/b", "/a/*", false),
            ("@a*", "@ab", true),
            ("@a*", "/ab", false),
            ("own", "own", true),
            ("own", "@a", false),
        ] {
            let matcher = |written| Matcher::new(&pattern(written)).expect("glob");
            assert_eq!(matcher(outer).covers(&matcher(inner)), expected, "{outer} {inner}");
        }
    }

    #[test]
    fn what_is_escaped_matches_itself() {
        for bytes in [&b"/a*b"[..], b"/[x]{y}\\z?", b"/plain", b"/\xff\xfe*"] {
            let pattern = Bytes::from(escape(bytes));
            assert_eq!(literal(&pattern).as_deref(), Some(bytes));
        }
        assert_eq!(literal(&Bytes::from("/a*")), None);
        let glob = Bytes::from("/a\\*/b/c*d/e");
        assert_eq!(directory(&glob), (b"/a*/b/".to_vec(), &b"c*d/e"[..]));
    }
}
