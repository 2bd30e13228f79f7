//! Starts one guest, listens to its report and makes sure that it is gone afterwards. Every wait has a
//! deadline that each marked line renews. It prints a line per finished suite; the judging is elsewhere.

use super::base::Base;
use super::emulator;
use super::payload::Payload;
use super::report::{Event, Report};
use super::verdict::{self, Asked};
use crate::process;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Power-on to the first line; 25 s on a free machine, much more when compilers share its cores.
const BOOT_DEADLINE: Duration = Duration::from_secs(600);
/// One executable as one user. Emulation is 10–20 times slower than this machine.
pub(crate) const SUITE_DEADLINE: Duration = Duration::from_secs(1800);
/// The guest ends a suite by itself at its deadline; past this much more, the guest hangs.
const SUITE_SLACK: Duration = Duration::from_secs(120);
/// Last line to power-off.
const POWEROFF_DEADLINE: Duration = Duration::from_secs(30);
/// A longer line is cut: tests may print binary noise.
const LINE_BYTES: usize = 64 << 10;
/// Chunks between the reading thread and us; a full queue makes the guest's serial port wait.
const QUEUE_CHUNKS: usize = 64;
const CHUNK_BYTES: usize = 8 << 10;
/// `panic=-1` reboots at a panic, and `-no-reboot` turns that into the emulator's end. An emulated processor has no gaps to
/// mitigate, and its counter is this machine's: without the word of it the kernel reads a device instead, for every time of day.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 root=/dev/vda rw panic=-1 mitigations=off tsc=reliable";
/// Without cmpxchg16b: qemu 7.2's emulation of it leaves garbage in EFLAGS, and the kernel's allocator, which
/// uses it wherever it is offered, then dies of single steps and double faults in about every other boot. Without a
/// fifth level of page tables, each of which an emulator walks by itself.
const CPU: &str = "max,-cx16,-la57";

/// The emulator, killed when this goes out of scope, whatever the reason.
#[derive(Debug)]
struct Guest {
    child: Child,
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Both fail only if it is gone already, which is what is wanted.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The files that one guest leaves under the target directory.
#[derive(Debug)]
pub(crate) struct Logs {
    directory: PathBuf,
    kernel: &'static str,
}

impl Logs {
    pub(crate) fn new(directory: &Path, kernel: &'static str) -> Self {
        Self { directory: directory.to_owned(), kernel }
    }

    pub(crate) fn console(&self) -> PathBuf {
        self.directory.join(format!("{}-console.log", self.kernel))
    }

    pub(crate) fn report(&self) -> PathBuf {
        self.directory.join(format!("{}-report.log", self.kernel))
    }

