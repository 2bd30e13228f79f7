//! listen(socket, backlog): decided on what the socket is bound to.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::SocketType;
use stockade_proto::SocketOperation;
use stockade_sys::notify;

use crate::address::{self, Named};
use crate::call::{Call, Subject, errno};
use crate::decide::Address;
use crate::family::Family;

pub(crate) fn listen(call: &Call<'_>) -> Result<i64, Errno> {
    let (process, socket) = call.socket()?;
    let backlog = call.int(1);
    let perform = || call.wait(|| notify::listen(socket.as_fd(), backlog)).map(|()| 0);
    if Family::of(&socket)? != Family::Unix {
        call.check()?;
        return perform();
    }
    let (name, length) = notify::local_name(socket.as_fd()).map_err(|error| errno(&error))?;
    let name = name.get(..length).unwrap_or_default();
    let operation = SocketOperation::Listen;
    match address::parse(name) {
        Ok(Named::Path(path)) => {
            // Never by the name: it may mean another file by now. A socket that was bound behind the filter, and
            // where it was asked to be, is known.
            let cookie = rustix::net::sockopt::socket_cookie(&socket)?;
            let Some(bound) = call.ground.own().bound(cookie, name) else {
                call.refuse(operation, path, "the socket is not known to be bound where it says");
                return Err(Errno::ACCESS);
            };
            let address = Address::Path { path: &bound.path, dev: bound.file.dev, ino: bound.file.ino };
            call.decided(&process, &Subject { operation, address, own: true }, |_| perform())
        }
        Ok(Named::Abstract(name)) => {
            let own = call.ground.own().has_name(name);
            let subject = Subject { operation, address: Address::Abstract(name), own };
            call.decided(&process, &subject, |_| perform())
        }
        // Not bound to anything. The kernel's own word for it, never the kernel itself: by then another thread may
        // have bound it.
        Ok(Named::Unnamed | Named::Unspecified) | Err(_) => {
            Err(match rustix::net::sockopt::socket_type(&socket)? {
                SocketType::DGRAM => Errno::OPNOTSUPP,
                _ => Errno::INVAL,
            })
        }
    }
}
