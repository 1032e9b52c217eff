//! What bounds say, and what they do not where they contradict themselves.

use super::*;

/// Whether a condition may be true for one of 10 rows of the column `a`, of which this is said.
fn may_be(condition: &str, least: ArrayRef, greatest: ArrayRef, nulls: Option<u64>) -> bool {
    let schema = RecordBatch::try_from_iter_with_nullable([("a", least.clone(), true)]).unwrap().schema();
    let bound = condition.parse::<Expression>().unwrap().bind(&schema).unwrap();
    bound.may_be_true(|_| Some(Extent { rows: 10, nulls, bounds: Some((&least, &greatest, 0)) }))
}

fn ints(value: impl Into<Option<i64>>) -> ArrayRef {
    Arc::new(Int64Array::from(vec![value.into()]))
}

fn floats(value: f64) -> ArrayRef {
    Arc::new(Float64Array::from(vec![value]))
}

fn texts(value: &str) -> ArrayRef {
    Arc::new(StringArray::from(vec![value]))
}

#[test]
fn what_is_between_bounds_may_be_and_nothing_else() {
    for (condition, expected) in [
        ("a = 3", true),
        ("a = 2", false),
        ("a < 3", false),
        ("a <= 3", true),
        ("a > 5", false),
        ("a != 3", true),
        ("not a between 3 and 5", false),
        ("not a between 3 and 4", true),
        ("a in (1, 2, 6)", false),
        ("a not in (1, null)", false),
        ("a not in (1, 2)", true),
        ("a in (4, null)", true),
        ("a is null", false),
        ("not a is null", true),
        ("a = 2 or a = 6", false),
        ("a = 2 or a = 4", true),
        ("a > 3 and a < 3", false),
        // Of two columns nothing is known together.
        ("a != a", true),
    ] {
        assert_eq!(may_be(condition, ints(3), ints(5), Some(0)), expected, "{condition}");
    }
    assert!(!may_be("a != 3", ints(3), ints(3), Some(0)));
    for (condition, expected) in
        [("a like 'ab%'", true), ("a like 'b%'", false), ("a like '%z%'", true), ("a like 'c_'", false)]
    {
        assert_eq!(may_be(condition, texts("aa"), texts("ac"), None), expected, "{condition}");
    }
    // All of them null.
    assert!(
        !may_be("a = 3", ints(None), ints(None), Some(10)) && !may_be("not a = 3", ints(None), ints(None), Some(10))
    );
    assert!(
        may_be("a is null", ints(None), ints(None), Some(10))
            && !may_be("a is not null", ints(None), ints(None), Some(10))
    );
}

#[test]
fn what_contradicts_itself_or_is_missing_leaves_nothing_out() {
    // The smallest value is larger than the largest one.
    assert!(may_be("a = 100", ints(5), ints(3), Some(0)));
    assert!(may_be("a = 'x'", texts("b"), texts("a"), Some(0)));
    // One of both is missing.
    assert!(may_be("a = 100", ints(None), ints(3), Some(0)) && may_be("a = 0", ints(3), ints(None), Some(0)));
    // Nobody says how many nulls there are, there are more than rows, or only nulls that have values.
    assert!(may_be("a is null", ints(3), ints(5), None));
    assert!(may_be("a is not null", ints(3), ints(5), Some(11)) && may_be("a is null", ints(3), ints(5), Some(11)));
    assert!(may_be("a = 4", ints(3), ints(5), Some(10)));
    // NaN is above all numbers, and bounds do not have it: what is large may be there, what is small is not.
    assert!(
        may_be("a > 100", floats(1.0), floats(2.0), Some(0)) && may_be("a = 'nan'", floats(1.0), floats(2.0), Some(0))
    );
    assert!(!may_be("a < 1", floats(1.0), floats(2.0), Some(0)) && may_be("a <= 1", floats(1.0), floats(2.0), Some(0)));
    // Bounds that are NaN are those of whoever compares with it as it comes.
    assert!(
        may_be("a < 1", floats(f64::NAN), floats(2.0), None) && may_be("a < 1", floats(1.0), floats(f64::NAN), None)
    );
    // 0.0 may stand for -0.0, which equals it.
    assert!(may_be("a = 0", floats(-0.0), floats(0.0), None) && may_be("a = -0.0", floats(0.0), floats(0.0), None));
    // Bounds of another type are none.
    let schema = RecordBatch::try_from_iter_with_nullable([("a", ints(3), true)]).unwrap().schema();
    let bound = "a = 100".parse::<Expression>().unwrap().bind(&schema).unwrap();
    let (least, greatest) = (texts("a"), texts("b"));
    assert!(bound.may_be_true(|_| Some(Extent { rows: 10, nulls: None, bounds: Some((&least, &greatest, 0)) })));
    assert!(bound.may_be_true(|_| None));
}
