//! Putting rows in order.

mod merging;
