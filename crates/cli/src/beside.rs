//! The other programs of the install: beside this one, or in its libexec directory; never through `PATH`.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use stockade_executor::Abort;
use stockade_proto::{Code, Fault, install};

/// In its place, with the same arguments. Only comes back with why not.
pub(crate) fn become_program(name: &str) -> Abort {
    let program = match find(name) {
        Ok(program) => program,
        Err(fault) => return fault.into(),
    };
    stockade_sys::ahead::end();
    let error = std::process::Command::new(&program).args(std::env::args_os().skip(1)).exec();
    failed(&format!("{} can't be started: {error}", program.display())).into()
}

pub(crate) fn find(name: &str) -> Result<PathBuf, Fault> {
    let own = std::env::current_exe()
        .map_err(|error: io::Error| failed(&format!("this program's own place is not known: {error}")))?;
    let places = install::places(&own, name);
    let missing =
        || failed(&format!("{name} is not at {} nor at {}", places[0].display(), places[1].display()));
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(missing)
}

fn failed(what: &str) -> Fault {
    Fault::new(
        Code::ProgramMissing,
        what,
        "Build or install it beside stockade: `cargo build --release` makes all of them.",
    )
}
