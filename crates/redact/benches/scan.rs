//! How fast a stream lets output through, single-threaded, in the relay's chunks. `cargo bench -p
//! stockade-redact` prints one line per case, in GB/s of its best pass of some milliseconds, so that a busy
//! machine counts little.

use std::hint::black_box;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use stockade_redact::{Redactor, Secret, SecretError};

type Failure = Box<dyn std::error::Error>;

const SOURCE: &[u8] = include_bytes!("../src/stream.rs");

const TOTAL: usize = 8 << 20;
const CHUNK: usize = 256 << 10;
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

/// The log lines of `xtask bench`'s P6, with `url` in each.
fn lines(url: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(TOTAL + 256);
    let mut at = 0_u64;
    while text.len() < TOTAL {
        let line = format!(
            "2026-01-02T03:{:02}:{:02}.{:06}Z info request{{id={:016x} path={url}/api/v1/items/{}}}: served in {} us\n",
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
    text.truncate(TOTAL);
    text
}

/// The ten secrets of `xtask bench`'s P6.
fn hex_secrets() -> Result<Vec<Secret>, SecretError> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut value = || {
        let mut text = String::new();
        for _ in 0..5 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(&format!("{:08x}", state >> 32));
        }
        text
    };
    (0..10).map(|at| Secret::new(&format!("BENCH_SECRET_{at}"), value().as_bytes())).collect()
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

/// What to run: `cargo bench -p stockade-redact -- P6 --once` counts instructions under callgrind.
struct Choice {
    /// Only cases whose name begins so.
    part: String,
    enough: Duration,
}

impl Choice {
    fn of_arguments() -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let enough = if words.iter().any(|word| word == "--once") { Duration::ZERO } else { ENOUGH };
        let part = words.into_iter().find(|word| !word.starts_with("--")).unwrap_or_default();
        Self { part, enough }
    }

    fn measure(&self, name: &str, redactor: &Redactor, input: &[u8]) -> Result<(), Failure> {
        if !name.starts_with(&self.part) {
            return Ok(());
        }
        let (mut best, start) = (Duration::MAX, Instant::now());
        let shown = loop {
            let before = Instant::now();
            let shown = pass(redactor, input);
            best = best.min(before.elapsed());
            if start.elapsed() >= self.enough {
                break shown;
            }
        };
        let speed = f64::from(u32::try_from(input.len())?) / best.as_secs_f64() / 1e9;
        writeln!(io::stdout(), "{name:<46} {speed:>8.2} GB/s   {shown} of {} shown", input.len())?;
        Ok(())
    }
}

/// Kept apart so that callgrind can count it alone.
#[inline(never)]
fn pass(redactor: &Redactor, input: &[u8]) -> usize {
    let mut stream = redactor.stream();
    let mut shown = 0;
    let mut out = |bytes: &[u8]| shown += black_box(bytes).len();
    for chunk in input.chunks(CHUNK) {
        stream.push(chunk, &mut out);
    }
    stream.finish(&mut out);
    shown
}

fn main() -> Result<(), Failure> {
    let choice = Choice::of_arguments();
    bars(&choice)?;
    ordinary(&choice)?;
    adversarial(&choice)
}

/// What the bars of P6 are measured on, and its neighbours.
fn bars(choice: &Choice) -> Result<(), Failure> {
    let cases = [
        ("shapes", Redactor::new(&[], true)?),
        ("ten secrets", Redactor::new(&hex_secrets()?, false)?),
        ("ten secrets and shapes", Redactor::new(&hex_secrets()?, true)?),
    ];
    let inputs = [
        ("zeros", vec![0; TOTAL]),
        ("lines", lines("")),
        ("lines with URLs", lines("https://example.org:8080")),
    ];
    for (what, redactor) in &cases {
        for (name, input) in &inputs {
            choice.measure(&format!("P6, {what}: {name}"), redactor, input)?;
        }
    }
    Ok(())
}

fn ordinary(choice: &Choice) -> Result<(), Failure> {
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
            choice.measure(&format!("{what}: {name}"), redactor, input)?;
        }
    }
    Ok(())
}

fn adversarial(choice: &Choice) -> Result<(), Failure> {
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
        ("ends without a URL", b"name@host "),
        ("URLs", b"https://example.org:8080/a "),
    ] {
        choice.measure(&format!("adversarial: {name}"), &hostile, &repeat(unit))?;
    }
    Ok(())
}
