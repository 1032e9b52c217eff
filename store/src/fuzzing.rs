//! What damaged spill files and indexes could hold, as functions for fuzzing: none may panic, whatever the bytes.

use crate::{
    checksum,
    directory::{Directory, byte_range},
    footer::{self, Location, Summary},
    ids::CopyId,
    meta::{ObjectMeta, PartMeta, Parts},
};

/// The trailer of a file whose size is what the last eight bytes say; also with a checksum that fits.
pub fn footer_trailer(bytes: &[u8]) {
    let Some((trailer, size)) = bytes.split_last_chunk::<8>() else { return };
    let size = u64::from_le_bytes(*size);
    let _ = footer::locate(trailer, size);
    if trailer.len() >= 40 {
        let mut fits = trailer.to_vec();
        let sum = checksum::of(&fits[..32]);
        fits[32..40].copy_from_slice(&sum.to_le_bytes());
        if let footer::Trailer::Known(location) = footer::locate(&fits, size) {
            assert!(location.offset + location.bytes <= size);
        }
    }
}

/// A payload whose checksum fits, and what is made of the objects that it lists.
pub fn footer_payload(bytes: &[u8]) {
    let location = Location { offset: 1 << 40, bytes: bytes.len() as u64, checksum: checksum::of(bytes) };
    for block in footer::decode(bytes, location).unwrap_or_default() {
        part_directory(&block.parts);
    }
}

/// An entry of the index, and whether a file of some size could have such a footer.
pub fn index_entry(bytes: &[u8]) {
    if let Ok(Summary { size, payload, .. }) = rmp_serde::from_slice(bytes) {
        for size in [0, 4096, size, u64::MAX] {
            let _ = footer::plausible(payload, size);
        }
    }
}

/// The parts of an object, as a footer or another node tells them.
pub fn part_directory(parts: &[PartMeta]) {
    let directory = Directory::new(parts);
    let _ = (directory.len(), directory.span(), byte_range(parts));
    for wanted in [Parts::All, Parts::one(0), Parts::Range(5, u32::MAX), Parts::Range(1, 3), Parts::Range(3, 1)] {
        if let Some(range) = directory.resolve(wanted) {
            let _ = byte_range(&directory.slice(range));
        }
    }
    let meta = ObjectMeta::of(CopyId::new(5, 1), parts.into());
    let _ = meta.span();
}

/// A footer with so many blocks of so many parts each, and its trailer with the size of its file: seeds.
pub fn footers() -> [Vec<Vec<u8>>; 2] {
    let part = |at: u64| PartMeta { offset: 10 * at, bytes: 10, rows: 1, row_hash: Default::default(), checksum: 5 };
    let block = |object: u128, parts: u64| {
        let parts: Vec<_> = (0..parts).map(part).collect();
        crate::state::BlockInfo {
            object: CopyId::new(5, object),
            maker: 2,
            directory: Directory::new(&parts),
            extents: 1,
            start: 0,
            bytes: 10 * parts.len() as u64,
            next_start: u64::MAX,
            offset: 0,
        }
    };
    let (mut payloads, mut trailers) = (Vec::new(), Vec::new());
    for blocks in [vec![], vec![block(1, 1)], vec![block(1, 4), block(2, 0), block(3, 9)]] {
        let encoded = footer::encode(8192, &blocks);
        let size = 8192 + encoded.bytes.len() as u64;
        let summary = encoded.summary(size, blocks.len());
        payloads.push(encoded.bytes[..summary.payload.bytes as usize].to_vec());
        let trailer = &encoded.bytes[encoded.bytes.len() - 4096..][..40];
        trailers.push([trailer, &size.to_le_bytes()].concat());
    }
    [payloads, trailers]
}

/// Entries as the index has them: seeds.
pub fn index_entries() -> Vec<Vec<u8>> {
    let summary = |bytes: u64| Summary {
        version: footer::VERSION,
        size: bytes + (2 << 20),
        blocks: 3,
        payload: Location { offset: 1 << 20, bytes, checksum: 7 },
    };
    [0, 100, 1 << 30].into_iter().filter_map(|bytes| rmp_serde::to_vec_named(&summary(bytes)).ok()).collect()
}
