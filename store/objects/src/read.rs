//! Reading an object, of whatever store: ranges, several at a time, each gone on with where its body broke.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exobus_files::{Access, FileError, FileStatus, Location, ReadFile, Version};
use futures::StreamExt as _;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::failure::{failed, given_up};
use crate::retry::{Attempts, PATIENCE};
use crate::runtime::{spawn, wait_for};

/// A request asks for this much at least, where there is as much: each costs its time and its price.
const PIECE_BYTES: usize = 8 << 20;
/// Pieces of one read that are under way at a time.
const PIECES_MAX: usize = 4;
/// Frames of bodies that wait to be copied.
const FRAMES_MAX: usize = 8;
/// Who reads front to back in small requests has so much read at a time.
const AHEAD_BYTES: usize = 1 << 20;

/// Length and version of an object.
pub(crate) fn status_of(meta: &ObjectMeta) -> FileStatus {
    let version = match &meta.e_tag {
        Some(tag) => Version::of(tag.as_bytes()),
        None => Version::of(&meta.last_modified.timestamp().to_le_bytes()),
    };
    FileStatus { bytes: meta.size, version }
}

/// An object that is read on the condition that it is still the same.
#[derive(Debug)]
pub(crate) struct ObjectFile {
    store: Arc<dyn ObjectStore>,
    location: Location,
    key: Path,
    meta: ObjectMeta,
    /// What was read ahead, and where it stands; `None`: nothing is read ahead.
    ahead: Option<Mutex<(u64, Vec<u8>)>>,
}

impl ObjectFile {
    /// Looks an object up.
    pub(crate) fn open(
        store: Arc<dyn ObjectStore>,
        (location, key): (Location, Path),
        access: Access,
    ) -> Result<Arc<Self>, FileError> {
        let meta = head(&store, &key).map_err(|error| failed(&location, "open", &error))?;
        let ahead = (access == Access::Cached).then(Mutex::default);
        Ok(Arc::new(Self { store, location, key, meta, ahead }))
    }

    /// Reads exactly these bytes.
    fn fetch(&self, offset: u64, into: &mut [u8]) -> Result<(), FileError> {
        let piece_bytes = into.len().div_ceil(PIECES_MAX).max(PIECE_BYTES.min(into.len()));
        if piece_bytes == 0 {
            return Ok(());
        }
        let (sender, received) = channel();
        let flow = Arc::new(Semaphore::new(FRAMES_MAX));
        let mut pieces: Vec<(&mut [u8], usize)> = into.chunks_mut(piece_bytes).map(|piece| (piece, 0)).collect();
        for (index, (piece, _)) in pieces.iter().enumerate() {
            let from = offset + (index * piece_bytes) as u64;
            let range = from..from + piece.len() as u64;
            let object = (self.store.clone(), self.key.clone(), self.meta.clone());
            let to = Frames { index, sender: sender.clone(), flow: flow.clone() };
            spawn(async move {
                if let Err(error) = fetch_piece(object, range, &to).await {
                    let _ = to.sender.send((index, Err(error)));
                }
            });
        }
        drop(sender);
        let mut outcome = Ok(());
        for (index, frame) in &received {
            match frame {
                Ok(bytes) => {
                    let (piece, filled) = &mut pieces[index];
                    piece[*filled..*filled + bytes.len()].copy_from_slice(&bytes);
                    *filled += bytes.len();
                    flow.add_permits(1);
                }
                Err(error) => {
                    outcome = Err(failed(&self.location, "read", &error));
                    break;
                }
            }
        }
        // Those that wait with a frame which nobody will copy end.
        flow.close();
        outcome?;
        match pieces.iter().all(|(piece, filled)| *filled == piece.len()) {
            true => Ok(()),
            false => Err(failed(&self.location, "read", &ended(&self.key))),
        }
    }

    /// Reads from what was read ahead, or ahead.
    fn fetch_ahead(&self, ahead: &Mutex<(u64, Vec<u8>)>, offset: u64, into: &mut [u8]) -> Result<(), FileError> {
        let mut ahead = ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let has = |ahead: &(u64, Vec<u8>)| {
            let from = offset.checked_sub(ahead.0)? as usize;
            ahead.1.get(from..from.checked_add(into.len())?).map(|_| from)
        };
        let from = match has(&ahead) {
            Some(from) => from,
            None => {
                let bytes = (self.meta.size - offset).min(AHEAD_BYTES as u64) as usize;
                let mut read = std::mem::take(&mut ahead.1);
                read.resize(bytes, 0);
                self.fetch(offset, &mut read)?;
                *ahead = (offset, read);
                0
            }
        };
        into.copy_from_slice(&ahead.1[from..from + into.len()]);
        Ok(())
    }
}

