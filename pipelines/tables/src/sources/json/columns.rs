//! Columns built from rows of JSON, in one pass and without a tree of values between them: each column takes its values from the parser.
//!
//! What a row makes grow is asked for before it does ([`Meter`]): an object in a list may be two bytes long and have thousands of fields.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray, MapArray, NullArray, StructArray, new_empty_array};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef, Fields};

use super::super::memory::{MemoryDenied, Reservation};
use super::super::text::{TextColumn, column};
use super::value::{Kind, Steps, has_float, push_compact, takes_texts_of_numbers, without_exponent};

/// What a value takes in its column beside its bytes, and the end of a list, a map or an object; the widest decimals take two of these.
pub(super) const VALUE_BYTES: u64 = 16;

/// What a batch takes, counted before it does.
pub(super) struct Meter {
    memory: Reservation,
    used: u64,
}

impl Meter {
    /// Of nothing so far.
    pub(super) fn new(memory: Reservation) -> Self {
        Self { memory, used: 0 }
    }

    /// Bytes of values.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Counts so many more.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), MemoryDenied> {
        // Columns grow by doubling; the old one is there until the new one is.
        let used = self.used.saturating_add(bytes);
        let wanted = used.saturating_mul(3).checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX);
        self.memory.at_least(wanted)?;
        self.used = used;
        Ok(())
    }

    /// The memory of what was counted.
    pub(super) fn finish(self) -> Reservation {
        self.memory
    }
}

/// Why a value is none of its column.
#[derive(Debug)]
pub(super) enum Failed {
    Denied(MemoryDenied),
    /// It is of another type than this one, and as it is written.
    Misfit(DataType, String),
    /// An object has this key twice.
    Twice(String),
    /// An object has a key that its type has not, with a value as it is written.
    Unknown(String, String),
    /// It is none at all, for this reason.
    Wrong(String),
}

/// What goes with a row through its columns.
pub(super) struct Context<'a> {
    pub(super) meter: &'a mut Meter,
    /// Whether columns of text take all values, as they are written.
    pub(super) is_mixed: bool,
    /// Why the row failed, and where in it, as far as that was gone back.
    pub(super) failed: Option<Failed>,
    pub(super) steps: Steps,
}

/// A column that grows by a value at a time.
pub(super) enum Column {
    /// It is not wanted.
    Passed,
    Nulls(usize),
    Leaf(Leaf),
    List(Box<List>),
    Map(Box<Map>),
    Struct(Box<Struct>),
}

/// A column of values that have none inside.
pub(super) struct Leaf {
    column: Box<dyn TextColumn>,
    pub(super) data_type: DataType,
}

pub(super) struct List {
    field: FieldRef,
    pub(super) ranges: Ranges,
    pub(super) items: Column,
    /// What an element takes.
    pub(super) item_bytes: u64,
}

pub(super) struct Map {
    entries: FieldRef,
    is_sorted: bool,
    pub(super) ranges: Ranges,
    pub(super) keys: Box<dyn TextColumn>,
    pub(super) values: Column,
    pub(super) entry_bytes: u64,
    pub(super) data_type: DataType,
}

pub(super) struct Struct {
    fields: Fields,
    pub(super) columns: Vec<StructColumn>,
    pub(super) numbers: HashMap<String, usize>,
    pub(super) nulls: NullBufferBuilder,
    /// How many objects there are, nulls not among them.
    pub(super) objects: u64,
    /// Whether keys that are none of the fields are passed over.
    pub(super) passes_others: bool,
}

pub(super) struct StructColumn {
    pub(super) name: String,
    pub(super) column: Column,
    /// The last object that has it.
    pub(super) last: u64,
}

/// Ends of lists, and which are null.
pub(super) struct Ranges {
    ends: Vec<i32>,
    len: usize,
    nulls: NullBufferBuilder,
}

impl Ranges {
    fn new() -> Self {
        Self { ends: vec![0], len: 0, nulls: NullBufferBuilder::new(0) }
    }

    /// Another element of the list that is next.
    pub(super) fn push(&mut self) {
        self.len += 1;
    }

