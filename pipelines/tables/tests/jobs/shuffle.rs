//! Random shuffles of tables.

use std::fs;

use exobus_shuffle::Strategy;
use exobus_tables::jobs::shuffle::{ShuffleTable, shuffle};
use exobus_tables::jobs::{FileSize, Rewritten};

use crate::support::{MIB, Table, write};

/// Shuffles the table, and gives the numbers of rows of each file.
async fn shuffled(
    table: &Table,
    output: &str,
    (seed, size): (u64, FileSize),
    (strategy, memory): (Option<Strategy>, u64),
) -> (Rewritten, Vec<Vec<i64>>) {
    let mut params = ShuffleTable { table: table.rewrite(output, size), seed };
    params.table.strategy = strategy;
    let program = async move |futures| shuffle(futures, params).await;
    let report = table.run((2, memory), "table.shuffle", program).await.unwrap();
    assert_eq!((report.rows, report.row_hash_in), (table.rows as u64, report.row_hash_out));
    (report, table.numbers_of_files(output))
}

fn all(files: &[Vec<i64>]) -> Vec<i64> {
    files.concat()
}

#[tokio::test]
async fn files_differ_by_one_row_at_most_and_follow_from_the_seed_and_the_input_alone() {
    let table = Table::new(200_000);
    let first = shuffled(&table, "first", (7, FileSize::Count(7)), (None, 256 * MIB)).await.1;
    let lengths: Vec<usize> = first.iter().map(Vec::len).collect();
    assert!(lengths.len() == 7 && lengths.iter().all(|rows| matches!(rows, 28_571 | 28_572)), "{lengths:?}");
    let mut numbers = all(&first);
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..table.rows), "every row is there once");
    // Neighbours of the input are no neighbours, and rows of any file come from everywhere.
    let moved = all(&first).windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
    assert!(moved < 20, "{moved} rows still follow the one before them");
    for file in &first {
        let mean = file.iter().sum::<i64>() / file.len() as i64;
        assert!((95_000..105_000).contains(&mean), "{mean}");
    }
    for strategy in Strategy::ALL {
        let at = (Some(strategy), 64 * MIB);
        let (report, other) = shuffled(&table, strategy.name(), (7, FileSize::Count(7)), at).await;
        assert!(report.maps >= 2, "{report:?}");
        assert!(first == other, "{strategy:?}");
    }
    // The number of files decides only where they end; another seed is another order.
    let (_, three) = shuffled(&table, "three", (7, FileSize::Count(3)), (None, 256 * MIB)).await;
    assert!(all(&three) == all(&first));
    let (_, eight) = shuffled(&table, "eight", (8, FileSize::Count(7)), (None, 256 * MIB)).await;
    assert!(all(&eight) != all(&first));
}

#[tokio::test]
async fn files_have_no_more_rows_than_is_said_are_even_and_may_have_none() {
    let table = Table::new(900);
    let (_, files) = shuffled(&table, "rows", (1, FileSize::Rows(250)), (None, 128 * MIB)).await;
    assert_eq!(files.iter().map(Vec::len).collect::<Vec<_>>(), [225; 4]);
    let folder = tempfile::tempdir().unwrap();
    let few = Table { rows: 3, folder };
    fs::create_dir(few.path("in")).unwrap();
    write(&few.path("in/a.parquet"), 0..3, 2);
    let (_, files) = shuffled(&few, "few", (1, FileSize::Count(5)), (None, 128 * MIB)).await;
    let mut lengths: Vec<usize> = files.iter().map(Vec::len).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [0, 0, 1, 1, 1]);
}

#[tokio::test]
async fn text_is_counted_before_it_is_cut_into_even_files() {
    let table = Table { rows: 1_000, folder: tempfile::tempdir().unwrap() };
    fs::create_dir(table.path("in")).unwrap();
    let text: String = (0..table.rows).map(|number| format!("{number},\"a\nb\"\n")).collect();
    fs::write(table.path("in/a.csv"), format!("number,text\n{text}")).unwrap();
    let params = ShuffleTable { table: table.rewrite("out", FileSize::Count(3)), seed: 1 };
    let program = async move |futures| shuffle(futures, params).await;
    table.run((2, 256 * MIB), "table.shuffle", program).await.unwrap();
    let files = table.numbers_of_files("out");
    assert_eq!(files.iter().map(Vec::len).collect::<Vec<_>>(), [333, 333, 334]);
}
