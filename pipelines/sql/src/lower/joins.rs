//! Joins.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use datafusion_common::{Column, DFSchema, JoinType, NullEquality};
use datafusion_expr::utils::split_conjunction_owned;
use datafusion_expr::{Expr, ExprSchemable as _, LogicalPlan, lit, logical_plan, not, when};
use exobus_tables::jobs::join::{JoinKind, JoinQuery, Pair};

use super::projected::Projected;
use super::relation::Relation;
use super::{Draft, Lowering};
use crate::SqlError;
use crate::plan::{Origin, Slice};
use crate::rows::{LookUp, viewed_type};

/// Why there is no plan of look-ups: nobody is told, since there is another one.
const NO_LOOK_UP: &str = "rows of one table are not looked up for each row of the other one";

impl Lowering<'_> {
    pub(super) fn join(&mut self, join: &logical_plan::Join) -> Result<Relation, SqlError> {
        let (kind, is_turned) = match join.join_type {
            JoinType::Inner => (JoinKind::Inner, false),
            JoinType::Left => (JoinKind::Left, false),
            JoinType::Right => (JoinKind::Right, false),
            JoinType::Full => (JoinKind::Full, false),
            JoinType::LeftSemi => (JoinKind::Semi, false),
            JoinType::LeftAnti => (JoinKind::Anti, false),
            JoinType::RightSemi => (JoinKind::Semi, true),
            JoinType::RightAnti => (JoinKind::Anti, true),
            JoinType::LeftMark | JoinType::RightMark => {
                let what = "EXISTS, or IN with a subquery, below OR or in what is selected,";
                return Err(SqlError::refused(what).about(&["exists", "in"]));
            }
        };
        if join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty() {
            let what = "a join in which null is null (IS NOT DISTINCT FROM, INTERSECT, EXCEPT)";
            return Err(SqlError::refused(what).about(&["intersect", "except", "is not distinct from"]));
        }
        if join.null_aware {
            let what = "NOT IN with a subquery has no operator here: it is true of no row as soon as the subquery has a null; NOT EXISTS (SELECT .. WHERE ..) says what is meant";
            return Err(SqlError::new(what).about(&["not in"]));
        }
        let is_inner = kind == JoinKind::Inner;
        let left = self.relation(&join.left)?;
        let right = self.relation(&join.right)?;
        let (left, right) = (self.whole(left)?, self.whole(right)?);
        let over = |(of_left, of_right): &(Expr, Expr)| {
            Ok((left.over(of_left, join.left.schema())?, right.over(of_right, join.right.schema())?))
        };
        let mut on = join.on.iter().map(over).collect::<Result<Vec<_>, SqlError>>()?;
        if on.is_empty() {
            // Each row with each: all have one key.
            on.push((lit(1_i32), lit(1_i32)));
        }
        let mut of_both = Vec::new();
        for condition in join.filter.iter().cloned().flat_map(split_conjunction_owned) {
            let is_of =
                |plan: &LogicalPlan| condition.column_refs().iter().all(|column| plan.schema().has_column(column));
            // A row that does not meet it matches none, as one whose key is null: where it is kept all the same.
            let (key, _) = &mut on[0];
            if !is_inner && is_of(&join.left) {
                let condition = left.over(&condition, join.left.schema())?;
                *key = when(condition, key.clone()).end()?;
            } else if !is_inner && is_of(&join.right) {
                let condition = right.over(&condition, join.right.schema())?;
                on[0].1 = when(condition, on[0].1.clone()).end()?;
            } else if is_inner {
                of_both.push(condition);
            } else {
                let what = format!("a join of kind {kind} with a condition of both tables beside what is equal");
                return Err(SqlError::refused(what).about(&[
                    &format!("{kind} join"),
                    &format!("{kind} outer join"),
                    "exists",
                ]));
            }
        }
        let mut relation = match is_turned {
            false => self.joined(kind, left, right, on)?,
            true => self.joined(kind, right, left, on.into_iter().map(|(left, right)| (right, left)).collect())?,
        };
        for condition in &of_both {
            relation.keep(relation.over(condition, &join.schema)?);
        }
        Ok(relation)
    }

    fn joined(
        &mut self,
        kind: JoinKind,
        left: Relation,
        right: Relation,
        on: Vec<(Expr, Expr)>,
    ) -> Result<Relation, SqlError> {
        let is_looked_up_for =
            |relation: &Relation| self.looks_up_for.is_some_and(|table| relation.origin == Origin::Table(table));
        match (is_looked_up_for(&left), is_looked_up_for(&right)) {
            (false, false) => self.paired(kind, left, right, on),
            (true, false) => self.looked_up(kind, (left, right, on), false),
            (false, true) => {
                let kind = match kind {
                    JoinKind::Inner => JoinKind::Inner,
                    JoinKind::Right => JoinKind::Left,
                    _ => return Err(SqlError::new(NO_LOOK_UP)),
                };
                let on = on.into_iter().map(|(of_left, of_right)| (of_right, of_left)).collect();
                self.looked_up(kind, (right, left, on), true)
            }
            (true, true) => Err(SqlError::new(NO_LOOK_UP)),
        }
    }

    /// A join for which the right rows are looked up for each of the left ones. `is_turned`: columns of the right ones are before those of the left ones.
    fn looked_up(
        &mut self,
        kind: JoinKind,
        (left, right, on): (Relation, Relation, Vec<(Expr, Expr)>),
        is_turned: bool,
    ) -> Result<Relation, SqlError> {
        let condition = match kind {
            JoinKind::Inner | JoinKind::Semi => Some(true),
            JoinKind::Anti => Some(false),
            JoinKind::Left => None,
            // Rows that match none would have to be known to all tasks.
            JoinKind::Right | JoinKind::Full => return Err(SqlError::new(NO_LOOK_UP)),
        };
        let mut columns = Projected::default();
        let (mut key, mut key_types) = (Vec::new(), Vec::new());
        let of_left = DFSchema::try_from(left.schema.as_ref().clone())?;
        for (value, own) in on {
            // What is looked up for rows that are left out need not have a value.
            let is_known = matches!(value, Expr::Column(_) | Expr::Literal(..));
            let value = match left.keep.iter().cloned().reduce(Expr::and) {
                Some(condition) if !is_known => when(condition, value).end()?,
                _ => value,
            };
            key_types.push(viewed_type(&value.get_type(&of_left)?));
            key.push((columns.add_apart(&own, "k", true), value));
        }
        let given = if matches!(kind, JoinKind::Semi | JoinKind::Anti) { &[][..] } else { &right.columns };
        let own: Vec<String> = given.iter().map(|column| columns.add(column, "c")).collect();
        let schema = columns.schema(&right.schema)?;
        let own_type = |name: &str| Some(viewed_type(schema.field_with_name(name).ok()?.data_type()));
        if key.iter().zip(&key_types).any(|((name, _), data_type)| own_type(name).as_ref() != Some(data_type)) {
            return Err(SqlError::new(NO_LOOK_UP));
        }
        let mut taken: Vec<String> = left.schema.fields().iter().map(|field| field.name().to_lowercase()).collect();
        let mut name = |own: &str| {
            let numbered = (2..).map(|number| format!("{own} {number}"));
            let mut names = std::iter::once(own.to_owned()).chain(numbered);
            let name = names.find(|name| !taken.contains(&name.to_lowercase())).unwrap_or_default();
            taken.push(name.to_lowercase());
            name
        };
        let found = name("found");
        let named: Vec<(String, String)> = own.into_iter().map(|own| (name(&own), own)).collect();
        let column = |name: &String| Expr::Column(Column::new_unqualified(name));
        let given: Vec<Expr> = named.iter().map(|(name, _)| column(name)).collect();
        self.drafts.push(Draft::Copy { input: right.read(columns), slice: Slice::default() });
        let table = LookUp { step: self.drafts.len() - 1, schema, key, found, columns: named };
        let mut relation = left;
        match condition {
            Some(true) => relation.keep.push(column(&table.found)),
            Some(false) => relation.keep.push(not(column(&table.found))),
            None => (),
        }
        let fields = relation.schema.fields().iter().map(|field| field.as_ref().clone()).chain(table.fields());
        relation.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        relation.columns = match is_turned {
            false => [relation.columns, given].concat(),
            true => [given, relation.columns].concat(),
        };
        relation.looked_up.push(table);
        Ok(relation)
    }

    /// A join as a step.
    fn paired(
        &mut self,
        kind: JoinKind,
        left: Relation,
        right: Relation,
        on: Vec<(Expr, Expr)>,
    ) -> Result<Relation, SqlError> {
        let mut left_columns = Projected::default();
        // A key is written once, and is that of the other table where a row matches none: a column that is to be null then is another one.
        let left_stays = !matches!(kind, JoinKind::Right | JoinKind::Full);
        let mut left_keys = Vec::<String>::new();
        for (key, _) in &on {
            let known = left_columns.name_of(key).map(str::to_owned);
            match known {
                Some(known) if !left_keys.contains(&known) => left_keys.push(known),
                _ => left_keys.push(left_columns.add_apart(key, "k", left_stays)),
            }
        }
        let of_left: Vec<String> = left
            .columns
            .iter()
            .map(|column| match left_stays {
                true => left_columns.add(column, "l"),
                false => left_columns.add_apart(column, "l", true),
            })
            .collect();
        let mut right_columns = Projected::avoiding(&left_columns);
        let right_keys: Vec<String> = on.iter().map(|(_, key)| right_columns.add_apart(key, "k", true)).collect();
        let has_pairs = !matches!(kind, JoinKind::Semi | JoinKind::Anti);
        let right_types = right.types();
        let key_is_right = matches!(kind, JoinKind::Inner | JoinKind::Right);
        let of_right = |(column, data_type): (&Expr, DataType)| {
            let key = on.iter().position(|(_, key)| key == column);
            match key {
                // -0.0 and 0.0 are one key, and two values.
                Some(key) if key_is_right && !data_type.is_floating() => left_keys[key].clone(),
                _ => right_columns.add_apart(column, "r", true),
            }
        };
        let of_right: Vec<String> = match has_pairs {
            true => right.columns.iter().zip(right_types).map(of_right).collect(),
            false => Vec::new(),
        };
        let left_schema = left_columns.schema(&left.schema)?;
        let right_schema = right_columns.schema(&right.schema)?;
        let others = right_schema.fields().iter().filter(|field| has_pairs && !right_keys.contains(field.name()));
        let fields = left_schema.fields().iter().chain(others).map(|field| Field::clone(field));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let pairs = left_keys.into_iter().zip(right_keys).map(|(left, right)| Pair { left, right }).collect();
        let query = JoinQuery { on: pairs, kind, suffix: None };
        let (left, right) = (left.read(left_columns), right.read(right_columns));
        self.drafts.push(Draft::Join { left, right, query });
        let origin = Origin::Steps(vec![self.drafts.len() - 1]);
        let columns = of_left.iter().chain(&of_right).map(|name| Expr::Column(Column::new_unqualified(name)));
        Ok(Relation { columns: columns.collect(), ..Relation::of(origin, &schema, []) })
    }
}
