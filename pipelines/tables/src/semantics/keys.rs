//! Keys as bytes that compare as the keys do.
//!
//! A key is, for each of its columns, one behind the other:
//!
//! | value | bytes |
//! |---|---|
//! | null | 0 where nulls stand first, 2 where they stand last |
//! | any other | 1, then |
//! | bool | 0 or 1 |
//! | unsigned integer | big-endian |
//! | signed integer, date, time, duration, unscaled decimal | big-endian, the highest bit turned |
//! | float | NaN as the one with the highest bit behind the exponent alone, -0.0 as 0.0; big-endian, the highest bit turned, or all bits of one below zero |
//! | text, binary | its bytes, 0 as 0 255, then 0 0 |
//! | binary of a fixed size | its bytes |
//! | list | for each element 1, then its value as here; then 0 |
//! | list of a fixed size, struct | its elements or fields as here |
//!
//! Where a column falls, all bits are turned but those of the bytes that say whether a value is null. No value's bytes are the beginning of another one's, so what stands behind
//! decides only where values are equal. [`KEY_VERSION`] is raised by whoever changes this table.

use std::fmt;

use arrow_array::{BinaryArray, RecordBatch};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Fields, Schema};
use exobus_shuffle::kernels::{prefetch, prefetch_value};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::cells::{Cells, Order};
use super::{check_order, check_type};
use crate::TableError;
use crate::hint::{did_you_mean, no_column};
use crate::plain::{Path, plain_type, unencoded};

/// Of the bytes of keys. Cuts and partitions follow from them, so it goes into the parameters of tasks that make or take such: a task of another release is another task.
pub const KEY_VERSION: u32 = 1;

/// Where nulls stand, whichever the direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nulls {
    /// Before all values.
    First,
    /// Behind all values, also of a column that falls.
    #[default]
    Last,
}

/// A column of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyColumn {
    /// Its name, or the path of names to a field of structs, with dots. A column whose own name has dots is found first.
    pub column: String,
    /// Whether it falls; it rises otherwise.
    pub descending: bool,
    /// Where its nulls stand.
    pub nulls: Nulls,
}

impl KeyColumn {
    /// Rising, nulls last.
    pub fn rising(column: impl Into<String>) -> Self {
        Self { column: column.into(), descending: false, nulls: Nulls::Last }
    }
}

/// A column of a key is written otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no column of a key: COLUMN, then :asc or :desc and :nulls-first or :nulls-last where that is to be said"
)]
pub struct NoKeyColumn(String);

impl std::str::FromStr for KeyColumn {
    type Err = NoKeyColumn;

    /// As people write it: `ts:desc`, `name:nulls-first`.
    fn from_str(text: &str) -> Result<Self, NoKeyColumn> {
        let mut words = text.split(':');
        let mut key = Self::rising(words.next().unwrap_or_default());
        for word in words {
            match word {
                "asc" => key.descending = false,
                "desc" => key.descending = true,
                "nulls-first" => key.nulls = Nulls::First,
                "nulls-last" => key.nulls = Nulls::Last,
                _ => return Err(NoKeyColumn(text.to_owned())),
            }
        }
        if key.column.is_empty() { Err(NoKeyColumn(text.to_owned())) } else { Ok(key) }
    }
}

impl fmt::Display for KeyColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.column)?;
        f.write_str(if self.descending { ":desc" } else { "" })?;
        f.write_str(if self.nulls == Nulls::First { ":nulls-first" } else { "" })
    }
}

/// Makes bytes of keys: `memcmp` of two of them is the order of the keys, equal bytes are equal keys. Two nulls are the same key.
///
/// Bytes of one encoder compare with those of another one of the same columns and types, on any node, whatever the encodings of the batches.
#[derive(Clone, Debug)]
pub struct KeyEncoder {
    /// How many columns the schema has.
    width: usize,
    columns: Vec<EncodedColumn>,
}

#[derive(Clone, Debug)]
pub(super) struct EncodedColumn {
    /// Number in the schema, and of each field on the way down.
    path: Vec<usize>,
    /// Name and type of the column of the schema that it is in.
    top: (String, DataType),
    pub(super) data_type: DataType,
    pub(super) order: Order,
}

/// The columns of a key, as [`KeyEncoder::new`] has them.
pub(super) fn key_columns(schema: &Schema, key: &[KeyColumn]) -> Result<Vec<EncodedColumn>, TableError> {
    let column = |key: &KeyColumn| {
        let (path, data_type) =
            find_column(schema.fields(), &key.column)?.ok_or_else(|| unknown(schema, &key.column))?;
        check_order(&key.column, &data_type)?;
        let top = schema.field(path[0]);
        let order = Order::new(key.descending, key.nulls == Nulls::First);
        Ok(EncodedColumn { path, top: (top.name().clone(), top.data_type().clone()), data_type, order })
    };
    key.iter().map(column).collect()
}

