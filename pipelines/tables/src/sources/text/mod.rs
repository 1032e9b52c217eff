//! CSV and TSV: text with a row a line, whose types are inferred or said.
//!
//! Splits are every 64 MiB of the text ([`SPLIT_BYTES`]), or as many bytes as somebody says ([`TextFile::in_splits_of`]); a row belongs to the split in which it begins. Whether a split begins within quotes follows from all the text before it,
//! so splits are read in one of two ways:
//! - at once, each as if it began outside quotes ([`TextFile::assumed`]); [`TextRows::ends`] says then how the split ends for whichever state it begins with, and one that was
//!   read with another state than the split before it ended with is read again;
//! - or with the states that [`TextFile::states`] finds, which reads the text once more.
//!
//! Files of gzip and zstd, told by their first bytes, are one split each, and are unpacked as they are read.
//!
//! Where rows are as the dialect has them, many are found and read at once (`stretch.rs`). A row that may be otherwise is read by itself, which says what is wrong with it; so are those
//! types are inferred from.
//!
//! Fields that are empty without quotes are null. How types are inferred is said at the head of `values.rs` and in `docs/semantics.md`; a value that is none of its column's
//! type is an error with file, line, column, value, and the `--schema` that lets it in. It is never null.

mod blocks;
mod bytes;
mod columns;
mod dialect;
mod rows;
mod stretch;
mod values;
mod window;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

pub use self::bytes::Packing;
pub(super) use self::columns::{TextColumn, column};
pub use self::dialect::{Dialect, Ends, TextState};
pub use self::rows::{ROW_BYTES_MAX, TextRows};
use self::rows::{TextLines, WantedColumn};
pub(super) use self::values::Evidence;
pub(crate) use self::values::{Time, float};
pub(super) use self::window::{Piece, READ_BYTES, Window};
use super::memory::MemoryBudget;
use super::schema_text::NamedTypes;
use super::{InputFile, SourceError, Split, check_names};
use crate::hint::hint;

/// Bytes of text in a split, unless somebody says how many: these at most, and [`SPLIT_BYTES_MIN`] at least.
pub const SPLIT_BYTES: u64 = 64 << 20;
/// Bytes of text that a split has at least, where there are more behind it.
pub const SPLIT_BYTES_MIN: u64 = 64 << 10;
/// Rows of a file that types are inferred from.
pub const INFERRED_ROWS: usize = 10_000;
/// Files that types are inferred from: so many at most, which stand at even distances in the list.
pub const INFERRED_FILES: usize = 100;

/// The bytes that may stand before UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// How many bytes splits have of which so many were said.
pub(super) fn split_bytes(said: u64) -> u64 {
    said.clamp(SPLIT_BYTES_MIN, SPLIT_BYTES)
}

/// A file of text whose first row was read.
#[derive(Clone, Debug)]
pub struct TextFile {
    file: InputFile,
    dialect: Dialect,
    packing: Packing,
    names: Arc<[String]>,
    schema: SchemaRef,
    split_bytes: u64,
}

impl TextFile {
    /// Reads the first row of a file: names of its columns, or how many it has, which are `column1`, `column2` and so on then. All columns are text
    /// until [`with_types`](Self::with_types). A file without a row has no columns.
    ///
    /// # Errors
    /// The first row is no row, or has a name twice; the text is UTF-16, or it is Parquet or Arrow.
    pub fn open(file: InputFile, dialect: &Dialect, budget: &Arc<dyn MemoryBudget>) -> Result<Self, SourceError> {
        let packing = Packing::of(&file)?;
        let (dialect, schema) = (dialect.clone(), Arc::new(Schema::empty()));
        let mut text = Self { file, dialect, packing, names: Arc::new([]), schema, split_bytes: SPLIT_BYTES };
        let mut lines = text.lines(0, TextState::Row, budget)?;
        let Some(row) = lines.next()? else { return Ok(text) };
        let mut scratch = Vec::new();
        let mut names = Vec::with_capacity(row.fields.len());
        for (at, field) in row.fields.iter().enumerate() {
            let name = row.text(field, text.dialect.quote, &mut scratch);
            names.push(match text.dialect.header {
                true => std::str::from_utf8(name).map(str::to_owned).map_err(|_| SourceError::Names {
                    file: text.file.name().clone(),
                    what: format!(
                        "the name of column {} is no UTF-8; write the file as UTF-8, by iconv for one",
                        at + 1
                    ),
                })?,
                false => format!("column{}", at + 1),
            });
        }
        drop(lines);
        text.set(names, |_| DataType::Utf8);
        check_names(text.file.name(), &text.schema)?;
        Ok(text)
    }

