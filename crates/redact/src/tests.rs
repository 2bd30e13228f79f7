//! What a reader of SEC-4 would try by hand: slow printers, cut and overlapping secrets, keys, tokens
//! in colours and strings, and ordinary output that must stay as it is.

use std::fs;
use std::path::Path;

use crate::{Redactor, Secret, Stream};

const VALUE: &str = "hunter2-hunter2?";

fn redactor(secrets: &[(&str, &str)], shapes: bool) -> Redactor {
    let secrets: Vec<Secret> =
        secrets.iter().map(|(name, value)| Secret::new(name, value.as_bytes()).unwrap()).collect();
    Redactor::new(&secrets, shapes).unwrap()
}

fn redacted(redactor: &Redactor, text: &str) -> String {
    let whole = String::from_utf8(redactor.redact(text.as_bytes()).into_owned()).unwrap();
    assert_eq!(typed(redactor, text, false), whole, "one byte at a time differs");
    whole
}

/// One byte at a time, with the time up after each if `slow`.
fn typed(redactor: &Redactor, text: &str, slow: bool) -> String {
    let mut stream = redactor.stream();
    let mut shown = Vec::new();
    let mut out = |bytes: &[u8]| shown.extend_from_slice(bytes);
    for byte in text.as_bytes() {
        stream.push(&[*byte], &mut out);
        if slow {
            stream.release_due(&mut out);
        }
    }
    stream.finish(&mut out);
    String::from_utf8(shown).unwrap()
}

fn push(stream: &mut Stream, text: &str) -> String {
    let mut shown = Vec::new();
    stream.push(text.as_bytes(), &mut |bytes| shown.extend_from_slice(bytes));
    String::from_utf8(shown).unwrap()
}

fn release(stream: &mut Stream) -> String {
    let mut shown = Vec::new();
    assert_eq!(stream.has_due(), {
        stream.release_due(&mut |bytes| shown.extend_from_slice(bytes));
        !shown.is_empty()
    });
    String::from_utf8(shown).unwrap()
}

#[test]
fn a_secret_printed_one_byte_at_a_time_never_shows() {
    let redactor = redactor(&[("K", VALUE)], true);
    assert_eq!(typed(&redactor, "a hunter2-hunter2? b", true), "a hun[redacted:K] b");
    assert_eq!(typed(&redactor, "a aHVudGVyMi1odW50ZXIyPw== b", true), "a aHV[redacted:K] b");
    assert_eq!(typed(&redactor, "hunter2-hunter2?hunter2-hunter2?", true), "hun[redacted:K]hun[redacted:K]");
}

#[test]
fn the_state_outlives_a_release() {
    let mut stream = redactor(&[("K", VALUE)], false).stream();
    assert_eq!(push(&mut stream, "$ hu"), "$ ");
    assert_eq!(release(&mut stream), "hu");
    assert_eq!(push(&mut stream, "nt"), "");
    assert_eq!((release(&mut stream), stream.held()), (String::new(), 2));
    assert_eq!(push(&mut stream, "er2-hunter2?!"), "[redacted:K]!");
    assert_eq!(push(&mut stream, "hunter2-hunt!"), "hunter2-hunt!");
    assert_eq!((stream.redactions(), stream.held()), (1, 0));
}

#[test]
fn an_unfinished_secret_at_the_end_shows_only_while_it_is_less_than_half() {
    let redactor = redactor(&[("K", "abcdefghijklmnopqrstuvwxyz")], false);
    assert_eq!(redacted(&redactor, "x abcdefghijkl"), "x abcdefghijkl");
    assert_eq!(redacted(&redactor, "x abcdefghijklm"), "x [redacted:K]");
    assert_eq!(redacted(&redactor, "x abcdefghijklm "), "x abcdefghijklm ");
}

#[test]
fn overlapping_nested_adjacent_and_repeated_secrets() {
    let redactor = redactor(
        &[("A", "abcdefgh"), ("B", "fghijklmn"), ("C", "abcdefghXY"), ("D", "zzzabcdefghzzz")],
        false,
    );
    assert_eq!(redacted(&redactor, "-abcdefghijklmn-"), "-[redacted:A]-");
    assert_eq!(redacted(&redactor, "-abcdefghXY-"), "-[redacted:C]-");
    assert_eq!(redacted(&redactor, "-abcdefghX-"), "-[redacted:A]X-");
    assert_eq!(redacted(&redactor, "abcdefghabcdefghfghijklmn"), "[redacted:A][redacted:A][redacted:B]");
    assert_eq!(redacted(&redactor, "zzzabcdefghzzz"), "[redacted:D]");
    assert_eq!(redacted(&redactor, "zzzabcdefghzz."), "zzz[redacted:A]zz.");
}

