//! What is asked of the values of a column, and what it is called.

use std::fmt;

/// A function of the values of a group, in whatever order these come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// How many rows, or how many values that are not null.
    Count,
    /// The exact sum.
    Sum,
    /// The mean: the exact sum by the number of values, rounded once.
    Avg,
    /// The least value.
    Min,
    /// The greatest value.
    Max,
    /// What the first row of the input has, null too.
    First,
    /// What the last row of the input has, null too.
    Last,
    /// The variance of a sample, by one less than the number of values.
    Variance,
    /// The square root of [`Variance`](Self::Variance).
    Stddev,
    /// The variance of a population, by the number of values.
    VariancePopulation,
    /// The square root of [`VariancePopulation`](Self::VariancePopulation).
    StddevPopulation,
    /// How many values that are not equal.
    CountDistinct,
    /// The value that so large a part of the values does not exceed, from 0 to 1: one of the values.
    Quantile(f64),
    /// The same between the two values that are nearest.
    QuantileCont(f64),
}

/// All names, the one that is shown first.
const NAMES: [(&str, Function); 19] = [
    ("count", Function::Count),
    ("sum", Function::Sum),
    ("avg", Function::Avg),
    ("mean", Function::Avg),
    ("min", Function::Min),
    ("max", Function::Max),
    ("first", Function::First),
    ("last", Function::Last),
    ("variance", Function::Variance),
    ("var_samp", Function::Variance),
    ("stddev", Function::Stddev),
    ("stddev_samp", Function::Stddev),
    ("var_pop", Function::VariancePopulation),
    ("stddev_pop", Function::StddevPopulation),
    ("count_distinct", Function::CountDistinct),
    ("quantile", Function::Quantile(0.5)),
    ("quantile_disc", Function::Quantile(0.5)),
    ("quantile_cont", Function::QuantileCont(0.5)),
    ("median", Function::QuantileCont(0.5)),
];

impl Function {
    /// Its name, as SQL has it, without an argument.
    pub fn name(self) -> &'static str {
        let is_it = |(_, other): &&(&str, Self)| std::mem::discriminant(other) == std::mem::discriminant(&self);
        NAMES.iter().find(is_it).map_or("", |(name, _)| name)
    }

    /// The function of a name, in any case, and the name; quantiles have 0.5.
    pub(super) fn named(name: &str) -> Option<(&'static str, Self)> {
        NAMES.iter().find(|(one, _)| one.eq_ignore_ascii_case(name)).copied()
    }

    /// All names that are known.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// Whether all values of a group have to be there, sorted, before it can be said.
    pub fn is_of_values(self) -> bool {
        matches!(self, Self::CountDistinct | Self::Quantile(_) | Self::QuantileCont(_))
    }

    /// Whether it asks for the place of each row in the input.
    pub fn needs_places(self) -> bool {
        matches!(self, Self::First | Self::Last)
    }

    /// The second argument, of those that have one.
    pub(super) fn part(self) -> Option<f64> {
        match self {
            Self::Quantile(part) | Self::QuantileCont(part) => Some(part),
            _ => None,
        }
    }

    /// The same with another second argument.
    pub(super) fn with_part(self, part: f64) -> Self {
        match self {
            Self::Quantile(_) => Self::Quantile(part),
            Self::QuantileCont(_) => Self::QuantileCont(part),
            other => other,
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
