//! A helper that is started before this program's own C library is. glibc asks the processor about itself a hundred
//! times at each start, and in a virtual machine every answer is the hypervisor's: more than half a millisecond in which
//! nothing else would happen. What the helper does meanwhile, on another processor, nobody waits for.
//!
//! [`start`] runs on the first stack of the process, before relocations, thread-local storage and the choice of memory
//! functions. It makes system calls and nothing else: it reads no pointer that the linker would have to adjust, and calls
//! nothing of libc, not even a copy that the compiler would turn into a call (hence what is volatile here). Where it can't
//! do its work it leaves nothing behind, and whoever misses the helper in [`take`] does without.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::spawn::{ABOVE_TARGETS, Shared, clone_arguments, fd_argument, leave, prepare_and_exec, raw};

/// A helper in a user namespace of its own. The other end of its socket is its descriptors 0 to 3. Dropped, it is ended, and
/// nothing is left of it.
#[derive(Debug)]
pub struct Ahead {
    pid: u32,
    is_first: bool,
    /// None when it is somebody else's.
    ends: Option<Ends>,
}

/// What a helper is held by.
#[derive(Debug)]
pub struct Ends {
    pub pidfd: OwnedFd,
    pub control: OwnedFd,
}

impl Ahead {
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it is the first of a PID namespace. Not where all cgroups are of the second version: a process can't be moved
    /// between those without holding up every fork of the machine, so that the first of a namespace has to be born in its
    /// own, which nobody knows yet.
    pub const fn is_first(&self) -> bool {
        self.is_first
    }

    /// It is the caller's from now on.
    pub fn hand_over(mut self) -> Option<Ends> {
        self.ends.take()
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let Some(Ends { pidfd, control }) = self.ends.take() else { return };
        drop(control);
        match rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL) {
            // Gone by itself is as good.
            Ok(()) | Err(_) => {}
        }
        let id = rustix::process::WaitId::PidFd(pidfd.as_fd());
        match rustix::process::waitid(id, rustix::process::WaitIdOptions::EXITED) {
            Ok(_) | Err(_) => {}
        }
    }
}

static TRIED: AtomicBool = AtomicBool::new(false);
/// 0: there is none.
static PID: AtomicI32 = AtomicI32::new(0);
static PIDFD: AtomicI32 = AtomicI32::new(-1);
static CONTROL: AtomicI32 = AtomicI32::new(-1);
static IS_FIRST: AtomicBool = AtomicBool::new(false);

/// The helper that was started, once.
pub fn take() -> Option<Ahead> {
    // Whoever finds the number has the rest.
    let pid = number(PID.swap(0, Ordering::Relaxed))?;
    let own = |number: &AtomicI32| {
        // SAFETY: `start` made both, and the swap above gives them out once.
        unsafe { OwnedFd::from_raw_fd(number.swap(-1, Ordering::Relaxed)) }
    };
    let is_first = IS_FIRST.load(Ordering::Relaxed);
    Some(Ahead { pid, is_first, ends: Some(Ends { pidfd: own(&PIDFD), control: own(&CONTROL) }) })
}

/// Of the helper that is yet to be taken.
pub fn pid() -> Option<u32> {
    number(PID.load(Ordering::Relaxed))
}

fn number(pid: i32) -> Option<u32> {
    u32::try_from(pid).ok().filter(|pid| *pid != 0)
}

/// Ends the helper that nobody took: before we do, and before another program is exec'd in our place, which would have a
/// child that it does not know of.
pub fn end() {
    drop(take());
}

/// Whether the entry point of this program was ours: if the linker was not told, nothing but time would show it.
pub fn was_tried() -> bool {
    TRIED.load(Ordering::Relaxed)
}

/// Whether a descriptor of that number is the helper's, and none that the caller gave us.
pub(crate) fn has(number: RawFd) -> bool {
    PID.load(Ordering::Relaxed) != 0
        && [&PIDFD, &CONTROL].iter().any(|own| own.load(Ordering::Relaxed) == number)
}

/// What a helper is started for, and from where: the verb of this program; two of its options with which there is nothing to
/// help with; two paths, beside it, where the helper may lie; the helper's own name. Each is ended by a NUL, in one text,
/// because one address is known before relocations and a table of them is not.
#[derive(Debug, Clone, Copy)]
pub struct Helper(*const u8);

const WORDS: usize = 6;
const VERB: usize = 0;
const OPTIONS: [usize; 2] = [1, 2];
const PLACES: [usize; 2] = [3, 4];
const NAME: usize = 5;

impl Helper {
    /// # Panics
    /// When it is compiled, if these are not six words.
    pub const fn check<const N: usize>(text: [u8; N]) -> [u8; N] {
        let (mut at, mut words) = (0, 0);
        while at < N {
            if text[at] == 0 {
                words += 1;
            }
            at += 1;
        }
        assert!(words == WORDS && text[N - 1] == 0, "six words, each ended by a NUL");
        text
    }

