//! Sums that are exact on the way, whatever is added and merged in whatever order, and judged at the end.

use arrow_array::{Array, ArrayRef};
use arrow_buffer::i256;
use arrow_schema::DataType;

use crate::TableError;
use crate::plain::{Indirection, unencoded};
use crate::raw::WholeNumbers;

/// How many numbers of 64 bits a sum has: one more than the widest decimal, so that 2^63 of those do not overflow it.
const LIMBS: usize = 5;
/// Of sums as [`ExactSum::encode`] writes them.
const VERSION: u8 = 1;

/// The sum of integers, or of the unscaled values of decimals of one scale. Nulls count nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactSum {
    /// In two's complement, the lowest first.
    limbs: [u64; LIMBS],
    count: u64,
    /// How many of the digits stand behind the point.
    scale: i8,
}

impl ExactSum {
    /// Of nothing yet, for values of this type.
    ///
    /// # Errors
    /// [`TableError::Unsupported`]: neither integers nor decimals.
    pub fn new(column: &str, of: &DataType) -> Result<Self, TableError> {
        Ok(Self { limbs: [0; LIMBS], count: 0, scale: scale(column, of)? })
    }

    /// The type of the sum of a column, as SQL has it: of integers a decimal of 38 digits, of decimals the widest of their scale. `None`: these are not summed exactly.
    pub fn data_type(of: &DataType) -> Option<DataType> {
        match unencoded(of) {
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
    /// [`TableError::Unsupported`]: neither integers nor decimals. [`TableError::ScaleDiffers`]: decimals of another scale than this sum has.
    pub fn add(&mut self, column: &str, array: &ArrayRef) -> Result<(), TableError> {
        self.check(column, scale(column, array.data_type())?)?;
        let values = Summands::of(array);
        match values.is_narrow() {
            // A row has 64 bits at most: all rows of an array do not overflow 128.
            true => {
                let mut sum = 0;
                for value in (0..array.len()).filter_map(|row| values.narrow(row)) {
                    (sum, self.count) = (sum + value, self.count + 1);
                }
                self.add_256(i256::from_i128(sum));
            }
            false => (0..array.len()).filter_map(|row| values.wide(row)).for_each(|value| self.add_value(value)),
        }
        Ok(())
    }

    /// Adds each value of a column, in any encoding, to the sum of its row's group.
    ///
    /// # Errors
    /// As of [`add`](Self::add), before anything was added.
    ///
    /// # Panics
    /// There are fewer groups than rows, or a row is of a group that has no sum.
    pub fn add_to_groups(sums: &mut [Self], groups: &[u32], column: &str, array: &ArrayRef) -> Result<(), TableError> {
        let scale = scale(column, array.data_type())?;
        assert!(groups.len() >= array.len(), "{} groups of {} rows", groups.len(), array.len());
        for group in &groups[..array.len()] {
            sums[*group as usize].check(column, scale)?;
        }
        let values = Summands::of(array);
        for (row, group) in groups[..array.len()].iter().enumerate() {
            if let Some(value) = values.wide(row) {
                sums[*group as usize].add_value(value);
            }
        }
        Ok(())
    }

    /// Adds one value: an integer, or the unscaled value of a decimal of this sum's scale.
    pub fn add_value(&mut self, value: i256) {
        self.add_256(value);
        self.count += 1;
    }

    /// Adds what another sum of the same column has.
    ///
    /// # Errors
    /// [`TableError::ScaleDiffers`].
    pub fn merge(&mut self, column: &str, other: &Self) -> Result<(), TableError> {
        self.check(column, other.scale)?;
        self.add_limbs(other.limbs);
        self.count += other.count;
        Ok(())
    }

    /// How many values were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many of the sum's digits stand behind the point.
    pub fn scale(&self) -> i8 {
        self.scale
    }

    /// The sum, or the unscaled sum of decimals, as a value of this type; `None` where no value was added.
    ///
    /// # Errors
    /// [`TableError::SumOverflows`]: it is outside the type. [`TableError::Unsupported`]: neither an integer nor a decimal. [`TableError::ScaleDiffers`]: a decimal
    /// of another scale.
    pub fn value(&self, column: &str, data_type: &DataType) -> Result<Option<i256>, TableError> {
        self.check(column, scale(column, data_type)?)?;
        let (least, most) = range(data_type).expect("integers and decimals have a range");
        if self.count == 0 {
            return Ok(None);
        }
        let overflows =
            || TableError::SumOverflows { column: column.to_owned(), data_type: data_type.clone(), row: None };
        self.as_i256().filter(|sum| (least..=most).contains(sum)).map(Some).ok_or_else(overflows)
    }

    /// Adds the sum to bytes: version, scale, number of bytes of the sum, the count (8 bytes) and the sum in two's complement without what the sign says, all
    /// little-endian. 11 to 51 bytes.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let sum: Vec<u8> = self.limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect();
        let fill_behind = |len: usize| if len > 0 && sum[len - 1] >= 0x80 { 0xff } else { 0 };
        let is_enough = |len: &usize| sum[*len..].iter().all(|byte| *byte == fill_behind(*len));
        let len = (0..=sum.len()).find(is_enough).expect("all of them are enough");
        bytes.extend_from_slice(&[VERSION, self.scale as u8, len as u8]);
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.extend_from_slice(&sum[..len]);
    }

    /// What [`encode`](Self::encode) has written at the beginning of these bytes, and the bytes behind it.
    ///
    /// # Errors
    /// [`TableError::SumVersion`]: another release wrote it. [`TableError::NotASum`]: nothing of the kind.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), TableError> {
        let (version, rest) = bytes.split_first().ok_or(TableError::NotASum)?;
        if *version != VERSION {
            return Err(TableError::SumVersion { found: *version, expected: VERSION });
        }
        let ([scale, len], rest) = rest.split_first_chunk().ok_or(TableError::NotASum)?;
        let (count, rest) = rest.split_first_chunk().ok_or(TableError::NotASum)?;
        let (sum, rest) = rest.split_at_checked(usize::from(*len)).ok_or(TableError::NotASum)?;
        let fill = if sum.last().is_some_and(|last| *last >= 0x80) { 0xff } else { 0 };
        let mut whole = [fill; 8 * LIMBS];
        whole.get_mut(..sum.len()).ok_or(TableError::NotASum)?.copy_from_slice(sum);
        let mut limbs = [0; LIMBS];
        limbs.iter_mut().zip(whole.as_chunks().0).for_each(|(limb, bytes)| *limb = u64::from_le_bytes(*bytes));
        Ok((Self { limbs, count: u64::from_le_bytes(*count), scale: *scale as i8 }, rest))
    }

