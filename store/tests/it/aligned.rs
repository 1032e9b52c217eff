//! Parts of an aligned object begin at multiples of 64 bytes, wherever they lie and however they came there.

use std::path::Path;

use exobus_store::{
    Align, Class, Fill, ObjectMeta, Parts, RangeRead, StageItem, StageRequest, StagedItem, Store, StoreOptions,
    WriterOptions,
};

use crate::harness::{Fixture, MIB, bytes, copy, fixture, open, options, put, stream, write};

/// Lengths of 64 parts: none, one byte, about 64, about a page, more than an extent of a writer without a hint.
fn contents() -> Vec<Vec<u8>> {
    const LENGTHS: [usize; 16] = [0, 1, 63, 64, 65, 0, 0, 4095, 4096, 4097, 100_001, 65_535, 65_537, 7, 300_033, 0];
    (0..64).map(|nth| bytes(nth, LENGTHS[nth as usize % LENGTHS.len()])).collect()
}

/// An aligned object of those parts. With a good hint it is one extent, without one it is many.
fn write_aligned(store: &Store, bits: u128, bytes_hint: u64) -> (ObjectMeta, Vec<Vec<u8>>) {
    let contents = contents();
    let parts: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    let options = WriterOptions { align: Align::SixtyFour, bytes_hint, ..WriterOptions::default() };
    let meta = write(store, copy(bits), options, &parts);
    assert_eq!(meta.bytes, contents.iter().map(|content| content.len() as u64).sum::<u64>(), "gaps do not count");
    assert!(meta.parts.iter().all(|part| part.offset.is_multiple_of(64)));
    (meta, contents)
}

/// Where bytes lie in the region: a block that is a copy somewhere else has no place there.
#[track_caller]
fn assert_aligned_in_region(store: &Store, bytes: &[u8], what: &str) {
    if bytes.is_empty() {
        return;
    }
    let place = store.place_of(bytes).unwrap_or_else(|| panic!("{what} is not in the region"));
    assert!(place.offset.is_multiple_of(64), "{what} begins at {} of the region", place.offset);
    assert!((bytes.as_ptr() as usize).is_multiple_of(64), "{what} begins at {:?}", bytes.as_ptr());
}

/// Each part alone, runs of parts and all of them, and streams through windows of many sizes.
#[track_caller]
fn assert_all_aligned(store: &Store, meta: &ObjectMeta, contents: &[Vec<u8>]) {
    for (nth, content) in contents.iter().enumerate() {
        let block = store.get(&meta.id, Parts::one(nth as u32)).wait().unwrap();
        assert!(*block == content[..], "part {nth}");
        assert_aligned_in_region(store, &block, &format!("part {nth}"));
    }
    for (from, to) in [(7, 8), (0, 3), (5, 12), (13, 64), (0, 64)] {
        let block = store.get(&meta.id, Parts::Range(from, to)).wait().unwrap();
        let range = from as usize..to as usize;
        assert_eq!(block.header().bytes as usize, contents[range.clone()].concat().len());
        for (nth, content) in contents[range].iter().enumerate() {
            let part = block.part(nth);
            assert!(*part == content[..], "part {nth} of {from} to {to}");
            assert_aligned_in_region(store, &part, &format!("part {nth} of {from} to {to}"));
        }
    }
    for window_bytes in [4096, 8192, 20_000, 64 << 10, 1 << 20] {
        for (from, to) in [(7, 8), (1, 64)] {
            let mut reader = stream(store, &meta.id, Parts::Range(from, to), window_bytes).unwrap();
            let mut seen = Vec::new();
            while let Some(chunk) = reader.next_chunk().unwrap() {
                assert_aligned_in_region(store, chunk, &format!("a chunk at byte {} of {from} to {to}", seen.len()));
                seen.extend_from_slice(chunk);
            }
            assert!(seen == contents[from as usize..to as usize].concat(), "{from} to {to} through {window_bytes}");
        }
    }
}

/// Takes the memory of everything that is not read.
fn push_out(store: &Store) {
    for seed in 1000..1100 {
        put(store, 2, &bytes(seed, 1_000_000)).unwrap();
    }
    store.delete_group(2);
}

#[test]
fn in_memory_and_read_back_from_disk() {
    for bytes_hint in [0, 8 * MIB] {
        let Fixture { store, .. } = fixture(24 * MIB);
        let (meta, contents) = write_aligned(&store, 1, bytes_hint);
        assert_all_aligned(&store, &meta, &contents);
        assert_eq!(store.stats().restored_bytes, 0, "all of it was in memory");
        push_out(&store);
        assert!(store.try_get(&meta.id, Parts::one(10)).is_none(), "it is on disk");
        assert_all_aligned(&store, &meta, &contents);
        assert!(store.stats().restored_bytes > 0);
    }
}

