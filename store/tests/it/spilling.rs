//! More data than memory: out to disk and back, every byte.

use std::{io::Read, time::Duration};

use exobus_store::{
    Align, Class, Clock as _, CopyId, ObjectMeta, Parts, RangeRead, RowHash, StageItem, StageRequest, StagedItem,
    Store, StoreError, SystemClock, WriterOptions,
};

use crate::harness::{Fixture, MIB, bytes, copy, fixture, open, options, put, stream, write};

fn put_all(store: &Store, count: u64, length: usize) -> Vec<ObjectMeta> {
    (0..count).map(|seed| put(store, 1, &bytes(seed, length)).unwrap()).collect()
}

#[test]
fn four_times_the_memory_comes_back_byte_by_byte() {
    for length in [900, 100_000, 1_000_000] {
        let Fixture { store, .. } = fixture(16 * MIB);
        let count = 64 * MIB / length as u64;
        let metas = put_all(&store, count, length);
        let stats = store.stats();
        assert!(stats.spilled_bytes > 40 * MIB && stats.used_bytes <= 16 * MIB, "{stats:?}");
        for (seed, meta) in metas.iter().enumerate() {
            let block = store.get(&meta.id, Parts::All).wait().unwrap();
            assert!(*block == bytes(seed as u64, length)[..], "object {seed} of {length} bytes");
        }
        let stats = store.stats();
        assert!(stats.restored_bytes >= 40 * MIB, "{stats:?}");
        assert_eq!((stats.corrupt_blocks, stats.lost_objects, stats.pinned_bytes), (0, 0, 0));
        assert!(stats.peak_bytes <= 16 * MIB);
    }
}

#[test]
fn everything_is_deleted_when_the_group_ends_and_when_the_store_closes() {
    let Fixture { store, dir } = fixture(8 * MIB);
    put_all(&store, 300, 1_000_000);
    assert!(store.stats().spill_files > 0);
    store.delete_group(1);
    store.wait_until_idle();
    let stats = store.stats();
    assert_eq!((stats.objects, stats.used_bytes), (0, 0));
    assert_eq!((stats.spill_files, stats.spill_file_bytes), (0, 0), "nothing is kept of the disk");
    assert_eq!(spill_files(dir.path(), &store), 0);
    let metas = put_all(&store, 50, 1_000_000);
    store.wait_until_idle();
    assert!(spill_files(dir.path(), &store) > 0);
    let block = store.get(&metas[3].id, Parts::All).wait().unwrap();
    assert!(*block == bytes(3, 1_000_000)[..], "files are made again");
    drop((store, block));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// How many spill files are on the disk.
fn spill_files(spill_dir: &std::path::Path, store: &Store) -> usize {
    let entries = std::fs::read_dir(spill_dir.join(store.node())).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "spill")).count()
}

#[test]
fn spill_files_of_deleted_objects_stay_while_they_are_read_or_written() {
    let Fixture { store, dir } = fixture(8 * MIB);
    let window = store.scratch(64 << 10).unwrap();
    let metas = put_all(&store, 40, 1_000_000);
    store.wait_until_idle();
    let mut reader = store.reader(&metas[0].id, Parts::All, window).unwrap();
    // All memory is taken, so this one writes to disk.
    let all = store.scratch(8 * MIB - (64 << 10)).unwrap();
    let written = CopyId::new(2, 5);
    let mut writer = store.writer(written, WriterOptions::default());
    writer.begin_part(None).unwrap();
    writer.write(&bytes(5, 3_000_000)).unwrap();
    store.delete_group(1);
    store.wait_until_idle();
    assert_eq!((store.stats().objects, store.stats().spill_files), (0, 2));
    let mut read = Vec::new();
    while let Some(chunk) = reader.next_chunk().unwrap() {
        read.extend_from_slice(chunk);
        if read.len() > 900_000 {
            break;
        }
    }
    assert!(read[..] == bytes(0, 1_000_000)[..read.len()]);
    drop(reader);
    store.wait_until_idle();
    assert_eq!(store.stats().spill_files, 1, "of the writer");
    writer.end_part(1, RowHash(1));
    writer.seal().unwrap();
    drop(all);
    assert!(*store.get(&written, Parts::All).wait().unwrap() == bytes(5, 3_000_000)[..]);
    store.delete_group(2);
    store.wait_until_idle();
    assert_eq!((store.stats().spill_files, spill_files(dir.path(), &store)), (0, 0));
}

