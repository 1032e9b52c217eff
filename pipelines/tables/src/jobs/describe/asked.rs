//! What is asked of a table, and what its files are together.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::chunk::look_at;
use super::list::FileList;
use super::seen::{Schemas, Seen};
use crate::block::Layout;
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::described::Described;
use crate::jobs::rewrite::{Folders, SplitColumns};
use crate::jobs::table::with_places;
use crate::reading::{FileStatistics, ReadOptions, Reading};
use crate::semantics::{FileTypes, KeyColumn, KeyEncoder, UnifiedSchema, stored_schema};
use crate::sinks::FileForm;
use crate::sources::Reservation;

/// What a job asks of a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::jobs) struct Asked {
    /// With the types of all columns of text.
    pub(in crate::jobs) reading: ReadOptions,
    /// The first file.
    #[serde(default)]
    pub(in crate::jobs) first: String,
    /// Columns that the job looks at.
    pub(in crate::jobs) key: Vec<KeyColumn>,
    /// What files will be written as.
    pub(in crate::jobs) form: FileForm,
    /// Whether a function makes other rows of these: they need not be such as the format has.
    pub(in crate::jobs) is_mapped: bool,
    /// Where columns are to be folders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::jobs) folders: Option<Folders>,
    /// What is wanted of blocks, where rows are read in blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::jobs) blocks: Option<Blocks>,
}

/// What is wanted of a table whose rows are read in blocks. Splits of text and of Arrow files are smaller then: how many bytes they have is a part of how files are read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::jobs) struct Blocks {
    /// Row groups are cut into runs of whole pages, of so many rows each at least.
    pub(in crate::jobs) run_rows: u64,
    /// Columns, between which of whose values all are: what files say of that.
    pub(in crate::jobs) columns: Vec<String>,
}

/// What the files of a table are together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Unified {
    /// As [`Described::layout`].
    pub(super) layout: ByteBuf,
    pub(super) reading: Reading,
    /// Where there is a condition: the [`Layout`] of all columns, encoded.
    pub(super) table: Option<ByteBuf>,
}

/// Puts together what was seen of the files of all chunks, in their order, which is its only argument.
#[task(name = "table.unify", deterministic = true)]
pub(super) fn unify(context: &mut TaskContext<'_>, asked: Asked) -> Result<Unified, TaskError> {
    let budget = TaskBudget::new(context);
    let mut table = None;
    for block in context.blocks(0) {
        // As text, and as schemas.
        let memory = Reservation::of(&budget.shared(), 4 * block.len() as u64);
        let _decoded = memory.map_err(|denied| budget.of_list(denied))?;
        add(&mut table, rmp_serde::from_slice(&block).map_err(TaskError::fatal)?)?;
    }
    let table = asked.schema_of(table)?;
    asked.unified(&table)
}

/// Adds the schemas of more files. A table fails by the first file that does not fit, or with which something is wrong.
fn add(table: &mut Option<UnifiedSchema>, seen: Seen) -> Result<(), TaskError> {
    let decode = |encoded: &ByteBuf| Ok(Layout::decode(encoded).map_err(of_table)?.schema().clone());
    let schemas = seen.schemas.iter().map(decode).collect::<Result<Vec<SchemaRef>, TaskError>>()?;
    for (name, number) in &seen.files {
        let schema = &schemas[*number as usize];
        match table {
            None => *table = Some(UnifiedSchema::new(name, schema).map_err(of_table)?),
            Some(table) => table.add(name, schema).map_err(of_table)?,
        }
    }
    seen.failed.map_or(Ok(()), |failed| Err(failed.error()))
}

impl Asked {
    /// All columns of the table, those that folders are behind those of files.
    fn schema_of(&self, table: Option<UnifiedSchema>) -> Result<SchemaRef, TaskError> {
        let folders = self.reading.folder_types().map_err(TaskError::fatal)?;
        let table = table.ok_or_else(|| TaskError::request("there is no file"))?;
        table.schema_with(&folders, &self.first).map_err(of_table)
    }

    /// The table whose files have all these columns.
    fn unified(self, table: &SchemaRef) -> Result<Unified, TaskError> {
        let selected = self.reading.selected(table, &self.key).map_err(of_table)?;
        let types = if self.is_mapped { FileTypes::Arrow } else { self.form.format().types() };
        let schema = stored_schema(types, &selected).map_err(of_table)?;
        if !self.key.is_empty() {
            KeyEncoder::new(&schema, &self.key).map_err(of_table)?;
        }
        if let Some(folders) = &self.folders {
            SplitColumns::of(&schema, folders, self.form.format())?;
        }
        let layout = Layout::new(&with_places(&schema)?).map_err(of_table)?;
        let reading = Reading::new(self.reading.selecting(&selected), table).map_err(of_table)?;
        let all_columns = reading.options.filter.is_some().then(|| Layout::new(table)).transpose().map_err(of_table)?;
        let table = all_columns.map(|layout| ByteBuf::from(layout.encode()));
        Ok(Unified { layout: ByteBuf::from(layout.encode()), reading, table })
    }

    /// Looks at all files of a table.
    pub(in crate::jobs) fn whole(
        self,
        context: &TaskContext<'_>,
        list: &mut FileList,
        budget: &Arc<TaskBudget>,
    ) -> Result<Described, TaskError> {
        let (mut schemas, mut statistics) = (Schemas::new(budget), Vec::with_capacity(list.files.len()));
        let looked = look_at(context, list, (&self.reading, self.blocks.as_ref()), budget, |source| {
            let said = FileStatistics::of(source, &self.reading, &budget.shared());
            statistics.push(said.map_err(|denied| budget.of_rows(denied))?);
            schemas.add(source)
        });
        let mut table = None;
        add(&mut table, schemas.finish(looked)?)?;
        let (table, form) = (self.schema_of(table)?, self.form);
        let Unified { layout, reading, .. } = self.unified(&table)?;
        if let Some(filter) = &reading.options.filter {
            let bound = filter.bind(&table).map_err(of_table)?;
            for (file, statistics) in list.files.iter_mut().zip(&statistics) {
                file.leave_out(&statistics.left_out(&bound, &table, &file.rows()));
            }
        }
        Ok(Described { layout, files: std::mem::take(&mut list.files), reading, form })
    }
}
