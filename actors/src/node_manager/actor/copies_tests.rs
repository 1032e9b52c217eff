//! Copies that attempts make on a node: who deletes which, and what is said of them.

use std::collections::BTreeMap;
use std::ops::Range;

use exobus_store::{RowHash, StoreError, WriterOptions};
use tokio::task::LocalSet;

use super::test_world::{JOB, World};
use crate::ids::{Attempt, CopyId, CopyNumber, JobId, NodeId, ObjectId, SetId};
use crate::node_manager::Report;
use crate::node_manager::{Spared, Unneeded};
use crate::protocol::copies::Whereabouts;
use crate::protocol::node_manager::NodeMsg;
use crate::protocol::owner::OwnerMsg;
use crate::task::{FailureKind, LocatedArg, LocatedSource, Output, Parts, Returns, TaskFailure, TaskFigures, TaskSpec};

const TASK: u128 = 5;

fn spec(attempt: u32, returns: Returns) -> TaskSpec {
    World::spec(TASK, Attempt::nth(attempt), returns)
}

fn here() -> NodeId {
    NodeId::new("here")
}

fn object(number: u128) -> ObjectId {
    ObjectId::from_u128(number << 32)
}

fn number(counted: u32) -> CopyNumber {
    CopyNumber::new(0, counted).unwrap()
}

/// Bytes that differ by maker.
fn content(maker: u32) -> [u8; 2] {
    [7, maker as u8]
}

impl World {
    async fn runs(&self, spec: &TaskSpec) {
        let started = self.started();
        self.tell(NodeMsg::Run { owner: here(), spec: spec.clone().into() });
        while self.started() == started {
            tokio::task::yield_now().await;
        }
    }

    fn seals(&self, copy: CopyId, maker: u32) -> Result<Output, StoreError> {
        let options = WriterOptions { maker, ..WriterOptions::default() };
        let meta = self.store.put_as(copy, options, &content(maker), 1, RowHash(maker.into()))?;
        Ok(Output::from(&meta))
    }

    /// Seals these outputs of an attempt.
    fn makes(&self, spec: &TaskSpec, outputs: Range<u32>) -> Vec<Output> {
        outputs.map(|index| self.seals(spec.makes(index), spec.attempt.makes().get()).unwrap()).collect()
    }

    fn finishes(&self, spec: &TaskSpec, outcome: Result<Vec<Output>, TaskFailure>) {
        let (job, task, attempt) = (spec.job, spec.id, spec.attempt);
        let outcome = outcome.map(|outputs| (outputs, Vec::new()));
        self.report(Report::Finished { job, task, attempt, outcome, figures: TaskFigures::default(), value: None });
    }

    fn yields(&self, spec: &TaskSpec, index: u32) {
        let output = self.makes(spec, index..index + 1)[0];
        self.report(Report::Yielded { job: spec.job, task: spec.id, attempt: spec.attempt, index, output });
    }

    fn cancels(&self, spec: &TaskSpec) {
        self.tell(NodeMsg::Cancel { job: spec.job, task: spec.id, attempt: spec.attempt });
    }

    fn has(&self, spec: &TaskSpec, outputs: Range<u32>) -> Vec<bool> {
        outputs.map(|index| self.store.contains(&spec.makes(index))).collect()
    }

