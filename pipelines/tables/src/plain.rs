//! Types without their encodings, and arrays without theirs.
//!
//! | encoding | plain |
//! |---|---|
//! | `Dictionary(_, V)`, `RunEndEncoded(_, V)` | V |
//! | `Utf8View`, `BinaryView` | `Utf8`, `Binary` |
//! | `ListView`, `LargeListView` | `List`, `LargeList` |
//!
//! inside other types, too. All else is plain. Names, nullability and metadata of fields are kept; a field is nullable, too, where the
//! field of the values of its run ends is, at whichever level. A dictionary does not say whether its values may be null: there the field's word counts, and a null
//! among the values of a field that says it has none is refused where rows are taken from it.

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
    let nullable = field.is_nullable() || has_nullable_runs(field.data_type());
    let plain = Field::new(field.name(), plain_type(field.data_type()), nullable);
    Arc::new(plain.with_metadata(field.metadata().clone()))
}

/// Whether run ends on the outside say that their values may be null.
fn has_nullable_runs(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => has_nullable_runs(values),
        DataType::RunEndEncoded(_, values) => values.is_nullable() || has_nullable_runs(values.data_type()),
        _ => false,
    }
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

/// Refuses fields with other names, or in another order, than was said. Elements of lists and entries of maps have no names that count.
pub(crate) fn check_names(path: &str, expected: &Fields, found: &Fields) -> Result<(), TableError> {
    let differ = expected.iter().zip(found).find(|(expected, found)| expected.name() != found.name());
    differ.map_or(Ok(()), |(expected, found)| {
        let path = if path.is_empty() { expected.name().clone() } else { format!("{path}.{}", expected.name()) };
        Err(TableError::NameDiffers { expected: path, found: found.name().clone() })
    })
}

/// Where the rows of an array are in another one. Keys and run ends are looked up where they lie: nothing is noted for a row.
#[derive(Clone, Debug)]
pub(crate) struct Indirection {
    places: Places,
    /// How many rows.
    len: usize,
    /// Which rows are null here; those of `values` may be, too.
    pub(crate) nulls: Option<NullBuffer>,
    /// What the places are in.
    pub(crate) values: ArrayRef,
}

#[derive(Clone, Debug)]
enum Places {
    /// Keys of so many bytes each, little-endian, and the last place: what stands under a null may be anything.
    Keys(usize, Buffer, usize),
    /// Ends of runs of so many bytes each, and where the first row is.
    Runs(usize, Buffer, usize),
}

impl Indirection {
    /// Of a dictionary or of run ends; `None`: the array is neither.
    pub(crate) fn of(array: &dyn Array) -> Option<Self> {
        downcast_dictionary_array!(
            array => {
                let keys = array.keys();
                let bytes = keys.values().inner().clone();
                let width = keys.data_type().primitive_width().expect("keys are integers");
                let places = Places::Keys(width, bytes, array.values().len().saturating_sub(1));
                let nulls = keys.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
                Some(Self { places, len: keys.len(), nulls, values: Arc::clone(array.values()) })
            },
            DataType::RunEndEncoded(_, _) => Some(Self::of_runs(array)),
            _ => None
        )
    }

    fn of_runs(array: &dyn Array) -> Self {
        downcast_run_array!(
            array => {
                let ends = array.run_ends();
                let bytes = ends.inner().inner().clone();
                let width = bytes.len() / ends.inner().len().max(1);
                let places = Places::Runs(width, bytes, ends.offset());
                Self { places, len: ends.len(), nulls: None, values: Arc::clone(array.values()) }
            },
            other => unreachable!("{other} has no run ends")
        )
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The place of a row in `values`; any where it is null.
    #[inline]
    pub(crate) fn place(&self, row: usize) -> usize {
        match &self.places {
            Places::Keys(width, keys, last) => number(*width, keys, row).min(*last),
            Places::Runs(width, ends, first) => {
                let (mut low, mut high) = (0, ends.len() / width);
                while low < high {
                    let middle = (low + high) / 2;
                    match number(*width, ends, middle) <= first + row {
                        true => low = middle + 1,
                        false => high = middle,
                    }
                }
                low
            }
        }
    }

    /// The rows as an array of the values' type.
    pub(crate) fn taken(self) -> Result<ArrayRef, TableError> {
        let rows = self.len;
        let places: Vec<u64> = (0..rows).map(|row| self.place(row) as u64).collect();
        let places = UInt64Array::new(places.into(), self.nulls);
        if let DataType::FixedSizeBinary(0) = self.values.data_type() {
            // Of values without bytes the library takes none, however many are asked for (arrow-select 59.3).
            let is_valid = |place: Option<u64>| place.is_some_and(|place| self.values.is_valid(place as usize));
            let nulls = NullBuffer::from_iter(places.iter().map(is_valid));
            return Ok(Arc::new(FixedSizeBinaryArray::try_new_with_len(0, Buffer::default(), Some(nulls), rows)?));
        }
        Ok(take(self.values.as_ref(), &places, None)?)
    }
}

/// The number at `at` of some of so many bytes each, none of which is below zero.
#[inline]
fn number(width: usize, numbers: &Buffer, at: usize) -> usize {
    let bytes = &numbers.as_slice()[at * width..(at + 1) * width];
    match *bytes {
        [one] => usize::from(one),
        [a, b] => usize::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) as usize,
        _ => u64::from_le_bytes(bytes.try_into().expect("keys and ends have 1, 2, 4 or 8 bytes")) as usize,
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
