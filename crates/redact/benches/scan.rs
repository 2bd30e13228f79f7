//! How fast a stream lets output through, single-threaded, in 1 MiB chunks. `cargo bench -p
//! stockade-redact` prints one line per case, in GB/s of CPU time, so that a busy machine doesn't
//! count.

use std::hint::black_box;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use stockade_redact::{Redactor, Secret, SecretError};

const SOURCE: &[u8] = include_bytes!("../src/stream.rs");

const TOTAL: usize = 8 << 20;
const CHUNK: usize = 1 << 20;
const ENOUGH: Duration = Duration::from_millis(300);

fn repeat(unit: &[u8]) -> Vec<u8> {
    unit.iter().copied().cycle().take(TOTAL).collect()
}

fn random(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    }
}

/// Log-like lines of words, paths, numbers and hashes.
fn text() -> Vec<u8> {
    const WORDS: &[&str] = &[
        "warning:",
        "unused",
        "variable",
        "src/lib.rs",
        "Compiling",
        "the",
        "error",
        "of",
        "a",
        "test",
        "ok",
        "--release",
        "https://example.org/docs",
        "0.12.4",
        "in",
        "fn",
        "main()",
        "{",
        "}",
        "result",
        "passed;",
        "GET",
        "/index.html",
        "200",
        "1.25s",
        "task-runner",
        "/usr/lib/x86_64-linux-gnu",
        "->",
        "let",
        "=",
    ];
    let mut next = random(42);
    let mut text = Vec::with_capacity(TOTAL + 64);
    while text.len() < TOTAL {
        let pick = next();
        match pick % 16 {
            0 => text.extend_from_slice(format!("{:016x}{:016x}", next(), next()).as_bytes()),
            1 => text.extend_from_slice((pick >> 40).to_string().as_bytes()),
            _ => {
                let word = usize::try_from(pick >> 32).unwrap_or(0) % WORDS.len();
                text.extend_from_slice(WORDS[word].as_bytes());
            }
        }
        text.push(if pick >> 20 & 7 == 0 { b'\n' } else { b' ' });
    }
    text.truncate(TOTAL);
    text
}

fn binary() -> Vec<u8> {
    let mut next = random(7);
    (0..TOTAL / 8).flat_map(|_| next().to_le_bytes()).collect()
}

fn secrets(length: usize) -> Result<Vec<Secret>, SecretError> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-+/";
    let mut next = random(99);
    (0..10)
        .map(|n| {
            let pick = |r: u64| ALPHABET[usize::try_from(r >> 33).unwrap_or(0) % ALPHABET.len()];
            let value: Vec<u8> = (0..length).map(|_| pick(next())).collect();
            Secret::new(&format!("KEY{n}"), &value)
        })
        .collect()
}

/// Nanoseconds this thread has run.
fn cpu_time() -> io::Result<u64> {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = line.split_ascii_whitespace().next().and_then(|field| field.parse().ok());
    first.ok_or_else(|| io::Error::other("/proc/thread-self/schedstat has no number"))
}

fn measure(name: &str, redactor: &Redactor, input: &[u8]) -> io::Result<()> {
    let (mut bytes, mut shown, start, cpu) = (0_u64, 0, Instant::now(), cpu_time()?);
    while start.elapsed() < ENOUGH {
        let mut stream = redactor.stream();
        shown = 0;
        let mut out = |bytes: &[u8]| shown += black_box(bytes).len();
        for chunk in input.chunks(CHUNK) {
            stream.push(chunk, &mut out);
        }
        stream.finish(&mut out);
        bytes += input.len() as u64;
    }
    let spent = u32::try_from((cpu_time()? - cpu) / 1000).unwrap_or(u32::MAX);
    let speed = f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX)) * 1.024 / f64::from(spent.max(1));
    writeln!(io::stdout(), "{name:<46} {speed:>8.2} GB/s   {shown} of {} shown", input.len())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (short, long) = (secrets(12)?, secrets(40)?);
    let cases = [
        ("nothing to find", Redactor::new(&[], false)?),
        ("shapes", Redactor::new(&[], true)?),
        ("ten secrets of 40", Redactor::new(&long, false)?),
        ("ten secrets of 12", Redactor::new(&short, false)?),
        ("ten secrets of 40 and shapes", Redactor::new(&long, true)?),
        ("ten secrets of 12 and shapes", Redactor::new(&short, true)?),
    ];
    let inputs = [("log", text()), ("source", repeat(SOURCE)), ("yes", repeat(b"y\n")), ("binary", binary())];
    for (what, redactor) in &cases {
        for (name, input) in &inputs {
            measure(&format!("{what}: {name}"), redactor, input)?;
        }
    }
    let known = Secret::new("KEY", b"0123456789abcdefghij")?;
    let periodic = Secret::new("REP", &[b'a'; 64])?;
    let hostile = Redactor::new(&[known, periodic], true)?;
    for (name, unit) in [
        ("first nine bytes over and over", &b"012345678"[..]),
        ("all but the last byte", b"0123456789abcdefghi"),
        ("the secret itself", b"0123456789abcdefghij"),
        ("a period that nearly fits", b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"),
        ("a period that fits", b"a"),
        ("URL heads", b"://"),
        ("JWT heads", b".eyJ"),
        ("token heads", b"sk-ghp_"),
        ("dashes", b"-----BEGIN "),
        ("a key without an end", b"-----BEGIN PRIVATE KEY-----\n"),
        ("URLs", b"https://example.org:8080/a "),
    ] {
        measure(&format!("adversarial: {name}"), &hostile, &repeat(unit))?;
    }
    Ok(())
}
