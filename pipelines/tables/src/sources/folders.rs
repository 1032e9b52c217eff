//! Columns that folders are: a file `day=2024-01-31/city=oslo/part-00000.parquet` has a day and a city in all of its rows.
//!
//! Which folders of a path count is decided where files are listed. The files of a table are all in folders of the same columns, in the same order. Types are those of columns of text, but that
//! numbers with a point are texts: `1.10` and `1.1` are two folders.

use std::path::Path;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, Int32Array, RecordBatch, RecordBatchOptions, RunArray, UInt32Array, UInt64Array,
    downcast_run_array,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema};
use arrow_select::take::take;
use exobus_files::says_value;

use super::batches::array_bytes;
use super::parquet::RowGroupStatistics;
use super::text::{Evidence, column};
use super::{NamedTypes, SourceError, print_type, shown};
use crate::TableError;
use crate::hive::column_and_value;
use crate::plain::unpacked;
use crate::sinks::field_text;

/// Columns and values of the folders that a file is in, the outermost first.
type Values = Vec<(String, Option<String>)>;

/// Columns that folders are, each with the value that all rows of a file have in it.
pub(crate) type FolderColumns = Vec<(FieldRef, ArrayRef)>;

/// What a row takes of which it is known where its value is.
const PLACE_BYTES: u64 = (size_of::<Option<usize>>() + size_of::<u64>()) as u64;

/// What the last so many folders of the path of a file say.
fn values(file: &Path, below: usize) -> Result<Values, SourceError> {
    let folders = file.ancestors().skip(1).take(below).filter_map(Path::file_name).filter(|name| says_value(name));
    let value = |name: &std::ffi::OsStr| {
        let said = name.to_str().and_then(column_and_value);
        said.ok_or_else(|| {
            let what = format!(
                "the folder {name:?} says the value of a column in bytes that are no UTF-8: rename it, or say --hive false, so that folders are no columns"
            );
            refused(file, what)
        })
    };
    let mut values = folders.map(value).collect::<Result<Values, _>>()?;
    values.reverse();
    Ok(values)
}

fn refused(file: &Path, what: String) -> SourceError {
    SourceError::Names { file: file.display().to_string().into(), what }
}

/// The columns that the folders of files are, with their types: those that are said, and those that all values show and that print each of them as it stands there. Two folders are two values, so `10:00` and
/// `10:00:00`, `true` and `TRUE`, `0` and `-0` are text.
///
/// # Errors
/// [`SourceError::Names`]: files are in folders of other columns; folders one in the other say values of one column.
pub(crate) fn folder_types<'a>(
    files: impl Iterator<Item = (&'a Path, usize)> + Clone,
    said: &NamedTypes,
) -> Result<NamedTypes, SourceError> {
    let mut seen = None::<Seen<'a>>;
    each_folder(files.clone(), |file, values| match &mut seen {
        None => {
            seen = Some(Seen::of(file, &values)?);
            Ok(())
        }
        Some(seen) => seen.add(file, &values),
    })?;
    let mut types = seen.map_or(Vec::new(), |seen| seen.types(said));
    each_folder(files, |_, values| {
        let inferred = types.iter_mut().filter(|(name, _)| said.iter().all(|(said, _)| said != name));
        for (name, of) in inferred {
            let value = values.iter().find(|(other, _)| other == name).and_then(|(_, value)| value.as_deref());
            if value.is_some_and(|value| !prints_as(of, value)) {
                *of = DataType::Utf8;
            }
        }
        Ok(())
    })?;
    Ok(types)
}

/// Calls `each` with what the folders of files say, once for files of one folder that follow each other.
fn each_folder<'a>(
    files: impl Iterator<Item = (&'a Path, usize)>,
    mut each: impl FnMut(&'a Path, Values) -> Result<(), SourceError>,
) -> Result<(), SourceError> {
    let mut last = None;
    for (file, below) in files {
        let folder = Some((file.parent(), below));
        if last != folder {
            last = folder;
            each(file, values(file, below)?)?;
        }
    }
    Ok(())
}

/// Whether a text is how a value of this type is written.
fn prints_as(of: &DataType, value: &str) -> bool {
    one_value(of, Some(value)).is_some_and(|array| field_text(&array, 0) == value)
}

/// Columns of the folders of some files.
struct Seen<'a> {
    first: &'a Path,
    columns: Vec<(String, Evidence)>,
}

