//! The shell around actors: what stands between their pure decisions and actix, tokio and the bus.
//!
//! - [`Address`] is where messages go. It is typed by the protocol; whether the actor lives in this process or on
//!   another node, the sender cannot tell.
//! - [`Inbox`] is the mailbox of an actor of this process. Who has it can say what has no form on the wire: that time has passed, that
//!   work which the actor began has ended, what the program of a job calls. [`Actor::Event`] is both, in one queue.
//! - [`Inlet`] is a way into such a mailbox for events of one kind, for who is not to know the others.
//! - [`Reply`] is carried inside a message and says where the answer goes; [`Address::ask`] makes one, sends, and
//!   waits with a deadline.
//! - [`Actor`] is a protocol and a `handle`; [`spawn`] runs it on the current arbiter. Events that are waiting are
//!   handled together, and [`Actor::flush`] is called once after each such batch: this is where actors send what they
//!   collected, so that batches form under load and nothing waits for a timer.
//! - [`Post`] is the post office of a process: who lives here, who waits for which answer, and the session endpoint to
//!   other processes.
//!
//! What comes from other processes passes one place, [`Post::deliver`], but for what an incarnation says that is over: `joining/asking.rs` (`pump`) drops
//! that before. It takes a [`Speaker`](exobus_bus::Speaker), which the bus
//! gives out only for who has proven who it is, and lets through what a message's [`Wire::said_by`] allows that one.
//!
//! Mailboxes are not bounded here. actix's own bound is none either (`do_send` grows it silently); each protocol says
//! which credit keeps it short.
//!
//! A panic inside `handle` ends the process (or, embedded, the runtime) with its reason through [`Post::fatal`]:
//! actix alone would end the arbiter and leave the process standing.

mod actor;
mod address;
pub(crate) mod calls;
mod census;
mod post;

pub use actor::{Actor, Scope, mailbox, spawn, spawn_at};
pub use address::{Address, AskError, Inbox, Inlet, Reply, SaidBy, Undeliverable, Wire, actor_of_job};
pub(crate) use census::{Kind, Living};
pub use post::{Fatal, Post, PostOptions};
