//! Checks a file, environment variables and the command line against the table of keys, and reads them: every problem with its place,
//! what was expected there, and the nearest key for one that does not exist.

use std::{fmt, ops::Range};

use toml::{
    Spanned, Value,
    de::{DeTable, DeValue},
};

use super::{
    keys::{self, Kind},
    layers::Setting,
};

/// One thing that is wrong, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `node.toml:3:5`, `environment variable EXOBUS_NODE__MEMORY`, or `--set node.memory`.
    pub place: String,
    /// What is wrong and what would be right.
    pub text: String,
    /// Whether it is a key or a section that is not known here, and nothing that is known has a wrong value: a later release may know it.
    pub is_unknown: bool,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// What a source says of keys, as far as it is right, and what is wrong with it.
#[derive(Debug, Default)]
pub struct Read {
    /// What is right.
    pub told: Vec<Told>,
    /// Everything that is wrong, in the order of the source.
    pub problems: Vec<Problem>,
}

/// The value of a key, where it has been found right.
#[derive(Debug)]
pub struct Told {
    /// The dotted name of the key.
    pub path: String,
    /// Its value.
    pub value: Value,
    /// The line of the file; 1 where there is none.
    pub line: usize,
}

/// What is found at a place of a source.
enum Found {
    Right { path: String, value: Value },
    Wrong(String),
    Unknown(String),
}

/// What the text of a file says.
pub fn file(name: &str, text: &str) -> Read {
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let place = place(name, text, &error.span().unwrap_or(0..0));
            let problem = Problem { place, text: error.message().trim().to_owned(), is_unknown: false };
            return Read { told: Vec::new(), problems: vec![problem] };
        }
    };
    let mut found = Vec::new();
    walk(table.get_ref(), "", &mut |span, what| found.push((span, what)));
    found.sort_by_key(|(span, _)| span.start);
    let mut read = Read::default();
    for (span, what) in found {
        read.add(place(name, text, &span), line(text, &span), what);
    }
    read
}

/// What an environment variable says of the key of this dotted name.
pub fn variable(variable: &str, path: &str, value: &str) -> Read {
    let mut read = Read::default();
    let found = match keys::kind_of(path) {
        Some(kind) => match of_text(kind, value) {
            Some(value) => Found::Right { path: path.to_owned(), value },
            None => {
                let expected = match kind {
                    Kind::Paths | Kind::Texts => "a list with colons between its items such as /disk1:/disk2",
                    _ => kind.expected(),
                };
                Found::Wrong(format!("`{path}` cannot be {:?}; expected {expected}", without_password(value)))
            }
        },
        None => Found::Unknown(unknown("key", path)),
    };
    read.add(format!("environment variable {variable}"), 1, found);
    read
}

/// A value of this kind that is written as text alone, as the environment does: without quotes, and lists with colons.
fn of_text(kind: Kind, text: &str) -> Option<Value> {
    match kind {
        Kind::Flag => text.parse().ok().map(Value::Boolean),
        Kind::Count | Kind::Replicas => {
            let number = text.parse().ok().filter(|number| kind.accepts_number(*number))?;
            Some(Value::Integer(number.into()))
        }
        Kind::Paths | Kind::Texts => {
            let items = items(text);
            let all = items.iter().all(|item| !item.is_empty());
            all.then(|| items.into_iter().map(|item| Value::String(item.to_owned())).collect::<Vec<_>>().into())
        }
        _ => kind.accepts_text(text).then(|| Value::String(text.to_owned())),
    }
}

/// The items of a list with colons between them. That of a URL, before its slashes, is none of these.
fn items(text: &str) -> Vec<&str> {
    let (mut items, mut from) = (Vec::new(), 0);
    for (at, _) in text.match_indices(':').filter(|(at, _)| !text[at + 1..].starts_with("//")) {
        items.push(&text[from..at]);
        from = at + 1;
    }
    items.push(&text[from..]);
    items
}

/// What the command line says of a key, or of several where the value is a table.
pub fn setting(setting: &Setting) -> Read {
    let Setting { option, path, text } = setting;
    let mut read = Read::default();
    let place = || format!("{option} {path}");
    // A text is one value of TOML, or none of it is.
    let line = format!("value = {text}");
    let table = DeTable::parse(&line).ok().filter(|table| table.get_ref().len() == 1);
    let value = table.as_ref().and_then(|table| table.get_ref().get("value"));
    let as_text = || {
        let accepted = keys::kind_of(path).is_some_and(|kind| kind.accepts_text(text));
        accepted.then(|| Found::Right { path: path.clone(), value: Value::String(text.clone()) })
    };
    let mut add = |what| read.add(place(), 1, what);
    match value {
        Some(value) => match value.get_ref() {
            DeValue::Array(_) | DeValue::Table(_) | DeValue::String(_) => {
                look(path, &(0..0), value, &mut |_, what| add(what))
            }
            // A text without its quotes may look like a number, as labels do.
            _ => look(path, &(0..0), value, &mut |_, what| match what {
                Found::Wrong(text) => add(as_text().unwrap_or(Found::Wrong(text))),
                what => add(what),
            }),
        },
        None if keys::section(path).is_some() => add(Found::Wrong(section_expected(path))),
        None => add(match keys::kind_of(path) {
            Some(kind) => as_text().unwrap_or_else(|| {
                Found::Wrong(format!("`{path}` cannot be {:?}; expected {}", without_password(text), kind.expected()))
            }),
            None => Found::Unknown(unknown("key", path)),
        }),
    }
    read
}

