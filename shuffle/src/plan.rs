//! All counts and sizes of a shuffle, derived here and nowhere else.

use exobus_actors::joblog::NodeShape;
use serde::{Deserialize, Serialize};

use crate::records::RECORD_BYTES;

/// What a plan is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Bytes of input.
    pub input_bytes: u64,
    /// Nodes that take part.
    pub nodes: u32,
    /// Executors of the smallest node.
    pub executors_per_node: u32,
    /// Byte budget of the smallest node.
    pub memory_bytes: u64,
}

impl Sizes {
    /// Those of a job on `nodes`.
    pub fn of(nodes: &[NodeShape], input_bytes: u64) -> Self {
        let smallest = |figure: fn(&NodeShape) -> u64| nodes.iter().map(figure).min().unwrap_or(0);
        Self {
            input_bytes,
            nodes: nodes.len() as u32,
            executors_per_node: (smallest(|node| node.cpu_milli) / 1000).max(1) as u32,
            memory_bytes: smallest(|node| node.memory_bytes),
        }
    }
}

/// The numbers of a shuffle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Bytes of input.
    pub input_bytes: u64,
    /// Bytes of input that one map takes.
    pub chunk_bytes: u64,
    /// Bytes of scratch that one map needs besides its output.
    pub map_scratch_bytes: u64,
    /// Partitions of the output.
    pub partitions: u32,
    /// Maps that may be in flight: enough for every executor and its queue.
    pub maps_in_flight: usize,
    /// Bytes of each of the two buffers that a reduce writes its file with.
    pub output_buffer_bytes: u64,
    /// Maps whose outputs are merged together, where that is done as they come (`riffle`, `push`).
    pub merge_factor: usize,
    /// Maps of a round (`two_stage`, `streaming`).
    pub maps_per_round: usize,
    /// Groups of partitions of a node; those of a group are merged by one task (`push`, `two_stage`).
    pub groups_per_node: u32,
    /// Most bytes that a merge has in memory at once, of what it reads; of more it reads streams.
    pub merge_memory_bytes: u64,
    /// Bytes that a merge writes as one output, about, before it begins the next (`push`, `two_stage`): what it holds of what
    /// it makes. One partition at least, whatever its size.
    pub piece_bytes: u64,
    /// Whether map outputs stay until the end (`push` always does that, `two_stage` if it is told to): what is lost is then
    /// made again from them, and a merge that takes too long is done without.
    pub keep_map_outputs: bool,
    /// A partition of no more bytes than that is never divided.
    pub range_max_bytes: u64,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No partition, or more than part numbers go.
    #[error("{0} partitions: choose between 1 and 1000000")]
    Partitions(u64),
    /// The memory is too small for the input.
    #[error("{memory_bytes} bytes of memory per node are too little, {smallest} are the least that works")]
    Memory {
        /// What was given.
        memory_bytes: u64,
        /// What would do.
        smallest: u64,
    },
}

/// A map works on at least this much: below, the cost of a task shows.
const CHUNK_MIN_BYTES: u64 = 1 << 20;
/// More in one chunk makes the sort miss the caches and the parts no better.
const CHUNK_MAX_BYTES: u64 = 128 << 20;
/// A chunk takes one contiguous range of the store's memory. Below this share of it a range is found however fragmented
/// the rest is.
const CHUNK_SHARE_OF_MEMORY: u64 = 24;
/// A partition is at least this large unless the user says otherwise: smaller files help nobody.
const PARTITION_MIN_BYTES: u64 = 16 << 20;
const PARTITION_MAX_BYTES: u64 = 512 << 20;
/// A merged block, one part of a merge's output, is at least this large where memory allows: less makes a disk seek.
const MERGED_BLOCK_MIN_BYTES: u64 = 1 << 20;
/// A round of maps takes this share of the memory of all nodes: the maps of the next round, the blocks that are merged
/// and what they are merged into are there at the same time.
const ROUND_SHARE_OF_MEMORY: u64 = 5;
/// A merge makes about this much: several of a round run side by side, and each holds little.
const MERGE_BYTES: u64 = 64 << 20;
/// A piece of what a merge makes has at most about so many bytes: as much as the store gives in one run however small its
/// memory is, and as it writes to disk with one request. Smaller pieces hold less, but every one is an object more.
const PIECE_MAX_BYTES: u64 = 8 << 20;
/// A piece is not smaller, however small the memory: below, the cost of an object shows.
const PIECE_MIN_BYTES: u64 = 1 << 20;
/// The pieces that the executors of a node write side by side take at most this share of its memory, where that leaves them
/// the least that makes sense.
const PIECES_SHARE_OF_MEMORY: u64 = 16;
/// The directory of an object takes so much for each part.
pub(crate) const PART_META_BYTES: u64 = 64;
/// A partition that is so many times as large as others is an outlier: 20 sampled keys a partition make 1.5 of it.
const TIMES_OTHERS: u128 = 3;
/// A partition is divided into no more ranges at once; those that are too large are divided again.
const RANGES_MAX: u64 = 256;
/// Most partitions that part numbers and file names are made for.
const PARTITIONS_MAX: u64 = 1_000_000;

