//! The end of an object that found no memory: written to a borrowed spill file, a chunk of the reserve at a time, or a page
//! of its own where the reserve is all taken.

use std::{path::Path, sync::Arc, time::Duration};

use tracing::warn;

use crate::{
    alloc::PAGE,
    disk::{AlignedBuffer, DiskFile, write_all_at},
    error::StoreError,
    files::Trouble,
    hold::OwnedSpan,
    io,
    shared::Shared,
    table::{FileId, Place},
};

/// An extent on its way to disk.
pub(crate) struct DiskTail {
    borrowed: Borrowed,
    file: Arc<dyn DiskFile>,
    chunk: Chunk,
    /// Bytes in the chunk, and of those how many are written to disk already (a tail that was aligned).
    filled: usize,
    flushed: u64,
    /// For when all disks are full.
    patience: Patience,
}

/// What is written to disk at a time.
enum Chunk {
    Reserve(OwnedSpan),
    /// Outside the region: so many write already that not a page of the reserve is left.
    Page(AlignedBuffer),
}

impl Chunk {
    fn new(shared: &Arc<Shared>, wanted: u64) -> Chunk {
        shared.chunk(wanted).map_or_else(|| Chunk::Page(AlignedBuffer::default()), Chunk::Reserve)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Chunk::Reserve(span) => span.bytes_mut(),
            Chunk::Page(page) => page.of(PAGE as usize),
        }
    }
}

/// How long a writer that finds neither memory nor room on any disk waits for somebody to free either.
pub(crate) struct Patience {
    /// Waits that ended without news.
    left: u32,
    /// Waits that ended with some; bounded, too.
    news: u32,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { left: 12, news: 1000 }
    }
}

impl Patience {
    const STEP: Duration = Duration::from_millis(250);

    /// Waits for a change, at most 3 s in all; `false`: that was long enough. A full disk is looked at again, since others
    /// may have made room in it.
    pub fn wait(&mut self, shared: &Shared, needed: u64) -> bool {
        if self.left == 0 || self.news == 0 || shared.is_closed() {
            return false;
        }
        if shared.wait_for_outputs(Patience::STEP) {
            self.news -= 1;
        } else {
            self.left -= 1;
            shared.restore_full_dirs(needed);
        }
        true
    }
}

/// A finished extent; its file stays borrowed until the table has it or it is dropped.
pub(crate) struct DiskExtent {
    borrowed: Borrowed,
    bytes: u64,
}

/// A spill file that only its borrower appends to.
struct Borrowed {
    shared: Arc<Shared>,
    file: FileId,
    path: Arc<Path>,
    /// Where the extent begins in it.
    offset: u64,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.shared.with(|state| state.give_back_file(self.file));
    }
}

impl Borrowed {
    /// The next file that can be opened; directories where that fails are out of use. `restore`: one that was full and
    /// has room now is not.
    fn new(shared: &Arc<Shared>, needed: u64, restore: bool) -> Result<(Borrowed, Arc<dyn DiskFile>), StoreError> {
        let mut looked = false;
        loop {
            let borrowed = shared.with(|state| {
                let file = state.files.borrow()?;
                let entry = state.files.get(file);
                Some((file, entry.dir, entry.path.clone(), entry.end))
            });
            let Some((file, dir, path, offset)) = borrowed else {
                // Others may have made room meanwhile.
                if restore && !std::mem::replace(&mut looked, true) {
                    shared.restore_full_dirs(needed);
                    continue;
                }
                let error = shared.with(|state| state.disk_full(needed));
                return Err(shared.explain(error));
            };
            let borrowed = Borrowed { shared: shared.clone(), file, path, offset };
            // Nothing is set aside beyond that: there may be many of them.
            match shared.dirs.create(file, dir, &borrowed.path, needed) {
                Ok(handle) => return Ok((borrowed, handle)),
                Err(error) => {
                    warn!(%error, "spill file cannot be made");
                    shared.with(|state| state.write_failed(file, &Trouble::from(&error)));
                }
            }
        }
    }
}

impl DiskTail {
    /// For about so many bytes.
    ///
    /// # Errors
    /// No directory.
    pub fn open(shared: &Arc<Shared>, wanted: u64) -> Result<DiskTail, StoreError> {
        let mut chunk = Chunk::new(shared, wanted);
        let (borrowed, file) = Borrowed::new(shared, chunk.bytes_mut().len() as u64, true)?;
        Ok(DiskTail { borrowed, file, chunk, filled: 0, flushed: 0, patience: Patience::default() })
    }

