//! One type, and one schema, for columns of one name that come from several files.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};

use super::types::ZONES;
use crate::TableError;
use crate::plain::{Path, check_supported, plain_field, plain_type, unencoded};

/// The type that holds the values of both, whatever they are, without loss; the same type stays as it is, in its encoding. `docs/semantics.md` has the rules.
///
/// # Errors
/// [`TableError::NotUnified`]: there is none.
pub fn unified(column: &str, left: &DataType, right: &DataType) -> Result<DataType, TableError> {
    one_type(&Path::new(None, column), left, right).map_err(|refused| refused.at("one place", "another"))
}

/// The schema of several files, by the names of their columns: in the order in which they were met. A column that one of them lacks may be null; one of several
/// types has the type that holds them all.
#[derive(Clone, Debug)]
pub struct UnifiedSchema {
    columns: Vec<UnifiedColumn>,
    /// Numbers of columns by their names.
    numbers: HashMap<String, usize>,
    /// Names that lower case makes of these, to find those that differ by case alone.
    lower: HashMap<String, usize>,
    metadata: HashMap<String, String>,
    /// What was added last: most files have the schema of the one before.
    last: Fields,
}

#[derive(Clone, Debug)]
struct UnifiedColumn {
    field: FieldRef,
    /// Which file its type is from.
    place: Arc<str>,
}

impl UnifiedSchema {
    /// That of one file, which errors call `place`.
    ///
    /// # Errors
    /// [`TableError::NamesAlike`]: two columns have one name, or names that differ by case alone. [`TableError::NoName`], [`TableError::Unsupported`].
    pub fn new(place: &str, schema: &Schema) -> Result<Self, TableError> {
        check_supported(schema.fields())?;
        let mut of = Self {
            columns: Vec::new(),
            numbers: HashMap::new(),
            lower: HashMap::new(),
            metadata: schema.metadata().clone(),
            last: schema.fields().clone(),
        };
        let place = place.into();
        schema.fields().iter().try_for_each(|field| of.push(field.clone(), &place))?;
        Ok(of)
    }

    /// Adds that of another file.
    ///
    /// # Errors
    /// [`TableError::NotUnified`]: two types of a column have none that holds both. [`TableError::NamesAlike`], [`TableError::NoName`], [`TableError::Unsupported`].
    pub fn add(&mut self, place: &str, schema: &Schema) -> Result<(), TableError> {
        for (key, value) in schema.metadata() {
            self.metadata.entry(key.clone()).or_insert_with(|| value.clone());
        }
        if *schema.fields() == self.last {
            return Ok(());
        }
        check_supported(schema.fields())?;
        let place: Arc<str> = place.into();
        let mut is_here = vec![false; self.columns.len()];
        for field in schema.fields() {
            match self.numbers.get(field.name()) {
                Some(number) if is_here.get(*number) == Some(&false) => {
                    is_here[*number] = true;
                    self.columns[*number].add(field, &place)?;
                }
                Some(_) => return Err(alike(field.name(), &place, field.name(), &place)),
                None => self.push(Arc::new(field.as_ref().clone().with_nullable(true)), &place)?,
            }
        }
        for (column, _) in self.columns.iter_mut().zip(is_here).filter(|(_, is_here)| !is_here) {
            column.field = nullable(&column.field, true);
        }
        self.last = schema.fields().clone();
        Ok(())
    }

    /// The schema of all that were added. Where they differ, metadata is that of the first that has it.
    pub fn schema(&self) -> SchemaRef {
        let fields: Fields = self.columns.iter().map(|column| column.field.clone()).collect();
        Arc::new(Schema::new_with_metadata(fields, self.metadata.clone()))
    }

    /// The same, and behind them the columns of these types that folders are: those that errors call `place`, for one.
    ///
    /// # Errors
    /// [`TableError::InFileAndFolder`]; [`TableError::NamesAlike`].
    pub(crate) fn schema_with(&self, folders: &[(String, DataType)], place: &str) -> Result<SchemaRef, TableError> {
        let (mut all, place): (Self, Arc<str>) = (self.clone(), place.into());
        for (column, of) in folders {
            if let Some(number) = all.numbers.get(column) {
                let (column, file) = (column.clone(), all.columns[*number].place.to_string());
                return Err(TableError::InFileAndFolder { column, file, folder: place.to_string() });
            }
            all.push(Arc::new(Field::new(column, of.clone(), true)), &place)?;
        }
        Ok(all.schema())
    }

