//! Which types the columns of a file have: what Parquet says, and what a schema of Arrow in the footer adds where that is sound.
//!
//! Writers note the schema that they had in the footer (`ARROW:schema`). It knows what Parquet cannot say (durations, seconds, zones, sizes of lists), and
//! nobody vouches for it. So only what reads the same values otherwise is taken from it, and the rest is as Parquet says:
//!
//! | Parquet | with what the footer adds |
//! |---|---|
//! | numbers of 32 and 64 bits without a meaning | times, timestamps, durations, dates |
//! | an instant | its zone; never is a time without zone made an instant, nor the other way round |
//! | binary | text; then each value is looked at |
//! | a decimal | one of another width with the same digits and scale |
//! | a list | one of fixed size |
//! | intervals | their unit |
//!
//! Dictionaries, views and wide offsets are ways to write values down: columns have the type of the values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, Schema};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::{ConvertedType, Type as PhysicalType};
use parquet::file::metadata::{FileMetaData, KeyValue};
use parquet::schema::types::SchemaDescriptor;

use crate::guard::guarded;
use crate::ipc_schema::of_message;

/// Where writers note the schema that they had.
const NOTED: &str = "ARROW:schema";

/// The schema of a file's rows, in plain types.
pub(super) fn schema(file: &FileMetaData) -> Result<Schema, String> {
    let own = guarded(|| parquet_to_arrow_schema(file.schema_descr(), None))?;
    let pairs = file.key_value_metadata().into_iter().flatten();
    let is_noted = |pair: &&KeyValue| pair.key == NOTED;
    let pairs_of_table = pairs.clone().filter(|pair| !is_noted(pair));
    let mut metadata: HashMap<String, String> =
        pairs_of_table.map(|pair| (pair.key.clone(), pair.value.clone().unwrap_or_default())).collect();
    // What cannot be read, or is for another schema, adds nothing; that nobody is told is what other readers do, too.
    let text = pairs.clone().find(is_noted).and_then(|pair| pair.value.as_ref());
    let noted = text.and_then(|text| BASE64_STANDARD.decode(text).ok()).and_then(|bytes| of_message(&bytes).ok());
    let Some(noted) = noted else { return Ok(Schema::new_with_metadata(own.fields().clone(), metadata)) };
    noted.metadata().iter().for_each(|(key, value)| {
        metadata.entry(key.clone()).or_insert_with(|| value.clone());
    });
    Ok(Schema::new_with_metadata(merged_fields(own.fields(), noted.fields()), metadata))
}

fn merged_fields(own: &Fields, noted: &Fields) -> Fields {
    match own.len() == noted.len() {
        true => own.iter().zip(noted).map(|(own, noted)| merged_field(own, noted)).collect(),
        false => own.iter().map(|own| merged_field(own, own)).collect(),
    }
}

fn merged_field(own: &FieldRef, noted: &FieldRef) -> FieldRef {
    let data_type = merged(own.data_type(), noted.data_type());
    let mut metadata = noted.metadata().clone();
    // As Parquet says: numbers of fields, which the library notes.
    metadata.extend(own.metadata().clone());
    Arc::new(Field::new(own.name(), data_type, own.is_nullable()).with_metadata(metadata))
}

/// The plain type of a column, from what Parquet says and what was noted.
fn merged(own: &DataType, noted: &DataType) -> DataType {
    use DataType::*;
    match (own, noted) {
        (_, Dictionary(_, values)) => merged(own, values),
        (Int32 | Int64, Timestamp(..)) | (Int32, Time32(_)) | (Int64, Time64(_) | Duration(_) | Date64) => {
            noted.clone()
        }
        (Date32, Date64) | (Interval(_), Interval(IntervalUnit::YearMonth)) => noted.clone(),
        // Seconds are milliseconds in Parquet.
        (Timestamp(unit, Some(_)), Timestamp(_, Some(zone))) => Timestamp(*unit, Some(zone.clone())),
        (Binary, Utf8 | LargeUtf8 | Utf8View) => Utf8,
        (
            Decimal128(digits, scale),
            Decimal32(same_digits, same_scale)
            | Decimal64(same_digits, same_scale)
            | Decimal256(same_digits, same_scale),
        ) if (digits, scale) == (same_digits, same_scale) => noted.clone(),
        (List(own), FixedSizeList(noted, size)) => FixedSizeList(merged_field(own, noted), *size),
        (List(own), List(noted) | LargeList(noted) | ListView(noted) | LargeListView(noted)) => {
            List(merged_field(own, noted))
        }
        (Struct(own), Struct(noted)) => Struct(merged_fields(own, noted)),
        (Map(own, sorted), Map(noted, _)) => Map(merged_field(own, noted), *sorted),
        _ => own.clone(),
    }
}

