//! How an ordinary user gets a cgroup of their own: start again inside a transient scope of the user's
//! systemd, delegated. Only says the command line; the CLI executes it, once, and guards against loops.

use std::ffi::OsString;
use std::path::Path;

use super::seat::SLICE;

/// Never through PATH.
const SYSTEMD_RUN: &str = "/usr/bin/systemd-run";

/// The command line that starts this program again with `args` in a delegated scope. `None` where no
/// user manager can be reached.
pub fn scope_reexec_argv(args: &[OsString]) -> Option<Vec<OsString>> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")?;
    let program = std::env::current_exe().ok()?;
    scope_argv(Path::new(SYSTEMD_RUN), Path::new(&runtime), &program, args)
}

fn scope_argv(
    systemd_run: &Path,
    runtime: &Path,
    program: &Path,
    args: &[OsString],
) -> Option<Vec<OsString>> {
    // Either socket will do for systemd-run; without one it would only fail later and say less.
    let reachable =
        runtime.is_absolute() && (runtime.join("systemd/private").exists() || runtime.join("bus").exists());
    // A program that was replaced while running has no path to start again.
    if !reachable || !systemd_run.exists() || !program.exists() {
        return None;
    }
    let mut argv = vec![systemd_run.into()];
    let slice = format!("--slice={SLICE}");
    argv.extend(
        // Without a description of our own systemd-run makes one of the arguments, which may not be UTF-8.
        [
            "--user",
            "--scope",
            "--quiet",
            "--collect",
            "--description=stockade",
            &slice,
            "-p",
            "Delegate=yes",
            "--",
        ]
        .map(OsString::from),
    );
    argv.push(program.into());
    argv.extend(args.iter().cloned());
    Some(argv)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_reachable_manager_gives_a_delegated_scope() {
        let tree = tempfile::tempdir().unwrap();
        let run = tree.path().join("systemd-run");
        let program = tree.path().join("stockade");
        for file in [&run, &program] {
            fs::write(file, "").unwrap();
        }
        let args = [OsString::from("run"), OsString::from("--"), OsString::from("true")];
        assert_eq!(scope_argv(&run, tree.path(), &program, &args), None, "no socket");
        fs::create_dir(tree.path().join("systemd")).unwrap();
        fs::write(tree.path().join("systemd/private"), "").unwrap();
        let argv = scope_argv(&run, tree.path(), &program, &args).unwrap();
        let dashes = argv.iter().position(|arg| arg == "--").unwrap();
        assert!(argv[..dashes].iter().any(|arg| arg == "Delegate=yes"));
        assert!(argv[..dashes].iter().any(|arg| arg == "--scope"));
        assert_eq!(argv[dashes + 1], program);
        assert_eq!(&argv[dashes + 2..], &args);
        fs::remove_file(&run).unwrap();
        assert_eq!(scope_argv(&run, tree.path(), &program, &args), None, "no systemd-run");
    }
}