impl KeyEncoder {
    /// Of columns of this schema, the first decides first. Of no column, all rows have the same key, which has no bytes.
    ///
    /// # Errors
    /// [`TableError::NoColumn`], [`TableError::NoOrder`]; [`TableError::NamesAlike`]: two columns have the name.
    pub fn new(schema: &Schema, key: &[KeyColumn]) -> Result<Self, TableError> {
        let columns = key_columns(schema, key)?;
        Ok(Self { width: schema.fields().len(), columns })
    }

    /// The keys of a batch before they take memory.
    ///
    /// # Errors
    /// The batch has another number of columns than the schema, or key columns of other names or types ([`check_type`]).
    pub fn measure(&self, batch: &RecordBatch) -> Result<MeasuredKeys<'_>, TableError> {
        Ok(MeasuredKeys { columns: &self.columns, cells: self.cells(batch)?, rows: batch.num_rows() })
    }

    /// Adds the keys of all rows of a batch behind those that are there.
    ///
    /// # Errors
    /// As of [`measure`](Self::measure) and of [`MeasuredKeys::append`].
    pub fn append(&self, batch: &RecordBatch, keys: &mut KeyRows) -> Result<(), TableError> {
        self.measure(batch)?.append(keys)
    }

    /// The keys of all rows of a batch.
    ///
    /// # Errors
    /// As of [`append`](Self::append).
    pub fn encode(&self, batch: &RecordBatch) -> Result<KeyRows, TableError> {
        self.measure(batch)?.encode()
    }

    fn cells(&self, batch: &RecordBatch) -> Result<Vec<Cells>, TableError> {
        if batch.num_columns() != self.width {
            return Err(TableError::ColumnsDiffer { expected: self.width, found: batch.num_columns() });
        }
        let cells = |column: &EncodedColumn| {
            let (name, data_type) = &column.top;
            let found = batch.schema_ref().field(column.path[0]);
            if found.name() != name {
                return Err(TableError::NameDiffers { expected: name.clone(), found: found.name().clone() });
            }
            check_type(name, data_type, found.data_type())?;
            Ok(Cells::of(batch.column(column.path[0]), &column.path[1..], &column.data_type))
        };
        self.columns.iter().map(cells).collect()
    }
}

/// Keys of the rows of a batch, as they will be written.
#[derive(Debug)]
pub struct MeasuredKeys<'a> {
    columns: &'a [EncodedColumn],
    cells: Vec<Cells>,
    rows: usize,
}

impl MeasuredKeys<'_> {
    /// How many bytes of memory [`append`](Self::append) takes, exactly: the keys and 4 for each row. Nothing else is taken on the way.
    ///
    /// # Errors
    /// [`TableError::TooManyElements`].
    pub fn bytes(&self) -> Result<u64, TableError> {
        let keys = self.named().map(|(column, cells)| cells.bytes(0..self.rows, &Path::new(None, &column.top.0)));
        Ok(keys.sum::<Result<u64, TableError>>()? + 4 * self.rows as u64)
    }

    /// Adds them behind those that are there.
    ///
    /// # Errors
    /// [`TableError::KeysTooLarge`]; [`TableError::TooManyElements`]. Nothing was added then.
    pub fn append(&self, keys: &mut KeyRows) -> Result<(), TableError> {
        let before = keys.len();
        keys.ends.reserve_exact(self.rows);
        keys.ends.resize(before + self.rows, 0);
        match self.lengths(keys.bytes.len(), &mut keys.ends[before..]) {
            Ok(bytes) => {
                keys.bytes.reserve_exact(bytes - keys.bytes.len());
                keys.bytes.resize(bytes, 0);
            }
            Err(error) => {
                keys.ends.truncate(before);
                return Err(error);
            }
        }
        // Each is written behind what was written of its row, until it is at its end.
        for (column, cells) in self.named() {
            cells.write_all(column.order, &mut keys.ends[before..], &mut keys.bytes);
        }
        Ok(())
    }

    /// They alone.
    ///
    /// # Errors
    /// As of [`append`](Self::append).
    pub fn encode(&self) -> Result<KeyRows, TableError> {
        let mut keys = KeyRows::default();
        self.append(&mut keys)?;
        Ok(keys)
    }

    /// Where each key begins, the first of them behind so many bytes; where the last one ends.
    fn lengths(&self, mut at: usize, starts: &mut [u32]) -> Result<usize, TableError> {
        for (column, cells) in self.named() {
            cells.add_lengths(starts, &Path::new(None, &column.top.0))?;
        }
        for start in starts {
            let length = std::mem::replace(start, at as u32) as usize;
            at += length;
            if at >= u32::MAX as usize {
                return Err(TableError::KeysTooLarge { rows: self.rows });
            }
        }
        Ok(at)
    }

    fn named(&self) -> impl Iterator<Item = (&EncodedColumn, &Cells)> {
        self.columns.iter().zip(&self.cells)
    }
}

