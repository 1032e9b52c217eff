//! Queries that answer early, in nodes of this process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exobus_actors::event::{Event, EventKind, EventSink};
use exobus_actors::futures::Futures;
use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::protocol::host::JobSpec;
use exobus_actors::task::JobError;
use exobus_actors::words::{Word, Words};
use exobus_queries::estimators::{Kind, spread_order};
use exobus_queries::online::{Answered, OnlineGroup, online_group};
use exobus_queries::snapshot::{ShownKind, Snapshot};
use exobus_queries::stopping::{Ended, Until};
use exobus_tables::aggregates::parse_list;
use exobus_tables::arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use exobus_tables::jobs::group::{GroupQuery, GroupTable, Top, group};
use exobus_tables::jobs::{FileSize, Rewrite, WriteOptions};
use exobus_tables::sinks::{OutputFormat, ParquetOptions, ParquetSink};
use exobus_tables::sources::{FixedBudget, MemoryBudget};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const GROUP_ROWS: i64 = 250;

/// A table of sales in cities, the first of which has half of all rows and each other one half of what the one before has.
struct Table {
    folder: tempfile::TempDir,
}

/// The city of a row, what was paid, and by whom.
fn row(number: i64) -> (String, Option<i64>, f64) {
    let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let city = format!("city {}", (mixed as u32 | 1 << 9).trailing_zeros());
    (city, (!mixed.is_multiple_of(7)).then_some((mixed % 1000) as i64), (mixed % 97) as f64 / 8.0)
}

impl Table {
    /// Of so many blocks, which are row groups.
    fn new(blocks: i64) -> Self {
        Self::of_files(blocks / 4 * GROUP_ROWS, GROUP_ROWS as u64)
    }

    /// Without a file.
    fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        Self { folder }
    }

    /// Of files of so many rows each, in row groups of so many.
    fn of_files(file_rows: i64, group_rows: u64) -> Self {
        let table = Self::empty();
        for (file, from) in (0..4).map(|file| (file, file * file_rows)) {
            let rows: Vec<_> = (from..from + file_rows).map(row).collect();
            // Three of four rows are of one group.
            let who = |number: i64| if number % 4 > 0 { "many".to_owned() } else { format!("buyer {number}") };
            // All that is not zero is in the last block.
            let late = |number: i64| if number >= 4 * file_rows - GROUP_ROWS { 1000 } else { 0 };
            let columns: [(&str, ArrayRef); 6] = [
                ("who", Arc::new(StringArray::from_iter_values((0..rows.len() as i64).map(|row| who(row + from))))),
                ("city", Arc::new(StringArray::from_iter_values(rows.iter().map(|(city, ..)| city)))),
                ("paid", Arc::new(Int64Array::from_iter(rows.iter().map(|(_, paid, _)| *paid)))),
                ("hours", Arc::new(Float64Array::from_iter_values(rows.iter().map(|(.., hours)| *hours)))),
                ("number", Arc::new(Int64Array::from_iter_values((0..rows.len() as i64).map(|row| row + from)))),
                ("late", Arc::new(Int64Array::from_iter_values((0..rows.len() as i64).map(|row| late(row + from))))),
            ];
            table.write(file, &RecordBatch::try_from_iter(columns).unwrap(), group_rows);
        }
        table
    }

    /// Adds a file.
    fn write(&self, file: i64, rows: &RecordBatch, group_rows: u64) {
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
        let options = ParquetOptions { group_rows, ..ParquetOptions::default() };
        let mut sink = ParquetSink::new(Vec::new(), &rows.schema(), &options, &budget).unwrap();
        sink.write(rows).unwrap();
        fs::write(self.path(&format!("in/{file}.parquet")), sink.finish().unwrap().0).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn group(&self, output: &str, by: &[&str], aggregates: &str) -> GroupTable {
        let writing =
            WriteOptions { format: Some(OutputFormat::Csv), file_size: FileSize::Count(2), ..WriteOptions::default() };
        let by = by.iter().map(|column| (*column).to_owned()).collect();
        GroupTable {
            table: Rewrite { writing, ..Rewrite::new(vec![self.path("in")], self.path(output)) },
            query: GroupQuery { by, aggregates: parse_list(aggregates).unwrap(), having: None, top: None },
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        (executors, memory): (usize, u64),
        program: impl AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
    ) -> (Result<T, JobError>, Vec<Snapshot>) {
        let mut options = NodeOptions::alone(executors, memory);
        options.store.spill_dirs = vec![self.path("spill")];
        let node = Node::start(options).unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let seen = shown.clone();
        let events = EventSink::new(move |event: Event| {
            if let EventKind::Estimated { snapshot } = event.kind {
                seen.lock().unwrap().push(serde_json::from_str(&snapshot).unwrap());
            }
        });
        let result = node.run(JobId::new(), "query.group", Some(events), program).await.0;
        node.stop();
        let shown = std::mem::take(&mut *shown.lock().unwrap());
        (result, shown)
    }

    async fn online(&self, node: (usize, u64), query: OnlineGroup) -> (Answered, Vec<Snapshot>) {
        let (answered, shown) = self.run(node, async move |futures| online_group(futures, query).await).await;
        (answered.unwrap(), shown)
    }

    /// A query to which somebody says something when he sees a snapshot; also how many tasks have read blocks.
    async fn told(
        &self,
        query: OnlineGroup,
        says: impl Fn(&Snapshot, &Words) + Send + Sync + 'static,
    ) -> (Answered, Vec<Snapshot>, usize) {
        let mut options = NodeOptions::alone(2, 64 * MIB);
        options.store.spill_dirs = vec![self.path("spill")];
        let node = Node::start(options).unwrap();
        let seen = Arc::new(Mutex::new((Vec::new(), 0)));
        let words = Words::default();
        let (sees, said) = (seen.clone(), words.clone());
        let events = EventSink::new(move |event: Event| match event.kind {
            EventKind::Estimated { snapshot } => {
                let snapshot = serde_json::from_str(&snapshot).unwrap();
                says(&snapshot, &said);
                sees.lock().unwrap().0.push(snapshot);
            }
            EventKind::TaskFinished { stage, .. } if &*stage == "query.map" => sees.lock().unwrap().1 += 1,
            EventKind::TaskReplayed { .. } => panic!("{event:?}"),
            _ => {}
        });
        let spec = JobSpec::of(JobId::new(), "query.group", &query).unwrap();
        let program = async move |futures| online_group(futures, query).await;
        let answered = node.run_told(spec, (Some(events), words), program).await.0.unwrap();
        node.stop();
        let (shown, maps) = std::mem::take(&mut *seen.lock().unwrap());
        (answered, shown, maps)
    }

    /// The files of a folder.
    fn files(&self, output: &str) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(self.path(output)).into_iter().flatten() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with("part-") {
                files.insert(name, fs::read_to_string(entry.path()).unwrap());
            }
        }
        files
    }
}

