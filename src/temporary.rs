//! Temporary folders that do not pile up: removed by their owner, by a second Ctrl-C, or, after a `kill -9` or a power cut,
//! by the next process that makes one of the same kind.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::interrupt;

/// Held by the owner as long as it lives; whoever can take it has found a folder that nobody owns.
const LOCK: &str = ".lock";

/// A folder that goes with its owner.
#[derive(Debug)]
pub struct Temporary {
    // Dropped first: the folder goes while it is still ours.
    folder: TempDir,
    _lock: File,
}

impl Temporary {
    /// Makes a folder `<prefix><something>` of mode 0700 in `parent`, and removes those that were left there.
    ///
    /// # Errors
    /// When it cannot be made; what was left and cannot be removed stays.
    pub fn make(parent: &Path, prefix: &str) -> io::Result<Self> {
        remove_left(parent, prefix);
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        let lock = File::create(folder.path().join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        interrupt::remove_when_forced(folder.path());
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn remove_left(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)) {
        // One without a lock is being made now, or is not ours at all.
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            tracing::info!(path = %entry.path().display(), "removing what a killed process left");
            // What another user left is that user's.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_goes_and_what_lives_stays() {
        let parent = tempfile::tempdir().unwrap();
        let living = Temporary::make(parent.path(), "exobus-x-").unwrap();
        let dead = parent.path().join("exobus-x-dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        fs::write(dead.join("data"), "left").unwrap();
        let foreign = parent.path().join("exobus-x-foreign");
        fs::create_dir(&foreign).unwrap();

        let other = Temporary::make(parent.path(), "exobus-x-").unwrap();
        assert!(!dead.exists());
        assert!(living.path().exists() && other.path().exists() && foreign.exists());
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
    }
}
