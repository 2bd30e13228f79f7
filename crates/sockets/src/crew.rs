//! The threads. One leads: it receives calls and performs them on the spot. One watches: when the leader has
//! been in the same call for a few milliseconds, the watch takes the lead, starts a new watch, and the old
//! leader ends with its call. So a call that blocks stalls no other, and one that does not costs no hand-over.
//! The watch also looks after the calls that block: it interrupts one whose caller died or has a signal. Both are
//! started for the first call.
//!
//! Their time is the execution's: while more of it was used than there is, the leader receives no call, and who is in a
//! long one waits in it (`Call::pay`).

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};
use stockade_sys::notify;

use crate::call::{Ground, errno, serve};
use crate::identity::Identity;
use crate::post::{Duty, Post, Reason};
use crate::status::{Pending, Status};

/// How long a call may hold the lead: once to be noticed, once more to be sure.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 4_000_000 };
/// How often blocked calls are looked after, and how seldom at most.
const ROUND: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));
/// Of the time that there is, a round may take one part in so many.
const ROUNDS_SHARE: u32 = 4;
/// Calls that may block at once. Each holds a thread and up to three descriptors.
const BLOCKED_MAX: usize = 128;
/// The calls need little; the rules may be someone else's code.
const STACK: usize = 512 * 1024;
/// A thread that has not begun by then will not.
const BEGIN: Duration = Duration::from_secs(5);

pub(crate) struct Crew {
    pub(crate) ground: Ground,
    /// Readable when the supervisor ends.
    pub(crate) stop: OwnedFd,
    pub(crate) stopping: AtomicBool,
    /// Readable when it ended and should not have.
    pub(crate) failed: OwnedFd,
    pub(crate) alarm: OwnedFd,
    armed: AtomicBool,
    /// When blocked calls are looked after again. Outlives each watch.
    next_round: Mutex<Instant>,
    posts: Mutex<Vec<Arc<Post>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// How many have a role.
    on_duty: Mutex<usize>,
    /// One has left it.
    left: Condvar,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("listener", &self.ground.listener).finish_non_exhaustive()
    }
}

/// What is to be found at a listener now: a call, or its end.
pub(crate) fn found_at(listener: BorrowedFd<'_>) -> Result<PollFlags, Errno> {
    let mut fds = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(fds[0].revents())
}

/// What a thread is told to be.
enum Role {
    Leader,
    /// Over the leader at the post.
    Watch,
}

/// What a thread must know to be one that may perform calls.
#[derive(Debug, Clone)]
struct Footing {
    /// Our own `fd` directory in `/proc`.
    descriptors: Arc<OwnedFd>,
    identity: Option<Identity>,
}

impl Footing {
    fn settle(&self) -> Result<(), Errno> {
        notify::accept_interrupts().map_err(|error| errno(&error))?;
        // In this order: our own descriptors are open to whoever we become, but the way there may not be.
        notify::stand_in_directory(self.descriptors.as_fd()).map_err(|error| errno(&error))?;
        self.identity.map_or(Ok(()), Identity::settle)
    }
}

struct Order {
    crew: Arc<Crew>,
    role: Role,
    post: Arc<Post>,
}

/// A thread that waits for its role; without one it ends.
struct Recruit {
    settled: Receiver<Result<(), Errno>>,
    orders: SyncSender<Order>,
    thread: JoinHandle<()>,
}

impl Recruit {
    fn new(footing: Footing) -> io::Result<Self> {
        let (tell, settled) = sync_channel(1);
        let (orders, ordered) = sync_channel::<Order>(1);
        let thread =
            std::thread::Builder::new().name("sockets".to_owned()).stack_size(STACK).spawn(move || {
                let footed = footing.settle();
                let fit = footed.is_ok();
                if tell.send(footed).is_ok()
                    && fit
                    && let Ok(Order { crew, role, post }) = ordered.recv()
                {
                    crew.run(&role, post);
                }
            })?;
        Ok(Self { settled, orders, thread })
    }

    /// Waits until it is who it must be.
    fn settled(self) -> io::Result<Self> {
        match self.settled.recv_timeout(BEGIN) {
            Ok(settled) => settled.map(|()| self).map_err(io::Error::from),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says so if a thread ends in a way that nobody foresaw.
struct Alive<'a> {
    crew: &'a Crew,
    ended_well: bool,
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        if !self.ended_well {
            self.crew.fail();
        }
        *locked(&self.crew.on_duty) -= 1;
        self.crew.left.notify_all();
    }
}

impl Crew {
    pub(crate) fn new(ground: Ground, [stop, failed, alarm]: [OwnedFd; 3]) -> Self {
        Self {
            ground,
            stop,
            stopping: AtomicBool::new(false),
            failed,
            alarm,
            armed: AtomicBool::new(false),
            next_round: Mutex::new(Instant::now()),
            posts: Mutex::new(Vec::new()),
            threads: Mutex::new(Vec::new()),
            on_duty: Mutex::new(0),
            left: Condvar::new(),
        }
    }