    fn word(self, number: usize) -> *const u8 {
        let (mut text, mut left) = (self.0, number);
        while left > 0 {
            // SAFETY: `check` has counted them, and no caller asks for more.
            if unsafe { text.read_volatile() } == 0 {
                left -= 1;
            }
            text = text.wrapping_add(1);
        }
        text
    }
}

/// The longest path of our own program that is followed, and what may be put in place of its last part.
const LONGEST: usize = 4096;
const ROOM: usize = 64;

/// # Safety
/// `stack` is the stack pointer at the process's entry point, and `helper` a text that [`Helper::check`] let pass.
pub unsafe extern "C" fn start(stack: *const usize, helper: *const u8) {
    let helper = Helper(helper);
    TRIED.store(true, Ordering::Relaxed);
    // SAFETY: as the caller says.
    if !unsafe { is_for(helper, stack) } {
        return;
    }
    // A caller who closed one of the first three would find ours there.
    for number in 0..3 {
        // SAFETY: asks for flags only.
        if unsafe { raw(libc::SYS_fcntl, [number, libc::F_GETFD as usize, 0, 0, 0]) } < 0 {
            return;
        }
    }
    let Some(program) = open_program(helper) else { return };
    if let Some([own, theirs]) = pair() {
        match start_program(program, theirs, helper) {
            Some((pid, pidfd)) => {
                PIDFD.store(pidfd, Ordering::Relaxed);
                CONTROL.store(own, Ordering::Relaxed);
                PID.store(pid, Ordering::Relaxed);
            }
            // A host without user namespaces, or without clone3: whoever needs one says so.
            None => close(own),
        }
        close(theirs);
    }
    close(program);
}

/// Whether this program was started with the verb, and with none of the options before what ends them.
///
/// # Safety
/// `stack` is the stack pointer at the process's entry point.
unsafe fn is_for(helper: Helper, stack: *const usize) -> bool {
    // SAFETY: the kernel puts argc there.
    let count = unsafe { stack.read() };
    for number in 1..count {
        let slot = stack.wrapping_add(1 + number);
        // SAFETY: argc pointers follow it.
        let argument = std::ptr::with_exposed_provenance::<u8>(unsafe { slot.read() });
        // SAFETY: each of them is a C string, as are the helper's words.
        let is = |word: *const u8| unsafe { is_same(argument, word) };
        if number == 1 {
            if !is(helper.word(VERB)) {
                return false;
            }
        } else if is(c"--".as_ptr().cast()) {
            return true;
        } else if is(helper.word(OPTIONS[0])) || is(helper.word(OPTIONS[1])) {
            return false;
        }
    }
    count > 1
}

/// # Safety
/// Both are C strings.
unsafe fn is_same(one: *const u8, other: *const u8) -> bool {
    let mut at = 0;
    loop {
        // SAFETY: not past its NUL, where this ends.
        let byte = unsafe { one.wrapping_add(at).read_volatile() };
        // SAFETY: the two are the same up to here, so that this one has not ended either.
        if byte != unsafe { other.wrapping_add(at).read_volatile() } {
            return false;
        }
        if byte == 0 {
            return true;
        }
        at += 1;
    }
}

fn open_program(helper: Helper) -> Option<i32> {
    let mut path = MaybeUninit::<[u8; LONGEST + ROOM]>::uninit();
    let start = path.as_mut_ptr().cast::<u8>();
    let own = c"/proc/self/exe".as_ptr().expose_provenance();
    // SAFETY: writes no more than LONGEST bytes into a buffer of more.
    let length = unsafe { raw(libc::SYS_readlink, [own, start.expose_provenance(), LONGEST, 0, 0]) };
    let mut end = usize::try_from(length).ok().filter(|length| *length < LONGEST)?;
    // SAFETY: below the length that the kernel has filled.
    while end > 0 && unsafe { start.wrapping_add(end - 1).read_volatile() } != b'/' {
        end -= 1;
    }
    let flags = (libc::O_PATH | libc::O_CLOEXEC) as usize;
    for place in [helper.word(PLACES[0]), helper.word(PLACES[1])] {
        for at in 0..ROOM {
            // SAFETY: not past its NUL, where this ends.
            let byte = unsafe { place.wrapping_add(at).read_volatile() };
            // SAFETY: `end` is below LONGEST, and `at` below ROOM.
            unsafe { start.wrapping_add(end + at).write_volatile(byte) };
            if byte == 0 {
                break;
            }
        }
        // SAFETY: a C string, only read.
        let opened = unsafe { raw(libc::SYS_open, [start.expose_provenance(), flags, 0, 0, 0]) };
        if opened >= 0 {
            return i32::try_from(opened).ok();
        }
    }
    None
}

