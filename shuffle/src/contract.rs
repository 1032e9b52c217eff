//! What every strategy owes, clause by clause; each strategy runs all of them, on one node and on a cluster.
//!
//! ```ignore
//! exobus_shuffle::strategy_contract!(crate::harness::one_node);
//! ```
//! makes a test of each clause for each strategy; the argument is an async function that gives a [`World`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::futures::future;
use exobus_actors::event::{EventKind, EventSink};
use exobus_actors::futures::{Futures, ObjectRef, ObjectSet};
use exobus_actors::ids::{Attempt, JobId, NodeId, RowHash};
use exobus_actors::node::Node;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{Arg, JobError, Output, Place, TaskOptions};
use exobus_store::Block;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::cuts::Cuts;
use crate::job::{Draw, Job, KeyRanges};
use crate::jobs::sort::{draw_task, merge_parts, split_task};
use crate::kernels::{self, sort_scratch_bytes};
use crate::plan::Plan;
use crate::records::{KEY_BYTES, RECORD_BYTES, row_hash_sum};
use crate::strategies::Strategy;
use crate::strategies::streaming::{self, Round};

/// Where a clause runs.
pub struct World {
    /// One node, or those of a cluster; jobs run on the first.
    pub nodes: Vec<Node>,
    /// What has to live as long.
    pub keep: Box<dyn std::any::Any + Send>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({:?})", self.nodes)
    }
}

/// What is shuffled.
#[derive(Clone, Debug)]
pub struct Case {
    /// Rows of each map.
    pub rows: Vec<u64>,
    /// How many partitions.
    pub partitions: u32,
    /// How keys are spread.
    pub keys: Keys,
    /// Sizes of windows, rounds and merges.
    pub plan: Plan,
    /// Merges, counted as they are submitted, that do not end.
    pub stalls: Range<u64>,
    /// A map whose first attempt fails.
    pub fails_once: Option<u64>,
    /// A partition whose reduce leaves a row out of its books.
    pub loses_a_row: Option<u32>,
}

impl Case {
    /// Seven maps of a thousand rows, five partitions, rounds of three maps.
    pub fn usual() -> Self {
        let plan = Plan {
            input_bytes: 7 * 1000 * RECORD_BYTES as u64,
            chunk_bytes: 1000 * RECORD_BYTES as u64,
            map_scratch_bytes: 0,
            partitions: 5,
            maps_in_flight: 4,
            output_buffer_bytes: 0,
            merge_factor: 2,
            maps_per_round: 3,
            groups_per_node: 2,
            merge_memory_bytes: u64::MAX,
            piece_bytes: 100_000,
            keep_map_outputs: false,
            range_max_bytes: u64::MAX,
        };
        Self {
            rows: vec![1000; 7],
            partitions: 5,
            keys: Keys::Even,
            plan,
            stalls: 0..0,
            fails_once: None,
            loses_a_row: None,
        }
    }

    fn with(rows: Vec<u64>, partitions: u32) -> Self {
        let usual = Self::usual();
        Self { rows, partitions, plan: Plan { partitions, ..usual.plan }, ..usual }
    }

