//! `stockade run`: receive → plan → execute → report, in one process and without a daemon.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use clap::Args;
use stockade_executor::cgroup::scope_reexec_argv;
use stockade_executor::{Abort, Beginning, Destination, Input, Io, Watch, begin, execute, redacted};
use stockade_policy::{Command, Request, Variable, duration, explain, publish};
use stockade_proto::{Bytes, Code, ExecutionResult, Fault, Refusal, Stdin};
use stockade_redact::Redactor;
use stockade_sys::{Signal, ahead, mask_for_descriptor};

use crate::report::{Report, create_output, open_target};
use crate::{identifier, say, secrets};

/// Set for the one time that we start ourselves again inside a scope of systemd's.
const IN_SCOPE: &str = "STOCKADE_IN_SCOPE";
/// A service in production sets this; the development flag is refused then.
const PRODUCTION: &str = "STOCKADE_PRODUCTION";

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The profile to run under [default: default]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// The directory that the command may change [default: the current directory]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workspace: Option<OsString>,
    /// Where the command starts, inside the workspace
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<OsString>,
    /// Stop it after this long: 500ms, 30s, 10m, 2h
    #[arg(short, long, value_name = "TIME")]
    pub(crate) timeout: Option<String>,
    /// Set a variable, or copy one of yours: NAME=VALUE or NAME
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
    /// Pass stdin on to the command
    #[arg(short = 'i', long)]
    pub(crate) stdin: bool,
    /// The command is one string for the profile's shell
    #[arg(short = 'c', long)]
    pub(crate) shell: bool,
    /// Never show the value of this variable of yours in the output
    #[arg(long, value_name = "NAME")]
    pub(crate) secret_env: Vec<String>,
    /// Never show the contents of this file in the output
    #[arg(long, value_name = "[NAME=]PATH")]
    pub(crate) secret_file: Vec<String>,
    /// Let this host's loopback reach a port inside; a HOSTPORT of 0 lets the kernel choose
    #[arg(long, value_name = "[[ADDRESS:]HOSTPORT:]PORT")]
    pub(crate) publish: Vec<String>,
    /// Write stdout to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) stdout: Option<OsString>,
    /// Write stderr to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) stderr: Option<OsString>,
    /// Write the result as one JSON object to a file, or to an open descriptor: fd:3
    #[arg(long, value_name = "FILE|fd:N")]
    pub(crate) json: Option<String>,
    /// Write what the live walls decide, one JSON object per line, to a file or an open descriptor: fd:3
    #[arg(long, value_name = "FILE|fd:N")]
    pub(crate) events: Option<String>,
    /// Print the plan and run nothing
    #[arg(long)]
    pub(crate) explain: bool,
    /// Keep running if the process that started this one ends
    #[arg(long)]
    pub(crate) allow_orphan: bool,
    /// Run it through the service that listens on this socket, or on the usual one
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, default_missing_value = "")]
    pub(crate) via: Option<OsString>,
    /// For development on hosts without walls: run under the profile `host`, with a warning every time
    #[arg(long)]
    pub(crate) dangerously_without_walls: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

pub(crate) fn run(arguments: &RunArguments) -> Result<u8, Abort> {
    stockade_executor::check_ground()?;
    // Before we have descriptors of our own, which a number of the caller's could be taken for.
    let mut report = Report::open(arguments.json.as_deref())?;
    let events = open_target("--events", arguments.events.as_deref());
    let redactor = match secrets::redactor(&arguments.secret_env, &arguments.secret_file) {
        Ok(redactor) => redactor,
        Err(refusal) => {
            let abort = Abort::from(refusal);
            report.write(Err(&abort))?;
            return Err(abort);
        }
    };
    let ended = events.map_err(Abort::from).and_then(|events| {
        let request = receive(arguments)?;
        carry_out(arguments, request, events.as_ref(), &redactor)
    });
    // What we say ourselves may quote the command.
    let ended = ended
        .map(|result| result.map(|result| redacted::result(&redactor, result)))
        .map_err(|abort| redacted::abort(&redactor, abort));
    match ended {
        Ok(Some(mut result)) => {
            if report.is_wanted() {
                redacted::command(&redactor, &mut result);
            }
            report.write(Ok(&result))?;
            say::outcome(&result);
            Ok(result.exit_code)
        }
        Ok(None) => Ok(0),
        Err(abort) => {
            report.write(Err(&abort))?;
            Err(abort)
        }
    }
}