impl Plan {
    /// Derives all numbers; `partitions` is the user's wish.
    ///
    /// Memory of a node, M, with E executors: each map holds chunk + 16 bytes a record of scratch and makes a chunk of
    /// output; half of M for all E of them. Each reduce holds its partition while the next ones are fetched (E running,
    /// one staged), and two buffers: another half of M.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn new(sizes: Sizes, partitions: Option<u32>) -> Result<Self, PlanError> {
        let executors = u64::from(sizes.executors_per_node.max(1));
        let slots = executors * u64::from(sizes.nodes.max(1));
        let record = RECORD_BYTES as u64;

        // Chunk plus scratch plus output: 2.16 times the chunk, held by E at a time within half of M.
        let chunk_fits = sizes.memory_bytes / (2 * executors) * 100 / 216;
        if chunk_fits < CHUNK_MIN_BYTES {
            let smallest = CHUNK_MIN_BYTES * 2 * executors * 216 / 100 + (1 << 20);
            return Err(PlanError::Memory { memory_bytes: sizes.memory_bytes, smallest });
        }
        // Enough chunks for every slot to have several: the last one is waited for less, and what running maps hold besides the
        // data is little of it.
        let chunk_even = sizes.input_bytes.div_ceil(slots * 8).max(CHUNK_MIN_BYTES);
        let chunk_contiguous = (sizes.memory_bytes / CHUNK_SHARE_OF_MEMORY).max(CHUNK_MIN_BYTES);
        let chunk_bytes = chunk_fits.min(chunk_even).min(chunk_contiguous).min(CHUNK_MAX_BYTES) / record * record;
        Self::of_chunks(sizes, partitions, chunk_bytes)
    }

    /// As [`new`](Self::new), for maps that make about `chunk_bytes` each whatever the plan would prefer.
    ///
    /// # Errors
    /// The number of partitions cannot be.
    pub fn of_chunks(sizes: Sizes, partitions: Option<u32>, chunk_bytes: u64) -> Result<Self, PlanError> {
        let executors = u64::from(sizes.executors_per_node.max(1));
        let slots = executors * u64::from(sizes.nodes.max(1));
        let map_scratch_bytes = chunk_bytes + chunk_bytes * 16 / RECORD_BYTES as u64 + (1 << 20);

        let partition_fits = sizes.memory_bytes / 2 / (executors + 1);
        let partition_bytes = partition_fits.min(PARTITION_MAX_BYTES) * 3 / 4;
        let by_size = sizes.input_bytes.div_ceil(partition_bytes.max(1));
        let for_slots = (slots * 4).min(sizes.input_bytes / PARTITION_MIN_BYTES);
        let partitions = partitions.map_or(by_size.max(for_slots).max(1), u64::from);
        if partitions == 0 || partitions > PARTITIONS_MAX {
            return Err(PlanError::Partitions(partitions));
        }
        let partition_bytes = sizes.input_bytes / partitions;

        // What a map makes takes memory for its bytes and for its directory, which matters where parts are tiny.
        let map_bytes = (chunk_bytes + partitions * PART_META_BYTES).max(1);
        // Executors merge side by side, each with what it reads, in a quarter of M; what they make of it comes piece by piece,
        // and what other tasks hold has room beside that.
        let merge_fits = (sizes.memory_bytes / (4 * executors) / map_bytes).max(2);
        let merge_wanted = (MERGED_BLOCK_MIN_BYTES * partitions).div_ceil(chunk_bytes.max(1)).max(2);
        let round_bytes = sizes.memory_bytes * u64::from(sizes.nodes.max(1)) / ROUND_SHARE_OF_MEMORY;
        let maps_per_round = (round_bytes / map_bytes).max(2);
        let round_bytes_per_node = maps_per_round * chunk_bytes / u64::from(sizes.nodes.max(1));
        let groups_per_node = round_bytes_per_node.div_ceil(MERGE_BYTES).max(executors);
        Ok(Self {
            input_bytes: sizes.input_bytes,
            chunk_bytes,
            map_scratch_bytes,
            partitions: partitions as u32,
            maps_in_flight: (slots * 4) as usize,
            output_buffer_bytes: output_buffer_bytes(partition_bytes, sizes.memory_bytes, executors),
            merge_factor: merge_fits.min(merge_wanted) as usize,
            maps_per_round: maps_per_round as usize,
            groups_per_node: groups_per_node.min(partitions) as u32,
            merge_memory_bytes: sizes.memory_bytes / (4 * executors),
            piece_bytes: (sizes.memory_bytes / (PIECES_SHARE_OF_MEMORY * executors))
                .clamp(PIECE_MIN_BYTES, PIECE_MAX_BYTES),
            keep_map_outputs: false,
            range_max_bytes: partition_fits.min(sizes.input_bytes / (2 * slots)).max(PARTITION_MIN_BYTES),
        })
    }

    /// In how many pieces a merge of the outputs of `maps` maps writes so many partitions: each has one at least.
    pub fn pieces_of(&self, maps: usize, partitions: u32) -> u32 {
        let all = u128::from(self.partitions.max(1));
        let bytes = maps as u128 * u128::from(self.chunk_bytes) * u128::from(partitions) / all;
        bytes.div_ceil(u128::from(self.piece_bytes.max(1))).clamp(1, u128::from(partitions.max(1))) as u32
    }

    /// Whether a partition of so many bytes is divided by key: when its reduce would run on while others are done, or
    /// does not fit into memory beside others, and when it is [`TIMES_OTHERS`] times as large as the others on average,
    /// which is what skew does and not what the user has chosen.
    pub fn is_too_large(&self, partition_bytes: u64) -> bool {
        let others = u128::from(self.partitions.max(1) - 1);
        let others_bytes = u128::from(self.input_bytes.saturating_sub(partition_bytes));
        partition_bytes > self.range_max_bytes && u128::from(partition_bytes) * others > TIMES_OTHERS * others_bytes
    }

    /// How many ranges of keys are made of so many bytes: few enough for files of some size, and so many that a range is
    /// not too large again when the sample was off.
    pub fn ranges_of(&self, bytes: u64) -> u32 {
        bytes.div_ceil((self.range_max_bytes / 2).max(1)).clamp(2, RANGES_MAX) as u32
    }
}

