//! The entry point of a program that starts often. The standard library's own reads the whole of
//! `/proc/self/maps` to tell an overflow of the main thread's stack from other faults, and gives every thread
//! a second stack for it: a tenth of a millisecond. What else it prepares is prepared here.

/// Puts the entry point into a `no_main` binary; `$main` is `fn() -> u8`, the exit code. With a helper, the binary's first
/// instruction is ours ([`crate::ahead`]): its linker has to be told so, by `-e stockade_entry`.
#[macro_export]
macro_rules! entry {
    ($main:path, ahead: $helper:expr) => {
        static HELPER: [u8; $helper.len()] = $crate::ahead::Helper::check(*$helper);

        std::arch::global_asm!(
            ".globl stockade_entry",
            "stockade_entry:",
            "xor ebp, ebp",
            // What the C library's entry point expects: the stack as it is, and what the kernel left in rdx.
            "mov rbx, rsp",
            "mov r12, rdx",
            "mov rdi, rsp",
            "lea rsi, [rip + {helper}]",
            "call {start}",
            "mov rsp, rbx",
            "mov rdx, r12",
            "jmp _start",
            helper = sym HELPER,
            start = sym $crate::ahead::start,
        );

        $crate::entry!($main);
    };
    ($main:path) => {
        // SAFETY: `main` is the C library's name for it, and this program has no other.
        #[unsafe(no_mangle)]
        extern "C" fn main(_: i32, _: *const *const u8) -> i32 {
            $crate::begin();
            let code = $main();
            $crate::ahead::end();
            // Flushes what the standard library holds.
            std::process::exit(i32::from(code))
        }
    };
}

/// What the C library's first heap holds, and what a run uses of the stack.
const HEAP: usize = 33 * PAGE;
const STACK: usize = 12 * PAGE;
const PAGE: usize = 4096;
/// More than a run ever frees: memory that is given back is faulted in again by the next allocation.
const KEPT_HEAP: i32 = 4 << 20;

/// Memory that every run touches, at once: a page costs a fraction of what it costs by a fault. Where the kernel
/// does not know how (before 5.14), or the heap is elsewhere, the faults come one by one.
fn touch_memory() {
    // SAFETY: sets a number of the allocator's; no other thread allocates yet.
    unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_HEAP) };
    // SAFETY: an increment of zero only tells where the heap ends.
    let heap = unsafe { libc::sbrk(0) }.addr();
    let here = (&raw const heap).addr();
    for (end, size) in [(heap, HEAP), (here, STACK)] {
        let start = std::ptr::without_provenance_mut(end.saturating_sub(size) & !(PAGE - 1));
        // SAFETY: populating keeps what the pages hold; a range that is not mapped is an error and nothing else.
        unsafe { libc::madvise(start, size, libc::MADV_POPULATE_WRITE) };
    }
}

/// As the standard library has it: writing to a reader that left is an error and not a signal, and no file that
/// we open becomes somebody's standard output. And children are ours to wait for, even where our caller wanted nothing to
/// do with its own.
pub fn begin() {
    touch_memory();
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    // SAFETY: nor does this.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    for number in 0..3 {
        // SAFETY: asks for flags only.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        if flags == -1 {
            // The lowest number that is free: this one, as those below it are open by now.
            // SAFETY: a C string, only read.
            if unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) } != number {
                std::process::abort();
            }
        }
    }
}
