//! What every strategy owes, clause by clause; each strategy runs all of them, on one node and on a cluster.
//!
//! ```ignore
//! exobus_shuffle::strategy_contract!(crate::harness::one_node);
//! ```
//! makes a test of each clause for each strategy; the argument is an async function that gives a [`World`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::ids::{JobId, RowHash};
use exobus_actors::node::Node;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{Arg, JobError, Output, Place, TaskOptions};
use serde::{Deserialize, Serialize};

use crate::cuts::Cuts;
use crate::job::Job;
use crate::jobs::sort::merge_blocks_task;
use crate::kernels::{self, sort_scratch_bytes};
use crate::plan::Plan;
use crate::records::{KEY_BYTES, RECORD_BYTES, row_hash_sum};
use crate::strategies::Strategy;

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
    /// Whether all rows have one key.
    pub hot: bool,
    /// Sizes of windows, rounds and merges.
    pub plan: Plan,
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
        };
        Self { rows: vec![1000; 7], partitions: 5, hot: false, plan, fails_once: None, loses_a_row: None }
    }

    fn with(rows: Vec<u64>, partitions: u32) -> Self {
        let usual = Self::usual();
        Self { rows, partitions, plan: Plan { partitions, ..usual.plan }, ..usual }
    }

    /// The rows of a map: the key is the hash of the row's number, or always the same.
    fn records(hot: bool, map: u64, rows: u64) -> Vec<u8> {
        let mut bytes = vec![0; rows as usize * RECORD_BYTES];
        for (row, record) in bytes.chunks_mut(RECORD_BYTES).enumerate() {
            let number = (u128::from(map) << 64) | row as u128;
            if !hot {
                let key = RowHash(number).0.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes();
                record[..KEY_BYTES].copy_from_slice(&key[..KEY_BYTES]);
            }
            record[KEY_BYTES..KEY_BYTES + 16].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn expected(&self) -> Output {
        let mut expected = Output::default();
        for (map, rows) in (0u64..).zip(&self.rows) {
            let bytes = Self::records(self.hot, map, *rows);
            expected.add(Output { bytes: bytes.len() as u64, rows: *rows, row_hash: row_hash_sum(&bytes) });
        }
        expected
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct MapParams {
    map: u64,
    rows: u64,
    partitions: u32,
    hot: bool,
    fails_once: bool,
}

/// Maps of this process that have ended.
static MAPS_ENDED: AtomicU64 = AtomicU64::new(0);

#[task(name = "contract.map", deterministic = true)]
fn contract_map(context: &mut TaskContext<'_>, params: MapParams) -> Result<(), TaskError> {
    if params.fails_once && context.attempt().0 == 1 {
        return Err(TaskError::failed("the first attempt fails"));
    }
    let bytes = Case::records(params.hot, params.map, params.rows);
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

/// What a reduce saw.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
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
    let blocks = context.blocks(0);
    let runs = blocks.iter().filter(|block| !block.is_empty()).map(|block| kernels::SliceRun::new(block)).collect();
    let mut merge = kernels::Merge::new(runs)?;
    let mut bytes = vec![0; blocks.iter().map(|block| block.len()).sum()];
    let merged = merge.next_into(&mut bytes)?;
    if merged != bytes.len() {
        return Err(TaskError::fatal(format!("{merged} of {} bytes were merged", bytes.len())));
    }
    let lost = u64::from(params.loses_a_row);
    context.consumed(0, merged as u64 - lost * RECORD_BYTES as u64, merge.rows() - lost, merge.row_hash());
    let keys: Vec<&[u8]> = bytes.chunks(RECORD_BYTES).map(|record| &record[..KEY_BYTES]).collect();
    let end = |key: Option<&&[u8]>| key.map(|key| key.to_vec()).unwrap_or_default();
    Ok(Seen {
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
    ended_before: u64,
    most_in_flight: AtomicU64,
}

impl Job for Counted {
    fn name(&self) -> &'static str {
        "contract"
    }

    fn map(&self, futures: &Futures, index: usize, place: Place) -> Result<ObjectRef, JobError> {
        let submitted = self.submitted.fetch_add(1, Ordering::SeqCst) + 1;
        let ended = MAPS_ENDED.load(Ordering::SeqCst) - self.ended_before;
        self.most_in_flight.fetch_max(submitted.saturating_sub(ended), Ordering::SeqCst);
        let map = index as u64;
        let params = MapParams {
            map,
            rows: self.case.rows[index],
            partitions: self.case.partitions,
            hot: self.case.hot,
            fails_once: self.case.fails_once == Some(map),
        };
        futures.submit_with(contract_map, &params, &[], TaskOptions { place, ..TaskOptions::default() })
    }

    fn merge(&self, futures: &Futures, blocks: &[Arg], parts: u32, place: Place) -> Result<ObjectRef, JobError> {
        merge_blocks_task(futures, blocks, parts, place)
    }

    fn reduce(&self, futures: &Futures, partition: u32, column: Arg, place: Place) -> Result<ObjectRef, JobError> {
        let params = ReduceParams { partition, loses_a_row: self.case.loses_a_row == Some(partition) };
        futures.submit_with(contract_reduce, &params, &[column], TaskOptions { place, ..TaskOptions::default() })
    }
}

/// What came of a case.
#[derive(Debug)]
struct Ran {
    seen: Vec<Seen>,
    mapped: Output,
    most_in_flight: u64,
}

async fn run(world: &World, strategy: Strategy, case: &Case) -> Result<Ran, JobError> {
    let case = case.clone();
    let program = async move |futures: Futures| -> Result<Ran, JobError> {
        let (maps, plan) = (case.rows.len(), case.plan);
        let job = Counted {
            case,
            submitted: AtomicU64::new(0),
            ended_before: MAPS_ENDED.load(Ordering::SeqCst),
            most_in_flight: AtomicU64::new(0),
        };
        let shuffled = strategy.run(&futures, &job, maps, &plan).await?;
        let mut seen = Vec::new();
        for output in &shuffled.outputs {
            seen.push(futures.get_value(output).await?);
        }
        Ok(Ran { seen, mapped: shuffled.mapped, most_in_flight: job.most_in_flight.into_inner() })
    };
    world.nodes[0].run(JobId::new(), "contract", None, program).await.0
}

/// Runs a case and checks what holds of all of them.
async fn check(world: &World, strategy: Strategy, case: &Case) -> Ran {
    let ran = run(world, strategy, case).await.unwrap_or_else(|error| panic!("{}: {error}", strategy.name()));
    let mut seen = Output::default();
    ran.seen.iter().for_each(|partition| seen.add(partition.output));
    let expected = case.expected();
    assert_eq!(seen, expected, "{}: every row once", strategy.name());
    assert_eq!(ran.mapped, expected, "{}: what the maps made is counted", strategy.name());
    assert_eq!(ran.seen.len(), case.partitions as usize);
    let cuts = Cuts::even(case.partitions as usize).unwrap();
    for (index, partition) in ran.seen.iter().enumerate().filter(|(_, partition)| partition.output.rows > 0) {
        assert!(partition.ordered, "{}: partition {index} is in order", strategy.name());
        for key in [&partition.first, &partition.last] {
            assert_eq!(cuts.partition_of(key), index, "{}: partitions are ordered by the cuts", strategy.name());
        }
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
    let ran = check(&world, strategy, &Case { hot: true, ..Case::usual() }).await;
    assert_eq!(ran.seen.iter().filter(|partition| partition.output.rows > 0).count(), 1);
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
    assert!(spilled <= limit, "{}: {spilled} bytes were spilled of {data}", strategy.name());
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
    };
    (@strategy $world:path, $module:ident, $strategy:ident) => {
        mod $module {
            $crate::strategy_contract!(@clauses $world, $strategy,
                every_row_once_in_its_partition the_smallest_numbers empty_maps one_hot_key
                no_more_maps_in_flight_than_planned rounds_and_merges_of_every_size
                an_attempt_that_fails_is_made_again a_lost_row_ends_the_job more_data_than_memory
                the_stores_are_empty_at_the_end);
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
