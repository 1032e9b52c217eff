//! The Merger's shell: messages in; directories, reservations, copies and answers out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exobus_store::{Block, PartMeta};
use futures::future::{AbortHandle, Abortable};
use tokio::sync::oneshot;
use tracing::debug;

use super::copying::{self, Copied, Source};
use super::event::{MergerEvent, News};
use crate::node_manager::{Look, Take};
use crate::protocol;
use crate::protocol::copies::{LocatedObjects, Whereabouts};
use crate::protocol::merger::MergerMsg;
use crate::protocol::node_manager::SET_MEMBERS_PER_MESSAGE;
use crate::protocol::owner::OwnerMsg;

use super::state::{Effect, Key, State};
use crate::ids::{CopyId, JobId};
use crate::node_manager::Stager;
use crate::shell::{Actor, Address, Kind, Post, Scope};
use crate::task::Parts;

/// Copies take at most this share of the memory that a node has for objects: a fold's worth of blocks is a quarter of it
/// or less, and what tasks make has to find room beside them.
const SHARE_OF_MEMORY: u64 = 4;

/// What Mergers of this process have copied ahead, for who looks at a job afterwards. Rises only.
#[derive(Clone, Debug, Default)]
pub(crate) struct PushCount(Arc<[AtomicU64; 2]>);

impl PushCount {
    fn add(&self, index: usize, bytes: u64) {
        self.0[index].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were copied ahead of the tasks that read them.
    pub(crate) fn pushed_bytes(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }

    /// Of them those that were given up before a task took them.
    pub(crate) fn revoked_bytes(&self) -> u64 {
        self.0[1].load(Ordering::Relaxed)
    }
}

/// The actor.
pub(crate) struct Merger {
    post: Post,
    stager: Stager,
    count: PushCount,
    state: State,
    copies: HashMap<Key, BTreeMap<Parts, Copied>>,
    /// Directories of blocks that wait for room.
    directories: HashMap<Key, Vec<Vec<PartMeta>>>,
    works: HashMap<u64, AbortHandle>,
    looks: HashMap<u64, oneshot::Sender<Vec<bool>>>,
    next_look: u64,
    owners: HashMap<JobId, Address<OwnerMsg>>,
    tight: bool,
}

impl Merger {
    /// A Merger that copies with `stager` into its store.
    pub(crate) fn new(post: Post, stager: Stager, count: PushCount) -> Self {
        let stats = stager.store.stats();
        let cap = stats.budget_bytes.saturating_sub(stats.reserve_bytes) / SHARE_OF_MEMORY;
        Self {
            post,
            stager,
            count,
            state: State::new(cap),
            copies: HashMap::new(),
            directories: HashMap::new(),
            works: HashMap::new(),
            looks: HashMap::new(),
            next_look: 0,
            owners: HashMap::new(),
            tight: false,
        }
    }

    fn push(&mut self, job: JobId, lane: u32, objects: &LocatedObjects) {
        for (object, at) in objects.iter() {
            match at {
                Whereabouts::At(node, number) => {
                    let at = Some(node).filter(|node| node != self.post.node());
                    self.state.push(job, lane, object.copy(job, number), at);
                }
                Whereabouts::NoBytes | Whereabouts::Lost => self.state.push(job, lane, object.bare(job), None),
            }
        }
    }

    fn news(&mut self, work: u64, news: News) {
        if !matches!(news, News::Short | News::Granted) {
            self.works.remove(&work);
        }
        match news {
            News::Sized(directories) => {
                let bytes = |metas: &Vec<PartMeta>| metas.iter().map(|meta| meta.bytes).sum();
                let sizes = directories.as_ref().map(|directories| directories.iter().map(bytes).collect());
                if let Some((key, directories)) = self.state.sized(work, sizes).zip(directories) {
                    self.directories.insert(key, directories);
                }
            }
            News::Short => self.state.short(work),
            News::Granted => self.state.granted(work),
            News::Copied(copies) => {
                if let Some(key) = self.state.copied(work) {
                    self.count.add(0, copies.iter().map(|copy| copy.block.len() as u64).sum());
                    self.copies.insert(key, copies.into_iter().map(|copy| (copy.parts, copy)).collect());
                }
            }
            News::Failed => self.state.failed(work),
        }
    }

    fn look(&mut self, Look { job, pieces, answer }: Look) {
        self.next_look += 1;
        self.looks.insert(self.next_look, answer);
        self.state.look(self.next_look, job, pieces);
    }

    fn take(&mut self, Take { job, pieces, answer }: Take) {
        let taken = pieces.iter().map(|(object, parts)| self.take_one(job, *object, *parts));
        // Who does not wait any more gives them back with the answer.
        let _ = answer.send(taken.collect());
    }

