//! Rows of files: of the columns that were selected, and those alone that meet the condition.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array as _, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{ArrowError, DataType, Field, SchemaRef};
use arrow_select::filter::filter_record_batch;

use super::computed::Computing;
use super::{ALL_ROWS, Condition, Opener, Reading, pages};
use crate::TableError;
use crate::sources::text::TextState;
use crate::sources::{
    FolderColumns, InputFile, InputFormat, MemoryBudget, Place, Reservation, Source, SourceBatch, SourceError,
    SourceRows, value_bytes, with_folders,
};

/// Opens the files of a table.
pub(crate) struct TableReader {
    opener: Opener,
    /// Of the columns that are read, as the table has them.
    columns: SchemaRef,
    condition: Option<Arc<Condition>>,
    computing: Option<Arc<Computing>>,
    budget: Arc<dyn MemoryBudget>,
}

impl TableReader {
    /// Rows come with these columns, as far as their file has them.
    pub(crate) fn new(
        reading: &Reading,
        columns: &SchemaRef,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, TableError> {
        let condition = reading.condition()?.map(Arc::new);
        let computing = Computing::of(reading)?.map(Arc::new);
        let (opener, columns) = (reading.options.opener(), columns.clone());
        Ok(Self { opener, columns, condition, computing, budget: budget.clone() })
    }

    /// Opens one.
    pub(crate) fn open(&self, file: InputFile, format: InputFormat) -> Result<TableFile, SourceError> {
        let source = self.opener.open(file, format, &self.budget)?;
        let looked_at = self.condition.as_ref().map(|condition| &condition.schema);
        let of_files = self.computing.as_ref().map_or(&self.columns, |computing| &computing.columns);
        let (mut read, mut given, mut of_condition) = (Vec::new(), Vec::new(), Vec::new());
        for (number, field) in source.schema().fields().iter().enumerate() {
            let is_given = of_files.column_with_name(field.name()).is_some();
            let is_looked_at = looked_at.is_some_and(|schema| schema.column_with_name(field.name()).is_some());
            if is_given {
                given.push(read.len());
            }
            if is_looked_at {
                of_condition.push(read.len());
            }
            if is_given || is_looked_at {
                read.push(number);
            }
        }
        let folders = source.file().folder_columns(&self.opener.folder_types()?)?;
        let folders_in = |schema: &SchemaRef| -> FolderColumns {
            folders.iter().filter(|(field, _)| schema.column_with_name(field.name()).is_some()).cloned().collect()
        };
        let folders_of_condition = looked_at.map(folders_in).unwrap_or_default();
        let folders = folders_in(of_files);
        let computing = self.computing.clone().map(|computing| (computing, self.columns.clone()));
        let (condition, budget) = (self.condition.clone(), self.budget.clone());
        let leaves_out = self.opener.leaves_out();
        let rows_of = source.splits()?.iter().map(|split| split.rows).collect();
        Ok(TableFile {
            source,
            read,
            given,
            of_condition,
            folders,
            folders_of_condition,
            condition,
            computing,
            leaves_out,
            rows_of,
            budget,
        })
    }
}

/// A file of a table.
pub(crate) struct TableFile {
    source: Source,
    /// Numbers of the columns of the file that are decoded; and which of these are given out, and which looked at.
    read: Vec<usize>,
    given: Vec<usize>,
    of_condition: Vec<usize>,
    /// The same of columns that its folders are.
    folders: FolderColumns,
    folders_of_condition: FolderColumns,
    condition: Option<Arc<Condition>>,
    /// What computes others of the columns that the file has, and which of these are given.
    computing: Option<(Arc<Computing>, SchemaRef)>,
    /// Whether rows are left out of those that are decoded.
    leaves_out: bool,
    /// How many rows each split has, where the file says so.
    rows_of: Vec<Option<u64>>,
    budget: Arc<dyn MemoryBudget>,
}

impl TableFile {
    /// The file.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// How each of its splits begins, where it is text.
    pub(super) fn states(&self) -> Result<Vec<TextState>, SourceError> {
        self.source.states(&self.budget)
    }

    /// How many splits it has.
    pub(crate) fn splits(&self) -> usize {
        self.rows_of.len()
    }

