//! One connection to the first of several addresses that answers: the next is tried when the one before
//! failed or has been silent for a moment, so a dead address family costs that moment only.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Before the next address is tried beside it (RFC 8305 recommends 250 ms).
const STAGGER: Duration = Duration::from_millis(250);
/// For all addresses together.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) async fn dial(addresses: &[IpAddr], port: u16) -> io::Result<(TcpStream, IpAddr)> {
    let deadline = Instant::now() + PATIENCE;
    let mut waiting = addresses.iter().copied();
    let mut open = JoinSet::new();
    let mut failure = io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
    // Each turn starts an attempt, ends one, or meets the deadline.
    loop {
        let next = waiting.next();
        if let Some(address) = next {
            open.spawn(async move { (TcpStream::connect(SocketAddr::new(address, port)).await, address) });
        }
        let until = if next.is_some() { deadline.min(Instant::now() + STAGGER) } else { deadline };
        match timeout_at(until, open.join_next()).await {
            Ok(Some(Ok((Ok(stream), address)))) => return Ok((stream, address)),
            Ok(Some(Ok((Err(error), _)))) => failure = error,
            // An attempt that was cut off; the others go on.
            Ok(Some(Err(_))) => {}
            Ok(None) if next.is_none() => return Err(failure),
            Ok(None) => {}
            Err(_) if Instant::now() >= deadline => return Err(failure),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream as Plain};

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 78, 0, last])
    }

    #[test]
    fn a_refusing_address_costs_nothing() {
        let good = TcpListener::bind((address(2), 0)).unwrap();
        let port = good.local_addr().unwrap().port();
        let started = std::time::Instant::now();
        let (_, reached) = run(dial(&[address(1), address(2)], port)).unwrap();
        assert_eq!(reached, address(2));
        assert!(started.elapsed() < STAGGER, "{:?}", started.elapsed());
        let refused = run(dial(&[address(1)], port)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_silent_address_costs_a_moment() {
        let good = TcpListener::bind((address(4), 0)).unwrap();
        let port = good.local_addr().unwrap().port();
        let silent = TcpListener::bind((address(3), port)).unwrap();
        rustix::net::listen(&silent, 0).unwrap();
        // Its queue is full now: the kernel drops what else comes.
        let _first = Plain::connect((address(3), port)).unwrap();
        let (_, reached) = run(dial(&[address(3), address(4)], port)).unwrap();
        assert_eq!(reached, address(4));
    }
}