    /// Starts the first leader and its watch.
    pub(crate) fn begin(self: &Arc<Self>) -> io::Result<()> {
        let post = Arc::new(Post::default());
        let (leader, watch) = (self.recruit()?, self.recruit()?);
        let (leader, watch) = (leader.settled()?, watch.settled()?);
        self.order(watch, Role::Watch, Arc::clone(&post))?;
        self.order(leader, Role::Leader, post)
    }

    fn recruit(&self) -> io::Result<Recruit> {
        let Ground { descriptors, identity, .. } = &self.ground;
        Recruit::new(Footing { descriptors: Arc::clone(descriptors), identity: *identity })
    }

    fn order(self: &Arc<Self>, recruit: Recruit, role: Role, post: Arc<Post>) -> io::Result<()> {
        *locked(&self.on_duty) += 1;
        let ordered = recruit.orders.send(Order { crew: Arc::clone(self), role, post });
        if ordered.is_err() {
            *locked(&self.on_duty) -= 1;
        }
        let mut threads = locked(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(recruit.thread);
        ordered.map_err(|_| io::Error::other("a thread of the supervisor is gone"))
    }

    fn run(self: Arc<Self>, role: &Role, post: Arc<Post>) {
        let mut alive = Alive { crew: &self, ended_well: false };
        let ended = match role {
            Role::Leader => self.lead(&post),
            Role::Watch => self.watch(post),
        };
        self.ground.charge.settle();
        alive.ended_well = ended.is_ok();
    }

    pub(crate) fn fail(&self) {
        if rustix::io::write(&self.failed, &1_u64.to_ne_bytes()).is_err() {
            // The counter of an event descriptor is full: it is readable.
        }
    }

    pub(crate) fn end(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        if rustix::io::write(&self.stop, &1_u64.to_ne_bytes()).is_err() {
            // As above.
        }
    }

    /// Receives and performs until the tree is gone, the supervisor ends, or another thread took over.
    fn lead(&self, post: &Arc<Post>) -> io::Result<()> {
        post.take();
        locked(&self.posts).push(Arc::clone(post));
        let ended = self.receive(post);
        locked(&self.posts).retain(|one| !Arc::ptr_eq(one, post));
        ended
    }

    fn receive(&self, post: &Post) -> io::Result<()> {
        let is_stopping = || self.stopping.load(Ordering::SeqCst);
        while !is_stopping() {
            self.ground.charge.pass(is_stopping);
            // Blocks here rather than in a poll before it: that is one call less for each call. Kernels before
            // 6.11 don't come back when the tree is gone; the end of the supervisor interrupts it.
            let note = match notify::receive(self.ground.listener.as_fd()).map_err(|error| errno(&error)) {
                Ok(note) => note,
                Err(Errno::INTR) => continue,
                Err(Errno::NOENT) if self.is_empty()? => {
                    // No thread is left behind the filter: the watch need not stay either.
                    self.end();
                    break;
                }
                // The caller was killed before we heard of it.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
            };
            post.begin(&note);
            self.arm_once();
            serve(&self.ground, &note, post)?;
            if post.end() == Duty::Relieved {
                break;
            }
        }
        Ok(())
    }

    /// Whether no thread is left that could call.
    fn is_empty(&self) -> Result<bool, Errno> {
        let found = found_at(self.ground.listener.as_fd())?;
        Ok(found.contains(PollFlags::HUP) && !found.contains(PollFlags::IN))
    }

    /// Sets the alarm, unless it is set: a busy leader pays for it once in a while.
    fn arm_once(&self) {
        if !self.armed.swap(true, Ordering::SeqCst) {
            self.arm();
        }
    }

    fn arm(&self) {
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = Itimerspec { it_interval: once, it_value: PATIENCE };
        if timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &timer).is_err() {
            // Can't be with a valid descriptor and time. Without an alarm a blocked call would stall the rest.
            self.fail();
        }
    }

