//! What reading takes of the heap, against what it was granted. The allocator of this test binary counts what the thread of a test takes.
#![allow(unsafe_code, reason = "an allocator that counts is one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use arrow_array::Array as _;
use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use exobus_files::{LocalFiles, Location};
use exobus_tables::look::Look;
use exobus_tables::reading::ReadOptions;
use exobus_tables::semantics::KeyColumn;
use exobus_tables::sinks::{
    Compression as Packing, FileForm, OutputFormat, ParquetOptions, ParquetSink, SinkOptions, TableSink,
};
use exobus_tables::sources::{
    InputFile, InputFormat, ListedFile, MemoryBudget, MemoryDenied, Source, SourceError, TextOptions,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{WriterProperties, WriterVersion};
use proptest::prelude::*;

/// What reading may have beside what it asked for: names, schemas, states of decoders.
const UNASKED_MAX: i64 = 768 << 10;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static GRANTED: Cell<i64> = const { Cell::new(0) };
    /// Most bytes that were taken and not granted at any time.
    static UNASKED: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

impl Counting {
    fn count(bytes: i64) {
        // While a thread ends there is nothing to count with.
        let _ = COUNTS.try_with(|counts| {
            if counts.get() {
                LIVE.set(LIVE.get() + bytes);
                UNASKED.set(UNASKED.get().max(LIVE.get() - GRANTED.get()));
            }
        });
    }
}

// SAFETY: all is done by the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::count(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts from here on.
fn begin() {
    // Who prints where a decoder gave up takes memory for that, which is not reading.
    std::panic::set_hook(Box::new(|_| ()));
    LIVE.set(0);
    GRANTED.set(0);
    UNASKED.set(0);
    COUNTS.set(true);
}

/// Grants up to so many bytes to this thread.
struct OfThisThread(i64);

impl MemoryBudget for OfThisThread {
    fn take(&self, bytes: u64) -> Result<(), MemoryDenied> {
        let after = i64::try_from(bytes).ok().and_then(|bytes| GRANTED.get().checked_add(bytes));
        let after = after.filter(|after| *after <= self.0).ok_or(MemoryDenied { wanted: bytes })?;
        GRANTED.set(after);
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        GRANTED.set(GRANTED.get() - bytes as i64);
    }
}

/// Reads all rows of a file; most bytes that were taken and not granted meanwhile.
fn unasked(path: &Path, bytes_max: i64) -> (Result<usize, SourceError>, i64) {
    let budget: Arc<dyn MemoryBudget> = Arc::new(OfThisThread(bytes_max));
    let location: Location = path.into();
    let file = InputFile::open(&LocalFiles, &location).unwrap();
    begin();
    let read = || {
        let source = Source::open(file, InputFormat::of(&location), &TextOptions::default(), &budget)?;
        let states = source.states(&budget)?;
        let mut rows = 0;
        for split in source.splits()? {
            for one in source.read(split.index, states.get(split.index).copied(), None, &budget)? {
                rows += one?.batch.num_rows();
            }
        }
        Ok(rows)
    };
    let rows = read();
    COUNTS.set(false);
    let _ = std::panic::take_hook();
    assert_eq!(GRANTED.get(), 0);
    (rows, UNASKED.get())
}

/// Reads the rows of a file that meet a condition, with their keys and hashes; most bytes that were taken and not granted meanwhile.
fn unasked_by_condition(path: &Path, condition: &str, bytes_max: i64) -> (Result<u64, SourceError>, i64) {
    let budget: Arc<dyn MemoryBudget> = Arc::new(OfThisThread(bytes_max));
    let location: Location = path.into();
    let status = location.open(exobus_files::Access::Cached).unwrap().status().unwrap();
    let options = ReadOptions { filter: Some(condition.parse().unwrap()), ..ReadOptions::default() };
    let look = Look::new(vec![ListedFile { location, status, below: 0 }], options, budget).unwrap();
    begin();
    let checked = look.check(&[KeyColumn::rising("name")]);
    COUNTS.set(false);
    let _ = std::panic::take_hook();
    assert_eq!(GRANTED.get(), 0);
    (checked.map(|checked| checked.rows), UNASKED.get())
}

/// Numbers, texts, and lists of texts.
fn table(rows: usize) -> RecordBatch {
    let ids = Int64Array::from_iter_values((0..rows as i64).map(|id| id * 7919 % 100_003));
    let names: StringArray = (0..rows).map(|at| (at % 5 != 1).then(|| "name ".repeat(at % 40))).collect();
    let mut tags = ListBuilder::new(StringBuilder::new());
    for at in 0..rows {
        (0..at % 6).for_each(|tag| tags.values().append_value(format!("a tag of number {tag}")));
        tags.append(at % 11 != 3);
    }
    let columns = [("id", Arc::new(ids) as ArrayRef), ("name", Arc::new(names)), ("tags", Arc::new(tags.finish()))];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

fn write_parquet(path: &Path, rows: usize, way: usize) -> Vec<u8> {
    let codec = [Compression::SNAPPY, Compression::ZSTD(Default::default()), Compression::UNCOMPRESSED][way % 3];
    let version = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0][way / 3 % 2];
    let properties = WriterProperties::builder()
        .set_compression(codec)
        .set_writer_version(version)
        .set_dictionary_enabled(way < 6)
        .set_data_page_row_count_limit(if way.is_multiple_of(2) { 20_000 } else { 2_000 });
    let batch = table(rows);
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    std::fs::write(path, &bytes).unwrap();
    bytes
}

#[test]
fn what_reading_takes_was_granted() {
    let folder = tempfile::tempdir().unwrap();
    let check = |path: &Path, rows: usize| {
        let (read, unasked) = unasked(path, 1 << 30);
        assert_eq!(read.unwrap(), rows, "{}", path.display());
        assert!(unasked <= UNASKED_MAX, "{unasked} bytes of {} were not granted", path.display());
    };
    for way in 0..12 {
        let path = folder.path().join(format!("{way}.parquet"));
        write_parquet(&path, 120_000, way);
        check(&path, 120_000);
    }
    let path = folder.path().join("t.arrow");
    let batch = table(120_000);
    let mut writer =
        arrow_ipc::writer::FileWriter::try_new(std::fs::File::create(&path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    check(&path, 120_000);
    let mut text = "id,name\n".to_owned();
    (0..200_000).for_each(|at| writeln!(text, "{at},\"{}\"", "some, name ".repeat(at % 13)).unwrap());
    let path = folder.path().join("t.csv");
    std::fs::write(&path, &text).unwrap();
    check(&path, 200_000);
    let path = folder.path().join("t.csv.gz");
    let mut gzip = flate2::write::GzEncoder::new(std::fs::File::create(&path).unwrap(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap();
    check(&path, 200_000);
    let path = folder.path().join("t.csv.zst");
    std::fs::write(&path, zstd::bulk::compress(text.as_bytes(), 1).unwrap()).unwrap();
    check(&path, 200_000);
    let mut text = String::new();
    for at in 0..200_000 {
        let tags: Vec<_> = (0..at % 5).map(|tag| format!("{{\"tag\": {tag}, \"of\": \"some\\n\"}}")).collect();
        let name = "some, name ".repeat(at % 13);
        writeln!(text, "{{\"id\": {at}, \"name\": \"{name}\", \"tags\": [{}]}}", tags.join(", ")).unwrap();
    }
    let path = folder.path().join("t.jsonl");
    std::fs::write(&path, &text).unwrap();
    check(&path, 200_000);
    let path = folder.path().join("t.jsonl.zst");
    std::fs::write(&path, zstd::bulk::compress(text.as_bytes(), 1).unwrap()).unwrap();
    check(&path, 200_000);
    let path = folder.path().join("part-00000");
    std::fs::write(&path, vec![7; 20_000_000]).unwrap();
    check(&path, 200_000);
}

#[test]
fn what_rows_take_that_meet_a_condition_was_granted() {
    let folder = tempfile::tempdir().unwrap();
    for way in 0..12 {
        let path = folder.path().join(format!("{way}.parquet"));
        write_parquet(&path, 120_000, way);
        for (condition, rows) in [
            ("id is not null", 120_000),
            ("id < 50000 or tags is null", 65_455),
            ("name like 'name name %' and id between 100 and 3000", 2_698),
            ("id < 0", 0),
        ] {
            let (read, unasked) = unasked_by_condition(&path, condition, 1 << 30);
            assert_eq!(read.unwrap(), rows, "{condition}");
            assert!(unasked <= UNASKED_MAX, "{way}, {condition}: {unasked} bytes were not granted");
        }
    }
}

#[test]
fn what_writing_takes_was_granted() {
    let batch = table(120_000);
    for compression in [Packing::None, Packing::Snappy, Packing::Zstd(1), Packing::Gzip(6)] {
        let budget: Arc<dyn MemoryBudget> = Arc::new(OfThisThread(1 << 30));
        begin();
        let options = ParquetOptions { compression, ..ParquetOptions::default() };
        let mut sink = ParquetSink::new(std::io::sink(), &batch.schema(), &options, &budget).unwrap();
        for at in (0..batch.num_rows()).step_by(10_000) {
            sink.write(&batch.slice(at, 10_000)).unwrap();
        }
        sink.finish().unwrap();
        COUNTS.set(false);
        let _ = std::panic::take_hook();
        assert_eq!(GRANTED.get(), 0);
        assert!(UNASKED.get() <= UNASKED_MAX, "{} bytes were not granted", UNASKED.get());
    }
}

/// Columns of values that do not become smaller: numbers, texts of about 60 and of 1 000 bytes.
fn incompressible(columns: usize, rows: usize) -> RecordBatch {
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 11
    };
    let mut column = |at: usize| -> ArrayRef {
        match at % 3 {
            0 => Arc::new(Int64Array::from_iter_values((0..rows).map(|_| next() as i64))),
            of => {
                let words = [0, 4, 64][of];
                let text = |_| (0..words).map(|_| format!("{:016x}", next() << 11)).collect::<String>();
                Arc::new(StringArray::from_iter_values((0..rows).map(text)))
            }
        }
    };
    RecordBatch::try_from_iter((0..columns).map(|at| (at.to_string(), column(at)))).unwrap()
}

#[test]
fn what_writing_values_takes_that_do_not_become_smaller_was_granted() {
    for (columns, rows) in [(1, 300_000), (3, 60_000), (30, 12_000), (300, 1_000)] {
        let batch = incompressible(columns, rows);
        for compression in [Packing::None, Packing::Snappy, Packing::Lz4, Packing::Gzip(1)] {
            let budget: Arc<dyn MemoryBudget> = Arc::new(OfThisThread(1 << 30));
            begin();
            let options = ParquetOptions { compression, ..ParquetOptions::default() };
            let mut sink = ParquetSink::new(std::io::sink(), &batch.schema(), &options, &budget).unwrap();
            for at in (0..rows).step_by(1_000) {
                sink.write(&batch.slice(at, 1_000)).unwrap();
            }
            sink.finish().unwrap();
            COUNTS.set(false);
            let _ = std::panic::take_hook();
            let unasked = UNASKED.get();
            assert!(unasked <= UNASKED_MAX, "{columns} columns, {compression}: {unasked} bytes were not granted");
        }
    }
}

/// Rows of these MiB, each as a text and as a list of one.
fn large_values(mib: &[usize]) -> [RecordBatch; 2] {
    let random = incompressible(2, 16 << 10)["1"].clone();
    let piece = random.as_string::<i32>().value_data()[..1 << 20].to_vec();
    let piece = String::from_utf8(piece).unwrap();
    let texts: Vec<String> = (0..).zip(mib).map(|(at, mib)| format!("{at}{}", piece.repeat(*mib))).collect();
    let mut lists = ListBuilder::new(StringBuilder::new());
    for text in &texts {
        lists.values().append_value(text);
        lists.append(true);
    }
    let columns = [Arc::new(StringArray::from(texts)) as ArrayRef, Arc::new(lists.finish())];
    columns.map(|column| RecordBatch::try_from_iter([("large", column)]).unwrap())
}

/// Also what is copied of the least and greatest values.
#[test]
fn what_writing_large_values_takes_was_granted() {
    for mib in [vec![64], vec![31, 31], vec![20, 20, 20], vec![4; 15], vec![1, 1, 40]] {
        for batch in large_values(&mib) {
            for compression in [Packing::None, Packing::Snappy, Packing::Lz4, Packing::Zstd(1), Packing::Gzip(1)] {
                let budget: Arc<dyn MemoryBudget> = Arc::new(OfThisThread(1 << 30));
                begin();
                let options = ParquetOptions { compression, ..ParquetOptions::default() };
                let mut sink = ParquetSink::new(std::io::sink(), &batch.schema(), &options, &budget).unwrap();
                for row in 0..batch.num_rows() {
                    sink.write(&batch.slice(row, 1)).unwrap();
                }
                sink.finish().unwrap();
                COUNTS.set(false);
                let _ = std::panic::take_hook();
                let (unasked, data_type) = (UNASKED.get(), batch.column(0).data_type());
                assert!(
                    unasked <= UNASKED_MAX,
                    "{mib:?} MiB, {data_type}, {compression}: {unasked} bytes were not granted"
                );
            }
        }
    }
}

#[test]
fn what_packing_text_takes_was_granted() {
    let batch = table(120_000).project(&[0, 1]).unwrap();
    for level in [1, 6, 9] {
        let budget: Arc<dyn MemoryBudget> = Arc::new(OfThisThread(1 << 30));
        let form = FileForm::new(OutputFormat::Csv, Some(Packing::Gzip(level))).unwrap();
        begin();
        let mut sink = TableSink::new(std::io::sink(), &batch.schema(), &SinkOptions::new(form), &budget).unwrap();
        for at in (0..batch.num_rows()).step_by(10_000) {
            sink.write(&batch.slice(at, 10_000)).unwrap();
        }
        let granted = GRANTED.get();
        sink.finish().unwrap();
        COUNTS.set(false);
        let _ = std::panic::take_hook();
        assert!((granted, GRANTED.get()) == (512 << 10, 0), "{granted}");
        assert!(UNASKED.get() <= UNASKED_MAX, "{} bytes were not granted", UNASKED.get());
    }
}

/// A row of 64 MiB with quotes in it, which have quotes in front of them in the file.
#[test]
fn a_row_of_text_takes_no_memory_of_its_size_to_be_written() {
    let text = StringArray::from_iter_values([format!("{}\"", "x".repeat((4 << 20) - 1)).repeat(16)]);
    let batch = RecordBatch::try_from_iter([("text", Arc::new(text) as ArrayRef)]).unwrap();
    let budget: Arc<dyn MemoryBudget> = Arc::new(OfThisThread(1 << 30));
    let options = SinkOptions::new(FileForm::new(OutputFormat::Csv, None).unwrap());
    begin();
    let mut sink = TableSink::new(std::io::sink(), &batch.schema(), &options, &budget).unwrap();
    sink.write(&batch).unwrap();
    sink.finish().unwrap();
    COUNTS.set(false);
    let _ = std::panic::take_hook();
    assert!(UNASKED.get() <= UNASKED_MAX, "{} bytes were not granted", UNASKED.get());
}

#[test]
fn the_allocator_counts() {
    begin();
    let taken = std::hint::black_box(vec![1_u8; 2 << 20]);
    COUNTS.set(false);
    let _ = std::panic::take_hook();
    assert!(UNASKED.get() >= 2 << 20 && taken.len() == 2 << 20);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_takes_no_more_than_it_was_granted(seed in any::<u64>(), way in 0..12_usize, flips in 1..4_usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let mut bytes = write_parquet(&path, 300, way);
        let mut random = seed;
        for _ in 0..flips {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // One in two in the footer, which says how much there is of all.
            let footer = bytes.len() / 2;
            let at = (random >> 20) as usize % footer + if random >> 63 == 0 { 0 } else { bytes.len() - footer };
            bytes[at] ^= 1 << (random >> 17 & 7);
        }
        std::fs::write(&path, &bytes).unwrap();
        let by_condition = unasked_by_condition(&path, "id > 50000 and name < 'name name n'", 32 << 20).1;
        prop_assert!(by_condition <= UNASKED_MAX, "{} bytes were not granted to who looks for rows", by_condition);
        let (read, unasked) = unasked(&path, 32 << 20);
        prop_assert!(unasked <= UNASKED_MAX, "{} bytes were not granted; {:?}", unasked, read.map_err(|error| error.to_string()));
    }
}