    fn check(&self, column: &str, scale: i8) -> Result<(), TableError> {
        match self.scale == scale {
            true => Ok(()),
            false => Err(TableError::ScaleDiffers { column: column.to_owned(), expected: self.scale, found: scale }),
        }
    }

    /// `None`: it is wider.
    fn as_i256(&self) -> Option<i256> {
        let [a, b, c, d, top] = self.limbs;
        let wide = |low: u64, high: u64| u128::from(high) << 64 | u128::from(low);
        // The top is the sign of what is below it.
        let sign = ((d as i64) >> 63) as u64;
        (top == sign).then(|| i256::from_parts(wide(a, b), wide(c, d) as i128))
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

/// Digits behind the point of integers and decimals.
fn scale(column: &str, data_type: &DataType) -> Result<i8, TableError> {
    match unencoded(data_type) {
        integer if integer.is_integer() => Ok(0),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Ok(*scale),
        other => {
            let (column, data_type) = (column.to_owned(), other.clone());
            let why = "only integers and decimals have exact sums";
            Err(TableError::Unsupported { column, data_type, why })
        }
    }
}

/// The numbers of an array in any encoding, looked up where they lie.
struct Summands {
    /// Dictionaries and run ends, the outermost first.
    levels: Vec<Indirection>,
    array: ArrayRef,
    numbers: WholeNumbers,
}

impl Summands {
    fn of(array: &ArrayRef) -> Self {
        let (mut array, mut levels) = (array.clone(), Vec::new());
        while let Some(indirection) = Indirection::of(array.as_ref()) {
            array = indirection.values.clone();
            levels.push(indirection);
        }
        let numbers = WholeNumbers::of(array.as_ref()).expect("integers and decimals are whole numbers");
        Self { levels, array, numbers }
    }

    /// Whether each has 64 bits at most.
    fn is_narrow(&self) -> bool {
        self.numbers.width() <= 8
    }

    #[inline]
    fn place(&self, mut row: usize) -> Option<usize> {
        for level in &self.levels {
            if level.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                return None;
            }
            row = level.place(row);
        }
        self.array.is_valid(row).then_some(row)
    }

    #[inline]
    fn narrow(&self, row: usize) -> Option<i128> {
        self.place(row).map(|row| self.numbers.narrow(row))
    }

    #[inline]
    fn wide(&self, row: usize) -> Option<i256> {
        self.place(row).map(|row| self.numbers.wide(row))
    }
}

/// The least and the greatest whole number that a type holds, of decimals unscaled; `None`: it holds others.
pub(crate) fn range(data_type: &DataType) -> Option<(i256, i256)> {
    let signed = |least: i64, most: i64| Some((i256::from(least), i256::from(most)));
    let unsigned = |most: u64| Some((i256::ZERO, i256::from_parts(u128::from(most), 0)));
    let digits = |precision: &u8| {
        let most = i256::from(10i64).checked_pow(u32::from(*precision)).map(|over| over - i256::ONE)?;
        Some((i256::ZERO - most, most))
    };
    match data_type {
        DataType::Int8 => signed(i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => signed(i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => signed(i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 | DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(..) | DataType::Duration(_) => {
            signed(i64::MIN, i64::MAX)
        }
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
