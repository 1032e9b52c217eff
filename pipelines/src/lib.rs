//! exobus: datasets and queries.
