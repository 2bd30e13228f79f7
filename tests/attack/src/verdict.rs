//! What a step answers, and the one line that tells the suite.

use std::ffi::CString;
use std::process::ExitCode;

/// What steps hand to the steps after them.
#[derive(Default)]
pub(crate) struct Scene {
    /// The last descriptor a step opened for later steps.
    pub(crate) fd: Option<i32>,
    /// What the attacker got hold of.
    pub(crate) loot: String,
}

pub(crate) enum Stop {
    /// The kernel said no.
    Held { step: String, errno: i32 },
    /// The attack can't be tried here, walls or not.
    Unable(String),
}

pub(crate) type Step = Result<(), Stop>;

pub(crate) fn unable<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Unable(why.into()))
}

pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub(crate) fn held<T>(step: impl Into<String>, errno: i32) -> Result<T, Stop> {
    Err(Stop::Held { step: step.into(), errno })
}

/// A libc-style answer: below zero is a refusal with `errno`.
pub(crate) fn check(step: &str, answer: i64) -> Result<i64, Stop> {
    if answer < 0 { held(step, errno()) } else { Ok(answer) }
}

pub(crate) fn io<T>(step: &str, answer: std::io::Result<T>) -> Result<T, Stop> {
    answer.or_else(|error| held(step, error.raw_os_error().unwrap_or(0)))
}

pub(crate) fn text(value: &str) -> CString {
    CString::new(value).unwrap_or_default()
}

pub(crate) fn argument<'a>(arguments: &'a [String], at: usize, what: &str) -> Result<&'a str, Stop> {
    match arguments.get(at) {
        Some(value) => Ok(value),
        None => unable(format!("missing argument: {what}")),
    }
}

/// Decimal, or hexadecimal with `0x`, or `ppid`/`self`.
pub(crate) fn number(arguments: &[String], at: usize, what: &str) -> Result<i64, Stop> {
    let word = argument(arguments, at, what)?;
    let parsed = match word {
        "ppid" => return Ok(i64::from(unsafe { libc::getppid() })),
        "self" => return Ok(i64::from(unsafe { libc::getpid() })),
        _ => match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok().map(|value| value as i64),
            None => word.parse::<i64>().ok().or_else(|| word.parse::<u64>().ok().map(|value| value as i64)),
        },
    };
    match parsed {
        Some(value) => Ok(value),
        None => unable(format!("not a number: {what}={word}")),
    }
}

pub(crate) fn report(scene: &Scene, answer: &Step) -> ExitCode {
    match answer {
        Ok(()) => {
            println!("VERDICT won {}", scene.loot.escape_default());
            ExitCode::SUCCESS
        }
        Err(Stop::Held { step, errno }) => {
            println!("VERDICT held {step} {errno}");
            ExitCode::from(10)
        }
        Err(Stop::Unable(why)) => {
            println!("VERDICT unable {why}");
            ExitCode::from(11)
        }
    }
}
