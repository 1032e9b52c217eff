//! One row of each key.

use std::collections::BTreeMap;

use exobus_shuffle::Strategy;
use exobus_tables::jobs::FileSize;
use exobus_tables::jobs::dedupe::{DedupeTable, Keep, dedupe};
use exobus_tables::semantics::KeyColumn;

use crate::support::{MIB, Table, key_of};

/// Of each user the number that wins, in the order of users, those without a name last.
fn expected(rows: i64, wins: impl Fn(i64, i64) -> bool) -> Vec<i64> {
    let mut best: BTreeMap<(bool, Option<String>), i64> = BTreeMap::new();
    for number in 0..rows {
        let user = key_of(number).0;
        let best = best.entry((user.is_none(), user)).or_insert(number);
        if wins(number, *best) {
            *best = number;
        }
    }
    best.into_values().collect()
}

#[tokio::test]
async fn the_first_and_the_last_row_of_a_key_stay_whatever_the_strategy_is() {
    let table = Table::new(200_000);
    let ts = |number: i64| key_of(number).1;
    let falling = KeyColumn { descending: true, ..KeyColumn::rising("ts") };
    let cases = [
        (Keep::First, vec![], expected(table.rows, |_, _| false)),
        (Keep::Last, vec![], expected(table.rows, |_, _| true)),
        (Keep::First, vec![falling.clone()], expected(table.rows, |new, best| ts(new) > ts(best))),
        (Keep::Last, vec![falling], expected(table.rows, |new, best| ts(new) <= ts(best))),
    ];
    for (at, (keep, order_by, expected)) in cases.into_iter().enumerate() {
        for strategy in [None, Some(Strategy::Push), Some(Strategy::TwoStage), Some(Strategy::Simple)] {
            let output = format!("{at}-{strategy:?}");
            let mut rewrite = table.rewrite(&output, FileSize::Count(3));
            rewrite.strategy = strategy;
            let key = vec![KeyColumn::rising("user")];
            let params = DedupeTable { table: rewrite, key, keep, order_by: order_by.clone() };
            let program = async move |futures| dedupe(futures, params).await;
            let report = table.run((2, 64 * MIB), "table.dedupe", program).await.unwrap();
            assert_eq!((report.rows_read, report.rows), (200_000, expected.len() as u64), "{output}");
            assert_eq!(report.row_hash_in, report.row_hash_out, "{output}");
            assert!(report.maps >= 2, "rows of a key come from several maps: {report:?}");
            assert!(table.numbers_of_files(&output).concat() == expected, "{output}");
        }
    }
}
