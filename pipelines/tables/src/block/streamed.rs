//! Messages of an object that is larger than memory, one after the other.

use std::io::Read as _;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::MutableBuffer;
use arrow_ipc::root_as_message;
use exobus_actors::task::Output;
use exobus_store::{ObjectReader, RowHash, StoreError};

use super::layout::{Layout, PREFIX_BYTES};
use super::read::gathered;
use crate::TableError;

/// The messages of all parts of an object, in memory of the task, which asks for it: first how long the next one is, and then for its rows.
pub(crate) struct Streamed {
    layout: Arc<Layout>,
    reader: ObjectReader,
    /// The bytes of the next message before its body, where they were read.
    header: Vec<u8>,
    /// Bytes that were read.
    at: usize,
    read: Output,
}

impl Streamed {
    /// Of parts that were written with [`write_messages`](super::write_messages), whole messages each.
    ///
    /// # Safety
    /// As of [`Part::new`](super::Part::new).
    #[allow(unsafe_code, reason = "parts of this program's own tasks are read without validation")]
    pub(crate) unsafe fn new(layout: Arc<Layout>, reader: ObjectReader) -> Self {
        Self { layout, reader, header: Vec::new(), at: 0, read: Output::default() }
    }

    /// Bytes of the next message; `None`: there are no more.
    ///
    /// # Errors
    /// [`TableError::NotABlock`]; the store's.
    pub(crate) fn next_bytes(&mut self) -> Result<Option<u64>, TableError> {
        if self.header.is_empty() {
            if self.reader.remaining() == 0 {
                return Ok(None);
            }
            let mut header = vec![0; self.layout.header_bytes()];
            read(&mut self.reader, &mut header)?;
            self.header = header;
        }
        let damaged = |what: String| TableError::NotABlock { at: self.at, what };
        let message = root_as_message(&self.header[PREFIX_BYTES..]).map_err(|error| damaged(error.to_string()))?;
        let body = u64::try_from(message.bodyLength()).ok().filter(|body| *body <= self.reader.remaining());
        let body = body.ok_or_else(|| damaged("it ends within a body".to_owned()))?;
        Ok(Some(self.header.len() as u64 + body))
    }

    /// The rows of the next message, in so much memory as it is long; `None`: there are no more.
    ///
    /// # Errors
    /// As of [`next_bytes`](Self::next_bytes); [`TableError::LayoutDiffers`].
    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>, TableError> {
        let Some(bytes) = self.next_bytes()? else { return Ok(None) };
        let mut message = MutableBuffer::from_len_zeroed(bytes as usize);
        let (header, body) = message.as_slice_mut().split_at_mut(self.header.len());
        header.copy_from_slice(&self.header);
        read(&mut self.reader, body)?;
        self.header.clear();
        let row_hash = RowHash::of(message.as_slice());
        let batch = gathered(&self.layout, message.into())?;
        self.at += bytes as usize;
        self.read.add(Output { bytes, rows: batch.num_rows() as u64, row_hash });
        Ok(Some(batch))
    }

    /// Bytes, rows and hash of the messages that were read.
    pub(crate) fn read(&self) -> Output {
        self.read
    }
}

fn read(reader: &mut ObjectReader, to: &mut [u8]) -> Result<(), TableError> {
    reader.read_exact(to).map_err(|error| match error.downcast::<StoreError>() {
        Ok(error) => TableError::Store(error),
        Err(error) => TableError::NotABlock { at: 0, what: error.to_string() },
    })
}
