//! Variances and standard deviations: of exact sums of values and of their squares, rounded once.
//!
//! The variance of n values is (n Σx² - (Σx)²) / (n (n - 1)), or by n² of a population. All of it is exact up to the division, so it is never below zero and nothing cancels. A standard
//! deviation is the root of the rounded variance: two roundings, so it is off by less than a unit of its last place.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, cast::AsArray, types::Int64Type};

use super::columns::{chosen, counts, each_value, raw, values_of};
use super::floats::{Float, encoded};
use super::quotient::{minus, nearest_quotient, powers_of_ten, product, times};
use super::totals::Summand;
use super::whole::Whole;
use super::{Accumulator, Function};
use crate::TableError;
use crate::semantics::{ExactFloatSum, ExactSquareSum};

/// Which of the four it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variance {
    /// Of a population, not of a sample.
    is_of_population: bool,
    is_root: bool,
}

impl Variance {
    pub(super) fn of(function: Function) -> Self {
        use Function::*;
        Self {
            is_of_population: matches!(function, VariancePopulation | StddevPopulation),
            is_root: matches!(function, Stddev | StddevPopulation),
        }
    }

    /// Of so many values, by their sum and the sum of their squares; sums have an exponent and `scale` digits behind the point. `None`: there are too few.
    fn value(self, count: u64, sum: &[u64], squares: &[u64], exponent: i32, scale: i8) -> Option<f64> {
        let less = if self.is_of_population { count } else { count.saturating_sub(1) };
        if count == 0 || less == 0 {
            return None;
        }
        let mut sum_of_squares = squares.to_vec();
        times(&mut sum_of_squares, count);
        minus(&mut sum_of_squares, &product(sum, sum));
        let mut divisors = vec![count, less];
        let powers = powers_of_ten(2 * u32::from(scale.unsigned_abs()));
        match scale < 0 {
            true => powers.into_iter().for_each(|power| times(&mut sum_of_squares, power)),
            false => divisors.extend(powers),
        }
        Some(self.rooted(nearest_quotient(false, sum_of_squares, exponent, &divisors)))
    }

    fn rooted(self, variance: f64) -> f64 {
        if self.is_root { variance.sqrt() } else { variance }
    }
}

#[derive(Clone, Copy, Default)]
struct Group<const WORDS: usize, const SQUARE_WORDS: usize> {
    sum: Whole<WORDS>,
    squares: Whole<SQUARE_WORDS>,
    count: u64,
}

/// Of integers and decimals.
pub(super) struct Variances<T, const WORDS: usize, const SQUARE_WORDS: usize> {
    variance: Variance,
    scale: i8,
    groups: Vec<Group<WORDS, SQUARE_WORDS>>,
    values: PhantomData<fn(T)>,
}

impl<T, const WORDS: usize, const SQUARE_WORDS: usize> Variances<T, WORDS, SQUARE_WORDS> {
    pub(super) fn new(variance: Variance, scale: i8) -> Self {
        Self { variance, scale, groups: Vec::new(), values: PhantomData }
    }
}