    /// Whether rows that are not wanted are passed over: of other formats, and where a condition decides which rows there are, they are read.
    pub(crate) fn passes_over(&self) -> bool {
        !self.leaves_out && matches!(self.source, Source::Parquet(_))
    }

    /// The rows of a split that are to be read, in the order of the file: of these, from 0, those of the numbers in `within`.
    pub(crate) fn read(&self, to_read: ToRead, within: Range<u64>) -> Result<TableRows<'_>, SourceError> {
        let ToRead { split, state, runs } = to_read;
        let ranges = self.ranges(split, &runs, &within)?;
        let rows: SourceRows = match (&ranges, &self.source) {
            (Some(ranges), _) if ranges.is_empty() => Box::new(std::iter::empty()),
            (Some(ranges), Source::Parquet(file)) => {
                Box::new(file.read_ranges(split, &self.read, ranges, &self.budget)?)
            }
            _ => self.source.read(split, state, Some(&self.read), &self.budget)?,
        };
        // Rows are counted from the first that is read on.
        let at = match self.leaves_out {
            true => 0,
            false => ranges.map_or(0, |ranges| ranges.first().map_or(0, |range| range.start)),
        };
        // Of a split that is read to its end it is seen that it has no more rows than it says.
        let is_to_the_end = self.rows_of[split].is_some_and(|rows| within.end >= rows);
        let within = within.start..if is_to_the_end { u64::MAX } else { within.end };
        Ok(TableRows { file: self, state, rows: Some(rows), at, within, runs })
    }

    /// Whether rows of it can be passed over for less than it takes to read them.
    pub(crate) fn passes_over_rows(&self) -> bool {
        matches!(self.source, Source::Parquet(_)) && !self.leaves_out
    }

    /// The rows of these ranges of a split, in order and apart from each other, of a file that can pass over others; all of them where it cannot. They are counted as if there were no others.
    pub(crate) fn read_ranges(&self, split: usize, ranges: &[Range<u64>]) -> Result<TableRows<'_>, SourceError> {
        let Source::Parquet(file) = &self.source else { return self.read(ToRead::whole(split, None), ALL_ROWS) };
        let rows: SourceRows = Box::new(file.read_ranges(split, &self.read, ranges, &self.budget)?);
        Ok(TableRows { file: self, state: None, rows: Some(rows), at: 0, within: ALL_ROWS, runs: Vec::new() })
    }

    /// The rows of a split among which those are that are to be read, where the file says so before it is read: of those of the runs and within the numbers, and of those of pages that may meet the condition;
    /// `None`: all of them. How many rows before one meet a condition is not known.
    fn ranges(
        &self,
        split: usize,
        runs: &[Range<u64>],
        within: &Range<u64>,
    ) -> Result<Option<Vec<Range<u64>>>, SourceError> {
        let (Source::Parquet(file), Some(rows)) = (&self.source, self.rows_of[split]) else { return Ok(None) };
        let mut of_pages = None;
        if let Some(condition) = &self.condition {
            of_pages = pages::ranges(file, (split, rows), (condition, &self.folders_of_condition), &self.budget)?;
        }
        let all = 0..rows;
        let runs = if runs.is_empty() { std::slice::from_ref(&all) } else { runs };
        let wanted = |run: &Range<u64>| match self.leaves_out {
            true => run.clone(),
            false => run.start.max(within.start).min(rows)..run.end.min(within.end).min(rows),
        };
        let wanted: Vec<Range<u64>> = runs.iter().map(wanted).collect();
        if of_pages.is_none() && wanted.first() == Some(&all) {
            return Ok(None);
        }
        let of_pages = of_pages.unwrap_or_else(|| Vec::from([all]));
        let (mut both, mut from) = (Vec::new(), 0);
        for run in wanted {
            // Pages that end before a run are of no later one either.
            from += of_pages[from..].partition_point(|range| range.end <= run.start);
            let of_run = of_pages[from..].iter().take_while(|range| range.start < run.end);
            let of_both = of_run.map(|range| range.start.max(run.start)..range.end.min(run.end));
            both.extend(of_both.filter(|range| !range.is_empty()));
        }
        Ok(Some(both))
    }
}

/// A split that is read.
#[derive(Clone, Debug)]
pub(crate) struct ToRead {
    /// Its number in the file.
    pub(crate) split: usize,
    /// How it begins, where it is text.
    pub(crate) state: Option<TextState>,
    /// The numbers of its rows that are read, in order; none: all are. No batch has rows of two of these runs.
    pub(crate) runs: Vec<Range<u64>>,
}

