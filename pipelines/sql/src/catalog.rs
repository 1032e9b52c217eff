//! The tables of a query, and all that a query may name.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{DataFusionError, TableReference, plan_err};
use datafusion_expr::planner::ExprPlanner;
use datafusion_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, TableSource, WindowUDF};
use datafusion_sql::planner::ContextProvider;

use crate::average::Average;
use crate::rows::{FUNCTIONS, viewed};

/// The tables of a query, by the names that it gives them.
#[derive(Clone, Debug, Default)]
pub struct Catalog(Vec<(String, SchemaRef)>);

impl Catalog {
    /// Adds a table, whose columns are these.
    pub fn add(&mut self, name: impl Into<String>, schema: SchemaRef) {
        self.0.push((name.into(), schema));
    }

    /// The columns of a table, by its number.
    pub(crate) fn schema(&self, table: usize) -> &SchemaRef {
        &self.0[table].1
    }

    /// The number of a table.
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|(known, _)| known == name)
    }
}

/// A table as the planner sees it: with names of small letters, since SQL does not tell letters by their case.
pub(crate) struct Table(SchemaRef);

impl TableSource for Table {
    fn schema(&self) -> SchemaRef {
        self.0.clone()
    }
}

/// What the planner is told.
pub(crate) struct Context {
    tables: HashMap<String, Arc<Table>>,
    options: ConfigOptions,
    aggregates: HashMap<String, Arc<AggregateUDF>>,
    windows: HashMap<String, Arc<WindowUDF>>,
    planners: Vec<Arc<dyn ExprPlanner>>,
}

impl Context {
    pub(crate) fn new(catalog: &Catalog, options: ConfigOptions) -> Self {
        let small = |field: &Arc<Field>| Arc::new(field.as_ref().clone().with_name(field.name().to_lowercase()));
        let of_table = |(name, schema): &(String, SchemaRef)| {
            let fields = viewed(schema).fields().iter().map(small).collect::<Vec<_>>();
            (name.clone(), Arc::new(Table(Arc::new(Schema::new(fields)))))
        };
        let mut aggregates = HashMap::new();
        for function in datafusion_functions_aggregate::all_default_aggregate_functions() {
            for alias in function.aliases() {
                aggregates.insert(alias.clone(), function.clone());
            }
            aggregates.insert(function.name().to_owned(), function);
        }
        let average = Arc::new(AggregateUDF::from(Average::default()));
        aggregates.insert("avg".to_owned(), average.clone());
        aggregates.insert("mean".to_owned(), average);
        let windows = datafusion_functions_window::all_default_window_functions();
        Self {
            tables: catalog.0.iter().map(of_table).collect(),
            options,
            aggregates,
            windows: windows.into_iter().map(|function| (function.name().to_owned(), function)).collect(),
            planners: vec![
                Arc::new(datafusion_functions::core::planner::CoreFunctionPlanner::default()),
                Arc::new(datafusion_functions::datetime::planner::DatetimeFunctionPlanner),
                Arc::new(datafusion_functions::unicode::planner::UnicodeFunctionPlanner),
                Arc::new(datafusion_functions_aggregate::planner::AggregateFunctionPlanner),
                Arc::new(datafusion_functions_window::planner::WindowFunctionPlanner),
            ],
        }
    }

    /// All functions, for who names one that is not there.
    pub(crate) fn functions(&self) -> impl Iterator<Item = &str> {
        let names = FUNCTIONS.keys().chain(self.aggregates.keys()).chain(self.windows.keys());
        names.map(String::as_str)
    }
}

impl ContextProvider for Context {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>, DataFusionError> {
        match self.tables.get(name.table()) {
            Some(table) => Ok(table.clone()),
            None => plan_err!("no table {}", name.table()),
        }
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        FUNCTIONS.get(name).cloned()
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.aggregates.get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.windows.get(name).cloned()
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.planners
    }

    fn udf_names(&self) -> Vec<String> {
        FUNCTIONS.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.aggregates.keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.windows.keys().cloned().collect()
    }
}