    /// The rows of a map: the key is the hash of the row's number, or what `keys` makes of it.
    fn records(keys: Keys, map: u64, rows: u64) -> Vec<u8> {
        let mut bytes = vec![0; rows as usize * RECORD_BYTES];
        for (row, record) in bytes.chunks_mut(RECORD_BYTES).enumerate() {
            let number = (u128::from(map) << 64) | row as u128;
            let key = RowHash(number).0.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes();
            let key = match (keys, row % 10) {
                (Keys::Even, _) | (Keys::Skewed, 0) => &key[..KEY_BYTES],
                // Under the third part of one key, the rest just above it.
                (Keys::Skewed, 1..4) => &[0, 0, 7],
                (Keys::Skewed, _) => &[&[0, 0, 7][..], &key[..KEY_BYTES - 3]].concat(),
                (Keys::Hot, _) => &[],
            };
            record[..key.len()].copy_from_slice(key);
            record[KEY_BYTES..KEY_BYTES + 16].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn expected(&self) -> Output {
        let mut expected = Output::default();
        for (map, rows) in (0u64..).zip(&self.rows) {
            let bytes = Self::records(self.keys, map, *rows);
            expected.add(Output { bytes: bytes.len() as u64, rows: *rows, row_hash: row_hash_sum(&bytes) });
        }
        expected
    }
}

/// How the keys of a case are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keys {
    /// Evenly.
    Even,
    /// Nine tenths are in the first partition, next to each other; a third of them are one key.
    Skewed,
    /// There is one key.
    Hot,
}

#[derive(Debug, Serialize, Deserialize)]
struct MapParams {
    map: u64,
    rows: u64,
    partitions: u32,
    keys: Keys,
    fails_once: bool,
}

/// Maps of this process that have ended.
static MAPS_ENDED: AtomicU64 = AtomicU64::new(0);

#[task(name = "contract.map", deterministic = true)]
fn contract_map(context: &mut TaskContext<'_>, params: MapParams) -> Result<(), TaskError> {
    if params.fails_once && context.attempt() == Attempt::FIRST {
        return Err(TaskError::failed("the first attempt fails"));
    }
    let bytes = Case::records(params.keys, params.map, params.rows);
    let mut scratch = vec![0; sort_scratch_bytes(params.rows as usize)];
    let sorted = kernels::sort(&bytes, &mut scratch);
    let cuts = Cuts::even(params.partitions as usize).map_err(TaskError::fatal)?;
    let bounds = sorted.bounds(&cuts);
    let writer = context.output()?;
    for part in bounds.windows(2) {
        let mut rows = vec![0; (part[1] - part[0]) * RECORD_BYTES];
        let hash = sorted.gather(part[0]..part[1], &mut rows);
        writer.begin_part(None)?;
        writer.write(&rows)?;
        writer.end_part((part[1] - part[0]) as u64, hash);
    }
    MAPS_ENDED.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

/// Merges of this process that did not end by themselves.
static MERGES_STALLED: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Serialize, Deserialize)]
struct MergeParams {
    pieces: Vec<u32>,
    stalls: bool,
}

