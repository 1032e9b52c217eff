//! From a plan of DataFusion to operators that there are.
//!
//! What is done row by row (projections, filters) is gathered on its way up as expressions over the columns of a table, or of what a step has written ([`Relation`]), and becomes a part of how the next operator reads its
//! rows. So a query has as many steps as rows have to come together, and a query of one aggregation has one.

mod aggregates;
mod joins;
mod projected;
mod relation;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, SortOptions};
use datafusion_common::Column;
use datafusion_common::tree_node::{Transformed, TreeNode as _};
use datafusion_expr::expr::{self, WindowFunction};
use datafusion_expr::logical_plan::{FetchType, Filter, Limit, Projection, SkipType, Sort, Window};
use datafusion_expr::utils::split_conjunction_owned;
use datafusion_expr::{Expr, LogicalPlan, Operator, SortExpr, WindowFunctionDefinition, lit};
use exobus_queries::online::OnlineAnswer;
use exobus_tables::aggregates::{Aggregate, Function};
use exobus_tables::expression::Expression;
use exobus_tables::jobs::group::{GroupQuery, Top};
use exobus_tables::jobs::join::JoinQuery;
use exobus_tables::semantics::{KeyColumn, Nulls};

use self::aggregates::AnswerColumn;
use self::projected::{Projected, without_number};
use self::relation::Relation;
use crate::SqlError;
use crate::catalog::Catalog;
use crate::plan::{Answer, Origin, Plan, Slice, Step, VERSION};
use crate::rows::{First, LookUp};

/// The operators of a plan of DataFusion.
///
/// # Errors
/// There are none for some part of it.
pub(crate) fn lower(plan: &LogicalPlan, catalog: &Catalog, written: &Written) -> Result<Plan, SqlError> {
    let mut lowering = Lowering::new(catalog);
    let relation = lowering.relation(plan)?;
    lowering.answer(relation, plan, written)
}

/// The same where rows of one table have those of others looked up, which are small: each join of it is a look-up. So the last step groups its rows as it reads them, and what it shows can be seen before it is done. `bytes`: what
/// the rows of each table of the catalog have; `None`: there is no such plan.
pub(crate) fn lower_looking_up(
    plan: &LogicalPlan,
    catalog: &Catalog,
    written: &Written,
    bytes: &[u64],
) -> Option<Plan> {
    let mut tables: Vec<(usize, u64)> = bytes.iter().copied().enumerate().collect();
    tables.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let of_table = |(table, bytes_of_table): (usize, u64)| {
        let mut lowering = Lowering { looks_up_for: Some(table), ..Lowering::new(catalog) };
        let relation = lowering.relation(plan).ok()?;
        let plan = lowering.answer(relation, plan, written).ok()?;
        let (group, _) = plan.looks_up().filter(|(_, rows)| rows.origin == Origin::Table(table))?;
        let Step::Group { query, .. } = &plan.steps[group] else { return None };
        // Which row of a group is the first one follows from how rows come together.
        let is_in_order = |aggregate: &Aggregate| matches!(aggregate.function, Function::First | Function::Last);
        let before = plan.tables_before(group).map(|other| if other == table { u64::MAX } else { bytes[other] });
        let before = before.fold(0, u64::saturating_add);
        let is_small = before <= LOOKED_UP_BYTES || before <= bytes_of_table / LOOKED_UP_SHARE;
        let is_shown = is_small && !query.aggregates.iter().any(is_in_order) && plan.online().is_ok();
        is_shown.then_some(plan)
    };
    tables.into_iter().find_map(of_table)
}

/// What is looked up is made of tables that have so many bytes together, at most, or this share of those of the table for whose rows it is: they are read as a whole before anything is shown.
const LOOKED_UP_BYTES: u64 = 64 << 20;
const LOOKED_UP_SHARE: u64 = 8;

/// Of no more rows those are left out where they are read that cannot be among the first ones: a batch has some thousands.
const FIRST_MAX: u64 = 1 << 14;