fn close(number: i32) {
    // SAFETY: made here, and used no more.
    unsafe { raw(libc::SYS_close, [fd_argument(number), 0, 0, 0, 0]) };
}

fn pair() -> Option<[i32; 2]> {
    let mut ends = [-1_i32; 2];
    let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as usize;
    let arguments = [libc::AF_UNIX as usize, kind, 0, ends.as_mut_ptr().expose_provenance(), 0];
    // SAFETY: the kernel writes two descriptors.
    let made = unsafe { raw(libc::SYS_socketpair, arguments) };
    // SAFETY: our own variable; the kernel wrote it, so the compiler must not assume that it is as it was.
    (made == 0).then(|| unsafe { (&raw const ends).read_volatile() })
}

/// Above the numbers that the child gives its own.
fn above(number: i32) -> Option<i32> {
    let arguments = [fd_argument(number), libc::F_DUPFD_CLOEXEC as usize, fd_argument(ABOVE_TARGETS), 0, 0];
    // SAFETY: numbers only.
    i32::try_from(unsafe { raw(libc::SYS_fcntl, arguments) }).ok().filter(|copy| *copy >= 0)
}

/// Where it is so, it is mounted there; and where it is not known, it may be.
fn has_second_version_alone() -> bool {
    const CGROUP2_SUPER_MAGIC: libc::c_long = 0x6367_7270;
    let mut found = MaybeUninit::<libc::statfs>::uninit();
    let arguments =
        [c"/sys/fs/cgroup".as_ptr().expose_provenance(), found.as_mut_ptr().expose_provenance(), 0, 0, 0];
    // SAFETY: a C string, which is read, and a whole struct, which is written.
    if unsafe { raw(libc::SYS_statfs, arguments) } < 0 {
        return true;
    }
    // SAFETY: the kernel has filled it, and its first member is the kind.
    let kind = unsafe { found.as_ptr().cast::<libc::c_long>().read_volatile() };
    kind == CGROUP2_SUPER_MAGIC
}

/// As the kernel has it: a bit for each of 64.
type SignalSet = u64;

/// Those that were blocked before.
fn block_signals() -> Option<SignalSet> {
    let (all, mut before): (SignalSet, SignalSet) = (!0, 0);
    let sets = [(&raw const all).expose_provenance(), (&raw mut before).expose_provenance()];
    let arguments = [libc::SIG_BLOCK as usize, sets[0], sets[1], size_of::<SignalSet>(), 0];
    // SAFETY: one set is read, and one written.
    let done = unsafe { raw(libc::SYS_rt_sigprocmask, arguments) };
    // SAFETY: our own variable; the kernel wrote it, so the compiler must not assume that it is as it was.
    (done == 0).then(|| unsafe { (&raw const before).read_volatile() })
}

fn set_signals(set: &SignalSet) {
    let address = std::ptr::from_ref(set).expose_provenance();
    let arguments = [libc::SIG_SETMASK as usize, address, 0, size_of::<SignalSet>(), 0];
    // SAFETY: a set, only read.
    unsafe { raw(libc::SYS_rt_sigprocmask, arguments) };
}

/// Its pid and pidfd.
fn start_program(program: i32, control: i32, helper: Helper) -> Option<(i32, i32)> {
    let program = above(program)?;
    let Some(control) = above(control) else {
        close(program);
        return None;
    };
    let mut shared = Shared::new(program, helper.word(NAME).cast());
    shared.keep_capabilities = true;
    shared.count = 4;
    for slot in &mut shared.fds[..4] {
        *slot = control;
    }
    let mut pidfd = -1;
    // Suspended until it has exec'd, like whoever calls `spawn`; but it has a copy of our memory, of which there is little yet.
    let mut flags = libc::CLONE_NEWUSER | libc::CLONE_VFORK | libc::CLONE_PIDFD;
    if !has_second_version_alone() {
        IS_FIRST.store(true, Ordering::Relaxed);
        flags |= libc::CLONE_NEWPID;
    }
    let clone = clone_arguments(u64::from(flags.cast_unsigned()), &raw mut pidfd);
    let address = (&raw const clone).expose_provenance();
    // For good in the child, which becomes an init: a stop that reached it here would hold us up, whom it does not reach.
    let before = block_signals();
    // SAFETY: a whole struct, only read; the child has a memory and a stack of its own.
    let pid = unsafe { raw(libc::SYS_clone3, [address, size_of::<libc::clone_args>(), 0, 0, 0]) };
    if pid == 0 {
        prepare_and_exec(&shared);
        leave();
    }
    if let Some(before) = before {
        set_signals(&before);
    }
    close(program);
    close(control);
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0)?;
    // SAFETY: our own variable; the kernel wrote it, so the compiler must not assume that it is as it was.
    Some((pid, unsafe { (&raw const pidfd).read_volatile() }))
}
