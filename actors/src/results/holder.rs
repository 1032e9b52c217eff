//! What a node does with the bytes of results in its store: blocking, on threads for that.
//!
//! A name of a member that is taken is never free for a moment: whatever has it has it until another object is verified, hashed and on disk, and
//! then the store moves the name in one step, or, if that object cannot have it, not at all.

use std::time::Duration;

use exobus_store::{CopyId, ObjectMeta, PartMeta, RangeRead, Store, StoreError};
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

/// How the bytes of a member have come to be in this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provenance {
    /// This copy of a job has them; it is to have the name of the member, too.
    Here(CopyId),
    /// They were fetched for this, under the name of the member, which nothing had.
    Fetched,
    /// They were fetched for this, under [this name](super::record::replacing_name), since something else has that of the member.
    Replacing(CopyId),
    /// They were there before, under that name.
    Before,
}

/// Keeps a member under a name that outlives its job: verified, hashed and on disk, or not at all. What had the name before stays if not.
pub(super) fn adopt(store: &Store, provenance: Provenance, name: CopyId) -> Result<KeptMember, NotKept> {
    let named_before = store.contains(&name) && provenance != Provenance::Fetched;
    match provenance {
        Provenance::Here(copy) => match store.name_also(&copy, name) {
            Ok(_) => {}
            Err(StoreError::Conflict(_)) if named_before => return adopt_instead(store, copy, name),
            Err(error) => return Err(gone(error)),
        },
        Provenance::Replacing(fetched) => {
            let kept = adopt_instead(store, fetched, name);
            // It has the name of the member by now, or is of no use.
            store.delete(&[fetched]);
            return kept;
        }
        Provenance::Fetched | Provenance::Before => {}
    }
    let kept = put_on_disk(store, name);
    if kept.is_err() && !named_before {
        store.delete(&[name]);
    }
    kept
}

/// As [`adopt`], where the name is another object's, which an earlier run of the job has left, say: that one has it until this one is as good.
fn adopt_instead(store: &Store, copy: CopyId, name: CopyId) -> Result<KeptMember, NotKept> {
    let kept = put_on_disk(store, copy)?;
    store.move_name(&copy, name).map_err(gone)?;
    Ok(kept)
}

fn gone(error: StoreError) -> NotKept {
    NotKept::Gone(error.to_string())
}

/// Verifies an object, and has it on disk.
fn put_on_disk(store: &Store, id: CopyId) -> Result<KeptMember, NotKept> {
    let meta = store.meta(&id).ok_or(StoreError::NotFound(id)).map_err(gone)?;
    let hash = hash(store, &meta).map_err(gone)?;
    match store.put_away(&id, put_away_within(meta.bytes)) {
        Ok(()) => Ok(KeptMember { bytes: meta.bytes, hash }),
        Err(error @ StoreError::NotFound(_)) => Err(gone(error)),
        Err(StoreError::Cancelled) => Err(NotKept::NoRoom("its disks do not take it in time".to_owned())),
        Err(error) => Err(NotKept::NoRoom(error.to_string())),
    }
}

/// Whether two objects have the same bytes, part by part, as their directories say.
pub(super) fn are_same(one: &[PartMeta], other: &[PartMeta]) -> bool {
    let contents = |part: &PartMeta| (part.bytes, part.rows, part.row_hash, part.checksum);
    one.iter().map(contents).eq(other.iter().map(contents))
}

