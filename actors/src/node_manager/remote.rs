//! What comes from other nodes: where they listen, asking them, and how long to ask again.
//!
//! A connection that breaks, a node that is busy or was just started anew heal within seconds, and bytes that were
//! garbled on the way are there still: those are asked for again, with nothing held meanwhile, for as long as it takes to
//! find a node dead. What is left after that is [`ArgumentLost`](FailureKind::ArgumentLost), and names the objects, for
//! their Owner to make them again.

use std::time::Duration;

use exobus_store::{Block, PartMeta, StoreError};

use super::losses::{self, from_store};
use super::staging::{PrivateCopy, Stager};
use super::suspicions::Verdict;
use crate::ids::{CopyId, NodeId};
use crate::task::{FailureKind, Loss, Parts, TaskFailure};
use crate::transfer::{FetchItem, PeerName, TransferError};

/// Heartbeats come every half second: a node that is silent for so long is suspected anyway.
const ADDRESS_DEADLINE: Duration = Duration::from_secs(3);
const ADDRESS_POLL: Duration = Duration::from_millis(20);

/// A node is asked again for so long, counted from the first time. Membership finds a node dead after 3 s; a peer that
/// says nothing is given up after 4 s, so that a fetch from it ends within 5 s; unless it answers over another connection.
const ASKED_AGAIN_FOR: Duration = Duration::from_secs(4);
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);
/// To connect to a node that is probed, and to be welcomed, may each take so long.
const PROBE_WITHIN: Duration = Duration::from_millis(500);
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Why something did not come from another node.
#[derive(Debug)]
pub(super) struct FetchError {
    pub(super) node: NodeId,
    /// What was asked for.
    objects: Vec<CopyId>,
    /// Of those, what the node said it does not have or cannot read.
    gone: Vec<CopyId>,
    error: TransferError,
    /// Whether the node was not asked, since it is suspected to be out of reach and it answered no probe.
    not_asked: bool,
}

impl FetchError {
    pub(super) fn new(node: &NodeId, items: &[(CopyId, Parts)], error: TransferError) -> Self {
        let gone = Vec::from_iter(gone(&error));
        Self {
            node: node.clone(),
            objects: items.iter().map(|(object, _)| *object).collect(),
            gone,
            error,
            not_asked: false,
        }
    }

    /// As the failure of the attempt that asked.
    pub(super) fn into_failure(self) -> TaskFailure {
        let Self { node, objects, gone, error, .. } = self;
        let message = format!("fetch from {node}: {error}");
        let lost = |mut objects: Vec<CopyId>, loss| {
            objects.sort_unstable();
            objects.dedup();
            let lost = objects.into_iter().filter_map(|copy| losses::lost(copy, &node, loss));
            TaskFailure::argument_lost(message.clone(), lost)
        };
        match error {
            _ if !gone.is_empty() => lost(gone, Loss::Gone),
            // Room, here or there, is a matter of waiting.
            TransferError::Busy { .. }
            | TransferError::Store { cause: StoreError::Denied { .. } | StoreError::ReserveExhausted { .. }, .. } => {
                TaskFailure::new(FailureKind::Denied, message)
            }
            TransferError::Store { cause, .. } => TaskFailure { message, ..from_store(cause) },
            error if error.is_about_the_peer() => lost(objects, Loss::Unreachable),
            _ => TaskFailure::new(FailureKind::Error, message),
        }
    }
}

/// The object that a node says it cannot give.
fn gone(error: &TransferError) -> Option<CopyId> {
    match error {
        TransferError::Absent { object, .. } | TransferError::Failed { object, .. } => Some(*object),
        _ => None,
    }
}

/// How long, and how, to ask again. What is spent waiting for memory between two questions does not count.
pub(super) struct Patience {
    left: Duration,
    asked_at: Duration,
    pause: Duration,
    /// Whether the node was seen to answer, over another connection, after one of them stood still.
    seen: bool,
    /// Objects that the node was asked to compare with their checksums, since what came did not fit them.
    verified: Vec<CopyId>,
}

impl Stager {
    pub(super) fn patience(&self) -> Patience {
        let asked_at = self.clock.now();
        Patience { left: ASKED_AGAIN_FOR, asked_at, pause: PAUSE_MIN, seen: false, verified: Vec::new() }
    }

