//! Output: a record file is written front to back under a temporary name and gets its final one by a rename.
//!
//! Buffers are the caller's. While one is filled, the ones before are written by a thread of the file's own, which starts
//! with the first full buffer: a file smaller than a buffer costs no thread. A writer waits only for the disk, when all
//! its buffers are full.
//!
//! A task writes under a name that carries its attempt and returns a [`Token`]; whoever accepts the attempt calls
//! [`commit`], as often as it likes. A file that is dropped unfinished removes its temporary.

use std::io;
use std::ops::DerefMut;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use serde::{Deserialize, Serialize};

use super::direct::DirectFile;
use super::{ALIGNMENT, FileError};

/// Memory for output, lent by value: it travels to the writing thread and back. Its address should be a multiple of
/// [`ALIGNMENT`] (else writes are buffered); of its length only whole multiples are used, and multiples of
/// [`super::STRIDE_BYTES`] let every buffer end with a whole record.
pub type IoBuffer = Box<dyn DerefMut<Target = [u8]> + Send>;

/// A finished file that waits for its final name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Where the file is.
    pub temp_path: PathBuf,
    /// Where it will be.
    pub final_path: PathBuf,
    /// Its length.
    pub bytes: u64,
}

/// A full buffer on its way to the disk, and the answer.
struct Write {
    offset: u64,
    bytes: usize,
    buffer: IoBuffer,
}

struct Writer {
    /// `None` once no more will come.
    requests: Option<SyncSender<Write>>,
    done: Receiver<(IoBuffer, Result<(), FileError>)>,
    thread: Option<JoinHandle<()>>,
}

/// A file that is being written.
pub struct OutputFile {
    file: Arc<DirectFile>,
    temp_path: PathBuf,
    final_path: PathBuf,
    /// Being filled; `None` while all buffers are on their way.
    filling: Option<IoBuffer>,
    filled: usize,
    free: Vec<IoBuffer>,
    /// Buffers with the writing thread.
    in_flight: usize,
    writer: Option<Writer>,
    /// Byte offset in the file of the buffer that is being filled.
    offset: u64,
    /// Set when the temporary is the token's, or gone.
    released: bool,
}

impl OutputFile {
    /// Creates the temporary of file `name` in `directory`. `attempt` is part of its name and tells attempts at the same
    /// output apart; what an earlier life of the same attempt left is overwritten. `bytes_hint` is how long the file will be, in
    /// bytes, where that is known, else 0: its disk space is claimed at once, so that a full disk shows early.
    ///
    /// # Errors
    /// The directory is missing or not writable; the disk is full.
    ///
    /// # Panics
    /// When there is no buffer, one is shorter than [`ALIGNMENT`], or a name has a `/`.
    pub fn create(
        directory: &Path,
        name: &str,
        attempt: &str,
        buffers: Vec<IoBuffer>,
        bytes_hint: u64,
    ) -> Result<OutputFile, FileError> {
        assert!(!buffers.is_empty(), "an output file needs a buffer");
        assert!(buffers.iter().all(|buffer| buffer.len() >= ALIGNMENT), "a buffer is shorter than {ALIGNMENT} bytes");
        assert!(!name.contains('/') && !attempt.contains('/'), "names inside a directory: {name:?}, {attempt:?}");
        let temp_path = directory.join(format!(".{name}.{attempt}.tmp"));
        let file = Arc::new(DirectFile::create(&temp_path)?);
        let output = OutputFile {
            file,
            temp_path,
            final_path: directory.join(name),
            filling: None,
            filled: 0,
            free: buffers,
            in_flight: 0,
            writer: None,
            offset: 0,
            released: false,
        };
        output.file.reserve(bytes_hint)?;
        Ok(output)
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

    /// Writes what is left and gives the buffers back, with the right to the final name. The file and its temporary name are on
    /// the disk then: the log of a job that says so is, too, and must not say more than a power cut leaves.
    ///
    /// # Errors
    /// That of any write, or of the sync; the temporary is removed then.
    pub fn finish(mut self) -> Result<(Token, Vec<IoBuffer>), FileError> {
        let bytes = self.bytes();
        if let Some(mut buffer) = self.filling.take() {
            let padded = self.filled.next_multiple_of(ALIGNMENT);
            buffer[self.filled..padded].fill(0);
            let written = self.file.write_at(self.offset, &buffer[..padded]);
            self.free.push(buffer);
            written?;
        }
        while self.in_flight > 0 {
            let buffer = self.receive()?;
            self.free.push(buffer);
        }
        self.file.set_len(bytes)?;
        self.file.sync()?;
        if let Some(directory) = self.temp_path.parent() {
            sync_dir(directory)?;
        }
        self.released = true;
        let token = Token { temp_path: self.temp_path.clone(), final_path: self.final_path.clone(), bytes };
        Ok((token, std::mem::take(&mut self.free)))
    }

    /// Hands the full buffer to the writing thread.
    fn send(&mut self) -> Result<(), FileError> {
        if self.writer.is_none() {
            let buffers = self.free.len() + 1;
            self.writer = Writer::start(self.file.clone(), buffers, &self.temp_path).ok();
        }
        let Some(buffer) = self.filling.take() else { return Ok(()) };
        if self.writer.is_none() {
            // There is no thread left: slower, and as good.
            let written = self.file.write_at(self.offset, &buffer[..self.filled]);
            self.offset += self.filled as u64;
            self.filled = 0;
            self.free.push(buffer);
            return written;
        }
        let request = Write { offset: self.offset, bytes: self.filled, buffer };
        let writer = self.writer.as_ref().expect("started above");
        let requests = writer.requests.as_ref().expect("open until the file is dropped");
        self.offset += self.filled as u64;
        self.filled = 0;
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
        FileError::io(&self.temp_path, "write", self.offset, ended)
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // Joins the thread first: it must not write to a file that somebody else may create under the same name.
        self.writer = None;
        if !self.released {
            remove_quietly(&self.temp_path);
        }
    }
}

impl std::fmt::Debug for OutputFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = formatter.debug_struct("OutputFile");
        text.field("temp_path", &self.temp_path).field("bytes", &self.bytes()).field("in_flight", &self.in_flight);
        text.finish_non_exhaustive()
    }
}

