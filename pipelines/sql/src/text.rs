//! The text of a query: one `SELECT`, and which tables it names.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use datafusion_sql::sqlparser::ast::{
    CastKind, DataType, Distinct, ExactNumberInfo, Expr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SetExpr, Spanned as _, Statement, TableFactor, TimezoneInfo, TypedString, Value, ValueWithSpan, VisitMut as _,
    VisitorMut, With,
};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Word};
use exobus_tables::hint::{did_you_mean, nearest};
use exobus_tables::reading::ReadOptions;

use crate::SqlError;
use crate::error::PlacedWords;
use crate::program::NamedTable;

/// A query as it was parsed.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub(crate) query: Box<Query>,
    /// Whether it is only to be said how it would be done.
    pub explains: bool,
    /// The tables that it names, each once, in the order in which they are first named.
    pub tables: Vec<TableName>,
    /// Names of columns of the answer as they are written, by these in small letters.
    pub(crate) written: BTreeMap<String, String>,
    /// Its words that are in no quotes.
    pub(crate) words: PlacedWords,
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

/// What names of tables stand for.
#[derive(Clone, Copy, Debug)]
pub struct TableNames<'a> {
    /// Names that were given to files, in any case.
    pub named: &'a [(String, PathBuf)],
    /// The folder of files whose names do not begin with one; `None`: there are no such.
    pub directory: Option<&'a Path>,
}

impl TableNames<'_> {
    /// The tables that a query names.
    ///
    /// # Errors
    /// A name of nothing; one that was given, and is not there.
    pub fn resolved(&self, parsed: &Parsed) -> Result<Vec<NamedTable>, SqlError> {
        let tables = parsed.tables.iter().map(|table| self.table(table)).collect::<Result<Vec<_>, _>>()?;
        let is_used = |name: &str| parsed.tables.iter().any(|table| table.name.to_lowercase() == name.to_lowercase());
        match self.named.iter().find(|(name, _)| !is_used(name)) {
            Some((unused, _)) => Err(SqlError::new(format!("the query names no table {unused}"))),
            None => Ok(tables),
        }
    }

    fn table(&self, TableName { name, is_quoted, place: (line, column) }: &TableName) -> Result<NamedTable, SqlError> {
        let known = self.named.iter().find(|(known, _)| known.to_lowercase() == name.to_lowercase());
        let path = match known {
            Some((_, files)) => files.clone(),
            None if *is_quoted => PathBuf::from(name),
            None => {
                let names: Vec<&str> = self.named.iter().map(|(name, _)| name.as_str()).collect();
                let hint = nearest(name, &names).map_or_else(
                    || format!("files go into quotes, FROM '{name}', and --table {name}=FILES gives them a name"),
                    did_you_mean,
                );
                return Err(SqlError::new(format!("no table {name}; {hint}")).at(*line, *column));
            }
        };
        let path = match (exobus_files::Location::from(&path).scheme(), self.directory) {
            (None, Some(directory)) if path.is_relative() => directory.join(path),
            (None, None) if path.is_relative() => {
                let what = format!(
                    "{} does not say which folder it is in: begin it with one, or say `directory`",
                    path.display()
                );
                return Err(SqlError::new(what).at(*line, *column));
            }
            _ => path,
        };
        Ok(NamedTable { name: name.clone(), inputs: vec![path], reading: ReadOptions::default() })
    }
}

/// How deep parentheses and subqueries may lie in each other.
const DEPTH_MAX: usize = 50;
/// How many words and signs a query may have.
const TOKENS_MAX: usize = 100_000;
/// How many operators: a tree is as deep as a row of them is long.
const OPERATORS_MAX: usize = 2000;
/// How many tables a query may read, what `WITH` names counted as often as it is used: it is planned as often.
const TABLES_MAX: usize = 1000;
/// The stack on which queries are parsed and planned, bytes: a tree is gone through by calls that lie in each other.
const STACK_BYTES: usize = 512 << 20;

/// Does something with a query on a thread that has room for it. What panics there is an error.
pub(crate) fn with_room<T: Send>(work: impl FnOnce() -> Result<T, SqlError> + Send) -> Result<T, SqlError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("exobus-sql".to_owned()).stack_size(STACK_BYTES);
        let thread =
            thread.spawn_scoped(scope, work).map_err(|error| SqlError::new(format!("a thread to plan on: {error}")))?;
        thread.join().unwrap_or_else(|_| Err(SqlError::new("the planner cannot plan it, and does not know why")))
    })
}