    /// Watches the leader at `leader`, and every call that was left blocked, until it leads itself.
    fn watch(self: &Arc<Self>, leader: Arc<Post>) -> io::Result<()> {
        let mut seen = None;
        loop {
            self.ground.charge.settle();
            // Not by their number: a new leader may not have taken its post yet.
            let blocked = locked(&self.posts).iter().any(|post| !Arc::ptr_eq(post, &leader));
            let mut fds = [PollFd::new(&self.alarm, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            let left = locked(&self.next_round).saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or(PATIENCE);
            match poll(&mut fds, blocked.then_some(&left)) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let [alarm, stop] = [fds[0].revents(), fds[1].revents()];
            if !stop.is_empty() || self.stopping.load(Ordering::Relaxed) {
                return Ok(());
            }
            if blocked && Instant::now() >= *locked(&self.next_round) {
                self.look_after(&leader);
                let (often, seldom) = ROUND;
                let cost = self.ground.charge.earning(self.ground.charge.settle());
                *locked(&self.next_round) = Instant::now() + (cost * ROUNDS_SHARE).clamp(often, seldom);
            }
            if alarm.is_empty() {
                continue;
            }
            self.hush();
            match leader.busy() {
                Some(count) if seen == Some(count) => match self.take_over(&leader, count) {
                    Some(post) => {
                        // It rang for the last time for the old leader; the new one sets its own.
                        self.armed.store(false, Ordering::SeqCst);
                        return self.lead(&post);
                    }
                    None => self.arm(),
                },
                Some(count) => {
                    seen = Some(count);
                    self.arm();
                }
                None => {
                    self.armed.store(false, Ordering::SeqCst);
                    // It may have begun a call between the two, and seen the alarm set.
                    if leader.busy().is_some() {
                        self.arm_once();
                    }
                }
            }
        }
    }

    fn hush(&self) {
        let mut count = [0; 8];
        if rustix::io::read(&self.alarm, &mut count).is_err() {
            // Read already: the poll below just waits again.
        }
    }

    /// Leaves the leader to its call and gives a post to lead at, with a new watch over it.
    fn take_over(self: &Arc<Self>, leader: &Arc<Post>, count: u64) -> Option<Arc<Post>> {
        let crowded = locked(&self.posts).len() > BLOCKED_MAX;
        let watch = if crowded { None } else { self.recruit().and_then(Recruit::settled).ok() };
        let Some(watch) = watch else {
            if leader.busy() == Some(count) {
                leader.give_up(Reason::Crowded);
                self.interrupt(leader);
            }
            return None;
        };
        if !leader.relieve(count) {
            return None;
        }
        let post = Arc::new(Post::default());
        self.order(watch, Role::Watch, Arc::clone(&post)).ok()?;
        Some(post)
    }

    /// Interrupts what is blocked for nobody, or for someone who has a signal to take.
    fn look_after(&self, leader: &Arc<Post>) {
        let posts: Vec<Arc<Post>> = locked(&self.posts).clone();
        for post in posts.iter().filter(|post| !Arc::ptr_eq(post, leader)) {
            let (id, target) = post.call();
            if post.reason().is_none() {
                let waits = notify::still_waits(self.ground.listener.as_fd(), id);
                let pending = Status::read(self.ground.proc.as_fd(), target).map(|status| status.pending());
                match (waits, pending) {
                    (false, _) => post.give_up(Reason::Gone),
                    (true, Ok(Pending::Certainly)) => post.give_up(Reason::OwnSignal),
                    (true, Ok(Pending::Perhaps)) => post.give_up(Reason::Signal),
                    (true, Ok(Pending::Nothing) | Err(_)) => {}
                }
            }
            if post.reason().is_some() {
                self.interrupt(post);
            }
        }
    }

    /// Repeated by the caller until it is heard. Under the lock: a post in the list has its thread.
    fn interrupt(&self, post: &Arc<Post>) {
        let posts = locked(&self.posts);
        if posts.iter().any(|one| Arc::ptr_eq(one, post)) && notify::interrupt(post.tid()).is_err() {
            // Ours and alive, so it can't fail; and the next round tries again.
        }
    }

    /// Interrupts every call and waits a little; threads that ended are joined. True when none is left.
    pub(crate) fn wind_down(&self, patience: Duration) -> bool {
        for post in locked(&self.posts).iter() {
            post.give_up(Reason::Stopped);
            if notify::interrupt(post.tid()).is_err() {
                // As above.
            }
        }
        let on_duty = locked(&self.on_duty);
        let waited = self.left.wait_timeout_while(on_duty, patience, |on_duty| *on_duty > 0);
        if *waited.unwrap_or_else(PoisonError::into_inner).0 > 0 {
            return false;
        }
        for thread in locked(&self.threads).drain(..) {
            // It has no duty any more: this takes as long as it takes a thread to end.
            if thread.join().is_err() {
                self.fail();
            }
        }
        true
    }
}
