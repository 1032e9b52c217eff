//! What stands at the end of a closed spill file: which blocks it has, so that it can be read without any index.
//!
//! ```text
//! blocks ... | payload, padded to 4096 | trailer, 4096 bytes
//! payload: count u32, then for each block
//!          object u128, group u128, maker u32, extents of the object u32, start u64, bytes u64, offset u64,
//!          first part u32, parts of the object u32, count u32, and for each part of the block
//!          offset u64, bytes u64, rows u64, row hash u128, checksum u64
//! trailer: magic [6], version [2], payload offset u64, payload bytes u64, xxh3-64 of the payload u64, xxh3-64 of the 32 bytes before
//! ```
//! All numbers little-endian. The trailer's checksum covers where the payload is, the payload's covers everything else,
//! so a flipped bit anywhere makes the footer invalid as a whole: the file then counts as torn.
//!
//! The version is two decimal digits. Magic, version and the place of the checksum over the 32 bytes are those of every version, so that a
//! file of another one is told from one that is torn: it is whole, and the exobus that wrote it can read it.

use serde::{Deserialize, Serialize};

use crate::{
    alloc::PAGE,
    checksum,
    ids::{CopyId, RowHash},
    meta::PartMeta,
    state::BlockInfo,
};

const MAGIC: [u8; 6] = *b"EXOSPL";
/// Of the trailer, the payload, and what the blocks are like.
pub(crate) const VERSION: u8 = 1;
const TRAILER_BYTES: usize = 40;
/// No honest footer is longer: it would list some millions of blocks in one file of 128 MiB.
const PAYLOAD_MAX: u64 = 1 << 30;
const PART_BYTES: usize = 48;

/// An encoded footer.
pub(crate) struct Footer {
    /// Payload, padding and trailer: a multiple of 4096.
    pub bytes: Vec<u8>,
    payload: Location,
}

/// Where the payload is and what it must hash to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location {
    pub offset: u64,
    pub bytes: u64,
    pub checksum: u64,
}

/// What the index keeps of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Of the footer; those that were noted without it are of the first.
    #[serde(default = "first_version")]
    pub version: u8,
    /// Length of the file.
    pub size: u64,
    pub blocks: u64,
    pub payload: Location,
}

fn first_version() -> u8 {
    1
}

/// A block that a footer lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FooterBlock {
    pub object: CopyId,
    pub maker: u32,
    /// How many blocks the object has in all.
    pub extents: u32,
    pub start: u64,
    pub bytes: u64,
    /// In the file.
    pub offset: u64,
    pub first_part: u32,
    /// How many parts the object has in all.
    pub parts_of_object: u32,
    /// Those of this block.
    pub parts: Vec<PartMeta>,
}

impl Footer {
    pub fn summary(&self, size: u64, blocks: usize) -> Summary {
        Summary { version: VERSION, size, blocks: blocks as u64, payload: self.payload }
    }
}

/// What the last 4096 bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trailer {
    /// Ours: the payload is there.
    Known(Location),
    /// The trailer of a file that is whole, in another version than [`VERSION`].
    Other { version: u8 },
    /// None: the file is torn, or none of ours.
    Invalid,
}

