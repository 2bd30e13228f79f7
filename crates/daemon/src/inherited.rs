//! Listening sockets that systemd made and passes on: a Unix socket for the socket door, a TCP one for HTTP.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use rustix::net::{AddressFamily, sockopt};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

#[derive(Debug, Default)]
pub struct Inherited {
    pub socket: Option<OwnedFd>,
    pub http: Option<OwnedFd>,
}

#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    #[error("what systemd says about passed sockets can't be read")]
    Said(#[source] io::Error),
    #[error("descriptor {number}, which systemd passed, can't be taken")]
    Take { number: RawFd, source: io::Error },
    #[error("systemd passed two sockets for the {door} door: one is enough")]
    Twice { door: &'static str },
    #[error("descriptor {number}, which systemd passed, is neither a Unix nor a TCP socket")]
    Unknown { number: RawFd },
}

impl Inherited {
    /// What was passed to this very process. Before anything is opened: the numbers say which.
    pub fn receive() -> Result<Self, InheritError> {
        let mut inherited = Self::default();
        for number in sd_notify::listen_fds().map_err(InheritError::Said)? {
            let fd = take(number).map_err(|source| InheritError::Take { number, source })?;
            let family = sockopt::socket_domain(&fd);
            let (slot, door) = match family {
                Ok(AddressFamily::UNIX) => (&mut inherited.socket, "socket"),
                Ok(AddressFamily::INET | AddressFamily::INET6) => (&mut inherited.http, "HTTP"),
                Ok(_) | Err(_) => return Err(InheritError::Unknown { number }),
            };
            if slot.replace(fd).is_some() {
                return Err(InheritError::Twice { door });
            }
        }
        Ok(inherited)
    }
}

/// A descriptor of our own for what `number` is. That one stays, and no child inherits it.
fn take(number: RawFd) -> io::Result<OwnedFd> {
    let ourselves = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(&ourselves, number, PidfdGetfdFlags::empty())?)
}
