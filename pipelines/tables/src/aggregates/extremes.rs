//! Least and greatest numbers.

use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_buffer::{ArrowNativeType, i256};
use arrow_schema::DataType;

use super::Accumulator;
use super::columns::{chosen, each_value, fixed, valid, values_of};
use crate::TableError;
use crate::semantics::float_order;

/// A number as one that compares as numbers of `docs/semantics.md` do.
pub(super) trait Ordered {
    type Native: ArrowNativeType;
    type Key: Copy + Ord + Send;
    fn key(value: Self::Native) -> Self::Key;
    /// Of NaNs the one, of zeros 0.0.
    fn value(key: Self::Key) -> Self::Native;
}

macro_rules! whole {
    ($($native:ty),*) => {$(
        impl Ordered for $native {
            type Native = Self;
            type Key = Self;

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
    found: Vec<Option<T::Key>>,
}

impl<T: Ordered, const GREATEST: bool> Extremes<T, GREATEST> {
    pub(super) fn new(data_type: &DataType) -> Self {
        Self { data_type: data_type.clone(), found: Vec::new() }
    }
}

impl<T: Ordered, const GREATEST: bool> Accumulator for Extremes<T, GREATEST> {
    fn resize(&mut self, groups: usize) {
        self.found.resize(groups, None);
    }

    fn update(&mut self, groups: &[u32], argument: Option<&ArrayRef>, _: Option<&[u64]>) -> Result<(), TableError> {
        let argument = argument.expect("values");
        let values = values_of::<T::Native>(argument);
        each_value(groups, &mut self.found, (values.typed_data::<T::Native>(), argument.nulls()), |found, value| {
            let key = T::key(value);
            *found = found.map_or(Some(key), |found| Some(if GREATEST { found.max(key) } else { found.min(key) }));
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
        let nulls = valid(chosen(&self.found, order).map(Option::is_some));
        let values = chosen(&self.found, order).map(|found| found.map_or(T::Native::default(), T::value));
        Ok(fixed(&self.data_type, values.collect(), nulls))
    }

    fn bytes(&self) -> u64 {
        (size_of::<Option<T::Key>>() * self.found.capacity()) as u64
    }

    fn clear(&mut self) {
        self.found.clear();
    }
}
