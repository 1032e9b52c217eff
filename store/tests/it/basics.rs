//! Objects in memory: put, write, get, parts, delete.

use std::io::{self, Write as _};

use exobus_store::{Align, CopyId, Parts, RangeRead, RowHash, StoreError, WriterOptions};

use crate::harness::{MIB, bytes, copy, fixture, open, options, put, write};

#[test]
fn a_put_is_named_by_its_content_and_stored_once() {
    let store = fixture(16 * MIB).store;
    for length in [0, 1, 1000, 16 << 10, (16 << 10) + 1, 300_000] {
        let content = bytes(length as u64, length);
        let meta = put(&store, 1, &content).unwrap();
        assert_eq!(meta.id, copy(RowHash::of(&content).0), "a name is made of the xxh3-128");
        assert_eq!((meta.bytes, meta.parts.len()), (length as u64, 1));
        let used = store.stats().used_bytes;
        assert_eq!(put(&store, 1, &content).unwrap(), meta);
        assert_eq!(store.stats().used_bytes, used, "a second put takes no memory");
        let block = store.get(&meta.id, Parts::All).wait().unwrap();
        assert!(*block == content[..]);
        assert_eq!(block.verify(), Ok(()));
        assert_eq!(store.meta(&meta.id), Some(meta));
    }
}

#[test]
fn equal_bytes_that_two_groups_put_are_two_objects() {
    let store = fixture(16 * MIB).store;
    for length in [0, 1, 1000, 300_000] {
        let content = bytes(7, length);
        let [first, second, third] = [1, 2, 3].map(|group| put(&store, group, &content).unwrap().id);
        store.delete_group(1);
        store.delete(&[second]);
        assert!(!store.contains(&first) && !store.contains(&second));
        let block = store.get(&third, Parts::All).wait().unwrap();
        assert!(*block == content[..], "{length} bytes: what others freed was theirs");
        let ids = |group| store.inventory(group).into_iter().map(|(meta, _)| meta.id).collect::<Vec<_>>();
        assert_eq!((block.object().group, ids(2), ids(3)), (3, vec![], vec![third]));
        store.delete(&[third]);
    }
}

#[test]
fn a_copy_is_not_found_by_its_bits_under_another_group() {
    let store = fixture(16 * MIB).store;
    let meta = write(&store, copy(5), WriterOptions::default(), &[b"abc"]);
    for group in [0, 2, u128::MAX] {
        let other = CopyId::new(group, meta.id.bits);
        assert!(!store.contains(&other) && store.meta(&other).is_none());
        assert!(store.try_get(&other, Parts::All).is_none());
        assert!(matches!(store.get(&other, Parts::All).wait(), Err(StoreError::NotFound(id)) if id == other));
        assert!(matches!(store.read_range(&other, 0, 1), Err(StoreError::NotFound(_))));
        store.release_parts(&[other], Parts::All);
        store.delete(&[other]);
    }
    assert_eq!(*store.get(&meta.id, Parts::All).wait().unwrap(), *b"abc");
    // And another group may have a copy with these bits, which is another one.
    write(&store, CopyId::new(2, 5), WriterOptions::default(), &[b"def"]);
    assert_eq!((store.inventory(1).len(), store.inventory(2).len(), store.inventory(3).len()), (1, 1, 0));
    assert_eq!(*store.get(&meta.id, Parts::All).wait().unwrap(), *b"abc");
}

#[test]
fn an_inventory_says_of_each_copy_what_it_is_and_who_made_it() {
    let store = fixture(16 * MIB).store;
    let made = |id, maker| write(&store, copy(id), WriterOptions { maker, ..WriterOptions::default() }, &[b"abc"]);
    let [second, first] = [(9, 4), (3, 0)].map(|(id, maker)| (made(id, maker), maker));
    write(&store, CopyId::new(2, 4), WriterOptions::default(), &[b"of another group"]);
    assert_eq!(store.inventory(1), [first, second], "in order of their names");
}

