//! The commands, one file each. All return a [`Failure`](crate::exit::Failure) with the exit code.

pub mod config;
pub mod dev;
pub mod doctor;
pub mod node;
pub mod run_with_parent;
