//! Checks a file, and environment variables, against the table of keys: every problem with its place, what was
//! expected there, and the nearest key for one that does not exist.

use std::{fmt, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::keys::{self, Kind};

/// One thing that is wrong, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `node.toml:3:5`, or `environment variable EXOBUS_NODE__MEMORY`.
    pub place: String,
    /// What is wrong and what would be right.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// Everything that is wrong with the text of a file, in its order.
pub fn file(name: &str, text: &str) -> Vec<Problem> {
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let span = error.span().unwrap_or(0..0);
            return vec![Problem { place: place(name, text, &span), text: error.message().trim().to_owned() }];
        }
    };
    let mut found = Vec::new();
    walk(table.get_ref(), "", &mut |span, problem| found.push((span.start, problem, span)));
    found.sort_by_key(|(start, ..)| *start);
    found.into_iter().map(|(_, problem, span)| Problem { place: place(name, text, &span), text: problem }).collect()
}

/// What is wrong with the value of an environment variable for the key of this dotted name.
pub fn variable(variable: &str, path: &str, value: &str) -> Option<Problem> {
    let place = format!("environment variable {variable}");
    let Some(kind) = keys::kind_of(path) else {
        return Some(Problem { place, text: unknown("key", path) });
    };
    let accepted = match kind {
        Kind::Flag => value.parse::<bool>().is_ok(),
        Kind::Count | Kind::Replicas => value.parse().is_ok_and(|number| kind.accepts_number(number)),
        Kind::Paths | Kind::Texts => value.split(':').all(|item| !item.is_empty()),
        _ => kind.accepts_text(value),
    };
    let expected = match kind {
        Kind::Paths | Kind::Texts => "a list with colons between its items such as /disk1:/disk2",
        _ => kind.expected(),
    };
    (!accepted).then(|| Problem {
        place,
        text: format!("`{path}` cannot be {:?}; expected {expected}", without_password(value)),
    })
}

/// A password that was written into a URL all the same is not repeated in the error.
fn without_password(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}***{}", &text[..scheme + 3], &text[at..]),
        _ => text.to_owned(),
    }
}

fn walk(table: &DeTable<'_>, section_name: &str, report: &mut impl FnMut(Range<usize>, String)) {
    for (key, value) in table {
        let path = match section_name {
            "" => key.get_ref().to_string(),
            _ => format!("{section_name}.{}", key.get_ref()),
        };
        let is_section = keys::section(&path).is_some();
        match (value.get_ref(), keys::kind_of(&path)) {
            (DeValue::Table(inner), _) if is_section => walk(inner, &path, report),
            (_, _) if is_section => {
                report(value.span(), format!("`{path}` is a section; write [{path}] and its keys below"));
            }
            (_, Some(kind)) => {
                if let Some(problem) = wrong_value(&path, kind, value) {
                    report(value.span(), problem);
                }
            }
            (DeValue::Table(_), None) => report(key.span(), unknown("section", &path)),
            (_, None) => report(key.span(), unknown("key", &path)),
        }
    }
}

fn wrong_value(path: &str, kind: Kind, value: &Spanned<DeValue<'_>>) -> Option<String> {
    let accepted = match value.get_ref() {
        DeValue::String(text) => kind.accepts_text(text),
        DeValue::Boolean(_) => kind == Kind::Flag,
        DeValue::Integer(number) => {
            let number = u32::from_str_radix(number.as_str(), number.radix());
            number.is_ok_and(|number| kind.accepts_number(number))
        }
        DeValue::Array(items) => {
            kind.is_list()
                && items.iter().all(|item| matches!(item.get_ref(), DeValue::String(text) if !text.is_empty()))
        }
        _ => false,
    };
    let given = match value.get_ref() {
        DeValue::String(text) => format!("{:?}", without_password(text)),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Array(_) => "this list".into(),
        DeValue::Table(_) => "a section".into(),
        DeValue::Datetime(time) => time.to_string(),
    };
    (!accepted).then(|| format!("`{path}` cannot be {given}; expected {}", kind.expected()))
}

fn unknown(what: &str, path: &str) -> String {
    match keys::nearest(path) {
        Some(known) => format!("unknown {what} `{path}`; did you mean `{known}`?"),
        None => format!("unknown {what} `{path}`; `exobus config default` prints all that there are"),
    }
}

/// `file:line:column`, both from 1, the column in characters.
fn place(name: &str, text: &str, span: &Range<usize>) -> String {
    let before = &text[..text.floor_char_boundary(span.start)];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{name}:{line}:{column}")
}
