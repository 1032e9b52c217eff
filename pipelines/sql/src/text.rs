//! The text of a query: one `SELECT`, and which tables it names.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Query, SelectItem, SetExpr, Spanned as _, Statement, VisitMut as _,
    VisitorMut,
};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::parser::Parser;

use crate::SqlError;

/// A query as it was parsed.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub(crate) query: Box<Query>,
    /// Whether it is only to be said how it would be done.
    pub explains: bool,
    /// The tables that it names, each once, in the order in which they are first named.
    pub tables: Vec<TableName>,
}

/// A table as a query names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    /// The name, of small letters where it was not in quotes.
    pub name: String,
    /// Whether it was in quotes, as files are.
    pub is_quoted: bool,
    /// Where it was first named, line and column.
    pub place: (u64, u64),
}

/// How deep parts of a query may lie in each other.
const DEPTH_MAX: usize = 50;

/// Parses a query.
///
/// # Errors
/// It is none, or no `SELECT`, or more than one statement.
pub fn parse(text: &str) -> Result<Parsed, SqlError> {
    let parser = Parser::new(&GenericDialect {}).with_recursion_limit(DEPTH_MAX).try_with_sql(text);
    let statements = parser.and_then(|mut parser| parser.parse_statements());
    let mut statements = statements.map_err(|error| SqlError::parsed(&error.to_string()))?.into_iter();
    let (statement, more) = (statements.next(), statements.next());
    let (mut query, explains) = match (statement, more) {
        (Some(Statement::Query(query)), None) => (query, false),
        (Some(Statement::Explain { statement, .. }), None) => match *statement {
            Statement::Query(query) => (query, true),
            _ => return Err(SqlError::new("EXPLAIN says how a SELECT would be done")),
        },
        (None, _) => return Err(SqlError::new("there is no query: SELECT ... FROM 'FILES'")),
        (Some(statement), Some(_)) => {
            let end = statement.span().end;
            return Err(SqlError::new("there is a second statement: a query is one").at(end.line, end.column));
        }
        (Some(statement), None) => {
            let start = statement.span().start;
            let what = "a query reads: SELECT ..., or WITH ... SELECT ..., or EXPLAIN before either";
            return Err(SqlError::new(what).at(start.line, start.column));
        }
    };
    name_columns(&mut query);
    let mut names = Names::default();
    if let ControlFlow::Break(error) = query.visit(&mut names) {
        return Err(*error);
    }
    Ok(Parsed { query, explains, tables: names.tables })
}

/// Calls columns of the result that have no name as they are written.
fn name_columns(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        {
            let alias = Ident::with_quote('"', expr.to_string());
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

/// Finds the names of tables, and makes each one word.
#[derive(Default)]
struct Names {
    tables: Vec<TableName>,
    /// What `WITH` has named, in the queries that are being looked at.
    with: BTreeSet<String>,
}

impl VisitorMut for Names {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.with.insert(folded(&table.alias.name));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<Self::Break> {
        let ident = match relation.0.as_slice() {
            [ObjectNamePart::Identifier(ident)] => ident.clone(),
            _ => {
                let start = relation.span().start;
                let what = format!("{relation} is no table: files go into quotes, as in FROM '{relation}'");
                return ControlFlow::Break(Box::new(SqlError::new(what).at(start.line, start.column)));
            }
        };
        let (name, is_quoted) = (folded(&ident), ident.quote_style.is_some());
        if !is_quoted && self.with.contains(&name) {
            return ControlFlow::Continue(());
        }
        *relation = ObjectName::from(vec![Ident { quote_style: Some('"'), value: name.clone(), span: ident.span }]);
        if self.tables.iter().all(|table| table.name != name) {
            let start = ident.span.start;
            self.tables.push(TableName { name, is_quoted, place: (start.line, start.column) });
        }
        ControlFlow::Continue(())
    }
}

/// A name as names are compared.
fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

impl Parsed {
    /// Names columns of tables in small letters, as the planner knows them, also where they were in quotes. `columns`: all of them.
    pub(crate) fn fold_columns(&mut self, columns: &BTreeSet<String>) {
        let mut folds = Folds { columns };
        let _ = self.query.visit(&mut folds);
    }
}

struct Folds<'a> {
    columns: &'a BTreeSet<String>,
}

impl VisitorMut for Folds<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let idents = match expr {
            Expr::Identifier(ident) => std::slice::from_mut(ident),
            Expr::CompoundIdentifier(idents) => idents.as_mut_slice(),
            _ => return ControlFlow::Continue(()),
        };
        for ident in idents {
            let small = ident.value.to_lowercase();
            if self.columns.contains(&small) {
                ident.value = small;
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_those_that_no_with_names() {
        let text = "WITH small AS (SELECT * FROM Sales) SELECT * FROM small JOIN 'a/*.parquet' a USING (id) JOIN sales USING (id)";
        let tables = parse(text).unwrap().tables;
        let names: Vec<_> = tables.iter().map(|table| (table.name.as_str(), table.is_quoted)).collect();
        assert_eq!(names, [("sales", false), ("a/*.parquet", true)]);
        assert_eq!(tables[0].place, (1, 30));
    }

    #[test]
    fn what_is_no_query_is_refused_with_its_place() {
        let refused = |text: &str| parse(text).unwrap_err().to_string();
        assert!(refused("").contains("no query"));
        assert!(refused("DELETE FROM a").contains("a query reads"), "{}", refused("DELETE FROM a"));
        assert!(refused("SELECT 1; SELECT 2").contains("a second statement"));
        assert!(refused("SELECT a FORM b c").contains("line 1, column"), "{}", refused("SELECT a FORM b c"));
        let error = refused("SELECT a\nFROM pages.parquet");
        assert_eq!(
            error,
            "line 2, column 6: pages.parquet is no table: files go into quotes, as in FROM 'pages.parquet'"
        );
        assert!(refused(&format!("SELECT {}1{}", "(".repeat(500), ")".repeat(500))).contains("recursion"));
    }
}
