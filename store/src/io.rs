//! The threads that do disk requests.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tracing::{error, warn};

use crate::{
    alloc::PAGE,
    checksum,
    clock::{Clock, Hold},
    disk::{AlignedBuffer, DiskFile, read_all_at, write_all_at},
    error::StoreError,
    files::{FileWork, Trouble},
    footer,
    hold::OwnedSpan,
    load_queue::LoadQueue,
    options::StoreEvent,
    region::{Lease, View},
    shared::Shared,
    spill::{BUFFER_BYTES, FILE_BYTES, REQUEST_BYTES},
    state::{LoadJob, Source, WriteJob},
    table::FileId,
};

/// A piece of a stream, read into the reader's own window.
pub(crate) struct StreamJob {
    pub file: FileId,
    /// In the file, a multiple of 4096.
    pub offset: u64,
    /// A multiple of 4096, at most the length of the span.
    pub bytes: u64,
    pub span: OwnedSpan,
    pub done: std::sync::mpsc::SyncSender<(OwnedSpan, Result<(), StoreError>)>,
}

enum Job {
    /// Loads that follow each other in one file, or one of any kind.
    Load(Vec<LoadJob>),
    Stream(Box<StreamJob>),
    Write(WriteJob),
    File(FileWork),
}

#[derive(Default)]
struct Queues {
    loads: LoadQueue,
    streams: VecDeque<StreamJob>,
    writes: VecDeque<WriteJob>,
    files: VecDeque<FileWork>,
    busy: usize,
    stopped: bool,
    /// As long as anything is queued or under way.
    hold: Option<Hold>,
}

/// Without work for so long, a thread gives its buffer back.
const QUIET: Duration = Duration::from_secs(1);

/// Requests that no thread has taken yet. Bounded by what the state lets go: loads have their memory, writes are
/// counted, each stream has one request.
pub(crate) struct IoQueue {
    clock: Arc<dyn Clock>,
    queues: Mutex<Queues>,
    work: Condvar,
    idle: Condvar,
}

impl IoQueue {
    pub fn new(clock: Arc<dyn Clock>) -> IoQueue {
        IoQueue { clock, queues: Mutex::default(), work: Condvar::new(), idle: Condvar::new() }
    }

    /// The queues, to put something in.
    fn held(&self) -> MutexGuard<'_, Queues> {
        let mut queues = self.queues.lock();
        if queues.hold.is_none() && !queues.stopped {
            queues.hold = Some(self.clock.hold());
        }
        queues
    }

    pub fn load(&self, job: LoadJob) {
        self.held().loads.push(job);
        self.work.notify_one();
    }

    pub fn stream(&self, job: StreamJob) {
        let refused = {
            let mut queues = self.held();
            if queues.stopped {
                Some(job)
            } else {
                queues.streams.push_back(job);
                None
            }
        };
        match refused {
            Some(job) => drop(job.done.send((job.span, Err(StoreError::Cancelled)))),
            None => drop(self.work.notify_one()),
        }
    }

    pub fn write(&self, job: WriteJob) {
        self.held().writes.push_back(job);
        // One alone might be a thread that may not write.
        self.work.notify_all();
    }

    pub fn file(&self, work: FileWork) {
        self.held().files.push_back(work);
        self.work.notify_all();
    }

    /// Waits until nothing is queued or under way.
    pub fn wait_until_idle(&self) {
        let mut queues = self.queues.lock();
        while (!queues.is_empty() || queues.busy > 0) && !queues.stopped {
            self.idle.wait(&mut queues);
        }
    }

    /// Threads end after what they are doing; the rest is not done.
    pub fn stop(&self) {
        let dropped = {
            let mut queues = self.queues.lock();
            queues.stopped = true;
            queues.hold = None;
            std::mem::take(&mut queues.streams)
        };
        drop(dropped);
        self.work.notify_all();
        self.idle.notify_all();
    }

    /// `writes`: whether this thread may write. When there is nothing to do for a while, the memory of `buffer` is given back: what a burst
    /// of requests took does not stay with each thread.
    fn next(&self, writes: bool, buffer: &mut AlignedBuffer) -> Option<Job> {
        let mut queues = self.queues.lock();
        loop {
            if queues.stopped {
                return None;
            }
            // Reads first: tasks wait for them, and they are few, since each has its memory already.
            let job = if let Some(job) = queues.streams.pop_front() {
                Some(Job::Stream(Box::new(job)))
            } else if let Some(run) = queues.loads.next() {
                Some(Job::Load(run))
            } else if !writes {
                None
            } else if let Some(job) = queues.writes.pop_front() {
                Some(Job::Write(job))
            } else {
                queues.files.pop_front().map(Job::File)
            };
            if job.is_some() {
                queues.busy += 1;
                return job;
            }
            if buffer.is_empty() {
                self.work.wait(&mut queues);
            } else if self.work.wait_for(&mut queues, QUIET).timed_out() {
                buffer.give_back();
            }
        }
    }

    fn done(&self) {
        let mut queues = self.queues.lock();
        queues.busy -= 1;
        if queues.busy == 0 && queues.is_empty() {
            queues.hold = None;
            self.idle.notify_all();
        }
    }
}

