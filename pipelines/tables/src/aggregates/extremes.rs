//! Least and greatest numbers.

use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_buffer::{ArrowNativeType, i256};
use arrow_schema::DataType;

use super::Accumulator;
use super::columns::{each_value, fixed, valid, values_of};
use crate::TableError;
use crate::semantics::float_order;

/// A number as one that compares as numbers of `docs/semantics.md` do.
pub(super) trait Ordered {
    type Native: ArrowNativeType;
    type Key: Copy + Ord + Send;
    const LEAST: Self::Key;
    const GREATEST: Self::Key;
    fn key(value: Self::Native) -> Self::Key;
    /// Of NaNs the one, of zeros 0.0.
    fn value(key: Self::Key) -> Self::Native;
}

macro_rules! whole {
    ($($native:ty),*) => {$(
        impl Ordered for $native {
            type Native = Self;
            type Key = Self;
            const LEAST: Self = <$native>::MIN;
            const GREATEST: Self = <$native>::MAX;

            #[inline(always)]
            fn key(value: Self) -> Self {
                value
            }

            fn value(key: Self) -> Self {
                key
            }
        }
    )*};
}

whole!(i8, i16, i32, i64, i128, i256, u8, u16, u32, u64);

macro_rules! float {
    ($native:ty, $bits:ty) => {
        impl Ordered for $native {
            type Native = <$native as ArrowPrimitiveType>::Native;
            type Key = $bits;
            const LEAST: $bits = <$bits>::MIN;
            const GREATEST: $bits = <$bits>::MAX;

            #[inline(always)]
            fn key(value: Self::Native) -> $bits {
                float_order(value.to_bits().to_le_bytes()) as $bits
            }

            fn value(key: $bits) -> Self::Native {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                Self::Native::from_bits(if key & SIGN != 0 { key ^ SIGN } else { !key })
            }
        }
    };
}

float!(Float64Type, u64);
float!(Float32Type, u32);
float!(Float16Type, u16);

/// The least number of each group, or the greatest.
pub(super) struct Extremes<T: Ordered, const GREATEST: bool> {
    data_type: DataType,
    /// Where there is none yet, the one that all others are not behind.
    found: Vec<T::Key>,
    /// Whether there is one.
    is_found: Vec<bool>,
}

impl<T: Ordered, const GREATEST: bool> Extremes<T, GREATEST> {
    pub(super) fn new(data_type: &DataType) -> Self {
        Self { data_type: data_type.clone(), found: Vec::new(), is_found: Vec::new() }
    }
}

impl<T: Ordered, const GREATEST: bool> Accumulator for Extremes<T, GREATEST> {
    fn resize(&mut self, groups: usize) {
        self.found.resize(groups, if GREATEST { T::LEAST } else { T::GREATEST });
        self.is_found.resize(groups, false);
    }

    fn update(&mut self, groups: &[u32], argument: Option<&ArrayRef>, _: Option<&[u64]>) -> Result<(), TableError> {
        let argument = argument.expect("values");
        let values = values_of::<T::Native>(argument);
        let (found, is_found) = (&mut self.found[..], &mut self.is_found[..]);
        each_value(groups, values.typed_data::<T::Native>(), argument.nulls(), |group, value| {
            let (key, found) = (T::key(value), &mut found[group]);
            // Equal ones too, so that the first one is noted whatever it is.
            if if GREATEST { key >= *found } else { key <= *found } {
                *found = key;
                is_found[group] = true;
            }
        });
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<(), TableError> {
        self.update(groups, Some(&states[0]), None)
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>, TableError> {
        Ok(vec![self.finish(order)?])
    }

    fn finish(&self, order: &[u32]) -> Result<ArrayRef, TableError> {
        let value = |group: &u32| match self.is_found[*group as usize] {
            true => T::value(self.found[*group as usize]),
            false => T::Native::default(),
        };
        let nulls = valid(order.iter().map(|group| self.is_found[*group as usize]));
        Ok(fixed(&self.data_type, order.iter().map(value).collect(), nulls))
    }

    fn bytes(&self) -> u64 {
        (size_of::<T::Key>() * self.found.capacity() + self.is_found.capacity()) as u64
    }

    fn clear(&mut self) {
        self.found.clear();
        self.is_found.clear();
    }
}
