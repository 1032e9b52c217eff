//! Table, budget, allocator and spill files together, driven at random, against a model that only knows what every
//! caller is promised.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    alloc::PAGE,
    files::Files,
    ids::RowHash,
    meta::PartMeta,
    options::{Beside, Class},
    state::grants::{Claim, Granted, RequestItem},
};

pub(super) const MIB: u64 = 1 << 20;
pub(super) const CAPACITY: u64 = 4 << 20;

pub(super) fn state(dirs: usize) -> State {
    let dirs = (0..dirs).map(|nth| format!("/d{nth}").into()).collect();
    let mut state = State::new(CAPACITY, Files::new(dirs, 1), 3);
    state.backed = CAPACITY;
    state
}

pub(super) fn copy(bits: u128) -> CopyId {
    CopyId::new(1, bits)
}

pub(super) fn seal(state: &mut State, id: CopyId, span: Span, bytes: u64) {
    let part = PartMeta { offset: 0, bytes, rows: 1, row_hash: RowHash(id.bits), checksum: 0 };
    let extents = [NewExtent { start: 0, bytes, memory: Some(span), disk: None }];
    state.seal(Sealed { id, maker: 0, directory: Directory::new(&[part]), extents: &extents });
}

pub(super) fn room(bytes: u64) -> RequestItem {
    let part = PartMeta { offset: 0, bytes, rows: 0, row_hash: RowHash(0), checksum: 0 };
    RequestItem::Remote { metas: [part].into() }
}

fn local(object: CopyId) -> RequestItem {
    RequestItem::Local { object, parts: Parts::All }
}

/// What the world around the state is doing.
#[derive(Default)]
pub(super) struct World {
    loads: Vec<LoadJob>,
    pub(super) writes: Vec<WriteJob>,
    files: Vec<FileWork>,
    pub(super) woken: Vec<Ticket>,
    lost: Vec<CopyId>,
    /// Spans whose memory is given to the operating system, or comes back (`true`).
    pub(super) moves: Vec<(Span, bool)>,
    /// Spans without memory.
    pub(super) holes: Vec<Span>,
    /// Those of them that never get any again.
    gone: Vec<Span>,
    /// How often freed memory was given to the operating system.
    pub(super) released: usize,
}

impl World {
    pub(super) fn take(&mut self, state: &mut State) {
        for effect in std::mem::take(&mut state.effects) {
            match effect {
                Effect::Load(job) => self.loads.push(job),
                Effect::Write(job) => self.writes.push(job),
                Effect::File(work) => self.files.push(work),
                Effect::Wake(ticket) => self.woken.push(ticket),
                Effect::Tell(StoreEvent::ObjectLost { object, .. }) => self.lost.push(object),
                Effect::Withdraw(span) => self.moves.push((span, false)),
                Effect::Restore(span) => {
                    assert!(self.holes.contains(&span), "it was not given away");
                    self.moves.push((span, true));
                }
                Effect::Release => self.released += 1,
                Effect::Tell(_) | Effect::WakeOutputs | Effect::Granted(_) => {}
            }
        }
    }

    /// Ends one request of the disk; `false`: there is none.
    pub(super) fn step(&mut self, state: &mut State, nth: usize, fails: bool) -> bool {
        let (loads, writes) = (self.loads.len(), self.writes.len());
        if !self.moves.is_empty() && (nth.is_multiple_of(2) || loads + writes + self.files.len() == 0) {
            let (span, comes_back) = self.moves.swap_remove(nth % self.moves.len());
            if comes_back {
                self.holes.retain(|hole| *hole != span);
                if fails {
                    self.gone.push(span);
                }
                state.given_back(span, !fails);
            } else {
                self.holes.push(span);
                state.withdrawn(span);
            }
            self.take(state);
            return true;
        }
        if loads + writes + self.files.len() == 0 {
            return false;
        }
        let nth = nth % (loads + writes + self.files.len());
        if nth < loads {
            let job = self.loads.remove(nth);
            let error = StoreError::Corrupt { object: job.object, part: 0, file: "f".into(), offset: 0 };
            let from_disk = job.sources.iter().any(|source| matches!(source, Source::Disk { .. }));
            state.loaded(&job, if fails && from_disk { Err(error) } else { Ok(()) });
        } else if nth < loads + writes {
            let job = self.writes.remove(nth - loads);
            state.written(&job, if fails { Err("EIO".into()) } else { Ok(()) });
        } else {
            match self.files.remove(nth - loads - writes) {
                FileWork::Close(file) => {
                    let size = state.files.get(file).end + 2 * PAGE;
                    state.closed(file, if fails { Err("EIO".into()) } else { Ok(size) });
                }
                FileWork::Unlink(file) => state.unlinked(file),
            }
        }
        self.take(state);
        true
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put { bytes: u64, group: u128 },
    Scratch { bytes: u64 },
    DropScratch(usize),
    Request { class: bool, locals: Vec<usize>, room: u64, outside: u64 },
    Claim(usize),
    Cancel(usize),
    LetGo(usize),
    Delete(usize),
    DeleteGroup(u128),
    Disk { nth: usize, fails: bool },
    Outside { processes: bool, bytes: u64 },
    Grant { bytes: u64 },
    EndGrant { nth: usize, bytes: u64 },
    Cut { backed: u64 },
}

fn outside_of_requests() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0u64), 1 => 0u64..CAPACITY]
}

