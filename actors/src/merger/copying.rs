//! Making a copy: how large it is, memory for it, its bytes.

use exobus_store::{Block, Class, PartMeta, StageItem, StageRequest, Staged, StagedItem, StoreError};

use crate::ids::{CopyId, NodeId};
use crate::node_manager::Stager;
use crate::task::{FailureKind, Parts, TaskFailure};

/// One piece that was copied. Dropping it gives its memory back.
pub struct Copied {
    pub(super) parts: Parts,
    pub(super) block: Block,
    /// While it lives, the store counts the memory as held for work that has not started.
    pub(super) reserved: Staged,
}

/// Pieces of one object, and where it is.
pub(super) struct Source {
    pub(super) object: CopyId,
    pub(super) at: NodeId,
    pub(super) ranges: Vec<Parts>,
}

/// The directory of each piece.
pub(super) async fn sizes(stager: &Stager, source: &Source) -> Result<Vec<Vec<PartMeta>>, TaskFailure> {
    let pieces = source.ranges.iter().map(|parts| (source.object, *parts)).collect();
    let directories = stager.directories_at(&source.at, pieces).await?;
    let absent = || TaskFailure::new(FailureKind::Error, format!("{} is not there", source.object));
    directories.into_iter().map(|metas| metas.ok_or_else(absent)).collect()
}

/// Copies the pieces into memory that can be taken back. Dropping the future frees everything; each piece has a
/// reservation of its own, since each is taken by another task.
pub(super) async fn copy(
    stager: &Stager,
    source: &Source,
    metas: Vec<Vec<PartMeta>>,
    tell: impl Fn(super::News),
) -> Result<Vec<Copied>, TaskFailure> {
    let Source { object, at, ranges } = source;
    let reserve = |metas| {
        let items = vec![StageItem::Remote { object: *object, metas }];
        stager.store.stage(StageRequest { items, class: Class::Prefetch })
    };
    let tickets: Vec<_> = metas.into_iter().map(reserve).collect();
    if tickets.iter().any(|ticket| !ticket.has_memory()) {
        tell(super::News::Short);
    }
    let from_store = |error: StoreError| crate::registry::TaskError::Store(error).into_failure();
    let mut reserved = futures::future::try_join_all(tickets).await.map_err(from_store)?;
    tell(super::News::Granted);
    let fills = reserved.iter_mut().flat_map(|staged| staged.items.drain(..)).map(|item| match item {
        StagedItem::Fill(fill) => fill,
        StagedItem::Ready(_) | StagedItem::Scratch(_) | StagedItem::Outside(_) => {
            unreachable!("only room was asked for")
        }
    });
    let fills = fills.collect();
    let pieces = ranges.iter().map(|parts| (*object, *parts)).collect();
    let blocks = stager.fetch_from(at, pieces, fills).await?;
    let copied = ranges.iter().zip(blocks).zip(reserved);
    Ok(copied.map(|((parts, block), reserved)| Copied { parts: *parts, block, reserved }).collect())
}
