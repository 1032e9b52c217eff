//! The program: which tasks, in which order, and what is checked.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::pin;

use ::futures::TryStreamExt as _;
use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::task::{Arg, JobError, Output, Place, TaskOptions};
use exobus_files::part_name;
use exobus_shuffle::cuts::Cuts;
use exobus_shuffle::jobs::outputs;
use exobus_shuffle::jobs::values::read_values;
use exobus_shuffle::strategies::auto::{self, Estimate, Explained};
use exobus_shuffle::{Job, Plan, Sizes};
use serde_bytes::ByteBuf;

use super::ExplainedGroup;
use super::exchange::{MapParams, MergeParams, map, merge};
use super::maps::{Block, MapPlan, blocks, maps_in_order};
use super::partial::Partial;
use super::query::{Asked, GroupQuery};
use super::reduce::{BindParams, Made, PickParams, ReduceParams, WriteParams, bind, pick, reduce, write};
use super::sampled::{BLOCK_ROWS, MapBlocks, SampledMap, Sampler};
use crate::aggregates::Aggregate;
use crate::block::Layout;
use crate::jobs::dedupe::Keep;
use crate::jobs::describe::Blocks;
use crate::jobs::described::{Described, LOOK_BYTES};
use crate::jobs::output::{FileParams, Written, manifest};
use crate::jobs::parts::{options, two};
use crate::jobs::rewrite::{Arrangement, LookedAt, Rewrite, Rewritten, check_splits, cuts_of, maps, sampled};
use crate::jobs::row_limit::RowLimit;
use crate::jobs::table::Piece;
use crate::reading::Reading;

/// Bytes of a partition that are aggregated at a time: the groups of so much fit the caches of a processor, about.
const PARTITION_BYTES: u64 = 8 << 20;
/// Partitions for the sake of caches at most; memory may ask for more.
const PARTITIONS_MAX: u64 = 512;
/// Where there are so many times as many as memory asks for, it has room for those that are larger than was thought.
const UNEVEN: u64 = 4;
/// What a row takes on its way beside its values: marks and ends of its key.
const KEY_BYTES: u64 = 16;
/// What a group takes while it is aggregated, about, as if each row were one: its slot, its key and its count, with room to grow; and the state and the result of an aggregate.
pub(super) const GROUP_BYTES: u64 = 96;
pub(super) const AGGREGATE_BYTES: u64 = 64;
/// The groups that executors aggregate side by side take this share of the store of a node together, each as much as the others: what they read and what they make of it has room beside that.
const GROUPS_SHARE: u64 = 4;

/// A job as strategies run it.
struct Exchange<'a> {
    asked: Asked,
    reading: Reading,
    layout: ObjectRef,
    written: ObjectRef,
    cuts: ObjectRef,
    /// What each map reads.
    maps: Vec<Vec<Piece>>,
    row_bytes_max: RowLimit,
    columns: u64,
    /// What the groups of a partition take beside the store, about.
    groups_bytes: u64,
    map_plan: MapPlan,
    sampled: Option<Sampled<'a>>,
    /// The second output of each map, and of the reduce of each partition.
    mapped: RefCell<Vec<ObjectRef>>,
    reduced: RefCell<BTreeMap<u32, ObjectRef>>,
}

/// What reads blocks in another order than their own.
struct Sampled<'a> {
    sampler: &'a dyn Sampler,
    /// Which places of that order each map has.
    blocks: Vec<Range<usize>>,
}

