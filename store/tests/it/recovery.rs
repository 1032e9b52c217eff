//! What a node finds again after it was restarted, and what is cleaned up after one that will not come back.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use exobus_store::{CopyId, ObjectMeta, Parts, RowHash, Store, StoreError, StoreEvent, StoreOptions, WriterOptions};

use crate::harness::{MIB, bytes, open, options, put};

fn kept(dir: &Path) -> StoreOptions {
    StoreOptions { keep_files: true, node: "n1".into(), ..options(8 * MIB, vec![dir.to_owned()]) }
}

/// What a writer wrote in the first life.
const WRITTEN: CopyId = CopyId::new(9, 5);

/// A node that spilled, and was shut down in order.
fn first_life(dir: &Path) -> Vec<ObjectMeta> {
    let store = open(kept(dir));
    assert_eq!((store.starts(), store.recovered().len()), (1, 0));
    let metas = (0..200).map(|seed| put(&store, u128::from(seed) % 2, &bytes(seed, 1_000_000)).unwrap()).collect();
    let mut writer = store.writer(WRITTEN, WriterOptions { maker: 3, ..WriterOptions::default() });
    for part in 0..10 {
        writer.begin_part(Some(300_000)).unwrap();
        writer.write(&bytes(part, 300_000)).unwrap();
        writer.end_part(7, RowHash(u128::from(part)));
    }
    writer.seal().unwrap();
    for seed in 500..540 {
        put(&store, 3, &bytes(seed, 1_000_000)).unwrap();
    }
    metas
}

fn check(store: &Store, recovered: &[ObjectMeta], metas: &[ObjectMeta]) {
    for meta in recovered {
        let block = store.get(&meta.id, Parts::All).wait().unwrap();
        if let Some(seed) = metas.iter().position(|known| known == meta) {
            assert!(*block == bytes(seed as u64, 1_000_000)[..]);
        }
    }
    assert!(metas[..190].iter().all(|meta| recovered.contains(meta)), "all that was spilled is there again");
}

fn index(dir: &Path) -> PathBuf {
    dir.join("n1").join("index")
}

#[test]
fn a_restarted_node_announces_what_it_still_has() {
    let dir = tempfile::tempdir().unwrap();
    let metas = first_life(dir.path());
    assert!(index(dir.path()).exists());
    let store = open(kept(dir.path()));
    assert_eq!(store.starts(), 2);
    let recovered = store.recovered();
    assert_eq!(store.recovered().len(), 0, "announced once");
    check(&store, &recovered, &metas);
    assert_eq!(store.stats().indexes_rebuilt, 0);
    let written = recovered.iter().find(|meta| meta.id == WRITTEN).unwrap();
    assert_eq!((written.rows, written.row_hash, written.parts.len()), (70, RowHash(45), 10));
    let block = store.get(&WRITTEN, Parts::one(4)).wait().unwrap();
    assert!(*block == bytes(4, 300_000)[..]);
    assert_eq!((block.object().group, block.header().maker), (9, 3));
    drop(block);
    for group in [0, 1, 3, 9] {
        store.delete_group(group);
    }
    store.wait_until_idle();
    assert_eq!(store.stats().spill_files, 0);
    drop(store);
    assert_eq!(open(kept(dir.path())).recovered().len(), 0);
}

#[test]
fn the_index_is_rebuilt_when_it_is_missing_damaged_or_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let metas = first_life(dir.path());
    let damages: [fn(&Path); 4] = [
        |index| std::fs::remove_dir_all(index).unwrap(),
        // Cannot be opened: set aside.
        |index| {
            std::fs::remove_dir_all(index).unwrap();
            std::fs::create_dir_all(index.join("db")).unwrap();
        },
        |index| {
            for file in ["db", "conf"] {
                let path = index.join(file);
                let mut content = std::fs::read(&path).unwrap();
                content.iter_mut().step_by(7).for_each(|byte| *byte ^= 0x55);
                std::fs::write(path, content).unwrap();
            }
        },
        |index| {
            let path = index.join("db");
            let content = std::fs::read(&path).unwrap();
            std::fs::write(path, &content[..content.len() / 3]).unwrap();
        },
    ];
    let mut rebuilt = 0;
    for (nth, damage) in damages.iter().enumerate() {
        damage(&index(dir.path()));
        let told: Arc<Mutex<u64>> = Arc::default();
        let hear = told.clone();
        let mut options = kept(dir.path());
        options.on_event = Some(Arc::new(move |event| {
            *hear.lock().unwrap() += u64::from(matches!(event, StoreEvent::IndexRebuilt { .. }));
        }));
        let store = open(options);
        check(&store, &store.recovered(), &metas);
        assert_eq!(store.stats().indexes_rebuilt, *told.lock().unwrap(), "damage {nth}");
        rebuilt += store.stats().indexes_rebuilt;
        assert_eq!((store.stats().corrupt_blocks, store.stats().lost_objects), (0, 0));
    }
    assert_eq!(rebuilt, 2, "what sled repairs by itself is read from the footers without a word");
}

