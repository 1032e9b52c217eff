//! A query as it is done: operators that there are, one after the other, each of which reads files and writes files.

use std::fmt;

use exobus_queries::online::OnlineAnswer;
use exobus_tables::expression::Expression;
use exobus_tables::jobs::group::GroupQuery;
use exobus_tables::jobs::join::JoinQuery;
use exobus_tables::reading::{Computed, ReadOptions};
use exobus_tables::semantics::KeyColumn;
use serde::{Deserialize, Serialize};

/// The version of plans that is written here: another release does no other. In version 3 an answer that is shown early had no columns that are computed of what tells groups apart or of estimates without bounds, and did not say which groups there are in which order.
pub const VERSION: u32 = 4;

/// What is done for a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`VERSION`], as the release had it that made the plan.
    pub version: u32,
    /// Operators, each of which may read what those before it have written.
    pub steps: Vec<Step>,
    /// The answer.
    pub answer: Answer,
}

/// Where rows come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// A table of the query, by its number.
    Table(usize),
    /// What these steps have written, one behind the other.
    Steps(Vec<usize>),
}

/// Rows on their way to an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// Where they come from.
    pub origin: Origin,
    /// What they have to meet, as far as files say by themselves which of them do.
    pub filter: Option<Expression>,
    /// What is computed of them, and what else they have to meet.
    pub computed: Option<Computed>,
    /// The columns that they have, where nothing is computed; `None`: those that the operator looks at.
    pub select: Option<Vec<String>>,
    /// What these steps have written is small, and looked up for each row.
    pub beside: Vec<usize>,
    /// What is computed of them, for people.
    pub said: String,
}

/// An operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// What is said of groups.
    Group {
        /// Of which rows.
        rows: Rows,
        /// What.
        query: GroupQuery,
    },
    /// Rows of two tables side by side.
    Join {
        /// The left table.
        left: Rows,
        /// The right one.
        right: Rows,
        /// Which rows match.
        query: JoinQuery,
    },
    /// Rows in the order of a key.
    Sort {
        /// Which.
        rows: Rows,
        /// The key.
        key: Vec<KeyColumn>,
    },
    /// The first row of each key.
    First {
        /// Of which rows.
        rows: Rows,
        /// The key.
        key: Vec<KeyColumn>,
        /// In which order.
        order_by: Vec<KeyColumn>,
    },
    /// Rows as they are.
    Copy {
        /// Which.
        rows: Rows,
        /// Which of them.
        slice: Slice,
    },
}

/// Some of the rows, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// How many are passed over.
    pub skip: u64,
    /// How many follow, at most.
    pub rows: Option<u64>,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The rows, whose columns have their names.
    pub rows: Rows,
    /// Which of them.
    pub slice: Slice,
    /// The names of the columns, in their order.
    pub columns: Vec<String>,
    /// What is answered of groups, which is shown before all are known; or why not.
    pub online: Result<OnlineAnswer, String>,
}

impl Slice {
    /// Whether it is all rows.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

impl Rows {
    /// How they are read, of files that are read so.
    pub fn reading(&self, files: &ReadOptions) -> ReadOptions {
        let filter = match (files.filter.clone(), self.filter.clone()) {
            (Some(of_files), Some(more)) => Some(of_files.and(more)),
            (one, other) => one.or(other),
        };
        ReadOptions { filter, computed: self.computed.clone(), select: self.select.clone(), ..files.clone() }
    }
}

impl Step {
    /// The rows that it reads.
    pub fn rows(&self) -> impl Iterator<Item = &Rows> {
        let (first, second) = match self {
            Self::Join { left, right, .. } => (left, Some(right)),
            Self::Group { rows, .. } | Self::Sort { rows, .. } | Self::First { rows, .. } | Self::Copy { rows, .. } => {
                (rows, None)
            }
        };
        std::iter::once(first).chain(second)
    }
}

/// # Errors
/// Plans of this version are those of another release.
pub(crate) fn check_version(version: u32) -> Result<(), String> {
    match version {
        VERSION => Ok(()),
        other => Err(format!(
            "plans of queries of version {other} are those of another release, and this one has version {VERSION}: ask the query again where all nodes are of one release"
        )),
    }
}

impl Plan {
    /// Whether a step joins tables.
    pub(crate) fn has_join(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Join { .. }))
    }

    /// The step that groups rows of a table, and is the last one but for one that puts groups in order.
    fn last_group(&self) -> Option<(usize, &Rows)> {
        let group = match self.steps.as_slice() {
            [.., Step::Group { .. }, Step::Sort { rows, .. }]
                if rows.origin == Origin::Steps(vec![self.steps.len() - 2]) =>
            {
                self.steps.len() - 2
            }
            steps => steps.len().checked_sub(1)?,
        };
        match &self.steps[group] {
            Step::Group { rows, .. } if matches!(rows.origin, Origin::Table(_)) => Some((group, rows)),
            _ => None,
        }
    }

    /// What is shown before a step is done that groups rows of a table: the only one that does more than to put groups in order, or behind others that write what is looked up for these rows; or why there is nothing.
    ///
    /// # Errors
    /// Why not.
    pub fn online(&self) -> Result<Option<&OnlineAnswer>, &str> {
        match self.last_group() {
            Some((before, Rows { beside, .. })) if before == 0 || !beside.is_empty() => {
                let is_in_order = before + 1 < self.steps.len();
                let Answer { rows, slice, online, .. } = &self.answer;
                let is_as_written = rows.computed.is_none() && rows.select.is_none() && rows.filter.is_none();
                match online {
                    _ if slice.skip > 0 => Err("OFFSET leaves out rows of which is not known yet which they are"),
                    Err(why) => Err(why),
                    Ok(_) if is_as_written && !is_in_order && slice.is_all() => Ok(None),
                    Ok(online) => Ok(Some(online)),
                }
            }
            _ => Err(match self.steps.first() {
                None => "it says nothing of groups",
                Some(Step::Group { .. }) => "it does more than to group rows",
                Some(_) => "rows are joined, sorted or copied before they are grouped",
            }),
        }
    }

    /// The step that groups rows for each of which rows are looked up, where there is one, and what that reads.
    pub fn looks_up(&self) -> Option<(usize, &Rows)> {
        self.last_group().filter(|(_, rows)| !rows.beside.is_empty())
    }

    /// The tables that steps before this one read.
    pub fn tables_before(&self, step: usize) -> impl Iterator<Item = usize> {
        let before = &self.steps[..step];
        before.iter().flat_map(Step::rows).filter_map(|rows| match rows.origin {
            Origin::Table(table) => Some(table),
            Origin::Steps(_) => None,
        })
    }

    /// For people: which operators, in which order. `tables`: the names of the tables.
    pub fn describe<'a>(&'a self, tables: &'a [String]) -> impl fmt::Display + 'a {
        Described { plan: self, tables }
    }
}

