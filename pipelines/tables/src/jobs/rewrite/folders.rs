//! Files of a reduce in folders, one for each value of some columns: `city=oslo/part-00003.parquet`.
//!
//! Rows come in the order of these columns, so one file is open at a time, and memory is that of one and what is to be said of those before it. Of a folder each reduce that has rows of it writes a file; its name is that of the reduce, so
//! files of a folder are in the order of their rows. What was read is compared with whole rows: the hash of those that are written counts what their folders say of them, too.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Schema, SchemaRef};
use exobus_actors::ids::RowHash;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::Output;
use exobus_files::{IoBuffer, Token, is_hidden};
use exobus_shuffle::jobs::outputs;
use serde::{Deserialize, Serialize};

use super::merge::{MergedRows, ReduceParams, Reduced, merged_rows, refused, runs_of};
use super::merging::Merging;
use crate::block::{Gather, Layout, Limits, Pick};
use crate::hint::no_column;
use crate::hive::{NAME_BYTES_MAX, folder_name};
use crate::jobs::budget::{TaskBudget, of_table};
use crate::jobs::output::{FileParams, PartWriter};
use crate::jobs::parts::{account, arguments};
use crate::jobs::table::Table;
use crate::semantics::{KeyColumn, KeyEncoder};
use crate::sinks::{OutputFormat, field_text};
use crate::sources::{MemoryBudget, MemoryDenied, Reservation, print_type, shown};
use crate::{RowHasher, TableError};

/// Which folders rows are written to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folders {
    /// The columns whose values are folders, the outermost first. They are in no file.
    pub columns: Vec<String>,
    /// How many folders there may be: each has a file at least.
    pub folders_max: u64,
}

impl Folders {
    /// How many folders there may be unless it is said.
    pub const MAX: u64 = 10_000;

    /// Of these columns.
    pub fn of(columns: Vec<String>) -> Self {
        Self { columns, folders_max: Self::MAX }
    }

    /// That there are more than there may be: so many, at least where others may have some, too.
    pub(super) fn too_many(&self, at_least: &str, folders: u64) -> String {
        let Self { columns, folders_max } = self;
        format!(
            "columns {} would make {at_least}{folders} folders, and {folders_max} are the most: write by columns that have fewer values, or say --max-folders",
            columns.join(", ")
        )
    }
}

/// The columns of a table, of which some are folders.
pub(in crate::jobs) struct SplitColumns {
    /// Numbers of those that are folders, the outermost first, and of all others.
    folders: Vec<usize>,
    files: Vec<usize>,
    folder_schema: SchemaRef,
    file_schema: SchemaRef,
    file_hasher: RowHasher,
}

impl SplitColumns {
    /// Of a table of this schema that is written in this format.
    ///
    /// # Errors
    /// A column is not there, named twice, or has values or a name that make no folders; nothing is left for files.
    pub(in crate::jobs) fn of(schema: &Schema, folders: &Folders, format: OutputFormat) -> Result<Self, TaskError> {
        if format == OutputFormat::Records {
            return Err(TaskError::request(
                "files of records have a key and a value and no other columns, so none can be folders: say another --format",
            ));
        }
        let mut numbers = Vec::with_capacity(folders.columns.len());
        for name in &folders.columns {
            let number = schema.index_of(name).map_err(|_| of_table(no_column(schema, name)))?;
            check_column(name, schema.field(number).data_type())?;
            if numbers.contains(&number) {
                return Err(of_table(TableError::SelectedTwice { column: name.clone() }));
            }
            numbers.push(number);
        }
        let files: Vec<usize> = (0..schema.fields().len()).filter(|number| !numbers.contains(number)).collect();
        if files.is_empty() {
            return Err(TaskError::request("all columns would be folders, and files need a column: leave one out"));
        }
        let project = |columns: &[usize]| schema.project(columns).map(Arc::new).map_err(TaskError::fatal);
        let (folder_schema, file_schema) = (project(&numbers)?, project(&files)?);
        let file_hasher = RowHasher::new(&file_schema).map_err(of_table)?;
        Ok(Self { folders: numbers, files, folder_schema, file_schema, file_hasher })
    }

