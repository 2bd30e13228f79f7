//! Compiles every rule file in `resources/seccomp` to Rust statics, with the compiler that the library's
//! tests also build. A mistake in a file stops the build with its line and column.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use thiserror::Error;

#[path = "src/bpf.rs"]
mod bpf;
#[path = "src/compile.rs"]
mod compile;
#[path = "src/emit.rs"]
mod emit;
#[path = "src/errno.rs"]
pub mod errno;
#[path = "src/graph.rs"]
mod graph;
#[path = "src/model.rs"]
pub mod model;
#[path = "src/rules.rs"]
#[expect(dead_code, reason = "the tests read the rules one after the other")]
mod rules;
#[path = "src/sample.rs"]
mod sample;
#[path = "src/syscalls.rs"]
pub mod syscalls;
#[path = "src/tree.rs"]
mod tree;

const RESOURCES: &str = "../../resources/seccomp";

#[derive(Debug, Error)]
enum BuildError {
    #[error("cargo did not set {0}: run the build through cargo")]
    Variable(&'static str),
    #[error("{}: can't be read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: can't be written: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{}: no *.toml there: a build without a filter would run without one", path.display())]
    NoFile { path: PathBuf },
    #[error("{}:{source}", path.display())]
    Rules { path: PathBuf, source: rules::RuleError },
    #[error("{}: the name is {name:?} and must be the file's own", path.display())]
    Name { path: PathBuf, name: String },
    #[error("{}: {source}", path.display())]
    Sample { path: PathBuf, source: sample::SampleError },
    #[error("{}: {source}", path.display())]
    Emit { path: PathBuf, source: emit::EmitError },
    #[error("the generated source can't be formatted: {0}")]
    Format(#[from] std::fmt::Error),
}

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed={RESOURCES}");
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error={error}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), BuildError> {
    let out = env::var_os("OUT_DIR").ok_or(BuildError::Variable("OUT_DIR"))?;
    let root = env::var_os("CARGO_MANIFEST_DIR").ok_or(BuildError::Variable("CARGO_MANIFEST_DIR"))?;
    let mut source = String::from("static FILTERS: &[Filter] = &[\n");
    for path in files(&Path::new(&root).join(RESOURCES))? {
        filter(&mut source, &path)?;
    }
    source.push_str("];\n");
    let path = Path::new(&out).join("filters.rs");
    fs::write(&path, source).map_err(|source| BuildError::Write { path, source })
}

fn files(directory: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let failed = |source| BuildError::Read { path: directory.to_owned(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(BuildError::NoFile { path: directory.to_owned() });
    }
    paths.sort();
    Ok(paths)
}

fn filter(source: &mut String, path: &Path) -> Result<(), BuildError> {
    let owned = || path.to_owned();
    let text = fs::read_to_string(path).map_err(|source| BuildError::Read { path: owned(), source })?;
    let base = |name: &str| fs::read_to_string(path.with_file_name(format!("{name}.toml"))).ok();
    let set =
        rules::RuleSet::parse(&text, &base).map_err(|source| BuildError::Rules { path: owned(), source })?;
    if path.file_stem().is_none_or(|stem| stem != set.name.as_str()) {
        return Err(BuildError::Name { path: owned(), name: set.name });
    }
    let samples = sample::samples(&set).map_err(|source| BuildError::Sample { path: owned(), source })?;
    let program = compile::compile(&set).map_err(|source| BuildError::Emit { path: owned(), source })?;

    writeln!(source, "Filter {{ name: {:?}, description: {:?},", set.name, set.description)?;
    writeln!(
        source,
        "default: Action::{:?}, unknown: Action::{:?}, foreign: Action::{:?},",
        set.default, set.unknown, set.foreign
    )?;
    writeln!(source, "program: &{program:?},\nrules: &[")?;
    for (row, sample) in set.rows().zip(samples) {
        let name = syscalls::name(row.number).unwrap_or("?");
        writeln!(
            source,
            "RuleRow {{ syscall: {name:?}, number: {}, action: Action::{:?}, reason: {:?}, sample: {sample:?}, conditions: &[",
            row.number, row.rule.action, row.rule.reason
        )?;
        for model::Condition { arg, width, test } in &row.rule.conditions {
            writeln!(source, "Condition {{ arg: {arg}, width: Width::{width:?}, test: Test::{test:?} }},")?;
        }
        source.push_str("] },\n");
    }
    source.push_str("] },\n");
    Ok(())
}
