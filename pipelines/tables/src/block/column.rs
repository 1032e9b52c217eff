//! A column as rows are taken from it: the arrays of all batches, resolved once into what the loops need.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, StructArray, cast::AsArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::{DataType, Field, FieldRef};

use super::picks::{FILLER, NULL, Picks, Spans};
use crate::TableError;
use crate::plain::{Indirection, check_names, plain_type};
use crate::raw::{ByteRanges, ElementRanges, fixed_values};

/// One column of all batches. Vectors have an entry for each batch.
#[derive(Debug)]
pub(super) struct Column {
    /// The path of names, where the field says that there are no nulls.
    pub(super) required: Option<String>,
    /// Dictionaries and run ends on the outside, the outermost first.
    pub(super) levels: Vec<Vec<Option<Indirection>>>,
    pub(super) nulls: NullRows,
    pub(super) values: Values,
}

/// Which rows are null.
#[derive(Debug)]
pub(super) struct NullRows {
    pub(super) of: Vec<Option<NullBuffer>>,
    pub(super) any: bool,
}

/// The values.
#[derive(Debug)]
pub(super) enum Values {
    /// All null.
    Null,
    Bits(Vec<BooleanBuffer>),
    /// So many bytes a row.
    Fixed(usize, Vec<Buffer>),
    /// Bytes or text.
    Bytes {
        wide: bool,
        ranges: Vec<ByteRanges>,
    },
    Lists {
        wide: bool,
        ranges: Vec<ElementRanges>,
        child: Box<Column>,
    },
    /// So many elements a row.
    FixedLists(usize, Box<Column>),
    Struct(Vec<Column>),
}

impl Column {
    /// The column of this path and plain field, of these arrays in any encoding.
    pub(super) fn new(path: &str, field: &Field, mut arrays: Vec<ArrayRef>) -> Result<Self, TableError> {
        let data_type = field.data_type();
        let mut levels = Vec::new();
        loop {
            let level: Vec<_> = arrays.iter().map(|array| Indirection::of(array.as_ref())).collect();
            if level.iter().all(Option::is_none) {
                break;
            }
            for (array, indirection) in arrays.iter_mut().zip(&level) {
                if let Some(indirection) = indirection {
                    *array = indirection.values.clone();
                }
            }
            levels.push(level);
        }
        for array in &arrays {
            check(path, data_type, array)?;
        }
        let of: Vec<_> =
            arrays.iter().map(|array| array.nulls().filter(|nulls| nulls.null_count() > 0).cloned()).collect();
        let nulls = NullRows { any: of.iter().any(Option::is_some), of };
        let required = (!field.is_nullable()).then(|| path.to_owned());
        Ok(Self { required, levels, nulls, values: Values::new(path, data_type, &arrays)? })
    }

    /// The same rows one level further in.
    pub(super) fn inward(&self, level: usize, picks: impl Picks) -> Spans {
        let mut spans = Spans::default();
        picks.each(|span| {
            let Some(indirection) = self.levels[level].get(span.source()).and_then(Option::as_ref) else {
                return spans.push(span.source, span.start, u64::from(span.len));
            };
            for row in span.rows() {
                match indirection.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                    true => spans.push(NULL, 0, 1),
                    false => spans.push(span.source, indirection.place(row) as u64, 1),
                }
            }
        });
        spans
    }
}

impl NullRows {
    /// Whether a row of a source is null.
    #[inline(always)]
    pub(super) fn is_null(&self, source: usize, row: usize) -> bool {
        self.any && self.of[source].as_ref().is_some_and(|nulls| nulls.is_null(row))
    }
}

