//! The line, end to end, through the command line: one file per theme, promises by their ids in
//! `docs/SPECIFICATION.md`. What a host can't show is said loudly on stderr (`SKIP ...`).

#![expect(clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod allowlist;
mod arguments;
mod audit_log;
mod bad_commands;
mod bad_workspaces;
mod clients;
mod degraded;
mod doctor;
mod environment;
mod executor_link;
mod exit_codes;
mod hard_times;
mod json;
mod kills;
mod limits;
mod memory;
mod neighbours;
mod outside;
mod policy_command;
mod policy_walls;
mod profile_errors;
mod profiles;
mod publish;
mod real_sockets;
mod redaction;
mod secrets_store;
mod seeds;
mod service;
mod shell;
mod signals;
mod sockets;
mod stdin;
mod streams;
mod terminal;
mod timeouts;
mod tokens;
mod tools;
mod usage;
