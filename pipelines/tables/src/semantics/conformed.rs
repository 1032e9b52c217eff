//! Batches of one schema as batches of another one that holds their values.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, RunEndIndexType};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Float64Array, GenericListArray, GenericListViewArray, MapArray,
    OffsetSizeTrait, PrimitiveArray, RecordBatch, RecordBatchOptions, RunArray, StructArray, downcast_run_array,
    make_array, new_null_array,
};
use arrow_buffer::{MutableBuffer, NullBuffer, OffsetBuffer, i256};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};

use super::sums::range;
use super::unified::element_of;
use super::{check_schema, check_type};
use crate::TableError;
use crate::plain::{Path, plain_type, unencoded};
use crate::raw::WholeNumbers;

/// The batch with the columns of this schema, in their order, found by name: of the types of the schema as [`check_type`] has it, so that all that hashes,
/// compares or gathers rows of the schema takes it. Encodings, widths of offsets and zones stay what they were: arrays are shared where their values are of the
/// type. Other numbers are converted, and columns that are missing are nulls; both take memory as the type does.
///
/// # Errors
/// [`TableError::NoColumn`]: one is missing that has no nulls. [`TableError::TypeDiffers`] and others of [`check_type`]: values that are of no kind with the type.
/// [`TableError::NotOfType`]: a value that the type does not hold exactly. [`TableError::NullInRecords`], [`TableError::NullInColumn`]: a null in a column that has none
/// by the schema, and by the field of the batch, too.
pub fn conformed(batch: &RecordBatch, schema: &Schema) -> Result<RecordBatch, TableError> {
    let batch = retyped_batch(batch, schema)?;
    check_nulls(schema, &batch)?;
    Ok(batch)
}

/// Refuses nulls in columns of the batch of which the schema says that they have none, not those inside of others.
pub(crate) fn check_nulls(schema: &Schema, batch: &RecordBatch) -> Result<(), TableError> {
    let columns = schema.fields().iter().zip(batch.columns()).zip(batch.schema_ref().fields());
    for ((field, array), of_batch) in columns.filter(|((field, _), _)| !field.is_nullable()) {
        let nulls = array.is_nullable().then(|| array.logical_nulls()).flatten();
        if let Some(row) = nulls.and_then(|nulls| (0..nulls.len()).find(|row| nulls.is_null(*row))) {
            let column = field.name().clone();
            return Err(match of_batch.is_nullable() {
                true => TableError::NullInRecords { column, row },
                false => TableError::NullInColumn { column, batch: 0, row: row as u32 },
            });
        }
    }
    Ok(())
}

fn retyped_batch(batch: &RecordBatch, schema: &Schema) -> Result<RecordBatch, TableError> {
    if check_schema(schema, batch.schema_ref()).is_ok() {
        return Ok(batch.clone());
    }
    let found = batch.schema_ref().fields();
    if let Some(more) = found.iter().find(|field| schema.fields().find(field.name()).is_none()) {
        return Err(TableError::NoColumn { column: more.name().clone(), hint: None });
    }
    let rows = batch.num_rows();
    let columns = columns(None, schema.fields(), found, batch.columns(), rows)?;
    let fields = renewed(schema.fields(), found, &columns);
    let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    Ok(RecordBatch::try_new_with_options(schema, columns, &RecordBatchOptions::new().with_row_count(Some(rows)))?)
}

/// Columns of these fields, by name.
fn columns(
    path: Option<&Path<'_>>,
    fields: &Fields,
    found: &Fields,
    arrays: &[ArrayRef],
    rows: usize,
) -> Result<Vec<ArrayRef>, TableError> {
    let column = |(at, field): (usize, &FieldRef)| {
        let path = Path::new(path, field.name());
        // Most stand where they belong.
        let here = found.get(at).filter(|here| here.name() == field.name()).map(|_| at);
        match here.or_else(|| found.find(field.name()).map(|(at, _)| at)) {
            Some(at) => column(&path, field.data_type(), &arrays[at]),
            None if field.is_nullable() => Ok(new_null_array(&plain_type(field.data_type()), rows)),
            None => Err(TableError::NoColumn { column: path.to_string(), hint: None }),
        }
    };
    fields.iter().enumerate().map(column).collect()
}

