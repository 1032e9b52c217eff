//! What SQL means here where DataFusion means something else. It is said before the types of a plan are made equal:
//!
//! - a decimal that meets a float is a float, as in DuckDB, PostgreSQL and Spark: `0.5` beside a column of floats is the float. DataFusion makes decimals of floats, which rounds small ones to zero and has no room for large ones;
//! - the negative of a whole number that has none in its type is an error, as a difference is;
//! - what `CASE x WHEN ..` and `nullif` compare is compared as by `=`: a zero has no sign;
//! - a duration is compared with an interval of days and less as with a duration; other intervals have no order;
//! - a time with a zone is compared with no time without one;
//! - in a pattern nothing takes their meaning from `%` and `_` unless `ESCAPE '!'` says what does;
//! - a day that is compared with a time is a time.

use std::sync::Arc;

use datafusion_common::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion_common::tree_node::{Transformed, TreeNode as _};
use datafusion_common::{Column, DFSchema, DataFusionError, ScalarValue, plan_err};
use datafusion_expr::expr::{BinaryExpr, InSubquery, Like, ScalarFunction, SetComparison};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::type_coercion::binary::type_union_resolution;
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{
    Between, Case, Expr, ExprSchemable as _, Join, LogicalPlan, Operator, Projection, Subquery, Union, binary_expr,
    cast, lit,
};
use datafusion_functions::string::expr_fn::replace;

use crate::text::{DIGITS, TimeOfDay};

/// The same plan, as it is meant here.
///
/// # Errors
/// What is compared that does not compare; DataFusion's.
pub(crate) fn as_meant(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let of_plan = |plan: LogicalPlan| {
        let schema = merge_schema(&plan.inputs());
        let names = NamePreserver::new(&plan);
        let of_expression = |expression: Expr| {
            let name = names.save(&expression);
            let expression = expression.transform_up(|expression| {
                let spelled = spelled_out(expression, &schema)?;
                spelled.transform_data(|expression| met(expression, &schema))
            })?;
            Ok(expression.update_data(|expression| name.restore(expression)))
        };
        plan.map_expressions(of_expression)?.transform_data(rows_met)?.map_data(LogicalPlan::recompute_schema)
    };
    Ok(plan.transform_up_with_subqueries(of_plan)?.data)
}

fn type_of(expression: &Expr, schema: &DFSchema) -> Option<DataType> {
    expression.get_type(schema).ok()
}

/// An expression by others that say the same with less of a meaning of their own.
fn spelled_out(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>, DataFusionError> {
    let is_float = |one: &Expr| type_of(one, schema).is_some_and(|data_type| data_type.is_floating());
    let equal = |mut one: Expr, mut other: Expr| {
        compared([&mut one, &mut other], schema)?;
        Ok::<_, DataFusionError>(Box::new(binary_expr(one, Operator::Eq, other)))
    };
    Ok(match expression {
        Expr::Negative(of) => {
            let whole = type_of(&of, schema).filter(DataType::is_signed_integer);
            match whole.and_then(|whole| ScalarValue::new_zero(&whole).ok()) {
                Some(zero) => Transformed::yes(binary_expr(lit(zero), Operator::Minus, *of)),
                None => Transformed::no(Expr::Negative(of)),
            }
        }
        Expr::Case(Case { expr: Some(of), when_then_expr, else_expr })
            if is_float(&of) || when_then_expr.iter().any(|(when, _)| is_float(when)) =>
        {
            let whens = when_then_expr.into_iter().map(|(when, then)| Ok((equal((*of).clone(), *when)?, then)));
            let when_then_expr = whens.collect::<Result<_, DataFusionError>>()?;
            Transformed::yes(Expr::Case(Case { expr: None, when_then_expr, else_expr }))
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "nullif" && args.iter().any(is_float) => {
            match <[Expr; 2]>::try_from(args) {
                Ok([one, other]) => {
                    let is_other = equal(one.clone(), other)?;
                    let null = Box::new(lit(ScalarValue::Null));
                    let case =
                        Case { expr: None, when_then_expr: vec![(is_other, null)], else_expr: Some(Box::new(one)) };
                    Transformed::yes(Expr::Case(case))
                }
                Err(args) => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
            }
        }
        Expr::Like(like) => Transformed::yes(backslashed(like)?),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::LikeMatch | Operator::ILikeMatch | Operator::NotLikeMatch | Operator::NotILikeMatch => {
                let negated = matches!(op, Operator::NotLikeMatch | Operator::NotILikeMatch);
                let ignores_case = matches!(op, Operator::ILikeMatch | Operator::NotILikeMatch);
                Transformed::yes(backslashed(Like::new(negated, left, right, None, ignores_case))?)
            }
            Operator::RegexMatch | Operator::RegexIMatch | Operator::RegexNotMatch | Operator::RegexNotIMatch => {
                let pattern = Box::new(as_regex(*right)?);
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right: pattern }))
            }
            op => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
        },
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if func.name() == "regexp_like" && args.len() > 1 => {
            args[1] = as_regex(std::mem::take(&mut args[1]))?;
            Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
        }
        other => Transformed::no(other),
    })
}

