//! Record batches whose buffers are compressed, made such as are not: each buffer inflated into just the bytes that it says it has.

use std::io::Read;
use std::sync::Arc;

use arrow_buffer::Buffer;
use arrow_ipc::{BodyCompressionMethod, CompressionType, FieldNode, RecordBatch, RecordBatchBuilder};
use flatbuffers::{FlatBufferBuilder, WIPOffset};

use super::super::memory::MemoryBudget;
use super::message::GrantedBuffer;
use crate::ELEMENTS_MAX;

/// Why a batch is none.
pub(super) enum BatchRefused {
    Damaged(String),
    NotRead(String),
    Memory(super::super::memory::MemoryDenied),
}

impl From<&str> for BatchRefused {
    fn from(what: &str) -> Self {
        Self::Damaged(what.to_owned())
    }
}

/// Checks that the buffers of a batch are in its body, and that its arrays are no longer than any may be; whether some of them begin where the library would
/// copy them.
pub(super) fn check(batch: &RecordBatch<'_>, body: &Buffer) -> Result<bool, BatchRefused> {
    let is_count = |count: i64| u64::try_from(count).is_ok_and(|count| count <= ELEMENTS_MAX);
    if !is_count(batch.length()) {
        return Err(BatchRefused::Damaged(format!("a batch of {} rows; it may have {ELEMENTS_MAX}", batch.length())));
    }
    let nodes = batch.nodes().ok_or("a batch without arrays")?;
    if !nodes.iter().all(|node| is_count(node.length()) && (0..=node.length()).contains(&node.null_count())) {
        return Err("an array with more values or nulls than there may be".into());
    }
    let mut is_copied = false;
    for buffer in batch.buffers().ok_or("a batch without buffers")? {
        let end = buffer.offset().checked_add(buffer.length());
        let is_within =
            buffer.offset() >= 0 && buffer.length() >= 0 && end.is_some_and(|end| end as u64 <= body.len() as u64);
        if !is_within {
            return Err("a buffer that is not within its message".into());
        }
        is_copied |= buffer.offset() % 16 != 0;
    }
    Ok(is_copied)
}

/// The body and the record batch of buffers that are inflated, in `builder`.
pub(super) fn inflate<'b>(
    batch: &RecordBatch<'_>,
    body: &Buffer,
    builder: &mut FlatBufferBuilder<'b>,
    budget: &Arc<dyn MemoryBudget>,
) -> Result<(Buffer, WIPOffset<RecordBatch<'b>>), BatchRefused> {
    let compression = batch.compression().ok_or("a batch that is not compressed")?;
    if compression.method() != BodyCompressionMethod::BUFFER {
        return Err(BatchRefused::NotRead("it is compressed in a way that this release does not know".to_owned()));
    }
    let codec = compression.codec();
    if codec != CompressionType::ZSTD && codec != CompressionType::LZ4_FRAME {
        return Err(BatchRefused::NotRead(format!(
            "it is compressed with {codec:?}, which this release does not read"
        )));
    }
    let stored: Vec<&[u8]> = batch
        .buffers()
        .ok_or("a batch without buffers")?
        .iter()
        .map(|buffer| &body.as_slice()[buffer.offset() as usize..(buffer.offset() + buffer.length()) as usize])
        .collect();
    let mut at: u64 = 0;
    let mut places = Vec::with_capacity(stored.len());
    for stored in &stored {
        let bytes = inflated_bytes(stored)?;
        places.push((at, bytes));
        let next = at.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(64));
        at = next.filter(|next| i64::try_from(*next).is_ok()).ok_or("buffers that are longer than any may be")?;
    }
    let mut inflated = GrantedBuffer::new(at, budget).map_err(BatchRefused::Memory)?;
    for (stored, (at, bytes)) in stored.iter().zip(&places) {
        let (at, bytes) = (*at as usize, *bytes as usize);
        inflate_one(codec, stored, &mut inflated.bytes[at..at + bytes]).map_err(BatchRefused::Damaged)?;
    }
    let nodes: Vec<FieldNode> = batch.nodes().ok_or("a batch without arrays")?.iter().copied().collect();
    let nodes = builder.create_vector(&nodes);
    let buffers: Vec<_> = places.iter().map(|(at, bytes)| arrow_ipc::Buffer::new(*at as i64, *bytes as i64)).collect();
    let buffers = builder.create_vector(&buffers);
    let counts: Option<Vec<i64>> = batch.variadicBufferCounts().map(|counts| counts.iter().collect());
    let counts = counts.map(|counts| builder.create_vector(&counts));
    let mut made = RecordBatchBuilder::new(builder);
    made.add_length(batch.length());
    made.add_nodes(nodes);
    made.add_buffers(buffers);
    if let Some(counts) = counts {
        made.add_variadicBufferCounts(counts);
    }
    let made = made.finish();
    Ok((inflated.into_buffer(), made))
}

/// How many bytes a buffer says that it has: 8 bytes before it, or -1 for as many as there are.
fn inflated_bytes(stored: &[u8]) -> Result<u64, BatchRefused> {
    let Some((said, rest)) = stored.split_first_chunk::<8>() else {
        return if stored.is_empty() { Ok(0) } else { Err("a compressed buffer of fewer than 8 bytes".into()) };
    };
    match i64::from_le_bytes(*said) {
        -1 => Ok(rest.len() as u64),
        bytes => u64::try_from(bytes).map_err(|_| "a compressed buffer of fewer than no bytes".into()),
    }
}

fn inflate_one(codec: CompressionType, stored: &[u8], page: &mut [u8]) -> Result<(), String> {
    let Some((said, rest)) = stored.split_first_chunk::<8>().filter(|_| !page.is_empty()) else { return Ok(()) };
    let bytes = page.len();
    if i64::from_le_bytes(*said) == -1 {
        page.copy_from_slice(rest);
        return Ok(());
    }
    let other = |what: &str| format!("a buffer that inflates to {what} than the {bytes} bytes that it says");
    if codec == CompressionType::ZSTD {
        let inflated = zstd::bulk::Decompressor::new().and_then(|mut zstd| zstd.decompress_to_buffer(rest, page));
        let written = inflated.map_err(|error| format!("a buffer that does not inflate to {bytes} bytes: {error}"))?;
        return if written == bytes { Ok(()) } else { Err(other("fewer")) };
    }
    let mut lz4 = lz4_flex::frame::FrameDecoder::new(rest);
    lz4.read_exact(page).map_err(|error| format!("a buffer that does not inflate to {bytes} bytes: {error}"))?;
    match lz4.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(other("more")),
        Err(error) => Err(error.to_string()),
    }
}
