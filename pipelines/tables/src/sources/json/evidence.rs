//! What the first rows of files show of the types of their columns.
//!
//! A column, also one within another, has the first of these types that all values have which were looked at; nulls are of every type:
//!
//! | type | values |
//! |---|---|
//! | `bool` | `true`, `false` |
//! | `int64`, `uint64`, `decimal(38,0)`, `decimal(76,0)` | whole numbers, written without a point and an exponent |
//! | `float64` | other numbers, and whole ones among them which it has all digits of |
//! | `text` | texts, and columns of nulls only: dates and times are texts unless a type is said |
//! | `list(...)` | lists, of the type of all of their elements; of text where all are empty |
//! | `struct(...)` | objects, of all fields that any of them has; `struct()` where all are empty |
//!
//! There is no type of two of these kinds: such a column is refused with the place of one value of each, or is text with `--json-mixed text`.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow_schema::{DataType, Field};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::super::error::shown;
use super::super::memory::Reservation;
use super::super::schema_text::print_column;
use super::super::{MemoryDenied, SourceError};
use super::value::{Kind, Step, Steps, digits, has_float, is_whole, syntax, whole_decimal};
use crate::plain::{COLUMNS_MAX, DEPTH_MAX};

/// What a column takes while it is looked at, beside its name: it, its place among others, and texts of values that errors may show.
const COLUMN_BYTES: u64 = 2048;

/// A value that was met, and where: the first of its kind.
#[derive(Clone, Debug)]
struct Met {
    file: Arc<str>,
    line: u64,
    value: String,
}

/// What values of a column could be.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// The first of each kind.
    met: [Option<Box<Met>>; KINDS.len()],
    numbers: Numbers,
    /// One that is nested deeper than types are.
    deep: Option<Box<Met>>,
    fields: Columns,
    items: Option<Box<Evidence>>,
}

/// The kinds of which a column has one.
const KINDS: [Kind; 5] = [Kind::Text, Kind::Bool, Kind::Number, Kind::List, Kind::Object];

#[derive(Debug, Default)]
struct Numbers {
    /// Whether all whole ones fit in 64 bits with a sign, or without.
    is_long: bool,
    is_unsigned: bool,
    /// Most digits of a whole one.
    digits: usize,
    whole: Option<Box<Met>>,
    float: Option<Box<Met>>,
    /// The first whole one that no float has all digits of, and the first number of any kind that is too large for one.
    uneven: Option<Box<Met>>,
    infinite: Option<Box<Met>>,
}

/// Columns by their names, in the order in which they were met.
#[derive(Debug, Default)]
pub(super) struct Columns {
    columns: Vec<Column>,
    numbers: HashMap<String, usize>,
}

#[derive(Debug)]
struct Column {
    name: String,
    of: Evidence,
    /// The last of the objects that were looked at which has it.
    last: u64,
    /// Its values are not looked at.
    is_passed: bool,
}

/// Looks at rows, one behind the other.
pub(super) struct Looking<'a> {
    /// Columns at the top that are not looked at.
    pub(super) is_passed: &'a dyn Fn(&str) -> bool,
    pub(super) memory: Reservation,
    columns: usize,
    objects: u64,
}

/// Why a row is not looked at to its end.
#[derive(Debug)]
pub(super) enum NotLooked {
    Denied(MemoryDenied),
    /// It is wrong, whatever its columns are.
    Wrong(String),
}

/// A file, and a line of it.
#[derive(Clone, Copy)]
pub(super) struct Here<'a> {
    pub(super) file: &'a Arc<str>,
    pub(super) line: u64,
}

impl Met {
    fn new(here: Here<'_>, raw: &str) -> Box<Self> {
        Box::new(Self { file: here.file.clone(), line: here.line, value: shown(raw.as_bytes()) })
    }
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (in {}, line {})", self.value, self.file, self.line)
    }
}

impl<'a> Looking<'a> {
    /// Within memory that is asked for.
    pub(super) fn new(memory: Reservation, is_passed: &'a dyn Fn(&str) -> bool) -> Self {
        Self { is_passed, memory, columns: 0, objects: 0 }
    }

    /// Looks at a row, which is an object.
    pub(super) fn row(&mut self, columns: &mut Columns, here: Here<'_>, line: &str) -> Result<(), NotLooked> {
        let mut look = Look { looking: self, here, steps: Steps::default(), failed: None };
        let found = look.object(columns, line, 1);
        let (failed, path) = (look.failed, look.steps.path());
        match (found, failed) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(NotLooked::Wrong(what))) if !path.is_empty() => {
                Err(NotLooked::Wrong(format!("column {path}: {what}")))
            }
            (Err(_), Some(failed)) => Err(failed),
            (Err(error), None) => Err(NotLooked::Wrong(syntax(line, &error, "line"))),
        }
    }
}

/// A look at one row.
struct Look<'l, 'a, 'h> {
    looking: &'l mut Looking<'a>,
    here: Here<'h>,
    /// To what is wrong, as far as it was gone back.
    steps: Steps,
    failed: Option<NotLooked>,
}

