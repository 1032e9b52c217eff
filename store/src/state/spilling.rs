//! What is written where, and what a finished or failed write changes.

use super::{Effect, State};
use crate::{
    alloc::{PAGE, Span},
    files::{FileWork, Trouble},
    ids::CopyId,
    options::StoreEvent,
    spill::{self, Levels},
    table::{ExtentKey, FileId, Freed, NONE, NewExtent, Place},
};

/// How much of a file one small block may leave unused: blocks of a page and more begin at a page, so that they are
/// written and read without a copy; smaller ones are packed together.
const PACKED_ALIGN: u64 = 64;

/// One extent of a write request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteItem {
    pub extent: ExtentKey,
    /// Its memory, which is sealed and stays until the request has ended.
    pub span: Span,
    /// Length of its content.
    pub bytes: u64,
    /// Where it goes, from the start of the request; ascending.
    pub to: u64,
}

/// A write request of the spiller: one run of a file, made of many extents.
#[derive(Debug)]
pub(crate) struct WriteJob {
    pub file: FileId,
    /// Where the run begins in the file, a multiple of 4096.
    pub offset: u64,
    /// Its length, a multiple of 4096.
    pub bytes: u64,
    pub items: Vec<WriteItem>,
    /// Whether it is the first after a time without.
    pub first: bool,
}

/// What a footer says of a block.
#[derive(Clone, Debug)]
pub(crate) struct BlockInfo {
    pub object: CopyId,
    pub maker: u32,
    /// All parts of the object.
    pub directory: crate::directory::Directory,
    /// Extents of the object.
    pub extents: u32,
    /// Where the block begins in the object, and its length.
    pub start: u64,
    pub bytes: u64,
    /// Where the object's next extent begins, `u64::MAX` when there is none.
    pub next_start: u64,
    /// Where it begins in the file.
    pub offset: u64,
}

impl State {
    /// What is lacking beside what requests of tasks need: those before them wait for it.
    fn needed_first(&self) -> u64 {
        self.outside_owed() + self.budget.missing_for(0)
    }

    /// Gets memory of the region back that is surplus beside it, as far as it lacks any, and starts as many writes as the levels ask for.
    pub(super) fn spill(&mut self) {
        let waiting = self.budget.outputs_waiting();
        let nothing_clean = self.table.clean_bytes() == 0 && self.table.writing_bytes() == 0;
        let needed = waiting.unwrap_or(0).max(self.budget.head().map_or(0, |(.., bytes)| bytes));
        self.recall_surplus(needed + self.needed_first(), self.fragmented || waiting.is_some() && nothing_clean);
        if !self.files.usable() {
            return;
        }
        loop {
            let waiting = self.budget.head().filter(|(class, ..)| self.presses(*class));
            let needed = self.budget.outputs_waiting().unwrap_or(0).max(waiting.map_or(0, |(.., bytes)| bytes));
            let needed = needed + self.needed_first();
            let at_hand = self.at_hand();
            let bytes = spill::bytes_to_write(Levels {
                capacity: at_hand,
                free: at_hand.saturating_sub(self.budget.used()),
                clean: self.table.clean_bytes(),
                dirty: self.table.dirty_bytes(),
                writing: self.table.writing_bytes() + self.returning_bytes(),
                requests: self.write_requests,
                requests_max: self.write_requests_max,
                needed,
                // With nothing clean left, what is free must be in the wrong places.
                fragmented: (self.fragmented || self.budget.outputs_waiting().is_some())
                    && self.table.clean_bytes() == 0
                    && self.table.writing_bytes() == 0
                    && self.returning_bytes() == 0,
            });
            let wanted = self.write_requests < self.write_requests_max && self.next_to_put_away().is_some();
            let bytes = if wanted { bytes.max(spill::REQUEST_BYTES) } else { bytes };
            let writing = self.table.writing_bytes();
            if bytes == 0 || !self.start_write(bytes, wanted) {
                return;
            }
            if at_hand < self.budget.capacity() {
                self.counters.early_bytes += self.table.writing_bytes() - writing;
            }
        }
    }

    /// `wanted`: of what is to be put away, and of nothing else.
    fn start_write(&mut self, bytes_max: u64, wanted: bool) -> bool {
        let (mut paged, mut packed) = (Vec::new(), Vec::new());
        let (mut paged_bytes, mut packed_bytes) = (0, 0);
        while paged_bytes + packed_bytes < bytes_max {
            let next = if wanted { self.next_to_put_away() } else { self.table.oldest_dirty() };
            let Some(key) = next else { break };
            let extent = self.table.extent(key);
            let span = extent.memory().expect("a dirty extent is in memory");
            let whole_pages = span.offset.is_multiple_of(PAGE) && span.bytes.is_multiple_of(PAGE);
            let takes = extent.bytes.next_multiple_of(if whole_pages { PAGE } else { PACKED_ALIGN });
            if paged_bytes + packed_bytes > 0 && paged_bytes + packed_bytes + takes > spill::REQUEST_BYTES {
                break;
            }
            if !whole_pages && packed_bytes > 0 && packed_bytes + takes > spill::BUFFER_BYTES {
                break;
            }
            let item = WriteItem { extent: key, span, bytes: extent.bytes, to: 0 };
            let (items, sum) =
                if whole_pages { (&mut paged, &mut paged_bytes) } else { (&mut packed, &mut packed_bytes) };
            items.push(WriteItem { to: *sum, ..item });
            *sum += takes;
            self.table.begin_write(key);
        }
        let bytes = paged_bytes + packed_bytes.next_multiple_of(PAGE);
        let Some(place) = (if bytes > 0 { self.files.place(bytes) } else { None }) else { return false };
        packed.iter_mut().for_each(|item| item.to += paged_bytes);
        paged.append(&mut packed);
        let first = self.write_requests == 0;
        self.write_requests += 1;
        self.effects.push(Effect::Write(WriteJob {
            file: place.file,
            offset: place.offset,
            bytes,
            items: paged,
            first,
        }));
        true
    }

