//! What do hashing, gathering, reading, encoding keys and adding to groups cost, on one core? In time of the thread, not of the clock on the wall.
//!
//! Data: *record* is the sort benchmark's row as Parquet has it (int64, int32, 90 bytes of binary: 102 bytes and 4 of offset), *numbers* eight
//! columns of int64, a tenth of them null in *with_nulls*, *text* one of 10 to 30 letters, *dictionary* the same of 1000 distinct ones, *vectors* lists of
//! 768 float32. Rows are gathered from 80 batches, 1.3 million in all (130 MB of records), far more than the caches, in random order (*merged*: as the merge of
//! 80 sorted runs takes them); what is written was touched before. Hashes are of batches of 8192 rows.
//!
//! Good on the reference machine (2 cores, AVX2): hash of a record below 30 ns; gathering records above 1 GB/s, the library's `interleave` beside it.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::types::{Float32Type, Int32Type};
use arrow_array::*;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_data::UnsafeFlag;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::{MetadataVersion, root_as_message};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::interleave::interleave_record_batch;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use exobus_store::{Align, CopyId, Parts, RealDisk, RowHash, Store, StoreOptions, SystemClock, WriterOptions};
use exobus_tables::RowHasher;
use exobus_tables::aggregates::Aggregate;
use exobus_tables::block::{Gather, Layout, Limits, Part, Pick, write_part};
use exobus_tables::semantics::{KeyColumn, KeyEncoder, KeyRows};
use rustix::time::{ClockId, clock_gettime};

const BATCHES: usize = 80;

/// Time of this thread on a processor: what others do on the machine meanwhile counts less.
struct ThreadTime;

impl ThreadTime {
    fn now() -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }
}

impl Measurement for ThreadTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        Self::now()
    }

    fn end(&self, start: Duration) -> Duration {
        Self::now() - start
    }

    fn add(&self, left: &Duration, right: &Duration) -> Duration {
        *left + *right
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn text(&mut self) -> String {
        let len = 10 + self.next() % 21;
        (0..len).map(|_| char::from(b'a' + (self.next() % 26) as u8)).collect()
    }
}

fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
    let named = columns.into_iter().enumerate().map(|(at, column)| (format!("c{at}"), column, true));
    RecordBatch::try_from_iter_with_nullable(named).unwrap()
}

fn record(numbers: &mut Numbers, rows: usize) -> RecordBatch {
    let payload: Vec<[u8; 90]> = (0..rows).map(|_| std::array::from_fn(|_| numbers.next() as u8)).collect();
    batch(vec![
        Arc::new(Int64Array::from_iter_values((0..rows).map(|_| numbers.next() as i64))),
        Arc::new(Int32Array::from_iter_values((0..rows).map(|_| (numbers.next() & 0xffff) as i32))),
        Arc::new(BinaryArray::from_iter_values(payload)),
    ])
}

fn eight(numbers: &mut Numbers, rows: usize) -> RecordBatch {
    let column = |_| Arc::new(Int64Array::from_iter_values((0..rows).map(|_| numbers.next() as i64))) as ArrayRef;
    batch((0..8).map(column).collect())
}

fn eight_with_nulls(numbers: &mut Numbers, rows: usize) -> RecordBatch {
    let value = |bits: u64| (!bits.is_multiple_of(10)).then_some(bits as i64);
    let mut column = || Arc::new(Int64Array::from_iter((0..rows).map(|_| value(numbers.next())))) as ArrayRef;
    batch((0..8).map(|_| column()).collect())
}

fn text(numbers: &mut Numbers, rows: usize) -> RecordBatch {
    batch(vec![Arc::new(StringArray::from_iter_values((0..rows).map(|_| numbers.text())))])
}

fn dictionary(numbers: &mut Numbers, rows: usize) -> RecordBatch {
    let values = StringArray::from_iter_values((0..1000).map(|_| numbers.text()));
    let keys = Int32Array::from_iter_values((0..rows).map(|_| (numbers.next() % 1000) as i32));
    batch(vec![Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(values)))])
}

fn vectors(numbers: &mut Numbers, rows: usize) -> RecordBatch {
    let values = PrimitiveArray::<Float32Type>::from_iter_values((0..rows * 768).map(|_| numbers.next() as f32));
    let field = Arc::new(Field::new("item", DataType::Float32, true));
    batch(vec![Arc::new(FixedSizeListArray::new(field, 768, Arc::new(values), None))])
}

type Make = fn(&mut Numbers, usize) -> RecordBatch;
const SHAPES: [(&str, Make, usize); 8] = [
    ("record", record, 1_300_000),
    ("record_merged", record, 1_300_000),
    ("numbers", eight, 1_300_000),
    ("numbers_with_nulls", eight_with_nulls, 1_300_000),
    ("text", text, 1_300_000),
    ("text_merged", text, 1_300_000),
    ("dictionary", dictionary, 1_300_000),
    ("vectors", vectors, 30_000),
];