#[test]
fn an_object_of_that_id_with_other_content_is_no_put() {
    let store = fixture(16 * MIB).store;
    let options = WriterOptions::default();
    let put = |content: &[u8], rows| store.put_as(copy(5), options, content, rows, RowHash(9));
    let meta = put(b"abc", 1).unwrap();
    assert_eq!(put(b"abc", 1).unwrap(), meta);
    for (content, rows) in [(&b"abcd"[..], 1), (b"abd", 1), (b"abc", 2), (b"", 1)] {
        assert!(
            matches!(put(content, rows), Err(StoreError::Conflict(id)) if id == copy(5)),
            "{content:?}, {rows} rows"
        );
    }
}

#[test]
fn a_get_shares_the_memory_and_outlives_the_object() {
    let store = fixture(16 * MIB).store;
    let meta = put(&store, 1, &bytes(1, 100_000)).unwrap();
    let first = store.get(&meta.id, Parts::All).wait().unwrap();
    let second = store.try_get(&meta.id, Parts::All).unwrap();
    assert_eq!(first.as_ptr(), second.as_ptr(), "no copy");
    assert_eq!(first.as_ptr() as usize % 64, 0);
    store.delete(&[meta.id]);
    assert!(!store.contains(&meta.id));
    drop(first);
    assert!(*second == bytes(1, 100_000)[..]);
    assert!(store.stats().used_bytes > 0);
    drop(second);
    assert_eq!(store.stats().used_bytes, 0);
}

#[test]
fn parts_are_read_one_by_one_and_as_runs() {
    let store = fixture(16 * MIB).store;
    let contents: Vec<Vec<u8>> =
        [10, 0, 70_000, 1, 0].iter().map(|length| bytes(7 + *length as u64, *length)).collect();
    let parts: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    for (id, align) in [(1, Align::One), (2, Align::SixtyFour)] {
        let meta = write(&store, copy(id), WriterOptions { align, ..WriterOptions::default() }, &parts);
        assert_eq!((meta.bytes, meta.rows, meta.parts.len()), (70_011, 5, 5));
        assert_eq!(meta.row_hash, parts.iter().map(|part| RowHash::of(part)).sum());
        for (nth, part) in parts.iter().enumerate() {
            let block = store.get(&copy(id), Parts::one(nth as u32)).wait().unwrap();
            assert!(*block == **part, "part {nth}");
            assert_eq!(block.header().first_part, nth as u32);
            assert!(block.is_empty() || (block.as_ptr() as usize).is_multiple_of(align_bytes(align)));
        }
        let run = store.get(&copy(id), Parts::Range(1, 4)).wait().unwrap();
        assert_eq!(run.parts().len(), 3);
        assert!(*run.part(1) == *parts[2] && *run.part(2) == *parts[3] && run.part(0).is_empty());
        assert!(run.part_bytes(1) == parts[2] && run.part_bytes(2) == parts[3] && run.part_bytes(0).is_empty());
        assert_eq!(run.header().rows, 3);
        assert_eq!(run.verify(), Ok(()));
        if align == Align::One {
            assert!(*run == parts[1..4].concat()[..]);
        }
    }
    fn align_bytes(align: Align) -> usize {
        if align == Align::One { 1 } else { 64 }
    }
}

#[test]
fn what_is_not_there_is_named() {
    let store = fixture(16 * MIB).store;
    let meta = put(&store, 1, b"abc").unwrap();
    let missing = copy(99);
    assert!(matches!(store.get(&missing, Parts::All).wait(), Err(StoreError::NotFound(id)) if id == missing));
    assert!(matches!(
        store.get(&meta.id, Parts::Range(0, 2)).wait(),
        Err(StoreError::NoSuchPart { count: 1, from: 0, to: 2, .. })
    ));
    assert!(matches!(store.read_range(&meta.id, 1, 3), Err(StoreError::OutOfRange { span: 3, .. })));
    assert!(store.try_get(&missing, Parts::All).is_none());
    store.delete(&[missing]);
}

