//! What passes over a connection. All integers are little-endian; nothing is allocated by a declared length.
//!
//! ```text
//! hello    client  magic "exoT" | version u16 | token u16 | from u16 | to u16 | token | from | to
//! welcome  server  magic "exoT" | version u16 | status u8 | text u8 | text          (12 bytes and less than 256)
//!
//! request  client  kind u8 | 0 u8 x3 | items u32 | group u128 | check u64 | items x item   (copies of one job)
//!          item    copy u128 | first part u32 | end part u32                        (all parts: twice u32::MAX)
//! answer   server  for each item in order: index u32 | status u8 | 0 u8 x3 | length u64 | check u64 | body
//! ```
//!
//! `from` and `to` are the names of the two nodes; a server that is not `to` refuses, since an address may have passed
//! to another process. `check` is the xxh3-64 of what comes before it in its header, then of the body: of the items of
//! a request, of a directory, of a text. The bytes of parts are not covered: each part has its own checksum, which the
//! receiver verifies.
//!
//! | answer to         | status | body                                                                             |
//! |-------------------|--------|----------------------------------------------------------------------------------|
//! | directory, verify | here   | 48 bytes for each part: offset, bytes, rows u64; row hash u128; checksum u64     |
//! | read              | here   | the bytes from the first part's start to the last one's end, gaps between included |
//! | any               | absent | –                                                                                |
//! | any               | failed | why, UTF-8                                                                       |
//!
//! After a failure in the middle of a body there is no way to say so: the server closes the connection, and the
//! receiver drops what it has.

use std::ops::Range;

use exobus_store::{CopyId, PartMeta, Parts, RowHash};
use twox_hash::XxHash3_64;

/// Begins every connection, both ways.
pub const MAGIC: [u8; 4] = *b"exoT";
/// The version of this layout; both sides must have the same.
pub const VERSION: u16 = 2;
/// Bytes of a hello before its texts.
pub const HELLO_BYTES: usize = 12;
/// Longest token or node name in a hello, bytes.
pub const HELLO_TEXT_MAX: usize = 256;
/// Bytes of a welcome before its text.
pub const WELCOME_BYTES: usize = 8;
/// Bytes of a request before its items.
pub const REQUEST_BYTES: usize = 32;
/// Those of them that the check covers.
const REQUEST_CHECKED_BYTES: usize = REQUEST_BYTES - 8;
/// Bytes of one item of a request.
pub const ITEM_BYTES: usize = 24;
/// Most items in one request.
pub const ITEMS_MAX: usize = 1 << 16;
/// Bytes of an answer to one item before its body.
pub const ANSWER_BYTES: usize = 24;
/// Bytes of one part in a directory.
pub const PART_BYTES: usize = 48;
/// Longest directory of one item, bytes: 1.4 million parts.
pub const DIRECTORY_BYTES_MAX: u64 = 64 << 20;
/// Longest text of a failure, bytes.
pub const TEXT_BYTES_MAX: u64 = 1024;

/// What came over the wire is not what the layout says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The other side does not speak this protocol at all.
    #[error("not an exobus transfer connection")]
    Magic,
    /// It begins a handshake of TLS.
    #[error(
        "speaks TLS, which the data connections of this node are without (security.data_ca_file, data_cert_file, data_key_file)"
    )]
    Tls,
    /// It speaks another version.
    #[error("speaks version {theirs} of transfers, this node {VERSION}: run one release on all nodes")]
    Version {
        /// The version of the other side.
        theirs: u16,
    },
    /// A field has a value that it cannot have.
    #[error("{field} is {value}")]
    Field {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The check does not fit.
    #[error("the check of a frame does not fit its bytes")]
    Check,
    /// There are fewer bytes than there should be.
    #[error("{have} bytes where {need} are needed")]
    Short {
        /// Bytes that there are.
        have: usize,
        /// Bytes that there should be.
        need: usize,
    },
}

/// What a client wants to know or have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The directory of parts.
    Directory,
    /// The bytes.
    Read,
    /// The directory of parts, once all bytes of the object were compared with their checksums: asked by who got bytes
    /// that did not fit. What is corrupt leaves the store, and is not there.
    Verify,
}

/// One thing asked for: parts of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The copy.
    pub object: CopyId,
    /// Which parts.
    pub parts: Parts,
}

/// What is known of an item on the other node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is there; the body follows.
    Here,
    /// It is not there.
    Absent,
    /// It cannot be had; the body says why.
    Failed,
}