    /// Of the columns that are in files.
    pub(super) fn file_schema(&self) -> &SchemaRef {
        &self.file_schema
    }

    /// What gathers some columns of batches.
    fn gather(schema: &SchemaRef, columns: &[usize], batches: &[RecordBatch]) -> Result<Gather, TaskError> {
        let layout = Layout::new(schema).map(Arc::new).map_err(of_table)?;
        let project = |batch: &RecordBatch| batch.project(columns).map_err(TaskError::fatal);
        let batches = batches.iter().map(project).collect::<Result<Vec<_>, _>>()?;
        Gather::new(layout, &batches).map_err(of_table)
    }

    /// The folder of a row in the output folder, of which these are the columns that are folders.
    fn folder(&self, output: &Path, batch: &RecordBatch, row: usize) -> Result<String, TaskError> {
        let mut names = Vec::with_capacity(batch.num_columns());
        for (field, column) in self.folder_schema.fields().iter().zip(batch.columns()) {
            let value = column.is_valid(row).then(|| value_text(column.as_ref(), row));
            let name = folder_name(field.name(), value.as_deref());
            let told = |what| {
                let (column, value) = (field.name(), shown(value.as_deref().unwrap_or_default().as_bytes()));
                let place = output.join(names.join("/"));
                let place = place.display();
                TaskError::data(format!(
                    "{place}: of a row that belongs there column {column} has the value {value:?}, {what}"
                ))
            };
            if value.as_deref() == Some("") {
                let what = "and a folder without a value is taken for null by other programs: leave such rows out (--where), or write something else for it";
                return Err(told(what));
            }
            if name.len() > NAME_BYTES_MAX {
                return Err(told(
                    "which makes a folder with a name of more than 255 bytes: leave such rows out (--where), or write by another column",
                ));
            }
            names.push(name);
        }
        Ok(names.join("/"))
    }
}

/// Refuses a column that makes no folders.
fn check_column(name: &str, data_type: &DataType) -> Result<(), TaskError> {
    if is_hidden(name.as_ref()) {
        return Err(TaskError::request(format!(
            "column {name} cannot be folders: what is in folders whose names begin with _ or . is never input; rename it"
        )));
    }
    match data_type {
        DataType::Boolean | DataType::Utf8 | DataType::LargeUtf8 | DataType::Date32 | DataType::Timestamp(..) => Ok(()),
        other if other.is_integer() || other.is_decimal() => Ok(()),
        other => Err(TaskError::request(format!(
            "column {name} is {}, and folders are texts, whole numbers, decimals, bools, dates and times: leave it out, or write by another column",
            print_type(other)
        ))),
    }
}

/// The text of a value that is not null, as a folder has it.
fn value_text(column: &dyn Array, row: usize) -> String {
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).to_owned(),
        _ => field_text(column, row),
    }
}

/// Parts in order, merged into a file in each folder that they have rows of. Its value is a [`Reduced`].
#[task(name = "table.reduce_folders", deterministic = true)]
pub(super) fn reduce_folders(context: &mut TaskContext<'_>, params: ReduceParams) -> Result<(), TaskError> {
    let buffers = outputs::output_buffers(context, params.file.buffer_bytes)?;
    let budget = TaskBudget::new(context);
    let table = Table::of(context)?;
    let folders = params.arrangement.folders().ok_or_else(|| TaskError::fatal("no column is said to be folders"))?;
    let columns = SplitColumns::of(&table.schema, folders, params.file.form.format())?;
    let arranger = params.arrangement.arranger(table.layout.schema())?;
    let args = arguments(context, 1);
    let parts = args.iter().flatten().filter(|part| !part.is_empty()).cloned();
    let mut merging = Merging::new(&arranger, None, &budget.shared(), runs_of(&table, parts))
        .map_err(|error| budget.of_order(error))?;
    let values = merging.batches().iter().map(|batch| table.values(batch)).collect::<Result<Vec<_>, _>>()?;
    let of_rows = (&table, &columns, folders);
    let mut files = FolderFiles::new(of_rows, &params.file, buffers, &values, &budget)?;
    merged_rows(&mut merging, &budget, |rows| {
        context.check_cancelled()?;
        match rows {
            MergedRows::Stay(rows) => files.write(context, rows),
            MergedRows::LeftOut(_) => Ok(()),
        }
    })?;
    let Made { tokens: Tokens { tokens, memory: _memory }, row_hash } = files.finish(context)?;
    let rows = tokens.iter().map(|token| token.rows).sum();
    account(context, 1, &args, Output { bytes: 0, rows, row_hash });
    context.return_value(&Reduced { tokens, row_hash, dropped: Output::default() })
}

