//! Of which types columns are in files of formats that lack theirs.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{
    DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit,
};

use crate::TableError;
use crate::plain::{Path, plain_schema};
use crate::sources::{map_of, print_schema, records};

/// What types files have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTypes {
    /// All of Arrow's.
    Arrow,
    /// Those of Parquet, which other readers than Arrow's know, too.
    Parquet,
    /// What can be written as text and read again as the same value: CSV and TSV.
    Text,
    /// What can be written as JSON and read again as the same value where the type is said.
    Json,
    /// Two columns, of 10 bytes and of 90, without nulls: the records of the sort benchmark.
    Records,
}

/// The schema with which rows are written to files of these types, and read back: that of [plain](crate::plain) types where the format has them, else the type that holds the same values.
/// Batches are [`conformed`](super::conformed) to it before their rows are hashed on the way to such files, so that the hash of what is read back is the same.
///
/// # Errors
/// [`TableError::Unsupported`]: no type of the format holds the values; [`TableError::NotRecords`].
pub fn stored_schema(files: FileTypes, schema: &Schema) -> Result<SchemaRef, TableError> {
    let schema = plain_schema(schema);
    if files == FileTypes::Records {
        return records(&schema);
    }
    let fields = stored_fields(files, None, schema.fields())?;
    Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata)))
}

/// Whatever its columns are called.
fn records(schema: &Schema) -> Result<SchemaRef, TableError> {
    let expected = records::schema().fields();
    let is_record = |(field, of): (&FieldRef, &FieldRef)| field.data_type() == of.data_type();
    if schema.fields().len() != expected.len() || !schema.fields().iter().zip(expected).all(is_record) {
        let columns = print_schema(schema.fields().iter().map(|field| (field.name().as_str(), field.data_type())));
        return Err(TableError::NotRecords { columns });
    }
    let fields = schema.fields().iter().map(|field| Field::clone(field).with_nullable(false));
    Ok(Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata.clone())))
}

fn stored_fields(files: FileTypes, path: Option<&Path<'_>>, fields: &Fields) -> Result<Fields, TableError> {
    fields.iter().map(|field| stored_field(files, path, field)).collect()
}

fn stored_field(files: FileTypes, path: Option<&Path<'_>>, field: &FieldRef) -> Result<FieldRef, TableError> {
    let path = Path::new(path, field.name());
    let stored = match files {
        FileTypes::Arrow | FileTypes::Records => return Ok(field.clone()),
        FileTypes::Parquet => in_parquet(&path, field.data_type())?,
        FileTypes::Text => in_text(&path, field.data_type())?,
        FileTypes::Json => in_json(&path, field.data_type())?,
    };
    match stored == *field.data_type() {
        true => Ok(field.clone()),
        false => Ok(Arc::new(Field::clone(field).with_data_type(stored))),
    }
}

fn in_parquet(path: &Path<'_>, data_type: &DataType) -> Result<DataType, TableError> {
    let unsupported =
        |why| Err(TableError::Unsupported { column: path.to_string(), data_type: data_type.clone(), why });
    let inside = |field: &FieldRef| stored_field(FileTypes::Parquet, Some(path), field);
    Ok(match data_type {
        DataType::Timestamp(TimeUnit::Second, zone) => DataType::Timestamp(TimeUnit::Millisecond, zone.clone()),
        DataType::Time32(TimeUnit::Second) => DataType::Time32(TimeUnit::Millisecond),
        DataType::Date64 => DataType::Date32,
        // Which of them a decimal is follows there from its digits, and readers make one type of them.
        DataType::Decimal32(digits, scale) | DataType::Decimal64(digits, scale) => {
            DataType::Decimal128(*digits, *scale)
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            return unsupported("an interval is of months or of days and milliseconds there");
        }
        DataType::FixedSizeBinary(0) => return unsupported("binary of a fixed size has a byte at least there"),
        DataType::Struct(fields) if fields.is_empty() => return unsupported("a struct has a field at least there"),
        DataType::Struct(fields) => DataType::Struct(stored_fields(FileTypes::Parquet, Some(path), fields)?),
        DataType::List(of) => DataType::List(inside(of)?),
        DataType::LargeList(of) => DataType::LargeList(inside(of)?),
        DataType::FixedSizeList(of, size) => DataType::FixedSizeList(inside(of)?, *size),
        DataType::Map(of, sorted) => DataType::Map(inside(of)?, *sorted),
        other => other.clone(),
    })
}

fn in_json(path: &Path<'_>, data_type: &DataType) -> Result<DataType, TableError> {
    let unsupported =
        |why| Err(TableError::Unsupported { column: path.to_string(), data_type: data_type.clone(), why });
    let inside = |field: &FieldRef| stored_field(FileTypes::Json, Some(path), field);
    Ok(match data_type {
        DataType::Null => DataType::Null,
        // Elements are called as they are where the type is said.
        DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _) => {
            DataType::new_list(inside(of)?.data_type().clone(), true)
        }
        DataType::Struct(fields) => {
            let mut names = HashSet::new();
            if !fields.iter().all(|field| names.insert(field.name())) {
                return unsupported("an object has each of its keys once; rename one of the fields of one name");
            }
            let fields = stored_fields(FileTypes::Json, Some(path), fields)?;
            DataType::Struct(
                fields.iter().map(|field| Field::new(field.name(), field.data_type().clone(), true)).collect(),
            )
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(of)
                if of.len() == 2 && matches!(of[0].data_type(), DataType::Utf8 | DataType::LargeUtf8) =>
            {
                map_of(inside(&of[1])?.data_type().clone())
            }
            _ => return unsupported("a map is an object there, whose keys are text; Parquet has others"),
        },
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            return unsupported("JSON is UTF-8 and holds no other bytes; Parquet does");
        }
        flat => return in_text(path, flat),
    })
}

fn in_text(path: &Path<'_>, data_type: &DataType) -> Result<DataType, TableError> {
    use DataType::*;
    let why = match data_type {
        of if of.is_nested() => "text has no lists, structs and maps; Parquet has",
        Binary | LargeBinary | FixedSizeBinary(_) => "text is UTF-8 and holds no other bytes; Parquet does",
        Interval(_) | Duration(_) | Time32(_) | Time64(_) => "nobody reads it back from text; Parquet has it",
        Null => "nobody reads a type of nulls back from text; leave the column out",
        Decimal32(_, ..0) | Decimal64(_, ..0) | Decimal128(_, ..0) | Decimal256(_, ..0) => {
            "text has no decimals whose scale is below zero; Parquet has"
        }
        // As they are read back.
        LargeUtf8 => return Ok(Utf8),
        Float16 => return Ok(Float32),
        Date64 => return Ok(Date32),
        Decimal32(digits, scale) | Decimal64(digits, scale) | Decimal128(digits, scale) | Decimal256(digits, scale) => {
            let is_wide = *digits > DECIMAL128_MAX_PRECISION;
            return Ok(if is_wide { Decimal256(*digits, *scale) } else { Decimal128(*digits, *scale) });
        }
        other => return Ok(other.clone()),
    };
    Err(TableError::Unsupported { column: path.to_string(), data_type: data_type.clone(), why })
}
