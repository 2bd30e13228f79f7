//! One waiting call: what it asked for is copied, its socket taken, the rules asked, the answer made. The order
//! is copy, take, resolve, decide, check that it still waits, perform.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::SocketType;
use stockade_charge::Charge;
use stockade_proto::{Bytes, Decision, SocketOperation, UnixSocketOp};
use stockade_sys::notify::{self, Notification};

use crate::address::STORAGE;
use crate::decide::{Address, Asked, Decide, Outward, Transport, Witness};
use crate::family;
use crate::identity::Identity;
use crate::own::Own;
use crate::post::Post;
use crate::process::{Opened, Process, Processes};
use crate::queued::Queued;
use crate::{bind, connect, listen, process, send};

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

type Perform = fn(&Call<'_>) -> Result<i64, Errno>;

/// The calls that the filter makes wait, by their number on x86_64.
const CALLS: [(i32, Perform); 6] = [
    (42, connect::connect),
    (44, send::sendto),
    (46, send::sendmsg),
    (49, bind::bind),
    (50, listen::listen),
    (307, send::sendmmsg),
];

/// What all threads of one supervisor share.
pub(crate) struct Ground {
    pub(crate) listener: OwnedFd,
    /// `/proc`, and our own `fd` in it.
    pub(crate) proc: OwnedFd,
    pub(crate) descriptors: Arc<OwnedFd>,
    pub(crate) execution: String,
    pub(crate) decide: Arc<dyn Decide>,
    pub(crate) witness: Arc<dyn Witness>,
    pub(crate) charge: Arc<Charge>,
    pub(crate) identity: Option<Identity>,
    /// The supervisor's own network namespace, if the kernel told its cookie.
    pub(crate) network: Option<u64>,
    pub(crate) landlock: Option<OwnedFd>,
    pub(crate) processes: Mutex<Processes>,
    pub(crate) own: Mutex<Own>,
    pub(crate) queued: Mutex<Queued>,
    /// Descriptors held for SCM_RIGHTS by calls that have not ended.
    pub(crate) passing: AtomicUsize,
}

impl Ground {
    pub(crate) fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn processes(&self) -> MutexGuard<'_, Processes> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rust's errors as the kernel's. One that has no number was made by a conversion of ours: a bad argument.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::INVAL)
}

pub(crate) struct Call<'a> {
    pub(crate) ground: &'a Ground,
    pub(crate) note: &'a Notification,
    pub(crate) post: &'a Post,
    events: RefCell<Vec<UnixSocketOp>>,
    outward: RefCell<Vec<Outward>>,
}

/// Performs a call and answers it, then tells what was decided.
pub(crate) fn serve(ground: &Ground, note: &Notification, post: &Post) -> io::Result<()> {
    let call = Call { ground, note, post, events: RefCell::default(), outward: RefCell::default() };
    let perform = CALLS.iter().find(|(number, _)| *number == note.number && note.arch == AUDIT_ARCH_X86_64);
    let result = match perform {
        Some((_, perform)) => perform(&call),
        None => Err(Errno::NOSYS),
    };
    let answered =
        notify::answer(ground.listener.as_fd(), note.id, result.map_err(|errno| errno.raw_os_error()));
    for event in call.events.into_inner() {
        ground.witness.saw(event);
    }
    for outward in call.outward.into_inner() {
        ground.witness.saw_outward(outward);
    }
    match answered {
        // It was killed meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Who bound the socket that a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Execution,
    Other,
}

/// What the rules are asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) operation: SocketOperation,
    pub(crate) address: Address<'a>,
    pub(crate) own: bool,
}

