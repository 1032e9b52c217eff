//! What an earlier process of this node left on disk: found at open, announced, and deleted only when told.
//!
//! Nothing is trusted: a file whose footer is not what was written is left out and deleted, one that cannot be read, or that another
//! release wrote, is left alone, and a directory that fails is out of use, unless it is the only one.

use std::{collections::BTreeMap, io, path::Path};

use tracing::{info, warn};

use crate::{
    directory::Directory,
    disk::{AlignedBuffer, DiskFile, read_all_at},
    error::StoreError,
    files::Trouble,
    footer::{self, FooterBlock, Location, Summary, Trailer},
    ids::CopyId,
    index::Index,
    meta::{ObjectMeta, PartMeta},
    options::StoreEvent,
    shared::Shared,
    state::Sealed,
    table::{FileId, NewExtent, Place},
};

/// A block and where it was found.
struct Found {
    block: FooterBlock,
    file: FileId,
}

/// Reads the footers of all spill files and takes over every object of which all blocks are there. Files without a
/// valid footer were being written when their process ended: nothing in them was ever announced with them, so they are
/// deleted.
pub(crate) fn recover(shared: &Shared) -> Result<Vec<ObjectMeta>, StoreError> {
    let mut found: BTreeMap<CopyId, Vec<Found>> = BTreeMap::new();
    let count = shared.dirs.paths().len();
    for dir in 0..count {
        let listed = shared.dirs.prepare(dir).and_then(|()| shared.dirs.spill_files(dir));
        let files = match listed {
            // Bad for the node only when no other directory is left.
            Err(error @ StoreError::Disk { .. }) if shared.with(|state| state.files.can_do_without(dir)) => {
                warn!(%error, "spill directory cannot be used");
                shared.with(|state| state.retire(dir, &Trouble::from(&error)));
                continue;
            }
            listed => listed?,
        };
        if files.is_empty() {
            continue;
        }
        let index = shared.dirs.index(dir, |dir, reason| shared.index_damaged(dir, reason));
        for path in &files {
            match read_footer(shared, index.as_deref(), path) {
                Ok(Footer::Known(blocks, size)) => {
                    let file = shared.with(|state| state.files.adopt(dir, path, size));
                    for block in blocks {
                        found.entry(block.object).or_default().push(Found { block, file });
                    }
                }
                // That release may be started again, and go on with what is in it.
                Ok(Footer::Other { version }) => {
                    let reason = format!(
                        "{} is a spill file of version {version}, this exobus reads version {}: start the exobus that wrote it, to use \
                         what is in it, or delete the file",
                        path.display(),
                        footer::VERSION
                    );
                    shared.tell(StoreEvent::FileRefused { path: path.clone(), reason });
                }
                Ok(Footer::Invalid) => {
                    warn!(path = %path.display(), "spill file without a valid footer is deleted");
                    let _ = shared.dirs.disk.remove(path);
                }
                // It may be read another time.
                Err(error) => warn!(path = %path.display(), %error, "spill file cannot be read and is left alone"),
            }
        }
        if let Some(index) = index {
            let known = |name: &[u8]| {
                files.iter().any(|path| path.file_name().is_some_and(|file| file.as_encoded_bytes() == name))
            };
            index.names().iter().filter(|name| !known(name)).for_each(|name| index.remove_name(name));
        }
    }
    let mut metas = Vec::new();
    for (id, blocks) in found {
        metas.extend(take_over(shared, id, blocks));
    }
    // Files of which nothing could be taken over.
    shared.with(|state| state.drop_empty_files());
    if !metas.is_empty() {
        info!(objects = metas.len(), "objects of an earlier process are still on disk");
    }
    Ok(metas)
}

/// What stands at the end of a file.
enum Footer {
    /// The blocks that it lists, and the file's length.
    Known(Vec<FooterBlock>, u64),
    /// A footer of another version.
    Other { version: u8 },
    /// No valid one.
    Invalid,
}

fn read_footer(shared: &Shared, index: Option<&Index>, path: &Path) -> io::Result<Footer> {
    let file = shared.dirs.disk.open(path)?;
    let size = file.len()?;
    let known =
        index.and_then(|index| index.get(path)).filter(|known| (known.size, known.version) == (size, footer::VERSION));
    if let Some(known) = known
        && let Some(blocks) = read_payload(&*file, known.payload, size)?
    {
        return Ok(Footer::Known(blocks, size));
    }
    let mut buffer = AlignedBuffer::default();
    let trailer = buffer.of(4096);
    let Some(at) = size.checked_sub(4096).filter(|at| at.is_multiple_of(4096)) else {
        return Ok(Footer::Invalid);
    };
    read_all_at(&*file, at, &mut [&mut *trailer])?;
    let payload = match footer::locate(trailer, size) {
        Trailer::Known(payload) => payload,
        Trailer::Other { version } => return Ok(Footer::Other { version }),
        Trailer::Invalid => return Ok(Footer::Invalid),
    };
    let Some(blocks) = read_payload(&*file, payload, size)? else { return Ok(Footer::Invalid) };
    if let Some(index) = index {
        index.insert(path, &Summary { version: footer::VERSION, size, blocks: blocks.len() as u64, payload });
    }
    Ok(Footer::Known(blocks, size))
}

fn read_payload(file: &dyn DiskFile, location: Location, size: u64) -> io::Result<Option<Vec<FooterBlock>>> {
    if !footer::plausible(location, size) {
        return Ok(None);
    }
    let mut buffer = AlignedBuffer::default();
    let payload = buffer.of(location.bytes.next_multiple_of(4096) as usize);
    read_all_at(file, location.offset, &mut [&mut *payload])?;
    Ok(footer::decode(&payload[..location.bytes as usize], location))
}

/// `None`: blocks are missing, so the object is of no use; their room is free once the rest of their files is.
fn take_over(shared: &Shared, id: CopyId, mut found: Vec<Found>) -> Option<ObjectMeta> {
    found.sort_by_key(|found| found.block.start);
    // A block that was written again after a disk error may be there twice.
    found.dedup_by_key(|found| found.block.start);
    let first = &found.first()?.block;
    let (maker, extents, count) = (first.maker, first.extents, first.parts_of_object);
    if found.len() != extents as usize {
        return None;
    }
    let mut parts: Vec<PartMeta> = Vec::new();
    for Found { block, .. } in &found {
        if block.first_part as usize != parts.len() {
            return None;
        }
        parts.extend(&block.parts);
    }
    if parts.len() != count as usize || !PartMeta::are_plausible(&parts) {
        return None;
    }
    let extents: Vec<NewExtent> = found
        .iter()
        .map(|Found { block, file }| NewExtent {
            start: block.start,
            bytes: block.bytes,
            memory: None,
            disk: Some(Place { file: *file, offset: block.offset }),
        })
        .collect();
    let directory = Directory::new(&parts);
    let taken = shared.with(|state| state.adopt(Sealed { id, maker, directory, extents: &extents }));
    taken.then(|| ObjectMeta::of(id, parts.into()))
}
