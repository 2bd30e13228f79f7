//! Whose time it is: what the supervisor uses is charged, waited for where there is a share, and not in the way of an end.

use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::raw::{self, Head, bind, datagram, stream, unix};
use crate::stage::{Cast, Inside, Outside, Scenes, Stage, by_name, end, is_readable};

pub(crate) const SCENES: Scenes = &[("grinds", grinds), ("stuck", stuck), ("waits", waits), ("binds", binds)];

const GRIND: Duration = Duration::from_millis(1500);
const MESSAGES: usize = 1024;
/// In thousandths of a core.
const SHARE: u64 = 100;

/// A socket at the end of as many links as are followed, each as long as can be.
pub(crate) fn far_away(name: &str) -> UnixDatagram {
    const LINKS: usize = 30;
    std::fs::create_dir("d").expect("made");
    for at in 0..LINKS {
        let next = if at + 1 == LINKS { name.to_owned() } else { format!("link{}", at + 1) };
        let target = format!("{}{next}", "d/../".repeat(800));
        std::os::unix::fs::symlink(target, format!("link{at}")).expect("made");
    }
    UnixDatagram::bind(name).expect("bound")
}

/// Threads that send a thousand messages a call over a long path, and one that reads them.
fn grinds(_: &mut Inside) {
    let end = Instant::now() + GRIND;
    let (receiver, done) = (far_away("sink"), Arc::new(AtomicBool::new(false)));
    receiver.set_read_timeout(Some(Duration::from_millis(10))).expect("set");
    let finished = Arc::clone(&done);
    let reader = std::thread::spawn(move || {
        while !finished.load(Ordering::SeqCst) {
            // Nothing came for a while.
            receiver.recv(&mut [0; 9]).unwrap_or(0);
        }
    });
    let short = Arc::new(AtomicUsize::new(0));
    let grinders: Vec<_> = (0..8)
        .map(|_| {
            let short = Arc::clone(&short);
            std::thread::spawn(move || {
                let name = unix("link0");
                let heads: Vec<Head> = (0..MESSAGES).map(|_| Head::new(&name, b"x", b"")).collect();
                let mut words: Vec<usize> = heads.iter().flat_map(Head::words).collect();
                let socket = usize::try_from(datagram()).expect("open");
                while Instant::now() < end {
                    let pointer = words.as_mut_ptr().addr();
                    let sent = raw::call(libc::SYS_sendmmsg, &[socket, pointer, MESSAGES, 0]);
                    if sent.expect("sent") < MESSAGES {
                        short.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    for grinder in grinders {
        grinder.join().expect("ended");
    }
    done.store(true, Ordering::SeqCst);
    reader.join().expect("ended");
    assert!(short.load(Ordering::SeqCst) > 0, "nobody was told how far it got");
}

fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("below a second"))
}

fn with_share(scene: &str, place: &std::path::Path, share: u64) -> Stage {
    let outside = Outside { share: Some(share), ..Outside::default() };
    Stage::with(Cast::plain(scene, place), by_name, outside)
}

#[test]
fn many_who_grind_have_one_share() {
    let place = tempfile::tempdir().expect("made");
    let stage = with_share("grinds", place.path(), SHARE);
    let (charge, before, begun) = (Arc::clone(&stage.charge), own_time(), Instant::now());
    stage.finish();
    let (used, wall) = (own_time() - before, begun.elapsed());
    let share = wall.mul_f64(0.1) + stockade_charge::BURST;
    // Beside the supervisor this process does next to nothing, so the kernel's count is its own.
    let slack = Duration::from_millis(250);
    assert!(used < share + slack, "{used:?} in {wall:?}");
    let charged = charge.spent();
    // Two clocks, and what is read between them.
    assert!(charged < used + slack && used < charged + slack, "{charged:?} of {used:?}");
    assert!(charged > Duration::from_millis(100), "{charged:?}: it was made to work");
}

/// A message that is longer than there is room for; nobody reads before the test has told.
fn stuck(inside: &mut Inside) {
    let (from, mut to) = UnixStream::pair().expect("a pair");
    let sender = std::thread::spawn(move || {
        let bytes = vec![7; 4 << 20];
        Head::new(b"", &bytes, b"").send(from.as_raw_fd(), 0)
    });
    to.read_exact(&mut [0]).expect("it has begun");
    inside.tell();
    inside.wait();
    let mut taken = 0;
    let mut bytes = vec![0; 1 << 16];
    to.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
    while let Ok(count @ 1..) = to.read(&mut bytes) {
        taken += count;
    }
    assert!(taken < 4 << 20, "all of it came");
    inside.tell();
    sender.join().expect("ended").expect("never");
}

#[test]
fn a_long_message_waits_in_the_middle_and_dies_with_its_caller() {
    use std::io::Write as _;
    let place = tempfile::tempdir().expect("made");
    let mut stage = with_share("stuck", place.path(), 1);
    stage.hear();
    stage.charge.add(Duration::from_secs(3600));
    stage.link.write_all(b"!").expect("the scene listens");
    stage.hear();
    let_go(stage);
}

/// The supervisor must end well and soon, whatever is owed.
pub(crate) fn let_go(mut stage: Stage) {
    stage.child.kill().expect("killed");
    assert!(!end(&mut stage.child));
    let supervisor = stage.supervisor.take().expect("running");
    assert!(!supervisor.failed().is_some_and(is_readable));
    let begun = Instant::now();
    supervisor.stop().expect("stopped");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

fn waits(inside: &mut Inside) {
    inside.tell();
    inside.wait();
    // One may be waited for already, and is served.
    let calls = [(); 2].map(|()| std::thread::spawn(|| raw::connect(stream(), &unix("nowhere"))));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!calls.iter().all(std::thread::JoinHandle::is_finished), "not before it is paid for");
    inside.tell();
    for call in calls {
        call.join().expect("ended").ok();
    }
    unreachable!("never");
}

#[test]
fn a_call_that_waits_for_its_turn_dies_with_its_caller() {
    use std::io::Write as _;
    let place = tempfile::tempdir().expect("made");
    let mut stage = with_share("waits", place.path(), 1);
    stage.hear();
    stage.charge.add(Duration::from_secs(3600));
    stage.link.write_all(b"!").expect("the scene listens");
    stage.hear();
    let_go(stage);
}

fn binds(_: &mut Inside) {
    for number in 0..50 {
        assert_eq!(bind(stream(), &unix(format!("s{number}"))), Ok(0));
    }
}

/// A bind is made by a copy of the supervisor, which is another process to the kernel.
#[test]
fn copies_are_charged_too() {
    let place = tempfile::tempdir().expect("made");
    let stage = Stage::new("binds", place.path(), by_name);
    let (charge, before) = (Arc::clone(&stage.charge), own_time());
    stage.finish();
    let (used, charged) = (own_time() - before, charge.spent());
    assert!(charged > used, "{charged:?}, of which {used:?} in this process");
}
