//! The control plane of exobus: small messages between actors, in one process or over NATS.
//!
//! [`Bus`] is a cheap handle over a [`Backend`](backend::Backend): [in-process](Bus::in_process), which needs no
//! server, or [NATS](Bus::connect). Both keep the same promises, and so does [`chaos::Chaos`] around either with no
//! faults set. Each promise is a clause of the contract suite (module `contract`, feature "contract"):
//!
//! | promise | clauses |
//! |---|---|
//! | every plain subscriber gets a message, of a queue group one member; wildcards as in NATS | `pubsub` |
//! | messages of one publisher to one subject arrive in order; headers survive | `pubsub` |
//! | when [`Bus::subscribe`] returns, the server knows, or has refused | `pubsub` |
//! | a request has a deadline; nobody there is told at once; many answers can be collected | `request` |
//! | too large a message, a bad name: refused before sending, with size and limit | `limits` |
//! | a full subscriber drops its newest message, counts it, and harms nobody else | `full` |
//! | [`Bus::drain`] sends what is queued, ends subscriptions after their last message, then all says `Closed` | `closing` |
//! | a question about services reaches everybody who offers some | `service` |
//! | what a [stream](streams) acknowledged is there, once, in one order; conditions fence; limits refuse | `streams` |
//! | a [durable consumer](streams::Consumer) gets a record until it has acknowledged it | `consumers` |
//! | a [key](kv) changes only at the revision that its writer saw; watchers see values, then changes; keys expire | `kv` |
//!
//! What the bus does **not** promise: that a published message arrives. A server restart, a full subscriber or an
//! outage loses messages, and `Ok` from a publish means only that it was queued. Publishing never waits: when the
//! outgoing queue is full it says [`BusError::Full`]. Whoever needs more uses [`session`]s: acknowledged, repeated,
//! in order, with credit; or repeats what is idempotent, as heartbeats and stateless requests are. What must outlive its
//! sender goes into a stream.
//!
//! Anybody who reaches the server may publish anything. What counts is what was proven: sessions, heartbeats, requests and their
//! answers carry MACs ([`auth`]).
//!
//! Deliberately absent: bulk data, which never travels on the control plane, streams included.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::time::Duration;
//! use exobus_bus::{Bus, Message, SubscribeOptions, Subjects};
//!
//! let bus = Bus::in_process();
//! let subject = Subjects::new("docs").unwrap().ctl("clock", "now").unwrap();
//! let mut service = bus.subscribe(subject.clone().into(), SubscribeOptions::queue("clocks")).await.unwrap();
//! let serving = async { service.recv().await.unwrap().reply(Message::new("noon")).await.unwrap() };
//! let asking = bus.request(subject, Message::new("?"), Duration::from_secs(1));
//! let (answer, ()) = tokio::join!(asking, serving);
//! assert_eq!(answer.unwrap().payload, "noon");
//! # })
//! ```

pub mod auth;
pub mod backend;
mod bus;
pub mod chaos;
pub mod codec;
#[cfg(feature = "contract")]
pub mod contract;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod inproc;
pub mod kv;
pub mod message;
pub mod nats;
mod pace;
mod refusals;
pub mod session;
pub mod streams;
pub mod subject;

pub use auth::{Credentials, Denied, Role, Speaker};
pub use backend::{BackendStats, ConnectionState};
pub use bus::{Bus, BusStats, Delivery, FLUSH_DEADLINE, RequestMany, SubscribeOptions, Subscription};
pub use codec::CodecError;
pub use error::BusError;
pub use inproc::InProcessOptions;
pub use message::{Headers, Message};
pub use nats::{NatsOptions, context_path, context_secrets};
pub use pace::Pace;
pub use refusals::Refusals;
pub use subject::{Address, JobChannel, Pattern, SERVICES, Subject, SubjectError, Subjects};
