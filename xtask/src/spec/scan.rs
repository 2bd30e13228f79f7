//! The tests that exist: walks a target's modules from its root file, as the compiler does, and collects
//! every `#[test]`. A file that no `mod` names, and a test that is ignored, prove nothing and are not found.

use crate::crates::tokens;
use anyhow::{Context, Result};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A test's modules and its name. Modules called `tests` are left out: where a unit test sits is no part
/// of what it proves.
pub(super) type TestPath = Vec<String>;

pub(super) fn tests(root: &Path, found: &mut BTreeSet<TestPath>) -> Result<()> {
    let directory = root.parent().context("a root file without a directory")?;
    file(root, directory, &[], found)
}

/// `directory` is where the modules that this file declares are looked for.
fn file(path: &Path, directory: &Path, module: &[String], found: &mut BTreeSet<TestPath>) -> Result<()> {
    let scope = Scope { file: path, directory: directory.to_owned(), module: module.to_vec() };
    scope.items(tokens(path)?, found)
}

#[derive(Debug)]
struct Scope<'a> {
    file: &'a Path,
    directory: PathBuf,
    module: Vec<String>,
}

impl Scope<'_> {
    fn items(&self, stream: TokenStream, found: &mut BTreeSet<TestPath>) -> Result<()> {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut attributes: Vec<String> = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            let rest = &tokens[at..];
            at += 1;
            if let Some(attribute) = attribute(rest) {
                attributes.push(attribute);
                at += 1;
            } else if let Some(name) = named(rest, "fn") {
                if is_test(&attributes) {
                    found.insert(self.inside(&name));
                }
                at += 1;
            } else if let Some(name) = named(rest, "mod") {
                at += 2;
                match rest.get(2) {
                    Some(TokenTree::Group(body)) => self.inline(&name, body, found)?,
                    _ => self.declared(&name, &attributes, found)?,
                }
                attributes.clear();
            } else if let Some(body) = macro_body(rest) {
                // `proptest! { #[test] fn … }`
                self.items(body.stream(), found)?;
                at += 2;
                attributes.clear();
            } else if ends_an_item(&rest[0]) {
                attributes.clear();
            }
        }
        Ok(())
    }

    fn inside(&self, name: &str) -> Vec<String> {
        let mut path = self.module.clone();
        if name != "tests" {
            path.push(name.to_owned());
        }
        path
    }

    fn inline(&self, name: &str, body: &Group, found: &mut BTreeSet<TestPath>) -> Result<()> {
        let inner =
            Scope { file: self.file, directory: self.directory.join(name), module: self.inside(name) };
        inner.items(body.stream(), found)
    }

    fn declared(&self, name: &str, attributes: &[String], found: &mut BTreeSet<TestPath>) -> Result<()> {
        let written = attributes.iter().find_map(|text| path_attribute(text));
        let beside = self.directory.join(format!("{name}.rs"));
        let path = match written {
            Some(path) => self.file.parent().unwrap_or(&self.directory).join(path),
            None if beside.is_file() => beside,
            None => self.directory.join(name).join("mod.rs"),
        };
        // The children of `a.rs` are in `a/`, those of `a/mod.rs` beside it: the same directory.
        file(&path, &self.directory.join(name), &self.inside(name), found)
    }
}

fn attribute(rest: &[TokenTree]) -> Option<String> {
    let group = rest.get(1).and_then(as_group)?;
    (is_punct(&rest[0], '#') && group.delimiter() == Delimiter::Bracket).then(|| group.stream().to_string())
}

fn is_test(attributes: &[String]) -> bool {
    let ignored = attributes.iter().any(|text| text == "ignore" || text.starts_with("ignore "));
    attributes.iter().any(|text| text == "test") && !ignored
}

fn path_attribute(text: &str) -> Option<&str> {
    text.strip_prefix("path")?.trim_start().strip_prefix('=')?.trim().strip_prefix('"')?.strip_suffix('"')
}

/// `keyword name`.
fn named(rest: &[TokenTree], keyword: &str) -> Option<String> {
    match rest {
        [TokenTree::Ident(word), TokenTree::Ident(name), ..] if word == keyword => Some(name.to_string()),
        _ => None,
    }
}

/// `name! { … }`; `macro_rules! name { … }` has a name where the body would be.
fn macro_body(rest: &[TokenTree]) -> Option<&Group> {
    let [TokenTree::Ident(_), bang, body, ..] = rest else { return None };
    let body = as_group(body)?;
    (is_punct(bang, '!') && body.delimiter() == Delimiter::Brace).then_some(body)
}

fn ends_an_item(token: &TokenTree) -> bool {
    is_punct(token, ';') || as_group(token).is_some_and(|group| group.delimiter() == Delimiter::Brace)
}

fn as_group(token: &TokenTree) -> Option<&Group> {
    if let TokenTree::Group(group) = token { Some(group) } else { None }
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(mark) if mark.as_char() == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(files: &[(&str, &str)]) -> Vec<String> {
        let place = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = place.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let mut found = BTreeSet::new();
        tests(&place.path().join(files[0].0), &mut found).unwrap();
        found.into_iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn only_what_the_harness_would_run_is_found() {
        let text = r##"
            //! #[test] fn in_a_comment() {}
            const TEXT: &str = "#[test] fn in_a_string() {}";
            fn no_test() { #[test] fn in_a_body() {} }
            #[test] fn plain() {}
            /// Words.
            #[test] #[should_panic(expected = "x")] pub(crate) fn with_attributes() -> Result<(), ()> { Ok(()) }
            #[test] #[ignore] fn ignored() {}
            #[test] #[ignore = "why"] fn ignored_with_reason() {}
            #[cfg(test)] struct Between;
            fn after() {}
            proptest! { #![proptest_config(x)] #[test] fn property(a in 0..3) { drop(a); } }
        "##;
        assert_eq!(scan(&[("lib.rs", text)]), ["plain", "property", "with_attributes"]);
    }

    #[test]
    fn modules_are_followed_as_the_compiler_does() {
        let found = scan(&[
            ("main.rs", "mod a; mod b; mod inner { mod c; #[test] fn i() {} } #[path = \"odd.rs\"] mod d;"),
            ("a.rs", "#[cfg(test)] mod tests { #[test] fn one() {} } mod deep;"),
            ("a/deep.rs", "#[test] fn two() {}"),
            ("b/mod.rs", "#[cfg(test)] mod tests;"),
            ("b/tests.rs", "#[test] fn three() {}"),
            ("inner/c.rs", "#[test] fn four() {}"),
            ("odd.rs", "#[test] fn five() {}"),
            ("orphan.rs", "#[test] fn never() {}"),
        ]);
        assert_eq!(found, ["a::deep::two", "a::one", "b::three", "d::five", "inner::c::four", "inner::i"]);
    }
}
