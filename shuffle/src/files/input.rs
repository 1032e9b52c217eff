//! Input: which record files there are, how they are cut into chunks, and how a chunk gets into memory.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use exobus_files::{ALIGNMENT, Access, FileError, FileStatus, Location, visit_files};
use serde::{Deserialize, Serialize};

use super::compressed::compressed_or;
use super::{REQUEST_BYTES, STRIDE_BYTES};
use crate::records::RECORD_BYTES;

/// A record file and its length when it was listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Where it is.
    #[serde(with = "exobus_actors::paths")]
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A range of whole records of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// The file.
    #[serde(with = "exobus_actors::paths")]
    pub path: PathBuf,
    /// Byte offset of the first record.
    pub offset: u64,
    /// Length in bytes, a multiple of the record size.
    pub bytes: u64,
}

/// How a chunk is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Bytes of one request, rounded up to the alignment; default [`REQUEST_BYTES`].
    pub request_bytes: usize,
    /// Requests under way at once, each on a thread of its own while the chunk is read; default 4, 0 counts as 1.
    pub requests_in_flight: usize,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { request_bytes: REQUEST_BYTES, requests_in_flight: 4 }
    }
}

/// The record files that `paths` name, as [`list_files`] finds them.
///
/// # Errors
/// Those of [`list_files`]; a file that ends inside a record.
pub fn list_inputs(paths: &[PathBuf], partial: bool) -> Result<Vec<InputFile>, FileError> {
    let files = list_files(paths, partial)?;
    files.iter().try_for_each(|file| whole_rows(&file.path, file.bytes, RECORD_BYTES as u64))?;
    Ok(files)
}

/// Files that are no multiple of `row_bytes` long are refused.
///
/// # Errors
/// [`FileError::Truncated`]; of a compressed file [`FileError::Compressed`].
pub(crate) fn whole_rows(path: &Path, bytes: u64, row_bytes: u64) -> Result<(), FileError> {
    match bytes % row_bytes {
        0 => Ok(()),
        rest => {
            let torn = FileError::Truncated { path: path.to_owned(), bytes, offset: bytes - rest };
            Err(compressed_or(path, torn))
        }
    }
}

/// The files that `paths` name, as [`visit_files`] finds them.
///
/// # Errors
/// As there.
pub fn list_files(paths: &[PathBuf], partial: bool) -> Result<Vec<InputFile>, FileError> {
    let mut files = Vec::new();
    let file = |location: &Location, status: FileStatus| -> Result<(), FileError> {
        files.push(InputFile { path: location.to_path_buf(), bytes: status.bytes });
        Ok(())
    };
    visit_files((paths, partial), |_| Ok(()), file)?;
    Ok(files)
}

/// Cuts `files` into chunks of about `chunk_bytes` and at most [`STRIDE_BYTES`] more. The chunks of a file are equally
/// long but for the last, begin at multiples of [`STRIDE_BYTES`], and follow the order of files and offsets; an empty
/// file has none.
pub fn chunks(files: &[InputFile], chunk_bytes: u64) -> Vec<Chunk> {
    let of_file = |file: &InputFile| {
        let path = file.path.clone();
        strides(file.bytes, chunk_bytes).map(move |range| Chunk {
            path: path.clone(),
            offset: range.start,
            bytes: range.end - range.start,
        })
    };
    files.iter().flat_map(of_file).collect()
}

/// The ranges of a file of `bytes` bytes that [`chunks`] makes of it.
pub(super) fn strides(bytes: u64, chunk_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let count = bytes.div_ceil(chunk_bytes.max(1)).max(1);
    let step = bytes.div_ceil(count).next_multiple_of(STRIDE_BYTES as u64).max(STRIDE_BYTES as u64);
    (0..bytes.div_ceil(step)).map(move |index| index * step..((index + 1) * step).min(bytes))
}

impl Chunk {
    /// Bytes of scratch that [`read_chunk`] needs: the chunk, rounded to blocks at both ends.
    pub fn scratch_bytes(&self) -> usize {
        let (from, to) = self.blocks();
        (to - from) as usize
    }

    /// Offsets in the file, at multiples of the alignment, that enclose the chunk.
    fn blocks(&self) -> (u64, u64) {
        let alignment = ALIGNMENT as u64;
        (self.offset / alignment * alignment, (self.offset + self.bytes).next_multiple_of(alignment))
    }
}

/// Reads `chunk` into `scratch` and returns where it is in there. The address of `scratch` should be a multiple of
/// [`ALIGNMENT`]; at any other the read goes through the page cache.
///
/// # Errors
/// With file and offset: what the system says, and [`FileError::EndedEarly`] when the file has become shorter.
///
/// # Panics
/// When `scratch` is shorter than [`Chunk::scratch_bytes`].
pub fn read_chunk<'a>(chunk: &Chunk, scratch: &'a mut [u8], options: &ReadOptions) -> Result<&'a mut [u8], FileError> {
    let needed = chunk.scratch_bytes();
    assert!(scratch.len() >= needed, "a chunk of {needed} bytes with its blocks, {} bytes of scratch", scratch.len());
    let file = Location::from(&chunk.path).open(Access::Direct)?;
    let (from, _) = chunk.blocks();
    let end = chunk.offset + chunk.bytes;
    let request_bytes = options.request_bytes.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
    let workers = options.requests_in_flight.clamp(1, needed.div_ceil(request_bytes).max(1));

    let requests = scratch[..needed].chunks_mut(request_bytes).enumerate();
    let requests = Mutex::new(requests.map(|(index, buffer)| (from + (index * request_bytes) as u64, buffer)));
    let failure = Mutex::new(None);
    let work = || {
        loop {
            let next = lock(&requests).next();
            let Some((offset, buffer)) = next else { return };
            // The last block of a file is rarely full, and what lies behind the chunk is not wanted.
            let wanted = (end.saturating_sub(offset) as usize).min(buffer.len());
            if let Err(error) = file.read_at(offset, buffer, wanted) {
                lock(&failure).get_or_insert(error);
            }
            if lock(&failure).is_some() {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..workers {
            // Without a thread the request is merely done by the others.
            if thread::Builder::new().name("read-chunk".to_owned()).spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let start = (chunk.offset - from) as usize;
    Ok(&mut scratch[start..start + chunk.bytes as usize])
}

/// Reads small files one behind the other into `into`; how many bytes that was. Through the page cache: the system reads
/// more of them at a time than one asks for, and there is nothing to align.
///
/// # Errors
/// As [`read_chunk`]; those of `check`, which is called before a file is opened.
///
/// # Panics
/// `into` is too short.
pub(crate) fn read_files<E: From<FileError>>(
    files: impl Iterator<Item = InputFile>,
    into: &mut [u8],
    mut check: impl FnMut(&Path) -> Result<(), E>,
) -> Result<usize, E> {
    let mut at = 0;
    for InputFile { path, bytes } in files {
        check(&path)?;
        let bytes = bytes as usize;
        Location::from(path).open(Access::Cached)?.read_at(0, &mut into[at..at + bytes], bytes)?;
        at += bytes;
    }
    Ok(at)
}

/// Locks; what a worker that panicked left behind is still whole, for every critical section is one assignment.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