/// The fields with the types that these arrays have.
fn renewed(fields: &Fields, found: &Fields, arrays: &[ArrayRef]) -> Fields {
    let renewed = |(field, array): (&FieldRef, &ArrayRef)| {
        let may_be_null = found.find(field.name()).is_none_or(|(_, found)| found.is_nullable());
        retyped(field, array, may_be_null)
    };
    fields.iter().zip(arrays).map(renewed).collect()
}

fn retyped(field: &FieldRef, array: &ArrayRef, may_be_null: bool) -> FieldRef {
    let is_nullable = field.is_nullable() || may_be_null;
    Arc::new(field.as_ref().clone().with_data_type(array.data_type().clone()).with_nullable(is_nullable))
}

/// The array with values of this type.
fn column(path: &Path<'_>, to: &DataType, array: &ArrayRef) -> Result<ArrayRef, TableError> {
    use DataType::*;
    let found = array.data_type();
    let Err(differs) = check_type("", to, found) else { return Ok(array.clone()) };
    let to = unencoded(to);
    match (to, found) {
        (_, Dictionary(..)) => {
            let dictionary = array.as_any_dictionary();
            let row_of = |value| {
                let keys = dictionary.normalized_keys();
                (0..keys.len()).find(|row| array.is_valid(*row) && keys[*row] == value).unwrap_or(0)
            };
            let values = column(path, to, dictionary.values()).map_err(|error| error.with_row(row_of))?;
            Ok(dictionary.with_values(values))
        }
        (_, RunEndEncoded(..)) => runs(path, to, array),
        (_, Null) => Ok(new_null_array(&plain_type(to), array.len())),
        (Struct(fields), Struct(found)) => {
            if let Some(more) = found.iter().find(|field| fields.find(field.name()).is_none()) {
                let path = Path::new(Some(path), more.name());
                return Err(TableError::NoColumn { column: path.to_string(), hint: None });
            }
            let columns = columns(Some(path), fields, found, array.as_struct().columns(), array.len())?;
            let (fields, nulls) = (renewed(fields, found, &columns), array.nulls().cloned());
            Ok(Arc::new(StructArray::try_new_with_length(fields, columns, nulls, array.len())?))
        }
        (Map(of, sorted), Map(..)) => map(path, of, *sorted, array.as_map()),
        (FixedSizeList(_, size), FixedSizeList(_, other)) if size != other => Err(differ(path, to, found)),
        (FixedSizeList(..), other) if !matches!(other, FixedSizeList(..)) => Err(differ(path, to, found)),
        _ if let (Some(of), Some(_)) = (element_of(to), element_of(found)) => list(path, of, array),
        _ => match number(path, to, array)? {
            Some(numbers) => Ok(numbers),
            // The same error, now that somebody reads it.
            None => Err(check_type(&path.to_string(), to, found).err().unwrap_or(differs)),
        },
    }
}

fn differ(path: &Path<'_>, expected: &DataType, found: &DataType) -> TableError {
    TableError::TypeDiffers { column: path.to_string(), expected: expected.clone(), found: found.clone() }
}

fn runs(path: &Path<'_>, to: &DataType, array: &ArrayRef) -> Result<ArrayRef, TableError> {
    fn with<R: RunEndIndexType>(array: &RunArray<R>, values: &ArrayRef) -> Result<ArrayRef, TableError> {
        let ends = array.run_ends();
        let all = PrimitiveArray::<R>::new(ends.inner().clone(), None);
        Ok(Arc::new(RunArray::<R>::try_new(&all, values)?.slice(ends.offset(), ends.len())))
    }
    fn first_row<R: RunEndIndexType>(array: &RunArray<R>, run: usize) -> usize {
        (0..array.len()).find(|row| array.get_physical_index(*row) == run).unwrap_or(0)
    }
    downcast_run_array!(
        array => {
            let values = column(path, to, array.values());
            with(array, &values.map_err(|error| error.with_row(|run| first_row(array, run)))?)
        },
        other => unreachable!("{other} has no run ends")
    )
}

