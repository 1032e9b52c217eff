//! JSON lines: text with an object a line, whose keys are columns and whose types are inferred or said.
//!
//! A file is cut as other [`text`](super::text) is, every 64 MiB or as many bytes as somebody says, or not at all where it is packed; a row belongs to the split in which its line begins. No text of JSON has a line
//! end in it, so any split is read by itself.
//!
//! How types are inferred is said at the head of `evidence.rs` and in `docs/semantics.md`. No value is lost, and none is null that was not: a value that is none of its column's type,
//! a key that was not met where types were inferred, a key that is twice in its object, and all that is no JSON are errors with file, line, path, and the `--schema` that lets it in.
//!
//! # The parser
//! `serde_json`, driven by the columns: each takes its values from the parser (`seeds.rs`), so there is no tree of values, and no depth beyond that of the types. Numbers come as they
//! are written (`RawValue`), since the library makes floats of those beyond 64 bits. Others were looked at:
//! - `arrow-json` keeps the last of two values of one key and passes over keys that it does not know unless it is told, has errors without line and path, reads a schema and a
//!   batch into a tape whose memory nobody is asked for, and brings `arrow-cast`;
//! - `simd-json` and `sonic-rs` are faster, with much `unsafe`; the one makes a tape and loses digits of numbers beyond 64 bits (128 with a feature), the other wants flags for the
//!   processor, of which our binaries have none.

mod columns;
mod evidence;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod rows;
mod seeds;
#[cfg(test)]
mod tests;
mod value;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use self::columns::{Column, Struct};
use self::evidence::{Columns, Looking};
use self::rows::JsonLines;
pub use self::rows::JsonRows;
use super::memory::{MemoryBudget, Reservation};
use super::schema_text::NamedTypes;
use super::text::{INFERRED_FILES, INFERRED_ROWS, Packing, Piece, SPLIT_BYTES, split_bytes};
use super::{InputFile, SourceError, Split, check_names};

/// What is made of values of one column that have no type together, as a number and a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JsonMixed {
    /// They are refused, with the place of one of each kind.
    #[default]
    Refuse,
    /// Text: texts as they are, all else as it is written, without blanks. So do columns whose type is said to be text.
    Text,
}

impl JsonMixed {
    /// What `--json-mixed` calls them.
    pub const NAMES: [(&str, Self); 2] = [("refuse", Self::Refuse), ("text", Self::Text)];
}

impl fmt::Display for JsonMixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES.iter().find(|(_, of)| of == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for JsonMixed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, of)| *of);
        found.ok_or_else(|| {
            format!(
                "{text:?} is nothing that is made of mixed values: {}",
                Self::NAMES.map(|(name, _)| name).join(" or ")
            )
        })
    }
}

/// How JSON lines are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JsonOptions {
    /// What is made of values that have no one type.
    pub mixed: JsonMixed,
    /// The columns at the top that anybody looks at: others may be of any type, and keys that nobody knew of are passed over. `None`: all.
    pub read: Option<Vec<String>>,
}

impl JsonOptions {
    fn reads(&self, name: &str) -> bool {
        self.read.as_ref().is_none_or(|read| read.iter().any(|other| other == name))
    }
}

/// A file of JSON lines.
#[derive(Clone, Debug)]
pub struct JsonFile {
    file: InputFile,
    packing: Packing,
    options: JsonOptions,
    schema: SchemaRef,
    split_bytes: u64,
}

impl JsonFile {
    /// A file, which has no columns until [`with_types`](Self::with_types).
    ///
    /// # Errors
    /// It is Parquet or Arrow; those of reading.
    pub fn open(file: InputFile, options: &JsonOptions) -> Result<Self, SourceError> {
        let packing = Packing::of(&file)?;
        let schema = Arc::new(Schema::empty());
        Ok(Self { file, packing, options: options.clone(), schema, split_bytes: SPLIT_BYTES })
    }