    fn take_one(&mut self, job: JobId, object: CopyId, parts: Parts) -> Option<Block> {
        let key = self.state.take(job, object, parts)?;
        let copies = self.copies.get_mut(&key)?;
        let Copied { block, mut reserved, .. } = copies.remove(&parts)?;
        if copies.is_empty() {
            self.copies.remove(&key);
        }
        reserved.promote();
        Some(block)
    }

    fn begin(&mut self, work: u64, scope: &mut Scope<'_, Self>, doing: impl Future<Output = News> + 'static) {
        let (handle, registration) = AbortHandle::new_pair();
        self.works.insert(work, handle);
        let doing = Abortable::new(doing, registration);
        scope.later(async move { doing.await.ok().map(|news| MergerEvent::News(work, news)) });
    }

    fn act(&mut self, effect: Effect, scope: &mut Scope<'_, Self>) {
        match effect {
            Effect::Size { work, key: (_, _, object), at, ranges } => {
                let (stager, source) = (self.stager.clone(), Source { object, at, ranges });
                self.begin(work, scope, async move {
                    let sizes = copying::sizes(&stager, &source).await;
                    News::Sized(sizes.inspect_err(|error| debug!(object_id = %object, %error, "push not sized")).ok())
                });
            }
            Effect::Copy { work, key, at, ranges } => {
                let (_, _, object) = key;
                let metas = self.directories.remove(&key).unwrap_or_default();
                let (stager, source) = (self.stager.clone(), Source { object, at, ranges });
                let inbox = scope.inbox().clone();
                self.begin(work, scope, async move {
                    let tell = |news| drop(inbox.send(MergerEvent::News(work, news)));
                    match copying::copy(&stager, &source, metas, tell).await {
                        Ok(copies) => News::Copied(copies),
                        Err(error) => {
                            debug!(object_id = %object, %error, "push not copied");
                            News::Failed
                        }
                    }
                });
            }
            Effect::Stop { work } => {
                if let Some(handle) = self.works.remove(&work) {
                    handle.abort();
                }
            }
            Effect::Drop { key, bytes } => {
                self.count.add(1, bytes);
                self.copies.remove(&key);
                self.directories.remove(&key);
            }
            Effect::Answer { look, here } => {
                if let Some(answer) = self.looks.remove(&look) {
                    let _ = answer.send(here);
                }
            }
            Effect::FoldDue { job, owner, lane, blocks, bytes, tight } => {
                let node = self.post.node().clone();
                let post = &self.post;
                let address = self
                    .owners
                    .entry(job)
                    .or_insert_with(|| post.address(&owner, &protocol::owner::actor_name(job)))
                    .clone();
                for blocks in blocks.chunks(SET_MEMBERS_PER_MESSAGE) {
                    let (node, blocks) = (node.clone(), blocks.iter().copied().collect());
                    // An Owner that cannot be reached folds nothing any more.
                    let _ = address.send(OwnerMsg::FoldDue { node, lane, blocks, bytes, tight });
                }
            }
        }
    }

    fn message(&mut self, message: MergerMsg) {
        match message {
            MergerMsg::Open { job, owner, lane, ranges, fold_at } => {
                self.state.open(job, lane, owner, ranges, fold_at);
            }
            MergerMsg::Push { job, lane, objects } => self.push(job, lane, &objects),
            MergerMsg::EndJob { job } => {
                self.state.end(job);
                self.owners.remove(&job);
            }
        }
    }
}

impl Actor for Merger {
    type Message = MergerMsg;
    type Event = MergerEvent;

    fn handle(&mut self, event: MergerEvent, _scope: &mut Scope<'_, Self>) {
        match event {
            MergerEvent::Wire(message) => self.message(message),
            MergerEvent::Look(look) => self.look(look),
            MergerEvent::Take(take) => self.take(take),
            MergerEvent::News(work, news) => self.news(work, news),
            MergerEvent::Tight => self.tight = true,
        }
    }

    fn flush(&mut self, scope: &mut Scope<'_, Self>) {
        if std::mem::take(&mut self.tight) {
            // Several words may have come, and memory since the last: what counts is who waits now.
            self.state.tight(self.stager.store.stats().arguments_waiting_bytes);
        }
        for effect in self.state.flush() {
            self.act(effect, scope);
        }
        let census = self.post.census();
        census.set(Kind::Lane, self.state.lanes());
        census.set(Kind::Push, self.state.blocks() + self.copies.len() + self.directories.len() + self.works.len());
        census.set(Kind::JobAtMerger, self.owners.len());
    }
}
