//! Jobs over tables, on the strategies of [`exobus_shuffle`].

mod budget;
mod described;
mod ordered;
pub mod sort;