impl Job for Exchange<'_> {
    fn name(&self) -> &'static str {
        "group"
    }

    fn map(&self, futures: &Futures, index: usize, place: Place) -> Result<ObjectRef, JobError> {
        let pieces = &self.maps[index];
        let (reading, asked) = (self.reading.clone(), self.asked.clone());
        let entries_max = self.map_plan.entries_max;
        let params = MapParams { reading, asked, row_bytes_max: self.row_bytes_max, entries_max };
        let outside_bytes = self.map_plan.outside_bytes(pieces, self.columns);
        let options = options(place, self.reading.options.beside_bytes() + outside_bytes);
        let read = futures.put_value(pieces)?;
        let args = [self.layout.arg(), self.cuts.arg(), read.arg()];
        let [parts, mapped] = match &self.sampled {
            None => two(futures.submit_many(map, &params, &args, 2, options)?)?,
            Some(sampled) => {
                let shown = [self.layout.arg(), self.written.arg()];
                let (params, args, blocks) = (MapBlocks(params), args.to_vec(), sampled.blocks[index].clone());
                sampled.sampler.map(futures, SampledMap { params, args, options, blocks, shown })?
            }
        };
        self.mapped.borrow_mut().push(mapped);
        Ok(parts)
    }

    fn merge(
        &self,
        futures: &Futures,
        blocks: &[Arg],
        pieces: &[u32],
        place: Place,
    ) -> Result<Vec<ObjectRef>, JobError> {
        let params = MergeParams { asked: self.asked.clone(), pieces: pieces.to_vec() };
        let args: Vec<Arg> = std::iter::once(self.layout.arg()).chain(blocks.iter().cloned()).collect();
        futures.submit_many(merge, &params, &args, pieces.len() as u32, options(place, self.groups_bytes))
    }

    fn reduce(&self, futures: &Futures, partition: u32, columns: &[Arg], place: Place) -> Result<ObjectRef, JobError> {
        let params = ReduceParams { asked: self.asked.clone() };
        let args: Vec<Arg> =
            [self.layout.arg(), self.written.arg()].into_iter().chain(columns.iter().cloned()).collect();
        let made = futures.submit_many(reduce, &params, &args, 2, options(place, self.groups_bytes))?;
        let [rows, made] = two(made)?;
        self.reduced.borrow_mut().insert(partition, made);
        Ok(rows)
    }
}

/// How a job is done.
struct Planned<'a> {
    described: Described,
    asked: Asked,
    /// Of what is written.
    written: Layout,
    sizes: Sizes,
    maps: Vec<Vec<Piece>>,
    map_plan: MapPlan,
    sampled: Option<Sampled<'a>>,
    plan: Plan,
    /// Of the table.
    layout: ObjectRef,
    /// Keys of rows that stand for all, where there are several partitions.
    keys: Vec<Vec<u8>>,
    groups_bytes: u64,
    /// What each strategy would do, the one first that is taken unless another one is told.
    estimates: Vec<Estimate>,
}

impl<'a> Planned<'a> {
    /// Looks at the table, and refuses a query that is none for it, and one for which there is too little memory.
    async fn of(
        futures: &Futures,
        rewrite: &Rewrite,
        query: &GroupQuery,
        sampler: Option<&'a dyn Sampler>,
    ) -> Result<Self, JobError> {
        query.check().map_err(|(_, what)| JobError::program(what))?;
        let reading = rewrite.reading.of_columns(query.columns());
        let rewrite = Rewrite { reading, ..rewrite.clone() };
        let described = match sampler {
            None => Described::of(futures, &rewrite, &query.key(), true).await?,
            Some(_) => {
                let of_aggregate = |aggregate: &Aggregate| aggregate.column.clone().unwrap_or_default();
                let columns = query.aggregates.iter().map(of_aggregate).collect();
                let blocks = Blocks { run_rows: BLOCK_ROWS, columns };
                Described::in_blocks(futures, &rewrite, &query.key(), &blocks).await?
            }
        };
        let asked = Asked::new(query.clone());
        let params = BindParams { asked: asked.clone(), form: described.form };
        let layout = futures.put(&described.layout)?;
        let written: ByteBuf = futures.get_value(&futures.submit(bind, &params, &[layout.arg()])?).await?;
        let written = Layout::decode(&written).map_err(JobError::program)?;
        let value_bytes = described.value_bytes();
        let rows: u64 = described.splits().map(|split| split.rows_about()).sum();
        let sizes = Sizes::of(&futures.nodes(), value_bytes + rows * KEY_BYTES);
        check_splits(&described, sizes)?;
        let groups = if query.is_of_all() && !query.counts_values() { 1 } else { rows };
        let all_groups = sizes.input_bytes + groups * (GROUP_BYTES + AGGREGATE_BYTES * query.aggregates.len() as u64);
        let at_once = sizes.memory_bytes / (GROUPS_SHARE * u64::from(sizes.executors_per_node.max(1)));
        let for_memory = all_groups.div_ceil(at_once.max(1));
        let for_caches = (sizes.input_bytes / PARTITION_BYTES).min(PARTITIONS_MAX);
        let partitions = if query.is_of_all() { 1 } else { for_memory.max(for_caches).max(1) };
        let are_small = partitions >= UNEVEN * for_memory;
        let looked_at = if are_small { LookedAt::for_few_groups(for_memory) } else { LookedAt::FOR_GROUPS };
        let partitions = u32::try_from(partitions).unwrap_or(u32::MAX);
        let by_key = Arrangement::distinct(query.key(), Vec::new(), Keep::First);
        let keys = match partitions {
            1 => Vec::new(),
            _ => sampled(futures, &described, (&by_key, false), &layout, (partitions, looked_at)).await?.0,
        };
        // What is told of blocks has its memory beside what maps make.
        let telling = sampler.map_or(0, |sampler| sampler.outside_bytes(sizes) * u64::from(sizes.executors_per_node));
        let memory_bytes = sizes.memory_bytes.saturating_sub(telling).max(sizes.memory_bytes / 2);
        let map_plan = MapPlan::of(&described, Sizes { memory_bytes, ..sizes }, query, &keys);
        let (maps, sampled) = match sampler {
            None => (maps(&described, map_plan.bytes), None),
            Some(sampler) => {
                let blocks = blocks(&described);
                let sizes_of = blocks.iter().map(Block::size).collect::<Vec<_>>();
                let order = sampler.order(&sizes_of, &described.extents(), sizes)?;
                let (maps, blocks) = maps_in_order(&blocks, &order, map_plan.bytes)?.into_iter().unzip();
                (maps, Some(Sampled { sampler, blocks }))
            }
        };
        let chunk_bytes = sizes.input_bytes.div_ceil(maps.len().max(1) as u64).max(1);
        let plan = Plan::of_chunks(sizes, Some(partitions), chunk_bytes).map_err(JobError::program)?;
        let groups_bytes = LOOK_BYTES + (all_groups / u64::from(plan.partitions)).min(at_once);
        let estimates = auto::estimates(sizes, maps.len(), &plan);
        Ok(Self {
            described,
            asked,
            written,
            sizes,
            maps,
            map_plan,
            sampled,
            plan,
            layout,
            keys,
            groups_bytes,
            estimates,
        })
    }
}

