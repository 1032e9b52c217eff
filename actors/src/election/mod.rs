//! Election: which of the candidates is the cluster's Scheduler, and under which epoch.
//!
//! Every node with `scheduler = true` is a candidate. One of them holds a *lease*: a key that expires ([`TTL`]) in a bucket
//! of the cluster ([`exobus_bus::kv`]). It makes the key when there is none, and then writes it again at the revision that
//! it wrote last, so that nobody can write beside it. Who holds the lease is the Scheduler; its *epoch* is the revision
//! with which that began, plus a number that is another one for each store of the servers, and so rises from one Scheduler to the next.
//!
//! # Promises
//! - At most one node acts as the Scheduler of the highest epoch: a holder stops acting [`TTL`] after it *began* its last
//!   successful write, by its own monotonic clock; the server lets the key expire no earlier. A frozen holder looks at the
//!   clock before it acts again.
//! - Words of an older epoch change nothing: leases carry their epoch, and Owners drop those of older ones.
//! - A write whose answer is lost is neither a yes nor a no: the holder looks whose the key is before it writes again, and
//!   acts on no more than what it knows.
//! - When the holder dies there is a new Scheduler some two seconds later; one that stops in order gives the lease back at once.
//! - When the bus is away for longer than [`TTL`] there is no Scheduler: leases of jobs go on, new jobs wait.
//! - When the servers answer and have nothing (their store was removed), there is no Scheduler and candidates say so; when that has been so for
//!   10 s, they make buckets and streams anew. By then every lease of before is over; epochs, which are above all that were heard of, do
//!   not come twice. Whoever starts meanwhile and finds others there waits for that; alone, it makes at once what it needs.
//! - When the keys can be read and not be written (the server's disk is full), there is no Scheduler either, and candidates say so to
//!   who asks (`ctl.election.trouble`): new jobs are refused with the reason.
//!
//! # Who is the Scheduler
//! Everybody learns it from heartbeats: each says whom its sender follows
//! ([`Beat::leader`](crate::protocol::membership::Beat::leader)), and the highest epoch counts. Clients ask `ctl.scheduler.where`. A
//! heartbeat tells the highest epoch, too, of which its sender has heard ([`Beat::epoch`](crate::protocol::membership::Beat::epoch)). A
//! Scheduler that hears of a higher epoch than its own stops acting until a write tells that the lease is still its own (the
//! key-value store was lost and has begun anew, say); then it acts under an epoch that is higher still.
//!
//! # Without JetStream
//! There is no key-value store then, and no election: exactly one node may be a candidate, and the cluster waits for it
//! when it is gone. Its log says so. A second one is refused.

mod campaign;
mod core;
pub mod state;

use std::time::Duration;

pub(crate) use self::core::second_scheduler;
#[cfg(feature = "simulation")]
pub(crate) use self::core::{CampaignCore, CampaignEffect, CampaignEvent, LeaseQuestion};
#[cfg(all(test, feature = "simulation"))]
pub(crate) use campaign::base;
#[cfg(feature = "simulation")]
pub(crate) use campaign::lose;
pub(crate) use campaign::{Campaign, CampaignParts, Ground};

/// How long the lease lasts without a write. Short enough that there is a new Scheduler within 3 s; long enough that a
/// busy machine, or a disk that takes its time with the holder's writes, does not depose anybody.
pub const TTL: Duration = Duration::from_millis(1500);
/// How often the holder writes.
pub const RENEW_EVERY: Duration = Duration::from_millis(400);
/// How often the others look whether the key is gone.
pub const TRY_EVERY: Duration = Duration::from_millis(250);
