//! The task that shows the answer, at the end.

use std::ops::ControlFlow;

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_tables::arrow_array::RecordBatch;
use exobus_tables::jobs::group::sampled::{columns_of, read_rows};
use serde::{Deserialize, Serialize};

use super::answer::{AnswerRows, BoundAnswer, OnlineAnswer, Order};
use super::columns::{ShownColumn, has_room, key_columns, known_columns, known_value, shown_key};
use crate::snapshot::{SHOWN_MAX, ShownGroup, ShownValue, Snapshot};

/// What `query.final` is told. Its arguments are the layout of what is written, and rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FinalParams {
    /// Columns that tell groups apart.
    pub(super) by: usize,
    /// What is shown of groups; `None`: what is written of them.
    pub(super) shown_as: Option<OnlineAnswer>,
    /// How many groups there are.
    pub(super) groups: u64,
    /// What is shown beside groups.
    pub(super) seen: Snapshot,
}

/// The answer: of more groups than are shown, the first ones.
#[task(name = "query.final", version = 4, arguments = [whole, stream], deterministic = true)]
pub(super) fn answer(context: &mut TaskContext<'_>, params: FinalParams) -> Result<Snapshot, TaskError> {
    let FinalParams { by, shown_as, groups, seen } = params;
    let columns = shown_as.as_ref().map_or(columns_of(context, 0)?, OnlineAnswer::columns);
    let mut first = First { by, shown_as: shown_as.as_ref(), bound: None, groups: Vec::new() };
    read_rows(context, (0, 1), |rows| first.add(rows))?;
    let mut shown = Vec::new();
    let mut bytes = 0;
    for (_, group) in first.groups {
        if !has_room(&mut bytes, &group)? {
            break;
        }
        shown.push(group);
    }
    Ok(Snapshot { is_final: true, columns, groups_seen: groups, unmet_blocks: Some(0), groups: shown, ..seen })
}

/// The first groups of an answer.
struct First<'a> {
    by: usize,
    shown_as: Option<&'a OnlineAnswer>,
    /// Bound to what is written.
    bound: Option<BoundAnswer<'a>>,
    /// Those of the rows that were added, in their order, and what they are ordered by.
    groups: Vec<(Order, ShownGroup)>,
}

impl First<'_> {
    /// Adds rows as they are written, in the order in which they are; whether others matter.
    fn add(&mut self, rows: &RecordBatch) -> Result<ControlFlow<()>, TaskError> {
        let Self { by, shown_as, bound, groups } = self;
        if let (Some(shown_as), None) = (*shown_as, &bound) {
            *bound = Some(shown_as.bind(rows.schema_ref()).map_err(TaskError::fatal)?);
        }
        let is_ordered = shown_as.is_some_and(|shown_as| !shown_as.order_by.is_empty());
        let most = shown_as.and_then(|shown_as| shown_as.rows).map_or(SHOWN_MAX, |rows| SHOWN_MAX.min(rows as usize));
        // Of those that are ordered alike the first ones stay.
        let last = groups.last().filter(|_| is_ordered && groups.len() == most).map(|(last, _)| last);
        let answered = match bound {
            None => AnswerRows::as_written(rows.num_rows()),
            Some(bound) => bound.rows(rows, most, last),
        };
        // Rows of the answer are computed again, and not all of them where it ends before: what cannot be computed is an error there.
        let unknown = || {
            let why = answered.why.as_ref().map(ToString::to_string);
            ShownValue::unknown(why.unwrap_or_else(|| "it is not computed".to_owned()))
        };
        let keys = key_columns((rows, &answered), *by, *shown_as);
        let known = known_columns((rows, &answered), *by, *shown_as);
        for row in &answered.rows {
            if groups.len() == most && groups.last().is_none_or(|(last, _)| *last <= row.order) {
                break;
            }
            let value = |column: &ShownColumn<'_>| match column.at(row) {
                Some((column, row)) => known_value(column, row),
                None => unknown(),
            };
            let group = ShownGroup { key: shown_key(&keys, row), values: known.iter().map(value).collect() };
            let at = groups.partition_point(|(before, _)| *before <= row.order);
            groups.insert(at, (row.order.clone(), group));
            groups.truncate(most);
        }
        Ok(match groups.len() == most && !is_ordered {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    }
}
