//! Jobs with functions of the user, good ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use exobus_actors::registry::TaskError;
use exobus_actors::task::{JobError, Output};
use exobus_shuffle::Strategy;
use exobus_shuffle::keyed::{Emit, Input, Keep, KeyedJob, Split, Values};
use serde::{Deserialize, Serialize};

use crate::bench::{Bench, Ran, sorted_lines};

/// A job without combining, whose rows are far larger than its input, of one key or of many.
#[derive(Serialize, Deserialize)]
struct Expand {
    keys: u64,
    value_bytes: usize,
    loses: bool,
}

exobus_shuffle::keyed_job!(Expand, "expand", 3);

impl KeyedJob for Expand {
    fn split(&self) -> Split {
        Split::Records(8)
    }

    fn map(&self, input: &mut Input<'_>, emit: Emit<'_>) -> Result<(), TaskError> {
        let mut value = vec![0; self.value_bytes];
        while let Some(record) = input.next_record(8)? {
            let number = u64::from_le_bytes(record.try_into().unwrap());
            value.fill(number as u8);
            emit(&(number % self.keys).to_be_bytes(), &value)?;
        }
        Ok(())
    }

    fn reduce(&self, key: &[u8], values: Values<'_>, file: &mut dyn std::io::Write) -> Result<(), TaskError> {
        let mut sum = 0;
        values.for_each(|value| sum += u64::from(value[self.value_bytes - 1]));
        Ok(writeln!(file, "{} {sum}", u64::from_be_bytes(key.try_into().unwrap()))?)
    }

    fn check(&self, input_bytes: u64, emitted: Output) -> Result<(), String> {
        if self.loses { Err(format!("{input_bytes} bytes, {} rows", emitted.rows)) } else { Ok(()) }
    }
}

/// Runs `Expand` over the numbers below `rows` and compares every sum.
async fn expand(bench: &Bench, rows: u64, keys: u64, value_bytes: usize, strategy: Strategy) -> Ran {
    let input: Vec<u8> = (0..rows).flat_map(u64::to_le_bytes).collect();
    let file = [bench.file("numbers", input)];
    let ran = bench.run(Expand { keys, value_bytes, loses: false }, &file, Some(strategy)).await.unwrap();
    let mut sums = BTreeMap::new();
    (0..rows).for_each(|number| *sums.entry(number % keys).or_insert(0) += number & 255);
    let mut expected: Vec<String> = sums.iter().map(|(key, sum)| format!("{key} {sum}")).collect();
    expected.sort();
    assert!(sorted_lines(&ran.output, "") == expected, "{}", strategy.name());
    assert_eq!((ran.report.shuffled.rows, ran.report.emitted.rows), (rows, rows));
    assert_eq!(ran.report.emitted.bytes, rows * (8 + value_bytes as u64));
    assert!(ran.spilled_bytes > 0, "{}: {:?}", strategy.name(), ran.report);
    ran
}

for_every_strategy!(rows_forty_times_as_large_as_their_input, super::rows_larger_than_their_input);

async fn rows_larger_than_their_input(strategy: Strategy) {
    let bench = Bench::least();
    let ran = expand(&bench, 50_000, 1000, 300, strategy).await;
    assert!(ran.report.partitions > 5, "{:?}", ran.report);
}

#[tokio::test]
async fn what_the_job_itself_finds_wrong_ends_it() {
    let bench = Bench::new();
    let file = [bench.file("numbers", [0; 80])];
    let error = bench.run(Expand { keys: 1000, value_bytes: 300, loses: true }, &file, None).await.err().unwrap();
    assert!(matches!(&error, JobError::Conservation { edge, .. } if edge == "input -> output"), "{error}");
}

// All rows in one partition, larger than all memory there is: merged and reduced as streams.
for_every_strategy!(a_partition_larger_than_memory, super::one_partition);

async fn one_partition(strategy: Strategy) {
    let bench = Bench { partitions: Some(1), ..Bench::least() };
    let ran = expand(&bench, 50_000, 1000, 300, strategy).await;
    assert!(ran.report.shuffled.bytes > bench.memory, "{:?}", ran.report);
}

// One key: its values together are larger than memory, and so is the only partition that has any.
for_every_strategy!(a_hot_key_larger_than_memory, super::one_key);

async fn one_key(strategy: Strategy) {
    let bench = Bench { partitions: Some(5), ..Bench::least() };
    let ran = expand(&bench, 50_000, 1, 300, strategy).await;
    assert!(ran.report.keys == 1 && ran.report.shuffled.bytes > bench.memory, "{:?}", ran.report);
}