#[test]
fn full_files_are_deleted_when_their_last_block_is() {
    let Fixture { store, .. } = fixture(8 * MIB);
    let metas = put_all(&store, 300, 1_000_000);
    store.wait_until_idle();
    let before = store.stats().spill_file_bytes;
    assert!(before > 250 * MIB);
    let ids: Vec<CopyId> = metas.iter().map(|meta| meta.id).collect();
    store.delete(&ids[..200]);
    store.wait_until_idle();
    let after = store.stats().spill_file_bytes;
    assert!(after < before - 100 * MIB, "{before} {after}");
    let block = store.get(&ids[299], Parts::All).wait().unwrap();
    assert!(*block == bytes(299, 1_000_000)[..]);
}

/// Objects of 20 parts whose lengths differ, and a filler that pushes them out.
fn spilled_parts(store: &Store, align: Align) -> Vec<Vec<u8>> {
    let contents: Vec<Vec<u8>> = (0..20).map(|nth| bytes(nth, 50_000 * (nth as usize % 4) + nth as usize)).collect();
    let parts: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    write(store, copy(7), WriterOptions { align, bytes_hint: 2 << 20, ..WriterOptions::default() }, &parts);
    for seed in 1000..1060 {
        put(store, 2, &bytes(seed, 1_000_000)).unwrap();
    }
    assert!(store.try_get(&copy(7), Parts::All).is_none(), "it is on disk");
    contents
}

#[test]
fn a_part_is_read_without_the_rest() {
    for align in [Align::One, Align::SixtyFour] {
        let Fixture { store, .. } = fixture(16 * MIB);
        let contents = spilled_parts(&store, align);
        let before = store.stats().restored_bytes;
        for (nth, content) in contents.iter().enumerate() {
            let block = store.get(&copy(7), Parts::one(nth as u32)).wait().unwrap();
            assert!(*block == content[..], "part {nth}");
        }
        let parts: u64 = contents.iter().map(|content| content.len() as u64).sum();
        assert_eq!(store.stats().restored_bytes - before, parts);
        let run = store.get(&copy(7), Parts::Range(3, 7)).wait().unwrap();
        for (nth, content) in contents[3..7].iter().enumerate() {
            assert!(*run.part(nth) == content[..]);
        }
    }
}

#[test]
fn a_stream_from_disk_is_the_same_as_one_from_memory() {
    for align in [Align::One, Align::SixtyFour] {
        let Fixture { store, .. } = fixture(16 * MIB);
        let contents = spilled_parts(&store, align);
        for window in [4096, 8192, 20_000, 64 << 10, 1 << 20] {
            let mut reader = stream(&store, &copy(7), Parts::All, window).unwrap();
            let mut seen: Vec<Vec<u8>> = vec![Vec::new(); contents.len()];
            loop {
                let at = reader.part_index();
                let Some(chunk) = reader.next_chunk().unwrap() else { break };
                assert!(!chunk.is_empty());
                // Empty parts have no chunk.
                let at = (at..).find(|at| !contents[*at].is_empty()).unwrap();
                seen[at].extend_from_slice(chunk);
            }
            assert!(seen == contents, "window {window}");
        }
        let mut whole = Vec::new();
        let mut reader = stream(&store, &copy(7), Parts::Range(2, 20), 100_000).unwrap();
        assert_eq!(reader.remaining() as usize, contents[2..].concat().len());
        reader.read_to_end(&mut whole).unwrap();
        assert!(whole == contents[2..].concat());
        assert_eq!(reader.part_boundaries().last().copied(), Some(whole.len() as u64));
    }
}

