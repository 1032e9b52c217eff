//! Durable streams: records that survive their writer, in one order that everybody sees.
//!
//! A [`Stream`] takes records on the subjects of its pattern and numbers them, from 1 and without reuse. With NATS it is a
//! JetStream stream; [in process](crate::Bus::in_process_durable) it is kept in one file, or in memory where no file is given
//! (then it lives as long as the bus). [`crate::kv`] stands on the same few operations.
//!
//! What a lost and a repeated call do; an answer may be lost although the server did what it was told, and then the call
//! says [`TimedOut`](crate::BusError::TimedOut): *not known*.
//!
//! | call | answer lost, called again |
//! |---|---|
//! | [`open`](Stream::open) | opens the same stream |
//! | [`append`](Stream::append) with a [dedupe id](Append::dedupe) | appended once; the second answer is the first one's sequence, `duplicate`. Within the [window](StreamConfig::dedupe_window) and while the record is there. The handle itself repeats a lost one until its deadline |
//! | `append` without | appended twice; the handle never repeats it |
//! | `append` with an [expected sequence](Expect) and no dedupe id | `Conflict` with the sequence of the first: read it to see whose it is |
//! | [`last`](Stream::last), [`state`](Stream::state), [`read`](Stream::read) | the same answer, or a later one |
//! | [`purge`](Stream::purge), [`delete`](Stream::delete) | nothing left to remove: 0, `false` |
//! | [`Consumer::fetch`] | what the lost answer held comes again after [`ack_wait`](ConsumerConfig::ack_wait) |
//! | [`Delivered::ack`] | nothing: it is acknowledged. A server that is killed may forget the latest ones and deliver again |
//!
//! **What is durable when.** `Ok` from an append means that the record survives the end of any process. That it survives
//! a power cut, too, is up to the server's `sync_interval: always` (`configs/nats/` set it, `exobus doctor` looks); a file of our
//! own is always synced before the answer. **What it costs** is an fsync for each batch of concurrent appends: keep
//! many under way. docs/benchmarks.md has figures.
//!
//! **Bounds.** A stream has limits in bytes and records and refuses what goes beyond ([`StreamFull`](crate::BusError::StreamFull)) rather
//! than drop its oldest records. Readers and consumers pull, so a slow one costs no memory. Memory of the in-process
//! backend is O(subjects + records that expire + dedupe ids within the window), plus the records where there is no file.

mod backend;
mod config;
mod consumer;
mod reader;
mod record;
mod stream;

pub use backend::{ConsumerBackend, Fetched, Settle, Source, StreamBackend};
pub use config::{ConsumerConfig, StreamConfig};
pub use consumer::{Consumer, Delivered};
pub use reader::Reader;
pub use record::{Append, Appended, Batch, Expect, Purge, ReadFrom, Record, StreamState, Usage};
pub use stream::Stream;

/// Header of a record that the bus itself wrote when the last record of a subject expired, see
/// [`StreamConfig::expiry_markers`]. The name is JetStream's.
pub const EXPIRY_MARKER: &str = "Nats-Marker-Reason";
/// Headers that begin so belong to the bus; of these only [`crate::message::DEDUPE_ID`] may be given.
pub(crate) const RESERVED: &str = "Nats-";
