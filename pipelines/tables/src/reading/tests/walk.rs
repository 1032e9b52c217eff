//! Some of the rows of a file, and a file that changes.

use std::ops::Range;

use super::*;
use crate::sources::Source;

#[test]
fn rows_are_those_that_are_wanted_of_splits_one_behind_the_other() {
    let batch = table(2, 1_000);
    let bytes = written(&batch, 300);
    let (_, budget) = fixed();
    for condition in [None, Some("int >= 10")] {
        let of = condition.map_or_else(ReadOptions::default, options);
        let (all, _) = read(&bytes, &of, &batch.schema(), false);
        let reading = Reading::new(of, &batch.schema()).unwrap();
        let reader = TableReader::new(&reading, &batch.schema(), &budget).unwrap();
        let file = reader.open(MemoryFile::input("t.parquet", bytes.clone()), InputFormat::Parquet).unwrap();
        for (skip, rows) in [(0, 0), (0, 1), (17, 3), (50, 400), (20, u64::MAX), (0, u64::MAX)] {
            let mut wanted = Wanted { skip, rows };
            let mut found = Vec::<i64>::new();
            for rows in file.rows((0..4).map(|split| ToRead::whole(split, None)), &mut wanted) {
                let rows = rows.unwrap();
                let ids = rows.batch["id"].as_primitive::<Int64Type>();
                let all_of_split = all.iter().filter(|id| **id / 300 == rows.split as i64);
                let from = rows.first_row as usize;
                assert!(
                    all_of_split.skip(from).take(ids.len()).eq(ids.values()),
                    "{condition:?} {skip} {rows}",
                    rows = rows.first_row
                );
                found.extend(ids.values());
            }
            let expected: Vec<i64> =
                all.iter().skip(skip as usize).take(usize::try_from(rows).unwrap_or(usize::MAX)).copied().collect();
            assert_eq!(found, expected, "{condition:?}, {rows} rows from {skip} on");
            assert_eq!(wanted.rows, rows - found.len() as u64);
        }
    }
}

/// Runs of a row group are its rows, each once and in their order, whatever condition they have to meet and how many are read together; no page of another run is unpacked for them, and no batch has rows of two.
#[test]
fn rows_of_runs_are_those_of_the_row_group() {
    let batch = table(3, 12_000);
    let whole = written(&batch, 12_000);
    let (used, budget) = fixed();
    let flat = Arc::new(batch.schema().project(&[0, 1, 2, 3, 4]).unwrap());
    for condition in [None, Some("int >= 300 and rare is null"), Some("id < 5000 or id >= 7500"), Some("id < 100")] {
        let of = condition.map_or_else(ReadOptions::default, options);
        let (all, _) = read(&whole, &of, &batch.schema(), false);
        let reading = Reading::new(of, &batch.schema()).unwrap();
        let reader = TableReader::new(&reading, &flat, &budget).unwrap();
        let open = |bytes| reader.open(MemoryFile::input("t.parquet", bytes), InputFormat::Parquet).unwrap();
        let file = open(whole.clone());
        let Source::Parquet(parquet) = file.source() else { panic!("it is Parquet") };
        let begins = parquet.runs(0, (&[0, 1, 2, 3, 4], 1_000), &budget).unwrap();
        assert_eq!(begins, (0..10).map(|run| run * 1_200).collect::<Vec<u64>>(), "pages have 400 rows");
        assert_eq!(parquet.runs(0, (&[1, 5], 6_001), &budget).unwrap(), [0], "there is no room for two");
        assert_eq!(parquet.runs(0, (&[5], 1_000), &budget).unwrap(), [0], "pages of lists say nothing");
        let runs: Vec<Range<u64>> = begins.iter().map(|from| *from..from + 1_200).collect();
        let read = |runs: &[Range<u64>]| {
            let (mut ids, mut next) = (Vec::<i64>::new(), 0);
            let file = open(without_pages(&whole, runs[0].start as usize..runs[runs.len() - 1].end as usize));
            for rows in file.read(ToRead { split: 0, state: None, runs: runs.to_vec() }, ALL_ROWS).unwrap() {
                let rows = rows.unwrap();
                let count = rows.batch.num_rows();
                if count > 0 {
                    let run = runs.iter().find(|run| run.contains(&rows.row_of_split(0))).unwrap();
                    assert!(run.contains(&rows.row_of_split(count - 1)), "{condition:?}: a batch is of one run");
                    assert!(rows.first_row >= next.max(run.start), "{condition:?}: places rise from run to run");
                    next = rows.first_row + count as u64;
                    assert!(next <= run.end, "{condition:?}: rows of a run have places of it");
                }
                ids.extend(rows.batch["id"].as_primitive::<Int64Type>().values());
            }
            ids
        };
        for together in [1, 3, 10] {
            let ids: Vec<i64> = runs.chunks(together).flat_map(read).collect();
            assert_eq!(ids, all, "{condition:?}, {together} at a time");
        }
        let (some, others): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| run.start / 1_200 % 3 == 0);
        let mut ids = [read(&some), read(&others)].concat();
        ids.sort_unstable();
        assert_eq!(ids, all, "{condition:?}, with others between them");
    }
    assert_eq!(used.used_bytes(), 0);
}

