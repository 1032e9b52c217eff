//! An object of a job: who needs it, what it is, and which copy of it counts. Nothing but the verbs here changes that.

use bytes::Bytes;
use smallvec::SmallVec;

use super::copy::Copy;
use super::placement::NodeIndex;
use super::rare::{OfObject, Rare, Waiter};
use super::uses::{Mark, Uses};
use crate::arena::Index;
use crate::ids::{CopyNumber, ObjectId};
use crate::task::Output;

/// An entry of the table of objects.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) id: ObjectId,
    /// The task that makes it; none of what the program put.
    pub(super) task: Option<Index>,
    pub(super) uses: Uses,
    output: Output,
    /// Which copy of it counts.
    copy: Copy,
    /// The edge that it has joined; further ones are rare.
    edge: Option<Index>,
    rare: Rare<OfObject>,
}

impl Object {
    /// An output of a task that is going to run.
    pub(super) fn pending(id: ObjectId, task: Index, references: u32) -> Self {
        Self {
            id,
            task: Some(task),
            output: Output::default(),
            uses: Uses::new(references),
            copy: Copy::None.wanted(),
            edge: None,
            rare: Rare::default(),
        }
    }

    /// What the program put on a node, with one reference.
    pub(super) fn put(id: ObjectId, output: Output, (node, number): (NodeIndex, CopyNumber)) -> Self {
        let mut uses = Uses::new(1);
        uses.mark(Mark::Made);
        Self {
            id,
            task: None,
            output,
            uses,
            copy: Copy::At { node, number, spent: false },
            edge: None,
            rare: Rare::default(),
        }
    }

    /// Size, rows and hash; nothing before it was made.
    pub(super) fn output(&self) -> Output {
        self.output
    }

    /// Whether it was made once, though it may be gone.
    pub(super) fn was_made(&self) -> bool {
        self.uses.is_marked(Mark::Made)
    }

    /// It was made, and is this.
    pub(super) fn made(&mut self, output: Output) {
        self.output = output;
        self.uses.mark(Mark::Made);
    }

    /// It joins an edge, perhaps again.
    pub(super) fn joins(&mut self, edge: Index) {
        match self.edge {
            None => self.edge = Some(edge),
            Some(_) => self.rare.change(|rare| rare.more_edges = [&rare.more_edges[..], &[edge]].concat().into()),
        }
    }

    /// An edge is no more.
    pub(super) fn leaves(&mut self, edge: Index) {
        let mut others = self.edges().filter(|other| *other != edge).collect::<SmallVec<[Index; 2]>>().into_iter();
        self.edge = others.next();
        self.rare.change_if_there(|rare| rare.more_edges = others.collect());
    }

    /// The edges that it has joined.
    pub(super) fn edges(&self) -> impl Iterator<Item = Index> + '_ {
        let more = self.rare.get().map_or(&[][..], |rare| &rare.more_edges);
        self.edge.into_iter().chain(more.iter().copied())
    }

    /// Which copy of it counts.
    pub(super) fn copy(&self) -> Copy {
        self.copy
    }

    /// Whether its value stays: somebody needs it, or could ask for it again, and nobody can make it again.
    pub(super) fn is_kept(&self) -> bool {
        self.uses.is_referenced() || self.task.is_none() && self.uses.any()
    }

    /// Whether its value can be had.
    pub(super) fn is_here(&self) -> bool {
        self.copy.is_here()
    }

    /// This copy counts from now on.
    pub(super) fn is_at(&mut self, node: NodeIndex, number: CopyNumber, spent: bool) {
        self.copy = Copy::At { node, number, spent };
    }

    /// Somebody needs its value: true where nothing was done about that before.
    pub(super) fn want(&mut self) -> bool {
        let missing = self.copy.is_missing();
        self.copy = self.copy.wanted();
        missing
    }

    /// Nobody makes it any more.
    pub(super) fn give_up(&mut self) {
        self.copy = self.copy.given_up();
    }

    /// The copy that counts went with its node.
    pub(super) fn lose(&mut self) {
        self.copy = self.copy.lost_with_its_node();
    }

    /// The last copy is of no use, should it come back.
    pub(super) fn forget_last(&mut self) {
        self.copy = self.copy.without_last();
    }

    /// No copy of it counts any more, and none is being made.
    pub(super) fn drop_value(&mut self) {
        self.copy = Copy::None;
    }

    /// Parts of it are freed, wherever it is.
    pub(super) fn spend(&mut self) {
        self.copy.spend();
    }

    /// Parts of it may be freed, where the copy that counts, or the last one, is older than this run.
    pub(super) fn spend_of_run_before(&mut self, run: u32) {
        if self.copy.number().is_some_and(|number| number.run() < run) {
            self.copy.spend();
        }
    }

    /// The attempt that made the copy that counts.
    pub(super) fn maker(&self) -> Option<CopyNumber> {
        let (_, number) = self.copy.at()?;
        // What was put back has a number of its own, and was put back from these.
        Some(self.kept().map_or(number, |(maker, _)| maker))
    }

    /// The copy that counts and its node, where it has bytes: of an object without any, nothing is anywhere.
    pub(super) fn located(&self) -> Option<(NodeIndex, CopyNumber)> {
        self.copy.at().filter(|_| self.output.bytes > 0)
    }

    /// The node with its bytes, where it has some.
    pub(super) fn holder(&self) -> Option<NodeIndex> {
        self.located().map(|(node, _)| node)
    }

    /// This one waits for its value.
    pub(super) fn add_waiter(&mut self, waiter: Waiter) {
        self.rare.change(|rare| rare.waiters.push(waiter));
    }

    /// This one waits no more.
    pub(super) fn forget_waiter(&mut self, waiter: Waiter) {
        self.rare.change_if_there(|rare| rare.waiters.retain(|other| *other != waiter));
    }

    /// Takes who waits for its value.
    pub(super) fn take_waiters(&mut self) -> SmallVec<[Waiter; 1]> {
        self.rare.change_if_there(|rare| std::mem::take(&mut rare.waiters))
    }

    pub(super) fn has_waiters(&self) -> bool {
        self.rare.get().is_some_and(|rare| !rare.waiters.is_empty())
    }

    /// The bytes that an attempt made are known: should its node be lost, they are there still. Others than those of its output are not
    /// taken.
    pub(super) fn keep_bytes(&mut self, maker: CopyNumber, bytes: &[u8]) {
        if self.output.bytes == bytes.len() as u64 {
            self.rare.change(|rare| rare.bytes = Some((maker, bytes.into())));
        }
    }

    fn kept(&self) -> Option<(CopyNumber, &[u8])> {
        let (maker, bytes) = self.rare.get()?.bytes.as_ref()?;
        (bytes.len() as u64 == self.output.bytes).then_some((*maker, &**bytes))
    }

    /// What is known of its bytes, and which attempt made them.
    pub(super) fn kept_bytes(&self) -> Option<(CopyNumber, Bytes)> {
        self.kept().map(|(maker, bytes)| (maker, Bytes::copy_from_slice(bytes)))
    }

    pub(super) fn forget_bytes(&mut self) {
        self.rare.change_if_there(|rare| rare.bytes = None);
    }

    /// What few objects have.
    pub(super) fn rare(&self) -> &Rare<OfObject> {
        &self.rare
    }
}
