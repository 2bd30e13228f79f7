//! Sandboxes that are born of a stem: the same walls as those that are made from nothing, and nothing in common with the
//! ones before but what no command can change.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use stockade_frames::Stream;
use stockade_line_tests::{Executor, World, descendants, inits, kill, request, skip, until};
use stockade_proto::{Outcome, Request};

use super::spares::says;
use super::{with_executor, within};

/// Enough for a stem to be there.
const SOME: usize = 4;
/// Of what somebody who mounts something on this host can spoil.
const TRIES: usize = 10;

/// A process of the executor's that lives in a user namespace of its own and is no sandbox.
pub(super) fn stem(executor: &Executor) -> Option<u32> {
    let is_apart = |pid: &u32| {
        let own = std::fs::metadata("/proc/self/ns/user").expect("there").ino();
        std::fs::metadata(format!("/proc/{pid}/ns/user")).is_ok_and(|namespace| namespace.ino() != own)
    };
    let (all, inits) = (descendants(executor.running.pid()), inits(executor.running.pid()));
    all.into_iter().filter(|pid| !inits.contains(pid)).find(is_apart)
}

/// None where sandboxes of this user have no stem: root's can't be put into root's groups by one on cgroup v2 alone.
async fn await_stem(executor: &Executor, world: &World) -> Option<u32> {
    let hybrid = std::path::Path::new("/sys/fs/cgroup/pids").exists();
    if stockade_line_tests::am_root() && !hybrid {
        skip("host root has none on cgroup v2 alone");
        return None;
    }
    for _ in 0..SOME {
        says(executor, request(world, "true")).await;
    }
    Some(until("a stem", || stem(executor)))
}

fn user(pid: u32) -> Option<u64> {
    Some(std::fs::metadata(format!("/proc/{pid}/ns/user")).ok()?.ino())
}

/// A sandbox that the stem has made, and none of `but`. None if the stem is gone: somebody mounted something on this host,
/// and stems from before that are not used.
fn made(executor: &Executor, stem: u32, but: &[u32]) -> Option<u32> {
    let of_stem = user(stem)?;
    until("a spare of the stem's", || {
        let found = inits(executor.running.pid());
        let found = found.into_iter().find(|pid| user(*pid) == Some(of_stem) && !but.contains(pid));
        (found.is_some() || user(stem).is_none()).then_some(found)
    })
}

fn namespace(pid: u32, kind: &str) -> u64 {
    let path = format!("/proc/{pid}/ns/{kind}");
    std::fs::metadata(&path).unwrap_or_else(|error| panic!("{path}: {error}")).ino()
}

/// What the kernel says of a command, numbers of mounts and devices left out.
const WALLS: &str = "grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups|Uid|Gid|NSpid)' /proc/self/status; \
    cut -d' ' -f4-6 /proc/self/mountinfo | sed 's,/[0-9]*//deleted,,' | sort; ls -A / /sys /dev /run; \
    cat /proc/net/dev /proc/net/unix | wc -l; readlink /proc/1/exe; set -- /proc/[0-9]*; echo $#; \
    touch /x /sys/x /usr/x; hostname; id -u; umask; cut -d' ' -f41 /proc/self/stat; ls /proc/self/fd | wc -l; echo $PPID $$";

#[test]
fn the_walls_are_the_same() {
    with_executor(async |world, executor| {
        let script = format!("{{ {WALLS}; }} 2>&1");
        let first = says(executor, request(world, &script)).await;
        assert!(first.contains("NoNewPrivs:\t1") && first.contains("CapEff:\t0000000000000000"), "{first}");
        if await_stem(executor, world).await.is_none() {
            return;
        }
        for _ in 0..SOME {
            assert_eq!(says(executor, request(world, &script)).await, first);
        }
    });
}

