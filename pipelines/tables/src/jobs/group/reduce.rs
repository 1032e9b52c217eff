//! The tasks behind the exchange: groups are finished, the first of them are picked, and files are written.

use std::sync::Arc;

use arrow_array::{Array as _, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take_record_batch;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::Output;
use exobus_shuffle::jobs::outputs;
use exobus_shuffle::jobs::values::write_value;
use exobus_store::{Block, ObjectReader};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::combiner::Combiner;
use super::exchange::each_message;
use super::finish::Finish;
use super::query::{Asked, GroupQuery};
use super::top::{Picked, TopRows};
use crate::block::{Gather, Layout, Limits, Part, Pick, Streamed};
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::output::{FileParams, PartWriter, Written};
use crate::jobs::parts::{account, arguments, next_rows, write_rows};
use crate::jobs::rewrite::MESSAGE_BYTES;
use crate::jobs::table::Table;
use crate::semantics::{conformed, stored_schema};
use crate::sinks::FileForm;
use crate::sources::{Reservation, value_bytes};
use crate::{RowHasher, TableError};

/// What `bind` is told. Its argument is the layout of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BindParams {
    pub(super) asked: Asked,
    pub(super) form: FileForm,
}

/// The layout of what is written, encoded; a query that is none for the table is refused.
#[task(name = "group.bind", deterministic = true)]
pub(super) fn bind(context: &mut TaskContext<'_>, params: BindParams) -> Result<ByteBuf, TaskError> {
    let query = params.asked.query();
    let grouping = params.asked.grouping(&Table::of(context)?.schema)?;
    let written = stored_schema(params.form.format().types(), &grouping.schema).map_err(of_table)?;
    query.having.as_ref().map(|having| having.bind(&written)).transpose().map_err(of_table)?;
    TopRows::new(query, &written).map_err(of_table)?;
    Ok(ByteBuf::from(Layout::new(&written).map_err(of_table)?.encode()))
}

/// What `reduce` is told. Its arguments are the layout of the table, that of what is written, and one part of everything that is left to put together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ReduceParams {
    pub(super) asked: Asked,
}

/// The second output of a task that makes rows of what is written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Made {
    /// Rows of the table that they stand for; of those that were made of others, none.
    pub(super) rows_read: u64,
    /// How many groups there were.
    pub(super) groups: u64,
    /// The rows that were made, and their hash.
    pub(super) made: Output,
    /// Bytes of the values of these.
    pub(super) value_bytes: u64,
    /// Where some of each part of the groups stay: what groups of the first and of the last part have in common.
    pub(super) ends: Option<[ByteBuf; 2]>,
}

/// Groups of a partition as rows of what is written, in the order in which they are written; its second output is [`Made`]. The object has the rows of the first part of groups, of each of which
/// some stay, as a part of its own, and then all others.
#[task(name = "group.reduce", deterministic = true)]
pub(super) fn reduce(context: &mut TaskContext<'_>, params: ReduceParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let (table, layout) = (Table::of(context)?, written_layout(context, 1)?);
    let grouping = params.asked.grouping(&table.schema)?;
    let args = arguments(context, 2);
    let mut combiner = Combiner::new(&grouping, &budget.shared()).map_err(of_table)?;
    let (mut read, mut rows_read) = (Output::default(), 0);
    for part in args.iter().flatten().filter(|part| !part.is_empty()) {
        context.check_cancelled()?;
        read.add(each_message(&grouping, part.clone(), |kind, message| {
            rows_read += combiner.add(kind, message).map_err(|error| budget.of_groups(error))?;
            Ok(())
        })?);
    }
    if params.asked.query().is_of_all() {
        combiner.add_group_of_all().map_err(|error| budget.of_groups(error))?;
    }
    let mut rows = WrittenRows::new(params.asked.query(), layout, &budget)?;
    let mut finish = Finish::new(&grouping, &combiner, &budget.shared()).map_err(|error| budget.of_groups(error))?;
    while let Some(batch) = finish.next().map_err(of_table)? {
        context.check_cancelled()?;
        rows.add(batch)?;
    }
    let made = Made { rows_read, groups: combiner.groups().len() as u64, ..rows.write(context)? };
    account(context, 2, &args, read);
    write_value(context, 1, &made)
}

