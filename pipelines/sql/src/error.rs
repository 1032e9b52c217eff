//! What is wrong with a query, and where in its text.

use std::fmt;

use datafusion_common::error::SchemaError;
use datafusion_common::{DataFusionError, Span};
use exobus_tables::hint::{did_you_mean, nearest};

use crate::rows::NoScalar;

/// Where in a text something is, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// What is wrong with a query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", position.map(|position| format!("{position}: ")).unwrap_or_default())]
pub struct SqlError {
    /// Where in the text, where that is known.
    pub position: Option<Position>,
    /// What, and what to do about it.
    pub what: String,
    /// Words of the text which it may be about, in small letters, several with a space between them: where the place is not known, the first of them that is there says it.
    pub(crate) about: Vec<String>,
}

impl SqlError {
    /// Something that has no place in the text.
    pub fn new(what: impl Into<String>) -> Self {
        Self { position: None, what: what.into(), about: Vec::new() }
    }

    /// What there is nothing for here.
    pub(crate) fn refused(what: impl fmt::Display) -> Self {
        Self::new(format!("{what} has no operator here"))
    }

    /// The same at a place of the text.
    #[must_use]
    pub fn at(self, line: u64, column: u64) -> Self {
        // A place that nobody knows is said as line 0.
        let position = (line > 0).then_some(Position { line, column });
        Self { position: self.position.or(position), ..self }
    }

    /// The same about one of these words.
    #[must_use]
    pub(crate) fn about(self, words: &[&str]) -> Self {
        Self { about: words.iter().map(|words| words.to_lowercase()).collect(), ..self }
    }

    /// The same with the place of the first words in a text that it is about, where it has none.
    #[must_use]
    pub(crate) fn placed_by(self, text: &PlacedWords) -> Self {
        match self.about.iter().find_map(|words| text.place_of(words)) {
            Some((line, column)) => self.at(line, column),
            None => self,
        }
    }

    /// The same about one line of the text, which others know as a text of its own.
    pub(crate) fn in_line(self, line: u64) -> String {
        match self.position.filter(|position| position.line == line) {
            Some(Position { column, .. }) => format!("column {column}: {}", self.what),
            None => self.what,
        }
    }

    fn at_span(self, span: Option<Span>) -> Self {
        span.map_or(self.clone(), |span| self.at(span.start.line, span.start.column))
    }
}

/// The words of a text that are in no quotes, in small letters, with their lines and columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacedWords(Vec<(String, (u64, u64))>);

impl PlacedWords {
    pub(crate) fn add(&mut self, word: &str, place: (u64, u64)) {
        self.0.push((word.to_lowercase(), place));
    }

    /// Where words follow each other for the first time.
    fn place_of(&self, words: &str) -> Option<(u64, u64)> {
        let words: Vec<&str> = words.split(' ').collect();
        let is_here =
            |here: &&[(String, (u64, u64))]| here.iter().map(|(word, _)| word.as_str()).eq(words.iter().copied());
        self.0.windows(words.len()).find(is_here).map(|here| here[0].1)
    }
}

impl From<NoScalar> for SqlError {
    fn from(error: NoScalar) -> Self {
        let refused = Self::new(error.to_string());
        match &error {
            NoScalar::Volatile { name } | NoScalar::Grows { name } => refused.about(&[name]),
            _ => refused,
        }
    }
}

/// The words before a place in what the parser says.
const AT_LINE: &str = " at Line: ";

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> Self {
        let span = error.diagnostic().and_then(|diagnostic| diagnostic.span);
        match error.find_root() {
            DataFusionError::SchemaError(schema, _) => match schema.as_ref() {
                SchemaError::FieldNotFound { field, valid_fields } => {
                    let span = span.or(field.spans().first());
                    let of_others = valid_fields.iter().find(|column| column.name == field.name);
                    let (said, hint) = match (&field.relation, of_others) {
                        (Some(table), Some(other)) => (format!("{table}.{}", field.name), Some(other.flat_name())),
                        _ => {
                            let names: Vec<&str> = valid_fields.iter().map(|column| column.name.as_str()).collect();
                            (field.name.clone(), nearest(&field.name, &names).map(str::to_owned))
                        }
                    };
                    let hint = hint.map(|name| format!("; {}", did_you_mean(&name))).unwrap_or_default();
                    Self::new(format!("no column {said}{hint}")).about(&[&field.name]).at_span(span)
                }
                other => Self::new(other.to_string()).at_span(span),
            },
            DataFusionError::SQL(parsed, _) => Self::parsed(&parsed.to_string()),
            root => {
                let text = plainly(&root.strip_backtrace());
                let words = words_of(&text);
                let what = of_call(&text).unwrap_or(text);
                Self { about: words, ..Self::new(what) }.at_span(span)
            }
        }
    }
}

impl SqlError {
    /// Of what the parser says.
    pub(crate) fn parsed(text: &str) -> Self {
        let text = text.strip_prefix("sql parser error: ").unwrap_or(text);
        let placed = text.rsplit_once(AT_LINE).and_then(|(what, place)| {
            let (line, column) = place.split_once(", Column: ")?;
            Some(Self::new(what).at(line.parse().ok()?, column.trim().parse().ok()?))
        });
        placed.unwrap_or_else(|| Self::new(text))
    }
}

