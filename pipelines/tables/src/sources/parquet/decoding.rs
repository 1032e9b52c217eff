//! How the columns of a file are read.

use std::sync::Arc;

use arrow_array::RecordBatchReader;
use arrow_schema::{Schema, SchemaRef};
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::column::page::{PageIterator, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::SchemaDescPtr;

use super::super::{InputFile, Place, SourceError};
use super::types;
use crate::guard::guarded;
use crate::plain::{check_supported, plain_field, plain_type};

/// Of no more columns it is kept for the next file, which has the same most of the time.
const KEPT_COLUMNS_MAX: usize = 1000;

/// How the file is decoded that was opened last of those that are opened one after the other. To make that is most of what it takes to open a small file: some 2 us for each column.
#[derive(Default)]
pub(crate) struct LastDecoding(Mutex<Option<Arc<Decoding>>>);

/// Types of the columns of a file and how the library decodes them: they follow from its schema and from what its writer noted, and from nothing else.
pub(super) struct Decoding {
    descriptor: SchemaDescPtr,
    notes: Option<Vec<KeyValue>>,
    /// Names and plain types of columns, and metadata.
    pub(super) schema: SchemaRef,
    /// How each column of the table is decoded.
    pub(super) levels: Vec<FieldLevels>,
}

impl LastDecoding {
    /// Of a file with that footer.
    pub(super) fn or_made(&self, file: &InputFile, metadata: &ParquetMetaData) -> Result<Arc<Decoding>, SourceError> {
        let last = self.0.lock().clone();
        if let Some(last) = last.filter(|last| last.is_of(metadata)) {
            return Ok(last);
        }
        let made = Arc::new(Decoding::made(file, metadata)?);
        if made.descriptor.num_columns() <= KEPT_COLUMNS_MAX {
            *self.0.lock() = Some(Arc::clone(&made));
        }
        Ok(made)
    }
}

impl Decoding {
    fn is_of(&self, metadata: &ParquetMetaData) -> bool {
        let file = metadata.file_metadata();
        self.notes.as_ref() == file.key_value_metadata()
            && self.descriptor.root_schema() == file.schema_descr().root_schema()
    }

    fn made(file: &InputFile, metadata: &ParquetMetaData) -> Result<Self, SourceError> {
        let damaged = |what| SourceError::Damaged { file: file.name().clone(), place: Place::Footer, what };
        let descriptor = metadata.file_metadata().schema_descr_ptr();
        let wanted = types::schema(metadata.file_metadata()).map_err(damaged)?;
        let decoded = types::decoded(wanted.fields());
        let mut fields = Vec::with_capacity(decoded.len());
        let mut levels = Vec::with_capacity(decoded.len());
        for (root, field) in wanted.fields().iter().enumerate() {
            let with = |hint| {
                let levels = guarded(|| -> Result<_, ParquetError> {
                    let mask = ProjectionMask::roots(&descriptor, [root]);
                    let levels = parquet_to_arrow_field_levels(&descriptor, mask, hint)?;
                    let reader =
                        ParquetRecordBatchReader::try_new_with_row_groups(&levels, &NoPages(metadata), 1, None)?;
                    Ok((reader.schema().fields().first().cloned(), levels))
                });
                match levels.map_err(damaged)? {
                    (Some(field), levels) => Ok((field, levels)),
                    (None, _) => Err(damaged(format!("column {} has nothing in it", field.name()))),
                }
            };
            let (mut read, mut of_root) = with(Some(&decoded))?;
            if plain_type(read.data_type()) != *field.data_type() {
                (read, of_root) = with(None)?;
            }
            fields.push(plain_field(&Arc::new(read.as_ref().clone().with_metadata(field.metadata().clone()))));
            levels.push(of_root);
        }
        let schema = Arc::new(Schema::new_with_metadata(fields, wanted.metadata().clone()));
        check_supported(schema.fields()).map_err(|error| SourceError::Table { file: file.name().clone(), error })?;
        Ok(Self { descriptor, notes: metadata.file_metadata().key_value_metadata().cloned(), schema, levels })
    }
}

/// A row group without pages, of which the library makes a reader that says which types it would give.
struct NoPages<'a>(&'a ParquetMetaData);

struct Nothing;

impl Iterator for Nothing {
    type Item = Result<Box<dyn PageReader>, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}

impl PageIterator for Nothing {}

impl RowGroups for NoPages<'_> {
    fn num_rows(&self) -> usize {
        0
    }

    fn column_chunks(&self, _: usize) -> Result<Box<dyn PageIterator>, ParquetError> {
        Ok(Box::new(Nothing))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::empty())
    }

    fn metadata(&self) -> &ParquetMetaData {
        self.0
    }
}
