//! Arrow IPC: files, which have a directory at their end, and streams, which have none.
//!
//! Promises:
//! - Arrays are validated before anybody sees them, whoever wrote the file.
//! - A message is asked for before it is read, and what its buffers inflate to before they are; arrays point into it, and its memory is given back when the last of them is gone.
//! - Splits of a file are consecutive batches of 64 MiB together, or one that is larger; of a stream, which would have to be read to be divided, all of it.
//!
//! Dictionaries are read when a split is begun, and once for each of its readers. Their batches may come with dictionaries and views in them, whose types in
//! [`IpcFile::schema`] are plain.

mod inflate;
mod message;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow_ipc::{
    Block, DictionaryBatchBuilder, MessageBuilder, MessageHeader, MetadataVersion, root_as_footer_with_opts,
    root_as_message,
};
use arrow_schema::{Schema, SchemaRef};
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use self::inflate::{BatchRefused, check, inflate};
use self::message::{Encapsulated, damaged, denied};
use super::batches::{Pending, cut, next_batch, own_bytes};
use super::memory::{MemoryBudget, Reservation};
use super::{InputFile, Place, SourceBatch, SourceError, Split};
use crate::guard::guarded;
use crate::ipc_schema::{self, made_bytes, one_line, verifier};
use crate::plain::{check_supported, plain_schema};

const MAGIC: &[u8; 6] = b"ARROW1";
/// Bytes of batches in a split, unless somebody says how many.
pub const SPLIT_BYTES: u64 = 64 << 20;

/// A file or stream of which the schema was read.
pub struct IpcFile {
    file: InputFile,
    /// As it was written.
    written: SchemaRef,
    schema: SchemaRef,
    parts: Parts,
    /// For the schema and the directory.
    _memory: Reservation,
}

/// Where messages are.
enum Parts {
    /// Where dictionaries begin, batches of each split with their lengths, and where the directory begins.
    File { dictionaries: Vec<u64>, splits: Vec<Vec<u64>>, bytes: Vec<u64>, end: u64 },
    /// Where the first message behind the schema is.
    Stream { at: u64 },
}

impl IpcFile {
    /// Reads the schema of a file or stream, and the directory of a file.
    ///
    /// # Errors
    /// What is wrong with it, with its place; memory that was denied.
    pub fn open(file: InputFile, budget: &Arc<dyn MemoryBudget>) -> Result<Self, SourceError> {
        Self::open_in_splits_of(SPLIT_BYTES, file, budget)
    }

    /// The same in splits of batches that have so many bytes together at most; a larger batch is one by itself. A file with dictionaries has splits of 64 MiB in any case, since who reads one reads all dictionaries.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_in_splits_of(
        split_bytes: u64,
        file: InputFile,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, SourceError> {
        let mut head = [0; 8];
        let known = (file.len() as usize).min(head.len());
        file.read_at(0, &mut head[..known])?;
        match head.starts_with(MAGIC) {
            true => Self::open_file(split_bytes, file, budget),
            false => Self::open_stream(file, budget),
        }
    }

