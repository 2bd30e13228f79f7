//! A private directory with a workspace and, beside it, what the probe must not reach: a file, a directory
//! to write to, sockets that somebody listens on. Gone when doctor is done. Next: `trial`.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use stockade_executor::Abort;
use stockade_policy::SANDBOX_ROOT_UID;
use stockade_proto::{Code, Fault};

use super::attempts::{NAMESPACES, Targets};

/// A Unix socket's path holds 107 bytes; ours adds about fifty to the directory's.
const MAX_ABOVE: usize = 50;

pub(super) const PROGRAM: &str = "./stockade";

#[derive(Debug)]
pub(super) struct Ground {
    base: PathBuf,
    pub(super) targets: Targets,
    /// Nobody accepts: a connection that waits in the backlog is one that got through.
    #[expect(dead_code, reason = "open for as long as the ground lasts")]
    listeners: (TcpListener, [UnixListener; 3]),
}

fn fault(what: &str, path: &Path, error: &io::Error) -> Abort {
    Fault::new(
        Code::SetupFailed,
        format!("{what} {}: {error}", path.display()),
        "Free some space there, or make /tmp or /var/tmp writable and executable for you.",
    )
    .into()
}

/// Root's files are shown to its sandboxes through id-mapped mounts, which disk file systems learnt long
/// before tmpfs did.
fn places() -> Vec<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return ["/var/tmp", "/var/lib", "/tmp"].map(PathBuf::from).to_vec();
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    runtime.into_iter().chain(["/tmp", "/var/tmp"].map(PathBuf::from)).collect()
}

/// The probe must be able to run in it.
fn is_usable(place: &Path) -> bool {
    place.as_os_str().len() <= MAX_ABOVE
        && statvfs(place)
            .is_ok_and(|stat| !stat.f_flag.intersects(StatVfsMountFlags::NOEXEC | StatVfsMountFlags::RDONLY))
}

fn directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    // Whatever the umask says.
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn make_base(name: &str) -> Result<PathBuf, Abort> {
    // Root's sandboxes run as another uid, which must get through to the workspace when there is no new root.
    let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
    let mut last = None;
    for place in places().into_iter().filter(|place| is_usable(place)) {
        let base = place.join(name);
        match directory(&base, mode) {
            Ok(()) => return Ok(base),
            Err(error) => last = Some((base, error)),
        }
    }
    let (path, error) =
        last.unwrap_or_else(|| (PathBuf::from("/tmp"), io::ErrorKind::PermissionDenied.into()));
    Err(fault("doctor can't make its directory", &path, &error))
}

impl Ground {
    pub(super) fn make() -> Result<Self, Abort> {
        let mut random = [0_u8; 6];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(|error| {
            Fault::new(Code::HostUnreadable, format!("no random bytes: {error}"), "Mount /dev or try again.")
        })?;
        let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("stockade-doctor-{hex}");
        let base = make_base(&name)?;
        fill(&base, name).map_err(|error| {
            let abort = fault("doctor can't set up its targets in", &base, &error);
            match fs::remove_dir_all(&base) {
                // One message is enough on the way out of a failure.
                Ok(()) | Err(_) => abort,
            }
        })
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.base.join("work")
    }

    /// Takes everything away, and says what could not be.
    pub(super) fn remove(self) -> Option<String> {
        let error = fs::remove_dir_all(&self.base).err()?;
        Some(format!("{} could not be removed: {error}", self.base.display()))
    }
}

fn fill(base: &Path, name: String) -> io::Result<Ground> {
    let work = base.join("work");
    directory(&work, 0o755)?;
    // A copy, never a link: the workspace is writable, and this program must not be.
    let program = work.join("stockade");
    fs::copy("/proc/self/exe", &program)?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;

    let outside = base.join("outside");
    directory(&outside, 0o700)?;
    let (canary, socket) = (outside.join("canary"), outside.join("socket"));
    File::create_new(&canary)?.write_all(b"nobody inside a sandbox reads this\n")?;
    let near_socket = work.join("socket");
    let listeners = (
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
        [
            UnixListener::bind(&socket)?,
            UnixListener::bind(&near_socket)?,
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?,
        ],
    );
    // Its mode lets everyone in.
    fs::set_permissions(&near_socket, Permissions::from_mode(0o777))?;
    if rustix::process::geteuid().is_root() {
        // To the uid that root's sandboxes run as: only a wall can be what keeps it out.
        for path in [&outside, &canary, &socket] {
            match lchown(path, Some(SANDBOX_ROOT_UID), Some(SANDBOX_ROOT_UID)) {
                // Root of a user namespace that does not know this uid: no sandbox will start as it either.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                given => given?,
            }
        }
    }
    let namespaces = NAMESPACES
        .iter()
        .map(|name| fs::read_link(Path::new("/proc/self/ns").join(name)))
        .collect::<io::Result<Vec<_>>>()?;
    let targets = Targets {
        canary,
        outside,
        socket,
        near_socket,
        abstract_name: name,
        port: listeners.0.local_addr()?.port(),
        pid: std::process::id(),
        namespaces,
    };
    Ok(Ground { base: base.to_path_buf(), targets, listeners })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_private_and_gone() {
        let ground = Ground::make().expect("a ground");
        let base = ground.base.clone();
        let mode = fs::metadata(&base).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o066, 0, "nobody else lists or writes it");
        assert!(ground.workspace().join(PROGRAM).is_file());
        assert!(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, ground.targets.port)).is_ok());
        assert_eq!(ground.remove(), None);
        assert!(!base.exists());
    }

    #[test]
    fn long_or_missing_places_are_not_usable() {
        assert!(!is_usable(Path::new("/nowhere/at/all")));
        assert!(!is_usable(Path::new(&format!("/{}", "x".repeat(MAX_ABOVE)))));
    }
}
