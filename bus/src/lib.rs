//! exobus: the control plane.
