//! A set of a job: who needs it, which members it lacks, who waits for them, and which nodes know what of it. Nothing but the verbs here
//! changes that.

use std::collections::BTreeSet;

use super::placement::NodeIndex;
use super::referrers::Referrers;
use super::uses::Uses;
use crate::arena::Index;
use crate::ids::SetId;
use crate::task::Output;

/// An entry of the table of sets.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) id: SetId,
    pub(super) members: Box<[Index]>,
    pub(super) uses: Uses,
    missing: u32,
    /// Whether all missing members have been asked for.
    asked: bool,
    /// The edge that its members have joined, where it is of one.
    edge: Option<Index>,
    /// What was sealed of all members together, where that was asked since its last version.
    sealed: Option<Output>,
    /// Where copies of its members are of which parts were freed, where that was done since its last version.
    spent: Option<Box<[NodeIndex]>>,
    /// Which copies of its members are meant, and where they are, as nodes are told: another version whenever that changes.
    version: u32,
    /// Nodes that know this version, or will when they have handled what was sent.
    defined: BTreeSet<NodeIndex>,
    /// Tasks that wait until nothing is missing.
    waiters: Vec<Index>,
    /// Tasks of which it is an argument, where it is of an edge.
    readers: Referrers,
}

impl Set {
    /// One that nobody waits for, with one reference.
    pub(super) fn new(id: SetId, members: Box<[Index]>, edge: Option<Index>, version: u32) -> Self {
        Self {
            id,
            members,
            uses: Uses::new(1),
            missing: 0,
            asked: true,
            edge,
            sealed: None,
            spent: None,
            version,
            defined: BTreeSet::new(),
            waiters: Vec::new(),
            readers: Referrers::default(),
        }
    }

    /// Nobody waits for its members any more.
    pub(super) fn lacks_nothing(&mut self) {
        self.missing = 0;
    }

    /// Whether all members are there.
    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// One member more is missing; `asked`: it is being made.
    pub(super) fn lacks_one_more(&mut self, asked: bool) {
        self.missing += 1;
        self.asked &= asked;
    }

    /// A member that was missing is there; who waits for all of them, if that was the last one.
    pub(super) fn lacks_one_less(&mut self) -> Vec<Index> {
        self.missing -= 1;
        if self.missing == 0 { std::mem::take(&mut self.waiters) } else { Vec::new() }
    }

    /// All members that are missing are being asked for; false where they have been.
    pub(super) fn ask(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }

    /// What is missing is asked for when somebody reads it.
    pub(super) fn is_asked_no_more(&mut self) {
        self.asked = false;
    }

    /// Whether a task waits for it.
    pub(super) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// This task waits until nothing is missing.
    pub(super) fn add_waiter(&mut self, task: Index) {
        self.waiters.push(task);
    }

    /// This task waits no more.
    pub(super) fn forget_waiter(&mut self, task: Index) {
        self.waiters.retain(|waiter| *waiter != task);
    }

    /// Takes all tasks that wait.
    pub(super) fn take_waiters(&mut self) -> Vec<Index> {
        std::mem::take(&mut self.waiters)
    }

    /// Which copies of its members are meant, and where they are.
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// That has changed: no node knows this version.
    pub(super) fn changed(&mut self, version: u32) {
        (self.version, self.sealed, self.spent) = (version, None, None);
        self.defined.clear();
    }

    /// A node is told of this version; false where it has been.
    pub(super) fn define_at(&mut self, node: NodeIndex) -> bool {
        self.defined.insert(node)
    }

    /// A node does not know this version.
    pub(super) fn unknown_at(&mut self, node: NodeIndex) {
        self.defined.remove(&node);
    }

    /// The edge that its members have joined, where it is of one.
    pub(super) fn edge(&self) -> Option<Index> {
        self.edge
    }

    /// It is an argument of a task; `reads`: whether it is one of another task still.
    pub(super) fn is_read_by(&mut self, task: Index, reads: impl Fn(Index) -> bool) {
        if self.edge.is_some() {
            self.readers.add(task, reads);
        }
    }

    /// Tasks of which it was an argument, where it is of an edge: some may be forgotten.
    pub(super) fn readers(&self) -> &[Index] {
        self.readers.listed()
    }

    /// What was sealed of all members together; `of_member` of one.
    pub(super) fn sealed(&mut self, of_member: impl Fn(Index) -> Output) -> Output {
        *self.sealed.get_or_insert_with(|| {
            let mut sealed = Output::default();
            self.members.iter().for_each(|member| sealed.add(of_member(*member)));
            sealed
        })
    }

    /// Where its members are, if parts of all of them were freed since its last version.
    pub(super) fn spent(&self) -> Option<&[NodeIndex]> {
        self.spent.as_deref()
    }

    /// Parts of all its members are freed, which are there.
    pub(super) fn is_spent_at(&mut self, nodes: BTreeSet<NodeIndex>) {
        self.spent = Some(nodes.into_iter().collect());
    }

    /// Bytes on the heap of its lists: members, who waits, and who reads it.
    pub(super) fn list_bytes(&self) -> [usize; 3] {
        [size_of_val(&*self.members), self.waiters.capacity() * size_of::<Index>(), self.readers.bytes()]
    }
}
