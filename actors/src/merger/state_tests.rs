//! The table of a Merger without a runtime, with a node that does what it is told and keeps its own ledger.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::state::{Effect, Key, State};
use crate::ids::{CopyId, JobId, NodeId};
use crate::task::Parts;

const CAP: u64 = 1000;
const JOB: JobId = JobId::from_u128(1);
const PIECES: [Parts; 2] = [Parts::Range(0, 4), Parts::Range(4, 6)];

fn copy(job: JobId, bits: u128) -> CopyId {
    CopyId::new(job.group(), bits)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Size,
    Copy,
}

/// What a fold was said to be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Folded {
    lane: (JobId, u32),
    blocks: Vec<u128>,
    bytes: u64,
    tight: bool,
}

struct World {
    state: State,
    fold_at: usize,
    works: BTreeMap<u64, (Doing, Key)>,
    /// Works that are over or were stopped: whose news come late.
    over: Vec<u64>,
    /// Bytes of each piece, as the node that has the object says.
    sizes: BTreeMap<Key, u64>,
    /// Copies that are here.
    copies: BTreeMap<Key, BTreeMap<Parts, u64>>,
    pushed: BTreeMap<(JobId, u32), BTreeSet<CopyId>>,
    folded: BTreeMap<(JobId, u32), BTreeSet<CopyId>>,
    folds: Vec<Folded>,
    asked: BTreeMap<u64, Vec<(JobId, CopyId, Parts)>>,
    answers: BTreeMap<u64, Vec<bool>>,
    looks: u64,
}

impl World {
    fn new(fold_at: usize) -> Self {
        Self {
            state: State::new(CAP),
            fold_at,
            works: BTreeMap::new(),
            over: Vec::new(),
            sizes: BTreeMap::new(),
            copies: BTreeMap::new(),
            pushed: BTreeMap::new(),
            folded: BTreeMap::new(),
            folds: Vec::new(),
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            looks: 0,
        }
    }

    fn opened(fold_at: usize) -> Self {
        let mut world = Self::new(fold_at);
        world.open(JOB, 0);
        world
    }

    fn open(&mut self, job: JobId, lane: u32) {
        self.state.open(job, lane, NodeId::new("owner"), PIECES.to_vec(), self.fold_at as u32);
        self.pushed.entry((job, lane)).or_default();
        self.settle();
    }

    /// `bytes` of each piece.
    fn push_to(&mut self, job: JobId, lane: u32, object: u128, bytes: Option<u64>) {
        let object = copy(job, object);
        self.state.push(job, lane, object, bytes.map(|_| NodeId::new("other")));
        self.sizes.entry((job, lane, object)).or_insert(bytes.unwrap_or(0));
        if let Some(pushed) = self.pushed.get_mut(&(job, lane)) {
            pushed.insert(object);
        }
        self.settle();
    }

    fn push(&mut self, object: u128, bytes: u64) {
        self.push_to(JOB, 0, object, Some(bytes));
    }

    /// Does what the state wants done, and checks that it may be.
    fn settle(&mut self) {
        for effect in self.state.flush() {
            match effect {
                Effect::Size { work, key, ranges, .. } => {
                    assert_eq!(ranges, PIECES);
                    assert!(self.works.insert(work, (Doing::Size, key)).is_none(), "a work has a number of its own");
                }
                Effect::Copy { work, key, ranges, .. } => {
                    assert_eq!(ranges, PIECES);
                    assert!(self.works.insert(work, (Doing::Copy, key)).is_none(), "a work has a number of its own");
                }
                Effect::Stop { work } => {
                    self.works.remove(&work).expect("only what is under way is stopped");
                    self.over.push(work);
                }
                Effect::Drop { key, bytes } => {
                    let dropped = self.copies.remove(&key).unwrap_or_default();
                    assert_eq!(dropped.values().sum::<u64>(), bytes, "{key:?}");
                }
                Effect::Answer { look, here } => {
                    let asked = self.asked.remove(&look).expect("a question is answered once");
                    for ((job, object, parts), here) in asked.iter().zip(&here) {
                        let of_object = |key: &&Key| key.0 == *job && key.2 == *object;
                        let copies =
                            self.copies.keys().filter(of_object).any(|key| self.copies[key].contains_key(parts));
                        assert_eq!(copies, *here, "{object} {parts:?}");
                    }
                    self.answers.insert(look, here);
                }
                Effect::FoldDue { job, owner, lane, blocks, bytes, tight } => {
                    assert_eq!(owner, NodeId::new("owner"));
                    assert!(!blocks.is_empty() && blocks.len() <= self.fold_at.max(2), "{blocks:?}");
                    assert!(tight || blocks.len() == self.fold_at, "{blocks:?}");
                    let folded = self.folded.entry((job, lane)).or_default();
                    for block in &blocks {
                        assert!(self.pushed[&(job, lane)].contains(block), "{block} was pushed");
                        assert!(folded.insert(*block), "{block} is folded once");
                    }
                    let blocks = blocks.iter().map(|block| block.bits).collect();
                    self.folds.push(Folded { lane: (job, lane), blocks, bytes, tight });
                }
            }
        }
        let of_work = |(doing, key): &(Doing, Key)| if *doing == Doing::Copy { self.bytes(key) } else { 0 };
        let coming: u64 = self.works.values().map(of_work).sum();
        let here: u64 = self.copies.values().flat_map(BTreeMap::values).sum();
        assert_eq!(self.state.held(), coming + here, "what is counted is what is held");
        assert!(coming + here <= CAP, "{coming} bytes are coming and {here} here");
    }