/// The types that columns are decoded to: texts and binaries as views, which point into the pages.
pub(super) fn decoded(fields: &Fields) -> Fields {
    fields.iter().map(decoded_field).collect()
}

fn decoded_field(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(decoded_type(field.data_type())))
}

fn decoded_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 => DataType::Utf8View,
        DataType::Binary => DataType::BinaryView,
        DataType::List(of) => DataType::List(decoded_field(of)),
        DataType::FixedSizeList(of, size) => DataType::FixedSizeList(decoded_field(of), *size),
        DataType::Map(of, sorted) => DataType::Map(decoded_field(of), *sorted),
        DataType::Struct(fields) => DataType::Struct(decoded(fields)),
        other => other.clone(),
    }
}

/// Whether a column has texts that the library does not look at: those that Parquet does not say are UTF-8.
pub(super) fn has_unchecked_texts(parquet: &SchemaDescriptor, root: usize, data_type: &DataType) -> bool {
    let leaves = (0..parquet.num_columns()).filter(|leaf| parquet.get_column_root_idx(*leaf) == root);
    has_texts(data_type)
        && leaves.into_iter().any(|leaf| {
            let leaf = parquet.column(leaf);
            leaf.physical_type() == PhysicalType::BYTE_ARRAY && leaf.converted_type() != ConvertedType::UTF8
        })
}

fn has_texts(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::Utf8View => true,
        DataType::List(of) | DataType::FixedSizeList(of, _) | DataType::Map(of, _) => has_texts(of.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_texts(field.data_type())),
        _ => false,
    }
}

/// Whether a leaf's values are copied when they are decoded, as decimals are, instead of pointed to.
pub(super) fn is_copied(parquet: &SchemaDescriptor, leaf: usize) -> bool {
    parquet.column(leaf).converted_type() == ConvertedType::DECIMAL
}

#[cfg(test)]
mod tests {
    use arrow_schema::TimeUnit;

    use super::*;

    #[test]
    fn what_the_footer_adds_never_changes_what_values_are() {
        use DataType::*;
        let zone = |unit, zone: &str| Timestamp(unit, Some(zone.into()));
        let item = |of| Arc::new(Field::new("item", of, true));
        let (milli, nano) = (TimeUnit::Millisecond, TimeUnit::Nanosecond);
        for (own, noted, expected) in [
            (Int64, Duration(milli), Duration(milli)),
            (Int64, zone(TimeUnit::Second, "UTC"), zone(TimeUnit::Second, "UTC")),
            (Int64, Utf8, Int64),
            (zone(milli, "UTC"), zone(milli, "+02:00"), zone(milli, "+02:00")),
            (zone(milli, "UTC"), zone(TimeUnit::Second, "+02:00"), zone(milli, "+02:00")),
            (zone(milli, "UTC"), Timestamp(milli, None), zone(milli, "UTC")),
            (Timestamp(nano, None), zone(nano, "UTC"), Timestamp(nano, None)),
            (Timestamp(nano, None), Timestamp(milli, None), Timestamp(nano, None)),
            (Binary, Dictionary(Box::new(Int8), Box::new(LargeUtf8)), Utf8),
            (Utf8, LargeUtf8, Utf8),
            (Utf8, Binary, Utf8),
            (Decimal128(9, 2), Decimal32(9, 2), Decimal32(9, 2)),
            (Decimal128(9, 2), Decimal32(9, 3), Decimal128(9, 2)),
            (List(item(Binary)), LargeList(item(Utf8)), List(item(Utf8))),
            (List(item(Int64)), FixedSizeList(item(Int64), 3), FixedSizeList(item(Int64), 3)),
        ] {
            assert_eq!(merged(&own, &noted), expected, "{own} with {noted}");
        }
    }
}