/// A regular expression that stays one: DataFusion makes a pattern of `LIKE` of one that has a backslash, in which that takes the meaning from what is behind it.
fn as_regex(pattern: Expr) -> Result<Expr, DataFusionError> {
    match text_of(&pattern) {
        Some(text) if text.contains(BACKSLASH) => {
            let text = format!("({text})");
            with_text(pattern, text)
        }
        _ => Ok(pattern),
    }
}

/// A literal of the same type with another text.
fn with_text(literal: Expr, text: String) -> Result<Expr, DataFusionError> {
    let Expr::Literal(value, metadata) = literal else { return Ok(literal) };
    Ok(Expr::Literal(ScalarValue::Utf8(Some(text)).cast_to(&value.data_type())?, metadata))
}

/// A comparison with a pattern in which a backslash takes their meaning from `%` and `_`.
fn backslashed(like: Like) -> Result<Expr, DataFusionError> {
    let pattern = Box::new(with_backslashes(*like.pattern, like.escape_char)?);
    Ok(Expr::Like(Like { pattern, escape_char: Some(BACKSLASH), ..like }))
}

/// What takes their meaning from `%` and `_` in patterns of DataFusion.
const BACKSLASH: char = '\\';

/// A pattern in which a backslash does that, of one in which another character does, or none.
fn with_backslashes(pattern: Expr, escape: Option<char>) -> Result<Expr, DataFusionError> {
    if let Some(text) = text_of(&pattern) {
        let (mut made, mut characters) = (String::new(), text.chars());
        while let Some(character) = characters.next() {
            let taken = if Some(character) == escape { characters.next() } else { None };
            match (character, taken) {
                (_, Some(taken)) if matches!(taken, '%' | '_' | BACKSLASH) => made.extend([BACKSLASH, taken]),
                (_, Some(taken)) if Some(taken) == escape => made.push(taken),
                (character, _) if Some(character) == escape => {
                    return plan_err!("behind {character} in the pattern stands %, _ or {character}");
                }
                (BACKSLASH, _) => made.extend([BACKSLASH; 2]),
                (character, _) => made.push(character),
            }
        }
        return with_text(pattern, made);
    }
    match escape {
        // A null, which no text is like.
        _ if matches!(pattern, Expr::Literal(..)) => Ok(pattern),
        None => Ok(replace(pattern, lit("\\"), lit("\\\\"))),
        Some(BACKSLASH) => Ok(pattern),
        Some(_) => plan_err!("ESCAPE belongs to a pattern that is a text in quotes"),
    }
}

