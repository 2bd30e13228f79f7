//! What a stream must equal, written the slow and obvious way over a whole buffer, and the properties
//! that hold it to that: any cut, any release, any order.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use regex_automata::{Anchored, Input, meta::Regex};

use crate::{MIN_SECRET, Redactor, Secret, forms};

/// Name, what may not stand before, regex with the secret in group 1.
const SHAPES: &[(&str, &str, &str)] = &[
    ("aws-key-id", "", "((?:AKIA|ASIA)[A-Z0-9]{16,})"),
    ("github-token", "", "(gh[pousr]_[A-Za-z0-9_]{30,})"),
    ("github-token", "", "(b_pat_[A-Za-z0-9_]{40,})"),
    ("gitlab-token", "", "(glpat-[A-Za-z0-9_-]{20,})"),
    ("slack-token", "", "(xox[abprs]-[A-Za-z0-9-]{20,})"),
    ("anthropic-key", "w", "(sk-ant-[A-Za-z0-9_-]{24,})"),
    ("openai-key", "w", "(sk-(?:proj|svcacct)-[A-Za-z0-9_-]{24,})"),
    ("api-key", "w", "(sk-or-v1-[A-Za-z0-9_-]{24,})"),
    ("api-key", "w", "(sk-[A-Za-z0-9]{32,})"),
    ("google-key", "w-", "(AIza[A-Za-z0-9_-]{35,})"),
    ("npm-token", "", "(npm_[A-Za-z0-9]{36,})"),
    ("pypi-token", "", "(-AgEI[A-Za-z0-9_-]{50,})"),
    ("stripe-key", "", "([sr]k_live_[A-Za-z0-9]{16,})"),
    ("huggingface-token", "w", "(hf_[A-Za-z0-9]{30,})"),
    ("jwt", "w-", r"(eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_.-]{8,})"),
    ("bearer-token", "w", "[Bb]earer ([A-Za-z0-9._~+/=-]{20,})"),
    (
        "url-password",
        "",
        r"://[A-Za-z0-9._~!$&'*+,;=%-]{0,256}:([A-Za-z0-9._~!$&*+,;=%:^#?|\x80-\xFE-]{3,512})@",
    ),
];
const WANT_DIGIT: &[&str] = &["github-token", "slack-token", "api-key", "huggingface-token", "bearer-token"];

type Match = (usize, usize, usize, String);

static REGEXES: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let syntax = regex_automata::util::syntax::Config::new().unicode(false).utf8(false);
    let build = |pattern: &str| {
        Regex::builder().syntax(syntax).configure(Regex::config().utf8_empty(false)).build(pattern).unwrap()
    };
    SHAPES.iter().map(|(_, _, pattern)| build(pattern)).collect()
});

fn shape_matches(text: &[u8], found: &mut Vec<Match>) {
    for (rank, (name, before, pattern)) in SHAPES.iter().enumerate() {
        let regex = &REGEXES[rank];
        for start in 0..text.len() {
            let last = if start == 0 { b' ' } else { text[start - 1] };
            let word = last.is_ascii_alphanumeric() || last == b'_';
            if before.contains('w') && word || before.contains('-') && last == b'-' {
                continue;
            }
            let mut captures = regex.create_captures();
            regex.captures(Input::new(text).range(start..).anchored(Anchored::Yes), &mut captures);
            let Some(span) = captures.get_group(1) else { continue };
            let digit = text[span.start..span.end].iter().any(u8::is_ascii_digit);
            if digit || !WANT_DIGIT.contains(name) || pattern.contains("or-v1") || pattern.contains("gh[") {
                found.push((span.start, span.end, 1000 + rank, (*name).to_owned()));
            }
        }
    }
}

fn known_forms(secrets: &[Secret]) -> BTreeMap<Vec<u8>, usize> {
    let mut known = BTreeMap::new();
    for (owner, secret) in secrets.iter().enumerate() {
        forms::visit(secret.value(), &mut |form| {
            known.entry(form.to_vec()).or_insert(owner);
        });
    }
    known
}

