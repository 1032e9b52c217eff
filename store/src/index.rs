//! The index of a directory's spill files, in `sled`: one entry per closed file, so that a restart reads one run per
//! file instead of two, and knows which files to expect.
//!
//! Nothing lives only here. sled 0.34's `flush` makes no fsync and a power cut can leave it unopenable, or panicking; so
//! whatever is wrong with it, it is set aside, a new one is made, and the footers are read. A wrong entry does no harm
//! either: the payload it points to has its own checksum. Kept by stores that keep their files; a store that deletes
//! everything at the end needs none, and opening sled (tens of milliseconds) would delay it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::Duration,
};

use tracing::warn;

use crate::footer::Summary;

/// sled's default cache is 1 GB.
const CACHE_BYTES: u64 = 16 << 20;

/// See the module. Every error is logged and swallowed: the worst that can happen is that a footer is read again.
pub(crate) struct Index {
    db: sled::Db,
}

/// Result of opening.
pub(crate) struct Opened {
    /// `None`: not even a new one can be made.
    pub index: Option<Index>,
    /// What was wrong with the one that was there.
    pub damage: Option<String>,
}

impl Index {
    /// Opens or makes the index in a directory of its own.
    pub fn open(dir: &Path) -> Opened {
        let first = try_open(dir);
        let Err(reason) = first else { return Opened { index: first.ok(), damage: None } };
        let aside = set_aside(dir);
        warn!(path = %dir.display(), %reason, aside = ?aside, "index of spill files is damaged and made anew");
        match try_open(dir) {
            Ok(index) => Opened { index: Some(index), damage: Some(reason) },
            Err(again) => {
                warn!(path = %dir.display(), reason = %again, "no index of spill files can be made, going on without");
                Opened { index: None, damage: Some(reason) }
            }
        }
    }

    /// Where the footer of a file is, if it is known.
    pub fn get(&self, path: &Path) -> Option<Summary> {
        let value = guarded(|| self.db.get(key(path)))?;
        rmp_serde::from_slice(&value?).ok()
    }

    /// A file got its footer.
    pub fn insert(&self, path: &Path, summary: &Summary) {
        match rmp_serde::to_vec_named(summary) {
            Ok(value) => drop(guarded(|| self.db.insert(key(path), value))),
            Err(error) => warn!(%error, "entry of the index cannot be encoded"),
        }
    }

    /// A file was deleted.
    pub fn remove(&self, path: &Path) {
        guarded(|| self.db.remove(key(path)));
    }

    /// Names of all files it knows.
    pub fn names(&self) -> Vec<Vec<u8>> {
        guarded(|| self.db.iter().keys().map(|key| key.map(|key| key.to_vec())).collect::<Result<Vec<_>, _>>())
            .unwrap_or_default()
    }

    /// Forgets a file by the name that [`Index::names`] gave.
    pub fn remove_name(&self, name: &[u8]) {
        guarded(|| self.db.remove(name));
    }
}

fn key(path: &Path) -> Vec<u8> {
    path.file_name().unwrap_or_default().as_encoded_bytes().to_vec()
}

/// sled panics on some damage instead of returning an error.
fn guarded<T>(call: impl FnOnce() -> sled::Result<T>) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Some(value),
        Ok(Err(error)) => {
            warn!(%error, "index of spill files failed");
            None
        }
        Err(_) => {
            warn!("index of spill files panicked");
            None
        }
    }
}

/// How often a lock is asked for that is held, and how long it is waited for each time: 10 s in all.
const LOCK_TRIES: usize = 1000;
const LOCK_WAIT: Duration = Duration::from_millis(10);

