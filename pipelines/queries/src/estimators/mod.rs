//! What a part of a table says about all of it, and how sure that is: without engine, clock or files.
//!
//! A table is *blocks*, each of which is read as a whole. The *sample* is a prefix of one seeded permutation of them, and a block is a cluster: rows of one are alike more often than not, which is why nothing here counts rows as draws. Of a group of rows, *terms* are summed in each
//! block (how many rows it has there, sums of expressions): their totals of blocks are what is estimated from ([`Totals`]).
//!
//! There are two permutations. In the [random one](random_order) each look is at a simple random sample of blocks without replacement, which is what guaranteed bounds are for. In that which is [spread](spread_order) it has
//! blocks from everywhere in the table: estimates are nearer to the truth where rows follow each other in time, or are in any other order, and approximate bounds hold as well.
//!
//! There are two kinds of bounds ([`Kind`]). Which of them is given follows from the query and from metadata, never from what the sample looks like: choosing by the sample loses coverage.
//!
//! | | guaranteed ([`guaranteed`]) | approximate ([`approximate`]) |
//! |---|---|---|
//! | assumes | nothing: ranges of totals of blocks from metadata | totals of blocks whose mean is about normal at 30 blocks |
//! | is | empirical Bernstein-Serfling (Bardenet and Maillard, "Concentration inequalities for sampling without replacement", Bernoulli 2015, theorem 4.3), and what blocks that were not read may have at most | Student's t with n - 1 degrees over residuals of totals of blocks, with the factor 1 - n / N for a sample of n of N blocks (Cochran, "Sampling Techniques", 1977, chapters 6 and 9); other expressions by linearisation |
//! | from | 2 blocks | 30 blocks, 30 of which have the group, and which differ |
//!
//! People stop when they like what they see, so a look is at none but the moments that [`Looks`] fixes beforehand, and each look has its share of the error probability (Bonferroni): what is shown at
//! any of them, or at the one where somebody stops, is wrong with the probability that was asked for at most, as far as each bound holds what it says.

mod answer;
mod dual;
mod looks;
mod quantiles;
mod totals;

pub mod approximate;
pub mod guaranteed;

pub(crate) use self::answer::relative_error;
pub use self::answer::{Bounds, Estimate, Kind, NoBounds};
pub use self::dual::Dual;
pub use self::looks::{Look, Looks, Population, random_order, spread_order};
pub use self::totals::{Sample, Totals};
