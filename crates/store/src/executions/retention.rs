//! Forgetting: by age, then the oldest of whoever has most until the rest is small enough. In steps, so that nobody waits behind a large
//! one; the file goes before its row, so that a crash between leaves nothing without a record.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::{Executions, count, sqlite};
use crate::error::StoreError;
use crate::{ExecutionId, clock};

/// What one step removes at most.
const STEP: i64 = 128;
/// More than the rows of a step take, short outputs included.
const STEP_PAGES: i64 = 1024;

/// What is kept. Only what has ended is ever removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Since its end.
    pub age: Duration,
    /// Of all output files and records together, about.
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct Removed {
    pub executions: usize,
    pub bytes: u64,
    /// There is more to remove: take another step.
    pub more: bool,
}

impl Executions {
    /// One bounded step.
    pub fn retain(&self, keep: Keep) -> Result<Removed, StoreError> {
        let age = i64::try_from(keep.age.as_millis()).unwrap_or(i64::MAX);
        let before = clock::now_ms().saturating_sub(age);
        let Surplus { oldest, more } =
            self.database.read("find what is old", |reader| surplus(reader, before, count(keep.bytes)))?;
        let mut removed = Removed { more, ..Removed::default() };
        for (id, bytes) in &oldest {
            self.output.remove(id)?;
            removed.executions += 1;
            removed.bytes = removed.bytes.saturating_add(u64::try_from(*bytes).unwrap_or(0));
        }
        if !oldest.is_empty() {
            self.database.write("remove what is old", move |connection| {
                let mut delete = connection
                    .prepare_cached("DELETE FROM executions WHERE id = ?1 AND state = 'ended'")
                    .map_err(sqlite("remove what is old"))?;
                for (id, _) in oldest {
                    delete.execute([id]).map_err(sqlite("remove what is old"))?;
                }
                give_back(connection).map_err(sqlite("remove what is old"))
            })?;
        }
        Ok(removed)
    }
}

/// Takes pages that hold nothing off the end of the file; a page for each row of this.
fn give_back(connection: &Connection) -> rusqlite::Result<()> {
    let mut vacuum = connection.prepare_cached(&format!("PRAGMA incremental_vacuum({STEP_PAGES})"))?;
    let mut pages = vacuum.query([])?;
    while pages.next()?.is_some() {}
    Ok(())
}

fn count_of(oldest: &[(ExecutionId, i64)]) -> i64 {
    i64::try_from(oldest.len()).unwrap_or(i64::MAX)
}

/// What to remove next, oldest first, and whether more will be left to remove after it.
struct Surplus {
    oldest: Vec<(ExecutionId, i64)>,
    more: bool,
}

/// First what ended before `before`, whoever's it is. Then, until no more than `bytes` are left, of those who have most,
/// down to the same share for each: nobody's gigabytes remove what others have.
fn surplus(reader: &Connection, before: i64, bytes: i64) -> rusqlite::Result<Surplus> {
    let mut aged = reader.prepare_cached(
        "SELECT id, kept_bytes FROM executions WHERE state = 'ended' AND ended_ms < ?1
         ORDER BY ended_ms, id LIMIT ?2",
    )?;
    let aged = aged.query_map(params![before, STEP], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let aged: Vec<_> = aged.collect::<Result<_, _>>()?;
    if !aged.is_empty() {
        // The next step looks at the sizes, if nothing else is old.
        return Ok(Surplus { more: true, oldest: aged });
    }
    let total = "SELECT coalesce(sum(kept_bytes), 0) FROM executions WHERE state = 'ended'";
    let total: i64 = reader.prepare_cached(total)?.query_row([], |row| row.get(0))?;
    if total <= bytes {
        return Ok(Surplus { oldest: Vec::new(), more: false });
    }
    let mut shares = reader.prepare_cached(
        "SELECT principal, sum(kept_bytes) AS kept FROM executions WHERE state = 'ended'
         GROUP BY principal ORDER BY kept DESC, principal",
    )?;
    let shares = shares.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let shares: Vec<(String, i64)> = shares.collect::<Result<_, _>>()?;
    let level = level(&shares, bytes);
    let mut oldest = Vec::new();
    for (principal, kept) in shares.iter().take_while(|(_, kept)| *kept > level) {
        of_one(reader, principal, kept - level, &mut oldest)?;
        if count_of(&oldest) >= STEP {
            return Ok(Surplus { oldest, more: true });
        }
    }
    Ok(Surplus { oldest, more: false })
}

/// The most that each may keep so that all together keep no more than `bytes`. `shares` are sorted, the largest first.
fn level(shares: &[(String, i64)], bytes: i64) -> i64 {
    let mut below = shares.iter().fold(0_i64, |total, (_, kept)| total.saturating_add(*kept));
    for (at, (_, kept)) in shares.iter().enumerate() {
        below = below.saturating_sub(*kept);
        let cut = i64::try_from(at + 1).unwrap_or(i64::MAX);
        let level = bytes.saturating_sub(below).max(0) / cut;
        let next = shares.get(at + 1).map_or(0, |(_, kept)| *kept);
        if level >= next {
            return level;
        }
    }
    0
}

/// The oldest of one principal, of `excess` bytes or a little more.
fn of_one(
    reader: &Connection,
    principal: &str,
    excess: i64,
    oldest: &mut Vec<(ExecutionId, i64)>,
) -> rusqlite::Result<()> {
    let mut select = reader.prepare_cached(
        "SELECT id, kept_bytes FROM executions WHERE principal = ?1 AND state = 'ended' ORDER BY id LIMIT ?2",
    )?;
    let room = STEP.saturating_sub(count_of(oldest));
    let mut left = excess;
    for row in select.query_map(params![principal, room], |row| Ok((row.get(0)?, row.get(1)?)))? {
        let (id, kept): (ExecutionId, i64) = row?;
        if left <= 0 {
            break;
        }
        left = left.saturating_sub(kept);
        oldest.push((id, kept));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::level;

    #[test]
    fn the_level_is_the_same_for_all_that_are_cut() {
        let shares = |kept: &[i64]| kept.iter().map(|kept| (String::new(), *kept)).collect::<Vec<_>>();
        assert_eq!(level(&shares(&[100]), 40), 40);
        assert_eq!(level(&shares(&[100, 10]), 40), 30);
        assert_eq!(level(&shares(&[50, 50]), 40), 20);
        assert_eq!(level(&shares(&[60, 50, 5]), 45), 20);
        assert_eq!(level(&shares(&[60, 50, 5]), 0), 0);
        assert_eq!(level(&[], 0), 0);
    }
}
