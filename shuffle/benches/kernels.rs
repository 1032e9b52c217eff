//! How fast are the kernels of a sort, on one core?
//!
//! Data: uniform binary benchmark records (100 bytes, 10-byte keys), except where a name says skewed or ascii. Chunks
//! have 1.3 million records (130 MB), far more than the caches; runs and outputs were touched before.
//!
//! Good on the reference machine (2 cores, AVX2): `sort_gather_hash` below 0.12 s, that is above 1.1 GB/s; `merge` of 80
//! runs above 1 GB/s; `row_hash` 5 to 8 ns a record where the records are cached.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use exobus_shuffle::cuts::Cuts;
use exobus_shuffle::kernels::{
    Merge, Scatter, SliceRun, partition, partition_scratch_bytes, sort, sort_pieces, sort_scratch_bytes,
};
use exobus_shuffle::records::{Generator, Mode, RECORD_BYTES, Summary, checksum, row_hash_sum};

const ROWS: usize = 1_300_000;

fn generate(mode: Mode, rows: usize) -> Vec<u8> {
    let mut bytes = vec![0; rows * RECORD_BYTES];
    Generator::new(mode).fill(0, &mut bytes);
    bytes
}

fn records(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("records");
    let rows = 10_000;
    let bytes = generate(Mode::default(), rows);
    group.throughput(Throughput::Elements(rows as u64));
    group.bench_function("row_hash", |bencher| bencher.iter(|| row_hash_sum(black_box(&bytes))));
    group.bench_function("checksum", |bencher| bencher.iter(|| checksum(black_box(&bytes))));
    group.bench_function("summary", |bencher| bencher.iter(|| Summary::of(black_box(&bytes))));
    for (name, ascii, skewed) in [("binary", false, false), ("binary_skewed", false, true), ("ascii", true, false)] {
        let generator = Generator::new(Mode { ascii, skewed });
        let mut out = bytes.clone();
        group.bench_function(BenchmarkId::new("generate", name), |bencher| {
            bencher.iter(|| generator.fill(black_box(1 << 30), &mut out));
        });
    }
    group.finish();
}

fn sorting(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sort");
    group.sample_size(10);
    let mut scratch = vec![1; sort_scratch_bytes(ROWS)];
    let mut out = vec![1; ROWS * RECORD_BYTES];
    for (name, ascii, skewed) in [("binary", false, false), ("binary_skewed", false, true), ("ascii", true, false)] {
        let bytes = generate(Mode { ascii, skewed }, ROWS);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(BenchmarkId::new("order", name), |bencher| {
            bencher.iter(|| sort(&bytes, &mut scratch).rows());
        });
        group.bench_function(BenchmarkId::new("sort_gather_hash", name), |bencher| {
            bencher.iter(|| {
                let sorted = sort(&bytes, &mut scratch);
                sorted.gather(0..sorted.rows(), &mut out)
            });
        });
    }
    let bytes = generate(Mode::default(), ROWS);
    let cuts = Cuts::even(80).expect("cuts");
    let mut scratch = vec![1; partition_scratch_bytes(ROWS)];
    group.bench_function("partition_80", |bencher| {
        bencher.iter(|| partition(&bytes, &cuts, &mut scratch, &mut out));
    });
    // Buffers of 1 MB go round, as they do when full ones are written to disk: memory is hot, but not in the first caches.
    let mut free: Vec<Vec<u8>> = (0..200).map(|_| vec![1; 1_024_000]).collect();
    let mut scatter = Scatter::new(&cuts, free.drain(..cuts.partitions()));
    let mut free = std::collections::VecDeque::from(free);
    group.bench_function("scatter_80", |bencher| {
        bencher.iter(|| {
            let pushed = scatter.push(&bytes, |_, buffer| {
                free.push_back(std::mem::take(buffer));
                *buffer = free.pop_front().ok_or("none left")?;
                Ok::<(), &str>(())
            });
            pushed.expect("as many come back as go");
            scatter.row_hash()
        });
    });
    let pieces: Vec<&[u8]> = bytes.chunks(1_024_000).collect();
    let mut scratch = vec![1; sort_scratch_bytes(ROWS)];
    group.bench_function("sort_gather_hash/pieces", |bencher| {
        bencher.iter(|| {
            let sorted = sort_pieces(&pieces, &mut scratch);
            sorted.gather(0..sorted.rows(), &mut out)
        });
    });
    group.finish();
}

fn merging(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("merge");
    group.sample_size(10);
    let bytes = generate(Mode::default(), ROWS);
    let mut scratch = vec![0; sort_scratch_bytes(ROWS)];
    let mut runs = vec![0; bytes.len()];
    let mut out = vec![1; 81_920 * RECORD_BYTES];
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    for count in [2, 10, 80, 500] {
        let run_bytes = (ROWS / count) * RECORD_BYTES;
        for (from, to) in bytes.chunks(run_bytes).zip(runs.chunks_mut(run_bytes)) {
            let sorted = sort(from, &mut scratch);
            sorted.gather(0..sorted.rows(), to);
        }
        group.bench_function(BenchmarkId::new("runs", count), |bencher| {
            bencher.iter(|| {
                let slices = runs.chunks(run_bytes).map(SliceRun::new).collect();
                let mut merge = Merge::new(slices).expect("slices do not fail");
                while merge.next_into(&mut out).expect("slices do not fail") > 0 {}
                merge.row_hash()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, records, sorting, merging);
criterion_main!(benches);
