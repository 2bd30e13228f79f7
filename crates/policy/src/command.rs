//! The command's own checks, before anything is looked at on the host: empty, forbidden bytes, too long,
//! shell not allowed. Next: `environment`, which shares the kernel's total.

use stockade_proto::{Bytes, Code, Refusal};

use crate::profile::Resolved;
use crate::text::At;
use stockade_proto::Command;

/// MAX_ARG_STRLEN is 32 pages with the NUL: a string of 131,072 bytes fails with E2BIG.
pub const MAX_STRING: usize = 131_071;

/// The kernel gives arguments and environment a quarter of the stack limit, 8 MiB by default.
const MAX_TOTAL: usize = 2 * 1024 * 1024;

/// The executable's path, the auxiliary vector and alignment share that room.
const RESERVED: usize = 8 * 1024;

/// Each string also costs its NUL and a pointer.
const PER_STRING: usize = 9;

/// argv as it will be executed.
pub(crate) fn argv(command: &Command, profile: &Resolved) -> Result<Vec<Bytes>, Refusal> {
    let argv = match command {
        Command::Argv(argv) => argv.clone(),
        Command::Shell { text, program, args } => {
            if text.as_slice().iter().all(u8::is_ascii_whitespace) {
                return Err(empty("the shell command is empty"));
            }
            let program =
                program.clone().unwrap_or_else(|| Bytes::from(profile.shell_program.value.as_str()));
            let args = args.clone().unwrap_or_else(|| {
                profile.shell_args.value.iter().map(|arg| Bytes::from(arg.value.as_str())).collect()
            });
            allowed("shell", &program, &profile.shell_allowed_programs.value, &profile.name)?;
            for arg in &args {
                allowed("shell argument", arg, &profile.shell_allowed_args.value, &profile.name)?;
            }
            std::iter::once(program).chain(args).chain(std::iter::once(text.clone())).collect()
        }
    };
    if argv.first().is_none_or(Bytes::is_empty) {
        return Err(empty("the command is empty"));
    }
    for (at, arg) in argv.iter().enumerate() {
        check_bytes(at, arg)?;
    }
    Ok(argv)
}

fn empty(message: &str) -> Refusal {
    Refusal::new(Code::CommandEmpty, message, "write the command after `--`")
}

fn allowed(what: &str, word: &Bytes, list: &[At<String>], profile: &str) -> Result<(), Refusal> {
    if list.iter().any(|item| item.value.as_bytes() == word.as_slice()) {
        return Ok(());
    }
    let names = list.iter().map(|item| item.value.as_str()).collect::<Vec<_>>().join(", ");
    Err(Refusal::new(
        Code::ShellNotAllowed,
        format!("the {what} `{word}` is not allowed by the profile `{profile}`, which allows: {names}"),
        "use one of these, or run the program directly as `-- PROGRAM ARGS`",
    ))
}

/// What can be said of a command before anything else is known: that no kernel takes it.
pub fn check_length(command: &Command) -> Result<(), Refusal> {
    match command {
        Command::Argv(argv) => {
            argv.iter().enumerate().try_for_each(|(at, arg)| check_string(at, arg))?;
            check_total(argv, &[])
        }
        Command::Shell { text, .. } => check_string(0, text),
    }
}

fn which(at: usize) -> String {
    if at == 0 { "the command".to_owned() } else { format!("argument {at}") }
}

fn check_string(at: usize, arg: &Bytes) -> Result<(), Refusal> {
    if arg.len() <= MAX_STRING {
        return Ok(());
    }
    Err(Refusal::new(
        Code::CommandTooLong,
        format!("{} has {} bytes; the kernel takes at most {MAX_STRING}", which(at), arg.len()),
        "put the text in a file of the workspace, or pass it on standard input",
    ))
}

fn check_bytes(at: usize, arg: &Bytes) -> Result<(), Refusal> {
    check_string(at, arg)?;
    let which = which(at);
    for (byte, name) in [(0, "a NUL byte"), (b'\r', "a carriage return")] {
        if let Some(offset) = arg.as_slice().iter().position(|found| *found == byte) {
            return Err(Refusal::new(
                Code::CommandByte,
                format!("{which} holds {name} at byte {offset}"),
                "remove it; lines end with a newline only",
            ));
        }
    }
    Ok(())
}

/// What `execve` would count.
pub(crate) fn check_total(argv: &[Bytes], env: &[(Bytes, Bytes)]) -> Result<(), Refusal> {
    let args: usize = argv.iter().map(|arg| arg.len() + PER_STRING).sum();
    let variables: usize = env.iter().map(|(name, value)| name.len() + value.len() + 1 + PER_STRING).sum();
    if args + variables <= MAX_TOTAL - RESERVED {
        return Ok(());
    }
    Err(Refusal::new(
        Code::CommandTooLong,
        format!(
            "{} arguments ({args} bytes) and {} variables ({variables} bytes) exceed the kernel's {} together",
            argv.len(),
            env.len(),
            MAX_TOTAL - RESERVED
        ),
        "pass fewer or shorter ones, or put them in a file of the workspace",
    ))
}
