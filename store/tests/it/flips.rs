//! Goal G5: of all bits that are flipped in what lies on disk, every one is found before any byte is used.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use exobus_store::{
    ObjectMeta, Parts, RealDisk, RowHash, Store, StoreError, StoreOptions, SystemClock, WriterOptions,
    disk::{Disk, MemoryDisk},
};

use crate::harness::{MIB, bytes, copy, options, stream};

const OBJECTS: u64 = 24;
const PARTS: u64 = 3;

fn part_bytes(object: u64, part: u64) -> usize {
    (1000 + object * 157 + part * 4099) as usize
}

fn content(object: u64, part: u64) -> Vec<u8> {
    bytes(object * PARTS + part, part_bytes(object, part))
}

fn kept(dir: &Path) -> StoreOptions {
    StoreOptions { keep_files: true, node: "n1".into(), ..options(4 * MIB, vec![dir.to_owned()]) }
}

fn open(disk: &Arc<dyn Disk>, dir: &Path) -> Store {
    Store::open(kept(dir), disk.clone(), Arc::new(SystemClock::new())).unwrap()
}

/// A node that has written all of its objects to disk, in several files, and was shut down in order.
fn first_life(disk: &Arc<dyn Disk>, dir: &Path) -> Vec<ObjectMeta> {
    let mut metas = Vec::new();
    for half in 0..2 {
        let store = open(disk, dir);
        // With no memory left, writers go to disk.
        let _full = store.scratch(4 * MIB).unwrap();
        for object in half * OBJECTS / 2..(half + 1) * OBJECTS / 2 {
            let mut writer = store.writer(copy(u128::from(object) + 1), WriterOptions::default());
            for part in 0..PARTS {
                let content = content(object, part);
                writer.begin_part(Some(content.len() as u64)).unwrap();
                writer.write(&content).unwrap();
                writer.end_part(1, RowHash(u128::from(part)));
            }
            metas.push(writer.seal().unwrap());
        }
    }
    metas
}

/// Everything that the store says it has, by every way to read it: right, or an error that names it. The objects that
/// are not there any more, for either reason.
fn read_all(store: &Store, metas: &[ObjectMeta], way: u64) -> Vec<u64> {
    let mut lost = Vec::new();
    for object in 0..OBJECTS {
        let meta = &metas[object as usize];
        let expected: Vec<u8> = (0..PARTS).flat_map(|part| content(object, part)).collect();
        let got = match (store.contains(&meta.id), way % 3) {
            (false, _) => {
                lost.push(object);
                continue;
            }
            (true, 0) => store.get(&meta.id, Parts::All).wait().map(|block| block.to_vec()),
            (true, 1) => (0..PARTS as u32)
                .map(|part| store.get(&meta.id, Parts::one(part)).wait().map(|block| block.to_vec()))
                .collect::<Result<Vec<_>, _>>()
                .map(|parts| parts.concat()),
            (true, _) => {
                let mut read = Vec::new();
                let mut reader = stream(store, &meta.id, Parts::All, 64 << 10).unwrap();
                std::io::Read::read_to_end(&mut reader, &mut read)
                    .map(|_| read)
                    .map_err(|error| error.into_inner().unwrap().downcast_ref::<StoreError>().unwrap().clone())
            }
        };
        match got {
            Ok(got) => assert!(got == expected, "object {object}: wrong bytes were used"),
            Err(StoreError::Corrupt { object: named, file, offset, .. }) => {
                assert_eq!(named, meta.id);
                assert!(file.extension().is_some_and(|kind| kind == "spill") && offset % 8 < 8, "{file:?}");
                assert!(!store.contains(&meta.id), "it is not served again");
                lost.push(object);
            }
            Err(error) => panic!("object {object}: {error}"),
        }
    }
    lost
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Where each part lies: file and byte range. Its content is like no other, so it can be looked for.
fn places(disk: &MemoryDisk, files: &[PathBuf]) -> Vec<(u64, usize, std::ops::Range<u64>)> {
    let images: Vec<Vec<u8>> = files.iter().map(|file| disk.bytes(file)).collect();
    let mut places = Vec::new();
    for object in 0..OBJECTS {
        for part in 0..PARTS {
            let content = content(object, part);
            let (file, at) = images
                .iter()
                .enumerate()
                .find_map(|(nth, image)| Some((nth, image.windows(16).position(|window| window == &content[..16])?)))
                .expect("every part is in a file");
            assert!(images[file][at..at + content.len()] == content[..]);
            places.push((object, file, at as u64..(at + content.len()) as u64));
        }
    }
    places
}

fn spill_files(disk: &MemoryDisk) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "spill")).collect()
}

/// Bits that are flipped: `EXOBUS_FLIPS`, or this many.
const FLIPS: u64 = 700;

