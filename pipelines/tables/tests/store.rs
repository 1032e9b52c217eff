//! Parts of tables in a real store: in memory, and when there is none and they go to disk.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use exobus_store::{Align, CopyId, Parts, RealDisk, Store, StoreOptions, SystemClock, WriterOptions};
use exobus_tables::block::{Gather, Layout, Limits, Part, Pick, write_part, write_part_with_more};
use exobus_tables::sources::{MemoryBudget, Reservation, StoreBudget};
use exobus_tables::{RowHasher, TableError};

const MIB: u64 = 1 << 20;

fn store(memory_bytes: u64, dir: &tempfile::TempDir) -> Store {
    let options = StoreOptions {
        memory_bytes,
        spill_dirs: vec![dir.path().to_owned()],
        executors: 1,
        reserve_per_executor_bytes: 2 * MIB,
        io_threads: 2,
        ..StoreOptions::default()
    };
    Store::open(options, Arc::new(RealDisk::new()), Arc::new(SystemClock::new())).unwrap()
}

/// Some 110 bytes a row.
fn batch(rows: i64) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..rows).map(|row| (row % 5 != 0).then_some(row))));
    let text = |row: i64| format!("{row:0>100}");
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(text)));
    RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("t", texts, true)]).unwrap()
}

/// Which part each row goes to: parts 0 to 6 of 7, part 3 gets none.
fn partitions(rows: i64) -> Vec<Vec<Pick>> {
    let mut parts = vec![Vec::new(); 7];
    for row in 0..rows {
        let part = match row * 31 % 7 {
            3 => 4,
            other => other,
        };
        parts[part as usize].push(Pick { batch: 0, row: row as u32 });
    }
    parts
}

/// Writes all parts, reads each back where it lies, and compares rows and hashes with those that were given. No array is a copy.
fn round_trip(store: &Store, rows: i64, align: Align) -> Result<(), TableError> {
    let batch = batch(rows);
    let layout = Arc::new(Layout::new(&batch.schema())?);
    let gather = Gather::new(layout.clone(), std::slice::from_ref(&batch))?;
    let hasher = RowHasher::new(&batch.schema())?;
    let mut hashes = Vec::new();
    hasher.rows(&batch, &mut hashes)?;
    let id = CopyId::new(1, 7 << 32);
    let mut writer = store.writer(id, WriterOptions { align, ..WriterOptions::default() });
    let mut scratch = vec![0xee; MIB as usize];
    for picks in partitions(rows) {
        let hash = picks.iter().map(|pick| hashes[pick.row as usize]).sum();
        write_part(&mut writer, &gather, &picks, hash, &Limits::default(), &mut scratch)?;
    }
    let meta = writer.seal()?;
    assert_eq!(meta.row_hash, hasher.sum(&batch)?);
    for (part, picks) in (0..).zip(partitions(rows)) {
        let block = store.get(&id, Parts::one(part)).wait()?;
        let header = block.header();
        assert_eq!(header.rows, picks.len() as u64);
        let (mut next, mut sum) = (0, exobus_store::RowHash::default());
        // SAFETY: the gather above wrote it.
        #[allow(unsafe_code, reason = "parts are read as tasks read their own")]
        for read in unsafe { Part::new(layout.clone(), block) } {
            let read = read?;
            sum += hasher.sum(&read)?;
            for row in 0..read.num_rows() {
                let expected = batch.slice(picks[next].row as usize, 1);
                assert_eq!(read.slice(row, 1).columns(), expected.columns(), "part {part}");
                next += 1;
            }
            for column in read.columns() {
                let data = column.to_data();
                data.validate_full().unwrap();
                for buffer in data.buffers().iter().filter(|buffer| !buffer.is_empty()) {
                    assert!(store.place_of(buffer.as_slice()).is_some(), "a copy of an array");
                }
            }
        }
        assert_eq!((next, sum), (picks.len(), header.row_hash), "part {part}");
    }
    Ok(())
}

#[test]
fn parts_are_read_where_they_lie_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(64 * MIB, &dir);
    round_trip(&store, 30_000, Align::SixtyFour).unwrap();
    assert_eq!(store.stats().spilled_bytes, 0);
}

#[test]
fn parts_that_find_no_memory_go_to_disk_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(16 * MIB, &dir);
    round_trip(&store, 300_000, Align::SixtyFour).unwrap();
    assert!(
        store.stats().written_through_bytes > 0 && store.stats().spilled_bytes > 0,
        "nothing went to disk: {:?}",
        store.stats()
    );
}

