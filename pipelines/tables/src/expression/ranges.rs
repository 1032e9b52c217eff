//! Sets of ordered values.

use std::cmp::Ordering;
use std::ops::Bound;

/// Values within some bounds: the ranges do not meet and stand in order. None of them is empty as far as its bounds show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranges<K>(Vec<(Bound<K>, Bound<K>)>);

impl<K: Ord + Clone> Ranges<K> {
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    pub(super) fn all() -> Self {
        Self::within(Bound::Unbounded, Bound::Unbounded)
    }

    pub(super) fn one(value: K) -> Self {
        Self::within(Bound::Included(value.clone()), Bound::Included(value))
    }

    /// Between two bounds; nothing where the first one is beyond the other.
    pub(super) fn within(least: Bound<K>, greatest: Bound<K>) -> Self {
        let is_empty = match (&least, &greatest) {
            (Bound::Included(least), Bound::Included(greatest)) => least > greatest,
            (
                Bound::Excluded(least) | Bound::Included(least),
                Bound::Excluded(greatest) | Bound::Included(greatest),
            ) => least >= greatest,
            _ => false,
        };
        Self(if is_empty { Vec::new() } else { vec![(least, greatest)] })
    }

    /// Of values that are one each.
    pub(super) fn among(mut values: Vec<K>) -> Self {
        values.sort();
        values.dedup();
        Self(values.into_iter().map(|value| (Bound::Included(value.clone()), Bound::Included(value))).collect())
    }

    /// What is not in it.
    pub(super) fn complement(&self) -> Self {
        let mut rest = Vec::with_capacity(self.0.len() + 1);
        let mut from = Bound::Unbounded;
        for (least, greatest) in &self.0 {
            if let Some(before) = turned(least) {
                rest.extend(Self::within(from, before).0);
            }
            match turned(greatest) {
                Some(behind) => from = behind,
                None => return Self(rest),
            }
        }
        rest.extend(Self::within(from, Bound::Unbounded).0);
        Self(rest)
    }

    pub(super) fn ranges(&self) -> &[(Bound<K>, Bound<K>)] {
        &self.0
    }

    /// Whether a value of the set may be between these, the first of which is not the larger one.
    pub(super) fn meets(&self, least: &K, greatest: &K) -> bool {
        self.0.iter().any(|(from, to)| !is_below(greatest, from) && !is_above(least, to))
    }
}

impl Ranges<Vec<u8>> {
    /// Whether the bytes are in it.
    pub(super) fn contains(&self, bytes: &[u8]) -> bool {
        // The first range that does not end before.
        let at = self.0.partition_point(|(_, to)| match to {
            Bound::Included(to) => compared(to, bytes).is_lt(),
            Bound::Excluded(to) => compared(to, bytes).is_le(),
            Bound::Unbounded => false,
        });
        self.0.get(at).is_some_and(|(from, _)| match from {
            Bound::Included(from) => compared(from, bytes).is_le(),
            Bound::Excluded(from) => compared(from, bytes).is_lt(),
            Bound::Unbounded => true,
        })
    }
}

/// How a bound and bytes compare. A bound without bytes has no memory to be read: what compares no bytes there takes a hundred times as long on some processors.
fn compared(bound: &[u8], bytes: &[u8]) -> Ordering {
    match bound.is_empty() {
        true if bytes.is_empty() => Ordering::Equal,
        true => Ordering::Less,
        false => bound.cmp(bytes),
    }
}

/// Where what is beyond a bound ends or begins.
fn turned<K: Clone>(bound: &Bound<K>) -> Option<Bound<K>> {
    match bound {
        Bound::Included(value) => Some(Bound::Excluded(value.clone())),
        Bound::Excluded(value) => Some(Bound::Included(value.clone())),
        Bound::Unbounded => None,
    }
}

/// Whether a value is before where a range begins.
fn is_below<K: Ord>(value: &K, from: &Bound<K>) -> bool {
    match from {
        Bound::Included(from) => value < from,
        Bound::Excluded(from) => value <= from,
        Bound::Unbounded => false,
    }
}

/// Whether a value is behind where a range ends.
fn is_above<K: Ord>(value: &K, to: &Bound<K>) -> bool {
    match to {
        Bound::Included(to) => value > to,
        Bound::Excluded(to) => value >= to,
        Bound::Unbounded => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_and_its_complement_are_all_and_share_nothing() {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let sets = [
            Ranges::none(),
            Ranges::all(),
            Ranges::one(bytes("b")),
            Ranges::among(vec![bytes("c"), bytes(""), bytes("b"), bytes("c")]),
            Ranges::within(Bound::Excluded(bytes("a")), Bound::Included(bytes("c"))),
            Ranges::within(Bound::Unbounded, Bound::Excluded(bytes("b"))),
            Ranges::within(Bound::Included(bytes("b")), Bound::Excluded(bytes("b"))),
        ];
        for set in sets {
            let rest = set.complement();
            assert_eq!(rest.complement(), set);
            for value in ["", "a", "aa", "b", "ba", "c", "d"].map(bytes) {
                assert_ne!(set.contains(&value), rest.contains(&value), "{value:?} in {set:?}");
                assert_eq!(set.contains(&value), set.meets(&value, &value));
            }
        }
    }
}