#[test]
fn a_part_of_unknown_length_grows_and_keeps_its_bytes() {
    let store = fixture(64 * MIB).store;
    let content = bytes(3, 5_000_000);
    let mut writer = store.writer(copy(1), WriterOptions::default());
    // Another writer's memory lies behind it, so it has to move.
    let mut other = store.writer(copy(2), WriterOptions::default());
    writer.begin_part(Some(3)).unwrap();
    writer.write(b"abc").unwrap();
    writer.end_part(0, RowHash::default());
    writer.begin_part(None).unwrap();
    for (nth, piece) in content.chunks(77_777).enumerate() {
        writer.write(piece).unwrap();
        if nth % 10 == 3 {
            other.begin_part(Some(10)).unwrap();
            other.write(&[nth as u8; 10]).unwrap();
            other.end_part(1, RowHash::default());
        }
    }
    assert_eq!(writer.part_bytes(), content.len() as u64);
    writer.end_part(1, RowHash::default());
    assert_eq!(writer.bytes(), content.len() as u64 + 3);
    let meta = writer.seal().unwrap();
    other.seal().unwrap();
    assert!(*store.get(&meta.id, Parts::one(1)).wait().unwrap() == content[..]);
    assert!(*store.get(&meta.id, Parts::All).wait().unwrap() == [b"abc", &content[..]].concat()[..]);
}

#[test]
fn a_small_output_costs_little_memory() {
    let store = fixture(16 * MIB).store;
    for id in 0..1000u128 {
        write(&store, copy(id), WriterOptions::default(), &[&id.to_le_bytes()]);
    }
    assert_eq!(store.stats().used_bytes, 64_000);
    for id in 1000..2000u128 {
        write(&store, copy(id), WriterOptions::default(), &[]);
    }
    assert_eq!((store.stats().used_bytes, store.stats().objects), (64_000, 2000));
    assert!(store.get(&copy(1500), Parts::All).wait().unwrap().is_empty());
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let store = fixture(16 * MIB).store;
    let mut writer = store.writer(copy(1), WriterOptions::default());
    writer.begin_part(None).unwrap();
    writer.write(&bytes(1, 3_000_000)).unwrap();
    assert!(store.stats().used_bytes >= 3_000_000);
    drop(writer);
    assert_eq!((store.stats().used_bytes, store.contains(&copy(1))), (0, false));
}

#[test]
fn a_writer_used_out_of_order_says_so() {
    let store = fixture(16 * MIB).store;
    let mut writer = store.writer(copy(1), WriterOptions::default());
    assert!(matches!(writer.spare(), Err(StoreError::WriterMisused { .. })));
    writer.begin_part(Some(4)).unwrap();
    assert!(matches!(writer.begin_part(None), Err(StoreError::WriterMisused { .. })));
    assert!(matches!(writer.write(b"12345"), Err(StoreError::PartTooLong { announced: 4, .. })));
    writer.write(b"1234").unwrap();
    assert!(writer.spare().unwrap().is_empty());
    assert!(matches!(writer.seal(), Err(StoreError::WriterMisused { .. })));
}

#[test]
fn the_same_object_twice_is_one_and_another_content_is_refused() {
    let store = fixture(16 * MIB).store;
    let first = write(&store, copy(1), WriterOptions::default(), &[b"abc"]);
    assert_eq!(write(&store, copy(1), WriterOptions::default(), &[b"abc"]), first);
    let mut writer = store.writer(copy(1), WriterOptions::default());
    writer.begin_part(None).unwrap();
    writer.write(b"abd").unwrap();
    writer.end_part(1, RowHash::of(b"abd"));
    assert!(matches!(writer.seal(), Err(StoreError::Conflict(id)) if id == copy(1)));
    assert!(*store.get(&copy(1), Parts::All).wait().unwrap() == *b"abc");
    assert_eq!(store.stats().used_bytes, 64);
}

#[test]
fn a_group_is_deleted_at_once() {
    let store = fixture(16 * MIB).store;
    for id in 0..3000u128 {
        write(&store, CopyId::new(id % 3, id), WriterOptions::default(), &[&id.to_le_bytes()]);
    }
    store.delete_group(1);
    store.delete_group(77);
    assert_eq!(store.stats().objects, 2000);
    assert!(store.ids().iter().all(|id| id.bits % 3 != 1));
}

