//! Many threads, little memory, real disk: every byte is checked, nothing is left.

use std::sync::atomic::{AtomicU64, Ordering};

use exobus_store::{
    Class, CopyId, Parts, RowHash, StageItem, StageRequest, StagedItem, Store, StoreError, WriterOptions,
};

use crate::harness::{Fixture, MIB, bytes, fixture, stream};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// Objects are of four groups.
fn copy(id: u64) -> CopyId {
    CopyId::new(u128::from(id % 4), id.into())
}

/// Content of part `part` of object `id`.
fn part_of(id: u64, part: u64) -> Vec<u8> {
    let length = [0, 10, 5_000, 60_000, 200_000][((id + part) % 5) as usize];
    bytes(id * 8 + part, length)
}

fn write(store: &Store, id: u64, parts: u64, random: &mut Random) {
    let bytes_hint = [0, 100_000, 600_000][random.below(3) as usize];
    let mut writer = store.writer(copy(id), WriterOptions { bytes_hint, ..WriterOptions::default() });
    for part in 0..parts {
        let content = part_of(id, part);
        writer.begin_part((random.below(2) == 0).then_some(content.len() as u64)).unwrap();
        for piece in content.chunks(40_000) {
            writer.write(piece).unwrap();
        }
        writer.end_part(1, RowHash::of(&content));
    }
    writer.seal().unwrap();
}

fn check(store: &Store, id: u64, parts: u64, random: &mut Random) -> Result<(), StoreError> {
    let object = copy(id);
    let part = random.below(parts);
    match random.below(4) {
        0 => {
            let block = store.get(&object, Parts::one(part as u32)).wait()?;
            assert!(*block == part_of(id, part)[..], "part {part} of {id}");
        }
        1 => {
            let block = store.get(&object, Parts::All).wait()?;
            for part in 0..parts {
                assert!(*block.part(part as usize) == part_of(id, part)[..], "part {part} of {id}");
            }
        }
        2 => {
            // Whoever finds no memory for a window (others have it all) tries later.
            match stream(store, &object, Parts::All, 128 << 10) {
                Ok(mut reader) => {
                    let mut content = Vec::new();
                    if let Err(error) = std::io::Read::read_to_end(&mut reader, &mut content) {
                        return Err(error.into_inner().unwrap().downcast_ref::<StoreError>().unwrap().clone());
                    }
                    let expected: Vec<u8> = (0..parts).flat_map(|part| part_of(id, part)).collect();
                    assert!(content == expected, "stream of {id}");
                }
                Err(StoreError::Denied { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        _ => {
            let class = if random.below(2) == 0 { Class::Arguments } else { Class::Prefetch };
            let items = (0..parts).map(|part| StageItem::Local { object, parts: Parts::one(part as u32) }).collect();
            let ticket = store.stage(StageRequest { items, class });
            if random.below(5) == 0 {
                drop(ticket);
                return Ok(());
            }
            for (part, item) in (0..parts).zip(ticket.wait()?.items) {
                let StagedItem::Ready(block) = item else { panic!("{item:?}") };
                assert!(*block == part_of(id, part)[..], "staged part {part} of {id}");
            }
        }
    }
    Ok(())
}

#[test]
fn many_threads_with_little_memory() {
    const THREADS: u64 = 6;
    let Fixture { store, .. } = fixture(12 * MIB);
    let gone = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, gone) = (&store, &gone);
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                let mut mine: Vec<(u64, u64)> = Vec::new();
                for round in 0..150 {
                    let id = thread * 10_000 + round;
                    let parts = 1 + random.below(5);
                    write(store, id, parts, &mut random);
                    mine.push((id, parts));
                    for _ in 0..3 {
                        let (id, parts) = mine[random.below(mine.len() as u64) as usize];
                        check(store, id, parts, &mut random).unwrap();
                    }
                    // Somebody else's may be deleted meanwhile.
                    let other = random.below(THREADS) * 10_000 + random.below(round + 1);
                    if let Some(meta) = store.meta(&copy(other)) {
                        match check(store, other, meta.parts.len() as u64, &mut random) {
                            Ok(()) => {}
                            Err(StoreError::NotFound(_)) => drop(gone.fetch_add(1, Ordering::Relaxed)),
                            Err(error) => panic!("{error}"),
                        }
                    }
                    if random.below(3) == 0 {
                        let nth = random.below(mine.len() as u64) as usize;
                        store.delete(&[copy(mine.swap_remove(nth).0)]);
                    }
                }
                for (id, parts) in &mine {
                    check(store, *id, *parts, &mut random).unwrap();
                }
            });
        }
    });
    store.wait_until_idle();
    let stats = store.stats();
    assert_eq!(
        (stats.pinned_bytes, stats.waiting, stats.corrupt_blocks, stats.lost_objects),
        (0, 0, 0, 0),
        "{stats:?}"
    );
    assert!(stats.spilled_bytes > 12 * MIB && stats.restored_bytes > 12 * MIB, "{stats:?}");
    assert!(stats.peak_bytes <= 12 * MIB);
    for group in 0..4 {
        store.delete_group(group);
    }
    store.wait_until_idle();
    assert_eq!((store.stats().objects, store.stats().used_bytes), (0, 0));
}