    pub(crate) fn suite(&self, user: &str, suite: &str) -> PathBuf {
        self.directory.join(format!("{}-{user}-{suite}.log", self.kernel))
    }
}

/// The emulator's command line. `setpriv` has the kernel kill it when we die, even of a signal.
pub(crate) fn emulator(base: &Base, payload: &Path, asked: Asked<'_>, console: &Path) -> Command {
    let mut command = process::command("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).args(emulator::words(&base.emulator()));
    command.args(["-accel", "tcg,thread=multi", "-cpu", CPU, "-smp", "2", "-m", "2048"]);
    command.args(["-display", "none", "-nodefaults", "-no-reboot", "-nic", "none"]);
    command.arg("-chardev").arg(format!("file,id=console,path={}", console.display()));
    command.args([
        "-serial",
        "chardev:console",
        "-chardev",
        "stdio,id=report,signal=off",
        "-serial",
        "chardev:report",
    ]);
    command.arg("-drive").arg(format!("file={},if=virtio,format=raw,snapshot=on", base.image().display()));
    command.arg("-drive").arg(format!("file={},if=virtio,format=raw,readonly=on", payload.display()));
    command.arg("-kernel").arg(base.kernel(asked.kernel)).arg("-initrd").arg(base.initrd(asked.kernel));
    command.args(["-append", KERNEL_ARGUMENTS]);
    command
}

/// Boots, listens until the guest says that it is done, and gives what it reported.
pub(crate) fn boot(base: &Base, payload: &Payload, asked: Asked<'_>, logs: &Logs) -> Result<Report> {
    let mut command = emulator(base, &payload.image, asked, &logs.console());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("can't start the emulator")?;
    let stdout = child.stdout.take().context("the emulator has no output")?;
    let mut guest = Guest { child };
    let (send, chunks) = sync_channel::<Vec<u8>>(QUEUE_CHUNKS);
    let reader = std::thread::spawn(move || {
        let mut stdout = stdout;
        let mut buffer = [0; CHUNK_BYTES];
        while let Ok(count @ 1..) = stdout.read(&mut buffer) {
            if send.send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    let report = listen(&chunks, payload, asked, logs);
    if report.is_ok() {
        await_poweroff(&mut guest);
    }
    drop(guest);
    drop(chunks);
    // It ends at the emulator's end of file, which has come by now.
    reader.join().ok();
    report
}

fn listen(chunks: &Receiver<Vec<u8>>, payload: &Payload, asked: Asked<'_>, logs: &Logs) -> Result<Report> {
    let started = Instant::now();
    let path = logs.report();
    let mut log = File::create(&path).with_context(|| format!("can't make {}", path.display()))?;
    let mut report = Report::new(&payload.mark);
    let mut deadline = started + BOOT_DEADLINE;
    let mut pending = Vec::new();
    while !report.done {
        let chunk = match chunks.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(chunk) => chunk,
            Err(RecvTimeoutError::Timeout) => {
                bail!("the guest {}; see {}", silence(&report), logs.console().display())
            }
            Err(RecvTimeoutError::Disconnected) => bail!("{}", death(&report, logs)),
        };
        log.write_all(&chunk).with_context(|| format!("can't write {}", path.display()))?;
        pending.extend_from_slice(&chunk);
        while let Some(line) = take_line(&mut pending) {
            let event = report.line(&line);
            if event != Event::Text {
                deadline = Instant::now() + SUITE_DEADLINE + SUITE_SLACK;
            }
            tell(&event, &report, asked, logs)?;
        }
    }
    Ok(report)
}

fn take_line(pending: &mut Vec<u8>) -> Option<String> {
    let end = match pending.iter().position(|&byte| byte == b'\n') {
        Some(at) => at + 1,
        None if pending.len() >= LINE_BYTES => pending.len(),
        None => return None,
    };
    let line: Vec<u8> = pending.drain(..end).collect();
    Some(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned())
}

fn tell(event: &Event, report: &Report, asked: Asked<'_>, logs: &Logs) -> Result<()> {
    let kernel = asked.kernel.name();
    match event {
        Event::Ready(uptime) => println!("VM {kernel}: up {uptime} s after its kernel started"),
        Event::Facts => {
            if let Some((user, facts)) = report.facts.last() {
                println!("VM {kernel} {user}: {facts}");
            }
        }
        Event::Ended(index) => {
            let Some(frame) = report.frames.get(*index) else { return Ok(()) };
            let path = logs.suite(&frame.user, &frame.suite);
            let mut log = File::options().create(true).append(true).open(&path);
            let log =
                log.as_mut().map_err(|error| anyhow::anyhow!("can't open {}: {error}", path.display()))?;
            log.write_all(frame.text.as_bytes())
                .with_context(|| format!("can't write {}", path.display()))?;
            let suite = asked.suites.iter().find(|suite| suite.name == frame.suite);
            if let Some((tally, _)) = suite.and_then(|suite| verdict::suite(report, suite, &frame.user)) {
                println!(
                    "VM {kernel} {} {}: {} passed, {} failed, {} skipped",
                    frame.user, frame.suite, tally.passed, tally.failed, tally.skipped
                );
            }
        }
        Event::Begun | Event::Done | Event::Text => {}
    }
    Ok(())
}

fn silence(report: &Report) -> String {
    match report.frames.last() {
        None => format!("reported nothing in {} s of booting", BOOT_DEADLINE.as_secs()),
        Some(frame) => format!("hangs after {} as {} began", frame.executable, frame.user),
    }
}

/// The emulator has ended without the last line: a panic if the console shows one.
fn death(report: &Report, logs: &Logs) -> String {
    let console = fs::read(logs.console()).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let panic = console.lines().find(|line| line.contains("Kernel panic"));
    let during = report.frames.last().map(|frame| format!(" during {} as {}", frame.executable, frame.user));
    format!(
        "the guest died{}: {}; see {}",
        during.unwrap_or_default(),
        panic.map_or("it powered off or was killed, with no panic on its console", str::trim),
        logs.console().display()
    )
}

/// Waits for the guest to power off by itself; the caller kills it afterwards in any case.
fn await_poweroff(guest: &mut Guest) {
    let deadline = Instant::now() + POWEROFF_DEADLINE;
    while Instant::now() < deadline && guest.child.try_wait().is_ok_and(|status| status.is_none()) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_and_endless_ones_are_cut() {
        let mut pending = b"one\r\ntw".to_vec();
        assert_eq!(take_line(&mut pending).as_deref(), Some("one"));
        assert_eq!(take_line(&mut pending), None);
        pending.extend_from_slice(b"o\n");
        assert_eq!(take_line(&mut pending).as_deref(), Some("two"));
        pending = vec![b'x'; LINE_BYTES];
        assert_eq!(take_line(&mut pending).map(|line| line.len()), Some(LINE_BYTES));
    }
}