impl<'a> Seen<'a> {
    /// Of the first file.
    fn of(first: &'a Path, values: &Values) -> Result<Self, SourceError> {
        let names = || values.iter().map(|(name, _)| name.to_lowercase());
        if let Some(twice) = names().enumerate().find(|(at, name)| names().take(*at).any(|other| other == *name)) {
            let what = format!("two of its folders say values of column {}: rename one of them", twice.1);
            return Err(refused(first, what));
        }
        let columns = values.iter().map(|(name, _)| (name.clone(), Evidence::default())).collect();
        let mut seen = Self { first, columns };
        seen.add(first, values)?;
        Ok(seen)
    }

    fn add(&mut self, file: &Path, values: &Values) -> Result<(), SourceError> {
        let here: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
        let there: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        if here != there {
            let in_folders = |names: &[&str]| match names {
                [] => "in no folder of a column".to_owned(),
                names => format!("in folders of columns {}", names.join(", ")),
            };
            let (here, there, first) = (in_folders(&here), in_folders(&there), self.first.display());
            let what = "name those that are one table, or say --hive false, so that folders are no columns";
            return Err(refused(file, format!("it is {here}, and {first} {there}: {what}")));
        }
        for ((_, evidence), (_, value)) in self.columns.iter_mut().zip(values) {
            if let Some(value) = value {
                evidence.look_at(value.as_bytes());
            }
        }
        Ok(())
    }

    fn types(self, said: &NamedTypes) -> NamedTypes {
        let of_column = |(name, evidence): (String, Evidence)| {
            let said = said.iter().find(|(other, _)| *other == name).map(|(_, of)| of.clone());
            let of = said.unwrap_or_else(|| match evidence.data_type() {
                DataType::Float64 => DataType::Utf8,
                of => of,
            });
            (name, of)
        };
        self.columns.into_iter().map(of_column).collect()
    }
}

/// Columns of these types, with the values that the last so many folders of the path of a file say.
///
/// # Errors
/// [`SourceError::Names`]: a value is none of the type that is said.
pub(super) fn folder_columns(file: &Path, below: usize, types: &NamedTypes) -> Result<FolderColumns, SourceError> {
    if types.is_empty() {
        return Ok(Vec::new());
    }
    let values = values(file, below)?;
    let of_type = |(name, of): &(String, DataType)| {
        let value = values.iter().find(|(other, _)| other == name).and_then(|(_, value)| value.as_deref());
        let array = one_value(of, value).ok_or_else(|| {
            let (value, of) = (shown(value.unwrap_or_default().as_bytes()), print_type(of));
            refused(
                file,
                format!("its folders say that column {name} is {value:?}, which is no {of}, as --schema says"),
            )
        })?;
        Ok((Arc::new(Field::new(name, of.clone(), true)), array))
    };
    types.iter().map(of_type).collect()
}

fn one_value(of: &DataType, value: Option<&str>) -> Option<ArrayRef> {
    let mut column = column(of)?;
    column.push(value.map(str::as_bytes)).ok()?;
    Some(column.finish())
}

/// The rows with these columns behind theirs, as runs of one value.
pub(crate) fn with_folders(batch: RecordBatch, columns: &FolderColumns) -> Result<RecordBatch, ArrowError> {
    let rows = batch.num_rows();
    if columns.is_empty() || rows == 0 {
        return Ok(batch);
    }
    let (mut fields, mut arrays) = (batch.schema_ref().fields().to_vec(), batch.columns().to_vec());
    let ends = Int32Array::from(vec![rows as i32]);
    for (field, value) in columns {
        let runs = RunArray::<Int32Type>::try_new(&ends, value)?;
        fields.push(Arc::new(Field::new(field.name(), runs.data_type().clone(), true)));
        arrays.push(Arc::new(runs));
    }
    let schema = Arc::new(Schema::new_with_metadata(fields, batch.schema_ref().metadata().clone()));
    RecordBatch::try_new_with_options(schema, arrays, &RecordBatchOptions::new().with_row_count(Some(rows)))
}

