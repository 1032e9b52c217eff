//! Which types have an order, and which ways of writing values down are the same type.

use arrow_schema::{DataType, Field, Fields, Schema};

use crate::TableError;
use crate::plain::{Path, unencoded};

/// Refuses types that have no order and so cannot be keys: intervals (a month is no number of days), maps (entries have no order of their own) and
/// unions, and what has them inside. Lists go by their elements, structs by their fields.
///
/// # Errors
/// [`TableError::NoOrder`], with the path of what has none.
pub fn check_order(column: &str, data_type: &DataType) -> Result<(), TableError> {
    has_order(&Path::new(None, column), data_type)
}

fn has_order(path: &Path<'_>, data_type: &DataType) -> Result<(), TableError> {
    let inside = |of: &Field| has_order(&Path::new(Some(path), of.name()), of.data_type());
    let why = match unencoded(data_type) {
        DataType::Interval(_) => "a month is no number of days",
        DataType::Map(..) => "entries of a map stand in no order",
        DataType::Union(..) => "values of different types do not compare",
        DataType::List(of)
        | DataType::LargeList(of)
        | DataType::ListView(of)
        | DataType::LargeListView(of)
        | DataType::FixedSizeList(of, _) => return inside(of),
        DataType::Struct(fields) => return fields.iter().try_for_each(|field| inside(field)),
        _ => return Ok(()),
    };
    Err(TableError::NoOrder { column: path.to_string(), data_type: data_type.clone(), why })
}

/// Why instants and times without a zone are not taken for each other.
pub(crate) const ZONES: &str =
    "one is an instant, the other what a clock showed nobody says where; give both a zone, or none";

/// Refuses batches of another schema: columns, and fields of structs, have the names that were said, in the order that was said, and each is of its type
/// as [`check_type`] has it. Whether fields are nullable, and metadata, do not count.
///
/// # Errors
/// [`TableError::ColumnsDiffer`], [`TableError::NameDiffers`], and those of [`check_type`].
pub fn check_schema(expected: &Schema, found: &Schema) -> Result<(), TableError> {
    let (expected, found) = (expected.fields(), found.fields());
    if expected.len() != found.len() {
        return Err(TableError::ColumnsDiffer { expected: expected.len(), found: found.len() });
    }
    same_fields(None, expected, found)
}

/// Refuses values of another type. How they are written down does not count: dictionaries, run ends, views and the width of offsets; a fixed size, where none
/// was said; a decimal with fewer digits in the same bytes; the name of a zone; what the elements of lists and the entries of maps are called.
///
/// # Errors
/// [`TableError::ZonesMixed`]: one is a timestamp with a zone, the other one without. [`TableError::NameDiffers`]: fields of structs. [`TableError::TypeDiffers`]
/// otherwise.
pub fn check_type(column: &str, expected: &DataType, found: &DataType) -> Result<(), TableError> {
    same(&Path::new(None, column), expected, found)
}

fn same_fields(path: Option<&Path<'_>>, expected: &Fields, found: &Fields) -> Result<(), TableError> {
    expected.iter().zip(found).try_for_each(|(expected, found)| {
        let path = Path::new(path, expected.name());
        match expected.name() == found.name() {
            true => same(&path, expected.data_type(), found.data_type()),
            false => Err(TableError::NameDiffers { expected: path.to_string(), found: found.name().clone() }),
        }
    })
}

fn same(path: &Path<'_>, expected: &DataType, found: &DataType) -> Result<(), TableError> {
    use DataType::*;
    let (expected, found) = (unencoded(expected), unencoded(found));
    let inside =
        |one: &Field, other: &Field| same(&Path::new(Some(path), one.name()), one.data_type(), other.data_type());
    match (expected, found) {
        (Timestamp(_, zone), Timestamp(_, other)) if zone.is_some() != other.is_some() => {
            let (left, right) = (expected.clone(), found.clone());
            return Err(TableError::ZonesMixed { column: path.to_string(), left, right, why: ZONES });
        }
        (Timestamp(unit, _), Timestamp(other, _)) if unit == other => return Ok(()),
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => return Ok(()),
        (Binary | LargeBinary | BinaryView, Binary | LargeBinary | BinaryView | FixedSizeBinary(_)) => return Ok(()),
        (Decimal32(digits, scale), Decimal32(fewer, other))
        | (Decimal64(digits, scale), Decimal64(fewer, other))
        | (Decimal128(digits, scale), Decimal128(fewer, other))
        | (Decimal256(digits, scale), Decimal256(fewer, other))
            if scale == other && fewer <= digits =>
        {
            return Ok(());
        }
        (FixedSizeList(one, size), FixedSizeList(other, other_size)) if size == other_size => {
            return inside(one, other);
        }
        (
            List(one) | LargeList(one) | ListView(one) | LargeListView(one),
            List(other) | LargeList(other) | ListView(other) | LargeListView(other) | FixedSizeList(other, _),
        ) => return inside(one, other),
        (Map(one, _), Map(other, _)) => {
            if let (Struct(one), Struct(other)) = (one.data_type(), other.data_type()) {
                return one.iter().zip(other).try_for_each(|(one, other)| inside(one, other));
            }
        }
        (Struct(one), Struct(other)) if one.len() == other.len() => return same_fields(Some(path), one, other),
        _ if expected == found => return Ok(()),
        _ => (),
    }
    Err(TableError::TypeDiffers { column: path.to_string(), expected: expected.clone(), found: found.clone() })
}
