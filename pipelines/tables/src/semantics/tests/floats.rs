use proptest::prelude::*;

use super::super::*;
use crate::TableError;
use crate::samples::Seeded;

/// The exact sum by Shewchuk's partial sums, rounded once, as Python's `fsum` has it: another way to the same, for what does not overflow.
fn naive_sum(values: &[f64]) -> f64 {
    let mut partials: Vec<f64> = Vec::new();
    for value in values {
        let mut sum = *value;
        let mut kept = Vec::new();
        for partial in partials {
            let (large, small) = if sum.abs() < partial.abs() { (partial, sum) } else { (sum, partial) };
            let high = large + small;
            let low = small - (high - large);
            if low != 0.0 {
                kept.push(low);
            }
            sum = high;
        }
        kept.push(sum);
        partials = kept;
    }
    let mut high = partials.pop().unwrap_or(0.0);
    while let Some(next) = partials.pop() {
        let before = high;
        high = before + next;
        let low = next - (high - before);
        if low != 0.0 {
            // Half way between two floats, and more behind it in the same direction.
            if partials.last().is_some_and(|last| (low < 0.0) == (*last < 0.0)) {
                let twice = low * 2.0;
                let rounded = high + twice;
                if twice == rounded - high {
                    high = rounded;
                }
            }
            break;
        }
    }
    high + 0.0
}

fn sum_of(values: &[f64]) -> ExactFloatSum {
    let mut sum = ExactFloatSum::new();
    values.iter().for_each(|value| {
        sum.add(*value);
    });
    sum
}

fn squares_of(values: &[f64]) -> ExactSquareSum {
    let mut sum = ExactSquareSum::new();
    values.iter().for_each(|value| {
        sum.add_square(*value);
    });
    sum
}

fn bytes_of<const WORDS: usize>(sum: &FloatSum<WORDS>) -> Vec<u8> {
    let mut bytes = Vec::new();
    sum.encode(&mut bytes);
    bytes
}

/// Floats of like sizes, or of any.
fn floats() -> impl Strategy<Value = Vec<f64>> {
    let like = (-1e6..1e6f64).boxed();
    let some = prop_oneof![Just(0.0), Just(-0.0), Just(1.0), Just(-1.0), Just(0.5), Just(3.0)].boxed();
    let wide = (-300..300i32, -1.0..1.0f64).prop_map(|(exponent, value)| value * 10f64.powi(exponent)).boxed();
    prop_oneof![
        proptest::collection::vec(like, 0..50),
        proptest::collection::vec(some, 0..50),
        proptest::collection::vec(wide, 0..50),
    ]
}

/// All bits.
fn any_floats() -> impl Strategy<Value = Vec<f64>> {
    proptest::collection::vec(any::<u64>().prop_map(f64::from_bits), 0..40)
}

fn shuffled(values: &[f64], seeded: &mut Seeded) -> Vec<f64> {
    let mut values = values.to_vec();
    for at in (1..values.len()).rev() {
        values.swap(at, seeded.below(at + 1));
    }
    values
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn sums_are_rounded_once(values in floats()) {
        prop_assert_eq!(sum_of(&values).value().to_bits(), naive_sum(&values).to_bits());
        let squares: Vec<f64> = values.iter().filter(|value| value.abs() < 1e150 && (value.abs() > 1e-130 || **value == 0.0)).copied().collect();
        // A square is a float and what was rounded away.
        let parts: Vec<f64> = squares.iter().flat_map(|value| [value * value, value.mul_add(*value, -(value * value))]).collect();
        prop_assert_eq!(squares_of(&squares).value().to_bits(), naive_sum(&parts).to_bits());
    }

    #[test]
    fn no_order_of_additions_shows(values in prop_oneof![floats(), any_floats()], seed in any::<u64>()) {
        let mut seeded = Seeded(seed);
        let (expected, expected_squares) = (sum_of(&values), squares_of(&values));
        let values = shuffled(&values, &mut seeded);
        let (mut sum, mut squares) = (ExactFloatSum::new(), ExactSquareSum::new());
        let mut rest = &values[..];
        while !rest.is_empty() {
            let (some, behind) = rest.split_at(1 + seeded.below(rest.len()));
            rest = behind;
            let (one, other) = (sum_of(some), squares_of(some));
            match seeded.below(3) {
                0 => {
                    sum.merge(&one);
                    squares.merge(&other);
                }
                1 => {
                    sum.merge_encoded(&bytes_of(&one)).unwrap();
                    squares.merge_encoded(&bytes_of(&other)).unwrap();
                }
                _ => some.iter().for_each(|value| {
                    sum.add(*value);
                    squares.add_square(*value);
                }),
            }
        }
        prop_assert_eq!(bytes_of(&sum), bytes_of(&expected));
        prop_assert_eq!(sum.value().to_bits(), expected.value().to_bits());
        prop_assert_eq!(bytes_of(&squares), bytes_of(&expected_squares));
        prop_assert_eq!(squares.value().to_bits(), expected_squares.value().to_bits());
        let bytes = bytes_of(&sum);
        let (decoded, rest) = ExactFloatSum::decode(&bytes).unwrap();
        prop_assert!(rest.is_empty());
        prop_assert_eq!(bytes_of(&decoded), bytes);
        prop_assert_eq!(decoded.value().to_bits(), expected.value().to_bits());
    }

    #[test]
    fn what_is_taken_away_again_leaves_nothing(values in any_floats(), seed in any::<u64>()) {
        let finite: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        let both: Vec<f64> = finite.iter().copied().chain(finite.iter().map(|value| -value)).collect();
        let sum = sum_of(&shuffled(&both, &mut Seeded(seed)));
        prop_assert_eq!(bytes_of(&sum), bytes_of(&ExactFloatSum::new()));
    }

    #[test]
    fn bytes_that_are_no_sums_are_errors(bytes in proptest::collection::vec(any::<u8>(), 0..40), exponent in any::<i16>(), flags in 0u8..20) {
        let with_head = [&[1, flags][..], &exponent.to_le_bytes(), &(bytes.len() as u16).to_le_bytes(), &bytes].concat();
        for bytes in [&bytes, &with_head] {
            if let Ok((sum, rest)) = ExactFloatSum::decode(bytes) {
                prop_assert_eq!(bytes_of(&sum), &bytes[..bytes.len() - rest.len()]);
                sum.value();
            }
        }
    }
}

