//! A file that is being written: an upload of several parts, which nobody sees before it is completed.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exobus_files::{AlignedBuffer, FileError, IoBuffer, Location, Planned, WriteFile, WriteRequest};
use uuid::Uuid;

use super::bucket::{Completed, Object};
use super::note::Note;

/// Stores take no parts that are smaller, but for the last one.
const TAKEN_BYTES_MIN: u64 = 5 << 20;
/// How long parts are best: the fewer there are, the less they cost.
pub(super) const PART_BYTES_MIN: u64 = 8_000_000;
/// Stores take 10 000: half of them, since a file may become longer than was planned.
const PARTS_PLANNED: u64 = 5_000;
const PARTS_MAX: u32 = 10_000;
/// How long a request has its buffer that is over.
const BACK_WITHIN: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Upload {
    /// Where the file will be.
    object: Object,
    /// What the store calls it.
    upload: String,
    /// What the upload is called in its object and, of a job, its note.
    id: String,
    /// Where the notes of the job are; `None`: it is no job's, and becomes an object at its end.
    notes: Option<Object>,
    name: String,
    /// How many requests make up a part.
    requests: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What the store calls the parts that it has.
    parts: BTreeMap<u32, String>,
    /// Requests of parts that are not complete.
    waiting: BTreeMap<u32, BTreeMap<u32, Bytes>>,
    bytes: u64,
    is_finished: bool,
}

/// A buffer that is the body of a request, and goes back when the request is over.
struct Lent {
    buffer: Option<IoBuffer>,
    used: usize,
    back: SyncSender<IoBuffer>,
}

impl Lent {
    /// The first bytes of a buffer, and where the buffer comes back.
    fn bytes(buffer: IoBuffer, used: usize) -> (Bytes, Receiver<IoBuffer>) {
        let (back, comes_back) = sync_channel(1);
        (Bytes::from_owner(Self { buffer: Some(buffer), used, back }), comes_back)
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.as_ref().expect("it goes back at the end")[..self.used]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            // Nobody may wait for it any more.
            let _ = self.back.try_send(buffer);
        }
    }
}

/// How many requests make up a part.
fn requests_of_a_part(planned: Planned) -> u32 {
    // One that stores take is a part, where memory is small.
    let part_bytes = if planned.request_bytes < TAKEN_BYTES_MIN { PART_BYTES_MIN } else { TAKEN_BYTES_MIN };
    let part_bytes = part_bytes.max(planned.bytes.div_ceil(PARTS_PLANNED));
    part_bytes.div_ceil(planned.request_bytes.max(1)).min(u64::from(u32::MAX)) as u32
}

impl Upload {
    /// Begins an upload to `object`; that of a job with a note of the file `name` in `notes`.
    pub(super) fn begin(object: Object, planned: Planned, job: Option<(Object, &str)>) -> Result<Self, FileError> {
        #[allow(clippy::disallowed_methods, reason = "a name that no other attempt has, in no simulation")]
        let id = Uuid::new_v4().simple().to_string();
        let upload = object.begin_upload(&id)?;
        let (notes, name) = job.map_or((None, ""), |(notes, name)| (Some(notes), name));
        let (requests, state) = (requests_of_a_part(planned), Mutex::default());
        let begun = Self { object, upload, id, notes, name: name.to_owned(), requests, state };
        if let Some(notes) = &begun.notes {
            notes.join(&begun.id).put(Note::begun(name, &begun.upload).encode())?;
        }
        Ok(begun)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn upload(&self, part: u32, bytes: Vec<Bytes>) -> Result<(), FileError> {
        let length: u64 = bytes.iter().map(|piece| piece.len() as u64).sum();
        if part >= PARTS_MAX {
            let reason = format!("more than {PARTS_MAX} parts of {length} bytes: more files are needed");
            let source = io::Error::new(io::ErrorKind::FileTooLarge, reason);
            return Err(FileError::io(self.object.location(), "upload to", 0, source));
        }
        let uploaded = self.object.upload_part(&self.upload, part, bytes)?;
        let mut state = self.state();
        state.bytes += length;
        state.parts.insert(part, uploaded);
        Ok(())
    }

    /// Gives it up: nobody will complete it.
    pub(super) fn give_up(&self) -> Result<(), FileError> {
        self.object.abort(&self.upload)?;
        self.notes.as_ref().map_or(Ok(()), |notes| notes.join(&self.id).delete_if(None))
    }
}

impl WriteFile for Upload {
    fn location(&self) -> &Location {
        self.object.location()
    }

    fn write(&self, request: WriteRequest) -> (IoBuffer, Result<(), FileError>) {
        let WriteRequest { index, used, buffer, .. } = request;
        let part = index / self.requests;
        if self.requests == 1 {
            let (length, (bytes, back)) = (buffer.len(), Lent::bytes(buffer, used));
            let uploaded = self.upload(part, vec![bytes]);
            // A request that was given up may have it as long as its connection has not ended.
            let buffer = back.recv_timeout(BACK_WITHIN);
            return (buffer.unwrap_or_else(|_| Box::new(AlignedBuffer::new(length))), uploaded);
        }
        let bytes = Bytes::copy_from_slice(&buffer[..used]);
        let complete = {
            let mut state = self.state();
            let waiting = state.waiting.entry(part).or_default();
            waiting.insert(index, bytes);
            match waiting.len() == self.requests as usize {
                true => state.waiting.remove(&part),
                false => None,
            }
        };
        (buffer, complete.map_or(Ok(()), |requests| self.upload(part, requests.into_values().collect())))
    }

    fn finish(&self, bytes: u64) -> Result<String, FileError> {
        let mut rest = std::mem::take(&mut self.state().waiting);
        if bytes == 0 {
            rest.insert(0, BTreeMap::from([(0, Bytes::new())]));
        }
        for (part, requests) in rest {
            self.upload(part, requests.into_values().collect())?;
        }
        let state = self.state();
        let (uploaded, parts) = (state.bytes, state.parts.values().cloned().collect::<Vec<_>>());
        drop(state);
        let path = || self.object.location().to_path_buf();
        if uploaded != bytes {
            let reason = format!("{uploaded} bytes were uploaded, not {bytes}");
            return Err(FileError::Damaged { path: path(), reason });
        }
        match &self.notes {
            Some(notes) => {
                let note = Note::begun(&self.name, &self.upload).whole(parts);
                notes.join(&self.id).put(note.encode())?;
            }
            None => match self.object.complete(&self.upload, parts)? {
                Completed::Done(_) => {}
                // A completion may have been done again whose answer was lost.
                _ if self.object.status_if_of(&self.id)?.is_some() => {}
                Completed::Taken => return Err(FileError::Exists { path: path() }),
                Completed::Gone => return Err(self.object.upload_is_gone()),
            },
        }
        self.state().is_finished = true;
        Ok(self.id.clone())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.state().is_finished {
            return;
        }
        if let Err(error) = self.give_up() {
            tracing::warn!(file = %self.object.location(), %error, "an upload was left behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_whole_requests_and_not_too_many() {
        let requests = |bytes, request_bytes| requests_of_a_part(Planned { bytes, request_bytes });
        assert_eq!(requests(0, 8_192_000), 1, "a request is as long as a part");
        assert_eq!(requests(0, 8 << 20), 1);
        assert_eq!(requests(0, 6 << 20), 1);
        assert_eq!(requests(0, 1 << 20), 8);
        assert_eq!(requests(1 << 40, 8 << 20), 27, "a file of 1 TiB has no more than 5 000");
        assert_eq!(requests(0, 0), 8_000_000);
    }
}