#[test]
fn a_range_on_disk_is_sent_in_pieces() {
    let Fixture { store, .. } = fixture(16 * MIB);
    let contents = spilled_parts(&store, Align::One).concat();
    for (offset, length) in [(0, contents.len()), (1, 4095), (4097, 100_000), (777_777, 1), (contents.len() - 9, 9)] {
        let RangeRead::Disk(mut range) = store.read_range(&copy(7), offset as u64, length as u64).unwrap() else {
            panic!("in memory")
        };
        let mut got = Vec::new();
        let mut buffer = vec![0; 33_333];
        loop {
            let count = range.read(&mut buffer).unwrap();
            if count == 0 {
                break;
            }
            got.extend_from_slice(&buffer[..count]);
        }
        assert!(got == contents[offset..offset + length], "{length} bytes from {offset}");
    }
}

#[test]
fn what_is_staged_is_there_at_once_and_together() {
    let Fixture { store, .. } = fixture(16 * MIB);
    let metas = put_all(&store, 60, 1_000_000);
    let local = |nth: usize| StageItem::Local { object: metas[nth].id, parts: Parts::All };
    let remote = StageItem::Remote { object: copy(5), metas: metas[59].parts.to_vec() };
    // The same object twice takes memory once.
    let items = vec![local(0), local(59), local(1), local(0), remote];
    let ticket = store.stage(StageRequest { items, class: Class::Arguments });
    let mut staged = ticket.wait().unwrap();
    for (item, seed) in staged.items.iter().zip([0, 59, 1, 0]) {
        let StagedItem::Ready(block) = item else { panic!("{item:?}") };
        assert!(**block == bytes(seed, 1_000_000)[..]);
    }
    let Some(StagedItem::Fill(mut fill)) = staged.items.pop() else { panic!("no fill") };
    let content = bytes(59, 1_000_000);
    let half = fill.spare().len() / 2;
    fill.spare()[..half].copy_from_slice(&content[..half]);
    fill.advance(half);
    assert_eq!(fill.offset(), half as u64);
    fill.spare().copy_from_slice(&content[half..]);
    fill.advance(content.len() - half);
    let filled = fill.finish().unwrap();
    assert!(*filled == content[..]);
    assert!(!store.contains(&copy(5)), "a private copy is no object");
    drop((filled, staged));
    assert_eq!(store.stats().pinned_bytes, 0);
}

#[test]
fn an_object_in_several_pieces_is_put_together() {
    let Fixture { store, .. } = fixture(32 * MIB);
    // No hint: pieces of 64 KiB.
    let contents: Vec<Vec<u8>> = (0..40).map(|seed| bytes(seed, 30_001)).collect();
    let parts: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    write(&store, copy(1), WriterOptions { align: Align::SixtyFour, ..WriterOptions::default() }, &parts);
    assert!(store.try_get(&copy(1), Parts::All).is_none(), "in several pieces");
    for _ in 0..2 {
        let block = store.get(&copy(1), Parts::All).wait().unwrap();
        for (nth, content) in contents.iter().enumerate() {
            assert!(*block.part(nth) == content[..], "part {nth}");
        }
        assert_eq!(block.verify(), Ok(()));
        drop(block);
        // The second time from disk.
        for seed in 0..60 {
            put(&store, 2, &bytes(seed, 1_000_000)).unwrap();
        }
    }
    let restored = store.stats().restored_bytes;
    assert!(restored >= 40 * 30_001, "{restored}");
}

#[test]
fn what_was_read_back_is_dropped_without_being_written_again() {
    let Fixture { store, .. } = fixture(16 * MIB);
    let metas = put_all(&store, 40, 1_000_000);
    store.wait_until_idle();
    for meta in &metas {
        store.get(&meta.id, Parts::All).wait().unwrap();
    }
    store.wait_until_idle();
    let spilled = store.stats().spilled_bytes;
    for meta in &metas {
        store.get(&meta.id, Parts::All).wait().unwrap();
    }
    assert!(spilled <= 40_000_000);
    assert!(store.stats().spilled_bytes <= 40_000_000, "nothing is written twice");
    assert!(store.stats().restored_bytes > 30_000_000);
}