    fn push(&mut self, field: FieldRef, place: &Arc<str>) -> Result<(), TableError> {
        let number = self.columns.len();
        if field.name().is_empty() {
            return Err(TableError::NoName { place: place.to_string() });
        }
        if let Some(other) = self.lower.insert(field.name().to_lowercase(), number) {
            let other = &self.columns[other];
            return Err(alike(other.field.name(), &other.place, field.name(), place));
        }
        self.numbers.insert(field.name().clone(), number);
        self.columns.push(UnifiedColumn { field, place: place.clone() });
        Ok(())
    }
}

impl UnifiedColumn {
    fn add(&mut self, field: &Field, place: &Arc<str>) -> Result<(), TableError> {
        let path = Path::new(None, self.field.name());
        let one = one_field(&path, &self.field, field).map_err(|refused| refused.at(&self.place, place))?;
        if one.data_type() != self.field.data_type() {
            self.place = place.clone();
        }
        self.field = one;
        Ok(())
    }
}

fn alike(left: &str, left_place: &str, right: &str, right_place: &str) -> TableError {
    TableError::NamesAlike {
        left: left.to_owned(),
        left_place: left_place.to_owned(),
        right: right.to_owned(),
        right_place: right_place.to_owned(),
    }
}

/// Why two types have none that holds both.
struct Mismatch {
    column: String,
    left: DataType,
    right: DataType,
    why: &'static str,
}

impl Mismatch {
    fn at(self, left_place: &str, right_place: &str) -> TableError {
        let Self { column, left, right, why } = self;
        let (left_place, right_place) = (left_place.to_owned(), right_place.to_owned());
        TableError::NotUnified(Box::new(crate::error::NotUnified { column, left, left_place, right, right_place, why }))
    }
}

fn nullable(field: &FieldRef, nullable: bool) -> FieldRef {
    match nullable && !field.is_nullable() {
        true => Arc::new(field.as_ref().clone().with_nullable(true)),
        false => field.clone(),
    }
}

/// The field of both, which has the name and the metadata of the left one.
fn one_field(path: &Path<'_>, left: &FieldRef, right: &Field) -> Result<FieldRef, Mismatch> {
    if left.data_type() == right.data_type() {
        return Ok(nullable(left, right.is_nullable()));
    }
    let of = one_type(path, left.data_type(), right.data_type())?;
    let has_no_value = [left.data_type(), right.data_type()].contains(&&DataType::Null);
    // Run ends may say of their values that they can be null.
    let [plain_left, plain_right] = [left, &Arc::new(right.clone())].map(plain_field);
    let is_nullable = has_no_value || plain_left.is_nullable() || plain_right.is_nullable();
    Ok(Arc::new(left.as_ref().clone().with_data_type(of).with_nullable(is_nullable)))
}

fn one_type(path: &Path<'_>, left: &DataType, right: &DataType) -> Result<DataType, Mismatch> {
    use DataType::*;
    if left == right {
        return Ok(left.clone());
    }
    let (left, right) = (unencoded(left), unencoded(right));
    let element =
        |one: &FieldRef, other: &FieldRef| one_field(&Path::new(Some(path), one.name()), &plain_field(one), other);
    let refused = |why| Err(Mismatch { column: path.to_string(), left: left.clone(), right: right.clone(), why });
    Ok(match (left, right) {
        (Null, other) | (other, Null) => plain_type(other),
        (Utf8 | Utf8View, Utf8 | Utf8View) => Utf8,
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => LargeUtf8,
        (FixedSizeBinary(one), FixedSizeBinary(other)) if one == other => FixedSizeBinary(*one),
        (Binary | BinaryView | FixedSizeBinary(_), Binary | BinaryView | FixedSizeBinary(_)) => Binary,
        (
            Binary | LargeBinary | BinaryView | FixedSizeBinary(_),
            Binary | LargeBinary | BinaryView | FixedSizeBinary(_),
        ) => LargeBinary,
        (FixedSizeList(one, size), FixedSizeList(other, other_size)) if size == other_size => {
            FixedSizeList(element(one, other)?, *size)
        }
        (one, other) if let (Some(one_of), Some(other_of)) = (element_of(one), element_of(other)) => {
            let is_wide = [one, other].iter().any(|of| matches!(of, LargeList(_) | LargeListView(_)));
            let of = element(one_of, other_of)?;
            if is_wide { LargeList(of) } else { List(of) }
        }
        (Map(one, sorted), Map(other, other_sorted)) => Map(entries(path, one, other)?, *sorted && *other_sorted),
        (Struct(one), Struct(other)) => Struct(fields(path, one, other)?),
        (Timestamp(_, one), Timestamp(_, other)) if one.is_some() != other.is_some() => return refused(ZONES),
        (Timestamp(one, zone), Timestamp(other, _)) => Timestamp(finer(*one, *other), zone.clone()),
        (Duration(one), Duration(other)) => Duration(finer(*one, *other)),
        (Time32(one) | Time64(one), Time32(other) | Time64(other)) => match finer(*one, *other) {
            unit @ (TimeUnit::Second | TimeUnit::Millisecond) => Time32(unit),
            unit => Time64(unit),
        },
        (Date32 | Date64, Date32 | Date64) => Date64,
        _ => match (Number::of(left), Number::of(right)) {
            (Some(one), Some(other)) => match one.and(other) {
                Ok(both) => both.data_type(),
                Err(why) => return refused(why),
            },
            _ => return refused("no type holds both; --schema says which one it is to be"),
        },
    })
}

