//! Schemas as bytes that anybody may have written: the library's reader panics on those that make no sense, so they are looked at before.

use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::{DateUnit, Endianness, Field, IntervalUnit, Precision, TimeUnit, Type, root_as_message};
use arrow_schema::Schema;

/// The schema in the header of a message; what is wrong with it. Only plain types are known, which blocks have.
pub(super) fn read(header: &[u8]) -> Result<Schema, String> {
    let message = root_as_message(header).map_err(|error| error.to_string())?;
    let schema = message.header_as_schema().ok_or("no schema")?;
    let fields = schema.fields().ok_or("a schema without fields")?;
    if schema.endianness() != Endianness::Little {
        return Err("a schema of another kind of machine".to_owned());
    }
    match fields.iter().find(|field| !is_known(*field)) {
        Some(field) => Err(format!("column {} is of no type of blocks", field.name().unwrap_or_default())),
        None => Ok(fb_to_schema(schema)),
    }
}

/// Whether the type is one of blocks, with all that it needs.
fn is_known(field: Field<'_>) -> bool {
    let children = field.children();
    let count = children.map_or(0, |children| children.len());
    let inside = || children.into_iter().flatten().all(is_known);
    if field.dictionary().is_some() {
        return false;
    }
    match field.type_type() {
        Type::Null | Type::Bool | Type::Binary | Type::Utf8 | Type::LargeBinary | Type::LargeUtf8 => true,
        Type::Int => field.type_as_int().is_some_and(|int| [8, 16, 32, 64].contains(&int.bitWidth())),
        Type::FixedSizeBinary => field.type_as_fixed_size_binary().is_some(),
        Type::FloatingPoint => field
            .type_as_floating_point()
            .is_some_and(|float| [Precision::HALF, Precision::SINGLE, Precision::DOUBLE].contains(&float.precision())),
        Type::Date => {
            field.type_as_date().is_some_and(|date| [DateUnit::DAY, DateUnit::MILLISECOND].contains(&date.unit()))
        }
        Type::Time => field.type_as_time().is_some_and(|time| match time.bitWidth() {
            32 => [TimeUnit::SECOND, TimeUnit::MILLISECOND].contains(&time.unit()),
            64 => [TimeUnit::MICROSECOND, TimeUnit::NANOSECOND].contains(&time.unit()),
            _ => false,
        }),
        Type::Timestamp => field.type_as_timestamp().is_some_and(|time| is_unit(time.unit())),
        Type::Duration => field.type_as_duration().is_some_and(|time| is_unit(time.unit())),
        Type::Interval => field.type_as_interval().is_some_and(|of| {
            [IntervalUnit::YEAR_MONTH, IntervalUnit::DAY_TIME, IntervalUnit::MONTH_DAY_NANO].contains(&of.unit())
        }),
        Type::Decimal => field.type_as_decimal().is_some_and(|decimal| {
            let digits_max = match decimal.bitWidth() {
                32 => 9,
                64 => 18,
                128 => 38,
                256 => 76,
                _ => 0,
            };
            (1..=digits_max).contains(&decimal.precision()) && (-digits_max..=digits_max).contains(&decimal.scale())
        }),
        Type::List | Type::LargeList => count == 1 && inside(),
        Type::FixedSizeList => count == 1 && field.type_as_fixed_size_list().is_some() && inside(),
        Type::Map => count == 1 && field.type_as_map().is_some() && inside(),
        Type::Struct_ => inside(),
        _ => false,
    }
}

fn is_unit(unit: TimeUnit) -> bool {
    [TimeUnit::SECOND, TimeUnit::MILLISECOND, TimeUnit::MICROSECOND, TimeUnit::NANOSECOND].contains(&unit)
}
