//! A condition as a tree, and its text.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ExpressionError, parser};

/// How deep conditions may lie in each other. A row of `and` or of `or` is one level, however long.
pub const DEPTH_MAX: usize = 64;
/// Most bytes of a text: it is told to each task, and kept with it.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

/// Where in its text something begins, bytes from 0; conditions are the same wherever their parts stand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct At(pub(super) usize);

impl PartialEq for At {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for At {}

/// A condition: true, false or null for each row. It is serialized as its text.
#[derive(Clone, Debug)]
pub struct Expression {
    pub(super) kind: Kind,
    /// What it was read from: its parts say where in that they stand.
    pub(super) text: Option<Arc<str>>,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Eq for Expression {}

impl From<Kind> for Expression {
    fn from(kind: Kind) -> Self {
        Self { kind, text: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A column of truth values, or one of these.
    Value(Operand),
    Compare(Operand, Comparison, Operand),
    IsNull(Operand),
    /// Whether the first one is among the others.
    In(Operand, Vec<Operand>),
    /// Whether it is like a pattern, and the character that takes their meaning from others.
    Like(Operand, Operand, Option<char>),
    Not(Box<Kind>),
    /// Two at least.
    And(Vec<Kind>),
    Or(Vec<Kind>),
}

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    pub(super) of: OperandKind,
    pub(super) at: At,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OperandKind {
    /// A name, or a path of names with dots.
    Column(String),
    Literal(Literal),
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Literal {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number as it is written: `3`, `-2.50`, `1e9`.
    Number(String),
    /// A text, or a date or time where it is compared with one.
    Text(String),
    /// A date as it is written.
    Date(String),
    /// A timestamp as it is written, with a zone or without one.
    Timestamp(String),
}

/// How two values compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`, `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// Of the same two values the other way round.
    pub(super) fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }

    /// Whether it holds between values of this order.
    pub(super) fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

impl Operand {
    pub(super) fn column(path: impl Into<String>, at: usize) -> Self {
        Self { of: OperandKind::Column(path.into()), at: At(at) }
    }

    pub(super) fn literal(literal: Literal, at: usize) -> Self {
        Self { of: OperandKind::Literal(literal), at: At(at) }
    }
}

impl Kind {
    /// Whether conditions lie deeper in each other than they may; looks no deeper than that.
    pub(super) fn is_too_deep(&self, allowed: usize) -> bool {
        let Some(inside) = allowed.checked_sub(1) else { return true };
        match self {
            Self::Not(of) => of.is_too_deep(inside),
            Self::And(all) | Self::Or(all) => all.iter().any(|one| one.is_too_deep(inside)),
            _ => false,
        }
    }
}

impl Kind {
    fn add_columns<'a>(&'a self, columns: &mut Vec<&'a str>) {
        let operands = match self {
            Self::Value(of) | Self::IsNull(of) | Self::In(of, _) | Self::Like(of, ..) => vec![of],
            Self::Compare(left, _, right) => vec![left, right],
            Self::Not(of) => return of.add_columns(columns),
            Self::And(all) | Self::Or(all) => return all.iter().for_each(|one| one.add_columns(columns)),
        };
        columns.extend(operands.into_iter().filter_map(|operand| match &operand.of {
            OperandKind::Column(path) => Some(path.as_str()),
            OperandKind::Literal(_) => None,
        }));
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, all: &[Self], word: &str| {
            for (at, one) in all.iter().enumerate() {
                f.write_str(if at > 0 { word } else { "" })?;
                match one {
                    Self::And(_) | Self::Or(_) => write!(f, "({one})")?,
                    _ => write!(f, "{one}")?,
                }
            }
            Ok(())
        };
        match self {
            Self::Value(value) => write!(f, "{value}"),
            Self::Compare(left, comparison, right) => write!(f, "{left} {} {right}", comparison.text()),
            Self::IsNull(of) => write!(f, "{of} is null"),
            Self::In(of, among) => {
                write!(f, "{of} in (")?;
                for (at, one) in among.iter().enumerate() {
                    write!(f, "{}{one}", if at > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
            Self::Like(of, pattern, escape) => {
                write!(f, "{of} like {pattern}")?;
                escape.map_or(Ok(()), |escape| write!(f, " escape {}", quoted(&escape.to_string(), '\'')))
            }
            Self::Not(of) => match **of {
                Self::And(_) | Self::Or(_) => write!(f, "not ({of})"),
                _ => write!(f, "not {of}"),
            },
            Self::And(all) => joined(f, all, " and "),
            Self::Or(all) => joined(f, all, " or "),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            OperandKind::Column(path) if parser::is_plain_path(path) => f.write_str(path),
            OperandKind::Column(path) => f.write_str(&quoted(path, '"')),
            OperandKind::Literal(literal) => write!(f, "{literal}"),
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(text) => f.write_str(text),
            Self::Text(text) => f.write_str(&quoted(text, '\'')),
            Self::Date(text) => write!(f, "date {}", quoted(text, '\'')),
            Self::Timestamp(text) => write!(f, "timestamp {}", quoted(text, '\'')),
        }
    }
}

fn quoted(text: &str, quote: char) -> String {
    let doubled = text.replace(quote, &format!("{quote}{quote}"));
    format!("{quote}{doubled}{quote}")
}

impl FromStr for Expression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, ExpressionError> {
        Ok(Self { kind: parser::parse(text)?, text: Some(text.into()) })
    }
}

impl Expression {
    /// The names of all columns that it looks at, or their paths of names with dots.
    pub fn columns(&self) -> Vec<&str> {
        let mut columns = Vec::new();
        self.kind.add_columns(&mut columns);
        columns
    }

    /// The text that it was read from, or that it has.
    ///
    /// # Errors
    /// What was built is no condition that can be written: it is too deep or too long, or has a number or a time that is none.
    pub(super) fn checked_text(&self) -> Result<Arc<str>, ExpressionError> {
        if let Some(text) = &self.text {
            return Ok(text.clone());
        }
        if self.kind.is_too_deep(DEPTH_MAX) {
            return Err(ExpressionError::new("", 0, parser::TOO_DEEP));
        }
        let text = self.to_string();
        match parser::parse(&text)? == self.kind {
            true => Ok(text.into()),
            false => Err(ExpressionError::new(&text, 0, "a number in it is written as something else")),
        }
    }
}

impl Serialize for Expression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.checked_text().map_err(serde::ser::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