impl Look<'_, '_, '_> {
    /// An error of the library for one that is kept.
    fn fail(&mut self, failed: NotLooked) -> serde_json::Error {
        self.failed = Some(failed);
        serde_json::Error::custom("")
    }

    fn object(&mut self, columns: &mut Columns, raw: &str, depth: usize) -> Result<(), serde_json::Error> {
        self.looking.objects += 1;
        let object = self.looking.objects;
        let mut deserializer = serde_json::Deserializer::from_str(raw);
        Object { look: self, columns, object, depth, of: PhantomData }.deserialize(&mut deserializer)?;
        deserializer.end()
    }

    fn value(&mut self, of: &mut Evidence, raw: &str, depth: usize) -> Result<(), serde_json::Error> {
        let kind = Kind::of(raw);
        if kind == Kind::Null {
            return Ok(());
        }
        let met = KINDS.iter().position(|known| *known == kind).map(|at| &mut of.met[at]);
        if let Some(met) = met {
            met.get_or_insert_with(|| Met::new(self.here, raw));
        }
        match kind {
            Kind::Number => of.numbers.add(raw, self.here),
            Kind::List | Kind::Object if depth >= DEPTH_MAX => {
                of.deep.get_or_insert_with(|| Met::new(self.here, raw));
            }
            Kind::Object => return self.object(&mut of.fields, raw, depth + 1),
            Kind::List => {
                if of.items.is_none() {
                    self.looking.more_columns().map_err(|failed| self.fail(failed))?;
                }
                let items = of.items.get_or_insert_default();
                let mut deserializer = serde_json::Deserializer::from_str(raw);
                return List { look: self, items, depth, of: PhantomData }.deserialize(&mut deserializer);
            }
            Kind::Text if raw.contains('\\') => {
                drop(String::deserialize(&mut serde_json::Deserializer::from_str(raw)).map_err(|error| {
                    let what = syntax(raw, &error, "value");
                    self.fail(NotLooked::Wrong(what))
                })?)
            }
            Kind::Null | Kind::Bool | Kind::Text => (),
        }
        Ok(())
    }
}

impl Looking<'_> {
    /// Room for what is known of another column.
    fn more_columns(&mut self) -> Result<(), NotLooked> {
        self.columns += 1;
        if self.columns > COLUMNS_MAX {
            return Err(NotLooked::Wrong(format!(
                "objects have more than {COLUMNS_MAX} different keys in all, each of which is a column: where keys are data, say that their object is a map, \
                 as in --schema \"a map(text, int64)\""
            )));
        }
        self.memory.resize(self.memory.bytes() + COLUMN_BYTES).map_err(NotLooked::Denied)
    }
}

struct Object<'o, 'l, 'a, 'h, 'de> {
    look: &'o mut Look<'l, 'a, 'h>,
    columns: &'o mut Columns,
    object: u64,
    depth: usize,
    of: PhantomData<&'de ()>,
}

impl<'de> DeserializeSeed<'de> for Object<'_, '_, '_, '_, 'de> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_, '_, '_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { look, columns, object, depth, .. } = self;
        while let Some(name) = map.next_key::<String>()? {
            let raw = map.next_value::<&RawValue>()?.get();
            let at = match columns.numbers.get(&name) {
                Some(at) => *at,
                None => {
                    look.looking.more_columns().map_err(|failed| A::Error::custom(look.fail(failed)))?;
                    columns.numbers.insert(name.clone(), columns.columns.len());
                    let is_passed = depth == 1 && (look.looking.is_passed)(&name);
                    columns.columns.push(Column { name, of: Evidence::default(), last: 0, is_passed });
                    columns.columns.len() - 1
                }
            };
            let column = &mut columns.columns[at];
            let looked = if column.last == object {
                let what = "the object has this key twice: one of the two values would be lost; rename one of them";
                Err(look.fail(NotLooked::Wrong(what.to_owned())))
            } else if column.is_passed {
                Ok(())
            } else {
                look.value(&mut column.of, raw, depth)
            };
            column.last = object;
            if let Err(error) = looked {
                look.steps.0.push(Step::Field(column.name.clone()));
                return Err(A::Error::custom(error));
            }
        }
        Ok(())
    }
}

struct List<'o, 'l, 'a, 'h, 'de> {
    look: &'o mut Look<'l, 'a, 'h>,
    items: &'o mut Evidence,
    depth: usize,
    of: PhantomData<&'de ()>,
}

impl<'de> DeserializeSeed<'de> for List<'_, '_, '_, '_, 'de> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_, '_, '_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut number = 0;
        while let Some(raw) = list.next_element::<&RawValue>()? {
            if let Err(error) = self.look.value(self.items, raw.get(), self.depth + 1) {
                self.look.steps.0.push(Step::Element(number));
                return Err(A::Error::custom(error));
            }
            number += 1;
        }
        Ok(())
    }
}