impl Writer {
    fn start(file: Arc<DirectFile>, buffers: usize, path: &Path) -> Result<Writer, FileError> {
        // Neither channel ever blocks: there are no more messages than buffers.
        let (requests, incoming) = sync_channel::<Write>(buffers);
        let (answers, done) = sync_channel(buffers);
        let work = move || {
            for Write { offset, bytes, buffer } in incoming {
                let written = file.write_at(offset, &buffer[..bytes]);
                if answers.send((buffer, written)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("write-output".to_owned()).spawn(work);
        let thread = thread.map_err(|error| FileError::io(path, "start a thread to write", 0, error))?;
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

/// Gives a finished file its final name. Doing it again changes nothing.
///
/// # Errors
/// What the system says; a temporary that is missing while the final name is not there either.
pub fn commit(token: &Token) -> Result<(), FileError> {
    match std::fs::rename(&token.temp_path, &token.final_path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match std::fs::metadata(&token.final_path) {
            Ok(metadata) if metadata.len() == token.bytes => Ok(()),
            _ => Err(FileError::io(&token.temp_path, "commit", 0, error)),
        },
        renamed => renamed.map_err(|error| FileError::io(&token.final_path, "commit", 0, error)),
    }
}

/// Removes a finished file that will not be committed. Doing it again, or after [`commit`], changes nothing.
///
/// # Errors
/// What the system says.
pub fn abort(token: &Token) -> Result<(), FileError> {
    match std::fs::remove_file(&token.temp_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::io(&token.temp_path, "remove", 0, error))
        }
        _ => Ok(()),
    }
}

/// Returns when the names in `directory` are on the disk: after the commits, where they must survive a power cut.
///
/// # Errors
/// What the system says.
pub fn sync_dir(directory: &Path) -> Result<(), FileError> {
    // The parent of a relative path of one name is the empty path.
    let opened = std::fs::File::open(if directory.as_os_str().is_empty() { Path::new(".") } else { directory });
    let synced = opened.and_then(|opened| opened.sync_all());
    synced.map_err(|error| FileError::io(directory, "sync", 0, error))
}

fn exists(folder: &Path) -> bool {
    folder.as_os_str().is_empty() || folder.exists()
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

/// Makes sure that `directory` exists, is empty and can be written to; true when it was created.
///
/// # Errors
/// [`FileError::NotEmpty`], [`FileError::WrongKind`], or what the system says, a missing permission for one.
pub fn prepare_output_dir(directory: &Path) -> Result<bool, FileError> {
    let failed = |operation| move |error| FileError::io(directory, operation, 0, error);
    let created = match std::fs::metadata(directory) {
        Ok(metadata) if !metadata.is_dir() => {
            return Err(FileError::WrongKind { path: directory.to_path_buf(), expected: "directory" });
        }
        Ok(_) => {
            // An attempt before this one may have made it, and ended there. Who may not read the parent did not.
            let _ = directory.parent().map(sync_dir);
            false
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let new: Vec<&Path> = directory.ancestors().take_while(|folder| !exists(folder)).collect();
            std::fs::create_dir_all(directory).map_err(failed("create the directory"))?;
            // As with files: what a log says to be there has to be.
            new.into_iter().filter_map(Path::parent).try_for_each(sync_dir)?;
            true
        }
        Err(error) => return Err(failed("look up")(error)),
    };
    if let Some(entry) = std::fs::read_dir(directory).map_err(failed("list"))?.next() {
        let found = entry.map_err(failed("list"))?.file_name().to_string_lossy().into_owned();
        return Err(FileError::NotEmpty { path: directory.to_path_buf(), found });
    }
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(|error| failed("write to the directory")(error.into()))?;
    Ok(created)
}

/// Removes part files that are not committed, of whatever job; whether there was something else in the directory.
pub fn remove_unfinished(directory: &Path) -> bool {
    let mut others = false;
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(".part-") && name.ends_with(".tmp") {
            // Somebody else may have removed it: what counts is that it is gone.
            let _ = std::fs::remove_file(entry.path());
        } else {
            others = true;
        }
    }
    others
}

/// Removes a temporary on a path where an error is already on its way.
pub(super) fn remove_quietly(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "temporary file left behind");
    }
}
