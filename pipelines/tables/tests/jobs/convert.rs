//! Tables as files of another format or length.

use exobus_tables::jobs::convert::{ConvertTable, convert};
use exobus_tables::jobs::sort::SortTable;
use exobus_tables::jobs::{FileSize, Rewritten, WriteOptions};
use exobus_tables::sinks::{Compression, OutputFormat};

use crate::support::{MIB, Table, by_user_and_time};

async fn converted(table: &Table, params: ConvertTable) -> Rewritten {
    let program = async move |futures| convert(futures, params).await;
    table.run((2, 128 * MIB), "table.convert", program).await.unwrap()
}

#[tokio::test]
async fn rows_stay_in_their_order_whatever_the_files_are() {
    let table = Table::new(20_000);
    for (output, size, lengths) in [
        ("whole", FileSize::Bytes(1 << 30), vec![20_000]),
        ("rows", FileSize::Rows(6_500), vec![6_500, 6_500, 6_500, 500]),
        ("count", FileSize::Count(3), vec![6_666, 6_667, 6_667]),
    ] {
        let report = converted(&table, ConvertTable { table: table.rewrite(output, size), rows: None }).await;
        assert_eq!((report.rows, report.files), (20_000, lengths.len() as u64), "{output}");
        let files = table.numbers_of_files(output);
        assert_eq!(files.iter().map(Vec::len).collect::<Vec<_>>(), lengths, "{output}");
        assert!(files.concat().into_iter().eq(0..20_000), "{output}");
    }
    let report =
        converted(&table, ConvertTable { table: table.rewrite("small", FileSize::Bytes(100_000)), rows: None }).await;
    assert!(report.files > 5, "{report:?}");
    assert!(table.numbers_of_files("small").concat().into_iter().eq(0..20_000));
}

#[tokio::test]
async fn a_table_goes_through_other_formats_and_comes_back() {
    let table = Table::new(5_000);
    let mut there = ConvertTable { table: table.rewrite("arrow", FileSize::Count(2)), rows: None };
    (there.table.writing.format, there.table.writing.group_rows) = (Some(OutputFormat::Arrow), None);
    let arrow = converted(&table, there).await;
    let mut back = ConvertTable { table: table.rewrite("back", FileSize::Count(1)), rows: None };
    back.table.inputs = vec![table.path("arrow")];
    let parquet = converted(&table, back).await;
    assert_eq!(arrow.row_hash_out, parquet.row_hash_out);
    assert!(table.numbers_of_files("back").concat().into_iter().eq(0..5_000));
    // What text cannot hold, and what it cannot be, is refused before anything is written.
    let mut text = ConvertTable { table: table.rewrite("text", FileSize::Count(1)), rows: None };
    (text.table.writing.format, text.table.writing.group_rows) = (Some(OutputFormat::Csv), None);
    let program = async move |futures| convert(futures, text).await;
    let error = table.run((2, 128 * MIB), "table.convert", program).await.unwrap_err().to_string();
    assert!(error.contains("column list") && error.contains("Parquet"), "{error}");
    let mut packed = ConvertTable { table: table.rewrite("text", FileSize::Count(1)), rows: None };
    (packed.table.writing.format, packed.table.writing.compression) = (Some(OutputFormat::Tsv), Some(Compression::Lz4));
    let program = async move |futures| convert(futures, packed).await;
    let error = table.run((2, 128 * MIB), "table.convert", program).await.unwrap_err().to_string();
    assert!(error.contains("tsv is not written with --compression lz4") && error.contains("gzip"), "{error}");
    let mut grouped = ConvertTable { table: table.rewrite("text", FileSize::Count(1)), rows: None };
    grouped.table.writing.format = Some(OutputFormat::Arrow);
    let program = async move |futures| convert(futures, grouped).await;
    let error = table.run((2, 128 * MIB), "table.convert", program).await.unwrap_err().to_string();
    assert!(error.contains("arrow has no row groups, Parquet has: leave --row-group-rows out"), "{error}");
    let mut typed = ConvertTable { table: table.rewrite("text", FileSize::Count(1)), rows: None };
    typed.table.reading.schema = Some("number int64".to_owned());
    let program = async move |futures| convert(futures, typed).await;
    let error = table.run((2, 128 * MIB), "table.convert", program).await.unwrap_err().to_string();
    assert!(error.contains("no file is text") && error.contains("a.parquet is of parquet"), "{error}");
    assert!(!table.path("text").exists());
}

/// By `convert` and `sort`, on nodes of two shapes, read back as they are written.
#[tokio::test]
async fn packed_text_has_the_same_bytes_on_every_node_and_is_read_again() {
    let table = Table::new(30_000);
    let select = Some(["number", "user", "ts", "price"].map(str::to_owned).to_vec());
    let rewrite = |output: &str, compression| {
        let mut rewrite = table.rewrite(output, FileSize::Count(2));
        let (format, compression) = (Some(OutputFormat::Csv), Some(compression));
        rewrite.writing = WriteOptions { format, compression, group_rows: None, verify: true, ..rewrite.writing };
        rewrite.reading.select = select.clone();
        rewrite
    };
    for (compression, extension) in [(Compression::Gzip(6), "csv.gz"), (Compression::Zstd(3), "csv.zst")] {
        let (mut outputs, mut hashes) = (Vec::new(), Vec::new());
        for (at, node) in [(1, 128 * MIB), (4, 256 * MIB)].into_iter().enumerate() {
            let output = format!("{at}.{extension}");
            let params = ConvertTable { table: rewrite(&output, compression), rows: None };
            let program = async move |futures| convert(futures, params).await;
            hashes.push(table.run(node, "table.convert", program).await.unwrap().row_hash_out);
            let sorted = format!("sorted.{output}");
            let params = SortTable { table: rewrite(&sorted, compression), key: by_user_and_time() };
            hashes.push(table.sort(node, params).await.unwrap().row_hash_out);
            let parts = [&output, &sorted].map(|folder| {
                [0, 1]
                    .map(|part| std::fs::read(table.path(folder).join(format!("part-0000{part}.{extension}"))).unwrap())
            });
            outputs.push(parts);
            let mut back =
                ConvertTable { table: table.rewrite(&format!("back.{output}"), FileSize::Count(1)), rows: None };
            back.table.inputs = vec![table.path(&sorted)];
            back.table.reading.schema = Some("ts int64, price float64".to_owned());
            hashes.push(converted(&table, back).await.row_hash_out);
        }
        assert!(outputs[0] == outputs[1], "{extension}");
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    }
}