#[test]
fn parts_that_are_not_aligned_are_refused_rather_than_copied() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(64 * MIB, &dir);
    let mut writer = store.writer(CopyId::new(1, 7 << 32), WriterOptions::default());
    let batch = batch(10);
    let layout = Arc::new(Layout::new(&batch.schema()).unwrap());
    let gather = Gather::new(layout.clone(), &[batch]).unwrap();
    writer.begin_part(Some(1)).unwrap();
    writer.write(b"x").unwrap();
    writer.end_part(1, Default::default());
    let picks = [Pick { batch: 0, row: 3 }];
    write_part(&mut writer, &gather, &picks, Default::default(), &Limits::default(), &mut [0; 4096]).unwrap();
    let id = writer.id();
    writer.seal().unwrap();
    let block = store.get(&id, Parts::All).wait().unwrap().part(1);
    let error = Part::of_block(layout, block).next().unwrap().unwrap_err();
    assert!(error.to_string().contains("not aligned"), "{error}");
}

#[test]
fn memory_of_readers_is_beside_the_region_and_denied_where_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(32 * MIB, &dir);
    let budget: Arc<dyn MemoryBudget> = Arc::new(StoreBudget::new(&store));
    let outside = || store.stats().granted_bytes;
    let mut reservation = Reservation::of(&budget, 4 * MIB + 1).unwrap();
    assert_eq!(outside(), 5 * MIB);
    // What is within the step is no question to the store.
    reservation.resize(5 * MIB).unwrap();
    assert_eq!(outside(), 5 * MIB);
    let denied = reservation.resize(1 << 40).unwrap_err();
    assert_eq!((denied.wanted, reservation.bytes(), outside()), ((1 << 40) - 5 * MIB, 5 * MIB, 5 * MIB));
    reservation.resize(MIB).unwrap();
    assert_eq!(outside(), 2 * MIB);
    drop(reservation);
    assert_eq!(outside(), MIB);
    drop(budget);
    assert_eq!(outside(), 0);
}

#[test]
fn a_scratch_without_room_for_a_header_is_refused_and_no_row_is_blamed() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(64 * MIB, &dir);
    let mut writer = store.writer(CopyId::new(1, 7 << 32), WriterOptions::default());
    let batch = batch(10);
    let layout = Arc::new(Layout::new(&batch.schema()).unwrap());
    let gather = Gather::new(layout.clone(), &[batch]).unwrap();
    let picks = [Pick { batch: 0, row: 3 }];
    let mut scratch = vec![0; layout.header_bytes()];
    let error = write_part(&mut writer, &gather, &picks, Default::default(), &Limits::default(), &mut scratch);
    let expected =
        format!("messages of 2 columns need a scratch of more than {0} bytes each, not of {0}", layout.header_bytes());
    assert_eq!(error.unwrap_err().to_string(), expected);
}

#[test]
fn rows_larger_than_the_scratch_take_more_of_it_or_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(64 * MIB, &dir);
    let texts = ["short".to_owned(), "x".repeat(3 << 20), "y".repeat(9 << 20), "short again".to_owned()];
    let column: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
    let batch = RecordBatch::try_from_iter([("text", column)]).unwrap();
    let layout = Arc::new(Layout::new(&batch.schema()).unwrap());
    let gather = Gather::new(layout.clone(), std::slice::from_ref(&batch)).unwrap();
    let picks: Vec<_> = (0..4).map(|row| Pick { batch: 0, row }).collect();
    let write = |id: u64, limits: &Limits, most: u64| {
        let options = WriterOptions { align: Align::SixtyFour, ..WriterOptions::default() };
        let mut writer = store.writer(CopyId::new(1, u128::from(id) << 32), options);
        let mut asked = Vec::new();
        let more = |bytes: u64| {
            asked.push(bytes >> 20);
            (bytes <= most).then(|| vec![0; bytes as usize])
        };
        let part = (picks.as_slice(), Default::default());
        let written = write_part_with_more(&mut writer, &gather, part, limits, &mut vec![0; 1 << 20], more);
        (written.map(|()| writer.seal().unwrap().id).map_err(|error| error.to_string()), asked)
    };
    let (written, asked) = write(7, &Limits::default(), 20 << 20);
    assert_eq!(asked, [3, 9]);
    let block = store.get(&written.unwrap(), Parts::All).wait().unwrap();
    // SAFETY: the gather above wrote it.
    #[allow(unsafe_code, reason = "parts are read as tasks read their own")]
    let read: Vec<_> = unsafe { Part::new(layout.clone(), block.part(0)) }.map(Result::unwrap).collect();
    let rows: usize = read.iter().map(RecordBatch::num_rows).sum();
    assert_eq!((rows, read.iter().map(|batch| batch.num_rows()).max()), (4, Some(2)));
    let (refused, asked) = write(8, &Limits::default(), 4 << 20);
    assert_eq!(asked, [3, 9]);
    assert!(refused.unwrap_err().starts_with("row 2 of batch 0 takes 94"), "the largest one that was not to be had");
    let (refused, asked) = write(9, &Limits { row_bytes_max: 4 << 20, ..Limits::default() }, 20 << 20);
    assert_eq!(asked, [3], "a row beyond the limits is asked for by nobody");
    assert!(refused.unwrap_err().starts_with("row 2 of batch 0 takes"));
}
