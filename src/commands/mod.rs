//! The commands, one file each. All return the exit code, or a [`Failure`](crate::exit::Failure) with one.

pub mod config;
pub mod dev;
pub mod doctor;
pub mod generate;
pub mod node;
pub mod run_with_parent;
pub mod validate;
