//! From what the kernel and init said to one outcome. Nothing is guessed from an errno or from text.

use std::time::{Duration, Instant};

use stockade_launch::Stage;
use stockade_proto::{Bytes, LimitKind, Outcome, Usage};
use stockade_sys::{Ended, Rusage};

use super::{Reason, Supervised, Supervisor, Word};
use crate::Abort;
use crate::cgroup::Counters;
use crate::spawn::{Remains, refuse_spawn};

const SIGKILL: u8 = 9;
const SIGXCPU: u8 = 24;
const SIGXFSZ: u8 = 25;

/// A wait status as `wait4` gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Exited(u8),
    Signaled(u8),
}

fn decode(status: i32) -> Status {
    let signal = u8::try_from(status & 0x7f).unwrap_or(0);
    if signal == 0 {
        Status::Exited(u8::try_from((status >> 8) & 0xff).unwrap_or(0))
    } else {
        Status::Signaled(signal)
    }
}

impl Supervisor<'_> {
    /// Nobody but init is left in its PID namespace, and it is ending. The kernel takes its time to take that apart.
    pub(super) fn count_if_deserted(&mut self) {
        if self.running.has_pid_namespace && matches!(self.word, Some(Word::Ended { leaked: 0, .. })) {
            self.counters = Some(self.counted());
        }
    }

    fn counted(&mut self) -> Counters {
        match self.running.group.as_ref().map(crate::cgroup::Group::counters) {
            Some(Ok(counters)) => counters,
            Some(Err(error)) => {
                self.faults.push(format!("the cgroup's counters could not be read: {error}"));
                Counters::default()
            }
            None => Counters::default(),
        }
    }

    pub(super) fn conclude(mut self, begun: Instant) -> Supervised {
        let counters = self.counters.take().unwrap_or_else(|| self.counted());
        self.counts_cpu = self.running.group.is_some();
        self.release_group();
        let mut seen = self.running.live.as_mut().map(crate::live::Live::end).unwrap_or_default();
        self.release_network(seen.found);
        self.faults.append(&mut seen.faults);
        self.tell_events();
        self.events.finish();
        let rusage = self.ended.map(|(_, rusage)| rusage).unwrap_or_default();
        let leaked_descendants = match &self.word {
            Some(Word::Ended { leaked, .. }) => *leaked,
            Some(Word::Failed { .. }) | None => 0,
        };
        let mut limits_hit = Vec::new();
        if counters.pids_max_hits > 0 {
            limits_hit.push(LimitKind::Processes);
        }
        let outcome = self.outcome(&counters);
        if let Outcome::Limit { which } = &outcome
            && !limits_hit.contains(which)
        {
            limits_hit.push(*which);
        }
        let failures = [
            ("stdout", self.stdout.failure()),
            ("stderr", self.stderr.failure()),
            ("events", self.events.failure()),
        ];
        let lost_output = failures
            .into_iter()
            .find_map(|(name, errno)| errno.map(|errno| format!("{name} could not be written: {errno}")));
        (self.running.stdout, self.running.stderr) = (self.stdout.spent(), self.stderr.spent());
        Supervised {
            started: self.started,
            lost_output,
            outcome,
            usage: usage(&counters, rusage, self.used_for_it(), begun),
            stdout: self.stdout.totals(),
            stderr: self.stderr.totals(),
            leaked_descendants,
            limits_hit,
            seen,
            cleanup_faults: self.faults,
            remains: Remains::of(self.running, counters.memory_peak_bytes),
        }
    }

    /// A host that does not give init its namespaces is one that we refuse to run on, as if they had been made with init.
    pub(super) fn refused(&self) -> Option<Abort> {
        match &self.word {
            Some(Word::Failed { stage: Stage::Namespaces, errno, .. }) if self.reason.is_none() => {
                Some(refuse_spawn(&std::io::Error::from_raw_os_error(*errno)))
            }
            Some(Word::Failed { .. } | Word::Ended { .. }) | None => None,
        }
    }

    fn outcome(&self, counters: &Counters) -> Outcome {
        if let Some(Word::Failed { stage, errno, subject }) = &self.word
            && self.reason.is_none()
        {
            return launch_failed(self.plan, *stage, *errno, subject);
        }
        match &self.reason {
            Some(Reason::TimedOut) => return Outcome::TimedOut,
            Some(Reason::Cancelled(by)) => return Outcome::Cancelled { by: *by },
            Some(Reason::OutOfMemory) => return Outcome::OomKilled,
            Some(Reason::Limit(which)) => return Outcome::Limit { which: *which },
            Some(Reason::Unsupervised) => {
                return Outcome::Lost {
                    message: "the supervisor of sockets failed, so the command was ended".to_owned(),
                };
            }
            Some(Reason::SetupStalled) => {
                return Outcome::LaunchFailed {
                    stage: Stage::Receive.name().to_owned(),
                    errno: 0,
                    message: "the sandbox was not ready within 60 seconds".to_owned(),
                };
            }
            None => {}
        }
        match &self.word {
            Some(Word::Ended { status, .. }) => self.ended(decode(*status), counters),
            // Init itself died: the kernel's group kill takes it along.
            _ if counters.oom_kills > 0 => Outcome::OomKilled,
            _ => Outcome::Lost { message: self.how_init_died() },
        }
    }

    fn ended(&self, status: Status, counters: &Counters) -> Outcome {
        let limits = &self.plan.limits;
        match status {
            Status::Exited(0) => Outcome::Exited { code: 0 },
            Status::Signaled(SIGKILL) | Status::Exited(_) if counters.oom_kills > 0 => Outcome::OomKilled,
            Status::Signaled(SIGXFSZ) if limits.file_size_bytes.is_some() => {
                Outcome::Limit { which: LimitKind::FileSize }
            }
            // With a cgroup we count ourselves, and the resource limit is not set.
            Status::Signaled(SIGXCPU) if limits.cpu_seconds.is_some() && !self.counts_cpu => {
                Outcome::Limit { which: LimitKind::CpuSeconds }
            }
            Status::Exited(_) | Status::Signaled(_) if counters.pids_max_hits > 0 => {
                Outcome::Limit { which: LimitKind::Processes }
            }
            Status::Exited(code) => Outcome::Exited { code },
            Status::Signaled(signal) => Outcome::Signaled { signal },
        }
    }

    fn how_init_died(&self) -> String {
        match self.ended {
            Some((Ended::Killed(signal), _)) => format!("the sandbox's init was killed by signal {signal}"),
            Some((Ended::Exited(code), _)) => {
                format!("the sandbox's init ended with code {code} and no word")
            }
            None => "the sandbox's init is gone".to_owned(),
        }
    }
}