fn hash(criterion: &mut Criterion<ThreadTime>) {
    let mut group = criterion.benchmark_group("row_hash");
    for (name, make, rows) in SHAPES {
        let rows = if rows < 100_000 { 512 } else { 8192 };
        let batch = make(&mut Numbers(1), rows);
        let hasher = RowHasher::new(&batch.schema()).unwrap();
        group.throughput(Throughput::Elements(rows as u64));
        group.bench_function(name, |bencher| bencher.iter(|| hasher.sum(black_box(&batch)).unwrap()));
        let mut hashes = Vec::with_capacity(rows);
        group.bench_function(format!("{name}/rows"), |bencher| {
            bencher.iter(|| {
                hashes.clear();
                hasher.rows(black_box(&batch), &mut hashes).unwrap();
                hashes.len()
            });
        });
    }
}

fn gather(criterion: &mut Criterion<ThreadTime>) {
    let mut group = criterion.benchmark_group("gather");
    group.sample_size(10);
    for (name, make, rows) in SHAPES {
        let (mut numbers, each) = (Numbers(2), rows / BATCHES);
        let batches: Vec<_> = (0..BATCHES).map(|_| make(&mut numbers, each)).collect();
        let mut picks: Vec<_> =
            (0..BATCHES as u32).flat_map(|batch| (0..each as u32).map(move |row| Pick { batch, row })).collect();
        for at in (1..picks.len()).rev() {
            picks.swap(at, (numbers.next() % (at as u64 + 1)) as usize);
        }
        if name.ends_with("merged") {
            let mut next = [0; BATCHES];
            for pick in &mut picks {
                let next = &mut next[pick.batch as usize];
                (pick.row, *next) = (*next, *next + 1);
            }
        }
        let layout = Arc::new(Layout::new(&batches[0].schema()).unwrap());
        let gather = Gather::new(layout.clone(), &batches).unwrap();
        let messages = gather.messages(&picks, &Limits::default()).unwrap();
        let bytes: u64 = messages.iter().map(|message| message.bytes()).sum();
        let mut out = vec![1; bytes as usize];
        group.throughput(Throughput::Bytes(bytes));
        group.bench_function(format!("{name}/measure"), |bencher| {
            bencher.iter(|| gather.messages(black_box(&picks), &Limits::default()).unwrap().len());
        });
        group.bench_function(format!("{name}/write"), |bencher| {
            bencher.iter(|| {
                let mut rest = &mut out[..];
                for message in &messages {
                    let place = rest.split_off_mut(..message.bytes() as usize).unwrap();
                    message.write(place);
                }
            });
        });
        if name != "dictionary" {
            let all: Vec<&RecordBatch> = batches.iter().collect();
            let places: Vec<_> = picks.iter().map(|pick| (pick.batch as usize, pick.row as usize)).collect();
            group.bench_function(format!("{name}/interleave"), |bencher| {
                bencher.iter(|| {
                    messages
                        .iter()
                        .map(|message| interleave_record_batch(&all, &places[message.rows()]).unwrap().num_rows())
                        .sum::<usize>()
                });
            });
        }
        let part = Buffer::from_vec(out);
        group.bench_function(format!("{name}/read"), |bencher| {
            bencher.iter(|| {
                Part::of_bytes(layout.clone(), part.clone()).map(|batch| batch.unwrap().num_rows()).sum::<usize>()
            });
        });
    }
}

fn keys(criterion: &mut Criterion<ThreadTime>) {
    let mut group = criterion.benchmark_group("keys");
    for (name, make, columns) in [
        ("record", record as Make, vec!["c0", "c1"]),
        ("text", text as Make, vec!["c0"]),
        ("dictionary", dictionary as Make, vec!["c0"]),
    ] {
        let batch = make(&mut Numbers(3), 8192);
        let key: Vec<_> = columns.into_iter().map(KeyColumn::rising).collect();
        let encoder = KeyEncoder::new(&batch.schema(), &key).unwrap();
        group.throughput(Throughput::Elements(8192));
        group.bench_function(name, |bencher| bencher.iter(|| encoder.encode(black_box(&batch)).unwrap().len()));
        let mut keys = KeyRows::default();
        group.bench_function(format!("{name}/again"), |bencher| {
            bencher.iter(|| {
                keys.clear();
                encoder.append(black_box(&batch), &mut keys).unwrap();
                keys.len()
            });
        });
    }
}

/// The messages of a part one after the other as the library decodes them when it validates nothing, and nobody else checks anything.
fn decoded(schema: &SchemaRef, part: &Buffer) -> usize {
    let mut trusted = UnsafeFlag::new();
    // SAFETY: a gather wrote the part.
    #[allow(unsafe_code, reason = "what a reading costs at least")]
    unsafe {
        trusted.set(true);
    }
    let (mut at, mut rows) = (0, 0);
    while let Some(prefix) = part.get(at..at + 8) {
        let header_bytes = u32::from_le_bytes(prefix[4..].try_into().unwrap()) as usize;
        let message = root_as_message(&part[at + 8..at + 8 + header_bytes]).unwrap();
        let body = part.slice_with_length(at + 8 + header_bytes, message.bodyLength() as usize);
        let (batch, none) = (message.header_as_record_batch().unwrap(), HashMap::new());
        let decoder = RecordBatchDecoder::try_new(&body, batch, schema.clone(), &none, &MetadataVersion::V5).unwrap();
        rows += decoder.with_skip_validation(trusted.clone()).read_record_batch().unwrap().num_rows();
        at += 8 + header_bytes + body.len();
    }
    rows
}

