//! Expressions over the columns of a row, as they travel: an enum of our own, whose functions are DataFusion's.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion_common::Column;
use datafusion_expr::expr::{BinaryExpr, Case, Cast, InList, Like, ScalarFunction, TryCast};
use datafusion_expr::utils::split_binary_owned;
use datafusion_expr::{Expr, Operator, ScalarUDF, Volatility};
use serde::{Deserialize, Serialize};

use super::constants::{Constants, NoConstants, Place};

/// An expression over a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Scalar {
    /// A column that is read, by its number.
    Column(u32),
    /// A constant.
    Constant(Place),
    /// Two values and what is between them: `+`, `=`, `AND`, ...
    Binary(Box<Scalar>, String, Box<Scalar>),
    /// A test of one value, or its negative.
    Unary(Unary, Box<Scalar>),
    /// `LIKE`, or `ILIKE`.
    Like {
        /// What is compared.
        of: Box<Scalar>,
        /// With what.
        pattern: Box<Scalar>,
        /// What takes their meaning from characters of the pattern.
        escape: Option<char>,
        /// Whether it is to be unlike it.
        negated: bool,
        /// Whether case does not count.
        any_case: bool,
    },
    /// `CASE`.
    Case {
        /// What is compared with each `WHEN`; `None`: these are conditions.
        of: Option<Box<Scalar>>,
        /// `WHEN` and `THEN`.
        when: Vec<(Scalar, Scalar)>,
        /// `ELSE`.
        otherwise: Option<Box<Scalar>>,
    },
    /// The value as one of another type, that of the constants of a place.
    Cast {
        /// The value.
        of: Box<Scalar>,
        /// Where constants of the type are.
        to: u32,
        /// Whether what does not fit is null, and no error.
        tries: bool,
    },
    /// Whether a value is among others.
    In {
        /// The value.
        of: Box<Scalar>,
        /// The others.
        among: Vec<Scalar>,
        /// Whether it is to be none of them.
        negated: bool,
    },
    /// A function of DataFusion, by its name.
    Call(String, Vec<Scalar>),
}

/// What is asked of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unary {
    /// `NOT`
    Not,
    /// `-`
    Negative,
    /// `IS NULL`
    IsNull,
    /// `IS NOT NULL`
    IsNotNull,
    /// `IS TRUE`
    IsTrue,
    /// `IS NOT TRUE`
    IsNotTrue,
    /// `IS FALSE`
    IsFalse,
    /// `IS NOT FALSE`
    IsNotFalse,
    /// `IS UNKNOWN`
    IsUnknown,
    /// `IS NOT UNKNOWN`
    IsNotUnknown,
}

/// Functions whose second argument says how long a text they make of a short one.
const GROWS: [&str; 3] = ["repeat", "lpad", "rpad"];
/// What that may be.
const GROWTH_MAX: u64 = 10_000;

/// How deep parts of an expression may lie in each other: it is gone through by calls that do.
pub(super) const DEPTH_MAX: usize = 120;
/// How many bytes a plan of rows may have.
pub(super) const PROGRAM_BYTES_MAX: usize = 128 << 10;

/// Why an expression is none of a row.
#[derive(Debug, thiserror::Error)]
pub enum NoScalar {
    /// There is nothing here that does it.
    #[error("{what} has no operator here")]
    NoOperator {
        /// What.
        what: String,
    },
    /// Tasks that are run again would not get the same.
    #[error("{name}() gives another value when a task is run again: say a value instead")]
    Volatile {
        /// The function.
        name: String,
    },
    /// What it makes of a row may be larger than any memory.
    #[error("{name}() makes texts as long as it is told: say a number of {GROWTH_MAX} at most")]
    Grows {
        /// The function.
        name: String,
    },
    /// Nobody goes so deep.
    #[error(
        "parts of an expression lie {depth} deep in each other, and may {DEPTH_MAX}: rows of + and || are as deep as they are long"
    )]
    TooDeep {
        /// How deep.
        depth: usize,
    },
    /// Each task is told all of it.
    #[error(
        "what is computed of a row takes {bytes} bytes as a plan, and may take {PROGRAM_BYTES_MAX}: instead of a long list of values, join a file of them"
    )]
    TooLong {
        /// How many bytes.
        bytes: usize,
    },
    /// A column that is not among those that are read: a fault of this program.
    #[error("there is no column {name} among those that are read")]
    NoColumn {
        /// Its name.
        name: String,
    },
    /// Constants cannot be kept.
    #[error(transparent)]
    Constants(#[from] NoConstants),
}