    /// A write request ended. `Err`: what the disk said; nothing of it counts as written.
    pub fn written(&mut self, job: &WriteJob, result: Result<(), Trouble>) {
        self.write_requests -= 1;
        if let Err(error) = &result {
            self.write_failed(job.file, error);
        }
        let mut freed = Freed::default();
        for item in &job.items {
            let place = Place { file: job.file, offset: job.offset + item.to };
            let (object, start) = match self.table.extent(item.extent).object {
                NONE => (CopyId::default(), 0),
                key => (self.table.object(key).id(), self.table.extent(item.extent).start),
            };
            if self.table.end_write(item.extent, result.is_ok().then_some(place), &mut freed) {
                self.files.add_live(place, item.bytes, object, start);
                self.counters.spilled_bytes += item.bytes;
            }
        }
        self.freed(freed);
        let work = self.files.write_ended(job.file);
        self.file_work(work);
        self.memory_came_free();
        // Those who wait for room must hear that a disk failed, too: it may have been the last.
        self.effects.push(Effect::WakeOutputs);
    }

    /// A write to this file failed: its directory is out of use, and what was written to the file and is still in
    /// memory is written again, elsewhere.
    pub fn write_failed(&mut self, file: FileId, trouble: &Trouble) {
        let dir = self.files.get(file).dir;
        self.retire(dir, trouble);
        for block in self.files.get(file).blocks.clone() {
            let Some(object) = self.table.key(&block.object) else { continue };
            let on_file = |place: Option<Place>| place == Some(Place { file, offset: block.offset });
            let extent = self.table.extents_of(object).find(|(_, extent)| on_file(extent.disk()));
            if let Some((key, extent)) = extent
                && extent.resident()
            {
                let bytes = extent.bytes;
                let place = self.table.distrust(key).expect("just seen on disk");
                let work = self.files.drop_live(place, bytes);
                self.file_work(work);
            }
        }
    }

    /// A directory takes no more files.
    pub fn retire(&mut self, dir: usize, trouble: &Trouble) {
        if let Some(works) = self.files.retire(dir, trouble.clone()) {
            self.effects.extend(works.into_iter().map(Effect::File));
            let path = self.path_of_dir(dir);
            self.effects.push(Effect::Tell(StoreEvent::DirRetired { dir: path, error: trouble.text.clone() }));
        }
    }

    /// There is room again in a directory that was full.
    pub fn restore(&mut self, dir: usize) {
        if self.files.restore(dir) {
            self.restored(dir);
        }
    }

    fn restored(&mut self, dir: usize) {
        let path = self.path_of_dir(dir);
        self.effects.push(Effect::Tell(StoreEvent::DirRestored { dir: path }));
        self.memory_came_free();
        self.effects.push(Effect::WakeOutputs);
    }

    fn path_of_dir(&self, dir: usize) -> std::path::PathBuf {
        self.files.dirs().nth(dir).expect("one of the directories").0.to_owned()
    }

    /// A file could not be read. Its directory is not written to any more, unless it is the last: one bad sector must
    /// not end a job that could go on.
    pub fn read_failed(&mut self, file: FileId, trouble: &Trouble) {
        if self.files.can_do_without(self.files.get(file).dir) {
            self.write_failed(file, trouble);
        }
    }

    /// A borrowed file comes back.
    pub fn give_back_file(&mut self, file: FileId) {
        let work = self.files.give_back(file);
        self.file_work(work);
        self.give_up_unused_files();
    }

    /// Extents that a writer put on disk itself.
    pub fn written_through(&mut self, extents: &[NewExtent]) {
        let bytes: u64 = extents.iter().filter(|extent| extent.disk.is_some()).map(|extent| extent.bytes).sum();
        self.counters.spilled_bytes += bytes;
        self.counters.written_through_bytes += bytes;
    }

    /// What the footer of a file lists: the blocks that are still of use.
    pub fn footer_of(&self, file: FileId) -> Vec<BlockInfo> {
        let mut infos = Vec::new();
        for block in &self.files.get(file).blocks {
            let Some(key) = self.table.key(&block.object) else { continue };
            let object = self.table.object(key);
            let here = Some(Place { file, offset: block.offset });
            if let Some((_, extent)) = self.table.extents_of(key).find(|(_, extent)| extent.disk() == here) {
                let next = extent.next_extent;
                infos.push(BlockInfo {
                    object: block.object,
                    maker: object.maker,
                    directory: object.directory.clone(),
                    extents: self.table.extents_of(key).count() as u32,
                    start: extent.start,
                    bytes: extent.bytes,
                    next_start: if next == NONE { u64::MAX } else { self.table.extent(next).start },
                    offset: block.offset,
                });
            }
        }
        infos
    }

    /// The footer of a file is on disk (`Some(size of the file)`), or could not be written.
    pub fn closed(&mut self, file: FileId, result: Result<u64, Trouble>) {
        if let Err(error) = &result {
            self.write_failed(file, error);
        }
        let work = self.files.closed(file, result.ok());
        self.file_work(work);
        self.pump();
        // Who puts something away waits for that.
        self.effects.push(Effect::WakeOutputs);
    }

    /// A file was deleted.
    pub fn unlinked(&mut self, file: FileId) {
        if let Some(dir) = self.files.forget(file) {
            self.restored(dir);
        }
    }

    /// Everything open is to get its footer now.
    pub fn finish_files(&mut self) {
        let works: Vec<FileWork> = self.files.finish_all();
        self.effects.extend(works.into_iter().map(Effect::File));
    }
}
