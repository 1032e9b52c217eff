//! Getting arguments ready: from this node's memory, from its disk, from other nodes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use exobus_store::{
    Block, Class, Clock, Grant, PartMeta, Scratch, StageItem, StageRequest, StagedItem, Store, StoreError,
};
use futures::{StreamExt as _, TryStreamExt as _};

use super::losses::{self, from_store};
use super::pushed::Pushed;
use super::remote::FetchError;
use super::sets::{Arguments, Piece};
use super::suspicions::Suspicions;
use super::waits::{Tally, Waits};
use super::why::{Step, Trail};
use super::windows::Windows;
use crate::ids::{CopyId, JobId, NodeId};
use crate::isolation::ExecutorKind;
use crate::registry::{Argument, Function, Granted, InPlace, Mode};
use crate::task::{Loss, LostObject, Parts, TaskFailure, TaskSpec};
use crate::transfer::TransferClient;

/// Objects of other nodes that are copied for one argument at a time: enough to hide a round trip.
const STREAM_COPIES_AT_ONCE: usize = 2;

/// What a task needs to start.
#[derive(Default)]
pub struct Prepared {
    pub(super) args: Vec<Argument>,
    pub(super) memory: Granted,
    pub(super) copies: Vec<PrivateCopy>,
    pub(super) waits: Waits,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prepared({} arguments)", self.args.len())
    }
}

/// A copy of what another node has, made for one attempt; deleted when it is dropped.
pub struct PrivateCopy {
    store: Store,
    name: CopyId,
}

impl PrivateCopy {
    pub(super) fn new(store: &Store, name: CopyId) -> Self {
        Self { store: store.clone(), name }
    }
}

impl Drop for PrivateCopy {
    fn drop(&mut self) {
        self.store.delete(&[self.name]);
    }
}

/// Where the Transfer of a node listens, as far as it is known.
pub(crate) type Addresses = Arc<dyn Fn(&NodeId) -> Option<String> + Send + Sync>;

/// What staging needs to know of the node.
#[derive(Clone)]
pub(crate) struct Stager {
    pub(crate) node: NodeId,
    pub(crate) store: Store,
    /// How many tasks run at a time; as many and one more are staged.
    pub(crate) executors: usize,
    pub(crate) transfer: TransferClient,
    /// Where the Transfer of each node listens.
    pub(crate) addresses: Addresses,
    /// Which nodes are known to be dead or to have left.
    pub(crate) is_gone: Arc<dyn Fn(&NodeId) -> bool + Send + Sync>,
    /// Who may be out of reach.
    pub(crate) suspicions: Suspicions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) received: Tally,
    /// Copies that were pushed here ahead of who reads them.
    pub(crate) pushed: Pushed,
    /// Which functions run in processes.
    pub(crate) executor: ExecutorKind,
}

/// What comes from one node.
#[derive(Default)]
struct Fetching {
    items: Vec<(CopyId, Parts)>,
    /// Where each block belongs.
    positions: Vec<usize>,
    fills: Vec<exobus_store::Fill>,
    bytes: u64,
}

/// What the store granted: blocks with their positions, room for others by node, memory of its own.
#[derive(Default)]
struct FromStore {
    ready: Vec<(usize, Block)>,
    fills: BTreeMap<NodeId, Fetching>,
    scratch: Vec<Scratch>,
    outside: Option<Grant>,
    waits: Waits,
}

/// Memory that a task asks for besides its arguments.
#[derive(Clone, Debug, Default)]
struct OwnMemory {
    scratch_bytes: Vec<u64>,
    /// Beside the store, for what the function asks for.
    outside_bytes: u64,
    /// Beside the store, for its process.
    declared_bytes: u64,
}

/// Sizes and checksums of what other nodes hold.
#[derive(Default)]
struct Directory {
    metas: BTreeMap<(CopyId, Parts), Vec<PartMeta>>,
    /// How long it took to ask for them.
    asking: Duration,
}

/// An argument taken apart.
struct Wanted {
    mode: Mode,
    pieces: Vec<Piece>,
}

