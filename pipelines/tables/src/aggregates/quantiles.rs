//! Which of the sorted values of a group a quantile is, and what lies between two of them.
//!
//! As DuckDB has them, to the bit; there `quantile_cont` of decimals and of narrow floats is of their type, here it is a float of 64 bits.

use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, Float64Array, cast::AsArray};
use arrow_buffer::i256;
use arrow_schema::DataType;

use super::quotient::{nearest_quotient, powers_of_ten, times};
use super::whole::Whole;
use crate::TableError;
use crate::raw::WholeNumbers;

/// Which of so many sorted values, from 0, is the quantile: the first one that so large a part of them, from 0 to 1, does not exceed. The part is what its shortest text says: 0.07 of
/// 100 values are 7, not a bit more. Of no value it is 0.
pub fn quantile_rank(values: u64, part: f64) -> u64 {
    // `5e-1`: digits with a point behind the first one, and the exponent.
    let text = format!("{part:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().unwrap_or(0);
    let behind_point = fraction.len() as i32 - exponent.parse::<i32>().unwrap_or(0);
    // At most 17 digits, so that this does not overflow.
    let counted = u128::from(values) * digits;
    let many = match u32::try_from(behind_point).ok().map(|power| 10u128.checked_pow(power)) {
        Some(Some(power)) => counted.div_ceil(power),
        // More digits behind the point than a product has before it.
        Some(None) => u128::from(counted > 0),
        None => u128::from(values),
    };
    (many.clamp(1, u128::from(values.max(1))) - 1) as u64
}

/// Between which two of so many sorted values, from 0, the quantile is, and how much of the way it is from the first to the second: at 0 it is the first. Of no value they are 0.
pub fn quantile_ranks(values: u64, part: f64) -> (u64, u64, f64) {
    let last = values.saturating_sub(1);
    let place = last as f64 * part;
    let before = (place.floor() as u64).min(last);
    let behind = (place.ceil() as u64).min(last);
    (before, behind, if before == behind { 0.0 } else { place - place.floor() })
}

/// What is so much of the way from one number to another one, row by row, as floats; null where either is. Both columns are plain integers, decimals or floats of one type, which are
/// rounded before.
///
/// # Errors
/// [`TableError::Unsupported`]: they are not numbers.
///
/// # Panics
/// There are not as many of all three.
pub fn interpolated(before: &ArrayRef, behind: &ArrayRef, weights: &[f64]) -> Result<ArrayRef, TableError> {
    assert!(before.len() == behind.len() && behind.len() == weights.len(), "two numbers for each weight");
    let (before, behind) = (as_floats(before)?, as_floats(behind)?);
    let between = |((before, behind), weight): ((Option<f64>, Option<f64>), &f64)| match *weight {
        0.0 => before,
        // One product rounded and one not, which is how DuckDB's processors do it.
        weight => Some(before?.mul_add(1.0 - weight, behind? * weight)),
    };
    Ok(Arc::new(before.iter().zip(&behind).zip(weights).map(between).collect::<Float64Array>()))
}

/// Numbers as the floats that are nearest to them.
fn as_floats(numbers: &ArrayRef) -> Result<Float64Array, TableError> {
    let scale = match numbers.data_type() {
        DataType::Float64 => return Ok(numbers.as_primitive::<Float64Type>().clone()),
        DataType::Float32 => return Ok(numbers.as_primitive::<Float32Type>().unary(f64::from)),
        DataType::Float16 => return Ok(numbers.as_primitive::<Float16Type>().unary(f64::from)),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale,
        integer if integer.is_integer() => 0,
        other => {
            let (column, data_type) = ("of a quantile".to_owned(), other.clone());
            return Err(TableError::Unsupported { column, data_type, why: "only numbers have others between them" });
        }
    };
    let whole = WholeNumbers::of(numbers.as_ref()).expect("integers and decimals are whole numbers");
    let float = |row| numbers.is_valid(row).then(|| as_float(whole.wide(row), scale));
    Ok((0..numbers.len()).map(float).collect())
}

/// The float that is nearest to a whole number with so many digits behind the point.
fn as_float(value: i256, scale: i8) -> f64 {
    if scale == 0
        && let Some(value) = value.to_i128()
    {
        return value as f64;
    }
    let mut whole = Whole::<5>::default();
    whole.add_i256(value);
    let (is_negative, magnitude) = whole.parts();
    let (mut magnitude, powers) = (magnitude.to_vec(), powers_of_ten(u32::from(scale.unsigned_abs())));
    match scale < 0 {
        true => {
            powers.into_iter().for_each(|power| times(&mut magnitude, power));
            nearest_quotient(is_negative, magnitude, 0, &[])
        }
        false => nearest_quotient(is_negative, magnitude, 0, &powers),
    }
}
