//! Attribute macros of exobus.
