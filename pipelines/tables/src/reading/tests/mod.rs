mod walk;

use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::ColumnIndexBuilder;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;

use exobus_store::RowHash;

use super::*;
use crate::RowHasher;
use crate::samples::{MemoryFile, Seeded, with_metadata};
use crate::sources::{FixedBudget, InputFormat, MemoryBudget, Place, SourceError};

/// A table whose columns are about in order, so that row groups differ, with nulls and NaN.
fn table(seed: u64, rows: usize) -> RecordBatch {
    let mut random = Seeded(seed);
    let mut about = |row: usize| (row / 7 + random.below(5)) as i64 - 10;
    let ids = Int64Array::from_iter_values(0..rows as i64);
    let ints: Int64Array = (0..rows).map(|row| Some(about(row)).filter(|value| value % 11 != 0)).collect();
    let floats: Float64Array = (0..rows)
        .map(|row| match about(row) {
            0 => Some(-0.0),
            value if value % 13 == 0 => None,
            value if value % 17 == 0 => Some(f64::NAN),
            value => Some(value as f64 / 2.0),
        })
        .collect();
    let texts: StringArray = (0..rows).map(|row| Some(format!("{:03}", about(row))).filter(|_| row % 19 > 3)).collect();
    let mut lists = ListBuilder::new(Int64Builder::new());
    for row in 0..rows {
        (0..row % 4).for_each(|element| lists.values().append_value((row + element) as i64));
        lists.append(row % 5 > 0);
    }
    let rare: Int64Array = (0..rows).map(|row| (row / 50 % 2 == 0).then_some(row as i64)).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(ids)),
        ("int", Arc::new(ints)),
        ("float", Arc::new(floats)),
        ("text", Arc::new(texts)),
        ("rare", Arc::new(rare)),
        ("list", Arc::new(lists.finish())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

/// In row groups of so many rows, and pages of 400.
fn written(batch: &RecordBatch, group_rows: usize) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_data_page_row_count_limit(400)
        .set_write_batch_size(400)
        .set_compression(parquet::basic::Compression::GZIP(Default::default()))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn fixed() -> (Arc<FixedBudget>, Arc<dyn MemoryBudget>) {
    let fixed = Arc::new(FixedBudget::new(256 << 20));
    (fixed.clone(), fixed)
}

/// What is read of a file, as the numbers of rows in `id`, and how many splits were left out.
fn read(bytes: &[u8], options: &ReadOptions, table: &Schema, leaves_out: bool) -> (Vec<i64>, usize) {
    let (ids, left_out, _) = read_and_hashed(bytes, options, table, leaves_out);
    (ids, left_out)
}

/// The same, and the sum of the hashes of rows.
fn read_and_hashed(
    bytes: &[u8],
    options: &ReadOptions,
    table: &Schema,
    leaves_out: bool,
) -> (Vec<i64>, usize, RowHash) {
    let (used, budget) = fixed();
    let reading = Reading::new(options.clone(), table).unwrap();
    let columns = Arc::new(options.selected(table, &[]).unwrap());
    let reader = TableReader::new(&reading, &columns, &budget).unwrap();
    let file = reader.open(MemoryFile::input("t.parquet", bytes.to_vec()), InputFormat::Parquet).unwrap();
    let splits = file.source().splits().unwrap();
    let rows: Vec<Option<u64>> = splits.iter().map(|split| split.rows).collect();
    let statistics = FileStatistics::of(file.source(), options, &budget).unwrap();
    let left_out = match &options.filter {
        Some(filter) if leaves_out => statistics.left_out(&filter.bind(table).unwrap(), table, &rows),
        _ => vec![false; rows.len()],
    };
    let hasher = RowHasher::new(&columns).unwrap();
    let (mut ids, mut hash) = (Vec::new(), RowHash::default());
    for split in splits.iter().filter(|split| !left_out[split.index]) {
        for rows in file.read(ToRead::whole(split.index, None), ALL_ROWS).unwrap() {
            let rows = rows.unwrap();
            hash += hasher.sum(&conformed(&rows.batch, &columns).unwrap()).unwrap();
            ids.extend(rows.batch["id"].as_primitive::<Int64Type>().values());
        }
    }
    drop((file, statistics));
    assert_eq!(used.used_bytes(), 0);
    (ids, left_out.iter().filter(|is_left_out| **is_left_out).count(), hash)
}

fn options(condition: &str) -> ReadOptions {
    ReadOptions { filter: Some(condition.parse().unwrap()), ..ReadOptions::default() }
}

#[test]
fn row_groups_that_no_row_can_match_are_left_out_and_no_others() {
    let batch = table(7, 1000);
    let bytes = written(&batch, 100);
    for (condition, left_out) in [
        ("id < 250", 7),
        ("id >= 250 and id < 260", 9),
        ("id = 2000", 10),
        ("not id < 250", 2),
        ("id in (5, 15, 995)", 8),
        ("id between 120 and 130 or id = 999", 8),
        ("id is null", 10),
        ("id is not null", 0),
        ("text like '0%' and id < 100", 9),
        ("text like '9%'", 10),
        ("float < -100", 10),
        // A NaN is above all numbers, and no statistics have it.
        ("float > 100000", 0),
        ("nothing = 3", 10),
        ("nothing is null", 0),
        ("id = int", 0),
        ("null", 10),
        ("false or id < 100", 9),
    ] {
        let mut fields = batch.schema().fields().to_vec();
        // Another file of the table has it.
        fields.push(Arc::new(Field::new("nothing", DataType::Int64, true)));
        let table = Schema::new(fields);
        let (ids, skipped) = read(&bytes, &options(condition), &table, true);
        assert_eq!(skipped, left_out, "{condition}");
        let (all_ids, none) = read(&bytes, &options(condition), &table, false);
        assert_eq!((&ids, none), (&all_ids, 0), "{condition}");
    }
}

#[test]
fn values_compare_as_the_table_has_them_whatever_the_file_has() {
    // The file has a column of 16 bits and one of decimals, the table one of floats and a wider one.
    let small: ArrayRef = Arc::new(arrow_array::Int16Array::from(vec![Some(1), Some(2), None, Some(3)]));
    let cost = arrow_array::Decimal128Array::from(vec![100, 250, 300, 310]).with_precision_and_scale(10, 2).unwrap();
    let id: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 2, 3]));
    let columns = [("small", small), ("cost", Arc::new(cost) as ArrayRef), ("id", id)];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap();
    let bytes = written(&batch, 2);
    let fields = [("id", DataType::Int64), ("cost", DataType::Decimal128(20, 4)), ("small", DataType::Float32)];
    let table = Schema::new(fields.map(|(name, of)| Field::new(name, of, true)).to_vec());
    for (condition, expected, skipped) in
        [("small >= 1.5 and cost < 3.0500", vec![1], 0), ("cost <= 2.5", vec![0, 1], 1), ("small < 3", vec![0, 1], 1)]
    {
        let (ids, left_out) = read(&bytes, &options(condition), &table, true);
        assert_eq!((ids, left_out), (expected, skipped), "{condition}");
    }
}

