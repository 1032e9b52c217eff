//! The generator's random numbers: `x(0) = 0`, `x(i+1) = a·x(i) + c` modulo 2^128.

/// Multiplier.
const A: u128 = 0x2360ed051fc65da44385df649fccf645;
/// Increment, and the first number that is drawn.
const C: u128 = 0x4a696d47726179524950202020202001;

/// A position in the one sequence of random numbers.
#[derive(Debug, Clone)]
pub struct Random {
    state: u128,
}

impl Random {
    /// The generator whose next number is `rand(index)`; `rand(0)` is the increment.
    ///
    /// The step is an affine map, so `index` steps are composed by squaring: at most 128 rounds.
    pub fn at(index: u128) -> Random {
        let (mut add, mut step_mul, mut step_add) = (0u128, A, C);
        let mut left = index;
        while left > 0 {
            if left & 1 == 1 {
                add = add.wrapping_mul(step_mul).wrapping_add(step_add);
            }
            step_add = step_mul.wrapping_add(1).wrapping_mul(step_add);
            step_mul = step_mul.wrapping_mul(step_mul);
            left >>= 1;
        }
        Random { state: add }
    }

    /// The next number.
    #[inline(always)]
    pub fn draw(&mut self) -> u128 {
        self.state = self.state.wrapping_mul(A).wrapping_add(C);
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_number_is_the_increment() {
        assert_eq!(Random::at(0).draw(), C);
    }

    #[test]
    fn jumping_equals_stepping() {
        let mut stepped = Random::at(0);
        for index in 0..2_000u128 {
            assert_eq!(Random::at(index).draw(), stepped.draw(), "number {index}");
        }
    }

    proptest! {
        #[test]
        fn a_jump_lands_one_step_after_the_jump_before(index in any::<u128>()) {
            let mut before = Random::at(index);
            before.draw();
            prop_assert_eq!(before.draw(), Random::at(index.wrapping_add(1)).draw());
        }
    }
}
