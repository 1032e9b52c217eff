//! Tables whose files are looked at in chunks of any number.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};

use super::*;
use crate::reading::ReadOptions;
use crate::sinks::{ParquetOptions, ParquetSink};
use crate::sources::{FixedBudget, MemoryBudget};

/// The table in a folder, as it is described in chunks of so many files each time: encoded, or what is wrong with it.
fn described(folder: &Path, reading: &ReadOptions, chunk_files: usize) -> Result<Vec<u8>, String> {
    described_with(folder, reading, None, chunk_files)
}

/// The same of a table of which blocks are wanted, where that is said.
fn described_with(
    folder: &Path,
    reading: &ReadOptions,
    blocks: Option<Blocks>,
    chunk_files: usize,
) -> Result<Vec<u8>, String> {
    let mut options = NodeOptions::alone(3, 128 << 20);
    let spill = tempfile::tempdir().unwrap();
    options.store.spill_dirs = vec![spill.path().to_owned()];
    let rewrite = Rewrite { reading: reading.clone(), ..Rewrite::new(vec![folder.to_owned()], "out".into()) };
    let program = async move |futures: Futures| {
        let key = [KeyColumn::rising("id")];
        let described = Described::in_chunks(
            &futures,
            &rewrite,
            WantedOf { key: &key, blocks: blocks.as_ref(), ..WantedOf::default() },
            chunk_files,
        )
        .await?;
        rmp_serde::to_vec_named(&described).map_err(JobError::program)
    };
    let node = Node::start(options).unwrap();
    let job = node.run(JobId::new(), "describe", None, program);
    let result = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(job).0;
    node.stop();
    result.map_err(|error| {
        // Behind that is which task and attempt it was.
        let text = error.to_string();
        text.split(" (table.").next().unwrap_or_default().to_owned()
    })
}

/// The same of chunks of every number.
fn described_alike(folder: &Path, reading: &ReadOptions) -> Result<Vec<u8>, String> {
    let whole = described(folder, reading, usize::MAX);
    for chunk_files in [1, 2, 3, 5, 8] {
        assert!(described(folder, reading, chunk_files) == whole, "{chunk_files} files in a chunk");
    }
    whole
}

fn write(folder: &Path, number: usize, columns: Vec<(&str, ArrayRef)>) {
    let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(64 << 20));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let options = ParquetOptions { group_rows: 2, ..ParquetOptions::default() };
    let mut sink = ParquetSink::new(Vec::new(), &batch.schema(), &options, &budget).unwrap();
    sink.write(&batch).unwrap();
    fs::write(folder.join(format!("{number:02}.parquet")), sink.finish().unwrap().0).unwrap();
}

fn narrow(from: i32) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(from..from + 4))
}

fn wide(from: i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(from..from + 4))
}

fn words() -> ArrayRef {
    Arc::new(StringArray::from_iter_values(["a", "b", "c", "d"]))
}

#[test]
fn a_table_is_the_same_however_many_files_are_in_a_chunk() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..11 {
        let id = number as i32 * 4;
        match number {
            0..3 => write(folder.path(), number, vec![("id", narrow(id)), ("name", words())]),
            3..5 | 9 => write(folder.path(), number, vec![("more", words()), ("id", wide(id.into()))]),
            _ => write(folder.path(), number, vec![("id", narrow(id)), ("price", wide(0))]),
        }
    }
    fs::write(folder.path().join("12.csv"), "id,name\n100,x\n101,y\n").unwrap();
    let all = described_alike(folder.path(), &ReadOptions::default()).unwrap();
    let reading = ReadOptions { filter: Some("id >= 18 and price is null".parse().unwrap()), ..ReadOptions::default() };
    let filtered = described_alike(folder.path(), &reading).unwrap();
    let decode = |bytes: &[u8]| rmp_serde::from_slice::<Described>(bytes).unwrap();
    let read = |bytes: &[u8]| decode(bytes).splits().filter(|split| !split.is_left_out).count();
    // Of file 4 the second row group, those of file 9, and the text, of which nothing is known.
    assert_eq!((decode(&all).files.len(), read(&all), read(&filtered)), (12, 23, 4));
}

/// Types are those that the first rows of a file show, wherever a block ends.
#[test]
fn text_of_which_blocks_are_wanted_is_cut_by_how_much_there_is_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let line = |id: usize| format!("{id},{}\n", if id == 9_000 { "2.5" } else { "2" });
    let text = "id,price\n".to_owned() + &(0..50_000).map(line).collect::<String>();
    (0..3).for_each(|number| fs::write(folder.path().join(format!("{number}.csv")), &text).unwrap());
    let described = |blocks: Option<Blocks>, chunk_files| -> Described {
        let encoded = described_with(folder.path(), &ReadOptions::default(), blocks, chunk_files).unwrap();
        rmp_serde::from_slice(&encoded).unwrap()
    };
    let splits = |of: &Described| of.files.iter().map(|file| file.splits.len()).collect::<Vec<_>>();
    let blocks = Blocks { run_rows: 25_000, columns: vec!["price".to_owned()] };
    let (batch, whole) = (described(None, usize::MAX), described(Some(blocks.clone()), usize::MAX));
    let count = text.len().div_ceil(64 << 10);
    assert!(count > 5, "{} bytes", text.len());
    assert_eq!((splits(&batch), splits(&whole)), (vec![1; 3], vec![count; 3]));
    assert_eq!((batch.reading.options.split_bytes, whole.reading.options.split_bytes), (None, Some(64 << 10)));
    assert!(whole.layout == batch.layout && splits(&described(Some(blocks), 1)) == splits(&whole));
    for (text_bytes, of_block) in [(0, 64 << 10), (64_000 << 10, 64 << 10), (1_000 << 20, 1 << 20), (1 << 40, 64 << 20)]
    {
        assert_eq!(block_bytes(text_bytes), of_block, "{text_bytes}");
    }
}

