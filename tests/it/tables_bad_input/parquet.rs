//! Parquet that is damaged, or lies.

use std::fs;
use std::sync::Arc;

use ::parquet::basic::{Compression, Encoding};
use ::parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use ::parquet::file::metadata::{
    ColumnChunkMetaDataBuilder, ParquetMetaDataReader, ParquetMetaDataWriter, RowGroupMetaDataBuilder,
};
use ::parquet::file::properties::{EnabledStatistics, WriterProperties};
use ::parquet::file::statistics::Statistics;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;

use super::{Scratch, refused, sorted, support};

const ROWS: i64 = 1000;
/// Bytes of the footer's length and of the name of the format, at the end of a file.
const TAIL: usize = 8;

/// Three row groups of `id`, `name` and a map, in pages that are compressed and have no checksums.
fn written() -> Vec<u8> {
    let schema = "message m { required int64 id; required binary name (UTF8); }";
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(Default::default()))
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::PLAIN)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .build();
    let mut bytes = Vec::new();
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
    for group in 0..3 {
        let ids: Vec<i64> = (0..ROWS).map(|row| (group * ROWS + row) * 7919 % 3000).collect();
        let names: Vec<ByteArray> = ids.iter().map(|id| format!("the name of {id}").as_str().into()).collect();
        let mut rows = file.next_row_group().unwrap();
        let mut column = rows.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
        column.close().unwrap();
        let mut column = rows.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&names, None, None).unwrap();
        column.close().unwrap();
        rows.close().unwrap();
    }
    file.close().unwrap();
    bytes
}

/// Where the footer begins.
fn footer_of(bytes: &[u8]) -> usize {
    let tail = bytes.len() - TAIL;
    tail - u32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap()) as usize
}

/// A file of these columns.
fn without_rows(columns: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let schema = Arc::new(parse_message_type(&format!("message m {{ {columns} }}")).unwrap());
    SerializedFileWriter::new(&mut bytes, schema, Default::default()).unwrap().close().unwrap();
    bytes
}

type Group = RowGroupMetaDataBuilder;
type Column = ColumnChunkMetaDataBuilder;

/// The file with a footer that says something else about the second row group, and about its column `name`.
fn with_lies(bytes: &[u8], group: impl Fn(Group) -> Group, column: impl Fn(Column) -> Column) -> Vec<u8> {
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes::Bytes::from(bytes.to_vec())).unwrap();
    let mut builder = metadata.into_builder();
    let mut groups = builder.take_row_groups();
    let told = groups[1].clone();
    let mut columns = told.columns().to_vec();
    columns[1] = column(columns[1].clone().into_builder()).build().unwrap();
    groups[1] = group(told.into_builder().set_column_metadata(columns)).build().unwrap();
    let mut made = bytes[..footer_of(bytes)].to_vec();
    ParquetMetaDataWriter::new(&mut made, &builder.set_row_groups(groups).build()).finish().unwrap();
    made
}

#[test]
fn parquet_that_is_cut_garbled_or_encrypted_is_told_by_its_place() {
    let scratch = Scratch::new();
    let good = written();
    let footer = footer_of(&good);
    fs::write(scratch.path("good.parquet"), &good).unwrap();
    assert_eq!(sorted(&scratch, "good.parquet", "sorted"), 3000);
    let garbled = |from: usize, to: usize| {
        let mut bytes = good.clone();
        bytes[from..to].fill(0xff);
        bytes
    };
    let mut encrypted = good.clone();
    encrypted[good.len() - 4..].copy_from_slice(b"PARE");
    let mut long = good.clone();
    long[good.len() - 8..good.len() - 4].copy_from_slice(&u32::MAX.to_le_bytes());
    for (what, bytes, texts) in [
        ("begins", good[..3].to_vec(), &["too short"][..]),
        ("middle", good[..footer / 2].to_vec(), &["footer", "not written or copied to its end"]),
        ("end", good[..good.len() - 1].to_vec(), &["footer", "not written or copied to its end"]),
        ("page", garbled(footer / 2, footer / 2 + 200), &["damaged at row group 1", "column", "page at byte"]),
        ("footer", garbled(footer + 40, footer + 90), &["damaged at its footer"]),
        ("length", long, &["footer", "4294967295 bytes, more than the file"]),
        ("encrypted", encrypted, &["encrypted", "decrypt it"]),
        ("other", b"id,city\n1,rome\n".to_vec(), &["does not begin with PAR1", "--input-format"]),
    ] {
        let name = format!("{what}.parquet");
        fs::write(scratch.path(&name), bytes).unwrap();
        refused(&scratch, &name, &[], 1, &[&[name.as_str()], texts].concat());
    }
}

