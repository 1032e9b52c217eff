//! Temporary folders that do not pile up: removed by their owner, by a second Ctrl-C, or, after a `kill -9` or a power cut,
//! by the next process that makes one of the same kind, and by the one after that where this one was killed over it.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::interrupt;

/// Held by the owner as long as it lives; whoever can take it has found a folder that nobody owns.
const LOCK: &str = ".lock";

/// Others remove a folder that they see before it is locked; so often another one is made.
const TRIES: u32 = 100;

/// A folder that goes with its owner.
#[derive(Debug)]
pub struct Temporary {
    path: PathBuf,
    /// Held until the folder is gone.
    _lock: File,
}

impl Temporary {
    /// Makes a folder `<prefix><something>` of mode 0700 in `parent`, and removes those that were left there.
    ///
    /// # Errors
    /// When it cannot be made; what was left and cannot be removed stays.
    pub fn make(parent: &Path, prefix: &str) -> io::Result<Self> {
        remove_left(parent, prefix);
        let mut tries = 0;
        loop {
            let path = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?.keep();
            match lock(&path, true) {
                Ok(lock) => {
                    interrupt::remove_when_forced(&path);
                    return Ok(Self { path, _lock: lock });
                }
                // Somebody took it for one that was left, while it had no lock.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::WouldBlock) => {
                    tries += 1;
                    if tries == TRIES {
                        return Err(error);
                    }
                }
                Err(error) => {
                    // Nothing is in it yet.
                    let _ = fs::remove_dir(&path);
                    return Err(error);
                }
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "temporary folder cannot be removed");
        }
    }
}

/// The lock of a folder: `NotFound` where it has none, or has gone with it meanwhile; `WouldBlock` where its owner lives.
fn lock(folder: &Path, make: bool) -> io::Result<File> {
    let path = folder.join(LOCK);
    let lock = if make { File::create_new(&path)? } else { File::open(&path)? };
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    let (held, there) = (lock.metadata()?, fs::metadata(&path)?);
    match (held.dev(), held.ino()) == (there.dev(), there.ino()) {
        true => Ok(lock),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Removes a folder with all that is in it. Who is killed over it leaves one that [`remove_left`] finds.
///
/// # Errors
/// Something in it cannot be removed.
pub fn remove(folder: &Path) -> io::Result<()> {
    for path in removal(folder)? {
        remove_one(&path)?;
    }
    Ok(())
}

/// What there is to be removed, in order: the lock goes behind everything that is in the folder, and then the folder.
fn removal(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?,
    };
    let lock = folder.join(LOCK);
    paths.retain(|path| *path != lock);
    paths.extend([lock, folder.to_owned()]);
    Ok(paths)
}

fn remove_one(path: &Path) -> io::Result<()> {
    let removed = fs::symlink_metadata(path).and_then(|metadata| match metadata.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    });
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn remove_left(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)) {
        let folder = entry.path();
        match lock(&folder, false) {
            Ok(_lock) => {
                tracing::info!(path = %folder.display(), "removing what a killed process left");
                // What another user left is that user's.
                let _ = remove(&folder);
            }
            // Without a lock it is not ours, unless its owner was killed before it had one or behind that: then it is empty.
            Err(_) => drop(fs::remove_dir(&folder)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that a killed process left: its lock is nobody's.
    fn left(parent: &Path) -> PathBuf {
        let dead = parent.join("exobus-x-dead");
        fs::create_dir_all(dead.join("local/index")).unwrap();
        for file in ["local/0.spill", "local/lock", "local/index/db", "data", LOCK] {
            fs::write(dead.join(file), "left").unwrap();
        }
        dead
    }

    #[test]
    fn what_a_killed_process_left_goes_and_what_lives_stays() {
        let parent = tempfile::tempdir().unwrap();
        let living = Temporary::make(parent.path(), "exobus-x-").unwrap();
        let dead = left(parent.path());
        let foreign = parent.path().join("exobus-x-foreign");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("data"), "theirs").unwrap();

        let other = Temporary::make(parent.path(), "exobus-x-").unwrap();
        assert!(!dead.exists());
        assert!(living.path().exists() && other.path().exists() && foreign.join("data").exists());
        let path = living.path().to_owned();
        fs::write(path.join("data"), "mine").unwrap();
        drop(living);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_left_of_a_folder_goes_wherever_its_cleaner_was_killed() {
        let parent = tempfile::tempdir().unwrap();
        let steps = removal(&left(parent.path())).unwrap().len();
        assert_eq!(steps, 4, "two in it, its lock, itself");
        for killed_behind in 0..=steps {
            let dead = left(parent.path());
            for path in &removal(&dead).unwrap()[..killed_behind] {
                remove_one(path).unwrap();
            }
            drop(Temporary::make(parent.path(), "exobus-x-").unwrap());
            let left: Vec<_> = fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert_eq!(left, [] as [PathBuf; 0], "killed behind {killed_behind} of {steps} steps");
        }
    }

    #[test]
    fn processes_that_clean_at_the_same_time_each_keep_their_own() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let own = Temporary::make(parent.path(), "exobus-x-").unwrap();
                        fs::write(own.path().join("data"), "mine").unwrap();
                        assert_eq!(fs::read(own.path().join("data")).unwrap(), b"mine");
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
