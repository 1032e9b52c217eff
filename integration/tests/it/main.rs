//! Tests that need a real NATS server or several processes: one binary, a module per subject.

mod harness;
mod keyed;
mod nats_client;
mod nats_contract;
mod nats_security;
mod results;
mod sessions;
mod strategies;
mod streams;
