//! Messages of Arrow's IPC format, read from ranges of a file.

use std::sync::Arc;

use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::{Message, root_as_message_with_opts};
use bytes::Bytes;

use super::super::memory::{MemoryBudget, MemoryDenied, Reservation};
use super::super::{InputFile, Place, SourceError};
use crate::ipc_schema::{one_line, verifier};

const CONTINUATION: [u8; 4] = [0xff; 4];

/// A message: its header, which was verified, and its body.
pub(super) struct Encapsulated {
    header: Vec<u8>,
    /// Where it begins in the file, and the byte behind its body.
    pub(super) at: u64,
    pub(super) end: u64,
    body_at: u64,
    _memory: Reservation,
}

pub(super) fn damaged(file: &InputFile, at: u64, what: impl Into<String>) -> SourceError {
    SourceError::Damaged { file: file.name().clone(), place: Place::Byte(at), what: what.into() }
}

pub(super) fn denied(file: &InputFile, at: u64, what: &'static str, denied: MemoryDenied) -> SourceError {
    SourceError::Memory { file: file.name().clone(), place: Place::Byte(at), what, denied }
}

impl Encapsulated {
    /// Reads the header of the message that begins at a byte; all of it lies before `end`. `None`: a mark that nothing comes behind, or the end.
    pub(super) fn read(
        file: &InputFile,
        at: u64,
        end: u64,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Option<Self>, SourceError> {
        let wrong = |what: &str| damaged(file, at, what);
        if at == end {
            return Ok(None);
        }
        let (mut prefix, mut header_at) = ([0; 4], at + 4);
        let mut number = |at: u64| {
            if at.checked_add(4).is_none_or(|behind| behind > end) {
                return Err(wrong("the file ends within a message"));
            }
            file.read_at(at, &mut prefix)?;
            Ok(prefix)
        };
        let mut first = number(at)?;
        if first == CONTINUATION {
            first = number(at + 4)?;
            header_at = at + 8;
        }
        let bytes = u64::from(u32::from_le_bytes(first));
        if bytes == 0 {
            return Ok(None);
        }
        if header_at.checked_add(bytes).is_none_or(|behind| behind > end) {
            return Err(wrong("a message with a header longer than the file"));
        }
        let memory = Reservation::of(budget, bytes).map_err(|no| denied(file, at, "the header of a message", no))?;
        let mut header = vec![0; bytes as usize];
        file.read_at(header_at, &mut header)?;
        let body_at = header_at + bytes;
        let body_bytes = root_as_message_with_opts(&verifier(header.len()), &header)
            .map_err(|error| wrong(&format!("its header is none: {}", one_line(error))))?
            .bodyLength();
        let end_of_body = u64::try_from(body_bytes).ok().and_then(|bytes| body_at.checked_add(bytes));
        let end = end_of_body.filter(|behind| *behind <= end).ok_or_else(|| wrong("a body longer than the file"))?;
        Ok(Some(Self { header, at, end, body_at, _memory: memory }))
    }

    /// The header.
    pub(super) fn message(&self) -> Message<'_> {
        root_as_message_with_opts(&verifier(self.header.len()), &self.header).expect("it was verified when it was read")
    }

    /// Reads the body, which keeps its memory for as long as arrays point to it.
    pub(super) fn body(&self, file: &InputFile, budget: &Arc<dyn MemoryBudget>) -> Result<Buffer, SourceError> {
        let mut body = GrantedBuffer::new(self.end - self.body_at, budget)
            .map_err(|no| denied(file, self.at, "a batch of rows", no))?;
        file.read_at(self.body_at, &mut body.bytes)?;
        Ok(body.into_buffer())
    }
}

/// Aligned bytes with the memory that they have.
pub(super) struct GrantedBuffer {
    pub(super) bytes: MutableBuffer,
    _memory: Reservation,
}

impl GrantedBuffer {
    /// So many zeros.
    pub(super) fn new(bytes: u64, budget: &Arc<dyn MemoryBudget>) -> Result<Self, MemoryDenied> {
        let memory = Reservation::of(budget, bytes + 64)?;
        Ok(Self { bytes: MutableBuffer::from_len_zeroed(bytes as usize), _memory: memory })
    }

    pub(super) fn into_buffer(self) -> Buffer {
        Buffer::from(Bytes::from_owner(self))
    }
}

impl AsRef<[u8]> for GrantedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_slice()
    }
}
