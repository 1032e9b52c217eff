//! How a process comes to its cluster: where the Scheduler is, whether the others believe it, how it gets its name, and what sessions
//! say from then on. For nodes, candidates and clients.

mod asking;
mod naming;
mod options;

pub use asking::takes_as_node;
pub(crate) use asking::{
    Beats, NoScheduler, Search, agree_on_submitters, ask_where, find_scheduler, hear_beats, pump, register,
    somebody_answers,
};
pub(crate) use naming::{Name, Names};
pub use options::{ClusterOptions, NodeError};