/// The element of any list.
pub(super) fn element_of(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(of)
        | DataType::LargeList(of)
        | DataType::ListView(of)
        | DataType::LargeListView(of)
        | DataType::FixedSizeList(of, _) => Some(of),
        _ => None,
    }
}

fn finer(one: TimeUnit, other: TimeUnit) -> TimeUnit {
    one.max(other)
}

/// Keys with keys and values with values, whatever they are called.
fn entries(path: &Path<'_>, left: &FieldRef, right: &FieldRef) -> Result<FieldRef, Mismatch> {
    let (DataType::Struct(one), DataType::Struct(other)) = (left.data_type(), right.data_type()) else {
        unreachable!("entries of maps are structs");
    };
    let both = one.iter().zip(other).map(|(one, other)| {
        let inside = Path::new(Some(path), one.name());
        one_field(&inside, &plain_field(one), other)
    });
    let both = both.collect::<Result<Fields, _>>()?;
    Ok(Arc::new(left.as_ref().clone().with_data_type(DataType::Struct(both))))
}

/// By name: those of the left one, then those that the right one alone has.
fn fields(path: &Path<'_>, left: &Fields, right: &Fields) -> Result<Fields, Mismatch> {
    let refused = |why| {
        let (left, right) = (DataType::Struct(left.clone()), DataType::Struct(right.clone()));
        Err(Mismatch { column: path.to_string(), left, right, why })
    };
    if has_alike(left) || has_alike(right) {
        return refused("two fields have one name, or names that differ by case alone");
    }
    let mut all = Vec::with_capacity(left.len());
    for one in left {
        let one = plain_field(one);
        all.push(match right.find(one.name()) {
            Some((_, other)) => one_field(&Path::new(Some(path), one.name()), &one, other)?,
            None => nullable(&one, true),
        });
    }
    let more = right.iter().filter(|other| left.find(other.name()).is_none());
    all.extend(more.map(|other| nullable(&plain_field(other), true)));
    match has_alike(&all) {
        false => Ok(all.into()),
        true => refused("names of fields differ by case alone"),
    }
}

/// Whether two fields have one name, or names that differ by case alone.
fn has_alike(fields: &[FieldRef]) -> bool {
    let mut names = HashSet::with_capacity(fields.len());
    !fields.iter().all(|field| names.insert(field.name().to_lowercase()))
}

/// A type of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// Bits.
    Signed(u8),
    Unsigned(u8),
    Float(u8),
    /// Bits, digits, and how many of these stand behind the point.
    Decimal(u16, u8, i8),
}

