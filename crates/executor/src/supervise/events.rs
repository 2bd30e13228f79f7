//! What the loop waits for, and the two ways of ending a tree: stop (ask) and kill (force).

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use stockade_launch::{FromInit, MAX_MESSAGE, Offer, ToInit};
use stockade_proto::{Cancel, SocketPlan};
use stockade_sys::Signal;

use super::orders::{Heard, Order};
use super::{DRAIN, GONE, OnStart, Reason, Supervisor, Word, fault};
use crate::Abort;
use crate::cgroup::Group;
use crate::spawn::take_offered;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    Everything,
    /// The tree is dead: only what is left in the pipes.
    Streams,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ready {
    pub(super) init: bool,
    pub(super) control: bool,
    pub(super) signal: bool,
    pub(super) parent: bool,
    pub(super) order: bool,
    pub(super) out_of_memory: bool,
    pub(super) stdout: bool,
    pub(super) stdout_room: bool,
    pub(super) stderr: bool,
    pub(super) stderr_room: bool,
    pub(super) stdin: bool,
    pub(super) stdin_room: bool,
    pub(super) call: bool,
    pub(super) unsupervised: bool,
    pub(super) event: bool,
    pub(super) event_room: bool,
}

const KILL_AGAIN: Duration = Duration::from_millis(200);

fn timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: duration.subsec_nanos().into() }
}