/// Says how it would be done; of the table the keys of some rows are read.
pub(super) async fn explain(
    futures: &Futures,
    rewrite: &Rewrite,
    query: &GroupQuery,
) -> Result<ExplainedGroup, JobError> {
    let planned = Planned::of(futures, rewrite, query, None).await?;
    let Planned { described, sizes, maps, plan, layout, keys, estimates, .. } = planned;
    let rows: u64 = described.splits().map(|split| split.rows_about()).sum();
    let map_rows = rows / maps.len().max(1) as u64;
    let partial = match query.is_of_all() {
        true => Partial::of_all(map_rows),
        false if plan.partitions > 1 => Partial::new(keys, map_rows),
        false => {
            let by_key = Arrangement::distinct(query.key(), Vec::new(), Keep::First);
            let (keys, _) = sampled(futures, &described, (&by_key, false), &layout, (1, LookedAt::FOR_FILES)).await?;
            Partial::new(keys, map_rows)
        }
    };
    let (input_bytes, maps) = (described.input_bytes(), maps.len() as u64);
    Ok(ExplainedGroup { partial, shuffled: Explained { input_bytes, sizes, maps, plan, estimates } })
}

/// Says of the groups of a table what is asked.
pub(super) async fn run(
    futures: Futures,
    name: &'static str,
    (rewrite, query): (Rewrite, GroupQuery),
    sampler: Option<&dyn Sampler>,
) -> Result<Rewritten, JobError> {
    let planned = Planned::of(&futures, &rewrite, &query, sampler).await?;
    let Planned {
        described,
        asked,
        written,
        sizes,
        maps,
        map_plan,
        sampled,
        plan,
        layout,
        keys,
        groups_bytes,
        estimates,
    } = planned;
    let strategy = rewrite.strategy.unwrap_or(estimates[0].strategy);
    let output = outputs::Output::claim(&futures, &rewrite.output, name).await?;
    let stage = sampled.as_ref().map_or("group.map", |sampled| sampled.sampler.stage());
    futures.plan_stage(stage, maps.len() as u64, described.value_bytes())?;
    futures.plan_stage("group.reduce", u64::from(plan.partitions), sizes.input_bytes)?;
    let cuts = if plan.partitions == 1 {
        Cuts::new(Vec::new()).map_err(JobError::program)?
    } else {
        cuts_of(keys, plan.partitions)?
    };
    let schema = written.schema().clone();
    let rows = described.rows();
    let exchange = Exchange {
        asked,
        reading: described.reading.clone(),
        layout,
        written: futures.put(&written.encode())?,
        cuts: futures.put_value(&cuts)?,
        maps,
        row_bytes_max: RowLimit::of(sizes),
        columns: schema.fields().len() as u64 + 2,
        groups_bytes,
        map_plan,
        sampled,
        mapped: RefCell::default(),
        reduced: RefCell::default(),
    };
    let shuffled = strategy.run(&futures, &exchange, exchange.maps.len(), &plan).await?;
    futures.wait_all(&shuffled.outputs).await?;
    drop(shuffled.kept);
    let said: Vec<ObjectRef> = exchange.reduced.take().into_values().collect();
    let said: Vec<Made> = read_values(&futures, &said).try_collect().await?;
    let of_reduce = |(object, made)| Rows { object, made };
    let mut made: Vec<Rows> = shuffled.outputs.into_iter().zip(said).map(of_reduce).collect();
    let rows_read = check_read(&futures, &exchange, rows, &made).await?;
    if query.top.is_some() {
        made = picked(&futures, &exchange, made).await?;
    }
    if let Some(Sampled { sampler, .. }) = &exchange.sampled {
        let with_rows = || made.iter().filter(|rows| rows.made.made.rows > 0);
        let rows: Vec<Arg> = with_rows().map(|rows| rows.object.arg()).collect();
        let groups = with_rows().map(|rows| rows.made.made.rows).sum();
        sampler.made(&futures, groups, exchange.written.arg(), &rows)?;
    }
    let file = FileParams {
        directory: rewrite.output.clone(),
        name: String::new(),
        form: described.form,
        options: rewrite.writing,
        sorted_by: query.order(),
        buffer_bytes: outputs::buffer_bytes(&plan, &rewrite.output),
    };
    let all = made.iter().fold(Output::default(), |mut all, rows| {
        all.add(rows.made.made);
        all
    });
    let files = write_files(&futures, (&exchange.written, &written), made, &file).await?;
    let mut in_files = Output::default();
    let mut values = pin!(read_values(&futures, &files));
    while let Some(Written { token, row_hash }) = values.try_next().await? {
        in_files.add(Output { bytes: token.bytes, rows: token.rows, row_hash });
    }
    if (all.rows, all.row_hash) != (in_files.rows, in_files.row_hash) {
        let detail = format!(
            "{} rows of hash {} were made, {} of hash {} written",
            all.rows, all.row_hash, in_files.rows, in_files.row_hash
        );
        return Err(JobError::Conservation { edge: "groups -> output".to_owned(), detail });
    }
    output.commit(&files, manifest(file.form.format(), &schema)).await?;
    Ok(Rewritten {
        rows_read,
        rows: in_files.rows,
        input_bytes: described.input_bytes(),
        output_bytes: in_files.bytes,
        row_hash_in: all.row_hash,
        row_hash_out: in_files.row_hash,
        strategy: Some(strategy),
        maps: exchange.maps.len() as u64,
        files: files.len() as u64,
        owner_bytes: futures.owner_bytes().await?,
    })
}