#[test]
fn a_finished_secret_is_announced_at_once_or_when_the_time_is_up() {
    let mut stream = redactor(&[("A", "abcdefgh"), ("LONG", "abcdefgh-abcdefgh")], false).stream();
    assert_eq!(push(&mut stream, "abcdefgh"), "");
    assert_eq!(release(&mut stream), "[redacted:A]");
    assert_eq!(push(&mut stream, "-abcdefg"), "");
    assert_eq!(release(&mut stream), "");
    assert_eq!(push(&mut stream, "h."), ".");
}

#[test]
fn an_ordinary_chunk_is_one_slice_of_itself() {
    let chunk = vec![b'.'; 1 << 20];
    let mut stream = redactor(&[("K", VALUE)], true).stream();
    let mut calls = Vec::new();
    stream.push(&chunk, &mut |bytes| calls.push((bytes.as_ptr(), bytes.len())));
    assert_eq!(calls, [(chunk.as_ptr(), chunk.len())]);
}

#[test]
fn the_value_of_a_file_with_its_newline_and_its_base64() {
    let redactor = redactor(&[("K", "hunter2-hunter2?\n")], false);
    assert_eq!(redacted(&redactor, "hunter2-hunter2?\n"), "[redacted:K]\n");
    // base64("hunter2-hunter2?\n"): the last character holds bits of the newline too.
    assert_eq!(redacted(&redactor, "aHVudGVyMi1odW50ZXIyPwo="), "[redacted:K]o=");
}

#[test]
fn tokens_of_every_shape() {
    let redactor = redactor(&[], true);
    let word = "0123456789abcdefghijABCDEFGHIJ012345";
    for (text, shown) in [
        ("AKIAIOSFODNN7EXAMPLE".to_owned(), "[redacted:aws-key-id]"),
        (format!("ghs_{word}"), "[redacted:github-token]"),
        (format!("github_pat_{word}_{word}"), "githu[redacted:github-token]"),
        (format!("glpat-{word}"), "[redacted:gitlab-token]"),
        (format!("xoxp-{word}"), "[redacted:slack-token]"),
        (format!("sk-ant-api03-{word}"), "[redacted:anthropic-key]"),
        (format!("sk-proj-{word}"), "[redacted:openai-key]"),
        (format!("sk-{word}"), "[redacted:api-key]"),
        (format!("AIza{word}"), "[redacted:google-key]"),
        (format!("npm_{word}"), "[redacted:npm-token]"),
        (format!("pypi-AgEIcHlwaS5vcmc{word}{word}"), "pypi[redacted:pypi-token]"),
        (format!("rk_live_{word}"), "[redacted:stripe-key]"),
        (format!("hf_{word}"), "[redacted:huggingface-token]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl".to_owned(), "[redacted:jwt]"),
        (format!("Authorization: Bearer {word}"), "Authorization: Bearer [redacted:bearer-token]"),
        ("https://me:pa55word@host/".to_owned(), "https://me:[redacted:url-password]@host/"),
    ] {
        assert_eq!(redacted(&redactor, &text), shown);
        assert_eq!(redacted(&redactor, &format!("a=\"{text}\";")), format!("a=\"{shown}\";"));
        assert_eq!(
            redacted(&redactor, &format!("\x1b[1;31m{text}\x1b[0m")),
            format!("\x1b[1;31m{shown}\x1b[0m")
        );
        assert_eq!(redacted(&redactor, &format!("\"x\\n{text}\\n\"")), format!("\"x\\n{shown}\\n\""));
    }
}

#[test]
fn a_token_whose_head_ends_the_one_before() {
    let redactor = redactor(&[], true);
    let word = "0123456789abcdefghijABCDEFGHIJ012345";
    let text = format!("npm_{word}npm_{word} Bearer {word}-Bearer {word}.");
    assert_eq!(
        redacted(&redactor, &text),
        "[redacted:npm-token] Bearer [redacted:bearer-token] [redacted:bearer-token]"
    );
}

#[test]
fn a_token_printed_slowly_shows_its_public_head_and_three_bytes_at_most() {
    let redactor = redactor(&[], true);
    let token = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    assert_eq!(typed(&redactor, &format!("{token} x"), true), "ghp_012[redacted:github-token] x");
    let url = "http://me:pa55word@host";
    assert_eq!(typed(&redactor, url, true), "http://me:pa5[redacted:url-password]@host");
    let mut stream = redactor.stream();
    assert_eq!(push(&mut stream, "ready on http://localhost:80"), "ready on http://localhost:");
    assert_eq!(push(&mut stream, "80"), "");
    assert_eq!(release(&mut stream), "8080");
    assert_eq!(push(&mut stream, "\nghp_0123456789abcdefghijABCDEFGHIJ"), "\n[redacted:github-token]");
    assert_eq!(push(&mut stream, "012345"), "");
    assert_eq!(push(&mut stream, " ok"), " ok");
}