/// Which row has an element, counted from the first one of the first row.
fn row_with<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, element: usize) -> usize {
    let first = offsets[0].as_usize();
    offsets.partition_point(|offset| offset.as_usize() - first <= element).saturating_sub(1)
}

/// Lists of any layout with other elements.
fn list(path: &Path<'_>, of: &FieldRef, array: &ArrayRef) -> Result<ArrayRef, TableError> {
    fn offsets<O: OffsetSizeTrait>(
        (path, of): (&Path<'_>, &FieldRef),
        array: &GenericListArray<O>,
    ) -> Result<ArrayRef, TableError> {
        // Of a slice of the rows the elements of these alone.
        let (first, last) = (array.offsets()[0], array.offsets()[array.len()]);
        let values = array.values().slice(first.as_usize(), (last - first).as_usize());
        let row_of = |element| row_with(array.offsets(), element);
        let values = column(path, of.data_type(), &values).map_err(|error| error.with_row(row_of))?;
        let offsets = OffsetBuffer::new(array.offsets().iter().map(|offset| *offset - first).collect());
        let field = retyped(of, &values, true);
        Ok(Arc::new(GenericListArray::try_new(field, offsets, values, array.nulls().cloned())?))
    }
    fn views<O: OffsetSizeTrait>(
        (path, of): (&Path<'_>, &FieldRef),
        array: &GenericListViewArray<O>,
    ) -> Result<ArrayRef, TableError> {
        let has = |row: usize, element: usize| {
            let begin = array.offsets()[row].as_usize();
            (begin..begin + array.sizes()[row].as_usize()).contains(&element)
        };
        let row_of = |element| (0..array.len()).find(|row| has(*row, element)).unwrap_or(0);
        let values = column(path, of.data_type(), array.values()).map_err(|error| error.with_row(row_of))?;
        let (offsets, sizes) = (array.offsets().clone(), array.sizes().clone());
        let (field, nulls) = (retyped(of, &values, true), array.nulls().cloned());
        Ok(Arc::new(GenericListViewArray::try_new(field, offsets, sizes, values, nulls)?))
    }
    let inside = Path::new(Some(path), of.name());
    match array.data_type() {
        DataType::List(_) => offsets((&inside, of), array.as_list::<i32>()),
        DataType::LargeList(_) => offsets((&inside, of), array.as_list::<i64>()),
        DataType::ListView(_) => views((&inside, of), array.as_list_view::<i32>()),
        DataType::LargeListView(_) => views((&inside, of), array.as_list_view::<i64>()),
        DataType::FixedSizeList(_, size) => {
            let list = array.as_fixed_size_list();
            let row_of = |element| element / (*size as usize).max(1);
            let values = column(&inside, of.data_type(), list.values()).map_err(|error| error.with_row(row_of))?;
            let (field, nulls) = (retyped(of, &values, true), list.nulls().cloned());
            Ok(Arc::new(FixedSizeListArray::try_new_with_length(field, *size, values, nulls, list.len())?))
        }
        other => unreachable!("{other} is no list"),
    }
}

/// A map with other keys or values.
fn map(path: &Path<'_>, of: &FieldRef, sorted: bool, array: &MapArray) -> Result<ArrayRef, TableError> {
    let DataType::Struct(fields) = of.data_type() else { unreachable!("entries are structs") };
    let (first, last) = (array.offsets()[0], array.offsets()[array.len()]);
    let entries = array.entries().slice(first as usize, (last - first) as usize);
    let offsets_of_rows = array.offsets();
    let inside = Path::new(Some(path), of.name());
    let column = |(field, array): (&FieldRef, &ArrayRef)| {
        let row_of = |element| row_with(offsets_of_rows, element);
        column(&Path::new(Some(&inside), field.name()), field.data_type(), array)
            .map_err(|error| error.with_row(row_of))
    };
    let columns = fields.iter().zip(entries.columns()).map(column).collect::<Result<Vec<_>, _>>()?;
    let is_nullable = |at: usize| entries.fields()[at].is_nullable();
    let fields: Fields =
        fields.iter().enumerate().map(|(at, field)| retyped(field, &columns[at], is_nullable(at))).collect();
    let entries = StructArray::try_new(fields.clone(), columns, entries.nulls().cloned())?;
    let field = Arc::new(Field::new(of.name(), DataType::Struct(fields), false));
    let offsets = OffsetBuffer::new(array.offsets().iter().map(|offset| *offset - first).collect());
    Ok(Arc::new(MapArray::try_new(field, offsets, entries, array.nulls().cloned(), sorted)?))
}

/// How a whole number becomes one of another type: times a number, or divided by it without a rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Factor {
    Times(i256),
    By(i256),
}

/// Numbers as numbers of another type; `None`: one of both is none, or they are of different kinds.
fn number(path: &Path<'_>, to: &DataType, array: &ArrayRef) -> Result<Option<ArrayRef>, TableError> {
    if to.is_floating() {
        return float(path, to, array);
    }
    let (Some(factor), Some(numbers)) = (factor(array.data_type(), to), WholeNumbers::of(array.as_ref())) else {
        return Ok(None);
    };
    let (nulls, rows) = (array.nulls().filter(|nulls| nulls.null_count() > 0).cloned(), array.len());
    let (width, (least, most)) = (to.primitive_width().expect("numbers have a width"), range(to).expect("a number"));
    let mut bytes = MutableBuffer::from_len_zeroed(rows * width);
    let is_narrow = numbers.width() < 32 && width < 32;
    for (row, out) in bytes.as_slice_mut().chunks_exact_mut(width).enumerate() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            continue;
        }
        let value = match (is_narrow, factor) {
            // Within 128 bits most of the time.
            (true, Factor::Times(factor)) => match numbers.narrow(row).checked_mul(factor.as_i128()) {
                Some(value) => Some(i256::from_i128(value)),
                None => numbers.wide(row).checked_mul(factor),
            },
            (false, Factor::Times(factor)) => numbers.wide(row).checked_mul(factor),
            (_, Factor::By(factor)) => {
                let value = numbers.wide(row);
                let is_whole = value.checked_rem(factor) == Some(i256::ZERO);
                value.checked_div(factor).filter(|_| is_whole)
            }
        };
        let Some(value) = value.filter(|value| (least..=most).contains(value)) else {
            return Err(not_of_type(path, row, unscaled(numbers.wide(row), array.data_type()), to));
        };
        out.copy_from_slice(&value.to_le_bytes()[..width]);
    }
    Ok(Some(made(to, rows, bytes, nulls)?))
}

