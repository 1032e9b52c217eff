//! Columns of conditions, and what is compared in them.

use std::cmp::Ordering;
use std::ops::Bound;

use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use arrow_buffer::{Buffer, i256};
use arrow_schema::{DataType, Schema};

use super::points::{Domain, compare_whole};
use super::ranges::Ranges;
use super::tree::Comparison;
use super::truth::Truth;
use crate::TableError;
use crate::raw::{ByteRanges, WholeNumbers, fixed_values};
use crate::semantics::{Level, check_type, float_order, levels, place};

/// A column of a schema, or a field of structs.
#[derive(Clone, Debug)]
pub(super) struct BoundColumn {
    /// Its number in the schema, and that of each field on the way down.
    pub(super) path: Vec<usize>,
    /// Name and type of the column of the schema that it is in.
    pub(super) top: (String, DataType),
    /// Its plain type.
    pub(super) data_type: DataType,
}

impl BoundColumn {
    pub(super) fn domain(&self) -> Domain {
        Domain::of(&self.data_type)
    }

    /// What is on the way to its values, and these.
    pub(super) fn values(&self, batch: &RecordBatch) -> Result<(Vec<Level>, ArrayRef), TableError> {
        let (name, data_type) = &self.top;
        let found = found(batch.schema_ref(), self.path[0], name)?;
        check_type(name, data_type, found)?;
        Ok(levels(batch.column(self.path[0]), &self.path[1..]))
    }

    /// Which values are in a set.
    pub(super) fn are_among(&self, batch: &RecordBatch, set: &Set) -> Result<Truth, TableError> {
        let ((levels, array), rows) = (self.values(batch)?, batch.num_rows());
        Ok(match set {
            Set::Whole(ranges) if self.data_type == DataType::Boolean => {
                let (bits, holds) = (array.as_boolean().values(), [0i64, 1].map(|one| is_in(ranges, i256::from(one))));
                Truth::of_values(&levels, rows, |row| holds[usize::from(bits.value(row))])
            }
            Set::Whole(ranges) => numbers(&self.data_type, &array, (&levels, rows), ranges),
            Set::Bytes(ranges) => {
                let bytes = ByteRanges::of(array.as_ref()).expect("the type was checked");
                Truth::of_values(&levels, rows, |row| ranges.contains(bytes.get(row)))
            }
        })
    }

    /// What a test says of its texts.
    pub(super) fn texts(&self, batch: &RecordBatch, test: impl Fn(&[u8]) -> bool) -> Result<Truth, TableError> {
        let (levels, array) = self.values(batch)?;
        let bytes = ByteRanges::of(array.as_ref()).expect("the type was checked");
        Ok(Truth::of_values(&levels, batch.num_rows(), |row| test(bytes.get(row))))
    }

    /// Where it is null.
    pub(super) fn nulls(&self, batch: &RecordBatch) -> Result<Truth, TableError> {
        let (levels, _) = self.values(batch)?;
        Ok(Truth::of_rows(batch.num_rows(), |row| Some(place(&levels, row).is_none())))
    }
}

fn found<'a>(schema: &'a Schema, at: usize, name: &str) -> Result<&'a DataType, TableError> {
    let Some(field) = schema.fields().get(at) else {
        return Err(TableError::NoColumn { column: name.to_owned(), hint: None });
    };
    match field.name() == name {
        true => Ok(field.data_type()),
        false => Err(TableError::NameDiffers { expected: name.to_owned(), found: field.name().clone() }),
    }
}

/// Values that a column may have.
#[derive(Clone, Debug)]
pub(super) enum Set {
    /// As whole numbers in their order: truth values, numbers, times.
    Whole(Ranges<i256>),
    Bytes(Ranges<Vec<u8>>),
}

pub(super) fn is_in(ranges: &Ranges<i256>, value: i256) -> bool {
    ranges.meets(&value, &value)
}

/// Which numbers are in a set.
fn numbers(data_type: &DataType, array: &ArrayRef, of: (&[Level], usize), ranges: &Ranges<i256>) -> Truth {
    let (width, bytes) = fixed_values(array.as_ref()).expect("the type was checked");
    let is_unsigned = data_type.is_unsigned_integer();
    match width {
        2 if data_type.is_floating() => numbers_as::<2, u64>(&bytes, of, ranges, float_order),
        4 if data_type.is_floating() => numbers_as::<4, u64>(&bytes, of, ranges, float_order),
        8 if data_type.is_floating() => numbers_as::<8, u64>(&bytes, of, ranges, float_order),
        1 if is_unsigned => numbers_as::<1, u64>(&bytes, of, ranges, |[one]| one.into()),
        2 if is_unsigned => numbers_as::<2, u64>(&bytes, of, ranges, |bytes| u16::from_le_bytes(bytes).into()),
        4 if is_unsigned => numbers_as::<4, u64>(&bytes, of, ranges, |bytes| u32::from_le_bytes(bytes).into()),
        8 if is_unsigned => numbers_as::<8, u64>(&bytes, of, ranges, u64::from_le_bytes),
        1 => numbers_as::<1, i64>(&bytes, of, ranges, |bytes| i8::from_le_bytes(bytes).into()),
        2 => numbers_as::<2, i64>(&bytes, of, ranges, |bytes| i16::from_le_bytes(bytes).into()),
        4 => numbers_as::<4, i64>(&bytes, of, ranges, |bytes| i32::from_le_bytes(bytes).into()),
        8 => numbers_as::<8, i64>(&bytes, of, ranges, i64::from_le_bytes),
        16 => numbers_as::<16, i128>(&bytes, of, ranges, i128::from_le_bytes),
        _ => numbers_as::<32, i256>(&bytes, of, ranges, i256::from_le_bytes),
    }
}

