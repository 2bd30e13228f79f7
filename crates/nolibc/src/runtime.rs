//! What a program without a C library must bring: an entry point, the memory functions that the
//! compiler calls, and what a panic does. `runtime!` puts them into the binary that asks.

use core::ffi::{CStr, c_char};

/// argv, as the kernel laid it out above the entry point's stack pointer.
#[derive(Debug, Clone, Copy)]
pub struct Arguments {
    stack: *const usize,
}

impl Arguments {
    /// # Safety
    /// `stack` is the stack pointer at the process's entry point.
    pub const unsafe fn from_entry_stack(stack: *const usize) -> Self {
        Self { stack }
    }

    pub fn get(&self, index: usize) -> Option<&'static CStr> {
        // SAFETY: the first word is argc.
        let count = unsafe { self.stack.read() };
        if index >= count {
            return None;
        }
        // SAFETY: argc pointers follow it.
        let slot = unsafe { self.stack.add(1 + index) };
        // SAFETY: and the slot holds one of them.
        let string = unsafe { slot.read() };
        let string = core::ptr::with_exposed_provenance::<c_char>(string);
        // SAFETY: each points to a C string that lives as long as the process.
        Some(unsafe { CStr::from_ptr(string) })
    }
}

/// Puts the entry point into a `no_std`, `no_main` binary; `$main` is `fn(Arguments) -> i32`.
#[macro_export]
macro_rules! runtime {
    ($main:path) => {
        mod runtime {
            //! Expanded from `stockade_nolibc::runtime!`.
            core::arch::global_asm!(
                ".globl _start",
                "_start:",
                "xor ebp, ebp",
                "mov rdi, rsp",
                "and rsp, -16",
                "call {entry}",
                "ud2",
                entry = sym entry,
            );

            extern "C" fn entry(stack: *const usize) -> ! {
                // SAFETY: `_start` passes the stack pointer it was entered with.
                let arguments = unsafe { $crate::Arguments::from_entry_stack(stack) };
                $crate::exit($main(arguments))
            }

            #[panic_handler]
            fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
                // The executor sees the control socket close without a verdict: `lost`.
                $crate::exit(70)
            }

            /// The prebuilt `core` refers to it; with `panic = "abort"` nothing ever calls it.
            #[unsafe(no_mangle)]
            extern "C" fn rust_eh_personality() {}

            // `rep movsb` and friends: the compiler would turn a loop back into a call of itself.

            /// # Safety
            /// As C's memcpy.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
                // SAFETY: the caller vouches for `count` bytes on both sides.
                unsafe {
                    core::arch::asm!("rep movsb", inout("rcx") count => _, inout("rdi") to => _,
                        inout("rsi") from => _, options(nostack, preserves_flags));
                }
                to
            }

            /// # Safety
            /// As C's memmove.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
                if to.addr().wrapping_sub(from.addr()) >= count {
                    // SAFETY: the destination does not start inside the source.
                    return unsafe { memcpy(to, from, count) };
                }
                // SAFETY: backwards from the last byte; the caller vouches for `count` bytes.
                unsafe {
                    core::arch::asm!("std", "rep movsb", "cld", inout("rcx") count => _,
                        inout("rdi") to.wrapping_add(count).wrapping_sub(1) => _,
                        inout("rsi") from.wrapping_add(count).wrapping_sub(1) => _, options(nostack));
                }
                to
            }

            /// # Safety
            /// As C's memset.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
                // SAFETY: the caller vouches for `count` bytes.
                unsafe {
                    core::arch::asm!("rep stosb", inout("rcx") count => _, inout("rdi") to => _,
                        in("al") byte.to_ne_bytes()[0], options(nostack, preserves_flags));
                }
                to
            }

            /// # Safety
            /// As C's memcmp.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
                let mut at = 0;
                while at < count {
                    // SAFETY: the caller vouches for `count` bytes.
                    let left = unsafe { one.wrapping_add(at).read_volatile() };
                    // SAFETY: the caller vouches for `count` bytes.
                    let right = unsafe { other.wrapping_add(at).read_volatile() };
                    if left != right {
                        return i32::from(left) - i32::from(right);
                    }
                    at += 1;
                }
                0
            }

            /// # Safety
            /// As C's bcmp.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
                // SAFETY: the same contract.
                unsafe { memcmp(one, other, count) }
            }

            /// # Safety
            /// As C's strlen.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn strlen(text: *const u8) -> usize {
                let mut length = 0;
                // SAFETY: the caller vouches for a NUL at the end.
                while unsafe { text.wrapping_add(length).read_volatile() } != 0 {
                    length += 1;
                }
                length
            }
        }
    };
}
