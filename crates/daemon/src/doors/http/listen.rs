//! Where the door listens. Without a secret that is loopback and nothing else, whoever opened the socket.

use std::io;
use std::net::{SocketAddr, TcpListener};

use secrecy::ExposeSecret as _;

use super::auth::Reach;
use crate::config::HttpDoor;

/// Connections that the kernel holds until they are accepted; more than the standard library asks for, since
/// clients come in bursts.
const BACKLOG: i32 = 1024;

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(
        "{address} is reachable from other machines and there is no secret: set EXECUTOR_SECRET, or listen on 127.0.0.1"
    )]
    Open { address: SocketAddr },
    #[error("can't listen on {address}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("the socket that was passed is no TCP listener")]
    Passed { source: io::Error },
}

/// A socket that passed the check.
#[derive(Debug)]
pub struct Listening {
    pub(super) listener: TcpListener,
    address: SocketAddr,
}

impl Listening {
    /// As the kernel knows it: with the port that it chose for 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn reach(&self) -> Reach {
        reach(self.address)
    }
}

pub fn bind(door: &HttpDoor) -> Result<Listening, BindError> {
    let address = door.address;
    allowed(door, address)?;
    let listener = TcpListener::bind(address).map_err(|source| BindError::Bind { address, source })?;
    listening(door, listener)
}

/// A socket that systemd opened. Its own address counts, not the configured one.
pub fn inherit(door: &HttpDoor, listener: TcpListener) -> Result<Listening, BindError> {
    listening(door, listener)
}

fn listening(door: &HttpDoor, listener: TcpListener) -> Result<Listening, BindError> {
    let passed = |source| BindError::Passed { source };
    let address = listener.local_addr().map_err(passed)?;
    allowed(door, address)?;
    rustix::net::listen(&listener, BACKLOG).map_err(|error| passed(error.into()))?;
    listener.set_nonblocking(true).map_err(passed)?;
    Ok(Listening { listener, address })
}

fn allowed(door: &HttpDoor, address: SocketAddr) -> Result<(), BindError> {
    if has_secret(door) || reach(address) == Reach::Loopback {
        return Ok(());
    }
    Err(BindError::Open { address })
}

fn reach(address: SocketAddr) -> Reach {
    if address.ip().to_canonical().is_loopback() { Reach::Loopback } else { Reach::Others }
}

/// An empty one is none: everybody could show it.
pub(super) fn has_secret(door: &HttpDoor) -> bool {
    door.secret.as_ref().is_some_and(|secret| !secret.expose_secret().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::SecretString;

    fn door(address: &str, secret: Option<&str>) -> HttpDoor {
        HttpDoor { address: address.parse().unwrap(), secret: secret.map(SecretString::from) }
    }

    #[test]
    fn without_a_secret_only_loopback() {
        for address in ["127.0.0.1:0", "127.9.9.9:0", "[::ffff:127.0.0.1]:0"] {
            assert!(bind(&door(address, None)).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "[::ffff:192.0.2.1]:80"] {
            for secret in [None, Some("")] {
                let refused = bind(&door(address, secret));
                assert!(matches!(refused, Err(BindError::Open { .. })), "{address} {refused:?}");
            }
        }
        assert!(bind(&door("0.0.0.0:0", Some("s"))).is_ok());
    }

    #[test]
    fn a_passed_socket_is_checked_too() {
        let open = TcpListener::bind("0.0.0.0:0").unwrap();
        assert!(matches!(inherit(&door("127.0.0.1:1", None), open), Err(BindError::Open { .. })));
        let loopback = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = loopback.local_addr().unwrap().port();
        assert_eq!(inherit(&door("127.0.0.1:1", None), loopback).unwrap().address().port(), port);
    }
}