/// What the values take that [`without_runs`] puts in place of runs, bytes.
pub(crate) fn run_bytes(batch: &RecordBatch, is_wanted: impl Fn(&str) -> bool) -> u64 {
    let rows = batch.num_rows() as u64;
    let bytes = |array: &ArrayRef| {
        downcast_run_array!(
            array => {
                let values = array.values();
                // Those of a folder are one.
                rows * array_bytes(values.as_ref(), 0..values.len()) / (values.len().max(1) as u64)
            },
            _ => 0
        )
    };
    let columns = batch.schema_ref().fields().iter().zip(batch.columns());
    let bytes: u64 =
        columns.filter(|(field, _)| is_runs(field) && is_wanted(field.name())).map(|(_, array)| bytes(array)).sum();
    if bytes == 0 { 0 } else { bytes + rows * PLACE_BYTES }
}

/// The rows with values in place of runs in those of these columns that are wanted: for who looks at arrays as they are.
pub(crate) fn without_runs(batch: RecordBatch, is_wanted: impl Fn(&str) -> bool) -> Result<RecordBatch, TableError> {
    let is_wanted = |field: &FieldRef| is_runs(field) && is_wanted(field.name());
    if !batch.schema_ref().fields().iter().any(&is_wanted) {
        return Ok(batch);
    }
    let (mut fields, mut arrays) = (batch.schema_ref().fields().to_vec(), batch.columns().to_vec());
    for (field, array) in fields.iter_mut().zip(&mut arrays).filter(|(field, _)| is_wanted(field)) {
        *array = unpacked(array)?;
        *field = Arc::new(field.as_ref().clone().with_data_type(array.data_type().clone()));
    }
    let schema = Arc::new(Schema::new_with_metadata(fields, batch.schema_ref().metadata().clone()));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
}

fn is_runs(field: &FieldRef) -> bool {
    matches!(field.data_type(), DataType::RunEndEncoded(..))
}

