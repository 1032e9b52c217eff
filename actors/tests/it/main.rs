//! Several nodes in one process, over an in-process bus and a network in memory.

mod arguments;
mod figures;
mod functions;
mod harness;
mod outputs;
mod pushes;
mod refused;
mod simulated;