    /// Ends a list.
    pub(super) fn end(&mut self, is_valid: bool) {
        // An element takes 16 bytes at least, and a batch is far from 32 GiB.
        self.ends.push(i32::try_from(self.len).unwrap_or(i32::MAX));
        self.nulls.append(is_valid);
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Option<arrow_buffer::NullBuffer>) {
        let ends = std::mem::replace(&mut self.ends, vec![0]);
        self.len = 0;
        (OffsetBuffer::new(ScalarBuffer::from(ends)), self.nulls.finish())
    }
}

impl Column {
    /// Of that type; `None`: it is not read from JSON.
    pub(super) fn new(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Null => Self::Nulls(0),
            DataType::List(field) => {
                let items = Self::new(field.data_type())?;
                let item_bytes = VALUE_BYTES * items.values();
                Self::List(Box::new(List { field: field.clone(), ranges: Ranges::new(), items, item_bytes }))
            }
            DataType::Map(entries, is_sorted) => {
                let DataType::Struct(fields) = entries.data_type() else { return None };
                let [key, value] = fields.as_ref() else { return None };
                if *key.data_type() != DataType::Utf8 {
                    return None;
                }
                let values = Self::new(value.data_type())?;
                Self::Map(Box::new(Map {
                    entries: entries.clone(),
                    is_sorted: *is_sorted,
                    ranges: Ranges::new(),
                    keys: column(&DataType::Utf8)?,
                    entry_bytes: VALUE_BYTES * (1 + values.values()),
                    values,
                    data_type: data_type.clone(),
                }))
            }
            DataType::Struct(fields) => Self::Struct(Box::new(Struct::new(fields, |_| true)?)),
            leaf => Self::Leaf(Leaf { column: column(leaf)?, data_type: leaf.clone() }),
        })
    }

    /// How many values a row has in it and in what is inside, without those of lists and maps.
    pub(super) fn values(&self) -> u64 {
        match self {
            Self::Passed => 0,
            Self::Leaf(leaf) if matches!(leaf.data_type, DataType::Decimal256(..)) => 2,
            Self::Nulls(_) | Self::Leaf(_) | Self::List(_) | Self::Map(_) => 1,
            Self::Struct(of) => of.values(),
        }
    }

    /// Puts a null behind the others.
    pub(super) fn push_null(&mut self) {
        match self {
            Self::Passed => (),
            Self::Nulls(count) => *count += 1,
            // A null is of every type.
            Self::Leaf(leaf) => drop(leaf.column.push(None)),
            Self::List(list) => list.ranges.end(false),
            Self::Map(map) => map.ranges.end(false),
            Self::Struct(of) => {
                of.columns.iter_mut().for_each(|field| field.column.push_null());
                of.nulls.append(false);
            }
        }
    }

    /// All values, as an array of that type.
    pub(super) fn finish(&mut self, data_type: &DataType) -> ArrayRef {
        match self {
            Self::Passed => new_empty_array(data_type),
            Self::Nulls(count) => Arc::new(NullArray::new(std::mem::take(count))),
            Self::Leaf(leaf) => leaf.column.finish(),
            Self::List(list) => {
                let (ends, nulls) = list.ranges.finish();
                let items = list.items.finish(list.field.data_type());
                Arc::new(ListArray::new(list.field.clone(), ends, items, nulls))
            }
            Self::Map(map) => {
                let (ends, nulls) = map.ranges.finish();
                let DataType::Struct(fields) = map.entries.data_type() else { return new_empty_array(data_type) };
                let columns = vec![map.keys.finish(), map.values.finish(fields[1].data_type())];
                let len = columns[0].len();
                let entries = of_columns(fields, columns, len, None);
                Arc::new(MapArray::new(map.entries.clone(), ends, entries, nulls, map.is_sorted))
            }
            Self::Struct(of) => {
                let (len, nulls, columns) = (of.nulls.len(), of.nulls.finish(), of.finish());
                Arc::new(of_columns(&of.fields, columns, len, nulls))
            }
        }
    }
}

fn of_columns(
    fields: &Fields,
    columns: Vec<ArrayRef>,
    len: usize,
    nulls: Option<arrow_buffer::NullBuffer>,
) -> StructArray {
    match columns.is_empty() {
        true => StructArray::new_empty_fields(len, nulls),
        false => StructArray::new(fields.clone(), columns, nulls),
    }
}

