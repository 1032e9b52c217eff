//! What a node does with the bytes of results in its store: blocking, on threads for that.

use std::time::Duration;

use exobus_store::{CopyId, ObjectMeta, RangeRead, Store, StoreError};
use std::hash::Hasher as _;
use twox_hash::{XxHash3_64, XxHash3_128};

use crate::protocol::results::{KeptMember, NotKept};

/// Read at a time while the hash of a member is made.
const PIECE_BYTES: u64 = 1 << 20;
/// An object of no bytes is put on disk in this time, ...
const PUT_AWAY_WITHIN: Duration = Duration::from_secs(20);
/// ... and a larger one takes longer: bytes per millisecond of a slow disk.
const SLOW_DISK: u64 = 20_000;

/// How long it may take to put so many bytes on disk.
pub(super) fn put_away_within(bytes: u64) -> Duration {
    PUT_AWAY_WITHIN + Duration::from_millis(bytes / SLOW_DISK)
}

/// Keeps a copy under a name that outlives its job, which may be the one that it has: verified, hashed and on disk, or not at all.
pub(super) fn adopt(store: &Store, copy: CopyId, name: CopyId) -> Result<KeptMember, NotKept> {
    let gone = |error: StoreError| NotKept::Gone(error.to_string());
    let named = match copy == name {
        true => store.meta(&name).ok_or(StoreError::NotFound(name)),
        false => store.name_also(&copy, name),
    };
    let meta = match named {
        // An earlier run of the job has left something else there, or a copy of another number.
        Err(StoreError::Conflict(_)) => {
            store.delete(&[name]);
            store.name_also(&copy, name)
        }
        other => other,
    };
    let meta = meta.map_err(gone)?;
    let kept =
        hash(store, &meta).map_err(gone).and_then(|hash| match store.put_away(&name, put_away_within(meta.bytes)) {
            Ok(()) => Ok(KeptMember { bytes: meta.bytes, hash }),
            Err(error @ StoreError::NotFound(_)) => Err(gone(error)),
            Err(StoreError::Cancelled) => Err(NotKept::NoRoom("its disks do not take it in time".to_owned())),
            Err(error) => Err(NotKept::NoRoom(error.to_string())),
        });
    kept.inspect_err(|_| store.delete(&[name]))
}

/// The xxh3-128 of all bytes of an object, each part of which is compared with its checksum.
fn hash(store: &Store, meta: &ObjectMeta) -> Result<u128, StoreError> {
    let mut hasher = XxHash3_128::new();
    for part in meta.parts.iter() {
        let (mut checksum, mut done) = (XxHash3_64::new(), 0);
        while done < part.bytes {
            let piece = read(store, &meta.id, part.offset + done, PIECE_BYTES.min(part.bytes - done))?;
            hasher.write(&piece);
            checksum.write(&piece);
            done += piece.len() as u64;
        }
        if checksum.finish() != part.checksum {
            // The store finds it, too, and gives the copy up.
            store.verify(&meta.id)?;
        }
    }
    Ok(hasher.finish_128())
}

/// A run of bytes of an object as it lies in the store, gaps between parts included.
fn read(store: &Store, id: &CopyId, offset: u64, bytes: u64) -> Result<Vec<u8>, StoreError> {
    match store.read_range(id, offset, bytes)? {
        RangeRead::Memory(block) => Ok(block.to_vec()),
        RangeRead::Disk(mut range) => {
            let mut read = vec![0; bytes as usize];
            let count = range.read(&mut read)?;
            read.truncate(count);
            Ok(read)
        }
    }
}

/// Up to `most` bytes of a member from `offset` on: parts one behind the other, without the gaps that align them.
pub(super) fn read_member(store: &Store, id: &CopyId, offset: u64, most: u64) -> Result<Vec<u8>, StoreError> {
    let meta = store.meta(id).ok_or(StoreError::NotFound(*id))?;
    let mut bytes = Vec::with_capacity(most.min(meta.bytes.saturating_sub(offset)) as usize);
    let mut begins = 0;
    for part in meta.parts.iter() {
        let (from, left) = (offset.max(begins), most - bytes.len() as u64);
        if from < begins + part.bytes && left > 0 {
            let within = from - begins;
            bytes.extend_from_slice(&read(store, id, part.offset + within, left.min(part.bytes - within))?);
        }
        begins += part.bytes;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use exobus_store::{Align, RealDisk, RowHash, StoreOptions, SystemClock, WriterOptions};

    use super::*;

    #[test]
    fn a_member_is_its_parts_one_behind_the_other_however_they_are_aligned() {
        let dir = tempfile::tempdir().unwrap();
        let options =
            StoreOptions { memory_bytes: 32 << 20, spill_dirs: vec![dir.path().to_owned()], ..StoreOptions::default() };
        let store = Store::open(options, Arc::new(RealDisk::new()), Arc::new(SystemClock::new())).unwrap();
        let (copy, name) = (CopyId::new(1, 1), CopyId::new(2, 1));
        let mut writer = store.writer(copy, WriterOptions { align: Align::SixtyFour, ..WriterOptions::default() });
        let mut all = Vec::new();
        for part in 0..5_u8 {
            let bytes: Vec<u8> = (0..100).map(|at| part.wrapping_mul(100).wrapping_add(at)).collect();
            writer.begin_part(Some(100)).unwrap();
            writer.write(&bytes).unwrap();
            writer.end_part(1, RowHash::of(&bytes));
            all.extend(bytes);
        }
        writer.seal().unwrap();
        let kept = adopt(&store, copy, name).unwrap();
        assert_eq!(kept, KeptMember { bytes: 500, hash: XxHash3_128::oneshot(&all) });
        assert_eq!(adopt(&store, copy, name), Ok(kept), "said again");
        store.delete_group(1);
        for (offset, most) in [(0, 500), (0, 1), (99, 2), (150, 300), (499, 1), (0, 1000), (500, 10)] {
            let expected = &all[offset.min(500)..(offset + most).min(500)];
            assert_eq!(read_member(&store, &name, offset as u64, most as u64).unwrap(), expected, "{offset} {most}");
        }
        assert!(matches!(adopt(&store, copy, CopyId::new(2, 2)), Err(NotKept::Gone(_))));
    }
}
