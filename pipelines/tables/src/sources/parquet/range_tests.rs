//! Some rows of a row group are those that they are among all of them, and what is read for them is theirs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, RecordBatch, StringArray};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader, ParquetMetaDataWriter};
use parquet::file::page_index::offset_index::{OffsetIndexMetaData, PageLocation};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::TrackedWrite;
use proptest::prelude::*;

use super::super::{MemoryBudget, SourceError};
use super::ParquetFile;
use super::tests::{budget, open, properties, write, written_type};
use crate::samples::{MemoryFile, Seeded, batch_of, row};

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

/// Texts in pages of 1 000, the first of which have a dictionary; later ones do not.
fn texts() -> (RecordBatch, Vec<u8>) {
    let texts =
        StringArray::from_iter_values((0..40_000).map(|row| format!("{:06} of many texts", row * 7919 % 100_003)));
    let batch = RecordBatch::try_from_iter([("text", Arc::new(texts) as _)]).unwrap();
    let written = WriterProperties::builder()
        .set_dictionary_page_size_limit(200_000)
        .set_write_batch_size(500)
        .set_data_page_row_count_limit(1_000)
        .build();
    let bytes = write(&batch, written);
    (batch, bytes)
}

#[test]
fn of_some_rows_only_their_pages_are_read_and_the_dictionary_where_one_of_them_needs_it() {
    let (batch, bytes) = texts();
    let (_, budget) = budget(1 << 30);
    // The rows from one on, and how many bytes are read for them.
    let read = |from: u64, rows: u64| {
        let (input, count) = MemoryFile::counted("t.parquet", bytes.clone());
        let file = ParquetFile::open(input, &budget).map(Arc::new).unwrap();
        let before = count.load(Ordering::Relaxed);
        let read = read_ranges(&file, std::slice::from_ref(&(from..from + rows)), &budget).unwrap();
        let texts: Vec<&str> = read.iter().flat_map(|(_, rows)| rows.column(0).as_string_view()).flatten().collect();
        let wanted = batch.column(0).as_string::<i32>().slice(from as usize, rows as usize);
        assert!(texts.into_iter().eq(wanted.iter().flatten()));
        count.load(Ordering::Relaxed) - before
    };
    let page = batch.column(0).get_array_memory_size() as u64 / 40;
    // A dictionary of 200 000 bytes, and a page of numbers in it.
    let with_dictionary = read(2_500, 100);
    assert!((200_000..300_000).contains(&with_dictionary), "{with_dictionary} bytes");
    // One of the last pages, which have their texts, and two of them.
    let of_one = read(37_500, 100);
    assert!(of_one < 2 * page, "{of_one} bytes of a page of {page}");
    let of_two = read(37_500, 1_000);
    assert!(of_two < 3 * page, "{of_two} bytes of two pages of {page}");
}

/// The file whose index of pages says something else of its first column.
fn with_index(bytes: &[u8], change: impl FnOnce(&mut Vec<PageLocation>)) -> Vec<u8> {
    use std::io::Write as _;
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    reader.try_parse(&bytes::Bytes::from(bytes.to_vec())).unwrap();
    let metadata = reader.finish().unwrap();
    let mut said = metadata.offset_index().unwrap().clone();
    let mut pages = said[0][0].page_locations().clone();
    change(&mut pages);
    said[0][0] = OffsetIndexMetaData { page_locations: pages, unencoded_byte_array_data_bytes: None };
    let metadata = metadata.into_builder().set_offset_index(Some(said)).build();
    let tail = bytes.len() - 8;
    let footer = tail - u32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap()) as usize;
    let mut made = Vec::new();
    let mut tracked = TrackedWrite::new(&mut made);
    tracked.write_all(&bytes[..footer]).unwrap();
    ParquetMetaDataWriter::new_with_tracked(tracked, &metadata).finish().unwrap();
    made
}

#[test]
fn an_index_that_lies_about_a_page_that_is_read_is_an_error() {
    let (_, bytes) = texts();
    let (_, budget) = budget(1 << 30);
    let read = |bytes: Vec<u8>| read_ranges(&open(bytes, &budget).unwrap(), &[3_000..3_100, 35_000..35_100], &budget);
    assert!(read(with_index(&bytes, |_| ())).is_ok());
    // Each is about the page that has the last rows which are read, or the one behind it.
    let lies: [fn(&mut Vec<PageLocation>, usize); 4] = [
        |pages, of_rows| pages[of_rows + 1].first_row_index += 100,
        |pages, of_rows| {
            pages[of_rows].offset += 3;
            pages[of_rows].compressed_page_size -= 3;
        },
        |pages, of_rows| pages[of_rows].compressed_page_size -= 1,
        |pages, of_rows| pages.truncate(of_rows + 1),
    ];
    for (number, change) in lies.into_iter().enumerate() {
        let bytes = with_index(&bytes, |pages| {
            let of_rows = pages.iter().rposition(|page| page.first_row_index <= 35_000).unwrap();
            change(pages, of_rows);
        });
        let error = read(bytes).unwrap_err().to_string();
        assert!(error.contains("t.parquet is damaged at row group 0"), "{number}: {error}");
    }
    // The dictionary, with which the column begins, is a page of something else, and the first pages of data are left out.
    let mut without = bytes.clone();
    assert_eq!(without[4..6], [0x15, 0x04], "a page of the type 2");
    without[5] = 0x02;
    let without = with_index(&without, |pages| {
        pages.drain(..2);
        pages[0].first_row_index = 0;
    });
    let error = read(without).unwrap_err().to_string();
    assert!(error.contains("there is no dictionary before the first page of data"), "{error}");
}

#[test]
fn an_index_that_cannot_be_right_is_not_used() {
    let (_, bytes) = texts();
    let (_, budget) = budget(1 << 30);
    let rows = |bytes: Vec<u8>| {
        let read = read_ranges(&open(bytes, &budget).unwrap(), &[3_000..3_100, 35_000..35_100], &budget).unwrap();
        read.iter().map(|(first, rows)| (*first, rows.num_rows())).collect::<Vec<_>>()
    };
    let lies: [fn(&mut Vec<PageLocation>); 4] = [
        |pages| pages[7].compressed_page_size = i32::MAX,
        |pages| pages[7].offset = pages[5].offset,
        |pages| pages[7].first_row_index = 1,
        |pages| pages.clear(),
    ];
    for change in lies {
        assert_eq!(rows(with_index(&bytes, change)), [(3_000, 100), (35_000, 100)]);
    }
}
