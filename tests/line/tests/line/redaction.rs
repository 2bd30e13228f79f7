//! SEC-4: known values, their encodings and common token shapes never show, and nothing else changes.

use std::time::{Duration, Instant};

use stockade_line_tests::{World, until};
use stockade_proto::Code;

const VALUE: &str = "hunter2-Kx?/+ zebra";

fn base64(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let three = [chunk[0], *chunk.get(1).unwrap_or(&0), *chunk.get(2).unwrap_or(&0)];
        let bits = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
        for at in 0..4 {
            if at > chunk.len() {
                out.push('=');
            } else {
                let index = usize::try_from(bits >> (18 - 6 * at) & 63).unwrap_or(0);
                out.push(char::from(alphabet[index]));
            }
        }
    }
    out
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn percent(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
                char::from(*byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// Prints the file `text` of the workspace, on both streams.
fn shown(world: &World, text: &str) -> (String, u64) {
    world.plant("work/text", text);
    let ran =
        world.sh("cat text; cat text >&2").option("--secret-env", "TOKEN").caller_env("TOKEN", VALUE).go();
    assert_eq!(ran.code(), 0, "{ran}");
    assert_eq!(ran.out(), ran.err(), "both streams alike");
    let result = ran.result();
    assert_eq!(result.stdout.bytes, text.len() as u64, "bytes are counted before redaction");
    (ran.out(), result.stdout.redactions)
}

#[test]
fn the_value_and_its_encodings() {
    let world = World::new();
    let bytes = VALUE.as_bytes();
    for (form, encoded) in [
        ("raw", VALUE.to_owned()),
        ("base64", base64(bytes, STANDARD)),
        ("base64url", base64(bytes, URL).trim_end_matches('=').to_owned()),
        ("hex", hex(bytes)),
        ("HEX", hex(bytes).to_uppercase()),
        ("url", percent(bytes)),
        ("form", percent(bytes).replace("%20", "+")),
        ("json", VALUE.replace('/', "\\/")),
    ] {
        let (out, count) = shown(&world, &format!("before {encoded} after\n"));
        assert_eq!(out, "before [redacted:TOKEN] after\n", "{form}: {encoded}");
        assert_eq!(count, 1, "{form}");
    }
}

#[test]
fn base64_of_a_longer_text_that_holds_it() {
    let world = World::new();
    for lead in ["", "x", "xy"] {
        let text = format!("{lead}user:{VALUE}:more");
        let (out, _) = shown(&world, &format!("{}\n", base64(text.as_bytes(), STANDARD)));
        // The middle of the encoding is the value's own, at each of three offsets.
        let inner = base64(VALUE.as_bytes(), STANDARD);
        assert!(out.contains("[redacted:TOKEN]"), "{lead}: {out}");
        assert!(!out.contains(&inner[4..16]), "{lead}: {out}");
    }
}

#[test]
fn several_times_and_side_by_side() {
    let world = World::new();
    let (out, count) = shown(&world, &format!("{VALUE}{VALUE} {VALUE}\n"));
    assert_eq!(out, "[redacted:TOKEN][redacted:TOKEN] [redacted:TOKEN]\n");
    assert_eq!(count, 3);
}

#[test]
fn across_every_chunk_border() {
    let world = World::new();
    // A write ends at each byte of the value, with a pause that is longer than output is held back for.
    let steps: String = (1..VALUE.len())
        .step_by(6)
        .map(|at| format!("printf '%s' \"$(printf '%s' '{VALUE}' | head -c {at})\"; sleep 0.12; printf '%s\\n' \"$(printf '%s' '{VALUE}' | tail -c +{})\"; ", at + 1))
        .collect();
    let ran = world.sh(&steps).option("--secret-env", "TOKEN").caller_env("TOKEN", VALUE).go().ends_with(0);
    assert!(!ran.out().contains("zebra"), "the end of a value shows: {ran}");
    for line in ran.out().lines() {
        assert!(line.ends_with("[redacted:TOKEN]"), "{ran}");
        // What came before the pause had to be shown in time; the value as a whole never is.
        assert!(!line.contains(VALUE), "{ran}");
    }
}

#[test]
fn one_byte_at_a_time_with_pauses() {
    let world = World::new();
    let value = "walrus-7-noon";
    let steps: String = value.chars().map(|c| format!("printf '%s' '{c}'; sleep 0.08; ")).collect();
    let ran = world.sh(&steps).option("--secret-env", "TOKEN").caller_env("TOKEN", value).go().ends_with(0);
    let out = ran.out();
    assert!(!out.contains(value), "{ran}");
    assert!(out.contains("[redacted:TOKEN]"), "{ran}");
    let plain = out.replace("[redacted:TOKEN]", "");
    assert!(plain.len() <= value.len() / 2, "{} bytes of it show: {ran}", plain.len());
}

#[test]
fn one_byte_at_a_time_without_pauses() {
    let world = World::new();
    let value = "walrus-8-noon-and-more";
    let steps: String = value.chars().map(|c| format!("printf '%s' '{c}'; ")).collect();
    let ran = world.sh(&steps).option("--secret-env", "TOKEN").caller_env("TOKEN", value).go().ends_with(0);
    assert!(!ran.out().contains(value) && ran.out().contains("[redacted:TOKEN]"), "{ran}");
}

#[test]
fn a_file_with_several_lines() {
    let world = World::new();
    let key = "first line of it\nsecond line of it\n\nlast line of it\n";
    let file = world.plant("key", key);
    world.plant("work/text", format!("before\n{key}after\n"));
    let ran = world
        .line(&["cat", "text"])
        .option("--secret-file", format!("KEY={}", file.display()))
        .go()
        .ends_with(0);
    assert_eq!(ran.out(), "before\n[redacted:KEY]\nafter\n", "{ran}");
    // By its file's name where it has no other.
    let ran = world.line(&["cat", "text"]).option("--secret-file", &file).go().ends_with(0);
    assert!(ran.out().contains("[redacted:key]"), "{ran}");
    // As one JSON string.
    world.plant("work/text", format!("{{\"k\": {}}}\n", serde_json::Value::from(key.trim_end())));
    let ran = world.line(&["cat", "text"]).option("--secret-file", &file).go().ends_with(0);
    assert_eq!(ran.out(), "{\"k\": \"[redacted:key]\"}\n", "{ran}");
}

#[test]
fn common_token_shapes_without_being_told() {
    let world = World::new();
    let word = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
    let body = "MIIEowIBAAKCAQEAxyzzyx0123456789abcdefghijklmnopqrstuvwxyzABCDEF\n".repeat(5);
    let pem = format!("-----BEGIN RSA PRIVATE KEY-----\n{body}-----END RSA PRIVATE KEY-----");
    for (token, secret) in [
        ("AKIAIOSFODNN7EXAMPLE".to_owned(), "IOSFODNN7"),
        (format!("ghp_{word}"), word),
        (format!("glpat-{}", &word[..20]), &word[..20]),
        (format!("xoxb-{word}"), word),
        (format!("sk-ant-api03-{word}{word}"), word),
        (format!("Authorization: Bearer {word}"), word),
        ("https://user:pa55w0rd-x1@example.org/".to_owned(), "pa55w0rd-x1"),
        (pem, "MIIEowIBAAKCAQEA"),
    ] {
        world.plant("work/text", format!("before {token} after\n"));
        let ran = world.line(&["cat", "text"]).go().ends_with(0);
        assert!(!ran.out().contains(secret), "{token}: {ran}");
        assert!(ran.out().starts_with("before ") && ran.out().ends_with(" after\n"), "{token}: {ran}");
        assert!(ran.out().contains("[redacted:") && ran.result().stdout.redactions >= 1, "{token}: {ran}");
    }
}

#[test]
fn ordinary_output_is_not_changed() {
    let world = World::new();
    let text = "the quick brown fox\nhunter2 alone is short\nhttps://example.org:8080/a@b\nsk-\nghp_\nAKIA\n\
                d41d8cd98f00b204e9800998ecf8427e  file\n-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n\
                /usr/lib/x86_64-linux-gnu/libc.so.6\n\u{e9}\u{4e2d}\u{1f980}\n";
    let (out, count) = shown(&world, text);
    assert_eq!(out, text);
    assert_eq!(count, 0);
}

#[test]
fn an_ordinary_prompt_is_prompt_with_ten_secrets() {
    let world = World::new();
    let mut line = world.sh("printf 'Continue? [y/n] '; read line").flag("--stdin").input_open();
    for at in 0..10 {
        line = line
            .caller_env(format!("S{at}"), format!("C-secret-number-{at}"))
            .option("--secret-env", format!("S{at}"));
    }
    let running = line.start();
    // It starts like a secret, so it is held back for a moment, and then shown.
    until("the shell", || (stockade_line_tests::descendants(running.pid()).len() >= 2).then_some(()));
    let begun = Instant::now();
    assert!(running.out_within("Continue? [y/n] ", Duration::from_secs(1)), "{:?}", running.out_now());
    assert!(begun.elapsed() < Duration::from_secs(1) * stockade_line_tests::slowness());
}

#[test]
fn in_files_and_in_the_result_too() {
    let world = World::new();
    let out = world.base().join("out");
    let ran = world
        .line(&["echo", "tok", VALUE])
        .option("--secret-env", "TOKEN")
        .caller_env("TOKEN", VALUE)
        .option("--stdout", &out)
        .go()
        .ends_with(0);
    assert_eq!(world.read("out"), "tok [redacted:TOKEN]\n");
    let json = String::from_utf8_lossy(ran.json.as_deref().unwrap_or_default()).into_owned();
    assert!(!json.contains("zebra"), "the value is in the result's command: {json}");
}

#[test]
fn in_our_own_messages() {
    let world = World::new();
    // The command is not found, and its name is the secret.
    let value = "zebra-at-midnight";
    let ran =
        world.line(&[value]).option("--secret-env", "TOKEN").caller_env("TOKEN", value).go().ends_with(127);
    assert!(!ran.err().contains(value), "the value is in the sentence: {ran}");
}

#[test]
fn a_secret_is_not_handed_to_the_command() {
    let world = World::new();
    let ran = world
        .sh("env; cat /proc/*/environ | tr '\\0' '\\n'; cat /proc/*/cmdline")
        .option("--secret-env", "TOKEN")
        .caller_env("TOKEN", "plain-words-here")
        .go();
    // It would be redacted in any case, and counted then.
    assert_eq!(ran.result().stdout.redactions, 0, "{ran}");
    assert!(!ran.out().contains("TOKEN"), "{ran}");
}

#[test]
fn secrets_that_can_t_be_used() {
    let world = World::new();
    world.plant("short", "1234567");
    world.plant("long", vec![b'x'; 70_000]);
    let path = |name: &str| world.base().join(name).display().to_string();
    for (option, value) in [
        ("--secret-env", "NOT_SET".to_owned()),
        ("--secret-env", "SHORT".to_owned()),
        ("--secret-env", String::new()),
        ("--secret-file", path("short")),
        ("--secret-file", path("long")),
        ("--secret-file", path("missing")),
        ("--secret-file", world.base().display().to_string()),
    ] {
        let ran = world.line(&["touch", "ran"]).option(option, &value).caller_env("SHORT", "tiny-7x").go();
        let refusal = ran.refused(Code::SecretInvalid);
        assert!(!refusal.message.contains("tiny-7x") && !refusal.message.contains("1234567"), "{ran}");
        assert!(!world.work().join("ran").exists());
    }
}

#[test]
fn a_secret_from_a_descriptor() {
    // `--secret-file <(pass show token)`.
    let world = World::new();
    world.plant("token", "from-a-descriptor-7\n");
    world.plant("work/text", "it is from-a-descriptor-7.\n");
    let ran = world
        .line(&["cat", "text"])
        .option("--secret-file", "T=/dev/fd/5")
        .before(&["/bin/sh", "-c", "exec \"$@\" 5<../token", "sh"])
        .go()
        .ends_with(0);
    assert_eq!(ran.out(), "it is [redacted:T].\n", "{ran}");
}

#[test]
fn a_large_output_with_secrets_in_it_is_exact() {
    let world = World::new();
    let line = format!("a line of ordinary words and {VALUE} among them\n");
    world.plant("work/text", line.repeat(100_000));
    let ran = world
        .line(&["cat", "text"])
        .option("--secret-env", "TOKEN")
        .caller_env("TOKEN", VALUE)
        .go()
        .ends_with(0);
    let expected = line.replace(VALUE, "[redacted:TOKEN]").repeat(100_000);
    // Where the command stalls inside a secret, up to three bytes of it may be shown before the marker.
    let shown = (1..=3).rev().fold(ran.out().to_string(), |text, length| {
        text.replace(&format!(" and {}[redacted", &VALUE[..length]), " and [redacted")
    });
    assert!(shown == expected, "{} bytes, not {}", ran.stdout.len(), expected.len());
    assert_eq!(ran.result().stdout.redactions, 100_000);
}
