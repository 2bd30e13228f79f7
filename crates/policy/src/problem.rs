//! A profile that can't be used: the refusal, and the picture of the line that caused it.
//! The picture is drawn by hand: a profile error is the only one with a source line, and start-up time counts.

use std::borrow::Cow;

use stockade_proto::{Bytes, Code, Refusal};

use crate::text::{ProfileText, Spot};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{refusal}")]
pub struct ProfileError {
    pub refusal: Refusal,
    pub picture: Option<Picture>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    text: Cow<'static, str>,
    start: usize,
    end: usize,
}

impl ProfileError {
    pub fn new(
        code: Code,
        text: &ProfileText,
        spot: Spot,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let refusal = Refusal::new(code, message, remedy).at(text.origin(spot.start));
        let picture = Picture { text: text.text.clone(), start: spot.start, end: spot.end };
        Self { picture: Some(picture), ..Self::from(refusal) }
    }
}

impl From<Refusal> for ProfileError {
    fn from(refusal: Refusal) -> Self {
        let Refusal { code, message, remedy, origin } = refusal;
        let refusal = Refusal { code, message: sentence(message), remedy: sentence(remedy), origin };
        Self { refusal, picture: None }
    }
}

impl From<ProfileError> for Refusal {
    fn from(error: ProfileError) -> Self {
        error.refusal
    }
}

/// Characters of a sentence that are shown. It may quote a text of any length, and a list of any number.
const SENTENCE: usize = 1000;

/// Whatever a sentence quotes, and whoever wrote it (a parser of TOML quotes too): nothing in it talks to the
/// terminal, and it ends.
fn sentence(text: String) -> String {
    if text.len() <= SENTENCE && !text.contains(Bytes::is_unseen) {
        return text;
    }
    let beginning = text.chars().take(SENTENCE).collect::<String>();
    let seen = Bytes::from(beginning.as_str()).to_string();
    if seen == text {
        return text;
    }
    let mut short = seen.chars().take(SENTENCE).collect::<String>();
    if seen != short || beginning != text {
        short.push('…');
    }
    short
}

/// A source line longer than this says nothing to a person and may be meant to flood a terminal.
const PICTURE_WIDTH: usize = 160;

struct Palette {
    red: &'static str,
    blue: &'static str,
    end: &'static str,
}

const PLAIN: Palette = Palette { red: "", blue: "", end: "" };
const COLOURS: Palette = Palette { red: "\x1b[1;31m", blue: "\x1b[1;34m", end: "\x1b[0m" };

pub fn render(error: &ProfileError, colour: bool) -> String {
    let Palette { red, blue, end } = if colour { COLOURS } else { PLAIN };
    let refusal = &error.refusal;
    let mut out = format!("{red}refused{end}: {} [{}]\n", refusal.message, refusal.code);
    if let Some(origin) = &refusal.origin {
        let number = origin.line.to_string();
        let pad = " ".repeat(number.len());
        let drawn = error.picture.as_ref().and_then(|picture| draw(picture, origin.line));
        out.push_str(&format!("{pad}{blue}-->{end} {origin}\n"));
        if let Some((line, carets)) = drawn {
            out.push_str(&format!(
                "{pad} {blue}|{end}\n{blue}{number} |{end} {line}\n{pad} {blue}|{end} {red}{carets}{end}\n"
            ));
        }
    }
    out.push_str(&format!("{blue}remedy{end}: {}\n", refusal.remedy));
    out
}

/// The line and its carets. Control characters are escaped: a workspace's file must not talk to the terminal.
fn draw(picture: &Picture, line: u32) -> Option<(String, String)> {
    let nth = usize::try_from(line).ok()?.checked_sub(1)?;
    let source = picture.text.split('\n').nth(nth)?;
    let line_start = picture.text.split('\n').take(nth).map(|line| line.len() + 1).sum::<usize>();
    let from = picture.start.saturating_sub(line_start).min(source.len());
    let to = picture.end.saturating_sub(line_start).clamp(from, source.len());
    let shown = |part: &str| Bytes::from(part).to_string();
    let (before, marked, after) = (source.get(..from)?, source.get(from..to)?, source.get(to..)?);
    let carets = format!(
        "{}{}",
        " ".repeat(shown(before).chars().count()),
        "^".repeat(shown(marked).chars().count().max(1))
    );
    let full = format!("{}{}{}", shown(before), shown(marked), shown(after));
    if full.chars().count() > PICTURE_WIDTH {
        return None;
    }
    Some((full, carets))
}

/// The nearest of `names` to `given`, if it is near enough to be meant.
pub fn nearest<'n>(given: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    /// Below this, a suggestion is a guess that misleads.
    const NEAR: f64 = 0.75;
    names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(given, name), name))
        .filter(|(score, _)| *score >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}
