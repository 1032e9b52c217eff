//! What aggregating before the exchange is good for, by some rows.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::collector::REDUCTION_MIN;

/// How many groups there are, by rows that were sampled at even distances in some splits of a table, and what maps would make of their rows where those of a group are anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// Rows that were sampled.
    pub sampled: u64,
    /// Groups among them.
    pub groups_sampled: u64,
    /// Groups that there are, at least and about: as many as were sampled, and those that are to be expected by how many of these were met once and twice (Chao, "Nonparametric estimation of the number
    /// of classes in a population", 1984).
    pub groups: u64,
    /// Rows that a map reads, about.
    pub map_rows: u64,
    /// Groups that it would pass on, about.
    pub map_groups: u64,
}

impl Partial {
    /// Of the keys of rows that were sampled, where a map reads so many rows.
    pub(super) fn new(mut keys: Vec<Vec<u8>>, map_rows: u64) -> Self {
        keys.sort_unstable();
        let (mut groups_sampled, mut once, mut twice) = (0_u64, 0_u64, 0_u64);
        for of_group in keys.chunk_by(|one, other| one == other) {
            groups_sampled += 1;
            once += u64::from(of_group.len() == 1);
            twice += u64::from(of_group.len() == 2);
        }
        let groups = groups_sampled + once * once.saturating_sub(1) / (2 * (twice + 1));
        // As many as so many draws meet.
        let met = groups as f64 * (1.0 - (-(map_rows as f64) / groups.max(1) as f64).exp());
        let map_groups = (met.round() as u64).min(map_rows);
        Self { sampled: keys.len() as u64, groups_sampled, groups, map_rows, map_groups }
    }

    /// Where all rows are one group, and none had to be sampled.
    pub(super) fn of_all(map_rows: u64) -> Self {
        Self { sampled: 0, groups_sampled: 0, groups: 1, map_rows, map_groups: map_rows.min(1) }
    }

    /// Whether maps would pass on half of their rows at most.
    pub fn helps(&self) -> bool {
        self.map_groups * REDUCTION_MIN <= self.map_rows
    }
}

impl fmt::Display for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sampled, groups_sampled, groups, map_rows, map_groups } = self;
        let helps = if self.helps() { "helps" } else { "does not help" };
        if (*sampled, *groups) == (0, 1) {
            return write!(
                f,
                "all rows are one group: a map of {map_rows} rows would pass on {map_groups}, and aggregating before the exchange {helps}"
            );
        }
        write!(
            f,
            "{sampled} rows that were sampled are of {groups_sampled} groups, so there are some {groups} at least: a map of {map_rows} rows would pass on {map_groups}, and aggregating before the exchange {helps}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partial(groups: usize, rows: usize, map_rows: u64) -> Partial {
        Partial::new((0..rows).map(|row| (row * 7_919 % groups).to_be_bytes().to_vec()).collect(), map_rows)
    }

    #[test]
    fn groups_that_are_met_again_and_again_are_aggregated_and_others_are_not() {
        let few = partial(50, 2_000, 100_000);
        assert_eq!((few.groups_sampled, few.groups, few.map_groups, few.helps()), (50, 50, 50, true));
        let all = partial(1_000_000, 2_000, 100_000);
        assert_eq!((all.groups_sampled, all.helps()), (2_000, false));
        assert!(all.groups > 1_000_000 && all.map_groups > 90_000, "{all:?}");
        // Nothing is known of a table without rows.
        let none = Partial::new(Vec::new(), 0);
        assert_eq!((none.sampled, none.groups, none.map_groups), (0, 0, 0));
        let of_all = Partial::of_all(9);
        assert!(
            of_all.helps()
                && of_all.to_string().starts_with("all rows are one group: a map of 9 rows would pass on 1,")
        );
        assert!(
            few.to_string().contains("2000 rows that were sampled are of 50 groups")
                && few.to_string().ends_with("helps")
        );
    }
}