impl Queues {
    fn is_empty(&self) -> bool {
        self.loads.is_empty() && self.streams.is_empty() && self.writes.is_empty() && self.files.is_empty()
    }
}

impl LoadJob {
    /// Whether the disk can write right into the memory.
    pub(crate) fn in_place(&self) -> bool {
        let page = |number: u64| number.is_multiple_of(PAGE);
        match self.sources[..] {
            [Source::Disk { offset, bytes, .. }] => {
                page(offset) && page(self.span.offset) && bytes.next_multiple_of(PAGE) <= self.span.bytes
            }
            _ => false,
        }
    }
}

/// What one thread does until the store closes. A broken invariant must not leave others waiting for ever: a panic
/// closes the store, so that all waits end with `Cancelled`.
/// `writes`: whether it may write.
pub(crate) fn run(shared: &Arc<Shared>, writes: bool) {
    struct CloseOnPanic<'a>(&'a Shared);
    impl Drop for CloseOnPanic<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                error!("a disk thread panicked, closing the store");
                self.0.close();
                self.0.io.stop();
            }
        }
    }
    let _guard = CloseOnPanic(shared);
    let mut buffer = AlignedBuffer::default();
    while let Some(job) = shared.io.next(writes, &mut buffer) {
        let begun = shared.clock.now();
        let took = || shared.clock.now().saturating_sub(begun);
        match job {
            Job::Load(jobs) => {
                let from_disk = jobs.iter().any(|job| !job.sources.is_empty());
                run_loads(shared, jobs, &mut buffer);
                if from_disk {
                    shared.disk_time.read(took());
                }
            }
            Job::Stream(job) => {
                run_stream(shared, *job);
                shared.disk_time.read(took());
            }
            Job::Write(job) => {
                run_write(shared, &job, &mut buffer);
                shared.disk_time.wrote(took());
            }
            Job::File(FileWork::Close(file)) => close_file(shared, file),
            Job::File(FileWork::Unlink(file)) => unlink(shared, file),
        }
        shared.io.done();
    }
}

fn open(shared: &Shared, file: FileId) -> Result<Arc<dyn DiskFile>, StoreError> {
    let path = shared.with(|state| state.path_of(file));
    shared.dirs.open(file, &path)
}

