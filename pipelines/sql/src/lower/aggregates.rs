//! Groups.

use std::sync::Arc;

use arrow_schema::{DataType, Schema};
use datafusion_common::tree_node::{Transformed, TreeNode as _};
use datafusion_common::{Column, DFSchema, ScalarValue};
use datafusion_expr::expr::{AggregateFunction, AggregateFunctionParams, BinaryExpr, InList};
use datafusion_expr::{Expr, ExprSchemable as _, Operator, cast, lit, logical_plan, when};
use exobus_queries::online::{OfAggregates, OnlineKey, OnlineValue, is_chosen_at_the_end};
use exobus_tables::aggregates::{Aggregate, Function};
use exobus_tables::expression::Expression;

use super::projected::Projected;
use super::relation::Relation;
use super::{Draft, Group, Input, Lowering};
use crate::SqlError;
use crate::conditions;
use crate::plan::Origin;
use crate::rows::{viewed, viewed_type};

impl Lowering<'_> {
    pub(super) fn aggregate(&mut self, aggregate: &logical_plan::Aggregate) -> Result<Relation, SqlError> {
        let relation = self.relation(&aggregate.input)?;
        let relation = self.whole(relation)?;
        let in_schema = aggregate.input.schema();
        let mut columns = Projected::default();
        let (mut by, mut outputs) = (Vec::<String>::new(), Vec::new());
        for expr in &aggregate.group_expr {
            if let Expr::GroupingSet(_) = expr {
                let what = "ROLLUP, CUBE and GROUPING SETS have no operator here: a query for each, with UNION ALL between them, does the same";
                return Err(SqlError::new(what).about(&["rollup", "cube", "grouping sets"]));
            }
            let name = columns.add(&relation.over(expr, in_schema)?, "g");
            if !by.contains(&name) {
                by.push(name.clone());
            }
            outputs.push(column(&name));
        }
        let mut aggregates = Vec::<Aggregate>::new();
        for expr in &aggregate.aggr_expr {
            let (function, argument) = function(expr)?;
            let argument = argument.map(|argument| relation.over(&argument, in_schema)).transpose()?;
            let argument = argument.map(|argument| columns.add(&argument, "a"));
            aggregates.push(Aggregate::new(function, argument));
        }
        let mut number = 0;
        for aggregate in &mut aggregates {
            let call = aggregate.name.clone();
            while aggregate.name == call || columns.is_taken(&aggregate.name) {
                number += 1;
                aggregate.name = format!("{call} {number}");
            }
            outputs.push(column(&aggregate.name));
        }
        let read = columns.schema(&relation.schema)?;
        let mut fields: Vec<_> = by.iter().filter_map(|name| read.field_with_name(name).ok().cloned()).collect();
        for aggregate in &aggregates {
            let bound = aggregate.bind(&read).map_err(|error| SqlError::new(error.to_string()))?;
            fields.push(bound.output_field().with_nullable(true));
        }
        let schema = Arc::new(viewed(&Schema::new(fields)));
        let mut casts = Vec::new();
        for (output, field) in outputs.iter_mut().zip(aggregate.schema.fields()) {
            let Expr::Column(Column { name, .. }) = &*output else { continue };
            let (known, expected) = (schema.field_with_name(name).map(|known| known.data_type()), field.data_type());
            if known.is_ok_and(|known| *known != viewed_type(expected)) {
                casts.push((name.clone(), expected.clone()));
                *output = cast(output.clone(), expected.clone());
            }
        }
        let input = Input { selects: true, ..relation.read(columns) };
        self.drafts.push(Draft::Group(Group { input, by, aggregates, having: None, top: None, casts }));
        let origin = Origin::Steps(vec![self.drafts.len() - 1]);
        Ok(Relation { columns: outputs, ..Relation::of(origin, &schema, []) })
    }
}

