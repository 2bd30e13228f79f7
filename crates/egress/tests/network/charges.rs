//! Whose time it is: a sandbox that makes the relay work pays for it.

use std::thread;
use std::time::{Duration, Instant};

use hickory_proto::rr::RecordType;

use crate::world::{Allow, World, query};

const FLOOD: Duration = Duration::from_millis(1500);
/// Of `/proc`.
const TICK: Duration = Duration::from_millis(10);

/// What the relay's thread has used, by the kernel's word.
fn used() -> Duration {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let read = |name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_default();
        if read("comm").trim() == "egress" {
            let stat = read("stat");
            let words: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
            ticks += words[11].parse::<u32>().unwrap() + words[12].parse::<u32>().unwrap();
        }
    }
    TICK * ticks
}

/// Questions without end; what the relay used for them, what it was charged, and how long it took.
fn flood(share: Option<u64>) -> Option<(Duration, Duration, Duration)> {
    let world = World::sharing(Allow::default(), Vec::new(), share)?;
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let socket = world.sandbox.udp("0.0.0.0:0");
            socket.connect("192.0.2.53:53").unwrap();
            let question = query("walrus.example", RecordType::A);
            while begun.elapsed() < FLOOD {
                // A full queue takes no more, and that is fine.
                match socket.send(&question) {
                    Ok(_) | Err(_) => {}
                }
            }
        });
    });
    let told = (used(), world.charge.spent(), begun.elapsed());
    world.stop();
    Some(told)
}

#[test]
fn a_flood_of_questions_has_one_share() {
    let Some((used, charged, wall)) = flood(Some(50)) else { return };
    let share = wall.mul_f64(0.05) + stockade_charge::BURST;
    assert!(used < share + Duration::from_millis(100), "{used:?} in {wall:?}");
    assert!(charged + Duration::from_millis(30) > used, "{charged:?} of {used:?}");
    let Some((free, charged, _)) = flood(None) else { return };
    assert!(free > used * 2, "{free:?} where nothing bounds it, {used:?} where something does");
    assert!(charged + Duration::from_millis(30) > free, "{charged:?} of {free:?}");
}
