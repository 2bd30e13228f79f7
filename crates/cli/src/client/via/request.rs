//! From the command line to what the service is asked for. What can't cross to another process is refused, by name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use stockade_executor::Abort;
use stockade_proto::door::Start;
use stockade_proto::{Bytes, Code, Command, Refusal, Variable};

use crate::identifier;
use crate::run::{self, RunArguments};

pub(super) fn receive(arguments: &RunArguments) -> Result<Start, Abort> {
    refuse_local(arguments)?;
    let (command, shell) = match run::command(arguments)? {
        // As the planner says it: the door would take it for a mistake of this program's.
        Command::Argv(argv) if argv.is_empty() => {
            let remedy = "write the command after `--`";
            return Err(Refusal::new(Code::CommandEmpty, "the command is empty", remedy).into());
        }
        Command::Argv(argv) => (Some(argv), None),
        Command::Shell { text, .. } => (None, Some(text)),
    };
    Ok(Start {
        command,
        shell,
        profile: arguments.profile.clone(),
        workspace: Some(workspace(arguments)?),
        cwd: arguments.cwd.as_ref().map(|cwd| Bytes::from(cwd.as_os_str())),
        env: environment(arguments)?,
        timeout_ms: arguments.timeout.as_deref().map(run::timeout).transpose()?,
        stdin: arguments.stdin,
        idempotency_key: Some(format!("run-{}", identifier::execution())),
    })
}

/// Options of a local run that mean nothing to a service.
fn refuse_local(arguments: &RunArguments) -> Result<(), Refusal> {
    let redacts =
        "The service redacts what it was configured with; keep the value with `stockade secret set NAME`.";
    let rows = [
        (!arguments.secret_env.is_empty(), "--secret-env", redacts),
        (!arguments.secret_file.is_empty(), "--secret-file", redacts),
        (
            !arguments.publish.is_empty(),
            "--publish",
            "Ports are published by a local run only: leave --via away.",
        ),
        (
            arguments.events.is_some(),
            "--events",
            "`stockade logs ID --stream event` shows them, also meanwhile.",
        ),
        (arguments.explain, "--explain", "Explain it without --via: the plan is made in the same way."),
        (
            arguments.dangerously_without_walls,
            "--dangerously-without-walls",
            "Which profiles there are without walls is for the service's configuration to say.",
        ),
    ];
    match rows.into_iter().find(|(given, _, _)| *given) {
        Some((_, option, remedy)) => {
            let message = format!("{option} means nothing to a service, and --via asks one");
            Err(Refusal::new(Code::OptionInvalid, message, remedy))
        }
        None => Ok(()),
    }
}

/// The service stands in another directory than we do.
fn workspace(arguments: &RunArguments) -> Result<Bytes, Refusal> {
    let here = run::current_directory();
    match &arguments.workspace {
        Some(directory) if PathBuf::from(directory).is_absolute() => Ok(Bytes::from(directory.as_os_str())),
        Some(directory) => Ok(Bytes::from(here?.join(directory))),
        None => here.map(Bytes::from),
    }
}

fn environment(arguments: &RunArguments) -> Result<BTreeMap<String, Bytes>, Refusal> {
    let refuse = |name: &Bytes, why: &str, remedy: &str| {
        Refusal::new(Code::EnvironmentRefused, format!("the variable `{name}` {why}"), remedy)
    };
    let mut env = BTreeMap::new();
    for text in &arguments.env {
        let (name, value) = match run::variable(text) {
            Variable::Set { name, value } => (name, value),
            Variable::Copy { name } => {
                let value = std::env::var_os(name.as_os_str())
                    .ok_or_else(|| refuse(&name, "is not set here", "Set it, or give NAME=VALUE."))?;
                (name, Bytes::from(value))
            }
        };
        let text = std::str::from_utf8(name.as_slice())
            .map_err(|_| refuse(&name, "has a name that is no text", "Use letters, digits and _."))?;
        env.insert(text.to_owned(), value);
    }
    Ok(env)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArguments,
    }

    fn parsed(words: &[&str]) -> RunArguments {
        Line::try_parse_from(["run", "--via"].iter().chain(words)).unwrap().run
    }

    fn received(words: &[&str]) -> Result<Start, Abort> {
        receive(&parsed(words))
    }

    #[test]
    fn the_words_cross_over() {
        let words = [
            "/s.sock", "-w", "sub", "--cwd", "x", "-t", "2s", "-e", "A=1=2", "-e", "PATH", "-i", "-p",
            "build", "--", "make", "-j2",
        ];
        assert_eq!(parsed(&words).via.as_deref(), Some("/s.sock".as_ref()));
        let start = received(&words).unwrap();
        assert_eq!(start.command, Some(vec![Bytes::from("make"), Bytes::from("-j2")]));
        assert_eq!((start.shell, start.profile.as_deref(), start.stdin), (None, Some("build"), true));
        assert_eq!((start.cwd, start.timeout_ms), (Some(Bytes::from("x")), Some(2000)));
        let here = std::env::current_dir().unwrap();
        assert_eq!(start.workspace, Some(Bytes::from(here.join("sub"))));
        assert_eq!(start.env["A"], Bytes::from("1=2"));
        assert_eq!(start.env["PATH"], Bytes::from(std::env::var_os("PATH").unwrap()));
    }

    #[test]
    fn what_is_left_out_is_the_services_to_choose_but_for_the_directory() {
        assert_eq!(parsed(&["--", "true"]).via.as_deref(), Some("".as_ref()));
        let start = received(&["-c", "--", "a | b"]).unwrap();
        assert_eq!((start.command, start.shell, start.profile), (None, Some(Bytes::from("a | b")), None));
        assert_eq!(start.workspace, Some(Bytes::from(std::env::current_dir().unwrap())));
        let keys = [(); 2].map(|()| received(&["--", "true"]).unwrap().idempotency_key);
        assert!(keys[0].is_some() && keys[0] != keys[1]);
    }

    #[test]
    fn what_means_nothing_to_a_service_is_refused_by_name() {
        for words in [
            &["--secret-env", "PATH"][..],
            &["--secret-file", "/x"],
            &["--publish", "80"],
            &["--events", "fd:3"],
            &["--explain"],
            &["--dangerously-without-walls"],
        ] {
            let line: Vec<&str> = words.iter().chain(&["--", "true"]).copied().collect();
            let Err(Abort::Refusal(refusal)) = received(&line) else { panic!("{words:?}") };
            assert_eq!(refusal.code, Code::OptionInvalid);
            assert!(refusal.message.starts_with(words[0]) && !refusal.remedy.is_empty(), "{refusal:?}");
        }
        assert!(matches!(received(&[]), Err(Abort::Refusal(refusal)) if refusal.code == Code::CommandEmpty));
        let unset = ["-e", "STOCKADE_TEST_SURELY_UNSET", "--", "true"];
        assert!(matches!(received(&unset), Err(Abort::Refusal(_))));
    }
}
