//! Streams in a file, by `redb`: a thread that commits whatever waits as one synced transaction.

use std::fs::OpenOptions;
use std::hash::Hasher;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use redb::backends::FileBackend;
use redb::{Builder, Database, ReadableTable, Table, TableDefinition, WriteTransaction};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use twox_hash::XxHash3_64;

use super::engine::{Answer, Command, Engine};
use super::records::{Records, SavedConsumer, SavedStream, Stored};
use crate::codec::{self, CodecError};
use crate::error::BusError;
use crate::message::{Headers, Message};
use crate::streams::Record;
use crate::subject::Subject;

/// Stream's number and sequence -> time, expiry (ms since 1970), subject, headers (codec), payload, checksum of all before.
type RecordValue = (u64, u64, &'static str, &'static [u8], &'static [u8], u64);
const RECORDS: TableDefinition<(u32, u64), RecordValue> = TableDefinition::new("records");
/// Name -> [`SavedStream`].
const STREAMS: TableDefinition<&str, &[u8]> = TableDefinition::new("streams");
/// Stream's number and name -> [`SavedConsumer`].
const CONSUMERS: TableDefinition<(u32, &str), &[u8]> = TableDefinition::new("consumers");

/// The version of the tables and of what is in them: the first byte of each stream's and consumer's row, and of the headers of records.
pub(super) const FILE_VERSION: u8 = 1;

/// Pages kept in memory; the library's default is 1 GiB.
const CACHE_BYTES: usize = 16 * 1024 * 1024;
/// Commands that wait at most; whoever comes beyond them waits for room, within its deadline.
const QUEUE_MAX: usize = 4096;
/// Commands that share a transaction at most.
const BATCH_MAX: usize = 1024;

struct Call {
    command: Command,
    now_ms: u64,
    answer: oneshot::Sender<Result<Answer, BusError>>,
}

/// Handle to the thread. When it is dropped the thread answers what is queued and ends.
pub(super) struct FileStreams {
    calls: Mutex<Option<mpsc::Sender<Call>>>,
    ended: watch::Receiver<bool>,
    /// Streams that were in the file.
    pub(super) names: Vec<String>,
}

impl FileStreams {
    pub(super) async fn open(path: &Path, now_ms: u64) -> Result<Self, BusError> {
        let (calls, queue) = mpsc::channel(QUEUE_MAX);
        let (end, ended) = watch::channel(false);
        let (opened, opening) = oneshot::channel();
        let path = path.to_owned();
        std::thread::Builder::new()
            .name("exobus-streams".to_owned())
            .spawn(move || {
                // Dropped last: by then the file is closed.
                let _end = Ended(end);
                match restore(&path, now_ms) {
                    Ok((database, engine)) => {
                        let _ = opened.send(Ok(engine.names()));
                        serve(&path, &database, engine, queue);
                    }
                    Err(error) => drop(opened.send(Err(error))),
                }
            })
            .map_err(|error| BusError::Storage(format!("start the thread: {error}")))?;
        let names =
            opening.await.map_err(|_| BusError::Storage("the thread ended while it opened the file".into()))??;
        Ok(Self { calls: Mutex::new(Some(calls)), ended, names })
    }

    pub(super) async fn call(&self, command: Command, now_ms: u64, deadline: Duration) -> Result<Answer, BusError> {
        let end = Instant::now() + deadline;
        let timed_out = |_| BusError::TimedOut { what: "streams in a file".to_owned(), after: deadline };
        let gone = || BusError::Storage("its thread has ended".to_owned());
        let calls = self.calls.lock().clone().ok_or(BusError::Closed)?;
        let (answer, answered) = oneshot::channel();
        let sent = timeout_at(end, calls.send(Call { command, now_ms, answer })).await.map_err(timed_out)?;
        drop(calls);
        sent.map_err(|_| gone())?;
        timeout_at(end, answered).await.map_err(timed_out)?.map_err(|_| gone())?
    }

    pub(super) async fn close(&self, deadline: Duration) -> Result<(), BusError> {
        self.calls.lock().take();
        let mut ended = self.ended.clone();
        match timeout(deadline, ended.wait_for(|ended| *ended)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(BusError::TimedOut { what: "close the file of streams".to_owned(), after: deadline }),
        }
    }
}

struct Ended(watch::Sender<bool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// A row cannot be read: where another release wrote the file, that is what is to be said.
fn unreadable(path: &Path, what: &str, error: CodecError) -> BusError {
    let CodecError::Version { found, known } = error else { return storage(what, error) };
    BusError::Storage(format!(
        "{} is a file of streams of version {found}, this exobus reads version {known}: use the exobus that wrote it",
        path.display()
    ))
}

fn storage(what: &str, error: impl std::fmt::Display) -> BusError {
    BusError::Storage(format!("{what}: {error}"))
}

/// redb panics on some damage instead of returning an error.
fn guarded<T>(path: &Path, call: impl FnOnce() -> Result<T, BusError>) -> Result<T, BusError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref().copied());
        Err(storage(&format!("{} is damaged", path.display()), text.unwrap_or("panic")))
    })
}