impl Read {
    fn add(&mut self, place: String, line: usize, found: Found) {
        match found {
            Found::Right { path, value } => self.told.push(Told { path, value, line }),
            Found::Wrong(text) => self.problems.push(Problem { place, text, is_unknown: false }),
            Found::Unknown(text) => self.problems.push(Problem { place, text, is_unknown: true }),
        }
    }
}

/// A password that was written into a URL all the same is not repeated in the error.
fn without_password(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}***{}", &text[..scheme + 3], &text[at..]),
        _ => text.to_owned(),
    }
}

fn walk(table: &DeTable<'_>, section_name: &str, report: &mut impl FnMut(Range<usize>, Found)) {
    for (key, value) in table {
        let path = match section_name {
            "" => key.get_ref().to_string(),
            _ => format!("{section_name}.{}", key.get_ref()),
        };
        look(&path, &key.span(), value, &mut *report);
    }
}

/// Looks at a value under a dotted name that stands at `name`.
fn look(path: &str, name: &Range<usize>, value: &Spanned<DeValue<'_>>, report: &mut dyn FnMut(Range<usize>, Found)) {
    let is_section = keys::section(path).is_some();
    match (value.get_ref(), keys::kind_of(path)) {
        // What nobody says anything of is not there.
        (DeValue::Table(inner), _) if is_section && path.starts_with("tenants.") && inner.is_empty() => {
            report(name.clone(), Found::Wrong(format!("[{path}] is empty; say at least its roots")));
        }
        (DeValue::Array(items), Some(_)) if path.starts_with("tenants.") && items.is_empty() => {
            report(
                value.span(),
                Found::Wrong(format!("`{path}` cannot be empty; leave it out for the roots of [security]")),
            );
        }
        (DeValue::Table(inner), _) if is_section => walk(inner, path, &mut |span, what| report(span, what)),
        (_, _) if is_section => report(value.span(), Found::Wrong(section_expected(path))),
        (_, Some(kind)) => report(value.span(), of_toml(path, kind, value.get_ref())),
        (DeValue::Table(_), None) => report(name.clone(), Found::Unknown(unknown("section", path))),
        (_, None) => report(name.clone(), Found::Unknown(unknown("key", path))),
    }
}

fn section_expected(path: &str) -> String {
    format!("`{path}` is a section; write [{path}] and its keys below")
}

fn of_toml(path: &str, kind: Kind, value: &DeValue<'_>) -> Found {
    let right = match value {
        DeValue::String(text) => kind.accepts_text(text).then(|| Value::String(text.to_string())),
        DeValue::Boolean(flag) => (kind == Kind::Flag).then_some(Value::Boolean(*flag)),
        DeValue::Integer(number) => {
            let number = u32::from_str_radix(number.as_str(), number.radix()).ok();
            number.filter(|number| kind.accepts_number(*number)).map(|number| Value::Integer(number.into()))
        }
        DeValue::Array(items) if kind.is_list() => {
            let text = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
                DeValue::String(text) if !text.is_empty() => Some(Value::String(text.to_string())),
                _ => None,
            };
            items.iter().map(text).collect::<Option<Vec<_>>>().map(Value::Array)
        }
        _ => None,
    };
    if let Some(value) = right {
        return Found::Right { path: path.to_owned(), value };
    }
    let given = match value {
        DeValue::String(text) => format!("{:?}", without_password(text)),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Array(_) => "this list".into(),
        DeValue::Table(_) => "a section".into(),
        DeValue::Datetime(time) => time.to_string(),
    };
    Found::Wrong(format!("`{path}` cannot be {given}; expected {}", kind.expected()))
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
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{name}:{}:{column}", line(text, span))
}

/// The line where it begins, from 1.
fn line(text: &str, span: &Range<usize>) -> usize {
    text[..text.floor_char_boundary(span.start)].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::items;

    #[test]
    fn colons_are_between_items_and_in_urls() {
        assert_eq!(items("/a:/b"), ["/a", "/b"]);
        assert_eq!(items("s3://lake/a:/data:s3://b"), ["s3://lake/a", "/data", "s3://b"]);
        assert_eq!(items("/a:"), ["/a", ""]);
    }
}
