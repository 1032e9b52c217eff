//! Values of keys: what [`KeyEncoder`](super::KeyEncoder) has made bytes of, `keys` says which.

use std::sync::Arc;

use arrow_array::*;
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, Schema};

use super::cells::{END, Kind, MORE, Order, VALUE, of_comparable};
use super::keys::{KeyColumn, key_columns};
use crate::{ELEMENTS_MAX, TableError};

/// Makes columns of keys again, of plain types and as keys have values: of NaNs the one, 0.0 for -0.0.
#[derive(Clone, Debug)]
pub struct KeyDecoder {
    /// Path of names, plain type, order.
    columns: Vec<(String, DataType, Order)>,
}

impl KeyDecoder {
    /// Of keys that [`KeyEncoder::new`](super::KeyEncoder::new) makes of the same.
    ///
    /// # Errors
    /// As of that.
    pub fn new(schema: &Schema, key: &[KeyColumn]) -> Result<Self, TableError> {
        let columns = key_columns(schema, key)?;
        let named = key.iter().zip(columns);
        Ok(Self { columns: named.map(|(key, column)| (key.column.clone(), column.data_type, column.order)).collect() })
    }

    /// Plain types of the columns.
    pub fn data_types(&self) -> impl Iterator<Item = &DataType> {
        self.columns.iter().map(|(_, data_type, _)| data_type)
    }

    /// The values of keys: an array for each column of the key, each with a row for each key.
    ///
    /// # Errors
    /// [`TableError::NotAKey`]: bytes that the encoder does not make. [`TableError::KeysTooLarge`], [`TableError::TooManyElements`]: no array holds so much.
    pub fn decode<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>, TableError> {
        let mut rests: Vec<&[u8]> = keys.into_iter().collect();
        let rows = rests.len();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (column, data_type, order) in &self.columns {
            let failed = |what: Failed| match what {
                Failed::NotAKey(what) => TableError::NotAKey { column: column.clone(), what },
                Failed::TooLarge => TableError::KeysTooLarge { rows },
                Failed::TooMany(elements) => {
                    TableError::TooManyElements { column: column.clone(), elements, elements_max: ELEMENTS_MAX }
                }
            };
            let mut values = Values::new(data_type, rows);
            let done = values.push_all(&mut rests, *order);
            arrays.push(done.and_then(|()| values.finish(data_type)).map_err(failed)?);
        }
        match rests.iter().all(|rest| rest.is_empty()) {
            true => Ok(arrays),
            false => {
                let column = self.columns.last().map(|(column, ..)| column.clone()).unwrap_or_default();
                Err(TableError::NotAKey { column, what: "there are bytes behind it" })
            }
        }
    }
}

enum Failed {
    NotAKey(&'static str),
    TooLarge,
    TooMany(u64),
}

impl From<ArrowError> for Failed {
    fn from(_: ArrowError) -> Self {
        Self::NotAKey("a text that is none, or a null where there is none")
    }
}

const CUT: Failed = Failed::NotAKey("it ends too early");

/// The values of an array, as far as they are known.
struct Values {
    valid: BooleanBufferBuilder,
    of: Of,
}

enum Of {
    Null,
    Bits(BooleanBufferBuilder),
    /// So many bytes each, in the order of the machine.
    Numbers(Kind, usize, Vec<u8>),
    /// So many bytes each, as they are.
    Fixed(usize, Vec<u8>),
    /// Where each ends.
    Bytes(Vec<i64>, Vec<u8>),
    /// Where each ends.
    Lists(Vec<i64>, Box<Values>),
    FixedLists(usize, Box<Values>),
    Struct(Vec<Values>),
}

impl Values {
    fn new(data_type: &DataType, rows: usize) -> Self {
        let inside = |of: &FieldRef| Box::new(Self::new(of.data_type(), 0));
        let of = match data_type {
            DataType::Null => Of::Null,
            DataType::Boolean => Of::Bits(BooleanBufferBuilder::new(rows)),
            DataType::FixedSizeBinary(width) => Of::Fixed(*width as usize, Vec::new()),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                Of::Bytes(vec![0], Vec::new())
            }
            DataType::List(of) | DataType::LargeList(of) => Of::Lists(vec![0], inside(of)),
            DataType::FixedSizeList(of, size) => Of::FixedLists(*size as usize, inside(of)),
            DataType::Struct(fields) => Of::Struct(fields.iter().map(|of| *inside(of)).collect()),
            number => {
                let width = number.primitive_width().expect("what has an order is a number, or was met above");
                Of::Numbers(Kind::of(number), width, Vec::with_capacity(width * rows))
            }
        };
        Self { valid: BooleanBufferBuilder::new(rows), of }
    }

