//! The objects of a node and where their bytes are: a pure state machine without clock, I/O or memory of its own.
//!
//! An object enters sealed, as a list of *extents*: runs of its bytes that lie together, in memory, on disk, or both.
//!
//! ```text
//!   writer ---seal---> dirty ---writing---> clean ---drop---> on disk ---load---> clean ...
//!                        \____________________\__________________\______ delete: freed when nobody reads it
//! ```
//!
//! *Dirty*: in memory only. *Clean*: in memory and on disk, so its memory can be taken at once. An extent that somebody
//! reads is *pinned* and on no list. Both lists are in order of last use. A deleted object leaves the table at once;
//! its extents live on until the last pin and the last disk request let go of them.

mod arena;
mod lists;
mod names;
mod release;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use arena::Arena;
pub(crate) use lists::{Links, LruList};
pub(crate) use names::Unnamed;

use crate::{alloc::Span, directory::Directory, ids::CopyId};

/// Number of an object while it is in the table.
pub(crate) type ObjectKey = u32;
/// Number of an extent while its bytes are anywhere.
pub(crate) type ExtentKey = u32;
/// Number of a spill file of this process.
pub(crate) type FileId = u32;

/// "None" of the numbers above.
pub(crate) const NONE: u32 = u32::MAX;

/// A run of bytes in a spill file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub file: FileId,
    pub offset: u64,
}

/// A sealed object.
#[derive(Debug)]
pub(crate) struct Object {
    /// The two numbers of its name; as they are they would be aligned to 16 bytes.
    id: [u64; 4],
    pub directory: Directory,
    pub maker: u32,
    /// First of its extents in order of their bytes; `NONE` when it has no bytes.
    pub first_extent: ExtentKey,
}

impl Object {
    pub fn id(&self) -> CopyId {
        let number = |low: u64, high: u64| u128::from(low) | u128::from(high) << 64;
        CopyId::new(number(self.id[0], self.id[1]), number(self.id[2], self.id[3]))
    }

    /// A name as an entry keeps it.
    fn split(id: CopyId) -> [u64; 4] {
        [id.group as u64, (id.group >> 64) as u64, id.bits as u64, (id.bits >> 64) as u64]
    }
}

/// A run of bytes of an object.
#[derive(Debug)]
pub(crate) struct Extent {
    /// Whose; `NONE` once the object is deleted.
    pub object: ObjectKey,
    /// The extent of the object's next bytes.
    pub next_extent: ExtentKey,
    /// Where its bytes begin in the object.
    pub start: u64,
    /// How many.
    pub bytes: u64,
    /// How many of them are of parts that may still be asked for: gaps between parts do not count.
    unreleased: u64,
    memory_offset: u64,
    /// In units of 64 bytes; zero: not in memory.
    memory_units: u32,
    file: FileId,
    file_offset: u64,
    pub pins: u32,
    links: Links,
    /// A write to disk is under way.
    pub writing: bool,
    /// A read from disk is under way into its memory.
    pub loading: bool,
}

impl Extent {
    pub fn memory(&self) -> Option<Span> {
        (self.memory_units > 0).then(|| Span { offset: self.memory_offset, bytes: u64::from(self.memory_units) * 64 })
    }

    pub fn disk(&self) -> Option<Place> {
        (self.file != NONE).then_some(Place { file: self.file, offset: self.file_offset })
    }

    fn set_memory(&mut self, span: Option<Span>) {
        self.memory_offset = span.map_or(0, |span| span.offset);
        self.memory_units = span.map_or(0, |span| (span.bytes / 64) as u32);
    }

    fn set_disk(&mut self, place: Option<Place>) {
        self.file = place.map_or(NONE, |place| place.file);
        self.file_offset = place.map_or(0, |place| place.offset);
    }

    /// Whether the bytes can be read from memory now.
    pub fn resident(&self) -> bool {
        self.memory_units > 0 && !self.loading
    }

    fn idle(&self) -> bool {
        self.pins == 0 && !self.writing && !self.loading
    }
}

/// An extent as it is handed to [`Table::insert`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewExtent {
    pub start: u64,
    pub bytes: u64,
    pub memory: Option<Span>,
    pub disk: Option<Place>,
}

/// What a change of the table sets free, for the allocator and the spill files.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    pub spans: Vec<Span>,
    pub places: Vec<(Place, u64)>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    by_id: BTreeMap<CopyId, ObjectKey>,
    objects: Arena<Object>,
    extents: Arena<Extent>,
    dirty: LruList,
    clean: LruList,
    /// Memory of extents being written that nobody reads.
    writing_bytes: u64,
    /// Of objects of which parts were released: which, a bit for each part.
    released: HashMap<ObjectKey, Box<[u64]>>,
    /// Of objects that have a second name: that name.
    second_names: HashMap<ObjectKey, CopyId>,
    /// Memory of all entries and directories, about.
    directory_bytes: u64,
}

