//! What an executor puts into workspaces and sees of them, while commands have a hand in them: a name is put into the
//! directory that was checked and into no other, nothing that lies there is changed, and nobody is held up.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use stockade_line_tests::{am_root, request, skip, until};
use stockade_proto::Outcome;

use super::spares::says;
use super::with_executor;

/// Requests that race with somebody who swaps names.
const ROUNDS: usize = 60;

fn as_it_was(path: &Path) -> (u32, u32, u64) {
    let metadata = std::fs::symlink_metadata(path).expect("it is there");
    (metadata.permissions().mode(), metadata.uid(), metadata.size())
}

/// Where names of ours belong, a link to somebody else's file or directory comes and goes.
#[test]
fn nothing_outside_is_made_or_changed_by_a_swapped_name() {
    with_executor(async |world, executor| {
        let (git, outside) = (world.work().join(".git"), world.base().join("outside"));
        let precious = world.base().join("precious");
        std::fs::create_dir(&outside).expect("a directory");
        std::fs::write(&precious, "secret").expect("a file");
        std::fs::set_permissions(&precious, std::fs::Permissions::from_mode(0o600)).expect("ours");
        says(executor, request(world, "git init -q . && rm -rf .git/hooks")).await;
        let link = world.base().join("link");
        symlink(&outside, &link).expect("a link");
        symlink(&precious, git.join("led")).expect("a link");
        let (before, over) = (as_it_was(&precious), Arc::new(AtomicBool::new(false)));
        let swapping = {
            let (over, git) = (Arc::clone(&over), git.clone());
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // The directory itself, and one name in it. Either may be in use just then.
                    for _ in 0..2 {
                        let _in_use = renameat_with(CWD, &git, CWD, &link, RenameFlags::EXCHANGE);
                    }
                    drop(std::fs::rename(git.join("led"), git.join("commondir")));
                    drop(std::fs::rename(git.join("commondir"), git.join("led")));
                }
            })
        };
        for _ in 0..ROUNDS {
            // Refused, failed or run: all of it is right.
            drop(executor.execute(request(world, "true")).answer().await);
        }
        over.store(true, Ordering::Relaxed);
        swapping.join().expect("it only renames");
        assert_eq!(as_it_was(&precious), before);
        let found: Vec<_> = std::fs::read_dir(&outside).expect("it is there").collect();
        assert!(found.is_empty(), "{found:?}");
    });
}

/// A name of ours that is no file: nobody waits for a writer that never comes.
#[test]
fn a_pipe_in_place_of_a_placeholder_holds_nobody_up() {
    with_executor(async |world, executor| {
        let plant = "git init -q . && git config extensions.worktreeConfig true && mkfifo .git/config.worktree && \
            chmod 1444 .git/config.worktree";
        let planted = executor.execute(request(world, plant)).result().await;
        if planted.outcome != (Outcome::Exited { code: 0 }) {
            skip(&format!("no pipe could be planted: {planted:?}"));
            return;
        }
        for _ in 0..3 {
            assert_eq!(says(executor, request(world, "echo alive")).await, "alive\n");
        }
        until("its end", || (!world.work().join(".stockade").exists()).then_some(()));
    });
}

/// Whether it is the first sandbox or one that is born of a stem.
#[test]
fn what_a_profile_shows_is_the_same_every_time() {
    with_executor(async |world, executor| {
        let shown = world.base().join("home");
        std::fs::write(shown.join("of-the-host"), "").expect("a file");
        let text = format!("extends = \"default\"\nwritable = [\"/tmp\", {shown:?}]\n");
        executor.profile("wide", &text).await;
        let mark = tempfile::NamedTempFile::new_in("/tmp").expect("a file");
        let look = format!("ls {} ~/of-the-host", mark.path().display());
        let mut seen = Vec::new();
        for _ in 0..6 {
            let asked = stockade_proto::Request { profile: "wide".to_owned(), ..request(world, &look) };
            seen.push(says(executor, asked).await);
        }
        assert!(seen[0].contains("of-the-host"), "{seen:?}");
        assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
        executor.profile("narrow", "extends = \"default\"\nreadable = [\"/tmp\"]\n").await;
        for _ in 0..4 {
            let asked = stockade_proto::Request {
                profile: "narrow".to_owned(),
                ..request(
                    world,
                    &format!("ls {}; touch /tmp/x 2>&1 | grep -c Read-only", mark.path().display()),
                )
            };
            assert_eq!(says(executor, asked).await, format!("{}\n1\n", mark.path().display()));
        }
    });
}

/// Mounts that came or went since a sandbox was built are seen by the next request.
#[test]
fn a_mount_in_the_workspace_is_seen_at_once() {
    if !am_root() {
        skip("only root mounts");
        return;
    }
    with_executor(async |world, executor| {
        let place = world.work().join("sub");
        std::fs::create_dir(&place).expect("a directory");
        std::fs::write(place.join("below"), "").expect("a file");
        for _ in 0..4 {
            assert_eq!(says(executor, request(world, "ls sub")).await, "below\n");
        }
        // Of the same file system: not every kernel can show root's sandboxes a tmpfs.
        let other = world.base().join("other");
        std::fs::create_dir(&other).expect("a directory");
        rustix::mount::mount_bind(&other, &place).expect("mounted");
        let flags = rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY;
        rustix::mount::mount_remount(&place, flags, c"").expect("mounted");
        let covered = executor.execute(request(world, "ls sub; touch sub/x 2>&1 | grep -c Read-only"));
        let output = covered.output.clone();
        covered.result().await;
        rustix::mount::unmount(&place, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
        let covered =
            stockade_line_tests::text(&stockade_line_tests::pieces(&output), stockade_frames::Stream::Stdout);
        assert_eq!(covered, "1\n");
        assert_eq!(says(executor, request(world, "ls sub")).await, "below\n");
    });
}
