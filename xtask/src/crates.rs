//! The arrows between the crates, as one table, held against what cargo and the sources say. A crate that
//! is not in the table, or an arrow that its row doesn't name, fails `cargo test` until someone decides on it.

use crate::process;
use crate::workspace::cargo;
use anyhow::{Context, Result, bail};
use proc_macro2::{TokenStream, TokenTree};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a crate may take from outside the workspace, to build and to run; its tests may take anything.
#[derive(Debug)]
enum Outside {
    /// These direct dependencies and no others.
    Only(&'static [&'static str]),
    /// Anything, so long as none of these is reached, however far down.
    Without(&'static [&'static str]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unsafe {
    Forbidden,
    /// Its duty is the kernel's face, or the attacker's.
    Allowed,
}

#[derive(Debug)]
struct Rule {
    name: &'static str,
    /// The crates of this workspace that it may know, its tests included.
    knows: &'static [&'static str],
    outside: Outside,
    unsafe_code: Unsafe,
}

const NOTHING: Outside = Outside::Only(&[]);
const ANYTHING: Outside = Outside::Without(&[]);
/// Pure crates reach neither the kernel nor an event loop.
const NO_KERNEL: Outside = Outside::Without(&["libc", "mio", "nix", "rustix", "tokio"]);

const fn rule(name: &'static str, knows: &'static [&'static str], outside: Outside) -> Rule {
    Rule { name, knows, outside, unsafe_code: Unsafe::Forbidden }
}

const fn with_unsafe(rule: Rule) -> Rule {
    Rule { unsafe_code: Unsafe::Allowed, ..rule }
}

const RULES: &[Rule] = &[
    // What runs inside the sandbox before the command: nothing that isn't read here.
    with_unsafe(rule("stockade-nolibc", &[], NOTHING)),
    rule("stockade-launch", &[], NOTHING),
    rule("stockade-init", &["stockade-launch", "stockade-nolibc"], NOTHING),
    // Words and the kernel: the bottom.
    rule("stockade-proto", &[], Outside::Only(&["schemars", "serde"])),
    with_unsafe(rule("stockade-sys", &[], Outside::Only(&["libc", "rustix"]))),
    rule("stockade-frames", &[], NOTHING),
    rule("stockade-charge", &[], Outside::Only(&["rustix"])),
    // Pure rooms that know at most the words.
    rule("stockade-seccomp", &[], Outside::Only(&["serde", "thiserror", "toml"])),
    rule("stockade-redact", &[], NO_KERNEL),
    rule("stockade-policy", &["stockade-proto"], NO_KERNEL),
    // How the processes talk: frames and ids, no word of the product.
    rule(
        "stockade-rpc",
        &[],
        Outside::Only(&[
            "bytes",
            "rustix",
            "serde",
            "serde_json",
            "serde_path_to_error",
            "thiserror",
            "tokio",
            "tokio-util",
        ]),
    ),
    // The live walls: they ask the rules through traits of their own.
    rule(
        "stockade-sockets",
        &["stockade-charge", "stockade-proto", "stockade-seccomp", "stockade-sys"],
        Outside::Only(&["rustix", "thiserror"]),
    ),
    rule(
        "stockade-egress",
        &["stockade-charge", "stockade-proto"],
        Outside::Only(&["hickory-proto", "nix", "rustix", "tokio"]),
    ),
    // The only room that opens the database: no event loop, no kernel's face of ours, no policy.
    rule(
        "stockade-store",
        &["stockade-frames", "stockade-proto"],
        Outside::Only(&[
            "chacha20poly1305",
            "jiff",
            "rusqlite",
            "rustix",
            "secrecy",
            "serde",
            "serde_json",
            "sha2",
            "subtle",
            "thiserror",
            "uuid",
            "zeroize",
        ]),
    ),
    rule(
        "stockade-executor",
        &[
            "stockade-charge",
            "stockade-egress",
            "stockade-frames",
            "stockade-launch",
            "stockade-policy",
            "stockade-proto",
            "stockade-redact",
            "stockade-rpc",
            "stockade-seccomp",
            "stockade-sockets",
            "stockade-sys",
        ],
        // The executor runs as the user it serves: the store is none of its business.
        Outside::Without(&["rusqlite"]),
    ),
    // Doors and records. It links no part that builds walls: executors do that, in processes of their own.
    rule(
        "stockade-daemon",
        &[
            "stockade-frames",
            "stockade-policy",
            "stockade-proto",
            "stockade-redact",
            "stockade-rpc",
            "stockade-store",
        ],
        Outside::Without(&["libseccomp", "landlock"]),
    ),
    rule(
        "stockade-cli",
        &[
            "stockade-executor",
            "stockade-policy",
            "stockade-proto",
            "stockade-redact",
            "stockade-rpc",
            "stockade-store",
            "stockade-sys",
        ],
        ANYTHING,
    ),
    // Not shipped. The suites come through the front door, so they know words, frames and tables only.
    rule("stockade-line-tests", &["stockade-frames", "stockade-proto", "stockade-rpc"], ANYTHING),
    rule("stockade-stage-tests", &["stockade-line-tests", "stockade-proto"], ANYTHING),
    rule("stockade-contract-tests", &[], ANYTHING),
    rule("stockade-units-tests", &[], ANYTHING),
    rule("stockade-escape-tests", &["stockade-proto", "stockade-seccomp"], ANYTHING),
    // Goes behind the doors, to the parsers themselves: bytes by the thousand, and no process.
    rule(
        "stockade-fuzz-tests",
        &["stockade-daemon", "stockade-policy", "stockade-proto", "stockade-rpc", "stockade-store"],
        ANYTHING,
    ),
    with_unsafe(rule("stockade-attack", &[], Outside::Only(&["libc"]))),
    with_unsafe(rule("stockade-floor", &["stockade-nolibc"], NOTHING)),
    rule("xtask", &[], ANYTHING),
];

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) workspace_root: PathBuf,
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
    resolve: Option<Resolve>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    id: String,
    pub(crate) name: String,
    manifest_path: PathBuf,
    pub(crate) targets: Vec<Target>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    kind: Vec<String>,
    pub(crate) src_path: PathBuf,
    /// Whether `cargo test` builds and runs the tests in it.
    pub(crate) test: bool,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// None is a normal one; `dev` and `build` are the others.
    kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Debug, Deserialize)]