/// The widest float among types of which one is a decimal.
fn float_among(types: impl IntoIterator<Item = Option<DataType>>) -> Option<DataType> {
    let (mut float, mut has_decimal) = (None::<DataType>, false);
    for data_type in types.into_iter().flatten() {
        has_decimal |= data_type.is_decimal();
        if data_type.is_floating() {
            float = float.max(Some(data_type));
        }
    }
    float.filter(|_| has_decimal)
}

/// The type of what is chosen among numbers of several types: the widest float, if one is a float; or that which has all of them. What is chosen has the type of the first one until types are made equal, and that
/// may be another one.
fn chosen_type(types: impl IntoIterator<Item = Option<DataType>>) -> Option<DataType> {
    let types = types.into_iter().filter(|data_type| *data_type != Some(DataType::Null)).collect::<Option<Vec<_>>>()?;
    let are_mixed = types.iter().all(DataType::is_numeric) && types.iter().any(|data_type| *data_type != types[0]);
    let float = types.iter().filter(|data_type| data_type.is_floating()).max().cloned();
    are_mixed.then(|| float.or_else(|| type_union_resolution(&types))).flatten()
}

/// Functions that choose among their arguments.
const CHOOSE: [&str; 6] = ["coalesce", "nvl", "ifnull", "greatest", "least", "nullif"];

/// What an expression compares, or chooses among, as numbers of one type where that matters.
fn met(mut expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>, DataFusionError> {
    let mut is_changed = false;
    match &mut expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            is_changed = compared([left.as_mut(), right.as_mut()], schema)?;
        }
        Expr::Between(Between { expr, low, high, .. }) => {
            is_changed = compared([expr.as_mut(), low.as_mut(), high.as_mut()], schema)?;
        }
        Expr::InList(list) => {
            is_changed = compared(std::iter::once(list.expr.as_mut()).chain(&mut list.list), schema)?;
        }
        Expr::Case(Case { expr, when_then_expr, else_expr }) => {
            let (mut whens, mut chosen) = (Vec::new(), Vec::new());
            for (when, then) in when_then_expr {
                whens.push(when.as_mut());
                chosen.push(then.as_mut());
            }
            chosen.extend(else_expr.as_deref_mut());
            is_changed = all_chosen(chosen, schema);
            if let Some(expr) = expr {
                is_changed |= compared(std::iter::once(expr.as_mut()).chain(whens), schema)?;
            }
        }
        Expr::ScalarFunction(function) if CHOOSE.contains(&function.func.name()) => {
            is_changed = all_chosen(&mut function.args, schema);
        }
        Expr::InSubquery(InSubquery { expr, subquery, .. })
        | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
            let types = [type_of(expr, schema), Some(subquery.subquery.schema().field(0).data_type().clone())];
            check_compared(&types)?;
            if let Some(float) = float_among(types) {
                is_changed = as_number(expr, schema, &float);
                let rows = columns_as(subquery.subquery.clone(), &[Some(float)])?;
                *subquery = Subquery { subquery: rows, ..subquery.clone() };
            }
        }
        _ => (),
    }
    Ok(Transformed::new_transformed(expression, is_changed))
}

/// Makes ready what is compared with each other.
fn compared<'a>(
    expressions: impl IntoIterator<Item = &'a mut Expr>,
    schema: &DFSchema,
) -> Result<bool, DataFusionError> {
    let mut expressions: Vec<&mut Expr> = expressions.into_iter().collect();
    let mut types: Vec<Option<DataType>> = expressions.iter().map(|one| type_of(one, schema)).collect();
    let mut is_changed = false;
    let duration = types.iter().flatten().find_map(|one| match one {
        DataType::Duration(unit) => Some(*unit),
        _ => None,
    });
    if let Some(unit) = duration {
        for (one, data_type) in expressions.iter_mut().zip(&mut types) {
            if matches!(data_type, Some(DataType::Interval(_)))
                && let Some(value) = as_duration(one, unit)
            {
                (**one, *data_type) = (lit(value), Some(DataType::Duration(unit)));
                is_changed = true;
            }
        }
    }
    check_compared(&types)?;
    check_zones(&expressions, &types)?;
    is_changed |= days_as_times(&mut expressions, &mut types);
    Ok(all_as(expressions, schema, float_among(types)) | is_changed)
}

