//! A shuffle of tiny parts: one row of 8 bytes in each part of each map, so that next to nothing is data and everything is what the runtime adds to a part, a block and a task.

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::{Arg, EdgeShape, JobError, Output, Place, TaskOptions};
use exobus_actors::{ids::RowHash, task};
use exobus_shuffle::{Job, Plan, Sizes, jobs::pieces, strategies::auto};
use exobus_store::{Block, Clock, ObjectWriter, SystemClock};
use serde::{Deserialize, Serialize};

use super::programs::{Figures, figures};

const ROW_BYTES: usize = 8;
/// Maps, and partitions, of each of the shuffles that compare edges with sets.
const SIDE: u32 = 100;
/// Rounds of them that are measured, two each way.
const ROUNDS: usize = 30;

/// The row that map `index` has for `partition`, and its hash.
fn row(index: u64, partition: u64) -> ([u8; ROW_BYTES], RowHash) {
    let row = (index << 32 | partition).to_le_bytes();
    (row, hash(row))
}

/// Not linear, so that sums of hashes tell sets of rows apart.
fn hash(row: [u8; ROW_BYTES]) -> RowHash {
    let mixed = u64::from_le_bytes(row).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    RowHash(u128::from(mixed ^ mixed >> 32) * u128::from(mixed | 1))
}

#[derive(Debug, Serialize, Deserialize)]
struct MapParams {
    index: u64,
    partitions: u64,
}

/// Makes one object with a row in each part.
#[task(name = "bench.shuffle_map", deterministic = true)]
fn map(context: &mut TaskContext<'_>, params: MapParams) -> Result<(), TaskError> {
    let writer = context.output_sized(params.partitions * ROW_BYTES as u64)?;
    for partition in 0..params.partitions {
        let (row, hash) = row(params.index, partition);
        writer.begin_part(Some(ROW_BYTES as u64))?;
        writer.write(&row)?;
        writer.end_part(1, hash);
    }
    Ok(())
}

/// Puts the parts at the same position of all blocks one behind the other.
#[task(name = "bench.shuffle_merge", deterministic = true)]
fn merge(context: &mut TaskContext<'_>, pieces: Vec<u32>) -> Result<(), TaskError> {
    let args: Vec<Vec<Block>> = (0..context.args()).map(|arg| context.blocks(arg)).collect();
    let mut read = vec![Output::default(); args.len()];
    for (piece, parts) in pieces::ranges(&pieces) {
        let bytes = pieces::bytes(args.iter().flatten().map(Block::parts), &parts);
        let writer = context.output_at_sized(piece, bytes)?;
        for part in parts {
            concatenate(writer, &args, part, &mut read)?;
        }
        context.seal_output(piece)?;
    }
    for (arg, read) in read.into_iter().enumerate() {
        context.consumed(arg, read.bytes, read.rows, read.row_hash);
    }
    Ok(())
}

/// Writes a part of all blocks of all arguments as one; adds what that was to what was read of each argument.
fn concatenate(
    writer: &mut ObjectWriter,
    args: &[Vec<Block>],
    part: usize,
    read: &mut [Output],
) -> Result<(), TaskError> {
    let mut written = Output::default();
    writer.begin_part(None)?;
    for (blocks, read) in args.iter().zip(read) {
        for block in blocks {
            let bytes = block.part_bytes(part);
            writer.write(bytes)?;
            let rows = sum(bytes)?;
            read.add(rows);
            written.add(rows);
        }
    }
    writer.end_part(written.rows, written.row_hash);
    Ok(())
}

fn sum(rows: &[u8]) -> Result<Output, TaskError> {
    let (rows, rest) = rows.as_chunks::<ROW_BYTES>();
    if !rest.is_empty() {
        return Err(TaskError::fatal(format!("{} bytes of a part are no row", rest.len())));
    }
    let row_hash = rows.iter().map(|row| hash(*row)).sum();
    Ok(Output { bytes: rows.as_flattened().len() as u64, rows: rows.len() as u64, row_hash })
}

/// Counts the rows of a partition.
#[task(name = "bench.shuffle_reduce", deterministic = true)]
fn reduce(context: &mut TaskContext<'_>, _partition: u32) -> Result<u64, TaskError> {
    let mut rows = 0;
    for arg in 0..context.args() {
        let mut read = Output::default();
        for block in context.blocks(arg) {
            read.add(sum(&block)?);
        }
        context.consumed(arg, read.bytes, read.rows, read.row_hash);
        rows += read.rows;
    }
    Ok(rows)
}

struct Tiny {
    partitions: u32,
}

impl Job for Tiny {
    fn name(&self) -> &'static str {
        "shuffle"
    }

    fn map(&self, futures: &Futures, index: usize, place: Place) -> Result<ObjectRef, JobError> {
        let params = MapParams { index: index as u64, partitions: u64::from(self.partitions) };
        futures.submit_with(map, &params, &[], TaskOptions { place, ..TaskOptions::default() })
    }

    fn merge(
        &self,
        futures: &Futures,
        blocks: &[Arg],
        pieces: &[u32],
        place: Place,
    ) -> Result<Vec<ObjectRef>, JobError> {
        let options = TaskOptions { place, ..TaskOptions::default() };
        futures.submit_many(merge, &pieces.to_vec(), blocks, pieces.len() as u32, options)
    }

    fn reduce(&self, futures: &Futures, partition: u32, columns: &[Arg], place: Place) -> Result<ObjectRef, JobError> {
        futures.submit_with(reduce, &partition, columns, TaskOptions { place, ..TaskOptions::default() })
    }
}