struct EdgeKind {
    kind: Option<String>,
}

impl Metadata {
    pub(crate) fn load() -> Result<Self> {
        // Only this platform's part of the graph: the others' crates need not be on the disk.
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let version = process::output(process::command(rustc).arg("-vV"))?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "));
        let host = host.context("rustc -vV names no host")?;
        let mut ask = cargo();
        // Locked: a check must not change the tree that it checks.
        ask.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", host]);
        let text = process::output(&mut ask)?;
        serde_json::from_str(&text).context("cargo metadata answered something unknown")
    }

    /// The crates of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    fn member(&self, name: &str) -> Option<&Package> {
        self.members().find(|package| package.name == name)
    }

    /// The names of all that is linked into `package`, however far down.
    fn linked(&self, package: &Package) -> BTreeSet<&str> {
        let names: BTreeMap<&str, &str> =
            self.packages.iter().map(|one| (one.id.as_str(), one.name.as_str())).collect();
        let nodes = self.resolve.iter().flat_map(|resolve| &resolve.nodes);
        let nodes: BTreeMap<&str, &Node> = nodes.map(|node| (node.id.as_str(), node)).collect();
        let (mut seen, mut open) = (BTreeSet::new(), vec![package.id.as_str()]);
        while let Some(node) = open.pop().and_then(|id| nodes.get(id)) {
            for edge in &node.deps {
                let normal = edge.dep_kinds.iter().any(|kind| kind.kind.is_none());
                if normal && seen.insert(edge.pkg.as_str()) {
                    open.push(&edge.pkg);
                }
            }
        }
        seen.iter().filter_map(|id| names.get(id).copied()).collect()
    }
}

/// `cargo xtask crates`.
pub(crate) fn crates() -> Result<()> {
    let metadata = Metadata::load()?;
    let wrong = check(&metadata)?;
    if !wrong.is_empty() {
        bail!("the crates are not as the table in xtask/src/crates.rs says:\n  {}", wrong.join("\n  "));
    }
    println!("crates: {} as the table says", metadata.members().count());
    Ok(())
}

fn check(metadata: &Metadata) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for package in metadata.members() {
        match RULES.iter().find(|rule| rule.name == package.name) {
            Some(rule) => {
                arrows(metadata, package, rule, &mut wrong);
                outside(metadata, package, rule, &mut wrong);
                unsafe_code(package, rule, &mut wrong)?;
            }
            None => wrong.push(format!("{} has no row: give it one", package.name)),
        }
    }
    for rule in RULES.iter().filter(|rule| metadata.member(rule.name).is_none()) {
        wrong.push(format!("{} has a row and is no crate of this workspace", rule.name));
    }
    Ok(wrong)
}

fn arrows(metadata: &Metadata, package: &Package, rule: &Rule, wrong: &mut Vec<String>) {
    for dependency in &package.dependencies {
        let Some(other) = metadata.member(&dependency.name) else { continue };
        if !rule.knows.contains(&other.name.as_str()) {
            wrong.push(format!("{} may not depend on {}", package.name, other.name));
        }
        // A program that has a library beside it offers that.
        let has = |kind: &str| other.targets.iter().any(|target| target.kind.iter().any(|own| own == kind));
        if has("bin") && !has("lib") {
            wrong.push(format!("{} depends on {}, which is a program", package.name, other.name));
        }
    }
}

