//! Memory beside the region: asked for, granted or denied, and the region that gives way.

use std::sync::Arc;

use exobus_store::disk::{FaultyDisk, MemoryDisk};
use exobus_store::{Class, Parts, StageItem, StageRequest, StagedItem, Store, StoreError, SystemClock, WriterOptions};

use crate::harness::{Fixture, MIB, bytes, copy, fixture, open, options, put, write};

fn fill(store: &Store, blocks: u64) {
    for seed in 0..blocks {
        put(store, 1, &bytes(seed, MIB as usize)).unwrap();
    }
}

#[test]
fn the_region_gives_its_memory_back_for_what_is_granted() {
    let Fixture { store, .. } = fixture(32 * MIB);
    fill(&store, 64);
    let before = store.stats();
    assert!(before.backed_bytes > 24 * MIB, "{before:?}");
    let mut grant = store.outside(20 * MIB).unwrap();
    let after = store.stats();
    assert_eq!(after.granted_bytes, 20 * MIB);
    assert!(after.backed_bytes + grant.bytes() <= before.budget_bytes, "the sum stays: {after:?}");
    assert!(after.spilled_bytes >= before.spilled_bytes && after.objects == 64, "nothing is lost");
    grant.resize(8 * MIB).unwrap();
    assert_eq!(store.stats().granted_bytes, 8 * MIB);
    let rest = grant.split(3 * MIB).unwrap();
    drop(grant);
    assert_eq!(store.stats().granted_bytes, 3 * MIB);
    drop(rest);
    for seed in 0..64 {
        let content = bytes(seed, MIB as usize);
        let meta = put(&store, 1, &content).unwrap();
        assert!(*store.get(&meta.id, Parts::All).wait().unwrap() == content[..]);
    }
    store.delete_group(1);
    store.wait_until_idle();
    let end = store.stats();
    assert_eq!((end.granted_bytes, end.used_bytes, end.denied), (0, 0, 0));
}

#[test]
fn what_others_hold_is_not_taken_and_the_denial_says_how_much_there_was() {
    let Fixture { store, .. } = fixture(16 * MIB);
    let held = store.scratch(12 * MIB).unwrap();
    let error = store.outside(6 * MIB).unwrap_err();
    assert!(matches!(error, StoreError::Denied { bytes, free } if (bytes, free) == (6 * MIB, 4 * MIB)), "{error}");
    let stats = store.stats();
    assert_eq!((stats.denied, stats.denied_bytes, stats.granted_bytes), (1, 6 * MIB, 0));
    assert_eq!(store.outside(4 * MIB).unwrap().bytes(), 4 * MIB, "as much as it said");
    let mut grant = store.outside(2 * MIB).unwrap();
    assert!(grant.resize(5 * MIB).is_err());
    assert_eq!(grant.bytes(), 2 * MIB, "who is denied more keeps what it had");
    drop(held);
    grant.resize(6 * MIB).unwrap();
}

#[test]
fn more_than_the_store_can_ever_give_is_refused_with_both_sizes() {
    let Fixture { store, .. } = fixture(16 * MIB);
    let mut grant = store.outside(4 * MIB).unwrap();
    let in_all = [grant.resize(13 * MIB), grant.resize_to_used(13 * MIB)];
    for refused in [store.outside(13 * MIB).map(drop), grant.resize(u64::MAX)].into_iter().chain(in_all) {
        let error = refused.unwrap_err();
        assert!(matches!(error, StoreError::NeverGranted { most, .. } if most == 12 * MIB), "{error}");
        assert!(error.to_string().contains("12582912 bytes are the most"), "{error}");
        assert!(!error.retry_helps() && error.is_callers_fault());
    }
    let other = store.outside(9 * MIB).unwrap_err();
    assert!(matches!(other, StoreError::Denied { .. }), "the first one will give its part back: {other}");
}

#[test]
fn more_than_the_machine_has_is_denied_with_both_sizes_though_the_region_has_addresses_for_it() {
    const TIB: u64 = 1 << 40;
    let dir = tempfile::tempdir().unwrap();
    let store = open(options(8 * TIB, vec![dir.path().to_owned()]));
    let error = store.outside(4 * TIB).unwrap_err();
    let StoreError::Denied { bytes, free } = error else { panic!("{error}") };
    assert!(bytes == 4 * TIB && free < TIB, "{error}");
    assert_eq!(store.stats().granted_bytes, 0);
    assert!(store.outside(MIB).is_ok());
}

#[test]
fn an_answer_does_not_wait_for_a_disk_that_hangs() {
    let disk = FaultyDisk::new(Arc::new(MemoryDisk::new()));
    disk.hold_writes();
    let options = options(16 * MIB, vec!["/spill".into()]);
    let store = Store::open(options, Arc::new(disk.clone()), Arc::new(SystemClock::new())).unwrap();
    fill(&store, 15);
    disk.wait_for_a_held_write();
    // The disk would make room, and does not.
    let error = store.outside(8 * MIB).unwrap_err();
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    assert_eq!(store.stats().waiting, 0, "nobody waits for it any more");
    disk.heal();
    store.wait_until_idle();
    assert!(store.outside(8 * MIB).is_ok(), "and now it has");
}

#[test]
fn what_a_task_needs_is_granted_with_its_arguments() {
    let Fixture { store, .. } = fixture(16 * MIB);
    let held = store.outside(6 * MIB).unwrap();
    let object = write(&store, copy(1), WriterOptions::default(), &[&bytes(1, 3 * MIB as usize)]);
    let local = StageItem::Local { object: object.id, parts: Parts::All };
    let items = vec![local, StageItem::Outside { bytes: 10 * MIB }];
    let ticket = store.stage(StageRequest { items, class: Class::Arguments });
    assert!(!ticket.is_ready());
    assert_eq!(store.stats().granted_bytes, 6 * MIB, "who waits holds nothing");
    drop(held);
    let mut staged = ticket.wait().unwrap();
    let Some(StagedItem::Outside(grant)) = staged.items.pop() else { panic!("{staged:?}") };
    let stats = store.stats();
    assert_eq!((grant.bytes(), stats.granted_bytes), (10 * MIB, 10 * MIB));
    assert!(stats.backed_bytes + grant.bytes() <= stats.budget_bytes, "{stats:?}");
    drop((staged, grant));
    assert_eq!(store.stats().granted_bytes, 0);
}

#[test]
fn many_who_ask_at_a_time_never_have_more_than_there_is() {
    let Fixture { store, .. } = fixture(24 * MIB);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let store = &store;
            scope.spawn(move || {
                let mut kept = Vec::new();
                for round in 0..60u64 {
                    let seed = thread << 32 | round;
                    match (thread + round) % 4 {
                        0 => drop(put(store, u128::from(thread), &bytes(seed, 700_000)).unwrap()),
                        1 => kept.extend(store.outside(round * 200_000).ok()),
                        2 => drop(store.scratch(round * 50_000)),
                        _ => kept.truncate(kept.len() / 2),
                    }
                    let stats = store.stats();
                    assert!(stats.used_bytes <= 24 * MIB, "{stats:?}");
                    assert!(stats.granted_bytes <= stats.granted_max_bytes, "{stats:?}");
                }
            });
        }
    });
    (0..4).for_each(|group| store.delete_group(group));
    store.wait_until_idle();
    let stats = store.stats();
    assert_eq!((stats.used_bytes, stats.granted_bytes, stats.waiting), (0, 0, 0));
}
