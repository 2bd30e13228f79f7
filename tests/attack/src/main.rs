//! The attacker's program. Its arguments are attack steps separated by a lone `,`; they run in order
//! and stop at the first one the kernel refuses. The last line on stdout is the verdict:
//! `VERDICT won DETAIL`, `VERDICT held STEP ERRNO`, or `VERDICT unable WHY`.
//! It judges nothing: which verdict is right is the business of the escape suite that runs it.

mod abi;
mod bombs;
mod files;
mod kernel;
mod namespaces;
mod network;
mod processes;
mod signals;
mod stage;
mod terminal;
mod verdict;

use std::process::ExitCode;

use verdict::{Scene, Step, Stop, unable};

type Op = fn(&mut Scene, &[String]) -> Step;

const TABLES: &[&[(&str, Op)]] = &[
    files::OPS,
    processes::OPS,
    signals::OPS,
    namespaces::OPS,
    network::OPS,
    kernel::OPS,
    terminal::OPS,
    abi::OPS,
    bombs::OPS,
    stage::OPS,
];

fn find(name: &str) -> Option<Op> {
    TABLES.iter().flat_map(|table| table.iter()).find(|(known, _)| *known == name).map(|(_, op)| *op)
}

/// `try STEP` goes on whatever the step's answer is: "gain capabilities if you can, then ...".
fn perform(scene: &mut Scene, words: &[String]) -> Step {
    let (tolerant, words) = match words.split_first() {
        Some((first, rest)) if first == "try" => (true, rest),
        _ => (false, words),
    };
    let Some((name, arguments)) = words.split_first() else {
        return unable("an empty step");
    };
    let Some(op) = find(name) else {
        eprintln!("unknown attack step: {name}");
        std::process::exit(2);
    };
    match op(scene, arguments) {
        Err(Stop::Held { .. }) if tolerant => Ok(()),
        other => other,
    }
}

fn main() -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if words.is_empty() {
        eprintln!("usage: stockade-attack STEP ARGS... [, STEP ARGS...]");
        return ExitCode::from(2);
    }
    // Stage steps hand the rest of the line to another program: a comma in it is not ours to split.
    let steps: Vec<&[String]> = if stage::takes_the_whole_line(&words[0]) {
        vec![&words[..]]
    } else {
        words.split(|word| word == ",").collect()
    };
    let mut scene = Scene::default();
    let answer = steps.into_iter().try_for_each(|step| perform(&mut scene, step));
    verdict::report(&scene, &answer)
}
