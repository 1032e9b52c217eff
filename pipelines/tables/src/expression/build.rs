//! Conditions as programs write them: `col("price").gt(3).and(col("city").is_in(["x", "y"]))`.

use super::tree::{Comparison, Expression, Kind, Literal, Operand};

/// A column, or a field of structs by its path of names with dots, that is to be compared.
///
/// ```
/// use exobus_tables::expression::{Expression, col};
///
/// let condition = col("price").gt(3).and(col("city").is_in(["x", "y"]));
/// assert_eq!(condition, "price > 3 and city in ('x', 'y')".parse::<Expression>().unwrap());
/// ```
pub fn col(path: impl Into<String>) -> Column {
    Column(path.into())
}

/// A value that is to be compared with; for dates and times, which have no type of their own here: `lit(Literal::Date("2024-01-31".into()))`.
pub fn lit(value: impl Into<Operand>) -> Operand {
    value.into()
}

/// See [`col`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column(String);

#[allow(clippy::should_implement_trait, reason = "what is made is a condition, not an answer")]
impl Column {
    fn compared(self, comparison: Comparison, with: impl Into<Operand>) -> Expression {
        Expression::from(Kind::Compare(self.into(), comparison, with.into()))
    }

    /// `=`
    pub fn eq(self, with: impl Into<Operand>) -> Expression {
        self.compared(Comparison::Equal, with)
    }

    /// `!=`
    pub fn ne(self, with: impl Into<Operand>) -> Expression {
        self.compared(Comparison::NotEqual, with)
    }

    /// `<`
    pub fn lt(self, with: impl Into<Operand>) -> Expression {
        self.compared(Comparison::Less, with)
    }

    /// `<=`
    pub fn le(self, with: impl Into<Operand>) -> Expression {
        self.compared(Comparison::LessOrEqual, with)
    }

    /// `>`
    pub fn gt(self, with: impl Into<Operand>) -> Expression {
        self.compared(Comparison::Greater, with)
    }

    /// `>=`
    pub fn ge(self, with: impl Into<Operand>) -> Expression {
        self.compared(Comparison::GreaterOrEqual, with)
    }

    /// Whether it is at least the one and at most the other.
    pub fn between(self, least: impl Into<Operand>, greatest: impl Into<Operand>) -> Expression {
        self.clone().ge(least).and(self.le(greatest))
    }

    /// Whether it is one of these; of none, it is never.
    pub fn is_in<O: Into<Operand>>(self, among: impl IntoIterator<Item = O>) -> Expression {
        let among: Vec<Operand> = among.into_iter().map(Into::into).collect();
        match among.is_empty() {
            true => Expression::from(Kind::Value(Literal::Bool(false).into())),
            false => Expression::from(Kind::In(self.into(), among)),
        }
    }

    /// Whether it is null.
    pub fn is_null(self) -> Expression {
        Expression::from(Kind::IsNull(self.into()))
    }

    /// Whether it is not null.
    pub fn is_not_null(self) -> Expression {
        self.is_null().not()
    }

    /// Whether it is like a pattern, in which `%` is any text and `_` any one character.
    pub fn like(self, pattern: impl Into<String>) -> Expression {
        Expression::from(Kind::Like(self.into(), Literal::Text(pattern.into()).into(), None))
    }

    /// The same, and a character takes that meaning from `%`, `_` and itself.
    pub fn like_escaped(self, pattern: impl Into<String>, escape: char) -> Expression {
        Expression::from(Kind::Like(self.into(), Literal::Text(pattern.into()).into(), Some(escape)))
    }

    /// Whether it is true, of a column of truth values.
    pub fn is_true(self) -> Expression {
        Expression::from(Kind::Value(self.into()))
    }
}

#[allow(clippy::should_implement_trait, reason = "what is made is a condition, not an answer")]
impl Expression {
    /// Whether both are true.
    pub fn and(self, other: Self) -> Self {
        let mut all = match self.kind {
            Kind::And(all) => all,
            one => vec![one],
        };
        match other.kind {
            Kind::And(more) => all.extend(more),
            one => all.push(one),
        }
        Kind::And(all).into()
    }

    /// Whether one of both is true.
    pub fn or(self, other: Self) -> Self {
        let mut all = match self.kind {
            Kind::Or(all) => all,
            one => vec![one],
        };
        match other.kind {
            Kind::Or(more) => all.extend(more),
            one => all.push(one),
        }
        Kind::Or(all).into()
    }

    /// Whether it is false; null where it is null.
    pub fn not(self) -> Self {
        Kind::Not(Box::new(self.kind)).into()
    }
}

impl From<Column> for Operand {
    fn from(column: Column) -> Self {
        Self::column(column.0, 0)
    }
}

impl From<Literal> for Operand {
    fn from(literal: Literal) -> Self {
        Self::literal(literal, 0)
    }
}

impl From<&str> for Operand {
    fn from(text: &str) -> Self {
        Literal::Text(text.to_owned()).into()
    }
}

impl From<String> for Operand {
    fn from(text: String) -> Self {
        Literal::Text(text).into()
    }
}

impl From<bool> for Operand {
    fn from(value: bool) -> Self {
        Literal::Bool(value).into()
    }
}

macro_rules! from_integer {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Operand {
            fn from(value: $integer) -> Self {
                Literal::Number(value.to_string()).into()
            }
        }
    )*};
}
from_integer!(i8, i16, i32, i64, i128, u8, u16, u32, u64, u128);

impl From<f64> for Operand {
    /// The shortest number that is read as it; of floats that are no numbers the text that floats are compared with.
    fn from(value: f64) -> Self {
        match value {
            _ if value.is_finite() => Literal::Number(format!("{value:e}")).into(),
            _ if value.is_nan() => Literal::Text("nan".to_owned()).into(),
            _ => Literal::Text(if value > 0.0 { "inf" } else { "-inf" }.to_owned()).into(),
        }
    }
}