#[test]
fn written_to_disk_for_want_of_memory() {
    let Fixture { store, .. } = fixture(24 * MIB);
    let mut held = Vec::new();
    while let Ok(scratch) = store.scratch(4096) {
        held.push(scratch);
    }
    let (meta, contents) = write_aligned(&store, 1, 0);
    assert_eq!(store.stats().written_through_bytes, stored_bytes(&store, &meta), "none of it is in memory");
    drop(held);
    assert_all_aligned(&store, &meta, &contents);
}

/// With the gaps within extents, as spill files have it: a walk over the object from its begin to its end.
fn stored_bytes(store: &Store, meta: &ObjectMeta) -> u64 {
    let span = meta.parts.iter().filter(|part| part.bytes > 0).map(|part| part.offset + part.bytes).max().unwrap_or(0);
    let range = store.read_range(&meta.id, 0, span).unwrap();
    assert!(matches!(range, RangeRead::Disk(_)));
    store.stats().spilled_bytes
}

fn kept(dir: &Path) -> StoreOptions {
    StoreOptions { keep_files: true, node: "n1".into(), ..options(24 * MIB, vec![dir.to_owned()]) }
}

#[test]
fn found_again_by_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let (meta, contents) = {
        let store = open(kept(dir.path()));
        let written = write_aligned(&store, 1, 0);
        push_out(&store);
        written
    };
    let store = open(kept(dir.path()));
    assert_eq!(store.recovered(), std::slice::from_ref(&meta));
    assert_all_aligned(&store, &meta, &contents);
}

/// What a node sends of these parts.
fn fill(from: &Store, to: &Store, meta: &ObjectMeta, parts: std::ops::Range<usize>) -> exobus_store::Block {
    let metas = meta.parts[parts].to_vec();
    let items = vec![StageItem::Remote { object: meta.id, metas }];
    let mut staged = to.stage(StageRequest { items, class: Class::Arguments }).wait().unwrap();
    let Some(StagedItem::Fill(fill)) = staged.items.pop() else { panic!("no fill") };
    filled(from, fill, meta)
}

fn filled(from: &Store, mut fill: Fill, meta: &ObjectMeta) -> exobus_store::Block {
    let count = fill.bytes();
    match from.read_range(&meta.id, fill.offset(), count).unwrap() {
        RangeRead::Memory(block) => fill.spare().copy_from_slice(&block),
        RangeRead::Disk(mut range) => assert_eq!(range.read(fill.spare()).unwrap() as u64, count),
    }
    fill.advance(count as usize);
    fill.finish().unwrap()
}

#[test]
fn fetched_from_another_node_alone_and_with_others() {
    let (here, there) = (fixture(24 * MIB).store, fixture(24 * MIB).store);
    let (meta, contents) = write_aligned(&there, 1, 0);
    for range in [7..8, 0..1, 1..2, 2..5, 0..64, 13..40] {
        let block = fill(&there, &here, &meta, range.clone());
        for (nth, content) in contents[range.clone()].iter().enumerate() {
            let part = block.part(nth);
            assert!(*part == content[..], "part {nth} of {range:?}");
            assert_aligned_in_region(&here, &part, &format!("part {nth} of {range:?}"));
        }
    }
}

#[test]
fn what_is_put_begins_at_a_multiple_of_64() {
    let Fixture { store, .. } = fixture(24 * MIB);
    for length in [1, 63, 65, 511, 700, 5000, 17_000, 1_000_000] {
        let metas: Vec<_> = (0..3).map(|seed| put(&store, 1, &bytes(seed, length)).unwrap()).collect();
        for meta in &metas {
            let block = store.get(&meta.id, Parts::All).wait().unwrap();
            assert_aligned_in_region(&store, &block, &format!("what was put of {length} bytes"));
        }
    }
}

#[test]
fn parts_that_nobody_will_read_again_are_freed_one_by_one() {
    for bytes_hint in [0, 8 * MIB] {
        let Fixture { store, .. } = fixture(24 * MIB);
        let (meta, contents) = write_aligned(&store, 1, bytes_hint);
        let used = store.stats().used_bytes;
        for part in (0..contents.len() as u32).rev() {
            assert!(store.stats().used_bytes > 0 || contents[..=part as usize].concat().is_empty());
            store.release_parts(&[meta.id], Parts::one(part));
        }
        assert!(used > 0);
        assert_eq!(store.stats().used_bytes, 0, "the gaps are nobody's");
    }
}
