//! The command's environment, built from nothing: names the profile allows, computed PATH and HOME, what the
//! profile sets, then `--env`. One table names the variables that change what a program loads or runs before
//! its own first line. Next: `plan`.

use std::collections::BTreeMap;

use stockade_proto::{Bytes, Code, Mode, Refusal};

use crate::command::MAX_STRING;
use crate::profile::Resolved;
use crate::request::Caller;
use stockade_proto::{Request, Variable};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Never passed on; naming it in `--env` or `env.set` is a refusal.
    Refuse,
    /// The caller's value is not passed on; a value given on purpose is.
    Drop,
}

#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// A trailing `*` stands for any rest.
    pub pattern: &'static str,
    pub why: &'static str,
    pub action: Action,
}

macro_rules! names {
    ($($pattern:literal $action:ident $why:literal)*) => {
        pub const TABLE: &[Row] = &[$(Row { pattern: $pattern, why: $why, action: Action::$action },)*];
    };
}

names! {
    "LD_*"              Refuse "the dynamic loader runs or replaces libraries by it"
    "GLIBC_TUNABLES"    Refuse "changes the C library before main"
    "GCONV_PATH"        Refuse "the C library loads character set modules from it"
    "LOCPATH"           Refuse "the C library loads locale files from it"
    "NLSPATH"           Refuse "message catalogues are format strings"
    "HOSTALIASES"       Refuse "rewrites host names"
    "MALLOC_*"          Refuse "changes the allocator's checks and writes traces"
    "BASH_ENV"          Refuse "bash runs this file before the command"
    "ENV"               Refuse "sh runs this file before the command"
    "SHELLOPTS"         Refuse "turns on shell options, xtrace with PS4 among them"
    "BASHOPTS"          Refuse "turns on shell options"
    "BASH_FUNC_*"       Refuse "bash imports it as a function"
    "BASH_XTRACEFD"     Refuse "bash writes its trace to this descriptor"
    "PS4"               Refuse "is expanded, commands included, for each traced line"
    "PROMPT_COMMAND"    Refuse "bash runs it before each prompt"
    "IFS"               Refuse "changes how shells split words"
    "ZDOTDIR"           Refuse "zsh reads its start-up files from it"
    "NODE_OPTIONS"      Refuse "node loads modules by it"
    "NODE_PATH"         Refuse "node finds modules by it"
    "PYTHONSTARTUP"     Refuse "python runs this file"
    "PYTHONPATH"        Refuse "python finds modules by it"
    "PYTHONHOME"        Refuse "python finds its library by it"
    "PYTHONINSPECT"     Refuse "python turns interactive after the program"
    "PERL5OPT"          Refuse "perl loads modules by it"
    "PERL5LIB"          Refuse "perl finds modules by it"
    "PERL5DB"           Refuse "perl runs it under the debugger"
    "RUBYOPT"           Refuse "ruby loads modules by it"
    "RUBYLIB"           Refuse "ruby finds modules by it"
    "JAVA_TOOL_OPTIONS" Refuse "the JVM loads agents by it"
    "_JAVA_OPTIONS"     Refuse "the JVM loads agents by it"
    "JDK_JAVA_OPTIONS"  Refuse "the JVM loads agents by it"
    "RUSTC_WRAPPER"     Refuse "cargo runs it in place of the compiler"
    "RUSTC_WORKSPACE_WRAPPER" Refuse "cargo runs it in place of the compiler"
    "GIT_SSH_COMMAND"   Refuse "git runs it"
    "GIT_SSH"           Refuse "git runs it"
    "GIT_EXEC_PATH"     Refuse "git finds its subcommands by it"
    "GIT_EXTERNAL_DIFF" Refuse "git runs it"
    "GIT_PROXY_COMMAND" Refuse "git runs it"
    "GIT_ASKPASS"       Refuse "git runs it"
    "GIT_TEMPLATE_DIR"  Refuse "git copies hooks from it"
    "GIT_CONFIG*"       Refuse "git reads settings, commands among them, from it"
    "SSH_AUTH_SOCK"     Drop   "leads to the caller's keys"
    "SSH_ASKPASS"       Drop   "names a program outside the sandbox"
    "DBUS_SESSION_BUS_ADDRESS" Drop "leads to the caller's session"
    "XDG_RUNTIME_DIR"   Drop   "names a directory outside the sandbox"
    "TMPDIR"            Drop   "names a directory outside the sandbox; /tmp is private"
    "STOCKADE"          Refuse "tells programs that they are inside"
    "CLAUDECODE"        Refuse "marks a nested agent"
    "CLAUDE_CODE_*"     Refuse "marks a nested agent"
    "CLAUDE_AGENT_*"    Refuse "marks a nested agent"
    "CODEX_*"           Refuse "marks a nested agent"
    "GEMINI_CLI*"       Refuse "marks a nested agent"
    "CURSOR_AGENT"      Refuse "marks a nested agent"
    "CURSOR_TRACE_ID"   Refuse "marks a nested agent"
    "OPENCODE*"         Refuse "marks a nested agent"
}