const AGGREGATES: &str = "count(*) as n, sum(paid) as paid, avg(hours) as hours, stddev(hours) as spread, max(paid) as most, count_distinct(paid) as amounts";

#[tokio::test]
async fn the_answer_is_that_of_a_batch_and_what_is_shown_before_is_close_to_it() {
    let table = Table::new(200);
    let batch = table.group("batch", &["city"], AGGREGATES);
    table.run((2, 64 * MIB), async move |futures| group(futures, batch).await).await.0.unwrap();
    let expected = table.files("batch");
    assert_eq!(expected.len(), 2);
    for (number, node) in [(2, 64 * MIB), (1, 48 * MIB), (4, 256 * MIB)].into_iter().enumerate() {
        let output = format!("online {number}");
        let query = OnlineGroup { seed: 7, ..OnlineGroup::new(table.group(&output, &["city"], AGGREGATES)) };
        let (answered, shown) = table.online(node, query).await;
        assert_eq!(table.files(&output), expected, "{node:?}");
        assert_eq!(answered.ended, Ended::Exact { missed: None });
        assert_eq!(answered.snapshot, *shown.last().unwrap());
        check_shown(&shown, 200);
    }
}

/// A row group of 100 000 rows has pages of 20 000: runs of these have 40 000 rows, and what is left.
#[tokio::test]
async fn blocks_of_large_row_groups_are_runs_of_their_pages() {
    let table = Table::of_files(100_000, 100_000);
    let aggregates = "count(*) as n, sum(paid) as paid, first(number) as first, last(hours) as last";
    for (name, condition) in [("all", None), ("some", Some("number > 30000 and paid < 900"))] {
        let asked = |output: &str| {
            let mut group = table.group(output, &["city"], aggregates);
            group.table.reading.filter = condition.map(|condition| condition.parse().unwrap());
            group
        };
        let (batch, output) = (asked(&format!("batch {name}")), format!("online {name}"));
        table.run((2, 128 * MIB), async move |futures| group(futures, batch).await).await.0.unwrap();
        let query = OnlineGroup { seed: 3, ..OnlineGroup::new(asked(&output)) };
        let (_, shown) = table.online((2, 128 * MIB), query).await;
        assert_eq!(table.files(&output), table.files(&format!("batch {name}")), "{name}");
        assert!(shown.iter().all(|snapshot| snapshot.blocks == 8), "{shown:?}");
        let seen: Vec<u64> = shown.iter().map(|snapshot| snapshot.rows_seen).collect();
        assert!(seen.is_sorted() && seen[0] < 200_000 && seen.last() == Some(&400_000), "{name}: {seen:?}");
    }
}