fn reference(secrets: &[Secret], shapes: bool, text: &[u8]) -> Vec<u8> {
    let mut found: Vec<Match> = Vec::new();
    let known = known_forms(secrets);
    for (form, &owner) in &known {
        for start in 0..(text.len() + 1).saturating_sub(form.len()) {
            if text[start..].starts_with(form) {
                found.push((start, start + form.len(), owner, secrets[owner].name().to_owned()));
            }
        }
    }
    for start in 0..text.len() {
        let rest = &text[start..];
        let unfinished = known.iter().filter(|(form, _)| {
            rest.len() >= MIN_SECRET && form.len() <= rest.len() * 2 && form.starts_with(rest)
        });
        if let Some((_, &owner)) = unfinished.min_by_key(|(form, owner)| (form.len(), **owner)) {
            found.push((start, text.len(), owner, secrets[owner].name().to_owned()));
            break;
        }
    }
    if shapes {
        shape_matches(text, &mut found);
    }
    // Leftmost first; of the same start a known value before a shape, the longest value, the first row.
    found.sort_by_key(|&(start, end, rank, _)| {
        (start, rank >= 1000, if rank >= 1000 { rank } else { usize::MAX - end }, rank)
    });
    let mut shown = Vec::new();
    let (mut at, mut next) = (0, 0);
    while next < found.len() {
        let (start, mut end, _, name) = found[next].clone();
        while next < found.len() && found[next].0 < end {
            end = end.max(found[next].1);
            next += 1;
        }
        shown.extend_from_slice(&text[at..start]);
        shown.extend_from_slice(format!("[redacted:{name}]").as_bytes());
        at = end;
    }
    shown.extend_from_slice(&text[at..]);
    shown
}

/// `cuts` are lengths of the chunks; `releases` says after which of them the time is up.
fn streamed(redactor: &Redactor, text: &[u8], cuts: &[usize], releases: &[bool]) -> Vec<u8> {
    let mut stream = redactor.stream();
    let mut shown = Vec::new();
    let mut out = |bytes: &[u8]| shown.extend_from_slice(bytes);
    let mut rest = text;
    let mut turn = 0;
    while !rest.is_empty() {
        let length = cuts.get(turn % cuts.len().max(1)).copied().unwrap_or(usize::MAX).clamp(1, rest.len());
        let (chunk, after) = rest.split_at(length);
        stream.push(chunk, &mut out);
        if releases.get(turn % releases.len().max(1)).copied().unwrap_or(false) {
            stream.release_due(&mut out);
        }
        rest = after;
        turn += 1;
    }
    stream.finish(&mut out);
    assert_eq!(stream.held(), 0);
    shown
}

fn secrets_strategy() -> impl Strategy<Value = Vec<Secret>> {
    let value = prop_oneof![
        "[a-c]{8,20}",
        "[A-Za-z0-9+/=_-]{8,48}",
        "[A-Za-z0-9]{60,70}",
        "[ -~]{8,30}",
        "[A-Za-z/\"\\\\é\n]{12,40}[0-9]{8}",
    ];
    proptest::collection::vec(value, 0..4).prop_map(|values| {
        let name = |n: usize| format!("S{n}");
        let mut secrets: Vec<Secret> = Vec::new();
        for (n, value) in values.iter().enumerate() {
            secrets.extend(Secret::new(&name(n), value.as_bytes()));
            // One that begins like another, and one that overlaps its end.
            if n == 0 {
                secrets.extend(Secret::new("LONGER", format!("{value}-and-more").as_bytes()));
                let tail: String = value.chars().skip(value.chars().count() / 2).collect();
                secrets.extend(Secret::new("TAIL", format!("{tail}tailtail").as_bytes()));
            }
        }
        secrets
    })
}

const TOKENS: &[&str] = &[
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "github_pat_0123456789abcdefghijABCDEFGHIJ_0123456789",
    "glpat-0123456789_abcdefghij",
    "xoxb-1234567890-abcdefghijkl",
    "sk-ant-api03-0123456789abcdefghij",
    "sk-proj-0123456789_abcdefghijklm",
    "sk-or-v1-0123456789abcdef01234567",
    "sk-0123456789abcdefghijABCDEFGHIJ0123",
    "AIzaSyA0123456789abcdefghijABCDEFGHIJ01",
    "npm_0123456789abcdefghijABCDEFGHIJ012345",
    "sk_live_0123456789abcdef",
    "hf_0123456789abcdefghijABCDEFGHIJ",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "Bearer 0123456789.abcdefghij-",
    "pypi-AgEI0123456789abcdefghijABCDEFGHIJ0123456789abcdefghij",
    "rk_live_0123456789abcdefBearer sk-",
    "https://user:pa55word@host/",
    "redis://:pa:ss@host/",
    "http://localhost:8080/",
];

/// A text as fragments, resolved against the secrets: forms, beginnings of forms, tokens, noise.
fn text_strategy() -> impl Strategy<Value = Vec<(u8, usize, usize, String)>> {
    proptest::collection::vec((0..7_u8, any::<usize>(), any::<usize>(), "[a-z .\n_:/@-]{0,8}"), 0..12)
}

