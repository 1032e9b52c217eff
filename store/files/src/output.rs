//! Output: a file is written front to back under the name of an attempt; the commit of its folder gives it its own.
//!
//! Buffers are the caller's. While one is filled, the ones before are written by a thread of the file's own, which starts
//! with the first full buffer: a file smaller than a buffer costs no thread. A writer waits only for the disk, when all
//! its buffers are full.
//!
//! A task writes under a name that carries its attempt and returns a [`Token`]; whoever accepts the attempt has the token
//! [committed](crate::OutputFolder::commit). Nothing stays of a file that is dropped unfinished.

use std::io;
use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use serde::{Deserialize, Serialize};

use crate::content_hash::Hashing;
use crate::{ALIGNMENT, ContentHash, FileError, ManifestFile, WriteFile, WriteRequest};

/// Memory for output, lent by value: it travels to the writing thread and back. Its address should be a multiple of
/// [`ALIGNMENT`] (else writes are buffered); of its length only whole multiples are used.
pub type IoBuffer = Box<dyn DerefMut<Target = [u8]> + Send>;

/// A finished file that waits for its final name. Two attempts at one file have tokens of one length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// What the file system knows it by until then: the name of the attempt's file, or of an upload.
    pub temporary: String,
    /// What it will be called: its name in the folder, behind those of the folders in it that it is in (`day=1/part-00000`).
    pub name: String,
    /// Rows in it.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
    /// The hash of its bytes.
    pub hash: ContentHash,
}

impl Token {
    /// The file as the manifest has it.
    pub fn listed(&self) -> ManifestFile {
        ManifestFile { name: self.name.clone(), rows: self.rows, bytes: self.bytes, hash: self.hash }
    }
}

struct Writer {
    /// `None` once no more will come.
    requests: Option<SyncSender<WriteRequest>>,
    done: Receiver<(IoBuffer, Result<(), FileError>)>,
    thread: Option<JoinHandle<()>>,
}

/// A file that is being written.
pub struct OutputFile {
    file: Arc<dyn WriteFile>,
    name: String,
    hashing: Hashing,
    /// Being filled; `None` while all buffers are on their way.
    filling: Option<IoBuffer>,
    filled: usize,
    free: Vec<IoBuffer>,
    /// Buffers with the writing thread.
    in_flight: usize,
    writer: Option<Writer>,
    /// Buffers that were sent before the one that is being filled.
    requests: u32,
    /// Byte offset in the file of the buffer that is being filled.
    offset: u64,
}

impl OutputFile {
    /// The file `name`, written through `buffers` to what was begun for it.
    ///
    /// # Panics
    /// There is no buffer, or one is shorter than [`ALIGNMENT`].
    pub fn new(file: Arc<dyn WriteFile>, name: &str, buffers: Vec<IoBuffer>) -> OutputFile {
        assert!(!buffers.is_empty(), "an output file needs a buffer");
        assert!(buffers.iter().all(|buffer| buffer.len() >= ALIGNMENT), "a buffer is shorter than {ALIGNMENT} bytes");
        OutputFile {
            file,
            name: name.to_owned(),
            hashing: Hashing::default(),
            filling: None,
            filled: 0,
            free: buffers,
            in_flight: 0,
            writer: None,
            requests: 0,
            offset: 0,
        }
    }

    /// How long the requests of a file are that is written through these buffers.
    pub(crate) fn request_bytes(buffers: &[IoBuffer]) -> u64 {
        buffers.iter().map(usable).min().unwrap_or(0) as u64
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.offset + self.filled as u64
    }

    /// Room for the next bytes, never empty: the rest of the present buffer. Fill its front, then [`OutputFile::advance`].
    ///
    /// # Errors
    /// That of an earlier write; the file cannot be finished then.
    pub fn spare(&mut self) -> Result<&mut [u8], FileError> {
        if self.filling.as_ref().is_some_and(|buffer| self.filled == usable(buffer)) {
            self.send()?;
        }
        if self.filling.is_none() {
            let buffer = match self.free.pop() {
                Some(buffer) => buffer,
                None => self.receive()?,
            };
            self.filling = Some(buffer);
        }
        let buffer = self.filling.as_mut().expect("taken above");
        let usable = usable(buffer);
        Ok(&mut buffer[self.filled..usable])
    }

    /// Declares the first `bytes` bytes of the last [`OutputFile::spare`] written.
    ///
    /// # Panics
    /// When there was less room.
    pub fn advance(&mut self, bytes: usize) {
        let room = self.filling.as_ref().map_or(0, |buffer| usable(buffer) - self.filled);
        assert!(bytes <= room, "advanced by {bytes} bytes into room for {room}");
        self.filled += bytes;
    }