/// Parses a query.
///
/// # Errors
/// It is none, or no `SELECT`, or more than one statement, or too long.
pub fn parse(text: &str) -> Result<Parsed, SqlError> {
    with_room(|| parsed(text))
}

fn parsed(text: &str) -> Result<Parsed, SqlError> {
    let mut tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
    if let Ok(tokens) = &tokens {
        let is_operator = |token: &&TokenWithSpan| match &token.token {
            Token::Word(word) => matches!(word.keyword, Keyword::AND | Keyword::OR | Keyword::NOT | Keyword::UNION),
            token => matches!(
                token,
                Token::Plus
                    | Token::Minus
                    | Token::Mul
                    | Token::Div
                    | Token::Mod
                    | Token::StringConcat
                    | Token::Eq
                    | Token::Neq
                    | Token::Lt
                    | Token::Gt
                    | Token::LtEq
                    | Token::GtEq
            ),
        };
        if tokens.len() > TOKENS_MAX || tokens.iter().filter(is_operator).count() > OPERATORS_MAX {
            let what = format!(
                "the query is too long: it may have {OPERATORS_MAX} operators, and {TOKENS_MAX} words and signs"
            );
            return Err(SqlError::new(what));
        }
    }
    let (mut names, mut words) = (Names::default(), PlacedWords::default());
    // Names are not told apart by their case, also in quotes; files are.
    for TokenWithSpan { token, span } in tokens.iter_mut().flatten() {
        let place = (span.start.line, span.start.column);
        match token {
            Token::Word(Word { value, quote_style: Some(_), .. }) => {
                let small = value.to_lowercase();
                names.quoted.insert(place, std::mem::replace(value, small));
            }
            Token::Word(Word { value, .. }) => words.add(value, place),
            _ => (),
        }
    }
    let tokens = tokens.map_err(|error| SqlError::parsed(&error.to_string()))?;
    let parser = Parser::new(&GenericDialect {}).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens);
    let mut parser = parser;
    let statements = parser.parse_statements().map_err(|error| SqlError::parsed(&error.to_string()))?;
    let mut statements = statements.into_iter();
    let (statement, more) = (statements.next(), statements.next());
    let (mut query, explains) = match (statement, more) {
        (Some(Statement::Query(query)), None) => (query, false),
        (Some(Statement::Explain { statement, analyze: false, .. }), None) => match *statement {
            Statement::Query(query) => (query, true),
            _ => return Err(SqlError::new("EXPLAIN says how a SELECT would be done")),
        },
        (None, _) => return Err(SqlError::new("there is no query: SELECT ... FROM 'FILES'")),
        (Some(_), Some(statement)) => {
            let start = statement.span().start;
            return Err(SqlError::new("there is a second statement: a query is one").at(start.line, start.column));
        }
        (Some(statement), None) => {
            let start = statement.span().start;
            let what = "a query reads: SELECT ..., or WITH ... SELECT ..., or EXPLAIN before either";
            return Err(SqlError::new(what).at(start.line, start.column));
        }
    };
    let written = name_columns(&mut query, &names.quoted);
    if let ControlFlow::Break(error) = query.visit(&mut names) {
        return Err(*error);
    }
    Ok(Parsed { query, explains, tables: names.tables, written, words })
}

/// What was in quotes, by where it begins.
type Quoted = BTreeMap<(u64, u64), String>;

