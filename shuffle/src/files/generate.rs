//! Writes benchmark records to files, a thread per request in flight: each makes records in its own buffer and writes
//! them where they belong, so CPU and disk overlap without any hand-over.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use exobus_actors::futures::Home;
use exobus_actors::ids::JobId;

use super::content_hash::ContentHash;
use super::direct::DirectFile;
use super::folder::{Claimed, OutputFolder, Placed, Schema, place};
use super::input::lock;
use super::output::{Token, part_name, remove_quietly, sync_dir, temporary_name};
use super::{ALIGNMENT, AlignedBuffer, FileError, REQUEST_BYTES, content_hash};
use crate::records::{Generator, Mode, RECORD_BYTES, RowHash, checksum, row_hash_sum};

/// What a folder's claim and manifest say that made it.
const PROGRAM: &str = "generate";
/// Records of one request.
const REQUEST_ROWS: u64 = (REQUEST_BYTES / RECORD_BYTES) as u64;

/// Asks whether to give up; from any thread.
pub type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// What was generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Generated {
    /// Records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The benchmark's checksum, as the validator will report it.
    pub checksum: u128,
    /// Sum of the row hashes.
    pub row_hash: RowHash,
}

/// Writes `records` records from number `start` on to the file `path`, with `threads` threads of a request buffer each.
/// The file gets its name when it is complete and on the disk.
///
/// # Errors
/// [`FileError::Exists`], [`FileError::DiskFull`], or what the system says; nothing is left behind then.
pub fn generate_file(
    path: &Path,
    mode: Mode,
    start: u128,
    records: u64,
    threads: usize,
) -> Result<Generated, FileError> {
    generate_file_until(path, mode, start, records, threads, &|| false).map(Option::unwrap_or_default)
}