/// Pages with none of the rows are not unpacked, and not even read where they are large.
#[test]
fn pages_without_a_row_that_is_wanted_are_passed_over() {
    let batch = table(5, 12_000);
    let whole = written(&batch, 12_000);
    let (_, budget) = fixed();
    // Lists are unpacked: nobody else counts their rows.
    let flat = Arc::new(batch.schema().project(&[0, 1, 2, 3, 4]).unwrap());
    let reader = TableReader::new(&Reading::default(), &flat, &budget).unwrap();
    for (skip, rows, kept) in
        [(6_000, 400, 6_000..6_400), (6_399, 2, 6_000..6_800), (0, 1, 0..400), (11_900, 100, 11_600..12_000)]
    {
        let broken = MemoryFile::input("t.parquet", without_pages(&whole, kept));
        let file = reader.open(broken, InputFormat::Parquet).unwrap();
        let mut wanted = Wanted { skip, rows };
        let mut ids = Vec::new();
        for rows in file.rows(std::iter::once(ToRead::whole(0, None)), &mut wanted) {
            let rows = rows.unwrap();
            assert_eq!(rows.first_row, skip + ids.len() as u64);
            ids.extend(rows.batch["id"].as_primitive::<Int64Type>().values().to_vec());
        }
        assert!(ids.into_iter().eq(skip as i64..(skip + rows) as i64), "{rows} rows from {skip} on");
    }
}

/// Bytes that are read of a file for pieces of it are about those of the file, and not those of the file for each piece.
#[test]
fn a_row_group_that_is_read_in_pieces_is_read_about_once() {
    let rows = 200_000_i64;
    let mut random = Seeded(4);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|_| random.next() as i64)));
    let batch = RecordBatch::try_from_iter([("number", numbers)]).unwrap();
    let properties = WriterProperties::builder()
        .set_data_page_row_count_limit(10_000)
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(rows as usize))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    let bytes = writer.into_inner().unwrap();
    let length = bytes.len() as u64;
    let (input, read) = MemoryFile::counted("t.parquet", bytes);
    let (_, budget) = fixed();
    let reader = TableReader::new(&Reading::default(), &batch.schema(), &budget).unwrap();
    for piece in 0..20 {
        let file = reader.open(input.clone(), InputFormat::Parquet).unwrap();
        let mut wanted = Wanted { skip: piece * 10_000, rows: 10_000 };
        let count: usize = file
            .rows(std::iter::once(ToRead::whole(0, None)), &mut wanted)
            .map(|rows| rows.unwrap().batch.num_rows())
            .sum();
        assert_eq!(count, 10_000);
    }
    let read = read.load(std::sync::atomic::Ordering::Relaxed);
    assert!(read < 3 * length, "{read} bytes of {length} were read");
}

#[test]
fn a_file_that_changes_is_refused_however_few_of_its_rows_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = (folder.path().join("t.parquet"), written(&table(2, 1_000), 300));
    let location = exobus_files::Location::from(&*path);
    let (_, budget) = fixed();
    let reader = TableReader::new(&Reading::default(), &table(2, 1).schema(), &budget).unwrap();
    for rows in [0, 1, 300, 301, u64::MAX] {
        std::fs::write(&path, &bytes).unwrap();
        let input = crate::sources::InputFile::open(&*location.system().unwrap(), &location).unwrap();
        let file = reader.open(input, InputFormat::Parquet).unwrap();
        let mut wanted = Wanted { skip: 0, rows };
        let mut read = file.rows((0..4).map(|split| ToRead::whole(split, None)), &mut wanted);
        assert!(rows == 0 || read.next().unwrap().is_ok());
        // What is read is what was there, and one byte more stands behind it.
        std::fs::write(&path, [&bytes[..], b"x"].concat()).unwrap();
        let error = read.find_map(Result::err).expect("the file has changed").to_string();
        assert!(error.contains("t.parquet") && error.contains("changed"), "{error}");
        assert!(read.next().is_none());
    }
}

/// Who reads may stop between batches of which no row stays, and none of those takes memory.
#[test]
fn batches_of_which_no_row_stays_are_seen() {
    let batch = table(3, 1_000);
    let (fixed, budget) = fixed();
    let reading = Reading::new(options("text like '%x%'"), &batch.schema()).unwrap();
    let reader = TableReader::new(&reading, &batch.schema(), &budget).unwrap();
    let file = reader.open(MemoryFile::input("t.parquet", written(&batch, 300)), InputFormat::Parquet).unwrap();
    let before = fixed.used_bytes();
    let mut wanted = Wanted { skip: 2, rows: 10 };
    let read: Vec<_> =
        file.rows((0..4).map(|split| ToRead::whole(split, None)), &mut wanted).map(Result::unwrap).collect();
    assert!(read.len() >= 4 && read.iter().all(|rows| rows.batch.num_rows() == 0));
    assert_eq!((fixed.used_bytes(), wanted), (before, Wanted { skip: 0, rows: 10 }));
}