/// Calls columns of the result that have no name as they are written; and how they are written, by names in small letters.
fn name_columns(query: &mut Query, quoted: &Quoted) -> BTreeMap<String, String> {
    let mut written = BTreeMap::new();
    let mut body = query.body.as_mut();
    // The first of several says what columns are called.
    while let SetExpr::SetOperation { left, .. } = body {
        body = left.as_mut();
    }
    let SetExpr::Select(select) = body else { return written };
    for item in &mut select.projection {
        match item {
            SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => (),
            SelectItem::UnnamedExpr(expr) => {
                let name = expr.to_string();
                let alias = Ident::with_quote('"', name.to_lowercase());
                written.insert(name.to_lowercase(), name);
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
            SelectItem::ExprWithAlias { alias, .. } => {
                let start = alias.span.start;
                let name = quoted.get(&(start.line, start.column)).unwrap_or(&alias.value).clone();
                written.insert(name.to_lowercase(), name);
            }
            _ => (),
        }
    }
    written
}

/// Finds the names of tables, and makes each one word.
#[derive(Default)]
struct Names {
    tables: Vec<TableName>,
    quoted: Quoted,
    /// What `WITH` has named, in each of the queries that lie around a place, and how many tables that reads; and what it says, which is looked at before the query that it belongs to.
    with: Vec<(BTreeMap<String, usize>, Option<With>)>,
    /// How many tables are read by what was looked at.
    read: usize,
}

impl Names {
    fn refused(what: impl Into<String>, at: Location) -> ControlFlow<Box<SqlError>> {
        ControlFlow::Break(Box::new(SqlError::new(what).at(at.line, at.column)))
    }
}

impl VisitorMut for Names {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        if !query.locks.is_empty() {
            return Self::refused("FOR UPDATE locks nothing here: files are read as they are", query.span().start);
        }
        let mut with = query.with.take();
        self.with.push((BTreeMap::new(), None));
        for table in with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            // One of the same name in it is a table, or what a query around it names.
            let before = std::mem::take(&mut self.read);
            table.query.visit(self)?;
            let read = std::mem::replace(&mut self.read, before);
            if let Some((names, _)) = self.with.last_mut() {
                names.insert(folded(&table.alias.name), read);
            }
        }
        if let Some((_, said)) = self.with.last_mut() {
            *said = with;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        query.with = self.with.pop().and_then(|(_, with)| with);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) if text.contains(['e', 'E']) => {
                float_of(expr);
            }
            Expr::TypedString(literal) => type_of_time(literal),
            _ => (),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        let what = match select {
            Select { distinct: Some(Distinct::On(_)), .. } => {
                "DISTINCT ON has no operator here: QUALIFY row_number() OVER (PARTITION BY .. ORDER BY ..) = 1 leaves the first row of each part"
            }
            Select { into: Some(_), .. } => "SELECT INTO makes no table here: --output says where the answer goes",
            Select { top: Some(_), .. } => "TOP is LIMIT here, behind the query",
            _ => return ControlFlow::Continue(()),
        };
        Self::refused(what, select.span().start)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        if let TableFactor::Table { name, sample, version, with_hints, index_hints, partitions, .. } = factor {
            let more = [
                sample.is_some(),
                version.is_some(),
                !with_hints.is_empty(),
                !index_hints.is_empty(),
                !partitions.is_empty(),
            ];
            if more.contains(&true) {
                let what = format!(
                    "what stands behind {name} has no operator here: all rows of a table are read, as its files have them"
                );
                return Self::refused(what, name.span().start);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<Self::Break> {
        let ident = match relation.0.as_slice() {
            [ObjectNamePart::Identifier(ident)] => ident.clone(),
            _ => {
                let what = format!("{relation} is no table: files go into quotes, as in FROM '{relation}'");
                return Self::refused(what, relation.span().start);
            }
        };
        let start = ident.span.start;
        let (folded, is_quoted) = (folded(&ident), ident.quote_style.is_some());
        let named = || self.with.iter().rev().find_map(|(names, _)| names.get(&folded)).copied();
        let named = if ident.quote_style == Some('\'') { None } else { named() };
        self.read += named.unwrap_or(1);
        if self.read > TABLES_MAX {
            let what = format!(
                "the query reads more than {TABLES_MAX} tables, what WITH names counted as often as it is used"
            );
            return Self::refused(what, start);
        }
        if named.is_some() {
            return ControlFlow::Continue(());
        }
        if folded.is_empty() {
            return Self::refused("a table has a name, or files in quotes", start);
        }
        let name = self.quoted.get(&(start.line, start.column)).cloned().unwrap_or(folded);
        *relation = ObjectName::from(vec![Ident { quote_style: Some('"'), value: name.clone(), span: ident.span }]);
        if self.tables.iter().all(|table| table.name != name) {
            self.tables.push(TableName { name, is_quoted, place: (start.line, start.column) });
        }
        ControlFlow::Continue(())
    }
}

/// A number with an exponent is a float; without one it is a decimal.
fn float_of(number: &mut Expr) {
    if let Expr::Value(ValueWithSpan { value, .. }) = number
        && let Value::Number(text, _) = value
    {
        *value = Value::SingleQuotedString(std::mem::take(text));
    }
    *number = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(number.clone()),
        data_type: DataType::Double(ExactNumberInfo::None),
        array: false,
        format: None,
    };
}

/// The digits of a second that times have unless more of them are written: so they reach from before our era to the year 294 000, and times with nine from 1678 to 2262.
pub(crate) const DIGITS: u64 = 6;

/// What a text says of a time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeOfDay {
    /// How many digits of a second there are.
    pub(crate) digits: u64,
    /// Something stands behind it, as a zone does.
    pub(crate) has_zone: bool,
}

