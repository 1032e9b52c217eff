//! What is asked, and what it is for two tables.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::TableError;
use crate::hint::{did_you_mean, nearest, no_column};
use crate::semantics::{KeyColumn, UnifiedSchema};

/// Which rows are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinKind {
    /// Pairs of rows that match.
    #[default]
    Inner,
    /// These, and rows of the left table that match none.
    Left,
    /// Pairs, and rows of the right table that match none.
    Right,
    /// Pairs, and rows of either table that match none.
    Full,
    /// Rows of the left table that match one, each once.
    Semi,
    /// Rows of the left table that match none.
    Anti,
}

/// A kind of joins is written otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no kind of a join: inner, left, right, full, semi or anti{hint}")]
pub struct NoJoinKind {
    text: String,
    hint: String,
}

impl JoinKind {
    /// The names of all.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("inner", Self::Inner),
        ("left", Self::Left),
        ("right", Self::Right),
        ("full", Self::Full),
        ("semi", Self::Semi),
        ("anti", Self::Anti),
    ];

    /// Whether pairs of rows that match are written, rather than rows of the left table.
    pub(super) fn has_pairs(self) -> bool {
        !matches!(self, Self::Semi | Self::Anti)
    }

    /// Whether rows of a table are written that match none of the other one.
    pub(super) fn keeps(self, side: Side) -> bool {
        match side {
            Side::Left => self.keeps_left(),
            Side::Right => self.keeps_right(),
        }
    }

    /// Whether rows of the left table are written that match none.
    pub(super) fn keeps_left(self) -> bool {
        matches!(self, Self::Left | Self::Full | Self::Anti)
    }

    /// Whether all tasks may have a table as a whole: none of them knows which rows of it match none of the other one.
    pub(super) fn can_broadcast(self, side: Side) -> bool {
        match side {
            Side::Right => !self.keeps_right(),
            Side::Left => matches!(self, Self::Inner | Self::Right),
        }
    }

    /// Whether rows of the right table are written that match none.
    pub(super) fn keeps_right(self) -> bool {
        matches!(self, Self::Right | Self::Full)
    }
}

impl FromStr for JoinKind {
    type Err = NoJoinKind;

    fn from_str(text: &str) -> Result<Self, NoJoinKind> {
        let known = Self::NAMES.into_iter().find(|(name, _)| *name == text);
        known.map(|(_, kind)| kind).ok_or_else(|| {
            let near = nearest(text, &Self::NAMES.map(|(name, _)| name));
            let hint = near.map_or_else(String::new, |near| format!("; {}", did_you_mean(near)));
            NoJoinKind { text: text.to_owned(), hint }
        })
    }
}

impl fmt::Display for JoinKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.into_iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// A column of the left table and the one of the right table that has to have the same value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// Of the left table.
    pub left: String,
    /// Of the right table.
    pub right: String,
}

/// A pair of columns is written otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} says no columns that have to be the same: COLUMN where both tables have it, or LEFT=RIGHT")]
pub struct NoPair(String);

impl Pair {
    /// Of columns of one name.
    pub fn same(column: impl Into<String>) -> Self {
        let left = column.into();
        Self { right: left.clone(), left }
    }
}

impl FromStr for Pair {
    type Err = NoPair;

    /// `id`, or `id=uid`.
    fn from_str(text: &str) -> Result<Self, NoPair> {
        let (left, right) = text.split_once('=').unwrap_or((text, text));
        let (left, right) = (left.trim().to_owned(), right.trim().to_owned());
        match left.is_empty() || right.is_empty() || right.contains('=') {
            true => Err(NoPair(text.to_owned())),
            false => Ok(Self { left, right }),
        }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.left == self.right {
            true => f.write_str(&self.left),
            false => write!(f, "{}={}", self.left, self.right),
        }
    }
}

/// Which rows of two tables match, and what becomes of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JoinQuery {
    /// Columns that have to be the same, one pair at least. They are written once, by their names in the left table; null is like nothing, also not like null.
    pub on: Vec<Pair>,
    /// Which rows are written.
    pub kind: JoinKind,
    /// What is behind the name of a column of the right table where the left one has a column of this name; `None`: such names are refused.
    pub suffix: Option<String>,
}

impl JoinQuery {
    /// What is wrong with it, whatever the tables are: the field of a job, and what.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        if self.on.is_empty() {
            return Err(("on", "a join needs columns that have to be the same in both tables".to_owned()));
        }
        for (at, pair) in self.on.iter().enumerate() {
            let twice = |of: fn(&Pair) -> &String| self.on[..at].iter().any(|before| of(before) == of(pair));
            if twice(|pair| &pair.left) || twice(|pair| &pair.right) {
                return Err(("on", format!("a column is in two pairs, the second time in {pair}")));
            }
        }
        Ok(())
    }

    /// The key of the left table.
    pub(super) fn left_key(&self) -> Vec<KeyColumn> {
        self.on.iter().map(|pair| KeyColumn::rising(&pair.left)).collect()
    }

    /// The key of the right table.
    pub(super) fn right_key(&self) -> Vec<KeyColumn> {
        self.on.iter().map(|pair| KeyColumn::rising(&pair.right)).collect()
    }
}

