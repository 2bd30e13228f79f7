//! Tables: what may be written, what may not and what is said then; what the variables do; what a place gets where
//! nothing is written.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use stockade_policy::ProfileError;
use stockade_proto::Code;

use super::surroundings::{Scope, Surroundings, VARIABLES};
use super::{Config, Settings, written};

fn around(scope: Scope) -> Surroundings {
    Surroundings {
        program: None,
        scope,
        variables: Default::default(),
        home: Some("/home/ada".into()),
        runtime: Some("/run/user/1000".into()),
        state_home: None,
        config_home: None,
        current: Some("/home/ada/work".into()),
        credentials: None,
        secret: None,
    }
}

fn with(pairs: &[(&str, &str)]) -> Surroundings {
    let mut around = around(Scope::Person);
    for (name, value) in pairs {
        let row = VARIABLES.into_iter().find(|row| row.name == *name).unwrap();
        around.variables.insert(row.name, OsString::from(value));
    }
    around
}

fn parse(text: &str, around: &Surroundings) -> Result<Settings, ProfileError> {
    let file = written::File::parse(Path::new("/c.toml"), text.to_owned())?;
    super::settings(Some(&file), around)
}

fn read(text: &str) -> Result<Settings, ProfileError> {
    parse(text, &around(Scope::Person))
}

fn config(text: &str) -> Config {
    read(text).unwrap_or_else(|error| panic!("{text}: {error}")).config
}

/// Refused, with a sentence that holds `said`; the place as `line:column`.
#[track_caller]
fn refused(text: &str, said: &str) -> String {
    let error = read(text).err().unwrap_or_else(|| panic!("{text} is taken"));
    assert_eq!(error.refusal.code, Code::ConfigInvalid, "{text}");
    let whole = format!("{} / {}", error.refusal.message, error.refusal.remedy);
    assert!(whole.contains(said), "{text}: {whole}");
    assert!(!whole.contains('\n'), "{text}: {whole}");
    error.refusal.origin.map(|origin| format!("{}:{}", origin.line, origin.column)).unwrap_or_default()
}

