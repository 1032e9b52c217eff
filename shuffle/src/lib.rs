//! Shuffle strategies and jobs over distributed futures, and the kernels that they run.
//!
//! A [`Job`] says *what* happens to data (map, reduce); a strategy says *when* and *where*. A [`Plan`] holds all counts and
//! sizes; they are derived in one place.
//!
//! M maps, R partitions, D bytes, F maps a merge, T rounds, G groups of partitions; S is what the memory of all nodes holds.
//!
//! | strategy | blocks read by reduces | merges | bytes spilled | when |
//! |---|---|---|---|---|
//! | [`simple`](strategies::simple) | M R of D / (M R) | none | D - S | in memory, or while blocks on disk are large |
//! | [`riffle`](strategies::riffle) | M R / F of F D / (M R) | M / F | D - S, up to D more where map outputs are spilled first | many small blocks, reduces anywhere |
//! | [`push`](strategies::push) | M R / F, all on the node of the reduce | G M / F, more where memory is short; in pieces | 2 D - S: map outputs are kept | losing a node must be cheap |
//! | [`two_stage`](strategies::two_stage) | T R, all on the node of the reduce | T G, in pieces | D - S, in blocks M / T times larger than `simple` | many partitions, data much larger than memory |
//! | [`streaming`](strategies::streaming) | R | T R, each with its state | states of every round beyond S | an answer after every round |
//!
//! *In pieces*: a merge writes the partitions of its group some 8 MB at a time ([`Plan::piece_bytes`]), an output each, and holds
//! one of them; what is written before it is the store's to spill.
//!
//! [`auto`](strategies::auto) estimates all of them and takes the cheapest; `exobus explain sort` prints the estimates. Lines of
//! each file, documentation included, beside those that the Exoshuffle paper counts for monoliths (Spark 2 600, Riffle and
//! Magnet up to 6 700) and for its own on Ray (215 to 265): simple 29, riffle 82, push 80, two_stage 40, streaming 74. What they
//! share is 170 lines, merges that are best effort (`push`, `two_stage`) 200, dividing partitions that are too large 410, the
//! estimates of `auto` 130. What only `push` uses counts as its own: `Pushes`, 110 lines of the futures API; and what copies
//! parts ahead, the Merger, is an actor of 930.
//!
//! # Skew and stragglers
//! Whatever the strategy: cuts come from a sample (20 keys a partition, 2 000 or more in all); a partition that is an outlier
//! all the same is divided by key and reduced in ranges, where the job has keys ([`KeyRanges`]: the sort); what does not
//! fit into the memory of a node, one hot key say, is merged from streams, and a merge takes its share of memory at most
//! ([`Plan::merge_memory_bytes`]). A task that takes far longer than others gets a second attempt on another node; where
//! map outputs are kept, a merge that neither attempt gets done in time is done without.
//!
//! # How to add a job
//! Over rows with keys: a type that implements [`KeyedJob`](keyed::KeyedJob), see [`keyed`]; the ones that are here are in
//! `jobs/`, and all strategies run them. With kernels of its own, as the sort: a type that implements [`Job`].
//!
//! # How to add a strategy
//! A file in `strategies/` with one `run`, a variant of [`Strategy`], an estimate in `auto`, a row in the table above; from then on
//! it runs the contract (`contract.rs`) on one node and on three.

#[cfg(feature = "contract")]
pub mod contract;
pub mod cuts;
mod error;
pub mod files;
mod job;
pub mod jobs;
pub mod kernels;
pub mod keyed;
pub mod kinds;
mod plan;
pub mod records;
pub mod rows;
pub mod strategies;

#[doc(hidden)]
pub use exobus_actors as actors;

pub use error::ShuffleError;
pub use job::{Draw, Job, Key, KeyRanges};
pub use plan::{Plan, PlanError, Sizes};
pub use strategies::Strategy;
