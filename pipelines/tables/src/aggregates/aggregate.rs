//! An aggregate as people write it: `sum(price) as total`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{AggregateError, Function, parser};

/// A function of a column, and what the column of its results is called.
///
/// It travels as its text, which [`Display`](fmt::Display) writes and [`FromStr`] reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// What is asked.
    pub function: Function,
    /// Of which column: its name, or the path of names to a field of structs. `None`: of rows, `count(*)`.
    pub column: Option<String>,
    /// Name of the results; the text of the aggregate, such as `sum(price)`, unless another one is said.
    pub name: String,
}

impl Aggregate {
    /// A function of a column, with the name that it has where none is said.
    pub fn new(function: Function, column: Option<String>) -> Self {
        let mut aggregate = Self { function, column, name: String::new() };
        aggregate.name = aggregate.call();
        aggregate
    }

    /// The function and its arguments, the same text however they were written.
    pub fn call(&self) -> String {
        let column = self.column.as_deref().map_or("*".to_owned(), quoted);
        match self.function.part() {
            Some(part) => format!("{}({column}, {part})", self.function),
            None => format!("{}({column})", self.function),
        }
    }
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.call();
        f.write_str(&call)?;
        match call == self.name {
            true => Ok(()),
            false => write!(f, " as {}", quoted(&self.name)),
        }
    }
}

impl FromStr for Aggregate {
    type Err = AggregateError;

    fn from_str(text: &str) -> Result<Self, AggregateError> {
        parser::aggregate(text)
    }
}

/// Aggregates with commas between them: `count(*), sum(price) as total, quantile("unit price", 0.9)`.
///
/// # Errors
/// It says what is wrong, where, and what to do: an unknown function, a missing argument, two aggregates of one name or of names that are the same but for case, none at all.
pub fn parse_list(text: &str) -> Result<Vec<Aggregate>, AggregateError> {
    parser::list(text)
}

/// A name as it is written: in double quotes where it would be taken for something else without.
pub(super) fn quoted(name: &str) -> String {
    match !name.is_empty()
        && name != "*"
        && name.chars().all(parser::is_of_name)
        && !name.eq_ignore_ascii_case("distinct")
    {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

impl Serialize for Aggregate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Aggregate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