fn numbers_as<const WIDTH: usize, N: Whole>(
    bytes: &Buffer,
    (levels, rows): (&[Level], usize),
    ranges: &Ranges<i256>,
    number: impl Fn([u8; WIDTH]) -> N,
) -> Truth {
    let values = bytes.as_slice().as_chunks::<WIDTH>().0;
    let closed: Vec<(N, N)> = ranges.ranges().iter().filter_map(N::closed).collect();
    match closed[..] {
        [(least, greatest)] => Truth::of_values(levels, rows, |row| {
            let value = number(values[row]);
            (least <= value) & (value <= greatest)
        }),
        _ => Truth::of_values(levels, rows, |row| {
            let value = number(values[row]);
            let at = closed.partition_point(|(_, greatest)| *greatest < value);
            closed.get(at).is_some_and(|(least, _)| *least <= value)
        }),
    }
}

/// A type of whole numbers.
trait Whole: Copy + Ord {
    const LEAST: i256;
    const GREATEST: i256;

    /// One that is not beyond these.
    fn of(value: i256) -> Self;

    /// Those of the type that are within bounds, if any are.
    fn closed((from, to): &(Bound<i256>, Bound<i256>)) -> Option<(Self, Self)> {
        let least = match from {
            Bound::Included(value) => *value,
            Bound::Excluded(value) => value.checked_add(i256::ONE)?,
            Bound::Unbounded => Self::LEAST,
        };
        let greatest = match to {
            Bound::Included(value) => *value,
            Bound::Excluded(value) => value.checked_sub(i256::ONE)?,
            Bound::Unbounded => Self::GREATEST,
        };
        let (least, greatest) = (least.max(Self::LEAST), greatest.min(Self::GREATEST));
        (least <= greatest).then(|| (Self::of(least), Self::of(greatest)))
    }
}

impl Whole for u64 {
    const LEAST: i256 = i256::ZERO;
    const GREATEST: i256 = i256::from_i128(u64::MAX as i128);

    fn of(value: i256) -> Self {
        value.as_i128() as u64
    }
}

impl Whole for i64 {
    const LEAST: i256 = i256::from_i128(i64::MIN as i128);
    const GREATEST: i256 = i256::from_i128(i64::MAX as i128);

    fn of(value: i256) -> Self {
        value.as_i128() as i64
    }
}

impl Whole for i128 {
    const LEAST: i256 = i256::from_i128(i128::MIN);
    const GREATEST: i256 = i256::from_i128(i128::MAX);

    fn of(value: i256) -> Self {
        value.as_i128()
    }
}

impl Whole for i256 {
    const LEAST: i256 = i256::MIN;
    const GREATEST: i256 = i256::MAX;

    fn of(value: i256) -> Self {
        value
    }
}

/// What stands for the float of a row in the order of floats of its width.
pub(super) fn float_at(array: &ArrayRef, row: usize) -> Option<i256> {
    let (width, bytes) = fixed_values(array.as_ref()).filter(|_| array.data_type().is_floating())?;
    let bytes = &bytes.as_slice()[row * width..(row + 1) * width];
    let order = match *bytes {
        [a, b] => float_order([a, b]),
        [a, b, c, d] => float_order([a, b, c, d]),
        _ => float_order::<8>(bytes.try_into().ok()?),
    };
    Some(i256::from_i128(order.into()))
}

/// Two columns whose values compare.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    left: BoundColumn,
    right: BoundColumn,
    by: By,
}

#[derive(Clone, Copy, Debug)]
enum By {
    Bools,
    /// Whole numbers, each times what makes them of one unit.
    Whole(i256, i256),
    Floats,
    WholeAndFloat,
    FloatAndWhole,
    Bytes,
}