fn carry_out(
    arguments: &RunArguments,
    request: Request,
    events: Option<&OwnedFd>,
    redactor: &Redactor,
) -> Result<Option<ExecutionResult>, Abort> {
    let begun = match begin(request)? {
        Beginning::Begun(begun) => begun,
        Beginning::NeedsScope(refusal) => return Err(enter_scope(refusal)),
    };
    if arguments.explain {
        let plan = begun.plan()?;
        plan.warnings.iter().for_each(|warning| say::warning(warning));
        return print(&redacted::text(redactor, &explain(&plan)));
    }
    // First, so that no signal ends us while a sandbox is being made.
    let watch = watch(arguments)?;
    debug_assert!(ahead::was_tried(), "the linker was not told of our entry point");
    let ready = begun.ready(ahead::take())?;
    ready.plan.warnings.iter().for_each(|warning| say::warning(warning));
    for (published, asked) in ready.published().zip(&ready.plan.publish) {
        // What a person chose they know.
        if asked.host_port == 0 {
            say::published(published);
        }
    }
    let (stdout, stderr) = (destination(arguments.stdout.as_ref())?, destination(arguments.stderr.as_ref())?);
    let stdin = std::io::stdin();
    let (own_stdout, own_stderr) = (std::io::stdout(), std::io::stderr());
    let io = Io {
        stdin: arguments.stdin.then(|| Input::Borrowed(stdin.as_fd())),
        stdout: Destination::Descriptor(stdout.as_ref().map_or(own_stdout.as_fd(), AsFd::as_fd)),
        stderr: Destination::Descriptor(stderr.as_ref().map_or(own_stderr.as_fd(), AsFd::as_fd)),
        events: events.map(|events| Destination::Descriptor(events.as_fd())),
        redactor,
    };
    execute(ready, &identifier::execution(), io, &watch).map(|executed| Some(executed.result))
}

/// Only translates: what is allowed is the planner's to say.
fn receive(arguments: &RunArguments) -> Result<Request, Abort> {
    let profile = match &arguments.profile {
        _ if arguments.dangerously_without_walls => development_profile()?,
        Some(profile) => profile.clone(),
        None => "default".to_owned(),
    };
    let workspace = match &arguments.workspace {
        Some(directory) => Bytes::from(directory.as_os_str()),
        None => Bytes::from(current_directory()?),
    };
    Ok(Request {
        command: command(arguments)?,
        workspace,
        cwd: arguments.cwd.as_ref().map(|cwd| Bytes::from(cwd.as_os_str())),
        env: arguments.env.iter().map(variable).collect(),
        timeout_ms: arguments.timeout.as_deref().map(timeout).transpose()?,
        stdin: if arguments.stdin { Stdin::Piped } else { Stdin::Null },
        publish: arguments.publish.iter().map(|text| publish(text)).collect::<Result<_, _>>()?,
        profile,
    })
}

pub(crate) fn current_directory() -> Result<PathBuf, Refusal> {
    std::env::current_dir().map_err(|error| {
        Refusal::new(
            Code::WorkspaceMissing,
            format!("the current directory can't be read: {error}"),
            "Change to a directory that exists, or give --workspace DIR.",
        )
    })
}