fn outside(metadata: &Metadata, package: &Package, rule: &Rule, wrong: &mut Vec<String>) {
    match rule.outside {
        Outside::Only(names) => {
            let direct = package.dependencies.iter().filter(|one| one.kind.as_deref() != Some("dev"));
            for dependency in direct.filter(|one| metadata.member(&one.name).is_none()) {
                if !names.contains(&dependency.name.as_str()) {
                    wrong.push(format!("{} may not depend on {}", package.name, dependency.name));
                }
            }
        }
        Outside::Without(names) => {
            let linked = metadata.linked(package);
            for name in names.iter().filter(|name| linked.contains(*name)) {
                wrong.push(format!("{} may not link {name} (cargo tree -p {0} -i {name})", package.name));
            }
        }
    }
}

fn unsafe_code(package: &Package, rule: &Rule, wrong: &mut Vec<String>) -> Result<()> {
    if rule.unsafe_code == Unsafe::Allowed {
        return Ok(());
    }
    let directory = package.manifest_path.parent().context("a manifest without a directory")?;
    // An attacker in a test passes pointers that no safe function would; what is shipped does not.
    let attackers = directory.join("tests");
    for file in sources(directory)?.into_iter().filter(|file| !file.starts_with(&attackers)) {
        if says_unsafe(tokens(&file)?) {
            wrong.push(format!("{} says unsafe", file.display()));
        }
    }
    Ok(())
}

fn sources(directory: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut open) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = open.pop() {
        let entries = std::fs::read_dir(&directory);
        for entry in entries.with_context(|| format!("can't list {}", directory.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// A source as the compiler's lexer sees it: comments and strings can't be mistaken for code.
pub(crate) fn tokens(file: &Path) -> Result<TokenStream> {
    let text = std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
    text.parse().map_err(|error| anyhow::anyhow!("{} is no Rust: {error}", file.display()))
}

fn says_unsafe(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "unsafe",
        TokenTree::Group(group) => says_unsafe(group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_are_as_the_table_says() {
        let wrong = check(&Metadata::load().unwrap()).unwrap();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// A workspace of `stockade-policy` and one crate that it must not reach.
    fn workspace(dependency: &str, other: &str) -> Metadata {
        let target = r#"{"kind": ["KIND"], "src_path": "/w/x.rs", "test": true}"#;
        let package = |id: &str, kind: &str, dependencies: &str| {
            let target = target.replace("KIND", kind);
            format!(
                r#"{{"id": "{id}", "name": "{id}", "manifest_path": "/w/Cargo.toml", "targets": [{target}],
                     "dependencies": [{dependencies}]}}"#
            )
        };
        let edge = r#"{"pkg": "TO", "dep_kinds": [{"kind": null}]}"#;
        let (policy, far) = (package("stockade-policy", "lib", dependency), package("far", "lib", ""));
        let near = package(other, "bin", "");
        let json = format!(
            r#"{{"workspace_root": "/w", "packages": [{policy}, {near}, {far}],
                 "workspace_members": ["stockade-policy", "stockade-cli"],
                 "resolve": {{"nodes": [
                     {{"id": "stockade-policy", "deps": [{}]}}, {{"id": "near", "deps": [{}]}},
                     {{"id": "far", "deps": [{}]}}, {{"id": "libc", "deps": []}}]}}}}"#,
            edge.replace("TO", "near"),
            edge.replace("TO", "far"),
            edge.replace("TO", other),
        );
        serde_json::from_str(&json).unwrap()
    }

    fn policy(check: fn(&Metadata, &Package, &Rule, &mut Vec<String>), metadata: &Metadata) -> Vec<String> {
        let rule = RULES.iter().find(|rule| rule.name == "stockade-policy").unwrap();
        let mut wrong = Vec::new();
        check(metadata, metadata.member("stockade-policy").unwrap(), rule, &mut wrong);
        wrong
    }

    #[test]
    fn an_arrow_upwards_and_one_to_a_program_are_found() {
        let metadata = workspace(r#"{"name": "stockade-cli", "kind": "dev"}"#, "stockade-cli");
        assert_eq!(policy(arrows, &metadata).len(), 2);
        assert!(policy(arrows, &workspace("", "stockade-cli")).is_empty());
    }

    #[test]
    fn a_forbidden_crate_is_found_however_far_down() {
        assert_eq!(policy(outside, &workspace("", "libc")).len(), 1);
        assert!(policy(outside, &workspace("", "memchr")).is_empty());
    }

    #[test]
    fn unsafe_is_a_word_of_code_only() {
        let says = |text: &str| says_unsafe(text.parse().unwrap());
        assert!(says("fn f() { g(|| { unsafe { h() } }) }"));
        assert!(says("#[unsafe(no_mangle)] fn f() {}"));
        assert!(!says("#![forbid(unsafe_code)] /* unsafe */ const S: &str = \"unsafe\";"));
    }
}