impl ToRead {
    /// All rows of a split.
    pub(crate) fn whole(split: usize, state: Option<TextState>) -> Self {
        Self { split, state, runs: Vec::new() }
    }
}

/// Rows of a split.
pub(crate) struct TableRows<'a> {
    file: &'a TableFile,
    state: Option<TextState>,
    rows: Option<SourceRows>,
    /// Of the rows that are to be read, the number of the next one; and those that are wanted.
    at: u64,
    within: Range<u64>,
    runs: Vec<Range<u64>>,
}

/// Some rows of the columns that were asked for and that the file has, as the file has them: none where no row of a batch is wanted, so that who reads may stop however few rows a file has for it.
pub(crate) struct ReadRows {
    pub(crate) batch: RecordBatch,
    /// Which split of the file they are in, and the number of the first one among its rows that are to be read, from 0; of runs, those of each from its first row on.
    pub(crate) split: usize,
    pub(crate) first_row: u64,
    place: InSplit,
    /// What the rows point to, and the memory that they have.
    source: Option<SourceBatch>,
    memory: Option<Reservation>,
}

/// Where rows are in their split, as errors name it.
struct InSplit {
    /// How the split begins, where it is text.
    state: Option<TextState>,
    /// The row of the split that was decoded first, and which ones of those from there on met the condition: all, where nothing is said.
    first: u64,
    kept: Option<BooleanBuffer>,
    /// How many of these are before the first of the rows.
    passed: usize,
}

impl InSplit {
    /// Which row of the split one of the rows is.
    fn row(&self, row: usize) -> u64 {
        let nth = self.passed + row;
        let decoded = self.kept.as_ref().map_or(Some(nth), |kept| kept.set_indices().nth(nth));
        self.first + decoded.expect("a row that was read") as u64
    }
}

impl InSplit {
    /// Where those of the rows are that are kept.
    fn among(self, kept: BooleanBuffer) -> Self {
        let kept = match self.kept {
            None => kept,
            Some(before) => {
                let mut still = before.set_indices().zip(kept.iter()).filter(|(_, is_kept)| *is_kept).peekable();
                BooleanBuffer::collect_bool(before.len(), |row| still.next_if(|(next, _)| *next == row).is_some())
            }
        };
        Self { kept: Some(kept), ..self }
    }
}

/// Which of the values are true, null being none.
fn truths(values: &BooleanArray) -> BooleanBuffer {
    match values.nulls() {
        None => values.values().clone(),
        Some(nulls) => values.values() & nulls.inner(),
    }
}

impl ReadRows {
    fn whole(batch: RecordBatch, source: SourceBatch, state: Option<TextState>) -> Self {
        let place = InSplit { state, first: source.first_row, kept: None, passed: 0 };
        Self { batch, split: source.split, first_row: 0, place, source: Some(source), memory: None }
    }

    /// What is wrong with them in their file, with the place of the one that it is about.
    pub(crate) fn error_in(&self, file: &Source, error: TableError, budget: &Arc<dyn MemoryBudget>) -> SourceError {
        file.row_error(error, (self.split, self.place.state), |row| self.place.row(row), budget)
    }

    /// Bytes that were asked for and are held for them, beside those that pages have.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let of_source = self.source.as_ref().map_or(0, SourceBatch::memory_bytes);
        of_source + self.memory.as_ref().map_or(0, Reservation::bytes)
    }

    fn none(batch: RecordBatch, split: usize) -> Self {
        let place = InSplit { state: None, first: 0, kept: None, passed: 0 };
        Self { batch, split, first_row: 0, place, source: None, memory: None }
    }

    /// Which row of its split one of them is.
    pub(crate) fn row_of_split(&self, row: usize) -> u64 {
        self.place.row(row)
    }

    /// The first of them, as many at most, and whether there are more.
    pub(crate) fn first(self, count: usize) -> (Self, bool) {
        let kept = self.batch.num_rows().min(count);
        let is_cut = kept < self.batch.num_rows();
        (Self { batch: self.batch.slice(0, kept), ..self }, is_cut)
    }
}