/// What do the checks of a part that is trusted cost: headers, marks, and one pass over the offsets? The library's reader without any beside it.
fn read(criterion: &mut Criterion<ThreadTime>) {
    let mut group = criterion.benchmark_group("read");
    group.sample_size(10);
    let dir = tempfile::tempdir().unwrap();
    for (number, (name, make, rows)) in (1u128..).zip(SHAPES).filter(|(_, (name, ..))| !name.ends_with("merged")) {
        let options = StoreOptions {
            memory_bytes: 512 << 20,
            spill_dirs: vec![dir.path().to_owned()],
            executors: 1,
            reserve_per_executor_bytes: 16 << 20,
            ..StoreOptions::default()
        };
        let store = Store::open(options, Arc::new(RealDisk::new()), Arc::new(SystemClock::new())).unwrap();
        let batch = make(&mut Numbers(4), rows);
        let layout = Arc::new(Layout::new(&batch.schema()).unwrap());
        let gather = Gather::new(layout.clone(), &[batch]).unwrap();
        let picks: Vec<_> = (0..rows as u32).map(|row| Pick { batch: 0, row }).collect();
        let id = CopyId::new(1, number << 32);
        let mut writer = store.writer(id, WriterOptions { align: Align::SixtyFour, ..WriterOptions::default() });
        let mut scratch = vec![0; 8 << 20];
        write_part(&mut writer, &gather, &picks, RowHash::default(), &Limits::default(), &mut scratch).unwrap();
        writer.seal().unwrap();
        let block = store.get(&id, Parts::All).wait().unwrap().part(0);
        group.throughput(Throughput::Bytes(block.len() as u64));
        group.bench_function(format!("{name}/trusted"), |bencher| {
            bencher.iter(|| {
                // SAFETY: the gather above wrote it.
                #[allow(unsafe_code, reason = "parts are read as tasks read their own")]
                let part = unsafe { Part::new(layout.clone(), black_box(block.clone())) };
                part.map(|batch| batch.unwrap().num_rows()).sum::<usize>()
            });
        });
        // Aligned as the block is, or the library would copy.
        let mut bytes = MutableBuffer::from_len_zeroed(block.len());
        bytes.as_slice_mut().copy_from_slice(&block);
        let bytes = Buffer::from(bytes);
        group.bench_function(format!("{name}/without_checks"), |bencher| {
            bencher.iter(|| decoded(layout.schema(), black_box(&bytes)));
        });
    }
}

/// What does a row cost that is added to the state of its group? A million rows of 1000 groups, or of a million, in random order; batches of 8192 rows.
fn aggregates(criterion: &mut Criterion<ThreadTime>) {
    const ROWS: usize = 1 << 20;
    let mut numbers = Numbers(7);
    let floats = Float64Array::from_iter_values((0..ROWS).map(|_| (numbers.next() % 2_000_000) as f64 / 100.0 - 1e4));
    let whole = Int64Array::from_iter_values((0..ROWS).map(|_| numbers.next() as i64));
    let texts = StringArray::from_iter_values((0..ROWS).map(|_| numbers.text()));
    let columns: [(&str, ArrayRef); 3] =
        [("int64", Arc::new(whole)), ("float64", Arc::new(floats)), ("text", Arc::new(texts))];
    let places: Vec<u64> = (0..ROWS as u64).collect();
    let mut group = criterion.benchmark_group("aggregates");
    group.sample_size(10).throughput(Throughput::Elements(ROWS as u64));
    for groups in [1000, 1 << 20] {
        let of_rows: Vec<u32> = (0..ROWS).map(|_| (numbers.next() % groups) as u32).collect();
        for (name, column) in &columns {
            let schema = Schema::new(vec![Field::new("x", column.data_type().clone(), true)]);
            for text in ["count(x)", "sum(x)", "avg(x)", "min(x)", "max(x)", "first(x)", "last(x)", "variance(x)"] {
                let Ok(bound) = text.parse::<Aggregate>().unwrap().bind(&schema) else { continue };
                let mut accumulator = bound.accumulator().unwrap().unwrap();
                group.bench_function(format!("{groups}/{name}/{text}"), |bencher| {
                    bencher.iter(|| {
                        accumulator.clear();
                        accumulator.resize(groups as usize);
                        for from in (0..ROWS).step_by(8192) {
                            let rows = from..from + 8192;
                            let some = column.slice(from, 8192);
                            accumulator.update(&of_rows[rows.clone()], Some(&some), Some(&places[rows])).unwrap();
                        }
                        accumulator.bytes()
                    });
                });
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(ThreadTime).sample_size(20);
    targets = hash, gather, read, keys, aggregates
}
criterion_main!(benches);