#[task(name = "contract.merge", arguments = [either], deterministic = true)]
fn contract_merge(context: &mut TaskContext<'_>, params: MergeParams) -> Result<(), TaskError> {
    if params.stalls {
        MERGES_STALLED.fetch_add(1, Ordering::SeqCst);
        while !context.cancelled() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
    merge_parts(context, &params.pieces)
}

/// What a reduce saw.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    partition: u32,
    output: Output,
    ordered: bool,
    first: Vec<u8>,
    last: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ReduceParams {
    partition: u32,
    loses_a_row: bool,
}

#[task(name = "contract.reduce", deterministic = true)]
fn contract_reduce(context: &mut TaskContext<'_>, params: ReduceParams) -> Result<Seen, TaskError> {
    let args: Vec<Vec<Block>> = (0..context.args()).map(|arg| context.blocks(arg)).collect();
    let blocks: Vec<&Block> = args.iter().flatten().collect();
    let runs = blocks.iter().filter(|block| !block.is_empty()).map(|block| kernels::SliceRun::new(block)).collect();
    let mut merge = kernels::Merge::new(runs)?;
    let mut bytes = vec![0; blocks.iter().map(|block| block.len()).sum()];
    let merged = merge.next_into(&mut bytes)?;
    if merged != bytes.len() {
        return Err(TaskError::fatal(format!("{merged} of {} bytes were merged", bytes.len())));
    }
    let lost = u64::from(params.loses_a_row);
    for (arg, blocks) in args.iter().enumerate() {
        let lost = if arg == 0 { lost } else { 0 };
        let bytes: u64 = blocks.iter().map(|block| block.len() as u64).sum();
        let row_hash = blocks.iter().map(|block| row_hash_sum(block)).sum();
        context.consumed(arg, bytes - lost * RECORD_BYTES as u64, bytes / RECORD_BYTES as u64 - lost, row_hash);
    }
    let keys: Vec<&[u8]> = bytes.chunks(RECORD_BYTES).map(|record| &record[..KEY_BYTES]).collect();
    let end = |key: Option<&&[u8]>| key.map(|key| key.to_vec()).unwrap_or_default();
    Ok(Seen {
        partition: params.partition,
        output: Output { bytes: merged as u64, rows: merge.rows(), row_hash: row_hash_sum(&bytes) },
        ordered: keys.is_sorted(),
        first: end(keys.first()),
        last: end(keys.last()),
    })
}

/// The job of the contract: rows that are made by their number, reduced to what was seen of them.
struct Counted {
    case: Case,
    submitted: AtomicU64,
    merges: AtomicU64,
    most_pieces: AtomicU64,
    ended_before: u64,
    most_in_flight: AtomicU64,
    /// Told when so many maps, merges and reduces have been submitted.
    seen_enough: Notify,
    enough: u64,
    tasks: AtomicU64,
}

impl Counted {
    fn new(case: Case) -> Self {
        Self {
            case,
            seen_enough: Notify::new(),
            enough: u64::MAX,
            tasks: AtomicU64::new(0),
            submitted: AtomicU64::new(0),
            merges: AtomicU64::new(0),
            most_pieces: AtomicU64::new(0),
            ended_before: MAPS_ENDED.load(Ordering::SeqCst),
            most_in_flight: AtomicU64::new(0),
        }
    }
}

impl Counted {
    fn counts_a_task(&self) {
        if self.tasks.fetch_add(1, Ordering::SeqCst) + 1 == self.enough {
            self.seen_enough.notify_one();
        }
    }
}

impl Job for Counted {
    fn name(&self) -> &'static str {
        "contract"
    }

    fn map(&self, futures: &Futures, index: usize, place: Place) -> Result<ObjectRef, JobError> {
        self.counts_a_task();
        let submitted = self.submitted.fetch_add(1, Ordering::SeqCst) + 1;
        let ended = MAPS_ENDED.load(Ordering::SeqCst) - self.ended_before;
        self.most_in_flight.fetch_max(submitted.saturating_sub(ended), Ordering::SeqCst);
        let map = index as u64;
        let params = MapParams {
            map,
            rows: self.case.rows[index],
            partitions: self.case.partitions,
            keys: self.case.keys,
            fails_once: self.case.fails_once == Some(map),
        };
        futures.submit_with(contract_map, &params, &[], TaskOptions { place, ..TaskOptions::default() })
    }

    fn merge(
        &self,
        futures: &Futures,
        blocks: &[Arg],
        pieces: &[u32],
        place: Place,
    ) -> Result<Vec<ObjectRef>, JobError> {
        self.counts_a_task();
        self.most_pieces.fetch_max(pieces.len() as u64, Ordering::SeqCst);
        let stalls = self.case.stalls.contains(&self.merges.fetch_add(1, Ordering::SeqCst));
        let whole_max_bytes = self.case.plan.merge_memory_bytes;
        let options = TaskOptions { place, whole_max_bytes, ..TaskOptions::default() };
        let params = MergeParams { pieces: pieces.to_vec(), stalls };
        futures.submit_many(contract_merge, &params, blocks, pieces.len() as u32, options)
    }

    fn reduce(&self, futures: &Futures, partition: u32, columns: &[Arg], place: Place) -> Result<ObjectRef, JobError> {
        self.counts_a_task();
        let params = ReduceParams { partition, loses_a_row: self.case.loses_a_row == Some(partition) };
        futures.submit_with(contract_reduce, &params, columns, TaskOptions { place, ..TaskOptions::default() })
    }

    fn key_ranges(&self) -> Option<&dyn KeyRanges> {
        Some(self)
    }
}

