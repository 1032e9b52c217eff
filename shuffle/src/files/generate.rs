//! Writes benchmark records to files, a thread per request in flight: each makes records in its own buffer and writes
//! them where they belong, so CPU and disk overlap without any hand-over.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use exobus_actors::ids::JobId;
use exobus_files::{
    ALIGNMENT, AlignedBuffer, Claimant, Claimed, ContentHash, FileError, IoBuffer, Location, OutputFolder, Planned,
    Token, WriteFile, WriteRequest, content_hash, part_name,
};

use super::input::lock;
use super::{REQUEST_BYTES, record_schema};
use crate::records::{Generator, Mode, RECORD_BYTES, RowHash, checksum, row_hash_sum};

/// What a folder's claim and manifest say that made it.
const PROGRAM: &str = "generate";
/// There is one attempt at each file.
const ATTEMPT: &str = "0";
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
    let location = Location::from(path);
    let system = location.system()?;
    let begin = |bytes| system.create_new(&location, planned(bytes));
    // It gets its name with its last record.
    let parts = Parts(vec![Part { begin: Box::new(begin), start, records }]);
    Ok(parts.generate(mode, threads, stop)?.map(|(generated, _)| generated))
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
    let folder = OutputFolder::new(directory, JobId::new())?;
    let claimant = Claimant { program: PROGRAM, ..Claimant::default() };
    let claimed = match folder.claim(&claimant, None) {
        // Nobody but the operating system is asked, and it says so.
        Ok(Claimed::Over(job)) => {
            tracing::warn!(path = %directory.display(), %job, "taking the directory over from a job that is over");
            folder.claim(&claimant, Some((job, true)))
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
    let part = |(index, name): (usize, &String)| {
        let (name, folder) = (name.clone(), &folder);
        let begin = Box::new(move |bytes| folder.begin(&name, ATTEMPT, planned(bytes)));
        let (first, next) = (first_of(index), first_of(index + 1));
        Part { begin, start: start.wrapping_add(u128::from(first)), records: next - first }
    };
    let parts = Parts(names.iter().enumerate().map(part).collect());
    let Some((generated, written)) = parts.generate(mode, threads, stop)? else { return Ok(None) };
    let token = |index: usize| {
        let (rows, Written { temporary, hash }) = (parts.0[index].records, written[index].clone());
        Token { temporary, name: names[index].clone(), rows, bytes: rows * RECORD_BYTES as u64, hash }
    };
    folder.commit(ATTEMPT, (PROGRAM, &record_schema()), |take| (0..files).try_for_each(|index| take(&token(index))))?;
    Ok(Some(generated))
}

fn planned(bytes: u64) -> Planned {
    Planned { bytes, request_bytes: REQUEST_BYTES as u64 }
}

/// Begins a file of so many bytes.
type Begin<'a> = Box<dyn Fn(u64) -> Result<Arc<dyn WriteFile>, FileError> + Sync + 'a>;

/// One file to write.
struct Part<'a> {
    begin: Begin<'a>,
    start: u128,
    records: u64,
}

/// All files to write.
struct Parts<'a>(Vec<Part<'a>>);

/// A file that was written: what its file system calls it until the commit, and the hash of its bytes.
#[derive(Clone, Default)]
struct Written {
    temporary: String,
    hash: ContentHash,
}

/// A file that is being written; gone when the last of its requests lets go of it, unless it was finished.
struct Open {
    file: Mutex<Option<Arc<dyn WriteFile>>>,
    /// Records that are not in the file yet; whoever writes the last ones finishes it.
    unwritten: AtomicU64,
}

impl Parts<'_> {
    /// What was made, and each file; `None`: stopped.
    fn generate(
        &self,
        mode: Mode,
        threads: usize,
        stop: Stop<'_>,
    ) -> Result<Option<(Generated, Vec<Written>)>, FileError> {
        let generator = Generator::new(mode);
        let written = vec![Written::default(); self.0.len()];
        let state = Mutex::new(Progress { written, ..Progress::default() });
        thread::scope(|scope| {
            let work = || {
                // A buffer costs nothing before it is touched.
                let mut buffer: IoBuffer = Box::new(AlignedBuffer::new(REQUEST_BYTES));
                while let Some(request) = Progress::next(&state, &self.0).filter(|_| !stop()) {
                    let written;
                    (buffer, written) = request.run(&generator, buffer);
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
        Ok(Some((progress.done, progress.written)))
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
    /// Each file, as far as it is written.
    written: Vec<Written>,
    failure: Option<FileError>,
}

/// A range of one file for one thread to make and write.
struct Request<'a> {
    part: &'a Part<'a>,
    /// Its position among the files.
    index: usize,
    open: Arc<Open>,
    /// First record, counted from the start of the part.
    from: u64,
    records: u64,
}

impl Progress {
    /// The next range, in order of files and offsets, so that few files are open at a time.
    fn next<'a>(state: &Mutex<Progress>, parts: &'a [Part<'a>]) -> Option<Request<'a>> {
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

    fn account(&mut self, index: usize, written: Result<(Generated, Written), FileError>) {
        match written {
            Ok((written, Written { temporary, hash })) => {
                self.written[index].hash += hash;
                self.written[index].temporary.push_str(&temporary);
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
    /// Makes and writes the records; the name of the file is with the last ones.
    fn run(&self, generator: &Generator, mut buffer: IoBuffer) -> (IoBuffer, Result<(Generated, Written), FileError>) {
        let file = match self.open.get(self.part) {
            Ok(file) => file,
            Err(error) => return (buffer, Err(error)),
        };
        let used = self.records as usize * RECORD_BYTES;
        let records = &mut buffer[..used];
        generator.fill(self.part.start.wrapping_add(u128::from(self.from)), records);
        let generated = Generated {
            records: self.records,
            bytes: used as u64,
            checksum: checksum(records),
            row_hash: row_hash_sum(records),
        };
        // Requests begin where blocks do.
        let hash = ContentHash::of_blocks(self.from * RECORD_BYTES as u64 / content_hash::BLOCK_BYTES as u64, records);
        buffer[used..used.next_multiple_of(ALIGNMENT)].fill(0);
        let (index, offset) = ((self.from / REQUEST_ROWS) as u32, self.from * RECORD_BYTES as u64);
        let (buffer, written) = file.write(WriteRequest { index, offset, used, buffer });
        let is_last = || self.open.unwritten.fetch_sub(self.records, Ordering::AcqRel) == self.records;
        let ended = written.and_then(|()| if is_last() { file.finish(self.part.bytes()) } else { Ok(String::new()) });
        (buffer, ended.map(|temporary| (generated, Written { temporary, hash })))
    }
}

impl Open {
    /// The file, created by whichever thread needs it first.
    fn get(&self, part: &Part<'_>) -> Result<Arc<dyn WriteFile>, FileError> {
        let mut open = lock(&self.file);
        if let Some(file) = &*open {
            return Ok(file.clone());
        }
        let file = (part.begin)(part.bytes())?;
        *open = Some(file.clone());
        Ok(file)
    }
}

impl Part<'_> {
    fn bytes(&self) -> u64 {
        self.records * RECORD_BYTES as u64
    }
}
