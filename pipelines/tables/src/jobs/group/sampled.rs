//! Groups of a table whose blocks are read in another order than their own, and of which is told, block by block, what they have of each group: what is known of the table before all of it was read is
//! estimated from that. What is made of the groups in the end is the same, bit by bit.
//!
//! A [`Sampler`] says in which order blocks are read, and has tasks of its own read them ([`map_blocks`] does the work); all else is as of [`group`](super::group).

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, Decimal128Array, Decimal256Array, Float64Array, Int64Array, RecordBatch, UInt32Array,
    new_null_array,
};
use arrow_buffer::i256;
use arrow_schema::{DataType, Schema, SchemaRef};
use arrow_select::take::take_record_batch;
use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::{Arg, JobError, TaskOptions};
use exobus_shuffle::Sizes;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::block_totals::BlockTotals;
use super::collector::{Collector, REDUCTION_MIN};
use super::exchange::{MapParams, map_pieces};
use super::query::{Asked, Grouping, Kind};
use super::reduce::{chosen_rows, streamed, written_layout};
use super::{GroupQuery, GroupTable, program};
use crate::aggregates::Estimated;
use crate::jobs::budget::{TaskBudget, Unordered, of_table};
use crate::jobs::parts::next_rows;
use crate::jobs::rewrite::Rewritten;
use crate::jobs::table::Table;
use crate::semantics::conformed;
use crate::sources::{MemoryBudget, Reservation};

/// Rows of a run of pages that is a block, at least.
pub(super) const BLOCK_ROWS: u64 = 25_000;

/// A block of a table: what is read as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSize {
    /// How many rows it has, whether or not they meet a condition; `None`: nobody knows before it is read.
    pub rows: Option<u64>,
    /// Bytes of its values, about.
    pub bytes: u64,
}

/// How blocks are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOrder {
    /// Their numbers, each once.
    pub blocks: Vec<usize>,
    /// After how many of them a task that reads some ends, whatever else it had room for, in rising order.
    pub ends: Vec<usize>,
}

/// What reads some blocks.
#[derive(Debug)]
pub struct SampledMap {
    /// What [`map_blocks`] is told.
    pub params: MapBlocks,
    /// Its arguments, behind which a task may have others.
    pub args: Vec<Arg>,
    /// What it needs.
    pub options: TaskOptions,
    /// Which places of the order they have.
    pub blocks: Range<usize>,
    /// Arguments of who looks at groups: what [`Shown`] is made of.
    pub shown: [Arg; 2],
}

/// Who has blocks of a table read in an order of his own.
pub trait Sampler {
    /// In which order, for a table that has these, on such nodes. `extents`: of each aggregate, between which numbers the values of its column are, as files say; `None`: they do not. Called once, before any block is read.
    ///
    /// # Errors
    /// Whatever ends the job.
    fn order(&self, blocks: &[BlockSize], extents: &[Option<(f64, f64)>], nodes: Sizes) -> Result<ReadOrder, JobError>;

    /// What each of its tasks takes for what it tells of blocks on such nodes, bytes beside the store, at most.
    fn outside_bytes(&self, nodes: Sizes) -> u64;

    /// The stage of its tasks that read blocks: their name.
    fn stage(&self) -> &'static str;

    /// Submits the task that reads some: the first of its outputs are those of [`map_blocks`], which are returned. Called in the order of blocks.
    ///
    /// # Errors
    /// Whatever ends the job.
    fn map(&self, futures: &Futures, map: SampledMap) -> Result<[ObjectRef; 2], JobError>;

    /// All groups are known: so many, the layout of what is written, and objects of such rows in the order in which they are written ([`read_rows`] reads them).
    ///
    /// # Errors
    /// Whatever ends the job.
    fn made(&self, futures: &Futures, groups: u64, layout: Arg, rows: &[Arg]) -> Result<(), JobError>;
}

/// Says of the groups of a table what is asked, as [`group`](super::group) does, with its blocks in the order of a sampler.
///
/// # Errors
/// As of [`group`](super::group); the sampler's.
pub async fn group_sampled(
    futures: Futures,
    name: &'static str,
    params: GroupTable,
    sampler: &dyn Sampler,
) -> Result<Rewritten, JobError> {
    program::run(futures, name, (params.table, params.query), Some(sampler)).await
}