#[test]
fn a_range_in_memory_is_shared() {
    let store = fixture(16 * MIB).store;
    let meta = write(&store, copy(1), WriterOptions::default(), &[b"abc", b"defg", b"hi"]);
    let RangeRead::Memory(block) = store.read_range(&meta.id, 3, 6).unwrap() else { panic!("not in memory") };
    assert_eq!(*block, *b"defghi");
    assert_eq!((block.parts().len(), block.header().first_part), (2, 1));
    assert_eq!(*block.part(1), *b"hi");
    let RangeRead::Memory(block) = store.read_range(&meta.id, 1, 3).unwrap() else { panic!("not in memory") };
    assert_eq!((&*block, block.parts().len()), (&b"bcd"[..], 0));
}

#[test]
fn scratch_is_counted_and_denied_when_there_is_none() {
    let store = fixture(16 * MIB).store;
    let mut scratch = store.scratch(10 * MIB).unwrap();
    scratch[10 * MIB as usize - 1] = 7;
    assert_eq!(scratch.as_ptr() as usize % 4096, 0);
    assert_eq!(store.stats().used_bytes, 10 * MIB);
    assert!(matches!(store.scratch(7 * MIB), Err(StoreError::Denied { .. })));
    drop(scratch);
    assert_eq!(store.scratch(16 * MIB).unwrap().len(), 16 << 20);
}

#[test]
fn a_budget_that_is_too_small_is_refused_with_the_smallest_that_works() {
    let dir = tempfile::tempdir().unwrap();
    let mut small = options(0, vec![dir.path().to_owned()]);
    let disk = || std::sync::Arc::new(exobus_store::RealDisk::new());
    let clock = || std::sync::Arc::new(exobus_store::SystemClock::new());
    let Err(StoreError::BudgetTooSmall { given, smallest }) = exobus_store::Store::open(small.clone(), disk(), clock())
    else {
        panic!("accepted")
    };
    assert_eq!(given, 4 * MIB);
    small.memory_bytes = smallest;
    drop(open(small));
}

#[test]
fn nothing_is_made_on_disk_for_a_job_that_fits() {
    let fixture = fixture(16 * MIB);
    put(&fixture.store, 1, &bytes(1, 1_000_000)).unwrap();
    assert_eq!(std::fs::read_dir(fixture.dir.path()).unwrap().count(), 0);
}

#[test]
fn one_blob_is_written_like_a_file_and_is_one_part() {
    let store = fixture(16 * MIB).store;
    let mut writer = store.writer(copy(1), WriterOptions::default());
    write!(writer, "{} and ", 42).unwrap();
    // More than there is room for at first, in pieces of no particular size.
    let rest = bytes(3, 3_000_001);
    assert_eq!(io::copy(&mut &rest[..], &mut writer).unwrap(), 3_000_001);
    writer.flush().unwrap();
    let meta = writer.seal().unwrap();
    assert_eq!((meta.bytes, meta.rows, meta.parts.len()), (3_000_008, 1, 1));
    let block = store.get(&copy(1), Parts::All).wait().unwrap();
    assert!(*block == [b"42 and ", &rest[..]].concat()[..]);
    assert_eq!(block.verify(), Ok(()));
}

#[test]
fn writing_like_a_file_goes_on_with_a_part_that_is_open_and_begins_none_behind_others() {
    let store = fixture(16 * MIB).store;
    let mut writer = store.writer(copy(1), WriterOptions::default());
    writer.begin_part(Some(3)).unwrap();
    writer.write_all(b"ab").unwrap();
    let error = writer.write_all(b"cd").unwrap_err();
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>());
    assert!(matches!(inner, Some(StoreError::PartTooLong { announced: 3, .. })), "{error}");
    writer.write_all(b"c").unwrap();
    writer.end_part(7, RowHash(9));
    let error = writer.write_all(b"d").unwrap_err();
    assert!(error.to_string().contains("begin_part before more bytes"), "{error}");
    let meta = writer.seal().unwrap();
    assert_eq!((meta.bytes, meta.rows, meta.row_hash), (3, 7, RowHash(9)));
}
