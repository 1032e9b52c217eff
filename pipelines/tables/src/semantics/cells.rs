//! The values of a key column, one row at a time, as bytes that compare as they do: `keys` says which bytes.

use std::ops::Range;

use arrow_array::{Array, ArrayRef, cast::AsArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::DataType;

use crate::plain::{Indirection, Path};
use crate::raw::{ByteRanges, ElementRanges, fixed_values};
use crate::{ELEMENTS_MAX, TableError};

/// What a value that is not null begins with.
const VALUE: u8 = 1;
/// What stands before each element of a list.
const MORE: u8 = 1;
/// What stands behind the last one.
const END: u8 = 0;

/// How a column goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// What a null is.
    null: u8,
    /// With which bytes of values are combined: all bits where the column falls.
    turned: u8,
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
enum Level {
    /// Which rows are null here.
    Nulls(NullBuffer),
    /// A dictionary, or run ends.
    Places(Indirection),
}

#[derive(Debug)]
enum CellValues {
    Null,
    Bits(BooleanBuffer),
    /// So many bytes each, in the order of the machine.
    Numbers(Kind, usize, Buffer),
    /// So many bytes each, as they are.
    Fixed(usize, Buffer),
    Bytes(ByteRanges),
    Lists(ElementRanges, Box<Cells>),
    FixedLists(usize, Box<Cells>),
    Struct(Vec<Cells>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unsigned,
    Signed,
    Float,
}

impl Cells {
    /// The fields on this path down into structs, which end at this plain type, of an array of that type as `check_type` has it.
    pub(super) fn of(array: &ArrayRef, path: &[usize], data_type: &DataType) -> Self {
        let (mut array, mut levels) = (array.clone(), Vec::new());
        for at in path.iter().copied().map(Some).chain([None]) {
            while let Some(indirection) = Indirection::of(array.as_ref()) {
                array = indirection.values.clone();
                levels.push(Level::Places(indirection));
            }
            levels.extend(array.nulls().filter(|nulls| nulls.null_count() > 0).cloned().map(Level::Nulls));
            if let Some(at) = at {
                array = array.as_struct().column(at).clone();
            }
        }
        Self { levels, values: CellValues::of(&array, data_type) }
    }

    /// Where the value of a row is; `None`: it is null.
    #[inline]
    fn place(&self, mut row: usize) -> Option<usize> {
        for level in &self.levels {
            match level {
                Level::Nulls(nulls) if nulls.is_null(row) => return None,
                Level::Nulls(_) => (),
                Level::Places(of) if of.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) => return None,
                Level::Places(of) => row = of.place(row),
            }
        }
        Some(row)
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
            CellValues::Bytes(ranges) => {
                let bytes = ranges.get(row);
                (bytes.len() + bytes.iter().filter(|byte| **byte == 0).count()) as u64 + 2
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

    /// Writes the value of a row.
    pub(super) fn write(&self, row: usize, order: Order, out: &mut Vec<u8>) {
        let Some(row) = self.place(row).filter(|_| !matches!(self.values, CellValues::Null)) else {
            return out.push(order.null);
        };
        out.push(VALUE);
        match &self.values {
            CellValues::Null => unreachable!("all of them are null"),
            CellValues::Bits(bits) => out.push(u8::from(bits.value(row)) ^ order.turned),
            CellValues::Numbers(kind, width, bytes) => number(*kind, *width, bytes, row, order, out),
            CellValues::Fixed(width, bytes) => turned(&bytes[row * width..(row + 1) * width], order, out),
            CellValues::Bytes(ranges) => text(ranges.get(row), order, out),
            CellValues::Lists(ranges, elements) => {
                let (from, len) = ranges.get(row);
                for element in from..from + len {
                    out.push(MORE ^ order.turned);
                    elements.write(element, order, out);
                }
                out.push(END ^ order.turned);
            }
            CellValues::FixedLists(size, elements) => {
                (row * size..(row + 1) * size).for_each(|element| elements.write(element, order, out));
            }
            CellValues::Struct(fields) => fields.iter().for_each(|field| field.write(row, order, out)),
        }
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
                Self::Bytes(ByteRanges::of(array.as_ref()).expect("the type was checked"))
            }
            DataType::List(of) | DataType::LargeList(of) => {
                let (ranges, child) = ranges();
                Self::Lists(ranges, Box::new(Cells::of(&child, &[], of.data_type())))
            }
            DataType::FixedSizeList(of, size) => {
                Self::FixedLists(*size as usize, Box::new(Cells::of(&ranges().1, &[], of.data_type())))
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                Self::Struct(columns.map(|(field, column)| Cells::of(column, &[], field.data_type())).collect())
            }
            number => {
                let (width, bytes) = fixed_values(array.as_ref()).expect("the type was checked");
                let kind = match number {
                    _ if number.is_floating() => Kind::Float,
                    _ if number.is_unsigned_integer() => Kind::Unsigned,
                    _ => Kind::Signed,
                };
                Self::Numbers(kind, width, bytes)
            }
        }
    }
}

#[inline]
fn turned(bytes: &[u8], order: Order, out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(bytes);
    if order.turned != 0 {
        out[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

#[inline]
fn text(bytes: &[u8], order: Order, out: &mut Vec<u8>) {
    let from = out.len();
    match bytes.contains(&0) {
        false => out.extend_from_slice(bytes),
        true => bytes.iter().for_each(|byte| match byte {
            0 => out.extend_from_slice(&[0, 0xff]),
            byte => out.push(*byte),
        }),
    }
    out.extend_from_slice(&[0, 0]);
    if order.turned != 0 {
        out[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

#[inline]
fn number(kind: Kind, width: usize, bytes: &Buffer, row: usize, order: Order, out: &mut Vec<u8>) {
    match width {
        1 => wide::<1>(kind, bytes, row, order, out),
        2 => wide::<2>(kind, bytes, row, order, out),
        4 => wide::<4>(kind, bytes, row, order, out),
        8 => wide::<8>(kind, bytes, row, order, out),
        16 => wide::<16>(kind, bytes, row, order, out),
        32 => wide::<32>(kind, bytes, row, order, out),
        other => unreachable!("no value of Arrow is {other} bytes wide"),
    }
}

#[inline]
fn wide<const WIDTH: usize>(kind: Kind, bytes: &Buffer, row: usize, order: Order, out: &mut Vec<u8>) {
    let value = bytes.as_slice().as_chunks::<WIDTH>().0[row];
    let value = match kind {
        Kind::Float => float(value),
        _ => {
            let mut value = value;
            value.reverse();
            value[0] ^= if kind == Kind::Signed { 0x80 } else { 0 };
            value
        }
    };
    turned(&value, order, out);
}

/// A float of 2, 4 or 8 bytes as bits that compare as floats do, big-endian.
#[inline]
fn float<const WIDTH: usize>(value: [u8; WIDTH]) -> [u8; WIDTH] {
    let mut wide = [0; 8];
    wide[..WIDTH].copy_from_slice(&value);
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
    *bits.to_be_bytes().last_chunk().expect("8 bytes at most")
}