/// `faults`: of disks; `scarce`: of memory.
fn steps(faults: bool, scarce: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1u64..900_000, 0u128..3).prop_map(|(bytes, group)| Step::Put { bytes, group }),
        1 => (1u64..2_000_000).prop_map(|bytes| Step::Scratch { bytes }),
        1 => any::<usize>().prop_map(Step::DropScratch),
        4 => (any::<bool>(), prop::collection::vec(any::<usize>(), 0..4), 0u64..2_000_000, outside_of_requests())
            .prop_map(|(class, locals, room, outside)| Step::Request { class, locals, room, outside }),
        4 => any::<usize>().prop_map(Step::Claim),
        1 => any::<usize>().prop_map(Step::Cancel),
        4 => any::<usize>().prop_map(Step::LetGo),
        2 => any::<usize>().prop_map(Step::Delete),
        1 => (0u128..3).prop_map(Step::DeleteGroup),
        10 => (any::<usize>(), prop::bool::weighted(if faults || scarce { 0.05 } else { 0.0 }))
            .prop_map(|(nth, fails)| Step::Disk { nth, fails }),
        1 => (any::<bool>(), 0u64..8 << 20).prop_map(|(processes, bytes)| Step::Outside { processes, bytes }),
        2 => (0u64..CAPACITY).prop_map(|bytes| Step::Grant { bytes }),
        2 => (any::<usize>(), 0u64..CAPACITY).prop_map(|(nth, bytes)| Step::EndGrant { nth, bytes }),
        1 => (0u64..8 * CAPACITY).prop_map(move |backed| match scarce {
            true => Step::Cut { backed },
            false => Step::Disk { nth: backed as usize, fails: false },
        }),
    ];
    prop::collection::vec(step, 1..200)
}

/// A claimed grant: the bytes of the region nobody may hand out, and what the holder was promised.
pub(super) struct Held {
    pub(super) granted: Vec<Granted>,
    pub(super) class: Class,
    pub(super) bytes: u64,
}

#[derive(Default)]
struct Model {
    objects: BTreeSet<CopyId>,
    scratch: Vec<Span>,
    waiting: Vec<(Ticket, Class, usize)>,
    held: Vec<Held>,
    next_id: u128,
    /// What tables and processes are told to take.
    outside: [u64; 2],
    /// What was granted to those who run.
    grants: Vec<u64>,
    /// What lies behind is out of use.
    end: u64,
}

impl Model {
    /// Runs of the region that somebody uses, with whether the use is shared.
    fn used(&self, state: &State) -> Vec<(Span, bool)> {
        let mut used: Vec<(Span, bool)> = self.scratch.iter().map(|span| (*span, false)).collect();
        for granted in self.held.iter().flat_map(|held| &held.granted) {
            match *granted {
                Granted::Empty | Granted::Outside { .. } => {}
                Granted::Private { span, .. } => used.push((span, false)),
                Granted::Shared { extent, offset, bytes } => {
                    let memory = state.table.extent(extent).memory().expect("what is held is in memory");
                    assert!(memory.offset <= offset && offset + bytes <= memory.end(), "a view beyond its extent");
                    assert!(!state.table.extent(extent).loading, "claimed before it was loaded");
                    used.push((memory, true));
                }
            }
        }
        used
    }

