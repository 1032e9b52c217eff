//! What a disk can do, measured the way the store uses it: to compare spilling with, in the same run.

use std::{
    io::{self, IoSlice, IoSliceMut},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    clock::{Clock, SystemClock},
    disk::{AlignedBuffer, Disk, DiskFile, RealDisk},
    spill::REQUEST_BYTES,
};

/// Direct-I/O bandwidth of a directory's disk in GB/s (10^9 bytes), `(write, read)`: `bytes` (rounded up to 8 MiB)
/// written once in order by requests of 8 MiB, `threads` of them at a time, to a new file with room set aside, then
/// read back in the same way. Nothing of it passes the page cache, where the file system allows that. The file is
/// deleted.
///
/// # Errors
/// What the disk says.
pub fn direct_io(dir: &Path, bytes: u64, threads: usize) -> io::Result<(f64, f64)> {
    let disk = RealDisk::new();
    disk.create_dir(dir)?;
    let path = dir.join(format!("measure-{}.tmp", std::process::id()));
    let bytes = bytes.next_multiple_of(REQUEST_BYTES).max(REQUEST_BYTES);
    let file = disk.create(&path, bytes)?;
    let result = (|| {
        let write = pass(&file, bytes, threads, true)?;
        let read = pass(&file, bytes, threads, false)?;
        Ok((bytes as f64 / write.as_secs_f64() / 1e9, bytes as f64 / read.as_secs_f64() / 1e9))
    })();
    drop(file);
    disk.remove(&path)?;
    result
}

fn pass(file: &Arc<dyn DiskFile>, bytes: u64, threads: usize, write: bool) -> io::Result<Duration> {
    let next = AtomicU64::new(0);
    let clock = SystemClock::new();
    let work = || -> io::Result<()> {
        let mut buffer = AlignedBuffer::default();
        let buffer = buffer.of(REQUEST_BYTES as usize);
        // Not zeros: some disks treat those in a special way.
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = ((at * 31) >> 3) as u8);
        loop {
            let at = next.fetch_add(REQUEST_BYTES, Ordering::Relaxed);
            if at >= bytes {
                return Ok(());
            }
            let done = if write {
                file.write_at(at, &[IoSlice::new(buffer)])?
            } else {
                file.read_at(at, &mut [IoSliceMut::new(buffer)])?
            };
            if done != buffer.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    };
    let begun = clock.now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
    })?;
    Ok(clock.now() - begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (write, read) = direct_io(dir.path(), 10 << 20, 2).unwrap();
        assert!(write > 0.0 && read > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