    /// The same with these columns: those that a row lacks are null.
    ///
    /// # Errors
    /// A type that JSON is not read as; names that cannot be told apart.
    pub fn with_types(self, types: &[(String, DataType)]) -> Result<Self, SourceError> {
        if let Some((column, data_type)) = types.iter().find(|(_, of)| Column::new(of).is_none()) {
            return Err(SourceError::NoSuchType {
                column: column.clone(),
                data_type: data_type.clone(),
                format: "jsonl",
                what: "JSON lines are read as the types that --schema knows",
            });
        }
        let fields: Vec<_> = types.iter().map(|(name, of)| Field::new(name, of.clone(), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        check_names(self.file.name(), &schema)?;
        Ok(Self { schema, ..self })
    }

    /// As of other [text](super::text::TextFile::in_splits_of).
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

    fn lines(&self, split: usize, budget: &Arc<dyn MemoryBudget>) -> Result<JsonLines, SourceError> {
        JsonLines::new(&self.file, Piece::of_split(&self.file, self.packing, split, self.split_bytes)?, budget)
    }

    /// The rows of a split: those columns of [`schema`](Self::schema), in that order; all where none are said. What others have is not looked at. Bounded batches, in the order of the file.
    ///
    /// # Errors
    /// Those of reading; each batch may be one, and is the last one then.
    ///
    /// # Panics
    /// There is no such split, or no such column.
    pub fn read(
        &self,
        split: usize,
        columns: Option<&[usize]>,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<JsonRows, SourceError> {
        let fields = self.schema.fields();
        let wanted: Vec<usize> = columns.map_or_else(|| (0..fields.len()).collect(), <[usize]>::to_vec);
        let mut is_wanted = vec![false; fields.len()];
        wanted.iter().for_each(|column| is_wanted[*column] = true);
        let row = Struct::new(fields, |column| is_wanted[column]);
        let mut row = row.expect("types are those that JSON has");
        row.passes_others = self.options.read.is_some();
        let schema = Schema::new(wanted.iter().map(|column| fields[*column].clone()).collect::<Vec<_>>());
        let (lines, is_mixed) = (self.lines(split, budget)?, self.options.mixed == JsonMixed::Text);
        let rows = (row, self.schema.clone());
        Ok(JsonRows::new(lines, rows, (wanted, Arc::new(schema)), (split, is_mixed), budget))
    }

    /// The line, from 1, of a row of a split.
    pub(super) fn line_of(&self, split: usize, row: u64, budget: &Arc<dyn MemoryBudget>) -> Result<u64, SourceError> {
        let mut lines = self.lines(split, budget)?;
        let (mut rows, mut found) = (0, 0);
        while let Some(line) = lines.next()? {
            found = line.lines;
            if rows == row {
                break;
            }
            rows += 1;
        }
        lines.line(found)
    }
}

/// The types of the columns of all these files together, by name and in the order in which they are met: what was said where something was, and else what the first
/// [`INFERRED_ROWS`] rows of [`INFERRED_FILES`] of them show. Columns that were said and not met are behind all others: they may come later.
///
/// # Errors
/// Values of a column that have no one type; rows that are no objects; those of reading.
pub fn infer(
    files: &[JsonFile],
    options: &JsonOptions,
    said: &NamedTypes,
    budget: &Arc<dyn MemoryBudget>,
) -> Result<NamedTypes, SourceError> {
    let is_said = |name: &str| said.iter().find(|(other, _)| other == name).map(|(_, of)| of.clone());
    let is_passed = |name: &str| is_said(name).is_some() || !options.reads(name);
    let mut looking = Looking::new(Reservation::none(budget), &is_passed);
    let (mut columns, count) = (Columns::default(), files.len().min(INFERRED_FILES));
    for file in (0..count).map(|at| &files[at * files.len() / count]) {
        file.lines(0, budget)?.look(INFERRED_ROWS, &mut columns, &mut looking)?;
    }
    let mut types = columns.types(is_said, options.mixed == JsonMixed::Text)?;
    for (name, of) in said {
        if types.iter().all(|(other, _)| other != name) {
            types.push((name.clone(), of.clone()));
        }
    }
    Ok(types)
}