impl KeyRanges for Counted {
    fn sample(&self, futures: &Futures, column: Arg, draw: Draw, node: &NodeId) -> Result<ObjectRef, JobError> {
        draw_task(futures, column, draw, node)
    }

    fn split(&self, futures: &Futures, column: Arg, cuts: &ObjectRef, place: Place) -> Result<ObjectRef, JobError> {
        split_task(futures, column, cuts, place, self.case.plan.merge_memory_bytes)
    }

    fn reduce_range(
        &self,
        futures: &Futures,
        partition: u32,
        _range: &[u32],
        columns: &[Arg],
        place: Place,
    ) -> Result<ObjectRef, JobError> {
        self.reduce(futures, partition, columns, place)
    }
}

/// What came of a case.
#[derive(Debug)]
struct Ran {
    seen: Vec<Seen>,
    mapped: Output,
    most_in_flight: u64,
    /// Outputs of a merge.
    most_pieces: u64,
}

async fn run(world: &World, strategy: Strategy, case: &Case) -> Result<Ran, JobError> {
    let case = case.clone();
    let program = async move |futures: Futures| -> Result<Ran, JobError> {
        let (maps, plan) = (case.rows.len(), case.plan);
        let job = Counted::new(case);
        let shuffled = strategy.run(&futures, &job, maps, &plan).await?;
        let mut seen = Vec::new();
        for output in &shuffled.outputs {
            seen.push(futures.get_value(output).await?);
        }
        let (most_in_flight, most_pieces) = (job.most_in_flight.into_inner(), job.most_pieces.into_inner());
        Ok(Ran { seen, mapped: shuffled.mapped, most_in_flight, most_pieces })
    };
    world.nodes[0].run(JobId::new(), "contract", Some(what_it_waits_for()), program).await.0
}

/// Prints what a job waits for that makes no progress, so that a clause that never ends says where it is.
fn what_it_waits_for() -> EventSink {
    EventSink::new(|event| {
        if let EventKind::Waiting { what, reason, for_ms } = &event.kind {
            eprintln!("{what} has waited for {for_ms} ms: {reason}");
        }
    })
}

/// Runs a case and checks what holds of all of them.
async fn check(world: &World, strategy: Strategy, case: &Case) -> Ran {
    let ran = run(world, strategy, case).await.unwrap_or_else(|error| panic!("{}: {error}", strategy.name()));
    let mut seen = Output::default();
    ran.seen.iter().for_each(|partition| seen.add(partition.output));
    let expected = case.expected();
    assert_eq!(seen, expected, "{}: every row once", strategy.name());
    assert_eq!(ran.mapped, expected, "{}: what the maps made is counted", strategy.name());
    let mut partitions: Vec<u32> = ran.seen.iter().map(|seen| seen.partition).collect();
    assert!(partitions.is_sorted(), "{}: outputs are in order: {partitions:?}", strategy.name());
    partitions.dedup();
    assert_eq!(partitions.len(), case.partitions as usize, "{}: of every partition", strategy.name());
    let cuts = Cuts::even(case.partitions as usize).unwrap();
    let mut last: &[u8] = &[];
    for seen in ran.seen.iter().filter(|seen| seen.output.rows > 0) {
        assert!(seen.ordered, "{}: an output of partition {} is in order", strategy.name(), seen.partition);
        for key in [&seen.first, &seen.last] {
            let partition = cuts.partition_of(key) as u32;
            assert_eq!(partition, seen.partition, "{}: partitions are ordered by the cuts", strategy.name());
        }
        assert!(last <= &seen.first[..], "{}: outputs follow each other", strategy.name());
        last = &seen.last;
    }
    ran
}

/// Every row comes out once, in its partition.
pub async fn every_row_once_in_its_partition(world: World, strategy: Strategy) {
    check(&world, strategy, &Case::usual()).await;
}

