//! Conditions of SQL as those of tables, where they mean the same: what files say of themselves decides then which parts of them are read at all.

use arrow_schema::{DataType, Schema};
use datafusion_common::ScalarValue;
use datafusion_expr::expr::{BinaryExpr, InList, Like};
use datafusion_expr::utils::split_conjunction_owned;
use datafusion_expr::{Expr, Operator};
use exobus_tables::expression::{Column, Expression, Literal, col};

/// Most values of an `IN` that become one of a condition of tables.
const AMONG_MAX: usize = 1000;

/// Conditions that rows of this schema have to meet, all of them: those that tables have, as one, and the others.
pub(crate) fn split(conditions: Vec<Expr>, schema: &Schema) -> (Option<Expression>, Vec<Expr>) {
    let (mut filter, mut others) = (None::<Expression>, Vec::new());
    for condition in conditions.into_iter().flat_map(split_conjunction_owned) {
        match expression(&condition, schema) {
            // One that is too long, or lies too deep, is none.
            Some(one) => match filter.clone().map_or(one.clone(), |filter| filter.and(one)) {
                both if both.to_string().parse::<Expression>().is_ok() => filter = Some(both),
                _ => others.push(condition),
            },
            None => others.push(condition),
        }
    }
    (filter, others)
}

/// The same condition of tables; `None`: there is none.
pub(crate) fn expression(condition: &Expr, schema: &Schema) -> Option<Expression> {
    let of = |condition: &Expr| expression(condition, schema);
    match condition {
        Expr::Alias(alias) => of(&alias.expr),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => Some(of(left)?.and(of(right)?)),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => Some(of(left)?.or(of(right)?)),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (column, value, op) = match (left.as_ref(), right.as_ref()) {
                (column, Expr::Literal(value, _)) => (column, value, *op),
                (Expr::Literal(value, _), column) => (column, value, op.swap()?),
                _ => return None,
            };
            let (column, data_type) = compared(column, schema)?;
            let (column, value) = (named(column, schema)?, literal(value, &data_type)?);
            Some(match op {
                Operator::Eq => column.eq(value),
                Operator::NotEq => column.ne(value),
                Operator::Lt => column.lt(value),
                Operator::LtEq => column.le(value),
                Operator::Gt => column.gt(value),
                Operator::GtEq => column.ge(value),
                _ => return None,
            })
        }
        Expr::Not(one) => Some(of(one)?.not()),
        Expr::IsNull(one) => Some(named(one, schema)?.is_null()),
        Expr::IsNotNull(one) => Some(named(one, schema)?.is_not_null()),
        Expr::Column(_) if column_type(condition, schema)? == DataType::Boolean => {
            Some(named(condition, schema)?.is_true())
        }
        Expr::InList(InList { expr, list, negated }) if !list.is_empty() && list.len() <= AMONG_MAX => {
            let (expr, data_type) = compared(expr, schema)?;
            let value = |one: &Expr| match one {
                Expr::Literal(value, _) => literal(value, &data_type),
                _ => None,
            };
            let among = named(expr, schema)?.is_in(list.iter().map(value).collect::<Option<Vec<_>>>()?);
            Some(if *negated { among.not() } else { among })
        }
        Expr::Like(Like { negated, expr, pattern, case_insensitive: false, .. }) => {
            let Expr::Literal(ScalarValue::Utf8View(Some(pattern)) | ScalarValue::Utf8(Some(pattern)), _) =
                pattern.as_ref()
            else {
                return None;
            };
            if column_type(expr, schema)? != DataType::Utf8View {
                return None;
            }
            let column = named(expr, schema)?;
            // A backslash takes their meaning from others there (`dialect`), and is one as others are in conditions of tables.
            let like = if pattern.contains('\\') {
                let like = column.like_escaped(pattern.clone(), '\\');
                // What is behind it may be anything there.
                like.to_string().parse::<Expression>().ok()?;
                like
            } else {
                column.like(pattern.clone())
            };
            Some(if *negated { like.not() } else { like })
        }
        _ => None,
    }
}

/// A column by a name that is no path.
fn named(column: &Expr, schema: &Schema) -> Option<Column> {
    let Expr::Column(column) = column else { return None };
    let is_plain = !column.name.contains('.') && schema.index_of(&column.name).is_ok();
    is_plain.then(|| col(&column.name))
}

/// A column, and the type of which values are that it is compared with: days are compared with times as they are.
fn compared<'a>(expression: &'a Expr, schema: &Schema) -> Option<(&'a Expr, DataType)> {
    match expression {
        Expr::Cast(cast) if matches!(cast.field.data_type(), DataType::Timestamp(_, None)) => {
            let is_day = column_type(&cast.expr, schema)? == DataType::Date32;
            is_day.then(|| (cast.expr.as_ref(), cast.field.data_type().clone()))
        }
        column => Some((column, column_type(column, schema)?)),
    }
}

fn column_type(column: &Expr, schema: &Schema) -> Option<DataType> {
    let Expr::Column(column) = column else { return None };
    Some(schema.field_with_name(&column.name).ok()?.data_type().clone())
}

/// A value of the type of a column. Of floats there are literals of 64 bits: narrower ones would be compared as those that are nearest.
fn literal(value: &ScalarValue, data_type: &DataType) -> Option<Literal> {
    if value.is_null() || value.data_type() != *data_type {
        return None;
    }
    let text = || Some(value.cast_to(&DataType::Utf8).ok()?.try_as_str()??.to_owned());
    Some(match value {
        ScalarValue::Boolean(Some(value)) => Literal::Bool(*value),
        ScalarValue::Utf8View(Some(text)) => Literal::Text(text.clone()),
        ScalarValue::Date32(_) => Literal::Date(text()?),
        ScalarValue::TimestampSecond(_, None)
        | ScalarValue::TimestampMillisecond(_, None)
        | ScalarValue::TimestampMicrosecond(_, None)
        | ScalarValue::TimestampNanosecond(_, None) => Literal::Timestamp(text()?.replace('T', " ")),
        ScalarValue::Float64(Some(value)) if value.is_finite() => Literal::Number(format!("{value:e}")),
        _ if data_type.is_integer() || data_type.is_decimal() => Literal::Number(text()?),
        _ => return None,
    })
}
