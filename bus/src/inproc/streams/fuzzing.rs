//! What a damaged stream file could hold, as functions for fuzzing.

use std::path::Path;

use super::engine::Engine;
use super::file;
use super::records::{MemoryRecords, Records, SavedConsumer, SavedStream};
use crate::codec;

/// A record's row whose checksum fits: its key, times, subject and headers are what the bytes say.
pub fn stream_record(bytes: &[u8]) {
    let Some((numbers, rest)) = bytes.split_first_chunk::<26>() else { return };
    let long = |at: usize| u64::from_le_bytes(*numbers[at..].first_chunk().unwrap_or(&[0; 8]));
    let key = (u32::from(numbers[24]), long(0));
    let (subject, rest) = rest.split_at(usize::from(numbers[25]).min(rest.len()));
    let Ok(subject) = std::str::from_utf8(subject) else { return };
    let (headers, payload) = rest.split_at(rest.len() / 2);
    for headers in [headers, &[]] {
        let sum = file::checksum(key, &(long(8), long(16), subject, headers, payload));
        let row = (long(8), long(16), subject, headers, payload, sum);
        let Ok(stored) = file::stored(key, row) else { continue };
        let mut records = MemoryRecords::default();
        let saved: SavedStream = saved(key.0, long(8));
        if records.insert(key.0, &stored).is_ok() {
            let _ = Engine::default().restore(&mut records, long(16), saved, Vec::new());
        }
    }
}

fn saved(number: u32, last_sequence: u64) -> SavedStream {
    let pattern = crate::subject::Pattern::parse("a.>").expect("it is one");
    SavedStream { number, config: crate::streams::StreamConfig::new("s", pattern), last_sequence }
}

/// The rows of a stream and its consumer.
pub fn stream_rows(bytes: &[u8]) {
    let consumer = codec::decode::<SavedConsumer>(bytes);
    let stream = codec::decode::<SavedStream>(bytes);
    let number = stream.as_ref().map_or(0, |stream| stream.number);
    let stream = stream.unwrap_or_else(|_| saved(0, 0));
    assert!(consumer.is_err() || number == 0, "no row is both");
    let _ = Engine::default().restore(&mut MemoryRecords::default(), 1, stream, consumer.into_iter().collect());
}

/// A whole file, as if it had been a stream file; `folder` is where it is put.
pub fn open_stream_file(bytes: &[u8], folder: &Path) {
    let path = folder.join("streams");
    if std::fs::write(&path, bytes).is_ok() {
        let _ = file::restore(&path, 1);
    }
}

/// Rows of a stream and of a consumer: seeds.
pub fn saved_rows() -> Vec<Vec<u8>> {
    let consumer = SavedConsumer { config: crate::streams::ConsumerConfig::new("c"), next: 4, unacked: vec![1, 3] };
    [codec::encode(&saved(3, 9)), codec::encode(&consumer)].into_iter().flatten().map(Vec::from).collect()
}

/// A new stream file, made at `path`: a seed.
pub fn stream_files(path: &Path) -> Vec<Vec<u8>> {
    drop(file::restore(path, 1));
    std::fs::read(path).into_iter().collect()
}