/// Shuffles `maps` x `partitions` parts of one row with the strategy that is estimated to be the fastest.
pub(super) async fn shuffle(futures: &Futures, maps: u32, partitions: u32) -> Result<Figures, JobError> {
    let clock = SystemClock::new();
    let started = clock.now();
    let row_bytes = ROW_BYTES as u64;
    let sizes = Sizes::of(&futures.nodes(), u64::from(maps) * u64::from(partitions) * row_bytes);
    let plan =
        Plan::of_chunks(sizes, Some(partitions), u64::from(partitions) * row_bytes).map_err(JobError::program)?;
    let strategy = auto::choose(sizes, maps as usize, &plan);
    futures.plan_stage("shuffle.map", u64::from(maps), sizes.input_bytes)?;
    futures.plan_stage("shuffle.reduce", u64::from(partitions), sizes.input_bytes)?;
    let shuffled = strategy.run(futures, &Tiny { partitions }, maps as usize, &plan).await?;
    futures.wait_all(&shuffled.outputs).await?;
    each_has(futures, &shuffled.outputs, maps).await?;
    Ok(figures([
        ("maps", f64::from(maps)),
        ("partitions", f64::from(partitions)),
        ("maps_per_round", plan.maps_per_round as f64),
        ("seconds", (clock.now() - started).as_secs_f64()),
    ]))
}

/// Each partition has a row of each map.
async fn each_has(futures: &Futures, partitions: &[ObjectRef], maps: u32) -> Result<(), JobError> {
    for partition in partitions {
        let rows: u64 = futures.get_value(partition).await?;
        if rows != u64::from(maps) {
            return Err(JobError::program(format!("a partition has {rows} rows of {maps}")));
        }
    }
    Ok(())
}

/// How small shuffles go.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Through a set that is of no edge.
    Set,
    /// Through an edge that keeps its parts: what its ledger adds.
    Kept,
    /// Through an edge whose parts are freed as they are read.
    Freed,
}

/// Shuffles of [`SIDE`] x [`SIDE`] parts of one row, in turns through a set that is of no edge and through edges; tasks a second, and what edges
/// take of the time of a set in rounds that follow each other.
pub(super) async fn edges(futures: &Futures) -> Result<Figures, JobError> {
    const TURNS: [Way; 6] = [Way::Set, Way::Kept, Way::Freed, Way::Freed, Way::Kept, Way::Set];
    let clock = SystemClock::new();
    let mut maps = 0;
    let mut rounds = Vec::new();
    // The first ones touch memory that the others use again.
    for round in 0..ROUNDS + 2 {
        let mut seconds = [0.0; 3];
        for way in TURNS {
            let started = clock.now();
            one(futures, maps, way).await?;
            // It answers when everything that was released before is forgotten.
            futures.owner_bytes().await?;
            seconds[way as usize] += (clock.now() - started).as_secs_f64();
            maps += u64::from(SIDE);
        }
        if round >= 2 {
            rounds.push(seconds);
        }
    }
    let median = |of: &dyn Fn(&[f64; 3]) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let rate = |way: Way| (f64::from(4 * SIDE) / median(&|seconds| seconds[way as usize])).round();
    let per_set = |way: Way| median(&|seconds| seconds[way as usize] / seconds[Way::Set as usize]);
    Ok(figures([
        ("set_tasks_per_s_median", rate(Way::Set)),
        ("edge_kept_tasks_per_s_median", rate(Way::Kept)),
        ("edge_freed_tasks_per_s_median", rate(Way::Freed)),
        ("edge_kept_per_set_time", (1000.0 * per_set(Way::Kept)).round() / 1000.0),
        ("edge_freed_per_set_time", (1000.0 * per_set(Way::Freed)).round() / 1000.0),
    ]))
}

async fn one(futures: &Futures, first_map: u64, way: Way) -> Result<(), JobError> {
    let job = Tiny { partitions: SIDE };
    let maps = (0..u64::from(SIDE)).map(|index| job.map(futures, (first_map + index) as usize, Place::Anywhere));
    let maps = maps.collect::<Result<Vec<_>, _>>()?;
    let shape = EdgeShape::new("bench.shuffle_map -> bench.shuffle_reduce", SIDE);
    let set = match way {
        Way::Set => futures.set(&maps)?,
        Way::Kept | Way::Freed => futures.closed_edge(EdgeShape { keep: way == Way::Kept, ..shape }, &maps)?,
    };
    drop(maps);
    let reduces = (0..SIDE).map(|part| job.reduce(futures, part, &[set.part(part)], Place::Anywhere));
    let reduces = reduces.collect::<Result<Vec<_>, _>>()?;
    drop(set);
    each_has(futures, &reduces, SIDE).await
}
