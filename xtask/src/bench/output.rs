//! P6: how fast output leaves the sandbox through redaction, and in how much memory. The limit is the same
//! producer without a sandbox and a bare loop from a 1 MiB pipe to the same kind of socket: the same number
//! of processes and copies, and nothing decided.

use super::Subject;
use super::arm::{Arm, DEFAULT, UNCAPPED, sandboxed};
use super::proof::Told;
use super::table::{Bar, Row, Unit};
use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// As the executor's own: where larger pipes stop paying.
const PIPE: usize = 1024 * 1024;
/// Of the bare relay, which may wait in a write, and of the reader: where larger reads stop paying.
const CHUNK: usize = 256 * 1024;

const MIB: u64 = 1024 * 1024;
/// Long enough that start-up is no part of the figure, and no longer: three processes on two processors fall into one of several
/// rhythms, the bare relay's too (0.9 to 2.6 GB/s seen within a minute), so that many short streams say more than a few long ones.
const BYTES: u64 = 768 * MIB;
const QUICK_BYTES: u64 = 256 * MIB;
const ROUNDS: usize = 20;
const QUICK_ROUNDS: usize = 2;
/// One file that is read again and again, small enough to stay in the page cache.
const LOG_BYTES: u64 = 32 * MIB;
/// Beyond the default profile's output limit of 1 GiB.
const FLOOD_BYTES: u64 = 1536 * MIB;

/// The bars, of PERFORMANCE.md's P6.
const NO_SECRETS: f64 = 0.8;
const TEN_SECRETS: f64 = 0.6;
const PEAK_BYTES: f64 = 10e6;

/// How often the memory of `stockade` is looked at: the peak is a high-water mark, so the last look counts.
const LOOK_EVERY: u64 = 16 * MIB;

#[derive(Debug)]
pub(super) struct Secrets(Vec<(String, String)>);