impl Call<'_> {
    pub(crate) fn arg(&self, at: usize) -> u64 {
        self.note.args.get(at).copied().unwrap_or(0)
    }

    /// An `int` argument: the lower half of the register.
    pub(crate) fn int(&self, at: usize) -> i32 {
        let [a, b, c, d, ..] = self.arg(at).to_le_bytes();
        i32::from_le_bytes([a, b, c, d])
    }

    /// Notes where a call of the families of the internet leads.
    pub(crate) fn pass(&self, operation: SocketOperation, kind: SocketType, name: &[u8]) {
        let transport = match kind {
            SocketType::STREAM => Transport::Tcp,
            SocketType::DGRAM => Transport::Udp,
            _ => return,
        };
        if let Some(address) = family::outward(name) {
            self.outward.borrow_mut().push(Outward { operation, transport, address });
        }
    }

    /// The caller, and the socket behind the number in its first argument.
    pub(crate) fn socket(&self) -> Result<(Arc<Process>, OwnedFd), Errno> {
        let (tid, number) = (self.note.tid, self.int(0));
        if number < 0 {
            return Err(Errno::BADF);
        }
        let known = self.ground.processes().find(tid);
        if let Some(process) = known {
            match process.take(number) {
                Err(Errno::SRCH) => self.ground.processes().forget(tid),
                taken => return Ok((process, self.allowed(taken)?)),
            }
        }
        let opened = process::open(self.ground.proc.as_fd(), tid)?;
        self.check()?;
        let process = match opened {
            Opened::Thread(process) => {
                let process = Arc::new(process);
                self.ground.processes().remember(Arc::clone(&process));
                process
            }
            Opened::Process(process) => Arc::new(process),
        };
        let taken = process.take(number);
        Ok((process, self.allowed(taken)?))
    }

    /// EPERM here is about us: the caller made itself unreadable.
    fn allowed(&self, taken: Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
        taken.map_err(|errno| match errno {
            Errno::PERM | Errno::ACCESS => self.unreadable(),
            other => other,
        })
    }

    /// Denied before any rule was asked.
    fn unreadable(&self) -> Errno {
        let why = "the process does not let itself be read";
        let operation = match self.note.number {
            42 => SocketOperation::Connect,
            49 => SocketOperation::Bind,
            50 => SocketOperation::Listen,
            _ => SocketOperation::Send,
        };
        let subject = Subject { operation, address: Address::Abstract(b""), own: false };
        self.tell(&subject, Decision::Deny, None, Some(why.to_owned()), None);
        Errno::ACCESS
    }

    /// Copies the caller's memory, once. What can't be read is what the kernel calls a bad address.
    pub(crate) fn copy(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        notify::read_memory_all(self.note.tid, address, into).map_err(|error| self.unread(&error))
    }

    pub(crate) fn unread(&self, error: &io::Error) -> Errno {
        match errno(error) {
            Errno::PERM | Errno::ACCESS => self.unreadable(),
            _ => Errno::FAULT,
        }
    }

    /// The bytes of an address argument.
    pub(crate) fn address(
        &self,
        pointer: u64,
        length: usize,
        into: &mut [u8; STORAGE],
    ) -> Result<usize, Errno> {
        self.copy(pointer, into.get_mut(..length).ok_or(Errno::INVAL)?)?;
        Ok(length)
    }

    /// Everything opened or read by number up to here was the caller's. The answer to nobody is ESRCH.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        if notify::still_waits(self.ground.listener.as_fd(), self.note.id) {
            Ok(())
        } else {
            Err(Errno::SRCH)
        }
    }

    /// Before a call that may be long goes on: waits until what was used is paid for, or the call is to end. Not with a
    /// lock held.
    pub(crate) fn pay(&self) {
        self.ground.charge.pass(|| self.post.reason().is_some());
    }

    /// Whether it may go on.
    pub(crate) fn go_on(&self) -> Result<(), Errno> {
        self.post.reason().map_or(Ok(()), |reason| Err(reason.errno()))
    }

    /// Performs something that may block, as the sandbox's user.
    pub(crate) fn wait<T>(&self, perform: impl FnMut() -> io::Result<T>) -> Result<T, Errno> {
        self.wait_as(Owner::Execution, perform)
    }

    /// Performs something that does not block, and must be known once what came before it is done.
    pub(crate) fn at_once_as<T>(
        &self,
        owner: Owner,
        perform: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, Errno> {
        if let Some(identity) = self.ground.identity {
            identity.show(owner)?;
        }
        perform().map_err(|error| errno(&error))
    }

    /// Performs towards a socket of this execution as the sandbox's user, towards others as the executor.
    /// Interrupted for a reason it ends, otherwise it goes on.
    pub(crate) fn wait_as<T>(
        &self,
        owner: Owner,
        mut perform: impl FnMut() -> io::Result<T>,
    ) -> Result<T, Errno> {
        if let Some(identity) = self.ground.identity {
            identity.show(owner)?;
        }
        loop {
            self.go_on()?;
            match perform().map_err(|error| errno(&error)) {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// Asks the rules, checks that the call still waits, and performs it; `perform` is told whether it was allowed
    /// or only not denied.
    pub(crate) fn decided<T>(
        &self,
        process: &Process,
        subject: &Subject<'_>,
        perform: impl FnOnce(Decision) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Subject { operation, address, own } = *subject;
        let verdict = self.ground.decide.decide(&Asked { operation, address, own });
        match verdict.decision {
            Decision::Deny => {
                self.tell(subject, Decision::Deny, verdict.rule, None, None);
                Err(Errno::ACCESS)
            }
            Decision::Allow | Decision::Audit => {
                self.check()?;
                let result = perform(verdict.decision);
                let detail = result.as_ref().err().map(ToString::to_string);
                let comm =
                    (verdict.decision == Decision::Allow).then(|| process.comm(self.ground.proc.as_fd()));
                self.tell(subject, verdict.decision, verdict.rule, detail, comm);
                result
            }
        }
    }

    /// Denies without a rule, because what was asked for can't be decided on.
    pub(crate) fn refuse(&self, operation: SocketOperation, path: &[u8], why: &str) {
        let subject = Subject { operation, address: Address::Path { path, dev: 0, ino: 0 }, own: false };
        self.tell(&subject, Decision::Deny, None, Some(why.to_owned()), None);
    }

    /// What was decided was not about a socket that the rules are for.
    pub(crate) fn forget_events(&self) {
        self.events.borrow_mut().clear();
    }

    fn tell(
        &self,
        subject: &Subject<'_>,
        decision: Decision,
        rule: Option<String>,
        detail: Option<String>,
        comm: Option<Bytes>,
    ) {
        let (path, is_abstract) = match subject.address {
            Address::Path { path, .. } => (path, false),
            Address::Abstract(name) => (name, true),
        };
        self.events.borrow_mut().push(UnixSocketOp {
            execution: self.ground.execution.clone(),
            operation: subject.operation,
            path: Bytes::from(path),
            is_abstract,
            decision,
            rule,
            detail,
            pid: self.note.tid,
            comm: comm.unwrap_or_else(|| process::comm(self.ground.proc.as_fd(), self.note.tid)),
        });
    }
}