#[test]
fn columns_whose_values_decide_nothing_may_be_named() {
    let batch = table(3, 300);
    let bytes = written(&batch, 100);
    let none = Field::new("none", DataType::Null, true);
    let fields = batch.schema().fields().iter().cloned().chain([Arc::new(none)]).collect::<Vec<_>>();
    for condition in [
        "int = null or id < 2",
        "none is null and id < 2",
        "none = 3 or text = null or id < 2",
        "none < rare or id < 2",
    ] {
        let (ids, _) = read(&bytes, &options(condition), &Schema::new(fields.clone()), true);
        assert_eq!(ids, [0, 1], "{condition}");
    }
}

#[test]
fn only_columns_that_are_selected_come_and_the_condition_sees_others() {
    let batch = table(3, 300);
    let bytes = written(&batch, 100);
    let schema = batch.schema();
    let select = Some(vec!["text".to_owned(), "id".to_owned()]);
    let of = ReadOptions { select, ..options("rare >= 110 and rare < 115") };
    let (ids, left_out) = read(&bytes, &of, &schema, true);
    assert_eq!((ids, left_out), (vec![110, 111, 112, 113, 114], 2));
    let (_, budget) = fixed();
    let reading = Reading::new(of.clone(), &schema).unwrap();
    let columns = Arc::new(of.selected(&schema, &[]).unwrap());
    let reader = TableReader::new(&reading, &columns, &budget).unwrap();
    let file = reader.open(MemoryFile::input("t.parquet", bytes), InputFormat::Parquet).unwrap();
    let rows = file.read(ToRead::whole(1, None), ALL_ROWS).unwrap().next().unwrap().unwrap();
    let names: Vec<&str> = rows.batch.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["id", "text"]);
    // Texts of a few rows do not keep the page that they were in.
    let memory = rows.batch["text"].get_array_memory_size();
    assert!(memory < 2_000, "{memory} bytes for five short texts");
}

