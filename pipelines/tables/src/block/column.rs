//! A column as rows are taken from it: the arrays of all batches, resolved once into what the loops need.

use arrow_array::{Array, ArrayRef, cast::AsArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::{DataType, Field, FieldRef};

use super::picks::{FILLER, NULL, Picks, Spans};
use crate::plain::Indirection;
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
    /// The column of this path and plain field, of arrays that are of its type as `check_type` has it.
    pub(super) fn new(path: &str, field: &Field, mut arrays: Vec<ArrayRef>) -> Self {
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
        let of: Vec<_> =
            arrays.iter().map(|array| array.nulls().filter(|nulls| nulls.null_count() > 0).cloned()).collect();
        let nulls = NullRows { any: of.iter().any(Option::is_some), of };
        let required = (!field.is_nullable()).then(|| path.to_owned());
        Self { required, levels, nulls, values: Values::new(path, field.data_type(), &arrays) }
    }

    /// Puts the only source of `other`, a column of the same field, in the place of a source of this one.
    pub(super) fn replace(&mut self, source: usize, other: Self) {
        let sources = self.nulls.of.len();
        let mut levels = other.levels.into_iter();
        for level in &mut self.levels {
            level[source] = levels.next().and_then(only);
        }
        for more in levels {
            let mut level = vec![None; sources];
            level[source] = only(more);
            self.levels.push(level);
        }
        while self.levels.pop_if(|level| level.iter().all(Option::is_none)).is_some() {}
        self.nulls.of[source] = only(other.nulls.of);
        self.nulls.any = self.nulls.of.iter().any(Option::is_some);
        self.values.replace(source, other.values);
    }

    /// The same rows behind all dictionaries and run ends. `None`: more than `most` spans.
    pub(super) fn behind(&self, picks: impl Picks, most: usize) -> Option<Spans> {
        let mut spans = self.inward(0, picks, most)?;
        for level in 1..self.levels.len() {
            spans = self.inward(level, spans.as_slice(), most)?;
        }
        Some(spans)
    }

    /// The same rows one level further in.
    fn inward(&self, level: usize, picks: impl Picks, most: usize) -> Option<Spans> {
        let mut spans = Spans::new(most);
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
        spans.not_too_many()
    }
}

impl NullRows {
    /// Whether a row of a source is null.
    #[inline(always)]
    pub(super) fn is_null(&self, source: usize, row: usize) -> bool {
        self.any && self.of[source].as_ref().is_some_and(|nulls| nulls.is_null(row))
    }
}

/// The entry of the only source.
fn only<T>(of: Vec<Option<T>>) -> Option<T> {
    of.into_iter().next().flatten()
}

impl Values {
    fn new(path: &str, data_type: &DataType, arrays: &[ArrayRef]) -> Self {
        let inner = |field: &FieldRef, children: Vec<ArrayRef>| {
            Box::new(Column::new(&format!("{path}.{}", field.name()), field, children))
        };
        let lists = || -> (Vec<ElementRanges>, Vec<ArrayRef>) {
            arrays.iter().map(|array| ElementRanges::of(array.as_ref()).expect("the type was checked")).unzip()
        };
        match data_type {
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
            DataType::List(field) | DataType::LargeList(field) | DataType::Map(field, _) => {
                let (ranges, children) = lists();
                let wide = matches!(data_type, DataType::LargeList(_));
                Self::Lists { wide, ranges, child: inner(field, children) }
            }
            DataType::FixedSizeList(field, size) => Self::FixedLists(*size as usize, inner(field, lists().1)),
            DataType::Struct(fields) => {
                let of = |at: usize| arrays.iter().map(|array| array.as_struct().column(at).clone()).collect();
                Self::Struct(fields.iter().enumerate().map(|(at, field)| *inner(field, of(at))).collect())
            }
            _ => {
                let width = data_type.primitive_width().expect("the schema was checked");
                let of = |array: &ArrayRef| fixed_values(array.as_ref()).expect("the type was checked").1;
                Self::Fixed(width, arrays.iter().map(of).collect())
            }
        }
    }

    fn replace(&mut self, source: usize, other: Self) {
        match (self, other) {
            (Self::Null, Self::Null) => (),
            (Self::Bits(of), Self::Bits(mut other)) => of[source] = other.remove(0),
            (Self::Fixed(_, of), Self::Fixed(_, mut other)) => of[source] = other.remove(0),
            (Self::Bytes { ranges, .. }, Self::Bytes { ranges: mut other, .. }) => ranges[source] = other.remove(0),
            (Self::Lists { ranges, child, .. }, Self::Lists { ranges: mut other, child: other_child, .. }) => {
                ranges[source] = other.remove(0);
                child.replace(source, *other_child);
            }
            (Self::FixedLists(_, child), Self::FixedLists(_, other)) => child.replace(source, *other),
            (Self::Struct(fields), Self::Struct(others)) => {
                fields.iter_mut().zip(others).for_each(|(field, other)| field.replace(source, other));
            }
            (_, other) => unreachable!("{other:?} is of another type"),
        }
    }
}

/// The elements of the lists of these rows: rows that are null have none. `None`: too many, or more than `most` spans.
pub(super) fn elements(nulls: &NullRows, ranges: &[ElementRanges], picks: impl Picks, most: usize) -> Option<Spans> {
    let mut spans = Spans::new(most);
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
/// `None`: too many, or more than `most` spans.
pub(super) fn fixed_elements(size: usize, nulls: &NullRows, picks: impl Picks, most: usize) -> Option<Spans> {
    let (mut spans, size) = (Spans::new(most), size as u64);
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