/// The smallest numbers: no map, one map, one partition, more partitions than rows or than groups.
pub async fn the_smallest_numbers(world: World, strategy: Strategy) {
    for (rows, partitions) in
        [(vec![], 1), (vec![], 4), (vec![10], 1), (vec![10], 7), (vec![3, 3, 3, 3], 1), (vec![1; 5], 40)]
    {
        check(&world, strategy, &Case::with(rows, partitions)).await;
    }
}

/// Maps without rows, alone and among others.
pub async fn empty_maps(world: World, strategy: Strategy) {
    for rows in [vec![0], vec![0, 0, 0, 0], vec![100, 0, 100, 0, 0, 0, 100]] {
        check(&world, strategy, &Case::with(rows, 3)).await;
    }
}

/// One key: all rows go to one partition.
pub async fn one_hot_key(world: World, strategy: Strategy) {
    for range_max_bytes in [u64::MAX, 10_000] {
        let mut case = Case { keys: Keys::Hot, ..Case::usual() };
        case.plan.range_max_bytes = range_max_bytes;
        let ran = check(&world, strategy, &case).await;
        let full = ran.seen.iter().filter(|seen| seen.output.rows > 0).count();
        assert_eq!(full, 1, "one key is not divided");
    }
}

/// A partition that is far larger than others is reduced in ranges of keys, none of which is too large but for that of one
/// key.
pub async fn a_far_too_large_partition_is_divided(world: World, strategy: Strategy) {
    for merge_memory_bytes in [u64::MAX, 10_000] {
        let mut case = Case { keys: Keys::Skewed, ..Case::usual() };
        (case.plan.range_max_bytes, case.plan.merge_memory_bytes) = (20_000, merge_memory_bytes);
        let ran = check(&world, strategy, &case).await;
        let too_large = ran.seen.iter().filter(|seen| seen.output.bytes > case.plan.range_max_bytes);
        let too_large: Vec<_> = too_large.map(|seen| (seen.partition, seen.first == seen.last)).collect();
        assert_eq!(too_large, [(0, true)], "{}: of {} outputs", strategy.name(), ran.seen.len());
        let others = ran.seen.iter().filter(|seen| seen.partition > 0).count();
        assert_eq!(others, case.partitions as usize - 1, "{}: others are as they were", strategy.name());
    }
}

/// Where map outputs are kept, merges that do not end are done without, as many as there are executors.
pub async fn merges_that_do_not_end_are_done_without(world: World, strategy: Strategy) {
    // The first merges of all: where they are submitted as maps end, maps queue behind them.
    let cases = [
        (Keys::Even, u64::MAX, 0..3),
        (Keys::Even, u64::MAX, 3..4),
        (Keys::Skewed, 20_000, 3..4),
        (Keys::Skewed, 20_000, 8..11),
    ];
    for (keys, range_max_bytes, stalls) in cases {
        let mut case = Case { keys, stalls, rows: vec![500; 14], ..Case::usual() };
        (case.plan.keep_map_outputs, case.plan.range_max_bytes) = (true, range_max_bytes);
        let before = MERGES_STALLED.load(Ordering::SeqCst);
        check(&world, strategy, &case).await;
        assert!(MERGES_STALLED.load(Ordering::SeqCst) > before, "{}: one did not end", strategy.name());
    }
}

/// No more maps run, or wait to run, than the plan says.
pub async fn no_more_maps_in_flight_than_planned(world: World, strategy: Strategy) {
    for maps_in_flight in [1, 3] {
        let mut case = Case::with(vec![50; 20], 3);
        case.plan.maps_in_flight = maps_in_flight;
        let ran = check(&world, strategy, &case).await;
        assert!(ran.most_in_flight <= maps_in_flight as u64, "{} maps were in flight", ran.most_in_flight);
    }
}