impl Number {
    fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Int8 => Self::Signed(8),
            DataType::Int16 => Self::Signed(16),
            DataType::Int32 => Self::Signed(32),
            DataType::Int64 => Self::Signed(64),
            DataType::UInt8 => Self::Unsigned(8),
            DataType::UInt16 => Self::Unsigned(16),
            DataType::UInt32 => Self::Unsigned(32),
            DataType::UInt64 => Self::Unsigned(64),
            DataType::Float16 => Self::Float(16),
            DataType::Float32 => Self::Float(32),
            DataType::Float64 => Self::Float(64),
            DataType::Decimal32(digits, scale) => Self::Decimal(32, *digits, *scale),
            DataType::Decimal64(digits, scale) => Self::Decimal(64, *digits, *scale),
            DataType::Decimal128(digits, scale) => Self::Decimal(128, *digits, *scale),
            DataType::Decimal256(digits, scale) => Self::Decimal(256, *digits, *scale),
            _ => return None,
        })
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Signed(8) => DataType::Int8,
            Self::Signed(16) => DataType::Int16,
            Self::Signed(32) => DataType::Int32,
            Self::Signed(_) => DataType::Int64,
            Self::Unsigned(8) => DataType::UInt8,
            Self::Unsigned(16) => DataType::UInt16,
            Self::Unsigned(32) => DataType::UInt32,
            Self::Unsigned(_) => DataType::UInt64,
            Self::Float(16) => DataType::Float16,
            Self::Float(32) => DataType::Float32,
            Self::Float(_) => DataType::Float64,
            Self::Decimal(32, digits, scale) => DataType::Decimal32(digits, scale),
            Self::Decimal(64, digits, scale) => DataType::Decimal64(digits, scale),
            Self::Decimal(128, digits, scale) => DataType::Decimal128(digits, scale),
            Self::Decimal(_, digits, scale) => DataType::Decimal256(digits, scale),
        }
    }

    /// The narrowest type that holds all values of both; why there is none.
    fn and(self, other: Self) -> Result<Self, &'static str> {
        use Number::*;
        Ok(match (self, other) {
            (Signed(one), Signed(other)) => Signed(one.max(other)),
            (Unsigned(one), Unsigned(other)) => Unsigned(one.max(other)),
            (Float(one), Float(other)) => Float(one.max(other)),
            (Signed(_), Unsigned(64)) | (Unsigned(64), Signed(_)) => {
                return Err("no integer of 64 bits holds both; --schema with a decimal does");
            }
            (Signed(signed), Unsigned(unsigned)) | (Unsigned(unsigned), Signed(signed)) => {
                Signed(signed.max(unsigned * 2))
            }
            (Float(float), Signed(bits)) | (Signed(bits), Float(float)) => Float(float.max(float_of(bits - 1)?)),
            (Float(float), Unsigned(bits)) | (Unsigned(bits), Float(float)) => Float(float.max(float_of(bits)?)),
            (Float(_), Decimal(..)) | (Decimal(..), Float(_)) => {
                return Err("a float would round decimals; --schema says which of both it is to be");
            }
            (Decimal(bits, digits, scale), Decimal(other_bits, other_digits, other_scale)) => {
                decimal(bits.max(other_bits), (digits, scale), (other_digits, other_scale))?
            }
            (Decimal(bits, digits, scale), integer) | (integer, Decimal(bits, digits, scale)) => {
                decimal(bits, (digits, scale), (integer.digits(), 0))?
            }
        })
    }

    /// Most digits of an integer.
    fn digits(self) -> u8 {
        match self {
            Self::Signed(8) | Self::Unsigned(8) => 3,
            Self::Signed(16) | Self::Unsigned(16) => 5,
            Self::Signed(32) | Self::Unsigned(32) => 10,
            Self::Signed(_) => 19,
            _ => 20,
        }
    }
}

/// Bits of the float that has so many bits for the value of an integer.
fn float_of(bits: u8) -> Result<u8, &'static str> {
    match bits {
        0..=11 => Ok(16),
        12..=24 => Ok(32),
        25..=53 => Ok(64),
        _ => Err("a float would round integers beyond 2^53; --schema says which of both it is to be"),
    }
}

/// The decimal of these bits at least that has the digits of both before and behind the point.
fn decimal(bits: u16, one: (u8, i8), other: (u8, i8)) -> Result<Number, &'static str> {
    let scale = one.1.max(other.1);
    let before = |(digits, scale): (u8, i8)| i16::from(digits) - i16::from(scale);
    let digits = before(one).max(before(other)) + i16::from(scale);
    let needed = match digits {
        ..=9 => 32,
        10..=18 => 64,
        19..=38 => 128,
        39..=76 => 256,
        _ => return Err("no decimal has the digits of both, which are more than 76"),
    };
    Ok(Number::Decimal(bits.max(needed), digits as u8, scale))
}