/// Made from nothing or born, whatever the classes of those who made it.
#[test]
fn a_command_is_as_eager_as_the_executor_was() {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("our own");
    // Behind the name, which may have blanks in it.
    let own = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(38)).expect("a class");
    with_executor(async |world, executor| {
        for _ in 0..2 * SOME {
            let class = says(executor, request(world, "cut -d' ' -f41 /proc/self/stat")).await;
            assert_eq!(class.trim_end(), own);
        }
    });
}

/// The same with the caller's own toolchains, if there are any, in the home.
#[test]
fn toolchains_are_where_they_would_be() {
    within(async {
        let world = World::with_own_toolchains();
        let executor = Executor::start(&world, Vec::new()).await;
        let look = "cut -d' ' -f4-6 /proc/self/mountinfo | sed 's,/[0-9]*//deleted,,' | sort; ls -lA ~ ~/.cargo; \
            touch ~/.cargo/x ~/x ~/.cargo/bin/x ~/.rustup/x; find ~ -maxdepth 2 | sort";
        let script = format!("{{ {look}; }} 2>&1 | sed 's/ [A-Z][a-z]* *[0-9]* [0-9:]* / /'");
        let first = says(&executor, request(&world, &script)).await;
        if await_stem(&executor, &world).await.is_none() {
            return;
        }
        for _ in 0..SOME {
            assert_eq!(says(&executor, request(&world, &script)).await, first);
        }
    });
}

/// A home that is shown as a whole lies over a toolchain in it, and what is masked there, in all of them alike.
#[test]
fn a_home_that_is_shown_is_the_same_in_all_of_them() {
    for file in [".npmrc", "nothing-secret"] {
        within(async {
            let mut world = World::new();
            let bin = world.base().join("home/.cargo/bin");
            std::fs::create_dir_all(&bin).expect("a directory");
            std::fs::write(bin.join(file), b"token").expect("a file");
            world.set("PATH", format!("{}:/usr/bin:/bin", bin.display()));
            let executor = Executor::start(&world, Vec::new()).await;
            executor.profile("home", "extends = \"default\"\nreadable = [\"~\"]").await;
            let look = format!("ls -A ~/.cargo ~/.cargo/bin; cat ~/.cargo/bin/{file} 2>&1; true");
            let asked = || Request { profile: "home".to_owned(), ..request(&world, &look) };
            let first = says(&executor, asked()).await;
            assert!(first.contains(file), "{first}");
            for _ in 0..2 * SOME {
                assert_eq!(says(&executor, asked()).await, first);
            }
        });
    }
}

#[test]
fn only_what_no_command_can_change_is_shared() {
    with_executor(async |world, executor| {
        for _ in 0..TRIES {
            let Some(stem) = await_stem(executor, world).await else { return };
            if shares_nothing_else(world, executor, stem).await.is_some() {
                return;
            }
        }
        panic!("no stem stood long enough");
    });
}

async fn shares_nothing_else(world: &World, executor: &Executor, stem: u32) -> Option<()> {
    let numbers = |pid| ["mnt", "pid", "ipc", "cgroup", "net"].map(|kind| namespace(pid, kind));
    let seen = inits(executor.running.pid());
    says(executor, request(world, "true")).await;
    let one = made(executor, stem, &seen)?;
    let first = numbers(one);
    assert_ne!(namespace(one, "user"), namespace(std::process::id(), "user"));
    // Held, so that their numbers are nobody else's.
    let held: Vec<_> = ["mnt", "pid_for_children", "ipc", "cgroup"]
        .map(|kind| std::fs::File::open(format!("/proc/{one}/ns/{kind}")).expect("it waits"))
        .into();
    let seen = inits(executor.running.pid());
    says(executor, request(world, "echo > /dev/tcp/127.0.0.1/9 2> /dev/null; true")).await;
    let two = made(executor, stem, &seen)?;
    for (kind, (before, after)) in ["mnt", "pid", "ipc"].iter().zip(first.iter().zip(numbers(two))) {
        assert_ne!(*before, after, "{kind}");
    }
    drop(held);
    Some(())
}

