//! What the walls cost that someone answers for while a command runs: a decided connect to a Unix socket
//! (P5) against the barest loop that could decide it, and the way out of an allowlist against a plain proxy
//! between the same two programs.

use super::Subject;
use super::arm::{Arm, profile};
use super::table::{Bar, Row, Unit};
use crate::process;
use crate::workspace::{Workspace, cargo};
use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// PERFORMANCE.md's P5, and the bars beside it.
const CONNECT_RATIO: f64 = 1.25;
const CONNECT_TAIL_MICROS: f64 = 60.0;
const PLAIN_CALL_MICROS: f64 = 0.1;
const RELAY_RATIO: f64 = 0.7;

const MIB: u64 = 1024 * 1024;
const BYTES: u64 = 1024 * MIB;
const QUICK_BYTES: u64 = 128 * MIB;
const ROUNDS: usize = 7;
const QUICK_ROUNDS: usize = 3;
/// As the egress relay's own.
const CHUNK: usize = 256 * 1024;
/// What the allowlist opens, in the profile's words.
const PROFILE: &str = "bench-egress";

/// Reads to the end and prints bytes per nanosecond, from the first byte on.
pub(super) fn pull(address: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("can't connect to {address}"))?;
    let mut chunk = vec![0; CHUNK];
    let (mut total, mut begun) = (0_usize, None);
    loop {
        let got = stream.read(&mut chunk).context("can't read")?;
        let from = *begun.get_or_insert_with(Instant::now);
        if got == 0 {
            println!("{}", total as f64 / from.elapsed().as_secs_f64() / 1e9);
            return Ok(());
        }
        total += got;
    }
}

pub(super) fn sockets(root: &Workspace) -> Result<Vec<Row>> {
    let mut command = cargo();
    command.current_dir(&root.root).args(["run", "--quiet", "--release", "--package", "stockade-sockets"]);
    let text = process::output(command.args(["--example", "round_trip", "--", "--figures"]))?;
    let figure = |name: &str| -> Result<(f64, f64)> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let (first, second) = line.and_then(|line| line.split_once(' ')).context("no such figure")?;
        Ok((first.parse()?, second.parse()?))
    };
    let ((native, _), (bare, _), (decided, tail)) = (figure("native")?, figure("bare")?, figure("decided")?);
    let (careful, _) = figure("careful")?;
    let (unfiltered, filtered) = figure("plain")?;
    let single = |what: &str, value| Row::plain(what, value, Unit::SingleMicros);
    Ok(vec![
        single("connect to a Unix socket, no filter", native),
        single("the same, decided by the barest loop", bare),
        single("the same, by the barest loop that can't be raced", careful).against(bare),
        single("the same, decided by the supervisor", decided)
            .against(bare)
            .held_to(Bar::most("P5", CONNECT_RATIO)),
        single("the same, 99th percentile", tail).held_to(Bar::most("P5", CONNECT_TAIL_MICROS)),
        single("a call that the filter lets pass, added", filtered - unfiltered)
            .held_to(Bar::most("call", PLAIN_CALL_MICROS)),
    ])
}

/// Sends the same bytes to everyone who connects, until the process ends.
fn source(bytes: u64) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("can't listen on loopback")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        let chunk = vec![b'x'; CHUNK];
        for mut stream in listener.incoming().flatten() {
            let mut left = bytes;
            while left > 0 && stream.write_all(&chunk).is_ok() {
                left = left.saturating_sub(CHUNK as u64);
            }
        }
    });
    Ok(address)
}

/// One connection after the other, copied by a loop that looks at nothing.
fn plain_proxy(to: SocketAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("can't listen on loopback")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let Ok(mut server) = TcpStream::connect(to) else { return };
            let mut chunk = vec![0; CHUNK];
            while let Ok(got @ 1..) = server.read(&mut chunk) {
                if chunk.get(..got).is_none_or(|part| client.write_all(part).is_err()) {
                    break;
                }
            }
            match client.shutdown(Shutdown::Write) {
                // It may have left first.
                Ok(()) | Err(_) => {}
            }
        }
    });
    Ok(address)
}

/// The client inside, as outside, is this program: the same loop on both sides.
fn client(subject: &Subject) -> Result<PathBuf> {
    let own = std::env::current_exe().context("can't find this program")?;
    let copy = subject.workspace().join("client");
    std::fs::copy(&own, &copy).with_context(|| format!("can't copy {}", own.display()))?;
    Ok(copy)
}

fn pulled(mut command: Command) -> Result<f64> {
    let output = command.output().context("can't start the client")?;
    let words = String::from_utf8_lossy(&output.stdout);
    match words.trim().parse() {
        Ok(rate) if output.status.success() => Ok(rate),
        Ok(_) | Err(_) => bail!("the client: {} {}", output.status, String::from_utf8_lossy(&output.stderr)),
    }
}

pub(super) fn egress(subject: &Subject, quick: bool) -> Result<Vec<Row>> {
    let (bytes, rounds) = if quick { (QUICK_BYTES, QUICK_ROUNDS) } else { (BYTES, ROUNDS) };
    let source = source(bytes)?;
    let proxy = plain_proxy(source)?;
    let client = client(subject)?;
    let text = format!("extends = \"build\"\nnetwork = \"allowlist\"\n[egress]\nallow = [\"{source}\"]\n");
    let config = profile(subject, PROFILE, &text)?;
    let words = |address: SocketAddr| ["bench".to_owned(), "--pull".to_owned(), address.to_string()];
    let outside = Arm::new("plain proxy", &client, words(proxy));
    let mut inside: Vec<String> = ["run", "--profile", PROFILE, "--workspace"].map(str::to_owned).to_vec();
    inside.push(subject.workspace().to_string_lossy().into_owned());
    inside.extend(["--".to_owned(), client.to_string_lossy().into_owned()]);
    inside.extend(words(source));
    let inside = Arm::new("allowlist", &subject.stockade, inside).configured(config);
    let (mut plain, mut walled) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        plain.push(pulled(outside.command())?);
        walled.push(pulled(inside.command())?);
    }
    let middle = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let (plain, walled) = (middle(&mut plain), middle(&mut walled));
    std::fs::remove_file(&client).context("can't remove the client's copy")?;
    Ok(vec![
        Row::plain("download through a plain loopback proxy", plain, Unit::GigabytesPerSecond),
        Row::plain("download through the allowlist", walled, Unit::GigabytesPerSecond)
            .against(plain)
            .held_to(Bar::least("egress", RELAY_RATIO)),
    ])
}
