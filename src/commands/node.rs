//! `exobus node`: one node of a cluster, until Ctrl-C or SIGTERM.

/// How the line begins that a node writes to stdout once it is in the cluster; `exobus dev` waits for it.
pub const READY: &str = "ready ";
