//! `cargo xtask spec`: docs/SPECIFICATION.md, row by row. A promise names a test that exists, or says `later`
//! and with what. The same check is a test of this crate, so a row without a proof never reaches the main line.

mod scan;

use crate::crates::Metadata;
use anyhow::{Context, Result, bail};
use scan::TestPath;
use std::collections::{BTreeMap, BTreeSet};

const FILE: &str = "docs/SPECIFICATION.md";

/// How many promises each family has. A row that is taken out of the document fails here.
const FAMILIES: [(&str, u32); 11] = [
    ("RUN", 10),
    ("BOX", 9),
    ("SOCK", 7),
    ("HTTP", 6),
    ("STAGE", 7),
    ("USER", 8),
    ("LINK", 4),
    ("TERM", 2),
    ("SEC", 4),
    ("AGENT", 6),
    ("OPS", 4),
];

/// The end-to-end suites by the names that the document uses.
const SUITES: [(&str, &str); 2] = [("line", "stockade-line-tests"), ("escape", "stockade-escape-tests")];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Proof {
    /// As written: `suite-or-crate::module::name`.
    Tests(Vec<String>),
    /// Not in scope yet; the theme that will bring it.
    Later(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    id: String,
    proof: Proof,
}

/// What the check found.
#[derive(Debug, Default)]
struct Verdict {
    proven: usize,
    tests: BTreeSet<String>,
    /// Theme and how many promises wait for it.
    later: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

pub(crate) fn spec() -> Result<()> {
    let verdict = check()?;
    if !verdict.wrong.is_empty() {
        bail!("{FILE}:\n  {}", verdict.wrong.join("\n  "));
    }
    println!("specification: {} promises proven by {} tests", verdict.proven, verdict.tests.len());
    for (theme, count) in &verdict.later {
        println!("later: {count} with {theme}");
    }
    Ok(())
}

fn check() -> Result<Verdict> {
    let metadata = Metadata::load()?;
    let file = metadata.workspace_root.join(FILE);
    let text = std::fs::read_to_string(&file).with_context(|| format!("can't read {}", file.display()))?;
    Ok(judge(&text, &existing(&metadata)?))
}

/// Every test of the workspace, by crate.
fn existing(metadata: &Metadata) -> Result<BTreeMap<String, BTreeSet<TestPath>>> {
    let mut tests: BTreeMap<String, BTreeSet<TestPath>> = BTreeMap::new();
    for package in metadata.members() {
        let found = tests.entry(package.name.clone()).or_default();
        for target in package.targets.iter().filter(|target| target.test) {
            scan::tests(&target.src_path, found)?;
        }
    }
    Ok(tests)
}

fn judge(text: &str, tests: &BTreeMap<String, BTreeSet<TestPath>>) -> Verdict {
    let mut verdict = Verdict::default();
    let mut seen = BTreeSet::new();
    for (at, line) in text.lines().enumerate() {
        match row(line) {
            None => {}
            Some(Err(why)) => verdict.wrong.push(format!("line {}: {why}", at + 1)),
            Some(Ok(row)) => {
                if !seen.insert(row.id.clone()) {
                    verdict.wrong.push(format!("{} stands there twice", row.id));
                }
                count(&mut verdict, row, tests);
            }
        }
    }
    let wanted =
        FAMILIES.iter().flat_map(|(family, most)| (1..=*most).map(move |at| format!("{family}-{at}")));
    let wanted: BTreeSet<String> = wanted.collect();
    verdict.wrong.extend(wanted.difference(&seen).map(|id| format!("{id} has no row")));
    verdict.wrong.extend(seen.difference(&wanted).map(|id| format!("{id} is no promise we know")));
    verdict
}

fn count(verdict: &mut Verdict, row: Row, tests: &BTreeMap<String, BTreeSet<TestPath>>) {
    match row.proof {
        Proof::Later(theme) => *verdict.later.entry(theme).or_default() += 1,
        Proof::Tests(names) => {
            verdict.proven += 1;
            for name in names {
                if !exists(&name, tests) {
                    verdict.wrong.push(format!("{}: no test {name} that runs", row.id));
                }
                verdict.tests.insert(name);
            }
        }
    }
}

fn exists(name: &str, tests: &BTreeMap<String, BTreeSet<TestPath>>) -> bool {
    let mut parts = name.split("::");
    let place = parts.next().unwrap_or_default();
    let suite = SUITES.iter().find(|(short, _)| *short == place).map_or(place, |(_, package)| package);
    let path: TestPath = parts.filter(|part| *part != "tests").map(str::to_owned).collect();
    tests.get(suite).is_some_and(|found| found.contains(&path))
}

/// A line `| ID | promise | tests |`; None where it is something else.
fn row(line: &str) -> Option<Result<Row, String>> {
    let cells = cells(line)?;
    let id = cells.first().filter(|cell| is_id(cell))?.clone();
    let [_, promise, proof] = cells.as_slice() else {
        return Some(Err(format!("{id} has {} cells, not 3", cells.len())));
    };
    if promise.is_empty() {
        return Some(Err(format!("{id} promises nothing")));
    }
    Some(self::proof(proof).map(|proof| Row { id: id.clone(), proof }).map_err(|why| format!("{id} {why}")))
}

/// The cells of a table row; `\|` is a bar in the text.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?.replace("\\|", "\u{0}");
    Some(inner.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect())
}

fn is_id(cell: &str) -> bool {
    cell.split_once('-').is_some_and(|(family, number)| {
        let letters = !family.is_empty() && family.bytes().all(|byte| byte.is_ascii_uppercase());
        letters && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn proof(cell: &str) -> Result<Proof, String> {
    if let Some(theme) = cell.strip_prefix("later") {
        let theme = theme.trim_start_matches(':').trim();
        return if theme.is_empty() {
            Err("says later but not with what".to_owned())
        } else {
            Ok(Proof::Later(theme.to_owned()))
        };
    }
    let mut names = Vec::new();
    for word in cell.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let name = word.strip_prefix('`').and_then(|word| word.strip_suffix('`'));
        match name.filter(|name| name.contains("::")) {
            Some(name) => names.push(name.to_owned()),
            None => return Err(format!("names {word:?}, which is not of the form `suite::module::test`")),
        }
    }
    if names.is_empty() { Err("names no test".to_owned()) } else { Ok(Proof::Tests(names)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_promise_names_a_test_that_exists() {
        let verdict = check().unwrap();
        assert!(verdict.wrong.is_empty(), "{:#?}", verdict.wrong);
        assert!(verdict.proven > 0);
    }

    fn some_tests() -> BTreeMap<String, BTreeSet<TestPath>> {
        let path = |text: &str| text.split("::").map(str::to_owned).collect::<TestPath>();
        BTreeMap::from([
            ("stockade-line-tests".to_owned(), BTreeSet::from([path("run::exits")])),
            ("stockade-redact".to_owned(), BTreeSet::from([path("stream::holds")])),
        ])
    }

    /// What is wrong beyond the rows that a short document lacks.
    fn wrong(text: &str) -> Vec<String> {
        let verdict = judge(text, &some_tests());
        verdict.wrong.into_iter().filter(|why| !why.ends_with("has no row")).collect()
    }

    #[test]
    fn suites_and_crates_are_told_apart() {
        assert!(
            wrong("| RUN-1 | x | `line::run::exits`, `stockade-redact::stream::tests::holds` |").is_empty()
        );
        assert_eq!(wrong("| RUN-1 | x | `escape::run::exits` |").len(), 1);
        assert_eq!(wrong("| RUN-1 | x | `line::run::exit` |"), ["RUN-1: no test line::run::exit that runs"]);
    }

    #[test]
    fn a_row_without_a_proof_is_wrong() {
        for cell in ["", "later", "later:", "by hand", "`run`", "line::run::exits"] {
            assert_eq!(wrong(&format!("| RUN-1 | x | {cell} |")).len(), 1, "{cell:?}");
        }
        assert!(wrong("| RUN-1 | a \\| b | later: the daemon |").is_empty());
        assert_eq!(wrong("| RUN-1 | x |").len(), 1);
        assert_eq!(wrong("| RUN-1 | | later: x |").len(), 1);
    }

    #[test]
    fn missing_double_and_unknown_rows_are_wrong() {
        let later = |id: &str| format!("| {id} | x | later: y |\n");
        let all = FAMILIES.iter().flat_map(|(name, most)| (1..=*most).map(move |at| format!("{name}-{at}")));
        let all: String = all.map(|id| later(&id)).collect();
        assert!(judge(&all, &some_tests()).wrong.is_empty());
        assert_eq!(judge(&all, &some_tests()).later["y"], 67);
        for (text, count) in [(all.replace("| OPS-4 ", "| no "), 1), (all.clone() + &later("RUN-1"), 1)] {
            assert_eq!(judge(&text, &some_tests()).wrong.len(), count);
        }
        assert_eq!(judge(&(all + &later("RUN-11")), &some_tests()).wrong.len(), 1);
    }

    #[test]
    fn other_tables_and_prose_are_left_alone() {
        for line in ["| id | promise | tests |", "|---|---|---|", "RUN-1 is a promise.", "| a-1 | b |"] {
            assert!(row(line).is_none(), "{line}");
        }
    }
}