/// Rows of what is written, as a task made them.
struct Rows {
    object: ObjectRef,
    made: Made,
}

/// Law 1, from what was read to groups: each row is in one. `rows`: as many as input files say, where they do. How many were read.
async fn check_read(
    futures: &Futures,
    exchange: &Exchange<'_>,
    rows: Option<u64>,
    reduced: &[Rows],
) -> Result<u64, JobError> {
    let mut read = 0;
    let of_maps = exchange.mapped.take();
    let mut values = pin!(read_values::<u64>(futures, &of_maps));
    while let Some(of_map) = values.try_next().await? {
        read += of_map;
    }
    let in_groups: u64 = reduced.iter().map(|rows| rows.made.rows_read).sum();
    if read == in_groups && rows.is_none_or(|rows| rows == read) {
        return Ok(read);
    }
    let said =
        rows.map_or("nobody says how many rows there are".to_owned(), |rows| format!("input files say {rows} rows"));
    let detail = format!("{said}; read {read} rows; groups are of {in_groups} rows");
    Err(JobError::Conservation { edge: "input -> groups".to_owned(), detail })
}

/// The groups that stay, where reduces have picked some of each part of those that they had. Parts are one behind the other, so a part may begin in one partition and end in another one: its groups go to the first of
/// these.
async fn picked(futures: &Futures, exchange: &Exchange<'_>, mut reduced: Vec<Rows>) -> Result<Vec<Rows>, JobError> {
    reduced.retain(|rows| rows.made.made.rows > 0);
    let ends = |at: usize| reduced.get(at).and_then(|rows: &Rows| rows.made.ends.as_ref());
    let goes_on = |at: usize| ends(at).zip(ends(at + 1)).is_some_and(|([_, last], [first, _])| last == first);
    let is_one_part = |at: usize| ends(at).is_some_and(|[first, last]| first == last);
    // What a task makes of rows of several partitions; `None`: those of this partition as they are.
    let mut submitted: Vec<(usize, Option<[ObjectRef; 2]>)> = Vec::new();
    for (at, rows) in reduced.iter().enumerate() {
        let is_continued = at > 0 && goes_on(at - 1);
        if is_continued && is_one_part(at) {
            continue;
        }
        if !is_continued && !goes_on(at) {
            submitted.push((at, None));
            continue;
        }
        let mut args = vec![exchange.written.arg()];
        args.extend((!is_continued).then(|| rows.object.part(0).arg()));
        args.push(rows.object.part(1).arg());
        let mut next = at;
        while goes_on(next) && (next == at || is_one_part(next)) {
            next += 1;
            args.push(reduced[next].object.part(0).arg());
        }
        let params = PickParams { asked: exchange.asked.clone() };
        let made = futures.submit_many(pick, &params, &args, 2, options(Place::Anywhere, exchange.groups_bytes))?;
        submitted.push((at, Some(two(made)?)));
    }
    let said: Vec<ObjectRef> =
        submitted.iter().flat_map(|(_, made)| made.iter().map(|[_, said]| said.clone())).collect();
    let mut said = read_values(futures, &said).try_collect::<Vec<Made>>().await?.into_iter();
    let of_part = |(at, made): (usize, Option<[ObjectRef; 2]>)| match made {
        None => Rows { object: reduced[at].object.clone(), made: reduced[at].made.clone() },
        Some([object, _]) => Rows { object, made: said.next().expect("a value for each task") },
    };
    Ok(submitted.into_iter().map(of_part).collect())
}

