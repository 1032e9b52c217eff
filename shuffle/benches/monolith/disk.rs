//! What the disk can do with the requests that the sort makes: direct, 8 MB, four at a time.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::engine::spill;
use exobus_shuffle::files::{AlignedBuffer, DirectFile, FileError, REQUEST_BYTES};

/// Most bytes that each measurement moves.
const BYTES_MAX: u64 = 4 << 30;
/// Requests under way.
const THREADS: u64 = 4;

/// What the disk can do, in 10^9 bytes per second.
#[derive(Debug)]
pub struct Disk {
    /// Nothing but reads.
    pub read_gb_per_s: f64,
    /// Nothing but writes, to space that was claimed before.
    pub write_gb_per_s: f64,
    /// Half the requests read and half write: both together.
    pub mixed_gb_per_s: f64,
}

impl Disk {
    /// The most bytes per second, whatever the mixture.
    pub fn best_gb_per_s(&self) -> f64 {
        self.read_gb_per_s.max(self.write_gb_per_s).max(self.mixed_gb_per_s)
    }
}

/// Measures the disk of `directory` with files of up to `bytes`, which are removed again.
///
/// # Errors
/// What the system says.
pub fn measure(directory: &Path, bytes: u64) -> Result<Disk, FileError> {
    let requests = (bytes.min(BYTES_MAX) / REQUEST_BYTES as u64).max(THREADS);
    let first = nameless(directory, requests)?;
    let second = nameless(directory, requests)?;
    let write = |file: &DirectFile, offset, buffer: &mut [u8]| file.write_at(offset, buffer);
    let read = |file: &DirectFile, offset, buffer: &mut [u8]| file.read_at(offset, buffer, buffer.len()).map(drop);
    let write_gb_per_s = rate(requests, |index, buffer| write(&first, offset(index), buffer))?;
    let read_gb_per_s = rate(requests, |index, buffer| read(&first, offset(index), buffer))?;
    let mixed_gb_per_s = rate(requests, |index, buffer| match index % 2 {
        0 => read(&first, offset(index), buffer),
        _ => write(&second, offset(index), buffer),
    })?;
    Ok(Disk { read_gb_per_s, write_gb_per_s, mixed_gb_per_s })
}

fn offset(index: u64) -> u64 {
    index * REQUEST_BYTES as u64
}

/// A file that is gone when it is closed, with room for `requests`.
fn nameless(directory: &Path, requests: u64) -> Result<DirectFile, FileError> {
    let file = spill::nameless(directory)?;
    file.reserve(offset(requests))?;
    Ok(file)
}

/// Bytes per nanosecond of `requests`, each done by `request` on one of several threads.
fn rate(requests: u64, request: impl Fn(u64, &mut [u8]) -> Result<(), FileError> + Sync) -> Result<f64, FileError> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut buffer = AlignedBuffer::new(REQUEST_BYTES);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= requests {
                return Ok(());
            }
            request(index, &mut buffer)?;
        }
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("requests do not panic"))
    })?;
    Ok(offset(requests) as f64 / 1e9 / began.elapsed().as_secs_f64())
}
