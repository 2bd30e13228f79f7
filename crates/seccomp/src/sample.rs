//! Finds, for each rule and call, arguments that this very rule decides: the conditions hold and no
//! earlier rule of the call takes them first. A rule without such arguments is dead, and stops the
//! build. The escape suite issues each sample as a real system call.

use thiserror::Error;

use crate::model::{Condition, Test, Width};
use crate::rules::{Row, RuleSet};
use crate::syscalls;

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum SampleError {
    #[error(
        "the rule {reason:?} decides no call of {syscall}: an earlier rule takes them all or its \
         conditions contradict each other; remove it or move it up"
    )]
    Dead { syscall: &'static str, reason: String },
}

/// The arguments of a sample for each of the set's rows, in order.
pub(crate) fn samples(set: &RuleSet) -> Result<Vec<[u64; 6]>, SampleError> {
    let rows: Vec<Row<'_>> = set.rows().collect();
    rows.iter()
        .enumerate()
        .map(|(at, row)| {
            let earlier: Vec<&Row<'_>> = rows[..at].iter().filter(|one| one.number == row.number).collect();
            find(row, &earlier).ok_or_else(|| SampleError::Dead {
                syscall: syscalls::name(row.number).unwrap_or("?"),
                reason: row.rule.reason.clone(),
            })
        })
        .collect()
}

fn find(row: &Row<'_>, earlier: &[&Row<'_>]) -> Option<[u64; 6]> {
    let all: Vec<&Condition> =
        earlier.iter().map(|one| one.rule).chain([row.rule]).flat_map(|rule| &rule.conditions).collect();
    let mut values: [Vec<u64>; 6] = std::array::from_fn(|_| vec![0]);
    for (index, list) in values.iter_mut().enumerate() {
        for condition in all.iter().filter(|one| usize::from(one.arg) == index) {
            list.extend(candidates(condition));
        }
        list.sort_unstable();
        list.dedup();
    }
    let mut args = [0; 6];
    choose(&values, 0, &mut args, &|args| {
        row.rule.conditions.iter().all(|one| one.holds(args))
            && !earlier.iter().any(|one| one.rule.conditions.iter().all(|condition| condition.holds(args)))
    })
    .then_some(args)
}

/// Values on either side of every border that the condition draws.
fn candidates(condition: &Condition) -> Vec<u64> {
    let (value, mask) = match condition.test {
        Test::Equal(value)
        | Test::NotEqual(value)
        | Test::Less(value)
        | Test::LessOrEqual(value)
        | Test::Greater(value)
        | Test::GreaterOrEqual(value) => (value, 0),
        Test::MaskedEqual { mask, value } | Test::MaskedNotEqual { mask, value } => (value, mask),
        Test::MaskedNonzero { mask } => (mask & mask.wrapping_neg(), mask),
    };
    let width: Width = condition.width;
    [
        value,
        value.wrapping_sub(1),
        value.wrapping_add(1),
        mask,
        value ^ mask,
        value ^ (mask & mask.wrapping_neg()),
    ]
    .into_iter()
    .map(|one| one & width.mask())
    .collect()
}

fn choose(values: &[Vec<u64>; 6], at: usize, args: &mut [u64; 6], fits: &dyn Fn(&[u64; 6]) -> bool) -> bool {
    let Some(list) = values.get(at) else { return fits(args) };
    list.iter().any(|value| {
        args[at] = *value;
        choose(values, at + 1, args, fits)
    })
}
