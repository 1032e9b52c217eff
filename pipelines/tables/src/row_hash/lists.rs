//! Lists: of values that have a width, hashed as the bytes that lie there; of others, by the hashes of their elements.

use arrow_array::{Array, ArrayRef, BooleanArray, cast::AsArray};
use arrow_schema::DataType;

use super::columns::Pairs;
use super::seeds::ColumnSeeds;
use super::xxh3::hashed;
use crate::TableError;
use crate::plain::unpacked;
use crate::raw::{ElementRanges, fixed_values};

/// Adds the hashes of lists or maps, in any layout, to those of their rows.
pub(super) fn add(column: &ColumnSeeds, array: &ArrayRef, pairs: &mut Pairs) -> Result<(), TableError> {
    let (Some((ranges, child)), [element], false) =
        (ElementRanges::of(array.as_ref()), column.children.as_slice(), column.is_struct())
    else {
        let (expected, found) = (column.data_type.clone(), array.data_type().clone());
        return Err(TableError::TypeDiffers { column: column.path.clone(), expected, found });
    };
    let is_fixed = element.data_type == DataType::Boolean || element.data_type.primitive_width().is_some();
    // Elements that no row has (before and behind a slice) are not touched.
    let (first, end) = bounds(&ranges, array.as_ref());
    let child = child.slice(first, end - first);
    let place = |row: usize| {
        let (from, len) = ranges.get(row);
        // Of an empty list any place is allowed.
        let from = from.clamp(first, end) - first;
        from..from + len
    };
    if is_fixed {
        let child = unpacked(&child)?;
        element.check(&child)?;
        let bytes = FixedElements::of(&child);
        pairs.add_values(array.nulls(), column.null, |row| bytes.hashed(column, place(row)));
        return Ok(());
    }
    let mut elements = Pairs::zeros(child.len());
    element.add(&child, &mut elements)?;
    let mut bytes = Vec::new();
    let mut of = |hashes: &[u64], seeds| {
        bytes.clear();
        hashes.iter().for_each(|hash| bytes.extend_from_slice(&hash.to_le_bytes()));
        hashed(&bytes, seeds)
    };
    pairs.add_values(array.nulls(), column.null, |row| {
        let place = place(row);
        [of(&elements.a[place.clone()], column.value)[0], of(&elements.b[place], column.value)[1]]
    });
    Ok(())
}

/// Between which elements all those of rows that are not null lie.
fn bounds(ranges: &ElementRanges, array: &dyn Array) -> (usize, usize) {
    let rows =
        (0..array.len()).filter(|row| array.is_valid(*row)).map(|row| ranges.get(row)).filter(|(_, len)| *len > 0);
    let (first, end) = rows.fold((usize::MAX, 0), |(first, end), (from, len)| (first.min(from), end.max(from + len)));
    (first.min(end), end)
}

/// Elements that have a width.
struct FixedElements<'a> {
    width: usize,
    /// So many bytes for each; what is under nulls is zero.
    bytes: Vec<u8>,
    shared: Option<arrow_buffer::Buffer>,
    child: &'a ArrayRef,
}

impl<'a> FixedElements<'a> {
    fn of(child: &'a ArrayRef) -> Self {
        let (width, values) = match child.as_boolean_opt() {
            Some(bools) => (1, bytes_of(bools).into()),
            None => fixed_values(child.as_ref()).expect("the type was checked"),
        };
        if child.null_count() == 0 {
            return Self { width, bytes: Vec::new(), shared: Some(values), child };
        }
        let mut bytes = values.to_vec();
        (0..child.len()).filter(|at| child.is_null(*at)).for_each(|at| bytes[at * width..(at + 1) * width].fill(0));
        Self { width, bytes, shared: None, child }
    }

    fn hashed(&self, column: &ColumnSeeds, place: std::ops::Range<usize>) -> [u64; 2] {
        let of = place.start * self.width..place.end * self.width;
        if let Some(bytes) = &self.shared {
            return hashed(&bytes.as_slice()[of], column.value);
        }
        let mut bytes = self.bytes[of].to_vec();
        let validity = place.clone().map(|at| u8::from(self.child.is_valid(at)));
        if validity.clone().all(|valid| valid == 1) {
            return hashed(&bytes, column.value);
        }
        bytes.extend(validity);
        hashed(&bytes, column.with_nulls)
    }
}

/// A byte for each, 0 or 1.
fn bytes_of(bools: &BooleanArray) -> Vec<u8> {
    bools.values().iter().map(u8::from).collect()
}