    fn bytes(&self, key: &Key) -> u64 {
        self.sizes[key] * PIECES.len() as u64
    }

    fn work_on(&self, object: u128) -> u64 {
        let mut works = self.works.iter().filter(|(_, (_, key))| key.2.bits == object);
        *works.next().expect("it is worked on").0
    }

    fn is_worked_on(&self, object: u128) -> bool {
        self.works.values().any(|(_, key)| key.2.bits == object)
    }

    /// Ends a work well.
    fn finish(&mut self, work: u64) {
        let Some((doing, key)) = self.works.remove(&work) else { return };
        self.over.push(work);
        let bytes = self.sizes[&key];
        match doing {
            Doing::Size => drop(self.state.sized(work, Some(vec![bytes; PIECES.len()]))),
            Doing::Copy => {
                if self.state.copied(work) == Some(key) {
                    self.copies.insert(key, PIECES.iter().map(|parts| (*parts, bytes)).collect());
                }
            }
        }
        self.settle();
    }

    /// Ends all works well, those of the node's memory permitting.
    fn finish_all(&mut self) {
        while let Some(work) = self.works.keys().next().copied() {
            self.finish(work);
        }
    }

    /// Brings a block to where its memory is asked for.
    fn size(&mut self, object: u128) {
        let work = self.work_on(object);
        assert_eq!(self.works[&work].0, Doing::Size);
        self.finish(work);
    }

    fn look(&mut self, pieces: &[(u128, Parts)]) -> u64 {
        self.look_of(JOB, pieces.iter().map(|(object, parts)| (copy(JOB, *object), *parts)).collect())
    }

    fn look_of(&mut self, job: JobId, pieces: Vec<(CopyId, Parts)>) -> u64 {
        self.looks += 1;
        self.asked.insert(self.looks, pieces.iter().map(|(object, parts)| (job, *object, *parts)).collect());
        self.state.look(self.looks, job, pieces);
        self.settle();
        self.looks
    }

    fn take(&mut self, job: JobId, object: u128, parts: Parts) -> bool {
        let taken = self.state.take(job, copy(job, object), parts);
        if let Some(key) = taken {
            let copies = self.copies.get_mut(&key).expect("what is taken is here");
            copies.remove(&parts).expect("and this piece of it");
            if copies.is_empty() {
                self.copies.remove(&key);
            }
        }
        self.settle();
        taken.is_some()
    }

    fn folds(&self) -> Vec<(Vec<u128>, u64, bool)> {
        self.folds.iter().map(|fold| (fold.blocks.clone(), fold.bytes, fold.tight)).collect()
    }
}

#[test]
fn a_fold_is_due_when_enough_blocks_are_here() {
    let mut world = World::opened(3);
    for object in 1..=4 {
        world.push(object, 10);
    }
    assert_eq!(world.folds(), []);
    // Whichever comes first.
    for object in [2, 4, 1, 3] {
        world.size(object);
        assert_eq!(world.folds(), []);
    }
    for object in [4, 2, 1, 3] {
        world.finish(world.work_on(object));
    }
    assert_eq!(world.folds(), [(vec![1, 2, 4], 60, false)], "in the order in which they were pushed");
}