/// Opens it. Nobody else uses it, since its directory is locked: a lock of its own is held by one that was closed in this process, as long as threads of sled let go of it, which they do when a
/// processor has time for them.
fn try_open(dir: &Path) -> Result<Index, String> {
    let mut tries = 0;
    loop {
        tries += 1;
        match open_once(dir) {
            Err(error) if error.contains(LOCK_HELD) && tries < LOCK_TRIES => wait(),
            opened => return opened,
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "sled tells nobody when it lets go of its lock")]
fn wait() {
    std::thread::sleep(LOCK_WAIT);
}

/// What sled says of a lock that is held: it has no error of its own for that.
const LOCK_HELD: &str = "could not acquire lock";

fn open_once(dir: &Path) -> Result<Index, String> {
    let config = sled::Config::new()
        .path(dir)
        .cache_capacity(CACHE_BYTES)
        .mode(sled::Mode::LowSpace)
        // Its own thread would flush twice a second; there is nothing to lose.
        .flush_every_ms(None);
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let db = config.open()?;
        // Opening reads lazily; damage shows when every entry is read.
        db.iter().try_for_each(|entry| entry.map(drop))?;
        Ok(db)
    }));
    match opened {
        Ok(Ok(db)) => Ok(Index { db }),
        Ok(Err(error)) => Err(sled::Error::to_string(&error)),
        Err(panic) => Err(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "panic".to_owned())),
    }
}

fn set_aside(dir: &Path) -> Option<PathBuf> {
    for nth in 0..100 {
        let aside = dir.with_extension(format!("damaged-{nth}"));
        if !aside.exists() {
            return std::fs::rename(dir, &aside).ok().map(|()| aside);
        }
    }
    std::fs::remove_dir_all(dir).ok();
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footer::Location;

    fn summary(size: u64) -> Summary {
        Summary { version: 1, size, blocks: 3, payload: Location { offset: size - 8192, bytes: 100, checksum: 7 } }
    }

    #[test]
    fn entries_survive_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("index");
        let opened = Index::open(&place);
        assert_eq!(opened.damage, None);
        let index = opened.index.unwrap();
        index.insert(Path::new("/x/a.spill"), &summary(1 << 20));
        index.insert(Path::new("/x/b.spill"), &summary(2 << 20));
        index.remove(Path::new("/x/b.spill"));
        drop(index);
        let index = Index::open(&place).index.unwrap();
        assert_eq!(index.get(Path::new("/x/a.spill")), Some(summary(1 << 20)));
        assert_eq!(index.get(Path::new("/x/b.spill")), None);
        assert_eq!(index.names(), [b"a.spill"]);
    }

    #[test]
    fn one_that_is_still_being_closed_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("index");
        let held = Index::open(&place).index.unwrap();
        held.insert(Path::new("/x/a.spill"), &summary(1 << 20));
        assert!(open_once(&place).is_err_and(|error| error.contains(LOCK_HELD)));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                (0..20).for_each(|_| wait());
                drop(held);
            });
            let opened = Index::open(&place);
            assert_eq!(opened.damage, None);
            assert_eq!(opened.index.unwrap().get(Path::new("/x/a.spill")), Some(summary(1 << 20)));
        });
    }

    #[test]
    fn entries_without_a_version_are_of_the_first() {
        #[derive(serde::Serialize)]
        struct Before {
            size: u64,
            blocks: u64,
            payload: Location,
        }
        let Summary { size, blocks, payload, .. } = summary(1 << 20);
        let bytes = rmp_serde::to_vec_named(&Before { size, blocks, payload }).unwrap();
        assert_eq!(rmp_serde::from_slice::<Summary>(&bytes).unwrap(), summary(1 << 20));
    }

    #[test]
    fn a_damaged_one_is_set_aside_and_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("index");
        // A database that cannot be opened at all; most other damage sled repairs by forgetting what it had, and then
        // the footers are read for want of entries.
        std::fs::create_dir_all(place.join("db")).unwrap();
        let opened = Index::open(&place);
        assert!(opened.damage.is_some());
        assert!(dir.path().join("index.damaged-0").join("db").exists());
        let index = opened.index.unwrap();
        index.insert(Path::new("a"), &summary(1 << 20));
        assert_eq!(index.get(Path::new("a")), Some(summary(1 << 20)));
    }
}
