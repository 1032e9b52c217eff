//! Sums and means of integers and decimals.

use std::marker::PhantomData;

use arrow_array::{Array, ArrayRef, Float64Array, cast::AsArray, types::Int64Type};
use arrow_buffer::{ArrowNativeType, i256};
use arrow_schema::DataType;

use super::Accumulator;
use super::columns::{chosen, counts, each_value, fixed, raw, valid, values_of};
use super::quotient::{nearest_quotient, powers_of_ten, times};
use super::whole::Whole;
use crate::TableError;
use crate::semantics::range;

/// An integer, or the unscaled value of a decimal.
pub(super) trait Summand: ArrowNativeType {
    fn add_to<const WORDS: usize>(self, sum: &mut Whole<WORDS>);
    fn add_square_to<const WORDS: usize>(self, sum: &mut Whole<WORDS>);
}

macro_rules! narrow_summands {
    ($($native:ty),*) => {$(
        impl Summand for $native {
            #[inline(always)]
            fn add_to<const WORDS: usize>(self, sum: &mut Whole<WORDS>) {
                sum.add_i128(i128::from(self));
            }

            #[inline(always)]
            fn add_square_to<const WORDS: usize>(self, sum: &mut Whole<WORDS>) {
                let magnitude = i128::from(self).unsigned_abs();
                sum.add_u128(magnitude * magnitude);
            }
        }
    )*};
}

narrow_summands!(i8, i16, i32, i64, u8, u16, u32, u64);

impl Summand for i128 {
    #[inline(always)]
    fn add_to<const WORDS: usize>(self, sum: &mut Whole<WORDS>) {
        sum.add_i128(self);
    }

    fn add_square_to<const WORDS: usize>(self, sum: &mut Whole<WORDS>) {
        sum.add_square(i256::from_i128(self));
    }
}

impl Summand for i256 {
    #[inline(always)]
    fn add_to<const WORDS: usize>(self, sum: &mut Whole<WORDS>) {
        sum.add_i256(self);
    }

    fn add_square_to<const WORDS: usize>(self, sum: &mut Whole<WORDS>) {
        sum.add_square(self);
    }
}

/// What is made of a sum.
#[derive(Clone, Debug)]
pub(super) enum Total {
    /// The sum, of this type.
    Sum(DataType),
    /// The mean.
    Mean,
}

/// Sum and number of the values of a group: so many words do not overflow, however many values there are.
#[derive(Clone, Copy, Default)]
struct Group<const WORDS: usize> {
    sum: Whole<WORDS>,
    count: u64,
}

/// Sums and counts of values.
pub(super) struct Totals<T, const WORDS: usize> {
    column: String,
    total: Total,
    /// How many digits of values stand behind the point.
    scale: i8,
    groups: Vec<Group<WORDS>>,
    values: PhantomData<fn(T)>,
}

impl<T, const WORDS: usize> Totals<T, WORDS> {
    pub(super) fn new(column: &str, total: Total, scale: i8) -> Self {
        Self { column: column.to_owned(), total, scale, groups: Vec::new(), values: PhantomData }
    }

    fn sums(&self, data_type: &DataType, order: &[u32]) -> Result<ArrayRef, TableError> {
        let (least, most) = range(data_type).expect("sums of whole numbers are decimals");
        let checked = |(row, group): (usize, &Group<WORDS>)| {
            let sum = group.sum.as_i256().filter(|sum| (least..=most).contains(sum));
            sum.ok_or_else(|| TableError::SumOverflows {
                column: self.column.clone(),
                data_type: data_type.clone(),
                row: Some(row),
            })
        };
        let sums = chosen(&self.groups, order).enumerate().map(checked).collect::<Result<Vec<i256>, TableError>>()?;
        let nulls = valid(chosen(&self.groups, order).map(|group| group.count > 0));
        Ok(match data_type {
            DataType::Decimal256(..) => fixed(data_type, sums, nulls),
            _ => fixed(data_type, sums.into_iter().map(|sum| sum.as_i128()).collect(), nulls),
        })
    }

    fn means(&self, order: &[u32]) -> ArrayRef {
        let means = chosen(&self.groups, order).map(|group| (group.count > 0).then(|| mean(group, self.scale)));
        std::sync::Arc::new(means.collect::<Float64Array>())
    }
}

impl<T: Summand, const WORDS: usize> Accumulator for Totals<T, WORDS> {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, Group::default());
    }

    fn update(&mut self, groups: &[u32], argument: Option<&ArrayRef>, _: Option<&[u64]>) -> Result<(), TableError> {
        let argument = argument.expect("values");
        let values = values_of::<T>(argument);
        each_value(groups, &mut self.groups, (values.typed_data::<T>(), argument.nulls()), |group, value| {
            value.add_to(&mut group.sum);
            group.count += 1;
        });
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<(), TableError> {
        let (sums, counts) = (states[0].as_fixed_size_binary(), states[1].as_primitive::<Int64Type>());
        for (row, group) in groups.iter().enumerate() {
            let group = &mut self.groups[*group as usize];
            group.sum.add(&Whole::read(sums.value(row)));
            group.count = group.count.wrapping_add(counts.value(row) as u64);
        }
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>, TableError> {
        let mut sums = Vec::with_capacity(Whole::<WORDS>::BYTES * order.len());
        chosen(&self.groups, order).for_each(|group| group.sum.write(&mut sums));
        let sums = raw(Whole::<WORDS>::BYTES, sums, order.len())?;
        Ok(vec![sums, counts(chosen(&self.groups, order).map(|group| group.count))])
    }

    fn finish(&self, order: &[u32]) -> Result<ArrayRef, TableError> {
        match &self.total {
            Total::Sum(data_type) => self.sums(data_type, order),
            Total::Mean => Ok(self.means(order)),
        }
    }

    fn terms(&self, order: &[u32]) -> Vec<Vec<f64>> {
        let groups = || chosen(&self.groups, order);
        let sums = groups().map(|group| group.sum.as_f64(i32::from(self.scale)));
        vec![sums.collect(), groups().map(|group| group.count as f64).collect()]
    }

    fn bytes(&self) -> u64 {
        (size_of::<Group<WORDS>>() * self.groups.capacity()) as u64
    }

    fn clear(&mut self) {
        self.groups.clear();
    }
}

/// The float that is nearest to the mean.
fn mean<const WORDS: usize>(group: &Group<WORDS>, scale: i8) -> f64 {
    /// What a float has without rounding.
    const EXACT: u128 = 1 << 53;
    let is_exact = |sum: &i128| sum.unsigned_abs() <= EXACT && u128::from(group.count) <= EXACT;
    if scale == 0
        && let Some(sum) = group.sum.as_i128().filter(is_exact)
    {
        // One division of two exact numbers rounds once.
        return sum as f64 / group.count as f64;
    }
    let (is_negative, magnitude) = group.sum.parts();
    let mut magnitude = magnitude.to_vec();
    let mut divisors = vec![group.count];
    let powers = powers_of_ten(u32::from(scale.unsigned_abs()));
    match scale < 0 {
        true => powers.into_iter().for_each(|power| times(&mut magnitude, power)),
        false => divisors.extend(powers),
    }
    nearest_quotient(is_negative, magnitude, 0, &divisors)
}
