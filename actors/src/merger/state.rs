//! Which pushed blocks are here, which are copied next, which go when memory is short, and when they are folded. Pure.
//!
//! Life of a block: *queued* -> *sizing* -> *waiting* for room -> *reserving* memory -> *fetching* -> *here* -> *bare*.
//! Bare is a block of which nothing is held: it lies on this node anyhow, has no bytes, was taken by its tasks, could not
//! be copied, or was given up. It counts as here: a fold of it is as right as any, only its bytes come later.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{CopyId, JobId, NodeId};
use crate::task::Parts;

/// Blocks that are sized or copied at a time: enough to hide a round trip, few enough that the fetches of tasks that are
/// staged do not queue behind them.
const WORKS_AT_ONCE: usize = 4;
/// Copies of a lane's latest folds are for merges that are about to be staged. Those of earlier ones were not asked for:
/// their merges ran elsewhere.
const FOLDS_AWAITED: u64 = 4;

/// A block: job, lane and object.
pub(super) type Key = (JobId, u32, CopyId);

/// Where a block is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queued,
    Sizing(u64),
    Waiting,
    /// The number of the work; whether the store had no memory at once.
    Reserving(u64, bool),
    Fetching(u64),
    Here,
    Bare,
}

#[derive(Debug)]
struct Block {
    number: u64,
    at: Option<NodeId>,
    stage: Stage,
    /// Bytes of each piece that has not been taken, as far as they are known.
    left: BTreeMap<Parts, u64>,
    /// The lane's fold that it is in.
    fold: Option<u64>,
}

impl Block {
    fn bytes(&self) -> u64 {
        self.left.values().sum()
    }

    /// Whether memory is counted for it.
    fn holds(&self) -> bool {
        matches!(self.stage, Stage::Reserving(..) | Stage::Fetching(_) | Stage::Here)
    }

    /// Whether waiting longer would bring nothing.
    fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Here | Stage::Bare)
    }
}

#[derive(Debug)]
struct Lane {
    owner: NodeId,
    ranges: Vec<Parts>,
    fold_at: usize,
    folds: u64,
    /// Blocks that are in no fold, by number ...
    open: BTreeMap<u64, CopyId>,
    /// ... and those of them that are here, or of which nothing will come.
    settled: BTreeMap<u64, CopyId>,
}

/// A question that is answered when nothing of it is on its way.
#[derive(Debug)]
struct Look {
    job: JobId,
    pieces: Vec<(CopyId, Parts)>,
}

/// What the Merger has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Ask a node how large these pieces are.
    Size { work: u64, key: Key, at: NodeId, ranges: Vec<Parts> },
    /// Reserve memory and copy them.
    Copy { work: u64, key: Key, at: NodeId, ranges: Vec<Parts> },
    /// Stop this work; what it holds is free.
    Stop { work: u64 },
    /// Drop what is held or known of a block; so many bytes of it were here.
    Drop { key: Key, bytes: u64 },
    /// Whether each piece of a question is here.
    Answer { look: u64, here: Vec<bool> },
    /// Tell the job that these blocks are to be folded: so many bytes of them are here; `tight`: fewer than usual, or not
    /// all here, because memory is short.
    FoldDue { job: JobId, owner: NodeId, lane: u32, blocks: Vec<CopyId>, bytes: u64, tight: bool },
}

/// The table of a node.
#[derive(Debug)]
pub(super) struct State {
    cap: u64,
    held: u64,
    next: u64,
    lanes: BTreeMap<(JobId, u32), Lane>,
    blocks: BTreeMap<Key, Block>,
    /// Blocks in these stages, by number.
    queued: BTreeMap<u64, Key>,
    waiting: BTreeMap<u64, Key>,
    works: BTreeMap<u64, Key>,
    /// Blocks that are here and in a fold.
    folded: BTreeSet<Key>,
    looks: BTreeMap<u64, Look>,
    effects: Vec<Effect>,
}

impl State {
    /// Holds at most `cap` bytes.
    pub(super) fn new(cap: u64) -> Self {
        Self {
            cap,
            held: 0,
            next: 1,
            lanes: BTreeMap::new(),
            blocks: BTreeMap::new(),
            queued: BTreeMap::new(),
            waiting: BTreeMap::new(),
            works: BTreeMap::new(),
            folded: BTreeSet::new(),
            looks: BTreeMap::new(),
            effects: Vec::new(),
        }
    }

