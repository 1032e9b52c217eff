//! Which strategy: estimates what each would cost for a plan, and takes the cheapest. Pure.
//!
//! The time of a strategy is that of its disk bytes and of its work on blocks, one after the other: an upper bound that
//! ranks them well, since all of them read the input and write the output alike, which is left out. The constants were
//! measured on two cores and one disk; what they decide are ratios, which differ much less between machines.

use serde::{Deserialize, Serialize};

use super::Strategy;
use crate::plan::{PART_META_BYTES, Plan, Sizes};

/// Direct I/O, bytes a second.
const DISK_BYTES_PER_S: f64 = 1.7e9;
/// A read from disk costs as much as reading this much more.
const SEEK_BYTES: f64 = 128e3;
/// Node to node, bytes a second.
const NETWORK_BYTES_PER_S: f64 = 2e9;
/// Merging, bytes a second of one executor.
const MERGE_BYTES_PER_S: f64 = 0.9e9;
/// Looking up and opening one block.
const BLOCK_SECONDS: f64 = 1e-6;
/// A task beyond its work.
const TASK_SECONDS: f64 = 100e-6;
/// What of the memory holds data that waits, the rest being in use by running tasks.
const SHARE_FOR_DATA: f64 = 0.6;

/// What a strategy would do for a plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The strategy.
    pub strategy: Strategy,
    /// Tasks.
    pub tasks: u64,
    /// Blocks that reduces read.
    pub blocks: u64,
    /// Bytes of one of them, on average.
    pub block_bytes: u64,
    /// Bytes that go from node to node.
    pub moved_bytes: u64,
    /// Bytes that are merged before reduces read them.
    pub merged_bytes: u64,
    /// Bytes that are written to spill files.
    pub spilled_bytes: u64,
    /// Most bytes in the stores of all nodes at once.
    pub peak_bytes: u64,
    /// Bytes of the directories of all objects that are there at the same time. They stay in memory besides the budget.
    pub directory_bytes: u64,
    /// Seconds besides reading the input and writing the output.
    pub seconds: f64,
}

/// Directories that take more than this share of the memory rule a strategy out where another needs less.
const SHARE_FOR_DIRECTORIES: u64 = 8;

/// What a job would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// Bytes of the input files.
    pub input_bytes: u64,
    /// What maps are expected to make of them, nodes and memory.
    pub sizes: Sizes,
    /// How many maps there would be.
    pub maps: u64,
    /// All numbers.
    pub plan: Plan,
    /// What each strategy would do; a job that is not told which takes the first.
    pub estimates: Vec<Estimate>,
}

/// How many parts of a partition tasks read at a time, about: where all merges are done in time, and no node is left with fewer maps than are merged at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartsRead {
    /// Parts that a merge reads; none: nothing is merged.
    pub by_merge: u64,
    /// Of how many maps the rows are that a merge reads.
    pub maps_of_merge: u64,
    /// Parts that a reduce reads.
    pub by_reduce: u64,
}

/// How many parts of a partition tasks of a strategy read.
pub fn parts_read(strategy: Strategy, maps: u64, plan: &Plan) -> PartsRead {
    let merged_at_once = |at_once: usize| {
        let at_once = (at_once as u64).clamp(1, maps.max(1));
        PartsRead { by_merge: at_once, maps_of_merge: at_once, by_reduce: maps.div_ceil(at_once).max(1) }
    };
    match strategy {
        Strategy::Simple => PartsRead { by_merge: 0, maps_of_merge: 0, by_reduce: maps },
        Strategy::Riffle | Strategy::Push => merged_at_once(plan.merge_factor),
        Strategy::TwoStage => merged_at_once(plan.maps_per_round),
        Strategy::Streaming => {
            let merged = merged_at_once(plan.maps_per_round);
            PartsRead { by_merge: merged.by_merge + 1, maps_of_merge: maps, by_reduce: 1 }
        }
    }
}

