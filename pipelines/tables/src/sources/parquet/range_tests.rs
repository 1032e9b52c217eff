//! Some rows of a row group are those that they are among all of them, and what is read for them is theirs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::cast::AsArray as _;
use arrow_array::{RecordBatch, StringArray};
use parquet::file::page_index::offset_index::{OffsetIndexMetaData, PageLocation};
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;

use super::super::{MemoryBudget, SourceError};
use super::ParquetFile;
use super::tests::{budget, open, properties, write, written_type};
use crate::samples::{MemoryFile, Seeded, batch_of, row, with_metadata};

/// Ranges of rows in order, that do not touch each other.
fn ranges(seeded: &mut Seeded, rows: usize) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut at = seeded.below(rows.div_ceil(3).max(1));
    while at < rows {
        let end = rows.min(at + 1 + seeded.below(rows.div_ceil(4)));
        ranges.push(at as u64..end as u64);
        at = end + 1 + seeded.below(rows.div_ceil(4));
    }
    ranges
}

/// The rows of these ranges of a file of one row group, and which they are.
fn read_ranges(
    file: &Arc<ParquetFile>,
    ranges: &[Range<u64>],
    budget: &Arc<dyn MemoryBudget>,
) -> Result<Vec<(u64, RecordBatch)>, SourceError> {
    let columns: Vec<usize> = (0..file.schema().fields().len()).collect();
    let batches = file.read_ranges(0, &columns, ranges, budget)?;
    batches.map(|batch| batch.map(|batch| (batch.first_row, batch.batch.clone()))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn rows_of_ranges_are_those_of_the_row_group(seed in any::<u64>()) {
        let mut seeded = Seeded(seed);
        let types: Vec<_> = (0..1 + seeded.below(4)).map(|_| written_type(&mut seeded)).collect();
        let rows = 1 + seeded.below(400);
        let batch = batch_of(&mut seeded, &types, rows);
        let of_pages = 1 + seeded.below(60);
        let written = properties(&mut seeded)
            .into_builder()
            .set_max_row_group_row_count(None)
            .set_write_batch_size(1 + seeded.below(of_pages))
            .set_data_page_row_count_limit(of_pages)
            .build();
        let (fixed, budget) = budget(1 << 30);
        let file = open(write(&batch, written), &budget).unwrap();
        let ranges = ranges(&mut seeded, rows);
        let mut wanted = ranges.iter().cloned().flatten();
        for (first_row, read) in read_ranges(&file, &ranges, &budget).unwrap() {
            for at in 0..read.num_rows() {
                let number = wanted.next().unwrap();
                prop_assert_eq!(number, first_row + at as u64);
                prop_assert_eq!(row(&read, at), row(&batch, number as usize));
            }
        }
        prop_assert_eq!(wanted.next(), None);
        drop(file);
        prop_assert_eq!(fixed.used_bytes(), 0);
    }
}

/// Texts in pages of so many rows, the first of which have a dictionary; later ones do not.
fn texts(of_page: usize) -> (StringArray, Vec<u8>) {
    let texts = (0..40 * of_page).map(|row| format!("{:06} of many texts", row * 7919 % 1_000_003));
    let texts = StringArray::from_iter_values(texts);
    let batch = RecordBatch::try_from_iter([("text", Arc::new(texts.clone()) as _)]).unwrap();
    let written = WriterProperties::builder()
        .set_dictionary_page_size_limit(200 * of_page)
        .set_write_batch_size(of_page / 2)
        .set_data_page_row_count_limit(of_page)
        .build();
    (texts, write(&batch, written))
}

/// Rows that are read, with their texts.
fn texts_of(read: &[(u64, RecordBatch)]) -> Vec<(u64, String)> {
    let of = |(first, rows): &(u64, RecordBatch)| {
        let texts = rows.column(0).as_string_view().iter().flatten().map(str::to_owned);
        (*first..).zip(texts).collect::<Vec<_>>()
    };
    read.iter().flat_map(of).collect()
}

fn expected(texts: &StringArray, ranges: &[Range<u64>]) -> Vec<(u64, String)> {
    let rows = ranges.iter().cloned().flatten();
    rows.map(|row| (row, texts.value(row as usize).to_owned())).collect()
}

#[test]
fn of_some_rows_only_their_pages_are_read_and_the_dictionary_where_one_of_them_needs_it() {
    // Small pages, and such as are read one by one.
    for of_page in [1_000, 8_000] {
        let (texts, bytes) = texts(of_page);
        let (_, budget) = budget(1 << 30);
        // How many bytes are read for rows from one on, all in tenths of pages.
        let read = |from: u64, rows: u64| {
            let (input, count) = MemoryFile::counted("t.parquet", bytes.clone());
            let file = ParquetFile::open(input, &budget).map(Arc::new).unwrap();
            let before = count.load(Ordering::Relaxed);
            let tenth = of_page as u64 / 10;
            let rows = from * tenth..(from + rows) * tenth;
            let ranges = std::slice::from_ref(&rows);
            assert!(texts_of(&read_ranges(&file, ranges, &budget).unwrap()) == expected(&texts, ranges));
            (count.load(Ordering::Relaxed) - before) / (23 * tenth)
        };
        // A dictionary of some eight pages, and a page of numbers in it.
        let with_dictionary = read(25, 1);
        assert!((80..130).contains(&with_dictionary), "{with_dictionary} tenths of pages of {of_page}");
        // One of the last pages, which have their texts, and two of them.
        let of_one = read(375, 1);
        assert!(of_one < 20, "{of_one} tenths of pages of {of_page}");
        let of_two = read(375, 10);
        assert!(of_two < 30, "{of_two} tenths of pages of {of_page}");
    }
}

/// The file whose index of pages says something else of its first column.
fn with_index(bytes: &[u8], change: impl FnOnce(&mut OffsetIndexMetaData)) -> Vec<u8> {
    with_metadata(bytes, |metadata| {
        let mut said = metadata.offset_index().unwrap().clone();
        change(&mut said[0][0]);
        metadata.into_builder().set_offset_index(Some(said)).build()
    })
}

const RANGES: [Range<u64>; 2] = [3_000..3_100, 35_000..35_100];

/// With the pages of a column, and the number of that which has the last rows of [`RANGES`].
type Lie = fn(&mut Vec<PageLocation>, usize);

fn lying(bytes: &[u8], lie: Lie) -> Vec<u8> {
    with_index(bytes, |index| {
        let pages = &mut index.page_locations;
        let of_rows = pages.iter().rposition(|page| page.first_row_index <= 35_000).unwrap();
        lie(pages, of_rows);
    })
}

#[test]
fn an_index_that_lies_about_a_page_that_is_read_is_an_error() {
    let (texts, bytes) = texts(1_000);
    let (_, budget) = budget(1 << 30);
    let read = |bytes: Vec<u8>| read_ranges(&open(bytes, &budget).unwrap(), &RANGES, &budget);
    assert!(texts_of(&read(lying(&bytes, |_, _| ())).unwrap()) == expected(&texts, &RANGES));
    let lies: [Lie; 4] = [
        |pages, of_rows| pages[of_rows + 1].first_row_index += 100,
        |pages, of_rows| pages[of_rows].first_row_index -= 100,
        |pages, of_rows| {
            // Bytes of the next page.
            pages[of_rows].compressed_page_size += 5;
            pages[of_rows + 1].offset += 5;
            pages[of_rows + 1].compressed_page_size -= 5;
        },
        |pages, of_rows| {
            let next = pages.remove(of_rows + 1);
            pages[of_rows].compressed_page_size += next.compressed_page_size;
        },
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let error = read(lying(&bytes, lie)).unwrap_err().to_string();
        assert!(error.contains("t.parquet is damaged at row group 0"), "{number}: {error}");
    }
    // The dictionary, with which the column begins, is a page of something else.
    let mut without = bytes.clone();
    assert_eq!(without[4..6], [0x15, 0x04], "a page of the type 2");
    without[5] = 0x02;
    let error = read(without).unwrap_err().to_string();
    assert!(error.contains("t.parquet is damaged at row group 0"), "{error}");
}

#[test]
fn an_index_that_cannot_be_right_is_not_used() {
    let (texts, bytes) = texts(1_000);
    let (_, budget) = budget(1 << 30);
    let lies: [Lie; 7] = [
        |pages, of_rows| pages[of_rows].compressed_page_size = i32::MAX,
        |pages, of_rows| pages[of_rows].offset = pages[of_rows - 2].offset,
        |pages, of_rows| pages[of_rows].first_row_index = 1,
        |pages, of_rows| pages[of_rows].compressed_page_size -= 1,
        // A page is left out, and rows of those behind it are said to come sooner.
        |pages, _| {
            pages.remove(20);
            pages[20..].iter_mut().for_each(|page| page.first_row_index -= 1_000);
        },
        |pages, _| {
            pages.drain(..2);
            pages[0].first_row_index = 0;
        },
        |pages, _| pages.clear(),
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let read = read_ranges(&open(lying(&bytes, lie), &budget).unwrap(), &RANGES, &budget).unwrap();
        assert!(texts_of(&read) == expected(&texts, &RANGES), "{number}");
    }
}

#[test]
fn without_memory_for_an_index_pages_are_read_one_behind_the_other() {
    let (texts, bytes) = texts(1_000);
    // An index of some megabytes, most of which says nothing of where pages are.
    let bytes = with_index(&bytes, |index| index.unencoded_byte_array_data_bytes = Some(vec![i64::MAX; 300_000]));
    let (_, budget) = budget(8 << 20);
    let file = open(bytes, &budget).unwrap();
    assert!(matches!(file.offset_index(0, 0, &budget), Err(SourceError::Memory { .. })));
    assert!(texts_of(&read_ranges(&file, &RANGES, &budget).unwrap()) == expected(&texts, &RANGES));
}

#[test]
fn a_page_whose_rows_have_more_than_one_value_is_an_error() {
    let numbers: arrow_array::ArrayRef = Arc::new(arrow_array::Int64Array::from_iter_values(0..2_000));
    let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    let written = WriterProperties::builder()
        .set_writer_version(parquet::file::properties::WriterVersion::PARQUET_2_0)
        .set_dictionary_enabled(false)
        .set_write_batch_size(100)
        .set_data_page_row_count_limit(100)
        .build();
    let bytes = write(&batch, written);
    let (_, budget) = budget(1 << 30);
    let read = |bytes: Vec<u8>| read_ranges(&open(bytes, &budget).unwrap(), &[100..200, 500..600], &budget);
    assert_eq!(read(bytes.clone()).unwrap().iter().map(|(_, rows)| rows.num_rows()).sum::<usize>(), 200);
    // The header of a page says how many values it has, how many of them are null, and how many rows: 100, 0, 100 as zigzag varints, of fields 1, 2 and 3.
    let header = [0x15, 0xc8, 0x01, 0x15, 0x00, 0x15, 0xc8, 0x01];
    let at = bytes.windows(header.len()).enumerate().filter(|(_, window)| *window == header).map(|(at, _)| at);
    let second = at.clone().nth(1).expect("the second page");
    let mut lying = bytes.clone();
    lying[second + 6] = 0xc6;
    let error = read(lying).unwrap_err().to_string();
    assert!(error.contains("it has 100 values in 99 rows, where a row has one"), "{error}");
}