/// What a client says first.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The cluster's token.
    pub token: &'a [u8],
    /// Who speaks.
    pub from: &'a str,
    /// Whom it wants; empty: anybody.
    pub to: &'a str,
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// What is wanted.
    pub kind: Kind,
    /// Of how many items.
    pub items: usize,
    group: u128,
    check: u64,
}

/// The header of the answer to one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerHead {
    /// Which item of the request.
    pub index: u32,
    /// What follows.
    pub status: Status,
    /// Bytes of the body.
    pub length: u64,
    /// The check that was sent.
    check: u64,
    /// The check of the header alone.
    header_check: u64,
}

/// Reads fields one after the other; never panics, however short the bytes are.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let short = WireError::Short { have: self.0.len(), need: count };
        let (taken, rest) = self.0.split_at_checked(count).ok_or(short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let short = WireError::Short { have: self.0.len(), need: N };
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Result<u128, WireError> {
        self.array().map(u128::from_le_bytes)
    }

    fn zero<const N: usize>(&mut self, field: &'static str) -> Result<(), WireError> {
        let bytes = self.array::<N>()?;
        match bytes.iter().find(|byte| **byte != 0) {
            None => Ok(()),
            Some(byte) => Err(WireError::Field { field, value: u64::from(*byte) }),
        }
    }
}

fn magic_and_version(fields: &mut Fields<'_>) -> Result<(), WireError> {
    match fields.array::<4>()? {
        MAGIC => {}
        // A record of TLS with a handshake, and the version that all of them have there.
        [0x16, 0x03, ..] => return Err(WireError::Tls),
        _ => return Err(WireError::Magic),
    }
    match fields.u16()? {
        VERSION => Ok(()),
        theirs => Err(WireError::Version { theirs }),
    }
}

fn check_of(header: &[u8], body: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(header), body)
}

/// Encodes a hello. Texts longer than [`HELLO_TEXT_MAX`] are cut, so that the server refuses them.
pub fn encode_hello(hello: &Hello<'_>) -> Vec<u8> {
    let texts =
        [hello.token, hello.from.as_bytes(), hello.to.as_bytes()].map(|text| &text[..text.len().min(HELLO_TEXT_MAX)]);
    let mut bytes = Vec::with_capacity(HELLO_BYTES + texts.iter().map(|text| text.len()).sum::<usize>());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    for text in texts {
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    }
    for text in texts {
        bytes.extend_from_slice(text);
    }
    bytes
}

/// The lengths of the texts of a hello: token, from, to.
///
/// # Errors
/// Another protocol, another version, a text that is too long.
pub fn decode_hello_head(bytes: &[u8]) -> Result<[usize; 3], WireError> {
    let mut fields = Fields(bytes);
    magic_and_version(&mut fields)?;
    let mut lengths = [0; 3];
    for length in &mut lengths {
        *length = usize::from(fields.u16()?);
        if *length > HELLO_TEXT_MAX {
            return Err(WireError::Field { field: "length of a text in a hello", value: *length as u64 });
        }
    }
    Ok(lengths)
}

/// The texts of a hello.
///
/// # Errors
/// Too few bytes, names that are not UTF-8.
pub fn decode_hello_texts(lengths: [usize; 3], bytes: &[u8]) -> Result<Hello<'_>, WireError> {
    let mut fields = Fields(bytes);
    let token = fields.take(lengths[0])?;
    let mut name = |length| {
        let bytes = fields.take(length)?;
        str::from_utf8(bytes)
            .map_err(|_| WireError::Field { field: "name in a hello, not text, length", value: length as u64 })
    };
    Ok(Hello { token, from: name(lengths[1])?, to: name(lengths[2])? })
}