/// What [`refuse_folders`] is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TooMany {
    pub(super) folders: Folders,
    /// How many there would be.
    pub(super) count: u64,
}

/// Refuses as many folders, as a reduce does that has too many by itself: what a program refuses is not known to be the fault of the request.
#[task(name = "table.refuse_folders", deterministic = true)]
pub(super) fn refuse_folders(_context: &mut TaskContext<'_>, params: TooMany) -> Result<(), TaskError> {
    Err(TaskError::request(params.folders.too_many("", params.count)))
}

/// Writes rows that come in the order of their folders.
struct FolderFiles<'a> {
    table: &'a Table,
    columns: &'a SplitColumns,
    folders: &'a Folders,
    file: &'a FileParams,
    budget: Arc<TaskBudget>,
    encoder: KeyEncoder,
    /// Whole rows; their columns that are folders; those that are in files.
    rows: Gather,
    of_folders: Gather,
    of_files: Gather,
    /// The folder of the last row, and how many there were.
    folder: Option<String>,
    count: u64,
    open: Option<(FileParams, PartWriter<'a>)>,
    /// Those of the next file.
    buffers: Vec<IoBuffer>,
    made: Made,
}

/// What was written.
struct Made {
    tokens: Tokens,
    /// Of whole rows.
    row_hash: RowHash,
}

/// What a token takes beside its texts: its place in a list, twice as that grows, what an allocator adds, and the names of its fields and its numbers as it is written, twice as that grows.
const TOKEN_BYTES: u64 = 2 * size_of::<Token>() as u64 + 64 + 2 * 96;

/// Tokens of files, and the memory that these take and what is returned of them.
struct Tokens {
    tokens: Vec<Token>,
    memory: Reservation,
}

impl Tokens {
    fn new(budget: &Arc<dyn MemoryBudget>) -> Self {
        Self { tokens: Vec::new(), memory: Reservation::none(budget) }
    }

    fn push(&mut self, token: Token) -> Result<(), MemoryDenied> {
        // As they are, and as they are written.
        let texts = 3 * (token.temporary.len() + token.name.len()) as u64;
        self.memory.resize(self.memory.bytes() + TOKEN_BYTES + texts)?;
        self.tokens.push(token);
        Ok(())
    }
}

