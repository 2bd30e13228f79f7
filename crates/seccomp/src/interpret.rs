//! A small classic BPF machine: what the kernel would answer if this program saw this call. Lets tests
//! and `explain` ask a filter without installing it. Knows the instructions that filters are made of
//! and refuses the rest, as the kernel's own checker would.

use std::fmt;

use crate::bpf::{
    ALU_AND_K, ARG_SIZE, HALF_SIZE, JMP_JA, JMP_JEQ_K, JMP_JGE_K, JMP_JGT_K, JMP_JSET_K, LD_W_ABS,
    OFFSET_ARCH, OFFSET_ARGS, OFFSET_NUMBER, RET_K,
};
use crate::model::{Call, Instruction};

/// What a program returned, and how many instructions that took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returned {
    pub value: u32,
    pub steps: usize,
}

/// A program that the kernel would not have taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    Opcode { at: usize, code: u16 },
    Offset { at: usize, k: u32 },
    NoReturn { at: usize },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opcode { at, code } => write!(f, "instruction {at} has the unknown code {code:#x}"),
            Self::Offset { at, k } => {
                write!(f, "instruction {at} loads from {k}, where no word of a call is")
            }
            Self::NoReturn { at } => write!(f, "the program runs past its end to {at} without a return"),
        }
    }
}

impl std::error::Error for Malformed {}

/// Runs a program over one call. Jumps only go forward, so it ends.
pub fn run(program: &[Instruction], call: &Call) -> Result<Returned, Malformed> {
    let mut accumulator = 0;
    let mut at = 0;
    let mut steps = 0;
    loop {
        let Some(now) = program.get(at) else { return Err(Malformed::NoReturn { at }) };
        steps += 1;
        let jump = |holds: bool| usize::from(if holds { now.jt } else { now.jf });
        let ahead = match now.code {
            LD_W_ABS => {
                accumulator = word(call, now.k).ok_or(Malformed::Offset { at, k: now.k })?;
                0
            }
            ALU_AND_K => {
                accumulator &= now.k;
                0
            }
            JMP_JA => usize::try_from(now.k).unwrap_or(usize::MAX),
            JMP_JEQ_K => jump(accumulator == now.k),
            JMP_JGT_K => jump(accumulator > now.k),
            JMP_JGE_K => jump(accumulator >= now.k),
            JMP_JSET_K => jump(accumulator & now.k != 0),
            RET_K => return Ok(Returned { value: now.k, steps }),
            code => return Err(Malformed::Opcode { at, code }),
        };
        at = at.saturating_add(1).saturating_add(ahead);
    }
}

/// The aligned 32-bit word at an offset of `struct seccomp_data`.
fn word(call: &Call, offset: u32) -> Option<u32> {
    match offset {
        OFFSET_NUMBER => Some(call.number),
        OFFSET_ARCH => Some(call.arch),
        _ if !offset.is_multiple_of(HALF_SIZE) => None,
        _ => {
            let index = offset.checked_sub(OFFSET_ARGS).map(|past| past / ARG_SIZE);
            let whole = match index {
                None => call.instruction_pointer,
                Some(index) => *call.args.get(usize::try_from(index).ok()?)?,
            };
            let half = if offset.is_multiple_of(ARG_SIZE) { whole } else { whole >> 32 };
            u32::try_from(half & u64::from(u32::MAX)).ok()
        }
    }
}
