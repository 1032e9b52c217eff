//! The store's decisions in one place: table, budget, allocator and spill files, driven by events, answering with
//! effects. Pure (law 9): no clock, no I/O, no threads; ordered maps only.
//!
//! [`grants`] decides who gets memory, [`loads`] what is read for it, [`spilling`] what is written where. The shell around it (`store.rs`) holds the
//! lock, carries the effects out after it let go of it, and comes back with what they led to.

mod fits;
#[cfg(test)]
mod grant_tests;
mod grants;
mod loads;
mod names;
pub(crate) mod outside;
mod spilling;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    alloc::{Allocator, Span},
    budget::{Budget, Ticket},
    directory::{Directory, PartSlice},
    error::{DirState, StoreError},
    files::{FileWork, Files},
    ids::CopyId,
    meta::{ObjectMeta, Parts},
    options::{Class, StoreEvent, StoreStats},
    spill,
    table::{ExtentKey, FileId, Freed, NewExtent, Object, ObjectKey, Place, Table},
};

use grants::Request;
pub(crate) use grants::{Claim, Described, Granted, RequestItem, Waiting};
#[cfg(test)]
pub(crate) use loads::LoadTarget;
pub(crate) use loads::{LoadJob, Source};
pub(crate) use names::PutAway;
pub(crate) use spilling::{BlockInfo, WriteJob};

/// What the shell has to do.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The request can be claimed, or has failed.
    Wake(Ticket),
    /// The request has its memory; reads for it are under way.
    Granted(Ticket),
    /// Memory came free or never will: outputs that wait look again.
    WakeOutputs,
    /// Read from disk.
    Load(LoadJob),
    /// Write to disk.
    Write(WriteJob),
    /// Close or delete a file.
    File(FileWork),
    /// Tell whoever listens.
    Tell(StoreEvent),
    /// Give the memory behind a span to the operating system.
    Withdraw(Span),
    /// Give the operating system what was freed beside the region and is kept for the next who allocates.
    Release,
    /// Get memory for such a span again.
    Restore(Span),
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub spilled_bytes: u64,
    pub early_bytes: u64,
    pub written_through_bytes: u64,
    pub restored_bytes: u64,
    pub corrupt_blocks: u64,
    pub lost_objects: u64,
    /// Requests of those who run for memory beside the region that were denied, and what they asked for.
    pub denied: u64,
    pub denied_bytes: u64,
}

/// How an object is sealed.
#[derive(Debug)]
pub(crate) struct Sealed<'a> {
    pub id: CopyId,
    pub maker: u32,
    pub directory: Directory,
    pub extents: &'a [NewExtent],
}

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    pub table: Table,
    pub budget: Budget,
    pub files: Files,
    allocator: Allocator,
    outside: outside::Outside,
    requests: BTreeMap<Ticket, Request>,
    /// Who waits for which read.
    loading: BTreeMap<ExtentKey, Vec<Ticket>>,
    /// Memory below this is there without waiting for the operating system.
    pub backed: u64,
    /// Whether it may pay to write to disk instead of touching memory beyond that.
    pub grows_slowly: bool,
    /// So much is touched before that matters.
    grow_freely_bytes: u64,
    write_requests: u64,
    write_requests_max: u64,
    /// Objects that are to be on disk, however much memory there is.
    put_away: BTreeSet<CopyId>,
    /// The head of the queue that was reported as waiting for what others hold.
    tight: Option<Ticket>,
    /// The head did not fit in one piece though the sum would do.
    fragmented: bool,
    pub counters: Counters,
    pub effects: Vec<Effect>,
}

impl State {
    /// `capacity`: bytes of the region that are handed out. `write_requests_max`: how many may be under way.
    pub fn new(capacity: u64, files: Files, write_requests_max: u64) -> State {
        let allocator = Allocator::new(capacity);
        State {
            table: Table::new(),
            budget: Budget::new(allocator.usable_bytes()),
            files,
            allocator,
            outside: outside::Outside::default(),
            requests: BTreeMap::new(),
            loading: BTreeMap::new(),
            backed: 0,
            grows_slowly: false,
            grow_freely_bytes: spill::GROW_FREELY_BYTES,
            write_requests: 0,
            write_requests_max,
            put_away: BTreeSet::new(),
            tight: None,
            fragmented: false,
            counters: Counters::default(),
            effects: Vec::new(),
        }
    }

