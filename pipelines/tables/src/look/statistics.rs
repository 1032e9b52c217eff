//! What the files of a table say about it, without a look at its rows.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{Schema, SchemaRef};

use super::{Look, Value};
use crate::semantics::{KeyColumn, KeyEncoder, check_order, conformed};
use crate::sources::parquet::RowGroupStatistics;
use crate::sources::{Source, SourceError, folder_statistics};

/// What [`Look::statistics`] has found.
#[derive(Clone, Debug)]
pub struct TableStatistics {
    /// How many files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Row groups, pieces of text, batches of Arrow.
    pub splits: u64,
    /// How many rows; `None`: not all files say so, and text never does.
    pub rows: Option<u64>,
    /// Of each column of the table.
    pub columns: Vec<ColumnStatistics>,
    /// Names and types of the columns.
    pub schema: SchemaRef,
}

/// What footers say of a column.
#[derive(Clone, Debug, Default)]
pub struct ColumnStatistics {
    /// How many nulls; `None`: not all files say so.
    pub nulls: Option<u64>,
    /// Smallest and largest value, but for NaN, or what is below and above all texts; `None`: not all files say so, or there is no value.
    pub bounds: Option<(Value, Value)>,
}

/// Bounds so far.
struct Column {
    encoder: Option<(KeyEncoder, SchemaRef)>,
    nulls: Option<u64>,
    least: Option<(Vec<u8>, Value)>,
    greatest: Option<(Vec<u8>, Value)>,
    is_said: bool,
}

impl Look {
    /// What footers say of the table and of the columns that are selected. No row is read, whatever the condition is.
    ///
    /// # Errors
    /// Those of [`schema`](Self::schema).
    pub fn statistics(&self) -> Result<TableStatistics, SourceError> {
        let (options, table) = self.table()?;
        let schema = Arc::new(options.selected(&table, &[]).map_err(|error| self.failed(error))?);
        let mut columns: Vec<Column> = (0..schema.fields().len()).map(|number| Column::new(&schema, number)).collect();
        let (mut rows, mut splits, opener) = (Some(0_u64), 0, options.opener());
        for file in &self.files {
            let (input, format) = self.input(file)?;
            let source = opener.open(input, format, &self.budget)?;
            let of_file = source.splits()?;
            let rows_of: Vec<Option<u64>> = of_file.iter().map(|split| split.rows).collect();
            splits += of_file.len() as u64;
            rows = rows_of.iter().copied().sum::<Option<u64>>().and_then(|more| rows?.checked_add(more));
            let folders = source.file().folder_columns(&options.folder_types()?)?;
            for (number, column) in columns.iter_mut().enumerate() {
                let name = schema.field(number).name();
                match folders.iter().find(|(field, _)| field.name() == name) {
                    Some((_, value)) => column.add_folder(value, &rows_of),
                    None => column.add(&source, name, &rows_of),
                }
            }
        }
        let bytes = self.files.iter().map(|file| file.status.bytes).sum();
        let columns = columns.into_iter().map(Column::finish).collect();
        Ok(TableStatistics { files: self.files.len() as u64, bytes, splits, rows, columns, schema })
    }
}

impl Column {
    fn new(schema: &Schema, number: usize) -> Self {
        let field = schema.field(number).clone().with_nullable(true);
        let key = [KeyColumn::rising(field.name().clone())];
        let alone = Arc::new(Schema::new(vec![field]));
        let has_order = check_order(alone.field(0).name(), alone.field(0).data_type()).is_ok();
        let encoder = has_order.then(|| KeyEncoder::new(&alone, &key).ok().map(|encoder| (encoder, alone))).flatten();
        Self { encoder, nulls: Some(0), least: None, greatest: None, is_said: true }
    }

    /// Adds what a file says, whose splits have so many rows.
    fn add(&mut self, source: &Source, name: &str, rows: &[Option<u64>]) {
        let number = source.schema().fields().iter().position(|field| field.name() == name);
        let said = match (source, number) {
            (_, None) => {
                // All values are null there.
                let all = rows.iter().copied().sum::<Option<u64>>();
                self.nulls = self.nulls.zip(all).and_then(|(nulls, all)| nulls.checked_add(all));
                return;
            }
            (Source::Parquet(file), Some(number)) => file.statistics(number),
            _ => None,
        };
        self.add_said(said, rows);
    }

    /// Adds what the folders of a file say.
    fn add_folder(&mut self, value: &ArrayRef, rows: &[Option<u64>]) {
        let is_known = value.is_valid(0) || rows.iter().all(Option::is_some);
        self.add_said(folder_statistics(value, rows).ok().filter(|_| is_known), rows);
    }

    fn add_said(&mut self, said: Option<RowGroupStatistics>, rows: &[Option<u64>]) {
        let Some(said) = said else {
            self.is_said &= rows.iter().all(|rows| *rows == Some(0));
            self.nulls = self.nulls.filter(|_| self.is_said);
            return;
        };
        let nulls = (0..rows.len()).map(|row| said.nulls.is_valid(row).then(|| said.nulls.value(row))).sum();
        self.nulls = self.nulls.zip(nulls).and_then(|(nulls, more): (u64, u64)| nulls.checked_add(more));
        self.is_said &= self.add_bounds(&said, rows).is_some();
    }

    /// Adds the bounds of some row groups; `None`: not all that have values have them.
    fn add_bounds(&mut self, said: &RowGroupStatistics, rows: &[Option<u64>]) -> Option<()> {
        let (encoder, schema) = self.encoder.as_ref()?;
        let of_table = |array: &ArrayRef| {
            let batch = RecordBatch::try_from_iter_with_nullable([(schema.field(0).name(), array.clone(), true)]);
            let batch = conformed(&batch.ok()?, schema).ok()?;
            Some((encoder.encode(&batch).ok()?, batch.column(0).clone()))
        };
        let ((least, least_values), (greatest, greatest_values)) = (of_table(&said.least)?, of_table(&said.greatest)?);
        for (row, rows) in rows.iter().enumerate() {
            if least_values.is_null(row) || greatest_values.is_null(row) {
                let has_values = !said.nulls.is_valid(row) || Some(said.nulls.value(row)) != *rows;
                match has_values && *rows != Some(0) {
                    true => return None,
                    false => continue,
                }
            }
            let (below, above) = (least.get(row), greatest.get(row));
            if below > above {
                return None;
            }
            if self.least.as_ref().is_none_or(|(key, _)| below < key.as_slice()) {
                self.least = Some((below.to_vec(), Value::of(&least_values, row)));
            }
            if self.greatest.as_ref().is_none_or(|(key, _)| above > key.as_slice()) {
                self.greatest = Some((above.to_vec(), Value::of(&greatest_values, row)));
            }
        }
        Some(())
    }

    fn finish(self) -> ColumnStatistics {
        let bounds = self.least.zip(self.greatest).map(|((_, least), (_, greatest))| (least, greatest));
        ColumnStatistics { nulls: self.nulls, bounds: bounds.filter(|_| self.is_said) }
    }
}
