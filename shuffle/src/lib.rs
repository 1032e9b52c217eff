//! exobus: the strategies.