/// Footer of a file whose blocks end at `end`, a multiple of 4096.
pub(crate) fn encode(end: u64, blocks: &[BlockInfo]) -> Footer {
    let mut bytes = Vec::new();
    bytes.extend((blocks.len() as u32).to_le_bytes());
    for block in blocks {
        bytes.extend(block.object.bits.to_le_bytes());
        bytes.extend(block.object.group.to_le_bytes());
        bytes.extend(block.maker.to_le_bytes());
        bytes.extend(block.extents.to_le_bytes());
        bytes.extend(block.start.to_le_bytes());
        bytes.extend(block.bytes.to_le_bytes());
        bytes.extend(block.offset.to_le_bytes());
        let parts = block.directory.slice(0..block.directory.len());
        let first = if block.start == 0 { 0 } else { parts.partition_point(|part| part.offset < block.start) };
        let after = parts.partition_point(|part| part.offset < block.next_start);
        bytes.extend((first as u32).to_le_bytes());
        bytes.extend((parts.len() as u32).to_le_bytes());
        bytes.extend(((after.max(first) - first) as u32).to_le_bytes());
        for part in &parts[first..after.max(first)] {
            bytes.extend(part.offset.to_le_bytes());
            bytes.extend(part.bytes.to_le_bytes());
            bytes.extend(part.rows.to_le_bytes());
            bytes.extend(part.row_hash.0.to_le_bytes());
            bytes.extend(part.checksum.to_le_bytes());
        }
    }
    let payload = Location { offset: end, bytes: bytes.len() as u64, checksum: checksum::of(&bytes) };
    bytes.resize(bytes.len().next_multiple_of(PAGE as usize), 0);
    let mut trailer = Vec::with_capacity(PAGE as usize);
    trailer.extend(MAGIC);
    trailer.extend([b'0' + VERSION / 10, b'0' + VERSION % 10]);
    trailer.extend(payload.offset.to_le_bytes());
    trailer.extend(payload.bytes.to_le_bytes());
    trailer.extend(payload.checksum.to_le_bytes());
    trailer.extend(checksum::of(&trailer).to_le_bytes());
    debug_assert_eq!(trailer.len(), TRAILER_BYTES);
    trailer.resize(PAGE as usize, 0);
    bytes.append(&mut trailer);
    Footer { bytes, payload }
}

/// Where the payload is, from the last 4096 bytes of a file of `size` bytes.
pub(crate) fn locate(trailer: &[u8], size: u64) -> Trailer {
    match trailer.get(..TRAILER_BYTES).and_then(versioned) {
        Some((VERSION, mut fields)) => {
            let mut field = || fields.u64().expect("the trailer has three numbers behind its version");
            let location = Location { offset: field(), bytes: field(), checksum: field() };
            if plausible(location, size) { Trailer::Known(location) } else { Trailer::Invalid }
        }
        Some((version, _)) => Trailer::Other { version },
        None => Trailer::Invalid,
    }
}

/// The version of a trailer, and the fields behind it.
fn versioned(trailer: &[u8]) -> Option<(u8, Reader<'_>)> {
    let (fields, sum) = trailer.split_at(TRAILER_BYTES - 8);
    let (magic, rest) = fields.split_at(MAGIC.len());
    if magic != MAGIC || checksum::of(fields).to_le_bytes() != sum {
        return None;
    }
    let (digits, rest) = rest.split_at(2);
    let version = str::from_utf8(digits).ok()?.parse().ok()?;
    Some((version, Reader(rest)))
}

/// Whether there can be such a payload in a file of this size.
pub(crate) fn plausible(location: Location, size: u64) -> bool {
    location.bytes <= PAYLOAD_MAX
        && location.offset.is_multiple_of(PAGE)
        && location.offset.checked_add(location.bytes.next_multiple_of(PAGE)).and_then(|end| end.checked_add(PAGE))
            == Some(size)
}