/// Set inside every sandbox, so that programs can tell.
const MARKER: (&str, &str) = ("STOCKADE", "1");

/// What a shell falls back to, and where the tools of every distribution are.
const FALLBACK_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Homes of toolchains that keep themselves elsewhere: passed on when set and visible.
pub(crate) const TOOLCHAIN_HOMES: [&str; 4] = ["CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT", "NVM_DIR"];

/// Whether a pattern with an optional trailing `*` covers a name (or a narrower pattern).
pub(crate) fn covers(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

pub(crate) fn row(name: &[u8]) -> Option<&'static Row> {
    TABLE.iter().find(|row| match row.pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix.as_bytes()),
        None => name == row.pattern.as_bytes(),
    })
}

fn refused(message: String, remedy: &str) -> Refusal {
    Refusal::new(Code::EnvironmentRefused, message, remedy)
}

/// A variable that someone names on purpose.
pub(crate) fn check_set(name: &[u8], value: &[u8]) -> Result<(), Refusal> {
    let shown = Bytes::from(name);
    if name.is_empty() || name.contains(&b'=') || name.contains(&0) {
        return Err(refused(
            format!("`{shown}` is no name for a variable: it is empty or holds `=` or NUL"),
            "name it with letters, digits and `_`",
        ));
    }
    if value.contains(&0) {
        return Err(refused(format!("the value of `{shown}` holds a NUL byte"), "remove the byte"));
    }
    if name.len() + 1 + value.len() > MAX_STRING {
        return Err(Refusal::new(
            Code::CommandTooLong,
            format!(
                "the variable `{shown}` has {} bytes; the kernel takes at most {MAX_STRING}",
                name.len() + 1 + value.len()
            ),
            "put the text in a file of the workspace",
        ));
    }
    match row(name) {
        Some(row) if row.action == Action::Refuse => Err(refused(
            format!("the variable `{shown}` is refused: {}", row.why),
            "set it inside the command, as in `env NAME=VALUE program`",
        )),
        Some(_) | None => Ok(()),
    }
}

/// What the sandbox looks like to the computed variables.
pub(crate) struct Surroundings<'p> {
    pub(crate) home: &'p Bytes,
    /// Directories of PATH that exist inside, in order.
    pub(crate) path: Vec<Bytes>,
    /// Toolchain homes that are visible inside.
    pub(crate) toolchain_homes: Vec<(&'static str, Bytes)>,
}

pub(crate) fn build(
    request: &Request,
    profile: &Resolved,
    caller: &Caller,
    around: &Surroundings<'_>,
    warnings: &mut Vec<String>,
) -> Result<Vec<(Bytes, Bytes)>, Refusal> {
    let mut env: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    for (name, value) in &caller.env {
        let allowed = profile.env_allow.value.iter().any(|allow| match allow.value.strip_suffix('*') {
            Some(prefix) => name.as_slice().starts_with(prefix.as_bytes()),
            None => name.as_slice() == allow.value.as_bytes(),
        });
        if !allowed || name.is_empty() {
            continue;
        }
        match row(name.as_slice()) {
            Some(row) => warnings.push(format!("the variable `{name}` is not passed on: {}", row.why)),
            None => drop(env.insert(name.clone(), value.clone())),
        }
    }
    computed(&mut env, profile, caller, around);
    for (name, value) in &profile.env_set {
        env.insert(Bytes::from(name.value.as_str()), Bytes::from(value.value.as_str()));
    }
    for variable in &request.env {
        let (name, value) = match variable {
            Variable::Set { name, value } => (name, value.clone()),
            Variable::Copy { name } => (name, copied(name, caller)?),
        };
        check_set(name.as_slice(), value.as_slice())?;
        env.insert(name.clone(), value);
    }
    if profile.mode.value == Mode::Sandbox {
        env.insert(Bytes::from(MARKER.0), Bytes::from(MARKER.1));
    }
    let env = env.into_iter().collect::<Vec<_>>();
    for (name, value) in &env {
        if name.len() + 1 + value.len() > MAX_STRING {
            return Err(Refusal::new(
                Code::CommandTooLong,
                format!(
                    "the variable `{name}` has {} bytes; the kernel takes at most {MAX_STRING}",
                    name.len() + 1 + value.len()
                ),
                "shorten it, or leave it out of `env.allow`",
            ));
        }
    }
    Ok(env)
}