    /// Adds a value of each key, and takes it off that.
    fn push_all(&mut self, rests: &mut [&[u8]], order: Order) -> Result<(), Failed> {
        let valid = &mut self.valid;
        match &mut self.of {
            Of::Numbers(kind, 4, out) => numbers::<4>(*kind, rests, order, valid, out),
            Of::Numbers(kind, 8, out) => numbers::<8>(*kind, rests, order, valid, out),
            Of::Numbers(kind, 16, out) => numbers::<16>(*kind, rests, order, valid, out),
            Of::Bytes(ends, out) => rests.iter_mut().try_for_each(|rest| {
                let is_value = is_value(rest, order)?;
                if is_value {
                    text(rest, order, out)?;
                }
                valid.append(is_value);
                ends.push(out.len() as i64);
                Ok(())
            }),
            _ => rests.iter_mut().try_for_each(|rest| self.push(rest, order)),
        }
    }

    /// Adds the value that a key begins with, and takes it off.
    fn push(&mut self, rest: &mut &[u8], order: Order) -> Result<(), Failed> {
        if !is_value(rest, order)? {
            return self.push_nulls(1);
        }
        match &mut self.of {
            Of::Null => return Err(Failed::NotAKey("a value of a column of nulls")),
            Of::Bits(bits) => match taken::<1>(rest, order)? {
                [bit @ (0 | 1)] => bits.append(bit == 1),
                _ => return Err(Failed::NotAKey("a boolean that is neither")),
            },
            Of::Numbers(kind, width, out) => match width {
                1 => number::<1>(*kind, rest, order, out)?,
                2 => number::<2>(*kind, rest, order, out)?,
                4 => number::<4>(*kind, rest, order, out)?,
                8 => number::<8>(*kind, rest, order, out)?,
                16 => number::<16>(*kind, rest, order, out)?,
                _ => number::<32>(*kind, rest, order, out)?,
            },
            Of::Fixed(width, out) => {
                let (value, behind) = rest.split_at_checked(*width).ok_or(CUT)?;
                out.extend(value.iter().map(|byte| byte ^ order.turned));
                *rest = behind;
            }
            Of::Bytes(ends, out) => {
                text(rest, order, out)?;
                ends.push(out.len() as i64);
            }
            Of::Lists(ends, elements) => {
                loop {
                    match taken::<1>(rest, order)? {
                        [MORE] => elements.push(rest, order)?,
                        [END] => break,
                        _ => return Err(Failed::NotAKey("a list that neither goes on nor ends")),
                    }
                }
                ends.push(elements.valid.len() as i64);
            }
            Of::FixedLists(size, elements) => {
                few(elements.valid.len() as u64 + *size as u64)?;
                (0..*size).try_for_each(|_| elements.push(rest, order))?;
            }
            Of::Struct(fields) => fields.iter_mut().try_for_each(|field| field.push(rest, order))?,
        }
        self.valid.append(true);
        Ok(())
    }

    /// Adds so many nulls, and what is under them.
    fn push_nulls(&mut self, count: usize) -> Result<(), Failed> {
        match &mut self.of {
            Of::Null => (),
            Of::Bits(bits) => bits.append_n(count, false),
            Of::Numbers(_, width, out) | Of::Fixed(width, out) => out.resize(out.len() + *width * count, 0),
            Of::Bytes(ends, _) | Of::Lists(ends, _) => {
                let end = ends[ends.len() - 1];
                ends.extend(std::iter::repeat_n(end, count));
            }
            Of::FixedLists(size, elements) => {
                let more = count.saturating_mul(*size);
                few(elements.valid.len() as u64 + more as u64)?;
                elements.push_nulls(more)?;
            }
            Of::Struct(fields) => fields.iter_mut().try_for_each(|field| field.push_nulls(count))?,
        }
        self.valid.append_n(count, false);
        Ok(())
    }