/// Why times with a zone and without one do not compare.
const ZONES: &str =
    "a time with a zone is compared with one without: `t AT TIME ZONE 'UTC'` gives that one, TIMESTAMPTZ '..' has one";

/// The text of a literal.
fn text_of(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Literal(value, _) => value.try_as_str()?,
        _ => None,
    }
}

/// Refuses a text with a zone beside days and times without one, as a time with one is refused.
fn check_zones(expressions: &[&mut Expr], types: &[Option<DataType>]) -> Result<(), DataFusionError> {
    let is_local = |one: &DataType| matches!(one, DataType::Timestamp(_, None) | DataType::Date32);
    let has_zone = |one: &&mut Expr| text_of(one).and_then(TimeOfDay::of).is_some_and(|written| written.has_zone);
    match types.iter().flatten().any(is_local) && expressions.iter().any(has_zone) {
        true => plan_err!("{ZONES}"),
        false => Ok(()),
    }
}

/// Makes times of days that are compared with times, of as many digits of a second, six at least: so there are days of all years. A text that has a time of day is one.
fn days_as_times(expressions: &mut [&mut Expr], types: &mut [Option<DataType>]) -> bool {
    let is_day = |data_type: &Option<DataType>| *data_type == Some(DataType::Date32);
    if !types.iter().any(is_day) {
        return false;
    }
    let written = |one: &&mut Expr| {
        let digits = text_of(one).and_then(TimeOfDay::of)?.digits;
        Some(if digits > DIGITS { TimeUnit::Nanosecond } else { TimeUnit::Microsecond })
    };
    let typed = |data_type: &Option<DataType>| match data_type {
        Some(DataType::Timestamp(unit, None)) => Some((*unit).max(TimeUnit::Microsecond)),
        _ => None,
    };
    let units = expressions.iter().filter_map(written).chain(types.iter().filter_map(typed));
    let Some(unit) = units.max() else { return false };
    let of_unit = DataType::Timestamp(unit, None);
    for (one, data_type) in expressions.iter_mut().zip(types) {
        match &mut **one {
            Expr::Literal(value, _)
                if value.try_as_str().is_some()
                    && let Ok(time) = value.cast_to(&of_unit) =>
            {
                *value = time;
            }
            _ if is_day(data_type) => **one = cast(std::mem::take(&mut **one), of_unit.clone()),
            _ => continue,
        }
        *data_type = Some(of_unit.clone());
    }
    true
}

/// Refuses what does not compare.
fn check_compared(types: &[Option<DataType>]) -> Result<(), DataFusionError> {
    let has = |is_one: &dyn Fn(&DataType) -> bool| types.iter().flatten().any(is_one);
    let has_zone = has(&|one| matches!(one, DataType::Timestamp(_, Some(_))));
    if has_zone && has(&|one| matches!(one, DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64)) {
        return plan_err!("{ZONES}");
    }
    if has(&|one| matches!(one, DataType::Interval(_))) {
        return plan_err!(
            "intervals have no order here: a month is as long as the one that it is, so compare times, `a > b + INTERVAL '5 days'`"
        );
    }
    Ok(())
}

/// An interval of days and less as a duration; `None`: it is none, or is not known before there are rows.
fn as_duration(interval: &Expr, unit: TimeUnit) -> Option<ScalarValue> {
    let Expr::Literal(value, _) = interval else { return None };
    let value = value.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano)).ok()?;
    let ScalarValue::IntervalMonthDayNano(Some(value)) = value else { return None };
    let nanos = i128::from(value.days) * (86_400 * 1_000_000_000) + i128::from(value.nanoseconds);
    let (of_unit, duration): (i128, fn(Option<i64>) -> ScalarValue) = match unit {
        TimeUnit::Second => (1_000_000_000, ScalarValue::DurationSecond),
        TimeUnit::Millisecond => (1_000_000, ScalarValue::DurationMillisecond),
        TimeUnit::Microsecond => (1000, ScalarValue::DurationMicrosecond),
        TimeUnit::Nanosecond => (1, ScalarValue::DurationNanosecond),
    };
    let is_whole = value.months == 0 && nanos % of_unit == 0;
    is_whole.then(|| i64::try_from(nanos / of_unit).ok()).flatten().map(|count| duration(Some(count)))
}