impl List {
    pub(super) fn data_type(&self) -> DataType {
        DataType::List(self.field.clone())
    }
}

impl Struct {
    pub(super) fn data_type(&self) -> DataType {
        DataType::Struct(self.fields.clone())
    }

    /// Of those of the fields that are wanted; `None`: one has a type that is not read from JSON.
    pub(super) fn new(fields: &Fields, is_wanted: impl Fn(usize) -> bool) -> Option<Self> {
        let column = |(number, field): (usize, &FieldRef)| {
            let column = if is_wanted(number) { Column::new(field.data_type())? } else { Column::Passed };
            Some(StructColumn { name: field.name().clone(), column, last: 0 })
        };
        let columns = fields.iter().enumerate().map(column).collect::<Option<Vec<_>>>()?;
        let numbers = columns.iter().enumerate().map(|(number, column)| (column.name.clone(), number)).collect();
        let nulls = NullBufferBuilder::new(0);
        Some(Self { fields: fields.clone(), columns, numbers, nulls, objects: 0, passes_others: false })
    }

    /// How many values an object has in these columns, and its end.
    pub(super) fn values(&self) -> u64 {
        1 + self.columns.iter().map(|field| field.column.values()).sum::<u64>()
    }

    /// Its columns.
    pub(super) fn finish(&mut self) -> Vec<ArrayRef> {
        let fields = self.columns.iter_mut().zip(&self.fields);
        fields.map(|(field, of)| field.column.finish(of.data_type())).collect()
    }
}

impl Leaf {
    /// Whether texts are all that it takes.
    pub(super) fn is_text(&self) -> bool {
        self.data_type == DataType::Utf8
    }

    /// Puts a text behind the others.
    pub(super) fn push_text(&mut self, text: &str, context: &mut Context<'_>) -> Result<(), Failed> {
        context.meter.take(text.len() as u64).map_err(Failed::Denied)?;
        self.column.push(Some(text.as_bytes())).map_err(|_| Failed::Misfit(self.data_type.clone(), text.to_owned()))
    }

    /// Puts a value behind the others, as it is written.
    pub(super) fn push(&mut self, raw: &str, context: &mut Context<'_>) -> Result<(), Failed> {
        let misfit = || Failed::Misfit(self.data_type.clone(), raw.to_owned());
        let is_of_text = matches!(self.data_type, DataType::Date32 | DataType::Timestamp(..));
        let kind = Kind::of(raw);
        let taken = match (kind, &self.data_type) {
            (Kind::Null, _) => return self.column.push(None).map_err(|_| misfit()),
            (Kind::Text, of) if is_of_text || *of == DataType::Utf8 => {
                let text: String = serde_json::from_str(raw)
                    .map_err(|error| Failed::Wrong(super::value::syntax(raw, &error, "value")))?;
                if is_of_text {
                    return self.column.push(Some(text.as_bytes())).map_err(|_| misfit());
                }
                return self.push_text(&text, context);
            }
            (_, DataType::Utf8) if context.is_mixed => {
                let mut compact = String::new();
                push_compact(raw, &mut compact);
                return self.push_text(&compact, context);
            }
            (Kind::Text, of) if takes_texts_of_numbers(of) => {
                let text: String = serde_json::from_str(raw)
                    .map_err(|error| Failed::Wrong(super::value::syntax(raw, &error, "value")))?;
                let pushed = without_exponent(&text).map(|number| self.column.push(Some(number.as_bytes())));
                return pushed.and_then(Result::ok).ok_or_else(misfit);
            }
            (Kind::Number, of) if of.is_decimal() => {
                let pushed = without_exponent(raw).map(|number| self.column.push(Some(number.as_bytes())));
                return pushed.and_then(Result::ok).ok_or_else(misfit);
            }
            (Kind::Bool, DataType::Boolean) => true,
            (Kind::Number, DataType::Float64) => has_float(raw, true),
            (Kind::Number, DataType::Float32) => has_float(raw, false),
            (Kind::Number, of) => of.is_integer(),
            _ => false,
        };
        let pushed = taken.then(|| self.column.push(Some(raw.as_bytes()))).transpose();
        pushed.ok().flatten().ok_or_else(misfit)
    }
}