    fn set(&mut self, names: Vec<String>, of: impl Fn(&str) -> DataType) {
        let fields: Vec<_> = names.iter().map(|name| Field::new(name, of(name), true)).collect();
        self.schema = Arc::new(Schema::new(fields));
        self.names = names.into();
    }

    /// Gives columns types by their names; those that are not among them stay as they are. In a file without a header that has as many columns, names, too.
    ///
    /// # Errors
    /// A type that text is not read as.
    pub fn with_types(mut self, types: &[(String, DataType)]) -> Result<Self, SourceError> {
        // The types may be those of a table of which the file has some columns.
        let is_here = |name: &String| !self.dialect.header || self.names.contains(name);
        let refused = types.iter().find(|(name, of)| columns::column(of).is_none() && is_here(name));
        if let Some((column, data_type)) = refused {
            return Err(SourceError::NoSuchType {
                column: column.clone(),
                data_type: data_type.clone(),
                format: "text",
                what: "text with delimiters has no lists, structs, maps and bytes",
            });
        }
        let has_names = self.dialect.header || types.len() != self.names.len();
        let names: Vec<String> = match has_names {
            true => self.names.to_vec(),
            false => types.iter().map(|(name, _)| name.clone()).collect(),
        };
        let before = self.schema.clone();
        self.set(names, |name| {
            let given = types.iter().find(|(other, _)| other == name).map(|(_, of)| of.clone());
            given.or_else(|| Some(before.field_with_name(name).ok()?.data_type().clone())).unwrap_or(DataType::Utf8)
        });
        Ok(self)
    }

    /// The same in splits of so many bytes, or the nearest number that splits may have. Who reads one says of a file each time how it is cut.
    #[must_use]
    pub fn in_splits_of(self, bytes: u64) -> Self {
        Self { split_bytes: split_bytes(bytes), ..self }
    }

    /// The file.
    pub fn file(&self) -> &InputFile {
        &self.file
    }

    /// Names and types of its columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How it is packed.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Every 64 MiB of the text, or every so many bytes as were said, at most as many in the last one; one where it is packed or empty.
    pub fn splits(&self) -> Vec<Split> {
        Piece::splits(&self.file, self.packing, self.split_bytes)
    }

    /// The piece that a split is.
    fn piece(&self, split: usize) -> Result<Piece, SourceError> {
        Piece::of_split(&self.file, self.packing, split, self.split_bytes)
    }

    fn lines(&self, split: usize, state: TextState, budget: &Arc<dyn MemoryBudget>) -> Result<TextLines, SourceError> {
        let mut lines = TextLines::new(&self.file, &self.dialect, self.piece(split)?, state, budget)?;
        if split == 0 {
            lines.pass_mark()?;
        }
        Ok(lines)
    }

    /// The state that a split begins with if it does not begin within quotes.
    ///
    /// # Errors
    /// Those of reading.
    pub fn assumed(&self, split: usize) -> Result<TextState, SourceError> {
        if split == 0 {
            return Ok(TextState::Row);
        }
        let mut before = [0];
        self.file.read_at(split as u64 * self.split_bytes - 1, &mut before)?;
        Ok(TextState::outside(before[0], &self.dialect))
    }

    /// How the text of a split ends, for whichever state it begins with.
    ///
    /// # Errors
    /// Those of reading.
    pub fn ends(&self, split: usize, budget: &Arc<dyn MemoryBudget>) -> Result<Ends, SourceError> {
        TextLines::new(&self.file, &self.dialect, self.piece(split)?, TextState::Row, budget)?.ends()
    }

    /// The state that each split begins with, from all the text.
    ///
    /// # Errors
    /// Those of reading.
    pub fn states(&self, budget: &Arc<dyn MemoryBudget>) -> Result<Vec<TextState>, SourceError> {
        let mut states = vec![TextState::Row];
        for split in 1..self.splits().len() {
            let before = self.ends(split - 1, budget)?;
            states.push(before.of(states[split - 1]));
        }
        Ok(states)
    }

