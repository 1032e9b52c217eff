//! What the paths of every task cost: put, get, checksum.
//!
//! Data: pseudo-random bytes; the store has 1 GiB whose pages were all touched before the measurement begins. Good on the
//! reference machine (2 cores): put of 100 MB at 5 GB/s or more, put of 1 kB below 5 us, get below 1 us whatever the size.

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use exobus_store::{CopyId, Parts, RealDisk, RowHash, Store, StoreOptions, SystemClock, WriterOptions};

fn touched_store() -> Store {
    let options = StoreOptions { memory_bytes: 1 << 30, ..StoreOptions::default() };
    let store = Store::open(options, Arc::new(RealDisk::new()), Arc::new(SystemClock::new())).expect("open");
    let all = store.stats().budget_bytes - store.stats().reserve_bytes;
    drop(store.scratch(all).expect("all memory"));
    store
}

fn content(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
}

fn copy(id: u64) -> CopyId {
    CopyId::new(1, id.into())
}

/// What is put is called after its content.
fn named(content: u128) -> CopyId {
    CopyId::new(1, content)
}

fn put(criterion: &mut Criterion) {
    let store = touched_store();
    let mut group = criterion.benchmark_group("put");
    for length in [100_000_000, 1_000_000, 100_000, 1_000] {
        let mut bytes = content(length);
        group.throughput(Throughput::Bytes(length as u64));
        let mut seed = 0u64;
        group.bench_function(format!("{length} bytes"), |bencher| {
            bencher.iter(|| {
                // Another content each time; deleted again, so that memory never runs out.
                seed += 1;
                bytes[..8].copy_from_slice(&seed.to_le_bytes());
                let meta = store.put(&bytes, named).expect("put");
                store.delete(&[meta.id]);
            });
        });
    }
    group.finish();
}

fn small_puts_kept(criterion: &mut Criterion) {
    let store = touched_store();
    let mut group = criterion.benchmark_group("put and keep");
    group.throughput(Throughput::Elements(100_000));
    group.sample_size(10);
    group.bench_function("100 000 of 1 kB", |bencher| {
        let mut bytes = content(1000);
        bencher.iter_batched(
            || store.delete_group(1),
            |()| {
                for seed in 0..100_000u64 {
                    bytes[..8].copy_from_slice(&seed.to_le_bytes());
                    black_box(store.put(&bytes, named).expect("put"));
                }
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn get(criterion: &mut Criterion) {
    let store = touched_store();
    for id in 0..100_000u64 {
        store.put_as(copy(id), WriterOptions::default(), &id.to_le_bytes(), 1, RowHash(0)).expect("put");
    }
    let large = store.put(&content(100_000_000), named).expect("put");
    let mut group = criterion.benchmark_group("get");
    let mut id = 0u64;
    group.bench_function("one of 100 000 small", |bencher| {
        bencher.iter(|| {
            id = (id + 7919) % 100_000;
            black_box(store.get(&copy(id), Parts::All).wait().expect("get"));
        });
    });
    group.bench_function("100 MB", |bencher| {
        bencher.iter(|| black_box(store.get(&large.id, Parts::All).wait().expect("get")));
    });
    group.finish();
}

fn write(criterion: &mut Criterion) {
    let store = touched_store();
    let mut group = criterion.benchmark_group("writer");
    let part = content(100_000);
    group.throughput(Throughput::Bytes(100 * part.len() as u64));
    group.bench_function("100 parts of 100 kB", |bencher| {
        bencher.iter(|| {
            let options = WriterOptions { bytes_hint: 10_000_000, ..WriterOptions::default() };
            let mut writer = store.writer(copy(1), options);
            for _ in 0..100 {
                writer.begin_part(Some(part.len() as u64)).expect("begin");
                writer.write(&part).expect("write");
                writer.end_part(1000, RowHash(0));
            }
            let meta = writer.seal().expect("seal");
            store.delete(&[meta.id]);
        });
    });
    group.finish();
}

fn config() -> Criterion {
    Criterion::default().sample_size(20).measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_secs(1))
}

criterion_group! { name = benches; config = config(); targets = put, small_puts_kept, get, write }
criterion_main!(benches);
