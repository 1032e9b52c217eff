//! Columns as loops take them, and columns that are made of what they leave.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, Int64Array, make_array, new_null_array};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use exobus_shuffle::kernels::prefetch_value;

use super::picked::Picker;
use crate::TableError;
use crate::block::Pick;
use crate::plain::plain_type;
use crate::raw::fixed_values;
use crate::semantics::{Level, levels, place};

/// The fields on this path down into structs, without dictionaries and run ends on the outside; null where a struct is. Of the plain type, where there was such an encoding.
pub(super) fn reached(array: &ArrayRef, path: &[usize]) -> Result<ArrayRef, TableError> {
    let (levels, inner) = levels(array, path);
    if levels.iter().any(Level::is_places) {
        let null = Pick { batch: 1, row: 0 };
        let pick = |row| place(&levels, row).map_or(null, |row| Pick { batch: 0, row: row as u32 });
        let picks: Vec<Pick> = (0..array.len()).map(pick).collect();
        let nothing = new_null_array(inner.data_type(), 1);
        return Picker::new(&plain_type(inner.data_type()))?.picked(&[inner, nothing], &picks);
    }
    if path.is_empty() || *inner.data_type() == DataType::Null {
        return Ok(inner);
    }
    let nulls = levels.iter().fold(None, |all, level| match level {
        Level::Nulls(nulls) => NullBuffer::union(all.as_ref(), Some(nulls)),
        Level::Places(_) => all,
    });
    Ok(make_array(inner.to_data().into_builder().nulls(nulls).build()?))
}

/// The values of an array of a fixed width, whatever is under nulls.
///
/// # Panics
/// They are of another width: types were checked.
pub(super) fn values_of<T: ArrowNativeType>(array: &ArrayRef) -> Buffer {
    let (width, values) = fixed_values(array.as_ref()).expect("numbers");
    assert_eq!(width, size_of::<T>(), "{} has another width", array.data_type());
    values
}

/// Rows between asking for the state of a group and using it: where there are more states than caches hold, several are waited for at a time.
const AHEAD: usize = 16;

/// Asks for the state of the group of a row that is looked at soon.
#[inline(always)]
fn ask<S>(states: &[S], groups: &[u32], row: usize) {
    if let Some(state) = groups.get(row + AHEAD).and_then(|group| states.get(*group as usize)) {
        prefetch_value(state);
    }
}

/// Each value with the state of its group, but for nulls.
#[inline(always)]
pub(super) fn each_value<S, T: Copy>(
    groups: &[u32],
    states: &mut [S],
    (values, nulls): (&[T], Option<&NullBuffer>),
    mut add: impl FnMut(&mut S, T),
) {
    assert_eq!(groups.len(), values.len(), "a value for each row");
    let mut add = |row: usize| {
        ask(states, groups, row);
        add(&mut states[groups[row] as usize], values[row]);
    };
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        None => (0..groups.len()).for_each(add),
        Some(nulls) => nulls.valid_indices().for_each(&mut add),
    }
}

/// The states of these groups.
#[inline(always)]
pub(super) fn chosen<'a, S>(states: &'a [S], groups: &'a [u32]) -> impl Iterator<Item = &'a S> {
    groups.iter().enumerate().map(|(row, group)| {
        ask(states, groups, row);
        &states[*group as usize]
    })
}

/// Each row that has a value, with its group.
#[inline(always)]
pub(super) fn each_row(groups: &[u32], nulls: Option<&NullBuffer>, mut add: impl FnMut(usize, usize)) {
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        None => groups.iter().enumerate().for_each(|(row, group)| add(*group as usize, row)),
        Some(nulls) => nulls.valid_indices().for_each(|row| add(groups[row] as usize, row)),
    }
}

/// A column of values of a fixed width.
pub(super) fn fixed<T: ArrowNativeType>(data_type: &DataType, values: Vec<T>, nulls: Option<NullBuffer>) -> ArrayRef {
    let data = ArrayData::builder(data_type.clone()).len(values.len()).add_buffer(Buffer::from_vec(values));
    make_array(data.nulls(nulls).build().expect("values of the width of their type"))
}

/// A column of so many bytes a row, without nulls.
pub(super) fn raw(width: usize, bytes: Vec<u8>, rows: usize) -> Result<ArrayRef, TableError> {
    Ok(Arc::new(FixedSizeBinaryArray::try_new_with_len(width as i32, bytes.into(), None, rows)?))
}

/// A column of counts.
pub(super) fn counts(counts: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(counts.map(|count| count as i64)))
}

/// Which rows have something.
pub(super) fn valid(rows: impl Iterator<Item = bool>) -> Option<NullBuffer> {
    let nulls: NullBuffer = rows.collect();
    (nulls.null_count() > 0).then_some(nulls)
}
