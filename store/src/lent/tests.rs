//! A store that lends to a second mapping of its region in the same process.

use std::sync::Mutex;

use super::*;
use crate::{Align, Parts, RangeRead, RealDisk, Store, StoreOptions, SystemClock};

/// Asks the desk directly.
struct Direct(Mutex<Desk>, AtomicU32);

impl Lender for Direct {
    fn room(&self, writer: u32, steps: &[WriterStep]) -> Result<Room, StoreError> {
        self.0.lock().unwrap().room(writer, steps, &|object, _| object.bits < 100)
    }

    fn seal(&self, writer: u32, steps: &[WriterStep]) -> Result<ObjectMeta, StoreError> {
        self.0.lock().unwrap().seal(writer, steps, &|object, _| object.bits < 100)
    }

    fn next_chunk(&self, reader: u32) -> Result<Option<Place>, StoreError> {
        self.0.lock().unwrap().next_chunk(reader)
    }

    fn scratch(&self, bytes: u64) -> Result<(u32, Place), StoreError> {
        self.0.lock().unwrap().scratch(bytes)
    }

    fn outside(&self, more_bytes: u64) -> Result<(), StoreError> {
        self.0.lock().unwrap().outside(more_bytes)
    }

    fn given_back(&self, loan: Loan) {
        self.0.lock().unwrap().given_back(loan);
    }

    fn flush(&self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

struct World {
    store: Store,
    desk: Arc<Direct>,
    lent: LentStore,
    _spill: tempfile::TempDir,
}

impl World {
    fn new(memory_bytes: u64) -> World {
        let spill = tempfile::tempdir().unwrap();
        let spill_dirs = vec![spill.path().to_owned()];
        let options = StoreOptions { memory_bytes, spill_dirs, executors: 1, ..StoreOptions::default() };
        let clock = Arc::new(SystemClock::new());
        let store = Store::open(options, Arc::new(RealDisk::new()), clock.clone()).unwrap();
        let desk = Arc::new(Direct(Mutex::new(Desk::new(store.clone())), AtomicU32::new(0)));
        let region = store.region_fd().try_clone_to_owned().unwrap();
        let lent = LentStore::map(region, desk.clone(), clock).unwrap();
        World { store, desk, lent, _spill: spill }
    }

    fn used(&self) -> u64 {
        self.store.stats().used_bytes
    }
}

fn copy(bits: u128) -> CopyId {
    CopyId::new(7, bits)
}

/// Bytes that differ from part to part.
fn content(part: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + part * 131 + (at >> 8)) as u8).collect()
}

/// Writes parts of these lengths, announced or not, in pieces of `piece` bytes, and reads them in every way.
fn check(world: &World, object: u128, lengths: &[usize], announced: bool, piece: usize) {
    check_aligned(world, object, lengths, announced, piece, Align::One);
}

fn check_aligned(world: &World, object: u128, lengths: &[usize], announced: bool, piece: usize, align: Align) {
    let id = copy(object);
    let mut writer = world.lent.writer(id, WriterOptions { align, ..WriterOptions::default() });
    for (part, length) in lengths.iter().enumerate() {
        let bytes = content(part, *length);
        writer.begin_part(announced.then_some(*length as u64)).unwrap();
        for piece in bytes.chunks(piece) {
            writer.write(piece).unwrap();
        }
        assert_eq!(writer.part_bytes(), *length as u64);
        writer.end_part(part as u64, RowHash::of(&bytes));
    }
    let total: usize = lengths.iter().sum();
    assert_eq!(writer.bytes(), total as u64);
    let meta = writer.seal().unwrap();
    assert_eq!((meta.bytes, meta.parts.len()), (total as u64, lengths.len()));
    world.store.verify(&id).unwrap();
    assert!(meta.parts.iter().all(|part| part.offset.is_multiple_of(align.bytes())));
    assert_gaps_are_zeros(&world.store, &meta);

    let window = world.store.scratch(1 << 20).or_else(|_| world.store.scratch(4096)).unwrap();
    let reader = world.store.reader(&id, Parts::All, window).unwrap();
    let lent = world.desk.0.lock().unwrap().lend_stream(reader);
    let mut reader = world.lent.reader(lent.clone());
    assert_eq!((reader.remaining(), reader.parts()), (total as u64, &meta.parts[..]));
    let mut read = vec![Vec::new(); lengths.len()];
    while reader.remaining() > 0 {
        let part = reader.part_index();
        // The part is that of the next bytes once those with none were passed.
        let chunk = reader.next_chunk().unwrap().unwrap().to_vec();
        let part = (part..).find(|part| read[*part].len() < lengths[*part]).unwrap();
        read[part].extend(chunk);
    }
    assert!(reader.next_chunk().unwrap().is_none());
    for (part, read) in read.iter().enumerate() {
        assert!(*read == content(part, lengths[part]), "part {part} of {object}");
    }
}