/// More at once than ever wait: none of them is made from nothing.
#[test]
fn those_that_were_not_waiting_are_born_of_it_too() {
    const MORE: usize = 12;
    with_executor(async |world, executor| {
        let mut seen = Vec::new();
        for round in 0..TRIES {
            let Some(stem) = await_stem(executor, world).await else { return };
            let script = format!("echo on; until [ -e go{round} ]; do sleep 0.05; done");
            let running: Vec<_> = (0..MORE).map(|_| executor.execute(request(world, &script))).collect();
            for one in &running {
                one.wait_for(Stream::Stdout, "on").await;
            }
            let (own, all) = (user(stem), inits(executor.running.pid()));
            assert!(all.len() >= MORE, "{all:?}");
            let others = all.iter().filter(|pid| own.is_none() || user(**pid) != own).count();
            std::fs::write(world.work().join(format!("go{round}")), b"").expect("a file");
            for one in running {
                let result = one.result().await;
                assert_eq!(result.outcome, Outcome::Exited { code: 0 }, "{result:?}");
            }
            if others == 0 {
                return;
            }
            // Somebody mounted something on this host, and stems from before that are not used.
            seen.push(others);
        }
        panic!("in no round all were born of the stem: {seen:?} were not");
    });
}

#[test]
fn nothing_of_one_is_in_the_next() {
    with_executor(async |world, executor| {
        if await_stem(executor, world).await.is_none() {
            return;
        }
        let leave = "echo x > /tmp/left; echo x > /dev/shm/left; echo x > ~/left; mkdir ~/.cargo 2> /dev/null; \
            (sleep 1000 &); echo x > here";
        says(executor, request(world, leave)).await;
        let look = "ls -A /tmp /dev/shm ~ | grep left; ps -e | grep -c sleep; cat here";
        assert_eq!(says(executor, request(world, look)).await, "0\nx\n");
    });
}

/// A sandbox that waits for plans which hide nothing has let go of what things are hidden with.
#[test]
fn what_comes_to_be_hidden_is_hidden() {
    with_executor(async |world, executor| {
        let look = "cat .env sub/.env 2> /dev/null; ls -A . sub | grep -c env";
        for _ in 0..TRIES {
            let Some(stem) = await_stem(executor, world).await else { return };
            let Some(lean) = made(executor, stem, &[]) else { continue };
            let has_let_go = || {
                let mounts = std::fs::read_to_string(format!("/proc/{lean}/mountinfo")).unwrap_or_default();
                let has = |place: &str| mounts.lines().any(|line| line.split(' ').nth(4) == Some(place));
                let gone = user(lean).is_none();
                (gone || (has("/proc") && !has("/sys"))).then_some(gone)
            };
            if until("the end of its stash", has_let_go) {
                continue;
            }
            std::fs::create_dir_all(world.work().join("sub")).expect("a directory");
            for file in [".env", "sub/.env"] {
                std::fs::write(world.work().join(file), b"walrus").expect("a file");
            }
            for _ in 0..SOME {
                assert_eq!(says(executor, request(world, look)).await, "2\n");
            }
            std::fs::remove_dir_all(world.work().join("sub")).expect("removed");
            std::fs::remove_file(world.work().join(".env")).expect("removed");
            assert_eq!(says(executor, request(world, "ls -A | grep env; true")).await, "");
            return;
        }
        panic!("no stem stood long enough");
    });
}

/// A stem shows the workspace that it was made for: another one in its place is another one.
#[test]
fn a_workspace_that_was_replaced_is_the_new_one() {
    with_executor(async |world, executor| {
        if await_stem(executor, world).await.is_none() {
            return;
        }
        let (work, old) = (world.work(), world.base().join("old"));
        std::fs::rename(&work, &old).expect("renamed");
        std::fs::create_dir(&work).expect("a directory");
        std::fs::write(work.join("new"), b"").expect("a file");
        assert_eq!(says(executor, request(world, "ls")).await, "new\n");
        assert_eq!(says(executor, request(world, "ls; touch made")).await, "new\n");
        assert!(work.join("made").exists() && !old.join("made").exists());
    });
}

