//! A set of a job: who needs it, which members it lacks, who waits for them, and which nodes know what of it. Nothing but the verbs here
//! changes that.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::exchange::Ledger;
use super::placement::NodeIndex;
use super::uses::Uses;
use crate::arena::Index;
use crate::ids::SetId;
use crate::task::{Exchange, JobError};

/// An entry of the table of sets.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) id: SetId,
    pub(super) members: Box<[Index]>,
    pub(super) uses: Uses,
    missing: u32,
    /// Whether all missing members have been asked for.
    asked: bool,
    ledger: SetLedger,
    /// Which copies of its members are meant, and where they are, as nodes are told: another version whenever that changes.
    version: u32,
    /// Nodes that know this version, or will when they have handled what was sent.
    defined: BTreeSet<NodeIndex>,
    /// Tasks that wait until nothing is missing.
    waiters: Vec<Index>,
}

/// Where what goes through a set is counted.
#[derive(Debug)]
pub(super) enum SetLedger {
    /// Nowhere: it is no exchange.
    None,
    /// In a ledger of its own.
    Own(Ledger),
    /// In the one of all sets of this exchange.
    Shared(Arc<Exchange>),
}

impl Set {
    /// One that nobody waits for, with one reference.
    pub(super) fn new(id: SetId, members: Box<[Index]>, ledger: SetLedger, version: u32) -> Self {
        Self {
            id,
            members,
            uses: Uses::new(1),
            missing: 0,
            asked: true,
            ledger,
            version,
            defined: BTreeSet::new(),
            waiters: Vec::new(),
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
        self.version = version;
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

    /// Where what goes through it is counted.
    pub(super) fn ledger(&self) -> &SetLedger {
        &self.ledger
    }

    /// The same, to count in.
    pub(super) fn ledger_mut(&mut self) -> &mut SetLedger {
        &mut self.ledger
    }

    /// Whether its own ledger balances, where it has one.
    pub(super) fn balance(&self) -> Result<(), JobError> {
        match &self.ledger {
            SetLedger::Own(ledger) => balance(ledger),
            SetLedger::None | SetLedger::Shared(_) => Ok(()),
        }
    }

    /// Bytes on the heap of its lists: members, and who waits.
    pub(super) fn list_bytes(&self) -> [usize; 2] {
        [size_of_val(&*self.members), self.waiters.capacity() * size_of::<Index>()]
    }
}

/// Whether what went into an exchange is what came out of it.
pub(super) fn balance(ledger: &Ledger) -> Result<(), JobError> {
    ledger.close().map_err(|(edge, detail)| JobError::Conservation { edge, detail })
}