fn copied(name: &Bytes, caller: &Caller) -> Result<Bytes, Refusal> {
    // Refused names are refused whether they are set or not.
    check_set(name.as_slice(), b"")?;
    match caller.env.iter().find(|(known, _)| known == name) {
        Some((_, value)) => Ok(value.clone()),
        None => Err(Refusal::new(
            Code::OptionInvalid,
            format!("--env {name}: the variable is not set here"),
            "write `--env NAME=VALUE`, or set it first",
        )),
    }
}

fn computed(
    env: &mut BTreeMap<Bytes, Bytes>,
    profile: &Resolved,
    caller: &Caller,
    around: &Surroundings<'_>,
) {
    let allows = |name: &str| profile.env_allow.value.iter().any(|allow| covers(&allow.value, name));
    if allows("PATH") {
        let joined = around.path.iter().map(Bytes::as_slice).collect::<Vec<_>>().join(&b':');
        let path = if joined.is_empty() { Bytes::from(FALLBACK_PATH) } else { Bytes::from(joined) };
        env.insert(Bytes::from("PATH"), path);
    }
    if allows("HOME") {
        env.insert(Bytes::from("HOME"), around.home.clone());
    }
    // One of the two says what the other would.
    let said = ["USER", "LOGNAME"].iter().find_map(|name| env.get(&Bytes::from(*name)).cloned());
    let user = said.or_else(|| caller.user.clone()).unwrap_or_else(|| Bytes::from(caller.uid.to_string()));
    for name in ["USER", "LOGNAME"] {
        if allows(name) {
            env.entry(Bytes::from(name)).or_insert_with(|| user.clone());
        }
    }
    for (name, value) in &around.toolchain_homes {
        env.insert(Bytes::from(*name), value.clone());
    }
    if profile.mode.value == Mode::Sandbox {
        // The one that is sure to be there. Without it every bash asks the host's user database for one, at the price of
        // its own start.
        let shell = || Bytes::from(profile.shell_program.value.as_str());
        env.entry(Bytes::from("SHELL")).or_insert_with(shell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_says_why_and_is_found_by_its_own_name() {
        for entry in TABLE {
            assert!(!entry.why.is_empty());
            let name = entry.pattern.replace('*', "X");
            let found = row(name.as_bytes()).expect("found");
            assert_eq!(found.action, entry.action, "{name}");
        }
        for plain in ["PATH", "HOME", "LANG", "TERM", "LDFLAGS", "ENVIRONMENT", "CC", "GIT_AUTHOR_NAME"] {
            assert!(row(plain.as_bytes()).is_none(), "{plain}");
        }
    }

    #[test]
    fn names_and_values_are_checked() {
        for (name, value) in [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0y"), ("LD_PRELOAD", "x")] {
            assert_eq!(
                check_set(name.as_bytes(), value.as_bytes()).expect_err("refused").code,
                Code::EnvironmentRefused,
                "{name:?}"
            );
        }
        assert!(check_set(b"A", "x".repeat(MAX_STRING - 2).as_bytes()).is_ok());
        assert_eq!(
            check_set(b"A", "x".repeat(MAX_STRING - 1).as_bytes()).expect_err("long").code,
            Code::CommandTooLong
        );
        assert!(check_set(b"TMPDIR", b"/tmp").is_ok());
    }
}