/// Encodes a welcome (`Ok`: the name of the serving node) or a refusal (`Err`: why); texts are cut at 255 bytes.
pub fn encode_welcome(answer: Result<&str, &str>) -> Vec<u8> {
    let (status, text) = match answer {
        Ok(node) => (0, node),
        Err(reason) => (1, reason),
    };
    let text = &text.as_bytes()[..text.floor_char_boundary(255)];
    let mut bytes = Vec::with_capacity(WELCOME_BYTES + text.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.push(status);
    bytes.push(text.len() as u8);
    bytes.extend_from_slice(text);
    bytes
}

/// Whether the server refuses, and how long its text is. A refusal of another version is understood.
///
/// # Errors
/// Another protocol, another version that does not refuse, an unknown status.
pub fn decode_welcome_head(bytes: &[u8]) -> Result<(bool, usize), WireError> {
    let mut fields = Fields(bytes);
    let known = magic_and_version(&mut fields);
    if let Err(error) = &known
        && !matches!(error, WireError::Version { .. })
    {
        return Err(error.clone());
    }
    let refused = match fields.u8()? {
        0 => false,
        1 => true,
        other => return Err(WireError::Field { field: "status of a welcome", value: u64::from(other) }),
    };
    if !refused {
        known?;
    }
    Ok((refused, usize::from(fields.u8()?)))
}

/// Encodes a request.
///
/// # Panics
/// With more than [`ITEMS_MAX`] items, or items of several groups: callers split.
pub fn encode_request(kind: Kind, items: &[Item]) -> Vec<u8> {
    assert!(items.len() <= ITEMS_MAX, "{} items in one request", items.len());
    let group = items.first().map_or(0, |item| item.object.group);
    assert!(items.iter().all(|item| item.object.group == group), "items of several groups in one request");
    let mut bytes = Vec::with_capacity(REQUEST_BYTES + items.len() * ITEM_BYTES);
    let kind = match kind {
        Kind::Directory => 1,
        Kind::Read => 2,
        Kind::Verify => 3,
    };
    bytes.extend_from_slice(&[kind, 0, 0, 0]);
    bytes.extend_from_slice(&(items.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&group.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    for item in items {
        let (first, end) = match item.parts {
            Parts::All => (u32::MAX, u32::MAX),
            Parts::Range(first, end) => (first, end),
        };
        bytes.extend_from_slice(&item.object.bits.to_le_bytes());
        bytes.extend_from_slice(&first.to_le_bytes());
        bytes.extend_from_slice(&end.to_le_bytes());
    }
    let check = check_of(&bytes[..REQUEST_CHECKED_BYTES], &bytes[REQUEST_BYTES..]);
    bytes[REQUEST_CHECKED_BYTES..REQUEST_BYTES].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// The header of a request; the items follow, [`ITEM_BYTES`] each.
///
/// # Errors
/// Too few bytes, an unknown kind, too many items.
pub fn decode_request_head(bytes: &[u8]) -> Result<RequestHead, WireError> {
    let mut fields = Fields(bytes);
    let kind = match fields.u8()? {
        1 => Kind::Directory,
        2 => Kind::Read,
        3 => Kind::Verify,
        other => return Err(WireError::Field { field: "kind of a request", value: u64::from(other) }),
    };
    fields.zero::<3>("padding of a request")?;
    let items = fields.u32()? as usize;
    if items > ITEMS_MAX {
        return Err(WireError::Field { field: "number of items", value: items as u64 });
    }
    let group = fields.u128()?;
    if items == 0 && group != 0 {
        return Err(WireError::Field { field: "group of a request for nothing", value: group as u64 });
    }
    Ok(RequestHead { kind, items, group, check: fields.u64()? })
}

/// The items of a request.
///
/// # Errors
/// Too few bytes, a check that does not fit, a range of parts that ends before it begins.
pub fn decode_items(head: &RequestHead, bytes: &[u8]) -> Result<Vec<Item>, WireError> {
    if bytes.len() != head.items * ITEM_BYTES {
        return Err(WireError::Short { have: bytes.len(), need: head.items * ITEM_BYTES });
    }
    let mut header = [0; REQUEST_CHECKED_BYTES];
    header[0] = match head.kind {
        Kind::Directory => 1,
        Kind::Read => 2,
        Kind::Verify => 3,
    };
    header[4..8].copy_from_slice(&(head.items as u32).to_le_bytes());
    header[8..].copy_from_slice(&head.group.to_le_bytes());
    if check_of(&header, bytes) != head.check {
        return Err(WireError::Check);
    }
    let mut fields = Fields(bytes);
    let mut items = Vec::with_capacity(bytes.len() / ITEM_BYTES);
    while !fields.0.is_empty() {
        let object = CopyId::new(head.group, fields.u128()?);
        let parts = match (fields.u32()?, fields.u32()?) {
            (u32::MAX, u32::MAX) => Parts::All,
            (first, end) if first <= end => Parts::Range(first, end),
            (first, _) => {
                return Err(WireError::Field { field: "first part, after the last one,", value: u64::from(first) });
            }
        };
        items.push(Item { object, parts });
    }
    Ok(items)
}

/// Appends the header of an answer to `bytes`. `body`: what the check covers beside the header: a directory, a text;
/// nothing for the bytes of parts.
pub fn encode_answer_head(bytes: &mut Vec<u8>, index: u32, status: Status, length: u64, body: &[u8]) {
    let status = match status {
        Status::Here => 0,
        Status::Absent => 1,
        Status::Failed => 2,
    };
    let mut header = [0; ANSWER_BYTES];
    header[..4].copy_from_slice(&index.to_le_bytes());
    header[4] = status;
    header[8..16].copy_from_slice(&length.to_le_bytes());
    let check = check_of(&header[..16], body);
    header[16..].copy_from_slice(&check.to_le_bytes());
    bytes.extend_from_slice(&header);
}

/// The header of an answer.
///
/// # Errors
/// Too few bytes, an unknown status, a length that the status cannot have.
pub fn decode_answer_head(bytes: &[u8]) -> Result<AnswerHead, WireError> {
    let mut fields = Fields(bytes);
    let index = fields.u32()?;
    let status = match fields.u8()? {
        0 => Status::Here,
        1 => Status::Absent,
        2 => Status::Failed,
        other => return Err(WireError::Field { field: "status of an answer", value: u64::from(other) }),
    };
    fields.zero::<3>("padding of an answer")?;
    let length = fields.u64()?;
    let limit = match status {
        Status::Here => u64::MAX,
        Status::Absent => 0,
        Status::Failed => TEXT_BYTES_MAX,
    };
    if length > limit {
        return Err(WireError::Field { field: "length of an answer", value: length });
    }
    let check = fields.u64()?;
    let header_check = XxHash3_64::oneshot(&bytes[..16]);
    Ok(AnswerHead { index, status, length, check, header_check })
}

impl AnswerHead {
    /// Verifies the check over the header and what it covers of the body (see [`encode_answer_head`]).
    ///
    /// # Errors
    /// [`WireError::Check`].
    pub fn verify(&self, body: &[u8]) -> Result<(), WireError> {
        match XxHash3_64::oneshot_with_seed(self.header_check, body) == self.check {
            true => Ok(()),
            false => Err(WireError::Check),
        }
    }
}

/// Where in their object the bytes of consecutive parts are, gaps made by alignment included: what a read sends. Parts
/// without bytes do not count; empty when none has any.
pub fn byte_range(parts: &[PartMeta]) -> Range<u64> {
    let with_bytes = |part: &&PartMeta| part.bytes > 0;
    let first = parts.iter().find(with_bytes).map_or(0, |part| part.offset);
    let end = parts.iter().rfind(with_bytes).map_or(0, |part| part.offset.saturating_add(part.bytes));
    first..end.max(first)
}

/// The body of a directory.
pub fn encode_parts(parts: &[PartMeta]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.len() * PART_BYTES);
    for part in parts {
        bytes.extend_from_slice(&part.offset.to_le_bytes());
        bytes.extend_from_slice(&part.bytes.to_le_bytes());
        bytes.extend_from_slice(&part.rows.to_le_bytes());
        bytes.extend_from_slice(&part.row_hash.0.to_le_bytes());
        bytes.extend_from_slice(&part.checksum.to_le_bytes());
    }
    bytes
}

/// Reads the body of a directory.
///
/// # Errors
/// A length that is no multiple of [`PART_BYTES`], parts that cannot be those of one object.
pub fn decode_parts(bytes: &[u8]) -> Result<Vec<PartMeta>, WireError> {
    if !bytes.len().is_multiple_of(PART_BYTES) {
        return Err(WireError::Field { field: "length of a directory", value: bytes.len() as u64 });
    }
    let mut fields = Fields(bytes);
    let mut parts = Vec::with_capacity(bytes.len() / PART_BYTES);
    while !fields.0.is_empty() {
        parts.push(PartMeta {
            offset: fields.u64()?,
            bytes: fields.u64()?,
            rows: fields.u64()?,
            row_hash: RowHash(fields.u128()?),
            checksum: fields.u64()?,
        });
    }
    if !PartMeta::are_plausible(&parts) {
        return Err(WireError::Field { field: "parts that overlap or do not end, of", value: parts.len() as u64 });
    }
    Ok(parts)
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