fn run_loads(shared: &Shared, jobs: Vec<LoadJob>, buffer: &mut AlignedBuffer) {
    let mut leases = Vec::with_capacity(jobs.len());
    for job in &jobs {
        leases.push(shared.load_target(job.span));
    }
    // Where a request for several fails, each is tried alone: only the one with the bad sector is lost.
    let together = jobs.len() > 1
        && match leases.iter_mut().map(|lease| lease.as_mut().ok()).collect::<Option<Vec<&mut Lease>>>() {
            Some(mut leases) => load_run(shared, &jobs, &mut leases, buffer).is_ok(),
            None => false,
        };
    let mut results: Vec<Result<(), StoreError>> = Vec::with_capacity(jobs.len());
    for (job, lease) in jobs.iter().zip(leases) {
        results.push(match lease {
            Ok(lease) if together => verify(shared, job, &lease),
            Ok(mut lease) => load_one(shared, job, &mut lease, buffer).and_then(|()| verify(shared, job, &lease)),
            Err(source) => Err(StoreError::Region { bytes: job.span.bytes, source: Arc::new(source) }),
        });
    }
    shared.with(|state| {
        for (job, result) in jobs.iter().zip(results) {
            if let Err(StoreError::Region { .. }) = result {
                state.cut(state.backed);
            }
            state.loaded(job, result);
        }
    });
}

/// Several blocks that follow each other, by one request.
fn load_run(
    shared: &Shared,
    jobs: &[LoadJob],
    leases: &mut [&mut Lease],
    buffer: &mut AlignedBuffer,
) -> Result<(), StoreError> {
    let places = |job: &LoadJob| match job.sources[..] {
        [Source::Disk { file, offset, bytes, .. }] => (file, offset, bytes),
        _ => unreachable!("only runs of files are joined"),
    };
    let (file_id, start, _) = places(&jobs[0]);
    let (_, last, last_bytes) = places(&jobs[jobs.len() - 1]);
    let file = open(shared, file_id)?;
    let failed = |error| StoreError::disk("read", &shared.with(|state| state.path_of(file_id)), error);
    let mut end = start;
    let mut follows = |job: &LoadJob| {
        let (_, offset, bytes) = places(job);
        let touches = offset == end;
        end = offset + bytes.next_multiple_of(PAGE);
        touches && job.in_place()
    };
    if jobs.iter().all(&mut follows) {
        let mut buffers: Vec<&mut [u8]> = leases
            .iter_mut()
            .zip(jobs)
            .map(|(lease, job)| &mut lease.bytes_mut()[..job.bytes.next_multiple_of(PAGE) as usize])
            .collect();
        return read_all_at(&*file, start, &mut buffers).map_err(failed);
    }
    let from = start / PAGE * PAGE;
    let bytes = (last + last_bytes).next_multiple_of(PAGE) - from;
    let bounce = buffer.of(bytes as usize);
    read_all_at(&*file, from, &mut [&mut *bounce]).map_err(failed)?;
    for (job, lease) in jobs.iter().zip(leases) {
        let (_, offset, bytes) = places(job);
        let at = (offset - from) as usize;
        lease.bytes_mut()[..bytes as usize].copy_from_slice(&bounce[at..at + bytes as usize]);
    }
    Ok(())
}

fn load_one(shared: &Shared, job: &LoadJob, lease: &mut Lease, buffer: &mut AlignedBuffer) -> Result<(), StoreError> {
    if job.in_place() {
        let [Source::Disk { file, offset, .. }] = job.sources[..] else { unreachable!("in place means one source") };
        let handle = open(shared, file)?;
        for (nth, piece) in lease.bytes_mut()[..job.bytes.next_multiple_of(PAGE) as usize]
            .chunks_mut(REQUEST_BYTES as usize)
            .enumerate()
        {
            let at = offset + nth as u64 * REQUEST_BYTES;
            read_all_at(&*handle, at, &mut [piece])
                .map_err(|error| StoreError::disk("read", &shared.with(|state| state.path_of(file)), error))?;
        }
        return Ok(());
    }
    let mut filled = 0;
    for source in &job.sources {
        let (to, bytes) = match *source {
            Source::Memory { to, bytes, .. } | Source::Disk { to, bytes, .. } => (to as usize, bytes as usize),
        };
        let memory = lease.bytes_mut();
        memory[filled..to].fill(0);
        filled = to + bytes;
        match *source {
            Source::Memory { offset, bytes, .. } => memory[to..filled].copy_from_slice(&shared.view(offset, bytes)),
            Source::Disk { file, offset, .. } => read_unaligned(shared, file, offset, &mut memory[to..filled], buffer)?,
        }
    }
    Ok(())
}

