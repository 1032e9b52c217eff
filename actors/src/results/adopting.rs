//! What this node is about to keep: one adoption at a time for each kept number of a result.
//!
//! Who asks for the same copy while it is being adopted gets the outcome of that; who asks for another one under the same number is next. So
//! no two adoptions give, or take, the same name, and whatever stands under a name when one begins is whole.

use std::collections::BTreeMap;
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

/// What is being adopted on a node. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Adopting(Arc<Mutex<BTreeMap<Key, UnderWay>>>);

#[derive(Clone, Debug)]
struct UnderWay {
    source: Source,
    /// `None` until it is over; closed without an outcome where its thread has ended before.
    outcome: watch::Receiver<Option<Outcome>>,
}

/// What there is to do for who asks for an adoption.
#[derive(Debug)]
pub(super) enum Begun {
    /// To adopt.
    Ours(Adoption),
    /// To wait until another adoption under this number is over.
    UnderWay(Waiting),
}

/// While it is there, nobody else adopts under its number.
#[derive(Debug)]
pub(super) struct Adoption {
    adopting: Adopting,
    key: Key,
    tell: watch::Sender<Option<Outcome>>,
}

/// See [`Begun::UnderWay`].
#[derive(Debug)]
pub(super) struct Waiting {
    same_source: bool,
    outcome: watch::Receiver<Option<Outcome>>,
}

impl Adopting {
    /// Begins to adopt, or says what is under way.
    pub(super) fn begin(&self, job: JobId, kept: u64, source: Source) -> Begun {
        let mut adopting = self.0.lock();
        if let Some(known) = adopting.get(&(job, kept)) {
            let same_source = known.source == source;
            return Begun::UnderWay(Waiting { same_source, outcome: known.outcome.clone() });
        }
        let (tell, outcome) = watch::channel(None);
        adopting.insert((job, kept), UnderWay { source, outcome });
        Begun::Ours(Adoption { adopting: self.clone(), key: (job, kept), tell })
    }

    /// Those of these numbers that are not being adopted.
    pub(super) fn settled(&self, job: JobId, kept: &[u64]) -> Vec<u64> {
        let adopting = self.0.lock();
        kept.iter().copied().filter(|kept| !adopting.contains_key(&(job, *kept))).collect()
    }
}

impl Adoption {
    /// It is over; who waits for it is told.
    pub(super) fn end(self, outcome: Outcome) -> Outcome {
        self.tell.send_replace(Some(outcome.clone()));
        outcome
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        self.adopting.0.lock().remove(&self.key);
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
    use futures::FutureExt as _;

    use super::*;

    const JOB: JobId = JobId::from_u128(7);

    fn source(copy: u128) -> Source {
        (CopyId::new(7, copy), NodeId::new("n1"))
    }

    fn ours(begun: Begun) -> Adoption {
        match begun {
            Begun::Ours(adoption) => adoption,
            Begun::UnderWay(_) => panic!("another one is under way"),
        }
    }

    fn waiting(begun: Begun) -> Waiting {
        match begun {
            Begun::UnderWay(waiting) => waiting,
            Begun::Ours(_) => panic!("two are under way"),
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

    #[test]
    fn what_is_being_adopted_is_not_settled_until_that_is_over() {
        let adopting = Adopting::default();
        let adoption = ours(adopting.begin(JOB, 1, source(1)));
        assert_eq!(adopting.settled(JOB, &[0, 1, 2]), [0, 2]);
        assert_eq!(adopting.settled(JobId::from_u128(8), &[1]), [1]);
        let _ = adoption.end(Err(NotKept::Gone("it is not there".into())));
        assert_eq!(adopting.settled(JOB, &[0, 1, 2]), [0, 1, 2]);
    }
}