/// What [`map_blocks`] is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapBlocks(pub(super) MapParams);

/// How many terms a group has of a query: see [`BlockGroups::terms`].
pub fn terms(query: &GroupQuery) -> usize {
    1 + query.aggregates.iter().map(|aggregate| aggregate.function.estimated().terms()).sum::<usize>()
}

/// How each aggregate of a query is estimated, and the number of the first of its terms.
pub fn estimated(query: &GroupQuery) -> Vec<(Estimated, usize)> {
    // The first term says how many rows there are.
    let mut next = 1;
    let of = |estimated: Estimated| {
        let first = next;
        next += estimated.terms();
        (estimated, first)
    };
    query.aggregates.iter().map(|aggregate| aggregate.function.estimated()).map(of).collect()
}

/// What is told of blocks.
pub struct Telling<'a> {
    /// Keys of the groups that are told; `None`: all, as long as a block has no more than `groups_max`.
    pub followed: Option<&'a [ByteBuf]>,
    /// See there.
    pub groups_max: usize,
    /// Who is told of each block, in their order.
    pub each: EachBlock<'a>,
}

/// Who is told of a block what its rows have of which group.
pub type EachBlock<'a> = Box<dyn FnMut(&BlockGroups<'_>) -> Result<(), TaskError> + 'a>;

/// Reads blocks, and writes the first two outputs of a task: what the exchange of groups takes, and how many rows there were. Without `telling` blocks are read as those of a table that nobody samples. Returns the groups that
/// have been numbered for who is told of blocks.
///
/// # Errors
/// Those of reading and of `telling`.
pub fn map_blocks(
    context: &mut TaskContext<'_>,
    params: MapBlocks,
    telling: Option<Telling<'_>>,
) -> Result<NumberedGroups, TaskError> {
    Ok(NumberedGroups(map_pieces(context, params.0, telling)?))
}

/// The groups that have numbers when all blocks were read.
pub struct NumberedGroups(Option<BlockTotals>);

impl NumberedGroups {
    /// The bytes that tell each group from others, in the order of their numbers.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().flat_map(keys_of)
    }
}

fn keys_of(totals: &BlockTotals) -> impl Iterator<Item = &[u8]> {
    (0..totals.groups().len() as u32).map(|group| totals.groups().key(group))
}

