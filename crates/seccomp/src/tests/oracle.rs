//! A second opinion: for the sets that `seccompiler` can express (one action for a match, one for the
//! rest, native calls with a known number), its program and ours agree.

use std::collections::BTreeMap;

use proptest::prelude::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use super::equivalence::{call, condition, number};
use super::{decide, default_set};
use crate::compile::compile;
use crate::model::{AUDIT_ARCH_X86_64, Action, Call, Condition, Instruction, Test, Width};
use crate::rules::{Rule, RuleSet};
use crate::syscalls;

fn theirs(condition: &Condition) -> Option<SeccompCondition> {
    let length = match condition.width {
        Width::Bits32 => SeccompCmpArgLen::Dword,
        Width::Bits64 => SeccompCmpArgLen::Qword,
    };
    let (op, value) = match condition.test {
        Test::Equal(value) => (SeccompCmpOp::Eq, value),
        Test::NotEqual(value) => (SeccompCmpOp::Ne, value),
        Test::Less(value) => (SeccompCmpOp::Lt, value),
        Test::LessOrEqual(value) => (SeccompCmpOp::Le, value),
        Test::Greater(value) => (SeccompCmpOp::Gt, value),
        Test::GreaterOrEqual(value) => (SeccompCmpOp::Ge, value),
        Test::MaskedEqual { mask, value } => (SeccompCmpOp::MaskedEq(mask), value),
        Test::MaskedNotEqual { .. } | Test::MaskedNonzero { .. } => return None,
    };
    Some(SeccompCondition::new(condition.arg, length, op, value).expect("in range"))
}

/// Their program for the rules, all of which must have the action `errno`; none if they have no words
/// for one of the conditions.
fn their_program(rules: &[(u32, Vec<Condition>)], errno: u16) -> Option<Vec<Instruction>> {
    let mut map: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut always = vec![];
    for (number, conditions) in rules {
        let entry = map.entry(i64::from(*number)).or_default();
        if conditions.is_empty() {
            always.push(i64::from(*number));
        } else {
            let conditions = conditions.iter().map(theirs).collect::<Option<Vec<_>>>()?;
            entry.push(SeccompRule::new(conditions).expect("not empty"));
        }
    }
    // In their map an empty list is a match without conditions.
    for number in always {
        map.insert(number, vec![]);
    }
    let action = SeccompAction::Errno(errno.into());
    let filter = SeccompFilter::new(map, SeccompAction::Allow, action, TargetArch::x86_64).expect("valid");
    let program = BpfProgram::try_from(filter).expect("compiles");
    Some(program.iter().map(|one| Instruction { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect())
}

fn rules() -> impl Strategy<Value = Vec<(u32, Vec<Condition>)>> {
    let condition = condition().prop_filter("they have no such word", |one| theirs(one).is_some());
    proptest::collection::vec((number(), proptest::collection::vec(condition, 0..4)), 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn the_oracle_agrees(rules in rules(), calls in proptest::collection::vec(call(), 64)) {
        let oracle = their_program(&rules, 1).expect("expressible");
        let set = RuleSet {
            name: "oracle".into(),
            description: String::new(),
            default: Action::Allow,
            unknown: Action::Allow,
            foreign: Action::KillProcess,
            frequent: vec![],
            rules: rules
                .iter()
                .map(|(number, conditions)| Rule {
                    syscalls: vec![*number],
                    action: Action::Errno(1),
                    reason: String::new(),
                    conditions: conditions.clone(),
                })
                .collect(),
        };
        let ours = compile(&set).expect("fits");
        let aimed = rules.iter().zip(&calls).map(|((number, _), call)| Call {
            number: *number,
            arch: AUDIT_ARCH_X86_64,
            ..*call
        });
        for call in calls.iter().copied().chain(aimed) {
            prop_assert_eq!(decide(&ours, &call), decide(&oracle, &call), "{:?}", call);
        }
    }
}

/// The shipped rules, action by action where each call has one action only.
#[test]
fn the_oracle_agrees_on_the_shipped_rules() {
    let set = default_set();
    let ours = compile(&set).expect("fits");
    let mut compared = 0;
    for (number, rules) in set.by_syscall() {
        let Action::Errno(errno) = rules[0].action else { continue };
        let all: Vec<_> = rules.iter().map(|rule| (number, rule.conditions.clone())).collect();
        if rules.iter().any(|rule| rule.action != rules[0].action) {
            continue;
        }
        let Some(oracle) = their_program(&all, errno) else { continue };
        for value in [0, 1, 2, 3, 10, 16, 0x5412, 0x541c, 0o20000, 0o60000, 0x4_0000, 0xffff_ffff, 1 << 32] {
            for arg in 0..6 {
                let mut args = [0; 6];
                args[arg] = value;
                let call = Call::new(number, args);
                assert_eq!(
                    decide(&ours, &call),
                    decide(&oracle, &call),
                    "{:?} {call:?}",
                    syscalls::name(number)
                );
            }
        }
        compared += 1;
    }
    assert!(compared > 60, "{compared}");
}