/// Makes ready what is chosen among.
fn all_chosen<'a>(expressions: impl IntoIterator<Item = &'a mut Expr>, schema: &DFSchema) -> bool {
    let expressions: Vec<&mut Expr> = expressions.into_iter().collect();
    let to = chosen_type(expressions.iter().map(|one| type_of(one, schema)));
    all_as(expressions, schema, to)
}

/// Makes numbers of a type of all expressions that are numbers of another one; whether there are any.
fn all_as(expressions: Vec<&mut Expr>, schema: &DFSchema, to: Option<DataType>) -> bool {
    let Some(to) = to else { return false };
    expressions.into_iter().fold(false, |is_changed, expression| as_number(expression, schema, &to) | is_changed)
}

/// Makes a number of a type of an expression that is one of another type.
fn as_number(expression: &mut Expr, schema: &DFSchema, to: &DataType) -> bool {
    let is_other = type_of(expression, schema).is_some_and(|data_type| data_type.is_numeric() && data_type != *to);
    if is_other {
        *expression = match std::mem::take(expression) {
            Expr::Literal(value, metadata) if let Ok(value) = value.cast_to(to) => Expr::Literal(value, metadata),
            other => cast(other, to.clone()),
        };
    }
    is_other
}

/// The same for rows that come together.
fn rows_met(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>, DataFusionError> {
    match plan {
        LogicalPlan::Union(Union { inputs, .. }) => {
            let columns = inputs[0].schema().fields().len();
            let of_column = |input: &Arc<LogicalPlan>, column: usize| {
                input.schema().fields().get(column).map(|field| field.data_type().clone())
            };
            let types: Vec<Option<DataType>> =
                (0..columns).map(|column| chosen_type(inputs.iter().map(|input| of_column(input, column)))).collect();
            let inputs = inputs.into_iter().map(|input| columns_as(input, &types)).collect::<Result<_, _>>()?;
            // Its own schema has the types of the first of them.
            Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
        }
        LogicalPlan::Join(mut join) => {
            let Join { left, right, on, .. } = &mut join;
            for (of_left, of_right) in on {
                let mut types = [type_of(of_left, left.schema()), type_of(of_right, right.schema())];
                check_compared(&types)?;
                days_as_times(&mut [&mut *of_left, &mut *of_right], &mut types);
                if let Some(float) = float_among(types) {
                    as_number(of_left, left.schema(), &float);
                    as_number(of_right, right.schema(), &float);
                }
            }
            Ok(Transformed::yes(LogicalPlan::Join(join)))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Rows whose columns are numbers of these types where they are numbers.
fn columns_as(rows: Arc<LogicalPlan>, types: &[Option<DataType>]) -> Result<Arc<LogicalPlan>, DataFusionError> {
    let schema = rows.schema().clone();
    let mut is_changed = false;
    let of_column = |(column, to): (Column, &Option<DataType>)| {
        let (relation, name) = (column.relation.clone(), column.name.clone());
        let mut expression = Expr::Column(column);
        match to {
            Some(to) if as_number(&mut expression, &schema, to) => {
                is_changed = true;
                expression.alias_qualified(relation, name)
            }
            _ => expression,
        }
    };
    let columns: Vec<Expr> = schema.columns().into_iter().zip(types).map(of_column).collect();
    Ok(if is_changed { Arc::new(LogicalPlan::Projection(Projection::try_new(columns, rows)?)) } else { rows })
}
