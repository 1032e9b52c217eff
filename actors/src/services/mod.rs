//! What a node is to `nats micro ls`, `info` and `stats`: a service for each role that it plays, with its figures, as NATS describes services
//! (its design record ADR-32).
//!
//! | service            | what its figures are                                                                   |
//! |--------------------|----------------------------------------------------------------------------------------|
//! | `exobus-node`      | the process: memory, disk, slots, how many tasks wait; requests that others hand on to it |
//! | `exobus-store`     | objects and their memory; what the spiller has written and read, and its files           |
//! | `exobus-merger`    | blocks that are copied ahead of the tasks that merge them                                |
//! | `exobus-owner`     | jobs that are hosted here, and the memory of their tables                                |
//! | `exobus-api`       | the door: requests, errors and time of each verb                                         |
//! | `exobus-scheduler` | jobs and nodes of the cluster; only on the node that is the Scheduler                    |
//!
//! # Promises
//! - Nothing is counted for this but the requests of doors: all other figures are those that are there anyhow, looked at when somebody asks.
//! - Ids are of one incarnation of a node: with the next one, counts begin again under another id.
//! - A node that nobody outside can ask (its bus is inside its process) offers nothing. One that the server's permissions keep from hearing
//!   such questions says so in its log, and works.
//!
//! The client library has services of its own. They take nine subscriptions for each, have no figures where nothing is asked over NATS, and put the
//! requests of all endpoints into one queue, where a door bounds each verb by itself. Here one subscription is for all services of a node.
//!
//! [`answer`] makes what is said of plain data, [`figures`] the data of what a node counts; [`open`] listens and answers.

mod answer;
mod figures;
mod shell;

pub(crate) use shell::{ServicesParts, open};
