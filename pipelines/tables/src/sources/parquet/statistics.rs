//! What footers say about values, as far as it is believed.
//!
//! Bounds that are well-formed and wrong are believed, as every reader believes them. These are not:
//! - of texts, binaries, decimals in bytes and integers without a sign: those in the old fields of footers (`min`, `max`), whose order was that of signed bytes, and those of a
//!   file that does not say in which order they are;
//! - of `INT96` and of types without an order;
//! - nulls of a column that may have none;
//! - a bound without the other one. What is beyond the other one, or NaN, is found out by who compares ([`Extent`](crate::expression::Extent)).

use arrow_array::{Array, ArrayRef, UInt64Array, new_null_array};
use arrow_schema::Field;

use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::basic::{ColumnOrder, SortOrder, Type};
use parquet::errors::ParquetError;

use super::ParquetFile;
use crate::guard::guarded;

/// Smallest and largest values of a column in each row group, as who wrote the file says.
#[derive(Clone, Debug)]
pub struct RowGroupStatistics {
    /// No value is smaller, but for NaN; null where nobody said, or is not believed.
    pub least: ArrayRef,
    /// No value is larger, but for NaN; null where nobody said, or is not believed.
    pub greatest: ArrayRef,
    /// How many nulls there are; null where nobody said.
    pub nulls: UInt64Array,
}

/// How many nulls there are in each piece of a column, but for those of one that may have none.
pub(super) fn believed_nulls(field: &Field, said: UInt64Array) -> UInt64Array {
    if field.is_nullable() { said } else { said.iter().map(|nulls| nulls.filter(|nulls| *nulls == 0)).collect() }
}

impl ParquetFile {
    /// What the footer says about the values of a column, by row group; `None`: nothing, or the column has others inside.
    ///
    /// # Panics
    /// There is no such column.
    pub fn statistics(&self, column: usize) -> Option<RowGroupStatistics> {
        let parquet = self.metadata.file_metadata().schema_descr();
        let field = self.decoding.schema.field(column);
        let said = guarded(|| -> Result<_, ParquetError> {
            let of = StatisticsConverter::try_new(field.name(), &self.decoding.schema, parquet)?;
            let of = of.with_missing_null_counts_as_zero(false);
            let groups = self.metadata.row_groups();
            let (least, greatest) = (of.row_group_mins(groups)?, of.row_group_maxes(groups)?);
            let nulls = believed_nulls(field, of.row_group_null_counts(groups)?);
            Ok((RowGroupStatistics { least, greatest, nulls }, of.parquet_column_index()))
        });
        let (mut statistics, Some(leaf)) = said.ok()? else { return None };
        if !(0..self.metadata.num_row_groups()).all(|group| self.has_believed_bounds(group, leaf)) {
            let none = new_null_array(statistics.least.data_type(), statistics.least.len());
            (statistics.least, statistics.greatest) = (none.clone(), none);
        }
        Some(statistics)
    }

    fn has_believed_bounds(&self, group: usize, leaf: usize) -> bool {
        let is_deprecated = match self.metadata.row_group(group).column(leaf).statistics() {
            Some(statistics) => statistics.is_min_max_deprecated(),
            None => return true,
        };
        self.has_believed_order(leaf) && (!is_deprecated || self.has_one_order(leaf))
    }

    /// Whether bounds of a column are in an order that is known.
    pub(super) fn has_believed_order(&self, leaf: usize) -> bool {
        let column = self.metadata.file_metadata().schema_descr().column(leaf);
        let is_said = matches!(self.metadata.file_metadata().column_order(leaf), ColumnOrder::TYPE_DEFINED_ORDER(_));
        match (column.physical_type(), column.sort_order()) {
            (Type::INT96, _) | (_, SortOrder::UNDEFINED) => false,
            _ => is_said || self.has_one_order(leaf),
        }
    }

    /// Whether values of a column have never been put in another order than today.
    fn has_one_order(&self, leaf: usize) -> bool {
        let column = self.metadata.file_metadata().schema_descr().column(leaf);
        match column.physical_type() {
            Type::BOOLEAN => true,
            Type::INT32 | Type::INT64 | Type::FLOAT | Type::DOUBLE => column.sort_order() == SortOrder::SIGNED,
            _ => false,
        }
    }
}
