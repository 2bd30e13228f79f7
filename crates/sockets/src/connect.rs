//! connect(socket, address, length).

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use stockade_proto::{Decision, SocketOperation};
use stockade_sys::notify;

use crate::address::{self, Named, STORAGE};
use crate::call::{Call, Owner, Subject};
use crate::decide::Address;
use crate::family::Family;
use crate::process::Process;
use crate::resolve::{self, Object};

/// What a name of an AF_UNIX socket was found to be.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    Object(Object),
    Abstract(&'a [u8]),
}

pub(crate) fn connect(call: &Call<'_>) -> Result<i64, Errno> {
    let (process, socket) = call.socket()?;
    let mut storage = [0; STORAGE];
    let length = call.address(call.arg(1), address::length(call.arg(2))?, &mut storage)?;
    let raw = storage.get(..length).unwrap_or_default();
    let as_is = || {
        let family = Family::of(&socket)?;
        family.may_connect(raw)?;
        if family == Family::Inet {
            call.pass(SocketOperation::Connect, rustix::net::sockopt::socket_type(&socket)?, raw);
        }
        call.check()?;
        call.wait(|| notify::connect(socket.as_fd(), raw))
    };
    let connected = match address::parse(raw) {
        Ok(named @ (Named::Path(_) | Named::Abstract(_))) => {
            match connect_unix(call, &process, &socket, (raw, named)) {
                // Any other family refuses such an address, and has its own word for that.
                Err(_) if Family::of(&socket)? != Family::Unix => {
                    call.forget_events();
                    as_is()
                }
                other => other,
            }
        }
        // Reaches nothing through an AF_UNIX socket.
        Ok(Named::Unnamed | Named::Unspecified) | Err(_) => as_is(),
    };
    connected.map(|()| 0)
}

fn connect_unix(
    call: &Call<'_>,
    process: &Process,
    socket: &OwnedFd,
    (raw, named): (&[u8], Named<'_>),
) -> Result<(), Errno> {
    let found = find(call, process, named, SocketOperation::Connect)?;
    reach(call, process, SocketOperation::Connect, &found, |owner| match &found {
        Found::Object(object) => {
            let address = object.address();
            call.wait_as(owner, || notify::connect(socket.as_fd(), address.as_slice()))
        }
        Found::Abstract(_) => call.wait_as(owner, || notify::connect(socket.as_fd(), raw)),
    })
}

/// The object that a path or an abstract name means to the caller.
pub(crate) fn find<'a>(
    call: &Call<'_>,
    process: &Process,
    named: Named<'a>,
    operation: SocketOperation,
) -> Result<Found<'a>, Errno> {
    match named {
        Named::Abstract(name) => Ok(Found::Abstract(name)),
        Named::Unnamed | Named::Unspecified => Err(Errno::INVAL),
        Named::Path(path) => match resolve::object(call, process, path) {
            Ok(object) => Ok(Found::Object(object)),
            Err(errno) => {
                if errno == Errno::ACCESS {
                    call.refuse(operation, path, "the path can't be followed for this process");
                }
                Err(errno)
            }
        },
    }
}

/// Decides on what was found, and performs; `perform` is told whose it is. The executor's own name is shown only
/// to a socket that a person allowed: what is merely recorded is reached as the command would reach it.
pub(crate) fn reach<T>(
    call: &Call<'_>,
    process: &Process,
    operation: SocketOperation,
    found: &Found<'_>,
    perform: impl FnOnce(Owner) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let (address, own) = match found {
        // Nothing to decide: the kernel refuses it, and with the right error.
        Found::Object(object) if !object.is_socket => {
            call.check()?;
            return perform(Owner::Execution);
        }
        Found::Object(object) => {
            let address = Address::Path { path: &object.path, dev: object.id.dev, ino: object.id.ino };
            (address, call.ground.own().has_file(&object.id))
        }
        Found::Abstract(name) => (Address::Abstract(name), call.ground.own().has_name(name)),
    };
    call.decided(process, &Subject { operation, address, own }, |decision| {
        perform(match (own, decision) {
            (false, Decision::Allow) => Owner::Other,
            (true, _) | (false, Decision::Audit | Decision::Deny) => Owner::Execution,
        })
    })
}