    fn open_file(split_bytes: u64, file: InputFile, budget: &Arc<dyn MemoryBudget>) -> Result<Self, SourceError> {
        let wrong = |what: String| SourceError::Damaged { file: file.name().clone(), place: Place::Footer, what };
        let cut = || wrong("the file does not end with ARROW1, so it was not written or copied to its end".to_owned());
        let tail_at = file.len().checked_sub(10).filter(|at| *at >= 8).ok_or_else(cut)?;
        let mut tail = [0; 10];
        file.read_at(tail_at, &mut tail)?;
        if tail[4..] != *MAGIC {
            return Err(cut());
        }
        let bytes = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        let begin = tail_at.checked_sub(bytes).filter(|begin| *begin >= 8);
        let begin = begin.ok_or_else(|| wrong(format!("it says that it has {bytes} bytes, more than the file")))?;
        let mut memory =
            Reservation::of(budget, made_bytes(bytes)).map_err(|no| denied(&file, begin, "the footer", no))?;
        let mut footer = vec![0; bytes as usize];
        file.read_at(begin, &mut footer)?;
        let directory = root_as_footer_with_opts(&verifier(footer.len()), &footer)
            .map_err(|error| wrong(format!("it is none: {}", one_line(error))))?;
        let schema = directory.schema().ok_or_else(|| wrong("it has no schema".to_owned()))?;
        let written = schema_of(&file, begin, schema)?;
        let place = |block: &Block| {
            let at = u64::try_from(block.offset()).ok().filter(|at| *at >= 8 && *at < begin);
            at.ok_or_else(|| wrong("a batch that is not within the file".to_owned()))
        };
        let dictionaries = directory.dictionaries().into_iter().flatten().map(place);
        let dictionaries = dictionaries.collect::<Result<Vec<u64>, _>>()?;
        let split_bytes = if dictionaries.is_empty() { split_bytes } else { SPLIT_BYTES };
        let (mut splits, mut sizes): (Vec<Vec<u64>>, Vec<u64>) = (Vec::new(), Vec::new());
        for block in directory.recordBatches().into_iter().flatten() {
            let at = place(block)?;
            let bytes = u64::try_from(block.bodyLength()).unwrap_or(0).min(begin - at);
            match sizes.last_mut().filter(|size| **size + bytes <= split_bytes) {
                Some(size) => {
                    *size += bytes;
                    splits.last_mut().expect("as many as sizes").push(at);
                }
                None => {
                    sizes.push(bytes);
                    splits.push(vec![at]);
                }
            }
        }
        drop(footer);
        // Smaller is never denied.
        let _ = memory.resize(bytes.saturating_mul(8).min(memory.bytes()));
        let schema = plain_of(&file, &written)?;
        let parts = Parts::File { dictionaries, splits, bytes: sizes, end: begin };
        Ok(Self { file, written, schema, parts, _memory: memory })
    }

    fn open_stream(file: InputFile, budget: &Arc<dyn MemoryBudget>) -> Result<Self, SourceError> {
        let other = |why: &str| SourceError::OtherFormat {
            file: file.name().clone(),
            format: "arrow",
            what: format!(
                "it begins neither with ARROW1 nor with a schema{why}; say --input-format if it is of another one"
            ),
        };
        let first = match Encapsulated::read(&file, 0, file.len(), budget) {
            Ok(Some(first)) => first,
            Ok(None) => return Err(other("")),
            Err(SourceError::Damaged { what, .. }) => {
                return Err(other(&format!(": {what}")));
            }
            Err(error) => return Err(error),
        };
        let message = first.message();
        let schema = message.header_as_schema();
        let schema = schema.ok_or_else(|| other(""))?;
        let memory = Reservation::of(budget, made_bytes(first.end)).map_err(|no| denied(&file, 0, "the schema", no))?;
        let written = schema_of(&file, 0, schema)?;
        let schema = plain_of(&file, &written)?;
        let parts = Parts::Stream { at: first.end };
        Ok(Self { file, written, schema, parts, _memory: memory })
    }

    /// The file.
    pub fn file(&self) -> &InputFile {
        &self.file
    }

    /// Names and plain types of its columns, and its metadata.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Batches of 64 MiB together, or of as many bytes as were said; of a stream one.
    pub fn splits(&self) -> Vec<Split> {
        let bytes = match &self.parts {
            Parts::File { bytes, .. } => bytes.clone(),
            Parts::Stream { at } => vec![self.file.len() - at],
        };
        bytes.into_iter().enumerate().map(|(index, bytes)| Split { index, bytes, rows: None }).collect()
    }

