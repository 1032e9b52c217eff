//! The fields of a spec, checked against those of its kind.

use std::ffi::OsString;
use std::fmt::Display;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_json::{Map, Value, json};

use super::field::{Field, Need, Takes};
use super::nearest::hint;
use super::units::parse_size;
use super::{SpecCode, SpecError, conceal, shown};
use crate::registry::Roots;

/// The fields of a spec: each is one of its kind and has a value that it takes, and those are there that are needed.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    given: &'a Map<String, Value>,
    roots: &'a Roots,
}

impl<'a> Fields<'a> {
    /// Checks what is given for a kind, by somebody who may look below these roots.
    ///
    /// # Errors
    /// A field that the kind does not have, a value of another type, a field that is not there: the first one in the order of names,
    /// with its place and what was expected.
    pub fn of(
        kind: &str,
        table: &'static [Field],
        given: (&'a Map<String, Value>, &'a Roots),
    ) -> Result<Self, SpecError> {
        Self::checked((kind, table), given, |need| need != Need::Never)
    }

    /// The same for a job that is only explained.
    ///
    /// # Errors
    /// As of [`Fields::of`].
    pub fn to_explain(
        kind: &str,
        table: &'static [Field],
        given: (&'a Map<String, Value>, &'a Roots),
    ) -> Result<Self, SpecError> {
        Self::checked((kind, table), given, |need| need == Need::Always)
    }

    fn checked(
        (kind, table): (&str, &'static [Field]),
        (given, roots): (&'a Map<String, Value>, &'a Roots),
        is_needed: impl Fn(Need) -> bool,
    ) -> Result<Self, SpecError> {
        for (name, value) in given {
            let field = table.iter().find(|field| field.name == name);
            check(field.ok_or_else(|| unknown(kind, table, name))?, value)?;
        }
        let missing = table.iter().find(|field| is_needed(field.need) && !given.contains_key(field.name));
        match missing {
            None => Ok(Self { given, roots }),
            Some(field) => {
                let message = format!("`{kind}` needs `{}`", field.example());
                Err(SpecError::new(SpecCode::Missing, message).at(field.name))
            }
        }
    }

    /// Below what whoever plans may look at files; where there are none, everywhere.
    pub fn roots(&self) -> &'a Roots {
        self.roots
    }

    /// Whether a field is there.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The first of these that is there.
    pub fn first_of(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.has(name))
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name)?.as_str()
    }

    /// A flag, false unless it is said.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.as_u64()
    }

    /// Bytes.
    pub fn size(&self, name: &str) -> Option<u64> {
        parse_size(self.text(name)?).ok()
    }

    /// Texts.
    pub fn texts(&self, name: &str) -> Vec<&'a str> {
        self.get(name).map(texts).unwrap_or_default()
    }

    /// A text as what it says.
    ///
    /// # Errors
    /// It says nothing of that kind.
    pub fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, SpecError> {
        self.text(name).map(|text| parsed(name, text)).transpose()
    }

    /// Texts as what they say.
    ///
    /// # Errors
    /// One of them says nothing of that kind.
    pub fn all_parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Vec<T>, SpecError> {
        let is_list = self.get(name).is_some_and(Value::is_array);
        let at = |index| if is_list { format!("{name}[{index}]") } else { name.to_owned() };
        self.texts(name).into_iter().enumerate().map(|(index, text)| parsed(&at(index), text)).collect()
    }

    /// Paths.
    pub fn paths(&self, name: &str) -> Vec<PathBuf> {
        match self.get(name) {
            Some(Value::Array(list)) => list.iter().filter_map(path_of).collect(),
            Some(value) => path_of(value).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// One path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        path_of(self.get(name)?)
    }

    /// Refuses two of these together.
    ///
    /// # Errors
    /// Two are there.
    pub fn one_of(&self, names: &[&str]) -> Result<(), SpecError> {
        let mut given = names.iter().filter(|name| self.has(name));
        let (Some(one), Some(other)) = (given.next(), given.next()) else { return Ok(()) };
        let message = format!("`{one}` and `{other}` cannot both be said: leave one of them out");
        Err(SpecError::new(SpecCode::Invalid, message).at(*other))
    }

    /// A field that says something: a list of nothing does not.
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.given.get(name).filter(|value| !value.as_array().is_some_and(Vec::is_empty))
    }
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => text.split(',').collect(),
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn parsed<T: FromStr<Err: Display>>(at: &str, text: &str) -> Result<T, SpecError> {
    let invalid = |error: T::Err| SpecError::new(SpecCode::Invalid, conceal(&error.to_string(), text)).at(at);
    text.parse().map_err(invalid)
}