/// Whether values of a type have what is behind the point, so that others stay what they are in it.
fn is_number(data_type: &DataType) -> bool {
    data_type.is_floating() || data_type.is_decimal()
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

/// What is left of 1, to as many digits as a part is written with: 0.1 of 0.9.
fn rest_of(part: f64) -> f64 {
    let digits = part.to_string().split_once('.').map_or(0, |(_, behind)| behind.len());
    format!("{:.digits$}", 1.0 - part).parse().unwrap_or(1.0 - part)
}

/// What is made a float of, or of another type.
fn without_cast(expr: &Expr) -> &Expr {
    if let Expr::Cast(cast) = expr { &cast.expr } else { expr }
}

/// What is asked of the values of a group, and of which; `None`: of rows.
fn function(expr: &Expr) -> Result<(Function, Option<Expr>), SqlError> {
    let AggregateFunction { func, params } = match expr {
        Expr::Alias(alias) => return function(&alias.expr),
        Expr::AggregateFunction(function) => function,
        other => return Err(SqlError::refused(other)),
    };
    let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment } = params;
    let name = func.name();
    let refused = |why: &str| Err(SqlError::new(format!("{expr}: {why}")).about(&[name]));
    let takes_part = matches!(name, "percentile_cont" | "quantile_cont");
    // As WITHIN GROUP (ORDER BY x) has it.
    let within = match (&order_by[..], &args[..]) {
        ([order], [first, ..]) if takes_part && (order.expr == *first || order.expr == *without_cast(first)) => {
            Some(order)
        }
        _ => None,
    };
    if !order_by.is_empty() && within.is_none() {
        return refused(
            "values of a group come in no order; row_number() OVER (PARTITION BY .. ORDER BY ..) = 1 leaves the first row of each",
        );
    }
    if null_treatment.is_some() {
        return refused(
            "IGNORE NULLS and RESPECT NULLS have no operator here: FILTER (WHERE .. IS NOT NULL) leaves nulls out",
        );
    }
    let is_of_several = args.len() > if takes_part { 2 } else { 1 };
    if filter.is_some() && matches!(name, "first_value" | "last_value") {
        return refused(
            "rows that are left out would count as the first and the last ones: leave them out in a subquery",
        );
    }
    let mut args = args.iter();
    let (argument, part) = (args.next().cloned(), args.next());
    let part = match part {
        Some(Expr::Literal(value, _)) => value.cast_to(&DataType::Float64).ok(),
        _ => None,
    };
    // Of values that fall, so large a part is as much less than all of them.
    let falls = within.is_some_and(|order| !order.asc);
    let is_of_rows = matches!(&argument, Some(Expr::Literal(value, _)) if !value.is_null());
    let function = match (name, distinct) {
        ("count", false) if is_of_rows && !is_of_several => {
            let of_rows = match filter {
                None => None,
                Some(filter) => Some(when((**filter).clone(), lit(1_i32)).end()?),
            };
            return Ok((Function::Count, of_rows));
        }
        ("count", false) => Function::Count,
        ("count", true) => Function::CountDistinct,
        ("min" | "bool_and", _) => Function::Min,
        ("max" | "bool_or", _) => Function::Max,
        (_, true) => return refused("of different values alone only how many they are is said, count(DISTINCT ..)"),
        ("sum", _) => Function::Sum,
        ("avg", _) => Function::Avg,
        ("var" | "var_sample" | "var_samp", _) => Function::Variance,
        ("var_pop" | "var_population", _) => Function::VariancePopulation,
        ("stddev" | "stddev_samp", _) => Function::Stddev,
        ("stddev_pop", _) => Function::StddevPopulation,
        ("median", _) => Function::QuantileCont(0.5),
        ("percentile_cont" | "quantile_cont", _) => match part {
            Some(ScalarValue::Float64(Some(part))) if (0.0..=1.0).contains(&part) => {
                Function::QuantileCont(if falls { rest_of(part) } else { part })
            }
            _ => return refused("the part is a number from 0 to 1"),
        },
        ("first_value", _) => Function::First,
        ("last_value", _) => Function::Last,
        _ if name.starts_with("approx_") => {
            return refused(
                "nothing is approximated that does not say how well: median, count(DISTINCT ..) and percentile_cont are exact",
            );
        }
        _ => return refused("there is no operator for it here"),
    };
    if is_of_several {
        return refused(
            "it takes one expression here, and there are several in the brackets: concat(a, '|', b) makes one of them",
        );
    }
    let argument = match (argument, filter) {
        (Some(argument), Some(filter)) => Some(when((**filter).clone(), argument).end()?),
        (argument, _) => argument,
    };
    Ok((function, argument))
}