/// What a library asserts of a page is not printed as a panic: it is the file that is damaged.
#[test]
fn a_page_whose_dictionary_is_missing_is_damaged_and_nothing_panics() {
    let scratch = Scratch::new();
    let mut bytes = written();
    // Field 1 of the header of a page of data: 1000 values. Field 2: its encoding, plain, which becomes one of a dictionary.
    let plain = [0x15, 0xd0, 0x0f, 0x15, 0];
    let pages: Vec<usize> = (0..bytes.len() - 5).filter(|at| bytes[*at..*at + 5] == plain).collect();
    assert_eq!(pages.len(), 6, "a page for each column of each row group");
    bytes[pages[3] + 4] = 8 << 1;
    fs::write(scratch.path("t.parquet"), bytes).unwrap();
    let texts = ["t.parquet is damaged at row group 1, column name", "dict"];
    refused(&scratch, "t.parquet", &[], 1, &texts);
}

#[test]
fn a_page_that_inflates_beyond_what_its_header_says_is_damaged() {
    let scratch = Scratch::new();
    let good = written();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes::Bytes::from(good.clone())).unwrap();
    let page = metadata.row_group(1).column(1).data_page_offset() as usize;
    // Field 1 says which kind of page it is, field 2 how many bytes it inflates to, as zigzag: some 20 000, in three bytes.
    assert_eq!(
        (&good[page..page + 3], good[page + 3] > 0x84),
        (&[0x15, 0, 0x15][..], true),
        "{:x?}",
        &good[page..page + 8]
    );
    for (less, texts) in [(true, "bytes"), (false, "bytes")] {
        let mut bytes = good.clone();
        let said = &mut bytes[page + 3];
        *said = if less { *said - 4 } else { *said + 4 };
        let name = format!("{less}.parquet");
        fs::write(scratch.path(&name), bytes).unwrap();
        refused(&scratch, &name, &[], 1, &[&name, "damaged at row group 1, column name, page at byte", texts]);
    }
}

#[test]
fn footers_that_lie_about_rows_sizes_and_places_are_found_out() {
    let scratch = Scratch::new();
    let good = written();
    let same = |column: Column| column;
    let lie = |name: &str, bytes: Vec<u8>, texts: &[&str]| {
        fs::write(scratch.path(name), bytes).unwrap();
        refused(&scratch, name, &[], 1, &[&[name, "row group 1"], texts].concat());
    };
    for (name, rows, texts) in [
        ("more-rows.parquet", ROWS + 1, &["column"][..]),
        ("fewer-rows.parquet", ROWS - 1, &["column"]),
        ("rows-below-zero.parquet", -1, &["fewer than no rows"]),
        ("rows-beyond-all.parquet", i64::MAX - 3 * ROWS, &["more rows or bytes than any file has"]),
    ] {
        lie(name, with_lies(&good, |group| group.set_num_rows(rows), same), texts);
    }
    let of_name = |change: &dyn Fn(Column) -> Column| with_lies(&good, |group| group, change);
    lie("more-values.parquet", of_name(&|column| column.set_num_values(ROWS + 1)), &["column name"]);
    lie("values-below-zero.parquet", of_name(&|column| column.set_num_values(-1)), &["more rows or bytes"]);
    for (name, at) in [("behind", i64::MAX), ("before", -1), ("header", 0), ("footer", good.len() as i64 - 20)] {
        let bytes = of_name(&|column| column.set_data_page_offset(at));
        lie(&format!("{name}.parquet"), bytes, &["column name"]);
    }
    for (name, size, text) in [
        ("long.parquet", i64::MAX / 2, "column name"),
        ("short.parquet", 40, "column name"),
        ("below-zero.parquet", -1, "fewer than no bytes"),
    ] {
        lie(name, of_name(&|column| column.set_total_compressed_size(size)), &[text]);
    }
    let huge = with_lies(
        &good,
        |group| group.set_total_byte_size(i64::MAX),
        |column| column.set_total_uncompressed_size(i64::MAX),
    );
    lie("huge.parquet", huge, &["more rows or bytes than any file has"]);
}