/// The file with other sums at the end of all pages that have none of these rows of their row group, so that they cannot be unpacked.
fn without_pages(bytes: &[u8], kept: std::ops::Range<usize>) -> Vec<u8> {
    use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    reader.try_parse(&bytes::Bytes::from(bytes.to_vec())).unwrap();
    let metadata = reader.finish().unwrap();
    let mut broken = bytes.to_vec();
    for columns in metadata.offset_index().unwrap() {
        for (column, pages) in columns.iter().enumerate() {
            let pages = pages.page_locations();
            for (at, page) in pages.iter().enumerate() {
                let end = pages.get(at + 1).map_or(usize::MAX, |next| next.first_row_index as usize);
                // Pages of lists are not passed over by the library: it counts their rows.
                if columns.len() - 1 != column && (end <= kept.start || page.first_row_index as usize >= kept.end) {
                    let body = page.offset as usize + page.compressed_page_size as usize;
                    broken[body - 8..body].fill(0xff);
                }
            }
        }
    }
    broken
}

#[test]
fn pages_that_no_row_can_match_are_passed_over_in_all_columns() {
    let batch = table(5, 12_000);
    let bytes = without_pages(&written(&batch, 12_000), 6_000..6_400);
    for condition in ["id between 6010 and 6011", "id > 6005 and (id < 6007 or id = -1 or nothing is not null)"] {
        let mut fields = batch.schema().fields().to_vec();
        fields.push(Arc::new(Field::new("nothing", DataType::Int64, true)));
        let (ids, _) = read(&bytes, &options(condition), &Schema::new(fields), true);
        assert!(!ids.is_empty(), "{condition}");
    }
    // Rows of a page in the middle, and of others that are too near to it to be passed over.
    let kept = without_pages(&written(&batch, 12_000), 2_000..4_000);
    let (ids, ..) = read(&kept, &options("id in (2000, 2800, 3999)"), &batch.schema(), true);
    assert_eq!(ids, [2000, 2800, 3999]);
    let far = options("id in (1, 2000, 9000, 11999)");
    let (ids, _) = read(&written(&batch, 12_000), &far, &batch.schema(), true);
    assert_eq!(ids, [1, 2000, 9000, 11_999]);
    // Who reads pages that are broken says so.
    let (_, budget) = fixed();
    let reading = Reading::new(options("int = 100000 or rare = 6001"), &batch.schema()).unwrap();
    let reader = TableReader::new(&reading, &batch.schema(), &budget).unwrap();
    let file = reader
        .open(MemoryFile::input("t.parquet", without_pages(&written(&batch, 12_000), 0..1)), InputFormat::Parquet);
    let error = file
        .unwrap()
        .read(ToRead::whole(0, None), ALL_ROWS)
        .unwrap()
        .find_map(Result::err)
        .expect("a page that is broken");
    assert!(error.to_string().contains("t.parquet is damaged at row group 0"), "{error}");
}

/// The file whose index of pages says that all values of its first column are null, in its only row group of so many rows.
fn with_pages_of_nulls(bytes: &[u8], rows: i64) -> Vec<u8> {
    with_metadata(bytes, |metadata| {
        let pages = metadata.offset_index().unwrap()[0][0].page_locations();
        let firsts: Vec<i64> = pages.iter().map(|page| page.first_row_index).chain([rows]).collect();
        let mut lie = ColumnIndexBuilder::new(parquet::basic::Type::INT64);
        firsts.windows(2).for_each(|rows| lie.append(true, Vec::new(), Vec::new(), rows[1] - rows[0]));
        let mut said = metadata.column_index().unwrap().clone();
        said[0][0] = lie.build().unwrap();
        metadata.into_builder().set_column_index(Some(said)).build()
    })
}

/// Of a column that may have them they are believed, as of every reader.
#[test]
fn pages_that_say_that_a_column_without_nulls_has_them_are_read() {
    for (is_nullable, expected) in [(false, vec![5000, 5001]), (true, Vec::new())] {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..6_000));
        let batch = RecordBatch::try_from_iter_with_nullable([("id", ids, is_nullable)]).unwrap();
        let bytes = with_pages_of_nulls(&written(&batch, 6_000), 6_000);
        let (ids, _) = read(&bytes, &options("id between 5000 and 5001"), &batch.schema(), true);
        assert_eq!(ids, expected);
    }
}