/// Opens the file and reads everything once.
pub(super) fn restore(path: &Path, now_ms: u64) -> Result<(Database, Engine), BusError> {
    guarded(path, || read(path, now_ms))
}

fn read(path: &Path, now_ms: u64) -> Result<(Database, Engine), BusError> {
    let shown = path.display();
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(|error| storage(&format!("{shown}"), error))?;
    let made = file.metadata().is_ok_and(|metadata| metadata.len() == 0);
    let backend = FileBackend::new(file).map_err(|error| storage(&format!("{shown}"), error))?;
    let database = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(backend);
    let database = database.map_err(|error| storage(&format!("{shown}"), error))?;
    let mut engine = Engine::default();
    let transaction = database.begin_write().map_err(|error| storage("begin", error))?;
    {
        let mut records = FileRecords::open(&transaction)?;
        let mut streams: Vec<SavedStream> = Vec::new();
        for row in records.streams.iter().map_err(|error| storage("read streams", error))? {
            let (_, value) = row.map_err(|error| storage("read streams", error))?;
            let stream = codec::decode_as(FILE_VERSION, value.value());
            streams.push(stream.map_err(|error| unreadable(path, "a stream's row", error))?);
        }
        for saved in streams {
            let consumers = records.consumers_of(saved.number)?;
            engine.restore(&mut records, now_ms, saved, consumers)?;
        }
    }
    transaction.commit().map_err(|error| storage("commit", error))?;
    if made {
        sync_folder(path)?;
    }
    Ok((database, engine))
}

/// A new file's name is durable only when its folder is synced.
fn sync_folder(path: &Path) -> Result<(), BusError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder: PathBuf = folder.map_or_else(|| PathBuf::from("."), Path::to_owned);
    let synced = std::fs::File::open(&folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| storage(&format!("sync {}", folder.display()), error))
}

fn serve(path: &Path, database: &Database, mut engine: Engine, mut queue: mpsc::Receiver<Call>) {
    let mut broken: Option<String> = None;
    while let Some(first) = queue.blocking_recv() {
        let mut calls = vec![first];
        while calls.len() < BATCH_MAX
            && let Ok(call) = queue.try_recv()
        {
            calls.push(call);
        }
        if let Some(reason) = &broken {
            calls.into_iter().for_each(|call| drop(call.answer.send(Err(BusError::Storage(reason.clone())))));
            continue;
        }
        let (commands, answers): (Vec<_>, Vec<_>) =
            calls.into_iter().map(|call| ((call.command, call.now_ms), call.answer)).unzip();
        match guarded(path, || commit(database, &mut engine, commands)) {
            Ok(results) => {
                for (answer, result) in answers.into_iter().zip(results) {
                    // Whoever asked may have stopped waiting.
                    let _ = answer.send(result);
                }
            }
            Err(error) => {
                // The engine is ahead of the file, and after a failed sync the file itself proves nothing.
                tracing::error!(file = %path.display(), %error, "streams cannot be written; they are closed");
                let reason = format!("closed after {error}");
                answers.into_iter().for_each(|answer| drop(answer.send(Err(BusError::Storage(reason.clone())))));
                broken = Some(reason);
            }
        }
    }
}

