//! What one guest runs: the binaries under test, the test executables and the scripts that start them,
//! as a second, read-only disk. Made anew each time, in seconds; the base stays as it is.

use super::{User, base};
use crate::workspace::{Built, Workspace};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The packages whose binaries the tests look for in `STOCKADE_BIN_DIR`.
const BINARIES: [&str; 5] =
    ["stockade-cli", "stockade-daemon", "stockade-executor", "stockade-init", "stockade-attack"];
/// Room for the file system's own tables beside the files.
const SPARE_BYTES: u64 = 32 << 20;
const SCRIPTS: [(&str, &str); 3] = [
    ("guest-run", include_str!("guest/guest-run.sh")),
    ("guest-suite", include_str!("guest/guest-suite.sh")),
    ("guest-facts", include_str!("guest/guest-facts.sh")),
];

/// One package's tests: reported in one line, however many executables it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Suite {
    pub(crate) name: String,
    pub(crate) executables: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Payload {
    tree: PathBuf,
    pub(crate) image: PathBuf,
    pub(crate) suites: Vec<Suite>,
    /// Begins the lines of the report that are ours; no test can print it, for it is new each time.
    pub(crate) mark: String,
}

impl Payload {
    /// Debug builds are big, and cargo has the originals.
    pub(crate) fn discard(self) -> Result<()> {
        fs::remove_dir_all(&self.tree).with_context(|| format!("can't remove {}", self.tree.display()))?;
        fs::remove_file(&self.image).with_context(|| format!("can't remove {}", self.image.display()))
    }
}

/// What the payload is to hold.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) packages: &'a [String],
    pub(crate) users: &'a [User],
    pub(crate) filter: &'a [String],
    pub(crate) suite_deadline: Duration,
}

pub(crate) fn make(workspace: &Workspace, order: &Order<'_>, directory: &Path) -> Result<Payload> {
    // All of it, as the suite of this machine is built: of single packages cargo would build another choice of
    // features, and so everything once more.
    let built = workspace.build(&["build", "--workspace", "--all-targets"], &[])?;
    let (tests, binaries): (Vec<_>, Vec<_>) = built.into_iter().partition(|built| built.is_test);
    let tests: Vec<_> = tests.into_iter().filter(|built| order.packages.contains(&built.package)).collect();
    let binaries = binaries.iter().filter(|built| BINARIES.contains(&built.package.as_str()));
    if let Some(package) =
        order.packages.iter().find(|name| tests.iter().all(|built| built.package != **name))
    {
        bail!("{package} has no test executable");
    }

    let tree = directory.join("payload");
    if tree.exists() {
        fs::remove_dir_all(&tree).with_context(|| format!("can't remove {}", tree.display()))?;
    }
    let mut bytes = SPARE_BYTES;
    for built in binaries {
        bytes += place(&built.path, &tree.join("bin").join(&built.target))?;
    }
    for built in &tests {
        bytes += place(&built.path, &tree.join("tests").join(file_name(built)))?;
    }
    let suites = suites(&tests);
    let mark = mark();
    write(&tree.join("manifest"), &manifest(order, &suites, &mark))?;
    let filter: String = order.filter.iter().map(|word| format!("{word}\n")).collect();
    write(&tree.join("filter"), &filter)?;
    for (name, text) in SCRIPTS {
        let path = tree.join(name);
        write(&path, text)?;
        permit(&path)?;
    }
    let image = directory.join("payload.img");
    if image.exists() {
        fs::remove_file(&image).with_context(|| format!("can't remove {}", image.display()))?;
    }
    // A tenth more: block and directory overhead grows with the content.
    base::image(&tree, &image, &format!("{}k", (bytes + bytes / 10) / 1024))?;
    Ok(Payload { tree, image, suites, mark })
}

/// Read by bash in the guest. Every word is ours or a package's name, so that plain quotes are enough.
fn manifest(order: &Order<'_>, suites: &[Suite], mark: &str) -> String {
    let users: Vec<_> = order.users.iter().map(|user| user.name()).collect();
    let entries = suites
        .iter()
        .flat_map(|suite| suite.executables.iter().map(move |file| format!("'{} {file}'", suite.name)));
    format!(
        "MARK='{mark}'\nUSERS=({})\nSUITES=({})\nSUITE_SECONDS={}\n",
        users.join(" "),
        entries.collect::<Vec<_>>().join(" "),
        order.suite_deadline.as_secs()
    )
}

fn suites(tests: &[Built]) -> Vec<Suite> {
    let mut suites: Vec<Suite> = Vec::new();
    for built in tests {
        let name = built.package.trim_start_matches("stockade-").trim_end_matches("-tests");
        let file = file_name(built);
        match suites.iter_mut().find(|suite| suite.name == name) {
            Some(suite) => suite.executables.push(file),
            None => suites.push(Suite { name: name.to_owned(), executables: vec![file] }),
        }
    }
    suites
}

/// Cargo's own name, with its hash: two packages may both have a target `main`.
fn file_name(built: &Built) -> String {
    built.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn mark() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("@stockade-{:x}-{:x}", now.as_nanos(), std::process::id())
}

fn place(from: &Path, to: &Path) -> Result<u64> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).with_context(|| format!("can't make {}", parent.display()))?;
    }
    let copied =
        fs::copy(from, to).with_context(|| format!("can't copy {} to {}", from.display(), to.display()))?;
    permit(to)?;
    Ok(copied)
}

/// Another user than the owner runs it in the guest, whatever umask was here.
fn permit(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("can't set the mode of {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(package: &str, path: &str) -> Built {
        Built { package: package.into(), target: "x".into(), is_test: true, path: path.into() }
    }

    #[test]
    fn executables_of_a_package_are_one_suite() {
        let found = suites(&[
            built("stockade-escape-tests", "/t/a-1"),
            built("stockade-executor", "/t/b-1"),
            built("stockade-escape-tests", "/t/c-1"),
        ]);
        let expected = [
            Suite { name: "escape".into(), executables: vec!["a-1".into(), "c-1".into()] },
            Suite { name: "executor".into(), executables: vec!["b-1".into()] },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn bash_reads_the_manifest() {
        let suites = [Suite { name: "escape".into(), executables: vec!["a-1".into(), "c-1".into()] }];
        let order = Order {
            packages: &[],
            users: &[User::Root, User::Session],
            filter: &[],
            suite_deadline: Duration::from_secs(7),
        };
        let script = manifest(&order, &suites, "@m")
            + "echo ${USERS[1]} ${#SUITES[@]} \"${SUITES[1]#* }\" $SUITE_SECONDS $MARK";
        let said = crate::process::output(crate::process::command("bash").args(["-c", &script])).unwrap();
        assert_eq!(said.trim(), "session 2 c-1 7 @m");
    }
}