impl Iterator for TableRows<'_> {
    type Item = Result<ReadRows, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.within.end {
            return None;
        }
        let batch = self.rows.as_mut()?.next()?;
        if let Ok(batch) = &batch {
            let run = self.runs.partition_point(|run| run.end <= batch.first_row);
            self.at = self.runs.get(run).map_or(self.at, |run| self.at.max(run.start));
        }
        match batch.and_then(|batch| self.file.kept(batch, self.state)) {
            Ok(rows) => Some(Ok(self.wanted(rows))),
            Err(error) => {
                self.rows = None;
                Some(Err(error))
            }
        }
    }
}

impl TableRows<'_> {
    /// Those that are wanted of the next rows.
    fn wanted(&mut self, rows: ReadRows) -> ReadRows {
        let (first, end) = (self.at, self.at + rows.batch.num_rows() as u64);
        self.at = end;
        let (from, to) = (self.within.start.max(first), self.within.end.min(end));
        match from < to {
            true => {
                let passed = (from - first) as usize;
                let batch = rows.batch.slice(passed, (to - from) as usize);
                ReadRows { batch, first_row: from, place: InSplit { passed, ..rows.place }, ..rows }
            }
            false => {
                ReadRows { first_row: first, ..ReadRows::none(RecordBatch::new_empty(rows.batch.schema()), rows.split) }
            }
        }
    }
}

impl TableFile {
    /// Where one of these rows is in the file.
    ///
    /// # Errors
    /// Those of a look at the lines of text.
    pub(crate) fn place_of(&self, rows: &ReadRows, row: usize) -> Result<Place, SourceError> {
        self.source.place_of((rows.split, rows.place.state), rows.place.row(row), &self.budget)
    }

    /// What is wrong with these rows, which are of the file, with the place of the one that it is about.
    pub(crate) fn row_error(&self, rows: &ReadRows, error: TableError) -> SourceError {
        rows.error_in(&self.source, error, &self.budget)
    }

    /// What is to be read of a batch, whose split begins so where it is text, with the columns that folders are.
    fn kept(&self, source: SourceBatch, state: Option<TextState>) -> Result<ReadRows, SourceError> {
        let rows = self.kept_of_file(source, state)?;
        let failed =
            |error: ArrowError| SourceError::Table { file: self.source.file().name().clone(), error: error.into() };
        let rows = ReadRows { batch: with_folders(rows.batch, &self.folders).map_err(failed)?, ..rows };
        match &self.computing {
            None => Ok(rows),
            Some((computing, given)) => self.computed(rows, computing, given),
        }
    }

    /// What is computed of rows, of which those are left out that are not to be read.
    fn computed(&self, rows: ReadRows, computing: &Computing, given: &SchemaRef) -> Result<ReadRows, SourceError> {
        let of_given = |batch: RecordBatch| {
            let named = |field: &Arc<Field>| batch.schema_ref().index_of(field.name());
            let columns = given.fields().iter().map(named).collect::<Result<Vec<_>, _>>()?;
            batch.project(&columns)
        };
        let of_rows = |rows: &ReadRows, error: TableError| rows.error_in(&self.source, error, &self.budget);
        computing.prepare(&self.budget)?;
        let read = computing.seen(&rows.batch).map_err(|error| of_rows(&rows, error))?;
        let denied = |denied| {
            let (file, place) = (self.source.file().name().clone(), Place::Group(rows.split, None));
            SourceError::Memory { file, place, what: "columns that are computed", denied }
        };
        // What is made on the way has about as much as what it is made of; what comes of it is counted when it is there.
        let bytes = value_bytes(&read, 0..read.num_rows());
        let _on_the_way = Reservation::of(&self.budget, bytes).map_err(denied)?;
        let kept = match rows.batch.num_rows() {
            0 => None,
            _ => computing.kept(&read).map_err(|error| of_rows(&rows, error))?,
        };
        let rows = ReadRows { batch: read, ..rows };
        let rows = match kept {
            Some(kept) if kept.true_count() < kept.len() => self.filtered(rows, &kept)?,
            _ => rows,
        };
        let arrow = |rows: &ReadRows, error: ArrowError| of_rows(rows, error.into());
        if rows.batch.num_rows() == 0 {
            let none = of_given(computing.none()).map_err(|error| arrow(&rows, error))?;
            return Ok(ReadRows::none(none, rows.split));
        }
        if given.fields().is_empty() {
            let batch = rows.batch.project(&[]).map_err(|error| arrow(&rows, error))?;
            return Ok(ReadRows { batch, ..rows });
        }
        let batch = computing.compute(&rows.batch).map_err(|error| of_rows(&rows, error))?;
        let batch = of_given(batch).map_err(|error| arrow(&rows, error))?;
        let mut rows = rows;
        let mut memory = rows.memory.take().unwrap_or_else(|| Reservation::none(&self.budget));
        let bytes = memory.bytes() + value_bytes(&batch, 0..batch.num_rows());
        let (file, place) = (self.source.file().name().clone(), Place::Group(rows.split, None));
        memory.resize(bytes).map_err(|denied| SourceError::Memory {
            file,
            place,
            what: "columns that are computed",
            denied,
        })?;
        Ok(ReadRows { batch, memory: Some(memory), ..rows })
    }