    fn check(&self, state: &State, world: &World) {
        let gone = world.gone.iter().map(|span| span.end().min(self.end).saturating_sub(span.offset));
        assert_eq!(state.budget.capacity(), self.end - gone.sum::<u64>(), "what can ever be handed out");
        assert!(self.end < CAPACITY || !world.gone.is_empty() || state.budget.used() <= state.budget.capacity());
        let mut used = self.used(state);
        let moves = world.moves.iter().filter(|(_, comes_back)| !comes_back).map(|(span, _)| *span);
        used.extend(world.holes.iter().copied().chain(moves).map(|span| (span, false)));
        used.extend(world.gone.iter().map(|span| (*span, false)));
        used.sort();
        for pair in used.windows(2) {
            let same = pair[0] == pair[1] && pair[0].1;
            assert!(same || pair[0].0.end() <= pair[1].0.offset, "two users of one place: {pair:?}");
        }
        used.dedup();
        let held: u64 = used.iter().map(|(span, _)| span.bytes).sum::<u64>()
            - world.gone.iter().map(|span| span.bytes).sum::<u64>();
        assert!(held <= state.budget.used(), "{held} bytes are held, {} are counted", state.budget.used());
        assert_eq!(state.table.len(), self.objects.len());
        for id in &self.objects {
            assert!(state.meta(id).is_some(), "object {id} is missing");
        }
        let with_arguments = self.held.iter().flat_map(|held| &held.granted).map(|granted| match granted {
            Granted::Outside { bytes } => *bytes,
            _ => 0,
        });
        let granted = self.grants.iter().sum::<u64>() + with_arguments.sum::<u64>();
        assert!(state.granted_bytes() >= granted, "what was granted is counted");
        let without = (world.holes.iter().map(|hole| hole.bytes)).sum::<u64>() + state.outside_leaving();
        assert!(without >= state.granted_bytes(), "the region has given way for what was granted: {state:?}");
        assert!(state.granted_bytes() <= state.granted_max() || self.end < CAPACITY || !world.gone.is_empty());
        let prefetched: u64 =
            self.held.iter().filter(|held| held.class == Class::Prefetch).map(|held| held.bytes).sum();
        assert_eq!(state.budget.prefetched(), prefetched);
    }
}

fn run(steps: Vec<Step>, dirs: usize) {
    run_with(state(dirs), steps, dirs);
}

fn run_with(mut state: State, steps: Vec<Step>, dirs: usize) {
    let (mut world, mut model) = (World::default(), Model { end: CAPACITY, ..Model::default() });
    for step in steps {
        state.backed = state.backed.max(state.budget.peak());
        apply(step, &mut state, &mut world, &mut model);
        world.take(&mut state);
        for id in world.lost.drain(..) {
            model.objects.remove(&id);
        }
        model.check(&state, &world);
    }
    // Progress: with nobody holding anything, every request is answered once the disk is idle.
    for span in std::mem::take(&mut model.scratch) {
        state.free(span);
    }
    for held in std::mem::take(&mut model.held) {
        let_go(&mut state, held);
    }
    for bytes in std::mem::take(&mut model.grants) {
        state.end_grant(bytes);
    }
    world.take(&mut state);
    while !model.waiting.is_empty() {
        while world.step(&mut state, 0, false) {}
        let before = model.waiting.len();
        for (ticket, ..) in std::mem::take(&mut model.waiting) {
            match state.claim(ticket) {
                Claim::Wait => model.waiting.push((ticket, Class::Arguments, 0)),
                Claim::Failed(_) => {}
                Claim::Got { granted, class, bytes, .. } => let_go(&mut state, Held { granted, class, bytes }),
            }
            world.take(&mut state);
        }
        assert!(model.waiting.len() < before, "requests wait for ever: {:?}", state.budget);
    }
    // Everything goes.
    state.tell_outside(Beside::Tables, model.outside[0], 0);
    state.tell_outside(Beside::Processes, model.outside[1], 0);
    for group in 0..3 {
        while state.delete_some_of_group(group, 7) {}
    }
    world.take(&mut state);
    while world.step(&mut state, 0, false) {}
    assert_eq!(state.budget.used(), state.surplus_bytes(), "what nobody takes is surplus");
    assert_eq!(state.stats().used_bytes, 0);
    state.recall_all();
    world.take(&mut state);
    while world.step(&mut state, 0, false) {}
    assert_eq!((state.table.len(), state.budget.used(), state.budget.waiting()), (0, 0, 0));
    assert_eq!(state.granted_bytes(), 0);
    state.allocator.release_empty();
    assert_eq!(state.allocator.free_bytes(), state.budget.capacity(), "memory was lost");
    assert!(state.files.count() <= 2 * dirs as u64, "files without blocks are left");
}

