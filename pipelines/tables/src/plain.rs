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

use arrow_array::{Array, ArrayRef, UInt64Array, downcast_dictionary_array, downcast_run_array};
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

/// The type of the values behind dictionaries and run ends on the outside; views, and encodings inside other types, stay.
pub(crate) fn unencoded(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => unencoded(values),
        DataType::RunEndEncoded(_, values) => unencoded(values.data_type()),
        other => other,
    }
}

/// Names from the top down to a column, put together only where an error shows them.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    above: Option<&'a Path<'a>>,
    name: &'a str,
}

impl<'a> Path<'a> {
    /// A column of this name, inside another one or at the top.
    pub(crate) fn new(above: Option<&'a Path<'a>>, name: &'a str) -> Self {
        Self { above, name }
    }
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.above {
            Some(above) => write!(f, "{above}.{}", self.name),
            None => f.write_str(self.name),
        }
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

/// Most levels of types inside each other: readers of schemas stop at 64 levels of their own, two or three of which are one here.
pub(crate) const DEPTH_MAX: usize = 16;
/// Most columns, those inside others too: readers of schemas stop at a million tables, a few of which are one column.
pub(crate) const COLUMNS_MAX: usize = 100_000;

/// Refuses types that tables do not have.
///
/// # Errors
/// [`TableError::Unsupported`], with the path of the column.
pub fn check_supported(fields: &Fields) -> Result<(), TableError> {
    let mut columns = 0;
    fields.iter().try_for_each(|field| supported(&Path::new(None, field.name()), field.data_type(), 1, &mut columns))
}

fn supported(path: &Path<'_>, data_type: &DataType, depth: usize, columns: &mut usize) -> Result<(), TableError> {
    let unsupported =
        |why| Err(TableError::Unsupported { column: path.to_string(), data_type: data_type.clone(), why });
    *columns += 1;
    if *columns > COLUMNS_MAX {
        return unsupported("a table has 100 000 columns at most, those inside others too");
    }
    let mut inside =
        |field: &Field| supported(&Path::new(Some(path), field.name()), field.data_type(), depth + 1, columns);
    if depth > DEPTH_MAX {
        return unsupported("types are nested 16 deep at most");
    }
    match data_type {
        DataType::Union(..) => unsupported("tables have no unions; give each of its types a column"),
        DataType::Dictionary(_, values) => supported(path, values, depth + 1, columns),
        DataType::RunEndEncoded(_, values) => supported(path, values.data_type(), depth + 1, columns),
        DataType::FixedSizeBinary(size) | DataType::FixedSizeList(_, size) if *size < 0 => {
            unsupported("a size below zero")
        }
        DataType::FixedSizeList(of, _)
        | DataType::List(of)
        | DataType::ListView(of)
        | DataType::LargeList(of)
        | DataType::LargeListView(of) => inside(of),
        DataType::Map(of, _) => match of.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => inside(of),
            _ => unsupported("the entries of a map are a key and a value"),
        },
        DataType::Struct(fields) => fields.iter().try_for_each(|field| inside(field)),
        _ => Ok(()),
    }
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

/// The array without dictionary and run ends on its outside: few rows of values that have a width.
pub(crate) fn unpacked(array: &ArrayRef) -> Result<ArrayRef, TableError> {
    let Some(outer) = Indirection::of(array.as_ref()) else { return Ok(Arc::clone(array)) };
    let mut places: Vec<Option<usize>> = (0..outer.len)
        .map(|row| outer.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)).then(|| outer.place(row)))
        .collect();
    let mut values = outer.values;
    // All the way down before anything is taken: run ends have no place for a null of the keys above them.
    while let Some(inner) = Indirection::of(values.as_ref()) {
        for place in &mut places {
            *place = place.filter(|at| inner.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*at)));
            *place = place.map(|at| inner.place(at));
        }
        values = inner.values;
    }
    let places = UInt64Array::from_iter(places.into_iter().map(|place| place.map(|at| at as u64)));
    Ok(take(values.as_ref(), &places, None)?)
}