    /// Bytes so far.
    pub fn written(&self) -> u64 {
        self.flushed + self.filled as u64
    }

    /// Room for the next bytes, never none.
    pub fn spare(&mut self) -> Result<&mut [u8], StoreError> {
        if self.filled == self.chunk.bytes_mut().len() {
            self.flush()?;
        }
        Ok(&mut self.chunk.bytes_mut()[self.filled..])
    }

    /// The first bytes of the room are written; these.
    pub fn advance(&mut self, count: usize) -> &[u8] {
        let from = self.filled;
        self.filled += count;
        &self.chunk.bytes_mut()[from..self.filled]
    }

    /// Zeros up to a multiple of `align`.
    pub fn align(&mut self, align: u64) -> Result<(), StoreError> {
        let gap = self.written().next_multiple_of(align) - self.written();
        for _ in 0..gap {
            self.spare()?[0] = 0;
            self.advance(1);
        }
        Ok(())
    }

    /// Writes the chunk. When its directory fails, what was written so far moves to another one.
    fn flush(&mut self) -> Result<(), StoreError> {
        let bytes = (self.filled as u64).next_multiple_of(PAGE);
        self.chunk.bytes_mut()[self.filled..bytes as usize].fill(0);
        let begun = self.borrowed.shared.clock.now();
        loop {
            let file = self.borrowed.file;
            let at = self.borrowed.shared.with(|state| state.files.append(file, bytes));
            debug_assert_eq!(at, self.borrowed.offset + self.flushed);
            match write_all_at(&*self.file, at, &[&self.chunk.bytes_mut()[..bytes as usize]]) {
                Ok(()) => break,
                Err(error) => {
                    warn!(path = %self.borrowed.path.display(), %error, "write to spill file failed");
                    self.move_elsewhere(&Trouble::from(&error))?;
                }
            }
        }
        let shared = &self.borrowed.shared;
        shared.disk_time.wrote(shared.clock.now().saturating_sub(begun));
        self.flushed += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    fn move_elsewhere(&mut self, trouble: &Trouble) -> Result<(), StoreError> {
        let shared = self.borrowed.shared.clone();
        shared.with(|state| state.write_failed(self.borrowed.file, trouble));
        let mut buffer = AlignedBuffer::default();
        let mut copy = AlignedBuffer::default();
        'next: loop {
            let (borrowed, file) = match Borrowed::new(&shared, self.written(), false) {
                Err(StoreError::DiskFull { .. }) if self.patience.wait(&shared, self.written()) => continue,
                other => other?,
            };
            let mut moved = 0;
            while moved < self.flushed {
                let bytes = (self.flushed - moved).min(1 << 20);
                let piece = copy.of(bytes as usize);
                io::read_unaligned(&shared, self.borrowed.file, self.borrowed.offset + moved, piece, &mut buffer)?;
                let at = shared.with(|state| state.files.append(borrowed.file, bytes));
                if let Err(error) = write_all_at(&*file, at, &[&*piece]) {
                    shared.with(|state| state.write_failed(borrowed.file, &Trouble::from(&error)));
                    continue 'next;
                }
                moved += bytes;
            }
            (self.borrowed, self.file) = (borrowed, file);
            return Ok(());
        }
    }

    /// Writes what is left. The bytes can be read from the file once this returned.
    pub fn finish(mut self) -> Result<DiskExtent, StoreError> {
        let bytes = self.written();
        if self.filled > 0 {
            self.flush()?;
        }
        if !self.file.is_direct()
            && let Err(error) = self.file.sync()
        {
            // What went through the page cache may be gone, and the next sync would not say so.
            let shared = &self.borrowed.shared;
            shared.with(|state| state.write_failed(self.borrowed.file, &Trouble::from(&error)));
            return Err(StoreError::disk("sync", &self.borrowed.path, error));
        }
        Ok(DiskExtent { borrowed: self.borrowed, bytes })
    }
}

impl DiskExtent {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn place(&self) -> Place {
        Place { file: self.borrowed.file, offset: self.borrowed.offset }
    }

    /// The table has it now, so the file can be used by others.
    pub fn let_go(self) {
        drop(self.borrowed);
    }
}
