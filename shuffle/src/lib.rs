//! exobus: the strategies.

pub mod cuts;
pub mod kernels;
pub mod records;