/// The xxh3-128 of all bytes of an object, if they are what they were.
pub(super) fn hash_of(store: &Store, id: CopyId) -> Result<u128, StoreError> {
    hash(store, &store.meta(&id).ok_or(StoreError::NotFound(id))?)
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
    use std::path::Path;
    use std::sync::Arc;

    use exobus_store::disk::{Fault, FaultyDisk, Op};
    use exobus_store::{Align, Disk, RealDisk, RowHash, StoreOptions, SystemClock, WriterOptions};

    use super::*;

    /// The name of a member.
    const NAME: CopyId = CopyId::new(2, 1);

    fn store(dir: &Path, disk: Arc<dyn Disk>) -> Store {
        let options =
            StoreOptions { memory_bytes: 32 << 20, spill_dirs: vec![dir.to_owned()], ..StoreOptions::default() };
        Store::open(options, disk, Arc::new(SystemClock::new())).unwrap()
    }

    /// An object of these parts.
    fn put(store: &Store, copy: CopyId, parts: &[&[u8]]) {
        let mut writer = store.writer(copy, WriterOptions { align: Align::SixtyFour, ..WriterOptions::default() });
        for bytes in parts {
            writer.begin_part(Some(bytes.len() as u64)).unwrap();
            writer.write(bytes).unwrap();
            writer.end_part(1, RowHash::of(bytes));
        }
        writer.seal().unwrap();
    }

    fn kept(bytes: &[u8]) -> KeptMember {
        KeptMember { bytes: bytes.len() as u64, hash: XxHash3_128::oneshot(bytes) }
    }

    #[test]
    fn a_member_is_its_parts_one_behind_the_other_however_they_are_aligned() {
        let dir = tempfile::tempdir().unwrap();
        let (store, copy) = (store(dir.path(), Arc::new(RealDisk::new())), CopyId::new(1, 1));
        let part = |part: u8| (0..100).map(|at| part.wrapping_mul(100).wrapping_add(at)).collect::<Vec<u8>>();
        let parts: Vec<Vec<u8>> = (0..5).map(part).collect();
        put(&store, copy, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let all = parts.concat();
        assert_eq!(adopt(&store, Provenance::Here(copy), NAME), Ok(kept(&all)));
        assert_eq!(adopt(&store, Provenance::Here(copy), NAME), Ok(kept(&all)), "said again");
        store.delete_group(1);
        for (offset, most) in [(0, 500), (0, 1), (99, 2), (150, 300), (499, 1), (0, 1000), (500, 10)] {
            let expected = &all[offset.min(500)..(offset + most).min(500)];
            assert_eq!(read_member(&store, &NAME, offset as u64, most as u64).unwrap(), expected, "{offset} {most}");
        }
        assert!(matches!(adopt(&store, Provenance::Here(copy), CopyId::new(2, 2)), Err(NotKept::Gone(_))));
        assert!(matches!(adopt(&store, Provenance::Here(copy), NAME), Err(NotKept::Gone(_))));
        assert!(store.contains(&NAME), "what was kept before stays");
        assert_eq!(adopt(&store, Provenance::Before, NAME), Ok(kept(&all)));
    }

    #[test]
    fn what_has_the_name_of_a_member_has_it_until_another_one_is_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(Arc::new(RealDisk::new()));
        let store = store(dir.path(), Arc::new(disk.clone()));
        let (left, copy) = (CopyId::new(1, 1), CopyId::new(1, 2));
        put(&store, left, &[b"of an earlier run"]);
        adopt(&store, Provenance::Here(left), NAME).unwrap();
        put(&store, copy, &[b"of this one"]);
        disk.always(Op::Write, dir.path(), Fault::Errno(28));
        let refused = adopt(&store, Provenance::Here(copy), NAME);
        assert!(matches!(refused, Err(NotKept::NoRoom(_))) && disk.fired() > 0, "{refused:?}");
        assert_eq!(read_member(&store, &NAME, 0, 100).unwrap(), b"of an earlier run");
        disk.heal();
        // The folder is looked at again for who needs it.
        assert_eq!(adopt(&store, Provenance::Here(copy), NAME), Ok(kept(b"of this one")));
        store.delete_group(1);
        assert_eq!(read_member(&store, &NAME, 0, 100).unwrap(), b"of this one");
        assert!(!store.contains(&left));
    }

    #[test]
    fn what_has_the_name_of_a_member_has_it_still_where_another_one_cannot_have_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), Arc::new(RealDisk::new()));
        let (left, copy) = (CopyId::new(1, 1), CopyId::new(1, 2));
        put(&store, left, &[b"of an earlier run"]);
        put(&store, copy, &[b"a member of the same result, of another number"]);
        adopt(&store, Provenance::Here(left), NAME).unwrap();
        adopt(&store, Provenance::Here(copy), CopyId::new(2, 2)).unwrap();
        store.delete_group(1);
        let refused = adopt(&store, Provenance::Here(CopyId::new(2, 2)), NAME);
        assert_eq!(refused, Ok(kept(b"a member of the same result, of another number")), "it has one name by now");
        put(&store, left, &[b"of a third run"]);
        let refused = adopt(&store, Provenance::Here(CopyId::new(2, 2)), CopyId::new(2, 3));
        assert!(matches!(refused, Err(NotKept::Gone(_))), "it has two names: {refused:?}");
        adopt(&store, Provenance::Here(left), CopyId::new(2, 3)).unwrap();
        store.delete_group(1);
        let refused = adopt(&store, Provenance::Here(CopyId::new(2, 2)), CopyId::new(2, 3));
        assert!(matches!(refused, Err(NotKept::Gone(_))), "{refused:?}");
        assert_eq!(read_member(&store, &CopyId::new(2, 3), 0, 100).unwrap(), b"of a third run");
    }

    #[test]
    fn what_is_fetched_takes_the_place_of_what_has_the_name_or_goes() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(Arc::new(RealDisk::new()));
        let store = store(dir.path(), Arc::new(disk.clone()));
        let (left, fetched) = (CopyId::new(1, 1), CopyId::new(2, 1 << 64 | 1));
        put(&store, left, &[b"of an earlier run"]);
        adopt(&store, Provenance::Here(left), NAME).unwrap();
        store.delete_group(1);
        put(&store, fetched, &[b"of this one"]);
        disk.always(Op::Write, dir.path(), Fault::Errno(28));
        let refused = adopt(&store, Provenance::Replacing(fetched), NAME);
        assert!(matches!(refused, Err(NotKept::NoRoom(_))) && disk.fired() > 0, "{refused:?}");
        assert_eq!(read_member(&store, &NAME, 0, 100).unwrap(), b"of an earlier run");
        assert!(!store.contains(&fetched));
        disk.heal();
        put(&store, fetched, &[b"of this one"]);
        assert_eq!(adopt(&store, Provenance::Replacing(fetched), NAME), Ok(kept(b"of this one")));
        assert_eq!(read_member(&store, &NAME, 0, 100).unwrap(), b"of this one");
        assert_eq!(store.ids(), [NAME]);
    }

    #[test]
    fn a_name_that_was_given_for_nothing_is_taken_away_again() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(Arc::new(RealDisk::new()));
        let store = store(dir.path(), Arc::new(disk.clone()));
        disk.always(Op::Write, dir.path(), Fault::Errno(28));
        let (copy, other) = (CopyId::new(1, 1), CopyId::new(2, 2));
        put(&store, copy, &[b"bytes"]);
        put(&store, other, &[b"that were fetched"]);
        assert!(matches!(adopt(&store, Provenance::Here(copy), NAME), Err(NotKept::NoRoom(_))));
        assert!(store.contains(&copy) && !store.contains(&NAME));
        assert!(matches!(adopt(&store, Provenance::Fetched, other), Err(NotKept::NoRoom(_))));
        assert!(!store.contains(&other));
    }

    #[test]
    fn a_name_that_an_object_has_already_stays_though_it_cannot_be_put_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(Arc::new(RealDisk::new()));
        let store = store(dir.path(), Arc::new(disk.clone()));
        disk.always(Op::Write, dir.path(), Fault::Errno(28));
        let copy = CopyId::new(1, 1);
        put(&store, copy, &[b"bytes"]);
        store.name_also(&copy, NAME).unwrap();
        assert!(matches!(adopt(&store, Provenance::Here(copy), NAME), Err(NotKept::NoRoom(_))));
        assert!(store.contains(&NAME));
    }

    #[test]
    fn bytes_that_are_not_what_they_were_are_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(Arc::new(RealDisk::new()));
        let store = store(dir.path(), Arc::new(disk.clone()));
        let (copy, bytes) = (CopyId::new(1, 1), vec![7; 12 << 20]);
        disk.fail(Op::Write, 0, Fault::FlipWritten(8 * 5000));
        put(&store, copy, &[&bytes]);
        // It has to give way to these.
        put(&store, CopyId::new(1, 2), &[&bytes]);
        put(&store, CopyId::new(1, 3), &[&bytes]);
        store.put_away(&copy, PUT_AWAY_WITHIN).unwrap();
        assert_eq!(disk.fired(), 1);
        let refused = adopt(&store, Provenance::Here(copy), NAME);
        assert!(matches!(refused, Err(NotKept::Gone(_))), "{refused:?}");
        assert!(!store.contains(&NAME));
    }

    #[test]
    fn a_disk_has_longer_for_more_bytes() {
        assert_eq!(put_away_within(0), Duration::from_secs(20));
        assert_eq!(put_away_within(10_000_000_000), Duration::from_secs(520));
    }

    #[test]
    fn parts_of_more_than_a_piece_are_hashed_to_their_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (store, copy) = (store(dir.path(), Arc::new(RealDisk::new())), CopyId::new(1, 1));
        let parts = [vec![1; (1 << 20) + 100], vec![2; (1 << 20) + 64]];
        put(&store, copy, &[&parts[0], &parts[1]]);
        assert_eq!(adopt(&store, Provenance::Here(copy), NAME), Ok(kept(&parts.concat())));
    }

    #[test]
    fn objects_are_the_same_if_all_their_parts_are_wherever_those_begin() {
        let part =
            |offset, bytes, rows, hash, checksum| PartMeta { offset, bytes, rows, row_hash: RowHash(hash), checksum };
        let one = [part(0, 3, 1, 7, 8), part(3, 4, 2, 9, 10)];
        assert!(are_same(&one, &[part(0, 3, 1, 7, 8), part(64, 4, 2, 9, 10)]));
        for second in [part(3, 5, 2, 9, 10), part(3, 4, 3, 9, 10), part(3, 4, 2, 8, 10), part(3, 4, 2, 9, 11)] {
            assert!(!are_same(&one, &[one[0], second]), "{second:?}");
        }
        assert!(!are_same(&one, &one[..1]) && !are_same(&one[..1], &one));
    }
}
