//! What the survey must look at (`Needs`) and what it found (`HostReport`). Plain values: planning reads the
//! host through these and nothing else. Next: `plan`.

use stockade_proto::{Bytes, Code, Layer, Mode, Placeholder, Refusal, Request, Source};

use crate::egress;
use crate::git::{GitFacts, GitIdentity};
use crate::globs::Globs;
use crate::profile::{Resolved, View};
use crate::request::Caller;
use crate::sockets;
use crate::text::{At, Place, Spot};

/// A host object: where it really is, what it is, whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Absolute, without symlinks or `..`.
    pub path: Bytes,
    pub dev: u64,
    pub ino: u64,
    pub is_dir: bool,
    pub uid: u32,
    pub gid: u32,
}

impl Object {
    pub fn source(&self) -> Source {
        Source { path: self.path.clone(), dev: self.dev, ino: self.ino, is_dir: self.is_dir }
    }
}

/// A path of `readable` or `writable`, `~` and `$NAME` replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededPath {
    pub path: Bytes,
    pub writable: bool,
    /// Written with a trailing `?`.
    pub optional: bool,
    /// Not shown: what a workspace's own paths must stay below.
    pub bound_only: bool,
    pub spot: Spot,
}

/// What was found at a needed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extra {
    pub needed: NeededPath,
    pub object: Option<Object>,
}

/// A path of a socket rule that the survey looks up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededSocket {
    /// Positions in `Resolved::socket_rules` and in that rule's paths.
    pub rule: usize,
    pub at: usize,
    pub place: SocketPlace,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketPlace {
    /// Absolute, as written.
    Path(Bytes),
    /// A glob's literal directory, with its slash, and the glob behind it.
    Glob { directory: Bytes, rest: Bytes },
}

/// What is at the place of a socket rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSocket {
    pub needed: NeededSocket,
    /// Without symlinks: the path if it exists, else its directory's and its name; a glob's directory.
    pub real: Option<Bytes>,
    pub what: SocketObject,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketObject {
    Missing,
    /// The way leads through a link in a directory that commands can write.
    Planted,
    Socket(Object),
    Other,
    /// Of a glob: how many sockets match right in its directory, where that can be told.
    Matches(Option<usize>),
}

/// A host that a tool of this host is configured to fetch from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Registry {
    pub tool: &'static str,
    /// A name, or an address; an IPv6 one without brackets.
    pub host: String,
    pub port: u16,
}

#[derive(Debug, Clone)]
pub struct Needs {
    pub mode: Mode,
    /// In the order of the profile: readable, then writable.
    pub paths: Vec<NeededPath>,
    pub cwd: Option<Bytes>,
    pub toolchains: bool,
    pub deny: Globs,
    pub deny_write: Globs,
    /// Whether git's settings and hooks are to be protected.
    pub guard_git: bool,
    pub sockets: Vec<NeededSocket>,
    /// The allowlist names the set `registries`.
    pub registries: bool,
}

/// System paths that every program expects, in mount order.
pub const SYSTEM_PATHS: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/etc", "/nix/store"];

/// What the C library reads to find a host, with what it says under an allowlist: the host's own addresses and
/// search list are of no use there, and make other names of those that are listed. All datagrams to port 53 lead
/// to the egress' resolver, so that any address is its own. The sandbox's hostname is among them: programs ask who
/// they are, and that is no business of the allowlist's.
pub const NAME_FILES: [(&str, &str); 2] = [
    ("/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 stockade\n::1 localhost stockade\n"),
    ("/etc/resolv.conf", "nameserver 127.0.0.1\n"),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemPath {
    Directory(Object),
    /// `/bin` → `usr/bin` on merged systems.
    Symlink {
        path: Bytes,
        to: Bytes,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub memory_bytes: u64,
    pub cores: u64,
    pub pid_max: u64,
}

/// A toolchain directory or file to show read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub object: Object,
    pub reason: String,
    /// Credential files in it, to be masked.
    pub credentials: Vec<Match>,
}

/// Something that a deny glob or the credential table matched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match {
    /// Canonical host path.
    pub path: Bytes,
    pub is_dir: bool,
}

/// Why a layer can't be enforced here, and what would change that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    pub why: String,
    pub remedy: String,
}

/// Per layer, in the order of `Layer::ALL`: what the executor found it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerReport(pub [Result<(), Unavailable>; Layer::ALL.len()]);

impl LayerReport {
    pub const fn all_available() -> Self {
        Self([Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(())])
    }

    #[must_use]
    pub fn without(mut self, layer: Layer, unavailable: Unavailable) -> Self {
        for (slot, candidate) in self.0.iter_mut().zip(Layer::ALL) {
            if candidate == layer {
                *slot = Err(unavailable.clone());
            }
        }
        self
    }