/// A directory of the workspace that is shown by itself, with a link above it while the next sandbox is made.
#[test]
fn a_link_in_the_workspace_leads_no_mount_astray() {
    with_executor(async |world, executor| {
        let (above, real) = (world.work().join("above"), world.work().join("real"));
        for directory in ["above/sub", "elsewhere/sub"] {
            std::fs::create_dir_all(world.work().join(directory)).expect("a directory");
        }
        std::fs::write(above.join("sub/here"), b"").expect("a file");
        let profile = format!("extends = \"default\"\nwritable = [{:?}]", above.join("sub"));
        executor.profile("inner", &profile).await;
        let asked = |script: &str| Request {
            profile: "inner".to_owned(),
            ..request(world, &format!("{script}; ls elsewhere/sub above/sub"))
        };
        let right = "above/sub:\nhere\n\nelsewhere/sub:\n";
        for _ in 0..SOME {
            assert_eq!(says(executor, asked("true")).await, right);
        }
        for round in 0..SOME {
            let go = format!("go{round}");
            // The next one is asked for when this one runs, and not made before the link is there.
            let stem = stem(executor);
            stem.into_iter().for_each(|stem| kill(stem, rustix::process::Signal::STOP));
            let waiting =
                executor.execute(asked(&format!("echo on; until [ -e {go} ]; do sleep 0.01; done")));
            waiting.wait_for(Stream::Stdout, "on").await;
            std::fs::rename(&above, &real).expect("renamed");
            std::os::unix::fs::symlink("elsewhere", &above).expect("a link");
            stem.into_iter().for_each(|stem| kill(stem, rustix::process::Signal::CONT));
            // It is made meanwhile, or found to be impossible.
            tokio::time::sleep(Duration::from_millis(300)).await;
            std::fs::remove_file(&above).expect("removed");
            std::fs::rename(&real, &above).expect("renamed back");
            std::fs::write(world.work().join(go), b"").expect("a file");
            let result = waiting.result().await;
            assert_eq!(result.outcome, Outcome::Exited { code: 0 }, "{result:?}");
            assert_eq!(says(executor, asked("true")).await, right);
        }
    });
}

#[test]
fn one_that_dies_is_replaced() {
    with_executor(async |world, executor| {
        let Some(stem) = await_stem(executor, world).await else { return };
        kill(stem, rustix::process::Signal::KILL);
        for _ in 0..SOME {
            assert_eq!(says(executor, request(world, "echo alive")).await, "alive\n");
        }
    });
}

/// What stands between executions goes with the executor: the stem, its spare, and the placeholder in the workspace.
#[test]
fn nothing_outlives_the_executor() {
    with_executor(async |world, executor| {
        if await_stem(executor, world).await.is_none() {
            return;
        }
        let below = until("a spare beside the stem", || {
            let below = descendants(executor.running.pid());
            (below.len() > 1).then_some(below)
        });
        kill(executor.running.pid(), rustix::process::Signal::KILL);
        until("their end", || {
            below.iter().all(|pid| stockade_line_tests::command_line(*pid).is_empty()).then_some(())
        });
    });
}

#[test]
fn a_placeholder_goes_a_moment_after_the_last_execution() {
    with_executor(async |world, executor| {
        let placeholder = world.work().join(".stockade");
        for _ in 0..3 {
            says(executor, request(world, "true")).await;
        }
        until("its end", || (!placeholder.exists()).then_some(()));
        says(executor, request(world, "mkdir .stockade/x 2> /dev/null && echo made; true")).await;
        assert!(!placeholder.join("x").exists());
    });
}