impl Supervisor<'_> {
    pub(super) fn wait(&self, timeout: Option<Duration>, interest: Interest) -> Result<Ready, Abort> {
        let everything = interest == Interest::Everything;
        let group = self.running.group.as_ref();
        type Slot = fn(&mut Ready) -> &mut bool;
        let live = self.running.live.as_ref().filter(|_| everything);
        let heard = live.filter(|_| !self.deaf);
        let (stdin_pipe, stdin_wait) = self.feed.pipe();
        let table: [(Option<BorrowedFd<'_>>, PollFlags, Slot); 16] = [
            (everything.then(|| self.running.pidfd.as_fd()), PollFlags::IN, |ready| &mut ready.init),
            (
                // After its last word init says nothing but that it is gone.
                (everything && self.control_open && self.word.is_none())
                    .then(|| self.running.control.as_fd()),
                PollFlags::IN,
                |ready| &mut ready.control,
            ),
            (self.watch.signals.as_ref().filter(|_| everything).map(AsFd::as_fd), PollFlags::IN, |ready| {
                &mut ready.signal
            }),
            (
                self.watch.parent.as_ref().filter(|_| everything && self.reason.is_none()).map(AsFd::as_fd),
                PollFlags::IN,
                |ready| &mut ready.parent,
            ),
            (
                self.watch.orders.as_ref().filter(|_| everything && self.orders_open).map(AsFd::as_fd),
                PollFlags::IN,
                |ready| &mut ready.order,
            ),
            (group.filter(|_| everything).and_then(crate::cgroup::Group::oom_fd), PollFlags::IN, |ready| {
                &mut ready.out_of_memory
            }),
            (self.stdout.source(), PollFlags::IN, |ready| &mut ready.stdout),
            (self.stdout.blocked_sink(), PollFlags::OUT, |ready| &mut ready.stdout_room),
            (self.stderr.source(), PollFlags::IN, |ready| &mut ready.stderr),
            (self.stderr.blocked_sink(), PollFlags::OUT, |ready| &mut ready.stderr_room),
            (self.feed.source().filter(|_| everything), PollFlags::IN, |ready| &mut ready.stdin),
            (stdin_pipe.filter(|_| everything), stdin_wait, |ready| &mut ready.stdin_room),
            (heard.and_then(crate::live::Live::asleep), PollFlags::IN, |ready| &mut ready.call),
            (heard.and_then(crate::live::Live::failed), PollFlags::IN, |ready| &mut ready.unsupervised),
            (
                live.filter(|_| self.events.wants_more()).map(|live| live.ledger.wake()),
                PollFlags::IN,
                |ready| &mut ready.event,
            ),
            (self.events.blocked_sink(), PollFlags::OUT, |ready| &mut ready.event_room),
        ];
        let mut fds = Vec::with_capacity(table.len());
        let mut slots = Vec::with_capacity(table.len());
        for (fd, flags, slot) in table {
            if let Some(fd) = fd {
                fds.push(PollFd::from_borrowed_fd(fd, flags));
                slots.push(slot);
            }
        }
        match poll(&mut fds, timeout.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(fault("waiting for the sandbox failed", &errno)),
        }
        let mut ready = Ready::default();
        for (fd, slot) in fds.iter().zip(slots) {
            *slot(&mut ready) = !fd.revents().is_empty();
        }
        Ok(ready)
    }

    /// Everything init has said so far: its last word may come together with its end.
    pub(super) fn read_control(&mut self) -> Result<(), Abort> {
        let mut packet = [0; MAX_MESSAGE];
        while self.control_open {
            let length = match recv(&self.running.control, &mut packet, RecvFlags::DONTWAIT) {
                Ok((_, length)) => length,
                Err(Errno::AGAIN) => break,
                // A reset comes before what init had said: it left without reading our last message.
                Err(Errno::INTR | Errno::CONNRESET) => continue,
                Err(errno) => return Err(fault("the sandbox's init can't be heard", &errno)),
            };
            match FromInit::decode(&packet[..length]) {
                Some(FromInit::Started) => {
                    self.started = true;
                    self.clock.started();
                    if let Some(OnStart(tell)) = self.watch.at_start {
                        tell();
                    }
                }
                Some(FromInit::Offered { what, fds }) => {
                    let fds: Vec<i32> = fds.iter().collect();
                    self.take(what, &fds)?;
                }
                Some(FromInit::Failed { stage, errno, subject }) => {
                    self.word = Some(Word::Failed { stage, errno, subject: subject.to_vec() });
                }
                Some(FromInit::Ended { status, leaked }) => self.word = Some(Word::Ended { status, leaked }),
                // The end of the stream, or nothing that our init would say: never listen again.
                Some(FromInit::Born { .. } | FromInit::Done) | None => self.control_open = false,
            }
        }
        Ok(())
    }

    /// Starts what init's descriptors are for, and lets init go on.
    fn take(&mut self, what: Offer, numbers: &[i32]) -> Result<(), Abort> {
        let fds = match take_offered(&self.running.pidfd, numbers) {
            Ok(fds) => fds,
            // It was ended meanwhile; the outcome says why.
            Err(Errno::SRCH) => return Ok(()),
            // A signal that came while it waited for our answer made it give up.
            Err(Errno::BADF) if self.reason.is_some() => return Ok(()),
            Err(errno) => return Err(fault("what the sandbox's init offers can't be taken", &errno)),
        };
        if let Some(live) = &mut self.running.live {
            live.take(self.plan, what, fds)?;
        }
        match send(&self.running.control, &ToInit::Taken.encode(), SendFlags::NOSIGNAL) {
            // An init that is gone is noticed by its pidfd.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(super) fn read_signals(&mut self) -> Result<(), Abort> {
        let Some(signals) = &self.watch.signals else { return Ok(()) };
        let signal = signals.read().map_err(|error| fault("signals can't be read", &error))?;
        match signal {
            Some(Signal::Interrupt | Signal::Quit) => self.cancel(Cancel::Interrupt),
            Some(Signal::Terminate) => self.cancel(Cancel::Terminate),
            Some(Signal::Hangup) => self.cancel(Cancel::Hangup),
            Some(Signal::WindowChange) | None => {}
        }
        Ok(())
    }

    /// One order; the next one is heard at the next turn.
    pub(super) fn obey(&mut self) -> Result<(), Abort> {
        let Some(orders) = &self.watch.orders else { return Ok(()) };
        match orders.hear().map_err(|errno| fault("orders can't be heard", &errno))? {
            Heard::Order(Order::Stop(by)) if self.reason.is_none() => self.cancel(by),
            Heard::Order(Order::Stop(_)) | Heard::Nothing => {}
            Heard::Order(Order::Kill) => self.end_now(),
            Heard::Closed => {
                self.orders_open = false;
                self.end_now();
            }
        }
        Ok(())
    }

    fn end_now(&mut self) {
        self.reason.get_or_insert(Reason::Cancelled(Cancel::Hangup));
        self.kill();
    }

    /// Once: stop. Twice: the person means it.
    pub(super) fn cancel(&mut self, by: Cancel) {
        if self.reason.is_some() {
            self.kill();
            return;
        }
        let signal = match by {
            Cancel::Interrupt => Signal::Interrupt,
            Cancel::Terminate => Signal::Terminate,
            Cancel::Hangup => Signal::Hangup,
        };
        self.stop(Reason::Cancelled(by), signal.number());
    }

    /// Asks the whole tree to end, and starts the grace.
    pub(super) fn stop(&mut self, reason: Reason, signal: i32) {
        self.reason.get_or_insert(reason);
        self.clock.begin_grace(self.plan);
        // Init reads it once the command runs, however early it is sent.
        match send(
            &self.running.control,
            &ToInit::Signal(signal).encode(),
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        ) {
            // An init that can't be told is one that is ending.
            Ok(_) | Err(_) => {}
        }
    }

    /// Ends the whole tree: PID 1 takes its namespace along; without one, init and the cgroup do it.
    pub(super) fn kill(&mut self) {
        if self.running.has_pid_namespace {
            match rustix::process::pidfd_send_signal(&self.running.pidfd, rustix::process::Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => self.faults.push(format!("the sandbox's init could not be killed: {errno}")),
            }
        } else {
            // Its end of the socket closes: init kills its children until there are none.
            match rustix::net::shutdown(&self.running.control, rustix::net::Shutdown::Write) {
                Ok(()) | Err(_) => {}
            }
        }
        if let Some(group) = &self.running.group
            && let Err(error) = group.kill()
        {
            self.faults.push(format!("the cgroup could not be killed: {error}"));
        }
        self.clock.killed(KILL_AGAIN);
    }

    /// The tree is dead; what it wrote before is still in the pipes.
    pub(super) fn drain(&mut self) -> Result<(), Abort> {
        if self.stdout.is_done() && self.stderr.is_done() {
            return Ok(());
        }
        let mut deadline = Instant::now() + DRAIN;
        while !(self.stdout.is_done() && self.stderr.is_done()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.stdout.close();
                self.stderr.close();
                // A reader that is slow gets what was promised; one that is gone closes its end.
                if self.stdout.blocked_sink().is_none() && self.stderr.blocked_sink().is_none() {
                    break;
                }
                deadline = Instant::now() + DRAIN;
                if self.clock.reader_gave_up(self.plan) {
                    break;
                }
            }
            let before = self.stdout.totals().bytes + self.stderr.totals().bytes;
            let ready = self.wait(Some(left), Interest::Streams)?;
            self.relay(ready)?;
            if self.stdout.totals().bytes + self.stderr.totals().bytes > before
                || ready.stdout_room
                || ready.stderr_room
            {
                deadline = Instant::now() + DRAIN;
            }
        }
        Ok(())
    }

    /// Ends everything without an outcome.
    pub(super) fn abandon(&mut self) {
        self.kill();
        let mut pidfd = [PollFd::from_borrowed_fd(self.running.pidfd.as_fd(), PollFlags::IN)];
        match poll(&mut pidfd, Some(&timespec(GONE))) {
            Ok(_) | Err(_) => {}
        }
        // Reaped, or it would hold its group.
        match stockade_sys::wait_pidfd(self.running.pidfd.as_fd()) {
            Ok(_) | Err(_) => {}
        }
        if let Some(group) = self.emptied_group() {
            self.leave(group);
        }
        if let Some(live) = &mut self.running.live {
            // There is no result to put what it saw into.
            drop(live.end());
        }
    }

    /// It is kept for another sandbox if nobody can have kept anything of it: init is gone, with everybody in its PID
    /// namespace, and no descriptor can have been handed to anybody else.
    pub(super) fn release_network(&mut self, found: bool) {
        let alone = !found && self.plan.sockets.as_ref().is_some_and(SocketPlan::stays_inside);
        if !alone || self.ended.is_none() {
            self.running.network = None;
        }
    }

    /// The group must be empty and gone, whatever the outcome. One that may be used again is looked at later.
    pub(super) fn release_group(&mut self) {
        let Some(group) = self.emptied_group() else { return };
        if group.may_be_kept() {
            self.running.group = Some(group);
        } else {
            self.leave(group);
        }
    }

    /// With nobody in it, whatever that takes.
    fn emptied_group(&mut self) -> Option<Group> {
        let group = self.running.group.take()?;
        if !matches!(group.is_over(), Ok(true)) {
            if let Err(error) = group.kill() {
                self.faults.push(format!("the cgroup could not be killed: {error}"));
            }
            match group.wait_empty(Instant::now() + GONE) {
                Ok(true) => {}
                Ok(false) => self.faults.push("processes of the execution could not be killed".to_owned()),
                Err(error) => self.faults.push(format!("the cgroup could not be examined: {error}")),
            }
        }
        Some(group)
    }

    fn leave(&mut self, group: Group) {
        if let Err(error) = group.leave() {
            self.faults.push(format!("the cgroup could not be removed: {error}"));
        }
    }
}