pub(super) fn let_go(state: &mut State, held: Held) {
    for granted in held.granted {
        match granted {
            Granted::Empty => {}
            Granted::Shared { extent, .. } => state.unpin(extent),
            Granted::Private { span, .. } => state.free(span),
            Granted::Outside { bytes } => state.end_grant(bytes),
        }
    }
    if held.class == Class::Prefetch {
        state.prefetch_ended(held.bytes);
    }
}

fn apply(step: Step, state: &mut State, world: &mut World, model: &mut Model) {
    match step {
        Step::Put { bytes, group } => {
            // What a writer does, with the disk working while it waits.
            let span = loop {
                if let Some(span) = state.allocate(bytes, false) {
                    break Some(span);
                }
                if !state.will_come_free(bytes, false) {
                    break None;
                }
                let takes = State::takes(bytes, false);
                state.budget.outputs_wait(takes);
                state.pump();
                world.take(state);
                state.budget.outputs_waited(takes);
                assert!(world.step(state, 0, false), "an output waits for a disk that does nothing: {state:?}");
            };
            if let Some(span) = span {
                assert!(span.end() <= model.end, "there is no memory behind {span:?}");
                model.next_id += 1;
                let id = CopyId::new(group, model.next_id);
                seal(state, id, span, bytes);
                model.objects.insert(id);
            }
        }
        Step::Scratch { bytes } => model.scratch.extend(state.allocate(bytes, true)),
        Step::DropScratch(nth) => {
            if !model.scratch.is_empty() {
                let span = model.scratch.swap_remove(nth % model.scratch.len());
                state.free(span);
            }
        }
        Step::Request { class, locals, room: bytes, outside } => {
            let class = if class { Class::Arguments } else { Class::Prefetch };
            let ids: Vec<CopyId> = model.objects.iter().copied().collect();
            let mut items: Vec<RequestItem> =
                locals.iter().filter(|_| !ids.is_empty()).map(|nth| local(ids[nth % ids.len()])).collect();
            items.push(room(bytes));
            items.push(RequestItem::Outside { bytes: outside });
            let count = items.len();
            match state.request(class, items) {
                Ok(ticket) => model.waiting.push((ticket, class, count)),
                Err(StoreError::TooLarge { .. } | StoreError::NeverGranted { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        Step::Claim(nth) => {
            if !model.waiting.is_empty() {
                let (ticket, class, count) = model.waiting.remove(nth % model.waiting.len());
                match state.claim(ticket) {
                    Claim::Wait => model.waiting.push((ticket, class, count)),
                    Claim::Failed(_) => {}
                    Claim::Got { granted, class, bytes, .. } => {
                        assert_eq!(granted.len(), count, "all or nothing");
                        model.held.push(Held { granted, class, bytes });
                    }
                }
            }
        }
        Step::Cancel(nth) => {
            if !model.waiting.is_empty() {
                let (ticket, ..) = model.waiting.remove(nth % model.waiting.len());
                state.cancel(ticket);
            }
        }
        Step::LetGo(nth) => {
            if !model.held.is_empty() {
                let held = model.held.swap_remove(nth % model.held.len());
                let_go(state, held);
            }
        }
        Step::Delete(nth) => {
            if let Some(id) = model.objects.iter().nth(nth % model.objects.len().max(1)).copied() {
                model.objects.remove(&id);
                state.delete(&[id]);
            }
        }
        Step::DeleteGroup(group) => {
            model.objects.retain(|id| id.group != group);
            while state.delete_some_of_group(group, 3) {}
        }
        Step::Outside { processes, bytes } => {
            let kind = if processes { Beside::Processes } else { Beside::Tables };
            state.tell_outside(kind, model.outside[usize::from(processes)], bytes);
            model.outside[usize::from(processes)] = bytes;
        }
        Step::Grant { bytes } => {
            // As who asks, with the disk working while it waits.
            let granted = loop {
                if state.grant_outside(bytes) {
                    break true;
                }
                if !state.can_grant_soon(bytes) {
                    break false;
                }
                let waits = state.grant_waits(bytes);
                state.pump();
                world.take(state);
                state.grant_waited(waits);
                assert!(world.step(state, 0, false), "a grant waits for a disk that does nothing: {state:?}");
            };
            if granted {
                model.grants.push(bytes);
            }
        }
        Step::EndGrant { nth, bytes } => {
            if !model.grants.is_empty() {
                let nth = nth % model.grants.len();
                let less = bytes.min(model.grants[nth]);
                model.grants[nth] -= less;
                state.end_grant(less);
            }
        }
        Step::Disk { nth, fails } => {
            world.step(state, nth, fails);
        }
        Step::Cut { backed } => {
            model.end = model.end.min(backed / PAGE * PAGE);
            state.cut(backed);
        }
    }
}

// `PROPTEST_CASES=30000` for a long run.
proptest! {
    #[test]
    fn promises_hold_whatever_happens(steps in steps(false, false)) {
        run(steps, 1);
    }

    #[test]
    fn promises_hold_with_disks_that_fail(steps in steps(true, false)) {
        run(steps, 2);
    }

    /// The machine has less memory than the region, and what was lent to tables does not come back.
    #[test]
    fn promises_hold_where_memory_runs_out(steps in steps(false, true)) {
        run(steps, 1);
    }

    #[test]
    fn promises_hold_without_any_disk(steps in steps(false, false)) {
        run(steps, 0);
    }
}

/// A store of which a quarter was touched, and whose new memory is slow.
fn slow_state(dirs: usize) -> State {
    State { backed: CAPACITY / 4, grows_slowly: true, grow_freely_bytes: CAPACITY / 4, ..state(dirs) }
}

proptest! {
    #[test]
    fn promises_hold_where_new_memory_is_slow(steps in steps(true, false)) {
        run_with(slow_state(2), steps, 2);
    }
}

#[test]
fn slow_new_memory_is_touched_only_when_nothing_clean_can_be_taken() {
    let mut state = slow_state(1);
    let mut world = World::default();
    for id in 1..=2 {
        let span = state.allocate(CAPACITY / 8, true).unwrap();
        seal(&mut state, copy(id), span, CAPACITY / 8);
    }
    world.take(&mut state);
    assert!(!world.writes.is_empty(), "what was touched is full: the disk begins");
    assert_eq!(state.counters.early_bytes, state.table.writing_bytes(), "and it is known why");
    let grown = state.allocate(CAPACITY / 8, true).unwrap();
    assert_eq!(grown.end(), CAPACITY * 3 / 8, "nobody waits for the disk");
    while world.step(&mut state, 0, false) {}
    state.backed = grown.end();
    let span = state.allocate(CAPACITY / 8, true).unwrap();
    assert_eq!(span.offset, 0, "the memory of the oldest, which is on disk");
    assert_eq!(state.allocate(CAPACITY / 2, true).map(|span| span.end()), Some(CAPACITY * 7 / 8));
}

#[test]
fn a_tiny_object_costs_less_than_200_bytes_of_metadata() {
    // The table's own share; the ids' tree has 20 bytes of key and value in nodes at least half full.
    let object = size_of::<Option<crate::table::Object>>();
    let extent = size_of::<Option<crate::table::Extent>>();
    assert!(object + extent + 40 <= 200, "{object} + {extent}");
}

#[test]
fn small_requests_are_written_when_somebody_waits_and_large_ones_otherwise() {
    let mut state = state(1);
    let span = state.allocate(3 << 20, false).unwrap();
    seal(&mut state, copy(1), span, 3 << 20);
    let mut world = World::default();
    world.take(&mut state);
    assert!(world.writes.is_empty() || world.writes[0].bytes >= 3 << 20);
    let ticket = state.request(Class::Arguments, vec![room(2 << 20)]).unwrap();
    world.take(&mut state);
    assert_eq!(world.writes.len(), 1);
    assert!(matches!(state.claim(ticket), Claim::Wait));
    assert!(world.step(&mut state, 0, false));
    assert!(matches!(state.claim(ticket), Claim::Got { .. }));
}

#[test]
fn what_is_taken_beside_the_region_is_taken_from_it_and_comes_back() {
    let (mut state, mut world) = (state(1), World::default());
    let mut tell = |before: u64, now: u64, state: &mut State| {
        state.tell_outside(Beside::Tables, before, now);
        world.take(state);
        while world.step(state, 0, false) {}
        state.budget.used()
    };
    // Little is set aside already, and what is no whole span is not worth one.
    assert_eq!(tell(0, outside::FREE + MIB - 1, &mut state), 0);
    assert_eq!(tell(outside::FREE + MIB - 1, outside::FREE + MIB, &mut state), MIB);
    // Half of the region at most, from behind.
    assert_eq!(tell(outside::FREE + MIB, 100 * MIB, &mut state), CAPACITY / 2);
    assert_eq!(state.allocate(CAPACITY / 2, true), Some(Span { offset: 0, bytes: CAPACITY / 2 }));
    assert_eq!(state.allocate(1, true), None);
    assert_eq!(tell(100 * MIB, 0, &mut state), CAPACITY * 3 / 4, "what is scratch, and what is not lacking");
    assert_eq!(state.stats().used_bytes, CAPACITY / 2, "what is scratch");
    assert!(state.will_come_free(CAPACITY / 2, true));
    state.budget.outputs_wait(CAPACITY / 2);
    state.pump();
    world.take(&mut state);
    while world.step(&mut state, 0, false) {}
    assert!(state.allocate(CAPACITY / 2, true).is_some());
}

#[test]
fn tables_make_objects_spill_and_directories_count_as_tables() {
    let (mut state, mut world) = (state(1), World::default());
    let span = state.allocate(CAPACITY, true).unwrap();
    seal(&mut state, copy(1), span, CAPACITY);
    let before = state.outside_bytes();
    assert!(before > 0, "the entry of an object");
    state.tell_outside(Beside::Tables, 0, outside::FREE + (1 << 20));
    world.take(&mut state);
    assert_eq!(world.writes.len(), 1, "what is dirty is written for a table");
    while world.step(&mut state, 0, false) {}
    assert_eq!(world.holes.len(), 1, "and the memory goes to the operating system");
    state.delete(&[copy(1)]);
    assert_eq!(state.outside_bytes(), outside::FREE + (1 << 20));
}

#[test]
fn tables_give_way_to_a_request_that_waits_for_nothing_else() {
    let (mut state, mut world) = (state(1), World::default());
    state.tell_outside(Beside::Tables, 0, 100 << 20);
    world.take(&mut state);
    while world.step(&mut state, 0, false) {}
    assert_eq!(state.budget.used(), CAPACITY / 2);
    let ticket = state.request(Class::Arguments, vec![room(CAPACITY - PAGE)]).unwrap();
    world.take(&mut state);
    assert!(matches!(state.claim(ticket), Claim::Wait));
    while world.step(&mut state, 0, false) {}
    let Claim::Got { granted, class, bytes, .. } = state.claim(ticket) else { panic!("{state:?}") };
    assert_eq!(state.pinned_bytes(), CAPACITY - PAGE);
    let_go(&mut state, Held { granted, class, bytes });
    world.take(&mut state);
    while world.step(&mut state, 0, false) {}
    assert_eq!(state.budget.used(), CAPACITY / 2, "then they count again");
}

#[test]
fn after_a_cut_under_spans_for_tables_no_more_is_promised_than_is_left() {
    let (mut state, mut world) = (state(1), World::default());
    state.tell_outside(Beside::Tables, 0, 100 << 20);
    world.take(&mut state);
    while world.step(&mut state, 0, false) {}
    let scratch = state.allocate(CAPACITY / 4, true).unwrap();
    assert_eq!(state.budget.used(), CAPACITY * 3 / 4);
    let waits = state.request(Class::Arguments, vec![room(CAPACITY * 3 / 4)]).unwrap();
    state.cut(CAPACITY / 2);
    assert!(matches!(state.claim(waits), Claim::Failed(StoreError::TooLarge { .. })));
    state.tell_outside(Beside::Tables, 100 << 20, 0);
    state.free(scratch);
    world.take(&mut state);
    while world.step(&mut state, 0, false) {}
    assert_eq!((state.budget.used(), state.budget.capacity()), (0, CAPACITY / 2));
    let refused = state.request(Class::Arguments, vec![room(CAPACITY / 2 + PAGE)]);
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{refused:?}");
    let most = state.request(Class::Arguments, vec![room(CAPACITY / 2)]).unwrap();
    assert!(matches!(state.claim(most), Claim::Got { .. }));
}