fn unknown(kind: &str, table: &[Field], name: &str) -> SpecError {
    let common = super::common::NAMES.iter().copied();
    let known = table.iter().map(|field| field.name).chain(common);
    let hint = hint(name, known, &format!("`exobus schema {kind}` prints all that there are"));
    let message = format!("`{}` is no field of `{kind}`; {hint}", shown(name));
    SpecError::new(SpecCode::UnknownField, message).at(shown(name))
}

/// Refuses a value that a field does not take.
fn check(field: &Field, value: &Value) -> Result<(), SpecError> {
    let name = field.name;
    let item = |index: usize| format!("{name}[{index}]");
    let wrong = |at: String, code, value: &Value| {
        let message = format!("`{at}` cannot be {}; expected {}", described(value), field.takes.expected());
        Err(SpecError::new(code, message).at(at))
    };
    let each = |is_right: &dyn Fn(&Value) -> bool, code| match value {
        Value::Array(list) => match list.iter().position(|value| !is_right(value)) {
            None => Ok(()),
            Some(index) => wrong(item(index), code, &list[index]),
        },
        value if is_right(value) => Ok(()),
        value => wrong(name.to_owned(), code, value),
    };
    let is_text = |value: &Value| value.is_string();
    let is_path = |value: &Value| path_of(value).is_some();
    let one = |is_right: bool, code| if is_right { Ok(()) } else { wrong(name.to_owned(), code, value) };
    let (wrong_type, invalid) = (SpecCode::WrongType, SpecCode::Invalid);
    match field.takes {
        Takes::Text => one(value.is_string(), wrong_type),
        Takes::Texts => each(&is_text, wrong_type),
        Takes::Word(words) => {
            one(value.is_string(), wrong_type)?;
            one(value.as_str().is_some_and(|text| words().contains(&text)), invalid)
        }
        Takes::Words(words) => {
            each(&is_text, wrong_type)?;
            each(&|value| texts(value).iter().all(|text| words().contains(text)), invalid)
        }
        Takes::Flag => one(value.is_boolean(), wrong_type),
        Takes::Number(least, most) => {
            one(value.is_i64() || value.is_u64(), wrong_type)?;
            one(value.as_u64().is_some_and(|number| (least..=most).contains(&number)), invalid)
        }
        Takes::Size => {
            one(value.is_string(), wrong_type)?;
            one(value.as_str().is_some_and(|text| parse_size(text).is_ok()), invalid)
        }
        Takes::Reads => {
            each(&is_path, wrong_type)?;
            each(&is_named, invalid)?;
            let message = || format!("`{name}` has no path in it: {}", field.example());
            let is_empty = value.as_array().is_some_and(Vec::is_empty);
            if is_empty { Err(SpecError::new(invalid, message()).at(name)) } else { Ok(()) }
        }
        Takes::Writes => {
            one(is_path(value), wrong_type)?;
            one(is_named(value), invalid)
        }
    }
}

/// A value in an error.
fn described(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => shown(&number.to_string()),
        Value::String(text) => format!("{:?}", shown(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a table".to_owned(),
    }
}

/// The name of the one entry of a path that is no text.
const BYTES: &str = "bytes";

/// A path as a spec has it: a text, or `{ bytes = [..] }` where it is none.
pub fn path_value(path: &Path) -> Value {
    match path.to_str() {
        Some(text) => text.into(),
        None => json!({ BYTES: path.as_os_str().as_bytes() }),
    }
}

/// The path that a value is.
pub(super) fn path_of(value: &Value) -> Option<PathBuf> {
    match value {
        Value::String(text) => Some(PathBuf::from(text)),
        Value::Object(table) if table.len() == 1 => {
            let byte = |value: &Value| value.as_u64().and_then(|byte| u8::try_from(byte).ok());
            let bytes: Option<Vec<u8>> = table.get(BYTES)?.as_array()?.iter().map(byte).collect();
            Some(PathBuf::from(OsString::from_vec(bytes?)))
        }
        _ => None,
    }
}

/// Whether a path names something: an empty one, or one with a zero byte, names nothing.
fn is_named(value: &Value) -> bool {
    path_of(value).is_some_and(|path| !path.as_os_str().is_empty() && !path.as_os_str().as_bytes().contains(&0))
}
