//! What all blocks of a set have in common: their schema, and how long the headers of messages are.

use std::sync::Arc;

use arrow_ipc::convert::{IpcSchemaEncoder, try_schema_from_flatbuffer_bytes};
use arrow_ipc::{FieldNode, MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder};
use arrow_schema::{DataType, Fields, Schema, SchemaRef};
use flatbuffers::FlatBufferBuilder;
use twox_hash::XxHash3_64;

use super::padded;
use crate::{TableError, plain};

/// Of the schema of blocks as [`Layout::encode`] writes it, and of blocks. Raised by whoever changes what the bytes mean; a sample is stored in the tests.
pub(super) const VERSION: u32 = 1;
/// What the bytes of a schema begin with, then the version.
const MAGIC: [u8; 4] = *b"xobt";
/// Marker and length before each header.
pub(super) const PREFIX_BYTES: usize = 8;
/// The marker.
pub(super) const CONTINUATION: [u8; 4] = [0xff; 4];

/// The schema of blocks, and what follows from it.
#[derive(Clone, Debug)]
pub struct Layout {
    schema: SchemaRef,
    nodes: usize,
    buffers: usize,
    header_bytes: usize,
}

impl Layout {
    /// For rows of this schema; blocks have their [plain](crate::plain) types. Names, nullability and metadata are kept.
    ///
    /// # Errors
    /// [`TableError::Unsupported`].
    pub fn new(schema: &Schema) -> Result<Self, TableError> {
        plain::check_supported(schema.fields())?;
        let schema = Arc::new(plain::plain_schema(schema));
        let (mut nodes, mut buffers) = (0, 0);
        count(schema.fields(), &mut nodes, &mut buffers);
        let mut layout = Self { schema, nodes, buffers, header_bytes: 0 };
        layout.header_bytes = layout.header(0, &vec![(0, 0); nodes], &vec![0; buffers]).len();
        Ok(layout)
    }

    /// The schema of batches that are read from blocks.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Arrays in a message, those inside others too.
    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Buffers in a message.
    pub(super) fn buffers(&self) -> usize {
        self.buffers
    }

    /// Bytes of a message before its body, a multiple of 64: the same for all of them.
    pub fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// The bytes before the body of a message with so many rows, whose arrays have these lengths and numbers of nulls, and whose buffers have these lengths.
    pub(super) fn header(&self, rows: u64, nodes: &[(u64, u64)], buffers: &[u64]) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::with_capacity(256 + 16 * (nodes.len() + buffers.len()));
        // Numbers that are zero would be left out, and headers not all of one length.
        builder.force_defaults(true);
        let nodes: Vec<_> = nodes.iter().map(|(len, nulls)| FieldNode::new(*len as i64, *nulls as i64)).collect();
        let mut offset = 0;
        let placed = |len: &u64| {
            let at = offset;
            offset += padded(*len);
            arrow_ipc::Buffer::new(at as i64, *len as i64)
        };
        let buffers: Vec<_> = buffers.iter().map(placed).collect();
        let (nodes, buffers) = (builder.create_vector(&nodes), builder.create_vector(&buffers));
        let mut batch = RecordBatchBuilder::new(&mut builder);
        batch.add_length(rows as i64);
        batch.add_nodes(nodes);
        batch.add_buffers(buffers);
        let batch = batch.finish().as_union_value();
        let message = in_message(&mut builder, MessageHeader::RecordBatch, batch, offset);
        encapsulated(&message)
    }

    /// The schema as the message that stands before record batches in a stream of Arrow's IPC format, a multiple of 64 bytes.
    pub fn schema_message(&self) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let schema = IpcSchemaEncoder::new().schema_to_fb_offset(&mut builder, &self.schema).as_union_value();
        encapsulated(&in_message(&mut builder, MessageHeader::Schema, schema, 0))
    }

    /// The layout for who reads the blocks: four letters, the version (4 bytes, little-endian, as all numbers), the xxh3-64 of the rest, then
    /// [`schema_message`](Self::schema_message).
    pub fn encode(&self) -> Vec<u8> {
        let message = self.schema_message();
        let checksum = XxHash3_64::oneshot(&message).to_le_bytes();
        [&MAGIC[..], &VERSION.to_le_bytes(), &checksum, &message].concat()
    }

    /// What [`encode`](Self::encode) has written.
    ///
    /// # Errors
    /// [`TableError::BlockVersion`]: another release wrote it. [`TableError::NotABlock`]: nothing of the kind.
    pub fn decode(bytes: &[u8]) -> Result<Self, TableError> {
        let damaged = |at, what: &str| TableError::NotABlock { at, what: what.to_owned() };
        let (magic, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| damaged(0, "fewer than 4 bytes"))?;
        if *magic != MAGIC {
            return Err(damaged(0, "no schema of blocks begins so"));
        }
        let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(|| damaged(4, "no version"))?;
        let found = u32::from_le_bytes(*version);
        if found != VERSION {
            return Err(TableError::BlockVersion { found, expected: VERSION });
        }
        let (checksum, message) = rest.split_first_chunk::<8>().ok_or_else(|| damaged(8, "no checksum"))?;
        // The library takes for granted that a schema makes sense, and panics otherwise.
        if u64::from_le_bytes(*checksum) != XxHash3_64::oneshot(message) {
            return Err(damaged(8, "its checksum is another one"));
        }
        let header = message.get(PREFIX_BYTES..).ok_or_else(|| damaged(16, "no schema"))?;
        let schema = try_schema_from_flatbuffer_bytes(header)
            .map_err(|error| TableError::NotABlock { at: 16, what: error.to_string() })?;
        Self::new(&schema)
    }
}

/// Adds up arrays and buffers of plain types, as a message of version 5 has them.
fn count(fields: &Fields, nodes: &mut usize, buffers: &mut usize) {
    for field in fields {
        *nodes += 1;
        *buffers += match field.data_type() {
            DataType::Null => 0,
            DataType::Struct(_) | DataType::FixedSizeList(..) => 1,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => 3,
            _ => 2,
        };
        match field.data_type() {
            DataType::Struct(inner) => count(inner, nodes, buffers),
            DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _) | DataType::Map(of, _) => {
                count(&vec![of.clone()].into(), nodes, buffers);
            }
            _ => (),
        }
    }
}

fn in_message(
    builder: &mut FlatBufferBuilder<'_>,
    kind: MessageHeader,
    header: flatbuffers::WIPOffset<flatbuffers::UnionWIPOffset>,
    body_bytes: u64,
) -> Vec<u8> {
    let mut message = MessageBuilder::new(builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(kind);
    message.add_bodyLength(body_bytes as i64);
    message.add_header(header);
    let message = message.finish();
    builder.finish(message, None);
    builder.finished_data().to_vec()
}

/// Marker, length and padding around the header of a message.
fn encapsulated(header: &[u8]) -> Vec<u8> {
    let bytes = padded((PREFIX_BYTES + header.len()) as u64) as usize;
    let mut whole = Vec::with_capacity(bytes);
    whole.extend_from_slice(&CONTINUATION);
    whole.extend_from_slice(&((bytes - PREFIX_BYTES) as u32).to_le_bytes());
    whole.extend_from_slice(header);
    whole.resize(bytes, 0);
    whole
}