impl<'a> FolderFiles<'a> {
    fn new(
        (table, columns, folders): (&'a Table, &'a SplitColumns, &'a Folders),
        file: &'a FileParams,
        buffers: Vec<IoBuffer>,
        batches: &[RecordBatch],
        budget: &Arc<TaskBudget>,
    ) -> Result<Self, TaskError> {
        let key: Vec<KeyColumn> = folders.columns.iter().map(KeyColumn::rising).collect();
        Ok(Self {
            table,
            columns,
            folders,
            file,
            budget: budget.clone(),
            encoder: KeyEncoder::new(&columns.folder_schema, &key).map_err(of_table)?,
            rows: Gather::new(table.values_layout()?, batches).map_err(of_table)?,
            of_folders: SplitColumns::gather(&columns.folder_schema, &columns.folders, batches)?,
            of_files: SplitColumns::gather(&columns.file_schema, &columns.files, batches)?,
            folder: None,
            count: 0,
            open: None,
            buffers,
            made: Made { tokens: Tokens::new(&budget.shared()), row_hash: RowHash::default() },
        })
    }

    /// Writes the next rows.
    fn write(&mut self, context: &mut TaskContext<'_>, rows: &[Pick]) -> Result<(), TaskError> {
        self.made.row_hash += self.rows.row_hash(&self.table.hasher, rows).map_err(of_table)?;
        let runs = self.runs(rows)?;
        for (number, (from, folder)) in runs.iter().enumerate() {
            let end = runs.get(number + 1).map_or(rows.len(), |(next, _)| *next);
            if self.folder.as_ref() != Some(folder) {
                self.begin(context, folder)?;
            }
            if let Some((params, file)) = &mut self.open {
                let in_file = |error| refused(error, &params.name);
                file.write((&self.of_files, &Limits::default()), &rows[*from..end], in_file)?;
            }
        }
        Ok(())
    }

    /// Where among these rows those of another folder begin, and of which.
    fn runs(&self, rows: &[Pick]) -> Result<Vec<(usize, String)>, TaskError> {
        let (mut runs, mut last) = (Vec::new(), Vec::new());
        for message in self.of_folders.messages(rows, &Limits::default()).map_err(of_table)? {
            // As rows, and as keys.
            let memory = Reservation::of(&self.budget.shared(), 2 * message.bytes());
            let _memory = memory.map_err(|denied| self.budget.of_message(denied))?;
            let batch = message.batch().map_err(of_table)?;
            let keys = self.encoder.encode(&batch).map_err(of_table)?;
            for row in 0..keys.len() {
                if runs.is_empty() || keys.get(row) != last {
                    last.clear();
                    last.extend_from_slice(keys.get(row));
                    let folder = self.columns.folder(&self.file.directory, &batch, row)?;
                    runs.push((message.rows().start + row, folder));
                }
            }
        }
        Ok(runs)
    }

    /// Begins the file of another folder; beyond as many as there may be, folders are only counted.
    fn begin(&mut self, context: &mut TaskContext<'_>, folder: &str) -> Result<(), TaskError> {
        self.end(context)?;
        (self.folder, self.count) = (Some(folder.to_owned()), self.count + 1);
        if self.count <= self.folders.folders_max {
            let params = FileParams { name: format!("{folder}/{}", self.file.name), ..self.file.clone() };
            let of_rows = (&self.columns.file_schema, &self.columns.file_hasher);
            let buffers = std::mem::take(&mut self.buffers);
            let file = PartWriter::create(context, &params, buffers, of_rows, &self.budget)?;
            self.open = Some((params, file));
        }
        Ok(())
    }

    /// Ends the file that is open.
    fn end(&mut self, context: &mut TaskContext<'_>) -> Result<(), TaskError> {
        if let Some((params, file)) = self.open.take() {
            let (written, buffers) = file.finish_with_buffers(context, &params)?;
            self.buffers = buffers;
            self.made.tokens.push(written.token).map_err(|denied| self.budget.of_files(denied))?;
        }
        Ok(())
    }

    fn finish(mut self, context: &mut TaskContext<'_>) -> Result<Made, TaskError> {
        self.end(context)?;
        match self.count <= self.folders.folders_max {
            true => Ok(self.made),
            false => Err(TaskError::request(self.folders.too_many("at least ", self.count))),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Date32Array, Int64Array, StringArray};
    use arrow_schema::Field;
    use exobus_files::ContentHash;

    use super::*;
    use crate::sources::FixedBudget;

    fn schema() -> Schema {
        let fields = [
            ("id", DataType::Int64),
            ("city", DataType::Utf8),
            ("day", DataType::Date32),
            ("price", DataType::Float64),
            ("_at", DataType::Int64),
        ];
        Schema::new(fields.map(|(name, of)| Field::new(name, of, true)).to_vec())
    }

    fn split(columns: &[&str]) -> Result<SplitColumns, String> {
        let folders = Folders::of(columns.iter().map(|name| (*name).to_owned()).collect());
        SplitColumns::of(&schema(), &folders, OutputFormat::Parquet).map_err(|error| error.to_string())
    }

    #[test]
    fn columns_are_folders_or_in_files() {
        let columns = split(&["day", "city"]).unwrap();
        assert_eq!((&columns.folders[..], &columns.files[..]), (&[2, 1][..], &[0, 3, 4][..]));
        let refused = |columns: &[&str]| split(columns).err().expect("it is refused");
        assert!(refused(&["citty"]).contains("no column citty; did you mean city?"));
        assert!(refused(&["city", "id", "city"]).contains("city is selected twice"));
        assert!(refused(&["price"]).contains("column price is float64"));
        assert!(refused(&["_at"]).contains("rename it"));
        let one = Schema::new(vec![Field::new("id", DataType::Int64, true)]);
        let folders = Folders::of(vec!["id".to_owned()]);
        let refused = SplitColumns::of(&one, &folders, OutputFormat::Parquet).err().expect("it is refused");
        assert!(refused.to_string().contains("all columns would be folders"), "{refused}");
        assert!(SplitColumns::of(&schema(), &folders, OutputFormat::Records).is_err());
    }

    #[test]
    fn tokens_of_very_many_files_take_no_more_memory_than_is_asked_for() {
        let fixed = Arc::new(FixedBudget::new(4 << 20));
        let budget: Arc<dyn MemoryBudget> = fixed.clone();
        let mut made = Tokens::new(&budget);
        let token = |number: u64| {
            let name = format!("day=2024-01-31/city=number {number}/part-00000.parquet");
            let temporary = format!("{name}.{}-00001", "f".repeat(32));
            let hash = ContentHash::of_blocks(0, name.as_bytes());
            Token { temporary, name, rows: u64::MAX, bytes: u64::MAX, hash }
        };
        let denied = (0..100_000).find_map(|number| made.push(token(number)).err());
        assert!(denied.is_some(), "100 000 files are not known in 4 MiB");
        let Tokens { tokens, memory } = made;
        let texts: usize = tokens.iter().map(|token| token.temporary.capacity() + token.name.capacity()).sum();
        let taken = tokens.capacity() * size_of::<Token>() + texts;
        let reduced = Reduced { tokens, row_hash: RowHash::default(), dropped: Output::default() };
        let written = rmp_serde::to_vec_named(&reduced).unwrap().capacity();
        assert!(
            reduced.tokens.len() > 1_000 && (taken + written) as u64 <= memory.bytes(),
            "{taken} and {written} of {memory:?}"
        );
    }

    #[test]
    fn folders_are_the_values_of_rows_and_what_makes_none_is_refused() {
        let columns = split(&["day", "city"]).unwrap();
        let long = "x".repeat(251);
        let cities = StringArray::from(vec![Some("oslo"), None, Some(""), Some(&long), Some("a/\"b\", c")]);
        let days = Date32Array::from(vec![Some(19_753), None, Some(0), Some(0), Some(0)]);
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("day", Arc::new(days) as ArrayRef, true),
            ("city", Arc::new(cities) as ArrayRef, true),
        ]);
        let batch = batch.unwrap();
        let folder = |row| columns.folder(Path::new("/out"), &batch, row).map_err(|error| error.to_string());
        assert_eq!(folder(0).unwrap(), "day=2024-01-31/city=oslo");
        assert_eq!(folder(1).unwrap(), "day=__HIVE_DEFAULT_PARTITION__/city=__HIVE_DEFAULT_PARTITION__");
        let refused = folder(2).unwrap_err();
        let place = "/out/day=1970-01-01: of a row that belongs there column city has the value \"\",";
        assert!(refused.starts_with(place), "{refused}");
        let refused = folder(3).unwrap_err();
        assert!(refused.contains("more than 255 bytes") && refused.len() < 300, "{refused}");
        assert_eq!(folder(4).unwrap(), "day=1970-01-01/city=a%2F%22b%22, c");
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![-7]));
        assert_eq!(value_text(ids.as_ref(), 0), "-7");
    }
}
