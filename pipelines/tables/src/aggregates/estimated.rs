//! How results are estimated from what is known of a part of a table.

use super::Function;

/// How a result is estimated from the terms of an accumulator ([`Accumulator::terms`](super::Accumulator::terms)), each of which is a total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimated {
    /// It is the only one: how many rows, or values.
    Count,
    /// It is the first one; the second one is how many values there are.
    Sum,
    /// It is the first by the second one: the sum of values, and how many there are.
    Mean,
    /// It follows from the sum of values, that of their squares, and how many there are.
    Variance {
        /// It is that of a population, not of a sample.
        is_of_population: bool,
        /// It is the root of it.
        is_root: bool,
    },
    /// It has no terms: nothing can be said of it before everything was read.
    AtTheEnd,
}

impl Estimated {
    /// How many terms there are.
    pub fn terms(self) -> usize {
        match self {
            Self::Count => 1,
            Self::Sum | Self::Mean => 2,
            Self::Variance { .. } => 3,
            Self::AtTheEnd => 0,
        }
    }
}

impl Function {
    /// How it is estimated.
    pub fn estimated(self) -> Estimated {
        use Function::*;
        match self {
            Count => Estimated::Count,
            Sum => Estimated::Sum,
            Avg => Estimated::Mean,
            Variance | Stddev | VariancePopulation | StddevPopulation => Estimated::Variance {
                is_of_population: matches!(self, VariancePopulation | StddevPopulation),
                is_root: matches!(self, Stddev | StddevPopulation),
            },
            Min | Max | First | Last | CountDistinct | Quantile(_) | QuantileCont(_) => Estimated::AtTheEnd,
        }
    }
}