/// Rows of a file of CSV, with line ends within quotes.
fn csv(rows: Range<i64>) -> String {
    let mut text = "city,paid,number,said\n".to_owned();
    for number in rows {
        let (city, paid, _) = row(number);
        let paid = paid.map_or(String::new(), |paid| paid.to_string());
        writeln!(text, "{city},{paid},{number},\"{}\"", said(number).replace('"', "\"\"")).unwrap();
    }
    text
}

/// The same as JSON lines.
fn json_lines(rows: Range<i64>) -> String {
    let mut text = String::new();
    for number in rows {
        let (city, paid, _) = row(number);
        let row = json!({"city": city, "paid": paid, "number": number, "said": said(number)});
        writeln!(text, "{row}").unwrap();
    }
    text
}

/// A text that has quotes and line ends.
fn said(number: i64) -> String {
    "he said, \"no\"\n".repeat(number as usize % 9)
}

/// Files of some MiB, and a small one.
#[tokio::test]
async fn blocks_of_text_are_small_enough_that_groups_have_bounds_early() {
    type OfRows = fn(Range<i64>) -> String;
    let formats: [(&str, OfRows); 2] = [("csv", csv), ("jsonl", json_lines)];
    for (extension, of) in formats {
        let table = Table::empty();
        for (file, rows) in [0..40_000, 40_000..80_000, 80_000..80_100].into_iter().enumerate() {
            fs::write(table.path(&format!("in/{file}.{extension}")), of(rows)).unwrap();
        }
        let aggregates = "count(*) as n, sum(paid) as paid, first(number) as first, max(said) as said";
        let batch = table.group("batch", &["city"], aggregates);
        table.run((2, 256 * MIB), async move |futures| group(futures, batch).await).await.0.unwrap();
        for (number, node) in [(1, 96 * MIB), (2, 256 * MIB)].into_iter().enumerate() {
            let output = format!("online {number}");
            let query = OnlineGroup { seed: 11, ..OnlineGroup::new(table.group(&output, &["city"], aggregates)) };
            let (_, shown) = table.online(node, query).await;
            assert_eq!(table.files(&output), table.files("batch"), "{extension}, {node:?}");
            let answer = shown.last().unwrap();
            assert!(answer.blocks > 90 && answer.rows_seen == 80_100, "{extension}: {answer:?}");
            let paid = |snapshot: &Snapshot| {
                snapshot.groups.iter().find(|group| group.key == [json!("city 0")]).unwrap().values[1].clone()
            };
            let truth = number_of(&paid(answer).estimate);
            let bounds = shown.iter().filter(|snapshot| !snapshot.is_final).map(paid);
            let bounds: Vec<_> = bounds.filter_map(|value| value.low.zip(value.high)).collect();
            assert!(bounds.len() >= 3, "{extension}: {bounds:?}");
            let are_right = bounds.iter().all(|(low, high)| (low..=high).contains(&&truth) && high / low < 1.5);
            assert!(are_right, "{extension}: {bounds:?} of {truth}");
        }
    }
}

/// Half of the lines of a row are within quotes.
#[tokio::test]
async fn a_row_of_text_that_is_none_is_told_by_its_file_and_line_in_any_block() {
    let table = Table::empty();
    let row = |number: i64| format!("{number},\"two\nlines\"\n");
    let rows = |of: Range<i64>| of.map(row).collect::<String>();
    fs::write(table.path("in/0.csv"), "paid,said\n".to_owned() + &rows(0..30_000)).unwrap();
    fs::write(table.path("in/1.csv"), format!("paid,said\n{}none,x\n{}", rows(0..30_000), rows(0..30_000))).unwrap();
    let query = OnlineGroup { seed: 5, ..OnlineGroup::new(table.group("out", &[], "sum(paid)")) };
    let error = table.run((2, 96 * MIB), async move |futures| online_group(futures, query).await).await.0.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("1.csv, line 60002") && error.contains("\"none\""), "{error}");
}

/// A number as it is shown: a sum is an exact decimal, which JSON has as text.
fn number_of(value: &Value) -> f64 {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).unwrap()
}