/// Large requests are what direct I/O is fast with; small files and small budgets get smaller ones.
fn output_buffer_bytes(partition_bytes: u64, memory_bytes: u64, executors: u64) -> u64 {
    let stride = crate::files::STRIDE_BYTES as u64;
    let fair = memory_bytes / executors / 32;
    let wanted = partition_bytes.min(fair).min(crate::files::REQUEST_BYTES as u64);
    wanted.div_ceil(stride).max(1) * stride
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(input_bytes: u64, memory_bytes: u64) -> Sizes {
        Sizes { input_bytes, nodes: 1, executors_per_node: 2, memory_bytes }
    }

    #[test]
    fn everything_that_is_held_at_once_fits_into_memory() {
        for input in [0, 100, 1 << 20, 1 << 30, 10_000_000_000, 1_000_000_000_000] {
            for memory in [64 << 20, 300 << 20, 1 << 30, 4 << 30] {
                let plan = Plan::new(sizes(input, memory), None).unwrap();
                let maps = 2 * (plan.map_scratch_bytes + plan.chunk_bytes);
                assert!(maps <= memory * 6 / 10, "{input} in {memory}: {plan:?}");
                let partition = input / u64::from(plan.partitions);
                let reduces = 3 * partition + 4 * plan.output_buffer_bytes;
                assert!(reduces <= memory * 6 / 10, "{input} in {memory}: {plan:?}");
                assert_eq!(plan.chunk_bytes % 100, 0);
                let merges = 2 * 2 * plan.merge_factor as u64 * plan.chunk_bytes;
                assert!(merges <= memory * 6 / 10, "{input} in {memory}: {plan:?}");
                let rounds = 3 * plan.maps_per_round as u64 * plan.chunk_bytes;
                assert!(rounds <= memory * 6 / 10, "{input} in {memory}: {plan:?}");
            }
        }
    }

    #[test]
    fn what_merges_write_at_once_is_little_of_the_memory_and_pieces_are_of_some_size() {
        for input in [0, 100, 1 << 30, 10_000_000_000, 1_000_000_000_000] {
            for memory in [16 << 20, 64 << 20, 300 << 20, 1 << 30, 64 << 30] {
                let plan = Plan::new(sizes(input, memory), None).unwrap();
                assert!(2 * plan.piece_bytes <= memory / 8, "{input} in {memory}: {plan:?}");
                let partitions = (plan.partitions / plan.groups_per_node).max(1);
                for maps in [plan.merge_factor, plan.maps_per_round] {
                    let pieces = u64::from(plan.pieces_of(maps, partitions));
                    assert!(pieces >= 1 && pieces <= u64::from(partitions), "{input} in {memory}: {plan:?}");
                    let merge = maps as u64 * plan.chunk_bytes * u64::from(partitions) / u64::from(plan.partitions);
                    let piece = merge / pieces;
                    let one_partition = merge / u64::from(partitions);
                    assert!(piece <= plan.piece_bytes.max(one_partition), "{input} in {memory}: {plan:?}");
                    assert!(pieces == 1 || piece >= PIECE_MIN_BYTES / 2, "{input} in {memory}: {plan:?}");
                }
            }
        }
    }

    #[test]
    fn a_merge_has_as_many_pieces_as_its_bytes_ask_for_and_its_partitions_allow() {
        let plan = Plan { chunk_bytes: 40 << 20, piece_bytes: 8 << 20, ..plan_of(100) };
        let cases = [(0, 50, 1), (1, 0, 1), (1, 1, 1), (1, 50, 3), (4, 25, 5), (4, 50, 10), (400, 25, 25)];
        for (maps, partitions, pieces) in cases {
            assert_eq!(plan.pieces_of(maps, partitions), pieces, "{maps} maps, {partitions} partitions");
        }
    }

    #[test]
    fn a_partition_is_too_large_that_is_an_outlier_and_would_be_waited_for() {
        let plan = |partitions| Plan { range_max_bytes: 1_000, input_bytes: 8_000, ..plan_of(partitions) };
        let cases = [
            (1, 8_000, false), // what was asked for
            (2, 5_000, false),
            (2, 6_000, false),
            (2, 6_100, true),
            (4, 4_100, true),
            (4, 3_900, false),
            (80, 1_000, false), // many times the others, but soon done
            (80, 1_001, true),
        ];
        for (partitions, bytes, expected) in cases {
            assert_eq!(
                plan(partitions).is_too_large(bytes),
                expected,
                "{bytes} of 8000 bytes, {partitions} partitions"
            );
        }
    }

    #[test]
    fn ranges_are_half_of_what_is_too_large_and_there_are_some() {
        let plan = Plan { range_max_bytes: 1_000, ..plan_of(80) };
        assert_eq!([1, 1_001, 5_001, 1 << 40].map(|bytes| plan.ranges_of(bytes)), [2, 3, 11, 256]);
    }

    fn plan_of(partitions: u32) -> Plan {
        Plan::new(sizes(1 << 30, 1 << 30), Some(partitions)).unwrap()
    }

    #[test]
    fn the_plan_calls_nothing_too_large_that_fits_and_is_its_share() {
        for (input, memory) in [(1u64 << 20, 64u64 << 20), (10 << 30, 4 << 30), (10 << 30, 300 << 20)] {
            let plan = Plan::new(sizes(input, memory), None).unwrap();
            assert!(plan.range_max_bytes >= PARTITION_MIN_BYTES);
            assert!(!plan.is_too_large(2 * input / u64::from(plan.partitions)), "{plan:?}");
            assert!(plan.range_max_bytes <= (memory / 2).max(PARTITION_MIN_BYTES));
        }
    }

    #[test]
    fn small_inputs_make_few_tasks() {
        let plan = Plan::new(sizes(1 << 20, 1 << 30), None).unwrap();
        assert_eq!(plan.partitions, 1);
        assert!(plan.chunk_bytes >= CHUNK_MIN_BYTES / 2);
    }

    #[test]
    fn the_user_has_the_last_word_on_partitions() {
        assert_eq!(Plan::new(sizes(1 << 30, 1 << 30), Some(7)).unwrap().partitions, 7);
        assert_eq!(Plan::new(sizes(1 << 30, 1 << 30), Some(0)), Err(PlanError::Partitions(0)));
        assert!(matches!(Plan::new(sizes(1 << 30, 1 << 20), None), Err(PlanError::Memory { .. })));
    }
}
