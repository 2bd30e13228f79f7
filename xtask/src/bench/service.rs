//! The service: one caller beside a raw shell, eight and sixty-four callers at once, what it holds afterwards, and
//! how soon it says that it is well meanwhile.

use super::Subject;
use super::arm::service_environment;
use super::bare::Bare;
use super::spawn::{at_percent, micros};
use super::table::{Bar, Row, Unit};
use anyhow::{Context, Result, bail};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What the service is held to now; P4 of PERFORMANCE.md, the goal, is 1.35 times a raw shell.
const ONE: f64 = 3.0;
const EIGHT_PER_SECOND: f64 = 600.0;
const RSS: f64 = 20e6;
const HEALTH: f64 = 100e3;

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a reply's head that are read at most.
const HEAD: u64 = 16 << 10;

const ASK: &[u8] = b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
    Content-Length: 21\r\n\r\n{\"command\":\"echo hi\"}";
const WELL: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"healthCheck\",\"params\":{}}\n";

/// A service of its own; ended when this goes.
#[derive(Debug)]
struct Service {
    child: Child,
    address: String,
    socket: PathBuf,
}

impl Service {
    fn start(subject: &Subject) -> Result<Self> {
        let base = subject.place.path().join("service");
        std::fs::create_dir_all(base.join("work")).context("can't make a directory")?;
        let (config, socket) = (base.join("config.toml"), base.join("socket"));
        let text = format!(
            "state = {:?}\nworkspaces = [{work:?}]\ndefault_workspace = {work:?}\n[http]\naddress = \"127.0.0.1:0\"\n\
             [socket]\npath = {socket:?}\n[log]\nlevel = \"info\"\n",
            base.join("state"),
            work = base.join("work"),
        );
        std::fs::write(&config, text).context("can't write the service's configuration")?;
        let mut command = Command::new(&subject.service);
        command.arg("--config").arg(&config).stdin(Stdio::null()).stderr(Stdio::piped());
        command.env_clear().envs(service_environment());
        let mut child = command.spawn().context("can't start the service")?;
        let said = BufReader::new(child.stderr.take().context("its log is piped")?);
        let mut service = Self { child, address: String::new(), socket };
        service.address = address(said)?;
        Ok(service)
    }

    fn memory(&self) -> Result<f64> {
        memory(self.child.id())
    }

    fn executor(&self) -> Result<f64> {
        // Whichever thread started it.
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let threads = threads.context("can't list the service's threads")?.flatten();
        let children: String =
            threads.filter_map(|one| std::fs::read_to_string(one.path().join("children")).ok()).collect();
        memory(children.split_whitespace().next().context("there is no executor")?.parse()?)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let asked =
            pid.is_some_and(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM).is_ok());
        if !asked {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}

/// Where it listens, as its log says; the rest of the log is read and thrown away.
fn address(mut said: BufReader<impl std::io::Read + Send + 'static>) -> Result<String> {
    let mut line = String::new();
    while said.read_line(&mut line).context("the service's log can't be read")? > 0 {
        let at = line.split("http: listening on ").nth(1).map(str::to_owned);
        if let Some(at) = at {
            std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
            let end = at.find(|one: char| one.is_whitespace() || one == '"').unwrap_or(at.len());
            return Ok(at[..end].to_owned());
        }
        line.clear();
    }
    bail!("the service ended before it listened")
}

fn memory(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("can't read a status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.split_whitespace().next().context("no number")?.parse()?;
    Ok(kib * 1024.0)
}

/// A connection that is kept.
#[derive(Debug)]
struct Caller(BufReader<TcpStream>);

impl Caller {
    fn new(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).context("can't connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn execute(&mut self) -> Result<Duration> {
        let began = Instant::now();
        self.0.get_mut().write_all(ASK)?;
        let (mut line, mut length, mut status) = (String::new(), 0, None);
        loop {
            line.clear();
            if self.0.by_ref().take(HEAD).read_line(&mut line)? == 0 {
                bail!("the connection ended");
            }
            status = status.or_else(|| line.split(' ').nth(1).map(str::to_owned));
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        let took = began.elapsed();
        let body = String::from_utf8_lossy(&body);
        if status.as_deref() != Some("200") || !body.contains("\"stdout\":\"hi\"") {
            bail!("{status:?} {body}");
        }
        Ok(took)
    }
}

/// In the service's own environment: cargo's would slow it down.
fn raw_shell() -> Result<Duration> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo hi"]).stdin(Stdio::null()).env_clear().envs(service_environment());
    let began = Instant::now();
    let output = command.output()?;
    if output.stdout != b"hi\n" {
        bail!("a raw shell said {:?}", output.stdout);
    }
    Ok(began.elapsed())
}

/// So many callers, until so many executions are done: how long, and how many failed.
fn load(address: &str, callers: usize, executions: usize) -> Result<(Duration, usize)> {
    let (left, failed) = (AtomicUsize::new(executions), AtomicUsize::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                let mut caller = Caller::new(address);
                let take =
                    || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                while take().is_ok() {
                    let done = match &mut caller {
                        Ok(caller) => caller.execute().map(drop),
                        Err(error) => Err(anyhow::anyhow!("{error:#}")),
                    };
                    if let Err(error) = done {
                        failed.fetch_add(1, Ordering::Relaxed);
                        eprintln!("a request of {callers} callers failed: {error:#}");
                        caller = Caller::new(address);
                    }
                }
            });
        }
    });
    Ok((began.elapsed(), failed.into_inner()))
}