fn compose(secrets: &[Secret], parts: &[(u8, usize, usize, String)]) -> Vec<u8> {
    let known: Vec<Vec<u8>> = known_forms(secrets).into_keys().collect();
    let mut text = Vec::new();
    for (kind, pick, cut, noise) in parts {
        let form = || known.get(pick % known.len().max(1)).cloned().unwrap_or_default();
        let token = TOKENS[pick % TOKENS.len()].as_bytes();
        match kind {
            0 => text.extend(secrets.get(pick % secrets.len().max(1)).map_or(&b""[..], Secret::value)),
            1 => text.extend(form()),
            2 => text.extend(&form()[..cut % (form().len() + 1)]),
            3 => text.extend(token),
            4 => text.extend(&token[..cut % token.len()]),
            5 => text.extend(cut.to_le_bytes()),
            _ => text.extend(noise.as_bytes()),
        }
        if cut % 3 == 0 {
            text.extend(noise.as_bytes());
        }
    }
    text
}

proptest! {
    #[test]
    fn any_cut_equals_the_reference(
        secrets in secrets_strategy(),
        shapes in any::<bool>(),
        parts in text_strategy(),
        cuts in proptest::collection::vec(prop_oneof![Just(1_usize), 1..9_usize, 1..200_usize], 1..8),
    ) {
        let text = compose(&secrets, &parts);
        let redactor = Redactor::new(&secrets, shapes).unwrap();
        let expected = reference(&secrets, shapes, &text).escape_ascii().to_string();
        for cuts in [&cuts[..], &[1], &[usize::MAX]] {
            let got = streamed(&redactor, &text, cuts, &[]).escape_ascii().to_string();
            prop_assert_eq!(&got, &expected, "{}", text.escape_ascii());
        }
    }

    /// Values are upper case, everything else is lower case: whatever the cuts and releases, no more
    /// than three bytes of a value show in a row, and no form shows whole.
    #[test]
    fn releases_never_show_more_than_three_bytes(
        values in proptest::collection::vec(prop_oneof!["[A-D]{8,24}", "[A-Z0-9]{8,40}"], 1..4),
        parts in proptest::collection::vec((any::<usize>(), "[a-z \n]{0,6}"), 1..12),
        cuts in proptest::collection::vec(1..12_usize, 1..6),
        releases in proptest::collection::vec(any::<bool>(), 1..6),
    ) {
        let secrets: Vec<Secret> =
            values.iter().map(|value| Secret::new("x", value.as_bytes()).unwrap()).collect();
        let mut text = String::new();
        for (pick, noise) in &parts {
            text.push_str(&values[pick % values.len()]);
            text.push_str(noise);
        }
        let redactor = Redactor::new(&secrets, false).unwrap();
        for (cuts, releases) in [(&cuts[..], &releases[..]), (&[1], &[true])] {
            let shown = String::from_utf8(streamed(&redactor, text.as_bytes(), cuts, releases)).unwrap();
            let plain = shown.replace("[redacted:x]", "\0");
            let is_value = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
            let longest = plain.split(|c| !is_value(c)).map(str::len).max().unwrap_or(0);
            prop_assert!(longest <= 3, "{} showed {}", text, shown);
            let lower = |text: &str| text.chars().filter(|c| !is_value(*c) && *c != '\0').collect::<String>();
            prop_assert_eq!(lower(&plain), lower(&text));
        }
    }

    #[test]
    fn releases_never_show_a_whole_form(
        secrets in secrets_strategy(),
        parts in text_strategy(),
        cuts in proptest::collection::vec(1..12_usize, 1..6),
        releases in proptest::collection::vec(any::<bool>(), 1..6),
    ) {
        let text = compose(&secrets, &parts);
        let redactor = Redactor::new(&secrets, false).unwrap();
        for (cuts, releases) in [(&cuts[..], &releases[..]), (&[1], &[true])] {
            let shown = streamed(&redactor, &text, cuts, releases);
            for form in known_forms(&secrets).keys() {
                prop_assert!(!shown.windows(form.len()).any(|window| window == form));
            }
        }
    }

    #[test]
    fn text_without_secrets_is_untouched(
        text in proptest::collection::vec(any::<u8>(), 0..3000),
        cuts in proptest::collection::vec(1..50_usize, 1..6),
        releases in proptest::collection::vec(any::<bool>(), 1..6),
    ) {
        let secret = Secret::new("K", b"\xff\xfe never there \xfd\xfc").unwrap();
        let redactor = Redactor::new(&[secret], true).unwrap();
        prop_assert_eq!(&streamed(&redactor, &text, &cuts, &releases), &text);
    }
}
