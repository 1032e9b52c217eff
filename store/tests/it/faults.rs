//! Disks that are full, fail, and lie.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use exobus_store::{
    CopyId, Parts, RealDisk, RowHash, Store, StoreError, StoreEvent, SystemClock, WriterOptions,
    disk::{Fault, FaultyDisk, MemoryDisk, Op},
};
use tempfile::TempDir;

use crate::harness::{MIB, bytes, copy, options, put, stream};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const ENOENT: i32 = 2;

struct Faulty {
    store: Store,
    disk: FaultyDisk,
    dirs: Vec<TempDir>,
    events: Arc<Mutex<Vec<StoreEvent>>>,
}

fn faulty(blocks: u64, dirs: usize) -> Faulty {
    let dirs: Vec<TempDir> = (0..dirs).map(|_| tempfile::tempdir().unwrap()).collect();
    let disk = FaultyDisk::new(Arc::new(RealDisk::new()));
    let events: Arc<Mutex<Vec<StoreEvent>>> = Arc::default();
    let hear = events.clone();
    let mut options = options(blocks, dirs.iter().map(|dir| dir.path().to_owned()).collect());
    options.on_event = Some(Arc::new(move |event| hear.lock().unwrap().push(event)));
    let store = Store::open(options, Arc::new(disk.clone()), Arc::new(SystemClock::new())).unwrap();
    Faulty { store, disk, dirs, events }
}

fn retired(faulty: &Faulty) -> Vec<PathBuf> {
    let events = faulty.events.lock().unwrap();
    let dir =
        |event: &StoreEvent| if let StoreEvent::DirRetired { dir, .. } = event { Some(dir.clone()) } else { None };
    events.iter().filter_map(dir).collect()
}

fn check_all(store: &Store, ids: &[CopyId], length: usize) {
    for (seed, id) in ids.iter().enumerate() {
        let block = store.get(id, Parts::All).wait().unwrap();
        assert!(*block == bytes(seed as u64, length)[..], "object {seed}");
    }
}

#[test]
fn a_full_directory_is_retired_and_another_takes_its_place() {
    for (op, fault) in
        [(Op::Write, Fault::Errno(ENOSPC)), (Op::Write, Fault::Errno(EIO)), (Op::Create, Fault::Errno(EIO))]
    {
        let faulty = faulty(8 * MIB, 2);
        let bad = faulty.dirs[0].path();
        let mut ids = Vec::new();
        for seed in 0..60 {
            if seed == 20 || op == Op::Create {
                faulty.disk.always(op, bad, fault);
            }
            ids.push(put(&faulty.store, 1, &bytes(seed, 1_000_000)).unwrap().id);
        }
        faulty.store.wait_until_idle();
        assert!(faulty.disk.fired() > 0);
        assert_eq!(retired(&faulty), [bad.join(faulty.store.node())]);
        let stats = faulty.store.stats();
        assert_eq!((stats.retired_dirs, stats.lost_objects), (1, 0));
        check_all(&faulty.store, &ids, 1_000_000);
    }
}

#[test]
fn with_no_directory_left_the_error_names_them_and_nothing_is_lost() {
    let faulty = faulty(16 * MIB, 1);
    faulty.disk.always(Op::Write, faulty.dirs[0].path(), Fault::Errno(ENOSPC));
    let mut ids = Vec::new();
    let error = loop {
        match put(&faulty.store, 1, &bytes(ids.len() as u64, 1_000_000)) {
            Ok(meta) => ids.push(meta.id),
            Err(error) => break error,
        }
    };
    let StoreError::DiskFull { needed, dirs } = &error else { panic!("{error}") };
    assert!(*needed > 0 && dirs[0].free_bytes > 0);
    assert!(dirs[0].retired.as_deref().unwrap().contains("No space left"), "{error}");
    assert!(ids.len() >= 15, "all memory was used first: {}", ids.len());
    check_all(&faulty.store, &ids, 1_000_000);
    faulty.store.delete(&ids[..5]);
    put(&faulty.store, 1, &bytes(1000, 1_000_000)).unwrap();
}

