//! Tables as people look at them, without a job: the first rows, names and types of columns, what footers say; and whether rows are in order.
//!
//! - [`Look::first_rows`] reads as many files as have these rows, and of them no more than that;
//! - [`Look::schema`] looks at all footers, and at the first rows of text;
//! - [`Look::statistics`]: rows, bytes, nulls and bounds as far as footers say;
//! - [`Look::check`] reads all rows, some at a time: how many there are, their hash, their order;
//! - [`Value`]: a value that can be shown.

mod check;
mod first_rows;
mod statistics;
mod values;

use std::sync::Arc;

use arrow_schema::SchemaRef;
use exobus_files::Location;

pub use self::check::{CheckedFile, CheckedTable, Unordered};
pub use self::first_rows::FirstRows;
pub use self::statistics::{ColumnStatistics, TableStatistics};
pub use self::values::Value;
use crate::TableError;
use crate::reading::{FileStatistics, ReadOptions, Reading, TableFile, TableReader};
use crate::semantics::UnifiedSchema;
use crate::sources::{
    InputFile, InputFormat, ListedFile, MemoryBudget, MemoryDenied, Place, Source, SourceError, parse_schema,
    print_schema,
};

/// Files of a table, in the order of their rows.
pub struct Look {
    files: Vec<ListedFile>,
    options: ReadOptions,
    /// The table, where somebody has looked at all files before.
    known: Option<SchemaRef>,
    budget: Arc<dyn MemoryBudget>,
}

/// A file with the rows that are wanted of it.
struct Opened {
    file: TableFile,
    /// Of each split, whether no row of it can meet the condition.
    left_out: Vec<bool>,
}

impl Look {
    /// At these files, as they were listed. What reading takes is asked for from `budget`.
    ///
    /// # Errors
    /// [`SourceError::Names`]: files are in folders that are other columns; [`SourceError::Schema`].
    pub fn new(
        files: Vec<ListedFile>,
        options: ReadOptions,
        budget: Arc<dyn MemoryBudget>,
    ) -> Result<Self, SourceError> {
        let paths: Vec<_> = files.iter().map(|file| (file.location.to_path_buf(), file.below)).collect();
        let options = match options.reads_folders() {
            true => options.with_folders(paths.iter().map(|(path, below)| (path.as_path(), *below)))?,
            false => options,
        };
        Ok(Self { files, options, known: None, budget })
    }

    /// The same where it is known which columns the table of these files has: files are opened for their rows alone.
    #[must_use]
    pub fn of_table(self, table: SchemaRef) -> Self {
        Self { known: Some(table), ..self }
    }

    /// Names and types of the columns of all files as one table, of those that are selected.
    ///
    /// # Errors
    /// Files that are no table, or not one; a column that is not there; a condition that is none for its rows.
    pub fn schema(&self) -> Result<SchemaRef, SourceError> {
        let (options, table) = self.table()?;
        let of = Reading::new(options, &table).and_then(|reading| reading.options.selected(&table, &[]));
        Ok(Arc::new(of.map_err(|error| self.failed(error))?))
    }

    /// The table of all files, which has all columns, and how they are read: with the types of all columns of text.
    fn table(&self) -> Result<(ReadOptions, SchemaRef), SourceError> {
        self.check_formats()?;
        if let Some(table) = &self.known {
            return Ok((self.typed_as(table)?, table.clone()));
        }
        let options = self.typed(&self.files)?;
        let (mut unified, opener) = (None, options.opener());
        for file in &self.files {
            let (input, format) = self.input(file)?;
            self.unify(&mut unified, &opener.open(input, format, &self.budget)?)?;
        }
        let unified = unified.ok_or_else(|| self.failed(TableError::NoName { place: "a table of no file".into() }))?;
        Ok((options, self.with_folders(&unified)?))
    }

    /// All columns of a table of these files, those that folders are behind those of files.
    fn with_folders(&self, unified: &UnifiedSchema) -> Result<SchemaRef, SourceError> {
        let first = self.files.first().map_or(String::new(), |file| file.location.to_string());
        let table = unified.schema_with(&self.options.folder_types()?, &first);
        table.map_err(|error| self.failed(error))
    }

