//! The host's side of published ports: listeners on its loopback, made before the sandbox is launched, so that a
//! port which can't be had is said while nothing runs. Who connects early waits in the kernel's queue.
//! `live` hands their connections inside.

use std::io;
use std::net::{SocketAddr, TcpListener};

use rustix::io::Errno;
use stockade_proto::{Code, Plan, Publish, PublishedPort, Refusal};

/// One published port, open on the host.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) at: PublishedPort,
}

pub(crate) fn open(plan: &Plan) -> Result<Vec<Door>, Refusal> {
    plan.publish.iter().map(|publish| door(*publish).map_err(|error| refuse(*publish, &error))).collect()
}

fn door(publish: Publish) -> io::Result<Door> {
    let listener = TcpListener::bind(SocketAddr::new(publish.address, publish.host_port))?;
    let host = listener.local_addr()?;
    Ok(Door { listener, at: PublishedPort { host, port: publish.port } })
}

fn refuse(publish: Publish, error: &io::Error) -> Refusal {
    let why = match Errno::from_io_error(error) {
        Some(Errno::ADDRINUSE) => "something else listens there".to_owned(),
        Some(Errno::ACCESS) => "the host keeps that port for root".to_owned(),
        Some(Errno::ADDRNOTAVAIL) => "the host has no such address".to_owned(),
        Some(_) | None => error.to_string(),
    };
    let host = SocketAddr::new(publish.address, publish.host_port);
    Refusal::new(
        Code::PortUnavailable,
        format!("port {} can't be published on {host}: {why}", publish.port),
        format!("Choose another host port; --publish 0:{} lets the kernel choose one.", publish.port),
    )
}