    /// The rows of a split: those columns of [`schema`](Self::schema), in that order; all where none are said. Bounded batches, in the order of the file.
    ///
    /// # Errors
    /// Those of reading; each batch may be one, and is the last one then.
    ///
    /// # Panics
    /// There is no such split, or no such column.
    pub fn read(
        self: &Arc<Self>,
        split: usize,
        columns: Option<&[usize]>,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<impl Iterator<Item = Result<SourceBatch, SourceError>> + Send + use<>, SourceError> {
        let next = match &self.parts {
            Parts::File { splits, .. } => Next::Batches(splits[split].clone().into()),
            Parts::Stream { at } => Next::Message(*at),
        };
        let columns = columns.map(<[usize]>::to_vec);
        let (file, budget) = (Arc::clone(self), Arc::clone(budget));
        let mut rows = IpcRows {
            file,
            split,
            columns,
            budget,
            next,
            dictionaries: Dictionaries::default(),
            next_row: 0,
            pending: Pending::default(),
        };
        if let Parts::File { dictionaries, end, .. } = &self.parts {
            for at in dictionaries {
                rows.read_message(*at, *end)?;
            }
        }
        Ok(rows)
    }
}

fn schema_of(file: &InputFile, at: u64, schema: arrow_ipc::Schema<'_>) -> Result<SchemaRef, SourceError> {
    let made = ipc_schema::made(schema);
    Ok(Arc::new(made.map_err(|what| damaged(file, at, format!("its schema has {what}")))?))
}

fn plain_of(file: &InputFile, written: &Schema) -> Result<SchemaRef, SourceError> {
    check_supported(written.fields()).map_err(|error| SourceError::Table { file: file.name().clone(), error })?;
    Ok(Arc::new(plain_schema(written)))
}

/// Dictionaries by their numbers, and the memory of those that were put together of several.
#[derive(Default)]
struct Dictionaries {
    values: HashMap<i64, ArrayRef>,
    memory: Vec<Reservation>,
}

/// What is read next.
enum Next {
    Batches(VecDeque<u64>),
    Message(u64),
}

/// The rows of a split.
struct IpcRows {
    file: Arc<IpcFile>,
    split: usize,
    columns: Option<Vec<usize>>,
    budget: Arc<dyn MemoryBudget>,
    next: Next,
    dictionaries: Dictionaries,
    next_row: u64,
    pending: Pending,
}

/// What a message was.
enum MessageRead {
    /// Of a dictionary, or nothing; it ends there.
    Passed(u64),
    /// Rows.
    Batch(u64, RecordBatch, Reservation),
    /// There is no more.
    End,
}

impl IpcRows {
    fn advance(&mut self) -> Result<(), SourceError> {
        let file = Arc::clone(&self.file);
        let (at, end) = match (&mut self.next, &file.parts) {
            (Next::Message(at), _) => (*at, file.file.len()),
            (Next::Batches(batches), Parts::File { end, .. }) => match batches.pop_front() {
                Some(at) => (at, *end),
                None => {
                    self.pending.is_over = true;
                    return Ok(());
                }
            },
            (Next::Batches(_), Parts::Stream { .. }) => unreachable!("a stream has no directory"),
        };
        let behind = match self.read_message(at, end)? {
            MessageRead::Batch(behind, batch, memory) => {
                let rows = batch.num_rows() as u64;
                self.pending.ready.extend(cut(&batch, self.split, self.next_row, memory));
                self.next_row += rows;
                behind
            }
            MessageRead::Passed(behind) => behind,
            MessageRead::End => {
                self.pending.is_over = true;
                at
            }
        };
        if let Next::Message(at) = &mut self.next {
            *at = behind;
        }
        Ok(())
    }