fn check_shown(shown: &[Snapshot], blocks: u64) {
    let answer = shown.last().unwrap();
    assert!(answer.is_final && shown.iter().filter(|snapshot| snapshot.is_final).count() == 1);
    assert_eq!((answer.blocks_seen, answer.blocks, answer.rows_seen), (blocks, blocks, blocks * GROUP_ROWS as u64));
    assert_eq!(answer.columns, ["city", "n", "paid", "hours", "spread", "most", "amounts"]);
    assert!(shown.is_sorted_by(|one, next| one.bytes_seen < next.bytes_seen) && shown[0].bytes_seen > 0);
    let truth: BTreeMap<String, &Vec<_>> =
        answer.groups.iter().map(|group| (group.key[0].to_string(), &group.values)).collect();
    let (mut bounded, mut held) = (0, 0);
    for (number, snapshot) in shown.iter().enumerate() {
        assert_eq!((snapshot.snapshot as usize, snapshot.columns.len()), (number, 7));
        for group in &snapshot.groups {
            let truth = truth[&group.key[0].to_string()];
            for (number, (value, exact)) in group.values.iter().zip(truth).enumerate() {
                let exact = number_of(&exact.estimate);
                if snapshot.is_final {
                    assert_eq!(value.kind, Some(ShownKind::Exact));
                    continue;
                }
                if number >= 4 {
                    assert_eq!((&value.estimate, value.low), (&Value::Null, None), "{value:?}");
                    assert!(value.reason.as_deref().unwrap().contains("everything was read"));
                    continue;
                }
                if let Some((low, high)) = value.low.zip(value.high) {
                    assert_eq!(value.kind, Some(ShownKind::Approximate));
                    bounded += 1;
                    held += usize::from((low..=high).contains(&exact));
                }
            }
        }
    }
    // Looks see 2, 3, 5, 7, 11, ...: a city has bounds from 30 blocks on that have it.
    assert!(shown.len() >= 12 && bounded >= 100, "{} looks, {bounded} values with bounds", shown.len());
    assert!(held * 100 >= bounded * 99, "{held} of {bounded} bounds held");
}

#[tokio::test]
async fn what_does_not_differ_among_the_blocks_that_were_read_is_not_known_but_for_how_many_rows_there_are() {
    let table = Table::new(240);
    // The last block of the table, which has other values than all others, is the last one that is read.
    let seed = (0..).find(|seed| spread_order(240, *seed).last() == Some(&239)).unwrap();
    let until: Until = "error=5%".parse().unwrap();
    let aggregates = "count(*) as n, sum(late) as late, avg(late) as mean";
    let query = OnlineGroup { seed, until: Some(until), ..OnlineGroup::new(table.group("late", &[], aggregates)) };
    let (answered, shown) = table.online((2, 64 * MIB), query).await;
    assert!(matches!(answered.ended, Ended::Exact { missed: Some(_) }), "{answered:?}");
    let [n, late, mean] = answered.snapshot.groups[0].values.as_slice() else { panic!("{answered:?}") };
    assert_eq!((&n.estimate, number_of(&late.estimate)), (&json!(60_000), 250_000.0));
    assert!((number_of(&mean.estimate) - 250.0 / 60.0).abs() < 1e-9, "{mean:?}");
    let looks: Vec<&Snapshot> = shown.iter().filter(|snapshot| !snapshot.is_final).collect();
    for look in &looks {
        let values = &look.groups[0].values;
        assert_eq!(&values[0], n, "files say how many rows they have");
        for value in &values[1..] {
            assert_eq!((number_of(&value.estimate), value.low, value.kind), (0.0, None, None), "{look:?}");
            let reason = value.reason.as_deref().unwrap();
            assert!(look.blocks_seen < 30 || reason.contains("do not differ"), "{reason}");
        }
    }
    assert!(looks.iter().filter(|look| look.blocks_seen >= 30).count() >= 4, "{looks:?}");
    // What is known from the first look on does not keep a query from knowing enough.
    let group = table.group("early", &[], "count(*) as n, avg(hours) as hours");
    let (answered, _) =
        table.online((2, 64 * MIB), OnlineGroup { until: Some(until), ..OnlineGroup::new(group) }).await;
    assert_eq!(answered.ended, Ended::Met(until));
    let last = &answered.snapshot;
    assert!(last.blocks_seen < 240, "{last:?}");
    assert_eq!((&last.groups[0].values[0], last.groups[0].values[1].kind), (n, Some(ShownKind::Approximate)));
    // A condition might leave out rows, though those of the blocks that were read have all met it.
    let mut group = table.group("all", &[], "count(*) as n");
    group.table.reading.filter = Some("late >= 0 and hours < 100.0".parse().unwrap());
    let (answered, shown) =
        table.online((2, 64 * MIB), OnlineGroup { until: Some(until), ..OnlineGroup::new(group) }).await;
    assert!(matches!(answered.ended, Ended::Exact { missed: Some(_) }), "{answered:?}");
    assert!(shown.iter().all(|look| look.is_final || look.groups[0].values[0].kind.is_none()), "{shown:?}");
}

