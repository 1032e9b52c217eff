//! Lists: of values that have a width, hashed as the bytes that lie there; of others, by the hashes of their elements.

use std::hash::Hasher as _;

use arrow_array::{Array, ArrayRef, BooleanArray, cast::AsArray};
use arrow_schema::DataType;
use twox_hash::XxHash3_64 as Hasher;

use super::columns::Pairs;
use super::seeds::ColumnSeeds;
use super::xxh3::hashed;
use crate::plain::unpacked;
use crate::raw::{ElementRanges, fixed_values};
use crate::{ELEMENTS_MAX, TableError};

/// So many elements are hashed at a time, or those of one row.
pub(super) const RUN: usize = 64 << 10;

/// Adds the hashes of lists or maps, in any layout, to those of their rows.
pub(super) fn add(column: &ColumnSeeds, array: &ArrayRef, pairs: &mut Pairs) -> Result<(), TableError> {
    let (ranges, child) = ElementRanges::of(array.as_ref()).expect("the type was checked");
    let element = &column.children[0];
    // Elements whose bytes lie there as they are hashed need no room.
    let lie_there = element.data_type.primitive_width().is_some()
        && child.data_type().primitive_width().is_some()
        && child.null_count() == 0;
    let (len_of, mut row) = (|row: usize| if array.is_valid(row) { ranges.get(row).1 } else { 0 }, 0);
    while row < array.len() {
        if len_of(row) as u64 > ELEMENTS_MAX {
            let (column, elements) = (column.path.clone(), len_of(row) as u64);
            return Err(TableError::TooManyElements { column, elements, elements_max: ELEMENTS_MAX });
        }
        let end = run(&ranges, array.as_ref(), row);
        match !lie_there && len_of(row) > RUN {
            true if has_width(element) => add_long_fixed(column, &child, ranges.get(row), row, pairs)?,
            true => add_long(column, element, &child, ranges.get(row), row, pairs)?,
            false => add_run(column, (array, &ranges), &child, row..end, pairs)?,
        }
        row = end;
    }
    Ok(())
}

fn has_width(element: &ColumnSeeds) -> bool {
    element.data_type == DataType::Boolean || element.data_type.primitive_width().is_some()
}

/// Where the run of rows ends that begins at a row: so many whose elements lie within [`RUN`] of each other, but one at least.
fn run(ranges: &ElementRanges, array: &dyn Array, row: usize) -> usize {
    let (mut first, mut last) = (usize::MAX, 0);
    let fits = |row: &usize| {
        let (from, len) = ranges.get(*row);
        if array.is_valid(*row) && len > 0 {
            (first, last) = (first.min(from), last.max(from + len));
        }
        last.saturating_sub(first) <= RUN
    };
    let more = (row..array.len()).take_while(fits).count();
    row + more.max(1)
}

/// Adds the hashes of some rows whose elements lie close to each other.
fn add_run(
    column: &ColumnSeeds,
    (array, ranges): (&ArrayRef, &ElementRanges),
    child: &ArrayRef,
    rows: std::ops::Range<usize>,
    pairs: &mut Pairs,
) -> Result<(), TableError> {
    let (array, begin) = (array.slice(rows.start, rows.len()), rows.start);
    let element = &column.children[0];
    // Elements that no row has (before and behind a slice) are not touched.
    let (first, end) = bounds(ranges, array.as_ref(), begin);
    let child = child.slice(first, end - first);
    let place = |row: usize| {
        let (from, len) = ranges.get(begin + row);
        // Of an empty list any place is allowed.
        let from = from.clamp(first, end) - first;
        from..from + len
    };
    let mut bytes = Vec::new();
    if has_width(element) {
        let child = unpacked(&child)?;
        let elements = FixedElements::of(&child);
        let value = |row| elements.hashed(column, place(row), &mut bytes);
        pairs.add_values_from(begin, array.len(), array.nulls(), column.null, value);
        return Ok(());
    }
    let mut elements = Pairs::zeros(child.len());
    element.add(&child, &mut elements)?;
    let mut of = |hashes: &[u64], seeds| {
        bytes.clear();
        hashes.iter().for_each(|hash| bytes.extend_from_slice(&hash.to_le_bytes()));
        hashed(&bytes, seeds)
    };
    pairs.add_values_from(begin, array.len(), array.nulls(), column.null, |row| {
        let place = place(row);
        [of(&elements.a[place.clone()], column.value)[0], of(&elements.b[place], column.value)[1]]
    });
    Ok(())
}