/// Reads any run of a file through the buffer.
pub(crate) fn read_unaligned(
    shared: &Shared,
    file: FileId,
    mut offset: u64,
    mut to: &mut [u8],
    buffer: &mut AlignedBuffer,
) -> Result<(), StoreError> {
    let handle = open(shared, file)?;
    while !to.is_empty() {
        let from = offset / PAGE * PAGE;
        let bytes = (offset + to.len() as u64 - from).next_multiple_of(PAGE).min(BUFFER_BYTES);
        let bounce = buffer.of(bytes as usize);
        read_all_at(&*handle, from, &mut [&mut *bounce])
            .map_err(|error| StoreError::disk("read", &shared.with(|state| state.path_of(file)), error))?;
        let skip = (offset - from) as usize;
        let got = (bounce.len() - skip).min(to.len());
        let (now, later) = to.split_at_mut(got);
        now.copy_from_slice(&bounce[skip..skip + got]);
        (to, offset) = (later, offset + got as u64);
    }
    Ok(())
}

/// Bytes that came from a disk must be those that went there.
fn verify(shared: &Shared, job: &LoadJob, lease: &Lease) -> Result<(), StoreError> {
    let on_disk = job.sources.iter().find_map(|source| match *source {
        Source::Disk { file, offset, to, .. } => Some((file, offset, to)),
        Source::Memory { .. } => None,
    });
    let Some((file, offset, to)) = on_disk else { return Ok(()) };
    let Some(part) = checksum::first_corrupt(&lease.bytes()[..job.bytes as usize], job.start, &job.parts) else {
        return Ok(());
    };
    let path = shared.with(|state| state.path_of(file));
    let within = job.parts[part].offset.saturating_sub(job.start);
    let error = StoreError::Corrupt {
        object: job.object,
        part: job.first_part + part as u32,
        file: path.to_path_buf(),
        offset: (offset + within).saturating_sub(to),
    };
    error!(%error, "corrupt block");
    Err(error)
}

fn run_stream(shared: &Shared, mut job: StreamJob) {
    let result = open(shared, job.file).and_then(|file| {
        let to = &mut job.span.bytes_mut()[..job.bytes as usize];
        read_all_at(&*file, job.offset, &mut [to])
            .map_err(|error| StoreError::disk("read", &shared.with(|state| state.path_of(job.file)), error))
    });
    if result.is_ok() {
        shared.with(|state| state.counters.restored_bytes += job.bytes);
    }
    // A reader that was dropped takes no answer; its window comes back by being dropped here.
    let _ = job.done.send((job.span, result));
}

fn run_write(shared: &Shared, job: &WriteJob, buffer: &mut AlignedBuffer) {
    let begun = shared.clock.now();
    let result = try_write(shared, job, buffer);
    if let Err(error) = &result {
        warn!(%error, bytes = job.bytes, "spill request failed");
    }
    let bytes = job.items.iter().map(|item| item.bytes).sum();
    let ok = result.is_ok();
    shared.with(|state| state.written(job, result.map_err(|error| Trouble::from(&error))));
    if ok {
        let millis = (shared.clock.now().saturating_sub(begun)).as_millis() as u64;
        shared.tell(StoreEvent::SpillFinished { bytes, millis });
    }
}

