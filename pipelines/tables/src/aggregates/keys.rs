//! Least and greatest values of all other types: as bytes of keys.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use arrow_schema::{DataType, Field, Schema};

use super::Accumulator;
use super::bytes::ExtremeBytes;
use super::columns::each_row;
use crate::TableError;
use crate::semantics::{KeyColumn, KeyDecoder, KeyEncoder};

/// Name of the column, which nobody sees.
const COLUMN: &str = "value";
/// The key of a null that stands last, and what that of a value begins with.
const NULL: &[u8] = &[2];

/// The least key of each group, or the greatest.
pub(super) struct ExtremeKeys<const GREATEST: bool> {
    encoder: KeyEncoder,
    decoder: KeyDecoder,
    found: ExtremeBytes<GREATEST>,
}

impl<const GREATEST: bool> ExtremeKeys<GREATEST> {
    /// Of values of this type, which has an order.
    pub(super) fn new(data_type: &DataType) -> Result<Self, TableError> {
        let (schema, key) = (schema(data_type), [KeyColumn::rising(COLUMN)]);
        let (encoder, decoder) = (KeyEncoder::new(&schema, &key)?, KeyDecoder::new(&schema, &key)?);
        Ok(Self { encoder, decoder, found: ExtremeBytes::default() })
    }
}

fn schema(data_type: &DataType) -> Schema {
    Schema::new(vec![Field::new(COLUMN, data_type.clone(), true)])
}

impl<const GREATEST: bool> Accumulator for ExtremeKeys<GREATEST> {
    fn resize(&mut self, groups: usize) {
        self.found.resize(groups);
    }

    fn update(&mut self, groups: &[u32], argument: Option<&ArrayRef>, _: Option<&[u64]>) -> Result<(), TableError> {
        let argument = argument.expect("values");
        let batch = RecordBatch::try_new(Arc::new(schema(argument.data_type())), vec![argument.clone()])?;
        let keys = self.encoder.encode(&batch)?;
        for (row, group) in groups.iter().enumerate() {
            let key = keys.get(row);
            if key != NULL {
                self.found.offer(*group as usize, key);
            }
        }
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<(), TableError> {
        let keys = states[0].as_binary::<i32>();
        each_row(groups, keys.nulls(), |group, row| self.found.offer(group, keys.value(row)));
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>, TableError> {
        Ok(vec![self.found.column(&DataType::Binary, order)?])
    }

    fn finish(&self, order: &[u32]) -> Result<ArrayRef, TableError> {
        let mut columns = self.decoder.decode(order.iter().map(|group| self.found.get(*group).unwrap_or(NULL)))?;
        Ok(columns.pop().expect("a key of one column"))
    }

    fn bytes(&self) -> u64 {
        self.found.memory_bytes()
    }

    fn clear(&mut self) {
        self.found.clear();
    }
}
