//! Classic BPF as seccomp knows it: where a call's words are, and the instructions in use. The compiler
//! writes them (`emit.rs`), the interpreter reads them (`interpret.rs`), and no others exist here.

// Offsets in `struct seccomp_data`; the halves of an argument are in the machine's own order, and
// this crate builds for a little-endian machine only.
pub(crate) const OFFSET_NUMBER: u32 = 0;
pub(crate) const OFFSET_ARCH: u32 = 4;
pub(crate) const OFFSET_ARGS: u32 = 16;
pub(crate) const ARG_SIZE: u32 = 8;
pub(crate) const HALF_SIZE: u32 = 4;

// linux/bpf_common.h: the instructions that the compiler emits, and no others.
pub(crate) const LD_W_ABS: u16 = 0x20;
pub(crate) const ALU_AND_K: u16 = 0x54;
pub(crate) const JMP_JA: u16 = 0x05;
pub(crate) const JMP_JEQ_K: u16 = 0x15;
pub(crate) const JMP_JGT_K: u16 = 0x25;
pub(crate) const JMP_JGE_K: u16 = 0x35;
pub(crate) const JMP_JSET_K: u16 = 0x45;
pub(crate) const RET_K: u16 = 0x06;