impl TimeOfDay {
    /// `None`: the text is of a day alone, or of something else.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let (_, of_day) = text.trim().split_once([' ', 'T', 't'])?;
        let is_of_day = |c: char| c.is_ascii_digit() || matches!(c, ':' | '.');
        let behind_point = of_day.split_once('.').map_or("", |(_, behind)| behind);
        let digits = behind_point.bytes().take_while(u8::is_ascii_digit).count() as u64;
        let begins = text.trim().starts_with(|c: char| c.is_ascii_digit() || c == '-') && of_day.starts_with(is_of_day);
        begins.then(|| Self { digits, has_zone: !of_day.trim_start_matches(is_of_day).trim().is_empty() })
    }
}

/// `TIMESTAMP '..'` with a zone behind it has one (SQL:2016, 5.3), as `TIMESTAMPTZ` has.
fn type_of_time(literal: &mut TypedString) {
    let (DataType::Timestamp(digits, zone), Value::SingleQuotedString(text)) =
        (&mut literal.data_type, &literal.value.value)
    else {
        return;
    };
    let written = TimeOfDay::of(text);
    if *zone == TimezoneInfo::None && written.is_some_and(|written| written.has_zone) {
        *zone = TimezoneInfo::WithTimeZone;
    }
    if digits.is_none() && written.is_none_or(|written| written.digits <= DIGITS) {
        *digits = Some(DIGITS);
    }
}

/// A name as names are compared; what is in the quotes of texts is a file.
fn folded(ident: &Ident) -> String {
    if ident.quote_style == Some('\'') { ident.value.clone() } else { ident.value.to_lowercase() }
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
        let names = |text: &str| parse(text).unwrap().tables.into_iter().map(|table| table.name).collect::<Vec<_>>();
        // In it a name is that of a table; behind it, and in any quotes but those of texts, what it names.
        assert_eq!(names("WITH u AS (SELECT k FROM u) SELECT * FROM \"U\", 'u'"), ["u"]);
        assert_eq!(
            names("SELECT * FROM (WITH x AS (SELECT 1 FROM a) SELECT * FROM x) y, x, \"Dir/B\""),
            ["a", "x", "Dir/B"]
        );
    }

    #[test]
    fn what_is_no_query_is_refused_with_its_place() {
        let refused = |text: &str| parse(text).unwrap_err().to_string();
        assert!(refused("").contains("no query"));
        assert!(refused("DELETE FROM a").contains("a query reads"), "{}", refused("DELETE FROM a"));
        assert_eq!(refused("SELECT 1; SELECT 2"), "line 1, column 11: there is a second statement: a query is one");
        assert!(refused("SELECT DISTINCT ON (a) a FROM b").contains("DISTINCT ON has no operator"));
        assert!(refused("SELECT a FROM b TABLESAMPLE (10)").contains("line 1, column 15: what stands behind"));
        assert!(refused("EXPLAIN ANALYZE SELECT a FROM b").contains("a query reads"));
        assert!(refused(&vec!["SELECT a FROM b"; 5000].join(" UNION ALL ")).contains("too long"));
        assert!(refused(&format!("SELECT a FROM b WHERE {}", vec!["a = 1"; 3000].join(" OR "))).contains("too long"));
        assert!(parse(&format!("SELECT a FROM b WHERE {}", vec!["a = 1"; 900].join(" OR "))).is_ok());
        let doubled = |of: usize| format!(", c{of} AS (SELECT * FROM c{} JOIN c{0} USING (k))", of - 1);
        let with: String = (1..40).map(doubled).collect();
        assert!(
            refused(&format!("WITH c0 AS (SELECT k FROM t){with} SELECT * FROM c39")).contains("more than 1000 tables")
        );
        assert!(refused("SELECT a FORM b c").contains("line 1, column"), "{}", refused("SELECT a FORM b c"));
        let error = refused("SELECT a\nFROM pages.parquet");
        assert_eq!(
            error,
            "line 2, column 6: pages.parquet is no table: files go into quotes, as in FROM 'pages.parquet'"
        );
        assert!(refused(&format!("SELECT {}1{}", "(".repeat(500), ")".repeat(500))).contains("recursion"));
    }
}