impl Secrets {
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    /// Ten values as services hand them out: 40 characters that don't occur in the output.
    pub(super) fn ten() -> Self {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut value = || {
            let mut text = String::new();
            for _ in 0..5 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(&format!("{:08x}", state >> 32));
            }
            text
        };
        Self((0..10).map(|at| (format!("BENCH_SECRET_{at}"), value())).collect())
    }

    pub(super) fn values(&self) -> Vec<String> {
        self.0.iter().map(|(_, value)| value.clone()).collect()
    }

    /// The options that name them, before the given words.
    pub(super) fn options<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let named = self.0.iter().flat_map(|(name, _)| ["--secret-env", name.as_str()]);
        named.chain(words.iter().copied()).collect()
    }

    pub(super) fn given(&self, arm: &Arm) -> Command {
        let mut command = arm.command();
        command.envs(self.0.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// What writes: one process, faster than any relay.
#[derive(Debug)]
struct Producer {
    name: &'static str,
    words: Vec<String>,
    bytes: u64,
}

impl Producer {
    fn zeros(bytes: u64) -> Self {
        let words = ["/usr/bin/head", "-c", &bytes.to_string(), "/dev/zero"].map(str::to_owned);
        Self { name: "zeros", words: words.to_vec(), bytes }
    }

    /// Ordinary log lines, out of a file in the workspace.
    fn log(subject: &Subject, bytes: u64) -> Result<Self> {
        let file = subject.workspace().join("log");
        let written = std::fs::write(&file, log_lines());
        written.with_context(|| format!("can't write {}", file.display()))?;
        let times = usize::try_from(bytes / LOG_BYTES)?;
        let mut words = vec!["/bin/cat".to_owned()];
        words.resize(times + 1, file.to_string_lossy().into_owned());
        Ok(Self { name: "log lines", words, bytes })
    }

    fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }
}

fn log_lines() -> Vec<u8> {
    let length = usize::try_from(LOG_BYTES).unwrap_or(usize::MAX);
    let mut text = Vec::with_capacity(length + 256);
    let mut at = 0_u64;
    while text.len() < length {
        let line = format!(
            "2026-01-02T03:{:02}:{:02}.{:06}Z info request{{id={:016x} path=/api/v1/items/{}}}: served in {} us\n",
            at / 60 % 60,
            at % 60,
            at * 7919 % 1_000_000,
            at.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            at % 4099,
            at * 31 % 9973,
        );
        text.extend_from_slice(line.as_bytes());
        at += 1;
    }
    text.truncate(length);
    text
}

/// One timed stream.
#[derive(Debug, Default)]
struct Flow {
    gigabytes_per_second: f64,
    peak_bytes: u64,
    received: u64,
}

pub(super) fn measure(subject: &Subject, quick: bool) -> Result<Vec<Row>> {
    let (rounds, bytes) = if quick { (QUICK_ROUNDS, QUICK_BYTES) } else { (ROUNDS, BYTES) };
    let (none, ten) = (Secrets::none(), Secrets::ten());
    let (mut rows, mut peak) = (Vec::new(), 0);
    for producer in [Producer::zeros(bytes), Producer::log(subject, bytes)?] {
        let mut speeds: [Vec<f64>; 3] = Default::default();
        for _ in 0..rounds {
            let flows =
                [limit(&producer)?, relayed(subject, &none, &producer)?, relayed(subject, &ten, &producer)?];
            for (speeds, flow) in speeds.iter_mut().zip(&flows) {
                speeds.push(flow.gigabytes_per_second);
                peak = peak.max(flow.peak_bytes);
            }
        }
        let [limit, none, ten] = speeds.map(|mut speeds| median(&mut speeds));
        let row = |what: &str, speed| {
            Row::plain(format!("output, {}: {what}", producer.name), speed, Unit::GigabytesPerSecond)
        };
        let (no_secrets, ten_secrets) = (Bar::least("P6", NO_SECRETS), Bar::least("P6", TEN_SECRETS));
        rows.push(row("bare relay, no sandbox", limit));
        rows.push(row("token shapes redacted", none).against(limit).held_to(no_secrets));
        rows.push(row("shapes and ten secrets", ten).against(limit).held_to(ten_secrets));
    }
    rows.push(memory("`stockade run`, peak memory while relaying", peak));
    if !quick {
        rows.push(memory("`stockade run`, peak memory past the output limit", flood(subject)?));
    }
    Ok(rows)
}

fn memory(what: &str, bytes: u64) -> Row {
    Row::plain(what, bytes as f64, Unit::Bytes).held_to(Bar::most("memory", PEAK_BYTES))
}

fn median(speeds: &mut [f64]) -> f64 {
    speeds.sort_unstable_by(f64::total_cmp);
    speeds.get(speeds.len() / 2).copied().unwrap_or_default()
}

fn limit(producer: &Producer) -> Result<Flow> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::pipe::fcntl_setpipe_size(&write, PIPE).context("can't have a 1 MiB pipe")?;
    let (ours, theirs) = sockets()?;
    let own = std::env::current_exe().context("can't find this program")?;
    let start = Instant::now();
    let words = producer.words();
    let mut writer = spawn(Arm::new("producer", words[0], &words[1..]).command().stdout(write))?;
    let mut relay = spawn(Arm::new("relay", own, ["bench", "--relay"]).command().stdin(read).stdout(theirs))?;
    let received = drain(ours, || ())?;
    let flow = Flow { gigabytes_per_second: speed(received, start), peak_bytes: 0, received };
    for child in [&mut writer, &mut relay] {
        let status = child.wait()?;
        if !status.success() {
            bail!("a process of the bare relay failed: {status}");
        }
    }
    if flow.received != producer.bytes {
        bail!("the bare relay passed {} bytes, not {}", flow.received, producer.bytes);
    }
    Ok(flow)
}

fn relayed(subject: &Subject, secrets: &Secrets, producer: &Producer) -> Result<Flow> {
    let (flow, told) = stream(subject, UNCAPPED, secrets, producer)?;
    told.check(producer.bytes)?;
    if flow.received != producer.bytes {
        bail!("{} bytes arrived of {}", flow.received, producer.bytes);
    }
    Ok(flow)
}