/// As [`generate_file`], given up when `stop` says so, about every 8 MB of each thread: `None` then, and nothing is left
/// behind.
///
/// # Errors
/// As there.
pub fn generate_file_until(
    path: &Path,
    mode: Mode,
    start: u128,
    records: u64,
    threads: usize,
    stop: Stop<'_>,
) -> Result<Option<Generated>, FileError> {
    if std::fs::symlink_metadata(path).is_ok() {
        return Err(FileError::Exists { path: path.to_path_buf() });
    }
    let Some(name) = path.file_name() else {
        return Err(FileError::WrongKind { path: path.to_path_buf(), expected: "name for a file" });
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let temp = directory.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let parts = Parts(vec![Part { temp_path: temp.clone(), start, records }]);
    let Some((generated, _)) = parts.generate(mode, threads, stop)? else { return Ok(None) };
    // From here on it is removed by its own name only.
    let placed = place(&temp, path).map_err(|error| FileError::io(path, "rename", 0, error))?;
    if placed == Placed::Taken {
        return Err(FileError::Exists { path: path.to_path_buf() });
    }
    drop(parts);
    sync_dir(directory)?;
    Ok(Some(generated))
}

/// As [`generate_file`], to `files` files [`part_name`] of `directory`, which is created or empty. They hold the records
/// in order and their numbers of records differ by one at most.
///
/// # Errors
/// [`FileError::NotEmpty`], [`FileError::DiskFull`], or what the system says; nothing is left behind then.
pub fn generate_dir(
    directory: &Path,
    mode: Mode,
    start: u128,
    records: u64,
    files: usize,
    threads: usize,
) -> Result<Generated, FileError> {
    generate_dir_until(directory, mode, start, records, files, threads, &|| false).map(Option::unwrap_or_default)
}

/// As [`generate_dir`], given up when `stop` says so: `None` then, and nothing is left behind.
///
/// # Errors
/// As there.
pub fn generate_dir_until(
    directory: &Path,
    mode: Mode,
    start: u128,
    records: u64,
    files: usize,
    threads: usize,
    stop: Stop<'_>,
) -> Result<Option<Generated>, FileError> {
    let folder = OutputFolder::new(directory, JobId::new());
    let home = Home::default();
    let claimed = match folder.claim(PROGRAM, &home, None) {
        // Nobody but the operating system is asked, and it says so.
        Ok(Claimed::Over(job)) => {
            tracing::warn!(path = %directory.display(), %job, "taking the directory over from a job that is over");
            folder.claim(PROGRAM, &home, Some((job, true)))
        }
        claimed => claimed,
    };
    let lock = folder.lock();
    let generated = claimed.and_then(|_| generate_parts(&folder, (mode, start, records), files, threads, stop));
    if !matches!(generated, Ok(Some(_))) {
        let withdrawn = folder.withdraw(lock);
        // What went wrong first is what people need to know.
        generated.as_ref().is_ok().then_some(withdrawn).transpose()?;
    }
    generated
}

fn generate_parts(
    folder: &OutputFolder,
    (mode, start, records): (Mode, u128, u64),
    files: usize,
    threads: usize,
    stop: Stop<'_>,
) -> Result<Option<Generated>, FileError> {
    let first_of = |index: usize| (u128::from(records) * index as u128 / files as u128) as u64;
    let names: Vec<String> = (0..files).map(|index| part_name(index, files)).collect();
    let temporaries: Vec<String> = names.iter().map(|name| temporary_name(name, "0")).collect();
    let parts = temporaries.iter().enumerate().map(|(index, temporary)| Part {
        temp_path: folder.temporaries().join(temporary),
        start: start.wrapping_add(u128::from(first_of(index))),
        records: first_of(index + 1) - first_of(index),
    });
    let parts = Parts(parts.collect());
    let Some((generated, hashes)) = parts.generate(mode, threads, stop)? else { return Ok(None) };
    sync_dir(&folder.temporaries())?;
    let token = |index: usize| {
        let rows = parts.0[index].records;
        let (temporary, name) = (temporaries[index].clone(), names[index].clone());
        Token { temporary, name, rows, bytes: rows * RECORD_BYTES as u64, hash: hashes[index] }
    };
    folder.commit("0", (PROGRAM, &Schema::records()), |take| (0..files).try_for_each(|index| take(&token(index))))?;
    Ok(Some(generated))
}

/// One file to write.
struct Part {
    temp_path: PathBuf,
    start: u128,
    records: u64,
}

/// All files to write; their temporary names go at the end.
struct Parts(Vec<Part>);

/// A file that is being written; closed when the last of its requests lets go of it.
struct Open {
    file: Mutex<Option<Arc<DirectFile>>>,
    /// Records that are not in the file yet; whoever writes the last ones makes it durable.
    unwritten: AtomicU64,
}

impl Parts {
    /// What was made, and the hash of each file; `None`: stopped.
    fn generate(
        &self,
        mode: Mode,
        threads: usize,
        stop: Stop<'_>,
    ) -> Result<Option<(Generated, Vec<ContentHash>)>, FileError> {
        let generator = Generator::new(mode);
        let hashes = vec![ContentHash::default(); self.0.len()];
        let state = Mutex::new(Progress { hashes, ..Progress::default() });
        thread::scope(|scope| {
            let work = || {
                // A buffer costs nothing before it is touched.
                let mut buffer = AlignedBuffer::new(REQUEST_BYTES);
                while let Some(request) = Progress::next(&state, &self.0).filter(|_| !stop()) {
                    let written = request.run(&generator, &mut buffer);
                    lock(&state).account(request.index, written);
                }
            };
            for _ in 1..threads {
                // Without a thread the others do its share.
                if thread::Builder::new().name("generate".to_owned()).spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        let progress = state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(error) = progress.failure {
            return Err(error);
        }
        // Every range that was handed out was written, or its failure is above, unless somebody stopped before.
        if progress.done.records < self.0.iter().map(|part| part.records).sum() {
            return Ok(None);
        }
        Ok(Some((progress.done, progress.hashes)))
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for part in &self.0 {
            remove_quietly(&part.temp_path);
        }
    }
}

/// What has been handed out and what has come back.
#[derive(Default)]
struct Progress {
    part: usize,
    /// Records of the part that have been handed out.
    handed_out: u64,
    open: Option<Arc<Open>>,
    done: Generated,
    /// Of each file.
    hashes: Vec<ContentHash>,
    failure: Option<FileError>,
}

/// A range of one file for one thread to make and write.
struct Request<'a> {
    part: &'a Part,
    /// Its position among the files.
    index: usize,
    open: Arc<Open>,
    /// First record, counted from the start of the part.
    from: u64,
    records: u64,
}

impl Progress {
    /// The next range, in order of files and offsets, so that few files are open at a time.
    fn next<'a>(state: &Mutex<Progress>, parts: &'a [Part]) -> Option<Request<'a>> {
        let mut progress = lock(state);
        let index = progress.part;
        let part = parts.get(index)?;
        if progress.failure.is_some() {
            return None;
        }
        let from = progress.handed_out;
        let records = REQUEST_ROWS.min(part.records - from);
        let unwritten = AtomicU64::new(part.records);
        let open = progress.open.get_or_insert_with(|| Arc::new(Open { file: Mutex::new(None), unwritten })).clone();
        progress.handed_out += records;
        if progress.handed_out == part.records {
            progress.part += 1;
            progress.handed_out = 0;
            progress.open = None;
        }
        Some(Request { part, index, open, from, records })
    }

    fn account(&mut self, index: usize, written: Result<(Generated, ContentHash), FileError>) {
        match written {
            Ok((written, hash)) => {
                self.hashes[index] += hash;
                self.done.records += written.records;
                self.done.bytes += written.bytes;
                self.done.checksum += written.checksum;
                self.done.row_hash += written.row_hash;
            }
            Err(error) => {
                self.failure.get_or_insert(error);
            }
        }
    }
}

impl Request<'_> {
    fn run(&self, generator: &Generator, buffer: &mut AlignedBuffer) -> Result<(Generated, ContentHash), FileError> {
        let file = self.open.get(self.part)?;
        let bytes = self.records as usize * RECORD_BYTES;
        let records = &mut buffer[..bytes];
        generator.fill(self.part.start.wrapping_add(u128::from(self.from)), records);
        let generated = Generated {
            records: self.records,
            bytes: bytes as u64,
            checksum: checksum(records),
            row_hash: row_hash_sum(records),
        };
        // Requests begin where blocks do.
        let hash = ContentHash::of_blocks(self.from * RECORD_BYTES as u64 / content_hash::BLOCK_BYTES as u64, records);
        let padded = bytes.next_multiple_of(ALIGNMENT);
        buffer[bytes..padded].fill(0);
        file.write_at(self.from * RECORD_BYTES as u64, &buffer[..padded])?;
        if padded > bytes {
            // Only the last range of a file is unaligned, so nobody writes behind this.
            file.set_len(self.part.records * RECORD_BYTES as u64)?;
        }
        if self.open.unwritten.fetch_sub(self.records, Ordering::AcqRel) == self.records {
            file.sync()?;
        }
        Ok((generated, hash))
    }
}

impl Open {
    /// The file, created by whichever thread needs it first.
    fn get(&self, part: &Part) -> Result<Arc<DirectFile>, FileError> {
        let mut open = lock(&self.file);
        if let Some(file) = &*open {
            return Ok(file.clone());
        }
        let file = Arc::new(DirectFile::create(&part.temp_path)?);
        file.reserve(part.records * RECORD_BYTES as u64)?;
        *open = Some(file.clone());
        Ok(file)
    }
}