/// Every key, one value that is good, and values that are not.
const KEYS: &[(&str, &str, &[&str])] = &[
    ("state", "\"/s\"", &["1", "true", "\"s\"", "\"\"", "[\"/s\"]"]),
    ("profile", "\"build\"", &["1", "\"\"", "\"../x\"", "\"a b\"", "[]"]),
    ("workspaces", "[\"/w\"]", &["\"/w\"", "[]", "[\"w\"]", "[1]", "true"]),
    ("default_workspace", "\"/home/ada/work/x\"", &["\"x\"", "1"]),
    (
        "drain",
        "\"5s\"",
        &["5", "0", "-5", "\"0s\"", "\"5\"", "\"-5s\"", "\"2h\"", "\"9999999999999999999s\"", "1.5"],
    ),
    ("stage_timeout", "\"5s\"", &["5", "\"0ms\"", "\"x\"", "\"99999d\"", "true"]),
    ("production", "true", &["\"true\"", "1"]),
    ("http.enabled", "false", &["\"no\"", "0"]),
    (
        "http.address",
        "\"127.0.0.1:0\"",
        &["3001", "\"localhost:1\"", "\"127.0.0.1\"", "\"127.0.0.1:65536\"", "\":1\""],
    ),
    ("http.secret_file", "SECRET", &["\"x\"", "1", "\"/not/there\"", "\"/\"", "\"/dev/null\""]),
    ("socket.enabled", "false", &["\"no\"", "0"]),
    ("socket.path", "\"/r/s\"", &["\"s\"", "1", "LONG"]),
    ("socket.uids", "[0, 1000]", &["1000", "[-1]", "[4294967295]", "[\"ada\"]", "[1.5]"]),
    ("socket.gids", "[0]", &["0", "[-1]", "[99999999999]"]),
    ("socket.users", "[\"root\"]", &["\"root\"", "[0]", "[\"nobody-of-that-name\"]", "[\"\"]"]),
    ("socket.groups", "[\"root\"]", &["[\"nothing-of-that-name\"]", "[\"a\\nb\"]"]),
    ("admission.running", "8", &["0", "-1", "257", "\"8\"", "1.5", "1e3", "nan"]),
    ("admission.each_principal", "8", &["0", "-1", "1000001"]),
    ("admission.waiting", "8", &["0", "-1", "9223372036854775807"]),
    ("admission.wait", "\"1s\"", &["1", "\"\"", "\"0s\""]),
    (
        "retention.age",
        "\"7d\"",
        &["7", "\"0d\"", "\"-1d\"", "\"d\"", "\"1.5d\"", "\"4000d\"", "\"99999999999999999999d\""],
    ),
    ("retention.bytes", "\"1G\"", &["0", "-1", "\"1GB\"", "\"0\"", "\"99999999T\"", "1.5"]),
    ("limits.memory", "\"512M\"", &["0", "-1", "\"lots\"", "\"512MB\"", "true"]),
    ("limits.cpu", "1.5", &["0", "-1", "0.0", "-0.5", "nan", "inf", "\"1\"", "0.00001", "1e300"]),
    ("limits.network", "\"deny\"", &["\"none\"", "\"inherit\"", "true"]),
    ("log.format", "\"json\"", &["\"xml\"", "1"]),
    ("log.level", "\"debug\"", &["\"loud\"", "1"]),
    (
        "telemetry.otlp",
        "\"http://127.0.0.1:4318\"",
        &[
            "4318",
            "\"\"",
            "\"127.0.0.1:4318\"",
            "\"https://127.0.0.1:4318\"",
            "\"grpc://127.0.0.1:4317\"",
            "\"http://127.0.0.1\"",
            "\"http://127.0.0.1:0\"",
            "\"http://127.0.0.1:65536\"",
            "\"http://:4318\"",
            "\"http://collector:4318\"",
            "\"http://me:word@127.0.0.1:4318\"",
            "\"http://127.0.0.1:4318/?a=b\"",
            "\"http://127.0.0.1:4318/#a\"",
            "\"http://127.0.0.1:4318/a b\"",
            "\"http://127.0.0.1:4318/\\u001b\"",
            "[\"http://127.0.0.1:4318\"]",
        ],
    ),
    ("telemetry.service_name", "\"builds\"", &["1", "\"\"", "\"a\\nb\"", "NAME"]),
];