    /// Bytes that an allocation takes.
    pub fn takes(bytes: u64, paged: bool) -> u64 {
        if paged { bytes.next_multiple_of(crate::alloc::PAGE) } else { Allocator::rounded(bytes) }
    }

    /// Memory for an output, a fill or scratch now, taking clean memory where nothing is free. `paged`: it begins at a
    /// page and may grow.
    pub fn allocate(&mut self, bytes: u64, paged: bool) -> Option<Span> {
        let clean = self.table.clean_bytes();
        let span = self.take_memory(bytes, paged);
        if span.is_none() && self.table.clean_bytes() < clean {
            // What was dropped in vain may be enough for somebody else.
            self.pump();
        }
        span
    }

    fn take_memory(&mut self, bytes: u64, paged: bool) -> Option<Span> {
        let takes = State::takes(bytes, paged);
        // Nothing is dropped for a request that will not fit anyhow.
        if self.budget.missing_for(takes) > self.table.clean_bytes() {
            return None;
        }
        // What is clean already is taken before slow new memory, but no more of it than is asked for: it may lie apart.
        let mut instead = if self.grows_slowly { takes } else { 0 };
        loop {
            if takes <= self.budget.free() {
                let span = if paged { self.allocator.alloc_pages(bytes) } else { self.allocator.alloc(bytes) };
                if let Some(span) = span {
                    let hot = span.end() <= self.at_hand();
                    let dropped = if hot || instead == 0 { None } else { self.table.drop_oldest_clean() };
                    let Some(dropped) = dropped else {
                        self.budget.charge(span.bytes);
                        return Some(span);
                    };
                    instead = instead.saturating_sub(dropped.bytes);
                    self.allocator.free(span);
                    self.give_back(dropped);
                    continue;
                }
            }
            let dropped = self.table.drop_oldest_clean()?;
            self.give_back(dropped);
        }
    }

    /// Bytes of the budget that are worth using now.
    fn at_hand(&self) -> u64 {
        let capacity = self.budget.capacity();
        if self.grows_slowly { self.backed.max(self.grow_freely_bytes).min(capacity) } else { capacity }
    }

    /// Makes a page-level span longer where it lies; drops nothing for it.
    pub fn grow(&mut self, span: &mut Span, extra: u64) -> bool {
        // Pages may be free while more is handed out than there is by now.
        if State::takes(extra, true) > self.budget.free() {
            return false;
        }
        let before = span.bytes;
        let grown = self.allocator.grow(span, extra);
        self.budget.charge(span.bytes - before);
        grown
    }

    /// Gives the rest of a page-level span back.
    pub fn shrink(&mut self, span: &mut Span, bytes: u64) {
        let before = span.bytes;
        self.allocator.shrink(span, bytes);
        if span.bytes < before {
            self.budget.release(before - span.bytes);
            self.memory_came_free();
        }
    }

    /// Frees a span that is in no table: of an unsealed output, a private copy, scratch.
    pub fn free(&mut self, span: Span) {
        self.give_back(span);
        self.memory_came_free();
    }

    fn give_back(&mut self, span: Span) {
        self.allocator.free(span);
        self.budget.release(span.bytes);
    }

    /// The operating system has no more memory than `backed` bytes: what lies behind is out of use.
    pub fn cut(&mut self, backed: u64) {
        self.allocator.cut(backed);
        self.budget.shrink_to(self.allocator.usable_bytes());
        // Who waits may wait for too much now.
        self.pump();
    }

    /// Whether memory for an output will come free by disk requests alone, without waiting for anybody.
    pub fn will_come_free(&self, bytes: u64, paged: bool) -> bool {
        self.comes_free(self.budget.missing_for(State::takes(bytes, paged)), self.coming_bytes())
    }

    /// Whether disk requests alone set so much free, beside so much that comes back from the operating system.
    fn comes_free(&self, missing: u64, coming: u64) -> bool {
        let writes = self.files.usable() || self.table.writing_bytes() > 0;
        let evictable = if writes { self.table.dirty_bytes() + self.table.writing_bytes() } else { 0 };
        evictable + coming > 0 && missing <= self.table.clean_bytes() + evictable + coming
    }

    /// Seals an object. The caller has looked that there is none of its id.
    pub fn seal(&mut self, sealed: Sealed<'_>) {
        let Sealed { id, maker, directory, extents } = sealed;
        self.table.insert(id, maker, directory, extents);
        for extent in extents {
            if let Some(place) = extent.disk {
                self.files.add_live(place, extent.bytes, id, extent.start);
            }
        }
        self.pump();
    }

