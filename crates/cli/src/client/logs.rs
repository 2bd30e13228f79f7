//! `stockade logs`: what an execution wrote, byte for byte and each stream to its own, from any place on. A terminal
//! gets no byte that it would obey: whoever reads is not to be led by who wrote.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use clap::Args;
use stockade_executor::Abort;
use stockade_proto::door::{Chunk, Output, Read, Rest, Stream, method};
use stockade_proto::{Code, Fault};

use super::OneExecution;
use super::door::{Door, SOON};
use super::output::{self, Reader, failed};
use super::text::Seen;

/// One question while nothing comes; there is another behind it.
const AT_A_TIME: Duration = Duration::from_secs(20);
/// Bytes of one answer, about.
const PIECE: u32 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct LogsArguments {
    /// Wait for what comes, until it ends
    #[arg(short, long)]
    follow: bool,
    /// Only what came after this sequence number, as --json shows them
    #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
    after: u64,
    /// Only this stream; what the live walls decided is shown in no other way
    #[arg(long)]
    stream: Option<Which>,
    /// One JSON object per piece: its sequence number, stream, milliseconds since the start, and bytes
    #[arg(long)]
    json: bool,
    /// Every byte as it is to a terminal, too: what it obeys may be hostile
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    #[command(flatten)]
    which: OneExecution,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    Stdout,
    Stderr,
    Event,
}

impl Which {
    const fn stream(self) -> Stream {
        match self {
            Self::Stdout => Stream::Stdout,
            Self::Stderr => Stream::Stderr,
            Self::Event => Stream::Event,
        }
    }
}

/// A place in an execution's output.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) id: String,
    /// Of the last piece that was read.
    pub(super) after: u64,
}

impl Reading {
    /// The next pieces, as soon as there are some; none when that takes long.
    pub(super) async fn next(&mut self, door: &Door, wait: Duration) -> Result<Output, Abort> {
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let ask = Read { id: self.id.clone(), after: self.after, limit: Some(PIECE), wait_ms };
        let output: Output = door.ask(method::READ, &ask, wait + SOON).await?;
        self.after = output.next;
        Ok(output)
    }

    pub(super) async fn follow(&mut self, door: &Door) -> Result<Output, Abort> {
        self.next(door, AT_A_TIME).await
    }
}

pub(super) fn damaged(id: &str) -> Fault {
    Fault::new(
        Code::RecordFailed,
        format!("what {} wrote after this can't be read any more", super::text::clean(id)),
        "The file is damaged; the record of the execution (`stockade show ID`) is not in it.",
    )
}

pub(super) async fn logs(arguments: &LogsArguments) -> Result<u8, Abort> {
    let (door, id) = arguments.which.reach().await?;
    let mut reading = Reading { id, after: arguments.after };
    let mut ends = Ends::new(arguments);
    loop {
        let wait = if arguments.follow { AT_A_TIME } else { Duration::ZERO };
        let output = reading.next(&door, wait).await?;
        for chunk in &output.chunks {
            if show(arguments, &mut ends, chunk)? == Reader::Gone {
                return Ok(0);
            }
        }
        match output.rest {
            Rest::More => {}
            Rest::Open if arguments.follow => {}
            Rest::Open | Rest::Ended => return ends.finish().map(|_| 0),
            Rest::Damaged => return Err(damaged(&reading.id).into()),
        }
    }
}

/// Our two ends; with what makes bytes fit for a terminal, where one is there.
#[derive(Debug)]
struct Ends {
    stdout: Option<Seen>,
    stderr: Option<Seen>,
}

impl Ends {
    fn new(arguments: &LogsArguments) -> Self {
        let seen = |terminal: bool| (terminal && !arguments.raw).then(Seen::default);
        Self { stdout: seen(io::stdout().is_terminal()), stderr: seen(io::stderr().is_terminal()) }
    }

    fn stdout(&mut self, bytes: &[u8]) -> io::Result<Reader> {
        match &mut self.stdout {
            Some(seen) => output::put(io::stdout().as_fd(), seen.more(bytes).as_bytes()),
            None => output::put(io::stdout().as_fd(), bytes),
        }
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<Reader> {
        match &mut self.stderr {
            Some(seen) => output::put(io::stderr().as_fd(), seen.more(bytes).as_bytes()),
            None => output::put(io::stderr().as_fd(), bytes),
        }
    }

    /// Characters that lack their end.
    fn finish(mut self) -> Result<Reader, Abort> {
        let rest = |seen: &mut Option<Seen>| seen.as_mut().map(Seen::rest).unwrap_or_default();
        let (stdout, stderr) = (rest(&mut self.stdout), rest(&mut self.stderr));
        output::put(io::stderr().as_fd(), stderr.as_bytes())
            .and_then(|_| output::put(io::stdout().as_fd(), stdout.as_bytes()))
            .map_err(|error| failed(&error).into())
    }
}

fn show(arguments: &LogsArguments, ends: &mut Ends, chunk: &Chunk) -> Result<Reader, Abort> {
    let wanted = match arguments.stream {
        Some(only) => only.stream() == chunk.stream,
        None => arguments.json || chunk.stream != Stream::Event,
    };
    if !wanted {
        return Ok(Reader::There);
    }
    if arguments.json {
        return output::print_json(chunk);
    }
    let bytes = chunk.bytes.as_slice();
    let written = match chunk.stream {
        Stream::Stdout => ends.stdout(bytes),
        Stream::Stderr => ends.stderr(bytes),
        Stream::Event if bytes.ends_with(b"\n") => ends.stdout(bytes),
        Stream::Event => ends.stdout(&[bytes, b"\n"].concat()),
    };
    written.map_err(|error| failed(&error).into())
}