/// The blocks of a payload. `None`: it is not what was written.
pub(crate) fn decode(payload: &[u8], location: Location) -> Option<Vec<FooterBlock>> {
    if payload.len() as u64 != location.bytes || checksum::of(payload) != location.checksum {
        return None;
    }
    let mut reader = Reader(payload);
    let count = reader.u32()?;
    let mut blocks = Vec::new();
    for _ in 0..count {
        let (bits, group) = (reader.u128()?, reader.u128()?);
        let mut block = FooterBlock {
            object: CopyId::new(group, bits),
            maker: reader.u32()?,
            extents: reader.u32()?,
            start: reader.u64()?,
            bytes: reader.u64()?,
            offset: reader.u64()?,
            first_part: reader.u32()?,
            parts_of_object: reader.u32()?,
            parts: Vec::new(),
        };
        let parts = reader.u32()? as usize;
        // Never more than can follow: lengths are checked before memory is taken for them.
        if parts > reader.0.len() / PART_BYTES || block.offset.checked_add(block.bytes)? > location.offset {
            return None;
        }
        for _ in 0..parts {
            block.parts.push(PartMeta {
                offset: reader.u64()?,
                bytes: reader.u64()?,
                rows: reader.u64()?,
                row_hash: RowHash(reader.u128()?),
                checksum: reader.u64()?,
            });
        }
        if !PartMeta::are_plausible(&block.parts) {
            return None;
        }
        blocks.push(block);
    }
    reader.0.is_empty().then_some(blocks)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (now, later) = self.0.split_first_chunk::<N>()?;
        self.0 = later;
        Some(*now)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.take().map(u128::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Directory;

    fn sample() -> Vec<BlockInfo> {
        let part =
            |offset: u64, bytes: u64| PartMeta { offset, bytes, rows: 3, row_hash: RowHash(9 << 100), checksum: 5 };
        let directory = Directory::new(&[part(0, 10), part(10, 0), part(10, 30), part(40, 0)]);
        let block = |start, bytes, offset, next_start| BlockInfo {
            object: CopyId::new(5, 77),
            maker: 2,
            directory: directory.clone(),
            extents: 2,
            start,
            bytes,
            next_start,
            offset,
        };
        vec![block(0, 10, 0, 10), block(10, 30, 4096, u64::MAX)]
    }

    #[test]
    fn every_part_comes_back_once() {
        let footer = encode(8192, &sample());
        let size = 8192 + footer.bytes.len() as u64;
        let Trailer::Known(location) = locate(&footer.bytes[footer.bytes.len() - 4096..], size) else {
            panic!("valid")
        };
        assert_eq!(location, footer.summary(size, 2).payload);
        let blocks = decode(&footer.bytes[..location.bytes as usize], location).unwrap();
        assert_eq!(blocks.len(), 2);
        assert_eq!((blocks[0].first_part, blocks[0].parts.len()), (0, 1));
        assert_eq!((blocks[1].first_part, blocks[1].parts.len()), (1, 3), "empty parts go with what follows");
        assert_eq!((blocks[1].start, blocks[1].offset, blocks[1].object.group, blocks[1].maker), (10, 4096, 5, 2));
    }

    #[test]
    fn a_flipped_bit_anywhere_makes_it_invalid() {
        let footer = encode(8192, &sample());
        let size = 8192 + footer.bytes.len() as u64;
        let read = |bytes: &[u8]| {
            let Trailer::Known(location) = locate(&bytes[bytes.len() - 4096..], size) else { return None };
            decode(&bytes[..location.bytes as usize], location)
        };
        let payload = footer.summary(size, 2).payload.bytes as usize;
        assert!(read(&footer.bytes).is_some());
        for at in (0..payload).chain(footer.bytes.len() - 4096..footer.bytes.len() - 4096 + TRAILER_BYTES) {
            for bit in 0..8 {
                let mut bytes = footer.bytes.clone();
                bytes[at] ^= 1 << bit;
                assert!(read(&bytes).is_none(), "bit {bit} of byte {at}");
            }
        }
        let extended = locate(&footer.bytes[footer.bytes.len() - 4096..], size + 4096);
        assert_eq!(extended, Trailer::Invalid, "torn or extended");
    }

    /// Files that were spilled before must be known for ever.
    #[test]
    fn the_stored_sample_is_what_is_written_and_read() {
        let stored = include_bytes!("../tests/samples/spill-footer-1.bin");
        assert!(encode(8192, &sample()).bytes == stored, "other bytes than in the sample");
        let size = 8192 + stored.len() as u64;
        let Trailer::Known(location) = locate(&stored[stored.len() - 4096..], size) else { panic!("valid") };
        let blocks = decode(&stored[..location.bytes as usize], location).unwrap();
        assert_eq!((blocks.len(), blocks[1].parts.len(), blocks[1].maker), (2, 3, 2));
    }

    #[test]
    fn another_version_is_told_from_a_torn_file() {
        let footer = encode(8192, &sample());
        let size = 8192 + footer.bytes.len() as u64;
        let of = |digits: &[u8; 2]| {
            let mut trailer = footer.bytes[footer.bytes.len() - 4096..].to_vec();
            trailer[6..8].copy_from_slice(digits);
            let torn = locate(&trailer, size);
            let sum = checksum::of(&trailer[..TRAILER_BYTES - 8]).to_le_bytes();
            trailer[TRAILER_BYTES - 8..TRAILER_BYTES].copy_from_slice(&sum);
            (torn, locate(&trailer, size))
        };
        assert_eq!(of(b"00"), (Trailer::Invalid, Trailer::Other { version: 0 }));
        assert_eq!(of(b"02"), (Trailer::Invalid, Trailer::Other { version: 2 }));
        assert_eq!(of(b"x2"), (Trailer::Invalid, Trailer::Invalid));
    }
}