fn condition() -> impl Strategy<Value = String> {
    let comparison = || proptest::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]);
    let one = prop_oneof![
        (comparison(), -20i64..60).prop_map(|(is, with)| format!("int {is} {with}")),
        (comparison(), -20i64..60).prop_map(|(is, with)| format!("float {is} {with}e-1")),
        comparison().prop_map(|is| format!("float {is} 'nan'")),
        (comparison(), -20i64..60).prop_map(|(is, with)| format!("text {is} '{with:03}'")),
        (0u8..6).prop_map(|digit| format!("text like '0{digit}%'")),
        (-20i64..60, -20i64..60).prop_map(|(one, other)| format!("int in ({one}, {other}, null)")),
        proptest::sample::select(vec!["int", "float", "text", "rare"]).prop_map(|name| format!("{name} is null")),
        (comparison(), 0i64..400).prop_map(|(is, with)| format!("rare {is} {with}")),
    ];
    one.prop_recursive(3, 12, 3, |inside| {
        prop_oneof![
            inside.clone().prop_map(|of| format!("not ({of})")),
            (inside.clone(), inside.clone()).prop_map(|(one, other)| format!("({one}) and ({other})")),
            (inside.clone(), inside).prop_map(|(one, other)| format!("({one}) or ({other})")),
        ]
    })
}

/// Where in a file the column indexes and offset indexes of pages lie.
fn indexes(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (_, budget) = fixed();
    let reader = TableReader::new(&Reading::default(), &Arc::new(Schema::empty()), &budget).unwrap();
    let file = reader.open(MemoryFile::input("t.parquet", bytes.to_vec()), InputFormat::Parquet).unwrap();
    let crate::sources::Source::Parquet(file) = file.source() else { unreachable!("a file of Parquet") };
    let range =
        |at: Option<i64>, bytes: Option<i32>| at.unwrap() as usize..at.unwrap() as usize + bytes.unwrap() as usize;
    let chunks = file.metadata().row_groups().iter().flat_map(|group| group.columns());
    chunks
        .flat_map(|chunk| {
            let of_columns = range(chunk.column_index_offset(), chunk.column_index_length());
            [of_columns, range(chunk.offset_index_offset(), chunk.offset_index_length())]
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn indexes_of_pages_that_are_damaged_never_add_a_row_and_never_end_the_process(
        seed in any::<u64>(), condition in condition(), turned in proptest::collection::vec(any::<u64>(), 1..4)
    ) {
        let batch = table(seed % 4, 2_000);
        let mut bytes = written(&batch, 1_000);
        let indexes = indexes(&bytes);
        for random in turned {
            let index = indexes[random as usize % indexes.len()].clone();
            bytes[index.start + (random >> 16) as usize % index.len()] ^= 1 << (random >> 60 & 7);
        }
        let (_, budget) = fixed();
        let reading = Reading::new(options(&condition), &batch.schema()).unwrap();
        let reader = TableReader::new(&reading, &batch.schema(), &budget).unwrap();
        let file = reader.open(MemoryFile::input("t.parquet", bytes), InputFormat::Parquet).unwrap();
        let mask = options(&condition).filter.unwrap().bind(&batch.schema()).unwrap().evaluate(&batch).unwrap();
        for split in 0..2 {
            for rows in file.read(ToRead::whole(split, None), ALL_ROWS).unwrap() {
                match rows {
                    Ok(rows) => {
                        let ids = rows.batch["id"].as_primitive::<Int64Type>();
                        prop_assert!(ids.values().iter().all(|id| mask.value(*id as usize)), "{}", condition);
                    }
                    // A page that is read has other rows than the index says.
                    Err(SourceError::Damaged { place: Place::Page(..), .. }) => break,
                    Err(error) => prop_assert!(false, "{}", error),
                }
            }
        }
    }

    #[test]
    fn rows_are_the_same_with_and_without_what_footers_say(seed in any::<u64>(), condition in condition()) {
        let batch = table(seed, 4_000);
        let bytes = written(&batch, 2_000);
        let (ids, _, hash) = read_and_hashed(&bytes, &options(&condition), &batch.schema(), true);
        let (all_ids, _) = read(&bytes, &options(&condition), &batch.schema(), false);
        prop_assert_eq!(&ids, &all_ids, "{}", condition);
        // And those that the condition is true for.
        let mask = options(&condition).filter.unwrap().bind(&batch.schema()).unwrap().evaluate(&batch).unwrap();
        let expected: Vec<i64> = mask.values().set_indices().map(|row| row as i64).collect();
        prop_assert_eq!(ids, expected, "{}", condition);
        let kept = arrow_select::filter::filter_record_batch(&batch, &mask).unwrap();
        prop_assert_eq!(hash, RowHasher::new(&batch.schema()).unwrap().sum(&kept).unwrap(), "{}", condition);
    }
}
