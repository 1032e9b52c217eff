//! Hashing column by column: each adds the two hashes of its values to those of their rows.

use arrow_array::{Array, ArrayRef, cast::AsArray};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use exobus_store::RowHash;
use multiversion::multiversion;

use super::lists;
use super::seeds::{ColumnSeeds, Pair};
use super::xxh3::{hashed, mix};
use crate::TableError;
use crate::plain::Indirection;
use crate::raw::{ByteRanges, fixed_values};

/// Rows of which hashes are made at a time.
const MIXED_AT_ONCE: usize = 256;

#[cfg(test)]
thread_local! {
    /// Bytes of all pairs that were made.
    pub(super) static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The two sums of each row.
pub(crate) struct Pairs {
    pub(super) a: Vec<u64>,
    pub(super) b: Vec<u64>,
}

impl Pairs {
    pub(super) fn zeros(rows: usize) -> Self {
        #[cfg(test)]
        TAKEN.with(|taken| taken.set(taken.get() + rows as u64 * super::PAIR_BYTES));
        Self { a: vec![0; rows], b: vec![0; rows] }
    }

    /// Calls `each` for the hash of each row.
    pub(super) fn each(&self, mut each: impl FnMut(RowHash)) {
        let [mut low, mut high] = [[0; MIXED_AT_ONCE]; 2];
        for (a, b) in self.a.chunks(MIXED_AT_ONCE).zip(self.b.chunks(MIXED_AT_ONCE)) {
            mix(a, b, &mut low[..a.len()], &mut high[..a.len()]);
            let hashes = low[..a.len()].iter().zip(&high);
            hashes.for_each(|(low, high)| each(RowHash(u128::from(*high) << 64 | u128::from(*low))));
        }
    }

    /// The sum of the hashes of all rows.
    pub(super) fn sum(&self) -> RowHash {
        let mut sum = RowHash::default();
        self.each(|hash| sum += hash);
        sum
    }

    /// The same for `rows` rows from `first` on, which both closures number from 0.
    #[inline(always)]
    pub(super) fn add_values_from(
        &mut self,
        first: usize,
        rows: usize,
        nulls: Option<&NullBuffer>,
        null: Pair,
        mut value: impl FnMut(usize) -> Pair,
    ) {
        let (a, b) = (&mut self.a[first..first + rows], &mut self.b[first..first + rows]);
        for (row, (a, b)) in a.iter_mut().zip(b).enumerate() {
            let [more_a, more_b] = if nulls.is_none_or(|nulls| nulls.is_valid(row)) { value(row) } else { null };
            *a = a.wrapping_add(more_a);
            *b = b.wrapping_add(more_b);
        }
    }

    /// Adds to each row what `of` says of it.
    #[inline(always)]
    fn add(&mut self, mut of: impl FnMut(usize) -> Pair) {
        for (row, (a, b)) in self.a.iter_mut().zip(&mut self.b).enumerate() {
            let [more_a, more_b] = of(row);
            *a = a.wrapping_add(more_a);
            *b = b.wrapping_add(more_b);
        }
    }

    /// Adds `value` to each row that is not null, and `null` to each that is.
    #[inline(always)]
    pub(super) fn add_values(&mut self, nulls: Option<&NullBuffer>, null: Pair, mut value: impl FnMut(usize) -> Pair) {
        match nulls.filter(|nulls| nulls.null_count() > 0) {
            None => self.add(value),
            Some(nulls) => self.add(|row| if nulls.is_valid(row) { value(row) } else { null }),
        }
    }
}

/// Adds the hashes of values to those of their rows. Compiled for processors of several kinds: with AVX-512 eight rows at a time take a tenth of the time of one by one.
#[multiversion(targets("x86_64+avx512f+avx512dq+avx512vl+bmi2", "x86_64+avx2+bmi2"))]
fn add_hashes<const WIDTH: usize>(values: &[[u8; WIDTH]], seeds: Pair, a: &mut [u64], b: &mut [u64]) {
    for ((a, b), value) in a.iter_mut().zip(b).zip(values) {
        let [more_a, more_b] = hashed(value, seeds);
        *a = a.wrapping_add(more_a);
        *b = b.wrapping_add(more_b);
    }
}

impl ColumnSeeds {
    /// Adds the hashes of the values of an array, in any encoding, to those of their rows. It is of the column's type as `check_type` has it.
    pub(super) fn add(&self, array: &ArrayRef, pairs: &mut Pairs) -> Result<(), TableError> {
        if let Some(indirection) = Indirection::of(array.as_ref()) {
            return self.add_indirect(&indirection, pairs);
        }
        let nulls = array.nulls();
        if let Some((width, values)) = fixed_values(array.as_ref()) {
            self.add_fixed(width, values.as_slice(), nulls, pairs);
            return Ok(());
        }
        if let Some(ranges) = ByteRanges::of(array.as_ref()) {
            pairs.add_values(nulls, self.null, |row| hashed(ranges.get(row), self.value));
            return Ok(());
        }
        match array.data_type() {
            DataType::Null => pairs.add(|_| self.null),
            DataType::Boolean => {
                let values = array.as_boolean().values();
                let hashes = [hashed(&[0], self.value), hashed(&[1], self.value)];
                pairs.add_values(nulls, self.null, |row| hashes[usize::from(values.value(row))]);
            }
            DataType::Struct(_) => self.add_struct(array, pairs)?,
            _ => lists::add(self, array, pairs)?,
        }
        Ok(())
    }

    /// Adds the hashes of values of so many bytes each.
    pub(crate) fn add_fixed(&self, width: usize, values: &[u8], nulls: Option<&NullBuffer>, pairs: &mut Pairs) {
        match width {
            1 => self.add_wide::<1>(values, nulls, pairs),
            2 => self.add_wide::<2>(values, nulls, pairs),
            4 => self.add_wide::<4>(values, nulls, pairs),
            8 => self.add_wide::<8>(values, nulls, pairs),
            16 => self.add_wide::<16>(values, nulls, pairs),
            32 => self.add_wide::<32>(values, nulls, pairs),
            _ => pairs.add_values(nulls, self.null, |row| hashed(&values[row * width..][..width], self.value)),
        }
    }

    /// Adds the hash of one value.
    #[inline(always)]
    pub(crate) fn add_value(&self, value: &[u8], row: usize, pairs: &mut Pairs) {
        let [more_a, more_b] = hashed(value, self.value);
        pairs.a[row] = pairs.a[row].wrapping_add(more_a);
        pairs.b[row] = pairs.b[row].wrapping_add(more_b);
    }

    fn add_wide<const WIDTH: usize>(&self, values: &[u8], nulls: Option<&NullBuffer>, pairs: &mut Pairs) {
        let (values, seeds) = (values.as_chunks::<WIDTH>().0, self.value);
        add_hashes(values, seeds, &mut pairs.a, &mut pairs.b);
        if let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) {
            // What is under a null was added too.
            for row in (!nulls.inner()).set_indices() {
                let [under_a, under_b] = hashed(&values[row], seeds);
                pairs.a[row] = pairs.a[row].wrapping_sub(under_a).wrapping_add(self.null[0]);
                pairs.b[row] = pairs.b[row].wrapping_sub(under_b).wrapping_add(self.null[1]);
            }
        }
    }

    /// A dictionary or run ends: each value is hashed once, unless there are more of them than rows.
    fn add_indirect(&self, indirection: &Indirection, pairs: &mut Pairs) -> Result<(), TableError> {
        let (values, nulls) = (&indirection.values, indirection.nulls.as_ref());
        let place = |row: usize| indirection.place(row);
        if values.len() <= indirection.len() {
            let mut known = Pairs::zeros(values.len());
            self.add(values, &mut known)?;
            pairs.add_values(nulls, self.null, |row| [known.a[place(row)], known.b[place(row)]]);
            return Ok(());
        }
        if let Some(ranges) = ByteRanges::of(values.as_ref()) {
            let value = |at| if values.is_valid(at) { hashed(ranges.get(at), self.value) } else { self.null };
            pairs.add_values(nulls, self.null, |row| value(place(row)));
            return Ok(());
        }
        self.add_places(indirection, pairs)
    }

    /// Of more values than rows those that rows have, where they lie.
    fn add_places(&self, indirection: &Indirection, pairs: &mut Pairs) -> Result<(), TableError> {
        let (values, nulls) = (&indirection.values, indirection.nulls.as_ref());
        let place = |row: usize| indirection.place(row);
        let is_null = |row: usize| nulls.is_some_and(|nulls| nulls.is_null(row));
        let mut row = 0;
        while row < indirection.len() {
            // Rows whose values lie one behind the other, as those of run ends do.
            let first = place(row);
            let follows = |next: &usize| !is_null(row) && !is_null(*next) && place(*next) == first + (next - row);
            let rows = 1 + (row + 1..indirection.len()).take_while(follows).count();
            let mut some = Pairs::zeros(rows);
            match is_null(row) {
                true => some.add(|_| self.null),
                false => self.add(&values.slice(first, rows), &mut some)?,
            }
            pairs.add_values_from(row, rows, None, self.null, |at| [some.a[at], some.b[at]]);
            row += rows;
        }
        Ok(())
    }

    fn add_struct(&self, array: &ArrayRef, pairs: &mut Pairs) -> Result<(), TableError> {
        let (array, nulls) = (array.as_struct(), array.nulls());
        let fields = self.children.iter().zip(array.columns());
        if nulls.is_none_or(|nulls| nulls.null_count() == 0) {
            return fields.into_iter().try_for_each(|(child, column)| child.add(column, pairs));
        }
        let mut inner = Pairs::zeros(array.len());
        fields.into_iter().try_for_each(|(child, column)| child.add(column, &mut inner))?;
        pairs.add_values(nulls, self.null, |row| [inner.a[row], inner.b[row]]);
        Ok(())
    }
}