/// What `pick` is told. Its arguments are the layout of what is written, and parts of groups that were picked, in the order of their keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PickParams {
    pub(super) asked: Asked,
}

/// The first groups of parts that several reduces have picked groups of; its second output is [`Made`].
#[task(name = "group.pick", deterministic = true)]
pub(super) fn pick(context: &mut TaskContext<'_>, params: PickParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let layout = written_layout(context, 0)?;
    // What they had to meet they have met.
    let query = GroupQuery { having: None, ..params.asked.query().clone() };
    let mut rows = WrittenRows::new(&query, layout.clone(), &budget)?;
    for block in arguments(context, 1).into_iter().flatten() {
        for batch in rows_of(&layout, block) {
            rows.add(batch.map_err(of_table)?)?;
        }
    }
    let made = rows.write(context)?;
    write_value(context, 1, &made)
}

/// The rows of a batch that stay, in the order in which they are written: groups, in the order of their keys.
pub(super) fn chosen_rows(query: &GroupQuery, rows: &RecordBatch) -> Result<Vec<u32>, TableError> {
    let schema = rows.schema();
    let having = query.having.as_ref().map(|having| having.bind(&schema)?.evaluate(rows)).transpose()?;
    let is_kept =
        |row: &u32| having.as_ref().is_none_or(|kept| kept.is_valid(*row as usize) && kept.value(*row as usize));
    let kept: Vec<u32> = (0..rows.num_rows() as u32).filter(is_kept).collect();
    let Some(mut top) = TopRows::new(query, &schema)? else { return Ok(kept) };
    let of_kept = take_record_batch(rows, &UInt32Array::from(kept.clone()))?;
    top.add(0, &of_kept)?;
    Ok(top.finish().picks.iter().map(|of_kept| kept[of_kept.row as usize]).collect())
}

/// The layout of what is written.
pub(super) fn written_layout(context: &TaskContext<'_>, argument: usize) -> Result<Arc<Layout>, TaskError> {
    Layout::decode(&context.block(argument)).map(Arc::new).map_err(of_table)
}

/// Rows of all parts of a block.
#[allow(unsafe_code, reason = "parts of these tasks are read without validation")]
fn rows_of(layout: &Arc<Layout>, block: Block) -> impl Iterator<Item = Result<RecordBatch, TableError>> {
    let parts = (0..block.parts().len()).map(move |part| block.part(part)).filter(|part| !part.is_empty());
    // SAFETY: they are outputs of the tasks above, which write with a `Gather` and run in the node.
    parts.flat_map(|part| unsafe { Part::new(layout.clone(), part) })
}

/// Rows of what is written, as they are made.
struct WrittenRows<'a> {
    layout: Arc<Layout>,
    having: Option<crate::expression::Bound>,
    top: Option<TopRows>,
    budget: &'a Arc<TaskBudget>,
    batches: Vec<RecordBatch>,
    memory: Reservation,
}

impl<'a> WrittenRows<'a> {
    fn new(query: &GroupQuery, layout: Arc<Layout>, budget: &'a Arc<TaskBudget>) -> Result<Self, TaskError> {
        let schema = layout.schema();
        let having = query.having.as_ref().map(|having| having.bind(schema)).transpose().map_err(of_table)?;
        let top = TopRows::new(query, schema).map_err(of_table)?;
        let memory = Reservation::none(&budget.shared());
        Ok(Self { having, top, budget, batches: Vec::new(), memory, layout })
    }