/// Calls `each` with rows that are to be written, until it says that it has seen enough. `layout`: the argument that is their layout; all arguments from `first` on, which are streams, have rows.
///
/// # Errors
/// Those of reading and of `each`.
pub fn read_rows(
    context: &mut TaskContext<'_>,
    (layout, first): (usize, usize),
    mut each: impl FnMut(&RecordBatch) -> Result<ControlFlow<()>, TaskError>,
) -> Result<(), TaskError> {
    let (budget, layout) = (TaskBudget::new(context), written_layout(context, layout)?);
    for arg in first..context.args() {
        for reader in context.readers(arg) {
            let mut stream = streamed(&layout, reader);
            while let Some((rows, _memory)) = next_rows(&mut stream, &budget)? {
                context.check_cancelled()?;
                if each(&rows)?.is_break() {
                    (arg..context.args()).for_each(|arg| context.reads_no_further(arg));
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// The groups of a block. They have numbers, which are the same in all blocks of a task: the places of those that are [followed](Telling::followed), else in the order in which they were met. Behind a block that [is cut](Self::is_cut) they are numbered anew.
pub struct BlockGroups<'a> {
    totals: &'a BlockTotals,
    rows: usize,
    is_cut: bool,
}

impl BlockGroups<'_> {
    /// The groups that rows of the block are of.
    pub fn groups(&self) -> &[u32] {
        self.totals.met()
    }

    /// Whether there are more groups, of which nothing is told.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// How many rows the block has that meet what they have to.
    pub fn rows(&self) -> u64 {
        self.rows as u64
    }

    /// How many groups have numbers.
    pub fn numbered(&self) -> usize {
        self.totals.groups().len()
    }

    /// The bytes that tell each of these from others, in the order of their numbers.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        keys_of(self.totals)
    }

    /// The terms of those at these places among [`groups`](Self::groups), from which aggregates are estimated, a column for each: how many rows there are, and then those of each aggregate ([`estimated`]).
    pub fn terms(&self, places: Range<usize>) -> Vec<Vec<f64>> {
        let rows = self.totals.rows()[places.clone()].iter().map(|rows| *rows as f64).collect();
        let places: Vec<u32> = (places.start as u32..places.end as u32).collect();
        let of_aggregates = self.totals.accumulators().iter().flat_map(|accumulator| accumulator.terms(&places));
        std::iter::once(rows).chain(of_aggregates).collect()
    }
}

/// What blocks have of groups, one block after the other, on their way to a collector.
pub(super) struct OfBlocks<'a> {
    totals: BlockTotals,
    each: EachBlock<'a>,
    groups_max: usize,
    /// Not all groups are told, but those that are numbered from the beginning.
    follows: bool,
    /// Rows of groups that have no number are left out: there were more than are told.
    is_cut: bool,
    rows: usize,
    /// Whether groups of a block are put together before they go on. The block before has shown whether that is worth while.
    combines: bool,
    /// Whether they may be: what is made from counted values is not put together here.
    may_combine: bool,
    /// What the collector keeps of what was put together.
    kept: Reservation,
}

impl<'a> OfBlocks<'a> {
    /// Of a collector that has nothing yet.
    ///
    /// # Errors
    /// As of [`BlockTotals::new`]; more memory is needed than there is.
    pub(super) fn new(
        grouping: &Arc<Grouping>,
        telling: Telling<'a>,
        collector: &mut Collector<'_>,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, Unordered> {
        let Telling { followed, groups_max, each } = telling;
        let mut totals = BlockTotals::new(grouping, budget)?;
        let may_combine = grouping.values.is_empty() && followed.is_none();
        let follows = followed.is_some();
        if let Some(keys) = followed {
            let keys = BinaryArray::from_iter_values(keys.iter());
            totals.follow(&keys)?;
            collector.follow(&keys)?;
        }
        let kept = Reservation::none(budget);
        Ok(Self { totals, each, groups_max, follows, is_cut: false, rows: 0, combines: may_combine, may_combine, kept })
    }

    /// Adds rows of the block; whether they are kept where they are.
    ///
    /// # Errors
    /// As of [`BlockTotals::add`] and [`Collector::add`].
    pub(super) fn add(&mut self, message: &RecordBatch, collector: &mut Collector<'_>) -> Result<bool, Unordered> {
        self.rows += message.num_rows();
        if self.follows {
            let is_kept = collector.add(Kind::Rows, message)?;
            self.totals.add_found(message, collector.followed())?;
            return Ok(is_kept);
        }
        match self.is_cut {
            false => self.totals.add(message)?,
            true => self.totals.add_known(message)?,
        }
        let is_put_together = self.combines;
        if !self.is_cut && self.totals.groups().len() > self.groups_max {
            if self.combines {
                // What comes from here on goes on as it is.
                self.pass_on(collector)?;
                self.combines = false;
            }
            self.is_cut = true;
            self.totals.know();
        }
        if is_put_together { Ok(false) } else { collector.add(Kind::Rows, message) }
    }

    /// The block is over.
    ///
    /// # Errors
    /// As of [`Collector::add`]; who is told says another one.
    pub(super) fn end(&mut self, collector: &mut Collector<'_>) -> Result<Result<(), TaskError>, Unordered> {
        let Self { totals, rows, is_cut, .. } = self;
        let told = (self.each)(&BlockGroups { totals, rows: *rows, is_cut: *is_cut });
        if self.combines {
            self.pass_on(collector)?;
        }
        let groups = self.totals.met().len() as u64;
        self.combines = self.may_combine && !self.is_cut && REDUCTION_MIN * groups <= self.rows as u64;
        self.rows = 0;
        self.totals.clear();
        if std::mem::take(&mut self.is_cut) {
            self.totals.forget();
        }
        Ok(told)
    }

    /// The groups that were numbered.
    pub(super) fn into_totals(self) -> BlockTotals {
        self.totals
    }

    /// Passes on what was put together.
    fn pass_on(&mut self, collector: &mut Collector<'_>) -> Result<(), Unordered> {
        for message in self.totals.messages() {
            let message = message?;
            if collector.add(Kind::States, &message)? {
                self.kept.resize(self.kept.bytes() + message.get_array_memory_size() as u64)?;
            }
        }
        Ok(())
    }
}

/// The groups of a query as rows that may be written, before all of the table was read.
pub struct Shown {
    /// Which groups are shown, in which order.
    query: GroupQuery,
    grouping: Arc<Grouping>,
    /// What is written, with nulls where nothing is known.
    written: SchemaRef,
}

impl Shown {
    /// Of a task whose first two arguments are those of [`SampledMap::shown`].
    ///
    /// # Errors
    /// They are others.
    pub fn of(context: &TaskContext<'_>, query: GroupQuery) -> Result<Self, TaskError> {
        let table = Table::of(context)?;
        let grouping = Asked::new(query.clone()).grouping(&table.schema)?;
        let written = nullable(written_layout(context, 1)?.schema());
        Ok(Self { query, grouping, written })
    }

    /// The names of the columns that are written: those that tell groups apart, and then aggregates.
    pub fn columns(&self) -> Vec<String> {
        names(&self.written)
    }

    /// Which of the groups of these keys, which rise, are shown, and their rows: in the order in which groups are written, those that meet `having` and are among the first of `top`. `estimates`: of each
    /// aggregate a column, with nulls where there is no estimate; one that does not fit the type of the aggregate is null, too.
    ///
    /// # Errors
    /// Bytes that are no keys.
    pub fn chosen(&self, keys: &[&[u8]], estimates: &[Vec<Option<f64>>]) -> Result<(Vec<u32>, RecordBatch), TaskError> {
        let keys = BinaryArray::from_iter_values(keys);
        let mut columns = self.grouping.columns(&keys).map_err(of_table)?;
        let by = columns.len();
        let known = nullable(&self.grouping.schema);
        for (column, field) in estimates.iter().zip(&known.fields()[by..]) {
            columns.push(as_type(column.iter().copied(), field.data_type()));
        }
        let rows = RecordBatch::try_new(known, columns).map_err(TaskError::fatal)?;
        let rows = conformed(&rows, &self.written).map_err(of_table)?;
        let chosen = chosen_rows(&self.query, &rows).map_err(of_table)?;
        let rows = take_record_batch(&rows, &UInt32Array::from(chosen.clone())).map_err(TaskError::fatal)?;
        Ok((chosen, rows))
    }
}

/// The names of the columns of rows whose layout is this argument.
///
/// # Errors
/// It is none.
pub fn columns_of(context: &TaskContext<'_>, layout: usize) -> Result<Vec<String>, TaskError> {
    Ok(names(written_layout(context, layout)?.schema()))
}

fn names(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

fn nullable(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

/// A float without digits behind the point as a whole number; `None`: it does not fit.
fn whole<T: TryFrom<i128>>(value: f64) -> Option<T> {
    let whole = (value.abs() < 2_f64.powi(126)).then_some(value as i128)?;
    T::try_from(whole).ok()
}

/// Estimates as values of the type of an aggregate.
fn as_type(values: impl ExactSizeIterator<Item = Option<f64>>, data_type: &DataType) -> ArrayRef {
    let unscaled = |value: f64, scale: i8| (value * 10_f64.powi(i32::from(scale))).round();
    match data_type {
        DataType::Float64 => Arc::new(values.collect::<Float64Array>()),
        DataType::Int64 => Arc::new(values.map(|value| whole(value?.round())).collect::<Int64Array>()),
        DataType::Decimal128(_, scale) => {
            let values = values.map(|value| whole(unscaled(value?, *scale)));
            Arc::new(values.collect::<Decimal128Array>().with_data_type(data_type.clone()))
        }
        DataType::Decimal256(_, scale) => {
            let values = values.map(|value| whole::<i128>(unscaled(value?, *scale)).map(i256::from_i128));
            Arc::new(values.collect::<Decimal256Array>().with_data_type(data_type.clone()))
        }
        // Nothing of another type is estimated.
        _ => new_null_array(data_type, values.len()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use arrow_array::{Int64Array, StringArray};
    use exobus_shuffle::cuts::Cuts;

    use super::super::collector::ENTRIES_MIN;
    use super::super::query::keys;
    use super::*;
    use crate::aggregates::parse_list;
    use crate::sources::FixedBudget;

    /// So many rows of each group.
    fn batch(groups: std::ops::Range<u64>, each: usize) -> RecordBatch {
        let rows: Vec<u64> = groups.flat_map(|group| std::iter::repeat_n(group, each)).collect();
        let names = StringArray::from_iter_values(rows.iter().map(|group| format!("{:06}", group * 7919 % 200_003)));
        let numbers = Int64Array::from_iter_values(rows.iter().map(|group| *group as i64));
        let columns: [(&str, ArrayRef); 2] = [("name", Arc::new(names)), ("number", Arc::new(numbers))];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn what_blocks_have_of_followed_groups_is_told_whatever_becomes_of_other_groups() {
        // Of three rows of each group one becomes, and these are passed on twice before the end; of one row nothing is made, and most are passed on as they are.
        for (each, passed_on) in [(3, 2), (1, 1)] {
            let grouping = |batch: &RecordBatch| {
                let aggregates = parse_list("sum(number)").unwrap();
                let query = GroupQuery { by: vec!["name".to_owned()], aggregates, having: None, top: None };
                Arc::new(Grouping::new(&query, &batch.schema()).unwrap())
            };
            told_of_followed(&grouping(&batch(0..1, 1)), each, passed_on);
        }
    }

    fn told_of_followed(grouping: &Arc<Grouping>, each: usize, passed_on: usize) {
        const GROUPS: u64 = 150_000;
        const EVERY: u64 = 700;
        let message = |groups: std::ops::Range<u64>| grouping.rows(&batch(groups, each), 0).unwrap();
        let key_of = |group: u64| ByteBuf::from(keys(&message(group..group + 1)).value(0).to_vec());
        let followed: Vec<ByteBuf> = (0..GROUPS).step_by(EVERY as usize).map(key_of).collect();
        let told = RefCell::new(Vec::new());
        let tells: EachBlock<'_> = Box::new(|block: &BlockGroups<'_>| {
            let groups = block.groups().to_vec();
            assert!(groups.is_sorted(), "they were met in this order");
            told.borrow_mut().push((groups.clone(), block.terms(0..groups.len())));
            Ok(())
        });
        let telling = Telling { followed: Some(&followed), groups_max: 1, each: tells };
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
        let cuts = Cuts::new(Vec::new()).unwrap();
        let mut collector = Collector::new(grouping, &cuts, ENTRIES_MIN, &budget).unwrap();
        let mut of_blocks = OfBlocks::new(grouping, telling, &mut collector, &budget).unwrap();
        let (mut fewer, mut kept) = (0, 0);
        for from in (0..GROUPS).step_by(1_000) {
            let before = collector.entries();
            kept += usize::from(of_blocks.add(&message(from..from + 1_000), &mut collector).unwrap());
            fewer += usize::from(collector.entries() < before);
            of_blocks.end(&mut collector).unwrap().unwrap();
        }
        assert_eq!((fewer, kept > 0), (passed_on, each == 1), "the collector has passed on what it had");
        drop(of_blocks);
        for (block, (groups, terms)) in (0..).zip(told.into_inner()) {
            let of_block = (0..GROUPS / EVERY + 1).filter(|number| number * EVERY / 1_000 == block);
            let expected: Vec<u32> = of_block.map(|number| number as u32).collect();
            assert_eq!(groups, expected, "block {block}");
            assert_eq!(terms[0], vec![each as f64; expected.len()], "block {block}");
            let sum = |number: &u32| (each as u64 * u64::from(*number) * EVERY) as f64;
            assert_eq!(terms[1], expected.iter().map(sum).collect::<Vec<_>>(), "block {block}");
        }
        // Each group goes on once, and none that is followed and of no row.
        let parts = collector.finish().unwrap();
        assert_eq!(parts.of(0).iter().map(|(_, picks)| picks.len() as u64).sum::<u64>(), GROUPS);
    }
}