impl ReadFile for ObjectFile {
    fn location(&self) -> &Location {
        &self.location
    }

    fn status(&self) -> Result<FileStatus, FileError> {
        let meta = head(&self.store, &self.key).map_err(|error| failed(&self.location, "look up", &error))?;
        Ok(status_of(&meta))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], needed: usize) -> Result<usize, FileError> {
        assert!(needed <= buffer.len(), "{needed} bytes into a buffer of {}", buffer.len());
        let there = self.meta.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if there < needed {
            let (path, expected) = (self.location.to_path_buf(), offset + needed as u64);
            return Err(FileError::EndedEarly { path, offset: offset.max(self.meta.size), expected });
        }
        if there == 0 {
            return Ok(0);
        }
        let into = &mut buffer[..there];
        match &self.ahead {
            Some(ahead) if there < AHEAD_BYTES / 2 => self.fetch_ahead(ahead, offset, into)?,
            _ => self.fetch(offset, into)?,
        }
        Ok(there)
    }
}

/// What is known of an object.
fn head(store: &Arc<dyn ObjectStore>, key: &Path) -> Result<ObjectMeta, Error> {
    let (store, key) = (store.clone(), key.clone());
    wait_for(async move { store.head(&key).await })
}

/// Where the frames of a piece go.
struct Frames {
    index: usize,
    sender: Sender<(usize, Result<Bytes, Error>)>,
    flow: Arc<Semaphore>,
}

/// Asks for a range until all of it has come, or nobody wants it.
async fn fetch_piece(
    (store, key, meta): (Arc<dyn ObjectStore>, Path, ObjectMeta),
    range: std::ops::Range<u64>,
    to: &Frames,
) -> Result<(), Error> {
    // One that is weak says nothing about bytes.
    let tag = meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
    let (mut at, mut attempts, mut first_failed) = (range.start, Attempts::default(), None);
    while at < range.end && !to.flow.is_closed() {
        let wanted = Some(GetRange::Bounded(at..range.end));
        let options = GetOptions { range: wanted, if_match: tag.clone(), ..GetOptions::default() };
        let result = store.get_opts(&key, options).await?;
        if status_of(&result.meta) != status_of(&meta) {
            return Err(Error::Precondition { path: key.to_string(), source: "it has another version by now".into() });
        }
        let mut body = result.into_stream();
        let mut broken = None;
        while at < range.end
            && let Some(frame) = body.next().await
        {
            match frame {
                Ok(mut bytes) => {
                    bytes.truncate((range.end - at) as usize);
                    at += bytes.len() as u64;
                    (attempts, first_failed) = (Attempts::default(), None);
                    match to.flow.acquire().await {
                        Ok(permit) => permit.forget(),
                        Err(_) => return Ok(()),
                    }
                    if to.sender.send((to.index, Ok(bytes))).is_err() {
                        return Ok(());
                    }
                }
                Err(error) => {
                    broken = Some(error);
                    break;
                }
            }
        }
        // Its request is over, whatever has come of it.
        drop(body);
        if at < range.end {
            let now = Instant::now();
            let since = now - *first_failed.get_or_insert(now);
            match attempts.failed(since, PATIENCE, rand::random(), None) {
                Some(wait) => sleep(wait).await,
                None => return Err(broken.unwrap_or_else(|| ended(&key))),
            }
        }
    }
    Ok(())
}

fn ended(key: &Path) -> Error {
    Error::Generic { store: "S3", source: format!("the answer for {key} ends before its end, again and again").into() }
}

/// Does a small read again whose body broke.
pub(crate) fn again_if_broken<T>(read: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let mut attempts = Attempts::default();
    loop {
        let error = match read() {
            Ok(read) => return Ok(read),
            Err(error) => error,
        };
        let is_broken = given_up(&error).is_some_and(|given_up| given_up.attempts == 0);
        let wait = attempts.failed(Duration::ZERO, PATIENCE, rand::random(), None);
        match wait.filter(|_| is_broken && attempts.made() < 10) {
            Some(wait) => wait_for(async move { sleep(wait).await }),
            None => return Err(error),
        }
    }
}