/// What was used for the tree outside of it is the work of its system calls.
fn usage(counters: &Counters, rusage: Rusage, for_it: Duration, begun: Instant) -> Usage {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let system = counters.cpu_system_us.map_or(rusage.system, Duration::from_micros);
    Usage {
        wall_ms: millis(begun.elapsed()),
        cpu_user_ms: counters.cpu_user_us.map_or_else(|| millis(rusage.user), |us| us / 1000),
        cpu_system_ms: millis(system.saturating_add(for_it)),
        memory_peak_bytes: counters.memory_peak_bytes.unwrap_or(rusage.max_rss_bytes),
    }
}

/// One sentence from a stage, an errno and what it was about.
fn launch_failed(plan: &stockade_proto::Plan, stage: Stage, errno: i32, subject: &[u8]) -> Outcome {
    let error = std::io::Error::from_raw_os_error(errno);
    let message = if stage == Stage::Exec && subject.is_empty() {
        exec_sentence(plan, errno, &error)
    } else if stage == Stage::Order && !subject.is_empty() {
        // Its walls were built before its command came.
        let place = Bytes::from(subject);
        format!(
            "{place} was replaced or can't be seen any more while the sandbox waited: run the command again"
        )
    } else {
        let about = if subject.is_empty() { String::new() } else { format!(" ({})", Bytes::from(subject)) };
        format!("could not {}{about}: {error}", stage.meaning())
    };
    Outcome::LaunchFailed { stage: stage.name().to_owned(), errno, message }
}

fn exec_sentence(plan: &stockade_proto::Plan, errno: i32, error: &std::io::Error) -> String {
    const ENOENT: i32 = 2;
    const E2BIG: i32 = 7;
    const ENOEXEC: i32 = 8;
    const EACCES: i32 = 13;
    const EISDIR: i32 = 21;
    let command = plan.command.argv.first().cloned().unwrap_or_default();
    match errno {
        ENOENT if command.as_slice().contains(&b'/') => format!(
            "{command}: no such file inside the sandbox, or the interpreter that it names is not there"
        ),
        ENOENT => format!("{command}: command not found on the sandbox's PATH"),
        EACCES | EISDIR => {
            format!("{command}: not an executable file (check its mode, and that it is not a directory)")
        }
        ENOEXEC => format!(
            "{command}: not a program for this machine; if it is a script, give it a first line such as #!/bin/sh"
        ),
        E2BIG => format!("{command}: the arguments and the environment together exceed the kernel's limit"),
        _ => format!("{command}: {error}"),
    }
}