/// The columns of a plan that looks at rows one by one, and leaves none out: their names, and what they are.
///
/// # Errors
/// It does more.
pub(crate) fn selected(
    plan: &LogicalPlan,
    catalog: &Catalog,
    written: &Written,
) -> Result<Vec<(String, Expr)>, SqlError> {
    let mut lowering = Lowering::new(catalog);
    let relation = lowering.relation(plan)?;
    if !lowering.drafts.is_empty() || !relation.keep.is_empty() || !relation.slice.is_all() {
        return Err(SqlError::new("expressions are of one row here; `exobus query` has aggregates and more"));
    }
    Ok(names(plan, &relation, written).into_iter().zip(relation.columns).collect())
}

/// What the columns of a relation are called: as the plan has it, but as the table does where the query names a column of it.
fn names(plan: &LogicalPlan, relation: &Relation, written: &Written) -> Vec<String> {
    let mut names = Vec::<String>::new();
    for (field, column) in plan.schema().fields().iter().zip(&relation.columns) {
        let own = match column {
            Expr::Column(column) if column.name.to_lowercase() == *field.name() => column.name.clone(),
            _ => written.get(field.name()).unwrap_or(field.name()).clone(),
        };
        // Two tables may have a column of one name.
        let is_free = |name: &String| names.iter().all(|other| other.to_lowercase() != name.to_lowercase());
        let numbered = (1..).map(|number| format!("{own}_{number}"));
        let name = std::iter::once(own.clone()).chain(numbered).find(is_free);
        names.extend(name);
    }
    names
}

/// Why nothing is shown early.
const NO_GROUPS: &str = "it says nothing of groups, or not as the last thing it does";

/// Steps of a query at most.
const STEPS_MAX: usize = 200;

/// What the number of a row in its part is called, which nobody knows.
const ROW_NUMBER: &str = "the number of a row in its part";

/// What there is of windows.
const NO_WINDOW: &str = "a window has no operator here, but for the first rows of parts: row_number() OVER (PARTITION BY .. ORDER BY ..) in QUALIFY, or in the WHERE of what is around it, compared with a number";

/// How names of columns are written, by these in small letters.
type Written = BTreeMap<String, String>;

/// A step before it is known what its columns are called in the end.
enum Draft {
    Group(Group),
    Join { left: Input, right: Input, query: JoinQuery },
    Sort { input: Input, key: Vec<KeyColumn> },
    First { input: Input, key: Vec<KeyColumn>, order_by: Vec<KeyColumn> },
    Copy { input: Input, slice: Slice },
}

/// What a step reads.
struct Input {
    origin: Origin,
    schema: SchemaRef,
    /// What is looked up for each row.
    looked_up: Vec<LookUp>,
    keep: Vec<Expr>,
    columns: Projected,
    /// Whether the operator looks at the columns that it wants by itself.
    selects: bool,
    /// Rows that cannot be among the first ones are not wanted.
    first: Option<First>,
}

/// Groups.
struct Group {
    input: Input,
    /// Names of the columns that tell groups apart, in the order of what is written.
    by: Vec<String>,
    aggregates: Vec<Aggregate>,
    having: Option<Expression>,
    top: Option<Top>,
    /// Aggregates that are of another type than the query has them, and of which: no value of theirs is another one there.
    casts: Vec<(String, DataType)>,
}

impl Draft {
    fn step(self) -> Result<Step, SqlError> {
        Ok(match self {
            Self::Group(Group { input, by, aggregates, having, top, .. }) => {
                Step::Group { rows: input.rows()?, query: GroupQuery { by, aggregates, having, top } }
            }
            Self::Join { left, right, query } => Step::Join { left: left.rows()?, right: right.rows()?, query },
            Self::Sort { input, key } => Step::Sort { rows: input.rows()?, key },
            Self::First { input, key, order_by } => Step::First { rows: input.rows()?, key, order_by },
            Self::Copy { input, slice } => Step::Copy { rows: input.rows()?, slice },
        })
    }
}

struct Lowering<'a> {
    catalog: &'a Catalog,
    drafts: Vec<Draft>,
    /// Plans for which there are steps, and the rows of those.
    known: HashMap<LogicalPlan, Relation>,
    /// Steps whose rows are read more than once: nothing more is done of them in the step itself.
    shared: BTreeSet<usize>,
    /// The table for whose rows those of others are looked up.
    looks_up_for: Option<usize>,
    /// The last rows that are all put in order.
    ordered: Option<InOrder>,
}