#[tokio::test]
async fn it_is_said_where_estimates_have_chosen_the_groups_that_are_shown() {
    let table = Table::new(120);
    let group = |output: &str| table.group(output, &["city"], "count(*) as n");
    let mut with_having = group("having");
    with_having.query.having = Some("n > 100".parse().unwrap());
    let mut with_top = group("top");
    with_top.query.top = Some(Top { rows: 2, order_by: vec!["n:desc".parse().unwrap()], per: Vec::new() });
    for (group, is_chosen) in [(group("all"), false), (with_having, true), (with_top, true)] {
        let (_, shown) = table.online((2, 64 * MIB), OnlineGroup { seed: 5, ..OnlineGroup::new(group) }).await;
        assert!(shown.len() > 5, "{shown:?}");
        for look in &shown {
            assert_eq!((look.chosen_by_estimates, look.seed), (is_chosen && !look.is_final, 5), "{look:?}");
        }
    }
}

#[tokio::test]
async fn a_query_that_knows_enough_stops_and_writes_nothing() {
    let table = Table::new(240);
    let until = |text: &str| Some(text.parse().unwrap());
    let top = Top { rows: 2, order_by: vec!["n:desc".parse().unwrap()], per: Vec::new() };
    let mut query = OnlineGroup::new(table.group("out", &["city"], "count(*) as n, avg(hours)"));
    query.group.query.top = Some(top);
    let (answered, shown) =
        table.online((2, 64 * MIB), OnlineGroup { until: until("error=20%"), ..query.clone() }).await;
    assert_eq!((answered.ended, answered.written), (Ended::Met(until("error=20%").unwrap()), None));
    let last = shown.last().unwrap();
    assert!(!last.is_final && last.blocks_seen < 240 && last.groups.len() == 2, "{last:?}");
    assert_eq!(last.groups[0].key, [json!("city 0")]);
    assert!(table.files("out").is_empty(), "nothing was written");
    // The folder is free: the same again, to an error that no look has.
    let (answered, shown) =
        table.online((2, 64 * MIB), OnlineGroup { until: until("error=0.0001%"), ..query.clone() }).await;
    assert_eq!(
        answered.ended.to_string(),
        "error=0.0001% was met at no look: everything was read, and the answer is exact"
    );
    assert!(shown.last().unwrap().is_final && table.files("out").len() == 2);
    // Guaranteed bounds of floats would rest on there being no NaN, of which files say nothing.
    query.group.table.output = table.path("guaranteed");
    let (_, shown) = table.online((2, 64 * MIB), OnlineGroup { bounds: Kind::Guaranteed, ..query }).await;
    let values = &shown[shown.len() - 2].groups[0].values;
    assert_eq!((values[0].kind, values[1].kind), (Some(ShownKind::Guaranteed), None));
    assert!(values[1].reason.as_deref().unwrap().contains("guaranteed bounds need"), "{values:?}");
}

#[tokio::test]
async fn a_footer_that_lies_about_values_ends_a_query_whose_bounds_rest_on_it() {
    let table = Table::new(160);
    for file in 0..4 {
        let path = table.path(&format!("in/{file}.parquet"));
        let mut bytes = fs::read(&path).unwrap();
        let tail = bytes.len() - 8;
        let footer = tail - u32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap()) as usize;
        // The largest value of `paid` in each row group is a text of eight bytes: it is above 900, and is said to be 400.
        let large: Vec<usize> = (footer..tail - 9)
            .filter(|at| {
                let value = i64::from_le_bytes(bytes[at + 1..at + 9].try_into().unwrap());
                bytes[*at] == 8 && (900..1000).contains(&value)
            })
            .collect();
        assert!(large.len() >= 40, "{} bounds in {file}", large.len());
        large.into_iter().for_each(|at| bytes[at + 1..at + 9].copy_from_slice(&400_i64.to_le_bytes()));
        fs::write(&path, bytes).unwrap();
    }
    let query =
        |output: &str, bounds| OnlineGroup { bounds, ..OnlineGroup::new(table.group(output, &["city"], "sum(paid)")) };
    let asked = query("guaranteed", Kind::Guaranteed);
    let (result, _) = table.run((2, 64 * MIB), async move |futures| online_group(futures, asked).await).await;
    let error = result.unwrap_err().to_string();
    assert!(error.contains("sum(paid): files say that all values are between 0 and 400"), "{error}");
    let (answered, _) = table.online((2, 64 * MIB), query("approximate", Kind::Approximate)).await;
    assert!(answered.written.is_some(), "approximate bounds do not rest on it");
}