/// As a file, with the stand-ins replaced.
fn line(key: &str, value: &str, directory: &Path) -> String {
    let secret = directory.join("secret");
    std::fs::write(&secret, "s3cret\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let value =
        value.replace("SECRET", &format!("{secret:?}")).replace("LONG", &format!("\"/{}\"", "x".repeat(107)));
    let value = value.replace("NAME", &format!("\"{}\"", "x".repeat(257)));
    match key.split_once('.') {
        Some((table, key)) => format!("[{table}]\n{key} = {value}\n"),
        None => format!("{key} = {value}\n"),
    }
}

#[test]
fn every_key_takes_its_value_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    for (key, good, bad) in KEYS {
        let text = line(key, good, directory.path());
        read(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        for value in *bad {
            let text = line(key, value, directory.path());
            let place = refused(&text, "");
            let wanted = if key.contains('.') { "2:" } else { "1:" };
            // Of a path that is too long the variable may be the reason: there is no place to point at.
            assert!(place.starts_with(wanted) || *value == "LONG", "{text}: {place}");
        }
    }
}

#[test]
fn the_table_above_has_every_key() {
    let schema = schemars::schema_for!(written::Written);
    let mut keys = Vec::new();
    for (name, value) in schema.as_value()["properties"].as_object().unwrap() {
        match value["$ref"].as_str() {
            Some(reference) => {
                let part = schema.as_value().pointer(reference.trim_start_matches('#')).unwrap();
                keys.extend(
                    part["properties"].as_object().unwrap().keys().map(|key| format!("{name}.{key}")),
                );
            }
            None => keys.push(name.clone()),
        }
    }
    keys.sort();
    let mut tried = KEYS.iter().map(|(key, _, _)| (*key).to_owned()).collect::<Vec<_>>();
    tried.sort();
    assert_eq!(tried, keys);
}

#[test]
fn what_is_unknown_is_told_with_its_place_and_its_neighbour() {
    for (text, said, place) in [
        ("stat = \"/s\"\n", "did you mean `state`?", "1:1"),
        ("[http]\n  adress = 1\n", "did you mean `address`?", "2:3"),
        ("[htpp]\n", "did you mean `http`?", "1:2"),
        ("[socket]\nuid = [1]\n", "did you mean `uids`?", "2:1"),
        ("[log]\nqqq = 1\n", "here there are: format, level", "2:1"),
        ("\u{1b}[31m = 1\n", "", "1:2"),
        ("state = \"/a\"\nstate = \"/b\"\n", "duplicate", "2:1"),
        ("state = \n", "", "1:9"),
        ("[http]\n[http]\n", "", "2:2"),
        ("http = 1\n", "invalid type", "1:8"),
        ("[http]\naddress = 3001\n", "invalid type: integer", "2:11"),
        ("[limits]\nmemory = 0\n", "a size above zero such as", "2:10"),
        ("[log]\nlevel = \"loud\"\n", "`error`", "2:9"),
        ("drain = \"2h\"\n", "longer than an hour", "1:9"),
        ("[http]\naddress = \"0.0.0.0:1\"\n", "without a secret", "2:11"),
        ("[http]\naddress = \"[::]:1\"\n", "without a secret", "2:11"),
        ("[http]\nenabled = false\n[socket]\nenabled = false\n", "neither door", ""),
        ("workspaces = [\"/a\"]\ndefault_workspace = \"/b\"\n", "in none of `workspaces`", "2:21"),
        ("workspaces = [\"/a\"]\ndefault_workspace = \"/ab\"\n", "in none of `workspaces`", "2:21"),
        ("[telemetry]\notpl = \"\"\n", "did you mean `otlp`?", "2:1"),
        ("[telemetry]\notlp = \"https://127.0.0.1:4318\"\n", "a collector on this host", "2:8"),
        ("[telemetry]\notlp = \"http://otel.example:4318\"\n", "an IP address or localhost", "2:8"),
        ("[telemetry]\notlp = \"http://127.0.0.1\"\n", "no port", "2:8"),
        ("[telemetry]\nservice_name = \"\"\n", "`service_name`", "2:16"),
        ("profile = \"service\"\n[limits]\ncpu = 1\n", "called `service`", ""),
    ] {
        assert_eq!(refused(text, said), place, "{text}");
    }
}

#[test]
fn a_picture_never_speaks_to_the_terminal() {
    let error = read("state = \"\u{1b}]0;x\u{7}\"\n").unwrap_err();
    let drawn = stockade_policy::render(&error, false);
    assert!(drawn.chars().all(|c| c == '\n' || !c.is_control()), "{drawn:?}");
    let error = read("\"\u{9b}x\" = 1\n").unwrap_err();
    let drawn = stockade_policy::render(&error, false);
    assert!(drawn.chars().all(|c| c == '\n' || !c.is_control()), "{drawn:?}");
}

#[test]
fn values_arrive() {
    let config = config(
        "state = \"/s\"\nworkspaces = [\"/a\", \"/b\"]\ndefault_workspace = \"/b/c\"\ndrain = \"1m\"\nstage_timeout = \"5s\"\n\
         [http]\naddress = \"[::1]:8080\"\n[socket]\npath = \"/r/s\"\nuids = [7]\nusers = [\"root\"]\n\
         [admission]\nrunning = 4\nwait = \"1s\"\n[retention]\nage = \"2d\"\nbytes = 1000\n",
    );
    assert_eq!(config.state, Path::new("/s"));
    assert_eq!(config.workspaces.roots, [PathBuf::from("/a"), PathBuf::from("/b")]);
    assert_eq!(config.workspaces.default, Path::new("/b/c"));
    assert_eq!(config.drain, Duration::from_secs(60));
    assert_eq!(config.stage_timeout, Some(Duration::from_secs(5)));
    assert_eq!(config.http.unwrap().address, "[::1]:8080".parse().unwrap());
    let socket = config.socket.unwrap();
    assert_eq!((socket.path.as_path(), socket.uids.as_slice()), (Path::new("/r/s"), [7, 0].as_slice()));
    assert_eq!((config.capacity.running, config.capacity.each_principal), (4, 4));
    assert_eq!(config.capacity.wait, Duration::from_secs(1));
    assert_eq!((config.keep.age, config.keep.bytes), (Duration::from_secs(2 * 86400), 1000));
    assert!(config.service.profiles.is_empty() && config.profile == "default");
    assert!(config.telemetry.is_none());
}

#[test]
fn where_nothing_is_written_a_place_has_its_own() {
    let of = |around: &Surroundings| super::settings(None, around).unwrap();
    let places = |settings: &Settings| {
        let config = &settings.config;
        let socket = config.socket.as_ref().unwrap().path.display().to_string();
        (config.state.display().to_string(), socket, config.workspaces.default.display().to_string())
    };
    let person = of(&around(Scope::Person));
    let wanted =
        ("/home/ada/.local/state/stockade", "/run/user/1000/stockade/stockade.sock", "/home/ada/work");
    assert_eq!(places(&person), (wanted.0.into(), wanted.1.into(), wanted.2.into()));
    assert!(person.config.service.walls_required);
    assert_eq!(person.config.http.as_ref().unwrap().address, "127.0.0.1:3001".parse().unwrap());

    let without_runtime =
        Surroundings { runtime: None, state_home: Some("/x".into()), ..around(Scope::Person) };
    assert_eq!(places(&of(&without_runtime)).1, "/x/stockade/run/stockade.sock");

    let system = of(&around(Scope::System));
    let wanted = ("/var/lib/stockade", "/run/stockade/stockade.sock", "/var/lib/stockade/workspaces");
    assert_eq!(places(&system), (wanted.0.into(), wanted.1.into(), wanted.2.into()));
    assert!(system.config.service.walls_required);

    let root = of(&around(Scope::Root));
    assert_eq!(places(&root).0, "/var/lib/stockade");
    assert_eq!(places(&root).2, "/home/ada/work");
    assert!(root.config.service.walls_required);

    let nowhere = Surroundings { home: None, ..around(Scope::Person) };
    assert!(super::settings(None, &nowhere).is_err());
    let nowhere = Surroundings { current: None, ..around(Scope::Person) };
    assert!(super::settings(None, &nowhere).is_err());
}

/// Name, good value, bad ones.
const ENVIRONMENT: &[(&str, &str, &[&str])] = &[
    (
        "EXECUTOR_PORT",
        "0",
        &["", " 1", "1 ", "65536", "-1", "+1", "1e3", "0x10", "3001a", "99999999999999999999"],
    ),
    ("DEFAULT_CWD", "/w", &["", "w", "./w"]),
    ("EXECUTOR_SOCKET_PATH", "/r/s.sock", &["", "s.sock"]),
    (
        "EXECUTOR_MEMORY_LIMIT_MB",
        "256",
        &["", "0", "-1", "512MB", "0.5", "NaN", "99999999999999999999", "17592186044416"],
    ),
    ("EXECUTOR_CPU_LIMIT_PERCENT", "150", &["", "0", "-1", "50%", "1.5", "18446744073709551615"]),
    ("EXECUTOR_NETWORK_POLICY", "deny_all", &["", "deny", "DENY_ALL", "allow_all", "registry_allowlist "]),
    ("RUN_TIMEOUT_MS", "5000", &["", "0", "-1", "5s", "Infinity", "99999999999999999999"]),
];

#[test]
fn a_variable_that_cant_be_used_is_a_sentence_and_never_the_default() {
    for (name, good, bad) in ENVIRONMENT {
        parse("", &with(&[(name, good)])).unwrap_or_else(|error| panic!("{name}={good}: {error}"));
        for value in *bad {
            let error = parse("", &with(&[(name, value)]))
                .err()
                .unwrap_or_else(|| panic!("{name}={value:?} is taken"));
            let message = &error.refusal.message;
            assert!(message.contains(name) && message.contains(value), "{name}={value:?}: {message}");
        }
    }
    let tried =
        ENVIRONMENT.iter().map(|(name, _, _)| *name).chain(["EXECUTOR_SECRET", "STOCKADE_PRODUCTION"]);
    assert_eq!(tried.count(), VARIABLES.len());
}

#[test]
fn a_variable_wins_over_its_key() {
    let text = "default_workspace = \"/home/ada/work/x\"\nstage_timeout = \"1s\"\n[http]\naddress = \"[::1]:1\"\n\
                [socket]\npath = \"/a\"\n[limits]\nmemory = \"1G\"\ncpu = 4\nnetwork = \"registries\"\n";
    let all = [
        ("EXECUTOR_PORT", "2"),
        ("DEFAULT_CWD", "/w"),
        ("EXECUTOR_SOCKET_PATH", "/b"),
        ("EXECUTOR_MEMORY_LIMIT_MB", "256"),
        ("EXECUTOR_CPU_LIMIT_PERCENT", "5"),
        ("EXECUTOR_NETWORK_POLICY", "deny_all"),
        ("RUN_TIMEOUT_MS", "1500"),
        ("STOCKADE_PRODUCTION", ""),
    ];
    let settings = parse(text, &with(&all)).unwrap();
    assert!(settings.config.service.walls_required);
    let config = settings.config;
    assert_eq!(config.http.unwrap().address, "[::1]:2".parse().unwrap());
    assert_eq!(
        (config.workspaces.default, config.workspaces.roots),
        ("/w".into(), vec![PathBuf::from("/w")])
    );
    assert_eq!(config.socket.unwrap().path, Path::new("/b"));
    assert_eq!(config.stage_timeout, Some(Duration::from_millis(1500)));
    assert_eq!(config.profile, "service");
    let text = &config.service.profiles[0].text;
    assert_eq!(
        text,
        "extends = \"default\"\nnetwork = \"deny\"\n[limits]\nmemory = 268435456\ncpu = 0.050\n"
    );
}

#[test]
fn overrides_make_a_profile_that_resolves() {
    for text in [
        "[limits]\nmemory = \"1G\"\n",
        "profile = \"build\"\n[limits]\nnetwork = \"registries\"\n",
        "[limits]\ncpu = 0.25\nnetwork = \"deny\"\nmemory = 1000000000\n",
    ] {
        let mut config = config(text);
        let tried = super::profiles::Profiles::default()
            .try_all(config.service.profiles.pop(), &config.profile)
            .unwrap();
        assert_eq!(tried.texts.len(), 1);
        assert_eq!(tried.without_walls, ["host"]);
    }
}

#[test]
fn the_secret_comes_from_one_place_and_is_never_shown() {
    let given = |text: &str| {
        let around = Surroundings { secret: Some(SecretString::from(text)), ..around(Scope::Person) };
        parse("[http]\naddress = \"0.0.0.0:1\"\n", &around)
    };
    let config = given("walrus-7").unwrap().config;
    assert!(!format!("{config:?}").contains("walrus"));
    assert_eq!(config.http.unwrap().secret.unwrap().expose_secret(), "walrus-7");
    // Empty is none, and none does not open that address.
    for bad in ["", "wal\nrus", " walrus", "walrus ", "walrusé", &"x".repeat(4097)] {
        let error = given(bad).unwrap_err();
        assert!(bad.is_empty() || !error.to_string().contains(bad), "{error}");
    }
}

#[test]
fn the_file_of_the_secret_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret");
    let text = format!("[http]\nsecret_file = {path:?}\n");
    let put = |bytes: &[u8], mode| {
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    put(b"walrus\n", 0o400);
    assert_eq!(config(&text).http.unwrap().secret.unwrap().expose_secret(), "walrus");
    // An empty variable is none, and does not take the file's place.
    for (variable, secret) in [("", "walrus"), ("tusk", "tusk")] {
        let around = Surroundings { secret: Some(SecretString::from(variable)), ..around(Scope::Person) };
        let found = parse(&text, &around).unwrap().config.http.unwrap().secret.unwrap();
        assert_eq!(found.expose_secret(), secret);
    }
    for (bytes, mode, said) in [
        (b"walrus".as_slice(), 0o640, "read"),
        (b"walrus", 0o602, "written"),
        (b"", 0o600, "empty"),
        (b"\n", 0o600, "empty"),
        (b"a\nb\n", 0o600, "HTTP header"),
        (b"\xff", 0o600, "UTF-8"),
        (&[b'x'; 5000], 0o600, "longer"),
    ] {
        put(bytes, mode);
        let place = refused(&text, said);
        assert_eq!(place, "2:15");
    }
}

#[test]
fn a_file_that_makes_one_wait_or_does_not_end_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let around = around(Scope::Person);
    let fifo = directory.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let long = directory.path().join("long");
    std::fs::write(&long, "#".repeat(2 << 20)).unwrap();
    let bytes = directory.path().join("bytes");
    std::fs::write(&bytes, [0xff, 0xfe]).unwrap();
    for path in
        [fifo.as_path(), &long, &bytes, directory.path(), Path::new("/dev/zero"), Path::new("/not/there")]
    {
        let error = super::load(Some(path), &around).unwrap_err();
        assert!(error.refusal.message.contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn nobody_gets_an_http_door_that_was_not_asked_for() {
    let empty = || Some(SecretString::from(""));
    for scope in [Scope::System, Scope::Unit] {
        let around = around(scope);
        assert!(parse("", &around).unwrap().config.http.is_none(), "{scope:?}");
        // An empty secret is none.
        let around = Surroundings { secret: empty(), ..around };
        assert!(parse("", &around).unwrap().config.http.is_none(), "{scope:?}");
        assert!(parse("[http]\nenabled = true\n", &around).unwrap().config.http.is_some(), "{scope:?}");
        let around = Surroundings { secret: Some(SecretString::from("walrus-7")), ..around };
        assert!(parse("", &around).unwrap().config.http.is_some(), "{scope:?}");
    }
    for scope in [Scope::Person, Scope::Root] {
        assert!(parse("", &around(scope)).unwrap().config.http.is_some(), "{scope:?}");
    }
}

#[test]
fn a_reload_keeps_addresses_and_takes_credentials() {
    let given = |text: &str, secret: Option<&str>| {
        let secret = secret.map(SecretString::from);
        parse(text, &Surroundings { secret, ..around(Scope::Person) }).unwrap().config
    };
    let before =
        given("[http]\naddress = \"127.0.0.1:1\"\n[socket]\npath = \"/a\"\nuids = [7]\n", Some("old-walrus"));
    let text = "[http]\naddress = \"127.0.0.1:2\"\n[socket]\npath = \"/b\"\nuids = [8]\n";
    let (after, waits) = given(text, Some("new-walrus")).following(&before);
    assert_eq!(waits, ["http.address", "socket.path"]);
    let (http, socket) = (after.http.unwrap(), after.socket.unwrap());
    assert_eq!((http.address.port(), http.secret.unwrap().expose_secret()), (1, "new-walrus"));
    assert_eq!((socket.path.as_path(), socket.uids.as_slice()), (Path::new("/a"), &[8][..]));
    // The open socket is no workspace's.
    assert!(after.workspaces.closed.contains(&PathBuf::from("/a")));
    // None is no reason to open a door that had one.
    let (after, _) = given(text, None).following(&before);
    assert_eq!(after.http.unwrap().secret.unwrap().expose_secret(), "old-walrus");
    // A door that is taken out of the configuration stays until the restart, and lets nobody in.
    let (after, _) = given("[socket]\nenabled = false\n", None).following(&before);
    assert!(after.socket.unwrap().uids.is_empty());
}
