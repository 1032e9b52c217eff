//! Quotients of whole numbers of any length, rounded once.

use crate::semantics::{bit_length, nearest};

/// The float that is nearest to a magnitude (the lowest word first) times 2 to the power of an exponent by the product of the divisors, none of which is zero.
pub(super) fn nearest_quotient(is_negative: bool, mut magnitude: Vec<u64>, exponent: i32, divisors: &[u64]) -> f64 {
    let bits: u32 = divisors.iter().map(|divisor| 64 - divisor.leading_zeros()).sum();
    // So many bits that 64 are left, whatever is divided by.
    let lacking = (bits + 66).saturating_sub(bit_length(&magnitude)).div_ceil(64);
    magnitude.splice(0..0, std::iter::repeat_n(0, lacking as usize));
    let mut more = false;
    for divisor in divisors {
        more |= divide(&mut magnitude, *divisor) != 0;
    }
    nearest(is_negative, &magnitude, exponent - 64 * lacking as i32, more)
}

/// Divides by a word; the rest.
fn divide(words: &mut [u64], divisor: u64) -> u64 {
    let mut rest = 0;
    for word in words.iter_mut().rev() {
        let wide = u128::from(rest) << 64 | u128::from(*word);
        *word = (wide / u128::from(divisor)) as u64;
        rest = (wide % u128::from(divisor)) as u64;
    }
    rest
}

/// Multiplies by a word.
pub(super) fn times(words: &mut Vec<u64>, factor: u64) {
    let mut carry = 0;
    for word in words.iter_mut() {
        let wide = u128::from(*word) * u128::from(factor) + carry;
        (*word, carry) = (wide as u64, wide >> 64);
    }
    words.push(carry as u64);
}

/// The product of two numbers.
pub(super) fn product(left: &[u64], right: &[u64]) -> Vec<u64> {
    let mut product = vec![0; left.len() + right.len()];
    for (at, one) in left.iter().enumerate() {
        let mut carry = 0;
        for (to, other) in right.iter().enumerate() {
            let sum = u128::from(*one) * u128::from(*other) + u128::from(product[at + to]) + carry;
            (product[at + to], carry) = (sum as u64, sum >> 64);
        }
        product[at + right.len()] = carry as u64;
    }
    product
}

/// Takes one number from another one that is not less.
pub(super) fn minus(left: &mut [u64], right: &[u64]) {
    let mut borrow = false;
    for (at, word) in left.iter_mut().enumerate() {
        let (less, under) = word.overflowing_sub(right.get(at).copied().unwrap_or(0));
        let (less, under_again) = less.overflowing_sub(u64::from(borrow));
        (*word, borrow) = (less, under | under_again);
    }
}

/// Ten to this power, as factors of one word each.
pub(super) fn powers_of_ten(mut power: u32) -> Vec<u64> {
    let mut factors = Vec::new();
    while power > 0 {
        let some = power.min(19);
        factors.push(10u64.pow(some));
        power -= some;
    }
    factors
}