/// Numbers of the fields on the way to the column of this path, and its plain type.
pub(crate) fn find_column(fields: &Fields, path: &str) -> Result<Option<(Vec<usize>, DataType)>, TableError> {
    let mut same = fields.iter().enumerate().filter(|(_, field)| field.name() == path);
    if let Some((at, field)) = same.next() {
        return match same.next() {
            None => Ok(Some((vec![at], plain_type(field.data_type())))),
            Some(_) => {
                let (name, place) = (|| path.to_owned(), || "the table".to_owned());
                Err(TableError::NamesAlike { left: name(), left_place: place(), right: name(), right_place: place() })
            }
        };
    }
    for (at, field) in fields.iter().enumerate() {
        let rest = path.strip_prefix(field.name().as_str()).and_then(|rest| rest.strip_prefix('.'));
        if let (Some(rest), DataType::Struct(inside)) = (rest, unencoded(field.data_type()))
            && let Some((mut below, data_type)) = find_column(inside, rest)?
        {
            below.insert(0, at);
            return Ok(Some((below, data_type)));
        }
    }
    Ok(None)
}

fn unknown(schema: &Schema, column: &str) -> TableError {
    match as_in_sql(schema, column) {
        Some(key) => TableError::NoColumn { column: column.to_owned(), hint: Some(did_you_mean(key)) },
        None => no_column(schema, column),
    }
}

/// The text of a column of a key that was written as SQL has it: `id desc`, `id desc nulls first`.
fn as_in_sql(schema: &Schema, text: &str) -> Option<String> {
    let (column, order) = text.split_once(char::is_whitespace)?;
    let words = order.to_lowercase().replace("nulls ", "nulls-");
    let key: String = std::iter::once(column).chain(words.split_whitespace()).collect::<Vec<_>>().join(":");
    let is_there = matches!(find_column(schema.fields(), column), Ok(Some(_)));
    (is_there && key.parse::<KeyColumn>().is_ok()).then_some(key)
}

/// Encoded keys of some rows, 4 GiB of them at most.
#[derive(Clone, Debug, Default)]
pub struct KeyRows {
    bytes: Vec<u8>,
    /// Where each key ends.
    ends: Vec<u32>,
}

impl KeyRows {
    /// How many rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key of a row.
    ///
    /// # Panics
    /// There is no such row.
    #[inline]
    pub fn get(&self, row: usize) -> &[u8] {
        let from = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[from as usize..self.ends[row] as usize]
    }

    /// Asks for what says where the key of a row is, which will be read soon.
    #[inline]
    pub(crate) fn prefetch_end(&self, row: usize) {
        prefetch_value(&self.ends[row]);
    }

    /// Asks for the key of a row, which will be read soon.
    #[inline]
    pub(crate) fn prefetch(&self, row: usize) {
        prefetch(self.get(row));
    }

    /// Takes memory for so many more rows and bytes of keys at once, where several batches are to be added.
    pub fn reserve(&mut self, rows: usize, key_bytes: usize) {
        self.ends.reserve_exact(rows);
        self.bytes.reserve_exact(key_bytes);
    }

    /// Adds a key behind those that are there.
    ///
    /// # Panics
    /// 4 GiB of keys.
    pub fn push(&mut self, key: &[u8]) {
        self.push_parts([key]);
    }

    /// Adds a key of several parts, one behind the other, behind those that are there.
    ///
    /// # Panics
    /// 4 GiB of keys.
    pub(crate) fn push_parts<const PARTS: usize>(&mut self, parts: [&[u8]; PARTS]) {
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.ends.push(u32::try_from(self.bytes.len()).expect("less than 4 GiB of keys"));
    }

    /// Forgets all keys and keeps their memory for others.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// They as an array.
    ///
    /// # Errors
    /// [`TableError::KeysTooLarge`]: 2 GiB or more, which offsets of arrays do not count.
    pub fn into_array(self) -> Result<BinaryArray, TableError> {
        let rows = self.len();
        if self.bytes.len() > i32::MAX as usize {
            return Err(TableError::KeysTooLarge { rows });
        }
        let ends = self.ends.into_iter().map(|end| end as i32);
        let offsets = OffsetBuffer::new(std::iter::once(0).chain(ends).collect());
        Ok(BinaryArray::new(offsets, self.bytes.into(), None))
    }

    /// Bytes of memory that they take.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + 4 * self.ends.capacity()
    }
}

/// Which partition a key goes to follows from this: the xxh3-64 of its bytes, the same on every node and processor.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key)
}
