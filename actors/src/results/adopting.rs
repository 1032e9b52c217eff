//! What this node is about to keep: one adoption at a time for each kept number of a result.
//!
//! Who asks for the same copy while it is being adopted gets the outcome of that; who asks for another one under the same number is next. So
//! no two adoptions give, or take, the same name, and whatever stands under a name when one begins is whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use exobus_store::CopyId;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::ids::{JobId, NodeId};
use crate::protocol::results::{KeptMember, NotKept};

/// What becomes of an adoption.
pub(super) type Outcome = Result<KeptMember, NotKept>;

/// What is adopted: a copy, and the node that has it.
pub(super) type Source = (CopyId, NodeId);

/// Under which number of which result.
type Key = (JobId, u64);

/// What is being adopted on a node, and what was since it was last asked for that. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Adopting(Arc<Mutex<Adoptions>>);

#[derive(Debug, Default)]
struct Adoptions {
    under_way: BTreeMap<Key, UnderWay>,
    /// Kept, and perhaps in no record yet.
    kept: BTreeSet<Key>,
}

#[derive(Clone, Debug)]
struct UnderWay {
    source: Source,
    /// `None` until it is over; closed without an outcome where its thread has ended before.
    outcome: watch::Receiver<Option<Outcome>>,
}

/// What there is to do for who asks for an adoption.
#[derive(Debug)]
pub(super) enum Turn {
    /// To adopt.
    Ours(Adoption),
    /// To wait until another adoption under this number is over.
    UnderWay(Waiting),
}

/// While it is there, nobody else adopts under its number.
#[derive(Debug)]
pub(super) struct Adoption {
    adopting: Adopting,
    /// Until it is over.
    key: Option<Key>,
    tell: watch::Sender<Option<Outcome>>,
}

/// See [`Turn::UnderWay`].
#[derive(Debug)]
pub(super) struct Waiting {
    same_source: bool,
    outcome: watch::Receiver<Option<Outcome>>,
}

impl Adopting {
    /// Begins to adopt, or says what is under way.
    pub(super) fn begin(&self, job: JobId, kept: u64, source: Source) -> Turn {
        let mut adopting = self.0.lock();
        if let Some(known) = adopting.under_way.get(&(job, kept)) {
            let same_source = known.source == source;
            return Turn::UnderWay(Waiting { same_source, outcome: known.outcome.clone() });
        }
        let (tell, outcome) = watch::channel(None);
        adopting.under_way.insert((job, kept), UnderWay { source, outcome });
        Turn::Ours(Adoption { adopting: self.clone(), key: Some((job, kept)), tell })
    }

    /// Those that were adopted since this was last asked.
    pub(super) fn lately(&self) -> BTreeSet<(JobId, u64)> {
        std::mem::take(&mut self.0.lock().kept)
    }

    /// Frees those of these numbers that are not being adopted, and were not since [`lately`](Self::lately) was asked; how many. None is adopted
    /// meanwhile.
    pub(super) fn free_settled(&self, job: JobId, kept: &[u64], free: impl FnOnce(&[u64])) -> usize {
        let adopting = self.0.lock();
        let is_adopted = |key| adopting.under_way.contains_key(&key) || adopting.kept.contains(&key);
        let settled: Vec<_> = kept.iter().copied().filter(|kept| !is_adopted((job, *kept))).collect();
        if !settled.is_empty() {
            free(&settled);
        }
        settled.len()
    }
}

impl Adoption {
    /// It is over; who waits for it is told, and may begin another one at once.
    pub(super) fn end(mut self, outcome: Outcome) -> Outcome {
        self.is_over(outcome.is_ok());
        self.tell.send_replace(Some(outcome.clone()));
        outcome
    }

    fn is_over(&mut self, is_kept: bool) {
        let Some(key) = self.key.take() else { return };
        let mut adopting = self.adopting.0.lock();
        adopting.under_way.remove(&key);
        if is_kept {
            adopting.kept.insert(key);
        }
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        self.is_over(false);
    }
}