#[test]
fn what_is_on_the_node_anyhow_counts_and_is_not_copied() {
    let mut world = World::opened(2);
    world.push_to(JOB, 0, 1, None);
    world.push_to(JOB, 0, 2, None);
    assert!(world.works.is_empty());
    assert_eq!(world.folds(), [(vec![1, 2], 0, false)]);
    assert_eq!(world.state.sizes(), [1, 0, 0, 0], "nothing is left but the lane");
}

#[test]
fn a_reservation_that_waits_makes_what_is_here_fold() {
    // How many make a fold, how many are here, whether they are folded when memory is short.
    for (fold_at, here, folds) in [(8, 1, false), (8, 2, true), (8, 6, true), (20, 4, false), (20, 5, true)] {
        let mut world = World::opened(fold_at);
        for object in 0..here {
            world.push(object, 1);
        }
        world.finish_all();
        world.push(100, 1);
        world.size(100);
        assert_eq!(world.folds(), []);
        let work = world.work_on(100);
        world.state.short(work);
        world.settle();
        let expected: Vec<_> = folds.then(|| ((0..here).collect(), 2 * here as u64, true)).into_iter().collect();
        assert_eq!(world.folds(), expected, "{here} of {fold_at}");
        assert!(world.is_worked_on(100), "it goes on waiting");
    }
}

#[test]
fn enough_blocks_are_folded_without_the_copies_that_wait_for_memory() {
    let mut world = World::opened(3);
    world.push(1, 1);
    world.finish_all();
    world.push(2, 1);
    world.size(2);
    let work = world.work_on(2);
    world.state.short(work);
    world.settle();
    world.push(3, 1);
    assert_eq!(world.folds(), [(vec![1, 2, 3], 2, true)]);
    assert!(world.works.is_empty(), "the merge fetches them itself");
}

#[test]
fn no_more_than_the_room_there_is_is_reserved_and_a_full_room_folds() {
    let mut world = World::opened(8);
    for object in 0..4 {
        world.push(object, 200);
    }
    world.finish_all();
    // Two of 400 bytes are here; for the third there is no room.
    assert_eq!(world.folds(), [(vec![0, 1], 800, true)]);
    for object in 0..2 {
        for parts in PIECES {
            assert!(world.take(JOB, object, parts));
        }
    }
    assert!(world.is_worked_on(2), "there is room again");
}

#[test]
fn what_is_larger_than_all_room_is_not_pushed_and_keeps_nobody_waiting() {
    let mut world = World::opened(2);
    world.push(1, CAP);
    world.push(2, 10);
    world.finish_all();
    assert_eq!(world.folds(), [(vec![1, 2], 20, false)]);
}

#[test]
fn when_arguments_need_memory_what_will_be_needed_last_goes_first() {
    let mut world = World::opened(2);
    for object in 1..=5 {
        world.push(object, 10);
        world.finish_all();
    }
    assert_eq!(world.folds().len(), 2);
    let here = |world: &World| world.copies.keys().map(|key| key.2.bits).collect::<Vec<_>>();
    for expected in [vec![1, 2, 3, 4], vec![1, 2, 3], vec![1, 2]] {
        world.state.tight(20);
        world.settle();
        assert_eq!(here(&world), expected);
    }
    world.state.tight(u64::MAX);
    world.settle();
    assert_eq!(here(&world), Vec::<u128>::new());
    // Which is no reason not to fold it.
    world.push_to(JOB, 0, 6, None);
    assert_eq!(world.folds().last(), Some(&(vec![5, 6], 0, false)));
}

#[test]
fn copies_under_way_are_stopped_for_arguments_too() {
    let mut world = World::opened(2);
    world.push(1, 10);
    world.size(1);
    let work = world.work_on(1);
    world.state.granted(work);
    world.settle();
    world.state.tight(1);
    world.settle();
    assert!(!world.is_worked_on(1));
    // Its last news come after the order to stop.
    assert_eq!(world.state.copied(work), None);
    world.settle();
}

