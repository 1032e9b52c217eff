//! exobus: the strategies.

pub mod cuts;
pub mod files;
pub mod kernels;
pub mod records;