#[test]
fn of_flipped_bits_on_disk_none_is_used() {
    let flips = std::env::var("EXOBUS_FLIPS").map_or(FLIPS, |flips| flips.parse().expect("a number"));
    let (disk, dir) = (MemoryDisk::new(), Path::new("/spill"));
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let metas = first_life(&shared, dir);
    let files = spill_files(&disk);
    assert!(files.len() >= 2);
    let places = places(&disk, &files);
    let images: Vec<Vec<u8>> = files.iter().map(|file| disk.bytes(file)).collect();
    let mut random = Random(0x5eed);
    let (mut data, mut footers, mut harmless) = (0, 0, 0);
    for nth in 0..flips {
        let file = random.below(files.len() as u64) as usize;
        let bytes = images[file].len() as u64;
        let blocks_end = places.iter().filter(|place| place.1 == file).map(|place| place.2.end).max().unwrap();
        // In turn: anywhere, in the footer and behind it, in the trailer.
        let at = match nth % 3 {
            0 => random.below(bytes),
            1 => blocks_end + random.below(bytes - blocks_end),
            _ => bytes - 4096 + random.below(40),
        };
        disk.flip(&files[file], at * 8 + random.below(8));
        let store = open(&shared, dir);
        let recovered = store.recovered();
        assert!(recovered.iter().all(|meta| metas.contains(meta)), "flip {nth}: no directory is wrong");
        let lost = read_all(&store, &metas, nth);
        let hit = places.iter().find(|(_, of, range)| *of == file && range.contains(&at)).map(|place| place.0);
        match hit {
            Some(object) => {
                assert_eq!(lost, [object], "flip {nth} at {at}");
                assert_eq!(store.stats().corrupt_blocks, 1);
                data += 1;
            }
            None if lost.is_empty() => harmless += 1,
            None => {
                // A footer that is not what was written: all of its file is lost, and nothing of others.
                let of_file = |object: &u64| places.iter().any(|place| place.0 == *object && place.1 == file);
                let all: Vec<u64> = (0..OBJECTS).filter(of_file).collect();
                assert_eq!(lost, all, "flip {nth} at {at}");
                footers += 1;
            }
        }
        drop(store);
        for (file, image) in files.iter().zip(&images) {
            disk.write_small(file, image).unwrap();
        }
    }
    // Harmless is what nobody reads: bytes between blocks, behind the payload, behind the trailer's fields.
    let used = |at: u64, bytes: u64| at >= bytes - 4096 && at < bytes - 4096 + 40;
    assert!(used(4096, 8192) && data >= flips / 7 && footers >= flips / 3, "{data} in data, {footers} in footers");
    assert_eq!(data + footers + harmless, flips);
    assert!(data + footers >= flips * 4 / 7, "{harmless} of {flips} hit nothing");
}

#[test]
fn an_index_that_is_damaged_anywhere_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let shared: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let metas = first_life(&shared, dir.path());
    let index = dir.path().join("n1").join("index");
    let mut images = Vec::new();
    collect(&index, &mut images);
    assert!(images.iter().map(|(_, image)| image.len()).sum::<usize>() > 100, "{index:?}");
    let mut random = Random(0x1de);
    let mut rebuilt = 0;
    for nth in 0..60 {
        std::fs::remove_dir_all(&index).unwrap();
        for (path, image) in &images {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, image).unwrap();
        }
        let (path, image) = &images[random.below(images.len() as u64) as usize];
        let mut image = image.clone();
        let at = random.below(image.len().max(1) as u64) as usize;
        match nth % 4 {
            _ if image.is_empty() => image.extend([0xff; 64]),
            0 => image[at] ^= 1 << random.below(8),
            1 => image.truncate(at),
            2 => image[at..].fill(0),
            _ => image[at..].iter_mut().for_each(|byte| *byte ^= random.below(256) as u8),
        }
        std::fs::write(path, image).unwrap();
        let store = open(&shared, dir.path());
        assert_eq!(store.recovered().len() as u64, OBJECTS, "damage {nth} to {path:?}");
        assert_eq!(read_all(&store, &metas, nth), [], "damage {nth} to {path:?}");
        assert_eq!((store.stats().corrupt_blocks, store.stats().lost_objects), (0, 0));
        rebuilt += store.stats().indexes_rebuilt;
        drop(store);
        for entry in std::fs::read_dir(dir.path().join("n1")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|kind| kind.to_string_lossy().starts_with("damaged")) {
                std::fs::remove_dir_all(path).unwrap();
            }
        }
    }
    assert!(rebuilt > 0, "some of it cannot be opened");
}

fn collect(dir: &Path, images: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, images),
            false => images.push((path.clone(), std::fs::read(&path).unwrap())),
        }
    }
}