#[test]
fn a_task_waits_for_bytes_that_come_and_not_for_memory() {
    let mut world = World::opened(3);
    for object in 1..=3 {
        world.push(object, 10);
        world.size(object);
    }
    let (first, second, third) = (world.work_on(1), world.work_on(2), world.work_on(3));
    world.finish(first);
    world.state.granted(second);
    world.settle();
    let pieces = [(1, PIECES[0]), (2, PIECES[0]), (3, PIECES[0]), (9, PIECES[0])];
    let look = world.look(&pieces);
    assert!(world.over.contains(&third), "it only has a place in a queue");
    assert_eq!(world.answers.get(&look), None);
    world.finish(second);
    assert_eq!(world.answers[&look], [true, true, false, false]);
    assert!(world.take(JOB, 1, PIECES[0]) && !world.take(JOB, 1, PIECES[0]), "there is one of it");
    assert!(world.take(JOB, 1, PIECES[1]), "the other piece is another task's");
    let look = world.look(&pieces);
    assert_eq!(world.answers[&look], [false, true, false, false]);
}

#[test]
fn copies_that_nobody_asked_for_make_room_after_some_folds() {
    let mut world = World::opened(1);
    for object in 0..6 {
        world.push(object, 125);
        world.finish_all();
    }
    let bytes: Vec<u64> = world.folds.iter().map(|fold| fold.bytes).collect();
    assert_eq!(bytes, [250, 250, 250, 250, 0, 250]);
    let here: Vec<u128> = world.copies.keys().map(|key| key.2.bits).collect();
    assert_eq!(here, [1, 2, 3, 5], "the oldest went");
}

#[test]
fn a_copy_that_fails_is_no_reason_to_wait() {
    let mut world = World::opened(2);
    world.push(1, 10);
    world.push(2, 10);
    let sizing = world.work_on(1);
    world.works.remove(&sizing);
    assert_eq!(world.state.sized(sizing, None), None);
    world.settle();
    world.size(2);
    let copying = world.work_on(2);
    world.works.remove(&copying);
    world.state.failed(copying);
    world.settle();
    assert_eq!(world.folds(), [(vec![1, 2], 0, false)]);
}

#[test]
fn one_job_ends_and_leaves_the_others_alone() {
    let (mut world, other) = (World::opened(4), JobId::from_u128(2));
    world.open(other, 0);
    for object in 0..3 {
        world.push(object, 10);
        world.push_to(other, 0, object, Some(10));
    }
    world.finish_all();
    let waits = world.look_of(other, vec![(copy(other, 0), PIECES[0])]);
    assert_eq!(world.answers[&waits], [true]);
    world.state.end(JOB);
    world.settle();
    assert_eq!(world.state.held(), 60);
    // What comes for it now is late.
    world.pushed.remove(&(JOB, 0));
    world.push(7, 10);
    assert_eq!(world.state.held(), 60);
    assert_eq!(world.state.sizes(), [1, 3, 0, 0]);
}

