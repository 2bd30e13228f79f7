//! Names to addresses, on the host: its `/etc/hosts`, then its own library (`getaddrinfo`: DNS as configured, but
//! for the search list). A listed name stands for itself, and never for one below a domain of the host's.

use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use stockade_charge::Charge;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::{LOOKUPS, hosts};

/// A program gives up on a connection after some tens of seconds.
const PATIENCE: Duration = Duration::from_secs(5);
const HOSTS: &str = "/etc/hosts";
/// Addresses that are looked at; a lying resolver may send thousands.
const ADDRESSES: usize = 16;

thread_local! {
    /// As many as there are threads for. An egress is one thread, so each execution has its own.
    static SLOTS: Arc<Semaphore> = Arc::new(Semaphore::new(LOOKUPS));
}

pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Asked once per connection, for listed names only. An answer is not trusted: each address is checked, and
/// the connection goes to an address that was.
pub trait Resolve: Send + Sync {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a>;
}

/// The host's own resolver.
#[derive(Debug)]
pub struct HostResolver {
    /// Who pays for the time of lookups.
    pub charge: Arc<Charge>,
}

impl Resolve for HostResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        let (slots, name, charge) = (SLOTS.with(Arc::clone), name.to_owned(), Arc::clone(&self.charge));
        Box::pin(looked_up(slots, move || {
            let found = look_up(&name);
            // Nobody waits on this thread: the one that asks next does.
            charge.settle();
            found
        }))
    }
}

fn look_up(name: &str) -> io::Result<Vec<IpAddr>> {
    let known = hosts::addresses(Path::new(HOSTS), name)?;
    if !known.is_empty() {
        return Ok(known);
    }
    let found = (absolute(name).as_str(), 0).to_socket_addrs()?;
    Ok(found.map(|address| address.ip()).collect())
}

/// With a dot at its end, the library looks up that very name. One without any dot is meant to be completed.
fn absolute(name: &str) -> String {
    if name.contains('.') && !name.ends_with('.') { format!("{name}.") } else { name.to_owned() }
}

/// A blocked lookup can't be called off. It keeps its slot until its thread is free, whoever waits for it
/// or not, so that none ever queues behind it.
async fn looked_up(
    slots: Arc<Semaphore>,
    lookup: impl FnOnce() -> io::Result<Vec<IpAddr>> + Send + 'static,
) -> io::Result<Vec<IpAddr>> {
    let slot = slots.acquire_owned().await.map_err(io::Error::other)?;
    let task = spawn_blocking(move || {
        let found = lookup();
        drop(slot);
        found
    });
    task.await.map_err(io::Error::other)?
}

/// The addresses in their plain form, without repetition and at most so many.
pub(crate) async fn addresses(resolver: &dyn Resolve, name: &str) -> io::Result<Vec<IpAddr>> {
    let answered = match timeout(PATIENCE, resolver.resolve(name)).await {
        Ok(answered) => answered?,
        Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
    };
    let mut addresses = Vec::new();
    for address in answered.into_iter().map(|address| address.to_canonical()) {
        if addresses.len() < ADDRESSES && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no address"));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn the_host_knows_itself() {
        let found =
            run(addresses(&HostResolver { charge: Arc::new(Charge::new(None)) }, "localhost")).unwrap();
        assert!(found.iter().all(IpAddr::is_loopback), "{found:?}");
    }

    #[test]
    fn names_are_complete_as_they_are() {
        assert_eq!(absolute("a.example"), "a.example.");
        assert_eq!(absolute("a.example."), "a.example.");
        assert_eq!(absolute("intranet"), "intranet");
    }

    struct Says(Vec<IpAddr>);

    impl Resolve for Says {
        fn resolve<'a>(&'a self, _: &'a str) -> Resolving<'a> {
            Box::pin(async { Ok(self.0.clone()) })
        }
    }

    #[test]
    fn answers_are_bounded_and_in_their_plain_form() {
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let many = (0..=255).map(|last| IpAddr::from([10, 0, 0, last]));
        let found = run(addresses(&Says([mapped].into_iter().chain(many).collect()), "a.example")).unwrap();
        assert_eq!(found.len(), ADDRESSES);
        assert_eq!(found.first(), Some(&IpAddr::from([10, 0, 0, 1])));
        assert!(run(addresses(&Says(Vec::new()), "a.example")).is_err());
    }

    #[test]
    fn a_lookup_that_nobody_waits_for_keeps_its_slot_and_none_queues() {
        run(async {
            let slots = Arc::new(Semaphore::new(1));
            let (release, stuck) = std::sync::mpsc::channel::<()>();
            let short = Duration::from_millis(50);
            let first = looked_up(Arc::clone(&slots), move || {
                stuck.recv().unwrap();
                Ok(Vec::new())
            });
            assert!(timeout(short, first).await.is_err());
            let second = looked_up(Arc::clone(&slots), || panic!("it was queued"));
            assert!(timeout(short, second).await.is_err());
            assert_eq!(slots.available_permits(), 0);
            release.send(()).unwrap();
            let third = looked_up(Arc::clone(&slots), || Ok(vec![IpAddr::from([10, 0, 0, 1])]));
            assert_eq!(timeout(PATIENCE, third).await.unwrap().unwrap().len(), 1);
        });
    }
}