#[test]
fn two_directories_share_the_files() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let store = open(options(16 * MIB, dirs.iter().map(|dir| dir.path().to_owned()).collect()));
    let metas = put_all(&store, 100, 1_000_000);
    let sizes = dirs.each_ref().map(|dir| {
        let node = dir.path().join(store.node());
        std::fs::read_dir(node).unwrap().filter(|entry| entry.as_ref().unwrap().path().extension().is_some()).count()
    });
    assert!(sizes.iter().all(|files| *files >= 1), "{sizes:?}");
    for (seed, meta) in metas.iter().enumerate() {
        assert!(*store.get(&meta.id, Parts::All).wait().unwrap() == bytes(seed as u64, 1_000_000)[..]);
    }
}

#[test]
fn a_released_part_frees_its_extent() {
    let Fixture { store, .. } = fixture(32 * MIB);
    let contents: Vec<Vec<u8>> = (0..8).map(|seed| bytes(seed, 200_000)).collect();
    let parts: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    write(&store, copy(1), WriterOptions::default(), &parts);
    let used = store.stats().used_bytes;
    store.release_parts(&[copy(1)], Parts::Range(0, 4));
    assert!(store.stats().used_bytes <= used / 2 + 8192, "{} of {used}", store.stats().used_bytes);
    assert!(store.get(&copy(1), Parts::one(0)).wait().is_err());
    assert!(*store.get(&copy(1), Parts::one(5)).wait().unwrap() == contents[5][..]);
    store.release_parts(&[copy(1)], Parts::Range(4, 8));
    assert_eq!(store.stats().used_bytes, 0);
}

#[test]
fn a_part_that_is_released_again_frees_nothing_of_others() {
    let Fixture { store, .. } = fixture(32 * MIB);
    let contents: Vec<Vec<u8>> = (0..8).map(|seed| bytes(seed, 1000)).collect();
    let parts: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    write(&store, copy(1), WriterOptions::default(), &parts);
    for _ in 0..10 {
        store.release_parts(&[copy(1)], Parts::Range(1, 3));
        store.release_parts(&[copy(1)], Parts::Range(0, 2));
    }
    for (part, content) in (0..).zip(&contents).skip(3) {
        assert!(*store.get(&copy(1), Parts::one(part)).wait().unwrap() == content[..], "part {part}");
    }
    store.release_parts(&[copy(1)], Parts::Range(0, 8));
    assert_eq!(store.stats().used_bytes, 0);
}

/// A node that comes back has what it had, and makes again what others are going to read anew (seed 320950 of the simulation).
#[test]
fn what_is_made_again_is_whole_beside_what_parts_were_released_of() {
    let Fixture { store, .. } = fixture(32 * MIB);
    let contents: Vec<Vec<u8>> = (0..4).map(|seed| bytes(seed, 200_000)).collect();
    let parts: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    let [first, second] = [2, 3].map(|number| {
        write(&store, copy(number), WriterOptions { maker: number as u32, ..WriterOptions::default() }, &parts).id
    });
    let both = store.stats().used_bytes;
    let read_before = store.get(&first, Parts::one(3)).wait().unwrap();
    store.release_parts(&[first], Parts::Range(0, 2));
    assert!(store.get(&first, Parts::one(0)).wait().is_err());
    // The same name again is the same copy: what was released of it is not made again.
    write(&store, first, WriterOptions::default(), &parts);
    assert!(store.get(&first, Parts::one(0)).wait().is_err());
    // Whichever goes first, the other one is as it was.
    store.delete(&[first]);
    for (part, content) in (0..).zip(&contents) {
        assert!(*store.get(&second, Parts::one(part)).wait().unwrap() == content[..], "part {part}");
    }
    assert!(*read_before == contents[3][..]);
    drop(read_before);
    assert_eq!(store.stats().used_bytes, both / 2, "nothing is left of the first");
    store.release_parts(&[second], Parts::Range(0, 4));
    assert_eq!(store.stats().used_bytes, 0);

    let small = b"a small object of one part";
    let put = |number| store.put_as(copy(number), WriterOptions::default(), small, 1, RowHash::default()).unwrap().id;
    store.release_parts(&[put(12)], Parts::Range(0, 1));
    assert!(store.get(&put(12), Parts::All).wait().is_err());
    assert_eq!(*store.get(&put(13), Parts::All).wait().unwrap(), small[..]);
}