    /// A node is asked from now on.
    pub(super) fn asks(&self, patience: &mut Patience) {
        patience.asked_at = self.clock.now();
    }

    fn spend(&self, patience: &mut Patience) {
        let now = self.clock.now();
        patience.left = patience.left.saturating_sub(now.saturating_sub(patience.asked_at));
        patience.asked_at = now;
    }

    /// Waits until the node may be asked again. The caller holds nothing that others need.
    ///
    /// # Errors
    /// It is of no use, or was asked for long enough.
    pub(super) async fn again(&self, patience: &mut Patience, error: FetchError) -> Result<(), FetchError> {
        if let TransferError::Corrupt { object, .. } = error.error
            && !patience.verified.contains(&object)
        {
            patience.verified.push(object);
            tracing::warn!(node = %error.node, object_id = %object, error = %error.error, "wrong bytes came, asking again");
            // Either the way here garbles, or the node has it wrong: then it drops its copy, and says so the next time.
            let item = (object, Parts::All);
            let verified = self.address(&error.node, &[item]).await;
            if let Ok(address) = verified
                && let Ok(answers) = self.transfer.verify(&address, vec![item]).await
                && answers == [None]
            {
                return Err(FetchError { gone: vec![object], ..error });
            }
        }
        let heals = error.error.is_worth_a_retry()
            || matches!(
                error.error,
                TransferError::Unreachable { .. } | TransferError::Refused { .. } | TransferError::Untrusted { .. }
            );
        // Who is dead will not answer, however often it is asked.
        let heals = heals && !(self.is_gone)(&error.node);
        self.spend(patience);
        let stood_still = matches!(error.error, TransferError::Stalled { .. });
        if stood_still && !patience.seen && self.answers(&error).await {
            (patience.seen, patience.left) = (true, ASKED_AGAIN_FOR);
        }
        if heals && patience.left.is_zero() && !patience.seen && error.error.is_silence() {
            self.suspicions.suspect(&error.node, self.clock.now());
        }
        if !heals || !error.gone.is_empty() || patience.left.is_zero() || error.not_asked {
            return Err(error);
        }
        tracing::debug!(node = %error.node, error = %error.error, "asking again");
        tokio::time::sleep(patience.pause.min(patience.left)).await;
        self.spend(patience);
        patience.pause = (patience.pause * 2).min(PAUSE_MAX);
        Ok(())
    }

    /// Whether the node answers at all, soon: then it was only that connection.
    async fn answers(&self, error: &FetchError) -> bool {
        let items: Vec<_> = error.objects.iter().take(1).map(|object| (*object, Parts::All)).collect();
        let question = async {
            let address = self.told_address(&error.node, &items).await.ok()?;
            self.transfer.directory(&address, items.clone()).await.ok()
        };
        matches!(tokio::time::timeout(ANSWERS_WITHIN, question).await, Ok(Some(_)))
    }

    /// Parts of objects of another node, into memory that was granted for them. Asks once.
    pub(super) async fn try_fetch(
        &self,
        node: &NodeId,
        items: Vec<(CopyId, Parts)>,
        fills: Vec<exobus_store::Fill>,
    ) -> Result<Vec<Block>, FetchError> {
        let address = self.address(node, &items).await?;
        let begun = self.clock.now();
        let wanted = items.iter().zip(fills).map(|(&(object, parts), fill)| FetchItem { object, parts, fill });
        let fetched = self.transfer.fetch_each(&address, wanted.collect()).await;
        let fetched = fetched.map_err(|error| FetchError::new(node, &items, error))?;
        if fetched.iter().any(Result::is_ok) {
            self.suspicions.clear(node);
        }
        let bytes = fetched.iter().flatten().map(|block| block.len() as u64).sum();
        self.received.add(node, bytes, self.clock.now().saturating_sub(begun));
        let gone: Vec<_> = fetched.iter().filter_map(|fetched| gone(fetched.as_ref().err()?)).collect();
        let blocks: Result<_, _> = fetched.into_iter().collect();
        blocks.map_err(|error| FetchError { gone, ..FetchError::new(node, &items, error) })
    }

    /// As `try_fetch`, for who can do without.
    pub(crate) async fn fetch_from(
        &self,
        node: &NodeId,
        items: Vec<(CopyId, Parts)>,
        fills: Vec<exobus_store::Fill>,
    ) -> Result<Vec<Block>, TaskFailure> {
        self.try_fetch(node, items, fills).await.map_err(FetchError::into_failure)
    }