impl Values {
    fn new(path: &str, data_type: &DataType, arrays: &[ArrayRef]) -> Result<Self, TableError> {
        let inner = |field: &FieldRef, children: Vec<ArrayRef>| {
            Column::new(&format!("{path}.{}", field.name()), field, children)
        };
        Ok(match data_type {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Bits(arrays.iter().map(|array| array.as_boolean().values().clone()).collect()),
            DataType::FixedSizeBinary(width) => {
                let width = *width as usize;
                let of =
                    |array: &ArrayRef| array.as_fixed_size_binary().values().slice_with_length(0, width * array.len());
                Self::Fixed(width, arrays.iter().map(of).collect())
            }
            DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary => {
                let wide = matches!(data_type, DataType::LargeUtf8 | DataType::LargeBinary);
                let of = |array: &ArrayRef| ByteRanges::of(array.as_ref()).expect("the type was checked");
                Self::Bytes { wide, ranges: arrays.iter().map(of).collect() }
            }
            DataType::Map(field, _) => {
                // Who writes a map names its entries, keys and values as he likes.
                let entries = arrays.iter().map(|array| array.as_map().entries());
                let renamed = |entries: &StructArray| {
                    let DataType::Struct(names) = field.data_type() else { unreachable!("entries are structs") };
                    let fields = names
                        .iter()
                        .zip(entries.fields())
                        .map(|(name, field)| Arc::new(field.as_ref().clone().with_name(name.name())));
                    let (columns, nulls) = (entries.columns().to_vec(), entries.nulls().cloned());
                    Ok(Arc::new(StructArray::try_new(fields.collect(), columns, nulls)?) as ArrayRef)
                };
                let children = entries.map(renamed).collect::<Result<_, TableError>>()?;
                let of = |array: &ArrayRef| ElementRanges::of(array.as_ref()).expect("the type was checked").0;
                let ranges = arrays.iter().map(of).collect();
                Self::Lists { wide: false, ranges, child: Box::new(inner(field, children)?) }
            }
            DataType::List(field) | DataType::LargeList(field) => {
                let of = |array: &ArrayRef| ElementRanges::of(array.as_ref()).expect("the type was checked");
                let (ranges, children) = arrays.iter().map(of).unzip();
                let wide = matches!(data_type, DataType::LargeList(_));
                Self::Lists { wide, ranges, child: Box::new(inner(field, children)?) }
            }
            DataType::FixedSizeList(field, size) => {
                let children = arrays.iter().map(|array| array.as_fixed_size_list().values().clone()).collect();
                Self::FixedLists(*size as usize, Box::new(inner(field, children)?))
            }
            DataType::Struct(fields) => {
                arrays.iter().try_for_each(|array| check_names(path, fields, array.as_struct().fields()))?;
                let of = |at: usize| arrays.iter().map(|array| array.as_struct().column(at).clone()).collect();
                let columns = fields.iter().enumerate().map(|(at, field)| inner(field, of(at)));
                Self::Struct(columns.collect::<Result<_, _>>()?)
            }
            _ => {
                let width = data_type.primitive_width().expect("the schema was checked");
                let of = |array: &ArrayRef| fixed_values(array.as_ref()).expect("the type was checked").1;
                Self::Fixed(width, arrays.iter().map(of).collect())
            }
        })
    }
}

/// Refuses an array of another type. Of what is nested only the outside: the rest is checked in its turn.
fn check(path: &str, expected: &DataType, array: &ArrayRef) -> Result<(), TableError> {
    let found = plain_type(array.data_type());
    let same = match (expected, &found) {
        (DataType::List(_), DataType::List(_))
        | (DataType::LargeList(_), DataType::LargeList(_))
        | (DataType::Map(..), DataType::Map(..)) => true,
        (DataType::FixedSizeList(_, left), DataType::FixedSizeList(_, right)) => left == right,
        (DataType::Struct(left), DataType::Struct(right)) => left.len() == right.len(),
        (left, right) => left == right,
    };
    match same {
        true => Ok(()),
        false => Err(TableError::TypeDiffers { column: path.to_owned(), expected: expected.clone(), found }),
    }
}

/// The elements of the lists of these rows: rows that are null have none. `None`: too many.
pub(super) fn elements(nulls: &NullRows, ranges: &[ElementRanges], picks: impl Picks) -> Option<Spans> {
    let mut spans = Spans::default();
    picks.each(|span| {
        if !span.is_of_a_source() {
            return;
        }
        let source = span.source();
        for row in span.rows().filter(|row| !nulls.is_null(source, *row)) {
            let (start, len) = ranges[source].get(row);
            spans.push(span.source, start as u64, len as u64);
        }
    });
    spans.not_too_many()
}

/// The elements of lists of a fixed size, or with a size of one the fields of structs: under a null there are as many, which nobody sees.
/// `None`: too many.
pub(super) fn fixed_elements(size: usize, nulls: &NullRows, picks: impl Picks) -> Option<Spans> {
    let (mut spans, size) = (Spans::default(), size as u64);
    picks.each(|span| {
        let source = span.source();
        if !span.is_of_a_source() {
            return spans.push(FILLER, 0, size.saturating_mul(u64::from(span.len)));
        }
        if !nulls.any || nulls.of[source].is_none() {
            return spans.push(span.source, span.start * size, size.saturating_mul(u64::from(span.len)));
        }
        for row in span.rows() {
            match nulls.is_null(source, row) {
                true => spans.push(FILLER, 0, size),
                false => spans.push(span.source, row as u64 * size, size),
            }
        }
    });
    spans.not_too_many()
}