fn made(to: &DataType, rows: usize, bytes: MutableBuffer, nulls: Option<NullBuffer>) -> Result<ArrayRef, TableError> {
    Ok(make_array(ArrayData::builder(to.clone()).len(rows).add_buffer(bytes.into()).nulls(nulls).build()?))
}

fn not_of_type(path: &Path<'_>, row: usize, value: String, data_type: &DataType) -> TableError {
    TableError::NotOfType { column: path.to_string(), row, value, data_type: data_type.clone() }
}

/// A number as an error shows it: a decimal with its point, times as the numbers that they are.
fn unscaled(value: i256, data_type: &DataType) -> String {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale)
            if *scale > 0 =>
        {
            let (sign, digits) = match value.is_negative() {
                true => ("-", value.to_string()[1..].to_owned()),
                false => ("", value.to_string()),
            };
            let digits = format!("{digits:0>width$}", width = *scale as usize + 1);
            let (whole, behind) = digits.split_at(digits.len() - *scale as usize);
            format!("{sign}{whole}.{behind}")
        }
        _ => value.to_string(),
    }
}

/// How whole numbers of one type become those of another one.
fn factor(from: &DataType, to: &DataType) -> Option<Factor> {
    use DataType::*;
    let power = |exponent: i32| match exponent {
        0.. => i256::from(10i64).checked_pow(exponent as u32).map(Factor::Times),
        _ => i256::from(10i64).checked_pow(exponent.unsigned_abs()).map(Factor::By),
    };
    let scale = |of: &DataType| match of {
        integer if integer.is_integer() => Some(0),
        Decimal32(_, scale) | Decimal64(_, scale) | Decimal128(_, scale) | Decimal256(_, scale) => {
            Some(i32::from(*scale))
        }
        _ => None,
    };
    let digits = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    match (from, to) {
        (Timestamp(_, zone), Timestamp(_, other)) if zone.is_some() != other.is_some() => None,
        (Timestamp(from, _), Timestamp(to, _))
        | (Duration(from), Duration(to))
        | (Time32(from) | Time64(from), Time32(to) | Time64(to)) => power(digits(to) - digits(from)),
        (Date32, Date64) => Some(Factor::Times(i256::from(86_400_000i64))),
        (Date64, Date32) => Some(Factor::By(i256::from(86_400_000i64))),
        // Digits behind the point are never dropped, though they may be zeros.
        (from, to) if to.is_integer() => scale(from).filter(|_| from.is_integer()).and_then(power),
        (from, to) => power(scale(to)? - scale(from)?),
    }
}

