//! Types without their encodings, and arrays without theirs.
//!
//! | encoding | plain |
//! |---|---|
//! | `Dictionary(_, V)`, `RunEndEncoded(_, V)` | V |
//! | `Utf8View`, `BinaryView` | `Utf8`, `Binary` |
//! | `ListView`, `LargeListView` | `List`, `LargeList` |
//!
//! inside other types, too. All else is plain. Names, nullability and metadata of fields are kept; a field is nullable, too, where only the
//! values of its run ends or of its dictionary may be null.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, UInt64Array, downcast_dictionary_array, downcast_run_array};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};
use arrow_select::take::take;

use crate::TableError;

/// The type without its encoding.
pub fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type()),
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(of) | DataType::ListView(of) => DataType::List(plain_field(of)),
        DataType::LargeList(of) | DataType::LargeListView(of) => DataType::LargeList(plain_field(of)),
        DataType::FixedSizeList(of, size) => DataType::FixedSizeList(plain_field(of), *size),
        DataType::Map(entries, sorted) => DataType::Map(plain_field(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(plain_fields(fields)),
        other => other.clone(),
    }
}

/// The field with a plain type.
pub fn plain_field(field: &FieldRef) -> FieldRef {
    let nullable =
        field.is_nullable() || matches!(field.data_type(), DataType::RunEndEncoded(_, values) if values.is_nullable());
    let plain = Field::new(field.name(), plain_type(field.data_type()), nullable);
    Arc::new(plain.with_metadata(field.metadata().clone()))
}

fn plain_fields(fields: &Fields) -> Fields {
    fields.iter().map(plain_field).collect()
}

/// The schema with plain types: that of blocks.
pub fn plain_schema(schema: &Schema) -> Schema {
    Schema::new_with_metadata(plain_fields(schema.fields()), schema.metadata().clone())
}

/// Refuses types that tables do not have.
///
/// # Errors
/// [`TableError::Unsupported`], with the path of the column.
pub fn check_supported(fields: &Fields) -> Result<(), TableError> {
    fields.iter().try_for_each(|field| supported(field.name(), field.data_type()))
}

fn supported(column: &str, data_type: &DataType) -> Result<(), TableError> {
    let unsupported =
        |why| Err(TableError::Unsupported { column: column.to_owned(), data_type: data_type.clone(), why });
    match data_type {
        DataType::Union(..) => unsupported("tables have no unions; give each of its types a column"),
        DataType::Dictionary(_, values) => supported(column, values),
        DataType::RunEndEncoded(_, values) => supported(column, values.data_type()),
        DataType::FixedSizeList(of, size) if *size >= 0 => {
            supported(&format!("{column}.{}", of.name()), of.data_type())
        }
        DataType::FixedSizeBinary(size) | DataType::FixedSizeList(_, size) if *size < 0 => {
            unsupported("a size below zero")
        }
        DataType::List(of) | DataType::ListView(of) | DataType::LargeList(of) | DataType::LargeListView(of) => {
            supported(&format!("{column}.{}", of.name()), of.data_type())
        }
        DataType::Map(of, _) => match of.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                supported(&format!("{column}.{}", of.name()), of.data_type())
            }
            _ => unsupported("the entries of a map are a key and a value"),
        },
        DataType::Struct(fields) => {
            fields.iter().try_for_each(|field| supported(&format!("{column}.{}", field.name()), field.data_type()))
        }
        _ => Ok(()),
    }
}

/// Where the rows of an array are in another one.
#[derive(Clone, Debug)]
pub(crate) struct Indirection {
    /// For each row its place in `values`; any where it is null.
    pub(crate) places: Vec<u64>,
    /// Which rows are null here; those of `values` may be, too.
    pub(crate) nulls: Option<NullBuffer>,
    /// What the places are in.
    pub(crate) values: ArrayRef,
}

impl Indirection {
    /// Of a dictionary or of run ends; `None`: the array is neither.
    pub(crate) fn of(array: &dyn Array) -> Option<Self> {
        downcast_dictionary_array!(
            array => {
                let keys = array.keys();
                let last = array.values().len().saturating_sub(1) as u64;
                // What stands under a null may be anything.
                let places = (0..keys.len()).map(|row| array.key(row).map_or(0, |key| key as u64).min(last)).collect();
                let nulls = keys.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
                Some(Self { places, nulls, values: Arc::clone(array.values()) })
            },
            DataType::RunEndEncoded(_, _) => Some(Self::of_runs(array)),
            _ => None
        )
    }

    fn of_runs(array: &dyn Array) -> Self {
        downcast_run_array!(
            array => {
                let mut places = Vec::with_capacity(array.len());
                let (offset, len) = (array.run_ends().offset(), array.run_ends().len());
                // Of an empty slice the first run may be any.
                let first = if len == 0 { usize::MAX } else { array.get_start_physical_index() };
                for (run, end) in array.run_ends().values().iter().enumerate().skip(first) {
                    let end = (*end as usize - offset).min(len);
                    places.resize(end, run as u64);
                    if end == len {
                        break;
                    }
                }
                Self { places, nulls: None, values: Arc::clone(array.values()) }
            },
            other => unreachable!("{other} has no run ends")
        )
    }

    /// The rows as an array of the values' type.
    pub(crate) fn taken(self) -> Result<ArrayRef, TableError> {
        let rows = self.places.len();
        let places = UInt64Array::new(self.places.into(), self.nulls);
        if let DataType::FixedSizeBinary(0) = self.values.data_type() {
            // Of values without bytes the library takes none, however many are asked for (arrow-select 59.3).
            let is_valid = |place: Option<u64>| place.is_some_and(|place| self.values.is_valid(place as usize));
            let nulls = NullBuffer::from_iter(places.iter().map(is_valid));
            return Ok(Arc::new(FixedSizeBinaryArray::try_new_with_len(0, Buffer::default(), Some(nulls), rows)?));
        }
        Ok(take(self.values.as_ref(), &places, None)?)
    }
}

/// The array without dictionary and run ends on its outside; views, and encodings inside other types, stay.
pub(crate) fn unpacked(array: &ArrayRef) -> Result<ArrayRef, TableError> {
    let mut array = Arc::clone(array);
    while let Some(indirection) = Indirection::of(array.as_ref()) {
        array = indirection.taken()?;
    }
    Ok(array)
}