    fn kept_of_file(&self, source: SourceBatch, state: Option<TextState>) -> Result<ReadRows, SourceError> {
        let failed = |error| {
            let row_of = |row| source.first_row + row as u64;
            self.source.row_error(error, (source.split, state), row_of, &self.budget)
        };
        let given = source.batch.project(&self.given).map_err(|error| failed(error.into()))?;
        let Some(condition) = &self.condition else { return Ok(ReadRows::whole(given, source, state)) };
        let looked_at = source.batch.project(&self.of_condition);
        let looked_at = looked_at.and_then(|batch| with_folders(batch, &self.folders_of_condition));
        let kept = looked_at.map_err(TableError::from).and_then(|batch| condition.kept(&batch)).map_err(failed)?;
        match kept.true_count() {
            0 => Ok(ReadRows::none(RecordBatch::new_empty(given.schema()), source.split)),
            all if all == source.batch.num_rows() => Ok(ReadRows::whole(given, source, state)),
            _ => self.filtered(ReadRows::whole(given, source, state), &kept),
        }
    }

    /// Those of some rows that are kept.
    fn filtered(&self, all: ReadRows, kept: &BooleanArray) -> Result<ReadRows, SourceError> {
        let ReadRows { batch: given, split, place, source, memory: before, .. } = all;
        let file = || self.source.file().name().clone();
        let (rows, count) = (given.num_rows(), kept.true_count());
        let denied = |denied| {
            let (place, what) = (Place::Group(split, None), "rows that meet the condition");
            SourceError::Memory { file: file(), place, what, denied }
        };
        let failed = |error: ArrowError| SourceError::Table { file: file(), error: error.into() };
        // As much as all of them have, until it is known.
        let of_rows = |batch: &RecordBatch| value_bytes(batch, 0..batch.num_rows());
        let mut memory = Reservation::of(&self.budget, of_rows(&given)).map_err(denied)?;
        let few = filter_record_batch(&given, kept).map_err(failed)?;
        // Texts of few rows are copied, so that not all of their pages stay in memory for them.
        let is_copied = 2 * count < rows && given.columns().iter().all(|column| is_compacted(column.data_type()));
        let few = if is_copied { compacted(&few).map_err(failed)? } else { few };
        memory.resize(of_rows(&few) + kept.values().inner().len() as u64).map_err(denied)?;
        // Before the memory that it has is given back.
        drop((given, before));
        let place = place.among(truths(kept));
        let source = source.filter(|_| !is_copied);
        Ok(ReadRows { batch: few, split, first_row: 0, place, source, memory: Some(memory) })
    }
}

/// Whether rows that were taken, and [`compacted`], point to nothing but what they are.
fn is_compacted(data_type: &DataType) -> bool {
    let is_copied = |data_type: &DataType| match data_type {
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) => false,
        DataType::Utf8View | DataType::BinaryView | DataType::ListView(_) | DataType::LargeListView(_) => false,
        other => !other.is_nested(),
    };
    match data_type {
        DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _) => is_copied(of.data_type()),
        DataType::Struct(fields) => fields.iter().all(|field| is_copied(field.data_type())),
        other => is_copied(other),
    }
}

/// The rows, of which texts and binaries at the top point to nothing but what they are.
fn compacted(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let compacted = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()),
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => column.clone(),
        }
    };
    let columns = batch.columns().iter().map(compacted).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}