/// Does all commands in one transaction; answers may be given only after it.
fn commit(
    database: &Database,
    engine: &mut Engine,
    commands: Vec<(Command, u64)>,
) -> Result<Vec<Result<Answer, BusError>>, BusError> {
    let transaction = database.begin_write().map_err(|error| storage("begin", error))?;
    let mut results = Vec::with_capacity(commands.len());
    let changed = {
        let mut records = FileRecords::open(&transaction)?;
        for (command, now_ms) in commands {
            match engine.apply(&mut records, now_ms, command) {
                Err(error @ BusError::Storage(_)) => return Err(error),
                result => results.push(result),
            }
        }
        records.changed
    };
    if changed {
        transaction.commit().map_err(|error| storage("commit", error))?;
    } else {
        transaction.abort().map_err(|error| storage("abort", error))?;
    }
    Ok(results)
}

/// The tables within a transaction.
struct FileRecords<'t> {
    records: Table<'t, (u32, u64), RecordValue>,
    streams: Table<'t, &'static str, &'static [u8]>,
    consumers: Table<'t, (u32, &'static str), &'static [u8]>,
    changed: bool,
}

impl<'t> FileRecords<'t> {
    fn open(transaction: &'t WriteTransaction) -> Result<Self, BusError> {
        let failed = |error| storage("open a table", error);
        Ok(Self {
            records: transaction.open_table(RECORDS).map_err(failed)?,
            streams: transaction.open_table(STREAMS).map_err(failed)?,
            consumers: transaction.open_table(CONSUMERS).map_err(failed)?,
            changed: false,
        })
    }

    fn consumers_of(&self, stream: u32) -> Result<Vec<SavedConsumer>, BusError> {
        let failed = |error| storage("read consumers", error);
        let rows = self.consumers.range((stream, "")..(stream + 1, "")).map_err(failed)?;
        rows.map(|row| {
            let (_, value) = row.map_err(failed)?;
            codec::decode_as(FILE_VERSION, value.value()).map_err(|error| storage("a consumer's row", error))
        })
        .collect()
    }
}

pub(super) fn checksum(key: (u32, u64), value: &(u64, u64, &str, &[u8], &[u8])) -> u64 {
    let (time_ms, expires_ms, subject, headers, payload) = value;
    let mut hash = XxHash3_64::new();
    for number in [u64::from(key.0), key.1, *time_ms, *expires_ms, subject.len() as u64, headers.len() as u64] {
        hash.write(&number.to_le_bytes());
    }
    hash.write(subject.as_bytes());
    hash.write(headers);
    hash.write(payload);
    hash.finish()
}

/// Checks a row before anybody believes it.
pub(super) fn stored(key: (u32, u64), value: (u64, u64, &str, &[u8], &[u8], u64)) -> Result<Stored, BusError> {
    let (time_ms, expires_ms, subject, headers, payload, sum) = value;
    let damaged = |what: &dyn std::fmt::Display| {
        BusError::Storage(format!("record {} of stream number {} is damaged: {what}", key.1, key.0))
    };
    if checksum(key, &(time_ms, expires_ms, subject, headers, payload)) != sum {
        return Err(damaged(&"checksum"));
    }
    let subject = Subject::parse(subject).map_err(|error| damaged(&error))?;
    let headers: Headers = match headers.is_empty() {
        true => Headers::new(),
        false => codec::decode_as(FILE_VERSION, headers).map_err(|error| damaged(&error))?,
    };
    let message = Message { payload: Bytes::copy_from_slice(payload), headers };
    Ok(Stored { record: Record { sequence: key.1, subject, message }, time_ms, expires_ms })
}

