//! Puts into the store of this process.

use std::time::Duration;

use exobus_store::{Clock, Parts, Store, StoreError, SystemClock};

use super::{
    Figures, Place,
    data::noise,
    percentiles::{micros, percentile},
};
use crate::{
    config::MemoryBudget,
    exit::{Exit, Failure, OrExit},
};

const LARGE_BYTES: usize = 100_000_000;
const SMALL_BYTES: usize = 1_000;
/// Large puts that touch the memory first, and those that are measured.
const LARGE_ROUNDS: u64 = 10;
const SMALL_COUNT: u64 = 200_000;
/// What is put for.
const GROUP: u128 = 0xbe4c;

/// Large puts into memory that was touched before, gets of them, and many small puts.
pub(super) fn put(place: &Place<'_>) -> Result<Figures, Failure> {
    if place.args.cluster.is_some() {
        return Err(Failure::text(Exit::Usage, "a put never leaves its node: measure it without --cluster"));
    }
    let mut options = place.node_options().store;
    if place.args.memory.is_none() {
        options.memory_bytes = options.memory_bytes.min(MemoryBudget::Bytes(1 << 30).bytes(0));
    }
    let store = super::open_store(options)?;
    measure(&store).or_exit(Exit::InputOutput)
}

fn measure(store: &Store) -> Result<Figures, StoreError> {
    let clock = SystemClock::new();
    let mut large = vec![0; LARGE_BYTES];
    let (mut puts, mut gets) = (Vec::new(), Vec::new());
    for round in 0..2 * LARGE_ROUNDS {
        // Another content each time, else it would be the same object.
        noise(&mut large[..64], round);
        let began = clock.now();
        let meta = store.put(GROUP, &large)?;
        let put = clock.now() - began;
        let began = clock.now();
        let block = store.get(&meta.id, Parts::All).wait()?;
        let get = clock.now() - began;
        assert_eq!(block[..64], large[..64], "the store gives back what was put");
        drop(block);
        store.delete(&[meta.id]);
        // The first rounds touch the memory.
        if round >= LARGE_ROUNDS {
            puts.push(put);
            gets.push(get);
        }
    }

    let mut small = vec![0; SMALL_BYTES];
    let mut ids = Vec::with_capacity(SMALL_COUNT as usize);
    let mut spent = Duration::ZERO;
    for number in 0..SMALL_COUNT {
        small[..8].copy_from_slice(&number.to_le_bytes());
        let began = clock.now();
        ids.push(store.put(GROUP, &small)?.id);
        spent += clock.now() - began;
    }
    store.delete_group(GROUP);
    let median = percentile(&mut puts, 0.5);
    Ok(vec![
        ("put_100mb_gb_per_s", LARGE_BYTES as f64 / 1e9 / median.as_secs_f64()),
        ("put_100mb_p99_us", micros(percentile(&mut puts, 0.99))),
        ("get_100mb_p50_us", micros(percentile(&mut gets, 0.5))),
        ("put_1kb_per_s", SMALL_COUNT as f64 / spent.as_secs_f64()),
    ])
}