#[test]
fn a_torn_or_flipped_file_is_left_out_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    first_life(dir.path());
    let node = dir.path().join("n1");
    let files = || {
        let mut files: Vec<PathBuf> = std::fs::read_dir(&node).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "spill"));
        files.sort();
        files
    };
    let all = files();
    assert!(all.len() >= 2);
    let content = std::fs::read(&all[0]).unwrap();
    std::fs::write(&all[0], &content[..content.len() - 4096]).unwrap();
    let store = open(kept(dir.path()));
    let recovered = store.recovered();
    assert!(!recovered.is_empty() && recovered.len() < 200);
    for meta in &recovered {
        store.get(&meta.id, Parts::All).wait().unwrap();
    }
    assert!(!files().contains(&all[0]));
}

/// The trailer says so, as one of a release that writes another version would.
fn give_version(file: &Path, digits: &[u8; 2]) {
    let mut content = std::fs::read(file).unwrap();
    let trailer = content.len() - 4096;
    content[trailer + 6..trailer + 8].copy_from_slice(digits);
    let sum = twox_hash::XxHash3_64::oneshot(&content[trailer..trailer + 32]);
    content[trailer + 32..trailer + 40].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(file, content).unwrap();
}

#[test]
fn a_file_of_another_version_is_refused_and_left_for_the_release_that_wrote_it() {
    let dir = tempfile::tempdir().unwrap();
    let metas = first_life(dir.path());
    let node = dir.path().join("n1");
    let files = || {
        let mut files: Vec<PathBuf> = std::fs::read_dir(&node).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "spill"));
        files.sort();
        files
    };
    let other = files()[0].clone();
    for digits in [b"00", b"02"] {
        give_version(&other, digits);
        // The index knows the file as it was.
        std::fs::remove_dir_all(index(dir.path())).unwrap();
        let content = std::fs::read(&other).unwrap();
        let told: Arc<Mutex<Vec<StoreEvent>>> = Arc::default();
        let hear = told.clone();
        let mut options = kept(dir.path());
        options.on_event = Some(Arc::new(move |event| hear.lock().unwrap().push(event)));
        let store = open(options);
        let recovered = store.recovered();
        let there = metas.iter().filter(|meta| recovered.contains(meta)).count();
        assert!(there > 0 && there < metas.len(), "{there} of {}: what is in other files is used", metas.len());
        for meta in &recovered {
            store.get(&meta.id, Parts::All).wait().unwrap();
        }
        let refused: Vec<_> = std::mem::take(&mut *told.lock().unwrap());
        let refused: Vec<_> = refused
            .into_iter()
            .filter_map(|event| match event {
                StoreEvent::FileRefused { path, reason } => Some((path, reason)),
                _ => None,
            })
            .collect();
        let [(path, reason)] = &refused[..] else { panic!("{refused:?}") };
        assert_eq!(*path, other);
        let found =
            format!("version {}, this exobus reads version 1: start the exobus that wrote it", digits[1] - b'0');
        assert!(reason.contains(&found), "{reason}");
        // Spilling goes on beside it, and it is there when the store has closed.
        for seed in 900..930 {
            put(&store, 4, &bytes(seed, 1_000_000)).unwrap();
        }
        store.delete_group(4);
        drop(store);
        assert!(std::fs::read(&other).unwrap() == content, "nothing is done to it");
    }
    give_version(&other, b"01");
    let store = open(kept(dir.path()));
    check(&store, &store.recovered(), &metas);
}

