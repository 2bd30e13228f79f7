//! Decides what a sandboxed command may do with AF_UNIX sockets, call by call. A seccomp filter makes connect,
//! bind, listen and every send with an address wait here; the supervisor copies the arguments once, takes the
//! socket itself, resolves the address, asks [`Decide`], performs the call with its own copy and answers
//! with the result. It never lets a call continue: the arguments could be others by then.
//!
//! One line per call: `crew` receives, `call` copies and takes, `address` and `resolve` find the object,
//! `connect`, `bind`, `listen` and `send` decide and perform.
//!
//! What a program inside can notice:
//! - `SO_PEERCRED`, `SCM_CREDENTIALS` of `SO_PASSCRED` and `SO_PEERPIDFD` show the supervisor's process; the user
//!   is the sandbox's, or the executor's towards a socket of the host.
//! - Sending `SCM_CREDENTIALS` is EPERM: the kernel would show the supervisor's process all the same.
//! - A path through a magic link (`/proc/PID/fd`, `/proc/PID/root`) is EACCES; `/proc/self` is ENOENT, as it
//!   means the process that resolves it.
//! - A message is at most 1 MiB, its control part 64 KiB. MSG_FASTOPEN is EOPNOTSUPP, MSG_ZEROCOPY on an inet
//!   socket ENOBUFS. More than 128 calls of one execution that block at the same time are ENOBUFS.
//! - On inet sockets a message may carry IP_PKTINFO, IP_TOS, IP_TTL, UDP_SEGMENT and their like for IPv6, other options
//!   are EPERM. In a network namespace of its own, binding a port below 1024 is EACCES.
//! - Over netlink (NETLINK_ROUTE) only the kernel is reached, and only asked: what would change something is
//!   EPERM from the call itself, and so is RTM_GETNSID.
//! - Landlock rules that a program set on itself do not hold for calls made here.
//! - While the supervisor has used more CPU time than the execution's share, calls wait, and sendmmsg sends fewer messages
//!   than it was given.
//! - A thread whose call blocks here can be killed, but not stopped or frozen, before the call ends.
//! - A socket whose file did not come to be where it was decided (a link was swapped meanwhile) is shut down, its file
//!   removed, and bind is EACCES. A bound socket that the supervisor did not see bound can't listen.
//! - An abstract name is its own for as long as the execution lasts. In a network namespace that is shared with
//!   the host, someone else could take the name once it is free.
//! - Before Linux 6.9, a thread that has a descriptor table of its own is looked up in its process's.

mod address;
mod bind;
mod call;
mod connect;
mod control;
mod crew;
mod decide;
mod diag;
mod family;
mod identity;
mod listen;
mod message;
mod own;
mod post;
mod process;
mod queued;
mod resolve;
mod send;
mod status;
mod supervisor;

pub use decide::{Address, Asked, Decide, Outward, Transport, Verdict, Witness};
pub use diag::diagnosis;
pub use supervisor::{Config, Prepared, Sandbox, StartError, StopError, Supervisor};
