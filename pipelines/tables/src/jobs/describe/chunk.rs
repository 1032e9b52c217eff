//! Tasks over the files of a chunk.

use std::sync::Arc;

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_files::{Access, Location};
use exobus_shuffle::jobs::values::write_value;
use serde::{Deserialize, Serialize};

use super::asked::{Blocks, Unified};
use super::list::{FileList, splits_bytes, written};
use super::seen::Schemas;
use super::splits::{extents, runs, splits};
use crate::block::Layout;
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::described::DescribedFile;
use crate::jobs::pieces::value_of;
use crate::reading::{FileStatistics, ReadOptions};
use crate::sources::{InputFormat, Source};

/// What `describe_chunk` is told. Its only argument is the list of its files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ChunkParams {
    /// With the types of all columns of text.
    pub(super) reading: ReadOptions,
    /// As [`Asked::blocks`](super::Asked::blocks).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) blocks: Option<Blocks>,
}

/// Looks at files: it makes their schemas, as [`Seen`](super::seen::Seen), and the files with their splits.
#[task(name = "table.describe_chunk", deterministic = true)]
pub(super) fn describe_chunk(context: &mut TaskContext<'_>, params: ChunkParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let mut list = list_of(context, &budget)?;
    let mut schemas = Schemas::new(&budget);
    let looked =
        look_at(context, &mut list, (&params.reading, params.blocks.as_ref()), &budget, |source| schemas.add(source));
    write_value(context, 0, &schemas.finish(looked)?)?;
    write_files(context, 1, &list.files, &budget)
}

/// Opens files in their order and says how they are cut.
pub(super) fn look_at(
    context: &TaskContext<'_>,
    list: &mut FileList,
    (reading, blocks): (&ReadOptions, Option<&Blocks>),
    budget: &Arc<TaskBudget>,
    mut each: impl FnMut(&Source) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    let (files, memory) = list.parts();
    let opener = reading.opener();
    for file in files {
        context.check_cancelled()?;
        check_location(context, &Location::from(&file.path))?;
        // One at a time: there may be more of them than a process may have open.
        let opened = file
            .input(reading, Access::Ranges)
            .and_then(|(input, format)| opener.open(input, format, &budget.shared()));
        let source = opened.map_err(|error| budget.of_source(error))?;
        file.splits = splits(&source, reading, budget)?;
        if let Some(blocks) = blocks {
            file.extents = extents(&source, reading, &blocks.columns);
            if let Source::Parquet(parquet) = &source {
                file.runs = runs(parquet, (reading, blocks.run_rows), budget)?;
            }
        }
        let more = memory.bytes() + splits_bytes(file);
        memory.resize(more).map_err(|denied| budget.of_list(denied))?;
        each(&source)?;
    }
    Ok(())
}

/// Writes files as the next part of an output.
pub(in crate::jobs) fn write_files(
    context: &mut TaskContext<'_>,
    output: usize,
    files: &[DescribedFile],
    budget: &Arc<TaskBudget>,
) -> Result<(), TaskError> {
    let _written = written(files, &budget.shared()).map_err(|denied| budget.of_list(denied))?;
    write_value(context, output, &files)
}

/// What `leave_out` is told. Its arguments are the files with their splits, and [`Unified`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LeaveOutParams {
    /// With the types of all columns of text.
    pub(super) reading: ReadOptions,
}

/// Leaves out the splits of which no row can meet the condition.
#[task(name = "table.leave_out", deterministic = true)]
pub(super) fn leave_out(context: &mut TaskContext<'_>, params: LeaveOutParams) -> Result<(), TaskError> {
    let budget = TaskBudget::new(context);
    let mut list = list_of(context, &budget)?;
    let (unified, _memory): (Unified, _) = value_of(context, 1, &budget)?;
    let (reading, opener) = (&params.reading, params.reading.opener());
    let (Some(filter), Some(table)) = (&reading.filter, &unified.table) else {
        return Err(TaskError::fatal("splits are left out where there is a condition"));
    };
    let table = Layout::decode(table).map_err(of_table)?.schema().clone();
    let bound = filter.bind(&table).map_err(of_table)?;
    let failed = |error| budget.of_source(error);
    for file in &mut list.files {
        context.check_cancelled()?;
        check_location(context, &Location::from(&file.path))?;
        let (input, format) = file.input(reading, Access::Ranges).map_err(failed)?;
        let said = match format {
            InputFormat::Parquet => {
                let source = opener.open(input, format, &budget.shared()).map_err(failed)?;
                FileStatistics::of(&source, reading, &budget.shared()).map_err(|denied| budget.of_rows(denied))?
            }
            _ => FileStatistics::of_folders(&input, reading, &budget.shared()),
        };
        file.leave_out(&said.left_out(&bound, &table, &file.rows()));
    }
    write_files(context, 0, &list.files, &budget)
}

/// Refuses a place of this machine that a job may not read: where files are listed, and where each is opened.
pub(in crate::jobs) fn check_location(context: &TaskContext<'_>, location: &Location) -> Result<(), TaskError> {
    match location.as_path() {
        Some(path) => context.check_path(path),
        None => Ok(()),
    }
}

/// The files that a task has as its first argument.
fn list_of(context: &TaskContext<'_>, budget: &Arc<TaskBudget>) -> Result<FileList, TaskError> {
    FileList::of(value_of(context, 0, budget)?.0, &budget.shared()).map_err(|denied| budget.of_list(denied))
}