/// Rows that a step puts in order.
struct InOrder {
    step: usize,
    /// The rows before.
    before: Relation,
    /// What their columns are called by the step.
    outputs: Vec<String>,
    /// What they are ordered by, of the columns of the rows before.
    order: Vec<Ordered>,
}

impl InOrder {
    /// What is computed of rows of the step, as computed of the rows before.
    fn before_it(&self, expr: &Expr) -> Option<Expr> {
        let put = |expr: Expr| match &expr {
            Expr::Column(column) => {
                let at = self.outputs.iter().position(|output| *output == column.name);
                Ok(at.map_or(Transformed::no(expr), |at| Transformed::yes(self.before.columns[at].clone())))
            }
            _ => Ok(Transformed::no(expr)),
        };
        Some(expr.clone().transform_up(put).ok()?.data)
    }
}

impl<'a> Lowering<'a> {
    fn new(catalog: &'a Catalog) -> Self {
        Self {
            catalog,
            drafts: Vec::new(),
            known: HashMap::new(),
            shared: BTreeSet::new(),
            looks_up_for: None,
            ordered: None,
        }
    }

    /// The rows of a plan. What is there twice is done once.
    fn relation(&mut self, plan: &LogicalPlan) -> Result<Relation, SqlError> {
        if self.drafts.len() > STEPS_MAX {
            let what =
                format!("the query has more than {STEPS_MAX} steps: write a part of it, with --output, and ask that");
            return Err(SqlError::new(what));
        }
        if !matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Join(_) | LogicalPlan::Sort(_)) {
            return self.new_relation(plan);
        }
        if let Some(known) = self.known.get(plan) {
            let steps = match &known.origin {
                Origin::Steps(steps) => steps.clone(),
                Origin::Table(_) => Vec::new(),
            };
            let is_as_it_was = |step: &usize| match &self.drafts[*step] {
                Draft::Group(Group { having, top, .. }) => having.is_none() && top.is_none(),
                _ => true,
            };
            if steps.iter().all(is_as_it_was) || matches!(plan, LogicalPlan::Sort(_)) {
                self.shared.extend(steps);
                return Ok(known.clone());
            }
        }
        let relation = self.new_relation(plan)?;
        self.known.insert(plan.clone(), relation.clone());
        Ok(relation)
    }

    fn new_relation(&mut self, plan: &LogicalPlan) -> Result<Relation, SqlError> {
        match plan {
            LogicalPlan::TableScan(scan) => {
                let name = scan.table_name.table();
                let table = self.catalog.number(name).ok_or_else(|| SqlError::new(format!("no table {name}")))?;
                let all = self.catalog.schema(table);
                let columns = match &scan.projection {
                    Some(columns) => columns.clone(),
                    None => (0..all.fields().len()).collect(),
                };
                let mut relation = Relation::of(Origin::Table(table), all, columns);
                for filter in &scan.filters {
                    relation.keep(relation.over(filter, &scan.projected_schema)?);
                }
                Ok(relation)
            }
            LogicalPlan::SubqueryAlias(alias) => self.relation(&alias.input),
            LogicalPlan::Projection(projection) => self.projection(projection),
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Sort(sort) => self.sort(sort),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Union(union) => {
                let mut steps = Vec::new();
                let names: Vec<String> = (0..union.schema.fields().len()).map(|at| format!("c{at}")).collect();
                for input in &union.inputs {
                    let relation = self.relation(input)?;
                    steps.push(self.copied(relation, Some(&names)));
                }
                let fields = union.schema.fields().iter().zip(&names);
                let fields = fields.map(|(field, name)| field.as_ref().clone().with_name(name).with_nullable(true));
                let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
                Ok(Relation::of(Origin::Steps(steps), &schema, 0..names.len()))
            }
            LogicalPlan::Window(_) => Err(SqlError::new(NO_WINDOW).about(&["over"])),
            LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => {
                Err(SqlError::new("a query reads a table at least: SELECT .. FROM 'FILES'"))
            }
            other => {
                let text = other.display().to_string();
                Err(SqlError::refused(text.split(':').next().unwrap_or(&text)))
            }
        }
    }

    fn projection(&mut self, projection: &Projection) -> Result<Relation, SqlError> {
        let relation = self.relation(&projection.input)?;
        let columns = projection.expr.iter().map(|expr| relation.over(expr, projection.input.schema()));
        let columns = columns.collect::<Result<_, _>>()?;
        Ok(Relation { columns, ..relation })
    }

    fn filter(&mut self, filter: &Filter) -> Result<Relation, SqlError> {
        // What is selected of a window may stand between.
        let (mut below, mut between) = (filter.input.as_ref(), Vec::new());
        while let LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) = below {
            between.push(below);
            below = below.inputs()[0];
        }
        if let LogicalPlan::Window(window) = below {
            let mut seen = Relation::all_of(&window.schema);
            for plan in between.into_iter().rev() {
                if let LogicalPlan::Projection(Projection { expr, input, .. }) = plan {
                    seen.columns = expr.iter().map(|expr| seen.over(expr, input.schema())).collect::<Result<_, _>>()?;
                }
            }
            let predicate = seen.over(&filter.predicate, filter.input.schema())?;
            let relation = self.first_of_parts(predicate, window)?;
            let columns = seen.columns.iter().map(|column| relation.over(column, &window.schema));
            // The number is among them; who reads it is refused.
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            return Ok(Relation { columns, ..relation });
        }
        let relation = self.relation(&filter.input)?;
        let mut relation = self.whole(relation)?;
        relation.keep(relation.over(&filter.predicate, filter.input.schema())?);
        Ok(relation)
    }

    /// Rows whose number in their part is small.
    fn first_of_parts(&mut self, predicate: Expr, window: &Window) -> Result<Relation, SqlError> {
        let refused = || SqlError::new(NO_WINDOW).about(&["over"]);
        let [function] = window.window_expr.as_slice() else { return Err(refused()) };
        let Expr::WindowFunction(function) = function.clone().unalias() else { return Err(refused()) };
        let WindowFunction { fun, params } = *function;
        let is_number = matches!(fun, WindowFunctionDefinition::WindowUDF(function) if function.name() == "row_number");
        if !is_number || params.filter.is_some() {
            return Err(refused());
        }
        let number = window.schema.fields().len() - 1;
        let schema = window.schema.as_ref();
        let of_number = |condition: &Expr| match condition {
            Expr::BinaryExpr(expr::BinaryExpr { left, op, right }) => match (left.as_ref(), right.as_ref()) {
                (Expr::Column(column), Expr::Literal(value, _))
                    if schema.index_of_column(column).is_ok_and(|at| at == number) =>
                {
                    let most = value.to_string().parse::<u64>().ok()?;
                    match op {
                        Operator::LtEq => Some(most),
                        Operator::Lt => most.checked_sub(1),
                        Operator::Eq if most == 1 => Some(1),
                        _ => None,
                    }
                }
                _ => None,
            },
            _ => None,
        };
        let (mut most, mut others) = (None::<u64>, Vec::new());
        for condition in split_conjunction_owned(predicate) {
            match of_number(&condition) {
                Some(number) => most = Some(most.map_or(number, |most| most.min(number))),
                None => others.push(condition),
            }
        }
        let Some(most) = most.filter(|most| *most > 0) else { return Err(refused()) };
        let relation = self.relation(&window.input)?;
        let relation = self.whole(relation)?;
        let in_parts = window.input.schema();
        let over = |expr: &Expr| relation.over(expr, in_parts);
        let parts = params.partition_by.iter().map(over).collect::<Result<Vec<_>, _>>()?;
        let order = sorted(&params.order_by, over)?;
        let relation = match self.top(relation, (most, &parts, &order)) {
            Ok(relation) => relation,
            Err(relation) if most == 1 => self.first(*relation, parts, order)?,
            Err(_) => {
                let what = "the first rows of parts are those of groups, by columns of theirs, or one of each part: row_number() .. = 1";
                return Err(SqlError::new(what).about(&["over"]));
            }
        };
        // Of the first row of a part the number is known; of others it is not, and who reads it is refused.
        let value = if most == 1 { lit(1_u64) } else { Expr::Column(Column::new_unqualified(ROW_NUMBER)) };
        let mut relation = Relation { columns: [relation.columns, vec![value]].concat(), ..relation };
        for condition in &others {
            relation.keep(relation.over(condition, schema)?);
        }
        Ok(relation)
    }

    /// The first row of each part.
    fn first(&mut self, relation: Relation, parts: Vec<Expr>, order: Vec<Ordered>) -> Result<Relation, SqlError> {
        let mut columns = Projected::default();
        let outputs: Vec<String> = relation.columns.iter().map(|column| columns.add(column, "c")).collect();
        let parts = if parts.is_empty() { vec![lit(1_i32)] } else { parts };
        let key = parts.iter().map(|part| KeyColumn::rising(columns.add(part, "p"))).collect();
        let order_by = keys(&order, &mut columns);
        let (step, schema) = self.step(relation, columns, |input| Draft::First { input, key, order_by })?;
        Ok(Relation::named(Origin::Steps(vec![step]), &schema, &outputs))
    }

    fn sort(&mut self, sort: &Sort) -> Result<Relation, SqlError> {
        let relation = self.relation(&sort.input)?;
        let relation = self.whole(relation)?;
        let order = sorted(&sort.expr, |expr| relation.over(expr, sort.input.schema()))?;
        let relation = match sort.fetch {
            Some(fetch) if fetch > 0 => match self.top(relation, (fetch as u64, &[], &order)) {
                Ok(relation) => return Ok(relation),
                Err(relation) => *relation,
            },
            _ => relation,
        };
        let mut columns = Projected::default();
        let outputs: Vec<String> = relation.columns.iter().map(|column| columns.add(column, "c")).collect();
        let key = keys(&order, &mut columns);
        let rows = sort.fetch.map(|fetch| fetch as u64);
        let first = rows.filter(|rows| *rows <= FIRST_MAX).map(|rows| {
            let order = order.iter().map(|ordered| {
                let options = SortOptions { descending: !ordered.rises, nulls_first: ordered.nulls_first };
                (ordered.expr.clone(), options)
            });
            First { order: order.collect(), rows }
        });
        let mut relation = relation;
        self.leave_out_groups(&mut relation);
        let before = relation.clone();
        let (step, schema) =
            self.step(relation, columns, |input| Draft::Sort { input: Input { first, ..input }, key })?;
        self.ordered = Some(InOrder { step, before, outputs: outputs.clone(), order });
        let relation = Relation::named(Origin::Steps(vec![step]), &schema, &outputs);
        Ok(Relation { slice: Slice { skip: 0, rows }, ..relation })
    }

    /// Leaves the first groups of each part in a step that makes groups, where these are the rows, and what they are told apart and ordered by are their columns.
    fn top(
        &mut self,
        relation: Relation,
        (most, parts, order): (u64, &[Expr], &[Ordered]),
    ) -> Result<Relation, Box<Relation>> {
        let Origin::Steps(steps) = &relation.origin else { return Err(Box::new(relation)) };
        let [step] = steps[..] else { return Err(Box::new(relation)) };
        let Draft::Group(group) = &mut self.drafts[step] else { return Err(Box::new(relation)) };
        if group.top.is_some() || self.shared.contains(&step) {
            return Err(Box::new(relation));
        }
        let named = |expr: &Expr| match expr {
            Expr::Column(column) => Some(column.name.clone()),
            Expr::Cast(_) => group.cast_of(expr),
            _ => None,
        };
        let per: Option<Vec<String>> = parts.iter().map(named).collect();
        let per = per.filter(|per| per.iter().all(|per| group.by.contains(per)));
        let order_by: Option<Vec<KeyColumn>> =
            order.iter().map(|ordered| Some(ordered.key(named(&ordered.expr)?))).collect();
        let (having, others) = group.conditions(&relation);
        match (per, order_by, others.is_empty()) {
            (Some(per), Some(order_by), true) => {
                group.top = Some(Top { rows: most, order_by, per });
                group.having = having;
                Ok(Relation { keep: Vec::new(), ..relation })
            }
            _ => Err(Box::new(relation)),
        }
    }

    fn limit(&mut self, limit: &Limit) -> Result<Relation, SqlError> {
        let relation = self.relation(&limit.input)?;
        let (skip, fetch) = match (limit.get_skip_type()?, limit.get_fetch_type()?) {
            (SkipType::Literal(skip), FetchType::Literal(fetch)) => (skip as u64, fetch.map(|fetch| fetch as u64)),
            _ => return Err(SqlError::new("LIMIT and OFFSET are numbers").about(&["limit", "offset"])),
        };
        let Slice { skip: before, rows } = relation.slice;
        // What is left of the rows that there were.
        let left = rows.map(|rows| rows.saturating_sub(skip));
        let rows = fetch.map_or(left, |fetch| Some(left.map_or(fetch, |left| left.min(fetch))));
        Ok(Relation { slice: Slice { skip: before + skip, rows }, ..relation })
    }

    /// The same rows where some of them are left out by number: written down, so that others may be left out of them.
    fn whole(&mut self, relation: Relation) -> Result<Relation, SqlError> {
        if relation.slice.is_all() {
            return Ok(relation);
        }
        let count = relation.columns.len();
        let step = self.copied(relation, None);
        let Draft::Copy { input, .. } = &self.drafts[step] else { unreachable!("it was copied") };
        let schema = input.columns.schema(&input.schema)?;
        Ok(Relation::of(Origin::Steps(vec![step]), &schema, 0..count))
    }

    /// A step that writes down rows as they are, each column once, with these names.
    fn copied(&mut self, relation: Relation, names: Option<&[String]>) -> usize {
        let slice = relation.slice;
        let mut projected = Projected::default();
        for (at, column) in relation.columns.iter().enumerate() {
            match names {
                Some(names) => projected.push(names[at].clone(), column.clone()),
                None => drop(projected.add_apart(column, "c", true)),
            }
        }
        if relation.columns.is_empty() {
            // Rows are counted by a column.
            projected.push("rows".to_owned(), lit(1_i32));
        }
        self.drafts.push(Draft::Copy { input: relation.read(projected), slice });
        self.drafts.len() - 1
    }

    /// Adds a step that reads these columns, and writes them; the schema of what it writes.
    fn step(
        &mut self,
        relation: Relation,
        columns: Projected,
        draft: impl FnOnce(Input) -> Draft,
    ) -> Result<(usize, SchemaRef), SqlError> {
        let schema = columns.schema(&relation.schema)?;
        self.drafts.push(draft(relation.read(columns)));
        Ok((self.drafts.len() - 1, schema))
    }

    /// The plan whose last rows are these.
    fn answer(mut self, mut relation: Relation, plan: &LogicalPlan, written: &Written) -> Result<Plan, SqlError> {
        without_number(relation.columns.iter())?;
        self.as_aggregated(&mut relation);
        self.leave_out_groups(&mut relation);
        let names = names(plan, &relation, written);
        self.name_groups(&mut relation, &names);
        let mut columns = Projected::default();
        names.iter().zip(&relation.columns).for_each(|(name, column)| columns.push(name.clone(), column.clone()));
        let online = self.shown_online(&relation, &names).map_err(str::to_owned);
        let slice = relation.slice;
        let rows = relation.read(columns).rows()?;
        let steps = self.drafts.into_iter().map(Draft::step).collect::<Result<_, _>>()?;
        Ok(Plan { version: VERSION, steps, answer: Answer { rows, slice, columns: names, online } })
    }

    /// Leaves groups out where they are made, where conditions of tables say which.
    fn leave_out_groups(&mut self, relation: &mut Relation) {
        let Origin::Steps(steps) = &relation.origin else { return };
        let [step] = steps[..] else { return };
        let is_shared = self.shared.contains(&step);
        let Draft::Group(group) = &mut self.drafts[step] else { return };
        if is_shared || group.top.is_some() || group.having.is_some() {
            return;
        }
        (group.having, relation.keep) = group.conditions(relation);
    }

    /// Leaves aggregates of the last step of the type that they have there, which holds all their values, where the answer is to have no other.
    fn as_aggregated(&self, relation: &mut Relation) {
        let Origin::Steps(steps) = &relation.origin else { return };
        let [step] = steps[..] else { return };
        let Draft::Group(group) = &self.drafts[step] else { return };
        for column in &mut relation.columns {
            if let Some(own) = group.cast_of(column) {
                *column = Expr::Column(Column::new_unqualified(own));
            }
        }
    }

    /// What is answered of the groups of the last step, or of the last but one where that puts them in order; or why that cannot be said before all of them are known.
    fn shown_online(&self, relation: &Relation, names: &[String]) -> Result<OnlineAnswer, &'static str> {
        let is_of = |origin: &Origin, step: usize| *origin == Origin::Steps(vec![step]);
        let ordered = self.ordered.as_ref().filter(|ordered| is_of(&relation.origin, ordered.step));
        let (of_groups, columns) = match ordered {
            None => (relation, relation.columns.clone()),
            Some(ordered) => {
                let columns = relation.columns.iter().map(|column| ordered.before_it(column));
                (&ordered.before, columns.collect::<Option<_>>().ok_or(NO_GROUPS)?)
            }
        };
        let Origin::Steps(steps) = &of_groups.origin else { return Err(NO_GROUPS) };
        let [step] = steps[..] else { return Err(NO_GROUPS) };
        let Draft::Group(group) = &self.drafts[step] else { return Err(NO_GROUPS) };
        if ordered.is_some() && !relation.keep.is_empty() {
            return Err("groups are left out behind their order");
        }
        let (mut key, mut values) = (Vec::new(), Vec::new());
        for (name, column) in names.iter().zip(&columns) {
            match group.answered(column, &of_groups.schema).ok_or(NO_GROUPS)? {
                AnswerColumn::Key(of) => key.push((name.clone(), of)),
                AnswerColumn::Value(value) => values.push((name.clone(), value)),
            }
        }
        let mut known = Projected::default();
        names.iter().zip(columns).for_each(|(name, column)| known.push(name.clone(), column));
        let order_by = ordered.map_or(Vec::new(), |ordered| keys(&ordered.order, &mut known));
        // By these it is chosen which groups are answered.
        let of_order = ordered.filter(|_| relation.slice.rows.is_some()).map_or(&[][..], |ordered| &ordered.order);
        if group.is_chosen_at_the_end(of_groups.keep.iter().chain(of_order.iter().map(|ordered| &ordered.expr))) {
            return Err("which groups are answered follows from aggregates that are known when everything was read");
        }
        let rows = of_groups.clone().read(known).rows().map_err(|_| NO_GROUPS)?;
        let (filter, computed, limit) = (rows.filter, rows.computed, relation.slice.rows);
        Ok(OnlineAnswer { keys: key, values, filter, computed, order_by, rows: limit })
    }

    /// Calls what the last step says of groups as the answer does, where that is all that is done of it.
    fn name_groups(&mut self, relation: &mut Relation, names: &[String]) {
        let Origin::Steps(steps) = &relation.origin else { return };
        let [step] = steps[..] else { return };
        let Draft::Group(group) = &mut self.drafts[step] else { return };
        if !relation.keep.is_empty() || group.having.is_some() || self.shared.contains(&step) {
            return;
        }
        group.rename(relation, names);
    }
}