/// Numbers as floats that are exactly these.
fn float(path: &Path<'_>, to: &DataType, array: &ArrayRef) -> Result<Option<ArrayRef>, TableError> {
    let from = array.data_type();
    let whole = WholeNumbers::of(array.as_ref()).filter(|_| from.is_integer());
    if whole.is_none() && !from.is_floating() {
        return Ok(None);
    }
    // What a float is, or the nearest one to an integer, and whether that is the same.
    let value = |row: usize| match &whole {
        Some(whole) => {
            let value = whole.narrow(row);
            (value as f64, value as f64 as i128 == value)
        }
        None => match from {
            DataType::Float16 => (f64::from(array.as_primitive::<Float16Type>().value(row)), true),
            DataType::Float32 => (f64::from(array.as_primitive::<Float32Type>().value(row)), true),
            _ => (array.as_primitive::<Float64Type>().value(row), true),
        },
    };
    let inexact = |row| match &whole {
        Some(whole) => not_of_type(path, row, whole.narrow(row).to_string(), to),
        None => not_of_type(path, row, value(row).0.to_string(), to),
    };
    let nulls = array.nulls().cloned();
    let rows = (0..array.len()).map(|row| if array.is_valid(row) { (row, value(row)) } else { (row, (0.0, true)) });
    Ok(Some(match to {
        DataType::Float64 => {
            let exact = rows.map(|(row, (value, exact))| if exact { Ok(value) } else { Err(inexact(row)) });
            Arc::new(Float64Array::new(exact.collect::<Result<Vec<_>, _>>()?.into(), nulls))
        }
        DataType::Float32 => {
            let narrow = rows.map(|(row, (value, exact))| {
                let narrow = value as f32;
                let exact = exact && (f64::from(narrow) == value || value.is_nan());
                if exact { Ok(narrow) } else { Err(inexact(row)) }
            });
            Arc::new(Float32Array::new(narrow.collect::<Result<Vec<_>, _>>()?.into(), nulls))
        }
        _ => {
            type Half = <Float16Type as ArrowPrimitiveType>::Native;
            let narrow = rows.map(|(row, (value, exact))| {
                let narrow = Half::from_f64(value);
                let exact = exact && (f64::from(narrow) == value || value.is_nan());
                if exact { Ok(narrow) } else { Err(inexact(row)) }
            });
            let narrow = narrow.collect::<Result<Vec<_>, _>>()?;
            Arc::new(PrimitiveArray::<Float16Type>::new(narrow.into(), nulls))
        }
    }))
}