/// What an object takes beside its directory: its entry and that of one extent, and their places in the maps.
const OBJECT_BYTES: u64 = 256;

impl Table {
    pub fn new() -> Table {
        Table {
            by_id: BTreeMap::new(),
            objects: Arena::new(),
            extents: Arena::new(),
            dirty: LruList::new(),
            clean: LruList::new(),
            writing_bytes: 0,
            released: HashMap::new(),
            second_names: HashMap::new(),
            directory_bytes: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.by_id.len() - self.second_names.len()
    }

    pub fn key(&self, id: &CopyId) -> Option<ObjectKey> {
        self.by_id.get(id).copied()
    }

    pub fn object(&self, key: ObjectKey) -> &Object {
        self.objects.get(key)
    }

    pub fn extent(&self, key: ExtentKey) -> &Extent {
        self.extents.get(key)
    }

    /// The extents of an object in order of their bytes.
    pub fn extents_of(&self, key: ObjectKey) -> impl Iterator<Item = (ExtentKey, &Extent)> {
        let first = self.objects.get(key).first_extent;
        std::iter::successors((first != NONE).then(|| (first, self.extents.get(first))), |(_, extent)| {
            (extent.next_extent != NONE).then(|| (extent.next_extent, self.extents.get(extent.next_extent)))
        })
    }

    /// All ids in order.
    pub fn ids(&self) -> impl Iterator<Item = &CopyId> {
        self.by_id.keys()
    }

    /// Memory that the objects take beside their bytes, about.
    pub fn directory_bytes(&self) -> u64 {
        self.directory_bytes
    }

    /// Memory whose only copy it is and that nobody reads.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.bytes()
    }

    /// Memory that can be taken at once.
    pub fn clean_bytes(&self) -> u64 {
        self.clean.bytes()
    }

    /// Memory that is being written to disk and that nobody reads.
    pub fn writing_bytes(&self) -> u64 {
        self.writing_bytes
    }

    /// Adds a sealed object. The caller has made sure that the id is new.
    pub fn insert(&mut self, id: CopyId, maker: u32, directory: Directory, extents: &[NewExtent]) -> ObjectKey {
        self.directory_bytes += OBJECT_BYTES + directory.heap_bytes();
        let parts = directory.slice(0..directory.len());
        let mut parts = parts.iter().rev().peekable();
        let key = self.objects.insert(Object { id: Object::split(id), directory, maker, first_extent: NONE });
        let replaced = self.by_id.insert(id, key);
        assert!(replaced.is_none(), "{id} was sealed twice");

        let mut next_extent = NONE;
        for new in extents.iter().rev() {
            let of_parts = std::iter::from_fn(|| parts.next_if(|part| part.offset >= new.start));
            let mut extent = Extent {
                object: key,
                next_extent,
                start: new.start,
                bytes: new.bytes,
                unreleased: of_parts.map(|part| part.bytes).sum(),
                memory_offset: 0,
                memory_units: 0,
                file: NONE,
                file_offset: 0,
                pins: 0,
                links: Links::default(),
                writing: false,
                loading: false,
            };
            extent.set_memory(new.memory);
            extent.set_disk(new.disk);
            next_extent = self.extents.insert(extent);
            self.enlist(next_extent);
        }
        self.objects.get_mut(key).first_extent = next_extent;
        key
    }

    /// Takes an object out, whose only name is that of its entry. Bytes that nobody uses are freed now, the others when they are let go of.
    fn remove(&mut self, key: ObjectKey, freed: &mut Freed) {
        let object = self.objects.remove(key);
        self.directory_bytes -= OBJECT_BYTES + object.directory.heap_bytes();
        self.by_id.remove(&object.id());
        self.released.remove(&key);
        let mut extent = object.first_extent;
        while extent != NONE {
            let next = self.extents.get(extent).next_extent;
            self.extents.get_mut(extent).object = NONE;
            self.free_if_deleted(extent, freed);
            extent = next;
        }
    }

    /// Groups that have objects, in order.
    pub fn groups(&self) -> Vec<u128> {
        let next = |after: Option<u128>| {
            let from = match after {
                None => Bound::Unbounded,
                Some(group) => Bound::Excluded(CopyId::new(group, u128::MAX)),
            };
            self.by_id.range((from, Bound::Unbounded)).next().map(|(id, _)| id.group)
        };
        std::iter::successors(next(None), |group| next(Some(*group))).collect()
    }

    /// The objects of a group, in order.
    pub fn of_group(&self, group: u128) -> impl Iterator<Item = (&CopyId, &ObjectKey)> {
        self.by_id.range(CopyId::new(group, 0)..=CopyId::new(group, u128::MAX))
    }

