//! `network = "allowlist"` with the clients that people use, against servers that only this test has: a listed name
//! works as it is, and the same server under a name that is not listed is out of reach, and told. BOX-4.

use stockade_line_tests::{Peers, Ran, shell};

const OTHER: &str = "other.stockade.test";

/// The name was refused inside: it is in the result and on stderr with the lines that would allow it, and
/// neither the host's resolver nor the server has heard of it.
#[track_caller]
fn kept_from_other(peers: &Peers, ran: &Ran) {
    let result = ran.result();
    let blocked = result.blocked.iter().find(|blocked| blocked.target.to_string() == OTHER);
    let Some(blocked) = blocked else { panic!("{OTHER} is not told: {ran}") };
    assert_eq!(blocked.operation, "resolve", "{ran}");
    assert!(blocked.guidance.contains(&format!("allow = [\"{OTHER}\"]")), "{ran}");
    assert!(ran.err().contains(&format!("blocked resolve {OTHER}")), "{ran}");
    assert!(result.traffic.iter().all(|row| row.host != OTHER), "{ran}");
    let log = peers.log();
    assert!(!log.contains(&format!("dns {OTHER}")) && !log.contains(&format!("web {OTHER}")), "{log}");
}

/// It worked, and its traffic is counted under the name that was asked for.
#[track_caller]
fn went_to(ran: &Ran, host: &str) {
    let result = ran.result();
    assert!(result.blocked.is_empty(), "{ran}");
    let [traffic] = result.traffic.as_slice() else { panic!("one host: {ran}") };
    assert_eq!(traffic.host, host, "{ran}");
    assert!(traffic.sent_bytes > 0 && traffic.received_bytes > 0, "{ran}");
}

#[test]
fn curl() {
    let Some(peers) = Peers::new(&["curl"]) else { return };
    let curl = "export CURL_CA_BUNDLE=$PWD/ca.pem; curl -sS --max-time 30";
    let get = |options: &str| peers.sh(&format!("{curl} {options}")).go();
    let ran = get("https://files.stockade.test/file.txt").ends_with(0);
    assert_eq!(ran.out(), "from the server\n", "{ran}");
    went_to(&ran, "files.stockade.test");
    // It is the authority of the test that vouches, end to end: nobody in between opens the connection.
    let ran = peers.sh("curl -sS --max-time 30 https://files.stockade.test/file.txt").go().ends_with(60);
    assert_eq!(ran.out(), "", "{ran}");

    kept_from_other(&peers, &get(&format!("https://{OTHER}/file.txt")).ends_with(6));
    // A redirect leads nowhere that is not listed.
    let ran = get("-L https://files.stockade.test/to/files.stockade.test/file.txt").ends_with(0);
    assert_eq!(ran.out(), "from the server\n", "{ran}");
    kept_from_other(
        &peers,
        &get(&format!("-L https://files.stockade.test/to/{OTHER}/file.txt")).ends_with(6),
    );
}

#[test]
fn curl_with_another_name_than_the_one_it_dialled() {
    let Some(peers) = Peers::new(&["curl"]) else { return };
    for through in ["files.stockade.test", "127.10.0.1"] {
        for (scheme, port) in [("https", 443), ("http", 80)] {
            let script = format!(
                "curl -sS --max-time 30 --cacert ca.pem --connect-to {OTHER}:{port}:{through}:{port} {scheme}://{OTHER}/file.txt"
            );
            let ran = peers.sh(&script).go();
            assert!(ran.code() != 0 && ran.out().is_empty(), "{ran}");
            let result = ran.result();
            let [blocked] = result.blocked.as_slice() else { panic!("one connection: {ran}") };
            assert_eq!(blocked.target.to_string(), format!("{through}:{port}"), "{ran}");
            assert!(blocked.reason.contains(OTHER), "{ran}");
        }
    }
    assert!(!peers.log().contains("web other"), "{}", peers.log());
    // Listed, but its address is the loopback's and is not.
    let ran = peers.sh("curl -sS --max-time 30 --cacert ca.pem https://inward.stockade.test/file.txt").go();
    assert!(ran.code() != 0, "{ran}");
    let blocked = &ran.result().blocked[0];
    assert_eq!(blocked.target.to_string(), "inward.stockade.test:443", "{ran}");
    assert!(blocked.reason.contains("127.10.0.9"), "{ran}");
    assert!(!peers.log().contains("web inward"), "{}", peers.log());
}