pub(crate) fn command(arguments: &RunArguments) -> Result<Command, Refusal> {
    let argv: Vec<Bytes> = arguments.command.iter().map(|text| Bytes::from(text.as_os_str())).collect();
    if !arguments.shell {
        return Ok(Command::Argv(argv));
    }
    let [text] = argv.as_slice() else {
        return Err(Refusal::new(
            Code::OptionInvalid,
            format!("--shell takes one string, not {}", argv.len()),
            "Quote the whole command: stockade run --shell -- 'make && make test'",
        ));
    };
    Ok(Command::Shell { text: text.clone(), program: None, args: None })
}

pub(crate) fn variable(text: &OsString) -> Variable {
    let bytes = text.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => Variable::Set { name: Bytes::from(&bytes[..at]), value: Bytes::from(&bytes[at + 1..]) },
        None => Variable::Copy { name: Bytes::from(bytes) },
    }
}

pub(crate) fn timeout(text: &str) -> Result<u64, Refusal> {
    duration(text).filter(|millis| *millis > 0).ok_or_else(|| {
        Refusal::new(
            Code::OptionInvalid,
            format!("--timeout {text} is not a time"),
            "Write a number above zero with a unit: 500ms, 30s, 10m, 2h.",
        )
    })
}

fn development_profile() -> Result<String, Refusal> {
    if std::env::var_os(PRODUCTION).is_some() {
        return Err(Refusal::new(
            Code::HostUnsupported,
            "--dangerously-without-walls is refused in production mode",
            format!("Unset {PRODUCTION}, or run without the flag."),
        ));
    }
    say::warning("WITHOUT WALLS: the command can read, change and reach everything that you can");
    Ok("host".to_owned())
}

pub(crate) fn destination(path: Option<&OsString>) -> Result<Option<OwnedFd>, Refusal> {
    path.map(|path| {
        create_output(path).map_err(|why| {
            Refusal::new(
                Code::OptionInvalid,
                format!("{} can't be written: {why}", Bytes::from(path.as_os_str())),
                "Give a regular file in a directory that you can write to.",
            )
        })
    })
    .transpose()
}

fn watch(arguments: &RunArguments) -> Result<Watch<'static>, Abort> {
    // Blocked and unread, they would leave a person without Ctrl-C.
    let signals = mask_for_descriptor(&[Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Quit])
        .map_err(|error| {
            Fault::new(
                Code::SuperviseFailed,
                format!("signals could not be set up: {error}"),
                "Raise the number of open files (`ulimit -n`) and try again.",
            )
        })?;
    let parent = if arguments.allow_orphan { None } else { parent() };
    Ok(Watch { signals: Some(signals), parent, orders: None, at_start: None })
}

/// A pidfd and not PDEATHSIG: the latter fires when the thread that started us ends.
pub(crate) fn parent() -> Option<OwnedFd> {
    let pid = rustix::process::getppid()?;
    if pid.is_init() {
        return None;
    }
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

fn print(text: &str) -> Result<Option<ExecutionResult>, Abort> {
    use std::io::Write;
    match anstream::stdout().write_all(text.as_bytes()) {
        Ok(()) | Err(_) => Ok(None),
    }
}

/// Whether we were started again by `enter_scope`.
pub(crate) fn in_scope() -> bool {
    std::env::var_os(IN_SCOPE).is_some()
}

/// An ordinary user's login shell sits in a cgroup that it may not divide. systemd's user manager
/// gives us one that we may: start again inside it, once. Only comes back with the refusal.
pub(crate) fn enter_scope(refusal: Refusal) -> Abort {
    if in_scope() {
        return refusal.into();
    }
    let own: Vec<OsString> = std::env::args_os().skip(1).collect();
    let argv = scope_reexec_argv(&own);
    if let Some((program, rest)) = argv.as_ref().and_then(|argv| argv.split_first()) {
        ahead::end();
        let error = std::process::Command::new(program).args(rest).env(IN_SCOPE, "1").exec();
        say::warning(&format!("systemd-run could not be started: {error}"));
    }
    refusal.into()
}
