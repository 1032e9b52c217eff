//! What is said of a value that is not known yet.

use serde::{Deserialize, Serialize};

/// What bounds rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// On the sample being random, and on ranges from metadata; on nothing else.
    Guaranteed,
    /// On means of totals of blocks being about normal, too.
    Approximate,
}

/// Between which values the one is that is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// What they rest on.
    pub kind: Kind,
    /// With which probability they hold, at the look at which they are given.
    pub level: f64,
}

impl Bounds {
    /// Half of the distance between both.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Whether the value is known: nothing is left to be read, or it does not depend on that.
    pub fn are_exact(&self) -> bool {
        self.low == self.high && self.level == 1.0
    }

    /// Whether a value is one of those between them.
    pub fn contain(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Why a value has no bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum NoBounds {
    /// Too little was read of the table.
    #[error("{blocks} blocks were read; bounds are given from {least} on")]
    FewBlocks {
        /// So much was.
        blocks: u64,
        /// From so many on there are bounds.
        least: u64,
    },
    /// Too few of the blocks that were read have rows of the group.
    #[error("{blocks} of the blocks that were read have the group; bounds are given from {least} on")]
    RareGroup {
        /// So many have.
        blocks: u64,
        /// From so many on there are bounds.
        least: u64,
    },
    /// All blocks that were read are alike in it, for their sizes, as far as rounding lets that be seen: from them nothing follows of how far others are away from that.
    #[error("the blocks that were read do not differ in it, which says nothing of how the others do")]
    NoVariation,
    /// There were more groups than are followed: what is known of those that are begins behind this look.
    #[error("there are more groups than are followed, and bounds are of blocks that are read from here on")]
    BeginsAnew,
    /// Nothing is said of such a value before everything was read: the least of some texts, for one.
    #[error("it is known when everything was read")]
    OnlyAtTheEnd,
    /// Bounds that rest on nothing were asked for, and nobody knows between which values it is in a block.
    #[error("guaranteed bounds need to know between which values it is in a block, and of this nobody does")]
    NoRanges,
    /// Something is computed of estimates of which nobody knows how it changes with these, as of a text or of a number that is rounded.
    #[error("it is computed of estimates")]
    OfEstimates,
    /// There is no estimate, as where it would be divided by an estimate of zero.
    #[error("what was read so far gives no number")]
    NoNumber,
}

/// A value as it looks after a part of the table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The value that is most likely.
    pub value: f64,
    /// Between which values it is, or why nothing can be said of that.
    pub bounds: Result<Bounds, NoBounds>,
}

impl Estimate {
    /// Of a value of which nothing is left to be read, or that is known without.
    pub(crate) fn exact(value: f64, kind: Kind) -> Self {
        Self { value, bounds: Ok(Bounds { low: value, high: value, kind, level: 1.0 }) }
    }

    /// Of a value without bounds.
    pub(crate) fn unbounded(value: f64, why: NoBounds) -> Self {
        Self { value, bounds: Err(why) }
    }

    /// Half of the width of the bounds, as a part of the value: what `error=1%` asks for. `None`: there are no bounds, or the value is zero and they are not.
    pub fn relative_error(&self) -> Option<f64> {
        relative_error(self.value, self.bounds.ok()?.half_width())
    }
}

/// Half of the width of bounds, as a part of the value; `None`: the value is zero and they are not.
pub(crate) fn relative_error(value: f64, half_width: f64) -> Option<f64> {
    match half_width {
        0.0 => Some(0.0),
        _ if value == 0.0 => None,
        _ => Some(half_width / value.abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_value_is_half_of_its_bounds_and_of_zero_there_is_none() {
        let of = |value, low, high| {
            let bounds = Ok(Bounds { low, high, kind: Kind::Approximate, level: 0.95 });
            Estimate { value, bounds }.relative_error()
        };
        assert_eq!(of(-10.0, -11.0, -9.0), Some(0.1));
        assert_eq!((of(0.0, -1.0, 1.0), of(0.0, 0.0, 0.0)), (None, Some(0.0)));
        assert_eq!(Estimate::unbounded(3.0, NoBounds::NoNumber).relative_error(), None);
    }
}
