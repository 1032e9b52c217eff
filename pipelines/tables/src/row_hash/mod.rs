//! The hash of a row, of which law 1 sums the rows of both ends of an exchange.
//!
//! It is made of *values*, so it is the same however they are encoded (dictionaries, run ends, views, wide offsets, slices), wherever a
//! batch ends, whatever the format and the node. What it is, to the bit, so that others can make it too:
//!
//! - Columns are numbered from 0 on as one walks through the schema, each before what is in it: a list and its elements are two columns,
//!   a struct of three three more than itself, a map four (itself, its entries, keys, values). Encodings add none.
//! - Column c has seeds: seed(c, k) is the xxh3-64 of c, as 8 bytes, with the seed k. Each value has two hashes, a and b:
//!
//!   | value | a | b |
//!   |---|---|---|
//!   | null | seed(c, 2) | seed(c, 3) |
//!   | its bytes | xxh3-64 of them, seed(c, 0) | xxh3-64 of them, seed(c, 1) |
//!   | struct | sum of the a of its fields | sum of the b |
//!   | list of values that have a width, none of them null | as the bytes of its elements, one behind the other | likewise |
//!   | ... some of them null | xxh3-64 of those bytes, zeros where a null is, and for each element a byte, 1 or 0 where it is null; seed(c, 4) | seed(c, 5) |
//!   | list of others | as the 8 bytes of the a of each element | as those of the b |
//!
//!   A map is the list of its entries, in their order; a list of a fixed size is a list.
//! - The bytes of a number, date, time, duration, interval or decimal are those that Arrow has for its type: the width, the unit and the scale belong to
//!   the type. Bits are hashed as they are: -0.0 is not 0.0 here, and NaNs differ by their payloads, since an exchange has to give back what
//!   it got. A bool is one byte, 0 or 1. Text and binary are their bytes, in any layout and of a fixed size too.
//! - A row is the sum of the a and the sum of the b of its columns, and its hash the xxh3-128 of these two, 8 bytes each. Only these are
//!   summed over rows: values that change places between rows change the sum.
//!
//! All bytes are little-endian, all sums wrap. What is under a null counts nowhere.

mod columns;
mod lists;
mod seeds;
mod xxh3;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use exobus_store::RowHash;

pub(crate) use self::columns::Pairs;
pub(crate) use self::seeds::ColumnSeeds;
use self::seeds::PAIR_BYTES;
use crate::semantics::check_schema;
use crate::{TableError, plain};

/// Hashes rows of one schema.
#[derive(Clone, Debug)]
pub struct RowHasher {
    schema: Arc<Schema>,
    columns: Vec<ColumnSeeds>,
}

impl RowHasher {
    /// For batches of this schema as [`check_schema`] has it.
    ///
    /// # Errors
    /// [`TableError::Unsupported`].
    pub fn new(schema: &Schema) -> Result<Self, TableError> {
        plain::check_supported(schema.fields())?;
        Ok(Self { schema: Arc::new(schema.clone()), columns: ColumnSeeds::all(schema.fields(), &mut 0) })
    }

    /// Bytes of memory that hashing so many rows takes at most, about: 16 a row, and as many for each value of a dictionary that has no more of them than rows, and for each row at each level of
    /// structs that have nulls; lists are hashed some elements at a time.
    pub(crate) fn scratch_bytes(&self, rows: usize) -> u64 {
        let of_columns = self.columns.iter().map(|column| column.scratch_bytes(rows as u64)).max();
        rows as u64 * PAIR_BYTES + of_columns.unwrap_or(0)
    }

    /// The sum of the hashes of all rows.
    ///
    /// # Errors
    /// The batch is of another schema.
    pub fn sum(&self, batch: &RecordBatch) -> Result<RowHash, TableError> {
        Ok(self.pairs(batch)?.sum())
    }

    /// The hash of each row, in their order, behind what is there already.
    ///
    /// # Errors
    /// The batch is of another schema.
    pub fn rows(&self, batch: &RecordBatch, hashes: &mut Vec<RowHash>) -> Result<(), TableError> {
        hashes.reserve_exact(batch.num_rows());
        self.pairs(batch)?.each(|hash| hashes.push(hash));
        Ok(())
    }

    /// The sum of the hashes of so many rows, to whose pairs `add` adds the hashes of the values of each column.
    pub(crate) fn sum_by(&self, rows: usize, mut add: impl FnMut(usize, &ColumnSeeds, &mut Pairs)) -> RowHash {
        let mut pairs = Pairs::zeros(rows);
        self.columns.iter().enumerate().for_each(|(number, column)| add(number, column, &mut pairs));
        pairs.sum()
    }

    fn pairs(&self, batch: &RecordBatch) -> Result<Pairs, TableError> {
        check_schema(&self.schema, batch.schema_ref())?;
        let mut pairs = Pairs::zeros(batch.num_rows());
        for (column, array) in self.columns.iter().zip(batch.columns()) {
            column.add(array, &mut pairs)?;
        }
        Ok(pairs)
    }
}

#[cfg(test)]
mod tests;
