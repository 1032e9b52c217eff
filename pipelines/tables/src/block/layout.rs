//! What all blocks of a set have in common: their schema, and how long the headers of messages are.

use std::sync::Arc;

use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_ipc::{
    FieldNode, KeyValue, KeyValueArgs, Message, MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder,
};
use arrow_schema::{DataType, Fields, Schema, SchemaRef};
use flatbuffers::FlatBufferBuilder;
use twox_hash::XxHash3_64;

use super::padded;
use crate::{TableError, ipc_schema, plain};

/// Of the schema of blocks as [`Layout::encode`] writes it, and of blocks. Raised by whoever changes what the bytes mean; a sample is stored in the tests.
pub(super) const VERSION: u32 = 1;
/// What the bytes of a schema begin with, then the version.
const MAGIC: [u8; 4] = *b"xobt";
/// Marker and length before each header.
pub(super) const PREFIX_BYTES: usize = 8;
/// The marker.
pub(super) const CONTINUATION: [u8; 4] = [0xff; 4];

/// The name under which a message's header says of which version and layout it is.
const MARK: &str = "exobus.layout";
/// Digits of the version in front of those of the layout.
const VERSION_DIGITS: usize = 8;

/// The schema of blocks, and what follows from it.
#[derive(Clone, Debug)]
pub struct Layout {
    schema: SchemaRef,
    nodes: usize,
    buffers: usize,
    header_bytes: usize,
    mark: String,
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
        let mut layout = Self { schema, nodes, buffers, header_bytes: 0, mark: String::new() };
        layout.mark = layout.marked();
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
        let message = in_message(&mut builder, MessageHeader::RecordBatch, batch, offset, Some(&self.mark));
        encapsulated(&message)
    }

    /// What a message says of its layout: the version and the xxh3-64 of version and schema, in hexadecimal digits, so that it has one length.
    fn marked(&self) -> String {
        let of = [&VERSION.to_le_bytes()[..], &self.schema_message()].concat();
        format!("{VERSION:0VERSION_DIGITS$x}{:016x}", XxHash3_64::oneshot(&of))
    }

    /// Refuses a message, which begins at this byte of its part, that was written for another layout or by another release.
    ///
    /// # Errors
    /// [`TableError::BlockVersion`], [`TableError::LayoutDiffers`]; [`TableError::NotABlock`]: it does not say of which layout it is.
    pub(super) fn check_mark(&self, message: &Message<'_>, at: usize) -> Result<(), TableError> {
        let mut pairs = message.custom_metadata().into_iter().flatten();
        let mark = pairs.find(|pair| pair.key() == Some(MARK)).and_then(|pair| pair.value());
        let parts = mark.and_then(|mark| mark.split_at_checked(VERSION_DIGITS));
        let Some((Ok(found), layout)) = parts.map(|(version, layout)| (u32::from_str_radix(version, 16), layout))
        else {
            return Err(TableError::NotABlock { at, what: "it does not say of which layout it is".to_owned() });
        };
        if found != VERSION {
            return Err(TableError::BlockVersion { found, expected: VERSION });
        }
        let expected = &self.mark[VERSION_DIGITS..];
        match layout == expected {
            true => Ok(()),
            false => Err(TableError::LayoutDiffers { at, found: layout.to_owned(), expected: expected.to_owned() }),
        }
    }

    /// The schema as the message that stands before record batches in a stream of Arrow's IPC format, a multiple of 64 bytes.
    pub fn schema_message(&self) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let schema = IpcSchemaEncoder::new().schema_to_fb_offset(&mut builder, &self.schema).as_union_value();
        encapsulated(&in_message(&mut builder, MessageHeader::Schema, schema, 0, None))
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
        if u64::from_le_bytes(*checksum) != XxHash3_64::oneshot(message) {
            return Err(damaged(8, "its checksum is another one"));
        }
        let header = message.get(PREFIX_BYTES..).ok_or_else(|| damaged(16, "no schema"))?;
        let schema = ipc_schema::of_message(header).map_err(|what| TableError::NotABlock { at: 16, what })?;
        let plain = plain::plain_schema(&schema);
        let encoded =
            schema.fields().iter().zip(plain.fields()).find(|(one, other)| one.data_type() != other.data_type());
        match encoded {
            Some((field, _)) => Err(damaged(16, &format!("column {} is of no type of blocks", field.name()))),
            None => Self::new(&schema),
        }
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl Layout {
    /// Bytes that begin as those of a layout do, whose checksum is that of `message`.
    pub(crate) fn with_checksum(message: &[u8]) -> Vec<u8> {
        [&MAGIC[..], &VERSION.to_le_bytes(), &XxHash3_64::oneshot(message).to_le_bytes(), message].concat()
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
    mark: Option<&str>,
) -> Vec<u8> {
    let mark = mark.map(|mark| {
        let (key, value) = (builder.create_string(MARK), builder.create_string(mark));
        let pair = KeyValue::create(builder, &KeyValueArgs { key: Some(key), value: Some(value) });
        builder.create_vector(&[pair])
    });
    let mut message = MessageBuilder::new(builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(kind);
    message.add_bodyLength(body_bytes as i64);
    message.add_header(header);
    if let Some(mark) = mark {
        message.add_custom_metadata(mark);
    }
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
