//! exobus.
