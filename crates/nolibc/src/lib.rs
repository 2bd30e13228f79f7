//! The kernel without a C library, for `stockade-init`: raw system calls behind safe functions, and
//! the few symbols a program without libc must bring (`runtime!`). Every call is x86-64 Linux and
//! single-threaded. It knows no product word. Starting a glibc program costs 0.4 ms in a virtual
//! machine (each CPUID traps); this one starts in 0.1 ms and has nothing in it that is not used.

#![no_std]
#![expect(unsafe_code, reason = "one of the two crates that talk to the kernel; the other is stockade-sys")]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("stockade-init has system call numbers for x86-64 Linux only");

mod call;
mod errno;
mod fd;
mod file;
mod identity;
mod mount;
mod network;
mod process;
mod runtime;
mod security;
mod signal;
mod socket;
mod status;

pub use errno::Errno;
pub use fd::{CWD, Fd};
pub use file::{
    List, Stat, chdir, fchdir, is_mount_root, lasting_bytes, make_file, map_file, mkdirat, numeric_entries,
    open_below, open_create, open_path, openat, read, stat, symlinkat, write,
};
pub use identity::{
    clear_groups, drop_bounding_set, drop_capabilities, join_new_keyring, set_dumpable, set_gid,
    set_hostname, set_uid, umask,
};
pub use mount::{
    Attr, bind, bind_tree, bind_tree_at, fs_context, make_private, mount_new, move_mount, move_onto,
    move_onto_name, pivot_here, set_attr, set_attr_at, set_attr_recursive, unmount, unmount_old,
};
pub use network::{
    Family, Transport, catch_every_address, listen_everywhere, socket_diagnosis, stream_socket,
};
pub use process::{
    Eagerness, Namespaces, Pointers, bear, change_eagerness, close_all_from, close_on_exec_from, close_range,
    enter_network, enter_new, execve, exit, getpid, set_death_signal, set_own_group, set_rlimit,
    set_subreaper, setsid, spawn, wait_any,
};
pub use runtime::Arguments;
pub use security::{
    add_path_rule, create_ruleset, install_filter, install_supervised_filter, no_new_privs, restrict_self,
};
pub use signal::{
    block_all, heed_children, kill, kill_every, pause, poll_two, reset, signal_fd, unblock_all,
};
pub use socket::{Received, loopback_up, receive, send};
pub use status::{Inherited, Status, has_foreign_fd, inherited, is_open, own_status};
