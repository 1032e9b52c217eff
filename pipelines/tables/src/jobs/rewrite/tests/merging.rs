//! What runs become is what all their rows are in order, however they are cut.

use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Int64Array, RecordBatch, StringArray, UInt64Array, cast::AsArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use proptest::prelude::*;

use super::super::arrangement::{Arrangement, Arranger};
use super::super::merging::{ENCODED, Merging, merging_bytes};
use super::super::ordered::Ordered;
use super::super::plan::FileAbout;
use crate::block::Pick;
use crate::jobs::budget::Unordered;
use crate::jobs::dedupe::Keep;
use crate::semantics::KeyColumn;
use crate::sources::{FixedBudget, MemoryBudget, value_bytes};

/// Key, tie, and place.
type Row = (String, i64, u64);

fn schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, false);
    Arc::new(Schema::new(vec![
        field("key", DataType::Utf8),
        field("tie", DataType::Int64),
        field("place", DataType::UInt64),
    ]))
}

fn batch(rows: &[Row]) -> RecordBatch {
    let keys = StringArray::from_iter_values(rows.iter().map(|row| &row.0));
    let ties = Int64Array::from_iter_values(rows.iter().map(|row| row.1));
    let places = UInt64Array::from_iter_values(rows.iter().map(|row| row.2));
    RecordBatch::try_new(schema(), vec![Arc::new(keys), Arc::new(ties), Arc::new(places)]).unwrap()
}

fn rows(batches: &[RecordBatch], picks: &[Pick]) -> Vec<Row> {
    let row = |pick: &Pick| {
        let (batch, row) = (&batches[pick.batch as usize], pick.row as usize);
        let key = batch.column(0).as_string::<i32>().value(row).to_owned();
        (
            key,
            batch.column(1).as_primitive::<Int64Type>().value(row),
            batch.column(2).as_primitive::<UInt64Type>().value(row),
        )
    };
    picks.iter().map(row).collect()
}

/// All rows in order, and those that are left out, by the sort of the standard library.
fn expected(mut all: Vec<Row>, by_tie: bool, keep: Option<Keep>) -> (Vec<Row>, Vec<Row>) {
    all.sort_by(|one, other| {
        let tie = |row: &Row| if by_tie { row.1 } else { 0 };
        (&one.0, tie(one), one.2).cmp(&(&other.0, tie(other), other.2))
    });
    let Some(keep) = keep else { return (all, Vec::new()) };
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for group in all.chunk_by(|one, other| one.0 == other.0) {
        let stays = if keep == Keep::First { 0 } else { group.len() - 1 };
        for (at, row) in group.iter().enumerate() {
            if at == stays { &mut kept } else { &mut dropped }.push(row.clone());
        }
    }
    (kept, dropped)
}

fn merged(arranger: &Arranger, budget: &Arc<dyn MemoryBudget>, runs: Vec<Vec<RecordBatch>>) -> (Vec<Row>, Vec<Row>) {
    let mut merging = Merging::new(arranger, arranger.keep, budget, runs.into_iter().map(Ok)).unwrap();
    let batches = merging.batches().to_vec();
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    while let Some(next) = merging.next().unwrap() {
        kept.extend(rows(&batches, &next.rows));
        dropped.extend(rows(&batches, &next.dropped));
    }
    (kept, dropped)
}

fn ordered(arranger: &Arranger, budget: &Arc<dyn MemoryBudget>, batches: &[RecordBatch]) -> Vec<Row> {
    let mut ordered = Ordered::new(arranger, budget);
    batches.iter().for_each(|batch| ordered.add(batch.clone()).unwrap());
    ordered.sort(arranger.keep);
    rows(batches, &ordered.picks(0..ordered.len()).collect::<Vec<_>>())
}

fn arranger(by_tie: bool, keep: Option<Keep>) -> Arranger {
    let key = vec![KeyColumn::rising("key")];
    let ties = by_tie.then(|| KeyColumn::rising("tie")).into_iter().collect();
    let arrangement =
        keep.map_or_else(|| Arrangement::by_key(key.clone()), |keep| Arrangement::distinct(key.clone(), ties, keep));
    arrangement.arranger(&schema()).unwrap()
}