    /// Copies `bytes` to the end of the file.
    ///
    /// # Errors
    /// As [`OutputFile::spare`].
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), FileError> {
        while !bytes.is_empty() {
            let room = self.spare()?;
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.advance(now.len());
            bytes = later;
        }
        Ok(())
    }

    /// Writes what is left and gives the buffers back, with the right to the final name; `rows`: how many are in it. The file and its temporary name are on
    /// the disk then: the log of a job that says so is, too, and must not say more than a power cut leaves.
    ///
    /// # Errors
    /// That of any write, or of the sync; the temporary is removed then.
    pub fn finish(mut self, rows: u64) -> Result<(Token, Vec<IoBuffer>), FileError> {
        let bytes = self.bytes();
        if let Some(mut buffer) = self.filling.take() {
            let padded = self.filled.next_multiple_of(ALIGNMENT);
            self.hashing.write(&buffer[..self.filled]);
            buffer[self.filled..padded].fill(0);
            let (index, offset, used) = (self.requests, self.offset, self.filled);
            let (buffer, written) = self.file.write(WriteRequest { index, offset, used, buffer });
            self.free.push(buffer);
            written?;
        }
        while self.in_flight > 0 {
            let buffer = self.receive()?;
            self.free.push(buffer);
        }
        let temporary = self.file.finish(bytes)?;
        let hash = std::mem::take(&mut self.hashing).finish();
        let name = std::mem::take(&mut self.name);
        let token = Token { temporary, name, rows, bytes, hash };
        Ok((token, std::mem::take(&mut self.free)))
    }

    /// Hands the full buffer to the writing thread.
    fn send(&mut self) -> Result<(), FileError> {
        if self.writer.is_none() {
            let buffers = self.free.len() + 1;
            self.writer = Writer::start(self.file.clone(), buffers).ok();
        }
        let Some(buffer) = self.filling.take() else { return Ok(()) };
        self.hashing.write(&buffer[..self.filled]);
        let request = WriteRequest { index: self.requests, offset: self.offset, used: self.filled, buffer };
        self.requests += 1;
        self.offset += self.filled as u64;
        self.filled = 0;
        let Some(writer) = &self.writer else {
            // There is no thread left: slower, and as good.
            let (buffer, written) = self.file.write(request);
            self.free.push(buffer);
            return written;
        };
        let requests = writer.requests.as_ref().expect("open until the file is dropped");
        self.in_flight += 1;
        requests.send(request).map_err(|_| self.thread_ended())
    }

    /// Waits for a buffer that has been written.
    fn receive(&mut self) -> Result<IoBuffer, FileError> {
        let answer = self.writer.as_ref().and_then(|writer| writer.done.recv().ok());
        let Some((buffer, written)) = answer else { return Err(self.thread_ended()) };
        self.in_flight -= 1;
        match written {
            Ok(()) => Ok(buffer),
            Err(error) => {
                self.free.push(buffer);
                Err(error)
            }
        }
    }

    fn thread_ended(&self) -> FileError {
        let ended = io::Error::other("the writing thread has ended");
        FileError::io(self.file.location().clone(), "write", self.offset, ended)
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // Joins the thread first: it must not write to a file that somebody else may begin under the same name.
        self.writer = None;
    }
}

impl std::fmt::Debug for OutputFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = formatter.debug_struct("OutputFile");
        text.field("file", &self.file).field("bytes", &self.bytes()).field("in_flight", &self.in_flight);
        text.finish_non_exhaustive()
    }
}

impl Writer {
    fn start(file: Arc<dyn WriteFile>, buffers: usize) -> Result<Writer, FileError> {
        let location = file.location().clone();
        // Neither channel ever blocks: there are no more messages than buffers.
        let (requests, incoming) = sync_channel::<WriteRequest>(buffers);
        let (answers, done) = sync_channel(buffers);
        let work = move || {
            for request in incoming {
                if answers.send(file.write(request)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("write-output".to_owned()).spawn(work);
        let thread = thread.map_err(|error| FileError::io(location, "start a thread to write", 0, error))?;
        Ok(Writer { requests: Some(requests), done, thread: Some(thread) })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // It cannot have panicked but by a bug, and a panic while dropping would hide it.
            let _ = thread.join();
        }
    }
}

/// The part of a buffer that direct requests can use.
fn usable(buffer: &IoBuffer) -> usize {
    buffer.len() / ALIGNMENT * ALIGNMENT
}

/// Whether a name is that of a file in a folder, or in folders in it (`day=1/part-00000`): it leads to no other place.
pub fn is_inside(name: &str) -> bool {
    name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// The folders that a file of such a name is in, from the outermost on: `a` and `a/b` of `a/b/part-00000`.
pub(crate) fn folders_of(name: &str) -> impl DoubleEndedIterator<Item = &str> {
    name.match_indices('/').map(move |(at, _)| &name[..at])
}

/// The name of output `index` of `count`: `part-00000` and so on, with as many digits as make the order of names that of
/// the numbers.
pub fn part_name(index: usize, count: usize) -> String {
    let digits = count.saturating_sub(1).to_string().len().max(5);
    format!("part-{index:0digits$}")
}

/// The name of the file of a range of keys of `part`: that of the part and the number of the range, then that of the range
/// in it, and so on. Between the names of this part and of the next, in the order of ranges.
pub fn range_name(part: &str, range: &[u32]) -> String {
    range.iter().fold(part.to_owned(), |name, index| format!("{name}-{index:03}"))
}
