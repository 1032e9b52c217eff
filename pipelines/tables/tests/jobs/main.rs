//! Jobs over tables in nodes of this process.

mod convert;
mod dedupe;
mod group;
mod join;
mod map_batches;
mod records;
mod refused;
mod repartition;
mod shuffle;
mod sort;
mod support;
