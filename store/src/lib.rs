//! exobus: the object store.