/// A name that the resolver does not know, and a server that is not there: no wall is in the way, and that is said.
#[test]
fn what_is_allowed_and_not_there_is_told() {
    let Some(peers) = Peers::new(&["curl"]) else { return };
    let script = "for at in gone.stockade.test gone.stockade.test files.stockade.test:81; do \
                  curl -sS --max-time 30 http://$at/file.txt && exit 1; done; exit 7";
    let ran = peers.sh(script).go().ends_with(7);
    let result = ran.result();
    assert!(result.blocked.is_empty(), "{ran}");
    // A client may try both protocols.
    let [gone, down] = result.unreached.as_slice() else { panic!("two of them: {ran}") };
    assert!((gone.host.as_str(), gone.port) == ("gone.stockade.test", 80) && gone.count >= 2, "{ran}");
    assert!((down.host.as_str(), down.port) == ("files.stockade.test", 81) && down.count >= 1, "{ran}");
    assert!(gone.reason.contains("can't be resolved") && down.reason.contains("can't connect"), "{ran}");
    assert!(
        ran.err().contains("gone.stockade.test:80 is allowed, and this host could not reach it"),
        "{ran}"
    );
}

/// What a resolver says that a name is called otherwise opens nothing: neither that other name, nor where it leads.
#[test]
fn an_alias_leads_where_the_address_may_be_reached() {
    let Some(peers) = Peers::new(&["curl"]) else { return };
    let get = |host: &str| {
        peers.sh(&format!("curl -sS --max-time 30 http://{host}.stockade.test/file.txt || exit 7")).go()
    };
    let ran = get("alias").ends_with(0);
    went_to(&ran, "alias.stockade.test");
    let ran = get("lured").ends_with(7);
    let blocked = &ran.result().blocked[0];
    assert_eq!(blocked.target.to_string(), "lured.stockade.test:80", "{ran}");
    assert!(blocked.reason.contains("127.10.0.9"), "{ran}");
    // The other name is as closed as ever, though the address was just reached.
    kept_from_other(&peers, &get("other").ends_with(7));
    assert!(!peers.log().contains("web lured") && !peers.log().contains("web other"), "{}", peers.log());
}

#[test]
fn git_over_https() {
    let Some(peers) = Peers::new(&["git"]) else { return };
    let publish = "set -e; unset $(env | sed -n 's/^\\(GIT_[A-Z_]*\\)=.*/\\1/p'); \
                   export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null; \
                   git init -q --bare repository.git; git init -q source; cd source; echo text > file; git add file; \
                   git -c user.name=Ada -c user.email=ada@example.org commit -q -m 'from git'; \
                   git push -q ../repository.git HEAD:refs/heads/main; cd ../repository.git; \
                   git symbolic-ref HEAD refs/heads/main; git update-server-info";
    shell(&peers.site(), publish);
    let clone = |host: &str| {
        let script = format!(
            "export GIT_SSL_CAINFO=$PWD/ca.pem GIT_TERMINAL_PROMPT=0; \
             git clone -q https://{host}/repository.git clone && git -C clone log --format=%s && cat clone/file"
        );
        peers.sh(&script).go()
    };
    kept_from_other(&peers, &clone(OTHER).ends_with(128));
    assert!(!peers.world().work().join("clone").exists());
    let ran = clone("git.stockade.test").ends_with(0);
    assert_eq!(ran.out(), "from git\ntext\n", "{ran}");
    went_to(&ran, "git.stockade.test");
}

#[test]
fn pip() {
    let Some(peers) = Peers::new(&["python3"]) else { return };
    let probe = std::process::Command::new("python3").args(["-c", "import pip"]).output();
    if !probe.is_ok_and(|done| done.status.success()) {
        return stockade_line_tests::skip("python3 has no pip");
    }
    // The interpreter itself: a version manager's stand-in for it wants to write into its home after pip.
    let install = |index: &str| {
        let script = format!(
            "export PIP_CONFIG_FILE=/dev/null PIP_CERT=$PWD/ca.pem; python=$(python3 -c 'import sys; print(sys.executable)'); \
             $python -m pip install -q --disable-pip-version-check --no-cache-dir --retries 0 --timeout 30 \
             --index-url {index} --target site tiny && PYTHONPATH=site $python -c 'import tiny; print(tiny.WORD)'"
        );
        peers.sh(&script).timeout("2m").go()
    };
    // The index is listed, and the file that it names is elsewhere.
    kept_from_other(&peers, &install("https://pip.stockade.test/astray").ends_with(1));
    kept_from_other(&peers, &install(&format!("https://{OTHER}/simple")).ends_with(1));
    assert!(!peers.world().work().join("site").exists());
    let ran = install("https://pip.stockade.test/simple").ends_with(0);
    assert_eq!(ran.out(), "from pip\n", "{ran}");
    went_to(&ran, "pip.stockade.test");
}

