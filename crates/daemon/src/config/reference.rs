//! docs/CONFIGURATION.md and docs/config.schema.json, made from the comments of `written` and the table of variables.
//! To write them anew: `STOCKADE_WRITE_REFERENCE=1 cargo test -p stockade-daemon reference`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::surroundings::VARIABLES;
use super::written::Written;

const HEAD: &str = "\
# The service's configuration

Made from the source (`crates/daemon/src/config`); a test holds this page to it. [config.schema.json](config.schema.json) is the
same for editors.

Nothing has to be written. `stockade serve` works for one person on one machine: it keeps its records below the user's state
directory, listens on a Unix socket in the user's runtime directory and on loopback, and serves the directory that it was started
in. `stockaded --system` is the system's service. It reads `/etc/stockade/config.toml` if that is there, as does root's
`stockade serve`; `--config FILE` names another file. `stockaded --check` says what is wrong with it, with line and column,
and serves nothing.

A file of TOML. An unknown key, a value of the wrong kind and a number that can't be meant are refused, at start and at reload.
";

const TAIL: &str = "\
## Reload

SIGHUP (`systemctl reload stockade`) reads the configuration and the profiles again. If anything is wrong with either, the log
says what, and everything stays as it was. Changes of `state`, `http.address`, `socket.path` and `admission`
wait for a restart, and the log says so; so does `log.format`. All else is in force for the requests that come next, on open
connections too; spans go to the collector that is written then, or to none.

Profiles are read at start and at reload, from `/etc/stockade/profiles` and from `stockade/profiles` below the service user's
`$XDG_CONFIG_HOME` (`~/.config`). A file that is changed meanwhile changes nothing. A workspace's own profile is read each time.

## Stopping

SIGTERM or Ctrl-C: nobody is admitted any more, and what runs may end, for as long as `drain` says; then it is ended. A second
signal ends it at once. What was running when the service died without that is on record as `UZ-EXEC-003`.

## The secret

`EXECUTOR_SECRET` is taken out of the environment before anything else: the service starts itself again without it, so that neither
`/proc` nor any process that it starts shows the secret. `secret_file` is read again at every reload.

## The secrets' key

Stored secrets are sealed with `secrets.key` in the state directory, which is made at first use. Where systemd gives the service a
credential `stockade-secrets-key` (32 bytes), that is the key instead, and the one in the directory is not used. One that can't be used,
or that does not open the secrets that are there, keeps the service from starting. To move the key of a service that is stopped:

    systemd-creds encrypt --name=stockade-secrets-key /var/lib/stockade/secrets.key \\
        /etc/credstore.encrypted/stockade-secrets-key
    shred -u /var/lib/stockade/secrets.key

and `LoadCredentialEncrypted=stockade-secrets-key:/etc/credstore.encrypted/stockade-secrets-key` in a drop-in. Only the service has
the credential, so that `stockade secret set` is refused then; `PUT /v1/secrets/NAME` sets secrets.
";

/// Sorted, whatever `serde_json` was built with.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let keys =
                map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect::<BTreeMap<_, _>>();
            keys.into_iter().collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn schema() -> Value {
    sorted(schemars::schema_for!(Written).as_value())
}

/// Comments are broken where lines end in the source.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn words(values: &Value) -> Option<String> {
    let words = values.as_array()?.iter().filter_map(Value::as_str);
    let words = words.map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>();
    (!words.is_empty()).then(|| words.join(", "))
}

fn is(value: &Value, wanted: &str) -> bool {
    let kind = &value["type"];
    kind == wanted || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == wanted))
}

/// What may be written there.
fn form(value: &Value) -> String {
    if let Some(title) = value["title"].as_str() {
        return title.replace('|', "\\|");
    }
    if let Some(words) = words(&value["enum"]) {
        return words;
    }
    if let Some(way) = value["anyOf"].as_array().into_iter().flatten().find(|way| !is(way, "null")) {
        return form(way);
    }
    match value {
        value if is(value, "boolean") => "`true` or `false`".to_owned(),
        value if is(value, "array") => format!("a list: {}", form(&value["items"])),
        value if is(value, "string") => "a string".to_owned(),
        other => panic!("no form for {other}"),
    }
}

fn table(schema: &Value, prefix: &str) -> String {
    let mut page = String::from("| key | value | meaning |\n|---|---|---|\n");
    for (name, value) in schema["properties"].as_object().unwrap() {
        if value.get("$ref").is_none() {
            let meaning = one_line(text(value, "description"));
            assert!(!meaning.is_empty(), "{prefix}{name} has no comment");
            page.push_str(&format!("| `{name}` | {} | {meaning} |\n", form(value)));
        }
    }
    page
}

fn page() -> String {
    let schema = schema();
    let mut page = format!("{HEAD}\n## Keys at the top\n\n{}", table(&schema, ""));
    for (name, value) in schema["properties"].as_object().unwrap() {
        let Some(reference) = value["$ref"].as_str() else { continue };
        let part = schema.pointer(reference.trim_start_matches('#')).unwrap();
        let meaning = one_line(text(value, "description"));
        page.push_str(&format!("\n## `[{name}]`\n\n{meaning}\n\n{}", table(part, &format!("{name}."))));
    }
    page.push_str(
        "\n## Variables\n\nEach wins over its key. A value that can't be used is refused, never replaced by a default.\n\n",
    );
    page.push_str("| variable | instead of | value |\n|---|---|---|\n");
    for row in VARIABLES {
        page.push_str(&format!("| `{}` | `{}` | {} |\n", row.name, row.key, row.form));
    }
    format!("{page}\n{TAIL}")
}

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[test]
fn the_reference_is_what_the_source_says() {
    let schema = format!("{}\n", serde_json::to_string_pretty(&schema()).unwrap());
    for (name, made) in [("CONFIGURATION.md", page()), ("config.schema.json", schema)] {
        let path = documents().join(name);
        if std::env::var_os("STOCKADE_WRITE_REFERENCE").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == made,
            "docs/{name} is old: STOCKADE_WRITE_REFERENCE=1 cargo test -p stockade-daemon reference"
        );
    }
}

#[test]
fn the_schema_and_the_parser_know_the_same_keys() {
    let schema = schema();
    let tables = schema["properties"].as_object().unwrap();
    for (name, value) in tables {
        let part = match value["$ref"].as_str() {
            Some(reference) => schema.pointer(reference.trim_start_matches('#')).unwrap(),
            None => continue,
        };
        assert_eq!(part["additionalProperties"], false, "{name}");
        let known = part["properties"].as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>();
        let error = toml::from_str::<Written>(&format!("[{name}]\nzzz = 1\n")).unwrap_err();
        for key in known {
            assert!(error.message().contains(&format!("`{key}`")), "{name}.{key}: {}", error.message());
        }
    }
}