/// What rows are ordered by.
struct Ordered {
    expr: Expr,
    rises: bool,
    nulls_first: bool,
}

impl Ordered {
    /// The same by a column.
    fn key(&self, column: String) -> KeyColumn {
        let nulls = if self.nulls_first { Nulls::First } else { Nulls::Last };
        KeyColumn { column, descending: !self.rises, nulls }
    }
}

fn sorted(order: &[SortExpr], over: impl Fn(&Expr) -> Result<Expr, SqlError>) -> Result<Vec<Ordered>, SqlError> {
    let of = |sort: &SortExpr| {
        let (rises, nulls_first) = (sort.asc, sort.nulls_first);
        Ok(Ordered { expr: over(&sort.expr)?, rises, nulls_first })
    };
    order.iter().map(of).collect()
}

fn keys(order: &[Ordered], columns: &mut Projected) -> Vec<KeyColumn> {
    let mut keys = Vec::<KeyColumn>::new();
    for ordered in order {
        let column = columns.add(&ordered.expr, "k");
        // What is ordered by once is not told apart by it a second time.
        if keys.iter().all(|key| key.column != column) {
            keys.push(ordered.key(column));
        }
    }
    keys
}

/// A type as steps write it, of an expression.
fn written(name: &str, data_type: &DataType) -> Field {
    Field::new(name, data_type.clone(), true)
}
