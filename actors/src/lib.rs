//! The actors of exobus, and the futures API that programs see.

pub mod event;
