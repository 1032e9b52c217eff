//! exobus: configuration, commands and the public facade.

pub mod cli;
pub mod cluster;
pub mod commands;
pub mod config;
pub mod exit;
pub mod interrupt;
pub mod logging;
pub mod machine;
pub mod report;
