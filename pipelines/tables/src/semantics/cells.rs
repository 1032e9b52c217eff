//! The values of a key column, one row at a time, as bytes that compare as they do: `keys` says which bytes.

use std::ops::Range;

use arrow_array::{Array, ArrayRef, cast::AsArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::DataType;

use super::levels::{Level, levels, place};
use crate::plain::Path;
use crate::raw::{ByteRanges, ElementRanges, fixed_values};
use crate::{ELEMENTS_MAX, TableError};

/// What a value that is not null begins with.
pub(super) const VALUE: u8 = 1;
/// What stands before each element of a list.
pub(super) const MORE: u8 = 1;
/// What stands behind the last one.
pub(super) const END: u8 = 0;

/// What stands behind a text.
const TEXT_END: [u8; 2] = [0, 0];

/// How a column goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// What a null is.
    pub(super) null: u8,
    /// With which bytes of values are combined: all bits where the column falls.
    pub(super) turned: u8,
}

impl Order {
    pub(super) fn new(descending: bool, nulls_first: bool) -> Self {
        Self { null: if nulls_first { 0 } else { 2 }, turned: if descending { 0xff } else { 0 } }
    }
}

/// The values of a column.
#[derive(Debug)]
pub(super) struct Cells {
    /// What is on the way from a row to its value, from the outside.
    levels: Vec<Level>,
    values: CellValues,
}

#[derive(Debug)]
enum CellValues {
    Null,
    Bits(BooleanBuffer),
    /// So many bytes each, in the order of the machine.
    Numbers(Kind, usize, Buffer),
    /// So many bytes each, as they are.
    Fixed(usize, Buffer),
    /// Text or binary, and whether a zero may be among the bytes.
    Bytes(ByteRanges, bool),
    Lists(ElementRanges, Box<Cells>),
    FixedLists(usize, Box<Cells>),
    Struct(Vec<Cells>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unsigned,
    Signed,
    Float,
}

impl Kind {
    /// Of a type that has a width.
    pub(super) fn of(number: &DataType) -> Self {
        match number {
            _ if number.is_floating() => Self::Float,
            _ if number.is_unsigned_integer() => Self::Unsigned,
            _ => Self::Signed,
        }
    }
}

impl Cells {
    /// What is inside lists and structs.
    fn inside(array: &ArrayRef, data_type: &DataType) -> Self {
        let (levels, array) = levels(array, &[]);
        Self { levels, values: CellValues::of(&array, data_type) }
    }

    /// The fields on this path down into structs, which end at this plain type, of an array of that type as `check_type` has it.
    pub(super) fn of(array: &ArrayRef, path: &[usize], data_type: &DataType) -> Self {
        let (levels, array) = levels(array, path);
        let mut values = CellValues::of(&array, data_type);
        // Bytes are looked at once; behind a dictionary or in a list there may be many that no row has.
        if let (CellValues::Bytes(ranges, may_have_zeros), false) = (&mut values, levels.iter().any(Level::is_places)) {
            *may_have_zeros = ranges.have_zeros();
        }
        Self { levels, values }
    }

    /// Where the value of a row is; `None`: it is null.
    #[inline]
    fn place(&self, row: usize) -> Option<usize> {
        place(&self.levels, row)
    }

    /// How many bytes some rows take.
    pub(super) fn bytes(&self, rows: Range<usize>, path: &Path<'_>) -> Result<u64, TableError> {
        let count = rows.len() as u64;
        match (&self.values, self.levels.is_empty()) {
            (CellValues::Null, _) => Ok(count),
            (CellValues::Bits(_), true) => Ok(2 * count),
            (CellValues::Numbers(_, width, _) | CellValues::Fixed(width, _), true) => Ok((1 + *width as u64) * count),
            _ => {
                let bytes = |row| self.place(row).map_or(Ok(0), |row| self.bytes_of(row, path));
                Ok(count + rows.map(bytes).sum::<Result<u64, TableError>>()?)
            }
        }
    }

