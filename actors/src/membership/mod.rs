//! Membership: who is in the cluster, who is suspected, dead, back; and whether this node must fence itself.
//!
//! Every node publishes a [`Beat`](crate::protocol::membership::Beat) on `node.<node>.beat` every 500 ms, plainly: a beat that waits in a
//! session behind others says nothing about now. Every node subscribes to `node.*.beat`, its own included: the echo of
//! its own beats is what proves that the others can hear it.
//!
//! # Promises
//! - A node that stops is suspected after three missed beats and dead after 3 s (configurable); sooner when its process is
//!   gone: whoever is late by half a beat is probed, and dead if nobody listens there (`docs/decisions/013-refused-is-dead.md`).
//! - Silence of all is the bus being down, not everybody dead: silence is counted only in time in which somebody, this
//!   node's own echo included, was heard. The same rule covers a node that was itself frozen.
//! - A node that is cut off fences itself no later than the others call it dead: its clock starts when it *sent* the
//!   last beat that the bus is known to have taken, theirs when they received it.
//! - Dead is final for an incarnation. A dead node whose beats resume is told so in the beats of those who hold it
//!   dead ([`Beat::zombies`](crate::protocol::membership::Beat::zombies)), takes the next incarnation and is back with that: another incarnation begins
//!   in the same process, with the same store (`node/control.rs`). Words of the old one are dropped
//!   ([`Directory::is_over`]). A node that
//!   was fenced but that nobody called dead (the bus was away for all) keeps its incarnation, and with it its leases
//!   and running tasks.
//! - Late messages of an older incarnation, and repeated ones, change nothing; they are counted.
//!
//! # Deliberately absent
//! Gossip, indirect probes and quorums: the bus is a star, so a node that reaches it reaches everybody. Data-plane
//! reachability is not judged here: a peer that is heard and cannot be fetched from is a fetch error, not a dead node.
//!
//! # How to drive it
//! Feed [`State::on`](state::State::on) with every beat received and with a tick at
//! [`State::next_wakeup`](state::State::next_wakeup); publish from a task of its own with room for one beat (a bare
//! publish may block for as long as the bus is away), so that a beat that cannot go out is skipped, not queued.

mod actor;
pub mod claim;
mod core;
pub mod figures;
pub mod state;

pub use self::core::Change;
pub(crate) use self::core::Renewal;
#[cfg(feature = "simulation")]
pub(crate) use self::core::{MembershipCore, MembershipEffect};
pub use actor::Directory;
pub(crate) use actor::{Membership, MembershipParts, nobody_listens};
pub(crate) use claim::{Claim, Claimant, Kept, Step};
pub use figures::{MemoryPeak, ProcessMemory, ProcessWork, Sampler, StoreUse};
pub use state::{Effect, MembershipEvent, MembershipOptions, State};
