//! Columns built from fields of text.

use std::sync::Arc;

use arrow_array::builder::*;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray};
use arrow_schema::{DataType, TimeUnit};

use super::stretch::ColumnFields;
use super::values;

/// Why a field is none of its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sources) enum FieldRefused {
    /// Its text is no value of the type.
    Misfit,
    /// It is text, and not UTF-8.
    NotUtf8,
}

/// A column that grows by a field at a time.
pub(in crate::sources) trait TextColumn: Send {
    /// Puts a field behind the others; `None`: null.
    fn push(&mut self, text: Option<&[u8]>) -> Result<(), FieldRefused>;

    /// Puts the fields of many rows behind the others, up to the first that is none of the column: with that comes its row among them, from 0.
    fn push_all(&mut self, fields: &ColumnFields<'_>) -> Result<(), (usize, FieldRefused)> {
        fields.try_each(|text| self.push(text))
    }

    /// Makes room for as much as the last array had, where nothing is there: what grows by doubling is copied, and touches twice the memory.
    fn reserve(&mut self) {}

    /// Takes all that is there as an array.
    fn finish(&mut self) -> ArrayRef;
}

/// A column of that type; `None`: text is not read as that.
pub(in crate::sources) fn column(data_type: &DataType) -> Option<Box<dyn TextColumn>> {
    use DataType::*;
    Some(match data_type {
        Boolean => Box::new(Booleans(BooleanBuilder::new())),
        Int8 => number::<Int8Type>(data_type, |text| values::integer(text)?.try_into().ok()),
        Int16 => number::<Int16Type>(data_type, |text| values::integer(text)?.try_into().ok()),
        Int32 => number::<Int32Type>(data_type, |text| values::integer(text)?.try_into().ok()),
        Int64 => number::<Int64Type>(data_type, values::integer),
        UInt8 => number::<UInt8Type>(data_type, |text| values::unsigned(text)?.try_into().ok()),
        UInt16 => number::<UInt16Type>(data_type, |text| values::unsigned(text)?.try_into().ok()),
        UInt32 => number::<UInt32Type>(data_type, |text| values::unsigned(text)?.try_into().ok()),
        UInt64 => number::<UInt64Type>(data_type, values::unsigned),
        Float32 => number::<Float32Type>(data_type, values::float32),
        Float64 => number::<Float64Type>(data_type, values::float),
        Date32 => number::<Date32Type>(data_type, values::date),
        Decimal128(digits, scale) => {
            let (digits, scale) = (*digits, *scale);
            number::<Decimal128Type>(data_type, move |text| values::decimal128(text, digits, scale))
        }
        Decimal256(digits, scale) => {
            let (digits, scale) = (*digits, *scale);
            number::<Decimal256Type>(data_type, move |text| values::decimal(text, digits, scale))
        }
        Timestamp(unit, zone) => {
            let (unit, has_zone) = (*unit, zone.is_some());
            let read = move |text: &[u8]| values::timestamp(text, unit, has_zone);
            match unit {
                TimeUnit::Second => number::<TimestampSecondType>(data_type, read),
                TimeUnit::Millisecond => number::<TimestampMillisecondType>(data_type, read),
                TimeUnit::Microsecond => number::<TimestampMicrosecondType>(data_type, read),
                TimeUnit::Nanosecond => number::<TimestampNanosecondType>(data_type, read),
            }
        }
        Utf8 => Box::new(Texts::default()),
        _ => return None,
    })
}

struct Booleans(BooleanBuilder);

impl TextColumn for Booleans {
    fn push(&mut self, text: Option<&[u8]>) -> Result<(), FieldRefused> {
        let value = text.map(|text| values::boolean(text).ok_or(FieldRefused::Misfit)).transpose()?;
        self.0.append_option(value);
        Ok(())
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

/// A column of text.
#[derive(Default)]
struct Texts {
    values: StringBuilder,
    /// What the last array had: rows, and bytes of their texts.
    last: (usize, usize),
}

impl TextColumn for Texts {
    fn push(&mut self, text: Option<&[u8]>) -> Result<(), FieldRefused> {
        let value = text.map(|text| std::str::from_utf8(text).map_err(|_| FieldRefused::NotUtf8)).transpose()?;
        self.values.append_option(value);
        Ok(())
    }

    fn push_all(&mut self, fields: &ColumnFields<'_>) -> Result<(), (usize, FieldRefused)> {
        fields.try_each_text(|text| self.values.append_option(text))
    }

    fn reserve(&mut self) {
        self.values = StringBuilder::with_capacity(self.last.0, self.last.1);
    }

    fn finish(&mut self) -> ArrayRef {
        let before = std::mem::replace(&mut self.last, (self.values.len(), self.values.values_slice().len()));
        let mut array = self.values.finish();
        if is_half_empty(self.last.0, before.0) || is_half_empty(self.last.1, before.1) {
            array.shrink_to_fit();
        }
        Arc::new(array)
    }
}

/// Whether room for so many, of which so many are there, is to be given back.
fn is_half_empty(there: usize, room: usize) -> bool {
    there < room / 2
}

struct Numbers<T: ArrowPrimitiveType, F> {
    values: PrimitiveBuilder<T>,
    data_type: DataType,
    read: F,
    /// How many rows the last array had.
    last: usize,
}

fn number<T: ArrowPrimitiveType>(
    data_type: &DataType,
    read: impl Fn(&[u8]) -> Option<T::Native> + Send + 'static,
) -> Box<dyn TextColumn> {
    let (values, data_type) = (PrimitiveBuilder::<T>::new(), data_type.clone());
    Box::new(Numbers { values, data_type, read, last: 0 })
}

impl<T: ArrowPrimitiveType, F: Fn(&[u8]) -> Option<T::Native> + Send> TextColumn for Numbers<T, F> {
    #[inline(always)]
    fn push(&mut self, text: Option<&[u8]>) -> Result<(), FieldRefused> {
        let value = text.map(|text| (self.read)(text).ok_or(FieldRefused::Misfit)).transpose()?;
        self.values.append_option(value);
        Ok(())
    }

    fn reserve(&mut self) {
        self.values = PrimitiveBuilder::with_capacity(self.last);
    }

    fn finish(&mut self) -> ArrayRef {
        let before = std::mem::replace(&mut self.last, self.values.len());
        let mut array: PrimitiveArray<T> = self.values.finish();
        if is_half_empty(self.last, before) {
            array.shrink_to_fit();
        }
        // Decimals and zones have their width only until here.
        Arc::new(array.with_data_type(self.data_type.clone()))
    }
}