/// All scalar functions, by their names and their other names.
pub(crate) static FUNCTIONS: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let mut named = HashMap::new();
    for function in datafusion_functions::all_default_functions() {
        for alias in function.aliases() {
            named.insert(alias.clone(), function.clone());
        }
        named.insert(function.name().to_owned(), function);
    }
    named
});

/// Operators between two values.
const OPERATORS: [Operator; 27] = [
    Operator::Eq,
    Operator::NotEq,
    Operator::Lt,
    Operator::LtEq,
    Operator::Gt,
    Operator::GtEq,
    Operator::Plus,
    Operator::Minus,
    Operator::Multiply,
    Operator::Divide,
    Operator::Modulo,
    Operator::And,
    Operator::Or,
    Operator::IsDistinctFrom,
    Operator::IsNotDistinctFrom,
    Operator::RegexMatch,
    Operator::RegexIMatch,
    Operator::RegexNotMatch,
    Operator::RegexNotIMatch,
    Operator::LikeMatch,
    Operator::ILikeMatch,
    Operator::NotLikeMatch,
    Operator::NotILikeMatch,
    Operator::BitwiseAnd,
    Operator::BitwiseOr,
    Operator::BitwiseXor,
    Operator::StringConcat,
];

impl Scalar {
    /// An expression whose columns are among these, of which each new one becomes the next.
    ///
    /// # Errors
    /// [`NoScalar`].
    pub fn of(expression: &Expr, reads: &mut Vec<String>, constants: &mut Constants) -> Result<Self, NoScalar> {
        let mut of = |expression: &Expr| Self::of(expression, reads, constants);
        let mut unary = |unary, expression: &Expr| Ok(Self::Unary(unary, Box::new(of(expression)?)));
        match expression {
            Expr::Alias(alias) => Self::of(&alias.expr, reads, constants),
            Expr::Column(column) => {
                let at = reads.iter().position(|name| *name == column.name).unwrap_or_else(|| {
                    reads.push(column.name.clone());
                    reads.len() - 1
                });
                Ok(Self::Column(at as u32))
            }
            Expr::Literal(value, _) => Ok(Self::Constant(constants.add(value)?)),
            Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => {
                // A row of them is as deep as it is long; half by half it is not.
                let parts = split_binary_owned(expression.clone(), *op);
                let parts = parts.iter().map(of).collect::<Result<Vec<_>, _>>()?;
                Ok(halved(&parts, &op.to_string()))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if OPERATORS.contains(op) => {
                let left = Box::new(of(left)?);
                Ok(Self::Binary(left, op.to_string(), Box::new(of(right)?)))
            }
            Expr::Not(of) => unary(Unary::Not, of),
            Expr::Negative(of) => unary(Unary::Negative, of),
            Expr::IsNull(of) => unary(Unary::IsNull, of),
            Expr::IsNotNull(of) => unary(Unary::IsNotNull, of),
            Expr::IsTrue(of) => unary(Unary::IsTrue, of),
            Expr::IsNotTrue(of) => unary(Unary::IsNotTrue, of),
            Expr::IsFalse(of) => unary(Unary::IsFalse, of),
            Expr::IsNotFalse(of) => unary(Unary::IsNotFalse, of),
            Expr::IsUnknown(of) => unary(Unary::IsUnknown, of),
            Expr::IsNotUnknown(of) => unary(Unary::IsNotUnknown, of),
            Expr::Like(Like { negated, expr, pattern, escape_char, case_insensitive }) => {
                let expr = Box::new(of(expr)?);
                let (pattern, any_case) = (Box::new(of(pattern)?), *case_insensitive);
                Ok(Self::Like { of: expr, pattern, escape: *escape_char, negated: *negated, any_case })
            }
            Expr::Between(between) => {
                let (low, high) = ((*between.expr).clone().gt_eq((*between.low).clone()), &between.high);
                let within = low.and((*between.expr).clone().lt_eq((**high).clone()));
                of(&if between.negated { within_not(within) } else { within })
            }
            Expr::Case(Case { expr, when_then_expr, else_expr }) => {
                let compared = expr.as_ref().map(|expr| of(expr).map(Box::new)).transpose()?;
                let when = when_then_expr.iter().map(|(when, then)| Ok((of(when)?, of(then)?)));
                let when = when.collect::<Result<_, NoScalar>>()?;
                let otherwise = else_expr.as_ref().map(|expr| of(expr).map(Box::new)).transpose()?;
                Ok(Self::Case { of: compared, when, otherwise })
            }
            Expr::Cast(Cast { expr, field }) => {
                let of = Box::new(of(expr)?);
                Ok(Self::Cast { of, to: constants.add_type(field.data_type()), tries: false })
            }
            Expr::TryCast(TryCast { expr, field }) => {
                let of = Box::new(of(expr)?);
                Ok(Self::Cast { of, to: constants.add_type(field.data_type()), tries: true })
            }
            Expr::InList(InList { expr, list, negated }) => {
                let expr = Box::new(of(expr)?);
                let among = list.iter().map(of).collect::<Result<_, _>>()?;
                Ok(Self::In { of: expr, among, negated: *negated })
            }
            Expr::ScalarFunction(ScalarFunction { func, args }) => {
                let name = func.name();
                if func.signature().volatility != Volatility::Immutable {
                    return Err(NoScalar::Volatile { name: name.to_owned() });
                }
                if GROWS.contains(&name) {
                    let by = args.get(1).and_then(|by| match by {
                        Expr::Literal(value, _) => value.to_string().parse::<u64>().ok(),
                        _ => None,
                    });
                    if by.is_none_or(|by| by > GROWTH_MAX) {
                        return Err(NoScalar::Grows { name: name.to_owned() });
                    }
                }
                if !FUNCTIONS.contains_key(name) {
                    return Err(NoScalar::NoOperator { what: format!("the function {name}()") });
                }
                Ok(Self::Call(name.to_owned(), args.iter().map(of).collect::<Result<_, _>>()?))
            }
            other => Err(NoScalar::NoOperator { what: other.to_string() }),
        }
    }

    /// The same as DataFusion has it, over columns of these names. `None`: there is no such column, constant, operator or function.
    pub fn expression(&self, reads: &[String], constants: &Constants) -> Option<Expr> {
        let of = |scalar: &Self| scalar.expression(reads, constants);
        let boxed = |scalar: &Self| of(scalar).map(Box::new);
        Some(match self {
            Self::Column(at) => Expr::Column(Column::new_unqualified(reads.get(*at as usize)?.clone())),
            Self::Constant(place) => Expr::Literal(constants.value(*place)?, None),
            Self::Binary(left, operator, right) => {
                let op = OPERATORS.into_iter().find(|known| known.to_string() == *operator)?;
                Expr::BinaryExpr(BinaryExpr { left: boxed(left)?, op, right: boxed(right)? })
            }
            Self::Unary(unary, scalar) => unary.expression(boxed(scalar)?),
            Self::Like { of, pattern, escape, negated, any_case } => Expr::Like(Like {
                negated: *negated,
                expr: boxed(of)?,
                pattern: boxed(pattern)?,
                escape_char: *escape,
                case_insensitive: *any_case,
            }),
            Self::Case { of: compared, when, otherwise } => {
                let optional = |scalar: &Option<Box<Self>>| match scalar {
                    None => Some(None),
                    Some(scalar) => boxed(scalar).map(Some),
                };
                let when = when.iter().map(|(when, then)| Some((boxed(when)?, boxed(then)?)));
                Expr::Case(Case {
                    expr: optional(compared)?,
                    when_then_expr: when.collect::<Option<_>>()?,
                    else_expr: optional(otherwise)?,
                })
            }
            Self::Cast { of, to, tries: false } => Expr::Cast(Cast::new(boxed(of)?, constants.data_type(*to)?)),
            Self::Cast { of, to, tries: true } => Expr::TryCast(TryCast::new(boxed(of)?, constants.data_type(*to)?)),
            Self::In { of: compared, among, negated } => {
                let list = among.iter().map(of).collect::<Option<_>>()?;
                Expr::InList(InList { expr: boxed(compared)?, list, negated: *negated })
            }
            Self::Call(name, arguments) => Expr::ScalarFunction(ScalarFunction {
                func: FUNCTIONS.get(name)?.clone(),
                args: arguments.iter().map(of).collect::<Option<_>>()?,
            }),
        })
    }

    /// Whether it makes long texts of short ones.
    pub fn grows(&self) -> bool {
        match self {
            Self::Column(_) | Self::Constant(_) => false,
            Self::Binary(left, _, right) => left.grows() || right.grows(),
            Self::Unary(_, one) | Self::Cast { of: one, .. } => one.grows(),
            Self::Like { of, pattern, .. } => of.grows() || pattern.grows(),
            Self::Case { of, when, otherwise } => {
                let parts = when.iter().flat_map(|(when, then)| [when, then]);
                parts.chain(of.as_deref()).chain(otherwise.as_deref()).any(Self::grows)
            }
            Self::In { of, among, .. } => among.iter().chain([of.as_ref()]).any(Self::grows),
            Self::Call(name, arguments) => GROWS.contains(&name.as_str()) || arguments.iter().any(Self::grows),
        }
    }

    /// How deep its parts lie in each other.
    pub fn depth(&self) -> usize {
        let of = |parts: &mut dyn Iterator<Item = &Self>| 1 + parts.map(Self::depth).max().unwrap_or(0);
        match self {
            Self::Column(_) | Self::Constant(_) => 1,
            Self::Binary(left, _, right) => of(&mut [left.as_ref(), right.as_ref()].into_iter()),
            Self::Unary(_, one) | Self::Cast { of: one, .. } => of(&mut std::iter::once(one.as_ref())),
            Self::Like { of: one, pattern, .. } => of(&mut [one.as_ref(), pattern.as_ref()].into_iter()),
            Self::Case { of: compared, when, otherwise } => {
                let parts = when.iter().flat_map(|(when, then)| [when, then]);
                of(&mut parts.chain(compared.as_deref()).chain(otherwise.as_deref()))
            }
            Self::In { of: one, among, .. } => of(&mut among.iter().chain([one.as_ref()])),
            Self::Call(_, arguments) => of(&mut arguments.iter()),
        }
    }
}

/// Conditions with an operator between them that does not see in which order it is done.
fn halved(parts: &[Scalar], operator: &str) -> Scalar {
    match parts {
        [one] => one.clone(),
        _ => {
            let (left, right) = parts.split_at(parts.len() / 2);
            Scalar::Binary(Box::new(halved(left, operator)), operator.to_owned(), Box::new(halved(right, operator)))
        }
    }
}

impl Unary {
    fn expression(self, of: Box<Expr>) -> Expr {
        match self {
            Self::Not => Expr::Not(of),
            Self::Negative => Expr::Negative(of),
            Self::IsNull => Expr::IsNull(of),
            Self::IsNotNull => Expr::IsNotNull(of),
            Self::IsTrue => Expr::IsTrue(of),
            Self::IsNotTrue => Expr::IsNotTrue(of),
            Self::IsFalse => Expr::IsFalse(of),
            Self::IsNotFalse => Expr::IsNotFalse(of),
            Self::IsUnknown => Expr::IsUnknown(of),
            Self::IsNotUnknown => Expr::IsNotUnknown(of),
        }
    }
}

fn within_not(within: Expr) -> Expr {
    Expr::Not(Box::new(within))
}