    fn read_message(&mut self, at: u64, end: u64) -> Result<MessageRead, SourceError> {
        let input = &self.file.file;
        let Some(read) = Encapsulated::read(input, at, end, &self.budget)? else { return Ok(MessageRead::End) };
        let message = read.message();
        let refused = |refused: BatchRefused| match refused {
            BatchRefused::Damaged(what) => damaged(input, at, what),
            BatchRefused::Memory(no) => denied(input, at, "what a batch inflates to", no),
            BatchRefused::NotRead(what) => {
                SourceError::NotRead { file: input.name().clone(), place: Place::Byte(at), what }
            }
        };
        let (batch, dictionary) = match message.header_type() {
            MessageHeader::RecordBatch => (message.header_as_record_batch(), None),
            MessageHeader::DictionaryBatch => {
                let dictionary = message.header_as_dictionary_batch();
                (dictionary.and_then(|dictionary| dictionary.data()), dictionary)
            }
            MessageHeader::NONE => return Ok(MessageRead::Passed(read.end)),
            other => return Err(damaged(input, at, format!("a message of type {other:?} where rows belong"))),
        };
        let batch = batch.ok_or_else(|| damaged(input, at, "a message without what its type has"))?;
        let mut body = read.body(input, &self.budget)?;
        let is_copied = check(&batch, &body).map_err(refused)?;
        let mut inflated = None;
        if batch.compression().is_some() {
            let mut builder = FlatBufferBuilder::new();
            let (plain, made) = inflate(&batch, &body, &mut builder, &self.budget).map_err(refused)?;
            body = plain;
            let delta = dictionary.map(|dictionary| (dictionary.id(), dictionary.isDelta()));
            inflated = Some(finished(builder, made, delta));
        }
        let bytes = if is_copied && inflated.is_none() { body.len() as u64 } else { 0 };
        let memory = Reservation::of(&self.budget, bytes).map_err(|no| denied(input, at, "a batch of rows", no))?;
        let again = inflated.as_ref().map(|header| root_as_message(header).expect("it was just made"));
        let message = again.unwrap_or(message);
        match dictionary {
            Some(_) => {
                let dictionary = message.header_as_dictionary_batch().expect("as was looked at");
                self.take_dictionary(at, &body, dictionary, &message.version(), memory)?;
                Ok(MessageRead::Passed(read.end))
            }
            None => {
                let batch = message.header_as_record_batch().expect("as was looked at");
                let decoded = guarded(|| {
                    RecordBatchDecoder::try_new(
                        &body,
                        batch,
                        self.file.written.clone(),
                        &self.dictionaries.values,
                        &message.version(),
                    )?
                    .with_projection(self.columns.as_deref())
                    .read_record_batch()
                });
                let batch = decoded.map_err(|what| damaged(input, at, what))?;
                Ok(MessageRead::Batch(read.end, batch, memory))
            }
        }
    }

    fn take_dictionary(
        &mut self,
        at: u64,
        body: &Buffer,
        dictionary: arrow_ipc::DictionaryBatch<'_>,
        version: &MetadataVersion,
        copies: Reservation,
    ) -> Result<(), SourceError> {
        let input = &self.file.file;
        self.dictionaries.memory.push(copies);
        if dictionary.isDelta() {
            let before = self.dictionaries.values.get(&dictionary.id());
            let before = before.map_or(0, |values| own_bytes(&values.to_data(), true));
            let both = Reservation::of(&self.budget, 2 * (before + body.len() as u64));
            self.dictionaries.memory.push(both.map_err(|no| denied(input, at, "a dictionary", no))?);
        }
        let values = &mut self.dictionaries.values;
        guarded(|| read_dictionary(body, dictionary, &self.file.written, values, version))
            .map_err(|what| damaged(input, at, what))
    }
}

/// The message of a batch, or of a dictionary with that number, that was made.
fn finished<'b>(
    mut builder: FlatBufferBuilder<'b>,
    batch: WIPOffset<arrow_ipc::RecordBatch<'b>>,
    dictionary: Option<(i64, bool)>,
) -> Vec<u8> {
    let (kind, header): (_, WIPOffset<UnionWIPOffset>) = match dictionary {
        None => (MessageHeader::RecordBatch, batch.as_union_value()),
        Some((id, is_delta)) => {
            let mut made = DictionaryBatchBuilder::new(&mut builder);
            made.add_id(id);
            made.add_data(batch);
            made.add_isDelta(is_delta);
            (MessageHeader::DictionaryBatch, made.finish().as_union_value())
        }
    };
    let mut message = MessageBuilder::new(&mut builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(kind);
    message.add_header(header);
    let message = message.finish();
    builder.finish(message, None);
    builder.finished_data().to_vec()
}

impl Iterator for IpcRows {
    type Item = Result<SourceBatch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        next_batch(self, |rows| &mut rows.pending, Self::advance)
    }
}

#[cfg(test)]
mod tests;
