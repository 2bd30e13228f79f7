//! The service's own log, on stderr: text for people, JSON for machines, one line per event, never a control
//! character. Who logs never waits for who reads: lines go through a queue, and what does not fit is counted.

mod sink;
mod text;

use std::io::IsTerminal as _;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, fmt, reload};

use crate::config::{Format, Level};
use sink::Sink;
use text::Text;

/// The log; dropped, it waits a moment for what was said to be written.
#[derive(Debug)]
pub struct Logging {
    level: reload::Handle<LevelFilter, Registry>,
    _sink: Sink,
}

/// Once per process.
pub fn start(format: Format, level: Level) -> std::io::Result<Logging> {
    let sink = Sink::start()?;
    let (filter, handle) = reload::Layer::new(filter(level));
    let terminal = std::io::stderr().is_terminal();
    let json = match format {
        Format::Auto => !terminal,
        Format::Text => false,
        Format::Json => true,
    };
    let lines = if json {
        let layer = fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(false);
        layer.with_writer(sink.writer()).boxed()
    } else {
        fmt::layer().event_format(Text { colour: terminal }).with_writer(sink.writer()).boxed()
    };
    let started = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    started.map_err(std::io::Error::other)?;
    Ok(Logging { level: handle, _sink: sink })
}

impl Logging {
    pub fn set_level(&self, level: Level) {
        match self.level.reload(filter(level)) {
            // An error: the log is gone, and with it the wish.
            Ok(()) | Err(_) => {}
        }
    }
}

const fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}