#[derive(Clone, Debug)]
enum Step {
    Open { job: u128, lane: u32 },
    Push { job: u128, lane: u32, object: u128, bytes: Option<u64> },
    Finish(usize),
    Fail(usize),
    Short(usize),
    Grant(usize),
    Late(usize),
    Tight(u64),
    Look { job: u128, objects: Vec<u128> },
    Take { job: u128, object: u128, piece: usize },
    End { job: u128 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (job, lane, object) = (1..3_u128, 0..2_u32, 0..40_u128);
    let bytes = prop_oneof![1 => Just(None), 6 => (0..200_u64).prop_map(Some), 1 => Just(Some(CAP))];
    let push = (job.clone(), lane.clone(), object.clone(), bytes);
    let step = prop_oneof![
        1 => (job.clone(), lane).prop_map(|(job, lane)| Step::Open { job, lane }),
        8 => push.prop_map(|(job, lane, object, bytes)| Step::Push { job, lane, object, bytes }),
        9 => any::<usize>().prop_map(Step::Finish),
        1 => any::<usize>().prop_map(Step::Fail),
        1 => any::<usize>().prop_map(Step::Short),
        3 => any::<usize>().prop_map(Step::Grant),
        1 => any::<usize>().prop_map(Step::Late),
        1 => (0..2 * CAP).prop_map(Step::Tight),
        2 => (job.clone(), prop::collection::vec(object.clone(), 1..5)).prop_map(|(job, objects)| Step::Look { job, objects }),
        4 => (job.clone(), object, 0..2_usize).prop_map(|(job, object, piece)| Step::Take { job, object, piece }),
        1 => job.prop_map(|job| Step::End { job }),
    ];
    prop::collection::vec(step, 1..300)
}

impl World {
    fn step(&mut self, step: Step) {
        let job = JobId::from_u128;
        let pick =
            |works: &BTreeMap<u64, (Doing, Key)>, nth: usize| works.keys().nth(nth % works.len().max(1)).copied();
        match step {
            Step::Open { job: of, lane } => self.open(job(of), lane),
            // What is repeated is as it was.
            Step::Push { job: of, lane, object, bytes } => {
                let known = self.sizes.get(&(job(of), lane, copy(job(of), object))).copied();
                // Folded and let go: the Owner's session tells nothing twice, so this is another block.
                let folded =
                    self.folded.get(&(job(of), lane)).is_some_and(|done| done.contains(&copy(job(of), object)));
                if !folded {
                    self.push_to(job(of), lane, object, known.map_or(bytes, |known| bytes.map(|_| known)));
                }
            }
            Step::Finish(nth) => drop(pick(&self.works, nth).map(|work| self.finish(work))),
            Step::Fail(nth) => {
                if let Some(work) = pick(&self.works, nth) {
                    match self.works.remove(&work).expect("picked just now").0 {
                        Doing::Size => drop(self.state.sized(work, None)),
                        Doing::Copy => self.state.failed(work),
                    }
                    self.over.push(work);
                }
            }
            Step::Short(nth) => drop(pick(&self.works, nth).map(|work| self.state.short(work))),
            Step::Grant(nth) => drop(pick(&self.works, nth).map(|work| self.state.granted(work))),
            Step::Late(nth) => {
                if let Some(work) = self.over.get(nth % self.over.len().max(1)).copied() {
                    self.state.short(work);
                    self.state.granted(work);
                    assert_eq!(self.state.sized(work, Some(vec![1; 2])), None);
                    assert_eq!(self.state.copied(work), None);
                    self.state.failed(work);
                }
            }
            Step::Tight(bytes) => {
                let before: u64 = self.copies.values().flat_map(BTreeMap::values).sum();
                self.state.tight(bytes);
                self.settle();
                let after: u64 = self.copies.values().flat_map(BTreeMap::values).sum();
                assert!(after <= before);
            }
            Step::Look { job: of, objects } => {
                let pieces = objects.iter().map(|object| (copy(job(of), *object), PIECES[0])).collect();
                self.look_of(job(of), pieces);
            }
            Step::Take { job: of, object, piece } => drop(self.take(job(of), object, PIECES[piece])),
            Step::End { job: of } => {
                self.state.end(job(of));
                for ledger in [&mut self.pushed, &mut self.folded] {
                    ledger.retain(|(this, _), _| *this != job(of));
                }
                self.settle();
                assert!(self.copies.keys().all(|key| key.0 != job(of)), "all copies of it have gone");
                assert!(self.works.values().all(|(_, key)| key.0 != job(of)), "and all works are stopped");
            }
        }
        self.settle();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Room is kept and counted with every step (`World::settle`); when all has come nobody waits, every lane has folded
    /// what makes a fold, and when all jobs are over nothing is left.
    #[test]
    fn whatever_comes_or_does_not_room_is_kept_nobody_waits_and_nothing_is_left(steps in steps(), fold_at in 1..6_usize) {
        let mut world = World::new(fold_at);
        for (job, lane) in [(1, 0), (1, 1), (2, 0)] {
            world.open(JobId::from_u128(job), lane);
        }
        for step in steps {
            world.step(step);
        }
        world.finish_all();
        prop_assert!(world.asked.is_empty(), "{:?} were not answered", world.asked);
        for (lane, pushed) in &world.pushed {
            let folded = world.folded.get(lane).map_or(0, BTreeSet::len);
            prop_assert!(pushed.len() - folded < fold_at, "{} of {} in {lane:?}", folded, pushed.len());
        }
        for job in [1, 2] {
            world.step(Step::End { job });
        }
        prop_assert_eq!(world.state.held(), 0);
        prop_assert_eq!(world.state.sizes(), [0; 4]);
        prop_assert!(world.copies.is_empty() && world.works.is_empty());
    }
}