struct Described<'a> {
    plan: &'a Plan,
    tables: &'a [String],
}

impl Described<'_> {
    fn rows(&self, f: &mut fmt::Formatter<'_>, rows: &Rows) -> fmt::Result {
        match &rows.origin {
            Origin::Table(table) => write!(f, "{}", self.tables.get(*table).map_or("a table", String::as_str))?,
            Origin::Steps(steps) => {
                let steps: Vec<String> = steps.iter().map(|step| format!("step {}", step + 1)).collect();
                f.write_str(&steps.join(", "))?;
            }
        }
        for step in &rows.beside {
            write!(f, "\n     with what step {} has for each row", step + 1)?;
        }
        if let Some(filter) = &rows.filter {
            write!(f, "\n     where {filter} (row groups and pages without such rows are not read)")?;
        }
        if !rows.said.is_empty() {
            write!(f, "\n     {}", rows.said)?;
        }
        Ok(())
    }
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = |keys: &[KeyColumn]| keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        for (number, step) in (1..).zip(&self.plan.steps) {
            write!(f, "{number:>2}. ")?;
            match step {
                Step::Group { rows, query } => {
                    let aggregates: Vec<String> = query.aggregates.iter().map(ToString::to_string).collect();
                    let by = if query.by.is_empty() { "all rows".to_owned() } else { query.by.join(", ") };
                    write!(f, "group by {by}: {}, of ", aggregates.join(", "))?;
                    self.rows(f, rows)?;
                    if let Some(having) = &query.having {
                        write!(f, "\n     of groups with {having}")?;
                    }
                    if let Some(top) = &query.top {
                        write!(f, "\n     the first {} by {}", top.rows, keys(&top.order_by))?;
                        let per = top.per.join(", ");
                        write!(f, "{}", if per.is_empty() { String::new() } else { format!(", of each {per}") })?;
                    }
                }
                Step::Join { left, right, query } => {
                    let on: Vec<String> = query.on.iter().map(ToString::to_string).collect();
                    write!(f, "join, {}, on {}: ", query.kind, on.join(", "))?;
                    self.rows(f, left)?;
                    write!(f, "\n     with ")?;
                    self.rows(f, right)?;
                }
                Step::Sort { rows, key } => {
                    write!(f, "sort by {}: ", keys(key))?;
                    self.rows(f, rows)?;
                }
                Step::First { rows, key, order_by } => {
                    write!(f, "the first row of each {} by {}: ", keys(key), keys(order_by))?;
                    self.rows(f, rows)?;
                }
                Step::Copy { rows, slice } => {
                    write!(f, "copy{slice}: ")?;
                    self.rows(f, rows)?;
                }
            }
            writeln!(f)?;
        }
        let Answer { rows, slice, .. } = &self.plan.answer;
        write!(f, "    answer{slice}: ")?;
        self.rows(f, rows)
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.skip > 0 {
            write!(f, ", without the first {} rows", self.skip)?;
        }
        self.rows.map_or(Ok(()), |rows| write!(f, ", {rows} rows at most"))
    }
}
