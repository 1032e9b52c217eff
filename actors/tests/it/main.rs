//! Several nodes in one process, over an in-process bus and loopback TCP.

mod figures;
mod functions;
mod harness;
mod refused;
