//! The relay's speed beside that of the plainest copying proxy, in one run and on the same sockets:
//! `cargo nextest run --release -p stockade-egress --run-ignored only throughput --no-capture`.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use crate::world::{World, accept, ip, port, server};

const LENGTH: usize = 1 << 28;
const BLOCK: usize = 256 * 1024;
const ROUNDS: usize = 3;

/// Seconds that so much takes to the server, and from it.
fn measure(world: &World, address: IpAddr, server: &TcpListener) -> (f64, f64) {
    let mut client = world.sandbox.connect(address, port(server)).unwrap();
    client.write_all(b"\0").unwrap();
    let mut peer = accept(server);
    peer.read_exact(&mut [0]).unwrap();
    (carry(&mut client, &mut peer), carry(&mut peer, &mut client))
}

fn carry(from: &mut TcpStream, to: &mut TcpStream) -> f64 {
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let block = vec![7; BLOCK];
            for _ in 0..LENGTH / BLOCK {
                from.write_all(&block).unwrap();
            }
        });
        let mut block = vec![0; BLOCK];
        let mut left = LENGTH;
        while left > 0 {
            left -= to.read(&mut block).unwrap();
        }
    });
    started.elapsed().as_secs_f64()
}

/// Two threads that read and write.
fn plain_proxy(listener: &TcpListener, target: std::net::SocketAddr) {
    let (inside, _) = listener.accept().unwrap();
    let outside = TcpStream::connect(target).unwrap();
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        let mut block = vec![0; BLOCK];
        while let Ok(count @ 1..) = from.read(&mut block) {
            if to.write_all(&block[..count]).is_err() {
                return;
            }
        }
    };
    let (back_from, back_to) = (outside.try_clone().unwrap(), inside.try_clone().unwrap());
    thread::spawn(move || copy(back_from, back_to));
    copy(inside, outside);
}

#[test]
#[ignore = "a measurement"]
fn throughput() {
    let (server, beside) = (server(51), server(52));
    let Some(world) = World::with_server("a.example", &server) else { return };
    let listener = TcpListener::from(world.sandbox.listener(port(&beside)));
    let target = beside.local_addr().unwrap();
    thread::spawn(move || (0..ROUNDS).for_each(|_| plain_proxy(&listener, target)));
    let named = world.four("a.example");
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(measure(&world, ip("192.0.2.1"), &beside));
        ours.push(measure(&world, named, &server));
    }
    let best = |times: &[(f64, f64)]| {
        times.iter().fold((f64::MAX, f64::MAX), |best, time| (best.0.min(time.0), best.1.min(time.1)))
    };
    let (ours, plain) = (best(&ours), best(&plain));
    for (way, ours, plain) in [("out", ours.0, plain.0), ("in", ours.1, plain.1)] {
        println!(
            "{way}: {:.2} GiB/s, plain copy {:.2}, ratio {:.2}",
            0.25 / ours,
            0.25 / plain,
            plain / ours
        );
    }
    assert!(plain.0 / ours.0 > 0.7 && plain.1 / ours.1 > 0.7);
}