impl Pair {
    /// # Errors
    /// Why their values do not compare.
    pub(super) fn new(left: BoundColumn, right: BoundColumn) -> Result<Self, &'static str> {
        let factors = |left: i128, right: i128| match left >= right {
            true => By::Whole(i256::from_i128(left / right), i256::ONE),
            false => By::Whole(i256::ONE, i256::from_i128(right / left)),
        };
        let by = match (left.domain(), right.domain()) {
            (Domain::Bool, Domain::Bool) => By::Bools,
            (Domain::Whole(one), Domain::Whole(other)) => {
                let power = |exponent: i32| i256::from(10i64).checked_pow(exponent.max(0) as u32);
                match (power(other - one), power(one - other)) {
                    (Some(left), Some(right)) => By::Whole(left, right),
                    _ => return Err("their scales are too far from each other"),
                }
            }
            (Domain::Float(_), Domain::Float(_)) => By::Floats,
            (Domain::Whole(0), Domain::Float(_)) if left.data_type.is_integer() => By::WholeAndFloat,
            (Domain::Float(_), Domain::Whole(0)) if right.data_type.is_integer() => By::FloatAndWhole,
            (Domain::Whole(_), Domain::Float(_)) | (Domain::Float(_), Domain::Whole(_)) => {
                return Err("a float would round decimals");
            }
            (Domain::Text, Domain::Text) | (Domain::Binary, Domain::Binary) => By::Bytes,
            (Domain::Timestamp(_, one), Domain::Timestamp(_, other)) if one != other => {
                return Err(crate::semantics::ZONES);
            }
            (Domain::Date(_), Domain::Timestamp(_, true)) | (Domain::Timestamp(_, true), Domain::Date(_)) => {
                return Err("a date is no instant: it has no zone");
            }
            (Domain::Date(one) | Domain::Timestamp(one, _), Domain::Date(other) | Domain::Timestamp(other, _))
            | (Domain::Clock(one), Domain::Clock(other))
            | (Domain::Duration(one), Domain::Duration(other)) => factors(one, other),
            _ => return Err("values of these types have no order among each other"),
        };
        Ok(Self { left, right, by })
    }

    pub(super) fn columns(&self) -> [&BoundColumn; 2] {
        [&self.left, &self.right]
    }

    pub(super) fn compared(&self, batch: &RecordBatch, comparison: Comparison) -> Result<Truth, TableError> {
        let (left, right) = (self.left.values(batch)?, self.right.values(batch)?);
        let whole = |array: &ArrayRef| WholeNumbers::of(array.as_ref()).expect("the type was checked");
        let texts = |array: &ArrayRef| ByteRanges::of(array.as_ref()).expect("the type was checked");
        let levels = [left.0.as_slice(), right.0.as_slice()];
        let (left, right) = (&left.1, &right.1);
        let rows = batch.num_rows();
        Ok(match self.by {
            By::Bools => {
                let (left, right) = (left.as_boolean().values(), right.as_boolean().values());
                both(levels, rows, comparison, |one, other| left.value(one).cmp(&right.value(other)))
            }
            By::Whole(by_left, by_right) => {
                let (left, right) = (whole(left), whole(right));
                both(levels, rows, comparison, |one, other| {
                    compare_times((left.wide(one), by_left), (right.wide(other), by_right))
                })
            }
            By::Floats => {
                let (left, right) = (Floats::of(left), Floats::of(right));
                let order = |value: f64| float_order(value.to_le_bytes());
                both(levels, rows, comparison, |one, other| order(left.get(one)).cmp(&order(right.get(other))))
            }
            By::WholeAndFloat => {
                let (left, right) = (whole(left), Floats::of(right));
                both(levels, rows, comparison, |one, other| compare_whole(left.wide(one), right.get(other)))
            }
            By::FloatAndWhole => {
                let (left, right) = (Floats::of(left), whole(right));
                both(levels, rows, comparison, |one, other| compare_whole(right.wide(other), left.get(one)).reverse())
            }
            By::Bytes => {
                let (left, right) = (texts(left), texts(right));
                both(levels, rows, comparison, |one, other| left.get(one).cmp(right.get(other)))
            }
        })
    }
}

/// Compares numbers times factors, one of which is 1 and none below.
fn compare_times((left, by_left): (i256, i256), (right, by_right): (i256, i256)) -> Ordering {
    match (left.checked_mul(by_left), right.checked_mul(by_right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        // Larger than any number that is not multiplied.
        (None, _) => {
            if left.is_negative() {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (_, None) => {
            if right.is_negative() {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
    }
}

fn both(
    [left, right]: [&[Level]; 2],
    rows: usize,
    comparison: Comparison,
    order: impl Fn(usize, usize) -> Ordering,
) -> Truth {
    Truth::of_rows(rows, |row| Some(comparison.holds(order(place(left, row)?, place(right, row)?))))
}

/// Floats of any width.
struct Floats {
    width: usize,
    bytes: Buffer,
}

impl Floats {
    fn of(array: &ArrayRef) -> Self {
        let (width, bytes) = fixed_values(array.as_ref()).expect("the type was checked");
        Self { width, bytes }
    }

    fn get(&self, row: usize) -> f64 {
        use arrow_array::types::{ArrowPrimitiveType, Float16Type};
        let bytes = &self.bytes.as_slice()[row * self.width..(row + 1) * self.width];
        match *bytes {
            [a, b] => f64::from(<Float16Type as ArrowPrimitiveType>::Native::from_le_bytes([a, b])),
            [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
            _ => f64::from_le_bytes(bytes.try_into().expect("8 bytes")),
        }
    }
}