/// What is known of a column that folders are in each split of a file, which has so many rows; one, where nobody says it.
pub(crate) fn folder_statistics(value: &ArrayRef, rows: &[Option<u64>]) -> Result<RowGroupStatistics, ArrowError> {
    let all = take(value.as_ref(), &UInt32Array::from(vec![0; rows.len()]), None)?;
    let nulls = rows.iter().map(|rows| if value.is_null(0) { rows.unwrap_or(1) } else { 0 });
    Ok(RowGroupStatistics { least: all.clone(), greatest: all, nulls: UInt64Array::from_iter_values(nulls) })
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_schema::TimeUnit;

    use super::*;

    fn types(files: &[(&str, usize)], said: &NamedTypes) -> Result<NamedTypes, String> {
        let files = files.iter().map(|(file, below)| (Path::new(file), *below));
        folder_types(files, said).map_err(|error| error.to_string())
    }

    fn type_of(values: &[&str]) -> DataType {
        let files: Vec<_> = values.iter().map(|value| (format!("in/a={value}/x.csv"), 1)).collect();
        let files: Vec<_> = files.iter().map(|(file, below)| (file.as_str(), *below)).collect();
        types(&files, &Vec::new()).unwrap().remove(0).1
    }

    #[test]
    fn types_are_those_that_all_values_have() {
        assert_eq!(type_of(&["1", "-20", "__HIVE_DEFAULT_PARTITION__"]), DataType::Int64);
        assert_eq!(type_of(&["1", "01"]), DataType::Utf8);
        assert_eq!(type_of(&["1", ""]), DataType::Utf8);
        assert_eq!(type_of(&["2024-01-31", "1970-01-01"]), DataType::Date32);
        assert_eq!(type_of(&["1.5", "2"]), DataType::Utf8);
        assert_eq!(type_of(&["true", "false"]), DataType::Boolean);
        // As the type they would be one value.
        for two in [["true", "TRUE"], ["0", "-0"], ["2024-01-01 10%3A00", "2024-01-01 10%3A00%3A00"], ["1.10", "1.1"]] {
            assert_eq!(type_of(&two), DataType::Utf8, "{two:?}");
        }
        assert_eq!(type_of(&["2024-01-31 10%3A00%3A00"]), DataType::Timestamp(TimeUnit::Microsecond, None));
        assert_eq!(type_of(&["__HIVE_DEFAULT_PARTITION__"]), DataType::Utf8);
        let said = vec![("b".to_owned(), DataType::Float64)];
        let found = types(&[("in/a=x/b=1/c/x.csv", 3), ("in/a=y/b=2.5/x.csv", 2)], &said).unwrap();
        assert_eq!(found, [("a".to_owned(), DataType::Utf8), ("b".to_owned(), DataType::Float64)]);
        // What was named has no folders that count.
        assert_eq!(types(&[("in/a=x/x.csv", 0), ("b=1/in/y.csv", 1)], &said).unwrap(), []);
    }

    #[test]
    fn folders_of_other_columns_are_refused_with_both_places() {
        let error = types(&[("in/a=1/x.csv", 1), ("in/b=1/y.csv", 1)], &Vec::new()).unwrap_err();
        assert!(
            error.starts_with("in/b=1/y.csv: it is in folders of columns b, and in/a=1/x.csv in folders of columns a:"),
            "{error}"
        );
        let error = types(&[("in/x.csv", 0), ("in/b=1/y.csv", 1)], &Vec::new()).unwrap_err();
        assert!(error.contains("in/x.csv in no folder of a column") && error.contains("--hive false"), "{error}");
        assert!(types(&[("a=1/A=2/x.csv", 2)], &Vec::new()).unwrap_err().contains("two of its folders"));
        assert!(types(&[("a=%FF/x.csv", 1)], &Vec::new()).unwrap_err().contains("no UTF-8"));
        let said = vec![("a".to_owned(), DataType::Int64)];
        let error = folder_columns(Path::new("in/a=x/y.csv"), 1, &said).unwrap_err().to_string();
        assert!(error.contains("in/a=x/y.csv") && error.contains("column a is \"x\", which is no int64"), "{error}");
    }

    #[test]
    fn all_rows_of_a_file_have_what_its_folders_say() {
        let of = |name: &str, of: DataType| (name.to_owned(), of);
        let types = vec![of("n", DataType::Int64), of("city", DataType::Utf8), of("day", DataType::Date32)];
        let file = Path::new("in/n=7/city=a%2Fb/day=__HIVE_DEFAULT_PARTITION__/x.csv");
        let columns = folder_columns(file, 3, &types).unwrap();
        let ids: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let batch = without_runs(with_folders(batch, &columns).unwrap(), |_| true).unwrap();
        let names: Vec<_> = batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!((batch.num_rows(), names), (3, ["id", "n", "city", "day"].map(str::to_owned).to_vec()));
        assert_eq!(batch.column(1).as_primitive::<arrow_array::types::Int64Type>().values(), &[7, 7, 7]);
        assert!(batch.column(2).as_string::<i32>().iter().all(|city| city == Some("a/b")));
        assert_eq!(batch.column(3).null_count(), 3);
        let said = folder_statistics(&columns[2].1, &[Some(5), None]).unwrap();
        assert_eq!(said.nulls.values(), &[5, 1]);
    }

    #[test]
    fn values_in_place_of_runs_take_no_more_memory_than_is_said_and_other_runs_stay() {
        let text = "x".repeat(200);
        let columns = ["city", "own"].map(|name| {
            let field = Arc::new(Field::new(name, DataType::Utf8, true));
            (field, one_value(&DataType::Utf8, Some(&text)).unwrap())
        });
        let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10_000));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let batch = with_folders(batch, &columns.to_vec()).unwrap();
        let is_folder = |name: &str| name == "city";
        let said = run_bytes(&batch, is_folder);
        assert_eq!(run_bytes(&batch, |_| false), 0);
        let unpacked = without_runs(batch.clone(), is_folder).unwrap();
        assert_eq!(*unpacked.column(1).data_type(), DataType::Utf8);
        assert_eq!(unpacked.column(2).data_type(), batch.column(2).data_type());
        let takes = unpacked.column(1).get_buffer_memory_size() as u64;
        assert!(takes >= 2_000_000 && takes <= said && said <= takes + 10_000 * (PLACE_BYTES + 8), "{takes} of {said}");
    }
}