const LINE: &str = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";

#[test]
fn private_keys_to_their_end() {
    let redactor = redactor(&[], true);
    let key = |newline: &str| {
        format!(
            "-----BEGIN RSA PRIVATE KEY-----{newline}{LINE}{newline}{LINE}{newline}ab=={newline}\
             -----END RSA PRIVATE KEY-----"
        )
    };
    let shown = "-----BEGIN RSA PRIVATE KEY-----[redacted:private-key]";
    for newline in ["\n", "\r\n", "\\n", "\n    "] {
        let text = format!("{{{}}}\nnext\n", key(newline));
        assert_eq!(redacted(&redactor, &text), format!("{{{shown}}}\nnext\n"));
        assert!(!typed(&redactor, &text, true).contains("MIIE"));
    }
    let encrypted = format!(
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\n{LINE}\n\
         -----END RSA PRIVATE KEY-----\n"
    );
    assert_eq!(redacted(&redactor, &encrypted), format!("{shown}\n"));
    // Cut off by `head`: what follows on its own line shows again.
    let cut = format!("-----BEGIN RSA PRIVATE KEY-----\n{LINE}\n$ ls\n");
    assert_eq!(redacted(&redactor, &cut), format!("{shown}\n$ ls\n"));
}

#[test]
fn key_headers_in_prose_and_public_keys_show() {
    let redactor = redactor(&[], true);
    for text in [
        "A key starts with -----BEGIN PRIVATE KEY----- and is secret.\n",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\n-----BEGIN PRIVATE KEY-----\n",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
    let public = format!("-----BEGIN CERTIFICATE-----\n{LINE}\n-----END CERTIFICATE-----\n");
    assert_eq!(redacted(&redactor, &public), public);
}

/// Sources and locks of this repository, and what looks like tokens but isn't.
#[test]
fn ordinary_output_is_untouched() {
    let mut text = String::from(
        "3f786850e387550fdab836ed7e6dc881de23001b  refs/heads/main\n\
         550e8400-e29b-41d4-a716-446655440000 task-0123456789abcdef0123456789abcdef\n\
         sk-toggleable__label-arrow sk-estimator-doc-link-fitted disk-0 npm_config_registry_and_more_words\n\
         sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==\n\
         -rw-r--r-- 1 root root 7073 Nov 15 22:11 ARCHITECTURE.md http://localhost:3000/ http://[::1]:80/\n\
         git@github.com:a/b.git ssh://git@github.com/a/b https://x/y?a=b@c http://a:80/@b ${user}:${pass}@h\n\
         Bearer tokens are bearer AuthorizationHeaderProviderFactory values; eyJ is base64\n",
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    text.push_str(&fs::read_to_string(root.join("../../Cargo.lock")).unwrap_or_default());
    for file in
        ["stream.rs", "trie.rs", "sieve.rs", "known.rs", "cover.rs", "shapes/mod.rs", "shapes/table.rs"]
    {
        text.push_str(&fs::read_to_string(root.join("src").join(file)).unwrap());
    }
    let redactor = redactor(&[("K", VALUE)], true);
    let mut filler = 1_u64;
    while text.len() < 300_000 {
        filler = filler.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.push_str(&format!("{filler:016x}{} ", filler >> 20));
    }
    assert_eq!(redactor.redact(text.as_bytes()), text.as_bytes());
    for size in [1, 7, 4096] {
        let mut stream = redactor.stream();
        let mut shown = Vec::new();
        for chunk in text.as_bytes().chunks(size) {
            stream.push(chunk, &mut |bytes| shown.extend_from_slice(bytes));
        }
        stream.finish(&mut |bytes| shown.extend_from_slice(bytes));
        assert!(shown == text.as_bytes(), "in chunks of {size}");
    }
}

#[test]
fn the_longest_secret_in_every_cut() {
    let value: String =
        (0..crate::MAX_SECRET).map(|n| char::from(b'a' + u8::try_from(n * n % 23).unwrap())).collect();
    let redactor = redactor(&[("BIG", &value)], true);
    let text = format!("<{value}>");
    for size in [1000, 65_536, 100_000] {
        let mut stream = redactor.stream();
        let mut shown = Vec::new();
        for chunk in text.as_bytes().chunks(size) {
            stream.push(chunk, &mut |bytes| shown.extend_from_slice(bytes));
        }
        assert_eq!(shown, b"<[redacted:BIG]>");
    }
}
