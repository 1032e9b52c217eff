//! What becomes of what a node keeps, as time passes. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::record::ResultRecord;
use crate::ids::NodeId;

/// What is kept is in a record soon; what is in none for so long is in none for good.
pub(super) const UNNAMED_FOR: Duration = Duration::from_secs(60);

/// What is to be done about a result of which a node keeps something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SweepStep {
    /// Its time is over: its record says so from now on, and everything of it goes.
    Expire,
    /// These go; nothing else changes.
    Free(Vec<u64>),
}

/// Since when which kept number of one result is in no record.
pub(super) type Unnamed = BTreeMap<u64, Duration>;

/// What is to be done about a result of which `me` keeps these numbers, `now`; `unnamed` is what was found so far.
pub(super) fn sweep(
    record: Option<&ResultRecord>,
    me: &NodeId,
    kept: &[u64],
    unnamed: &mut Unnamed,
    (now, now_unix_ms): (Duration, u64),
) -> SweepStep {
    if record.is_some_and(|record| record.is_over(now_unix_ms)) {
        return SweepStep::Expire;
    }
    let named = |number: &u64| {
        record.is_some_and(|record| record.kept().any(|(kept, member)| kept == *number && member.node == *me))
    };
    let homeless: Vec<u64> = kept.iter().copied().filter(|number| !named(number)).collect();
    unnamed.retain(|number, _| homeless.contains(number));
    for number in homeless {
        unnamed.entry(number).or_insert(now);
    }
    let freed = unnamed.iter().filter(|(_, since)| now.saturating_sub(**since) >= UNNAMED_FOR);
    SweepStep::Free(freed.map(|(number, _)| *number).collect())
}

#[cfg(test)]
mod tests {
    use super::super::record::MemberRecord;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn record(until_unix_ms: u64) -> ResultRecord {
        let mut record = ResultRecord::new(0, until_unix_ms);
        let member = |kept, node| MemberRecord { bytes: 1, hash: 0, node: NodeId::new(node), kept, copy: 0 };
        record.set_member((0, &"f".into()), 0, member(1, "me"));
        record.set_member((0, &"f".into()), 1, member(2, "other"));
        record
    }

    #[test]
    fn what_no_record_names_goes_after_a_while_and_what_is_named_stays() {
        let (me, mut unnamed) = (NodeId::new("me"), Unnamed::new());
        let mut at = |second: u32, record: Option<&ResultRecord>| {
            sweep(record, &me, &[1, 2, 3], &mut unnamed, (second * SECOND, 10))
        };
        let here = record(100);
        assert_eq!(at(0, Some(&here)), SweepStep::Free(vec![]));
        assert_eq!(at(59, Some(&here)), SweepStep::Free(vec![]), "it may be about to be named");
        assert_eq!(at(60, Some(&here)), SweepStep::Free(vec![2, 3]), "another node has it; nobody has");
        assert_eq!(at(61, None), SweepStep::Free(vec![2, 3]));
        assert_eq!(at(62, Some(&here)), SweepStep::Free(vec![2, 3]));
        assert_eq!(at(63, None), SweepStep::Free(vec![2, 3]), "named meanwhile: it begins anew");
        assert_eq!(at(122, None), SweepStep::Free(vec![2, 3]));
        assert_eq!(at(123, None), SweepStep::Free(vec![1, 2, 3]));
    }

    #[test]
    fn a_result_whose_time_is_over_goes_at_once() {
        let (me, mut unnamed) = (NodeId::new("me"), Unnamed::new());
        let step = |record: &ResultRecord, unnamed: &mut Unnamed| sweep(Some(record), &me, &[1], unnamed, (SECOND, 10));
        assert_eq!(step(&record(10), &mut unnamed), SweepStep::Expire);
        assert_eq!(step(&record(11), &mut unnamed), SweepStep::Free(vec![]));
        let mut expired = record(11);
        expired.expire();
        assert_eq!(step(&expired, &mut unnamed), SweepStep::Expire);
        assert!(expired.files.is_empty());
    }
}
