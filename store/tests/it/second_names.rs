//! Objects that stay under a second name, and objects that are put away.

use std::{path::Path, sync::Arc, time::Duration};

use exobus_store::{
    CopyId, Parts, RealDisk, Store, StoreError, StoreOptions, SystemClock, WriterOptions,
    disk::{Fault, FaultyDisk, Op},
};

use crate::harness::{MIB, bytes, copy, fixture, open, options, put, write};

/// Long for a disk of a test.
const PATIENCE: Duration = Duration::from_secs(60);
const KEPT: u128 = 77;

#[test]
fn an_object_outlives_its_group_under_a_second_name_and_goes_with_that() {
    let fixture = fixture(8 * MIB);
    let store = &fixture.store;
    let content = bytes(1, 1_000_000);
    let meta = put(store, 1, &content).unwrap();
    let name = CopyId::new(KEPT, 1);
    let named = store.name_also(&meta.id, name).unwrap();
    assert_eq!((named.id, &named.parts, store.stats().objects), (name, &meta.parts, 1), "one object");
    assert_eq!(store.name_also(&meta.id, name).unwrap(), named, "said again");
    assert_eq!(store.groups(), [1, KEPT]);
    store.delete_group(1);
    assert!(!store.contains(&meta.id));
    assert!(*store.get(&name, Parts::All).wait().unwrap() == content[..]);
    store.delete(&[name]);
    assert_eq!((store.stats().objects, store.stats().used_bytes), (0, 0));

    let again = put(store, 1, &content).unwrap();
    store.name_also(&again.id, name).unwrap();
    store.delete_group(KEPT);
    assert!(*store.get(&again.id, Parts::All).wait().unwrap() == content[..], "its first name is as good");
}

#[test]
fn a_name_means_one_object_and_an_object_has_two_names_at_most() {
    let fixture = fixture(8 * MIB);
    let store = &fixture.store;
    let (one, other) = (put(store, 1, b"one").unwrap().id, put(store, 1, b"other").unwrap().id);
    let name = CopyId::new(KEPT, 1);
    assert!(matches!(store.name_also(&copy(99), name), Err(StoreError::NotFound(_))));
    store.name_also(&one, name).unwrap();
    assert!(matches!(store.name_also(&other, name), Err(StoreError::Conflict(_))));
    assert!(matches!(store.name_also(&other, one), Err(StoreError::Conflict(_))));
    assert!(matches!(store.name_also(&one, CopyId::new(KEPT, 2)), Err(StoreError::Conflict(_))));
}

#[test]
fn a_name_moves_to_another_object_or_stays_where_it_is() {
    let fixture = fixture(8 * MIB);
    let store = &fixture.store;
    let [old, new, named] = [&b"old"[..], b"new", b"named"].map(|content| put(store, 1, content).unwrap().id);
    let (name, other) = (CopyId::new(KEPT, 1), CopyId::new(KEPT, 2));
    let holds = |id, content: &[u8]| store.get(&id, Parts::All).wait().is_ok_and(|read| *read == *content);
    store.name_also(&old, name).unwrap();
    store.name_also(&named, other).unwrap();
    assert!(matches!(store.move_name(&copy(99), name), Err(StoreError::NotFound(_))));
    assert!(matches!(store.move_name(&named, name), Err(StoreError::Conflict(_))));
    assert!(holds(name, b"old") && holds(other, b"named"), "nothing has changed");
    for _ in 0..2 {
        assert_eq!(store.move_name(&new, name).unwrap().id, name);
        assert!(holds(name, b"new") && holds(new, b"new") && holds(old, b"old"));
    }
    // What has no other name goes with it.
    store.delete(&[old, new]);
    let last = put(store, 1, b"last").unwrap().id;
    store.move_name(&last, name).unwrap();
    store.delete(&[last]);
    assert!(holds(name, b"last"));
    assert_eq!(store.stats().objects, 2);
    // Nobody had it.
    let free = CopyId::new(KEPT, 3);
    let one = put(store, 1, b"one").unwrap().id;
    store.move_name(&one, free).unwrap();
    assert!(holds(free, b"one"));
}

#[test]
fn parts_of_what_has_a_second_name_are_not_released_and_what_was_released_gets_none() {
    let fixture = fixture(8 * MIB);
    let store = &fixture.store;
    let parts: Vec<_> = (0..4).map(|seed| bytes(seed, 300_000)).collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let meta = write(store, copy(1), WriterOptions::default(), &parts);
    let name = CopyId::new(KEPT, 1);
    store.name_also(&meta.id, name).unwrap();
    store.release_parts(&[meta.id], Parts::All);
    assert!(*store.get(&name, Parts::one(2)).wait().unwrap() == *parts[2]);

    let spent = write(store, copy(2), WriterOptions::default(), &parts);
    store.release_parts(&[spent.id], Parts::one(0));
    store.release_parts(&[spent.id], Parts::All);
    assert!(matches!(store.name_also(&spent.id, CopyId::new(KEPT, 2)), Err(StoreError::NotFound(_))));
}