/// Bounds and counts of nulls that no values can have: rows that meet a condition are found all the same.
#[test]
fn statistics_that_cannot_be_leave_no_row_out() {
    let scratch = Scratch::new();
    let good = written();
    // The name of the first row of the second row group.
    let condition = "--where=name = 'the name of 2000'";
    let bounds = |least: &str, greatest: &str, nulls| {
        Statistics::byte_array(Some(least.into()), Some(greatest.into()), None, nulls, false)
    };
    for (what, statistics) in [
        ("turned", bounds("z", "a", Some(0))),
        ("nulls-only", Statistics::byte_array(None, None, None, Some(ROWS as u64), false)),
        ("nulls-too-many", bounds("the", "thf", Some(ROWS as u64 + 1))),
        ("nulls-beyond-all", bounds("the", "thf", Some(u64::MAX / 2))),
        (
            "no-text",
            Statistics::byte_array(Some(vec![0xff; 3].into()), Some(vec![0xff; 2].into()), None, Some(0), false),
        ),
    ] {
        let name = format!("{what}.parquet");
        let lies = with_lies(&good, |group| group, |column| column.set_statistics(statistics.clone()));
        fs::write(scratch.path(&name), lies).unwrap();
        let (input, output) = (scratch.text(&name), scratch.text(what));
        let args = ["sort", &input, "--key", "id", condition, "--output", &output, "--json"];
        assert_eq!(support::with_own_spill(&scratch, &args).expect(0, &[]).json()["rows"], 1, "{what}");
        support::exobus(&["show", &input, "--stats"]).expect(0, &[]);
    }
}

#[test]
fn columns_of_parquet_that_cannot_be_told_apart_are_named() {
    let scratch = Scratch::new();
    for (what, columns, texts) in [
        ("twice", "required int64 id; required int64 id;", &["column id", "rename"][..]),
        ("case", "required int64 id; required int64 city; required int64 City;", &["column City", "rename"]),
    ] {
        let name = format!("{what}.parquet");
        fs::write(scratch.path(&name), without_rows(columns)).unwrap();
        refused(&scratch, &name, &[], 1, &[&[name.as_str()], texts].concat());
    }
}

/// What footers say of sizes plans memory and nothing else.
#[test]
fn sizes_that_are_said_too_small_change_nothing_but_the_memory_that_is_asked_for() {
    let scratch = Scratch::new();
    let tiny =
        with_lies(&written(), |group| group.set_total_byte_size(0), |column| column.set_total_uncompressed_size(0));
    fs::write(scratch.path("tiny.parquet"), tiny).unwrap();
    assert_eq!(sorted(&scratch, "tiny.parquet", "out"), 3000);
}

#[test]
fn columns_without_an_order_are_no_key() {
    let scratch = Scratch::new();
    let bytes = without_rows(
        "required int64 id; required fixed_len_byte_array(12) span (INTERVAL);
        required group tags (MAP) { repeated group entries { required binary key (UTF8); optional int64 value; } }",
    );
    fs::write(scratch.path("t.parquet"), bytes).unwrap();
    let texts = ["column span cannot be a key", "a month is no number of days"];
    refused(&scratch, "t.parquet", &["--key", "id,span"], 2, &texts);
    refused(&scratch, "t.parquet", &["--key", "tags"], 2, &["column tags cannot be a key", "has no order"]);
}