    /// The directory of an object.
    pub fn meta(&self, id: &CopyId) -> Option<ObjectMeta> {
        let key = self.table.key(id)?;
        Some(ObjectMeta::of(*id, self.table.object(key).directory.to_arc()))
    }

    /// An object and the parts of it that are meant.
    pub fn find(&self, id: &CopyId, parts: Parts) -> Result<(ObjectKey, &Object, PartSlice), StoreError> {
        let key = self.table.key(id).ok_or(StoreError::NotFound(*id))?;
        let object = self.table.object(key);
        match object.directory.resolve(parts) {
            Some(range) => {
                let slice = object.directory.slice(range);
                // Parts that were released are gone although the object is here.
                let there = self.table.covers(key, &slice);
                if there { Ok((key, object, slice)) } else { Err(StoreError::NotFound(*id)) }
            }
            None => {
                let (from, to) = match parts {
                    Parts::All => (0, 0),
                    Parts::Range(from, to) => (from, to),
                };
                Err(StoreError::NoSuchPart { object: *id, from, to, count: object.directory.len() as u32 })
            }
        }
    }

    /// Pins a run of bytes of an object that is in memory in one piece: the extent and the place of the first byte.
    /// `None`: it is not.
    pub fn pin_resident(&mut self, key: ObjectKey, bytes: std::ops::Range<u64>) -> Option<(ExtentKey, u64)> {
        let (extent_key, extent) =
            self.table.extents_of(key).find(|(_, extent)| extent.start + extent.bytes > bytes.start)?;
        if !extent.resident() || extent.start > bytes.start || extent.start + extent.bytes < bytes.end {
            return None;
        }
        let offset = extent.memory()?.offset + (bytes.start - extent.start);
        self.table.pin(extent_key);
        Some((extent_key, offset))
    }

    /// Pins an extent wherever its bytes are, so that they stay.
    pub fn pin(&mut self, extent: ExtentKey) {
        self.table.pin(extent);
    }

    /// Lets go of a pinned extent.
    pub fn unpin(&mut self, extent: ExtentKey) {
        let mut freed = Freed::default();
        self.table.unpin(extent, &mut freed);
        self.freed(freed);
        self.memory_came_free();
    }

    /// Deletes objects; unknown ones are ignored.
    pub fn delete(&mut self, ids: &[CopyId]) {
        let mut freed = Freed::default();
        for id in ids {
            self.unname(id, &mut freed);
        }
        self.freed(freed);
        self.memory_came_free();
    }

    /// Frees parts of objects: nobody reads them any more. Unknown objects and parts are ignored.
    pub fn release_parts(&mut self, ids: &[CopyId], parts: Parts) {
        let mut freed = Freed::default();
        for id in ids {
            // Who knows an object by its other name may read all of it.
            let Some(key) = self.table.key(id).filter(|key| !self.table.has_second_name(*key)) else { continue };
            if let Some(range) = self.table.object(key).directory.resolve(parts) {
                self.table.release(key, range, &mut freed);
            }
        }
        self.freed(freed);
        self.memory_came_free();
    }

    /// Deletes up to `at_most` objects of a group. `false`: none is left.
    pub fn delete_some_of_group(&mut self, group: u128, at_most: usize) -> bool {
        let mut freed = Freed::default();
        for _ in 0..at_most {
            match self.table.any_of_group(group) {
                Some(id) => self.unname(&id, &mut freed),
                None => break,
            }
        }
        self.freed(freed);
        self.memory_came_free();
        self.table.any_of_group(group).is_some()
    }

    fn freed(&mut self, freed: Freed) {
        for span in freed.spans {
            self.give_back(span);
        }
        for (place, bytes) in freed.places {
            let work = self.files.drop_live(place, bytes);
            self.file_work(work);
        }
    }

    fn file_work(&mut self, work: Option<FileWork>) {
        self.effects.extend(work.map(Effect::File));
    }

    /// When no object is left, its files are not needed soon: what they take of the disk is given back.
    fn give_up_unused_files(&mut self) {
        if self.table.len() == 0 && self.files.count() > 0 {
            let works = self.files.give_up_unused();
            self.effects.extend(works.into_iter().map(Effect::File));
        }
    }

