//! The latest results of a tenant: of however many there are, no more than one list has are in memory. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::request::{LISTED_MAX, ResultInfo, ResultList, UnreadableResult};
use crate::ids::JobId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Latest {
    /// The latest first.
    results: BTreeMap<(Reverse<u64>, JobId), ResultInfo>,
    /// Why those cannot be read whose records are there.
    unreadable: BTreeMap<JobId, String>,
    /// How many are not listed.
    more: u64,
}

impl Latest {
    /// There is this one, or it is so by now.
    pub(super) fn insert(&mut self, job: JobId, info: ResultInfo) {
        self.remove(job);
        self.results.insert((Reverse(info.made_unix_ms), job), info);
        if self.results.len() > LISTED_MAX {
            self.results.pop_last();
            self.more += 1;
        }
    }

    /// There is this one, of which nothing can be said but why.
    pub(super) fn insert_unreadable(&mut self, job: JobId, why: String) {
        self.remove(job);
        match self.unreadable.len() < LISTED_MAX {
            true => drop(self.unreadable.insert(job, why)),
            false => self.more += 1,
        }
    }

    /// It is not there, or not any more.
    pub(super) fn remove(&mut self, job: JobId) {
        self.unreadable.remove(&job);
        self.results.retain(|(_, listed), _| *listed != job);
    }

    pub(super) fn into_list(self) -> ResultList {
        let unreadable =
            self.unreadable.into_iter().map(|(job, message)| UnreadableResult { id: job.to_string(), message });
        ResultList { results: self.results.into_values().collect(), more: self.more, unreadable: unreadable.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(number: u64) -> JobId {
        JobId::from_u128(u128::from(number) << 64)
    }

    fn info(number: u64, made_unix_ms: u64) -> ResultInfo {
        ResultInfo {
            id: job(number).to_string(),
            made_unix_ms,
            until_unix_ms: 0,
            files: Vec::new(),
            file_count: 0,
            bytes: 0,
            complete: true,
        }
    }

    #[test]
    fn the_latest_are_listed_and_the_others_counted_in_whatever_order_they_are_met() {
        let (all, listed) = (3 * LISTED_MAX as u64, LISTED_MAX as u64);
        for step in [1, 5, all - 1] {
            let mut latest = Latest::default();
            for at in 0..all {
                let number = at * step % all;
                latest.insert(job(number), info(number, 1000 + number));
                assert!(latest.results.len() <= LISTED_MAX);
            }
            let list = latest.into_list();
            let made: Vec<u64> = list.results.iter().map(|info| info.made_unix_ms - 1000).collect();
            assert_eq!(made, (all - listed..all).rev().collect::<Vec<_>>(), "step {step}");
            assert_eq!(list.more, all - listed);
        }
    }

    #[test]
    fn one_that_changes_while_it_is_looked_is_listed_as_it_is_then() {
        let mut latest = Latest::default();
        latest.insert(job(1), info(1, 10));
        latest.insert(job(2), info(2, 20));
        latest.insert(job(1), info(1, 30));
        latest.insert_unreadable(job(2), "of version 9".into());
        latest.insert(job(3), info(3, 5));
        latest.insert_unreadable(job(4), "of version 9".into());
        latest.insert(job(4), info(4, 1));
        latest.insert(job(5), info(5, 2));
        latest.insert_unreadable(job(6), "of version 9".into());
        latest.remove(job(5));
        latest.remove(job(6));
        let list = latest.into_list();
        assert_eq!(list.results, [info(1, 30), info(3, 5), info(4, 1)]);
        assert_eq!(list.unreadable, [UnreadableResult { id: job(2).to_string(), message: "of version 9".into() }]);
        assert_eq!(list.more, 0);
    }

    #[test]
    fn those_that_cannot_be_read_are_bounded_too() {
        let mut latest = Latest::default();
        for number in 0..LISTED_MAX as u64 + 2 {
            latest.insert_unreadable(job(number), String::new());
        }
        let list = latest.into_list();
        assert_eq!((list.unreadable.len(), list.more), (LISTED_MAX, 2));
    }
}
