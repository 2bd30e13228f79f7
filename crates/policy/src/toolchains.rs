//! Toolchains that live in the home directory: which directories a PATH entry stands for, and which names in
//! them are credentials. Tables and path arithmetic; the survey does the looking. Next: `mounts`.

use std::path::{Path, PathBuf};

use stockade_proto::Bytes;

use crate::request::Caller;

/// A toolchain's home and what of it is shown when PATH names something in it.
#[derive(Debug, Clone, Copy)]
struct Row {
    /// Below the home directory.
    root: &'static str,
    /// A variable that moves the root.
    variable: Option<&'static str>,
    /// Below the root; empty shows the whole root.
    show: &'static [&'static str],
    /// Show only the first so many components below the root of the PATH entry itself.
    depth: Option<usize>,
    /// The root itself becomes an empty writable directory around what is shown.
    scratch: bool,
    /// Roots of other rows that this one needs.
    with: &'static [&'static str],
}

const WHOLE: Row = Row { root: "", variable: None, show: &[], depth: None, scratch: false, with: &[] };

const TABLE: &[Row] = &[
    // cargo locks and writes in its home; the registry is read from the caller's.
    Row {
        root: ".cargo",
        variable: Some("CARGO_HOME"),
        show: &["bin", "registry", "git", "config.toml", "config", "env"],
        scratch: true,
        with: &[".rustup"],
        ..WHOLE
    },
    Row { root: ".rustup", variable: Some("RUSTUP_HOME"), ..WHOLE },
    Row { root: ".pyenv", variable: Some("PYENV_ROOT"), ..WHOLE },
    // versions/node/V
    Row { root: ".nvm", variable: Some("NVM_DIR"), depth: Some(3), ..WHOLE },
    Row {
        root: ".local/bin",
        with: &[".local/lib", ".local/share/pipx", ".local/share/uv", ".local/pipx"],
        ..WHOLE
    },
    Row { root: ".local/lib", ..WHOLE },
    Row { root: ".local/pipx", ..WHOLE },
    Row { root: ".local/share/pipx", ..WHOLE },
    Row { root: ".local/share/uv", ..WHOLE },
    Row { root: ".local/share/fnm", ..WHOLE },
    Row { root: ".local/share/mise", ..WHOLE },
    Row { root: ".volta", ..WHOLE },
    Row { root: ".asdf", ..WHOLE },
    Row { root: ".rbenv", ..WHOLE },
    Row { root: ".nodenv", ..WHOLE },
    Row { root: ".goenv", ..WHOLE },
    Row { root: ".bun", show: &["bin", "install/global"], ..WHOLE },
    Row { root: ".deno", show: &["bin"], ..WHOLE },
    Row { root: ".sdkman", show: &["candidates"], ..WHOLE },
    Row { root: ".ghcup", ..WHOLE },
    Row { root: ".opam", depth: Some(1), ..WHOLE },
    Row { root: ".juliaup", ..WHOLE },
    Row { root: ".dotnet", ..WHOLE },
    Row { root: ".npm-global", ..WHOLE },
    Row { root: "miniconda3", ..WHOLE },
    Row { root: "anaconda3", ..WHOLE },
    Row { root: "miniforge3", ..WHOLE },
    Row { root: "mambaforge", ..WHOLE },
    Row { root: "go", variable: Some("GOPATH"), show: &["bin"], ..WHOLE },
];

/// Never shown because PATH names them: kernel interfaces and other programs' sockets.
const NEVER: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// Names that hold credentials, wherever a toolchain keeps them. One match: it is asked for every file of a toolchain.
pub fn is_credential(name: &[u8]) -> bool {
    matches!(
        name,
        b"credentials"
            | b"credentials.toml"
            | b"credentials.json"
            | b"credentials.db"
            | b".credentials"
            | b".credentials.json"
            | b".npmrc"
            // Of a whole toolchain, as `npm config -g` and `pip config --site` write them.
            | b"npmrc"
            | b"pip.conf"
            | b".condarc"
            | b".yarnrc.yml"
            | b".pypirc"
            | b".netrc"
            | b"_netrc"
            | b".git-credentials"
            | b".env"
            | b".dockercfg"
            | b".pgpass"
            | b".my.cnf"
            | b"auth.json"
            | b"token"
    ) || (name.starts_with(b"id_")
        && [&b"rsa"[..], b"ed25519", b"ecdsa", b"dsa"].iter().any(|kind| name[3..].starts_with(kind)))
}

/// A cargo configuration may hold a registry token in place of `credentials.toml`.
pub fn holds_token(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').any(|line| {
        let line = line.trim_ascii_start();
        !line.starts_with(b"#") && line.windows(5).any(|word| word.eq_ignore_ascii_case(b"token"))
    })
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Candidates {
    /// Host paths to show read-only if they exist, each with its reason.
    pub show: Vec<(PathBuf, String)>,
    pub scratch: Vec<PathBuf>,
}

/// What the PATH directories stand for. All paths canonical; `system` is what is shown anyway.
pub fn candidates(caller: &Caller, workspace: &Path, system: &[&Path], path: &[PathBuf]) -> Candidates {
    let mut found = Candidates::default();
    let home = caller.home.as_path();
    for dir in path {
        let visible = dir.starts_with(workspace) || system.iter().any(|shown| dir.starts_with(shown));
        // An entry at or above the home or the workspace would show everything in it.
        let too_much = home.starts_with(dir) || workspace.starts_with(dir);
        let never = NEVER.iter().any(|never| dir.starts_with(never));
        if too_much || never {
            continue;
        }
        match row_of(caller, dir) {
            Some((row, root)) => add_row(&mut found, caller, row, &root, dir, system),
            None if visible => {}
            None => add(&mut found, dir.clone(), "named by PATH".to_owned()),
        }
    }
    found
}

