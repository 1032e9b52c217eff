//! Merger: knows which pushed parts are here, and decides when they are folded. One per node, a table for each job.
//!
//! A program says that parts of an object will be merged on a node ([`Pushes`](crate::futures::Pushes)); its Owner hands
//! that on to the Merger there, which asks the store for memory that can be taken back, has Transfer copy the parts, and
//! keeps the copy until the task that merges it is staged. When enough blocks are here, or memory is short, it says that a
//! *fold* is due: which blocks, no more. The program submits the fold as an ordinary task with exactly these arguments.
//!
//! # Promises
//! - It owns neither bytes nor lineage. A copy is private to its node, is announced to nobody, and can be dropped at any
//!   time: what is not here when a task is staged is fetched from where it is. Nothing waits for a push but the decision
//!   to fold early, and a program folds by itself what is left at its end.
//! - Copies take memory of [`Class::Prefetch`](exobus_store::Class::Prefetch), what nobody else wants now, and of a node's
//!   budget no more than a quarter. When arguments find none, the copies that will be needed last go first.
//! - A copy is no argument before the whole task has its memory: a task that waits for some holds none (law 5).
//!
//! # Deliberately absent
//! Pushing from the sender's side: the receiver must grant the memory anyhow, so it is told, and asks when it can. Copies
//! on disk: what finds no memory is not pushed.

mod actor;
mod copying;
mod event;
mod state;
#[cfg(test)]
mod state_tests;

pub(crate) use actor::{Merger, PushCount};
pub(crate) use event::{MergerEvent, News};