#[test]
fn what_is_wrong_with_a_table_is_told_by_its_files_in_their_order() {
    // What each file has, and what is said.
    let (good, other, cut) = (Some(true), Some(false), None);
    for (files, said) in [
        (vec![good, good, good, other, cut, good], "01.parquet|03.parquet"),
        (vec![good, good, cut, other, good, cut], "02.parquet is damaged at its footer"),
        (vec![good, good, good, good, good, other], "05.parquet"),
        (vec![other, good, other, good, cut, good], "00.parquet|01.parquet"),
        (vec![cut, cut, cut, cut, cut, cut], "00.parquet is damaged at its footer"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for (number, file) in files.into_iter().enumerate() {
            // The type is that of the first file that has it.
            let id = if number == 0 { narrow(0) } else { wide(0) };
            match file {
                Some(true) => write(folder.path(), number, vec![("id", id)]),
                Some(false) => write(folder.path(), number, vec![("id", words())]),
                None => fs::write(folder.path().join(format!("{number:02}.parquet")), "PAR1 and no more").unwrap(),
            }
        }
        let error = described_alike(folder.path(), &ReadOptions::default()).unwrap_err();
        assert!(said.split('|').all(|place| error.contains(place)), "{said}: {error}");
    }
}

#[test]
fn what_is_asked_of_a_table_is_checked_when_all_of_its_files_are_known() {
    let folder = tempfile::tempdir().unwrap();
    (0..4).for_each(|number| write(folder.path(), number, vec![("id", narrow(0)), ("name", words())]));
    write(folder.path(), 4, vec![("price", wide(0))]);
    let with = |select: &[&str], filter: Option<&str>| ReadOptions {
        select: (!select.is_empty()).then(|| select.iter().map(|name| (*name).to_owned()).collect()),
        filter: filter.map(|text| text.parse().unwrap()),
        ..ReadOptions::default()
    };
    let error = described_alike(folder.path(), &with(&["id", "prize"], None)).unwrap_err();
    assert!(error.contains("no column prize; did you mean price?"), "{error}");
    let error = described_alike(folder.path(), &with(&["name"], None)).unwrap_err();
    assert!(error.contains("key column id is not selected"), "{error}");
    let error = described_alike(folder.path(), &with(&[], Some("prise > 1"))).unwrap_err();
    assert!(error.contains("prise"), "{error}");
    described_alike(folder.path(), &with(&["id"], Some("price > 1"))).unwrap();
}

#[test]
fn folders_are_columns_and_leave_files_of_any_format_out() {
    let folder = tempfile::tempdir().unwrap();
    for (number, city) in ["oslo", "rome", "__HIVE_DEFAULT_PARTITION__"].into_iter().enumerate() {
        let inside = folder.path().join(format!("n={number}/city={city}"));
        fs::create_dir_all(&inside).unwrap();
        write(&inside, number, vec![("id", wide(4 * number as i64))]);
        fs::write(inside.join("lines.csv"), "id\n1\n2\n").unwrap();
    }
    let described = |filter: Option<&str>| -> Described {
        let reading = ReadOptions { filter: filter.map(|text| text.parse().unwrap()), ..ReadOptions::default() };
        rmp_serde::from_slice(&described_alike(folder.path(), &reading).unwrap()).unwrap()
    };
    let all = described(None);
    let schema = crate::jobs::table::Table::decode(&all.layout).unwrap().schema;
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!((all.files.len(), names), (6, vec!["id", "n", "city"]));
    for (filter, folders) in [
        ("city = 'oslo' and n < 5", &["oslo"][..]),
        ("n >= 1", &["rome", "__HIVE_DEFAULT_PARTITION__"]),
        ("city is null or n = 0", &["oslo", "__HIVE_DEFAULT_PARTITION__"]),
        ("city <> 'oslo'", &["rome"]),
        ("id >= 0", &["oslo", "rome", "__HIVE_DEFAULT_PARTITION__"]),
    ] {
        for file in described(Some(filter)).files {
            let is_read = folders.iter().any(|city| file.path.to_string_lossy().contains(city));
            assert!(file.splits.iter().all(|split| split.is_left_out != is_read), "{filter}: {}", file.path.display());
        }
    }
    fs::write(folder.path().join("n=0/city=oslo/more.csv"), "id,n\n1,2\n").unwrap();
    let error = described_alike(folder.path(), &ReadOptions::default()).unwrap_err();
    assert!(error.contains("column n is in") && error.contains("more.csv, and the folders of"), "{error}");
}