fn root_of(caller: &Caller, row: &Row) -> PathBuf {
    let moved = row.variable.and_then(|name| caller.variable(name)).map(Bytes::as_path);
    match moved.filter(|path| path.is_absolute()) {
        Some(path) => path.to_path_buf(),
        None => caller.home.as_path().join(row.root),
    }
}

fn row_of<'r>(caller: &Caller, dir: &Path) -> Option<(&'r Row, PathBuf)> {
    TABLE
        .iter()
        .map(|row| (row, root_of(caller, row)))
        .filter(|(_, root)| dir.starts_with(root) && !caller.home.as_path().starts_with(root))
        .max_by_key(|(_, root)| root.components().count())
}

fn add_row(found: &mut Candidates, caller: &Caller, row: &Row, root: &Path, dir: &Path, system: &[&Path]) {
    let visible = |path: &Path| system.iter().any(|shown| path.starts_with(shown));
    let reason = format!("the toolchain of PATH's {}", Bytes::from(dir));
    if !visible(root) {
        match row.depth {
            Some(depth) => {
                let below = dir.strip_prefix(root).unwrap_or(Path::new(""));
                add(found, root.join(below.components().take(depth).collect::<PathBuf>()), reason.clone());
            }
            None if row.show.is_empty() => add(found, root.to_path_buf(), reason.clone()),
            None => {
                for part in row.show {
                    add(found, root.join(part), reason.clone());
                }
                // The entry itself, should it be elsewhere below the root.
                if !row.show.iter().any(|part| dir.starts_with(root.join(part))) {
                    add(found, dir.to_path_buf(), reason.clone());
                }
            }
        }
        if row.scratch && !found.scratch.iter().any(|known| known == root) {
            found.scratch.push(root.to_path_buf());
        }
    }
    for other in row.with.iter().filter_map(|name| TABLE.iter().find(|row| row.root == *name)) {
        let path = root_of(caller, other);
        if !visible(&path) && !caller.home.as_path().starts_with(&path) {
            add(found, path, reason.clone());
        }
    }
}

fn add(found: &mut Candidates, path: PathBuf, reason: String) {
    if !found.show.iter().any(|(known, _)| path.starts_with(known)) {
        found.show.push((path, reason));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(env: &[(&str, &str)]) -> Caller {
        let env = env.iter().map(|(name, value)| (Bytes::from(*name), Bytes::from(*value))).collect();
        Caller { uid: 1000, gid: 1000, user: None, home: Bytes::from("/home/ada"), env }
    }

    fn shown(caller: &Caller, path: &[&str]) -> Vec<String> {
        let dirs = path.iter().map(PathBuf::from).collect::<Vec<_>>();
        let found =
            candidates(caller, Path::new("/home/ada/w"), &[Path::new("/usr"), Path::new("/opt")], &dirs);
        found.show.into_iter().map(|(path, _)| path.display().to_string()).collect()
    }

    #[test]
    fn path_entries_stand_for_their_toolchains() {
        let ada = caller(&[]);
        assert_eq!(
            shown(&ada, &["/home/ada/.cargo/bin"]),
            ["bin", "registry", "git", "config.toml", "config", "env"]
                .map(|part| format!("/home/ada/.cargo/{part}"))
                .into_iter()
                .chain(["/home/ada/.rustup".to_owned()])
                .collect::<Vec<_>>()
        );
        assert_eq!(shown(&ada, &["/home/ada/.pyenv/shims", "/home/ada/.pyenv/bin"]), ["/home/ada/.pyenv"]);
        assert_eq!(
            shown(&ada, &["/home/ada/.nvm/versions/node/v22.1.0/bin"]),
            ["/home/ada/.nvm/versions/node/v22.1.0"]
        );
        assert_eq!(shown(&ada, &["/home/ada/go/bin"]), ["/home/ada/go/bin"]);
        assert_eq!(
            shown(&ada, &["/home/ada/tools/x/bin", "/srv/tools/bin"]),
            ["/home/ada/tools/x/bin", "/srv/tools/bin"]
        );
    }

    #[test]
    fn nothing_that_shows_too_much() {
        let ada = caller(&[]);
        for dir in
            ["/", "/home", "/home/ada", "/proc/self/cwd", "/run/user/1000/bin", "/usr/bin", "/home/ada/w/bin"]
        {
            assert!(shown(&ada, &[dir]).is_empty(), "{dir}");
        }
        // A variable that names the home itself must not turn "the toolchain" into everything.
        let sly = caller(&[("CARGO_HOME", "/home/ada"), ("PYENV_ROOT", "/")]);
        assert_eq!(shown(&sly, &["/home/ada/bin"]), ["/home/ada/bin"]);
    }

    #[test]
    fn moved_roots_are_followed() {
        let moved = caller(&[("CARGO_HOME", "/opt/cargo"), ("RUSTUP_HOME", "/srv/rustup")]);
        assert_eq!(shown(&moved, &["/opt/cargo/bin"]), ["/srv/rustup"]);
    }

    #[test]
    fn credential_names() {
        for name in ["credentials.toml", ".npmrc", "npmrc", "pip.conf", "id_rsa", "id_ed25519.pub", ".env"] {
            assert!(is_credential(name.as_bytes()), "{name}");
        }
        for name in ["cargo", "config.toml", "env", "tokenizer.json", "credentials.py"] {
            assert!(!is_credential(name.as_bytes()), "{name}");
        }
        assert!(holds_token(b"[registry]\n  token = \"x\"\n"));
        assert!(!holds_token(b"# token\n[build]\njobs = 2\n"));
    }
}