/// `paid` is a whole number of which files say that it is from 0 to 999.
#[tokio::test]
async fn guaranteed_bounds_of_sums_and_means_follow_from_what_files_say_of_values() {
    let table = Table::new(400);
    let group = |output: &str| table.group(output, &["city"], "count(*), sum(paid), avg(paid), count(paid)");
    let bounds = Kind::Guaranteed;
    let (_, shown) = table.online((2, 96 * MIB), OnlineGroup { bounds, ..OnlineGroup::new(group("each")) }).await;
    let all = OnlineGroup { bounds, simultaneous: true, ..OnlineGroup::new(group("together")) };
    let (_, together) = table.online((2, 96 * MIB), all).await;
    assert_eq!((table.files("each"), shown.len()), (table.files("together"), together.len()));
    let truth = &shown.last().unwrap().groups;
    let mut narrower = 0;
    for (one, other) in shown.iter().zip(&together).filter(|(one, _)| !one.is_final) {
        for (group, with_others) in one.groups.iter().zip(&other.groups) {
            let truth = &truth.iter().find(|of| of.key == group.key).unwrap().values;
            for ((value, with_others), truth) in group.values.iter().zip(&with_others.values).zip(truth) {
                if value.estimate.is_null() {
                    // All values of the group that were read are null.
                    assert_eq!(value, with_others);
                    continue;
                }
                assert_eq!((value.kind, with_others.kind), (Some(ShownKind::Guaranteed), value.kind), "{value:?}");
                let (low, high) = (value.low.unwrap(), value.high.unwrap());

                assert!((low..=high).contains(&number_of(&truth.estimate)), "{value:?} of {truth:?}");
                assert!(with_others.low.unwrap() <= low && high <= with_others.high.unwrap(), "{with_others:?}");
                let (wrong, with_others) = (1.0 - value.level.unwrap(), 1.0 - with_others.level.unwrap());
                assert!((wrong / with_others / one.groups_seen as f64 - 1.0).abs() < 1e-6, "{wrong} {with_others}");
            }
        }
        // What is known of a mean from most of the blocks is more than that it is between the values.
        let mean = &one.groups.iter().find(|group| group.key == [json!("city 0")]).unwrap().values[2];
        narrower += usize::from(mean.low.unwrap() > 100.0 && mean.high.unwrap() < 900.0);
    }
    assert!(narrower > 0, "{shown:?}");
}

#[tokio::test]
async fn of_more_groups_than_are_followed_the_largest_are() {
    let table = Table::new(120);
    // A group for each row, and ten large ones: with so little memory few are followed.
    let mut query = OnlineGroup::new(table.group("out", &["city", "number"], "count(*) as n"));
    let (answered, shown) = table.online((2, 40 * MIB), query.clone()).await;
    assert_eq!(answered.snapshot.groups_seen, 120 * GROUP_ROWS as u64);
    let before = &shown[shown.len() - 2];
    assert!(before.groups_seen < 10_000 && !before.groups.is_empty(), "{} of 30000", before.groups_seen);
    assert!(before.chosen_by_estimates && !shown.last().unwrap().chosen_by_estimates);
    query.group = table.group("cities", &["city"], "count(*) as n");
    let (answered, _) = table.online((2, 40 * MIB), query).await;
    assert_eq!(answered.snapshot.groups_seen, 10);
}