impl<T: Summand, const WORDS: usize, const SQUARE_WORDS: usize> Accumulator for Variances<T, WORDS, SQUARE_WORDS> {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups, Group::default());
    }

    fn update(&mut self, groups: &[u32], argument: Option<&ArrayRef>, _: Option<&[u64]>) -> Result<(), TableError> {
        let argument = argument.expect("values");
        let values = values_of::<T>(argument);
        each_value(groups, &mut self.groups, (values.typed_data::<T>(), argument.nulls()), |group, value| {
            value.add_to(&mut group.sum);
            value.add_square_to(&mut group.squares);
            group.count += 1;
        });
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<(), TableError> {
        let (sums, squares) = (states[0].as_fixed_size_binary(), states[1].as_fixed_size_binary());
        let counts = states[2].as_primitive::<Int64Type>();
        for (row, group) in groups.iter().enumerate() {
            let group = &mut self.groups[*group as usize];
            group.sum.add(&Whole::read(sums.value(row)));
            group.squares.add(&Whole::read(squares.value(row)));
            group.count = group.count.wrapping_add(counts.value(row) as u64);
        }
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>, TableError> {
        let (mut sums, mut squares) = (Vec::new(), Vec::new());
        for group in chosen(&self.groups, order) {
            group.sum.write(&mut sums);
            group.squares.write(&mut squares);
        }
        Ok(vec![
            raw(Whole::<WORDS>::BYTES, sums, order.len())?,
            raw(Whole::<SQUARE_WORDS>::BYTES, squares, order.len())?,
            counts(chosen(&self.groups, order).map(|group| group.count)),
        ])
    }

    fn finish(&self, order: &[u32]) -> Result<ArrayRef, TableError> {
        let value = |group: &Group<WORDS, SQUARE_WORDS>| {
            let ((_, sum), (_, squares)) = (group.sum.parts(), group.squares.parts());
            self.variance.value(group.count, &sum, &squares, 0, self.scale)
        };
        Ok(Arc::new(chosen(&self.groups, order).map(value).collect::<Float64Array>()))
    }

    fn terms(&self, order: &[u32]) -> Vec<Vec<f64>> {
        let (groups, scale) = (|| chosen(&self.groups, order), i32::from(self.scale));
        let sums = groups().map(|group| group.sum.as_f64(scale));
        let squares = groups().map(|group| group.squares.as_f64(2 * scale));
        vec![sums.collect(), squares.collect(), groups().map(|group| group.count as f64).collect()]
    }

    fn bytes(&self) -> u64 {
        (size_of::<Group<WORDS, SQUARE_WORDS>>() * self.groups.capacity()) as u64
    }

    fn clear(&mut self) {
        self.groups.clear();
    }
}

#[derive(Clone, Default)]
struct FloatGroup {
    sum: ExactFloatSum,
    squares: ExactSquareSum,
    count: u64,
}

/// Of floats.
pub(super) struct FloatVariances<T> {
    variance: Variance,
    groups: Vec<FloatGroup>,
    heap_bytes: usize,
    values: PhantomData<fn(T)>,
}

impl<T> FloatVariances<T> {
    pub(super) fn new(variance: Variance) -> Self {
        Self { variance, groups: Vec::new(), heap_bytes: 0, values: PhantomData }
    }

    fn value(&self, group: &FloatGroup) -> Option<f64> {
        if group.sum.special().is_some() {
            let is_enough = group.count > u64::from(!self.variance.is_of_population);
            return is_enough.then_some(f64::NAN);
        }
        let (_, mut sum, exponent) = group.sum.exact();
        let (_, mut squares, squares_exponent) = group.squares.exact();
        // Both begin at one bit.
        let (exponent, shift) = match exponent <= squares_exponent.div_euclid(2) {
            true => (exponent, (squares_exponent - 2 * exponent) as u32),
            false => {
                let lower = squares_exponent.div_euclid(2);
                shift_up(&mut sum, (exponent - lower) as u32);
                (lower, (squares_exponent - 2 * lower) as u32)
            }
        };
        shift_up(&mut squares, shift);
        self.variance.value(group.count, &sum, &squares, 2 * exponent, 0)
    }
}

/// Shifts a number to higher bits.
fn shift_up(words: &mut Vec<u64>, shift: u32) {
    if !shift.is_multiple_of(64) {
        times(words, 1 << (shift % 64));
    }
    words.splice(0..0, std::iter::repeat_n(0, (shift / 64) as usize));
}

impl<T: Float> Accumulator for FloatVariances<T> {
    fn resize(&mut self, groups: usize) {
        self.groups.resize_with(groups, FloatGroup::default);
    }

    fn update(&mut self, groups: &[u32], argument: Option<&ArrayRef>, _: Option<&[u64]>) -> Result<(), TableError> {
        let argument = argument.expect("values");
        let values = values_of::<T::Native>(argument);
        let (values, heap) = ((values.typed_data::<T::Native>(), argument.nulls()), &mut self.heap_bytes);
        each_value(groups, &mut self.groups, values, |group, value| {
            group.count += 1;
            *heap += group.sum.add(T::wide(value)) + group.squares.add_square(T::wide(value));
        });
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<(), TableError> {
        let (sums, squares) = (states[0].as_binary::<i32>(), states[1].as_binary::<i32>());
        let counts = states[2].as_primitive::<Int64Type>();
        for (row, group) in groups.iter().enumerate() {
            let group = &mut self.groups[*group as usize];
            self.heap_bytes += group.sum.merge_encoded(sums.value(row))?;
            self.heap_bytes += group.squares.merge_encoded(squares.value(row))?;
            group.count = group.count.wrapping_add(counts.value(row) as u64);
        }
        Ok(())
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>, TableError> {
        let sums = encoded(chosen(&self.groups, order).map(|group| &group.sum))?;
        let squares = encoded(chosen(&self.groups, order).map(|group| &group.squares))?;
        Ok(vec![sums, squares, counts(chosen(&self.groups, order).map(|group| group.count))])
    }

    fn finish(&self, order: &[u32]) -> Result<ArrayRef, TableError> {
        Ok(Arc::new(chosen(&self.groups, order).map(|group| self.value(group)).collect::<Float64Array>()))
    }

    fn terms(&self, order: &[u32]) -> Vec<Vec<f64>> {
        let groups = || chosen(&self.groups, order);
        let sums = groups().map(|group| group.sum.value());
        let squares = groups().map(|group| group.squares.value());
        vec![sums.collect(), squares.collect(), groups().map(|group| group.count as f64).collect()]
    }

    fn bytes(&self) -> u64 {
        (size_of::<FloatGroup>() * self.groups.capacity() + self.heap_bytes) as u64
    }

    fn clear(&mut self) {
        self.groups.clear();
        self.heap_bytes = 0;
    }
}
