//! What actors say to each other, in this process or across the wire: the lowest room of the actors. Who sends to an actor imports its
//! protocol, and nothing of its inside.
//!
//! Each file is the protocol of one actor: the table of its messages (who says them, what is answered, what a repeated and a lost one do), the
//! enum, and the types that it carries. What an actor tells itself is no message: see [`Actor::Event`](crate::shell::Actor::Event), and
//! `OwnerEvent`, `NodeEvent`, `MergerEvent`, `SchedulerEvent`, `MembershipEvent` and `HostEvent` in their rooms.

//!
//! A new message is a variant and a row of the table; `said_by` where others than nodes may say it, and `about` where it is about a task; an arm in the core that
//! hears it; a sample in `src/commands/protocols/samples.rs` of the command line; and `EXOBUS_RENEW=1 cargo test --test it made_files` for the list of protocols.

pub mod copies;
pub mod host;
pub mod job;
pub mod membership;
pub mod merger;
pub mod node_manager;
pub mod owner;
pub mod results;
pub mod scheduler;
