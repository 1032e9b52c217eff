//! What few tasks and objects have, and each for a time: kept in the entry that it belongs to, so that it goes with it.

use smallvec::SmallVec;

use super::placement::NodeIndex;
use super::retry_placement::Tried;
use super::state::Tracker;
use crate::arena::Index;
use crate::ids::CopyNumber;
use crate::task::JobError;

/// A value that takes memory only while it is not the default.
#[derive(Debug)]
pub(super) struct Rare<T>(Option<Box<T>>);

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Default + PartialEq> Rare<T> {
    /// The value where it is another than the default.
    pub(super) fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// Changes the value.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let value = self.0.get_or_insert_default();
        let result = change(value);
        if **value == T::default() {
            self.0 = None;
        }
        result
    }

    /// Changes the value where it is another than the default.
    pub(super) fn change_if_there<R: Default>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        if self.0.is_some() { self.change(change) } else { R::default() }
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        if self.0.is_some() { size_of::<T>() } else { 0 }
    }
}

/// Who waits for the value of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A future of the program.
    Tracker(Tracker),
    /// A task whose argument it is.
    Task(Index),
    /// A set of which it is a member.
    Set(Index),
}

/// Of an object.
#[derive(Debug, Default, PartialEq)]
pub(super) struct OfObject {
    /// Who waits for its value.
    pub(super) waiters: SmallVec<[Waiter; 1]>,
    /// Its bytes, where they are few and on another node than the Owner's, and the attempt that made them.
    pub(super) bytes: Option<(CopyNumber, Box<[u8]>)>,
    /// Edges that it has joined beside the first one.
    pub(super) more_edges: Box<[Index]>,
}

impl OfObject {
    /// Bytes on the heap of its lists: those who wait, and edges.
    pub(super) fn list_bytes(&self) -> [usize; 2] {
        let waiters = if self.waiters.spilled() { self.waiters.capacity() * size_of::<Waiter>() } else { 0 };
        [waiters, size_of_val(&*self.more_edges)]
    }
}

/// Of a task.
#[derive(Debug, Default, PartialEq)]
pub(super) struct OfTask {
    /// Why it failed.
    pub(super) failure: Option<JobError>,
    /// Who reads its outputs as they come.
    pub(super) readers: SmallVec<[Tracker; 1]>,
    /// Where it was tried in vain.
    pub(super) tried: Tried,
    /// Where it is to run, since its arguments can be read there.
    pub(super) rather_at: Option<NodeIndex>,
    /// How often attempts ended without any fault of theirs; from 0 again when the task completes.
    pub(super) denials: u32,
    /// So much memory beside the store it needs, since an attempt with less was denied it, bytes; 0 again when the task completes.
    pub(super) outside_bytes: u64,
    /// Where it was revived: how many outputs its attempt has announced.
    pub(super) announced: u32,
    /// How often it had to run again after it was done.
    pub(super) replays: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_as_it_always_was_takes_no_memory() {
        let mut rare = Rare::<OfObject>::default();
        assert!(rare.change_if_there(|of| of.bytes.take()).is_none() && rare.bytes() == 0);
        rare.change(|of| of.waiters.push(Waiter::Tracker(1)));
        assert!(rare.get().is_some_and(|of| of.waiters.len() == 1) && rare.bytes() > 0);
        rare.change(|of| of.waiters.clear());
        assert!(rare.get().is_none() && rare.bytes() == 0);
    }

    #[test]
    fn what_a_waiting_object_costs_beside_its_entry_is_small() {
        assert!(size_of::<OfObject>() <= 64, "{}", size_of::<OfObject>());
    }
}