/// The machine's speed changes within minutes: it is looked at before and after.
fn limit(bare: &Bare, executions: usize) -> Result<Duration> {
    let (took, failed) = load(&bare.address, 8, executions)?;
    if failed > 0 {
        bail!("{failed} requests to the bare server failed");
    }
    Ok(took)
}

/// How long `healthCheck` takes while `over` is not set.
fn health(socket: &Path, over: &AtomicBool) -> Result<Vec<Duration>> {
    let stream = UnixStream::connect(socket).context("can't connect to the socket")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut stream = BufReader::new(stream);
    let mut times = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        stream.get_mut().write_all(WELL)?;
        let mut line = String::new();
        stream.read_line(&mut line)?;
        times.push(began.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    times.sort_unstable();
    Ok(times)
}

pub(super) fn measure(subject: &Subject, quick: bool) -> Result<Vec<Row>> {
    let service = Service::start(subject)?;
    let (warm, alone, many) = if quick { (100, 60, 400) } else { (3000, 600, 6000) };
    // As one that has run for a while: its directories are made, and its database writes where it has written before.
    let (_, warm_failed) = load(&service.address, 8, warm)?;
    let bare = Bare::start()?;
    let (mut own, mut raw) = (Vec::new(), Vec::new());
    let mut caller = Caller::new(&service.address)?;
    for round in 0..alone + 10 {
        let (one, two) = (caller.execute()?, raw_shell()?);
        if round >= 10 {
            own.push(one);
            raw.push(two);
        }
    }
    own.sort_unstable();
    raw.sort_unstable();
    let limit_before = limit(&bare, many)?;
    let (eight, eight_failed) = load(&service.address, 8, many)?;
    let limit_after = limit(&bare, many)?;
    let over = AtomicBool::new(false);
    let (full, full_failed, times) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| health(&service.socket, &over));
        let loaded = load(&service.address, 64, many);
        over.store(true, Ordering::Relaxed);
        let times = asking.join().map_err(|_| anyhow::anyhow!("the caller of healthCheck panicked"))??;
        let (took, failed) = loaded?;
        anyhow::Ok((took, failed, times))
    })?;
    let base = micros(at_percent(&raw, 50));
    let per_second = |took: Duration| many as f64 / took.as_secs_f64();
    let limit = f64::midpoint(per_second(limit_before), per_second(limit_after));
    Ok(vec![
        Row::plain("raw `sh -c 'echo hi'`, beside the service", base, Unit::Micros)
            .spread(micros(at_percent(&raw, 90))),
        Row::plain("`POST /execute` of `echo hi`, one caller", micros(at_percent(&own, 50)), Unit::Micros)
            .spread(micros(at_percent(&own, 90)))
            .against(base)
            .held_to(Bar::most("P4 now", ONE)),
        Row::plain("a bare server without a sandbox, eight callers, per second", limit.round(), Unit::Count),
        // The bar is the number's own, not the ratio's.
        Row::plain("`POST /execute`, eight callers, per second", per_second(eight).round(), Unit::Count)
            .held_to(Bar::least("P4 now", EIGHT_PER_SECOND))
            .against(limit),
        Row::plain("the same, 64 callers, per second", per_second(full).round(), Unit::Count),
        Row::plain(
            "requests that failed, of all",
            (warm_failed + eight_failed + full_failed) as f64,
            Unit::Count,
        )
        .held_to(Bar::most("P4", 0.0)),
        Row::plain("`healthCheck` with 64 callers, p99", micros(at_percent(&times, 99)), Unit::Micros)
            .held_to(Bar::most("P4", HEALTH)),
        Row::plain("`stockaded`, memory afterwards", service.memory()?, Unit::Bytes)
            .held_to(Bar::most("P4", RSS)),
        Row::plain("`stockade-executor`, memory afterwards", service.executor()?, Unit::Bytes),
    ])
}