/// Adds the hashes of a row of more elements than a run has: some of them at a time.
fn add_long(
    column: &ColumnSeeds,
    element: &ColumnSeeds,
    child: &ArrayRef,
    (from, len): (usize, usize),
    row: usize,
    pairs: &mut Pairs,
) -> Result<(), TableError> {
    let [mut a, mut b] = column.value.map(Hasher::with_seed);
    for at in (from..from + len).step_by(RUN) {
        let some = child.slice(at, RUN.min(from + len - at));
        let mut elements = Pairs::zeros(some.len());
        element.add(&some, &mut elements)?;
        elements.a.iter().for_each(|hash| a.write(&hash.to_le_bytes()));
        elements.b.iter().for_each(|hash| b.write(&hash.to_le_bytes()));
    }
    pairs.add_values_from(row, 1, None, column.null, |_| [a.finish(), b.finish()]);
    Ok(())
}

/// The same of elements that have a width: their bytes, and then, where one is null, which of them are.
fn add_long_fixed(
    column: &ColumnSeeds,
    child: &ArrayRef,
    (from, len): (usize, usize),
    row: usize,
    pairs: &mut Pairs,
) -> Result<(), TableError> {
    let some = |at| unpacked(&child.slice(at, RUN.min(from + len - at)));
    let parts = || (from..from + len).step_by(RUN).map(some);
    let has_nulls = parts().try_fold(false, |has, part| Ok::<_, TableError>(has | (part?.null_count() > 0)))?;
    let seeds = if has_nulls { column.with_nulls } else { column.value };
    let [mut a, mut b] = seeds.map(Hasher::with_seed);
    let mut write = |bytes: &[u8]| {
        a.write(bytes);
        b.write(bytes);
    };
    for part in parts() {
        write(FixedElements::of(&part?).bytes());
    }
    if has_nulls {
        for part in parts() {
            let part = part?;
            write(&(0..part.len()).map(|at| u8::from(part.is_valid(at))).collect::<Vec<_>>());
        }
    }
    pairs.add_values_from(row, 1, None, column.null, |_| [a.finish(), b.finish()]);
    Ok(())
}

/// Between which elements all those of rows that are not null lie.
fn bounds(ranges: &ElementRanges, array: &dyn Array, begin: usize) -> (usize, usize) {
    let rows = (0..array.len())
        .filter(|row| array.is_valid(*row))
        .map(|row| ranges.get(begin + row))
        .filter(|(_, len)| *len > 0);
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

    /// The bytes of all of them.
    fn bytes(&self) -> &[u8] {
        self.shared.as_ref().map_or(&self.bytes, |shared| shared.as_slice())
    }

    fn hashed(&self, column: &ColumnSeeds, place: std::ops::Range<usize>, scratch: &mut Vec<u8>) -> [u64; 2] {
        let of = place.start * self.width..place.end * self.width;
        if let Some(bytes) = &self.shared {
            return hashed(&bytes.as_slice()[of], column.value);
        }
        let validity = place.map(|at| u8::from(self.child.is_valid(at)));
        if validity.clone().all(|valid| valid == 1) {
            return hashed(&self.bytes[of], column.value);
        }
        scratch.clear();
        scratch.extend_from_slice(&self.bytes[of]);
        scratch.extend(validity);
        hashed(scratch, column.with_nulls)
    }
}

/// A byte for each, 0 or 1.
fn bytes_of(bools: &BooleanArray) -> Vec<u8> {
    bools.values().iter().map(u8::from).collect()
}
