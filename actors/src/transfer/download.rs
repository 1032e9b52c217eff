//! Objects of another node straight into whatever takes bytes, for who has a ticket and no store.

use std::hash::Hasher as _;
use std::sync::Arc;

use exobus_store::{Clock, CopyId, Parts};
use twox_hash::XxHash3_64;

use super::client::Connection;
use super::error::{PeerName, TransferError};
use super::fetch::Progress;
use super::token::ClusterToken;
use super::wire::{Item, Kind};
use super::{ClientOptions, client};

/// Reads the parts of an object from `peer`, one behind the other and without the gaps between them, and gives them to `take` as they come.
/// What `take` was given of a part that does not fit its checksum is wrong: the error comes before the next part. Blocks.
///
/// # Errors
/// See [`TransferError`]; `Taken`: `take` failed.
pub fn download(
    peer: &PeerName,
    ticket: &str,
    object: CopyId,
    options: &ClientOptions,
    clock: Arc<dyn Clock>,
    mut take: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> Result<u64, TransferError> {
    let progress = Progress::new(peer, 1);
    let mut connection = Connection::open(peer, options, &ClusterToken::new(ticket), clock, &progress)?;
    let items = [Item { object, parts: Parts::All }];
    let first = connection.ask(Kind::Directory, &items)?;
    let directory = connection.directories(first, &items)?.pop().flatten();
    let parts = directory.ok_or_else(|| TransferError::Absent { peer: peer.clone(), object })?;
    let Some(head) = connection.ask(Kind::Read, &items)? else { return Ok(0) };
    let mut chunk = vec![0; client::CHUNK_BYTES];
    connection.pass_on(&head, &parts, object, |link| {
        let mut position = parts.first().map_or(0, |part| part.offset);
        let mut passed = 0;
        for (index, part) in parts.iter().enumerate().filter(|(_, part)| part.bytes > 0) {
            let gap = part.offset.checked_sub(position).ok_or_else(client::overlap)?;
            link.skip(gap)?;
            position = part.offset + part.bytes;
            let (mut left, mut checksum) = (part.bytes, XxHash3_64::new());
            while left > 0 {
                let most = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let count = link.read(&mut chunk[..most])?;
                checksum.write(&chunk[..count]);
                take(&chunk[..count]).map_err(client::PassError::Taken)?;
                left -= count as u64;
                passed += count as u64;
            }
            if checksum.finish() != part.checksum {
                return Err(client::PassError::Corrupt(format!("checksum of part {index} does not fit")));
            }
        }
        Ok(passed)
    })
}
