//! A query as DataFusion binds and optimises it.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion_common::{DataFusionError, ScalarValue};
use datafusion_expr::logical_plan::Limit;
use datafusion_expr::{Expr, LogicalPlan, lit};
use datafusion_optimizer::{
    Analyzer, ApplyOrder, Optimizer, OptimizerConfig, OptimizerContext, OptimizerRule,
    decorrelate_lateral_join::DecorrelateLateralJoin, decorrelate_predicate_subquery::DecorrelatePredicateSubquery,
    eliminate_cross_join::EliminateCrossJoin, eliminate_duplicated_expr::EliminateDuplicatedExpr,
    eliminate_group_by_constant::EliminateGroupByConstant, eliminate_outer_join::EliminateOuterJoin,
    extract_equijoin_predicate::ExtractEquijoinPredicate, optimize_projections::OptimizeProjections,
    optimize_unions::OptimizeUnions, push_down_filter::PushDownFilter, push_down_limit::PushDownLimit,
    replace_distinct_aggregate::ReplaceDistinctWithAggregate, rewrite_set_comparison::RewriteSetComparison,
    scalar_subquery_to_join::ScalarSubqueryToJoin, simplify_expressions::SimplifyExpressions,
};
use datafusion_sql::planner::{NullOrdering, ParserOptions, SqlToRel};
use datafusion_sql::sqlparser::ast::Statement;
use exobus_tables::hint::{did_you_mean, nearest};

use crate::SqlError;
use crate::catalog::{Catalog, Context};
use crate::dialect::as_meant;
use crate::rows::constant_error;
use crate::text::Parsed;

/// Binds a query to tables, and optimises it. `now`: when it was asked, in microseconds since 1970; `None`: that is nothing to go by.
pub(crate) fn logical(parsed: Parsed, catalog: &Catalog, now: Option<i64>) -> Result<LogicalPlan, SqlError> {
    let mut options = ConfigOptions::default();
    // A subquery of one value becomes a join, which is one of the operators that there are.
    options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    options.sql_parser.collect_spans = true;
    let options = Arc::new(options);
    // A literal of a time with a zone has one; now() has none, and is that of UTC.
    let mut of_literals = options.as_ref().clone();
    of_literals.execution.time_zone = Some("+00:00".to_owned());
    let context = Context::new(catalog, of_literals);
    let said = ParserOptions::new()
        .with_collect_spans(true)
        .with_parse_float_as_decimal(true)
        .with_default_null_ordering(NullOrdering::NullsLast);
    let planner = SqlToRel::new_with_options(&context, said);
    let bound = planner.sql_statement_to_plan(Statement::Query(parsed.query));
    let bound = bound.map_err(|error| with_function(error.into(), &context))?;
    check_size(&bound)?;
    let bound = as_meant(bound)?;
    let analyzed = Analyzer::new().execute_and_check(bound, &options, |_, _| {})?;
    check(&analyzed)?;
    let config = OptimizerContext::new_with_config_options(options).without_query_execution_start_time();
    let config = match now {
        None => config,
        Some(now) => {
            config.with_query_execution_start_time(DateTime::<Utc>::from_timestamp_micros(now).unwrap_or_default())
        }
    };
    Ok(Optimizer::with_rules(rules()).optimize(analyzed, &config, |_, _| {})?)
}

/// Parts of a plan at most, each `WITH` as often as it is used: planning takes longer than in proportion to them.
const PARTS_MAX: usize = 3000;

/// Refuses a plan that is too large.
fn check_size(plan: &LogicalPlan) -> Result<(), SqlError> {
    let (mut parts, mut left) = (0, vec![plan]);
    while let Some(plan) = left.pop() {
        parts += 1;
        if parts > PARTS_MAX {
            let what =
                format!("the query has more than {PARTS_MAX} parts, what WITH names counted as often as it is used");
            return Err(SqlError::new(what));
        }
        left.extend(plan.inputs());
    }
    Ok(())
}