/// Rounds and merges of every size.
pub async fn rounds_and_merges_of_every_size(world: World, strategy: Strategy) {
    for (maps_per_round, merge_factor, groups_per_node) in [(1, 1, 1), (2, 7, 5), (7, 3, 100), (100, 100, 2)] {
        let mut case = Case::usual();
        case.plan = Plan { maps_per_round, merge_factor, groups_per_node, ..case.plan };
        check(&world, strategy, &case).await;
    }
}

/// What a merge makes comes in pieces of every size, where it is of several partitions that are reduced at one place.
pub async fn pieces_of_every_size(world: World, strategy: Strategy) {
    let in_pieces = matches!(strategy, Strategy::Push | Strategy::TwoStage);
    for (piece_bytes, groups_per_node, several) in
        [(u64::MAX, 1, false), (1, 1, true), (60_000, 1, true), (1, 5, false)]
    {
        for merge_memory_bytes in [u64::MAX, 10_000] {
            let mut case = Case { rows: vec![1000, 0, 1000, 7, 1000, 1000, 0], ..Case::usual() };
            case.plan = Plan { piece_bytes, groups_per_node, merge_memory_bytes, ..case.plan };
            let ran = check(&world, strategy, &case).await;
            assert_eq!(ran.most_pieces > 1, several && in_pieces, "{}: {} pieces", strategy.name(), ran.most_pieces);
        }
    }
}

/// Where rounds are folded: after each round the states are what was mapped so far, and a look at them changes nothing.
pub async fn after_each_round_the_states_are_the_input_so_far(world: World, strategy: Strategy) {
    assert_eq!(strategy, Strategy::Streaming, "the others have no states");
    let case = Case::usual();
    let program = async move |futures: Futures| -> Result<(), JobError> {
        let (maps, plan) = (case.rows.len(), case.plan);
        let mut looks = Vec::new();
        let look = async |round: Round<'_>| {
            let mut sum = Output::default();
            for state in round.states() {
                futures.ready(state).await?;
                sum.add(futures.stat(state).await?);
            }
            looks.push((round.maps(), sum));
            Ok(())
        };
        let shuffled = streaming::rounds(&futures, &Counted::new(case.clone()), maps, &plan, look).await?;
        futures.wait_all(&shuffled.outputs).await?;
        let so_far = |maps: usize| (maps, Case { rows: case.rows[..maps].to_vec(), ..case.clone() }.expected());
        assert_eq!(looks, [so_far(3), so_far(6), so_far(7)]);
        Ok(())
    };
    world.nodes[0].run(JobId::new(), "contract", Some(what_it_waits_for()), program).await.0.unwrap();
}