    /// The directories of parts of objects of another node; `None` for those that are not there.
    pub(crate) async fn directories_at(
        &self,
        node: &NodeId,
        items: Vec<(CopyId, Parts)>,
    ) -> Result<Vec<Option<Vec<PartMeta>>>, TaskFailure> {
        let mut patience = self.patience();
        loop {
            let asked = match self.address(node, &items).await {
                Ok(address) => {
                    let asked = self.transfer.directory(&address, items.clone()).await;
                    asked.map_err(|error| FetchError::new(node, &items, error))
                }
                Err(error) => Err(error),
            };
            match asked {
                Ok(list) => {
                    self.suspicions.clear(node);
                    return Ok(list);
                }
                Err(error) => self.again(&mut patience, error).await.map_err(FetchError::into_failure)?,
            }
        }
    }

    /// A copy of parts that another node has, as an object of this node's store.
    pub(super) async fn copy(&self, item: (CopyId, Parts), node: &NodeId) -> Result<PrivateCopy, TaskFailure> {
        let mut patience = self.patience();
        loop {
            let begun = self.clock.now();
            let copied = match self.address(node, &[item]).await {
                Ok(address) => {
                    let copied = self.transfer.copy_here(&self.store, &address, item).await;
                    copied.map_err(|error| FetchError::new(node, &[item], error))
                }
                Err(error) => Err(error),
            };
            match copied {
                Ok(object) => {
                    self.suspicions.clear(node);
                    let bytes = self.store.meta(&object).map_or(0, |meta| meta.bytes);
                    self.received.add(node, bytes, self.clock.now().saturating_sub(begun));
                    return Ok(PrivateCopy::new(&self.store, object));
                }
                Err(error) => self.again(&mut patience, error).await.map_err(FetchError::into_failure)?,
            }
        }
    }

    /// Where a node serves objects; if it is suspected to be out of reach, once it has answered a probe.
    async fn address(&self, node: &NodeId, items: &[(CopyId, Parts)]) -> Result<PeerName, FetchError> {
        let mut known = None;
        loop {
            let ended = self.suspicions.ended();
            match self.suspicions.of(node, self.clock.now()) {
                Verdict::Trusted => return self.told_address(node, items).await,
                Verdict::Probe(suspicion) => {
                    let address = self.told_address(node, items).await?;
                    if !(self.is_gone)(node) && self.transfer.is_there(&address, PROBE_WITHIN).await {
                        self.suspicions.clear(node);
                        return Ok(address);
                    }
                    self.suspicions.probe_failed(node, suspicion, self.clock.now());
                    break;
                }
                // A probe has failed since this one waits, or none is of any use.
                Verdict::Wait(_, failed) if *known.get_or_insert(failed) < failed || (self.is_gone)(node) => break,
                Verdict::Wait(until, _) => tokio::select! {
                    () = tokio::time::sleep(until.saturating_sub(self.clock.now())) => {}
                    () = ended => {}
                },
            }
        }
        let address = (self.addresses)(node).unwrap_or_default();
        let peer = PeerName { node: node.to_string(), address };
        let cause = "it was asked in vain lately, here or elsewhere, and answers no probe now".to_owned();
        let error = FetchError::new(node, items, TransferError::Unreachable { peer, cause });
        Err(FetchError { not_asked: true, ..error })
    }

    /// Where a node serves objects. It says so in its heartbeats, the first of which may not have come yet.
    async fn told_address(&self, node: &NodeId, items: &[(CopyId, Parts)]) -> Result<PeerName, FetchError> {
        let mut waited = Duration::ZERO;
        loop {
            if let Some(address) = (self.addresses)(node) {
                return Ok(PeerName { node: node.to_string(), address });
            }
            if waited >= ADDRESS_DEADLINE {
                let peer = PeerName { node: node.to_string(), address: "?".to_owned() };
                let cause = format!("it has not said in {waited:?} where it serves objects");
                return Err(FetchError::new(node, items, TransferError::Unreachable { peer, cause }));
            }
            tokio::time::sleep(ADDRESS_POLL).await;
            waited += ADDRESS_POLL;
        }
    }
}