impl Wanted {
    fn is_whole(&self) -> bool {
        matches!(self.mode, Mode::Whole | Mode::Either)
    }

    /// The pieces that have bytes, and where each is.
    fn present(&self) -> impl Iterator<Item = (CopyId, Parts, &NodeId)> {
        self.pieces.iter().filter_map(|piece| piece.at.as_ref().map(|node| (piece.name, piece.parts, node)))
    }

    fn stream_if_either(&mut self) {
        if self.mode == Mode::Either {
            self.mode = Mode::Stream;
        }
    }
}

/// The whole arguments of a task, and the memory that it was granted with them.
struct Whole {
    blocks: Vec<Block>,
    /// One window for each reader.
    ahead: Vec<Scratch>,
    memory: Granted,
    waits: Waits,
}

/// Why there are no whole arguments.
enum Unstaged {
    /// They are more than the memory of this node.
    TooLarge(TaskFailure),
    Failed(TaskFailure),
}

impl From<TaskFailure> for Unstaged {
    fn from(failure: TaskFailure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Unstaged> for TaskFailure {
    fn from(unstaged: Unstaged) -> Self {
        match unstaged {
            Unstaged::TooLarge(failure) | Unstaged::Failed(failure) => failure,
        }
    }
}

/// The arguments of a task, as its function takes them.
fn wanted(function: &Function, arguments: Arguments) -> Vec<Wanted> {
    let wanted = |(index, pieces)| Wanted { mode: function.mode(index), pieces };
    arguments.into_iter().enumerate().map(wanted).collect()
}

impl Stager {
    /// The arguments of an attempt that asks for no memory, if everything is in this node's memory already.
    pub(super) fn at_once(&self, spec: &TaskSpec, function: &Function, arguments: Arguments) -> Option<Prepared> {
        debug_assert!(!spec.asks_for_memory(), "memory is granted when an attempt is staged");
        let wanted = wanted(function, arguments);
        let resident = |piece: &Piece| match &piece.at {
            None => Some(Block::empty()),
            Some(node) if *node == self.node => self.store.try_get(&piece.name, piece.parts),
            Some(_) => None,
        };
        let argument = |wanted: &Wanted| match wanted.mode {
            Mode::Whole | Mode::Either => {
                wanted.pieces.iter().map(resident).collect::<Option<Vec<_>>>().map(Argument::Whole)
            }
            Mode::InPlace => self.lies_here(wanted),
            Mode::Stream => None,
        };
        if self.exceeds(spec.whole_max_bytes, &wanted, &Directory::default()) {
            return None;
        }
        let args = wanted.iter().map(argument).collect::<Option<_>>()?;
        Some(Prepared { args, ..Prepared::default() })
    }

    /// Gets everything ready: all whole arguments, the scratch and the windows of streams are granted memory at one instant
    /// (law 5), so that a task that has started never waits for memory; then the arguments are filled.
    pub(super) fn stage(
        &self,
        spec: &TaskSpec,
        function: &'static Function,
        arguments: Arguments,
        trail: Trail,
    ) -> impl Future<Output = Result<Prepared, TaskFailure>> + 'static + use<> {
        let stager = self.clone();
        let (job, whole_max_bytes) = (spec.job, spec.whole_max_bytes);
        let own = OwnMemory {
            scratch_bytes: spec.scratch_bytes.clone(),
            outside_bytes: spec.outside_bytes,
            declared_bytes: if stager.executor.isolates(function, spec) { spec.memory_max_bytes } else { 0 },
        };
        async move {
            let wanted = wanted(function, arguments);
            let present = wanted.iter().flat_map(Wanted::present);
            let here = present.filter(|(.., at)| **at == stager.node);
            let here: Vec<(CopyId, Parts)> = here.map(|(copy, parts, _)| (copy, parts)).collect();
            let prepared = stager.prepare(job, wanted, &own, whole_max_bytes, &trail).await;
            prepared.map_err(|failure| stager.with_missing(failure, &here))
        }
    }

    async fn prepare(
        &self,
        job: JobId,
        mut wanted: Vec<Wanted>,
        own: &OwnMemory,
        whole_max_bytes: u64,
        trail: &Trail,
    ) -> Result<Prepared, TaskFailure> {
        let stager = self;
        let mut directory = Directory::default();
        if whole_max_bytes > 0 && wanted.iter().any(|wanted| wanted.mode == Mode::Either) {
            let whole = wanted.iter().filter(|wanted| wanted.is_whole());
            stager.ask(&mut directory, whole.flat_map(|wanted| &wanted.pieces), trail).await?;
            if stager.exceeds(whole_max_bytes, &wanted, &directory) {
                stager.stream(job, &mut wanted).await;
            }
        }
        let staged = match stager.memory(job, &wanted, own, &mut directory, trail).await {
            Err(Unstaged::TooLarge(_)) if wanted.iter().any(|wanted| wanted.mode == Mode::Either) => {
                stager.stream(job, &mut wanted).await;
                stager.memory(job, &wanted, own, &mut directory, trail).await
            }
            staged => staged,
        };
        let Whole { blocks, ahead, memory, mut waits } = staged?;
        let (mut blocks, mut ahead) = (blocks.into_iter(), ahead.into_iter());
        let mut args = Vec::with_capacity(wanted.len());
        let mut copies = Vec::new();
        for wanted in &wanted {
            args.push(match wanted.mode {
                Mode::Whole | Mode::Either => Argument::Whole(blocks.by_ref().take(wanted.pieces.len()).collect()),
                Mode::InPlace => stager.in_place(wanted, &mut copies).await?,
                Mode::Stream => {
                    let (asked, copied) = (stager.clock.now(), copies.len());
                    let readers = stager.streams(wanted, &mut ahead, &mut copies, trail).await?;
                    if copies.len() > copied {
                        waits.fetch += stager.clock.now().saturating_sub(asked);
                    }
                    Argument::Stream(readers)
                }
            });
        }
        Ok(Prepared { args, memory, copies, waits })
    }

    /// Whole arguments, and all memory that the task gets: windows that are smaller than is of use where that is too much.
    async fn memory(
        &self,
        job: JobId,
        wanted: &[Wanted],
        own: &OwnMemory,
        directory: &mut Directory,
        trail: &Trail,
    ) -> Result<Whole, Unstaged> {
        let streamed = wanted.iter().filter(|wanted| wanted.mode == Mode::Stream);
        let streams = streamed.map(|wanted| wanted.present().count()).sum();
        let mut windows = Windows::within(streams, self.share_bytes());
        loop {
            let scratch_bytes = own.scratch_bytes.iter().copied().chain(windows.sizes()).collect();
            let all = OwnMemory { scratch_bytes, ..own.clone() };
            match (self.whole(job, wanted, &all, directory, trail).await, windows.least()) {
                (Err(Unstaged::TooLarge(_)), Some(least)) => windows = least,
                (Err(Unstaged::TooLarge(failure)), None) if streams > 0 => {
                    let least = windows.bytes();
                    let message = format!("{streams} streams take at least {least} bytes: {}", failure.message);
                    return Err(Unstaged::TooLarge(TaskFailure { message, ..failure }));
                }
                (Err(unstaged), _) => return Err(unstaged),
                (Ok((blocks, mut memory, waits)), _) => {
                    let mut ahead = memory.scratch.split_off(own.scratch_bytes.len());
                    memory.windows = ahead.split_off(windows.streams());
                    return Ok(Whole { blocks, ahead, memory, waits });
                }
            }
        }
    }

    /// What the streams of one task may take: all tasks that run or are staged have room for theirs at the same time.
    fn share_bytes(&self) -> u64 {
        let stats = self.store.stats();
        stats.budget_bytes.saturating_sub(stats.reserve_bytes) / (2 * (self.executors as u64 + 1))
    }

    /// What lies here and stays so.
    fn lies_here(&self, wanted: &Wanted) -> Option<Argument> {
        let object = |piece: &Piece| InPlace::new(&self.store, piece.copy(), piece.parts).ok();
        wanted.pieces.iter().map(object).collect::<Option<_>>().map(Argument::InPlace)
    }

    /// What lies here and stays so. What was made again on another node since the task was bound to this one is copied.
    async fn in_place(&self, wanted: &Wanted, copies: &mut Vec<PrivateCopy>) -> Result<Argument, TaskFailure> {
        let mut objects = Vec::with_capacity(wanted.pieces.len());
        for piece in &wanted.pieces {
            let (object, parts) = match piece.elsewhere(&self.node) {
                Some((item, node)) => {
                    let copy = self.copy(item, node).await?;
                    let name = copy.name;
                    copies.push(copy);
                    (Some(name), Parts::All)
                }
                None => (piece.copy(), piece.parts),
            };
            objects.push(InPlace::new(&self.store, object, parts).map_err(from_store)?);
        }
        Ok(Argument::InPlace(objects))
    }

    /// Takes as streams what may come so. Streams are read from copies on disk as well: what was pushed here makes room
    /// for their windows.
    async fn stream(&self, job: JobId, wanted: &mut [Wanted]) {
        let streamed = wanted.iter().filter(|wanted| wanted.mode == Mode::Either);
        let pieces: Vec<_> = streamed.flat_map(|wanted| &wanted.pieces).collect();
        let with_bytes = (0..pieces.len()).filter(|index| pieces[*index].at.is_some());
        drop(self.pushed.take(job, &pieces, &Vec::from_iter(with_bytes)).await);
        wanted.iter_mut().for_each(Wanted::stream_if_either);
    }

    /// Memory for everything at one instant, then the bytes. Pieces that were pushed here are taken only when all other
    /// memory is granted: until then they may be given up, so that a task that waits holds nothing that others need.
    async fn whole(
        &self,
        job: JobId,
        wanted: &[Wanted],
        own: &OwnMemory,
        directory: &mut Directory,
        trail: &Trail,
    ) -> Result<(Vec<Block>, Granted, Waits), Unstaged> {
        let wanted = wanted.iter().filter(|wanted| wanted.is_whole());
        let pieces: Vec<&Piece> = wanted.flat_map(|wanted| &wanted.pieces).collect();
        let mut blocks: Vec<Option<Block>> = pieces.iter().map(|piece| piece.at.is_none().then(Block::empty)).collect();
        let elsewhere = |index: &usize| pieces[*index].elsewhere(&self.node).is_some();
        let mut patience = self.patience();
        let mut candidates: Vec<usize> = (0..pieces.len()).filter(elsewhere).collect();
        loop {
            if !candidates.is_empty() {
                trail.at(self.clock.now(), Step::Pushed);
            }
            let pushed = self.pushed.here(job, &pieces, &candidates).await;
            let missing = |index: &usize| blocks[*index].is_none() && !pushed.contains(index);
            let missing: Vec<usize> = (0..pieces.len()).filter(missing).collect();
            self.ask(directory, missing.iter().map(|index| pieces[*index]), trail).await?;
            trail.at(self.clock.now(), Step::Memory(own.outside_bytes.saturating_add(own.declared_bytes)));
            let grant = self.grant(&pieces, &missing, own, directory).await?;
            if !pushed.is_empty() {
                trail.at(self.clock.now(), Step::Pushed);
            }
            let Some(taken) = self.pushed.take(job, &pieces, &pushed).await else {
                // Given up meanwhile: they are fetched like others, in a grant that has room for them.
                candidates.retain(|index| !pushed.contains(index));
                continue;
            };
            let FromStore { ready, fills, scratch, mut outside, mut waits } = grant;
            let begun = self.clock.now();
            self.asks(&mut patience);
            if !fills.is_empty() {
                let bytes = fills.values().map(|fetching| fetching.bytes).sum();
                trail.fetching(self.clock.now(), fills.keys(), bytes);
            }
            let fetched = match fills.is_empty() {
                true => Vec::new(),
                false => match self.fill(fills).await {
                    Ok(fetched) => fetched,
                    Err(error) => {
                        // Nothing is held while it waits.
                        drop((taken, ready, scratch, outside));
                        self.again(&mut patience, error).await.map_err(FetchError::into_failure)?;
                        candidates.retain(|index| !pushed.contains(index));
                        continue;
                    }
                },
            };
            if !fetched.is_empty() {
                waits.fetch += self.clock.now().saturating_sub(begun);
            }
            for (index, block) in pushed.into_iter().zip(taken).chain(ready).chain(fetched) {
                blocks[index] = Some(block);
            }
            let blocks = blocks.into_iter().map(|block| block.expect("every piece was staged, fetched or pushed"));
            let declared = outside.as_mut().and_then(|outside| outside.split(own.declared_bytes));
            return Ok((blocks.collect(), Granted { scratch, windows: Vec::new(), outside, declared }, waits));
        }
    }

    /// Memory for the pieces of these indices and for the task's own use; what is here comes loaded.
    async fn grant(
        &self,
        pieces: &[&Piece],
        missing: &[usize],
        own: &OwnMemory,
        Directory { metas: directory, asking }: &Directory,
    ) -> Result<FromStore, Unstaged> {
        let outside_bytes = own.outside_bytes.saturating_add(own.declared_bytes);
        if missing.is_empty() && own.scratch_bytes.is_empty() && outside_bytes == 0 {
            return Ok(FromStore::default());
        }
        let items = missing.iter().map(|index| {
            let piece = pieces[*index];
            let object = piece.copy().expect("what has no bytes is not missing");
            match directory.get(&(object, piece.parts)) {
                Some(metas) => StageItem::Remote { object, metas: metas.clone() },
                None => StageItem::Local { object, parts: piece.parts },
            }
        });
        let scratch_items = own.scratch_bytes.iter().map(|bytes| StageItem::Scratch { bytes: *bytes });
        let outside_item = (outside_bytes > 0).then_some(StageItem::Outside { bytes: outside_bytes });
        let items = items.chain(scratch_items).chain(outside_item).collect();
        let request = StageRequest { items, class: Class::Arguments };
        let staged = self.store.stage(request).await.map_err(|error| match error {
            StoreError::TooLarge { .. } => Unstaged::TooLarge(from_store(error)),
            error => Unstaged::Failed(from_store(error)),
        })?;
        let waits = Waits { memory: staged.memory_wait, load: staged.load_wait, fetch: *asking };
        let mut grant = FromStore { waits, ..FromStore::default() };
        let mut missing = missing.iter();
        for item in staged.items {
            match item {
                StagedItem::Scratch(scratch) => grant.scratch.push(scratch),
                StagedItem::Outside(outside) => grant.outside = Some(outside),
                StagedItem::Ready(block) => grant.ready.extend(missing.next().map(|index| (*index, block))),
                StagedItem::Fill(fill) => {
                    let Some(index) = missing.next() else { continue };
                    let elsewhere = pieces[*index].elsewhere(&self.node);
                    let (item, node) = elsewhere.expect("only objects of other nodes are filled");
                    let entry = grant.fills.entry(node.clone()).or_default();
                    let metas = directory.get(&item);
                    entry.bytes += metas.map_or(0, |metas| metas.iter().map(|meta| meta.bytes).sum());
                    entry.items.push(item);
                    entry.positions.push(*index);
                    entry.fills.push(fill);
                }
            }
        }
        Ok(grant)
    }

    /// Fetches what was granted memory, one request a node: the same part of a whole set comes in one go.
    async fn fill(&self, fills: BTreeMap<NodeId, Fetching>) -> Result<Vec<(usize, Block)>, FetchError> {
        let fetches = fills.into_iter().map(|(node, fetching)| async move {
            let fetched = self.try_fetch(&node, fetching.items, fetching.fills).await?;
            Ok::<_, FetchError>(fetching.positions.into_iter().zip(fetched))
        });
        Ok(futures::future::try_join_all(fetches).await?.into_iter().flatten().collect())
    }

    /// Learns sizes and checksums of what other nodes hold, as far as they are not known.
    async fn ask(
        &self,
        known: &mut Directory,
        pieces: impl Iterator<Item = &Piece>,
        trail: &Trail,
    ) -> Result<(), TaskFailure> {
        let mut remote: BTreeMap<NodeId, Vec<(CopyId, Parts)>> = BTreeMap::new();
        for piece in pieces {
            if let Some((item, node)) = piece.elsewhere(&self.node)
                && !known.metas.contains_key(&item)
            {
                remote.entry(node.clone()).or_default().push(item);
            }
        }
        if remote.is_empty() {
            return Ok(());
        }
        let begun = self.clock.now();
        trail.asking(self.clock.now(), remote.keys());
        let asked = remote.into_iter().map(|(node, items)| async move {
            let metas = self.directories_at(&node, items.clone()).await?;
            Ok::<_, TaskFailure>((node, items.into_iter().zip(metas).collect::<Vec<_>>()))
        });
        let mut lost = Vec::new();
        for (node, entries) in futures::future::try_join_all(asked).await? {
            for (item, metas) in entries {
                match metas {
                    Some(metas) => drop(known.metas.insert(item, metas)),
                    None => lost.extend(losses::lost(item.0, &node, Loss::Gone)),
                }
            }
        }
        if let Some(LostObject { object, node, .. }) = lost.first() {
            let message = format!("object {object} is not on {node}, where its Owner thinks ({} in all)", lost.len());
            return Err(TaskFailure::argument_lost(message, lost));
        }
        known.asking += self.clock.now().saturating_sub(begun);
        Ok(())
    }

    /// Whether the arguments that may come whole or as streams have more bytes than may come whole; 0: they never have.
    fn exceeds(&self, whole_max_bytes: u64, wanted: &[Wanted], directory: &Directory) -> bool {
        if whole_max_bytes == 0 {
            return false;
        }
        let known = |piece: &Piece| directory.metas.get(&(piece.copy()?, piece.parts));
        let bytes = |piece: &Piece| match known(piece) {
            Some(metas) => metas.iter().map(|meta| meta.bytes).sum(),
            // What is missed here is an error soon enough.
            None => InPlace::new(&self.store, piece.copy(), piece.parts)
                .map_or(0, |object| object.parts().iter().map(|meta| meta.bytes).sum()),
        };
        let either = wanted.iter().filter(|wanted| wanted.mode == Mode::Either);
        either.flat_map(|wanted| &wanted.pieces).map(bytes).sum::<u64>() > whole_max_bytes
    }

    /// Readers of local objects; what is elsewhere is copied here first, to memory if there is any, else to disk: a
    /// started task never waits for another node.
    async fn streams(
        &self,
        wanted: &Wanted,
        ahead: &mut impl Iterator<Item = Scratch>,
        copies: &mut Vec<PrivateCopy>,
        trail: &Trail,
    ) -> Result<VecDeque<exobus_store::ObjectReader>, TaskFailure> {
        let mut elsewhere = wanted.present().map(|(.., at)| at).filter(|at| **at != self.node).peekable();
        if elsewhere.peek().is_some() {
            trail.fetching(self.clock.now(), elsewhere, 0);
        }
        let here = wanted.present().map(async |(copy, parts, node)| {
            if *node == self.node {
                return Ok::<_, TaskFailure>((copy, parts, None));
            }
            let private = self.copy((copy, parts), node).await?;
            Ok((private.name, Parts::All, Some(private)))
        });
        let mut here = futures::stream::iter(here).buffered(STREAM_COPIES_AT_ONCE);
        let mut readers = VecDeque::with_capacity(wanted.pieces.len());
        while let Some((object, parts, copy)) = here.try_next().await? {
            copies.extend(copy);
            let window = ahead.next().expect("each stream was granted a window");
            readers.push_back(self.store.reader(&object, parts, window).map_err(from_store)?);
        }
        Ok(readers)
    }

    /// Copies an object of another node, for a reader of results.
    pub(crate) async fn get(&self, job: JobId, copy: CopyId, parts: Parts, at: NodeId) -> Result<Block, TaskFailure> {
        let piece = Piece { name: copy, at: Some(at), parts };
        let wanted = Wanted { mode: Mode::Whole, pieces: vec![piece] };
        let trail = Trail::begun(self.clock.now());
        Ok(self.whole(job, &[wanted], &OwnMemory::default(), &mut Directory::default(), &trail).await?.0.remove(0))
    }
}