/// Writes rows as files of even length, as many as follow from them.
async fn write_files(
    futures: &Futures,
    (layout, written): (&ObjectRef, &Layout),
    made: Vec<Rows>,
    file: &FileParams,
) -> Result<Vec<ObjectRef>, JobError> {
    let (rows, bytes) =
        made.iter().fold((0, 0), |(rows, bytes), Rows { made, .. }| (rows + made.made.rows, bytes + made.value_bytes));
    let files = file.options.file_size.files(bytes, rows);
    let of_file = rows.div_ceil(files.max(1));
    let sink_bytes = file.options.sink_bytes(file.form, written.schema(), (bytes / files, of_file));
    futures.plan_stage("group.write", files, bytes)?;
    let lengths: Vec<u64> = made.iter().map(|rows| rows.made.made.rows).collect();
    let mut submitted = Vec::with_capacity(files as usize);
    for number in 0..files {
        let at = |number: u64| (u128::from(number) * u128::from(rows) / u128::from(files)) as u64;
        let (objects, skip) = covering(&lengths, at(number)..at(number + 1));
        let name = file.form.file_name(&part_name(number as usize, files as usize));
        let file = FileParams { name, ..file.clone() };
        let args: Vec<Arg> =
            std::iter::once(layout.arg()).chain(made[objects].iter().map(|rows| rows.object.arg())).collect();
        let options = TaskOptions {
            scratch_bytes: vec![file.buffer_bytes; 2],
            outside_bytes: LOOK_BYTES + sink_bytes,
            ..TaskOptions::default()
        };
        let params = WriteParams { file, skip, rows: at(number + 1) - at(number) };
        submitted.push(futures.submit_with(write, &params, &args, options)?);
    }
    drop(made);
    futures.wait_all(&submitted).await?;
    Ok(submitted)
}

/// Which objects, of so many rows each, have these rows, and how many rows of the first of them are before these.
fn covering(lengths: &[u64], rows: Range<u64>) -> (Range<usize>, u64) {
    let (mut from, mut before) = (0, 0);
    while from < lengths.len() && before + lengths[from] <= rows.start {
        before += lengths[from];
        from += 1;
    }
    let (mut to, mut covered) = (from, before);
    while to < lengths.len() && covered < rows.end {
        covered += lengths[to];
        to += 1;
    }
    (from..to, if to > from { rows.start - before } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_file_are_those_of_the_objects_that_have_them() {
        let lengths = [3, 0, 4, 1];
        assert_eq!(covering(&lengths, 0..3), (0..1, 0));
        assert_eq!(covering(&lengths, 2..4), (0..3, 2));
        assert_eq!(covering(&lengths, 3..8), (2..4, 0));
        assert_eq!(covering(&lengths, 7..8), (3..4, 0));
        assert_eq!(covering(&lengths, 8..8), (4..4, 0));
        assert_eq!(covering(&[], 0..0), (0..0, 0));
    }
}