    /// Adds the groups of a batch that meet what they have to.
    fn add(&mut self, batch: RecordBatch) -> Result<(), TaskError> {
        let mut batch = conformed(&batch, self.layout.schema()).map_err(of_table)?;
        if let Some(having) = &self.having {
            let kept = having.evaluate(&batch).map_err(of_table)?;
            batch = filter_record_batch(&batch, &kept).map_err(TaskError::fatal)?;
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let more = value_bytes(&batch, 0..batch.num_rows()) + 12 * batch.num_rows() as u64;
        let room = self.memory.resize(self.memory.bytes() + more);
        room.map_err(|denied| self.budget.of_groups(denied.into()))?;
        if let Some(top) = &mut self.top {
            top.add(self.batches.len() as u32, &batch).map_err(of_table)?;
        }
        self.batches.push(batch);
        Ok(())
    }

    /// Writes those that stay as an object of two parts; what was written.
    fn write(self, context: &mut TaskContext<'_>) -> Result<Made, TaskError> {
        let Self { layout, top, budget, batches, memory: _memory, .. } = self;
        let all = || {
            let rows = |(batch, rows): (u32, &RecordBatch)| {
                (0..rows.num_rows() as u32).map(move |row| Pick { batch, row }).collect::<Vec<_>>()
            };
            Picked { picks: (0..).zip(&batches).flat_map(rows).collect(), ..Picked::default() }
        };
        let picked = top.map_or_else(all, TopRows::finish);
        let hasher = RowHasher::new(layout.schema()).map_err(of_table)?;
        let gather = Gather::new(layout, &batches).map_err(of_table)?;
        let mut scratch = context.scratch(MESSAGE_BYTES)?;
        let mut made = Made { ends: picked.ends.map(|ends| ends.map(ByteBuf::from)), ..Made::default() };
        let (first, others) = picked.picks.split_at(picked.of_first);
        for picks in [first, others] {
            let row_hash = gather.row_hash(&hasher, picks).map_err(of_table)?;
            let refused = |error, denied: Option<crate::sources::MemoryDenied>| match denied {
                None => of_table(error),
                Some(denied) => budget.of_groups(denied.into()),
            };
            let limits = Limits::default();
            write_rows(context.output()?, (&gather, &limits), (picks, row_hash), &mut scratch, budget, refused)?;
            made.made.add(Output { bytes: 0, rows: picks.len() as u64, row_hash });
        }
        let bytes = |row: &Pick| {
            let (batch, row) = (&batches[row.batch as usize], row.row as usize);
            value_bytes(batch, row..row + 1)
        };
        made.value_bytes = picked.picks.iter().map(bytes).sum();
        Ok(made)
    }
}

/// What `write` is told. Its arguments are the layout of what is written, and objects of such rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WriteParams {
    pub(super) file: FileParams,
    /// Rows of the first object that are in files before this one.
    pub(super) skip: u64,
    /// Rows of the file.
    pub(super) rows: u64,
}

/// Rows of some objects as a file: they are read as streams, so that a file may have more groups than memory.
#[task(name = "group.write", arguments = [whole, stream], deterministic = true)]
pub(super) fn write(context: &mut TaskContext<'_>, params: WriteParams) -> Result<Written, TaskError> {
    let buffers = outputs::output_buffers(context, params.file.buffer_bytes)?;
    let budget = TaskBudget::new(context);
    let layout = written_layout(context, 0)?;
    let schema: SchemaRef = layout.schema().clone();
    let hasher = RowHasher::new(&schema).map_err(of_table)?;
    let readers: Vec<ObjectReader> = (1..context.args()).flat_map(|arg| context.readers(arg)).collect();
    let mut file = PartWriter::create(context, &params.file, buffers, (&schema, &hasher), &budget)?;
    let (mut skip, mut left) = (params.skip, params.rows);
    for reader in readers {
        let mut stream = streamed(&layout, reader);
        while left > 0
            && let Some((batch, _memory)) = next_rows(&mut stream, &budget)?
        {
            context.check_cancelled()?;
            let rows = batch.num_rows() as u64;
            let passed = skip.min(rows);
            let taken = left.min(rows - passed);
            if taken > 0 {
                file.write_batch(&batch.slice(passed as usize, taken as usize))?;
            }
            (skip, left) = (skip - passed, left - taken);
        }
    }
    if left > 0 {
        return Err(TaskError::fatal(format!("{left} rows that were made are not there")));
    }
    file.finish(context, &params.file)
}

#[allow(unsafe_code, reason = "parts of these tasks are read without validation")]
pub(super) fn streamed(layout: &Arc<Layout>, reader: ObjectReader) -> Streamed {
    // SAFETY: what is written are outputs of the tasks above, which write with a `Gather` and run in the node.
    unsafe { Streamed::new(layout.clone(), reader) }
}