/// A join of tables that are known.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    /// The tables, with keys of the same types.
    pub(super) tables: [SchemaRef; 2],
    /// Which columns of either table are its key, pair by pair.
    pub(super) keys: [Vec<usize>; 2],
    /// Where the columns of what is written come from, in their order.
    pub(super) columns: Vec<Source>,
    /// What is written.
    pub(super) schema: SchemaRef,
}

/// Where a column of what is written comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The column of either table that is in the pair of this number.
    Key(usize),
    /// A column of the left table.
    Left(usize),
    /// A column of the right table.
    Right(usize),
}

impl Joined {
    /// Of tables of these schemas.
    ///
    /// # Errors
    /// Columns that are not there or only inside of others; types of a pair that do not fit each other; names that two columns would have.
    pub(super) fn new(query: &JoinQuery, left: &Schema, right: &Schema) -> Result<Self, TableError> {
        let numbers = |schema: &Schema, name: fn(&Pair) -> &String| {
            let number = |pair: &Pair| match schema.column_with_name(name(pair)) {
                Some((number, _)) => Ok(number),
                None => Err(no_column(schema, name(pair))),
            };
            query.on.iter().map(number).collect::<Result<Vec<_>, _>>()
        };
        let keys = [numbers(left, |pair| &pair.left)?, numbers(right, |pair| &pair.right)?];
        let (mut of_left, mut of_right) = (fields(left), fields(right));
        for (pair, (in_left, in_right)) in query.on.iter().zip(keys[0].iter().zip(&keys[1])) {
            let data_type = of_both(pair, left.field(*in_left), right.field(*in_right))?;
            for (fields, number) in [(&mut of_left, *in_left), (&mut of_right, *in_right)] {
                fields[number] = fields[number].clone().with_data_type(data_type.clone());
            }
        }
        let (mut columns, mut written) = (Vec::new(), Vec::new());
        for (number, field) in of_left.iter().enumerate() {
            let pair = keys[0].iter().position(|key| *key == number);
            columns.push(pair.map_or(Source::Left(number), Source::Key));
            let is_nullable = match pair {
                Some(pair) => field.is_nullable() || query.kind.keeps_right() && of_right[keys[1][pair]].is_nullable(),
                None => field.is_nullable() || query.kind.keeps_right(),
            };
            written.push(field.clone().with_nullable(is_nullable));
        }
        let is_in_left =
            |name: &str| left.fields().iter().any(|field| field.name().to_lowercase() == name.to_lowercase());
        let others = of_right.iter().enumerate().filter(|(number, _)| !keys[1].contains(number));
        for (number, field) in others.filter(|_| query.kind.has_pairs()) {
            let name = match &query.suffix {
                Some(suffix) if is_in_left(field.name()) => format!("{}{suffix}", field.name()),
                _ => field.name().clone(),
            };
            if let Some(other) =
                written.iter().find(|other: &&Field| other.name().to_lowercase() == name.to_lowercase())
            {
                let (left, right) = (other.name().clone(), field.name().clone());
                return Err(TableError::JoinedAlike { left, right, suffix: query.suffix.clone() });
            }
            columns.push(Source::Right(number));
            let is_nullable = field.is_nullable() || query.kind.keeps_left();
            written.push(field.clone().with_name(name).with_nullable(is_nullable));
        }
        let tables = [(of_left, left), (of_right, right)]
            .map(|(fields, table)| Arc::new(Schema::new_with_metadata(fields, table.metadata().clone())));
        let schema = Arc::new(Schema::new_with_metadata(written, left.metadata().clone()));
        Ok(Self { tables, keys, columns, schema })
    }

    /// Which rows of a batch of a table have a key with a null; `None`: none has.
    pub(super) fn null_keys(&self, side: Side, batch: &RecordBatch) -> Option<Vec<bool>> {
        let nulls = self.keys[side as usize].iter().filter_map(|key| batch.column(*key).logical_nulls());
        let mut all: Option<Vec<bool>> = None;
        for nulls in nulls.filter(|nulls| nulls.null_count() > 0) {
            let all = all.get_or_insert_with(|| vec![false; batch.num_rows()]);
            all.iter_mut().zip(nulls.iter()).for_each(|(is_null, is_there)| *is_null |= !is_there);
        }
        all
    }
}

/// Which of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Side {
    Left = 0,
    Right = 1,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::Left, Self::Right];

    pub(super) fn other(self) -> Self {
        if self == Self::Left { Self::Right } else { Self::Left }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Left { "left" } else { "right" })
    }
}