impl Waiting {
    /// Waits until the adoption that is under way is over. `None`: it was of another copy, or it ended without an outcome.
    pub(super) async fn over(mut self) -> Option<Outcome> {
        let outcome = self.outcome.wait_for(Option::is_some).await.ok()?.clone();
        outcome.filter(|_| self.same_source)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Context;

    use futures::FutureExt as _;
    use futures::task::{ArcWake, waker};

    use super::*;

    const JOB: JobId = JobId::from_u128(7);

    fn source(copy: u128) -> Source {
        (CopyId::new(7, copy), NodeId::new("n1"))
    }

    fn ours(begun: Turn) -> Adoption {
        match begun {
            Turn::Ours(adoption) => adoption,
            Turn::UnderWay(_) => panic!("another one is under way"),
        }
    }

    fn waiting(begun: Turn) -> Waiting {
        match begun {
            Turn::UnderWay(waiting) => waiting,
            Turn::Ours(_) => panic!("two are under way"),
        }
    }

    #[test]
    fn who_asks_again_gets_the_outcome_and_who_asks_for_another_copy_is_next() {
        let adopting = Adopting::default();
        let adoption = ours(adopting.begin(JOB, 1, source(1)));
        let again = waiting(adopting.begin(JOB, 1, source(1)));
        let copy = waiting(adopting.begin(JOB, 1, source(2)));
        let node = waiting(adopting.begin(JOB, 1, (CopyId::new(7, 1), NodeId::new("n2"))));
        let mut still = Box::pin(waiting(adopting.begin(JOB, 1, source(1))).over());
        assert!((&mut still).now_or_never().is_none(), "it is not over");
        drop(ours(adopting.begin(JOB, 2, source(1))));
        drop(ours(adopting.begin(JobId::from_u128(8), 1, source(1))));

        let kept = Ok(KeptMember { bytes: 3, hash: 4 });
        assert_eq!(adoption.end(kept.clone()), kept);
        assert_eq!(again.over().now_or_never(), Some(Some(kept.clone())));
        assert_eq!(still.now_or_never(), Some(Some(kept)));
        for other in [copy, node] {
            assert_eq!(other.over().now_or_never(), Some(None));
        }
        ours(adopting.begin(JOB, 1, source(2)));
    }

    #[test]
    fn one_that_breaks_off_has_no_outcome_and_is_begun_anew() {
        let adopting = Adopting::default();
        let adoption = ours(adopting.begin(JOB, 1, source(1)));
        let again = waiting(adopting.begin(JOB, 1, source(1)));
        drop(adoption);
        assert_eq!(again.over().now_or_never(), Some(None));
        ours(adopting.begin(JOB, 1, source(1)));
    }

    /// Those of some numbers that may be freed.
    fn settled(adopting: &Adopting, job: JobId, kept: &[u64]) -> Vec<u64> {
        let mut settled = Vec::new();
        let count = adopting.free_settled(job, kept, |kept| settled.extend(kept));
        assert_eq!(count, settled.len());
        settled
    }

    #[test]
    fn what_is_being_adopted_is_not_freed_until_that_is_over_and_could_be_noted() {
        let adopting = Adopting::default();
        let adoption = ours(adopting.begin(JOB, 1, source(1)));
        assert_eq!(settled(&adopting, JOB, &[0, 1, 2]), [0, 2]);
        assert_eq!(settled(&adopting, JobId::from_u128(8), &[1]), [1]);
        let _ = adoption.end(Err(NotKept::Gone("it is not there".into())));
        assert_eq!(settled(&adopting, JOB, &[0, 1, 2]), [0, 1, 2]);
        let _ = ours(adopting.begin(JOB, 1, source(1))).end(Ok(KeptMember { bytes: 3, hash: 4 }));
        assert_eq!(settled(&adopting, JOB, &[0, 1, 2]), [0, 2], "its record is not written, perhaps");
        assert_eq!(adopting.lately(), BTreeSet::from([(JOB, 1)]));
        assert_eq!(settled(&adopting, JOB, &[0, 1, 2]), [0, 1, 2]);
        assert!(adopting.lately().is_empty());
    }

    /// Begins an adoption of another copy as soon as it hears that one is over, and says whether it could.
    struct Next {
        adopting: Adopting,
        could: Mutex<Option<bool>>,
    }

    impl ArcWake for Next {
        fn wake_by_ref(this: &Arc<Self>) {
            let begun = this.adopting.begin(JOB, 1, source(2));
            *this.could.lock() = Some(matches!(begun, Turn::Ours(_)));
        }
    }

    #[test]
    fn who_is_told_that_an_adoption_is_over_can_begin_the_next_one() {
        let adopting = Adopting::default();
        let adoption = ours(adopting.begin(JOB, 1, source(1)));
        let next = Arc::new(Next { adopting: adopting.clone(), could: Mutex::default() });
        let mut over = Box::pin(waiting(adopting.begin(JOB, 1, source(2))).over());
        let waker = waker(next.clone());
        assert!(over.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let _ = adoption.end(Err(NotKept::Gone("it is not there".into())));
        assert_eq!(*next.could.lock(), Some(true));
    }

    #[test]
    fn one_that_is_over_ends_no_other() {
        let adopting = Adopting::default();
        let mut adoption = ours(adopting.begin(JOB, 1, source(1)));
        adoption.is_over(false);
        let _next = ours(adopting.begin(JOB, 1, source(2)));
        drop(adoption);
        assert!(matches!(adopting.begin(JOB, 1, source(3)), Turn::UnderWay(_)));
    }
}
