//! The bus over NATS, by `async-nats`.
//!
//! What the client library does not promise is added here:
//! - it runs on a runtime of its own, in a thread named `exobus-nats`, so the handle works from any runtime and busy
//!   actors do not delay the socket;
//! - publishing never waits: its await blocked for up to 28 s in an outage, so a message either enters the client's
//!   queue at once or is refused with `Full`; queued bytes are counted until the client has written them;
//! - its `flush` only empties the socket's buffer, so ours asks the server something and waits for the answer; with
//!   it `subscribe` returns when the server knows, and a subscription that the server denies is an error;
//! - it drops messages for a full channel and only logs it, so each subscription is read by a task of its own that
//!   never waits, and what our bounded channels drop is counted there;
//! - on connect it reports the last failure and how long it was tried, and gives up at once where no retry helps.

mod backend;
mod client;
mod context;
mod options;
mod streams;

pub use backend::NatsBackend;
pub use context::{context_path, context_secrets};
pub use options::NatsOptions;
