//! Watches one running sandbox: relays its streams, keeps its deadlines, stops it when told to, and
//! says how it ended. One thread, one poll loop; every wait has a deadline. Next: `outcome`.

mod clock;
mod events;
mod orders;
mod outcome;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use stockade_proto::{Cancel, Code, Fault, LimitKind, Outcome, Plan, StreamTotals, Usage};
use stockade_sys::{Ended, Rusage, SignalFd};

use crate::Abort;
use crate::cgroup::Counters;
use crate::live::Seen;
use crate::spawn::{Remains, Running};
use crate::stream::{Buffer, Events, Feed, Io, Relay};

use clock::Clock;
pub use orders::{Order, OrderSender, Orders, orders};

/// What the caller can do to an execution while it runs.
#[derive(Debug)]
pub struct Watch<'w> {
    pub signals: Option<SignalFd>,
    /// A process whose death cancels the execution.
    pub parent: Option<OwnedFd>,
    /// From another thread.
    pub orders: Option<Orders>,
    pub at_start: Option<OnStart<'w>>,
}

/// Called when the command runs, between two looks at it: it may not take long.
#[derive(Clone, Copy)]
pub struct OnStart<'w>(pub &'w dyn Fn());

impl std::fmt::Debug for OnStart<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OnStart")
    }
}

/// After the tree is dead, its pipes can only be held open by someone outside of it (mode `host`).
const DRAIN: Duration = Duration::from_millis(500);
/// A killed tree is gone within milliseconds; a process in uninterruptible sleep may take longer.
const GONE: Duration = Duration::from_secs(10);
/// Setup takes a millisecond. This is for machines that emulate their processor.
const SETUP: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Supervised {
    /// Whether the command ran at all.
    pub(crate) started: bool,
    /// Output that could not be delivered, other than to a reader that left.
    pub(crate) lost_output: Option<String>,
    pub(crate) outcome: Outcome,
    pub(crate) usage: Usage,
    pub(crate) stdout: StreamTotals,
    pub(crate) stderr: StreamTotals,
    pub(crate) leaked_descendants: u32,
    pub(crate) limits_hit: Vec<LimitKind>,
    pub(crate) seen: Seen,
    pub(crate) cleanup_faults: Vec<String>,
    pub(crate) remains: Remains,
}

/// Why we are ending it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    TimedOut,
    Cancelled(Cancel),
    OutOfMemory,
    Limit(LimitKind),
    /// Init did not get to the command.
    SetupStalled,
    /// Calls of the command wait for a supervisor that is gone.
    Unsupervised,
}

/// What init told us.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Failed { stage: stockade_launch::Stage, errno: i32, subject: Vec<u8> },
    Ended { status: i32, leaked: u32 },
}

struct Supervisor<'a> {
    plan: &'a Plan,
    running: Running,
    watch: &'a Watch<'a>,
    feed: Feed<'a>,
    stdout: Relay<'a>,
    stderr: Relay<'a>,
    buffer: Buffer,
    events: Events<'a>,
    clock: Clock,
    reason: Option<Reason>,
    word: Option<Word>,
    started: bool,
    control_open: bool,
    orders_open: bool,
    ended: Option<(Ended, Rusage)>,
    faults: Vec<String>,
    /// What the kernel counted, from the moment when nothing more is to come.
    counters: Option<Counters>,
    counts_cpu: bool,
    /// Nobody is there for calls of the command any more.
    deaf: bool,
}

pub(crate) fn fault(what: &str, error: &dyn std::fmt::Display) -> Abort {
    Fault::new(
        Code::SuperviseFailed,
        format!("{what}: {error}"),
        "Try again; if it persists, run `stockade doctor`.",
    )
    .into()
}

pub(crate) fn supervise(
    plan: &Plan,
    mut running: Running,
    io: Io<'_>,
    watch: &Watch<'_>,
    begun: Instant,
) -> Result<Supervised, Abort> {
    let (Some(stdout), Some(stderr)) = (running.stdout.take(), running.stderr.take()) else {
        return Err(fault("the command's streams are missing", &"they were taken before"));
    };
    let stdin = running.stdin.take();
    let mut supervisor = Supervisor {
        plan,
        feed: Feed::new(io.stdin, stdin),
        stdout: Relay::new(stdout, io.stdout, io.redactor),
        stderr: Relay::new(stderr, io.stderr, io.redactor),
        buffer: Buffer::new(),
        events: Events::new(io.events, io.redactor),
        clock: Clock::new(plan, begun),
        running,
        watch,
        reason: None,
        word: None,
        started: false,
        control_open: true,
        orders_open: true,
        ended: None,
        faults: Vec::new(),
        counters: None,
        counts_cpu: false,
        deaf: false,
    };
    // Whatever goes wrong with watching, the tree does not outlive us.
    if let Err(abort) = supervisor.until_gone().and_then(|()| supervisor.drain()) {
        supervisor.abandon();
        return Err(abort);
    }
    let refused = supervisor.refused();
    let supervised = supervisor.conclude(begun);
    refused.map_or(Ok(supervised), Err)
}