    /// How many bytes the value at a place takes but for the first one.
    fn bytes_of(&self, row: usize, path: &Path<'_>) -> Result<u64, TableError> {
        Ok(match &self.values {
            CellValues::Null => 0,
            CellValues::Bits(_) => 1,
            CellValues::Numbers(_, width, _) | CellValues::Fixed(width, _) => *width as u64,
            CellValues::Bytes(ranges, false) => (ranges.bytes_of(row) + TEXT_END.len()) as u64,
            CellValues::Bytes(ranges, true) => {
                let bytes = ranges.get(row);
                (bytes.len() + bytes.iter().filter(|byte| **byte == 0).count() + TEXT_END.len()) as u64
            }
            CellValues::Lists(ranges, elements) => {
                let (from, len) = ranges.get(row);
                few(len, path)?;
                1 + len as u64 + elements.bytes(from..from + len, path)?
            }
            CellValues::FixedLists(size, elements) => {
                few(*size, path)?;
                elements.bytes(row * size..(row + 1) * size, path)?
            }
            CellValues::Struct(fields) => {
                fields.iter().map(|field| field.bytes(row..row + 1, path)).sum::<Result<u64, TableError>>()?
            }
        })
    }

    /// Adds the bytes that each row takes to what columns before it take; what is more than 4 GiB stays at that.
    pub(super) fn add_lengths(&self, lengths: &mut [u32], path: &Path<'_>) -> Result<(), TableError> {
        let fixed = match (&self.values, self.levels.is_empty()) {
            (CellValues::Bytes(ranges, false), true) => {
                ranges.add_lengths(1 + TEXT_END.len() as u32, lengths);
                return Ok(());
            }
            (CellValues::Null, _) => Some(1),
            (CellValues::Bits(_), true) => Some(2),
            (CellValues::Numbers(_, width, _) | CellValues::Fixed(width, _), true) => Some(1 + *width as u32),
            _ => None,
        };
        for (row, length) in lengths.iter_mut().enumerate() {
            let bytes = match (fixed, self.place(row)) {
                (Some(bytes), _) => bytes,
                (None, None) => 1,
                (None, Some(place)) => u32::try_from(1 + self.bytes_of(place, path)?).unwrap_or(u32::MAX),
            };
            *length = length.saturating_add(bytes);
        }
        Ok(())
    }

    /// Writes the values of all rows, each where its row has come to, which then is behind it.
    pub(super) fn write_all(&self, order: Order, ends: &mut [u32], out: &mut [u8]) {
        let nulls = match &self.levels[..] {
            [] => None,
            [Level::Nulls(nulls)] => Some(nulls),
            _ => return self.write_each(order, ends, out),
        };
        match &self.values {
            CellValues::Numbers(kind, 4, bytes) => numbers::<4>((*kind, bytes, nulls), order, ends, out),
            CellValues::Numbers(kind, 8, bytes) => numbers::<8>((*kind, bytes, nulls), order, ends, out),
            CellValues::Numbers(kind, 16, bytes) => numbers::<16>((*kind, bytes, nulls), order, ends, out),
            CellValues::Bytes(ByteRanges::Small(offsets, bytes), false) => {
                let value = |row: usize| &bytes.as_slice()[offsets[row] as usize..offsets[row + 1] as usize];
                texts((value, nulls), order, ends, out);
            }
            CellValues::Bytes(ranges, false) => texts((|row| ranges.get(row), nulls), order, ends, out),
            _ => self.write_each(order, ends, out),
        }
    }

    fn write_each(&self, order: Order, ends: &mut [u32], out: &mut [u8]) {
        for (row, end) in ends.iter_mut().enumerate() {
            *end = self.write(row, order, out, *end as usize) as u32;
        }
    }