#[test]
fn a_flipped_bit_in_a_file_of_an_earlier_life_is_found() {
    let dir = tempfile::tempdir().unwrap();
    first_life(dir.path());
    let file = std::fs::read_dir(dir.path().join("n1")).unwrap().map(|entry| entry.unwrap().path());
    let file = file.filter(|file| file.extension().is_some_and(|extension| extension == "spill")).min().unwrap();
    let mut content = std::fs::read(&file).unwrap();
    content[3_000_123] ^= 0x10;
    std::fs::write(&file, content).unwrap();
    let store = open(kept(dir.path()));
    let errors: Vec<StoreError> =
        store.recovered().iter().filter_map(|meta| store.get(&meta.id, Parts::All).wait().err()).collect();
    assert!(matches!(&errors[..], [StoreError::Corrupt { file: named, .. }] if *named == file), "{errors:?}");
}

#[test]
fn a_directory_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let _first = open(kept(dir.path()));
    let second = Store::open(
        kept(dir.path()),
        Arc::new(exobus_store::RealDisk::new()),
        Arc::new(exobus_store::SystemClock::new()),
    );
    assert!(matches!(second, Err(StoreError::DirectoryLocked(_))));
}

#[test]
fn what_a_killed_process_left_for_nobody_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let orphan = dir.path().join("tmp-dead");
    std::fs::create_dir(&orphan).unwrap();
    for file in ["temporary", "lock", "x.spill"] {
        std::fs::write(orphan.join(file), b"").unwrap();
    }
    let kept_by_another = dir.path().join("n7");
    std::fs::create_dir(&kept_by_another).unwrap();
    std::fs::write(kept_by_another.join("x.spill"), b"").unwrap();
    let living = open(options(8 * MIB, vec![dir.path().to_owned()]));
    for seed in 0..20 {
        put(&living, 1, &bytes(seed, 1_000_000)).unwrap();
    }
    let _other = open(options(8 * MIB, vec![dir.path().to_owned()]));
    assert!(!orphan.exists());
    assert!(kept_by_another.exists(), "a node may come back for it");
    assert!(dir.path().join(living.node()).exists(), "its process lives");
}

#[test]
fn what_a_killed_process_of_the_same_node_left_is_deleted_at_once_where_nothing_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    first_life(dir.path());
    let spilled = || {
        let entries = std::fs::read_dir(dir.path().join("n1")).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "spill")).count()
    };
    assert!(spilled() > 0);
    let _store = open(StoreOptions { keep_files: false, ..kept(dir.path()) });
    assert_eq!(spilled(), 0, "before this one spills anything");
}

#[test]
fn a_directory_that_cannot_be_used_at_start_is_quarantined_while_there_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let metas = first_life(dir.path());
    let broken = dir.path().join("broken");
    std::fs::write(&broken, b"no directory").unwrap();
    let told: Arc<Mutex<Vec<StoreEvent>>> = Arc::default();
    let hear = told.clone();
    let mut options = kept(dir.path());
    options.spill_dirs.insert(0, broken.clone());
    options.on_event = Some(Arc::new(move |event| hear.lock().unwrap().push(event)));
    let store = open(options.clone());
    check(&store, &store.recovered(), &metas);
    assert_eq!(store.stats().retired_dirs, 1);
    let told = std::mem::take(&mut *told.lock().unwrap());
    assert!(
        matches!(&told[..], [StoreEvent::DirRetired { dir, error }] if dir.starts_with(&broken) && error.contains("create")),
        "{told:?}"
    );
    for seed in 1000..1030 {
        put(&store, 1, &bytes(seed, 1_000_000)).unwrap();
    }
    store.wait_until_idle();
    assert_eq!(store.stats().retired_dirs, 1);
    drop(store);
    options.spill_dirs.truncate(1);
    let disk = Arc::new(exobus_store::RealDisk::new());
    let error = Store::open(options, disk, Arc::new(exobus_store::SystemClock::new())).unwrap_err();
    assert!(matches!(&error, StoreError::Disk { path, .. } if path.starts_with(&broken)), "{error}");
}
