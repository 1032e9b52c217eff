use std::sync::Arc;

use arrow_array::*;
use arrow_buffer::i256;
use arrow_schema::DataType;
use proptest::prelude::*;

use super::super::*;
use crate::TableError;
use crate::samples::{self, Seeded};

fn sum_of(array: impl Array + 'static) -> ExactSum {
    let mut sum = ExactSum::new("c", array.data_type()).unwrap();
    sum.add("c", &(Arc::new(array) as ArrayRef)).unwrap();
    sum
}

#[test]
fn sums_overflow_at_the_end_or_not_at_all() {
    let value = |sum: &ExactSum, of| sum.value("c", &of).map(|sum| sum.map(|sum| sum.to_string()));
    let mut sum = sum_of(Int64Array::from(vec![i64::MAX, i64::MAX, i64::MIN]));
    assert_eq!(value(&sum, DataType::Int64).unwrap().unwrap(), (i64::MAX - 1).to_string());
    sum.merge("c", &sum_of(Int64Array::from(vec![Some(2), None]))).unwrap();
    let error = value(&sum, DataType::Int64).unwrap_err();
    assert_eq!(error.to_string(), "sum of column c is outside int64");
    assert_eq!(value(&sum, DataType::Decimal128(38, 0)).unwrap().unwrap(), (i128::from(i64::MAX) + 1).to_string());
    assert_eq!(sum.count(), 4);
    let unsigned = sum_of(UInt64Array::from(vec![u64::MAX, 1]));
    assert_eq!(value(&unsigned, DataType::Decimal128(38, 0)).unwrap().unwrap(), (1u128 << 64).to_string());
    assert!(value(&unsigned, DataType::UInt64).is_err());
    assert_eq!(
        value(&ExactSum::new("c", &DataType::Int8).unwrap(), DataType::Int64).unwrap(),
        None,
        "the sum of nothing is null"
    );
    assert_eq!(value(&sum_of(Int64Array::from(vec![None, None])), DataType::Int64).unwrap(), None);

    // Partial sums far beyond the type, of the widest decimals there are.
    let most = 10i128.pow(38) - 1;
    let decimals = |values: Vec<i128>| sum_of(Decimal128Array::from(values).with_precision_and_scale(38, 2).unwrap());
    let mut sum = decimals(vec![most; 5000]);
    assert!(value(&sum, DataType::Decimal128(38, 2)).is_err());
    sum.merge("c", &decimals(vec![-most; 4999])).unwrap();
    assert_eq!(value(&sum, DataType::Decimal128(38, 2)).unwrap().unwrap(), most.to_string());
    let mut sum = sum_of(Decimal256Array::from(vec![i256::MAX; 100]));
    assert!(value(&sum, DataType::Decimal256(76, 10)).is_err());
    sum.merge("c", &sum_of(Decimal256Array::from(vec![i256::MIN; 100]))).unwrap();
    assert_eq!(value(&sum, DataType::Decimal256(76, 10)).unwrap().unwrap(), "-100");
    let error = ExactSum::new("f", &DataType::Float64).unwrap_err();
    assert!(matches!(error, TableError::Unsupported { .. }), "{error}");
    assert_eq!(ExactSum::data_type(&DataType::Float64), None);
    assert_eq!(ExactSum::data_type(&DataType::Decimal64(5, 3)), Some(DataType::Decimal128(38, 3)));
}

proptest! {
    #[test]
    fn sums_are_those_of_wide_numbers_however_they_are_merged(
        values in proptest::collection::vec(any::<i128>(), 0..60), cut in 0usize..60, turned in any::<bool>()
    ) {
        let cut = cut.min(values.len());
        let expected = values.iter().fold(i256::ZERO, |sum, value| sum.wrapping_add(i256::from_i128(*value)));
        let of = |values: &[i128]| sum_of(Decimal128Array::from(values.to_vec()).with_data_type(DataType::Decimal128(38, 2)));
        let (mut left, mut right) = (of(&values[..cut]), of(&values[cut..]));
        if turned {
            std::mem::swap(&mut left, &mut right);
        }
        left.merge("c", &right).unwrap();
        let found = left.value("c", &DataType::Decimal256(76, 2)).unwrap();
        prop_assert_eq!(found, (!values.is_empty()).then_some(expected));
    }
}

#[test]
fn sums_of_dictionaries_are_sums_of_values() {
    let keys = Int8Array::from(vec![Some(0), Some(1), None, Some(0)]);
    let sum = sum_of(DictionaryArray::new(keys, Arc::new(Int32Array::from(vec![5, 7]))));
    assert_eq!(sum.value("c", &DataType::Int64).unwrap(), Some(i256::from(17)));
    assert_eq!(sum.count(), 3);
}