/// Runs of these rows, cut into batches of at most so many.
fn runs(rows: Vec<(u8, Row)>, in_order: impl Fn(&mut Vec<Row>), batch_rows: usize) -> Vec<Vec<RecordBatch>> {
    (0..=u8::MAX)
        .map(|run| {
            let of_run = rows.iter().filter(|(of, _)| *of == run);
            let mut of_run: Vec<Row> = of_run.map(|(_, row)| row.clone()).collect();
            in_order(&mut of_run);
            of_run.chunks(batch_rows).map(batch).collect()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn runs_become_what_all_their_rows_are_in_order(
        keys in prop::collection::vec((0u8..9, 0u32..500, 0i64..3), 0..6000),
        prefix in "[a-z]{0,12}",
        distinct in 1u32..500,
        keep in prop::option::of(prop::sample::select(vec![Keep::First, Keep::Last])),
        ties in any::<bool>(),
        batch_rows in prop::sample::select(vec![1usize, 7, 100, 5000]),
    ) {
        let by_tie = ties && keep.is_some();
        let rows: Vec<(u8, Row)> = keys
            .into_iter()
            .zip(0..)
            .map(|((run, key, tie), place)| (run, (format!("{prefix}{:03}", key % distinct), tie, place)))
            .collect();
        let all: Vec<Row> = rows.iter().map(|(_, row)| row.clone()).collect();
        let (kept, mut dropped) = expected(all, by_tie, keep);
        dropped.sort();
        let arranger = arranger(by_tie, keep);
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
        let in_order = |rows: &mut Vec<Row>| *rows = expected(std::mem::take(rows), by_tie, None).0;
        let runs = runs(rows, in_order, batch_rows);
        let batches: Vec<RecordBatch> = runs.iter().flatten().cloned().collect();
        prop_assert_eq!(&ordered(&arranger, &budget, &batches), &kept);
        let (rows, mut left_out) = merged(&arranger, &budget, runs);
        left_out.sort();
        prop_assert_eq!((rows, left_out), (kept, dropped));
    }
}

/// Runs of which each is behind the one before, and one whose rows are all of a key that others have, too.
#[test]
fn runs_that_do_not_overlap_and_a_key_of_many_rows_are_merged_within_the_memory_that_is_said() {
    let key = |number: u64| format!("{number:08}");
    for keep in [None, Some(Keep::First), Some(Keep::Last)] {
        let apart = (0..20_000u64).map(|place| ((place / 2_500) as u8, (key(place), 0, place)));
        let alike = (20_000..200_000u64).map(|place| (9, (key(12_345), 0, place)));
        let rows: Vec<(u8, Row)> = apart.chain(alike).collect();
        let all = rows.iter().map(|(_, row)| row.clone()).collect();
        let (kept, dropped) = expected(all, false, keep);
        let runs = runs(rows, |rows| rows.sort(), 50_000);
        let fixed = Arc::new(FixedBudget::new(said(&runs)));
        let budget: Arc<dyn MemoryBudget> = fixed.clone();
        let (rows, left_out) = merged(&arranger(false, keep), &budget, runs);
        assert_eq!((rows, left_out), (kept, dropped), "{keep:?}");
        assert!(fixed.used_bytes() == 0, "{} bytes", fixed.used_bytes());
    }
}

/// What merging these runs is said to take at most, in the order of one column.
fn said(runs: &[Vec<RecordBatch>]) -> u64 {
    said_with(Arrangement::by_key(vec![KeyColumn::rising("key")]).key_bytes(), runs)
}

fn said_with(key_bytes: u64, runs: &[Vec<RecordBatch>]) -> u64 {
    let batches = || runs.iter().flatten();
    let (rows, bytes) = batches().fold((0, 0), |(rows, bytes), batch| {
        (rows + batch.num_rows() as u64, bytes + value_bytes(batch, 0..batch.num_rows()))
    });
    merging_bytes(FileAbout { bytes, rows, columns: 3, key_bytes, sink_bytes: 0 }, batches().count() as u64)
}

/// All windows grow in turn first, and then all runs have rows at the same places of the order.
#[test]
fn runs_that_do_not_overlap_at_first_and_do_later_are_merged_within_the_memory_that_is_said() {
    // So long that keys of all windows are as many bytes as they may be.
    let key = |number: u64| format!("{number:08}{}", "x".repeat(150));
    let (runs_of, apart, together) = (12u64, 120_000u64, 100_000u64);
    let row = |place: u64| {
        let run = if place < apart { place / (apart / runs_of) } else { place % runs_of };
        (run as u8, (key(place), 0, place))
    };
    let rows: Vec<(u8, Row)> = (0..apart + together).map(row).collect();
    let all = rows.iter().map(|(_, row)| row.clone()).collect();
    let runs = runs(rows, |rows| rows.sort(), 50_000);
    let fixed = Arc::new(FixedBudget::new(said(&runs)));
    let budget: Arc<dyn MemoryBudget> = fixed.clone();
    let merged = merged(&arranger(false, None), &budget, runs.clone());
    assert!(merged == expected(all, false, None));
    assert!(fixed.used_bytes() == 0, "{} bytes", fixed.used_bytes());
    assert!(fixed.peak_bytes() > said(&runs) / 2, "{} bytes of {}", fixed.peak_bytes(), said(&runs));
}

/// So many that windows of the fewest rows are more than are ahead of few runs.
#[test]
fn thousands_of_runs_are_merged_within_the_memory_that_is_said() {
    let row = |place: u64| (format!("{:08}", place * 7919 % 300_000), 0, place);
    let rows: Vec<Row> = (0..300_000).map(row).collect();
    let runs: Vec<Vec<RecordBatch>> = rows
        .chunks(100)
        .map(|rows| {
            let mut rows = rows.to_vec();
            rows.sort();
            vec![batch(&rows)]
        })
        .collect();
    let fixed = Arc::new(FixedBudget::new(said(&runs)));
    let budget: Arc<dyn MemoryBudget> = fixed.clone();
    assert!(merged(&arranger(false, None), &budget, runs) == expected(rows, false, None));
    assert!(fixed.used_bytes() == 0, "{} bytes", fixed.used_bytes());
}

/// A row whose key is the beginning of the next one's, at every place where a window may end, with zeros among the bytes of both.
#[test]
fn keys_that_begin_with_each_other_are_in_order_wherever_windows_end() {
    let key = |number: u64| "a\0".repeat(number as usize % 40) + &"a".repeat(number as usize % 2);
    for keep in [None, Some(Keep::First), Some(Keep::Last)] {
        let rows: Vec<(u8, Row)> = (0..9_000).map(|place| ((place % 200) as u8, (key(place * 31), 0, place))).collect();
        let all = rows.iter().map(|(_, row)| row.clone()).collect();
        let (kept, mut dropped) = expected(all, false, keep);
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
        let (rows, mut left_out) = merged(&arranger(false, keep), &budget, runs(rows, |rows| rows.sort(), 3));
        dropped.sort();
        left_out.sort();
        assert!((rows, left_out) == (kept, dropped), "{keep:?}");
    }
}

#[test]
fn rows_in_a_random_order_are_merged_as_they_are_put_in_order_at_once() {
    let arrangement = Arrangement::at_random(7);
    let arranger = arrangement.arranger(&schema()).unwrap();
    let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
    let all: Vec<Row> = (0..30_000).map(|place| (String::new(), 0, place)).collect();
    let in_order = |rows: &[Row]| ordered(&arranger, &budget, &[batch(rows)]);
    let runs: Vec<_> = all.chunks(7_000).map(|rows| in_order(rows).chunks(999).map(batch).collect()).collect();
    let within: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(said_with(arrangement.key_bytes(), &runs)));
    let merged = merged(&arranger, &within, runs).0;
    assert!(merged == in_order(&all));
    assert_ne!(merged, all);
}

#[test]
fn a_merge_that_is_denied_memory_fails_and_gives_back_what_it_has() {
    let rows: Vec<(u8, Row)> =
        (0..50_000).map(|place| ((place % 5) as u8, (format!("{place:06}"), 0, place))).collect();
    let runs = runs(rows, |rows| rows.sort(), 1_000);
    for bytes in [0, 1 << 10, 50 << 10, 200 << 10] {
        let fixed = Arc::new(FixedBudget::new(bytes));
        let budget: Arc<dyn MemoryBudget> = fixed.clone();
        let arranger = arranger(false, None);
        let merging = Merging::new(&arranger, None, &budget, runs.iter().cloned().map(Ok));
        let denied = merging.and_then(|mut merging| {
            while merging.next()?.is_some() {}
            Ok(())
        });
        assert!(matches!(denied, Err(Unordered::Memory(_))), "{bytes} bytes");
        assert_eq!(fixed.used_bytes(), 0, "{bytes} bytes");
    }
}

/// Windows of long keys are of a few rows each, and all but one of them wait.
#[test]
fn runs_of_long_keys_that_do_not_overlap_have_no_key_encoded_again_and_again() {
    let key = |number: u64| format!("{number:08}{}", "x".repeat(20_000));
    let rows: Vec<(u8, Row)> = (0..4_000u64).map(|place| ((place / 20) as u8, (key(place), 0, place))).collect();
    let all = rows.iter().map(|(_, row)| row.clone()).collect();
    let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
    ENCODED.with(|encoded| encoded.set(0));
    let merged = merged(&arranger(false, None), &budget, runs(rows, |rows| rows.sort(), 50));
    assert!(merged == expected(all, false, None));
    let encoded = ENCODED.with(std::cell::Cell::get);
    assert!((4_000..=8_000).contains(&encoded), "{encoded} rows");
}
