//! Tables as files of another format or length.

use exobus_tables::jobs::FileSize;
use exobus_tables::jobs::Rewritten;
use exobus_tables::jobs::convert::{ConvertTable, convert};
use exobus_tables::sinks::OutputFormat;

use crate::support::{MIB, Table};

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
        let report = converted(&table, ConvertTable { table: table.rewrite(output, size) }).await;
        assert_eq!((report.rows, report.files), (20_000, lengths.len() as u64), "{output}");
        let files = table.numbers_of_files(output);
        assert_eq!(files.iter().map(Vec::len).collect::<Vec<_>>(), lengths, "{output}");
        assert!(files.concat().into_iter().eq(0..20_000), "{output}");
    }
    let report = converted(&table, ConvertTable { table: table.rewrite("small", FileSize::Bytes(100_000)) }).await;
    assert!(report.files > 5, "{report:?}");
    assert!(table.numbers_of_files("small").concat().into_iter().eq(0..20_000));
}

#[tokio::test]
async fn a_table_goes_through_other_formats_and_comes_back() {
    let table = Table::new(5_000);
    let mut there = ConvertTable { table: table.rewrite("arrow", FileSize::Count(2)) };
    there.table.writing.format = Some(OutputFormat::Arrow);
    let arrow = converted(&table, there).await;
    let mut back = ConvertTable { table: table.rewrite("back", FileSize::Count(1)) };
    back.table.inputs = vec![table.path("arrow")];
    let parquet = converted(&table, back).await;
    assert_eq!(arrow.row_hash_out, parquet.row_hash_out);
    assert!(table.numbers_of_files("back").concat().into_iter().eq(0..5_000));
    // What text cannot hold is refused before anything is written.
    let mut text = ConvertTable { table: table.rewrite("text", FileSize::Count(1)) };
    text.table.writing.format = Some(OutputFormat::Csv);
    let program = async move |futures| convert(futures, text).await;
    let error = table.run((2, 128 * MIB), "table.convert", program).await.unwrap_err().to_string();
    assert!(error.contains("column list") && error.contains("Parquet"), "{error}");
    assert!(!table.path("text").exists());
}