impl Records for FileRecords<'_> {
    fn insert(&mut self, stream: u32, stored: &Stored) -> Result<(), BusError> {
        let Stored { record, time_ms, expires_ms } = stored;
        let headers = match record.message.headers.is_empty() {
            true => Bytes::new(),
            false => codec::encode_as(FILE_VERSION, &record.message.headers)
                .map_err(|error| storage("encode headers", error))?,
        };
        let (key, subject) = ((stream, record.sequence), record.subject.as_str());
        let payload: &[u8] = &record.message.payload;
        let sum = checksum(key, &(*time_ms, *expires_ms, subject, &headers, payload));
        self.changed = true;
        let value = (*time_ms, *expires_ms, subject, &headers[..], payload, sum);
        self.records.insert(key, value).map_err(|error| storage("insert", error))?;
        Ok(())
    }

    fn get(&mut self, stream: u32, sequence: u64) -> Result<Option<Stored>, BusError> {
        let key = (stream, sequence);
        let found = self.records.get(key).map_err(|error| storage("read", error))?;
        found.map(|value| stored(key, value.value())).transpose()
    }

    fn next(&mut self, stream: u32, from: u64) -> Result<Option<Stored>, BusError> {
        let failed = |error| storage("read", error);
        let mut rows = self.records.range((stream, from)..=(stream, u64::MAX)).map_err(failed)?;
        let Some(row) = rows.next() else { return Ok(None) };
        let (key, value) = row.map_err(failed)?;
        stored(key.value(), value.value()).map(Some)
    }

    fn remove(&mut self, stream: u32, sequence: u64) -> Result<(), BusError> {
        self.changed = true;
        self.records.remove((stream, sequence)).map_err(|error| storage("remove", error))?;
        Ok(())
    }

    fn clear(&mut self, stream: u32) -> Result<(), BusError> {
        self.changed = true;
        let failed = |error| storage("remove", error);
        self.records.retain_in((stream, 0)..=(stream, u64::MAX), |_, _| false).map_err(failed)?;
        self.consumers.retain_in((stream, "")..(stream + 1, ""), |_, _| false).map_err(failed)
    }

    fn save_stream(&mut self, stream: &SavedStream) -> Result<(), BusError> {
        let row = codec::encode_as(FILE_VERSION, stream).map_err(|error| storage("encode a stream", error))?;
        self.changed = true;
        self.streams.insert(stream.config.name.as_str(), &row[..]).map_err(|error| storage("insert", error))?;
        Ok(())
    }

    fn drop_stream(&mut self, name: &str) -> Result<(), BusError> {
        self.changed = true;
        self.streams.remove(name).map_err(|error| storage("remove", error))?;
        Ok(())
    }

    fn save_consumer(&mut self, stream: u32, consumer: &SavedConsumer) -> Result<(), BusError> {
        let row = codec::encode_as(FILE_VERSION, consumer).map_err(|error| storage("encode a consumer", error))?;
        self.changed = true;
        let key = (stream, consumer.config.name.as_str());
        self.consumers.insert(key, &row[..]).map_err(|error| storage("insert", error))?;
        Ok(())
    }

    fn drop_consumer(&mut self, stream: u32, name: &str) -> Result<(), BusError> {
        self.changed = true;
        self.consumers.remove((stream, name)).map_err(|error| storage("remove", error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records that were kept before must be known for ever.
    #[test]
    fn the_stored_sample_is_what_is_written_and_read() {
        let stored_rows = &include_bytes!("../../../tests/samples/stream-file-1.bin")[..];
        let subject = crate::subject::Pattern::parse("a.>").unwrap();
        let stream =
            SavedStream { number: 3, config: crate::streams::StreamConfig::new("s", subject), last_sequence: 9 };
        let consumer = crate::streams::ConsumerConfig::new("c");
        let consumer = SavedConsumer { config: consumer, next: 4, unacked: vec![1, 3] };
        let mut headers = Headers::new();
        headers.insert("name", "value").unwrap();
        let rows = [
            codec::encode_as(FILE_VERSION, &stream).unwrap(),
            codec::encode_as(FILE_VERSION, &consumer).unwrap(),
            codec::encode_as(FILE_VERSION, &headers).unwrap(),
        ];
        let sum = checksum((3, 9), &(1_790_000_000_000, 0, "a.b", &rows[2], b"payload"));
        let mut written: Vec<u8> = sum.to_le_bytes().to_vec();
        rows.iter().for_each(|row| written.extend([&(row.len() as u32).to_le_bytes()[..], row].concat()));
        assert!(written == stored_rows, "other bytes than in the sample");
        let (sum, mut rest) = stored_rows.split_first_chunk::<8>().unwrap();
        let mut next = || {
            let (length, behind) = rest.split_first_chunk::<4>().unwrap();
            let (row, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
            rest = behind;
            row
        };
        let read: SavedStream = codec::decode_as(1, next()).unwrap();
        assert_eq!((read.number, read.config, read.last_sequence), (3, stream.config, 9));
        let read: SavedConsumer = codec::decode_as(1, next()).unwrap();
        assert_eq!((read.config, read.next, read.unacked), (consumer.config, 4, vec![1, 3]));
        let row = (1_790_000_000_000, 0, "a.b", next(), &b"payload"[..], u64::from_le_bytes(*sum));
        let read = stored((3, 9), row).unwrap();
        assert_eq!((read.record.message.headers, &read.record.message.payload[..]), (headers, &b"payload"[..]));
    }

    #[test]
    fn a_file_of_another_version_is_refused_with_both_numbers_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("streams");
        let (database, mut engine) = restore(&path, 1).unwrap();
        let config = crate::streams::StreamConfig::new("s", crate::subject::Pattern::parse("a.>").unwrap());
        commit(&database, &mut engine, vec![(Command::Open(config), 1)]).unwrap()[0].as_ref().unwrap();
        let give = |database: &Database, version: u8| {
            let transaction = database.begin_write().unwrap();
            let mut streams = transaction.open_table(STREAMS).unwrap();
            let mut row = streams.get("s").unwrap().unwrap().value().to_vec();
            row[0] = version;
            streams.insert("s", &row[..]).unwrap();
            drop(streams);
            transaction.commit().unwrap();
        };
        let mut database = Some(database);
        for version in [0, FILE_VERSION + 1] {
            give(&database.take().unwrap(), version);
            let Err(error) = restore(&path, 1).map(drop) else { panic!("version {version} is read") };
            let both = format!(
                "{} is a file of streams of version {version}, this exobus reads version 1: use the",
                path.display()
            );
            assert!(error.to_string().contains(&both), "{error}");
            database = Some(Builder::new().create(&path).unwrap());
        }
        give(&database.take().unwrap(), FILE_VERSION);
        let (_, engine) = restore(&path, 1).unwrap();
        assert_eq!(engine.names(), ["s"], "what is in it is there");
    }

    /// Found by fuzzing: some of these made redb panic.
    #[test]
    fn a_file_that_is_damaged_anywhere_is_an_error_and_no_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("streams");
        drop(restore(&path, 1).unwrap());
        let whole = std::fs::read(&path).unwrap();
        let mut damaged = 0;
        for at in (0..whole.len()).step_by(4096) {
            let mut torn = whole.clone();
            let end = whole.len().min(at + 64);
            torn[at..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
            std::fs::write(&path, &torn).unwrap();
            match restore(&path, 1) {
                Err(BusError::Storage(_)) => damaged += 1,
                Err(other) => panic!("{other}"),
                // Nothing was there that counts, or it was there twice.
                Ok(_) => {}
            }
        }
        assert!(damaged > 0, "nothing of it was noticed");
    }
}