/// What lay there before, of another job, must not travel with an object.
fn assert_gaps_are_zeros(store: &Store, meta: &ObjectMeta) {
    let end = meta.parts.iter().filter(|part| part.bytes > 0).map(|part| part.offset + part.bytes).max().unwrap_or(0);
    let mut bytes = vec![1; end as usize];
    match store.read_range(&meta.id, 0, end).unwrap() {
        RangeRead::Memory(block) => bytes.copy_from_slice(&block),
        RangeRead::Disk(mut range) => assert_eq!(range.read(&mut bytes).unwrap(), bytes.len()),
    }
    for part in meta.parts.iter().filter(|part| part.bytes > 0) {
        bytes[part.offset as usize..(part.offset + part.bytes) as usize].fill(0);
    }
    assert!(bytes.iter().all(|byte| *byte == 0), "gaps of {meta:?}");
}

#[test]
fn what_is_written_through_a_second_mapping_is_what_was_meant() {
    let world = World::new(64 << 20);
    check(&world, 1, &[10, 0, 100, 5], true, 3);
    check(&world, 2, &[10, 0, 100, 5], false, 1000);
    check(&world, 3, &[3 << 20, 1, 5 << 20, 0, 70_000], true, 300_000);
    check(&world, 4, &[3 << 20, 1, 5 << 20, 0, 70_000], false, 99_999);
    check(&world, 5, &vec![50; 20_000], true, 50);
    check(&world, 6, &[], true, 1);
}

#[test]
fn what_finds_no_memory_goes_to_disk_through_the_same_calls() {
    let world = World::new((14 << 20) + 8192);
    // Somebody reads all of it but two pages, so nothing can be spilled.
    let mut held = Vec::new();
    while let Ok(scratch) = world.store.scratch(256 << 10) {
        held.push(scratch);
    }
    check(&world, 1, &[1 << 20, 10, 3 << 20], true, 100_000);
    check(&world, 2, &[10, 3 << 20, 0, 20], false, 1 << 20);
    check(&world, 3, &vec![100; 30_000], true, 100);
    assert!(world.store.stats().written_through_bytes > 0);
}

#[test]
fn aligned_parts_begin_at_multiples_of_64_in_memory_and_on_their_way_to_disk() {
    let lengths: [&[usize]; 6] = [
        &[10, 0, 100, 64, 5, 0],
        &[0, 0, 63, 1, 65, 0],
        &[3 << 20, 1, 5 << 20, 0, 70_000, 4096],
        &[1; 1_500],
        &[(64 << 10) - 1, 1, 64 << 10, (64 << 10) + 1, 2],
        &[0],
    ];
    for full in [false, true] {
        let world = World::new(if full { (14 << 20) + 8192 } else { 64 << 20 });
        // Not zeros, so that a gap shows what was there before.
        let mut dirt = Vec::new();
        while let Ok(mut scratch) = world.store.scratch(256 << 10) {
            scratch.fill(7);
            dirt.push(scratch);
        }
        if !full {
            dirt.clear();
        }
        for (object, lengths) in lengths.iter().enumerate() {
            for announced in [false, true] {
                let (number, piece) = ((2 * object + usize::from(announced)) as u128, 50_000);
                check_aligned(&world, number, lengths, announced, piece, Align::SixtyFour);
                world.store.delete(&[copy(number)]);
            }
        }
        assert_eq!(world.store.stats().written_through_bytes > 0, full);
    }
}

#[test]
fn what_is_lent_stays_until_it_is_given_back() {
    let world = World::new(64 << 20);
    check(&world, 1, &[1 << 20, 1 << 20], true, 1 << 20);
    let id = copy(1);
    let block = world.store.try_get(&id, Parts::one(1)).unwrap();
    let lent = world.desk.0.lock().unwrap().lend_block(block);
    let block = world.lent.block(lent);
    let clone = block.part(0);
    drop(block);
    world.store.delete(&[id]);
    assert!(world.used() > 0, "a block of it is lent");
    assert!(*clone == *content(1, 1 << 20));
    assert_eq!((clone.header().first_part, clone.verify()), (1, Ok(())));
    drop(clone);
    assert_eq!(world.used(), 0);

    let mut scratch = world.lent.scratch(100_000).unwrap();
    scratch.fill(9);
    assert_eq!((scratch.len(), world.used()), (100_000, 102_400));
    drop(scratch);
    assert_eq!(world.used(), 0);

    let mut writer = world.lent.writer(copy(2), WriterOptions::default());
    writer.begin_part(Some(1 << 20)).unwrap();
    writer.write(&[1; 1000]).unwrap();
    assert!(world.used() > 0);
    drop(writer);
    assert_eq!(world.used(), 0);
    assert!(!world.store.contains(&copy(2)));
}

