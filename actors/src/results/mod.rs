//! Results: objects that outlive their job for a time, and how they leave the cluster.
//!
//! A program says what is to be kept ([`Futures::keep_result`](crate::futures::Futures::keep_result),
//! [`Futures::result_file`](crate::futures::Futures::result_file)). The *result* of a job has the id of the job and some *files*; a file is
//! the bytes of its *members*, objects that the program appended, one behind the other. The node that has an object *keeps* it: it gets a
//! second name in that store, which is not freed with the job, and is written to disk. Nothing is copied, unless the disks of that node do
//! not take it: then another node fetches it. What is kept where stands in a [record](record) in the cluster's key-value store.
//!
//! ```text
//!   program --append--> keeper --Keep--> results of the node that has the object: second name, hash, disk
//!                          |                     ^            |
//!                          +--record--> bucket --+--looks--+  | bytes
//!                                                          |  v
//!   any NATS client --request--> api.<tenant>.result --> door of some node --forwards--> door of that node --> answer
//! ```
//!
//! # Promises
//! - The end of a job says what was kept ([`JobEnd::kept`](crate::protocol::host::JobEnd::kept)), or that there is no result and why: a disk
//!   that has no room fails no job. What stands there was on disk, under its hash, before the end was.
//! - A result that is not there is *unknown*, whoever's it is: its tenant is part of where its record stands, and of the subject that is asked.
//! - Nothing is kept for a client between two requests: a slow one costs nothing, and one that is gone is not missed. At most
//!   [`READS_MAX`] requests are read for at a time, [`LENGTH_MAX`] bytes each, and as many more as [`WAITING_BYTES`] hold wait; what
//!   comes beyond is dropped, and asked again by who misses an answer.
//! - Bytes go with the result's time, or when somebody deletes it; what no record names is swept. A node that leaves hands its results to
//!   others; one that dies has them still if it is started again with its spill folders, and until then who asks is told so.
//!
//! # Deliberately absent
//! A second copy of a result: it is as durable as the disk of its node. A quota: there is one tenant so far. Flow of bytes to who only
//! listens: it is asked for each piece, and that is the credit.

mod adopting;
pub mod client;
mod door;
mod holder;
mod keeper;
mod list;
mod others;
pub mod record;
mod records;
pub mod request;
mod restart;
mod service;
mod sweep;

pub(crate) use adopting::Adopting;
pub use client::{ResultClient, ResultError};
pub(crate) use door::QUEUE;
pub(crate) use keeper::{Keeper, KeeperParts, discard, kept_by};
pub(crate) use records::ResultRecords;
pub use request::{LENGTH_MAX, VERB};
pub(crate) use service::{Results, ResultsBase, ResultsParts};

use std::time::Duration;

/// How long a result is there after its job, unless the node is told otherwise.
pub const KEPT_FOR: Duration = Duration::from_secs(3600);
/// Requests for which a node reads at a time.
pub const READS_MAX: usize = 8;
/// Requests that wait for that, in bytes.
pub const WAITING_BYTES: usize = 1 << 20;