#[test]
fn a_full_directory_takes_files_again_when_some_were_deleted() {
    let faulty = faulty(8 * MIB, 1);
    let put_all = |seeds: std::ops::Range<u64>| -> Vec<CopyId> {
        seeds.map(|seed| put(&faulty.store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect()
    };
    let first = put_all(0..40);
    faulty.store.wait_until_idle();
    faulty.disk.always(Op::Write, faulty.dirs[0].path(), Fault::Errno(ENOSPC));
    // What is in memory and in a file that cannot be trusted any more is not dropped; then there is no room.
    let error = (40..).find_map(|seed| put(&faulty.store, 1, &bytes(seed, 1_000_000)).err()).unwrap();
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    faulty.store.wait_until_idle();
    assert!(faulty.disk.fired() > 0 && !retired(&faulty).is_empty());
    assert_eq!(faulty.store.stats().retired_dirs, 1);
    faulty.disk.heal();
    faulty.store.delete(&first);
    faulty.store.wait_until_idle();
    assert_eq!(faulty.store.stats().retired_dirs, 0);
    let restored = StoreEvent::DirRestored { dir: faulty.dirs[0].path().join(faulty.store.node()) };
    assert!(faulty.events.lock().unwrap().contains(&restored));
    for (seed, id) in (100..140).zip(put_all(100..140)) {
        let id = &id;
        assert!(*faulty.store.get(id, Parts::All).wait().unwrap() == bytes(seed, 1_000_000)[..]);
    }
    assert_eq!(faulty.store.stats().lost_objects, 0);
}

#[test]
fn a_spill_directory_that_was_removed_is_made_again_and_used() {
    let faulty = faulty(8 * MIB, 1);
    let (store, dir) = (&faulty.store, faulty.dirs[0].path());
    let put_all = |seeds: std::ops::Range<u64>| -> Vec<CopyId> {
        seeds.map(|seed| put(store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect()
    };
    let first = put_all(0..40);
    store.wait_until_idle();
    std::fs::remove_dir_all(dir).unwrap();
    std::fs::create_dir(dir).unwrap();
    // What is open is read on.
    check_all(store, &first, 1_000_000);
    store.delete(&first);
    store.wait_until_idle();
    let second = put_all(0..40);
    store.wait_until_idle();
    check_all(store, &second, 1_000_000);
    let names: Vec<_> = std::fs::read_dir(dir.join(store.node())).unwrap().map(|it| it.unwrap().file_name()).collect();
    for name in ["lock", "node", "temporary"] {
        assert!(names.contains(&name.into()), "{names:?}");
    }
    assert!(names.iter().any(|name| name.to_string_lossy().ends_with(".spill")), "{names:?}");
    assert_eq!((store.stats().retired_dirs, store.stats().lost_objects), (0, 0));
    // Removed and not made again, together with what is above it: so is that.
    store.delete(&second);
    store.wait_until_idle();
    std::fs::remove_dir_all(dir).unwrap();
    let third = put_all(0..40);
    store.wait_until_idle();
    check_all(store, &third, 1_000_000);
    assert_eq!(store.stats().retired_dirs, 0);
}

#[test]
fn a_directory_that_cannot_be_made_again_is_used_when_it_is_there() {
    let faulty = faulty(8 * MIB, 1);
    let (store, dir) = (&faulty.store, faulty.dirs[0].path());
    let first: Vec<_> = (0..40).map(|seed| put(store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect();
    store.wait_until_idle();
    store.delete(&first);
    store.wait_until_idle();
    std::fs::remove_dir_all(dir).unwrap();
    std::fs::write(dir, b"in the way").unwrap();
    faulty.disk.always(Op::Create, dir, Fault::Errno(ENOENT));
    let error = (0..40).find_map(|seed| put(store, 1, &bytes(seed, 1_000_000)).err()).unwrap();
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    faulty.disk.heal();
    std::fs::remove_file(dir).unwrap();
    std::fs::create_dir(dir).unwrap();
    let ids: Vec<_> = (100..140).map(|seed| put(store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect();
    for (seed, id) in (100..).zip(&ids) {
        assert!(*store.get(id, Parts::All).wait().unwrap() == bytes(seed, 1_000_000)[..]);
    }
    assert_eq!((store.stats().retired_dirs, store.stats().lost_objects), (0, 0));
}

#[test]
fn with_all_directories_full_a_writer_waits_a_while_for_memory() {
    let faulty = faulty(16 * MIB, 1);
    faulty.disk.always(Op::Write, faulty.dirs[0].path(), Fault::Errno(ENOSPC));
    faulty.disk.always(Op::Create, faulty.dirs[0].path(), Fault::Errno(ENOSPC));
    let scratch = faulty.store.scratch(15 * MIB).unwrap();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| put(&faulty.store, 1, &bytes(1, 4_000_000)));
        while faulty.store.stats().waiting == 0 {
            std::thread::yield_now();
        }
        drop(scratch);
        let meta = writing.join().unwrap().unwrap();
        assert!(*faulty.store.get(&meta.id, Parts::All).wait().unwrap() == bytes(1, 4_000_000)[..]);
    });
    assert!(faulty.disk.fired() > 0);
}

#[test]
fn an_object_that_cannot_be_read_for_want_of_descriptors_is_not_lost() {
    const EMFILE: i32 = 24;
    let faulty = faulty(8 * MIB, 2);
    let ids: Vec<CopyId> = (0..40).map(|seed| put(&faulty.store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect();
    faulty.store.wait_until_idle();
    faulty.disk.fail(Op::Read, 0, Fault::Errno(EMFILE));
    let error = faulty.store.get(&ids[0], Parts::All).wait().unwrap_err();
    assert!(matches!(error, StoreError::Disk { .. }) && error.retry_helps(), "{error}");
    faulty.disk.fail(Op::Read, 0, Fault::Errno(EMFILE));
    let mut reader = stream(&faulty.store, &ids[1], Parts::All, 1 << 20).unwrap();
    std::io::copy(&mut reader, &mut std::io::sink()).unwrap_err();
    assert_eq!(faulty.disk.fired(), 2);
    check_all(&faulty.store, &ids, 1_000_000);
    assert_eq!((faulty.store.stats().lost_objects, faulty.store.stats().retired_dirs), (0, 0));
}

#[test]
fn a_stream_from_an_unreadable_directory_quarantines_it() {
    let faulty = faulty(8 * MIB, 2);
    let ids: Vec<CopyId> = (0..40).map(|seed| put(&faulty.store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect();
    faulty.store.wait_until_idle();
    faulty.disk.fail(Op::Read, 0, Fault::Errno(EIO));
    let mut reader = stream(&faulty.store, &ids[0], Parts::All, 1 << 20).unwrap();
    std::io::copy(&mut reader, &mut std::io::sink()).unwrap_err();
    assert_eq!((retired(&faulty).len(), faulty.store.stats().lost_objects), (1, 1));
    assert!(!faulty.store.contains(&ids[0]));
    // What it has is served, what is new goes to the other one.
    let more = put(&faulty.store, 1, &bytes(99, 12_000_000)).unwrap().id;
    let mut back = Vec::new();
    let mut reader = stream(&faulty.store, &more, Parts::All, 1 << 20).unwrap();
    std::io::Read::read_to_end(&mut reader, &mut back).unwrap();
    assert!(back == bytes(99, 12_000_000));
    for (seed, id) in ids.iter().enumerate().skip(1) {
        assert!(*faulty.store.get(id, Parts::All).wait().unwrap() == bytes(seed as u64, 1_000_000)[..]);
    }
}

#[test]
fn a_writer_whose_directory_fills_up_moves_to_another() {
    let faulty = faulty(8 * MIB, 2);
    let full = faulty.store.scratch(8 * MIB).unwrap();
    let content = bytes(3, 10_000_000);
    let mut writer = faulty.store.writer(copy(1), WriterOptions::default());
    writer.begin_part(Some(100)).unwrap();
    writer.write(&content[..100]).unwrap();
    writer.end_part(1, RowHash(0));
    writer.begin_part(None).unwrap();
    writer.write(&content[100..5_000_000]).unwrap();
    faulty.disk.fail(Op::Write, 0, Fault::Errno(ENOSPC));
    writer.write(&content[5_000_000..]).unwrap();
    writer.end_part(1, RowHash(0));
    writer.seal().unwrap();
    assert_eq!(faulty.disk.fired(), 1);
    assert_eq!(retired(&faulty).len(), 1);
    drop(full);
    let mut back = Vec::new();
    let mut reader = stream(&faulty.store, &copy(1), Parts::All, 1 << 20).unwrap();
    std::io::Read::read_to_end(&mut reader, &mut back).unwrap();
    assert!(back == content);
}

#[test]
fn short_writes_are_continued() {
    let faulty = faulty(8 * MIB, 1);
    for nth in 0..10 {
        faulty.disk.fail(Op::Write, nth, Fault::Short(4096 * (nth as usize + 1) + 17));
    }
    let ids: Vec<CopyId> = (0..80).map(|seed| put(&faulty.store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect();
    faulty.store.wait_until_idle();
    assert_eq!(faulty.disk.fired(), 10);
    assert_eq!(faulty.store.stats().retired_dirs, 0);
    check_all(&faulty.store, &ids, 1_000_000);
}

#[test]
fn an_unreadable_block_is_lost_alone() {
    let faulty = faulty(8 * MIB, 1);
    let ids: Vec<CopyId> = (0..40).map(|seed| put(&faulty.store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect();
    faulty.store.wait_until_idle();
    faulty.disk.fail(Op::Read, 0, Fault::Errno(EIO));
    let error = faulty.store.get(&ids[0], Parts::All).wait().unwrap_err();
    assert!(matches!(error, StoreError::Disk { op: "read", .. }), "{error}");
    assert!(error.retry_helps());
    assert!(!faulty.store.contains(&ids[0]));
    assert_eq!(faulty.store.stats().lost_objects, 1);
    let told = faulty
        .events
        .lock()
        .unwrap()
        .iter()
        .any(|event| matches!(event, StoreEvent::ObjectLost { object, .. } if *object == ids[0]));
    assert!(told);
    for (seed, id) in ids.iter().enumerate().skip(1) {
        assert!(*faulty.store.get(id, Parts::All).wait().unwrap() == bytes(seed as u64, 1_000_000)[..]);
    }
}

#[test]
fn every_flipped_bit_is_found_before_use() {
    // Objects of 4 parts; every read of the disk has one bit flipped, each time another one.
    let faulty = faulty(8 * MIB, 1);
    let length = 250_000;
    let mut ids = Vec::new();
    for id in 0..60u128 {
        let mut writer =
            faulty.store.writer(copy(id), WriterOptions { bytes_hint: 1 << 20, ..WriterOptions::default() });
        for part in 0..4 {
            writer.begin_part(Some(length as u64)).unwrap();
            writer.write(&bytes(id as u64 * 4 + part, length)).unwrap();
            writer.end_part(1, RowHash(0));
        }
        ids.push(writer.seal().unwrap().id);
    }
    faulty.store.wait_until_idle();
    let mut found = 0;
    let mut bit = 12_345;
    for (nth, id) in ids.iter().enumerate() {
        if faulty.store.try_get(id, Parts::All).is_some() {
            continue;
        }
        bit = (bit * 7 + 13) % (8 * length as u64);
        // What a stream before had read ahead is not to meet the fault.
        faulty.store.wait_until_idle();
        faulty.disk.fail(Op::Read, 0, Fault::FlipBit(bit));
        let fired = faulty.disk.fired();
        // In turn: the whole object, one part of it, a stream.
        let error = match nth % 3 {
            0 => faulty.store.get(id, Parts::All).wait().map(drop),
            1 => faulty.store.get(id, Parts::Range(0, 2)).wait().map(drop),
            _ => {
                let mut reader = stream(&faulty.store, id, Parts::All, 1 << 20).unwrap();
                std::io::copy(&mut reader, &mut std::io::sink())
                    .map(drop)
                    .map_err(|error| error.into_inner().unwrap().downcast_ref::<StoreError>().unwrap().clone())
            }
        };
        assert_eq!(faulty.disk.fired(), fired + 1);
        match error {
            Err(StoreError::Corrupt { object, file, .. }) => {
                assert_eq!(object, *id);
                assert!(file.exists());
                found += 1;
            }
            // The bit may have hit bytes of the block that belong to a neighbour.
            other => panic!("object {nth}: {other:?}"),
        }
        assert!(!faulty.store.contains(id));
    }
    assert!(found >= 40, "{found}");
    assert_eq!(faulty.store.stats().corrupt_blocks, found);
    assert_eq!(faulty.store.stats().lost_objects, found);
}

#[test]
fn bits_flipped_on_the_way_to_disk_are_found_and_name_the_part() {
    let faulty = faulty(8 * MIB, 1);
    let ids: Vec<CopyId> = (0..7).map(|seed| put(&faulty.store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect();
    faulty.store.wait_until_idle();
    // The first request is out; flip one bit in each of the next.
    for nth in 0..5 {
        faulty.disk.fail(Op::Write, nth, Fault::FlipWritten(3_333_333));
    }
    let more: Vec<CopyId> = (7..60).map(|seed| put(&faulty.store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect();
    faulty.store.wait_until_idle();
    let flips = faulty.disk.fired();
    assert_eq!(flips, 5);
    let mut corrupt = 0;
    for (seed, id) in ids.iter().chain(&more).enumerate() {
        match faulty.store.get(id, Parts::All).wait() {
            Ok(block) => {
                assert!(*block == bytes(seed as u64, 1_000_000)[..], "object {seed} is wrong and was not found")
            }
            Err(StoreError::Corrupt { part: 0, .. }) => corrupt += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!((1..=flips).contains(&corrupt), "{corrupt}");
}

#[test]
fn a_failed_sync_counts_as_a_failed_write() {
    // Through the page cache only a sync tells, so memory is taken after it only, and a file is synced once in vain.
    let faulty = faulty(8 * MIB, 2);
    faulty.disk.refuse_direct();
    let mut ids = Vec::new();
    for seed in 0..60 {
        if seed == 20 {
            faulty.store.wait_until_idle();
            faulty.disk.fail(Op::Sync, 0, Fault::Errno(EIO));
        }
        ids.push(put(&faulty.store, 1, &bytes(seed, 1_000_000)).unwrap().id);
    }
    faulty.store.wait_until_idle();
    assert_eq!(faulty.disk.fired(), 1);
    assert_eq!(retired(&faulty).len(), 1);
    assert!(faulty.store.stats().buffered_io);
    check_all(&faulty.store, &ids, 1_000_000);
}

#[test]
fn a_footer_that_cannot_be_written_loses_nothing() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let disk = FaultyDisk::new(Arc::new(RealDisk::new()));
    let mut options = options(8 * MIB, dirs.iter().map(|dir| dir.path().to_owned()).collect());
    (options.keep_files, options.node) = (true, "n1".into());
    let store = Store::open(options, Arc::new(disk.clone()), Arc::new(SystemClock::new())).unwrap();
    // With direct I/O only footers are synced.
    disk.fail(Op::Sync, 0, Fault::Errno(EIO));
    let ids: Vec<CopyId> = (0..300).map(|seed| put(&store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect();
    store.wait_until_idle();
    assert_eq!((disk.fired(), store.stats().retired_dirs), (1, 1));
    check_all(&store, &ids, 1_000_000);
}

#[test]
fn an_unreadable_directory_is_quarantined_while_there_is_another() {
    let faulty = faulty(8 * MIB, 2);
    let ids: Vec<CopyId> = (0..40).map(|seed| put(&faulty.store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect();
    faulty.store.wait_until_idle();
    faulty.disk.fail(Op::Read, 0, Fault::Errno(EIO));
    faulty.store.get(&ids[0], Parts::All).wait().unwrap_err();
    assert_eq!(retired(&faulty).len(), 1);
    assert_eq!(faulty.store.stats().lost_objects, 1);
    for (seed, id) in ids.iter().enumerate().skip(1) {
        assert!(*faulty.store.get(id, Parts::All).wait().unwrap() == bytes(seed as u64, 1_000_000)[..]);
    }
    faulty.disk.always(Op::Read, faulty.dirs[1].path(), Fault::Errno(EIO));
    faulty.disk.always(Op::Read, faulty.dirs[0].path(), Fault::Errno(EIO));
    let failed = ids.iter().filter(|id| faulty.store.get(id, Parts::All).wait().is_err()).count();
    assert!(failed > 5);
    assert_eq!(retired(&faulty).len(), 1, "the last directory stays");
}

#[test]
fn an_object_that_is_said_to_be_corrupt_is_looked_at() {
    let faulty = faulty(8 * MIB, 1);
    let ids: Vec<CopyId> = (0..40).map(|seed| put(&faulty.store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect();
    faulty.store.wait_until_idle();
    faulty.store.verify(&ids[0]).unwrap();
    faulty.disk.fail(Op::Read, 0, Fault::FlipBit(77));
    let error = faulty.store.verify(&ids[1]).unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { part: 0, file, .. } if file.exists()), "{error}");
    assert!(matches!(faulty.store.verify(&ids[1]), Err(StoreError::NotFound(_))));
    assert_eq!(faulty.store.stats().corrupt_blocks, 1);
}

#[test]
fn a_disk_in_memory_does_as_well() {
    let disk = MemoryDisk::new();
    let mut options = options(8 * MIB, vec!["/spill".into()]);
    (options.keep_files, options.node) = (true, "n1".into());
    let open = || Store::open(options.clone(), Arc::new(disk.clone()), Arc::new(SystemClock::new()));
    let store = open().unwrap();
    assert!(matches!(open(), Err(StoreError::DirectoryLocked(_))));
    let ids: Vec<CopyId> = (0..200).map(|seed| put(&store, 1, &bytes(seed, 1_000_000)).unwrap().id).collect();
    check_all(&store, &ids, 1_000_000);
    drop(store);
    let store = open().unwrap();
    let recovered = store.recovered();
    assert!(recovered.len() > 180);
    for meta in &recovered {
        let seed = ids.iter().position(|id| *id == meta.id).unwrap();
        assert!(*store.get(&meta.id, Parts::All).wait().unwrap() == bytes(seed as u64, 1_000_000)[..]);
    }
    store.delete_group(1);
    store.wait_until_idle();
    assert!(disk.paths().iter().all(|path| path.extension().is_none()), "{:?}", disk.paths());
}

#[test]
fn a_transfer_that_delivers_other_bytes_is_refused() {
    use exobus_store::{Class, StageItem, StageRequest, StagedItem};
    let faulty = faulty(8 * MIB, 1);
    let metas = put(&faulty.store, 1, &bytes(1, 10_000)).unwrap().parts.to_vec();
    let fill = || {
        let items = vec![StageItem::Remote { object: copy(1), metas: metas.clone() }];
        let mut staged = faulty.store.stage(StageRequest { items, class: Class::Arguments }).wait().unwrap();
        let Some(StagedItem::Fill(fill)) = staged.items.pop() else { panic!("no fill") };
        fill
    };
    let mut wrong = fill();
    wrong.spare().copy_from_slice(&bytes(2, 10_000));
    wrong.advance(10_000);
    assert!(matches!(wrong.finish(), Err(StoreError::Corrupt { part: 0, .. })));
    let mut short = fill();
    short.advance(9_999);
    assert!(matches!(short.finish(), Err(StoreError::Incomplete { got: 9_999, expected: 10_000, .. })));
    let mut right = fill();
    right.spare().copy_from_slice(&bytes(1, 10_000));
    right.advance(10_000);
    assert!(right.finish().is_ok());
}