fn try_write(shared: &Shared, job: &WriteJob, buffer: &mut AlignedBuffer) -> Result<(), StoreError> {
    let (path, dir) = shared.with(|state| (state.path_of(job.file), state.files.get(job.file).dir));
    // Writes within what is set aside go on side by side.
    let bytes_hint = (job.offset + job.bytes).max(FILE_BYTES + REQUEST_BYTES);
    let file = shared.dirs.create(job.file, dir, &path, bytes_hint)?;
    // Whole pages go from where they are; smaller blocks are packed behind them.
    let paged: Vec<View> = job
        .items
        .iter()
        .take_while(|item| item.span.offset.is_multiple_of(PAGE) && item.span.bytes.is_multiple_of(PAGE))
        .map(|item| shared.view(item.span.offset, item.bytes.next_multiple_of(PAGE)))
        .collect();
    let paged_bytes: u64 = paged.iter().map(|view| view.len() as u64).sum();
    let packed = buffer.of((job.bytes - paged_bytes) as usize);
    let mut filled = 0;
    for item in &job.items[paged.len()..] {
        let at = (item.to - paged_bytes) as usize;
        packed[filled..at].fill(0);
        filled = at + item.bytes as usize;
        packed[at..filled].copy_from_slice(&shared.view(item.span.offset, item.bytes));
    }
    packed[filled..].fill(0);
    let mut offset = job.offset;
    let mut request: Vec<&[u8]> = Vec::with_capacity(paged.len() + 1);
    let mut request_bytes = 0;
    let failed = |error| StoreError::disk("write", &path, error);
    for piece in paged.iter().flat_map(|view| view.chunks(REQUEST_BYTES as usize)).chain([&*packed]) {
        if request_bytes + piece.len() as u64 > REQUEST_BYTES && request_bytes > 0 {
            write_all_at(&*file, offset, &request).map_err(failed)?;
            offset += request_bytes;
            request_bytes = 0;
            request.clear();
        }
        request_bytes += piece.len() as u64;
        request.push(piece);
    }
    write_all_at(&*file, offset, &request).map_err(failed)?;
    if !file.is_direct() {
        // Through the page cache, only this tells whether the bytes arrived; their memory is taken afterwards.
        file.sync().map_err(|error| StoreError::disk("sync", &path, error))?;
    }
    Ok(())
}

fn close_file(shared: &Shared, file: FileId) {
    let (blocks, end, path, dir) = shared.with(|state| {
        let blocks = state.footer_of(file);
        let entry = state.files.get(file);
        (blocks, entry.end, entry.path.clone(), entry.dir)
    });
    let result = (|| {
        let handle = shared.dirs.create(file, dir, &path, 0)?;
        let footer = footer::encode(end, &blocks);
        // Not the buffer of the thread, which would keep the size of the longest footer.
        let mut buffer = AlignedBuffer::default();
        let bytes = buffer.of(footer.bytes.len());
        bytes.copy_from_slice(&footer.bytes);
        write_all_at(&*handle, end, &[bytes]).map_err(|error| StoreError::disk("write", &path, error))?;
        let size = end + footer.bytes.len() as u64;
        handle.truncate(size).map_err(|error| StoreError::disk("truncate", &path, error))?;
        if shared.dirs.keep {
            // Only files that outlive the process must survive a power cut.
            handle.sync().map_err(|error| StoreError::disk("sync", &path, error))?;
        }
        let index = shared.dirs.index(dir, |dir, reason| shared.index_damaged(dir, reason));
        if let Some(index) = index {
            index.insert(&path, &footer.summary(size, blocks.len()));
        }
        Ok(size)
    })();
    if let Err(error) = &result {
        warn!(%error, "footer of a spill file cannot be written");
    }
    shared.with(|state| state.closed(file, result.map_err(|error: StoreError| Trouble::from(&error))));
}

fn unlink(shared: &Shared, file: FileId) {
    let (path, dir) = shared.with(|state| (state.path_of(file), state.files.get(file).dir));
    shared.dirs.unlink(file, dir, &path);
    shared.with(|state| state.unlinked(file));
}
