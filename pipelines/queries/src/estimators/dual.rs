//! Numbers that know how they depend on what they were computed from: expressions of estimates are linearised by them.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A number, and its derivatives by the estimates that it was computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct Dual {
    /// The number.
    pub value: f64,
    /// Its derivative by each of them.
    pub gradient: Vec<f64>,
}

impl Dual {
    /// A number that depends on none of so many estimates.
    pub fn constant(value: f64, estimates: usize) -> Self {
        Self { value, gradient: vec![0.0; estimates] }
    }

    /// The estimate `number` of so many.
    pub(super) fn estimate(value: f64, number: usize, estimates: usize) -> Self {
        let mut of = Self::constant(value, estimates);
        of.gradient[number] = 1.0;
        of
    }

    /// A function of this number, with its value and its derivative there.
    pub fn map(&self, value: f64, derivative: f64) -> Self {
        Self { value, gradient: self.gradient.iter().map(|by| derivative * by).collect() }
    }

    /// The square root.
    pub fn sqrt(&self) -> Self {
        let root = self.value.sqrt();
        self.map(root, 0.5 / root)
    }

    /// A function of two numbers, with its value and its derivatives by both there.
    fn with(&self, other: &Self, value: f64, (by_this, by_other): (f64, f64)) -> Self {
        let gradient =
            self.gradient.iter().zip(&other.gradient).map(|(this, other)| by_this * this + by_other * other).collect();
        Self { value, gradient }
    }
}

impl Add for &Dual {
    type Output = Dual;

    fn add(self, other: &Dual) -> Dual {
        self.with(other, self.value + other.value, (1.0, 1.0))
    }
}

impl Sub for &Dual {
    type Output = Dual;

    fn sub(self, other: &Dual) -> Dual {
        self.with(other, self.value - other.value, (1.0, -1.0))
    }
}

impl Mul for &Dual {
    type Output = Dual;

    fn mul(self, other: &Dual) -> Dual {
        self.with(other, self.value * other.value, (other.value, self.value))
    }
}

impl Div for &Dual {
    type Output = Dual;

    fn div(self, other: &Dual) -> Dual {
        let value = self.value / other.value;
        self.with(other, value, (1.0 / other.value, -value / other.value))
    }
}

impl Neg for &Dual {
    type Output = Dual;

    fn neg(self) -> Dual {
        self.map(-self.value, -1.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An expression of three numbers that has every operation: how a variance is made of sums, and more.
    fn expression([count, sum, squares]: &[Dual; 3]) -> Dual {
        let mean = sum / count;
        let variance = &(squares / count) - &(&mean * &mean);
        &-&(&variance + &Dual::constant(7.0, 3)).sqrt() + &mean
    }

    proptest! {
        #[test]
        fn derivatives_are_how_values_change(count in 1.0..1e3_f64, mean in -10.0..10.0_f64, spread in 0.1..10.0_f64) {
            let at = [count, count * mean, count * (mean * mean + spread)];
            let value = |at: [f64; 3]| expression(&[0, 1, 2].map(|number| Dual::estimate(at[number], number, 3)));
            let here = value(at);
            for number in 0..3 {
                let step = 1e-6 * at[number].abs().max(1e-3);
                let (mut less, mut more) = (at, at);
                less[number] -= step;
                more[number] += step;
                let slope = (value(more).value - value(less).value) / (2.0 * step);
                let differs = (here.gradient[number] - slope).abs();
                prop_assert!(differs <= 1e-4 * slope.abs().max(1e-3), "{number}: {} {slope}", here.gradient[number]);
            }
        }
    }
}
