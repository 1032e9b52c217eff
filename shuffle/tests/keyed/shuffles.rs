//! Random shuffle.

use std::path::PathBuf;

use exobus_shuffle::Strategy;
use exobus_shuffle::jobs::RandomShuffle;
use exobus_shuffle::records::{Generator, Mode, RECORD_BYTES};
use twox_hash::XxHash3_64;

use crate::bench::Bench;

fn records(count: u64) -> Vec<u8> {
    let mut bytes = vec![0; count as usize * RECORD_BYTES];
    Generator::new(Mode::default()).fill(0, &mut bytes);
    bytes
}

const RECORDS: u64 = 110_000;

/// Two files of records, all of their bytes, and a job over them.
fn setup() -> (Bench, [PathBuf; 2], Vec<u8>) {
    let bench = Bench::least();
    let bytes = records(RECORDS);
    let (first, second) = bytes.split_at(40_000 * RECORD_BYTES);
    let inputs = [bench.file("a", first), bench.file("b", second)];
    (bench, inputs, bytes)
}

/// The output, computed in memory.
fn shuffled(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut records: Vec<(u64, u64, &[u8])> = bytes
        .chunks(RECORD_BYTES)
        .zip(0u64..)
        .map(|(record, number)| (XxHash3_64::oneshot_with_seed(seed, &number.to_le_bytes()), number, record))
        .collect();
    records.sort_unstable();
    records.iter().flat_map(|(_, _, record)| *record).copied().collect()
}

for_every_strategy!(a_seed_decides_the_order_with_little_memory, super::a_seed_decides_the_order);

async fn a_seed_decides_the_order(strategy: Strategy) {
    let (bench, inputs, bytes) = setup();
    let ran = bench.run(RandomShuffle { seed: 7 }, &inputs, Some(strategy)).await.unwrap();
    assert!(ran.output == shuffled(&bytes, 7));
    assert!(ran.spilled_bytes > 0, "{:?}", ran.report);
    assert_eq!(ran.report.emitted.row_hash, exobus_shuffle::records::row_hash_sum(&bytes));
    assert_eq!((ran.report.reduced.rows, ran.report.reduced.bytes), (RECORDS, bytes.len() as u64));
}

#[tokio::test]
async fn memory_and_partitions_do_not_matter() {
    let (mut bench, inputs, bytes) = setup();
    for (memory, partitions, seed) in [(12 << 20, Some(1), 7), (64 << 20, Some(13), 7), (256 << 20, None, 8)] {
        (bench.memory, bench.partitions) = (memory, partitions);
        let ran = bench.run(RandomShuffle { seed }, &inputs, None).await.unwrap();
        assert!(ran.output == shuffled(&bytes, seed), "{memory} {partitions:?}");
        assert_eq!(ran.spilled_bytes > 0, memory < 64 << 20, "{:?}", ran.report);
    }
}
