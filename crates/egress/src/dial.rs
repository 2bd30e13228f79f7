//! One connection to the first of several addresses that answers: the next is tried when the one before
//! failed or has been silent for a moment, so a dead address family costs that moment only.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::sys::socket::SockaddrStorage;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// Before the next address is tried beside it (RFC 8305 recommends 250 ms).
const STAGGER: Duration = Duration::from_millis(250);
/// Attempts at once: each holds a descriptor.
const OVERLAP: usize = 3;
/// For all addresses together.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) async fn dial(addresses: &[IpAddr], port: u16) -> io::Result<(TcpStream, IpAddr)> {
    dial_within(PATIENCE, addresses, port).await
}

async fn dial_within(patience: Duration, addresses: &[IpAddr], port: u16) -> io::Result<(TcpStream, IpAddr)> {
    let deadline = Instant::now() + patience;
    // So that every address gets its turn, though those before it be silent.
    let rounds = u32::try_from(addresses.len().div_ceil(OVERLAP)).unwrap_or(u32::MAX).max(1);
    let each = patience / rounds;
    let mut waiting = addresses.iter().copied();
    let mut open = JoinSet::new();
    let mut failure = io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
    // Each turn starts an attempt, ends one, or meets the deadline.
    loop {
        let next = if open.len() < OVERLAP { waiting.next() } else { None };
        if let Some(address) = next {
            open.spawn(async move { (attempt(each, SocketAddr::new(address, port)).await, address) });
        }
        let until = if next.is_some() { deadline.min(Instant::now() + STAGGER) } else { deadline };
        match timeout_at(until, open.join_next()).await {
            Ok(Some(Ok((Ok(stream), address)))) => return Ok((stream, address)),
            Ok(Some(Ok((Err(error), _)))) => failure = error,
            // An attempt that was cut off; the others go on.
            Ok(Some(Err(_))) => {}
            Ok(None) => return Err(failure),
            Err(_) if Instant::now() >= deadline => return Err(failure),
            Err(_) => {}
        }
    }
}

async fn attempt(patience: Duration, address: SocketAddr) -> io::Result<TcpStream> {
    match timeout(patience, TcpStream::connect(address)).await {
        Ok(connected) => connected,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
    }
}

/// Whether a connection leads to this very host. The kernel leaves for an own address from that address, and
/// for one that shares its interface with others from their first.
pub(crate) fn is_own(stream: &TcpStream, address: IpAddr) -> io::Result<bool> {
    if stream.local_addr()?.ip().to_canonical() == address {
        return Ok(true);
    }
    let own = nix::ifaddrs::getifaddrs()?.filter_map(|interface| ip_of(&interface.address?));
    Ok(own.into_iter().any(|own| own == address))
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let four = address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
    four.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip()).to_canonical()))
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
    fn an_own_address_is_known() {
        // What plays the world outside in these tests is no interface's address, and not left from.
        for (at, own) in [(IpAddr::from([127, 0, 0, 1]), true), (address(9), false)] {
            let server = TcpListener::bind((at, 0)).unwrap();
            let port = server.local_addr().unwrap().port();
            let found = run(async {
                let (stream, address) = dial(&[at], port).await.unwrap();
                is_own(&stream, address)
            });
            assert_eq!(found.unwrap(), own, "{at}");
        }
    }

    #[test]
    fn a_few_attempts_overlap() {
        let good = TcpListener::bind((address(20), 0)).unwrap();
        let port = good.local_addr().unwrap().port();
        let silent: Vec<_> = (11..14)
            .map(|last| {
                let silent = TcpListener::bind((address(last), port)).unwrap();
                rustix::net::listen(&silent, 0).unwrap();
                let first = Plain::connect((address(last), port)).unwrap();
                (silent, first)
            })
            .collect();
        let addresses = [address(11), address(12), address(13), address(20)];
        let started = std::time::Instant::now();
        let (_, reached) = run(dial_within(STAGGER * 12, &addresses, port)).unwrap();
        assert_eq!(reached, address(20));
        assert!(started.elapsed() >= STAGGER * 6, "the fourth waited for one of three to be given up");
        drop(silent);
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
