//! Sums that are exact on the way, whatever is added and merged in whatever order, and judged at the end.

use arrow_array::types::{
    ArrowPrimitiveType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, cast::AsArray};
use arrow_buffer::i256;
use arrow_schema::DataType;

use crate::TableError;
use crate::plain::unpacked;

/// How many numbers of 64 bits a sum has: one more than the widest decimal, so that 2^63 of those do not overflow it.
const LIMBS: usize = 5;

/// The sum of integers, or of the unscaled values of decimals. Nulls count nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExactSum {
    /// In two's complement, the lowest first.
    limbs: [u64; LIMBS],
    count: u64,
}

impl ExactSum {
    /// The type of the sum of a column, as SQL has it: of integers a decimal of 38 digits, of decimals the widest of their scale. `None`: these are not summed exactly.
    pub fn data_type(of: &DataType) -> Option<DataType> {
        match of {
            DataType::Dictionary(_, values) => Self::data_type(values),
            DataType::RunEndEncoded(_, values) => Self::data_type(values.data_type()),
            integer if integer.is_integer() => Some(DataType::Decimal128(38, 0)),
            DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => {
                Some(DataType::Decimal128(38, *scale))
            }
            DataType::Decimal256(_, scale) => Some(DataType::Decimal256(76, *scale)),
            _ => None,
        }
    }

    /// Adds all values of a column, in any encoding.
    ///
    /// # Errors
    /// [`TableError::Unsupported`]: neither integers nor decimals.
    pub fn add(&mut self, column: &str, array: &ArrayRef) -> Result<(), TableError> {
        let array = unpacked(array)?;
        match array.data_type() {
            DataType::Int8 => self.add_narrow::<Int8Type>(&array),
            DataType::Int16 => self.add_narrow::<Int16Type>(&array),
            DataType::Int32 => self.add_narrow::<Int32Type>(&array),
            DataType::Int64 => self.add_narrow::<Int64Type>(&array),
            DataType::UInt8 => self.add_narrow::<UInt8Type>(&array),
            DataType::UInt16 => self.add_narrow::<UInt16Type>(&array),
            DataType::UInt32 => self.add_narrow::<UInt32Type>(&array),
            DataType::UInt64 => self.add_narrow::<UInt64Type>(&array),
            DataType::Decimal32(..) => self.add_narrow::<Decimal32Type>(&array),
            DataType::Decimal64(..) => self.add_narrow::<Decimal64Type>(&array),
            DataType::Decimal128(..) => {
                array.as_primitive::<Decimal128Type>().iter().flatten().for_each(|value| self.add_128(value));
            }
            DataType::Decimal256(..) => {
                array.as_primitive::<Decimal256Type>().iter().flatten().for_each(|value| self.add_256(value));
            }
            other => {
                let (column, data_type) = (column.to_owned(), other.clone());
                return Err(TableError::Unsupported {
                    column,
                    data_type,
                    why: "only integers and decimals have exact sums",
                });
            }
        }
        self.count += (array.len() - array.null_count()) as u64;
        Ok(())
    }

    /// Adds what another sum has.
    pub fn merge(&mut self, other: &Self) {
        self.add_limbs(other.limbs);
        self.count += other.count;
    }

    /// How many values were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum, or the unscaled sum of decimals, as a value of this type; `None` where no value was added.
    ///
    /// # Errors
    /// [`TableError::SumOverflows`]: it is outside the type. [`TableError::Unsupported`]: neither an integer nor a decimal.
    pub fn value(&self, column: &str, data_type: &DataType) -> Result<Option<i256>, TableError> {
        let Some((least, most)) = range(data_type) else {
            let (column, data_type) = (column.to_owned(), data_type.clone());
            return Err(TableError::Unsupported { column, data_type, why: "sums are integers or decimals" });
        };
        if self.count == 0 {
            return Ok(None);
        }
        let overflows = || TableError::SumOverflows { column: column.to_owned(), data_type: data_type.clone() };
        self.as_i256().filter(|sum| (least..=most).contains(sum)).map(Some).ok_or_else(overflows)
    }

    /// `None`: it is wider.
    fn as_i256(&self) -> Option<i256> {
        let [a, b, c, d, top] = self.limbs;
        let wide = |low: u64, high: u64| u128::from(high) << 64 | u128::from(low);
        // The top is the sign of what is below it.
        let sign = ((d as i64) >> 63) as u64;
        (top == sign).then(|| i256::from_parts(wide(a, b), wide(c, d) as i128))
    }

    /// Values of 64 bits at most: an array of them never overflows 128.
    fn add_narrow<T: ArrowPrimitiveType<Native: Into<i128>>>(&mut self, array: &ArrayRef) {
        let array = array.as_primitive::<T>();
        let sum: i128 = match array.null_count() {
            0 => array.values().iter().map(|value| (*value).into()).sum(),
            _ => array.iter().flatten().map(Into::into).sum(),
        };
        self.add_128(sum);
    }

    fn add_128(&mut self, value: i128) {
        let sign = (value >> 127) as u64;
        self.add_limbs([value as u64, (value >> 64) as u64, sign, sign, sign]);
    }

    fn add_256(&mut self, value: i256) {
        let (low, high) = value.to_parts();
        let sign = (high >> 127) as u64;
        self.add_limbs([low as u64, (low >> 64) as u64, high as u64, (high >> 64) as u64, sign]);
    }

    fn add_limbs(&mut self, more: [u64; LIMBS]) {
        let mut carry = false;
        for (limb, more) in self.limbs.iter_mut().zip(more) {
            let (sum, over) = limb.overflowing_add(more);
            let (sum, over_again) = sum.overflowing_add(u64::from(carry));
            (*limb, carry) = (sum, over || over_again);
        }
    }
}

/// The least and the greatest value of a type, of decimals unscaled.
fn range(data_type: &DataType) -> Option<(i256, i256)> {
    let signed = |least: i64, most: i64| Some((i256::from(least), i256::from(most)));
    let unsigned = |most: u64| Some((i256::ZERO, i256::from_parts(u128::from(most), 0)));
    let digits = |precision: &u8| {
        let most = i256::from(10i64).checked_pow(u32::from(*precision)).map(|over| over - i256::ONE)?;
        Some((i256::ZERO - most, most))
    };
    match data_type {
        DataType::Int8 => signed(i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => signed(i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => signed(i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 => signed(i64::MIN, i64::MAX),
        DataType::UInt8 => unsigned(u8::MAX.into()),
        DataType::UInt16 => unsigned(u16::MAX.into()),
        DataType::UInt32 => unsigned(u32::MAX.into()),
        DataType::UInt64 => unsigned(u64::MAX),
        DataType::Decimal32(precision, _)
        | DataType::Decimal64(precision, _)
        | DataType::Decimal128(precision, _)
        | DataType::Decimal256(precision, _) => digits(precision),
        _ => None,
    }
}
