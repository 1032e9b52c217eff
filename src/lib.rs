//! exobus moves data between all workers of a cluster, and does so as a library.
//!
//! Programs are written against [`Futures`]: they submit tasks, whose results are objects that other tasks take as
//! arguments, and wait for what they need. A [`Node`] runs them, alone in this process or as part of a cluster. Functions
//! and programs are registered with [`task`] and [`program`]; the README has a complete example.
//!
//! [`guide`] goes through it with examples: functions, streams, outputs, nodes and clients of your own, shuffles, tables.
//!
//! This crate is the facade and the command line. The parts are [`bus`] (control messages), [`store`] (objects, the byte
//! budget, spilling), the actors behind [`Node`], [`shuffle`] (strategies and jobs) and [`tables`].

// What is printed goes through `stdout`, which keeps what went wrong.
#![warn(clippy::print_stdout)]

pub mod allocator;
pub mod certificates;
pub mod cli;
pub mod cluster;
pub mod commands;
pub mod config;
mod enough;
pub mod exit;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod guide;
pub mod interrupt;
pub mod limits;
pub mod logging;
pub mod machine;
#[doc(hidden)]
pub mod node_main;
pub mod objects;
pub mod page;
#[cfg(feature = "sql")]
pub mod query;
pub mod report;
mod stdout;
pub mod table;
pub mod temporary;
pub mod unfinished;

pub use exobus_actors::{
    LocalBoxFuture,
    client::{Client, ClientOptions, RunError},
    event,
    futures::{Arrivals, Edge, Futures, ObjectRef, ObjectSet, ObjectStream, Window},
    host, ids,
    ids::{JobId, NodeId, ObjectId, TaskId},
    inventory, isolation, node,
    node::{ClusterOptions, Node, NodeError, NodeOptions},
    printing, program,
    protocol::host::{JobEnd, JobSpec},
    random, registry,
    registry::{TaskContext, TaskError},
    spec, task,
    task::{Align, Arg, EdgeShape, JobError, Place, Resources, TaskOptions},
    transfer::network,
};
#[doc(hidden)]
pub use exobus_actors::{check_params, decode_params, encode_result, futures};
pub use exobus_bus as bus;
pub use exobus_queries as queries;
pub use exobus_shuffle as shuffle;
#[cfg(feature = "sql")]
pub use exobus_sql as sql;
pub use exobus_store as store;
pub use exobus_tables as tables;
pub use exobus_tables::{
    aggregates::{Aggregate, Function},
    expression::{Expression, col, lit},
    jobs::{
        Rewritten,
        dedupe::Keep,
        join::{Broadcast, JoinKind, Pair},
        map_batches::{Batches, MappedFile},
    },
    semantics::{KeyColumn, Nulls},
    sinks::{Compression, OutputFormat},
    sources::json::JsonMixed,
};

pub use node_main::node_main;
#[cfg(feature = "sql")]
pub use query::{Answer, Query, QueryError, Snapshots};
pub use table::{Table, TableJobError};

/// The code in the README is compiled and run like any other doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