impl Numbers {
    fn add(&mut self, number: &str, here: Here<'_>) {
        let met = || Met::new(here, number);
        if !is_whole(number) {
            self.float.get_or_insert_with(met);
            if !has_float(number, true) {
                self.infinite.get_or_insert_with(met);
            }
            return;
        }
        if self.whole.is_none() {
            (self.is_long, self.is_unsigned) = (true, true);
        }
        self.whole.get_or_insert_with(met);
        self.is_long = self.is_long && number.parse::<i64>().is_ok();
        self.is_unsigned = self.is_unsigned && number.parse::<u64>().is_ok();
        self.digits = self.digits.max(digits(number));
        if !has_float(number, true) {
            self.uneven.get_or_insert_with(met);
        }
    }

    fn data_type(&self) -> Result<DataType, Refused> {
        if let Some(infinite) = &self.infinite {
            return Err(Refused::One(infinite.clone(), "is larger than any number of float64".to_owned()));
        }
        match (&self.whole, &self.float, &self.uneven) {
            (_, Some(_), None) => Ok(DataType::Float64),
            (_, Some(float), Some(whole)) => {
                Err(Refused::Two(float.clone(), whole.clone(), "no type has all digits of both".to_owned()))
            }
            _ if self.is_long => Ok(DataType::Int64),
            _ if self.is_unsigned => Ok(DataType::UInt64),
            (whole, ..) => whole_decimal(self.digits).ok_or_else(|| match whole {
                Some(whole) => Refused::One(
                    Box::new(Met { value: format!("a number of {} digits", self.digits), ..(**whole).clone() }),
                    "has more digits than any type".to_owned(),
                ),
                None => unreachable!("numbers are whole or floats"),
            }),
        }
    }
}

/// Why a column has no type.
enum Refused {
    One(Box<Met>, String),
    Two(Box<Met>, Box<Met>, String),
}

impl Evidence {
    /// The type of the column of that name, which may be a path into others; `is_mixed`: text where there is none.
    fn data_type(&self, path: &str, top: &str, is_mixed: bool) -> Result<DataType, SourceError> {
        self.one_type(path, top, is_mixed)
            .and_then(|found| found.map_err(|refused| refused.error(path, top)))
            .or_else(|error| if is_mixed { Ok(DataType::Utf8) } else { Err(error) })
    }

    fn one_type(&self, path: &str, top: &str, is_mixed: bool) -> Result<Result<DataType, Refused>, SourceError> {
        let mut met = KINDS.iter().zip(&self.met).filter_map(|(kind, met)| Some((kind, met.as_ref()?)));
        let (Some((kind, one)), other) = (met.next(), met.next()) else { return Ok(Ok(DataType::Utf8)) };
        if let Some((other_kind, other)) = other {
            let what = format!("one is {}, the other {}", kind.name(), other_kind.name());
            return Ok(Err(Refused::Two(one.clone(), other.clone(), what)));
        }
        if let Some(deep) = &self.deep {
            let what = format!("types are nested {DEPTH_MAX} deep at most, and it goes on");
            return Ok(Err(Refused::One(deep.clone(), what)));
        }
        Ok(Ok(match kind {
            Kind::Bool => DataType::Boolean,
            Kind::Number => return Ok(self.numbers.data_type()),
            Kind::List => {
                let items = self
                    .items
                    .as_ref()
                    .map_or(Ok(DataType::Utf8), |items| items.data_type(&format!("{path}[]"), top, is_mixed))?;
                DataType::new_list(items, true)
            }
            Kind::Object => {
                let field = |column: &Column| {
                    let of = column.of.data_type(&format!("{path}.{}", column.name), top, is_mixed)?;
                    Ok(Field::new(&column.name, of, true))
                };
                DataType::Struct(self.fields.columns.iter().map(field).collect::<Result<_, SourceError>>()?)
            }
            Kind::Text | Kind::Null => DataType::Utf8,
        }))
    }
}

impl Refused {
    fn error(self, path: &str, top: &str) -> SourceError {
        let schema = print_column(top, &DataType::Utf8);
        let column = if path == top { top.to_owned() } else { format!("{path}, which is within {top},") };
        let help = format!(
            "--json-mixed text makes text of values that have no one type, and with --schema {schema:?}, of all of {top}; --select leaves columns out"
        );
        let (met, what) = match self {
            Self::One(met, what) => (met, format!("column {column} {what}")),
            Self::Two(one, other, what) => {
                let what = format!("column {column} has {} here, and {other}: {what}", one.value);
                (one, what)
            }
        };
        SourceError::Text { file: met.file.clone(), line: met.line, what: format!("{what}; {help}") }
    }
}

impl Columns {
    /// Names and types of the columns, but for those that were said: these have the type that was.
    pub(super) fn types(
        &self,
        said: impl Fn(&str) -> Option<DataType>,
        is_mixed: bool,
    ) -> Result<Vec<(String, DataType)>, SourceError> {
        let of = |column: &Column| {
            let name = column.name.clone();
            let data_type = said(&name).map_or_else(|| column.of.data_type(&name, &name, is_mixed), Ok)?;
            Ok((name, data_type))
        };
        self.columns.iter().map(of).collect()
    }
}