#[tokio::test]
async fn where_a_task_finds_more_groups_than_it_tells_its_look_chooses_and_estimates_begin_behind_it() {
    let table = Table::new(200);
    let exact = (200 * GROUP_ROWS) as f64 * 0.75;
    for bounds in [Kind::Approximate, Kind::Guaranteed] {
        let output = format!("{bounds:?}");
        let query = OnlineGroup {
            bounds,
            followed_max: Some(20),
            ..OnlineGroup::new(table.group(&output, &["who"], "count(*) as n"))
        };
        let (answered, shown) = table.online((2, 64 * MIB), query).await;
        assert_eq!(answered.snapshot.groups_seen, 1 + 50 * GROUP_ROWS as u64);
        let first = &shown[0];
        assert_eq!((first.groups_seen, first.unmet_blocks), (20, None));
        let reason = first.groups[0].values[0].reason.as_deref().unwrap();
        assert!(
            first.groups[0].values[0].estimate.is_null() && reason.contains("more groups than are followed"),
            "{reason}"
        );
        let mut bounded = 0;
        for snapshot in &shown[..shown.len() - 1] {
            let many = snapshot.groups.iter().find(|group| group.key == [json!("many")]).unwrap();
            let Some((low, high)) = many.values[0].low.zip(many.values[0].high) else { continue };
            bounded += 1;
            assert!(low <= exact && exact <= high, "{bounds:?} {low} {high} at {} blocks", snapshot.blocks_seen);
            let estimate = many.values[0].estimate.as_f64().unwrap();
            assert!((estimate - exact).abs() < 0.05 * exact, "{estimate}");
        }
        assert!(bounded >= 4, "{bounded} looks have bounds");
    }
    // Nothing is met of all groups where not all are followed.
    let until = Some("error=90%:all".parse().unwrap());
    let query =
        OnlineGroup { until, followed_max: Some(20), ..OnlineGroup::new(table.group("all", &["who"], "count(*)")) };
    assert!(matches!(table.online((2, 64 * MIB), query).await.0.ended, Ended::Exact { missed: Some(_) }));
}

#[tokio::test]
async fn a_group_of_many_rows_is_followed_wherever_it_is_met_first() {
    const BLOCKS: i64 = 400;
    let table = Table::empty();
    for file in 0..4 {
        // All rows of the last quarter of the table are of one group, and each of the others is one.
        let who = |row: i64| if file == 3 { "many".to_owned() } else { format!("buyer {file} {row}") };
        let rows = StringArray::from_iter_values((0..BLOCKS / 4 * GROUP_ROWS).map(who));
        let rows = RecordBatch::try_from_iter([("who", Arc::new(rows) as ArrayRef)]).unwrap();
        table.write(file, &rows, GROUP_ROWS as u64);
    }
    // One task reads the blocks before the first look, and has more groups than it tells from its first block on.
    let query =
        OnlineGroup { followed_max: Some(20), ..OnlineGroup::new(table.group("out", &["who"], "count(*) as n")) };
    let (answered, shown) = table.online((1, 64 * MIB), query).await;
    assert_eq!(answered.snapshot.groups_seen, 1 + (3 * BLOCKS / 4 * GROUP_ROWS) as u64);
    assert!(shown[0].blocks_seen == 4 && shown[0].groups_seen == 20, "{:?}", shown[0]);
    for snapshot in &shown[..shown.len() - 1] {
        assert!(snapshot.groups.iter().any(|group| group.key == [json!("many")]), "{snapshot:?}");
    }
}

#[tokio::test]
async fn a_condition_that_no_row_meets_is_seen_to_be_met_by_few_blocks_at_most() {
    let table = Table::new(200);
    let mut query = OnlineGroup::new(table.group("out", &["city"], "count(*) as n"));
    query.group.table.reading.filter = Some("city = 'nowhere' or hours < -1.0".parse().unwrap());
    let (answered, shown) = table.online((2, 64 * MIB), query).await;
    assert_eq!((answered.snapshot.groups_seen, answered.snapshot.unmet_blocks), (0, Some(0)));
    let unmet: Vec<u64> = shown.iter().map(|snapshot| snapshot.unmet_blocks.unwrap()).collect();
    assert!(unmet.is_sorted_by(|one, other| one >= other) && unmet[0] <= 200, "{unmet:?}");
}

#[tokio::test]
async fn long_texts_are_shown_from_their_beginning() {
    let table = Table::empty();
    fs::write(table.path("in/long.csv"), format!("who,city\n{},x\n", "é".repeat(200_000))).unwrap();
    let (answered, _) = table.online((1, 64 * MIB), OnlineGroup::new(table.group("out", &["city"], "max(who)"))).await;
    let shown = answered.snapshot.groups[0].values[0].estimate.as_str().unwrap().to_owned();
    assert!(shown.chars().count() == 501 && shown.ends_with('…'), "{}", shown.len());
}

#[tokio::test]
async fn a_table_without_rows_is_answered_at_once() {
    let table = Table::new(0);
    let (answered, shown) =
        table.online((1, 64 * MIB), OnlineGroup::new(table.group("out", &[], "count(*), sum(paid)"))).await;
    assert_eq!((answered.ended, shown.len()), (Ended::Exact { missed: None }, 1));
    let values = &shown[0].groups[0].values;
    assert_eq!((&values[0].estimate, &values[1].estimate), (&json!(0), &Value::Null));
}

