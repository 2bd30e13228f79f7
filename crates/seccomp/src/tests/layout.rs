//! Programs that the kernel would take: jumps inside, a return at every end, long ones bridged.

use super::{decide, run};
use crate::bpf::{JMP_JA, JMP_JEQ_K, JMP_JGE_K, JMP_JGT_K, JMP_JSET_K, RET_K};
use crate::compile::compile;
use crate::emit::{EmitError, PROGRAM_MAX};
use crate::model::{Action, Call, Condition, Instruction, Test, Width};
use crate::rules::{Rule, RuleSet};
use crate::syscalls;

/// The checks of the kernel's own verifier that a compiler could get wrong, and that nothing is
/// unreachable.
pub(super) fn assert_well_formed(program: &[Instruction]) {
    assert!(!program.is_empty() && program.len() <= PROGRAM_MAX);
    assert_eq!(program.last().map(|one| one.code), Some(RET_K));
    let mut reached = vec![false; program.len()];
    reached[0] = true;
    for (at, one) in program.iter().enumerate() {
        assert!(reached[at], "instruction {at} is dead: {one:?}");
        let next: Vec<usize> = match one.code {
            RET_K => vec![],
            JMP_JA => vec![usize::try_from(one.k).expect("fits")],
            JMP_JEQ_K | JMP_JGT_K | JMP_JGE_K | JMP_JSET_K => vec![one.jt.into(), one.jf.into()],
            _ => vec![0],
        };
        for ahead in next {
            *reached.get_mut(at + 1 + ahead).expect("jumps stay inside") = true;
        }
    }
}

fn set(rules: Vec<Rule>) -> RuleSet {
    RuleSet {
        name: "t".into(),
        description: String::new(),
        default: Action::Allow,
        unknown: Action::Errno(38),
        foreign: Action::KillProcess,
        frequent: vec![],
        rules,
    }
}

/// One rule per known call, each with conditions of its own.
fn long_set(per_call: u64) -> RuleSet {
    let rule = |number: u32, nth: u64| Rule {
        syscalls: vec![number],
        action: if nth.is_multiple_of(2) { Action::Errno(1) } else { Action::Notify },
        reason: String::new(),
        conditions: vec![Condition {
            arg: 1,
            width: Width::Bits64,
            test: Test::Equal((u64::from(number) << 32) + nth),
        }],
    };
    set(syscalls::TABLE
        .iter()
        .flat_map(|(_, number)| (0..per_call).map(move |nth| rule(*number, nth)))
        .collect())
}

#[test]
fn a_program_longer_than_a_jump_still_decides() {
    let set = long_set(2);
    let program = compile(&set).expect("fits");
    assert!(program.len() > 1024 && program.iter().any(|one| one.code == JMP_JA), "{}", program.len());
    assert_well_formed(&program);
    for (_, number) in syscalls::TABLE {
        for nth in 0..3 {
            let call = Call::new(*number, [0, (u64::from(*number) << 32) + nth, 0, 0, 0, 0]);
            assert_eq!(decide(&program, &call), set.decide(&call), "{call:?}");
        }
    }
}

#[test]
fn a_program_that_the_kernel_would_refuse_is_an_error() {
    assert!(matches!(compile(&long_set(20)), Err(EmitError::TooLong(length)) if length > PROGRAM_MAX));
}

#[test]
fn an_empty_set_is_three_decisions() {
    let program = compile(&set(vec![])).expect("fits");
    assert_well_formed(&program);
    assert_eq!(decide(&program, &Call::new(0, [0; 6])), Action::Allow);
    assert_eq!(decide(&program, &Call::new(400, [0; 6])), Action::Errno(38), "a gap in the table");
    assert_eq!(decide(&program, &Call::new(470, [0; 6])), Action::Errno(38), "past the table");
    assert_eq!(decide(&program, &Call::new(u32::MAX, [0; 6])), Action::Errno(38));
    let foreign = Call { arch: crate::AUDIT_ARCH_I386, ..Call::new(0, [0; 6]) };
    assert_eq!(decide(&program, &foreign), Action::KillProcess);
}

#[test]
fn equal_conditions_share_their_code() {
    let rule = |syscalls: Vec<u32>| Rule {
        syscalls,
        action: Action::Errno(1),
        reason: String::new(),
        conditions: vec![Condition {
            arg: 1,
            width: Width::Bits32,
            test: Test::MaskedNonzero { mask: 0o6000 },
        }],
    };
    let [one, two] = [vec![90], vec![90, 200]].map(|calls| compile(&set(vec![rule(calls)])).expect("fits"));
    let loads = |program: &[Instruction]| program.iter().filter(|one| one.k == 24).count();
    assert_eq!((loads(&one), loads(&two)), (1, 1));
}

/// The row that the socket supervisor will need: only a send with an address waits for an answer.
#[test]
fn notify_only_when_the_whole_pointer_is_set() {
    let sendto = syscalls::number("sendto").expect("known");
    let program = compile(&set(vec![Rule {
        syscalls: vec![sendto],
        action: Action::Notify,
        reason: String::new(),
        conditions: vec![Condition { arg: 4, width: Width::Bits64, test: Test::NotEqual(0) }],
    }]))
    .expect("fits");
    for (pointer, action) in [
        (0, Action::Allow),
        (1, Action::Notify),
        (0x7fff_0000_0000, Action::Notify),
        (1 << 32, Action::Notify),
        (u64::MAX, Action::Notify),
    ] {
        let call = Call::new(sendto, [3, 0, 0, 0, pointer, u64::MAX]);
        assert_eq!(decide(&program, &call), action, "{pointer:#x}");
        assert!(run(&program, &call).steps < 20);
    }
}
