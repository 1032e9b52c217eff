use arrow_buffer::i256;

use super::*;

/// One result, of one group of all rows.
fn of(function: Function, column: impl Array + 'static) -> ArrayRef {
    let column: ArrayRef = Arc::new(column);
    let bound = bound(function, column.data_type()).unwrap();
    at_once(&bound, &column, &vec![0; column.len()], 1).unwrap()
}

fn float(function: Function, column: impl Array + 'static) -> Option<f64> {
    let result = of(function, column);
    let floats = result.as_any().downcast_ref::<Float64Array>().unwrap();
    floats.is_valid(0).then(|| floats.value(0))
}

#[test]
fn sums_of_floats_are_exact() {
    let sum = |values: Vec<f64>| float(Function::Sum, Float64Array::from(values)).unwrap();
    assert_eq!(sum(vec![1e300, 1.0, -1e300]), 1.0);
    assert_eq!(sum(vec![0.1; 10]), 1.0);
    assert_eq!(sum(vec![f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
    assert_eq!(sum(vec![f64::MAX, f64::MAX]), f64::INFINITY);
    assert_eq!(sum(vec![f64::from_bits(1), f64::MAX, -f64::MAX]), f64::from_bits(1));
    assert_eq!(sum(vec![-0.0, -0.0]).to_bits(), 0);
    assert!(sum(vec![f64::INFINITY, f64::NEG_INFINITY]).is_nan());
    assert_eq!(float(Function::Sum, Float64Array::from(vec![None, None])), None);
    assert_eq!(
        float(Function::Sum, Float32Array::from(vec![0.1f32, 0.2])),
        Some(f64::from(0.1f32) + f64::from(0.2f32))
    );
}

#[test]
fn means_are_rounded_once() {
    let mean = |values: Vec<f64>| float(Function::Avg, Float64Array::from(values)).unwrap();
    assert_eq!(mean(vec![f64::MAX; 7]), f64::MAX);
    assert_eq!(mean(vec![0.1, 0.2, 0.3, 0.4]), 0.25);
    assert_eq!(mean(vec![-f64::from_bits(1), 0.0, 0.0]).to_bits(), 0, "too near to zero, which has no sign");
    assert_eq!(mean(vec![f64::from_bits(3), 0.0]), f64::from_bits(2));
    assert_eq!(mean(vec![f64::from_bits(1), 0.0]), 0.0);
    assert_eq!(float(Function::Avg, Int64Array::from(vec![i64::MAX, i64::MAX - 1])), Some(2f64.powi(63)));
    assert_eq!(float(Function::Avg, Int64Array::from(vec![1, 2, 2])), Some(5.0 / 3.0));
    assert_eq!(float(Function::Avg, UInt64Array::from(vec![Some(u64::MAX), None])), Some(2f64.powi(64)));
    let decimals = Decimal128Array::from(vec![101, 102, 102]).with_precision_and_scale(10, 2).unwrap();
    assert_eq!(float(Function::Avg, decimals), Some(1.0166666666666666));
    let negative = Decimal128Array::from(vec![-5, 2]).with_precision_and_scale(10, -3).unwrap();
    assert_eq!(float(Function::Avg, negative), Some(-1500.0));
    let wide = Decimal256Array::from(vec![i256::from(1); 2]).with_precision_and_scale(76, 76).unwrap();
    assert_eq!(float(Function::Avg, wide), Some(1e-76));
}

#[test]
fn variances_do_not_cancel() {
    let of = |function, values: &[f64]| float(function, Float64Array::from(values.to_vec()));
    assert_eq!(of(Function::Variance, &[1e15 + 1.0, 1e15 + 2.0, 1e15 + 3.0]), Some(1.0));
    assert_eq!(of(Function::VariancePopulation, &[1e300, 1e300]), Some(0.0));
    assert_eq!(of(Function::VariancePopulation, &[1e-300, 1e-300, 3.0, 3.0]), Some(2.25));
    assert_eq!(of(Function::Stddev, &[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), Some((32.0f64 / 7.0).sqrt()));
    assert_eq!(of(Function::StddevPopulation, &[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), Some(2.0));
    assert_eq!(of(Function::Variance, &[5.0]), None);
    assert_eq!(of(Function::VariancePopulation, &[5.0]), Some(0.0));
    assert_eq!(of(Function::Variance, &[]), None);
    assert_eq!(of(Function::VariancePopulation, &[]), None);
    assert_eq!(of(Function::Variance, &[f64::INFINITY]), None);
    assert!(of(Function::Variance, &[f64::INFINITY, 1.0]).unwrap().is_nan());
    assert!(of(Function::VariancePopulation, &[f64::NAN]).unwrap().is_nan());
    assert_eq!(of(Function::Variance, &[f64::MAX, -f64::MAX]), Some(f64::INFINITY));
    let whole = |values: Vec<i64>| float(Function::Variance, Int64Array::from(values));
    assert_eq!(whole(vec![i64::MAX, i64::MAX - 2]), Some(2.0));
    assert_eq!(whole(vec![i64::MIN, i64::MIN]), Some(0.0));
    assert_eq!(whole(vec![1, 2, 3, 4]), Some(5.0 / 3.0));
    let decimals = Decimal128Array::from(vec![100, 200, 400]).with_precision_and_scale(10, 2).unwrap();
    assert_eq!(float(Function::VariancePopulation, decimals), Some(14.0 / 9.0));
    let extreme = Decimal256Array::from(vec![i256::MIN, i256::MIN, i256::MAX, i256::MAX]);
    let expected = 2f64.powi(510) / 1e20;
    let found = float(Function::VariancePopulation, extreme).unwrap();
    assert!((found / expected - 1.0).abs() < 1e-15, "{found} {expected}");
}

#[test]
fn sums_of_whole_numbers_overflow_at_the_end_with_the_group() {
    let most = 10i128.pow(38) - 1;
    let column: ArrayRef =
        Arc::new(Decimal128Array::from(vec![most, 1, most, -1]).with_precision_and_scale(38, 2).unwrap());
    let bound = bound(Function::Sum, column.data_type()).unwrap();
    let mut all = accumulator(&bound);
    all.resize(3);
    all.update(&[0, 2, 2, 0], Some(&column), None).unwrap();
    let error = all.finish(&[1, 2, 0]).unwrap_err();
    assert!(matches!(error, TableError::SumOverflows { row: Some(1), .. }), "{error}");
    all.update(&[2], Some(&column.slice(3, 1)), None).unwrap();
    let found = all.finish(&[0, 1, 2]).unwrap();
    let expected =
        Decimal128Array::from(vec![Some(most - 1), None, Some(most)]).with_precision_and_scale(38, 2).unwrap();
    assert_eq!(found.as_ref(), &expected);
    let wide = of(Function::Sum, UInt64Array::from(vec![u64::MAX; 3]));
    let expected = Decimal128Array::from(vec![3 * i128::from(u64::MAX)]).with_precision_and_scale(38, 0).unwrap();
    assert_eq!(wide.as_ref(), &expected);
}

#[test]
fn extremes_know_one_nan_and_one_zero() {
    let of = |function, values: &[f64]| float(function, Float64Array::from(values.to_vec())).map(f64::to_bits);
    let odd = f64::from_bits(0xfff0_0000_0000_0001);
    assert_eq!(of(Function::Max, &[1.0, odd, f64::INFINITY]), Some(f64::NAN.to_bits()));
    assert_eq!(of(Function::Min, &[odd, odd]), Some(f64::NAN.to_bits()));
    assert_eq!(of(Function::Min, &[odd, f64::INFINITY]), Some(f64::INFINITY.to_bits()));
    assert_eq!(of(Function::Min, &[-0.0, 1.0]), Some(0));
    assert_eq!(of(Function::Max, &[-0.0, -1.0]), Some(0));
    assert_eq!(of(Function::Max, &[-2.0, -1.0]), Some((-1.0f64).to_bits()));
    assert_eq!(of(Function::Max, &[]), None);
}

#[test]
fn quantiles_are_those_of_duckdb() {
    // As DuckDB 2.0.1 has them, quantile_disc and quantile_cont of 0..n, of a decimal.
    for (values, part, expected) in [
        (1, 0.0, 0),
        (10, 0.1, 0),
        (10, 0.7, 6),
        (10, 0.9, 8),
        (100, 0.07, 6),
        (100, 0.14, 13),
        (100, 0.29, 28),
        (100, 0.57, 56),
        (1000, 0.07, 69),
        (3, 0.5, 1),
        (4, 0.5, 1),
        (5, 1.0, 4),
        (0, 0.5, 0),
        (u64::MAX, 1.0, u64::MAX - 1),
        (u64::MAX, 5e-324, 0),
    ] {
        assert_eq!(quantile_rank(values, part), expected, "{part} of {values}");
    }
    for (values, part, expected) in [
        (1, 0.3, (0, 0, 0.0)),
        (2, 0.5, (0, 1, 0.5)),
        (5, 0.25, (1, 1, 0.0)),
        (4, 1.0, (3, 3, 0.0)),
        (0, 0.5, (0, 0, 0.0)),
    ] {
        assert_eq!(quantile_ranks(values, part), expected, "{part} of {values}");
    }
    let array = |values: &[f64]| Arc::new(Float64Array::from(values.to_vec())) as ArrayRef;
    let (before, behind) =
        (array(&[0.1, 0.1, f64::INFINITY, -1e308, 3.0]), array(&[0.7, 0.3, f64::INFINITY, 1e308, f64::INFINITY]));
    let found = interpolated(&before, &behind, &[0.3, 0.5, 0.5, 0.3, 0.0]).unwrap();
    let expected = Float64Array::from(vec![0.27999999999999997, 0.2, f64::INFINITY, -4e307, 3.0]);
    assert_eq!(found.as_ref(), &expected);
    let decimals =
        |value| Arc::new(Decimal128Array::from(vec![value]).with_precision_and_scale(10, 2).unwrap()) as ArrayRef;
    let found = interpolated(&decimals(Some(101)), &decimals(Some(202)), &[0.5]).unwrap();
    assert_eq!(found.as_ref(), &Float64Array::from(vec![1.5150000000000001]));
    let found = interpolated(&decimals(Some(101)), &decimals(None), &[0.5]).unwrap();
    assert_eq!(found.null_count(), 1);
    assert!(interpolated(&(Arc::new(StringArray::from(vec!["x"])) as ArrayRef), &decimals(None), &[0.5]).is_err());
}