/// A column of an answer of groups.
pub(super) enum AnswerColumn {
    /// It tells them apart.
    Key(OnlineKey),
    /// It says something of them.
    Value(OnlineValue),
}

impl Group {
    /// An expression over what is written of groups, as what is answered of them before they are known; `None`: it is of something else.
    pub(super) fn answered(&self, expr: &Expr, schema: &Schema) -> Option<AnswerColumn> {
        let is_called = |name: &str, expr: &Expr| matches!(expr, Expr::Column(column) if column.name == name);
        if let Some(key) = self.by.iter().position(|by| is_called(by, expr)) {
            return Some(AnswerColumn::Key(OnlineKey::Column(key)));
        }
        if let Some(value) = self.of_aggregates(expr, schema) {
            return Some(AnswerColumn::Value(OnlineValue::Estimated(value)));
        }
        let mut of: Vec<usize> = Vec::new();
        for column in expr.column_refs() {
            match self.aggregates.iter().position(|aggregate| aggregate.name == column.name) {
                Some(aggregate) => of.push(aggregate),
                None if self.by.contains(&column.name) => {}
                None => return None,
            }
        }
        of.sort_unstable();
        Some(match of.is_empty() {
            true => AnswerColumn::Key(OnlineKey::Computed),
            false => AnswerColumn::Value(OnlineValue::Computed(of)),
        })
    }

