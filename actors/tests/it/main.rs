//! Several nodes in one process, over an in-process bus and a network in memory.

#[path = "../common/mod.rs"]
mod common;

mod arguments;
mod census;
mod commits;
mod computing;
mod edges;
mod election;
mod figures;
mod functions;
mod harness;
mod incarnations;
mod jobs;
mod names;
mod outputs;
mod printing;
mod pushes;
mod puts;
mod refused;
mod restarts;
mod results;
mod results_lost;
mod secrets;
mod simulated;
mod speakers;
mod unplaceable;
mod why;