/// Where rounds are folded: estimates read a state beside the next fold, one at once and one when that fold has ended, and no state is made
/// again for them.
pub async fn a_state_is_read_by_estimates_beside_the_next_fold_and_made_once(world: World, strategy: Strategy) {
    assert_eq!(strategy, Strategy::Streaming, "the others have no states");
    let case = Case::usual();
    let program = async move |futures: Futures| -> Result<(), JobError> {
        let (maps, plan) = (case.rows.len(), case.plan);
        let (mut estimates, mut before) = (Vec::<(usize, ObjectRef)>::new(), None::<(usize, Vec<ObjectSet>)>);
        let mut estimate = |maps: usize, reader: u32, states: &[ObjectSet]| -> Result<(), JobError> {
            for (partition, state) in (0..).zip(states) {
                // The second one is another task.
                let params = ReduceParams { partition: 100 * reader + partition, loses_a_row: false };
                estimates.push((maps, futures.submit(contract_reduce, &params, &[state.arg()])?));
            }
            Ok(())
        };
        let look = async |round: Round<'_>| {
            // Of the states before, the folds have read what they do: those that they made are there.
            futures.wait_all(round.states()).await?;
            if let Some((maps, states)) = before.take() {
                estimate(maps, 1, &states)?;
            }
            let states = round.read_by("contract.estimate", 2)?;
            estimate(round.maps(), 0, &states)?;
            before = Some((round.maps(), states));
            Ok(())
        };
        let shuffled = streaming::rounds(&futures, &Counted::new(case.clone()), maps, &plan, look).await?;
        futures.wait_all(&shuffled.outputs).await?;
        let (maps, states) = before.expect("there was a last round");
        estimate(maps, 1, &states)?;
        drop(states);
        for maps in [3, 6, 7] {
            let mut sum = Output::default();
            for (_, estimate) in estimates.iter().filter(|(of, _)| *of == maps) {
                sum.add(futures.get_value::<Seen>(estimate).await?.output);
            }
            let expected = Case { rows: case.rows[..maps].to_vec(), ..case.clone() }.expected();
            let mut twice = expected;
            twice.add(expected);
            assert_eq!(sum, twice, "of {maps} maps");
        }
        Ok(())
    };
    let again = Arc::new(AtomicU64::new(0));
    let counted = again.clone();
    let events = EventSink::new(move |event| {
        if matches!(event.kind, EventKind::TaskReplayed { .. }) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    world.nodes[0].run(JobId::new(), "contract", Some(events), program).await.0.unwrap();
    assert_eq!(again.load(Ordering::SeqCst), 0, "tasks that ran again");
}

/// An attempt that fails changes nothing but the time.
pub async fn an_attempt_that_fails_is_made_again(world: World, strategy: Strategy) {
    check(&world, strategy, &Case { fails_once: Some(4), ..Case::usual() }).await;
}

/// Rows that are lost between two stages end the job, and the edge is named.
pub async fn a_lost_row_ends_the_job(world: World, strategy: Strategy) {
    let case = Case { loses_a_row: Some(2), ..Case::usual() };
    match run(&world, strategy, &case).await {
        Err(JobError::Conservation { edge, .. }) => assert!(edge.ends_with("-> contract.reduce"), "{edge}"),
        other => panic!("{}: {other:?}", strategy.name()),
    }
}

/// More data than memory: the budget holds, and no more is written to disk than the strategy's documentation says.
pub async fn more_data_than_memory(world: World, strategy: Strategy) {
    let usable = |node: &Node| node.store().stats().budget_bytes - node.store().stats().reserve_bytes;
    let memory: u64 = world.nodes.iter().map(usable).sum();
    let rows = 2 * memory / 64 / RECORD_BYTES as u64;
    let mut case = Case::with(vec![rows; 64], 64);
    case.plan.maps_per_round = 12;
    case.plan.input_bytes = 2 * memory;
    case.plan.groups_per_node = 8;
    check(&world, strategy, &case).await;
    let data = case.expected().bytes;
    let stats: Vec<_> = world.nodes.iter().map(|node| node.store().stats()).collect();
    let spilled: u64 = stats.iter().map(|stats| stats.spilled_bytes).sum();
    let rounds = case.rows.len().div_ceil(case.plan.maps_per_round) as u64;
    let limit = match strategy {
        Strategy::Simple => data,
        Strategy::Riffle | Strategy::Push | Strategy::TwoStage => 2 * data,
        Strategy::Streaming => (rounds + 3) * data,
    };
    assert!(spilled > 0, "{}: {data} bytes in {memory}", strategy.name());
    // What the maps, merges and reduces return besides, a few words each.
    let values = 256 * (2 * case.rows.len() as u64 + u64::from(case.partitions));
    assert!(spilled <= limit + values, "{}: {spilled} bytes were spilled of {data}", strategy.name());
    assert!(stats.iter().all(|stats| stats.peak_bytes <= stats.budget_bytes));
}

/// When the job is over the stores are empty.
pub async fn the_stores_are_empty_at_the_end(world: World, strategy: Strategy) {
    check(&world, strategy, &Case::usual()).await;
    let mut objects = vec![u64::MAX];
    // The end of a job reaches the nodes after it reaches the program.
    for _ in 0..500 {
        objects = world.nodes.iter().map(|node| node.store().stats().objects).collect();
        if objects.iter().all(|objects| *objects == 0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{}: {objects:?} objects are left", strategy.name());
}

/// A program that has seen enough stops: its job ends well, whenever that is, and nothing of what was under way stays, nor is it awaited.
pub async fn a_stop_at_any_moment_balances_and_frees_everything(world: World, strategy: Strategy) {
    for enough in [1, 3, 6, 8, 9, 11, 14, 17, 20] {
        let case = Case { keys: if enough % 2 == 0 { Keys::Skewed } else { Keys::Even }, ..Case::usual() };
        let stores: Vec<_> = world.nodes.iter().map(|node| node.store().clone()).collect();
        let program = async move |futures: Futures| -> Result<u64, JobError> {
            let (maps, plan) = (case.rows.len(), Plan { range_max_bytes: 20_000, ..case.plan });
            let job = Counted { enough, ..Counted::new(case) };
            let run = Box::pin(strategy.run(&futures, &job, maps, &plan));
            match future::select(run, Box::pin(job.seen_enough.notified())).await {
                future::Either::Left((ended, _)) => drop(ended?),
                // Its edges, and the references that it had.
                future::Either::Right(((), run)) => drop(run),
            }
            futures.stop_edges()?;
            let mut objects = 0;
            for _ in 0..500 {
                objects = stores.iter().map(|store| store.stats().objects).sum();
                if objects == 0 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(objects)
        };
        let ended = world.nodes[0].run(JobId::new(), "contract", Some(what_it_waits_for()), program).await.0;
        match ended {
            Ok(objects) => assert_eq!(objects, 0, "{}: stopped at task {enough}", strategy.name()),
            Err(error) => panic!("{}: stopped at task {enough}: {error}", strategy.name()),
        }
    }
}

/// Makes a module for each strategy with a test for each clause. `$world` is an async function that gives a [`World`] of
/// little memory a node, some ten MiB.
#[macro_export]
macro_rules! strategy_contract {
    ($world:path) => {
        $crate::strategy_contract!(@strategy $world, simple, Simple);
        $crate::strategy_contract!(@strategy $world, riffle, Riffle);
        $crate::strategy_contract!(@strategy $world, push, Push);
        $crate::strategy_contract!(@strategy $world, two_stage, TwoStage);
        $crate::strategy_contract!(@strategy $world, streaming, Streaming);
        mod streaming_rounds {
            $crate::strategy_contract!(@clauses $world, Streaming, after_each_round_the_states_are_the_input_so_far
                a_state_is_read_by_estimates_beside_the_next_fold_and_made_once);
        }
        mod two_stage_best_effort {
            $crate::strategy_contract!(@clauses $world, TwoStage, merges_that_do_not_end_are_done_without);
        }
        mod push_best_effort {
            $crate::strategy_contract!(@clauses $world, Push, merges_that_do_not_end_are_done_without);
        }
    };
    (@strategy $world:path, $module:ident, $strategy:ident) => {
        mod $module {
            $crate::strategy_contract!(@clauses $world, $strategy,
                every_row_once_in_its_partition the_smallest_numbers empty_maps one_hot_key
                no_more_maps_in_flight_than_planned rounds_and_merges_of_every_size pieces_of_every_size
                an_attempt_that_fails_is_made_again a_lost_row_ends_the_job more_data_than_memory
                a_far_too_large_partition_is_divided the_stores_are_empty_at_the_end
                a_stop_at_any_moment_balances_and_frees_everything);
        }
    };
    (@clauses $world:path, $strategy:ident, $($clause:ident)*) => {
        $(
            #[tokio::test]
            async fn $clause() {
                $crate::contract::$clause($world().await, $crate::Strategy::$strategy).await;
            }
        )*
    };
}