impl Supervisor<'_> {
    /// The loop: until init, and with it the tree, is gone.
    fn until_gone(&mut self) -> Result<(), Abort> {
        while self.ended.is_none() {
            let timeout = self.clock.next(&[self.stdout.release_at(), self.stderr.release_at()]);
            let ready = self.wait(timeout, events::Interest::Everything)?;
            self.react(ready)?;
            self.keep_deadlines()?;
        }
        Ok(())
    }

    fn react(&mut self, ready: events::Ready) -> Result<(), Abort> {
        if ready.control {
            self.read_control()?;
            self.count_if_deserted();
        }
        self.relay(ready)?;
        if ready.signal {
            self.read_signals()?;
        }
        if ready.order {
            self.obey()?;
        }
        if ready.parent {
            self.cancel(Cancel::Hangup);
        }
        if ready.out_of_memory {
            self.out_of_memory()?;
        }
        if ready.call
            && let Some(live) = &mut self.running.live
            && let Err(error) = live.rise()
        {
            self.faults.push(error.to_string());
            self.unsupervised();
        }
        if ready.unsupervised {
            self.unsupervised();
        }
        if ready.event || ready.event_room {
            self.tell_events();
        }
        if ready.stdin {
            self.feed.pump();
        }
        if ready.stdin_room {
            self.feed.flush();
        }
        if ready.init {
            // Between the poll and here init may have spoken.
            self.read_control()?;
            self.ended = stockade_sys::wait_pidfd(std::os::fd::AsFd::as_fd(&self.running.pidfd))
                .map_err(|error| fault("the sandbox's end could not be read", &error))?;
        }
        Ok(())
    }

    /// Calls of the command would wait for ever.
    fn unsupervised(&mut self) {
        self.deaf = true;
        self.reason.get_or_insert(Reason::Unsupervised);
        self.kill();
    }

    fn relay(&mut self, ready: events::Ready) -> Result<(), Abort> {
        let broken = |error: std::io::Error| fault("the command's output could not be read", &error);
        if ready.stdout_room {
            self.stdout.flush();
        }
        if ready.stderr_room {
            self.stderr.flush();
        }
        if ready.stdout {
            let allowance = self.allowance();
            self.stdout.pump(&mut self.buffer, allowance).map_err(broken)?;
        }
        if ready.stderr {
            let allowance = self.allowance();
            self.stderr.pump(&mut self.buffer, allowance).map_err(broken)?;
        }
        let dropped = self.stdout.totals().dropped + self.stderr.totals().dropped;
        if dropped > 0 && self.reason.is_none() {
            self.reason = Some(Reason::Limit(LimitKind::OutputBytes));
            self.kill();
        }
        Ok(())
    }

    fn tell_events(&mut self) {
        if let Some(live) = &self.running.live {
            self.events.push(&live.ledger.lines());
        }
    }

    /// Output bytes that may still be passed on, both streams together.
    fn allowance(&self) -> u64 {
        let Some(limit) = self.plan.limits.output_bytes else {
            return u64::MAX;
        };
        let passed = |totals: StreamTotals| totals.bytes - totals.dropped;
        limit.saturating_sub(passed(self.stdout.totals()) + passed(self.stderr.totals()))
    }

    fn keep_deadlines(&mut self) -> Result<(), Abort> {
        let now = Instant::now();
        for relay in [&mut self.stdout, &mut self.stderr] {
            if relay.release_at().is_some_and(|at| at <= now) {
                relay.release();
            }
        }
        if self.clock.kill_is_due(now) {
            self.kill();
        }
        if self.reason.is_some() {
            return Ok(());
        }
        if self.clock.wall_is_over(now) {
            self.stop(Reason::TimedOut, SIGTERM);
        } else if !self.started && self.clock.setup_is_over(now) {
            self.reason = Some(Reason::SetupStalled);
            self.kill();
        } else if self.clock.cpu_check_is_due(now) {
            self.check_cpu()?;
        }
        Ok(())
    }

    /// What the tree used, and what was used for it. Without a cgroup the kernel counts each process by itself, and the
    /// walls' threads are one more.
    fn check_cpu(&mut self) -> Result<(), Abort> {
        let used = self.running.group.as_ref().map(crate::cgroup::Group::cpu_usage_us).transpose();
        let used = used.map_err(|error| fault("the CPU time used could not be read", &error))?.flatten();
        if self.clock.cpu_is_over(self.plan, Duration::from_micros(used.unwrap_or(0)) + self.used_for_it()) {
            self.stop(Reason::Limit(LimitKind::CpuSeconds), SIGTERM);
        }
        Ok(())
    }

    fn used_for_it(&self) -> Duration {
        self.running.live.as_ref().map(crate::live::Live::used).unwrap_or_default()
    }

    fn out_of_memory(&mut self) -> Result<(), Abort> {
        let Some(group) = &self.running.group else { return Ok(()) };
        let struck =
            group.oom_struck().map_err(|error| fault("the memory events could not be read", &error))?;
        if struck && self.reason.is_none() {
            self.reason = Some(Reason::OutOfMemory);
            self.kill();
        }
        Ok(())
    }
}

const SIGTERM: i32 = 15;