/// Refuses what the rules would make something else of: a subquery that is one value may have several rows, and constants may not fit their type.
fn check(plan: &LogicalPlan) -> Result<(), SqlError> {
    let mut refused = None;
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expression| {
            expression.apply(|expression| {
                refused = refused.take().or_else(|| refusal(expression));
                Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })
    })?;
    refused.map_or(Ok(()), Err)
}

fn refusal(expression: &Expr) -> Option<SqlError> {
    match expression {
        Expr::ScalarSubquery(subquery) if subquery.subquery.max_rows().is_none_or(|rows| rows > 1) => {
            let what = "a subquery that stands for a value may have more than one row: give it an aggregate without GROUP BY, or LIMIT 1";
            let span = subquery.spans.first();
            let error = SqlError::new(what);
            Some(span.map_or(error.clone(), |span| error.at(span.start.line, span.start.column)))
        }
        Expr::BinaryExpr(_) if expression.column_refs().is_empty() && !has_others(expression) => {
            constant_error(expression).map(|what| SqlError::new(format!("{expression}: {what}")))
        }
        _ => None,
    }
}

/// Whether there is something in it that is known later, or costs what nobody knows.
fn has_others(expression: &Expr) -> bool {
    let is_one = |expression: &Expr| {
        Ok(matches!(
            expression,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
                | Expr::ScalarFunction(_)
        ))
    };
    expression.exists(is_one).unwrap_or(true)
}

/// The rules after which a plan has the operators that there are. Those are left out that only suit DataFusion's own: a value that occurs twice is not worked out once, distinct values are counted by one
/// operator, and relations without a row are none of their own.
fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    vec![
        Arc::new(RewriteSetComparison::new()),
        Arc::new(OptimizeUnions::new()),
        Arc::new(SimplifyExpressions::new()),
        Arc::new(NoRowOfAll),
        Arc::new(ReplaceDistinctWithAggregate::new()),
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(DecorrelateLateralJoin::new()),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateDuplicatedExpr::new()),
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(EliminateOuterJoin::new()),
        Arc::new(PushDownLimit::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(EliminateGroupByConstant::new()),
        Arc::new(OptimizeProjections::new()),
    ]
}

/// Leaves the one row out that aggregates of all rows are, where a constant condition says so. (Another rule would have it leave out the rows that are aggregated, as it names none of their columns: then that row is there, of none.)
#[derive(Debug)]
struct NoRowOfAll;

impl OptimizerRule for NoRowOfAll {
    fn name(&self) -> &str {
        "no_row_of_all"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>, DataFusionError> {
        let LogicalPlan::Filter(filter) = &plan else { return Ok(Transformed::no(plan)) };
        let Expr::Literal(value, _) = &filter.predicate else { return Ok(Transformed::no(plan)) };
        let mut below = filter.input.as_ref();
        while let LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Filter(_) = below
        {
            below = below.inputs()[0];
        }
        match below {
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
                let rows = if *value == ScalarValue::Boolean(Some(true)) { 1_i64 } else { 0 };
                let (skip, fetch) = (None, Some(Box::new(lit(rows))));
                Ok(Transformed::yes(LogicalPlan::Limit(Limit { skip, fetch, input: filter.input.clone() })))
            }
            _ => Ok(Transformed::no(plan)),
        }
    }
}

/// With the name that is most like one, where no function has it.
fn with_function(error: SqlError, context: &Context) -> SqlError {
    let Some(name) = error.what.to_lowercase().strip_prefix("invalid function '").and_then(|rest| {
        let (name, _) = rest.split_once('\'')?;
        Some(name.to_owned())
    }) else {
        return error;
    };
    let names: Vec<&str> = context.functions().collect();
    let hint = nearest(&name, &names).map(|name| format!("; {}", did_you_mean(name))).unwrap_or_default();
    SqlError { what: format!("no function {name}{hint}"), ..error }
}
