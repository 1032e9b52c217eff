//! Reading messages where they lie.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_data::UnsafeFlag;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::{FieldNode, Message, MetadataVersion, root_as_message};
use arrow_schema::DataType;
use exobus_actors::task::Output;
use exobus_store::{Block, CopyId, RowHash};
use flatbuffers::VectorIter;

use super::layout::{CONTINUATION, Layout, PREFIX_BYTES};
use super::{ALIGNMENT, ROWS_MAX};
use crate::TableError;

/// The messages of a part, one batch after the other: arrays whose memory is that of the block, which they keep where it is. Who keeps more than
/// a while of a batch copies what it keeps, or all of the part stays in memory.
#[derive(Debug)]
pub struct Part {
    layout: Arc<Layout>,
    bytes: Buffer,
    at: usize,
    /// Whether arrays that are not aligned are refused rather than copied.
    is_in_place: bool,
    trusted: UnsafeFlag,
    /// Object and part, where it is one: what errors name.
    name: Option<(CopyId, u32)>,
}

impl Part {
    /// Of one part that a [`Gather`](super::Gather) wrote, which is believed that text is UTF-8 and that nulls are as many as it says; all else is checked. A
    /// block of several parts has gaps between them: take [`Block::part`] of each.
    ///
    /// # Safety
    /// A `Gather` of this program wrote the part: in this process or on another node of its cluster, in no code of a user. Objects that were `put`, and what
    /// functions of users wrote, are read with [`of_block`](Self::of_block).
    #[allow(unsafe_code, reason = "parts of this program's own tasks are read without validation")]
    pub unsafe fn new(layout: Arc<Layout>, block: Block) -> Self {
        // SAFETY: it is the caller's promise that a `Gather` wrote the part.
        let trusted = unsafe { trusted() };
        Self { trusted, ..Self::of_block(layout, block) }
    }

    /// Of one part that anybody may have written: arrays are validated, and read where they lie.
    pub fn of_block(layout: Arc<Layout>, block: Block) -> Self {
        let header = block.header();
        let name = Some((header.object, header.first_part));
        Self { layout, bytes: shared(block), at: 0, is_in_place: true, trusted: UnsafeFlag::new(), name }
    }

    /// Of bytes of which nobody says that they are as they were written: arrays are validated, and copied where they are not aligned.
    pub fn of_bytes(layout: Arc<Layout>, bytes: Buffer) -> Self {
        Self { layout, bytes, at: 0, is_in_place: false, trusted: UnsafeFlag::new(), name: None }
    }

    fn read(&mut self) -> Result<RecordBatch, TableError> {
        let layout = self.layout.clone();
        self.read_of(std::slice::from_ref(&layout)).map(|(_, batch)| batch)
    }

    /// The next message, and which of these layouts it is of.
    fn read_of(&mut self, layouts: &[Arc<Layout>]) -> Result<(usize, RecordBatch), TableError> {
        let at = self.at;
        let damaged = |what: &str| TableError::NotABlock { at, what: what.to_owned() };
        let rest = &self.bytes.as_slice()[at..];
        let prefix = rest.first_chunk::<PREFIX_BYTES>().ok_or_else(|| damaged("it ends within a message"))?;
        if prefix[..4] != CONTINUATION {
            return Err(damaged("no message begins here"));
        }
        let header_bytes = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]) as usize;
        let body_at = PREFIX_BYTES.saturating_add(header_bytes);
        let header = rest.get(PREFIX_BYTES..body_at).ok_or_else(|| damaged("it ends within a header"))?;
        let message = root_as_message(header).map_err(|error| damaged(&error.to_string()))?;
        let body_bytes = usize::try_from(message.bodyLength()).map_err(|_| damaged("a body of less than nothing"))?;
        let end = body_at.checked_add(body_bytes).filter(|end| *end <= rest.len());
        let end = end.ok_or_else(|| damaged("it ends within a body"))?;
        let of = layouts.iter().position(|layout| layout.check_mark(&message, at).is_ok());
        let of = of.map_or_else(|| self.layout.check_mark(&message, at).map(|()| 0), Ok)?;
        let layout = &layouts[of];
        check(layout, &message, body_at, &rest[body_at..end]).map_err(|what| damaged(&what))?;
        let is_aligned = (rest.as_ptr() as usize).is_multiple_of(ALIGNMENT);
        if self.is_in_place && !is_aligned {
            return Err(damaged("it is not aligned: the object's parts have to be"));
        }
        let body = self.bytes.slice_with_length(at + body_at, body_bytes);
        let batch = message.header_as_record_batch().ok_or_else(|| damaged("no record batch"))?;
        let (schema, none) = (layout.schema().clone(), HashMap::<i64, ArrayRef>::new());
        let decoder = RecordBatchDecoder::try_new(&body, batch, schema, &none, &MetadataVersion::V5)?
            .with_require_alignment(self.is_in_place)
            .with_skip_validation(self.trusted.clone());
        let batch = decoder.read_record_batch()?;
        self.at += end;
        Ok((of, batch))
    }

    fn named(&self, error: TableError) -> TableError {
        match self.name {
            Some((object, part)) => TableError::InPart { object, part, source: Box::new(error) },
            None => error,
        }
    }
}