/// Which table all tasks have as a whole, so that nothing of the other one goes to another node; the output is in the order of that one then, and not of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Broadcast {
    /// The right table, or else the left one, where it takes no more than 64 MiB (its values, and 64 bytes for each row) and no row of it is written that matches none.
    #[default]
    Auto,
    /// The left table.
    Left,
    /// The right table.
    Right,
    /// None: rows of both tables come together by their keys.
    Never,
}

/// What is broadcast is written otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} says no table that all tasks have: auto, left, right or never")]
pub struct NoBroadcast(String);

impl Broadcast {
    /// The names of all.
    pub const NAMES: [(&'static str, Self); 4] =
        [("auto", Self::Auto), ("left", Self::Left), ("right", Self::Right), ("never", Self::Never)];
}

impl FromStr for Broadcast {
    type Err = NoBroadcast;

    fn from_str(text: &str) -> Result<Self, NoBroadcast> {
        let known = Self::NAMES.into_iter().find(|(name, _)| *name == text);
        known.map(|(_, broadcast)| broadcast).ok_or_else(|| NoBroadcast(text.to_owned()))
    }
}

impl fmt::Display for Broadcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.into_iter().find(|(_, broadcast)| broadcast == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

fn fields(schema: &Schema) -> Vec<Field> {
    schema.fields().iter().map(|field| field.as_ref().clone()).collect()
}

/// The type that holds the values of both columns of a pair.
fn of_both(pair: &Pair, left: &Field, right: &Field) -> Result<DataType, TableError> {
    let only = |field: &Field| Schema::new(vec![field.clone().with_name(pair.to_string())]);
    let mut both = UnifiedSchema::new("the left table", &only(left))?;
    both.add("the right table", &only(right))?;
    Ok(both.schema().field(0).data_type().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(columns: &[(&str, DataType)]) -> Schema {
        Schema::new(columns.iter().map(|(name, of)| Field::new(*name, of.clone(), false)).collect::<Vec<_>>())
    }

    fn query(on: &[&str], kind: JoinKind, suffix: Option<&str>) -> JoinQuery {
        let on = on.iter().map(|pair| pair.parse().unwrap()).collect();
        JoinQuery { on, kind, suffix: suffix.map(str::to_owned) }
    }

    #[test]
    fn the_key_is_written_once_as_the_wider_type_and_others_may_be_null_where_a_row_matches_none() {
        let left = schema(&[("x", DataType::Utf8), ("id", DataType::Int32)]);
        let right = schema(&[("uid", DataType::Int64), ("X", DataType::Boolean), ("y", DataType::Utf8)]);
        let on = ["id=uid"];
        let written = |kind, suffix: Option<&str>| {
            let joined = Joined::new(&query(&on, kind, suffix), &left, &right)?;
            let field = |field: &Arc<Field>| {
                format!("{} {}{}", field.name(), field.data_type(), if field.is_nullable() { "?" } else { "" })
            };
            Ok::<_, TableError>(joined.schema.fields().iter().map(field).collect::<Vec<_>>().join(", "))
        };
        let error = written(JoinKind::Inner, None).unwrap_err().to_string();
        assert!(error.contains("\"x\"") && error.contains("\"X\"") && error.contains("suffix"), "{error}");
        let renamed = schema(&[("uid", DataType::Int64), ("x", DataType::Boolean), ("y", DataType::Utf8)]);
        let joined = Joined::new(&query(&on, JoinKind::Full, Some("_r")), &left, &renamed).unwrap();
        let names: Vec<&str> = joined.schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["x", "id", "x_r", "y"]);
        let nullable: Vec<bool> = joined.schema.fields().iter().map(|field| field.is_nullable()).collect();
        assert_eq!(nullable, [true, false, true, true]);
        assert_eq!(written(JoinKind::Semi, None).unwrap(), "x Utf8, id Int64");
        assert_eq!(joined.columns, [Source::Left(0), Source::Key(0), Source::Right(1), Source::Right(2)]);
    }

    #[test]
    fn keys_that_do_not_fit_and_columns_that_are_not_there_are_refused() {
        let (left, right) = (schema(&[("id", DataType::Int32)]), schema(&[("uid", DataType::Utf8)]));
        let refused =
            |on: &str| Joined::new(&query(&[on], JoinKind::Inner, None), &left, &right).unwrap_err().to_string();
        let error = refused("id=uid");
        assert!(error.contains("the left table") && error.contains("the right table"), "{error}");
        assert!(refused("id=ui").contains("uid"), "{}", refused("id=ui"));
        assert!("id=".parse::<Pair>().is_err() && "a=b=c".parse::<Pair>().is_err());
        assert_eq!(" id = uid ".parse::<Pair>().unwrap().to_string(), "id=uid");
        assert!("outer".parse::<JoinKind>().unwrap_err().to_string().contains("full"));
        let twice = query(&["id=a", "id=b"], JoinKind::Inner, None);
        assert_eq!(twice.check().unwrap_err().0, "on");
    }
}
