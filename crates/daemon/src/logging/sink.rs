//! stderr, behind a queue and a thread: a pipe that nobody reads stops the log, and nothing else.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written.
const QUEUE: usize = 1024;
/// For a reader, at the end.
const LAST_WORDS: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const STACK: usize = 64 * 1024;
/// After it has written all there is. Whoever logs meanwhile has no thread to wake: with many requests that is one
/// wake for many lines, and none is later than this.
const REST: Duration = Duration::from_millis(20);

#[derive(Debug)]
enum Said {
    Line(Vec<u8>),
    /// Nothing follows.
    End,
}

#[derive(Debug, Clone)]
pub(super) struct Lines {
    queue: SyncSender<Said>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(super) struct Sink {
    lines: Lines,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    pub(super) fn start() -> io::Result<Self> {
        let (queue, said) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let thread = Builder::new()
            .name("log".to_owned())
            .stack_size(STACK)
            .spawn(move || write_out(&said, &counted))?;
        Ok(Self { lines: Lines { queue, lost }, thread: Some(thread) })
    }

    pub(super) fn writer(&self) -> Lines {
        self.lines.clone()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let until = Instant::now() + LAST_WORDS;
        let mut end = Some(Said::End);
        while let Some(word) = end.take() {
            end = match self.lines.queue.try_send(word) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => None,
                Err(TrySendError::Full(word)) if Instant::now() < until => {
                    std::thread::sleep(LOOK_AGAIN);
                    Some(word)
                }
                Err(TrySendError::Full(_)) => None,
            };
        }
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            // Still stuck in a write: it ends with the process.
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

fn write_out(said: &Receiver<Said>, lost: &AtomicU64) {
    let mut stderr = io::stderr();
    let mut put = |line: &[u8]| match stderr.write_all(line) {
        // A closed stderr: there is nobody to tell.
        Ok(()) | Err(_) => {}
    };
    let mut next = said.recv();
    loop {
        match next {
            Ok(Said::Line(line)) => put(&line),
            Ok(Said::End) | Err(_) => return,
        }
        match lost.swap(0, Ordering::Relaxed) {
            0 => {}
            count => {
                put(format!("{count} lines of the log were lost: nobody read them in time\n").as_bytes())
            }
        }
        next = match said.try_recv() {
            Ok(said) => Ok(said),
            Err(_) => {
                std::thread::sleep(REST);
                said.recv()
            }
        };
    }
}

/// One event's bytes, handed over as a whole.
#[derive(Debug)]
pub(super) struct Line {
    lines: Lines,
    bytes: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { lines: self.clone(), bytes: Vec::new() }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = std::mem::take(&mut self.bytes);
        if !line.is_empty() && self.lines.queue.try_send(Said::Line(line)).is_err() {
            self.lines.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