/// Rows larger than the windows that streams are merged through.
#[tokio::test]
async fn rows_larger_than_a_window_are_merged_from_streams() {
    let bench = Bench { memory: 24 << 20, partitions: Some(1), ..Bench::least() };
    for strategy in [Strategy::Simple, Strategy::TwoStage] {
        let ran = expand(&bench, 120, 7, 300_000, strategy).await;
        assert!(ran.report.shuffled.bytes > bench.memory, "{:?}", ran.report);
    }
}

/// The two largest numbers of each key: combined where `combines`, merged where `merges`. A value is how many numbers it
/// stands for (8 bytes), and then one of them (8 bytes, big-endian) or, combined, two.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Largest {
    keys: u64,
    combines: bool,
    merges: bool,
    forgets: bool,
}

exobus_shuffle::keyed_job!(Largest, "largest", 1);

static MERGED: AtomicU64 = AtomicU64::new(0);

fn count_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// Both, the larger first; how many numbers they are of.
fn two_largest(values: Values<'_>) -> (u64, [u64; 2]) {
    let (mut count, mut largest) = (0, [0, 0]);
    values.for_each(|value| {
        count += count_of(value);
        for number in value[8..].chunks(8).map(|number| u64::from_be_bytes(number.try_into().unwrap())) {
            largest = [largest[0].max(number), largest[1].max(largest[0].min(number))];
        }
    });
    (count, largest)
}

impl KeyedJob for Largest {
    fn split(&self) -> Split {
        Split::Records(8)
    }

    fn map(&self, input: &mut Input<'_>, emit: Emit<'_>) -> Result<(), TaskError> {
        while let Some(record) = input.next_record(8)? {
            let number = u64::from_le_bytes(record.try_into().unwrap());
            let value = [1u64.to_le_bytes(), number.to_be_bytes()].concat();
            emit(&(number % self.keys).to_be_bytes(), &value)?;
        }
        Ok(())
    }

    fn combines(&self) -> bool {
        self.combines
    }

    fn combine(&self, _key: &[u8], into: &mut Vec<u8>, value: &[u8]) -> Result<(), TaskError> {
        let count = count_of(into) + count_of(value);
        let mut numbers: Vec<[u8; 8]> =
            into[8..].chunks(8).chain(value[8..].chunks(8)).map(|number| number.try_into().unwrap()).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers.truncate(2);
        *into = [count.to_le_bytes()].into_iter().chain(numbers).flatten().collect();
        Ok(())
    }

    fn merges(&self) -> bool {
        self.merges
    }

    fn merge(&self, _key: &[u8], values: Values<'_>, keep: Keep<'_>) -> Result<(), TaskError> {
        MERGED.fetch_add(1, Ordering::Relaxed);
        let (count, [first, second]) = two_largest(values);
        let count = if self.forgets { 1 } else { count };
        keep(&[count.to_le_bytes(), first.to_be_bytes()].concat())?;
        keep(&[0u64.to_le_bytes(), second.to_be_bytes()].concat())
    }

    fn reduce(&self, key: &[u8], values: Values<'_>, file: &mut dyn std::io::Write) -> Result<(), TaskError> {
        let (count, [first, second]) = two_largest(values);
        Ok(writeln!(file, "{} {count} {first} {second}", u64::from_be_bytes(key.try_into().unwrap()))?)
    }

    fn conserved(&self, _key: &[u8], value: &[u8]) -> Output {
        Output { rows: count_of(value), ..Output::default() }
    }
}

#[tokio::test]
async fn combine_and_merge_of_the_user_change_nothing_but_what_is_moved() {
    let bench = Bench::new();
    let (rows, keys) = (60_000, 500);
    let file = [bench.file("numbers", (0..rows).flat_map(u64::to_le_bytes).collect::<Vec<u8>>())];
    let line = |key| format!("{key} {} {} {}", rows / keys, rows - keys + key, rows - 2 * keys + key);
    let mut expected: Vec<String> = (0..keys).map(line).collect();
    expected.sort();
    for strategy in Strategy::ALL {
        for (combines, merges) in [(false, false), (true, false), (false, true), (true, true)] {
            let before = MERGED.load(Ordering::Relaxed);
            let job = Largest { keys, combines, merges, forgets: false };
            let ran = bench.run(job, &file, Some(strategy)).await.unwrap();
            assert!(sorted_lines(&ran.output, "") == expected, "{}, {combines}, {merges}", strategy.name());
            assert_eq!(ran.report.reduced.rows, rows);
            assert_eq!(combines, ran.report.shuffled.rows < rows);
            let merged = MERGED.load(Ordering::Relaxed) > before;
            assert_eq!(merged, merges && strategy != Strategy::Simple, "{}", strategy.name());
        }
    }
    let job = Largest { keys, combines: false, merges: true, forgets: true };
    let error = bench.error(job, &file, Some(Strategy::TwoStage)).await;
    assert!(error.contains("input -> output") && error.contains("emitted 60000 rows"), "{error}");
}