#[test]
fn npm() {
    let Some(peers) = Peers::new(&["npm", "node"]) else { return };
    let install = |registry: &str| {
        let script = format!(
            "export npm_config_cafile=$PWD/ca.pem; mkdir -p project && cd project && echo '{{}}' > package.json && \
             npm install --silent --no-audit --no-fund --no-update-notifier --fetch-retries=0 --registry={registry} tiny && \
             node -p 'require(\"tiny\")'"
        );
        peers.sh(&script).timeout("2m").go()
    };
    kept_from_other(&peers, &install("https://npm.stockade.test/npm-other/").ends_with(1));
    assert!(!peers.world().work().join("project/node_modules/tiny").exists());
    let ran = install("https://npm.stockade.test/npm/").ends_with(0);
    assert!(ran.out().ends_with("from npm\n"), "{ran}");
    went_to(&ran, "npm.stockade.test");
}

#[test]
fn cargo() {
    let Some(peers) = Peers::new(&["cargo"]) else { return };
    let world = peers.world();
    world.plant(
        "work/Cargo.toml",
        "[package]\nname = \"user\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\ntiny = { version = \"1\", registry = \"test\" }\n",
    );
    world.plant("work/src/lib.rs", "");
    let fetch = |index: &str| {
        let script = format!(
            "export CARGO_HOME=$PWD/home CARGO_HTTP_CAINFO=$PWD/ca.pem CARGO_NET_RETRY=0 \
             CARGO_REGISTRIES_TEST_INDEX=sparse+{index}; rm -f Cargo.lock; \
             cargo fetch -q && cat home/registry/src/*/tiny-1.0.0/src/lib.rs"
        );
        peers.sh(&script).timeout("2m").go()
    };
    // The index is listed, and the downloads that it names are elsewhere.
    kept_from_other(&peers, &fetch("https://crates.stockade.test/index-other/").ends_with(101));
    kept_from_other(&peers, &fetch(&format!("https://{OTHER}/index/")).ends_with(101));
    let ran = fetch("https://crates.stockade.test/index/").ends_with(0);
    assert_eq!(ran.out(), "//! from cargo\n", "{ran}");
    went_to(&ran, "crates.stockade.test");
}

/// It asks a resolver of its own choice and connects by itself; there is no proxy that it would have to be told of.
#[test]
fn a_static_program_that_ignores_proxies() {
    let Some(peers) = Peers::new(&["gcc"]) else { return };
    let world = peers.world();
    world.plant("outside/dialler.c", include_str!("../../resources/dialler.c"));
    shell(&world.base().join("outside"), "gcc -O1 -static -o ../work/dialler dialler.c");
    let dial = |host: &str, port: u16| {
        let nowhere =
            "http_proxy=http://127.0.0.1:9 HTTP_PROXY=http://127.0.0.1:9 ALL_PROXY=socks5://127.0.0.1:9";
        peers.sh(&format!("env {nowhere} ./dialler {host} {port} /file.txt")).go()
    };
    for host in ["files.stockade.test", "127.10.0.1"] {
        let ran = dial(host, 80).ends_with(0);
        assert!(ran.out().contains(" 200 OK") && ran.out().ends_with("\nfrom the server\n"), "{ran}");
        went_to(&ran, host);
    }
    kept_from_other(&peers, &dial(OTHER, 80).ends_with(3));
    // Where an address is dialled, the address is told.
    let ran = dial("127.10.0.2", 80);
    assert!([4, 5].contains(&ran.code()) && ran.out().is_empty(), "{ran}");
    let result = ran.result();
    let [blocked] = result.blocked.as_slice() else { panic!("one target: {ran}") };
    assert_eq!(
        (blocked.operation.as_str(), blocked.target.to_string().as_str()),
        ("connect", "127.10.0.2:80")
    );
    // A port that no rule has is as shut as on a host where nobody listens.
    let ran = dial("files.stockade.test", 8080).ends_with(4);
    assert_eq!(ran.out(), "", "{ran}");
    assert!(!peers.log().contains("web 127.10.0.2"), "{}", peers.log());
}