/// Estimates for all strategies, the cheapest first.
pub fn estimates(sizes: Sizes, maps: usize, plan: &Plan) -> Vec<Estimate> {
    let mut all: Vec<_> = Strategy::ALL.iter().map(|strategy| estimate(*strategy, sizes, maps, plan)).collect();
    // Between equals the simpler one, which comes first.
    let memory = sizes.memory_bytes * u64::from(sizes.nodes.max(1));
    let directory_rank = |estimate: &Estimate| estimate.directory_bytes.max(memory / SHARE_FOR_DIRECTORIES);
    all.sort_by(|a, b| directory_rank(a).cmp(&directory_rank(b)).then(a.seconds.total_cmp(&b.seconds)));
    all
}

/// The cheapest strategy.
pub fn choose(sizes: Sizes, maps: usize, plan: &Plan) -> Strategy {
    estimates(sizes, maps, plan)[0].strategy
}

fn estimate(strategy: Strategy, sizes: Sizes, maps: usize, plan: &Plan) -> Estimate {
    let nodes = u64::from(sizes.nodes.max(1));
    let slots = (nodes * u64::from(sizes.executors_per_node.max(1))) as f64;
    let data = sizes.input_bytes;
    let memory = ((sizes.memory_bytes * nodes) as f64 * SHARE_FOR_DATA) as u64;
    let (maps, partitions) = (maps as u64, u64::from(plan.partitions));
    let groups = (nodes * u64::from(plan.groups_per_node)).min(partitions);
    let read = parts_read(strategy, maps, plan);
    // Batches of maps that are merged one by one, and rounds of maps in which states are.
    let batches = read.by_reduce;
    let rounds = maps.div_ceil(plan.maps_per_round as u64).max(1);

    let in_round = maps.min(2 * plan.maps_per_round as u64);
    let in_fold = maps.min((plan.merge_factor + plan.maps_in_flight) as u64);

    // Merge tasks, bytes merged, bytes that live between the phases, directories of so many objects with a part for each partition.
    let (merges, merged, stored, directories) = match strategy {
        Strategy::Simple => (0, 0, data, maps),
        Strategy::Riffle => (batches, data, data, batches + in_fold),
        Strategy::Push => (batches * groups, data, 2 * data, batches + maps),
        Strategy::TwoStage => (batches * groups, data, data, batches + in_round),
        Strategy::Streaming => (rounds * partitions, data * (rounds + 1) / 2, data, 1 + in_round),
    };
    let spilled = match strategy {
        // What was spilled is read and written again in every round.
        Strategy::Streaming => (1..=rounds).map(|round| (data * round / rounds).saturating_sub(memory)).sum(),
        _ => stored.saturating_sub(memory),
    };
    let blocks = read.by_reduce * partitions;
    let block_bytes = data / blocks.max(1);
    let reads = if block_bytes == 0 { 0.0 } else { spilled as f64 / block_bytes as f64 };
    let disk = (2.0 * spilled as f64 + reads * SEEK_BYTES) / (DISK_BYTES_PER_S * nodes as f64);
    let moved = data * (nodes - 1) / nodes;
    let network = moved as f64 / (NETWORK_BYTES_PER_S * nodes as f64);
    let tasks = maps + merges + partitions;
    let work = merged as f64 / MERGE_BYTES_PER_S + blocks as f64 * BLOCK_SECONDS + tasks as f64 * TASK_SECONDS;
    Estimate {
        strategy,
        tasks,
        blocks,
        block_bytes,
        moved_bytes: moved,
        merged_bytes: merged,
        spilled_bytes: spilled,
        peak_bytes: stored.min(sizes.memory_bytes * nodes),
        directory_bytes: directories * partitions * PART_META_BYTES,
        seconds: disk + network + work / slots,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(input_bytes: u64, memory_bytes: u64, nodes: u32, partitions: Option<u32>) -> (Strategy, Vec<Estimate>) {
        let sizes = Sizes { input_bytes, nodes, executors_per_node: 2, memory_bytes };
        let plan = Plan::new(sizes, partitions).unwrap();
        let maps = input_bytes.div_ceil(plan.chunk_bytes) as usize;
        (choose(sizes, maps, &plan), estimates(sizes, maps, &plan))
    }

    #[test]
    fn what_fits_into_memory_is_shuffled_simply() {
        for nodes in [1, 3] {
            assert_eq!(pick(1_000_000_000, 4 << 30, nodes, None).0, Strategy::Simple);
            assert_eq!(pick(0, 4 << 30, nodes, None).0, Strategy::Simple);
        }
    }

    #[test]
    fn large_blocks_on_disk_are_read_as_they_are() {
        assert_eq!(pick(10_000_000_000, 4 << 30, 1, Some(80)).0, Strategy::Simple);
    }

    #[test]
    fn small_blocks_on_disk_are_merged_first() {
        let (strategy, estimates) = pick(10_000_000_000, 1 << 30, 1, Some(4_000));
        assert_eq!(strategy, Strategy::TwoStage, "{estimates:#?}");
        let simple = estimates.iter().find(|estimate| estimate.strategy == Strategy::Simple).unwrap();
        assert!(simple.block_bytes < estimates[0].block_bytes);
    }

    #[test]
    fn directories_of_a_hundred_million_parts_are_not_kept_at_once() {
        let sizes = Sizes { input_bytes: 800_000_000, nodes: 1, executors_per_node: 2, memory_bytes: 16 << 30 };
        let plan = Plan::of_chunks(sizes, Some(10_000), 80_000).unwrap();
        let estimates = estimates(sizes, 10_000, &plan);
        assert!(estimates[0].directory_bytes < 4 << 30, "{estimates:#?}");
        assert_eq!(estimates.last().unwrap().strategy, Strategy::Push, "which keeps those of all maps");
    }

    #[test]
    fn figures_are_those_of_the_formulas_in_each_strategy() {
        let sizes = Sizes { input_bytes: 10 << 30, nodes: 2, executors_per_node: 2, memory_bytes: 1 << 30 };
        let plan =
            Plan { merge_factor: 5, maps_per_round: 10, groups_per_node: 4, ..Plan::new(sizes, Some(80)).unwrap() };
        let of = |strategy| estimate(strategy, sizes, 100, &plan);
        let figures = |strategy| (of(strategy).blocks, of(strategy).tasks);
        assert_eq!(figures(Strategy::Simple), (100 * 80, 100 + 80));
        assert_eq!(figures(Strategy::Riffle), (20 * 80, 100 + 20 + 80));
        assert_eq!(figures(Strategy::Push), (20 * 80, 100 + 20 * 8 + 80));
        assert_eq!(figures(Strategy::TwoStage), (10 * 80, 100 + 10 * 8 + 80));
        assert_eq!(figures(Strategy::Streaming), (80, 100 + 10 * 80 + 80));
        let parts = |strategy| {
            let PartsRead { by_merge, maps_of_merge, by_reduce } = parts_read(strategy, 100, &plan);
            (by_merge, maps_of_merge, by_reduce)
        };
        assert_eq!((parts(Strategy::Simple), parts(Strategy::Push)), ((0, 0, 100), (5, 5, 20)));
        assert_eq!(parts(Strategy::Riffle), (5, 5, 20));
        let of_few = parts_read(Strategy::TwoStage, 3, &plan);
        assert_eq!((of_few.by_merge, of_few.by_reduce, parts_read(Strategy::Push, 0, &plan).by_reduce), (3, 1, 1));
        assert_eq!((parts(Strategy::TwoStage), parts(Strategy::Streaming)), ((10, 10, 10), (11, 100, 1)));
        assert_eq!(of(Strategy::Simple).moved_bytes, 5 << 30, "half of it is where it is read");
        assert!(of(Strategy::Push).spilled_bytes > of(Strategy::TwoStage).spilled_bytes);
    }
}