#[test]
fn what_is_put_away_is_on_disk_though_there_is_memory_for_it() {
    let fixture = fixture(16 * MIB);
    let store = &fixture.store;
    let content = bytes(1, 3_000_000);
    let (meta, other) = (put(store, 1, &content).unwrap(), put(store, 1, &bytes(2, 1_000_000)).unwrap());
    let small = put(store, 1, b"a few bytes").unwrap();
    // Who reads it meanwhile is not in the way.
    let read = store.get(&meta.id, Parts::All).wait().unwrap();
    store.put_away(&meta.id, PATIENCE).unwrap();
    store.put_away(&small.id, PATIENCE).unwrap();
    let spilled = store.stats().spilled_bytes;
    assert_eq!(spilled, 3_000_011, "and nothing but that");
    drop(read);
    assert!(store.stats().clean_bytes >= 3_000_000, "its memory is anybody's");
    store.put_away(&meta.id, PATIENCE).unwrap();
    assert_eq!(store.stats().spilled_bytes, spilled, "once");
    assert!(*store.get(&meta.id, Parts::All).wait().unwrap() == content[..]);
    assert!(store.contains(&other.id));
    assert!(matches!(store.put_away(&copy(99), PATIENCE), Err(StoreError::NotFound(_))));
}

#[test]
fn where_no_disk_takes_it_nothing_is_put_away_and_the_object_stays() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(Arc::new(RealDisk::new()));
    let options = options(16 * MIB, vec![dir.path().to_owned()]);
    let store = Store::open(options, Arc::new(disk.clone()), Arc::new(SystemClock::new())).unwrap();
    disk.always(Op::Write, dir.path(), Fault::Errno(5));
    let meta = put(&store, 1, &bytes(1, 1_000_000)).unwrap();
    let error = store.put_away(&meta.id, PATIENCE).unwrap_err();
    assert!(disk.fired() > 0);
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}");
    assert!(*store.get(&meta.id, Parts::All).wait().unwrap() == bytes(1, 1_000_000)[..]);
}

fn kept(dir: &Path) -> StoreOptions {
    StoreOptions { keep_files: true, node: "n1".into(), ..options(8 * MIB, vec![dir.to_owned()]) }
}

/// The files as a process leaves them that is killed now.
fn killed(dir: &Path) -> tempfile::TempDir {
    let left = tempfile::tempdir().unwrap();
    let (from, to) = (dir.join("n1"), left.path().join("n1"));
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "spill") {
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
    left
}

#[test]
fn what_was_put_away_is_there_after_the_process_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(kept(dir.path()));
    let (small, large) = (put(&store, 1, b"a few bytes").unwrap(), put(&store, 1, &bytes(1, 3_000_000)).unwrap());
    let name = CopyId::new(KEPT, 1);
    store.name_also(&large.id, name).unwrap();
    store.delete(&[large.id]);
    store.put_away(&small.id, PATIENCE).unwrap();
    store.put_away(&name, PATIENCE).unwrap();
    put(&store, 2, b"not this").unwrap();
    let left = killed(dir.path());
    let again = open(kept(left.path()));
    let mut ids: Vec<_> = again.recovered().into_iter().map(|meta| meta.id).collect();
    ids.sort();
    assert_eq!(ids, [small.id, name], "under the names that they had");
    assert!(*again.get(&name, Parts::All).wait().unwrap() == bytes(1, 3_000_000)[..]);
}

#[test]
fn what_was_spilled_under_its_first_name_is_found_under_the_one_that_it_had_when_the_file_was_closed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(kept(dir.path()));
    let (open_yet, closed) = (put(&store, 1, &bytes(1, 900_000)).unwrap(), put(&store, 1, &bytes(2, 900_000)).unwrap());
    let [one, two] = [CopyId::new(KEPT, 1), CopyId::new(KEPT, 2)];
    // Its file has its footer before it is called otherwise.
    store.put_away(&closed.id, PATIENCE).unwrap();
    store.name_also(&closed.id, two).unwrap();
    // Filling the store writes the rest of it early, into files that are open.
    let fillers: Vec<_> = (10..30).map(|seed| put(&store, 2, &bytes(seed, 900_000)).unwrap().id).collect();
    store.wait_until_idle();
    store.name_also(&open_yet.id, one).unwrap();
    store.delete_group(1);
    store.delete(&fillers);
    store.put_away(&one, PATIENCE).unwrap();
    let again = open(kept(killed(dir.path()).path()));
    let mut ids: Vec<_> = again.recovered().into_iter().map(|meta| meta.id).collect();
    ids.sort();
    assert_eq!(ids, [closed.id, one]);
}