    /// The rows of a split that begins with that state: those columns of [`schema`](Self::schema), in that order; all where none are said. Fields of others are not
    /// looked at. Bounded batches, in the order of the file.
    ///
    /// # Errors
    /// Those of reading; each batch may be one, and is the last one then.
    ///
    /// # Panics
    /// There is no such split, or no such column.
    pub fn read(
        &self,
        split: usize,
        state: TextState,
        columns: Option<&[usize]>,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<TextRows, SourceError> {
        let mut lines = self.lines(split, state, budget)?;
        if split == 0 && self.dialect.header {
            lines.next()?;
        }
        let all: Vec<usize> = (0..self.names.len()).collect();
        let columns = columns.unwrap_or(&all);
        let fields: Vec<_> = columns.iter().map(|column| self.schema.fields()[*column].clone()).collect();
        let wanted = columns.iter().map(|field| {
            let column = columns::column(self.schema.field(*field).data_type()).expect("types are those that text has");
            WantedColumn { field: *field, column }
        });
        let schema = Arc::new(Schema::new(fields));
        Ok(TextRows::new(lines, schema, wanted.collect(), self.names.clone(), split, budget))
    }

    /// The line, from 1, in which a row of a split begins.
    pub(super) fn line_of(
        &self,
        split: usize,
        state: TextState,
        row: u64,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<u64, SourceError> {
        let mut lines = self.lines(split, state, budget)?;
        if split == 0 && self.dialect.header {
            lines.next()?;
        }
        let (mut rows, mut passed) = (0, 0);
        while let Some(found) = lines.next()? {
            if found.is_empty() && self.names.len() > 1 {
                continue;
            }
            passed = found.lines;
            if rows == row {
                break;
            }
            rows += 1;
        }
        lines.line(passed)
    }

    /// Looks at the first rows of the file.
    fn look_at(&self, evidence: &mut [Evidence], budget: &Arc<dyn MemoryBudget>) -> Result<(), SourceError> {
        let mut lines = self.lines(0, TextState::Row, budget)?;
        if self.dialect.header {
            lines.next()?;
        }
        let mut scratch = Vec::new();
        for _ in 0..INFERRED_ROWS {
            let Some(row) = lines.next()? else { break };
            // Rows with other numbers of fields are errors where rows are read.
            for (field, evidence) in row.fields.iter().zip(evidence.iter_mut()) {
                let text = row.text(field, self.dialect.quote, &mut scratch);
                if !self.dialect.is_null(text, field.quoted) {
                    evidence.look_at(text);
                }
            }
        }
        Ok(())
    }
}

/// The types of the columns of all these files together, by name and in the order in which they come: what was said where something was, and else what the first
/// [`INFERRED_ROWS`] rows of [`INFERRED_FILES`] of them show.
///
/// # Errors
/// A column that was said is in no file; those of reading.
pub fn infer(files: &[TextFile], said: &NamedTypes, budget: &Arc<dyn MemoryBudget>) -> Result<NamedTypes, SourceError> {
    let mut columns: Vec<(String, Evidence)> = Vec::new();
    let count = files.len().min(INFERRED_FILES);
    for file in (0..count).map(|at| &files[at * files.len() / count]) {
        let mut evidence = vec![Evidence::default(); file.names.len()];
        if file.names.iter().any(|name| said.iter().all(|(other, _)| other != name)) {
            file.look_at(&mut evidence, budget)?;
        }
        add(&mut columns, file, &evidence);
    }
    // Of files that were not looked at, only new columns count: nothing is known of them, so they are text.
    for file in files {
        add(&mut columns, file, &vec![Evidence::default(); file.names.len()]);
    }
    if let (Some((column, _)), Some(file)) =
        (said.iter().find(|(name, _)| columns.iter().all(|(other, _)| other != name)), files.first())
    {
        let has_names = files.iter().any(|file| file.dialect.header || said.len() != file.names.len());
        if has_names {
            let hint = hint(column, columns.iter().map(|(name, _)| name.as_str()));
            return Err(SourceError::NoColumn { file: file.file.name().clone(), column: column.clone(), hint });
        }
        return Ok(said.clone());
    }
    let type_of = |(name, evidence): (String, Evidence)| {
        let given = said.iter().find(|(other, _)| *other == name).map(|(_, of)| of.clone());
        let data_type = given.unwrap_or_else(|| evidence.data_type());
        (name, data_type)
    };
    Ok(columns.into_iter().map(type_of).collect())
}

fn add(columns: &mut Vec<(String, Evidence)>, file: &TextFile, evidence: &[Evidence]) {
    for (name, evidence) in file.names.iter().zip(evidence) {
        match columns.iter_mut().find(|(other, _)| other == name) {
            Some((_, all)) => all.add(evidence),
            None => columns.push((name.clone(), evidence.clone())),
        }
    }
}

#[cfg(test)]
mod tests;