/// More output than the profile lets through: nothing may pile up.
fn flood(subject: &Subject) -> Result<u64> {
    let producer = Producer::zeros(FLOOD_BYTES);
    let (flow, told) = stream(subject, DEFAULT, &Secrets::none(), &producer)?;
    told.all_enforced()?;
    if flow.received >= producer.bytes {
        bail!("the output limit let {} bytes through", flow.received);
    }
    Ok(flow.peak_bytes)
}

fn stream(subject: &Subject, profile: &str, secrets: &Secrets, producer: &Producer) -> Result<(Flow, Told)> {
    let file = subject.place.path().join("output.json");
    let path = file.to_string_lossy();
    let mut words = vec!["--json", path.as_ref(), "--"];
    words.extend(producer.words());
    let arm = sandboxed("stockade", subject, profile, &secrets.options(&words));
    let (ours, theirs) = sockets()?;
    let start = Instant::now();
    let mut child = spawn(secrets.given(&arm).stdout(theirs).stderr(Stdio::null()))?;
    let mut peak_bytes = 0;
    let received = drain(ours, || peak_bytes = peak(&child).unwrap_or(peak_bytes))?;
    let gigabytes_per_second = speed(received, start);
    child.wait()?;
    if peak_bytes == 0 {
        bail!("the memory of `stockade run` could not be seen while it relayed");
    }
    Ok((Flow { gigabytes_per_second, peak_bytes, received }, Told::read(&file)?))
}

/// Spawns and lets go of the descriptors that the command holds: the reader waits for the last copy.
fn spawn(command: &mut Command) -> Result<Child> {
    let child = command.spawn().with_context(|| format!("can't start {:?}", command.get_program()))?;
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(child)
}

fn sockets() -> Result<(UnixStream, OwnedFd)> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair.context("can't make a socket pair")?;
    Ok((UnixStream::from(ours), theirs))
}

fn drain(mut from: UnixStream, mut look: impl FnMut()) -> Result<u64> {
    let mut buffer = vec![0; CHUNK];
    let (mut received, mut looked) = (0_u64, 0_u64);
    loop {
        let count = from.read(&mut buffer).context("can't read the relayed output")?;
        if count == 0 {
            return Ok(received);
        }
        received += u64::try_from(count)?;
        if received - looked >= LOOK_EVERY {
            looked = received;
            look();
        }
    }
}

fn speed(bytes: u64, since: Instant) -> f64 {
    bytes as f64 / since.elapsed().as_secs_f64() / 1e9
}

/// Not `ru_maxrss`, which a vforked child starts with the parent's value of.
fn peak(child: &Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    high_water(&status)
}

fn high_water(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kib * 1024)
}

/// The hidden `--relay`: one read, one write, until the end.
pub(super) fn relay() -> Result<()> {
    // The bare calls: the standard library's stdout would look for line ends and keep the rest.
    let (from, to) = (std::io::stdin(), std::io::stdout());
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = rustix::io::read(&from, &mut buffer).context("can't read the producer's pipe")?;
        if count == 0 {
            return Ok(());
        }
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let sent = rustix::io::write(&to, rest).context("can't write to the reader's socket")?;
            rest = &rest[sent..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn ten_secrets_differ_and_none_is_in_the_log() {
        let values = Secrets::ten().values();
        let log = String::from_utf8(log_lines()).unwrap();
        for (at, value) in values.iter().enumerate() {
            assert_eq!(value.len(), 40);
            assert!(!values[..at].contains(value) && !log.contains(value.as_str()));
        }
        assert_eq!(u64::try_from(log.len()).unwrap(), LOG_BYTES);
    }

    #[test]
    fn a_high_water_mark_is_read_from_a_status() {
        assert_eq!(high_water("VmPeak:\t  9 kB\nVmHWM:\t    4236 kB\n"), Some(4_337_664));
        assert_eq!(high_water("State:\tZ (zombie)\n"), None);
    }

    #[test]
    fn a_drain_counts_to_the_end() {
        let (ours, theirs) = sockets().unwrap();
        let mut theirs = UnixStream::from(theirs);
        let writer = std::thread::spawn(move || theirs.write_all(&[7; 100_000]).unwrap());
        assert_eq!(drain(ours, || ()).unwrap(), 100_000);
        writer.join().unwrap();
    }
}
