//! The first groups of an order, of each part of all.

use std::collections::BinaryHeap;

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::query::GroupQuery;
use crate::TableError;
use crate::block::Pick;
use crate::semantics::{KeyEncoder, KeyRows};

/// Picks the first groups of each part of all groups. Groups of a part come one behind the other.
pub(super) struct TopRows {
    most: usize,
    /// What groups of a part have in common; `None`: all are one part.
    per: Option<KeyEncoder>,
    order: KeyEncoder,
    /// The part that is open, and the first groups of it so far, the last of them on top.
    open: Option<Vec<u8>>,
    first: BinaryHeap<(Box<[u8]>, Chosen)>,
    picked: Picked,
}

/// Which row it is. No two have one place in the order, so they are all alike there.
#[derive(Clone, Copy, Debug)]
struct Chosen(Pick);

impl PartialEq for Chosen {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Chosen {}

impl PartialOrd for Chosen {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Chosen {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

/// The groups that stay, in the order in which they are written.
#[derive(Debug, Default)]
pub(super) struct Picked {
    pub(super) picks: Vec<Pick>,
    /// How many of them are of the first part.
    pub(super) of_first: usize,
    /// What groups of the first part, and of the last one, have in common; `None`: there is no group.
    pub(super) ends: Option<[Vec<u8>; 2]>,
}

impl TopRows {
    /// Of groups that are written with this schema; `None`: all groups stay.
    ///
    /// # Errors
    /// Columns that are not there or have no order.
    pub(super) fn new(query: &GroupQuery, written: &Schema) -> Result<Option<Self>, TableError> {
        let Some(top) = &query.top else { return Ok(None) };
        let encoder = |key: &[_]| KeyEncoder::new(written, key);
        let per = query.key()[..top.per.len()].to_vec();
        let order = [top.order_by.clone(), query.key()].concat();
        Ok(Some(Self {
            most: usize::try_from(top.rows).unwrap_or(usize::MAX),
            per: (!per.is_empty()).then(|| encoder(&per)).transpose()?,
            order: encoder(&order)?,
            open: None,
            first: BinaryHeap::new(),
            picked: Picked::default(),
        }))
    }

    /// Adds the groups of a batch of this number.
    ///
    /// # Errors
    /// Keys that are too large.
    pub(super) fn add(&mut self, number: u32, batch: &RecordBatch) -> Result<(), TableError> {
        let order = self.order.encode(batch)?;
        let per = self.per.as_ref().map(|per| per.encode(batch)).transpose()?;
        for row in 0..batch.num_rows() {
            let part = per.as_ref().map_or(&[][..], |per: &KeyRows| per.get(row));
            if self.open.as_deref() != Some(part) {
                let part = part.to_vec();
                self.end_part();
                self.open = Some(part);
            }
            let key = order.get(row);
            if self.first.len() < self.most {
                self.first.push((key.into(), Chosen(Pick { batch: number, row: row as u32 })));
            } else if let Some(mut last) = self.first.peek_mut()
                && key < &*last.0
            {
                *last = (key.into(), Chosen(Pick { batch: number, row: row as u32 }));
            }
        }
        Ok(())
    }

    fn end_part(&mut self) {
        let Some(part) = self.open.take() else { return };
        let first = std::mem::take(&mut self.first).into_sorted_vec();
        self.picked.picks.extend(first.into_iter().map(|(_, Chosen(pick))| pick));
        match &mut self.picked.ends {
            Some([_, last]) => *last = part,
            none => {
                self.picked.of_first = self.picked.picks.len();
                *none = Some([part.clone(), part]);
            }
        }
    }

    /// Those that stay.
    pub(super) fn finish(mut self) -> Picked {
        self.end_part();
        self.picked
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StringArray};

    use super::*;
    use crate::jobs::group::Top;
    use crate::semantics::KeyColumn;

    #[test]
    fn of_each_part_the_first_groups_stay_in_the_order_that_is_said_and_then_in_that_of_keys() {
        let parts = ["a", "a", "a", "b", "b", "c"];
        let (numbers, names) = ([1, 3, 3, 5, 5, 0], ["z", "y", "x", "v", "u", "t"]);
        let columns: [(&str, ArrayRef); 3] = [
            ("part", Arc::new(StringArray::from_iter_values(parts))),
            ("name", Arc::new(StringArray::from_iter_values(names))),
            ("number", Arc::new(Int64Array::from_iter_values(numbers))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let picked = |rows, per: &[&str]| {
            let order_by = vec!["number:desc".parse::<KeyColumn>().unwrap()];
            let top = Top { rows, order_by, per: per.iter().map(|per| (*per).to_owned()).collect() };
            let by = ["name", "part"].map(str::to_owned).to_vec();
            let query = GroupQuery { by, aggregates: Vec::new(), having: None, top: Some(top) };
            let mut top = TopRows::new(&query, &batch.schema()).unwrap().unwrap();
            top.add(0, &batch.slice(0, 2)).unwrap();
            top.add(1, &batch.slice(2, 4)).unwrap();
            let picked = top.finish();
            let row = |pick: &Pick| names[(pick.batch * 2 + pick.row) as usize];
            (picked.picks.iter().map(row).collect::<String>(), picked.of_first, picked.ends.is_some())
        };
        assert_eq!(picked(1, &["part"]), ("xut".to_owned(), 1, true));
        assert_eq!(picked(2, &["part"]), ("xyuvt".to_owned(), 2, true));
        assert_eq!(picked(3, &[]), ("uvx".to_owned(), 3, true));
        assert_eq!(picked(9, &[]), ("uvxyzt".to_owned(), 6, true));
    }
}
