//! Copies of objects of other nodes, kept as objects of this node's store.

use std::sync::Arc;

use exobus_store::{Align, CopyId, ObjectMeta, PartMeta, Parts, Store, StoreError, WriterOptions};
use twox_hash::XxHash3_128;

use super::error::LinkError;
use super::fetch::Progress;
use super::link::Link;
use super::wire;
use crate::random::Random;

/// What a copy is made with.
pub(super) struct Target {
    pub(super) store: Store,
    pub(super) object: CopyId,
    pub(super) parts: Parts,
    /// What the copy is called; `None`: like nothing else.
    pub(super) name: Option<CopyId>,
    /// Makes its id, where it has no name.
    pub(super) random: Arc<dyn Random>,
}

/// Why there is no copy.
#[derive(Debug)]
pub(super) enum CopyError {
    Link(LinkError),
    Store(StoreError),
    /// The first part whose checksum does not fit.
    Corrupt(String),
}

impl From<LinkError> for CopyError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<StoreError> for CopyError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The name of a private copy: like no other, so that it is never taken for the original.
fn private_name(target: &Target) -> CopyId {
    let bytes = [target.object.bits, target.random.next_u128()].map(u128::to_le_bytes);
    CopyId::new(target.object.group, XxHash3_128::oneshot(bytes.as_flattened()))
}

/// Writes the parts that come over `link` as a new object; its id. A writer that is dropped frees everything.
pub(super) fn receive(
    link: &mut Link,
    parts: &[PartMeta],
    target: &Target,
    progress: &Progress,
) -> Result<CopyId, CopyError> {
    let id = target.name.unwrap_or_else(|| private_name(target));
    let range = wire::byte_range(parts);
    // Parts in the original may be aligned for who reads them in place; so are they here then.
    let aligned = parts.iter().all(|part| part.offset.is_multiple_of(64));
    let options = WriterOptions {
        align: if aligned { Align::SixtyFour } else { Align::One },
        // With the gaps, so that it is one extent and any run of its parts one block.
        bytes_hint: range.end - range.start,
        ..WriterOptions::default()
    };
    let mut writer = target.store.writer(id, options);
    let mut position = range.start;
    for part in parts {
        if part.bytes > 0 {
            link.skip(part.offset.checked_sub(position).ok_or_else(super::client::overlap)?)?;
            position = part.offset + part.bytes;
        }
        writer.begin_part(Some(part.bytes))?;
        let mut left = part.bytes;
        while left > 0 {
            let spare = writer.spare()?;
            let most = spare.len().min(super::client::CHUNK_BYTES).min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = link.read(&mut spare[..most])?;
            writer.advance(count);
            progress.add(count as u64);
            left -= count as u64;
        }
        writer.end_part(part.rows, part.row_hash);
    }
    let meta = writer.seal()?;
    verify(&meta, parts).inspect_err(|_| target.store.delete(&[id]))?;
    Ok(id)
}

/// Compares what was written with what should have been.
fn verify(copy: &ObjectMeta, parts: &[PartMeta]) -> Result<(), CopyError> {
    let differs = |(copy, part): &(&PartMeta, &PartMeta)| copy.checksum != part.checksum || copy.bytes != part.bytes;
    match copy.parts.iter().zip(parts).position(|pair| differs(&pair)) {
        Some(part) => Err(CopyError::Corrupt(format!("checksum of part {part} of those asked for does not fit"))),
        None => Ok(()),
    }
}