    fn memory_came_free(&mut self) {
        self.give_up_unused_files();
        if self.budget.outputs_waiting().is_some() {
            self.effects.push(Effect::WakeOutputs);
        }
        self.pump();
    }

    /// The only copy of an object's bytes is gone.
    pub fn lose(&mut self, id: CopyId, reason: &str) {
        let Some(key) = self.table.key(&id) else { return };
        let names: Vec<CopyId> = self.table.names(key).collect();
        self.counters.lost_objects += 1;
        for object in &names {
            self.effects.push(Effect::Tell(StoreEvent::ObjectLost { object: *object, reason: reason.to_owned() }));
        }
        self.delete(&names);
    }

    /// Bytes that neither can be taken nor are about to be written, because somebody holds them.
    pub fn pinned_bytes(&self) -> u64 {
        let loose = self.table.dirty_bytes() + self.table.clean_bytes() + self.table.writing_bytes();
        let loose = loose + self.outside.loose();
        self.budget.used().saturating_sub(loose)
    }

    /// What this state knows of the figures.
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            used_bytes: self.budget.used() - self.idle_bytes(),
            surplus_bytes: self.surplus_bytes(),
            peak_bytes: self.budget.peak(),
            outside_bytes: self.outside_bytes(),
            outside_max_bytes: self.outside_max(),
            processes_bytes: self.processes_bytes(),
            processes_max_bytes: self.processes_max(),
            granted_bytes: self.granted_bytes(),
            granted_max_bytes: self.granted_max(),
            denied: self.counters.denied,
            denied_bytes: self.counters.denied_bytes,
            pinned_bytes: self.pinned_bytes(),
            clean_bytes: self.table.clean_bytes(),
            waiting: self.budget.waiting(),
            waiting_bytes: self.budget.waiting_bytes(),
            arguments_waiting_bytes: self.budget.waiting_bytes_of(Class::Arguments),
            objects: self.table.len() as u64,
            spilled_bytes: self.counters.spilled_bytes,
            early_bytes: self.counters.early_bytes,
            written_through_bytes: self.counters.written_through_bytes,
            restored_bytes: self.counters.restored_bytes,
            spill_files: self.files.count(),
            spill_file_bytes: self.files.bytes(),
            corrupt_blocks: self.counters.corrupt_blocks,
            lost_objects: self.counters.lost_objects,
            retired_dirs: self.files.dirs().filter(|(_, retired)| retired.is_some()).count() as u64,
            ..StoreStats::default()
        }
    }

    /// The error for "nothing can be written"; the shell adds how much is free where.
    pub fn disk_full(&self, needed: u64) -> StoreError {
        let dirs = self
            .files
            .dirs()
            .map(|(path, retired)| DirState {
                path: path.to_owned(),
                retired: retired.map(str::to_owned),
                free_bytes: 0,
            })
            .collect();
        StoreError::DiskFull { needed, dirs }
    }

    /// Takes over an object that an earlier process left on disk. `false`: there is one of that id.
    pub fn adopt(&mut self, sealed: Sealed<'_>) -> bool {
        if self.table.key(&sealed.id).is_some() {
            return false;
        }
        self.table.insert(sealed.id, sealed.maker, sealed.directory, sealed.extents);
        for extent in sealed.extents {
            let place: Place = extent.disk.expect("an adopted extent is on disk");
            self.files.add_live(place, extent.bytes, sealed.id, extent.start);
        }
        true
    }

    /// Deletes adopted files of which nothing was taken over.
    pub fn drop_empty_files(&mut self) {
        let works = self.files.empty_files();
        self.effects.extend(works.into_iter().map(Effect::File));
    }

    /// The file and the place in it where a byte of an object is on disk; `None`: it is in memory.
    pub fn place_of(&self, id: &CopyId, byte: u64) -> Option<(std::path::PathBuf, u64)> {
        let mut extents = self.table.extents_of(self.table.key(id)?);
        let (_, extent) = extents.find(|(_, extent)| extent.start + extent.bytes > byte)?;
        let place = extent.disk().filter(|_| !extent.resident())?;
        Some((self.path_of(place.file).to_path_buf(), place.offset + (byte - extent.start)))
    }

    /// Path of a file that has live blocks.
    pub fn path_of(&self, file: FileId) -> std::sync::Arc<std::path::Path> {
        self.files.get(file).path.clone()
    }
}