    /// Whether some of these are of an aggregate, or what the step itself chooses groups by is one, that is known when everything was read.
    pub(super) fn is_chosen_at_the_end<'a>(&self, by: impl Iterator<Item = &'a Expr>) -> bool {
        let columns = by.flat_map(Expr::column_refs).map(|column| column.name.as_str());
        is_chosen_at_the_end(&self.aggregates, (self.having.as_ref(), self.top.as_ref()), columns)
    }

    /// An expression over what is written of groups, as what is computed of their aggregates; `None`: estimates are not computed so. A quotient of whole numbers is cut off, which no estimate is.
    fn of_aggregates(&self, expr: &Expr, schema: &Schema) -> Option<OfAggregates> {
        let of = |expr: &Expr| self.of_aggregates(expr, schema).map(Box::new);
        let is_whole = |expr: &Expr| {
            let schema = DFSchema::try_from(schema.clone()).ok()?;
            Some(expr.get_type(&schema).ok()?.is_integer())
        };
        Some(match expr {
            Expr::Alias(alias) => return self.of_aggregates(&alias.expr, schema),
            Expr::Column(column) => {
                OfAggregates::Aggregate(self.aggregates.iter().position(|aggregate| aggregate.name == column.name)?)
            }
            Expr::Literal(value, _) if value.data_type().is_numeric() => {
                match value.cast_to(&DataType::Float64).ok()? {
                    ScalarValue::Float64(Some(value)) => OfAggregates::Number(value),
                    _ => return None,
                }
            }
            Expr::Cast(cast) if self.cast_of(expr).is_some() || is_number(cast.field.data_type()) => *of(&cast.expr)?,
            Expr::Negative(one) => OfAggregates::Difference(Box::new(OfAggregates::Number(0.0)), of(one)?),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::Plus => OfAggregates::Sum(of(left)?, of(right)?),
                Operator::Minus => OfAggregates::Difference(of(left)?, of(right)?),
                Operator::Multiply => OfAggregates::Product(of(left)?, of(right)?),
                Operator::Divide if !is_whole(expr)? => OfAggregates::Quotient(of(left)?, of(right)?),
                _ => return None,
            },
            _ => return None,
        })
    }

    /// What rows over what is written have to meet: as one condition of tables, and the others.
    pub(super) fn conditions(&self, relation: &Relation) -> (Option<Expression>, Vec<Expr>) {
        let of_own_type = |condition: &Expr| {
            let own = condition.clone().transform_up(|expr| Ok(self.with_own_type(expr, &relation.schema)));
            own.map_or_else(|_| condition.clone(), |own| own.data)
        };
        let (having, others) = conditions::split(relation.keep.iter().map(of_own_type).collect(), &relation.schema);
        if others.is_empty() { (having, others) } else { (None, relation.keep.clone()) }
    }

    /// A comparison of an aggregate of the type that the query has for it with constants, as one of the aggregate itself.
    fn with_own_type(&self, expr: Expr, schema: &Schema) -> Transformed<Expr> {
        let own = |of: &Expr| {
            let name = self.cast_of(of)?;
            let data_type = schema.field_with_name(&name).ok()?.data_type().clone();
            Some((column(&name), data_type))
        };
        let constant = |of: &Expr, own: &DataType| {
            let Expr::Literal(value, _) = of else { return None };
            // A type that does not have the value has another one for it, or none.
            let other = value.cast_to(own).ok()?;
            (other.cast_to(&value.data_type()).ok()? == *value).then(|| Expr::Literal(other, None))
        };
        let compared = |one: &Expr, other: &Expr| {
            let (column, data_type) = own(one)?;
            Some((Box::new(column), Box::new(constant(other, &data_type)?)))
        };
        let changed = match &expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (compared(left, right), compared(right, left)) {
                (Some((left, right)), _) => Some(Expr::BinaryExpr(BinaryExpr { left, op: *op, right })),
                (_, Some((right, left))) => Some(Expr::BinaryExpr(BinaryExpr { left, op: *op, right })),
                _ => None,
            },
            Expr::InList(InList { expr, list, negated }) => own(expr).and_then(|(column, data_type)| {
                let list = list.iter().map(|one| constant(one, &data_type)).collect::<Option<_>>()?;
                Some(Expr::InList(InList { expr: Box::new(column), list, negated: *negated }))
            }),
            Expr::IsNull(of) => own(of).map(|(column, _)| Expr::IsNull(Box::new(column))),
            Expr::IsNotNull(of) => own(of).map(|(column, _)| Expr::IsNotNull(Box::new(column))),
            _ => None,
        };
        changed.map_or_else(|| Transformed::no(expr), Transformed::yes)
    }

    /// The aggregate of which this is nothing but the type that the query has for it.
    pub(super) fn cast_of(&self, expr: &Expr) -> Option<String> {
        let Expr::Cast(cast) = expr else { return None };
        let Expr::Column(column) = cast.expr.as_ref() else { return None };
        let is_it =
            |(name, data_type): &(String, DataType)| *name == column.name && data_type == cast.field.data_type();
        self.casts.iter().any(is_it).then(|| column.name.clone())
    }

    /// Calls columns by these names which are those of a relation over what is written, each once.
    pub(super) fn rename(&mut self, relation: &mut Relation, names: &[String]) {
        let mut fields: Vec<_> = relation.schema.fields().iter().map(|field| field.as_ref().clone()).collect();
        for (at, to) in names.iter().enumerate() {
            let Expr::Column(Column { name: from, .. }) = relation.columns[at].clone() else { continue };
            let is_once = relation
                .columns
                .iter()
                .filter(|other| other.column_refs().iter().any(|column| column.name == from))
                .count()
                == 1;
            let is_free =
                fields.iter().all(|field| *field.name() == from || field.name().to_lowercase() != to.to_lowercase());
            // A column that is read and is none of these would have the same name there.
            let is_free = is_free
                && self.input.columns.names().all(|name| name == from || name.to_lowercase() != to.to_lowercase());
            if from == *to || !is_once || !is_free {
                continue;
            }
            let is_looked_at = self.aggregates.iter().any(|aggregate| aggregate.column.as_ref() == Some(&from));
            match self.aggregates.iter_mut().find(|aggregate| aggregate.name == from) {
                Some(aggregate) => {
                    aggregate.name.clone_from(to);
                    self.casts.iter_mut().filter(|(name, _)| *name == from).for_each(|(name, _)| name.clone_from(to));
                }
                // What an aggregate looks at, too, keeps its name.
                None if is_looked_at => continue,
                None => {
                    self.input.columns.rename(&from, to);
                    self.by.iter_mut().filter(|name| **name == from).for_each(|name| name.clone_from(to));
                }
            }
            if let Some(top) = &mut self.top {
                let per = top.per.iter_mut();
                per.chain(top.order_by.iter_mut().map(|key| &mut key.column))
                    .filter(|name| **name == from)
                    .for_each(|name| name.clone_from(to));
            }
            fields
                .iter_mut()
                .filter(|field| *field.name() == from)
                .for_each(|field| *field = field.clone().with_name(to));
            relation.columns[at] = column(to);
        }
        relation.schema = Arc::new(Schema::new(fields));
    }
}