/// The messages of a part of several layouts, each with the number of its own.
pub(crate) struct Messages {
    layouts: Vec<Arc<Layout>>,
    part: Part,
    read: Output,
}

impl Messages {
    /// Of a part that was written with [`write_messages`](super::write_messages).
    ///
    /// # Safety
    /// As of [`Part::new`].
    ///
    /// # Panics
    /// There is no layout.
    #[allow(unsafe_code, reason = "parts of this program's own tasks are read without validation")]
    pub(crate) unsafe fn new(layouts: Vec<Arc<Layout>>, block: Block) -> Self {
        // SAFETY: it is the caller's promise that a `Gather` wrote the part.
        let part = unsafe { Part::new(layouts[0].clone(), block) };
        Self { layouts, part, read: Output::default() }
    }

    /// Of the bytes of such a part, which begin at a multiple of 64 in memory.
    ///
    /// # Safety
    /// As of [`Part::new`].
    ///
    /// # Panics
    /// There is no layout.
    #[allow(unsafe_code, reason = "parts of this program's own tasks are read without validation")]
    pub(crate) unsafe fn of_bytes(layouts: Vec<Arc<Layout>>, bytes: Buffer) -> Self {
        // SAFETY: it is the caller's promise that a `Gather` wrote the part.
        let trusted = unsafe { trusted() };
        let part = Part { trusted, is_in_place: true, ..Part::of_bytes(layouts[0].clone(), bytes) };
        Self { layouts, part, read: Output::default() }
    }

    /// Bytes, rows and hash of the messages that were read.
    pub(crate) fn read(&self) -> Output {
        self.read
    }
}

impl Iterator for Messages {
    type Item = Result<(usize, RecordBatch), TableError>;

    /// The next message. After an error there is none.
    fn next(&mut self) -> Option<Self::Item> {
        let Self { layouts, part, read } = self;
        let from = part.at;
        if from >= part.bytes.len() {
            return None;
        }
        let message = part.read_of(layouts);
        match &message {
            Ok((_, batch)) => {
                let bytes = &part.bytes.as_slice()[from..part.at];
                let (rows, row_hash) = (batch.num_rows() as u64, RowHash::of(bytes));
                read.add(Output { bytes: bytes.len() as u64, rows, row_hash });
            }
            Err(_) => part.at = part.bytes.len(),
        }
        Some(message.map_err(|error| part.named(error)))
    }
}

impl Iterator for Part {
    type Item = Result<RecordBatch, TableError>;

    /// The next batch. After an error there is none.
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let batch = self.read();
        if batch.is_err() {
            self.at = self.bytes.len();
        }
        Some(batch.map_err(|error| self.named(error)))
    }
}

/// The batch of a message that a [`Gather`](super::Gather) has just written into memory of its own.
#[allow(unsafe_code, reason = "what was gathered is not validated")]
pub(super) fn gathered(layout: &Arc<Layout>, bytes: Buffer) -> Result<RecordBatch, TableError> {
    // SAFETY: a gather wrote it.
    let trusted = unsafe { trusted() };
    let mut part = Part { trusted, is_in_place: true, ..Part::of_bytes(layout.clone(), bytes) };
    part.read()
}

/// What lets the library leave validation out.
///
/// # Safety
/// It is used for messages that a [`Gather`](super::Gather) of this program wrote. That writes valid arrays, as those are from which it takes rows; that a message is of
/// the layout with which it is read, and that offsets lie within their buffers, is checked before an array is made.
#[allow(unsafe_code, reason = "see above")]
unsafe fn trusted() -> UnsafeFlag {
    let mut trusted = UnsafeFlag::new();
    // SAFETY: the caller's promise.
    unsafe { trusted.set(true) };
    trusted
}

/// Whether the header is one that a [`Gather`](super::Gather) of this layout writes: what the library's decoder takes for granted, panics without, or, where
/// it does not validate, reads memory by.
fn check(layout: &Layout, message: &Message<'_>, body_at: usize, body: &[u8]) -> Result<(), String> {
    let batch = message.header_as_record_batch().ok_or("no record batch")?;
    if message.version() != MetadataVersion::V5 || !body_at.is_multiple_of(ALIGNMENT) {
        return Err(format!("version {:?}, {body_at} bytes before the body", message.version()));
    }
    if batch.compression().is_some() {
        return Err("compressed".to_owned());
    }
    let (nodes, buffers) = (batch.nodes().ok_or("no arrays")?, batch.buffers().ok_or("no buffers")?);
    if (nodes.len(), buffers.len()) != (layout.nodes(), layout.buffers()) {
        let [found, expected] = [(nodes.len(), buffers.len()), (layout.nodes(), layout.buffers())];
        return Err(format!("{} arrays of {} buffers, not {} of {}", found.0, found.1, expected.0, expected.1));
    }
    if !(0..=ROWS_MAX as i64).contains(&batch.length()) {
        return Err(format!("{} rows", batch.length()));
    }
    let mut shape = Shape { body, nodes: nodes.iter(), buffers: buffers.iter(), next: 0 };
    let is_right = layout.schema().fields().iter().all(|field| shape.has(field.data_type(), Some(batch.length())));
    match is_right && shape.next == body.len() as i64 {
        true => Ok(()),
        false => Err(format!(
            "arrays, buffers and offsets that do not fit each other, {} rows and a body of {} bytes",
            batch.length(),
            body.len()
        )),
    }
}

