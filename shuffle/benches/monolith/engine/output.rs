//! Output files: buffers are filled by sorters and written by a few threads for all files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use exobus_shuffle::files::{ALIGNMENT, DirectFile, FileError, part_name};

use super::Failure;
use super::scatter::start;
use super::store::Store;

/// Threads that write, so requests under way.
const WRITERS: usize = 4;

/// A finished file that waits for its final name.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) temp_path: PathBuf,
    pub(super) final_path: PathBuf,
    pub(super) bytes: u64,
}

impl Token {
    /// Gives the file its final name.
    pub(super) fn commit(&self) -> Result<(), FileError> {
        std::fs::rename(&self.temp_path, &self.final_path).map_err(failed(&self.final_path, "commit"))
    }

    /// Removes it.
    pub(super) fn abort(&self) -> Result<(), FileError> {
        std::fs::remove_file(&self.temp_path).map_err(failed(&self.temp_path, "remove"))
    }
}

/// The error of an operation on a file or directory.
pub(super) fn failed(path: &Path, operation: &'static str) -> impl Fn(std::io::Error) -> FileError {
    let path = path.to_path_buf();
    move |source| FileError::Io { path: path.clone(), operation, offset: 0, source }
}

/// What all files share: where they are, free buffers, buffers to write.
pub(super) struct Outputs<'t, 'a> {
    directory: PathBuf,
    files: usize,
    tokens: &'t Mutex<Vec<Token>>,
    free: (Sender<&'a mut [u8]>, Receiver<&'a mut [u8]>),
    writes: (Mutex<Option<Sender<Write<'a>>>>, Receiver<Write<'a>>),
}

/// A buffer on its way to the disk.
struct Write<'a> {
    file: Arc<TempFile>,
    buffer: &'a mut [u8],
    filled: usize,
    offset: u64,
}

/// A file under its temporary name. When the last who writes to it lets go, it is finished or it is removed.
struct TempFile {
    file: DirectFile,
    token: Token,
    missing: AtomicU64,
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if *self.missing.get_mut() > 0 {
            // An error is on its way already.
            let _ = std::fs::remove_file(&self.token.temp_path);
        }
    }
}

impl<'t, 'a> Outputs<'t, 'a> {
    pub(super) fn new(
        directory: &Path,
        files: usize,
        buffers: Vec<&'a mut [u8]>,
        tokens: &'t Mutex<Vec<Token>>,
    ) -> Outputs<'t, 'a> {
        let free = bounded(buffers.len());
        for buffer in buffers {
            free.0.send(buffer).expect("room for each");
        }
        let (send, receive) = unbounded();
        let writes = (Mutex::new(Some(send)), receive);
        Outputs { directory: directory.to_path_buf(), files, tokens, free, writes }
    }

    /// Starts the threads that write; they end after [`Outputs::end`].
    pub(super) fn start_writers<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, store: &'scope Store<'a>)
    where
        'a: 'scope,
    {
        for _ in 0..WRITERS {
            let work = || {
                for write in self.writes.1.clone() {
                    // After a failure buffers only go round, so that nobody waits for one in vain.
                    if store.check().is_ok()
                        && let Err(error) = self.write(&write)
                    {
                        store.fail(error.into());
                    }
                    self.free.0.send(write.buffer).expect("room for each");
                }
            };
            start(scope, "write", work, store);
        }
    }

    /// No more files will be opened, and those that were are finished or given up.
    pub(super) fn end(&self) {
        self.writes.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// A new file with the name of partition `index`, of `bytes` bytes.
    pub(super) fn open(&self, index: usize, bytes: u64) -> Result<Output<'_, 't, 'a>, Failure> {
        let name = part_name(index, self.files);
        let temp_path = self.directory.join(format!(".{name}.monolith.tmp"));
        let file = DirectFile::create(&temp_path)?;
        let token = Token { temp_path, final_path: self.directory.join(name), bytes };
        let file = Arc::new(TempFile { file, token, missing: AtomicU64::new(bytes.max(1)) });
        file.file.reserve(bytes)?;
        let writes = self.writes.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let writes = writes.ok_or(Failure::Stopped)?;
        Ok(Output { outputs: self, writes, file, buffer: None, filled: 0, offset: 0 })
    }

    fn write(&self, write: &Write<'a>) -> Result<(), FileError> {
        let file = &write.file;
        file.file.write_at(write.offset, &write.buffer[..write.filled.next_multiple_of(ALIGNMENT)])?;
        let filled = write.filled as u64;
        if file.missing.load(Ordering::Acquire) > 0 && file.missing.fetch_sub(filled, Ordering::AcqRel) == filled {
            self.complete(file)?;
        }
        Ok(())
    }

    fn complete(&self, file: &TempFile) -> Result<(), FileError> {
        file.file.set_len(file.token.bytes)?;
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).push(file.token.clone());
        Ok(())
    }
}

/// A file that is being filled.
pub(super) struct Output<'o, 't, 'a> {
    outputs: &'o Outputs<'t, 'a>,
    writes: Sender<Write<'a>>,
    file: Arc<TempFile>,
    buffer: Option<&'a mut [u8]>,
    filled: usize,
    offset: u64,
}

impl Output<'_, '_, '_> {
    /// Room for the next records, never empty. Fill its front, then [`Output::advance`].
    pub(super) fn spare(&mut self) -> &mut [u8] {
        if self.buffer.as_ref().is_some_and(|buffer| buffer.len() == self.filled) {
            self.send();
        }
        let free = &self.outputs.free.1;
        let buffer = self.buffer.get_or_insert_with(|| free.recv().expect("the sender is kept, too"));
        &mut buffer[self.filled..]
    }

    /// The first `bytes` bytes of the last [`Output::spare`] are records.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    /// Hands over what is left.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        if self.file.token.bytes == 0 {
            self.file.missing.store(0, Ordering::Release);
            self.outputs.complete(&self.file)?;
        }
        let padded = self.filled.next_multiple_of(ALIGNMENT);
        if let Some(buffer) = &mut self.buffer {
            buffer[self.filled..padded].fill(0);
        }
        self.send();
        Ok(())
    }

    fn send(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        let write = Write { file: self.file.clone(), buffer, filled: self.filled, offset: self.offset };
        self.offset += self.filled as u64;
        self.filled = 0;
        // Writers are there as long as this sender is.
        self.writes.send(write).expect("writers end last");
    }
}

impl Drop for Output<'_, '_, '_> {
    fn drop(&mut self) {
        // After a failure: the buffer goes back, what was written is not complete and removes itself.
        if let Some(buffer) = self.buffer.take() {
            self.outputs.free.0.send(buffer).expect("room for each");
        }
    }
}
