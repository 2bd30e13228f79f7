//! Any rule set, any call: the compiled tree says what the rules say when read one after the other.

use proptest::prelude::*;

use super::decide;
use super::layout::assert_well_formed;
use crate::compile::compile;
use crate::model::{AUDIT_ARCH_I386, AUDIT_ARCH_X86_64, Action, Call, Condition, Test, Width, X32_BIT};
use crate::rules::{Rule, RuleSet};
use crate::sample::samples;
use crate::syscalls;

/// Few values and many near misses, so that random calls meet random conditions.
pub(super) fn value() -> impl Strategy<Value = u64> {
    let edge = prop_oneof![
        Just(0_u64),
        Just(1),
        Just(2),
        Just(0x7fff_ffff),
        Just(0x8000_0000),
        Just(0xffff_ffff),
        Just(0x1_0000_0000),
        Just(0x1_0000_0001),
        Just(0x7fff_ffff_ffff_ffff),
        Just(0x8000_0000_0000_0000),
        Just(u64::MAX),
    ];
    prop_oneof![6 => edge, 2 => 0_u64..16, 1 => (0_u64..16).prop_map(|n| n << 31), 1 => any::<u64>()]
}

pub(super) fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::Allow),
        Just(Action::KillProcess),
        Just(Action::Notify),
        (1_u16..134).prop_map(Action::Errno)
    ]
}

pub(super) fn condition() -> impl Strategy<Value = Condition> {
    let width = prop_oneof![Just(Width::Bits32), Just(Width::Bits64)];
    (0_u8..3, width, 0_u8..9, value(), value()).prop_map(|(arg, width, op, mask, value)| {
        let (mask, value) = (mask & width.mask(), value & width.mask());
        let test = match op {
            0 => Test::Equal(value),
            1 => Test::NotEqual(value),
            2 => Test::Less(value),
            3 => Test::LessOrEqual(value),
            4 => Test::Greater(value),
            5 => Test::GreaterOrEqual(value),
            6 => Test::MaskedEqual { mask, value: value & mask },
            7 => Test::MaskedNotEqual { mask, value: value & mask },
            _ => Test::MaskedNonzero { mask },
        };
        Condition { arg, width, test }
    })
}

/// Half of them from a small neighbourhood, so that calls have several rules and runs are short.
pub(super) fn number() -> impl Strategy<Value = u32> {
    let any_known = (0..syscalls::TABLE.len()).prop_map(|at| syscalls::TABLE[at].1);
    prop_oneof![0_u32..20, any_known]
}

fn rule() -> impl Strategy<Value = Rule> {
    let numbers = proptest::collection::btree_set(number(), 1..6);
    (numbers, action(), proptest::collection::vec(condition(), 0..4)).prop_map(
        |(numbers, action, conditions)| Rule {
            syscalls: numbers.into_iter().collect(),
            action,
            reason: "Random.".into(),
            conditions,
        },
    )
}

fn rule_set() -> impl Strategy<Value = RuleSet> {
    let rules = proptest::collection::vec(rule(), 0..32);
    let frequent = proptest::collection::vec(number(), 0..6);
    (action(), action(), action(), frequent, rules).prop_map(
        |(default, unknown, foreign, frequent, rules)| RuleSet {
            name: "random".into(),
            description: String::new(),
            default,
            unknown,
            foreign,
            frequent,
            rules,
        },
    )
}

pub(super) fn call() -> impl Strategy<Value = Call> {
    let number = prop_oneof![
        8 => number(),
        1 => number().prop_map(|n| n | X32_BIT),
        1 => 330_u32..600,
        1 => any::<u32>()
    ];
    let arch = prop_oneof![16 => Just(AUDIT_ARCH_X86_64), 1 => Just(AUDIT_ARCH_I386), 1 => any::<u32>()];
    let args = proptest::array::uniform6(value());
    (number, arch, any::<u64>(), args).prop_map(|(number, arch, instruction_pointer, args)| Call {
        number,
        arch,
        instruction_pointer,
        args,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn the_tree_says_what_the_rules_say(set in rule_set(), calls in proptest::collection::vec(call(), 64)) {
        let program = compile(&set).expect("fits");
        assert_well_formed(&program);
        // Random calls, and calls of the very numbers that have rules.
        let aimed = set.rows().zip(&calls).map(|(row, call)| Call {
            number: row.number,
            arch: AUDIT_ARCH_X86_64,
            ..*call
        });
        for call in calls.iter().copied().chain(aimed) {
            prop_assert_eq!(decide(&program, &call), set.decide(&call), "{:?}", call);
        }
    }

    #[test]
    fn a_sample_is_decided_by_its_own_rule(set in rule_set()) {
        let Ok(samples) = samples(&set) else { return Ok(()) };
        for (at, (row, args)) in set.rows().zip(samples).enumerate() {
            let first = set.rows().position(|one| {
                one.number == row.number && one.rule.conditions.iter().all(|condition| condition.holds(&args))
            });
            prop_assert_eq!(first, Some(at));
        }
    }
}
