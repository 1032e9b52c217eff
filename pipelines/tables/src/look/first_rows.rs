//! The first rows of a table.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::{Look, Opened};
use crate::TableError;
use crate::reading::{ALL_ROWS, ReadOptions, ReadRows, Reading, TableReader, ToRead};
use crate::semantics::conformed;
use crate::sources::{ListedFile, Place, Reservation, SourceError, run_bytes, without_runs};

/// What [`Look::first_rows`] has read.
pub struct FirstRows {
    /// Of the columns that are selected, in the files that were read.
    pub schema: SchemaRef,
    /// The rows, of this schema; dictionaries and views may be in it.
    pub batches: Vec<RecordBatch>,
    /// How many of the files were read.
    pub files_read: usize,
    /// Whether these are all rows that there are.
    pub is_all: bool,
    _memory: Option<(Vec<ReadRows>, Reservation)>,
}

impl Look {
    /// The first rows, as many at most. Where the table is known they have its columns, with their types. Else the schema is that of the files that were read, and those behind them are looked at only where what is said of
    /// columns does not fit these.
    ///
    /// # Errors
    /// What is wrong with these files, or with the columns and the condition that are said.
    pub fn first_rows(&self, count: usize) -> Result<FirstRows, SourceError> {
        let known = self.known.as_ref().map(|_| self.table()).transpose()?;
        match self.first_rows_of(known.as_ref(), count) {
            Err(error @ SourceError::Table { .. }) if known.is_none() && self.names_columns() => {
                // What is wrong with other files is not what was asked.
                let Ok(of_all) = self.table() else { return Err(error) };
                self.first_rows_of(Some(&of_all), count)
            }
            other => other,
        }
    }

    /// The same. `of_all`: how all files are read, and the table that they are.
    fn first_rows_of(&self, of_all: Option<&(ReadOptions, SchemaRef)>, count: usize) -> Result<FirstRows, SourceError> {
        let (mut unified, mut read, mut left, mut files_read) = (None, Vec::new(), count, 0);
        let (mut schema, mut is_all, mut listed_of) = (None, true, Vec::new());
        self.check_formats()?;
        for listed in &self.files {
            if left == 0 && schema.is_some() {
                is_all = false;
                break;
            }
            files_read += 1;
            let (options, table) = match of_all {
                Some((options, table)) => (options.clone(), table.clone()),
                None => {
                    let options = self.typed(std::slice::from_ref(listed))?;
                    let (input, format) = self.input(listed)?;
                    self.unify(&mut unified, &options.opener().open(input, format, &self.budget)?)?;
                    (options, self.with_folders(unified.as_ref().expect("a file was added"))?)
                }
            };
            let reading = Reading::new(options, &table).map_err(|error| self.failed(error))?;
            let columns = reading.options.selected(&table, &[]).map_err(|error| self.failed(error))?;
            let columns = Arc::new(columns);
            let reader = TableReader::new(&reading, &columns, &self.budget).map_err(|error| self.failed(error))?;
            let opened = self.open(listed, &reading, &table, &reader)?;
            let before = read.len();
            is_all &= self.add_rows(&opened, &mut left, &mut read)?;
            listed_of.resize(listed_of.len() + read.len() - before, listed);
            opened.file.source().file().check()?;
            schema = Some(columns);
        }
        let Some(schema) = schema else { return self.schema().map(FirstRows::none) };
        let of_table = |(rows, listed): (&ReadRows, &_)| {
            conformed(&rows.batch, &schema).map_err(|error| self.row_error(listed, rows, error))
        };
        let batches = read.iter().zip(listed_of).map(of_table).collect::<Result<Vec<_>, _>>()?;
        let unpacked = Reservation::of(&self.budget, batches.iter().map(|batch| run_bytes(batch, |_| true)).sum());
        let unpacked = unpacked.map_err(|denied| {
            let (file, place) = (self.files[0].location.to_string().into(), Place::Row(0, 0));
            SourceError::Memory { file, place, what: "values of columns that come in runs", denied }
        })?;
        let batches = batches.into_iter().map(|batch| without_runs(batch, |_| true)).collect::<Result<Vec<_>, _>>();
        let batches = batches.map_err(|error| self.failed(error))?;
        Ok(FirstRows { schema, batches, files_read, is_all, _memory: Some((read, unpacked)) })
    }

    /// What is wrong with rows of a file, which is opened once more.
    fn row_error(&self, listed: &ListedFile, rows: &ReadRows, error: TableError) -> SourceError {
        let opened = || {
            let (input, format) = self.input(listed)?;
            self.typed(std::slice::from_ref(listed))?.opener().open(input, format, &self.budget)
        };
        opened().map_or_else(|error| error, |source| rows.error_in(&source, error, &self.budget))
    }

    /// Adds rows of a file until there are enough; whether there are no more in it.
    fn add_rows(&self, opened: &Opened, left: &mut usize, read: &mut Vec<ReadRows>) -> Result<bool, SourceError> {
        let source = opened.file.source();
        // How text begins in its first piece is known without a look at all of it.
        let mut states = Vec::new();
        for split in source.splits()?.iter().filter(|split| !opened.left_out[split.index]) {
            if split.index > 0 && states.is_empty() {
                states = source.states(&self.budget)?;
            }
            for rows in opened.file.read(ToRead::whole(split.index, states.get(split.index).copied()), ALL_ROWS)? {
                if *left == 0 {
                    return Ok(false);
                }
                let (rows, is_cut) = rows?.first(*left);
                *left -= rows.batch.num_rows();
                if rows.batch.num_rows() > 0 {
                    read.push(rows);
                }
                if is_cut {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

impl FirstRows {
    fn none(schema: SchemaRef) -> Self {
        Self { schema, batches: Vec::new(), files_read: 0, is_all: true, _memory: None }
    }
}
