//! A line for people: time, level, what happened, and the fields. Whatever a field holds, it stays on its line and
//! says nothing to the terminal.

use std::fmt::{self, Write as _};

use stockade_proto::Bytes;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

#[derive(Debug, Clone, Copy)]
pub(super) struct Text {
    pub(super) colour: bool,
}

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        SystemTime.format_time(&mut line)?;
        let (word, colour) = level(*event.metadata().level());
        if self.colour {
            write!(line, " \x1b[{colour}m{word}\x1b[0m ")?;
        } else {
            write!(line, " {word} ")?;
        }
        let mut said = Said::default();
        event.record(&mut said);
        writeln!(line, "{}", Bytes::from(format!("{}{}", said.message, said.fields)))
    }
}

fn level(level: Level) -> (&'static str, u8) {
    if level == Level::ERROR {
        ("ERROR", 31)
    } else if level == Level::WARN {
        (" WARN", 33)
    } else if level == Level::INFO {
        (" INFO", 32)
    } else if level == Level::DEBUG {
        ("DEBUG", 34)
    } else {
        ("TRACE", 35)
    }
}

#[derive(Default)]
struct Said {
    message: String,
    fields: String,
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
        match written {
            // Into a string: it does not fail.
            Ok(()) | Err(_) => {}
        }
    }
}