    /// How many lanes there are.
    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// How many blocks there are, in whatever stage, and questions about them.
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len() + self.looks.len()
    }

    /// Bytes that are reserved or held.
    #[cfg(test)]
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Entries for lanes, blocks, works and questions.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 4] {
        [self.lanes.len(), self.blocks.len(), self.works.len(), self.looks.len()]
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// A job will push here.
    pub(super) fn open(&mut self, job: JobId, lane: u32, owner: NodeId, ranges: Vec<Parts>, fold_at: u32) {
        let fold_at = fold_at.max(1) as usize;
        self.lanes.entry((job, lane)).or_insert(Lane {
            owner,
            ranges,
            fold_at,
            folds: 0,
            open: BTreeMap::new(),
            settled: BTreeMap::new(),
        });
    }

    /// An object exists, `at` another node; `None`: nothing of it has to be copied.
    pub(super) fn push(&mut self, job: JobId, lane: u32, object: CopyId, at: Option<NodeId>) {
        let (key, number) = ((job, lane, object), self.number());
        let Some(entry) = self.lanes.get_mut(&(job, lane)) else { return };
        if self.blocks.contains_key(&key) {
            return;
        }
        entry.open.insert(number, object);
        let stage = if at.is_some() { Stage::Queued } else { Stage::Bare };
        match stage {
            Stage::Queued => drop(self.queued.insert(number, key)),
            _ => drop(entry.settled.insert(number, object)),
        }
        self.blocks.insert(key, Block { number, at, stage, left: BTreeMap::new(), fold: None });
    }

    /// How many bytes each piece of a block has; `None`: that cannot be learned. The block, if it waits for room now.
    pub(super) fn sized(&mut self, work: u64, bytes: Option<Vec<u64>>) -> Option<Key> {
        let key = self.working(work, |stage| matches!(stage, Stage::Sizing(_)))?;
        self.works.remove(&work);
        let pieces = bytes.map(|bytes| self.lanes[&(key.0, key.1)].ranges.iter().copied().zip(bytes).collect());
        let block = self.blocks.get_mut(&key).expect("looked up just now");
        block.left = pieces.unwrap_or_default();
        // What is larger than all room there is would keep the others waiting for nothing.
        if block.left.is_empty() || block.bytes() > self.cap {
            self.give_up(key);
            return None;
        }
        block.stage = Stage::Waiting;
        self.waiting.insert(block.number, key);
        Some(key)
    }

    /// The store has no memory for a block now.
    pub(super) fn short(&mut self, work: u64) {
        if let Some(key) = self.working(work, |stage| matches!(stage, Stage::Reserving(..))) {
            self.blocks.get_mut(&key).expect("looked up just now").stage = Stage::Reserving(work, true);
        }
    }

    /// The store has granted memory for a block.
    pub(super) fn granted(&mut self, work: u64) {
        if let Some(key) = self.working(work, |stage| matches!(stage, Stage::Reserving(..))) {
            self.blocks.get_mut(&key).expect("looked up just now").stage = Stage::Fetching(work);
        }
    }

    /// A block is here; which it is, if it is still wanted.
    pub(super) fn copied(&mut self, work: u64) -> Option<Key> {
        let key = self.working(work, |stage| matches!(stage, Stage::Reserving(..) | Stage::Fetching(_)))?;
        self.works.remove(&work);
        self.blocks.get_mut(&key).expect("looked up just now").stage = Stage::Here;
        self.settle(key);
        Some(key)
    }

    /// A block is here, or nothing of it will come.
    fn settle(&mut self, key: Key) {
        let block = &self.blocks[&key];
        match block.fold {
            None => {
                let lane = self.lanes.get_mut(&(key.0, key.1)).expect("the lane of a block");
                lane.settled.insert(block.number, key.2);
            }
            Some(_) if block.stage == Stage::Here => drop(self.folded.insert(key)),
            Some(_) => drop(self.folded.remove(&key)),
        }
    }

    /// A block will not come.
    pub(super) fn failed(&mut self, work: u64) {
        if let Some(key) = self.works.remove(&work) {
            self.give_up(key);
        }
    }

    /// The block of a work that is under way and in the stage that its news are about.
    fn working(&self, work: u64, in_stage: impl Fn(Stage) -> bool) -> Option<Key> {
        self.works.get(&work).copied().filter(|key| in_stage(self.blocks[key].stage))
    }

    /// A task is going to read these pieces, and asks which of them are here.
    pub(super) fn look(&mut self, look: u64, job: JobId, pieces: Vec<(CopyId, Parts)>) {
        for (object, parts) in &pieces {
            // What has not even got its memory would keep the task waiting for it: the task has its own place in the queue.
            if let Some(key) = self.find(job, *object, *parts)
                && !self.blocks[&key].is_settled()
                && !matches!(self.blocks[&key].stage, Stage::Fetching(_))
            {
                self.give_up(key);
            }
        }
        self.looks.insert(look, Look { job, pieces });
    }

    /// A task takes a piece; the block that it is of, if it is here. It does without one that is on its way.
    pub(super) fn take(&mut self, job: JobId, object: CopyId, parts: Parts) -> Option<Key> {
        let key = self.find(job, object, parts)?;
        if self.blocks[&key].stage != Stage::Here {
            self.give_up(key);
            return None;
        }
        let block = self.blocks.get_mut(&key).expect("found just now");
        self.held -= block.left.remove(&parts)?;
        if block.left.is_empty() {
            block.stage = Stage::Bare;
            self.settle(key);
        }
        self.forget_if_done(key);
        Some(key)
    }

    /// The block with this piece; where two lanes have it, the one that is here, or else may come.
    fn find(&self, job: JobId, object: CopyId, parts: Parts) -> Option<Key> {
        let lanes = self.lanes.range((job, 0)..=(job, u32::MAX)).filter(|(_, lane)| lane.ranges.contains(&parts));
        let blocks = lanes.filter_map(|((job, lane), _)| self.blocks.get_key_value(&(*job, *lane, object)));
        let best = blocks.max_by_key(|(_, block)| match block.stage {
            Stage::Here => 1 + u8::from(block.left.contains_key(&parts)),
            Stage::Bare => 0,
            _ => 1,
        });
        best.map(|(key, _)| *key)
    }

    /// Arguments wait for so many bytes: copies are given up until there are as many, those first that will be asked for
    /// last.
    pub(super) fn tight(&mut self, bytes: u64) {
        let holding = self.blocks.iter().filter(|(_, block)| block.holds() && block.bytes() > 0);
        let mut holding: Vec<_> =
            holding.map(|(key, block)| ((block.fold.is_none(), block.fold, block.number), *key)).collect();
        holding.sort_unstable();
        let mut freed = 0;
        while freed < bytes
            && let Some((_, key)) = holding.pop()
        {
            // What waits for memory itself gives none back.
            if !matches!(self.blocks[&key].stage, Stage::Reserving(..)) {
                freed += self.blocks[&key].bytes();
            }
            self.give_up(key);
        }
    }

    /// The job is over.
    pub(super) fn end(&mut self, job: JobId) {
        let of_job: Vec<Key> = self.blocks.keys().filter(|key| key.0 == job).copied().collect();
        for key in of_job {
            self.give_up(key);
            self.blocks.remove(&key);
        }
        self.lanes.retain(|(of, _), _| *of != job);
    }

    /// Nothing is held of a block any more, and nothing will be.
    fn give_up(&mut self, key: Key) {
        let Some(block) = self.blocks.get_mut(&key) else { return };
        let (stage, bytes, number) = (block.stage, block.bytes(), block.number);
        let holds = block.holds();
        block.stage = Stage::Bare;
        block.left.clear();
        if holds {
            self.held -= bytes;
        }
        self.settle(key);
        match stage {
            Stage::Bare => {}
            Stage::Queued => drop(self.queued.remove(&number)),
            Stage::Waiting => {
                self.waiting.remove(&number);
                self.effects.push(Effect::Drop { key, bytes: 0 });
            }
            Stage::Here => self.effects.push(Effect::Drop { key, bytes }),
            Stage::Sizing(work) | Stage::Reserving(work, _) | Stage::Fetching(work) => {
                // One that has failed is over already.
                if self.works.remove(&work).is_some() {
                    self.effects.push(Effect::Stop { work });
                }
            }
        }
        self.forget_if_done(key);
    }

    fn forget_if_done(&mut self, key: Key) {
        if self.blocks.get(&key).is_some_and(|block| block.fold.is_some() && block.stage == Stage::Bare) {
            self.blocks.remove(&key);
        }
    }

    /// Begins what can begin, answers, folds, and returns everything to be done, in order.
    pub(super) fn flush(&mut self) -> Vec<Effect> {
        self.begin();
        let lanes: Vec<(JobId, u32)> = self.lanes.keys().copied().collect();
        for lane in lanes {
            while self.fold(lane) {}
        }
        // What was waiting may have been folded as it is.
        self.begin();
        self.answer();
        std::mem::take(&mut self.effects)
    }

    fn begin(&mut self) {
        while self.works.len() < WORKS_AT_ONCE {
            if let Some((_, key)) = self.waiting.first_key_value() {
                let key = *key;
                if !self.makes_room(self.blocks[&key].bytes()) {
                    return;
                }
                self.waiting.pop_first();
                self.held += self.blocks[&key].bytes();
                self.work(key, |work| Stage::Reserving(work, false));
            } else if let Some((_, key)) = self.queued.pop_first() {
                self.work(key, Stage::Sizing);
            } else {
                return;
            }
        }
    }

    fn work(&mut self, key: Key, stage: impl Fn(u64) -> Stage) {
        let work = self.number();
        self.works.insert(work, key);
        let ranges = self.lanes[&(key.0, key.1)].ranges.clone();
        let block = self.blocks.get_mut(&key).expect("a block in a queue is known");
        block.stage = stage(work);
        let at = block.at.clone().expect("only what is elsewhere is queued");
        self.effects.push(match block.stage {
            Stage::Sizing(_) => Effect::Size { work, key, at, ranges },
            _ => Effect::Copy { work, key, at, ranges },
        });
    }

    /// Whether there is room for so many bytes, now that copies that nobody asked for have gone.
    fn makes_room(&mut self, bytes: u64) -> bool {
        while self.held + bytes > self.cap {
            let old = self.folded.iter().filter(|key| {
                let folds = self.lanes[&(key.0, key.1)].folds;
                self.blocks[*key].fold.is_some_and(|fold| fold + FOLDS_AWAITED <= folds)
            });
            let oldest = old.min_by_key(|key| (self.blocks[*key].fold, self.blocks[*key].number));
            let Some(key) = oldest.copied() else { return false };
            self.give_up(key);
        }
        true
    }

    /// Whether a reservation waits.
    fn is_short(&self) -> bool {
        let full =
            self.waiting.first_key_value().is_some_and(|(_, key)| self.held + self.blocks[key].bytes() > self.cap);
        full || self.works.values().any(|key| matches!(self.blocks[key].stage, Stage::Reserving(_, true)))
    }

    /// Says that a fold of a lane is due, if one is.
    fn fold(&mut self, (job, number): (JobId, u32)) -> bool {
        let lane = &self.lanes[&(job, number)];
        let (fold_at, here) = (lane.fold_at, lane.settled.len());
        let tight = here < fold_at;
        let blocks: Vec<CopyId> = if !tight {
            lane.settled.values().take(fold_at).copied().collect()
        } else if !self.is_short() {
            return false;
        } else if lane.open.len() >= fold_at {
            // The merge fetches the rest: it has a better claim to memory than a push.
            lane.open.values().take(fold_at).copied().collect()
        } else if here >= fold_at_least(fold_at) {
            lane.settled.values().copied().collect()
        } else {
            return false;
        };
        self.folded((job, number), blocks, tight);
        true
    }

    fn folded(&mut self, lane: (JobId, u32), blocks: Vec<CopyId>, tight: bool) {
        let members: BTreeSet<Key> = blocks.iter().map(|object| (lane.0, lane.1, *object)).collect();
        let entry = self.lanes.get_mut(&lane).expect("a lane that folds");
        entry.folds += 1;
        let (fold, owner) = (entry.folds, entry.owner.clone());
        let mut bytes = 0;
        for key in &members {
            let block = self.blocks.get_mut(key).expect("a block that is folded is known");
            block.fold = Some(fold);
            entry.open.remove(&block.number);
            entry.settled.remove(&block.number);
            bytes += if block.stage == Stage::Here { block.bytes() } else { 0 };
        }
        for key in members {
            match self.blocks[&key].stage {
                Stage::Here => self.settle(key),
                // It is nearly here.
                Stage::Fetching(_) => {}
                _ => self.give_up(key),
            }
            self.forget_if_done(key);
        }
        self.effects.push(Effect::FoldDue { job: lane.0, owner, lane: lane.1, blocks, bytes, tight });
    }

    fn answer(&mut self) {
        let on_its_way = |look: &Look| {
            let mut keys = look.pieces.iter().filter_map(|(object, parts)| self.find(look.job, *object, *parts));
            keys.any(|key| matches!(self.blocks[&key].stage, Stage::Fetching(_)))
        };
        let due: Vec<u64> =
            self.looks.iter().filter(|(_, look)| !on_its_way(look)).map(|(number, _)| *number).collect();
        for number in due {
            let Some(look) = self.looks.remove(&number) else { continue };
            let here = look.pieces.iter().map(|(object, parts)| {
                let key = self.find(look.job, *object, *parts);
                key.is_some_and(|key| {
                    let block = &self.blocks[&key];
                    block.stage == Stage::Here && block.left.contains_key(parts)
                })
            });
            let here = here.collect();
            self.effects.push(Effect::Answer { look: number, here });
        }
    }
}

/// With fewer blocks a merge would only copy, however short memory is.
fn fold_at_least(fold_at: usize) -> usize {
    fold_at.div_ceil(4).max(2)
}
