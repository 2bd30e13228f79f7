//! The escape suite: one file per attack. Each test shows that the attack works without the wall (on
//! the bare host, or with exactly one layer off) and fails with it. What a host can't show is said
//! loudly on stderr (`SKIP ...`), never passed over.

#![expect(clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod abstract_sockets;
mod capabilities;
mod cgroup;
mod chroot;
mod core_dump;
mod daemon;
mod deny_env;
mod deny_git_hooks;
mod deny_stockade;
mod device_nodes;
mod disk_fill;
mod exotic_sockets;
mod foreign_abi;
mod fork_bomb;
mod grind;
mod hardlink;
mod home;
mod host_network;
mod inherited_directory;
mod init_process;
mod io_uring;
mod ipc;
mod kernel_knobs;
mod kernel_leaks;
mod keyring;
mod kill_each;
mod kill_moments;
mod landlock_alone;
mod leaked_descriptors;
mod memory_bomb;
mod metadata_outside;
mod mount;
mod new_mount_api;
mod observers;
mod open_by_handle;
mod other_user;
mod output_flood;
mod parents_secrets;
mod pathname_sockets;
mod pipe_holder;
mod proc_outsiders;
mod proc_root;
mod read_outside;
mod rename_border;
mod resources_of_outsiders;
mod result_file;
mod seccomp_rules;
mod setns;
mod setuid;
mod signals;
mod socket_supervisor;
mod stopped_tree;
mod stubborn;
mod symlink;
mod system_paths;
mod terminal;
mod trace_outsiders;
mod user_namespaces;
mod workspace_profile;
mod write_outside;
