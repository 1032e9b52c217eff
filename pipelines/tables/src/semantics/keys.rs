//! Keys as bytes that compare as the keys do.

use arrow_array::RecordBatch;
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{DataType, Schema, SortOptions};
use twox_hash::XxHash3_64;

use super::{canonical, check_comparable, check_order};
use crate::TableError;

/// Where nulls stand, whichever the direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nulls {
    /// Before all values.
    First,
    /// Behind all values, also of a column that falls.
    #[default]
    Last,
}

/// A column of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    /// Its number in the schema, from 0.
    pub index: usize,
    /// Whether it falls; it rises otherwise.
    pub descending: bool,
    /// Where its nulls stand.
    pub nulls: Nulls,
}

impl KeyColumn {
    /// Rising, nulls last.
    pub fn rising(index: usize) -> Self {
        Self { index, descending: false, nulls: Nulls::Last }
    }
}

/// Makes bytes of keys: `memcmp` of two of them is the order of the keys, equal bytes are equal keys. Two nulls are the same key.
///
/// Bytes of one encoder compare with those of another one of the same columns and types, on any node, whatever the encodings of the batches. They
/// hold for as long as the version of Arrow does: they stand in nothing that outlives a job.
#[derive(Clone, Debug)]
pub struct KeyEncoder {
    columns: Vec<(KeyColumn, String, DataType)>,
}

impl KeyEncoder {
    /// Of columns of this schema, the first decides first.
    ///
    /// # Errors
    /// [`TableError::NoOrder`].
    ///
    /// # Panics
    /// No column, or one that the schema does not have.
    pub fn new(schema: &Schema, key: &[KeyColumn]) -> Result<Self, TableError> {
        assert!(!key.is_empty(), "a key of no column");
        let column = |column: &KeyColumn| {
            let field = schema.field(column.index);
            check_order(field.name(), field.data_type())?;
            Ok((column.clone(), field.name().clone(), field.data_type().clone()))
        };
        Ok(Self { columns: key.iter().map(column).collect::<Result<_, TableError>>()? })
    }

    /// The keys of all rows of a batch, whose columns have the numbers that they have in the schema. Takes the bytes of the keys, some 3 more a text of up to 30 bytes, 8 a row.
    ///
    /// # Errors
    /// A column has another type than in the schema, but for its encoding, or for another zone where it is a timestamp with a zone.
    pub fn encode(&self, batch: &RecordBatch) -> Result<KeyRows, TableError> {
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for (column, name, data_type) in &self.columns {
            let array = batch.column(column.index);
            check_comparable(name, data_type, array.data_type())?;
            let array = canonical(array)?;
            let options = SortOptions { descending: column.descending, nulls_first: column.nulls == Nulls::First };
            fields.push(SortField::new_with_options(array.data_type().clone(), options));
            arrays.push(array);
        }
        Ok(KeyRows(RowConverter::new(fields)?.convert_columns(&arrays)?))
    }
}

/// Encoded keys of some rows.
#[derive(Debug)]
pub struct KeyRows(Rows);

impl KeyRows {
    /// How many rows.
    pub fn len(&self) -> usize {
        self.0.num_rows()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key of a row.
    ///
    /// # Panics
    /// There is no such row.
    #[inline]
    pub fn get(&self, row: usize) -> &[u8] {
        self.0.row(row).data()
    }

    /// Bytes of memory that they take.
    pub fn memory_bytes(&self) -> usize {
        self.0.size()
    }
}

/// Which partition a key goes to follows from this: the xxh3-64 of its bytes, the same on every node and processor.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key)
}
