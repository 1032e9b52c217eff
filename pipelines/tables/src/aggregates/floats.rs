//! Sums and means of floats.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::types::{Float16Type, Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, BinaryArray, Float64Array, cast::AsArray};

use super::Accumulator;
use super::columns::{chosen, counts, each_value, values_of};
use super::quotient::nearest_quotient;
use crate::TableError;
use crate::semantics::{ExactFloatSum, FloatSum};

/// Floats of some width.
pub(super) trait Float: ArrowPrimitiveType {
    /// The same number; NaN may have another payload.
    fn wide(value: Self::Native) -> f64;
}

macro_rules! floats {
    ($($of:ty),*) => {$(
        impl Float for $of {
            #[inline(always)]
            fn wide(value: Self::Native) -> f64 {
                f64::from(value)
            }
        }
    )*};
}

floats!(Float16Type, Float32Type, Float64Type);

/// Sum and number of the values of a group.
#[derive(Clone, Default)]
struct Group {
    sum: ExactFloatSum,
    count: u64,
}

/// Exact sums and counts of floats.
pub(super) struct FloatTotals<T> {
    /// Whether means are asked for, not sums.
    is_mean: bool,
    groups: Vec<Group>,
    heap_bytes: usize,
    values: PhantomData<fn(T)>,
}

impl<T> FloatTotals<T> {
    pub(super) fn new(is_mean: bool) -> Self {
        Self { is_mean, groups: Vec::new(), heap_bytes: 0, values: PhantomData }
    }
}

impl<T: Float> Accumulator for FloatTotals<T> {
    fn resize(&mut self, groups: usize) {
        self.groups.resize_with(groups, Group::default);
    }

    fn update(&mut self, groups: &[u32], argument: Option<&ArrayRef>, _: Option<&[u64]>) -> Result<(), TableError> {
        let argument = argument.expect("values");
        let values = values_of::<T::Native>(argument);
        let (values, heap) = ((values.typed_data::<T::Native>(), argument.nulls()), &mut self.heap_bytes);
        each_value(groups, &mut self.groups, values, |group, value| {
            group.count += 1;
            *heap += group.sum.add(T::wide(value));
        });
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<(), TableError> {
        let (sums, counts) = (states[0].as_binary::<i32>(), states[1].as_primitive::<Int64Type>());
        for (row, group) in groups.iter().enumerate() {
            let group = &mut self.groups[*group as usize];
            self.heap_bytes += group.sum.merge_encoded(sums.value(row))?;
            group.count = group.count.wrapping_add(counts.value(row) as u64);
        }
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>, TableError> {
        let sums = encoded(chosen(&self.groups, order).map(|group| &group.sum))?;
        Ok(vec![sums, counts(chosen(&self.groups, order).map(|group| group.count))])
    }

    fn finish(&self, order: &[u32]) -> Result<ArrayRef, TableError> {
        let value = |group: &Group| match self.is_mean {
            true => mean(group),
            false => group.sum.value(),
        };
        let values = chosen(&self.groups, order).map(|group| (group.count > 0).then(|| value(group)));
        Ok(Arc::new(values.collect::<Float64Array>()))
    }

    fn terms(&self, order: &[u32]) -> Vec<Vec<f64>> {
        let groups = || chosen(&self.groups, order);
        vec![groups().map(|group| group.sum.value()).collect(), groups().map(|group| group.count as f64).collect()]
    }

    fn bytes(&self) -> u64 {
        (size_of::<Group>() * self.groups.capacity() + self.heap_bytes) as u64
    }

    fn clear(&mut self) {
        self.groups.clear();
        self.heap_bytes = 0;
    }
}

fn mean(group: &Group) -> f64 {
    group.sum.special().unwrap_or_else(|| {
        let (is_negative, magnitude, exponent) = group.sum.exact();
        nearest_quotient(is_negative, magnitude, exponent, &[group.count])
    })
}

/// Bytes of sums.
pub(super) fn encoded<'a, const WORDS: usize>(
    sums: impl Iterator<Item = &'a FloatSum<WORDS>>,
) -> Result<ArrayRef, TableError> {
    let (mut bytes, mut ends) = (Vec::new(), vec![0i32]);
    for sum in sums {
        sum.encode(&mut bytes);
        let rows = ends.len();
        ends.push(i32::try_from(bytes.len()).map_err(|_| TableError::StatesTooLarge { rows })?);
    }
    let offsets = arrow_buffer::OffsetBuffer::new(ends.into());
    Ok(Arc::new(BinaryArray::try_new(offsets, bytes.into(), None)?))
}