/// What a function takes, which another one says in more words.
fn of_call(text: &str) -> Option<String> {
    let between = |before: &str, behind: &str| Some(text.split_once(before)?.1.split_once(behind)?.0);
    const HINT: &str = "CAST(.. AS ..) makes another type of a value";
    if let Some(call) = between("No function matches the given name and argument types '", "'") {
        return Some(format!("there is no {call}; {HINT}"));
    }
    let name = between("unction '", "' failed to match any signature")?;
    if let Some(count) = between("expects ", " arguments but received") {
        return Some(format!("{name}() takes {count} of them: it has another number of arguments"));
    }
    Some(format!("there is no {name}({}); {HINT}", between("(DataType: ", ")")?))
}

/// Words which an error may be about: names in quotes, without that of their table, and clauses.
fn words_of(text: &str) -> Vec<String> {
    let quoted = text.split('\'').skip(1).step_by(2);
    let names =
        quoted.map(|name| name.rsplit('.').next().unwrap_or(name).split('(').next().unwrap_or(name).to_lowercase());
    let small = text.to_lowercase();
    let clauses = ["order by", "group by", "limit", "offset", "like", "between", "where", "having", "substr"];
    let clauses = clauses.into_iter().filter(|clause| small.contains(clause)).map(str::to_owned);
    let last = small.rsplit(' ').next().filter(|_| small.starts_with("unsupported")).map(str::to_owned);
    let filter = small.contains("filter with non-boolean").then(|| "where".to_owned());
    names.chain(filter).chain(clauses).chain(last).collect()
}

/// An error of DataFusion without the words by which it calls kinds of its errors, and with types as tables call them.
pub(crate) fn plainly(text: &str) -> String {
    const KINDS: [&str; 9] = [
        "Error during planning: ",
        "This feature is not implemented: ",
        "SQL error: ",
        "Schema error: ",
        "Execution error: ",
        "Arrow error: ",
        "Cast error: ",
        "Compute error: ",
        "Optimizer rule 'simplify_expressions' failed\ncaused by\n",
    ];
    const TYPES: [(&str, &str); 5] =
        [("Utf8View", "text"), ("Utf8", "text"), ("BinaryView", "binary"), ("Int64", "int64"), ("Float64", "float64")];
    let mut text = text;
    while let Some(rest) = KINDS.iter().find_map(|kind| text.strip_prefix(kind)) {
        text = rest;
    }
    let text = TYPES.iter().fold(text.to_owned(), |text, (kind, name)| text.replace(kind, name));
    let text = text.replace("While expanding wildcard, column", "column");
    if text.starts_with("getFieldAccess") {
        return "elements and fields of values have no operator here".to_owned();
    }
    // Trees of the parser, and where somebody else takes reports of faults, help nobody.
    let end = [" Substring {", "\nThis issue was likely caused by a bug"].iter().filter_map(|cut| text.find(cut)).min();
    let text = end.map_or(text.as_str(), |end| &text[..end]).to_owned();
    let mut letters = text.chars();
    match letters.next() {
        // A sentence behind a place begins small, unless its first word is a name.
        Some(first) if text.chars().nth(1).is_some_and(char::is_lowercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_words_has_the_place_of_the_first_that_are_there() {
        let mut text = PlacedWords::default();
        [("SELECT", 1), ("not", 3), ("a", 4), ("NOT", 7), ("in", 8)]
            .into_iter()
            .for_each(|(word, at)| text.add(word, (1, at)));
        let of = |words: &[&str]| SqlError::new("x").about(words).placed_by(&text).to_string();
        assert_eq!(of(&["over", "NOT IN", "select"]), "line 1, column 7: x");
        assert_eq!(of(&["in not"]), "x");
        assert_eq!(SqlError::new("x").at(3, 2).about(&["a"]).placed_by(&text).to_string(), "line 3, column 2: x");
    }

    #[test]
    fn what_others_say_at_length_is_told_in_a_line() {
        let said = |text: &str| {
            let error = SqlError::from(DataFusionError::Plan(text.to_owned()));
            (error.what.clone(), error.about)
        };
        let (what, about) = said(
            "Failed to coerce arguments to satisfy a call to 'bool_and' function: coercion failed. No function matches the given name and argument types 'bool_and(Utf8View)'. You might need to add explicit type casts.",
        );
        assert_eq!(what, "there is no bool_and(text); CAST(.. AS ..) makes another type of a value");
        assert_eq!(about[..2], ["bool_and", "bool_and"]);
        let many = "Function 'sum' failed to match any signature, errors: Error during planning: Function 'sum' ";
        let (what, _) = said(&format!("{many}requires Decimal, but received String (DataType: Utf8View)."));
        assert_eq!(what, "there is no sum(text); CAST(.. AS ..) makes another type of a value");
        let (what, _) = said(&format!("{many}expects 1 arguments but received 2"));
        assert_eq!(what, "sum() takes 1 of them: it has another number of arguments");
        let (what, about) = said("Cannot create filter with non-boolean predicate 't.lang' returning Utf8View");
        assert_eq!(
            (what.as_str(), &about[0]),
            ("cannot create filter with non-boolean predicate 't.lang' returning text", &"lang".to_owned())
        );
        assert_eq!(said("Unsupported SQL type FOO").1, ["foo"]);
        assert_eq!(
            said("substring without for/from is not valid Substring { expr: x }").0,
            "substring without for/from is not valid"
        );
    }

    #[test]
    fn what_the_parser_says_has_its_place_before_it() {
        let error = SqlError::parsed("sql parser error: Expected: an expression, found: FROM at Line: 2, Column: 14");
        assert_eq!(error.to_string(), "line 2, column 14: Expected: an expression, found: FROM");
        assert_eq!(SqlError::parsed("something").to_string(), "something");
    }
}