/// Arrays and buffers of a header, and the offsets in its body, as they are compared with a type.
struct Shape<'a> {
    body: &'a [u8],
    nodes: VectorIter<'a, FieldNode>,
    buffers: VectorIter<'a, arrow_ipc::Buffer>,
    /// Where the next buffer begins.
    next: i64,
}

impl Shape<'_> {
    /// Whether the next array is of this type, and of this length where one is given.
    fn has(&mut self, data_type: &DataType, expected: Option<i64>) -> bool {
        let Some(node) = self.nodes.next() else { return false };
        let (len, nulls) = (node.length(), node.null_count());
        if expected.is_some_and(|expected| expected != len) || len < 0 || nulls < 0 || nulls > len {
            return false;
        }
        let wide = matches!(data_type, DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_));
        let offsets = len.checked_add(1).and_then(|ends| ends.checked_mul(if wide { 8 } else { 4 }));
        let validity = if nulls > 0 { len.checked_add(7).map(|bits| bits / 8) } else { Some(0) };
        match data_type {
            DataType::Null => nulls == len,
            _ if !self.buffer(validity) => false,
            DataType::Boolean => self.buffer(len.checked_add(7).map(|bits| bits / 8)),
            DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary => {
                self.offsets(offsets, wide).is_some_and(|last| self.buffer(Some(last)))
            }
            DataType::List(of) | DataType::LargeList(of) | DataType::Map(of, _) => {
                self.offsets(offsets, wide).is_some_and(|last| self.has(of.data_type(), Some(last)))
            }
            DataType::FixedSizeList(of, size) => {
                len.checked_mul(i64::from(*size)).is_some_and(|elements| self.has(of.data_type(), Some(elements)))
            }
            DataType::Struct(fields) => fields.iter().all(|field| self.has(field.data_type(), Some(len))),
            DataType::FixedSizeBinary(width) => self.buffer(len.checked_mul(i64::from(*width))),
            number => number.primitive_width().is_some_and(|width| self.buffer(len.checked_mul(width as i64))),
        }
    }

    /// Whether the next buffer has so many bytes, behind the one before it.
    fn buffer(&mut self, bytes: Option<i64>) -> bool {
        let expected = bytes.is_some() && bytes == self.buffers.clone().next().map(arrow_ipc::Buffer::length);
        expected && self.some_buffer()
    }

    /// The last offset in the next buffer, which has so many bytes; `None` where it has others, or offsets do not rise from zero.
    fn offsets(&mut self, bytes: Option<i64>, wide: bool) -> Option<i64> {
        let from = usize::try_from(self.next).ok()?;
        if !self.buffer(bytes) {
            return None;
        }
        let offsets = self.body.get(from..)?.get(..usize::try_from(bytes?).ok()?)?;
        match wide {
            true => last_offset(offsets.as_chunks::<8>().0, |offset| i64::from_le_bytes(*offset)),
            false => last_offset(offsets.as_chunks::<4>().0, |offset| i64::from(i32::from_le_bytes(*offset))),
        }
    }

    fn some_buffer(&mut self) -> bool {
        let Some(buffer) = self.buffers.next().filter(|buffer| buffer.offset() == self.next && buffer.length() >= 0)
        else {
            return false;
        };
        let end = self.next.checked_add(buffer.length()).and_then(|end| end.checked_add(ALIGNMENT as i64 - 1));
        self.next = end.map_or(i64::MAX, |end| end / ALIGNMENT as i64 * ALIGNMENT as i64);
        end.is_some()
    }
}

/// The last of some offsets; `None` where the first is not zero or one is less than that before it.
fn last_offset<T>(offsets: &[T], of: impl Fn(&T) -> i64) -> Option<i64> {
    // Without an early end, so that it is done several offsets at a time.
    let rise = offsets.windows(2).fold(true, |rise, pair| rise & (of(&pair[0]) <= of(&pair[1])));
    let first = offsets.first().map(&of)?;
    offsets.last().map(of).filter(|_| rise && first == 0)
}

/// The bytes of a block as a buffer of Arrow.
#[allow(unsafe_code, reason = "blocks are read in place")]
fn shared(block: Block) -> Buffer {
    if block.is_empty() {
        return Buffer::from(Vec::<u8>::new());
    }
    // Of a block only the address is used behind a panic.
    let block = Arc::new(AssertUnwindSafe(block));
    let bytes = NonNull::from(&block[..]);
    // SAFETY: the bytes of a block are neither changed nor moved nor freed while the block lives, and the buffer keeps it.
    unsafe { Buffer::from_custom_allocation(bytes.cast(), bytes.len(), block) }
}