    pub fn get(&self, layer: Layer) -> Result<(), &Unavailable> {
        let [filesystem, landlock, process, network, seccomp, sockets, limits] = &self.0;
        match layer {
            Layer::Filesystem => filesystem,
            Layer::Landlock => landlock,
            Layer::Process => process,
            Layer::Network => network,
            Layer::Seccomp => seccomp,
            Layer::Sockets => sockets,
            Layer::Limits => limits,
        }
        .as_ref()
        .copied()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostReport {
    pub caller: Caller,
    pub workspace: Object,
    /// The requested working directory, canonical.
    pub cwd: Option<Bytes>,
    pub capacity: Capacity,
    pub system: Vec<SystemPath>,
    /// As `Needs::paths`.
    pub extras: Vec<Extra>,
    /// PATH, canonical: absolute directories that exist, in order, each once.
    pub path: Vec<Bytes>,
    pub shown: Vec<Shown>,
    /// Directories that a shown toolchain must be able to write locks into.
    pub scratch: Vec<Bytes>,
    pub deny: Vec<Match>,
    /// Those of them that only a glob with a place in it names: elsewhere they would be shown, so they have to stay.
    pub deny_in_place: Vec<Bytes>,
    pub deny_write: Vec<Match>,
    /// Deny-write paths that do not exist and must be held.
    pub absent: Vec<Placeholder>,
    /// As `Needs::guard_git`.
    pub guard_git: bool,
    pub git: GitFacts,
    pub git_identity: GitIdentity,
    /// Those of `NAME_FILES` that are regular files at that very place.
    pub name_files: Vec<Bytes>,
    /// As `Needs::sockets`.
    pub sockets: Vec<FoundSocket>,
    pub registries: Vec<Registry>,
    pub layers: LayerReport,
    /// Sentences of the survey, for the plan.
    pub warnings: Vec<String>,
}

impl HostReport {
    /// Mount, PID and user namespaces: what a new root stands on.
    pub fn namespaces_available(&self) -> bool {
        self.layers.get(Layer::Filesystem).is_ok() && self.layers.get(Layer::Process).is_ok()
    }
}

/// What the survey must look at for this profile and request.
pub fn needs(profile: &Resolved, request: &Request, caller: &Caller) -> Result<Needs, Refusal> {
    let globs = |list: &At<Vec<At<String>>>| {
        Globs::new(list.value.iter().map(|item| item.value.as_str())).map_err(|error| {
            let refusal = Refusal::new(
                Code::ProfileInvalid,
                format!("a deny glob can't be read: {}", error.kind()),
                "write it relative to the workspace, such as \"**/.env\"",
            );
            match profile.origin(list.spot) {
                Some(origin) => refusal.at(origin),
                None => refusal,
            }
        })
    };
    let sandboxed = profile.mode.value == Mode::Sandbox;
    // Nothing of a workspace that can't be written needs protection from writing.
    let writable = sandboxed && profile.fs.value == View::WorkspaceRw;
    let deny_write = if writable { globs(&profile.deny_write)? } else { Globs::default() };
    Ok(Needs {
        mode: profile.mode.value,
        paths: needed_paths(profile, caller)?,
        cwd: request.cwd.clone(),
        toolchains: sandboxed && profile.toolchains.value,
        deny: globs(&profile.deny)?,
        guard_git: deny_write.covers(b".git/hooks") || deny_write.covers(b".git/config"),
        deny_write,
        sockets: sockets::needed_sockets(profile, caller)?,
        registries: sandboxed && egress::wants_registries(profile),
    })
}

/// `readable` and `writable` and what bounds them, expanded for this caller.
pub fn needed_paths(profile: &Resolved, caller: &Caller) -> Result<Vec<NeededPath>, Refusal> {
    let mut paths = Vec::new();
    for (list, writable) in [(&profile.readable, false), (&profile.writable, true)] {
        for item in &list.value {
            let (written, optional) =
                item.value.strip_suffix('?').map_or((item.value.as_str(), false), |bare| (bare, true));
            let path = expand(written, profile, item, caller)?;
            paths.push(NeededPath { path, writable, optional, bound_only: false, spot: item.spot });
        }
    }
    for (item, writable) in &profile.bounds {
        let written = item.value.strip_suffix('?').unwrap_or(&item.value);
        let path = expand(written, profile, item, caller)?;
        paths.push(NeededPath {
            path,
            writable: *writable,
            optional: true,
            bound_only: true,
            spot: item.spot,
        });
    }
    Ok(paths)
}

/// `~` and a leading `$NAME` or `${NAME}`. The result must be absolute and without `..`: a variable is the
/// caller's own, but a surprising one must not open a surprising directory.
fn expand(written: &str, profile: &Resolved, item: &At<String>, caller: &Caller) -> Result<Bytes, Refusal> {
    let refuse = |message: String, remedy: &str| {
        Refusal::from(profile.error(Code::ProfileInvalid, item.spot, message, remedy))
    };
    let home = |rest: &str| [caller.home.as_slice(), rest.as_bytes()].concat();
    let (name, bytes) = if let Some(rest) = written.strip_prefix('~') {
        (Some("HOME"), home(rest))
    } else if let Some(rest) = written.strip_prefix('$') {
        let (name, rest) = match rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            Some((name, rest)) => (name, rest),
            None => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        };
        let value = if name == "HOME" { Some(&caller.home) } else { caller.variable(name) };
        let value = value.filter(|value| !value.is_empty()).ok_or_else(|| {
            refuse(
                format!("the variable `{}` of this path is not set", name.escape_debug()),
                "set it, or write the path out",
            )
        })?;
        (Some(name), [value.as_slice(), rest.as_bytes()].concat())
    } else {
        (None, written.as_bytes().to_vec())
    };
    let sound = bytes.starts_with(b"/")
        && !bytes.split(|byte| *byte == b'/').any(|part| part == b".." || part == b".");
    if !sound {
        // The value is the caller's own and may be a secret, so only the name is told.
        let with =
            name.map(|name| format!("with the variable `{}` ", name.escape_debug())).unwrap_or_default();
        return Err(refuse(
            format!("{with}this path is not absolute, or holds `.` or `..`"),
            "write the path out",
        ));
    }
    Ok(Bytes::from(bytes))
}

/// Whether a path came from the workspace's own profile.
pub(crate) fn is_untrusted(profile: &Resolved, spot: Spot) -> bool {
    profile.place(spot) == Place::Workspace
}