    fn finish(self, data_type: &DataType) -> Result<ArrayRef, Failed> {
        let rows = self.valid.len();
        let nulls = Some(NullBuffer::from(self.valid)).filter(|nulls| nulls.null_count() > 0);
        let data = |nulls: Option<NullBuffer>| ArrayData::builder(data_type.clone()).len(rows).nulls(nulls);
        Ok(match (self.of, data_type) {
            (Of::Null, _) => Arc::new(NullArray::new(rows)),
            (Of::Bits(mut bits), _) => Arc::new(BooleanArray::new(bits.finish(), nulls)),
            (Of::Numbers(_, _, bytes), _) => {
                make_array(data(nulls).add_buffer(bytes.into()).align_buffers(true).build()?)
            }
            (Of::Fixed(width, bytes), _) => {
                Arc::new(FixedSizeBinaryArray::try_new_with_len(width as i32, bytes.into(), nulls, rows)?)
            }
            (Of::Bytes(ends, bytes), DataType::LargeUtf8 | DataType::LargeBinary) => {
                make_array(data(nulls).add_buffer(Buffer::from_vec(ends)).add_buffer(bytes.into()).build()?)
            }
            (Of::Bytes(ends, bytes), _) => {
                make_array(data(nulls).add_buffer(Buffer::from_vec(narrow(ends)?)).add_buffer(bytes.into()).build()?)
            }
            (Of::Lists(ends, elements), DataType::LargeList(of)) => {
                let elements = elements.finish(of.data_type())?;
                Arc::new(LargeListArray::try_new(of.clone(), OffsetBuffer::new(ends.into()), elements, nulls)?)
            }
            (Of::Lists(ends, elements), DataType::List(of)) => {
                let elements = elements.finish(of.data_type())?;
                Arc::new(ListArray::try_new(of.clone(), OffsetBuffer::new(narrow(ends)?.into()), elements, nulls)?)
            }
            (Of::FixedLists(size, elements), DataType::FixedSizeList(of, _)) => {
                let elements = elements.finish(of.data_type())?;
                let size = size as i32;
                Arc::new(FixedSizeListArray::try_new_with_length(of.clone(), size, elements, nulls, rows)?)
            }
            (Of::Struct(values), DataType::Struct(fields)) => structs(values, fields, nulls, rows)?,
            _ => unreachable!("values were made for {data_type}"),
        })
    }
}

fn structs(values: Vec<Values>, fields: &Fields, nulls: Option<NullBuffer>, rows: usize) -> Result<ArrayRef, Failed> {
    let columns = values.into_iter().zip(fields).map(|(values, of)| values.finish(of.data_type()));
    let columns = columns.collect::<Result<Vec<_>, Failed>>()?;
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, rows)?))
}

fn narrow(ends: Vec<i64>) -> Result<Vec<i32>, Failed> {
    match ends.last().is_some_and(|last| *last > i64::from(i32::MAX)) {
        true => Err(Failed::TooLarge),
        false => Ok(ends.into_iter().map(|end| end as i32).collect()),
    }
}

fn few(elements: u64) -> Result<(), Failed> {
    if elements <= ELEMENTS_MAX { Ok(()) } else { Err(Failed::TooMany(elements)) }
}

/// Takes off the byte that says whether there is a value.
#[inline(always)]
fn is_value(rest: &mut &[u8], order: Order) -> Result<bool, Failed> {
    let (first, behind) = rest.split_first().ok_or(CUT)?;
    *rest = behind;
    match *first {
        VALUE => Ok(true),
        null if null == order.null => Ok(false),
        _ => Err(Failed::NotAKey("neither a null nor a value")),
    }
}

/// Takes off so many bytes, as they were before they were turned.
#[inline(always)]
fn taken<const COUNT: usize>(rest: &mut &[u8], order: Order) -> Result<[u8; COUNT], Failed> {
    let (first, behind) = rest.split_first_chunk::<COUNT>().ok_or(CUT)?;
    *rest = behind;
    Ok(first.map(|byte| byte ^ order.turned))
}

#[inline(always)]
fn number<const WIDTH: usize>(kind: Kind, rest: &mut &[u8], order: Order, out: &mut Vec<u8>) -> Result<(), Failed> {
    let value = of_comparable::<WIDTH>(kind, taken(rest, order)?);
    out.extend_from_slice(&value.ok_or(Failed::NotAKey("a float that no key has"))?);
    Ok(())
}

fn numbers<const WIDTH: usize>(
    kind: Kind,
    rests: &mut [&[u8]],
    order: Order,
    valid: &mut BooleanBufferBuilder,
    out: &mut Vec<u8>,
) -> Result<(), Failed> {
    for rest in rests {
        let is_value = is_value(rest, order)?;
        match is_value {
            true => number::<WIDTH>(kind, rest, order, out)?,
            false => out.extend_from_slice(&[0; WIDTH]),
        }
        valid.append(is_value);
    }
    Ok(())
}

/// Takes off bytes up to their end.
fn text(rest: &mut &[u8], order: Order, out: &mut Vec<u8>) -> Result<(), Failed> {
    loop {
        let at = memchr::memchr(order.turned, rest).ok_or(CUT)?;
        out.extend(rest[..at].iter().map(|byte| byte ^ order.turned));
        *rest = &rest[at + 1..];
        match taken::<1>(rest, order)? {
            [0] => return Ok(()),
            [0xff] => out.push(0),
            _ => return Err(Failed::NotAKey("a zero that neither ends a text nor is one of it")),
        }
    }
}