#[test]
fn everything_comes_back_with_the_desk() {
    let World { store, desk, lent, _spill } = World::new(64 << 20);
    let mut writer = lent.writer(copy(2), WriterOptions::default());
    writer.begin_part(None).unwrap();
    writer.write(&[1; 1000]).unwrap();
    let scratch = lent.scratch(100_000).unwrap();
    // The other process is no more: nobody tells.
    std::mem::forget((writer, scratch));
    *desk.0.lock().unwrap() = Desk::new(store.clone());
    assert_eq!(store.stats().used_bytes, 0);
}

#[test]
fn errors_keep_what_callers_tell_apart() {
    let world = World::new(16 << 20);
    assert!(matches!(world.lent.scratch(1 << 40), Err(StoreError::Denied { bytes, .. }) if bytes == 1 << 40));
    let mut writer = world.lent.writer(copy(1), WriterOptions::default());
    writer.begin_part(Some(3)).unwrap();
    assert!(matches!(writer.write(b"four"), Err(StoreError::PartTooLong { part: 0, announced: 3, .. })));
    assert!(matches!(writer.begin_part(None), Err(StoreError::WriterMisused { .. })));
    let foreign = world.lent.writer(copy(100), WriterOptions::default());
    assert!(matches!(foreign.seal(), Err(StoreError::Lender(_))), "no output of what runs");
    assert!(!world.store.contains(&copy(100)));
}

#[test]
fn memory_beside_the_region_is_granted_to_the_other_process_and_comes_back() {
    let world = World::new(64 << 20);
    let granted = || world.store.stats().granted_bytes;
    let mut grant = world.lent.outside(3 << 20).unwrap();
    grant.resize(5 << 20).unwrap();
    let half = grant.split(2 << 20).unwrap();
    assert_eq!((grant.bytes(), half.bytes(), granted()), (3 << 20, 2 << 20, 5 << 20));
    assert!(grant.split(4 << 20).is_none(), "it has not so much");
    let before = world.desk.0.lock().unwrap().lend_outside(world.store.outside(7 << 20).unwrap());
    let before = world.lent.lent_outside(before);
    assert_eq!(granted(), 12 << 20);
    drop((grant, before));
    assert_eq!((granted(), world.desk.0.lock().unwrap().outside_bytes()), (2 << 20, 2 << 20));
    let denied = world.lent.outside(1 << 40).unwrap_err();
    assert!(matches!(denied, StoreError::NeverGranted { bytes, .. } if bytes > 1 << 40), "{denied}");
    assert_eq!(granted(), 2 << 20, "what was refused takes nothing");
    // The other process is no more: nobody tells.
    std::mem::forget(half);
    *world.desk.0.lock().unwrap() = Desk::new(world.store.clone());
    assert_eq!((granted(), world.used()), (0, 0));
}

#[test]
fn what_is_given_back_late_takes_nothing_of_what_was_lent_meanwhile() {
    let world = World::new(64 << 20);
    let granted = || (world.store.stats().granted_bytes, world.desk.0.lock().unwrap().outside_bytes());
    let mut of_before = world.lent.outside(5 << 20).unwrap();
    // The next task is granted something, which the other process has not heard of yet.
    let bytes = world.desk.0.lock().unwrap().lend_outside(world.store.outside(7 << 20).unwrap());
    of_before.resize(2 << 20).unwrap();
    assert_eq!(world.desk.1.load(Ordering::Relaxed), 1, "others may wait for it, so it is told at once");
    assert_eq!(granted(), (9 << 20, 9 << 20));
    drop(of_before);
    assert_eq!(granted(), (7 << 20, 7 << 20), "of the task that is about to begin");
    let of_next = world.lent.lent_outside(bytes);
    let more = world.lent.outside(1 << 20).unwrap();
    assert_eq!(granted(), (8 << 20, 8 << 20));
    drop((of_next, more));
    assert_eq!(granted(), (0, 0));
}

#[test]
fn a_process_that_gives_back_what_it_does_not_have_takes_nothing_of_others() {
    let world = World::new(64 << 20);
    let _ours = world.store.outside(5 << 20).unwrap();
    let theirs = world.lent.outside(1 << 20).unwrap();
    world.desk.given_back(Loan::Outside(2 << 20));
    assert_eq!(world.store.stats().granted_bytes, 6 << 20);
    drop(theirs);
    assert_eq!(world.store.stats().granted_bytes, 5 << 20);
}
