//! Validates record files, a thread per request in flight: each reads a chunk into its own buffer and sums it up. The
//! summaries are joined in the order of the chunks.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::input::{Chunk, InputFile, ReadOptions, chunks, lock, read_chunk};
use super::{AlignedBuffer, FileError, REQUEST_BYTES};
use crate::records::Summary;

/// The summary of all records of `files`, in their order, read by `threads` threads of a request buffer each.
///
/// # Errors
/// What [`read_chunk`] says of the first chunk that fails.
pub fn validate_files(files: &[InputFile], threads: usize) -> Result<Summary, FileError> {
    let chunks = chunks(files, REQUEST_BYTES as u64);
    let next = AtomicUsize::new(0);
    let joined = Mutex::new(Joined::default());
    let work = || {
        let mut buffer = AlignedBuffer::new(chunks.iter().map(Chunk::scratch_bytes).max().unwrap_or(0));
        // One request a chunk: the other threads are the requests in flight.
        let options = ReadOptions { request_bytes: buffer.len(), requests_in_flight: 1 };
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = chunks.get(index) else { return };
            if lock(&joined).failure.is_some() {
                return;
            }
            let summary = read_chunk(chunk, &mut buffer, &options).map(|records| Summary::of(records));
            lock(&joined).add(index, summary);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(chunks.len()) {
            // Without a thread the others do its share.
            if thread::Builder::new().name("validate".to_owned()).spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    let joined = joined.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    match joined.failure {
        Some((_, error)) => Err(error),
        None => Ok(joined.whole),
    }
}

/// Summaries joined up to some chunk, and those that came too early.
#[derive(Default)]
struct Joined {
    whole: Summary,
    next: usize,
    early: BTreeMap<usize, Summary>,
    failure: Option<(usize, FileError)>,
}

impl Joined {
    fn add(&mut self, index: usize, summary: Result<Summary, FileError>) {
        match summary {
            Ok(summary) => {
                self.early.insert(index, summary);
                while let Some(summary) = self.early.remove(&self.next) {
                    self.whole.append(&summary);
                    self.next += 1;
                }
            }
            Err(error) => {
                if self.failure.as_ref().is_none_or(|(first, _)| index < *first) {
                    self.failure = Some((index, error));
                }
            }
        }
    }
}