    /// Writes the value of a row at a place; what is behind it.
    fn write(&self, row: usize, order: Order, out: &mut [u8], at: usize) -> usize {
        let Some(row) = self.place(row).filter(|_| !matches!(self.values, CellValues::Null)) else {
            out[at] = order.null;
            return at + 1;
        };
        out[at] = VALUE;
        let mut at = at + 1;
        match &self.values {
            CellValues::Null => unreachable!("all of them are null"),
            CellValues::Bits(bits) => at = turned(&[u8::from(bits.value(row))], order, out, at),
            CellValues::Numbers(kind, width, bytes) => at = number(*kind, *width, bytes, row, order, out, at),
            CellValues::Fixed(width, bytes) => at = turned(&bytes[row * width..(row + 1) * width], order, out, at),
            CellValues::Bytes(ranges, _) => at = text(ranges.get(row), order, out, at),
            CellValues::Lists(ranges, elements) => {
                let (from, len) = ranges.get(row);
                for element in from..from + len {
                    out[at] = MORE ^ order.turned;
                    at = elements.write(element, order, out, at + 1);
                }
                out[at] = END ^ order.turned;
                at += 1;
            }
            CellValues::FixedLists(size, elements) => {
                for element in row * size..(row + 1) * size {
                    at = elements.write(element, order, out, at);
                }
            }
            CellValues::Struct(fields) => {
                for field in fields {
                    at = field.write(row, order, out, at);
                }
            }
        }
        at
    }
}

fn few(elements: usize, path: &Path<'_>) -> Result<(), TableError> {
    match elements as u64 <= ELEMENTS_MAX {
        true => Ok(()),
        false => Err(TableError::TooManyElements {
            column: path.to_string(),
            elements: elements as u64,
            elements_max: ELEMENTS_MAX,
        }),
    }
}

impl CellValues {
    fn of(array: &ArrayRef, data_type: &DataType) -> Self {
        let ranges = || ElementRanges::of(array.as_ref()).expect("the type was checked");
        match data_type {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Bits(array.as_boolean().values().clone()),
            DataType::FixedSizeBinary(width) => {
                let width = *width as usize;
                let bytes = array.as_fixed_size_binary().values().slice_with_length(0, width * array.len());
                Self::Fixed(width, bytes)
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                Self::Bytes(ByteRanges::of(array.as_ref()).expect("the type was checked"), true)
            }
            DataType::List(of) | DataType::LargeList(of) => {
                let (ranges, child) = ranges();
                Self::Lists(ranges, Box::new(Cells::inside(&child, of.data_type())))
            }
            DataType::FixedSizeList(of, size) => {
                Self::FixedLists(*size as usize, Box::new(Cells::inside(&ranges().1, of.data_type())))
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                Self::Struct(columns.map(|(field, column)| Cells::inside(column, field.data_type())).collect())
            }
            number => {
                let (width, bytes) = fixed_values(array.as_ref()).expect("the type was checked");
                Self::Numbers(Kind::of(number), width, bytes)
            }
        }
    }
}

#[inline]
fn is_null(nulls: Option<&NullBuffer>, row: usize) -> bool {
    nulls.is_some_and(|nulls| nulls.is_null(row))
}

/// Numbers that lie one behind the other.
fn numbers<const WIDTH: usize>(
    (kind, bytes, nulls): (Kind, &Buffer, Option<&NullBuffer>),
    order: Order,
    ends: &mut [u32],
    out: &mut [u8],
) {
    let values = bytes.as_slice().as_chunks::<WIDTH>().0;
    for (row, (end, value)) in ends.iter_mut().zip(values).enumerate() {
        let at = *end as usize;
        *end = match is_null(nulls, row) {
            true => {
                out[at] = order.null;
                at + 1
            }
            false => {
                out[at] = VALUE;
                turned(&comparable(kind, *value), order, out, at + 1)
            }
        } as u32;
    }
}

/// Text without zeros.
fn texts<'a>(
    (value, nulls): (impl Fn(usize) -> &'a [u8], Option<&NullBuffer>),
    order: Order,
    ends: &mut [u32],
    out: &mut [u8],
) {
    for (row, end) in ends.iter_mut().enumerate() {
        let at = *end as usize;
        *end = match is_null(nulls, row) {
            true => {
                out[at] = order.null;
                at + 1
            }
            false => {
                out[at] = VALUE;
                let at = turned(value(row), order, out, at + 1);
                turned(&TEXT_END, order, out, at)
            }
        } as u32;
    }
}

#[inline]
fn turned(bytes: &[u8], order: Order, out: &mut [u8], at: usize) -> usize {
    let to = &mut out[at..at + bytes.len()];
    to.copy_from_slice(bytes);
    if order.turned != 0 {
        to.iter_mut().for_each(|byte| *byte = !*byte);
    }
    at + bytes.len()
}

fn text(bytes: &[u8], order: Order, out: &mut [u8], mut at: usize) -> usize {
    match bytes.contains(&0) {
        false => at = turned(bytes, order, out, at),
        true => {
            for byte in bytes {
                at = match byte {
                    0 => turned(&[0, 0xff], order, out, at),
                    byte => turned(&[*byte], order, out, at),
                };
            }
        }
    }
    turned(&TEXT_END, order, out, at)
}

fn number(kind: Kind, width: usize, bytes: &Buffer, row: usize, order: Order, out: &mut [u8], at: usize) -> usize {
    fn of<const WIDTH: usize>(
        kind: Kind,
        bytes: &Buffer,
        row: usize,
        order: Order,
        out: &mut [u8],
        at: usize,
    ) -> usize {
        turned(&comparable(kind, bytes.as_slice().as_chunks::<WIDTH>().0[row]), order, out, at)
    }
    match width {
        1 => of::<1>(kind, bytes, row, order, out, at),
        2 => of::<2>(kind, bytes, row, order, out, at),
        4 => of::<4>(kind, bytes, row, order, out, at),
        8 => of::<8>(kind, bytes, row, order, out, at),
        16 => of::<16>(kind, bytes, row, order, out, at),
        32 => of::<32>(kind, bytes, row, order, out, at),
        other => unreachable!("no value of Arrow is {other} bytes wide"),
    }
}

/// A number in the order of the machine as bytes that compare as numbers do.
#[inline]
fn comparable<const WIDTH: usize>(kind: Kind, mut value: [u8; WIDTH]) -> [u8; WIDTH] {
    if kind == Kind::Float {
        return float(value);
    }
    value.reverse();
    value[0] ^= if kind == Kind::Signed { 0x80 } else { 0 };
    value
}

/// The number in the order of the machine whose [`comparable`] bytes these are; `None`: of floats, no number has them.
#[inline]
pub(super) fn of_comparable<const WIDTH: usize>(kind: Kind, bytes: [u8; WIDTH]) -> Option<[u8; WIDTH]> {
    let mut value = bytes;
    if kind == Kind::Float && value[0] & 0x80 == 0 {
        value = value.map(|byte| !byte);
    } else if kind != Kind::Unsigned {
        value[0] ^= 0x80;
    }
    value.reverse();
    (kind != Kind::Float || float(value) == bytes).then_some(value)
}

/// A float as a number without a sign that compares as floats do: NaN above all others, -0.0 as 0.0.
#[inline]
pub(crate) fn float_order<const WIDTH: usize>(value: [u8; WIDTH]) -> u64 {
    float(value).into_iter().fold(0, |order, byte| order << 8 | u64::from(byte))
}

/// A float of 2, 4 or 8 bytes as bits that compare as floats do, big-endian.
#[inline]
fn float<const WIDTH: usize>(value: [u8; WIDTH]) -> [u8; WIDTH] {
    let mut wide = [0; 8];
    let width = WIDTH.min(8);
    wide[..width].copy_from_slice(&value[..width]);
    let bits = u64::from_le_bytes(wide);
    let (sign, infinity, quiet): (u64, u64, u64) = match WIDTH {
        2 => (1 << 15, 0x7c00, 1 << 9),
        4 => (1 << 31, 0x7f80_0000, 1 << 22),
        _ => (1 << 63, 0x7ff0 << 48, 1 << 51),
    };
    let magnitude = bits & (sign - 1);
    let bits = match bits & sign != 0 {
        _ if magnitude > infinity => sign | infinity | quiet,
        _ if magnitude == 0 => sign,
        true => !bits,
        false => bits | sign,
    };
    let mut value = [0; WIDTH];
    value[..width].copy_from_slice(&bits.to_be_bytes()[8 - width..]);
    value
}