#[test]
fn decimals_of_another_scale_are_refused_by_a_sum() {
    let of = |scale| Decimal128Array::from(vec![100]).with_precision_and_scale(10, scale).unwrap();
    let mut sum = sum_of(of(2));
    let error = sum.add("price", &(Arc::new(of(3)) as ArrayRef)).unwrap_err();
    assert_eq!(error.to_string(), "column price has 3 digits behind the point where a sum has 2");
    let error = sum.merge("price", &sum_of(of(3))).unwrap_err();
    assert!(matches!(error, TableError::ScaleDiffers { expected: 2, found: 3, .. }), "{error}");
    let error = sum.value("price", &DataType::Decimal128(38, 0)).unwrap_err();
    assert!(matches!(error, TableError::ScaleDiffers { expected: 2, found: 0, .. }), "{error}");
    let error = ExactSum::add_to_groups(&mut [sum_of(of(3)), sum], &[0, 1], "price", &(Arc::new(of(3)) as ArrayRef));
    assert!(error.is_ok(), "there is one row, and its group has its scale");
    let array = Arc::new(Decimal128Array::from(vec![1, 2]).with_precision_and_scale(10, 3).unwrap()) as ArrayRef;
    let mut sums = [sum_of(of(3)), sum];
    let error = ExactSum::add_to_groups(&mut sums, &[0, 1], "price", &array).unwrap_err();
    assert!(matches!(error, TableError::ScaleDiffers { .. }), "{error}");
    assert_eq!(sums, [sum_of(of(3)), sum], "nothing was added");
}

#[test]
fn sums_of_groups_are_sums_of_their_rows() {
    let mut seeded = Seeded(3);
    for of in [DataType::Int8, DataType::UInt64, DataType::Decimal128(38, 4), DataType::Decimal256(76, 4)] {
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(of.clone()));
        let runs = DataType::RunEndEncoded(
            Arc::new(arrow_schema::Field::new("run_ends", DataType::Int32, false)),
            Arc::new(arrow_schema::Field::new("values", of.clone(), true)),
        );
        for of in [of, dictionary, runs] {
            let array = samples::array(&mut seeded, &of, 90);
            let groups: Vec<u32> = (0..90).map(|_| seeded.below(4) as u32).collect();
            let mut sums = [ExactSum::new("c", &of).unwrap(); 4];
            ExactSum::add_to_groups(&mut sums, &groups, "c", &array).unwrap();
            for (group, sum) in (0..).zip(sums) {
                let mut expected = ExactSum::new("c", &of).unwrap();
                for row in (0..90).filter(|row| groups[*row] == group) {
                    expected.add("c", &array.slice(row, 1)).unwrap();
                }
                assert_eq!(sum, expected, "group {group} of {of}");
            }
        }
    }
}

#[test]
fn sums_travel_as_bytes_of_version_1() {
    let sums = [
        sum_of(Int64Array::from(vec![None])),
        sum_of(Int64Array::from(vec![-1])),
        sum_of(Int64Array::from(vec![127, 1])),
        sum_of(Decimal128Array::from(vec![-128, -1]).with_precision_and_scale(10, 2).unwrap()),
        sum_of(Decimal256Array::from(vec![i256::MIN; 100])),
    ];
    let mut bytes = Vec::new();
    sums.iter().for_each(|sum| sum.encode(&mut bytes));
    // By hand, from the words at `encode`: version, scale, length, count, sum.
    let expected = [
        &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
        &[1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0xff],
        &[1, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0x80, 0],
        &[1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff],
    ]
    .concat();
    assert_eq!(bytes[..expected.len()], expected);
    let sample = &include_bytes!("../../../tests/samples/exact-sum-1.bin")[..];
    assert_eq!(bytes, sample, "what version 1 is has changed");
    let mut rest = sample;
    for sum in sums {
        let decoded;
        (decoded, rest) = ExactSum::decode(rest).unwrap();
        assert_eq!(decoded, sum);
    }
    assert!(rest.is_empty());
    for end in 0..11 {
        assert!(matches!(ExactSum::decode(&bytes[..end]).unwrap_err(), TableError::NotASum), "{end}");
    }
    let error = ExactSum::decode(&[2, 0, 0]).unwrap_err();
    assert!(matches!(error, TableError::SumVersion { found: 2, expected: 1 }), "{error}");
    let too_long = [&[1, 0, 41][..], &[0; 8], &[1; 41]].concat();
    assert!(matches!(ExactSum::decode(&too_long).unwrap_err(), TableError::NotASum));
}