    /// Some object of a group, `None` when it has none.
    pub fn any_of_group(&self, group: u128) -> Option<CopyId> {
        self.of_group(group).next().map(|(id, _)| *id)
    }

    /// Keeps a resident or loading extent in memory.
    pub fn pin(&mut self, key: ExtentKey) {
        self.unlist(key);
        self.extents.get_mut(key).pins += 1;
    }

    /// Undoes one [`Table::pin`].
    pub fn unpin(&mut self, key: ExtentKey, freed: &mut Freed) {
        let extent = self.extents.get_mut(key);
        assert!(extent.pins > 0, "extent {key} is not pinned");
        extent.pins -= 1;
        self.enlist(key);
        self.free_if_deleted(key, freed);
    }

    /// The dirty extent that was not used for the longest time.
    pub fn oldest_dirty(&self) -> Option<ExtentKey> {
        self.dirty.first()
    }

    /// A write of a dirty extent begins.
    pub fn begin_write(&mut self, key: ExtentKey) {
        self.unlist(key);
        self.extents.get_mut(key).writing = true;
        self.enlist(key);
    }

    /// The write ended; `place` is where the bytes are now, `None` when it failed. `false`: the object was deleted
    /// meanwhile, so nobody owns the bytes on disk.
    pub fn end_write(&mut self, key: ExtentKey, place: Option<Place>, freed: &mut Freed) -> bool {
        self.unlist(key);
        let extent = self.extents.get_mut(key);
        extent.writing = false;
        let owned = extent.object != NONE && place.is_some();
        if owned {
            extent.set_disk(place);
        }
        self.enlist(key);
        self.free_if_deleted(key, freed);
        owned
    }

    /// Forgets the copy on disk of an extent that is in memory too: its file is not trusted any more.
    pub fn distrust(&mut self, key: ExtentKey) -> Option<Place> {
        self.unlist(key);
        let extent = self.extents.get_mut(key);
        let place = extent.disk();
        extent.set_disk(None);
        self.enlist(key);
        place
    }

    /// A read into `span` begins; the extent is pinned by whoever asked for it.
    pub fn begin_load(&mut self, key: ExtentKey, span: Span) {
        let extent = self.extents.get_mut(key);
        assert!(extent.memory_units == 0 && !extent.loading && extent.disk().is_some(), "load of {extent:?}");
        extent.set_memory(Some(span));
        extent.loading = true;
    }

    /// The read ended. When it failed, the memory is free again.
    pub fn end_load(&mut self, key: ExtentKey, ok: bool, freed: &mut Freed) {
        self.unlist(key);
        let extent = self.extents.get_mut(key);
        extent.loading = false;
        if !ok {
            freed.spans.extend(extent.memory());
            extent.set_memory(None);
        }
        self.enlist(key);
        self.free_if_deleted(key, freed);
    }

    /// Gives the memory of the clean extent that was not used for the longest time.
    pub fn drop_oldest_clean(&mut self) -> Option<Span> {
        let key = self.clean.first()?;
        self.unlist(key);
        let extent = self.extents.get_mut(key);
        let span = extent.memory();
        extent.set_memory(None);
        span
    }

    /// Puts an extent at the end of the list it belongs to, if any.
    fn enlist(&mut self, key: ExtentKey) {
        let extent = self.extents.get(key);
        let Some(span) = extent.memory() else { return };
        if extent.pins > 0 || extent.loading {
            return;
        }
        if extent.writing {
            self.writing_bytes += span.bytes;
        } else if extent.disk().is_some() {
            self.clean.push_back(&mut self.extents, key, span.bytes);
        } else {
            self.dirty.push_back(&mut self.extents, key, span.bytes);
        }
    }

    /// Undoes [`Table::enlist`]; the fields it looks at must not have changed since.
    fn unlist(&mut self, key: ExtentKey) {
        let extent = self.extents.get(key);
        let Some(span) = extent.memory() else { return };
        if extent.pins > 0 || extent.loading {
            return;
        }
        if extent.writing {
            self.writing_bytes -= span.bytes;
        } else if extent.disk().is_some() {
            self.clean.remove(&mut self.extents, key, span.bytes);
        } else {
            self.dirty.remove(&mut self.extents, key, span.bytes);
        }
    }

    /// Frees an extent whose object was deleted as soon as nobody uses it.
    fn free_if_deleted(&mut self, key: ExtentKey, freed: &mut Freed) {
        let extent = self.extents.get(key);
        if extent.object != NONE || !extent.idle() {
            return;
        }
        self.unlist(key);
        let extent = self.extents.remove(key);
        freed.spans.extend(extent.memory());
        freed.places.extend(extent.disk().map(|place| (place, extent.bytes)));
    }
}

#[cfg(test)]
mod tests;
