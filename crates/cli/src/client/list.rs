//! `stockade ps`: the service's executions, newest first.

use clap::Args;
use stockade_executor::Abort;
use stockade_proto::door::{Execution, List, Page, State, method};
use stockade_proto::{Code, Refusal};

use super::door::{Door, SOON};
use super::output::{self, Reader};
use super::{SocketOption, text};

/// What one question is answered with at most.
const PAGE: u32 = 500;
const SHOWN: u32 = 50;

#[derive(Debug, Args)]
pub(crate) struct PsArguments {
    /// Those that have ended, too
    #[arg(short, long)]
    all: bool,
    /// Only those that are queued, running or ended
    #[arg(long, conflicts_with = "all")]
    state: Option<Which>,
    /// No more than this many
    #[arg(short = 'n', long, value_name = "N", default_value_t = SHOWN, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: SocketOption,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    Queued,
    Running,
    Ended,
}

impl Which {
    const fn state(self) -> State {
        match self {
            Self::Queued => State::Queued,
            Self::Running => State::Running,
            Self::Ended => State::Ended,
        }
    }
}

pub(super) async fn ps(arguments: &PsArguments) -> Result<u8, Abort> {
    let door = Door::open(arguments.at.socket.as_deref()).await?;
    let wanted: &[Option<State>] = match arguments.state {
        Some(state) => &[Some(state.state())],
        None if arguments.all => &[None],
        None => &[Some(State::Queued), Some(State::Running)],
    };
    let mut found = Vec::new();
    for state in wanted {
        found.extend(list(&door, *state, arguments.limit).await?);
    }
    // Ids sort by the time they were made. What began to run between two questions is in both answers.
    found.sort_by(|one, other| other.id.cmp(&one.id));
    found.dedup_by(|one, other| one.id == other.id);
    found.truncate(usize::try_from(arguments.limit).unwrap_or(usize::MAX));
    if !arguments.json {
        return output::print(&table(&found, text::now(), text::terminal_width())).map(|_| 0);
    }
    for execution in &found {
        if output::print_json(execution)? == Reader::Gone {
            break;
        }
    }
    Ok(0)
}

async fn list(door: &Door, state: Option<State>, most: u32) -> Result<Vec<Execution>, Abort> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let (mut found, mut after) = (Vec::new(), None);
    while found.len() < most {
        let left = u32::try_from(most - found.len()).unwrap_or(PAGE).min(PAGE);
        let page: Page = door.ask(method::LIST, &List { state, after, limit: Some(left) }, SOON).await?;
        found.extend(page.executions);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    Ok(found)
}

/// The id of the one that was started last.
pub(super) async fn last(door: &Door) -> Result<String, Abort> {
    let newest = list(door, None, 1).await?.into_iter().next();
    newest.map(|execution| execution.id).ok_or_else(|| {
        Refusal::new(
            Code::ExecutionUnknown,
            "no execution is on record for you",
            "Start one with `stockade run --via -- COMMAND`.",
        )
        .into()
    })
}

pub(super) fn state(execution: &Execution) -> &'static str {
    match execution.state {
        State::Queued => "queued",
        State::Running => "running",
        State::Ended => "ended",
    }
}

fn table(executions: &[Execution], now: i64, width: Option<usize>) -> String {
    let row = |one: &Execution| {
        let state = match &one.code {
            Some(code) => format!("{} {}", state(one), text::clean(code)),
            None => state(one).to_owned(),
        };
        let time =
            one.started_ms.map(|started| text::span(text::between(started, one.ended_ms.unwrap_or(now))));
        [
            text::clean(&one.id),
            state,
            text::span(text::between(one.created_ms, now)),
            time.unwrap_or_else(|| "-".to_owned()),
            text::clean(&one.principal),
            text::clean(&one.profile),
            text::clean(&one.command),
        ]
    };
    let rows: Vec<_> = executions.iter().map(row).collect();
    text::table(["ID", "STATE", "AGE", "TIME", "BY", "PROFILE", "COMMAND"], &rows, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::show::tests::execution;

    #[test]
    fn a_row_says_what_it_is_and_for_how_long() {
        let queued = Execution { state: State::Queued, started_ms: None, ended_ms: None, ..execution() };
        let lost = Execution {
            ended_ms: Some(3000),
            code: Some("UZ-EXEC-003".into()),
            command: "printf '\u{1b}[2J'".into(),
            ..execution()
        };
        let shown = table(&[queued, lost], 62_000, None);
        assert_eq!(
            shown,
            "ID   STATE              AGE    TIME  BY     PROFILE  COMMAND\n\
             0-1  queued             1 min  -     uid:7  default  make test\n\
             0-1  ended UZ-EXEC-003  1 min  1 s   uid:7  default  printf '\\u{1b}[2J'\n"
        );
    }
}