    fn unify(&self, unified: &mut Option<UnifiedSchema>, source: &Source) -> Result<(), SourceError> {
        let (name, schema) = (source.file().name(), source.schema());
        let failed = |error| SourceError::Table { file: name.clone(), error };
        match unified {
            None => *unified = Some(UnifiedSchema::new(name, schema).map_err(failed)?),
            Some(unified) => unified.add(name, schema).map_err(failed)?,
        }
        Ok(())
    }

    /// The options with the types of the columns of text of some files.
    fn typed(&self, files: &[ListedFile]) -> Result<ReadOptions, SourceError> {
        let mut text = Vec::new();
        for file in files {
            let format = self.format(&file.location)?;
            if format.is_text() {
                text.push((|| Ok(self.input(file)?.0), format));
            }
        }
        let types = self.options.types_of_text(&text, &self.budget)?;
        let schema = (!types.is_empty()).then(|| print_schema(types.iter().map(|(name, of)| (name.as_str(), of))));
        Ok(ReadOptions { schema, ..self.options.clone() })
    }

    /// The options with the types that columns of text have in a table.
    fn typed_as(&self, table: &SchemaRef) -> Result<ReadOptions, SourceError> {
        let mut formats = self.files.iter().map(|file| self.format(&file.location));
        if !formats.any(|format| format.is_ok_and(InputFormat::is_text)) {
            return Ok(self.options.clone());
        }
        let folders = self.options.folder_types()?;
        let of_files = table.fields().iter().filter(|field| folders.iter().all(|(name, _)| name != field.name()));
        // Columns of types that text does not have are those of other files.
        let of_text = of_files.map(|field| (field.name().as_str(), field.data_type())).filter(|(name, data_type)| {
            let said = parse_schema(&print_schema([(*name, *data_type)]));
            said.is_ok_and(|said| matches!(&said[..], [(_, known)] if known == *data_type))
        });
        // A table of no columns has nothing that could be said of them.
        let schema = Some(print_schema(of_text)).filter(|schema| !schema.is_empty());
        Ok(ReadOptions { schema, ..self.options.clone() })
    }

    /// Whether it is said of columns what is done of them.
    fn names_columns(&self) -> bool {
        let ReadOptions { select, filter, computed, .. } = &self.options;
        select.is_some() || filter.is_some() || computed.is_some()
    }

    /// Refuses records beside other formats.
    fn check_formats(&self) -> Result<(), SourceError> {
        self.options.formats(self.files.iter().map(|file| file.location.clone())).map(drop)
    }

    fn format(&self, location: &Location) -> Result<InputFormat, SourceError> {
        let names = |what| SourceError::Names { file: location.to_string().into(), what };
        self.options.format(location).map_err(names)
    }

    fn input(&self, file: &ListedFile) -> Result<(InputFile, InputFormat), SourceError> {
        let ListedFile { location, status, below } = file;
        let format = self.format(location)?;
        Ok((InputFile::listed(location, *status)?.below(*below), format))
    }

    /// Opens a file of a table by a reader of its rows.
    fn open(
        &self,
        file: &ListedFile,
        reading: &Reading,
        table: &SchemaRef,
        reader: &TableReader,
    ) -> Result<Opened, SourceError> {
        let (input, format) = self.input(file)?;
        let failed = |error| SourceError::Table { file: input.name().clone(), error };
        let bound = reading.options.filter.as_ref().map(|filter| filter.bind(table)).transpose().map_err(failed)?;
        let file = reader.open(input, format)?;
        let rows: Vec<Option<u64>> = file.source().splits()?.iter().map(|split| split.rows).collect();
        let left_out = match bound {
            None => vec![false; rows.len()],
            Some(bound) => {
                let said = FileStatistics::of(file.source(), &reading.options, &self.budget);
                said.map_err(|denied| self.denied(file.source(), denied, "what the footer says about values"))?
                    .left_out(&bound, table, &rows)
            }
        };
        Ok(Opened { file, left_out })
    }

    fn denied(&self, source: &Source, denied: MemoryDenied, what: &'static str) -> SourceError {
        SourceError::Memory { file: source.file().name().clone(), place: Place::Footer, what, denied }
    }

    /// What is wrong with the table as a whole.
    fn failed(&self, error: TableError) -> SourceError {
        let file = self.files.first().map_or_else(|| "a table".into(), |file| file.location.to_string().into());
        SourceError::Table { file, error }
    }
}
