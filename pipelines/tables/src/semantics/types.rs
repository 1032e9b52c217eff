//! Which types have an order, and which compare with each other.

use arrow_schema::DataType;

use crate::TableError;
use crate::plain::plain_type;

/// Refuses types that have no order and so cannot be keys: intervals (a month is no number of days), maps (entries have no order of their own) and
/// unions, and what has them inside. Lists go by their elements, structs by their fields.
///
/// # Errors
/// [`TableError::NoOrder`], with the path of what has none.
pub fn check_order(column: &str, data_type: &DataType) -> Result<(), TableError> {
    let inside = |name: &str, of: &DataType| check_order(&format!("{column}.{name}"), of);
    let why = match data_type {
        DataType::Interval(_) => "a month is no number of days",
        DataType::Map(..) => "entries of a map stand in no order",
        DataType::Union(..) => "values of different types do not compare",
        DataType::Dictionary(_, values) => return check_order(column, values),
        DataType::RunEndEncoded(_, values) => return check_order(column, values.data_type()),
        DataType::List(of)
        | DataType::LargeList(of)
        | DataType::ListView(of)
        | DataType::LargeListView(of)
        | DataType::FixedSizeList(of, _) => return inside(of.name(), of.data_type()),
        DataType::Struct(fields) => {
            return fields.iter().try_for_each(|field| inside(field.name(), field.data_type()));
        }
        _ => return Ok(()),
    };
    Err(TableError::NoOrder { column: column.to_owned(), data_type: data_type.clone(), why })
}

/// Refuses to compare values of two types: they are the same type, in whatever encoding, or both are timestamps of one unit with a zone, whichever.
///
/// # Errors
/// [`TableError::ZonesMixed`]: one is a timestamp with a zone, the other one without. [`TableError::TypeDiffers`] otherwise.
pub fn check_comparable(column: &str, left: &DataType, right: &DataType) -> Result<(), TableError> {
    compare(column, &plain_type(left), &plain_type(right))
}

fn compare(column: &str, left: &DataType, right: &DataType) -> Result<(), TableError> {
    let differ = || TableError::TypeDiffers { column: column.to_owned(), expected: left.clone(), found: right.clone() };
    match (left, right) {
        (DataType::Timestamp(one, zone), DataType::Timestamp(other, other_zone)) => {
            if zone.is_some() != other_zone.is_some() {
                let (left, right) = (left.clone(), right.clone());
                return Err(TableError::ZonesMixed { column: column.to_owned(), left, right });
            }
            if one == other { Ok(()) } else { Err(differ()) }
        }
        (DataType::List(one), DataType::List(other)) | (DataType::LargeList(one), DataType::LargeList(other)) => {
            compare(&format!("{column}.{}", one.name()), one.data_type(), other.data_type())
        }
        (DataType::FixedSizeList(one, size), DataType::FixedSizeList(other, other_size)) if size == other_size => {
            compare(&format!("{column}.{}", one.name()), one.data_type(), other.data_type())
        }
        (DataType::Struct(one), DataType::Struct(other)) if one.len() == other.len() => {
            let fields = one.iter().zip(other.iter());
            fields.into_iter().try_for_each(|(one, other)| {
                compare(&format!("{column}.{}", one.name()), one.data_type(), other.data_type())
            })
        }
        _ if left == right => Ok(()),
        _ => Err(differ()),
    }
}
