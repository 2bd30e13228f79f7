//! The words of a filter: instructions, actions, conditions. Shared by build.rs, which compiles the
//! rules, and by the library, which hands out the result. Decides nothing but whether one condition
//! holds for one call; `interpret.rs` runs whole programs.

use std::fmt;

use crate::errno;

/// `struct sock_filter`: one classic BPF instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// What the kernel does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Allow,
    /// The call does not run and returns this error number; 0 is no error, as if it had been done.
    Errno(u16),
    KillProcess,
    /// The call waits for the supervisor's answer on the listener.
    Notify,
}

// linux/seccomp.h: the upper half is the action, the lower half its value.
const RET_KILL_PROCESS: u32 = 0x8000_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_USER_NOTIF: u32 = 0x7fc0_0000;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ACTION: u32 = 0xffff_0000;
const RET_VALUE: u32 = 0x0000_ffff;

/// The kernel caps the error at this value (MAX_ERRNO), so a larger one would not come back as written.
const ERRNO_MAX: u16 = 4095;

impl Action {
    /// The filter's return value for this action.
    pub fn to_return(self) -> u32 {
        match self {
            Self::Allow => RET_ALLOW,
            Self::Errno(number) => RET_ERRNO | u32::from(number.min(ERRNO_MAX)),
            Self::KillProcess => RET_KILL_PROCESS,
            Self::Notify => RET_USER_NOTIF,
        }
    }

    /// The action behind a filter's return value; none for one that no rule can ask for.
    pub fn from_return(value: u32) -> Option<Self> {
        let low = u16::try_from(value & RET_VALUE).ok()?;
        match (value & RET_ACTION, low) {
            (RET_ALLOW, 0) => Some(Self::Allow),
            (RET_ERRNO, number) => Some(Self::Errno(number)),
            (RET_KILL_PROCESS, 0) => Some(Self::KillProcess),
            (RET_USER_NOTIF, 0) => Some(Self::Notify),
            _ => None,
        }
    }

    /// The action as a rule file spells it.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "allow" => Some(Self::Allow),
            "kill-process" => Some(Self::KillProcess),
            "notify" => Some(Self::Notify),
            "nothing" => Some(Self::Errno(0)),
            _ => text.strip_prefix("errno:").and_then(errno::number).map(Self::Errno),
        }
    }
}

/// As a rule file spells it.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.write_str("allow"),
            Self::Errno(0) => f.write_str("nothing"),
            Self::Errno(number) => match errno::name(*number) {
                Some(name) => write!(f, "errno:{name}"),
                None => write!(f, "errno:{number}"),
            },
            Self::KillProcess => f.write_str("kill-process"),
            Self::Notify => f.write_str("notify"),
        }
    }
}

/// How much of the register the kernel itself looks at. A register is always 64 bits wide; where the
/// call's parameter is an `int`, the upper half is noise that a caller may fill as it likes, and a
/// comparison that included it would be walked past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    Bits32,
    Bits64,
}

impl Width {
    pub const fn mask(self) -> u64 {
        match self {
            Self::Bits32 => 0xffff_ffff,
            Self::Bits64 => u64::MAX,
        }
    }
}

/// Comparisons are unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Test {
    Equal(u64),
    NotEqual(u64),
    Less(u64),
    LessOrEqual(u64),
    Greater(u64),
    GreaterOrEqual(u64),
    MaskedEqual { mask: u64, value: u64 },
    MaskedNotEqual { mask: u64, value: u64 },
    MaskedNonzero { mask: u64 },
}

/// One test of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Condition {
    /// 0 to 5.
    pub arg: u8,
    pub width: Width,
    pub test: Test,
}

impl Condition {
    pub fn holds(&self, args: &[u64; 6]) -> bool {
        let Some(raw) = args.get(usize::from(self.arg)) else { return false };
        let found = raw & self.width.mask();
        match self.test {
            Test::Equal(value) => found == value,
            Test::NotEqual(value) => found != value,
            Test::Less(value) => found < value,
            Test::LessOrEqual(value) => found <= value,
            Test::Greater(value) => found > value,
            Test::GreaterOrEqual(value) => found >= value,
            Test::MaskedEqual { mask, value } => found & mask == value,
            Test::MaskedNotEqual { mask, value } => found & mask != value,
            Test::MaskedNonzero { mask } => found & mask != 0,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arg = self.arg;
        match self.test {
            Test::Equal(value) => write!(f, "arg {arg} == {value:#x}"),
            Test::NotEqual(value) => write!(f, "arg {arg} != {value:#x}"),
            Test::Less(value) => write!(f, "arg {arg} < {value:#x}"),
            Test::LessOrEqual(value) => write!(f, "arg {arg} <= {value:#x}"),
            Test::Greater(value) => write!(f, "arg {arg} > {value:#x}"),
            Test::GreaterOrEqual(value) => write!(f, "arg {arg} >= {value:#x}"),
            Test::MaskedEqual { mask, value } => write!(f, "arg {arg} & {mask:#x} == {value:#x}"),
            Test::MaskedNotEqual { mask, value } => write!(f, "arg {arg} & {mask:#x} != {value:#x}"),
            Test::MaskedNonzero { mask } => write!(f, "arg {arg} & {mask:#x} != 0"),
        }
    }
}

/// `struct seccomp_data`: what the kernel shows a filter of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub number: u32,
    pub arch: u32,
    pub instruction_pointer: u64,
    pub args: [u64; 6],
}

pub const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
pub const AUDIT_ARCH_I386: u32 = 0x4000_0003;

/// Set in the number of an x32 call, which otherwise reports the x86_64 architecture.
pub const X32_BIT: u32 = 0x4000_0000;

impl Call {
    /// A native call.
    pub const fn new(number: u32, args: [u64; 6]) -> Self {
        Self { number, arch: AUDIT_ARCH_X86_64, instruction_pointer: 0, args }
    }
}