#[test]
fn sums_of_floats_have_all_their_bits() {
    let least = f64::from_bits(1);
    for (values, expected) in [
        (&[][..], 0.0),
        (&[-0.0], 0.0),
        (&[1e300, 1.0, -1e300], 1.0),
        (&[1.0, 1e-20, -1.0], 1e-20),
        (&[least, least], f64::from_bits(2)),
        (&[f64::MIN_POSITIVE, -least], f64::from_bits(0x000f_ffff_ffff_ffff)),
        (&[f64::MAX, f64::MAX, -f64::MAX, -least], f64::MAX),
        (&[f64::MAX, f64::MAX], f64::INFINITY),
        (&[-f64::MAX, -f64::MAX], f64::NEG_INFINITY),
        // Half of the last bit rounds to the even one, and a bit more up.
        (&[1.0, f64::EPSILON / 2.0], 1.0),
        (&[1.0, f64::EPSILON / 2.0, least], 1.0 + f64::EPSILON),
        (&[1.0 + f64::EPSILON, f64::EPSILON / 2.0], 1.0 + 2.0 * f64::EPSILON),
        (&[f64::MAX, 2f64.powi(969)], f64::MAX),
        (&[f64::MAX, 2f64.powi(970)], f64::INFINITY),
        (&[f64::INFINITY, -1e308, f64::INFINITY], f64::INFINITY),
        (&[f64::NEG_INFINITY, 1.0], f64::NEG_INFINITY),
    ] {
        assert_eq!(sum_of(values).value().to_bits(), expected.to_bits(), "{values:?}");
    }
    assert!(sum_of(&[f64::INFINITY, f64::NEG_INFINITY]).value().is_nan());
    assert!(sum_of(&[1.0, f64::NAN]).value().is_nan());
    assert_eq!(squares_of(&[f64::from_bits(1)]).value(), 0.0);
    assert_eq!(squares_of(&[f64::MAX]).value(), f64::INFINITY);
    assert_eq!(squares_of(&[3.0, -4.0]).value(), 25.0);
    assert_eq!(squares_of(&[f64::NEG_INFINITY]).value(), f64::INFINITY);
}

#[test]
fn sums_of_like_floats_take_no_heap() {
    let mut seeded = Seeded(1);
    let mut sum = ExactFloatSum::new();
    let mut squares = ExactSquareSum::new();
    for _ in 0..10_000 {
        let value = (seeded.below(2_000_000) as f64 - 1e6) / 100.0;
        assert_eq!(sum.add(value) + squares.add_square(value), 0, "{value}");
    }
    assert_eq!((size_of::<ExactFloatSum>(), size_of::<ExactSquareSum>()), (40, 56));
    let grown = sum.add(1e300) + sum.add(f64::NAN) + sum.add(1e-300);
    assert_eq!(grown, sum.heap_bytes());
    assert!(grown > 0 && grown < 1000, "{grown}");
}

#[test]
fn sums_of_floats_travel_as_bytes_of_version_1() {
    // By hand, from the words at `encode`: version, flags, exponent, length, magnitude.
    let mut all = Vec::new();
    for (values, expected) in [
        (&[][..], &[1, 0, 0, 0, 0, 0][..]),
        (&[1.0], &[1, 0, 0, 0, 1, 0, 1]),
        (&[-6.0], &[1, 8, 1, 0, 1, 0, 3]),
        (&[256.0, 1.0], &[1, 0, 0, 0, 2, 0, 1, 1]),
        (&[0.25, f64::INFINITY], &[1, 2, 0xfe, 0xff, 1, 0, 1]),
        (&[f64::NAN, f64::NEG_INFINITY], &[1, 5, 0, 0, 0, 0]),
    ] {
        assert_eq!(bytes_of(&sum_of(values)), expected, "{values:?}");
        all.extend_from_slice(expected);
    }
    let sample = &include_bytes!("../../../tests/samples/float-sum-1.bin")[..];
    assert_eq!(all, sample, "what version 1 is has changed");
    assert!(matches!(
        ExactFloatSum::decode(&[2, 0, 0, 0, 0, 0]),
        Err(TableError::SumVersion { found: 2, expected: 1 })
    ));
    for wrong in [
        &[][..],
        &[1, 0, 0, 0, 0],
        &[1, 0, 0, 0, 1, 0],
        &[1, 0, 0, 0, 1, 0, 2],
        &[1, 0, 0, 0, 2, 0, 1, 0],
        &[1, 8, 0, 0, 0, 0],
        &[1, 0, 1, 0, 0, 0],
        &[1, 16, 0, 0, 0, 0],
        &[1, 0, 0xff, 0x7f, 1, 0, 1],
        &[1, 0, 0, 0x80, 1, 0, 1],
    ] {
        assert!(matches!(ExactFloatSum::decode(wrong), Err(TableError::NotASum)), "{wrong:?}");
    }
    assert!(ExactFloatSum::new().merge_encoded(&[1, 0, 0, 0, 0, 0, 0]).is_err(), "something is behind it");
}