    /// Until all that was said is done: what comes last is answered last.
    async fn settled(&mut self) -> OwnerMsg {
        self.tell(NodeMsg::TakeInventory { job: JOB, owner: here(), run: 0 });
        loop {
            match self.told().await {
                inventory @ OwnerMsg::Inventory { .. } => return inventory,
                OwnerMsg::Completed { .. }
                | OwnerMsg::Failed { .. }
                | OwnerMsg::Yielded { .. }
                | OwnerMsg::Recalled { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// A set of two objects, of which this node has the first.
    fn defines(&self, (run, version): (u32, u32), first: Whereabouts) {
        let set = SetId::from_u128(9);
        let members = [(object(1), first), (object(2), Whereabouts::NoBytes)].into_iter().collect();
        self.tell(NodeMsg::DefineSet { job: JOB, run, set, version, start: 0, total: 2, members });
    }

    fn frees_parts(&self, (run, version): (u32, u32)) {
        self.tell(NodeMsg::FreeParts { job: JOB, run, set: SetId::from_u128(9), version, parts: Parts::one(0) });
    }

    fn is_whole(&self, copy: CopyId) -> bool {
        self.store.try_get(&copy, Parts::one(0)).is_some()
    }
}

/// Runs a test where actors run.
async fn in_a_world<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    LocalSet::new().run_until(async { test(World::new().await).await }).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_attempt_takes_what_it_made_with_it_and_leaves_what_another_one_makes() {
    for ends_well in [true, false] {
        in_a_world(async |mut world| {
            let [first, second] = [1, 2].map(|attempt| spec(attempt, Returns::Many(2)));
            world.runs(&first).await;
            world.runs(&second).await;
            let made = world.makes(&first, 0..2);
            let counts = world.makes(&second, 0..2);
            world.cancels(&first);
            world.finishes(&second, Ok(counts.clone()));
            let OwnerMsg::Completed { attempt, .. } = world.told().await else { panic!("the second one is done") };
            assert_eq!(attempt, second.attempt);
            let late = if ends_well { Ok(made.clone()) } else { Err(TaskFailure::new(FailureKind::Cancelled, "")) };
            world.finishes(&first, late);
            if ends_well {
                let OwnerMsg::Completed { attempt, outputs, .. } = world.told().await else { panic!("it ended well") };
                assert_eq!((attempt, outputs), (first.attempt, made), "so that it can be compared");
            }
            world.settled().await;
            assert_eq!((world.has(&first, 0..2), world.has(&second, 0..2)), (vec![false; 2], vec![true; 2]));
            // What is freed is one of them, however often and late.
            for _ in 0..2 {
                world.tell(NodeMsg::Free { job: JOB, copies: [first.makes(1), second.makes(1)].into_iter().collect() });
            }
            world.settled().await;
            assert_eq!(world.has(&second, 0..2), [true, false]);
        })
        .await;
    }
}

/// Of a copy that is still being made, too: whoever has it sealed holds it, and it goes with the free that is said then.
#[tokio::test(start_paused = true)]
async fn a_free_that_comes_early_or_twice_frees_no_copy_but_the_one_that_it_names() {
    in_a_world(async |mut world| {
        let [first, second] = [1, 2].map(|attempt| spec(attempt, Returns::Many(2)));
        let free = |copy: CopyId| NodeMsg::Free { job: JOB, copies: [copy].into_iter().collect() };
        world.runs(&first).await;
        world.makes(&first, 0..2);
        world.tell(free(second.makes(0)));
        world.settled().await;
        assert_eq!(world.has(&first, 0..2), [true; 2], "another copy of the object is there");
        world.runs(&second).await;
        world.makes(&second, 0..2);
        world.settled().await;
        assert_eq!(world.has(&second, 0..2), [true; 2], "what is not there cannot be freed");
        for _ in 0..2 {
            world.tell(free(first.makes(0)));
            world.settled().await;
            assert_eq!((world.has(&first, 0..2), world.has(&second, 0..2)), (vec![false, true], vec![true; 2]));
        }
        world.tell(free(second.makes(0)));
        world.settled().await;
        assert_eq!((world.has(&first, 0..2), world.has(&second, 0..2)), (vec![false, true], vec![false, true]));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_fails_takes_what_it_had_sealed_with_it() {
    in_a_world(async |mut world| {
        let [first, second] = [1, 2].map(|attempt| spec(attempt, Returns::Many(3)));
        world.runs(&first).await;
        world.makes(&first, 0..2);
        world.finishes(&first, Err(TaskFailure::new(FailureKind::Error, "between two outputs")));
        let OwnerMsg::Failed { attempt, .. } = world.told().await else { panic!("it failed") };
        assert_eq!((attempt, world.has(&first, 0..3)), (first.attempt, vec![false; 3]));
        world.runs(&second).await;
        let outputs = world.makes(&second, 0..3);
        world.finishes(&second, Ok(outputs));
        world.settled().await;
        assert_eq!(world.has(&second, 0..3), [true; 3]);
    })
    .await;
}

/// Its Owner knows of what it was told of, and frees it.
#[tokio::test(start_paused = true)]
async fn a_cancelled_stream_takes_with_it_what_nobody_was_told_of() {
    in_a_world(async |mut world| {
        let spec = spec(1, Returns::Stream);
        world.runs(&spec).await;
        world.yields(&spec, 0);
        let OwnerMsg::Yielded { index: 0, .. } = world.told().await else { panic!("the first was announced") };
        world.cancels(&spec);
        world.yields(&spec, 1);
        world.settled().await;
        assert_eq!(world.has(&spec, 0..2), [true, false]);
        world.finishes(&spec, Err(TaskFailure::new(FailureKind::Cancelled, "")));
        world.settled().await;
        assert_eq!(world.has(&spec, 0..2), [true, false]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_inventory_names_each_copy_and_the_attempt_whose_bytes_it_has() {
    in_a_world(async |mut world| {
        // Made by the second attempt, put back from what it had made, and copied for a task that reads it.
        let private = CopyId::new(JOB.group(), 3);
        let held = [(object(1).copy(JOB, number(2)), 2), (object(1).copy(JOB, number(3)), 2), (private, 0)];
        for (copy, maker) in held {
            world.seals(copy, maker).unwrap();
        }
        world.seals(object(1).copy(JobId::from_u128(2), number(2)), 2).unwrap();
        let OwnerMsg::Inventory { copies, makers, outputs, last, .. } = world.settled().await else { unreachable!() };
        let mut said: Vec<_> = copies.iter(JOB).zip(makers).collect();
        said.sort_by_key(|(copy, maker)| (*maker == 0, *copy));
        assert_eq!(said, held);
        assert!(outputs.len() == 3 && outputs.iter().all(|output| output.bytes == 2) && last);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn parts_are_freed_of_the_copies_that_the_same_version_of_a_set_means() {
    in_a_world(async |mut world| {
        let [first, second] = [1, 2].map(|counted| object(1).copy(JOB, number(counted)));
        let at = |counted| Whereabouts::At(here(), number(counted));
        world.seals(first, 1).unwrap();
        world.seals(second, 2).unwrap();
        world.defines((0, 1), at(1));
        world.defines((0, 2), at(2));
        world.frees_parts((0, 1));
        world.frees_parts((0, 3));
        world.settled().await;
        assert!(world.is_whole(first) && world.is_whole(second), "neither was meant");
        // Told again, late: the newer one stays.
        world.defines((0, 1), at(1));
        world.frees_parts((0, 1));
        world.frees_parts((0, 2));
        world.settled().await;
        assert!(world.is_whole(first) && !world.is_whole(second));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_set_of_a_later_run_is_newer_whatever_its_version() {
    in_a_world(async |mut world| {
        let [first, second] = [1, 2].map(|counted| object(1).copy(JOB, number(counted)));
        let at = |counted| Whereabouts::At(here(), number(counted));
        world.seals(first, 1).unwrap();
        world.seals(second, 2).unwrap();
        world.defines((0, 7), at(1));
        world.defines((1, 0), at(2));
        world.defines((0, 8), at(1));
        world.frees_parts((0, 8));
        world.settled().await;
        assert!(world.is_whole(first) && world.is_whole(second));
        world.frees_parts((1, 0));
        world.settled().await;
        assert!(world.is_whole(first) && !world.is_whole(second));
    })
    .await;
}

fn reads(version: u32) -> TaskSpec {
    let source = LocatedSource::Set { set: SetId::from_u128(9), version };
    TaskSpec { args: vec![LocatedArg { source, parts: Parts::All }], ..spec(1, Returns::One) }
}

#[tokio::test(start_paused = true)]
async fn a_set_is_asked_for_when_only_an_older_version_of_it_is_known() {
    in_a_world(async |mut world| {
        world.seals(object(1).copy(JOB, number(1)), 1).unwrap();
        world.defines((0, 1), Whereabouts::At(here(), number(1)));
        let spec = reads(2);
        world.tell(NodeMsg::Run { owner: here(), spec: spec.into() });
        assert!(matches!(world.told().await, OwnerMsg::SetUnknown { set, .. } if set == SetId::from_u128(9)));
        let OwnerMsg::Failed { failure, .. } = world.told().await else { panic!("what it means is not known") };
        assert_eq!((failure.kind, failure.lost.len()), (FailureKind::ArgumentLost, 0), "{failure}");
        world.defines((0, 3), Whereabouts::At(here(), number(1)));
        world.runs(&TaskSpec { attempt: Attempt::nth(2), ..reads(2) }).await;
    })
    .await;
}

/// A node that comes back may hear the end of what its predecessor had heard the beginning of.
#[tokio::test(start_paused = true)]
async fn a_set_whose_beginning_was_not_heard_is_not_empty() {
    in_a_world(async |mut world| {
        let members = [(object(2), Whereabouts::NoBytes)].into_iter().collect();
        let set = SetId::from_u128(9);
        world.tell(NodeMsg::DefineSet { job: JOB, run: 0, set, version: 0, start: 1, total: 2, members });
        world.tell(NodeMsg::Run { owner: here(), spec: reads(0).into() });
        assert!(matches!(world.told().await, OwnerMsg::SetUnknown { .. }));
        assert!(matches!(world.told().await, OwnerMsg::Failed { .. }));
    })
    .await;
}

/// Their Owner goes on, and does not know that an earlier run of the job has kept them.
#[tokio::test]
async fn copies_and_parts_that_an_owner_frees_stay_until_what_outlives_the_job_has_its_names() {
    let test = async {
        let spared = Spared::default();
        let world = World::in_cluster(spared.clone()).await;
        let copies = [1, 2].map(|counted| object(1).copy(JOB, number(counted)));
        for copy in copies {
            world.seals(copy, 1).unwrap();
        }
        world.defines((0, 1), Whereabouts::At(here(), number(2)));
        let freed = async |attempt| {
            world.tell(NodeMsg::Free { job: JOB, copies: [copies[0]].into_iter().collect() });
            world.frees_parts((0, 1));
            // It has been handled when what comes behind it has.
            world.runs(&spec(attempt, Returns::One)).await;
            [!world.store.contains(&copies[0]), !world.is_whole(copies[1])]
        };
        assert_eq!(freed(1).await, [false; 2], "they may be members of a result");
        let kept_back = [Unneeded::Copies(vec![copies[0]]), Unneeded::Parts(vec![copies[1]], Parts::one(0))];
        assert_eq!(spared.spare(BTreeMap::new()), kept_back);
        assert_eq!(freed(2).await, [true; 2]);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn objects_of_a_job_that_is_over_stay_until_what_outlives_it_has_its_names() {
    let test = async {
        let spared = Spared::default();
        let world = World::in_cluster(spared.clone()).await;
        let copy = spec(1, Returns::One).makes(0);
        world.seals(copy, 1).unwrap();
        let told_of_the_end = async |attempt| {
            world.tell(NodeMsg::EndJob { job: JOB });
            // It has been handled when what comes behind it has.
            world.runs(&spec(attempt, Returns::One)).await;
            world.store.contains(&copy)
        };
        assert!(told_of_the_end(2).await, "it may be a member of a result");
        assert_eq!(spared.spare(BTreeMap::new()), []);
        assert!(!told_of_the_end(3).await);
    };
    LocalSet::new().run_until(test).await;
}