/// The rest may still be on its way to other nodes.
#[test]
fn what_is_not_released_is_still_sent() {
    let Fixture { store, .. } = fixture(32 * MIB);
    let contents: Vec<Vec<u8>> = (0..8).map(|seed| bytes(seed, 200_000)).collect();
    let parts: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    let meta = write(&store, copy(1), WriterOptions::default(), &parts);
    let range = |part: usize| store.read_range(&copy(1), meta.parts[part].offset, meta.parts[part].bytes);
    store.release_parts(&[copy(1)], Parts::Range(0, 4));
    assert!(matches!(range(0), Err(StoreError::NotFound(_))), "released, with all others of its extent");
    for (part, content) in contents.iter().enumerate().skip(4) {
        let mut read = vec![0; content.len()];
        match range(part).unwrap() {
            RangeRead::Memory(block) => read.copy_from_slice(&block),
            RangeRead::Disk(mut disk) => assert_eq!(disk.read(&mut read).unwrap(), read.len()),
        }
        assert!(read == *content, "part {part}");
    }
}

#[test]
fn a_row_hash_survives_the_disk() {
    let Fixture { store, .. } = fixture(8 * MIB);
    let meta = write(&store, CopyId::new(9, 3), WriterOptions::default(), &[b"abc", b"de"]);
    put_all(&store, 40, 1_000_000);
    let block = store.get(&meta.id, Parts::All).wait().unwrap();
    assert_eq!(block.header().row_hash, RowHash::of(b"abc") + RowHash::of(b"de"));
    assert_eq!(
        (block.header().object.group, block.header().checksum),
        (9, meta.parts[0].checksum.wrapping_add(meta.parts[1].checksum))
    );
}

#[test]
fn whatever_is_read_back_is_counted_and_so_is_the_time_it_takes() {
    let Fixture { store, .. } = fixture(8 * MIB);
    let metas = put_all(&store, 40, 1_000_000);
    store.wait_until_idle();
    let spilled = store.stats();
    assert!(spilled.spill_us > 0 && spilled.restored_bytes == 0 && spilled.restore_us == 0, "{spilled:?}");

    let mut streamed = Vec::new();
    stream(&store, &metas[0].id, Parts::All, MIB).unwrap().read_to_end(&mut streamed).unwrap();
    assert!(streamed == bytes(0, 1_000_000));
    let after_stream = store.stats();
    assert!(after_stream.restored_bytes >= 1_000_000 && after_stream.restore_us > 0, "{after_stream:?}");

    let RangeRead::Disk(mut range) = store.read_range(&metas[1].id, 0, 500_000).unwrap() else { panic!("in memory") };
    let mut sent = vec![0; 500_000];
    assert_eq!(range.read(&mut sent).unwrap(), 500_000);
    let after_range = store.stats();
    assert_eq!(after_range.restored_bytes, after_stream.restored_bytes + 500_000);
    assert!(after_range.restore_us >= after_stream.restore_us);
}

#[test]
fn a_ticket_says_what_it_waited_for() {
    let Fixture { store, .. } = fixture(8 * MIB);
    let stage = |item| store.stage(StageRequest { items: vec![item], class: Class::Arguments });
    let meta = put(&store, 1, &bytes(1, 1_000)).unwrap();
    let staged = stage(StageItem::Local { object: meta.id, parts: Parts::All }).wait().unwrap();
    assert_eq!(staged.load_wait, Duration::ZERO, "it is in memory");

    let held = store.scratch(6 * MIB).unwrap();
    let ticket = stage(StageItem::Scratch { bytes: 4 * MIB });
    assert!(!ticket.is_ready());
    let stopwatch = SystemClock::new();
    while stopwatch.now() < Duration::from_millis(2) {
        std::hint::spin_loop();
    }
    drop(held);
    let staged = ticket.wait().unwrap();
    assert!(staged.memory_wait >= Duration::from_millis(2), "{staged:?}");
}