#[tokio::test]
async fn a_query_that_is_told_that_enough_was_seen_ends_with_what_it_has_shown() {
    let table = Table::new(240);
    let query = |output: &str| OnlineGroup::new(table.group(output, &["city"], "count(*) as n, avg(hours)"));
    let (answered, shown, _) = table
        .told(query("out"), |snapshot, words| {
            if snapshot.snapshot == 5 {
                assert!(words.say(Word::Enough) && words.say(Word::Enough), "said twice it is heard once");
            }
        })
        .await;
    assert_eq!((answered.ended, &answered.written), (Ended::Asked, &None));
    assert_eq!(answered.snapshot, *shown.last().unwrap());
    assert!((5..8).contains(&answered.snapshot.snapshot) && !answered.snapshot.is_final, "{answered:?}");
    assert!(table.files("out").is_empty(), "nothing was written");
    // Said when there is nothing more to read it changes nothing.
    let (answered, shown, _) = table
        .told(query("out"), |snapshot, words| {
            if snapshot.is_final {
                assert!(!words.say(Word::Enough), "nobody listens any more");
            }
        })
        .await;
    assert_eq!((answered.ended, shown.last().unwrap().is_final), (Ended::Exact { missed: None }, true));
    assert_eq!(table.files("out").len(), 2);
}

#[tokio::test]
async fn a_query_that_is_kept_goes_on_to_the_answer_of_a_batch_and_reads_nothing_twice() {
    let table = Table::new(240);
    let batch = table.group("batch", &["city"], AGGREGATES);
    table.run((2, 64 * MIB), async move |futures| group(futures, batch).await).await.0.unwrap();
    let kept = |output: &str, keep_for| OnlineGroup {
        until: Some("error=20%".parse().unwrap()),
        keep_for: Some(keep_for),
        ..OnlineGroup::new(table.group(output, &["city"], "count(*) as n"))
    };
    let whole = OnlineGroup::new(table.group("whole", &["city"], AGGREGATES));
    let (_, _, maps) = table.told(whole, |_, _| ()).await;
    let minute = Duration::from_secs(60);
    // `max` has no bounds before the end, so no error is small enough.
    for (output, until) in [("met", Some("time=1ms")), ("asked", None)] {
        let query = OnlineGroup {
            group: table.group(output, &["city"], AGGREGATES),
            until: until.map(|until| until.parse().unwrap()),
            ..kept(output, minute)
        };
        let is_asked = AtomicBool::new(until.is_some());
        let (answered, shown, read) = table
            .told(query, move |snapshot, words| {
                if snapshot.stopped.is_some() {
                    assert!(words.say(Word::GoOn));
                } else if snapshot.snapshot == 5 && !is_asked.swap(true, Ordering::Relaxed) {
                    assert!(words.say(Word::Enough));
                }
            })
            .await;
        let stopped: Vec<&Snapshot> = shown.iter().filter(|snapshot| snapshot.stopped.is_some()).collect();
        let why = until.map_or(Ended::Asked, |_| Ended::Met("time=1ms".parse().unwrap()));
        assert_eq!((stopped.len(), stopped[0].stopped), (1, Some(why)), "{output}");
        assert!(stopped[0].blocks_seen < 240, "{output}: {stopped:?}");
        assert_eq!((answered.ended, answered.snapshot.is_final), (Ended::Exact { missed: None }, true), "{output}");
        assert_eq!(table.files(output), table.files("batch"), "{output}");
        assert_eq!(read, maps, "{output}: a block was read twice");
    }
    // Nobody has it go on.
    let (answered, shown, _) = table.told(kept("over", Duration::from_millis(300)), |_, _| ()).await;
    assert_eq!((answered.ended, answered.written), (Ended::Met("error=20%".parse().unwrap()), None));
    let [.., stopped, last] = shown.as_slice() else { panic!("{shown:?}") };
    assert_eq!((stopped.stopped, last.stopped), (Some(answered.ended), None));
    assert_eq!(answered.snapshot, *last);
    // Who has it go on, and has seen enough of that, ends it.
    let goes_on = AtomicBool::default();
    let (answered, shown, _) = table
        .told(kept("again", minute), move |snapshot, words| {
            if snapshot.stopped.is_some() {
                assert!(words.say(Word::GoOn) && !goes_on.swap(true, Ordering::Relaxed), "it is kept once");
            } else if goes_on.load(Ordering::Relaxed) {
                assert!(words.say(Word::Enough));
            }
        })
        .await;
    assert_eq!((answered.ended, answered.snapshot == *shown.last().unwrap()), (Ended::Asked, true), "{shown:?}");
    assert!(table.files("again").is_empty() && table.files("over").is_empty());
}
