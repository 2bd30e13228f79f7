//! The system call filters, ready to install. Rules are data in `resources/seccomp/*.toml`; build.rs
//! compiles each file to a classic BPF program, so a shipped binary parses and decides nothing. The
//! program goes to `stockade-init`, which installs it last; `rules` tells people and the escape suite
//! what it refuses, with which answer and why.

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "stockade-seccomp knows the system call table of x86_64 only: add this architecture's numbers to \
     syscalls.rs and its audit value to model.rs before building for it"
);

mod bpf;
#[cfg(test)]
mod compile;
#[cfg(test)]
mod emit;
pub mod errno;
#[cfg(test)]
mod graph;
pub mod interpret;
mod model;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod sample;
pub mod syscalls;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tree;

pub use model::{
    AUDIT_ARCH_I386, AUDIT_ARCH_X86_64, Action, Call, Condition, Instruction, Test, Width, X32_BIT,
};

/// A compiled rule file.
#[derive(Debug)]
pub struct Filter {
    pub name: &'static str,
    pub description: &'static str,
    /// For a call that has a name and no matching rule.
    pub default: Action,
    /// For a number without a name in [`syscalls::TABLE`], x32 numbers included.
    pub unknown: Action,
    /// For a call of another architecture.
    pub foreign: Action,
    pub program: &'static [Instruction],
    /// One row per rule and call, in the order in which they are tried.
    pub rules: &'static [RuleRow],
}

/// One rule as it applies to one call.
#[derive(Debug)]
pub struct RuleRow {
    pub syscall: &'static str,
    pub number: u32,
    pub action: Action,
    pub reason: &'static str,
    /// All must hold; none means always.
    pub conditions: &'static [Condition],
    /// Arguments that this row decides, for a test that makes the call for real. Pointers are null, so
    /// most calls that got past a broken filter would fail in the kernel; not all (`clone`, `vhangup`),
    /// so make them in a process that may be lost.
    pub sample: [u64; 6],
}

include!(concat!(env!("OUT_DIR"), "/filters.rs"));

/// The filter of that name: a file's stem in `resources/seccomp`.
pub fn filter(name: &str) -> Option<&'static Filter> {
    FILTERS.iter().find(|filter| filter.name == name)
}

/// All filters, in the order of their names.
pub fn filters() -> &'static [Filter] {
    FILTERS
}

impl Filter {
    /// The program as the kernel reads it: an array of `struct sock_filter` in native byte order.
    pub fn program_bytes(&self) -> Vec<u8> {
        self.program
            .iter()
            .flat_map(|one| {
                let [code0, code1] = one.code.to_ne_bytes();
                let [k0, k1, k2, k3] = one.k.to_ne_bytes();
                [code0, code1, one.jt, one.jf, k0, k1, k2, k3]
            })
            .collect()
    }

    /// What this filter answers to a call. `KillProcess` for a return value that no rule can produce:
    /// the kernel treats an action it does not know the same way.
    pub fn decide(&self, call: &Call) -> Action {
        interpret::run(self.program, call)
            .ok()
            .and_then(|returned| Action::from_return(returned.value))
            .unwrap_or(Action::KillProcess)
    }

    /// The rule that decides a call; none where `default`, `unknown` or `foreign` does.
    pub fn rule_for(&self, call: &Call) -> Option<&'static RuleRow> {
        if call.arch != AUDIT_ARCH_X86_64 {
            return None;
        }
        self.rules
            .iter()
            .find(|row| row.number == call.number && row.conditions.iter().all(|one| one.holds(&call.args)))
    }
}
