//! A query as DataFusion binds and optimises it.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use datafusion_common::config::ConfigOptions;
use datafusion_expr::LogicalPlan;
use datafusion_optimizer::{
    Analyzer, Optimizer, OptimizerContext, OptimizerRule, decorrelate_lateral_join::DecorrelateLateralJoin,
    decorrelate_predicate_subquery::DecorrelatePredicateSubquery, eliminate_cross_join::EliminateCrossJoin,
    eliminate_duplicated_expr::EliminateDuplicatedExpr, eliminate_group_by_constant::EliminateGroupByConstant,
    eliminate_outer_join::EliminateOuterJoin, extract_equijoin_predicate::ExtractEquijoinPredicate,
    optimize_projections::OptimizeProjections, optimize_unions::OptimizeUnions, push_down_filter::PushDownFilter,
    push_down_limit::PushDownLimit, replace_distinct_aggregate::ReplaceDistinctWithAggregate,
    rewrite_set_comparison::RewriteSetComparison, scalar_subquery_to_join::ScalarSubqueryToJoin,
    simplify_expressions::SimplifyExpressions,
};
use datafusion_sql::planner::{NullOrdering, ParserOptions, SqlToRel};
use datafusion_sql::sqlparser::ast::Statement;
use exobus_tables::hint::{did_you_mean, nearest};

use crate::SqlError;
use crate::catalog::{Catalog, Context};
use crate::text::Parsed;

/// Binds a query to tables, and optimises it. `now`: when it was asked, in microseconds since 1970.
pub(crate) fn logical(mut parsed: Parsed, catalog: &Catalog, now: i64) -> Result<LogicalPlan, SqlError> {
    parsed.fold_columns(&catalog.columns());
    let mut options = ConfigOptions::default();
    // A subquery of one value becomes a join, which is one of the operators that there are.
    options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    options.sql_parser.collect_spans = true;
    let options = Arc::new(options);
    let context = Context::new(catalog, options.as_ref().clone());
    let said = ParserOptions::new()
        .with_collect_spans(true)
        .with_parse_float_as_decimal(true)
        .with_default_null_ordering(NullOrdering::NullsLast);
    let planner = SqlToRel::new_with_options(&context, said);
    let bound = planner.sql_statement_to_plan(Statement::Query(parsed.query));
    let bound = bound.map_err(|error| with_function(error.into(), &context))?;
    let analyzed = Analyzer::new().execute_and_check(bound, &options, |_, _| {})?;
    let now = DateTime::<Utc>::from_timestamp_micros(now).unwrap_or_default();
    let config = OptimizerContext::new_with_config_options(options).with_query_execution_start_time(now);
    Ok(Optimizer::with_rules(rules()).optimize(analyzed, &config, |_, _| {})?)
}

/// The rules after which a plan has the operators that there are. Those are left out that only suit DataFusion's own: a value that occurs twice is not worked out once, distinct values are counted by one
/// operator, and relations without a row are none of their own.
fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    vec![
        Arc::new(RewriteSetComparison::new()),
        Arc::new(OptimizeUnions::new()),
        Arc::new(SimplifyExpressions::new()),
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
