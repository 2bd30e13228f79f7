//! Starting other programs and waiting for them: a failure always carries the command line and what
//! the program said. Everything `xtask` runs on this machine, except the guest itself, goes through here.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

/// A program's last words that are worth repeating in an error: the cause is at the end.
const LAST_WORDS: usize = 4096;

/// A command that reads no terminal and speaks the C locale, because its answers are parsed.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Runs to the end in silence; what it printed appears only in the error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    finish(command).map(drop)
}

/// Runs to the end and gives its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = finish(command)?;
    String::from_utf8(output.stdout).with_context(|| format!("{} printed no UTF-8", shown(command)))
}

/// Runs to the end and gives its standard output, which is no text.
pub(crate) fn bytes(command: &mut Command) -> Result<Vec<u8>> {
    finish(command).map(|output| output.stdout)
}

/// Runs to the end with its standard error on ours, for programs that a person watches.
pub(crate) fn watched(command: &mut Command) -> Result<Vec<u8>> {
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("can't start {}", shown(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", shown(command), output.status);
    }
    Ok(output.stdout)
}

/// Whether it starts and ends with success; for questions, whose answer is the exit code.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn finish(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("can't start {}", shown(command)))?;
    if !output.status.success() {
        let mut words = String::from_utf8_lossy(&output.stderr).into_owned();
        if words.trim().is_empty() {
            words = String::from_utf8_lossy(&output.stdout).into_owned();
        }
        bail!("{} failed, {}:\n{}", shown(command), output.status, tail(words.trim_end(), LAST_WORDS));
    }
    Ok(output)
}

/// The last `most` bytes of a text, cut at a character.
pub(crate) fn tail(text: &str, most: usize) -> &str {
    let start = (text.len().saturating_sub(most)..=text.len()).find(|&at| text.is_char_boundary(at));
    start.map_or("", |at| &text[at..])
}

pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// As a shell would read it back, so that a person can paste a command that we show.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./,:=+@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_and_its_words() {
        let error = run(command("sh").args(["-c", "echo broken >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("sh -c") && error.contains("broken") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_command_is_shown_as_a_shell_reads_it() {
        let shown = shown(command("printf").args(["%s|", "a b", "it's", "", "k=v"]));
        assert_eq!(output(command("sh").args(["-c", &shown])).unwrap(), "a b|it's||k=v|");
    }

    #[test]
    fn a_tail_never_cuts_a_character() {
        assert_eq!(tail("aé", 1), "");
        assert_eq!(tail("aé", 2), "é");
        assert_eq!(tail("aé", 9), "aé");
    }
}
