mod against_keys;
mod against_rows;
mod extents;

use std::sync::Arc;

use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array,
    Int32Array, Int64Array, NullArray, RecordBatch, RunArray, StringArray, StringViewArray, StructArray,
    Time32SecondArray, TimestampMicrosecondArray, TimestampSecondArray, UInt64Array,
};
use arrow_schema::{DataType, Field};

use super::tree::Kind;
use super::*;

/// Rows whose numbers, where they stay, are those of the test.
fn kept(condition: &str, batch: &RecordBatch) -> Vec<usize> {
    let expression: Expression = condition.parse().unwrap_or_else(|error| panic!("{error}"));
    let bound = expression.bind(&batch.schema()).unwrap_or_else(|error| panic!("{condition}: {error}"));
    let mask = bound.evaluate(batch).unwrap();
    assert_eq!((mask.len(), mask.null_count()), (batch.num_rows(), 0));
    (0..mask.len()).filter(|row| mask.value(*row)).collect()
}

fn refused(condition: &str, batch: &RecordBatch) -> String {
    match condition.parse::<Expression>() {
        Ok(expression) => expression.bind(&batch.schema()).expect_err(condition).to_string(),
        Err(error) => error.to_string(),
    }
}

fn table() -> RecordBatch {
    let cities = StringArray::from(vec![Some("x"), Some("yard"), None, Some("é's"), Some("x%")]);
    let streets: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("c"), Some("d"), Some("e")]));
    let field = Arc::new(Field::new("street", DataType::Utf8, true));
    let nulls = Some(vec![true, true, true, false, true].into());
    let address = StructArray::new(vec![field].into(), vec![streets], nulls);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("price", Arc::new(Int64Array::from(vec![Some(1), Some(3), Some(i64::MAX), None, Some(-4)]))),
        ("city", Arc::new(cities)),
        (
            "weight",
            Arc::new(Float64Array::from(vec![Some(0.1), Some(f64::NAN), Some(-0.0), None, Some(9007199254740992.0)])),
        ),
        ("ok", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true), Some(false)]))),
        (
            "cost",
            Arc::new(
                Decimal128Array::from(vec![Some(150), Some(-1), None, Some(0), Some(151)])
                    .with_precision_and_scale(10, 2)
                    .unwrap(),
            ),
        ),
        ("day", Arc::new(Date32Array::from(vec![Some(0), Some(19_753), None, Some(-1), Some(19_754)]))),
        (
            "seen",
            Arc::new(
                TimestampMicrosecondArray::from(vec![Some(0), Some(1), None, Some(-1), Some(86_400_000_000)])
                    .with_timezone("UTC"),
            ),
        ),
        ("shown", Arc::new(TimestampSecondArray::from(vec![Some(0), Some(1), None, Some(-1), Some(86_400)]))),
        ("address", Arc::new(address)),
        ("nothing", Arc::new(NullArray::new(5))),
        ("odd name", Arc::new(UInt64Array::from(vec![0, 1, 2, 3, u64::MAX]))),
        ("at", Arc::new(Time32SecondArray::from(vec![0, 1, 2, 3, 43_215]))),
        ("small", Arc::new(Float32Array::from(vec![0.1, 0.2, 16_777_216.0, f32::INFINITY, -1.0]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

#[test]
fn a_row_stays_where_the_condition_is_true() {
    let batch = table();
    for (condition, rows) in [
        ("price > 1", &[1, 2][..]),
        ("price > 1.5 and city = 'yard'", &[1]),
        ("price <> 3", &[0, 2, 4]),
        ("not price = 3", &[0, 2, 4]),
        ("price != 3 or city = 'é''s'", &[0, 2, 3, 4]),
        ("1 <= price", &[0, 1, 2]),
        ("price = 9223372036854775807.0", &[2]),
        ("price < 9223372036854775808", &[0, 1, 2, 4]),
        ("price > 1e30", &[]),
        ("price > -1e30", &[0, 1, 2, 4]),
        ("price in (1, 2.5, 3, -4)", &[0, 1, 4]),
        ("price in (1, null)", &[0]),
        ("price not in (1, null)", &[]),
        ("price not in (1, 2.5)", &[1, 2, 4]),
        ("price between 1 and 3", &[0, 1]),
        ("price not between 1 and 3", &[2, 4]),
        ("price IS NULL", &[3]),
        ("price is not null and ok", &[0]),
        ("ok", &[0, 3]),
        ("not ok", &[1, 4]),
        ("ok = false", &[1, 4]),
        ("ok is null", &[2]),
        ("price = null or true", &[0, 1, 2, 3, 4]),
        ("null", &[]),
        ("not null", &[]),
        ("city like 'x%'", &[0, 4]),
        ("city not like 'x%'", &[1, 3]),
        ("city like '_'", &[0]),
        ("city like '%''s'", &[3]),
        ("city like 'x!%' escape '!'", &[4]),
        ("city >= 'yard'", &[1, 3]),
        ("city in ('yard', 'x')", &[0, 1]),
        ("weight = 0.1", &[0]),
        ("weight > 1e300", &[1]),
        ("weight = 'nan'", &[1]),
        ("weight = 0", &[2]),
        ("weight >= -0.0 and weight < 0.1", &[2]),
        ("weight = 9007199254740993", &[]),
        ("weight < 9007199254740993 and weight > 9007199254740991", &[4]),
        ("small = 0.1", &[0]),
        ("small < 16777217 and small >= 16777216", &[2]),
        ("small = 'inf'", &[3]),
        ("cost = 1.5", &[0]),
        ("cost > 1.505", &[4]),
        ("cost < -0.001", &[1]),
        ("cost in (0, -0.01, 1.501)", &[1, 3]),
        ("day = '2024-01-31'", &[1]),
        ("day > date '2024-01-31'", &[4]),
        ("day >= timestamp '2024-01-31 00:00:01'", &[4]),
        ("seen > '1970-01-01T00:00Z'", &[1, 4]),
        ("seen < '1970-01-01 02:00:00.000001+02:00'", &[0, 3]),
        ("shown between '1970-01-01' and '1970-01-02'", &[0, 1, 4]),
        ("shown > '1970-01-01 00:00:00.5'", &[1, 4]),
        ("at = '12:00:15'", &[4]),
        ("address.street > 'a'", &[2, 4]),
        ("address.street is null", &[1, 3]),
        ("address is null", &[3]),
        ("nothing is null", &[0, 1, 2, 3, 4]),
        ("nothing = 3 or nothing in (1) or nothing like 'x'", &[]),
        ("\"odd name\" > 9223372036854775807", &[4]),
        ("\"odd name\" < -1", &[]),
        ("\"odd name\" != -1", &[0, 1, 2, 3, 4]),
        ("(price) = (1)", &[0]),
        ("((price = 1) or (((ok))))", &[0, 3]),
        ("price = \"odd name\"", &[]),
        ("price < \"odd name\"", &[4]),
        ("weight > price", &[1, 4]),
        ("price <= weight", &[1, 4]),
        ("cost > price", &[0, 4]),
        ("day <= shown", &[0, 3]),
        ("small = weight", &[]),
        ("city > address.street", &[0, 4]),
        ("ok = ok", &[0, 1, 3, 4]),
    ] {
        assert_eq!(kept(condition, &batch), rows, "{condition}");
        // Its text is the same condition.
        let expression: Expression = condition.parse().unwrap();
        let again: Expression = expression.to_string().parse().unwrap();
        assert_eq!(again, expression, "{expression}");
    }
}

#[test]
fn values_count_whatever_their_encoding_is() {
    let keys = arrow_array::Int8Array::from(vec![Some(1), None, Some(0), Some(2), Some(1)]);
    let words: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), Some("y"), None]));
    let dictionary = DictionaryArray::<Int8Type>::new(keys, words.clone());
    let ends = Int32Array::from(vec![2, 3, 5]);
    let runs = RunArray::<Int32Type>::try_new(&ends, words.as_ref()).unwrap();
    let views =
        StringViewArray::from(vec![Some("y"), None, Some("x"), Some("a text that is longer than a view"), Some("y")]);
    let plain = StringArray::from(vec![Some("y"), None, Some("x"), None, Some("y")]);
    let of = |array: ArrayRef| RecordBatch::try_from_iter_with_nullable([("a", array, true)]).unwrap();
    let bound =
        |condition: &str| condition.parse::<Expression>().unwrap().bind(&of(Arc::new(plain.clone())).schema()).unwrap();
    let rows = |condition: &str, array: ArrayRef| {
        let mask = bound(condition).evaluate(&of(array.slice(1, 4))).unwrap();
        (0..4).filter(|row| mask.value(*row)).map(|row| row + 1).collect::<Vec<_>>()
    };
    for (condition, of_words, of_runs, of_views) in [
        ("a = 'y'", vec![4], vec![2], vec![4]),
        ("a < 'y'", vec![2], vec![1], vec![2, 3]),
        ("a is null", vec![1, 3], vec![3, 4], vec![1]),
        ("a like '%y%'", vec![4], vec![2], vec![4]),
        ("a = a", vec![2, 4], vec![1, 2], vec![2, 3, 4]),
    ] {
        assert_eq!(rows(condition, Arc::new(dictionary.clone())), of_words, "{condition}");
        assert_eq!(rows(condition, Arc::new(runs.clone())), of_runs, "{condition}");
        assert_eq!(rows(condition, Arc::new(views.clone())), of_views, "{condition}");
        assert_eq!(rows(condition, Arc::new(plain.clone())), of_words, "{condition}");
    }
    let numbers = of(Arc::new(Int64Array::from(vec![1])));
    assert!(bound("a = 'y'").evaluate(&numbers).unwrap_err().to_string().contains("column a is int64, not text"));
    let other = RecordBatch::try_from_iter([("b", Arc::new(plain.clone()) as ArrayRef)]).unwrap();
    assert!(bound("a = 'y'").evaluate(&other).unwrap_err().to_string().contains("column b stands where column a"));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let batch = table();
    for (condition, place, what) in [
        ("", "character 1, at \"\"", "a column, a value, not or ( belongs here, not the end"),
        ("price >", "character 8", "a column or a value belongs here, not the end"),
        ("price > 3 city", "character 11, at \"city\"", "and, or, or the end belongs here, not city"),
        ("pirce > 3", "character 1", "no column pirce; did you mean price?"),
        ("ok and adress.street = 'x'", "character 8", "did you mean address.street?"),
        ("é = 3", "character 1", "no column é"),
        ("city = 'é' and pric = 3", "character 16", "did you mean price?"),
        ("price = 'x'", "character 9", "price is int64, and 'x' is no number"),
        ("city = 3", "character 8, at \"3\"", "city is text, and 3 is a number: write '3'"),
        ("city = true", "character 8", "no text"),
        ("ok = 1", "character 6", "1 is neither true nor false"),
        ("weight = '3'", "character 10", "numbers are written without quotes"),
        ("price", "character 1", "price is int64, and true is no number"),
        ("3", "character 1", "3 is no condition"),
        ("3 = 3", "character 1", "no column"),
        ("price in ()", "character 11", "a value belongs here, not )"),
        ("price in (ok)", "character 11", "values, not columns"),
        ("price in (1, 'x')", "character 14", "'x' is no number"),
        ("3 in (3)", "character 1", "a column belongs here"),
        ("price between 1 or 2", "character 17", "and, and the largest value of between,"),
        ("price not = 1", "character 11", "in, between or like belongs here"),
        ("price is true", "character 10", "null or not null belongs here"),
        ("city like 3", "character 11", "a pattern in single quotes"),
        ("price like 'x'", "character 1", "only text is like a pattern"),
        ("city like 'a!b' escape '!'", "character 11", "behind ! in the pattern"),
        ("city like 'a' escape '!!'", "character 22", "one character"),
        ("city = 'x", "character 8", "no ' at its end"),
        ("\"city = 1", "character 1", "no \" at its end"),
        ("price = 3x", "character 9", "a number ends with a digit"),
        ("price = 1e", "character 9", "exponent"),
        ("price = -", "character 9", "a number belongs here"),
        ("price ; 3", "character 7", "; means nothing here"),
        ("(price = 3", "character 11", ") belongs here"),
        ("day = '2024-13-01'", "character 7", "no time"),
        ("day = date '2024-02-30'", "character 12", "'2024-02-30' is no date"),
        ("day = date '2024-02-01 12:00'", "character 12", "no date"),
        ("seen > '2024-01-31'", "character 8", "write Z or +02:00 behind it"),
        ("shown > timestamp '2024-01-31 12:00Z'", "character 9", "write it without one"),
        ("seen > shown", "character 1", "one is an instant"),
        ("day = seen", "character 1", "a date is no instant"),
        ("cost < weight", "character 1", "a float would round decimals"),
        ("city = price", "character 1", "city is text, price is int64"),
        ("address = 'x'", "character 1", "whose values do not compare"),
        (
            "price = 11111111111111111111111111111111111111111111111111111111111111111111111111111",
            "character 9",
            "76 digits",
        ),
    ] {
        let error = refused(condition, &batch);
        let name = if condition.is_empty() { "the condition".to_owned() } else { format!("condition {condition}") };
        assert!(error.starts_with(&format!("{name}, {place}")) && error.contains(what), "{condition}: {error}");
    }
    // Those that were built have the text that they are written as.
    let built = col("city").gt("a").and(col("pirce").gt(3));
    let error = built.bind(&batch.schema()).unwrap_err().to_string();
    assert!(
        error.starts_with("condition city > 'a' and pirce > 3, character 16, at \"pirce > 3\": no column"),
        "{error}"
    );
    let long = format!("{} =", "x".repeat(200)).parse::<Expression>().unwrap_err().to_string();
    assert!(long.starts_with(&format!("condition {}..., character 203, at ", "x".repeat(120))), "{long}");
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    assert!(long.parse::<Expression>().unwrap_err().what.contains("too many"));
}

#[test]
fn conditions_are_nested_within_a_bound_however_they_are_made() {
    let deep = |levels: usize| format!("{}ok{}", "(".repeat(levels), ")".repeat(levels));
    assert!(deep(DEPTH_MAX).parse::<Expression>().is_ok());
    assert!(deep(DEPTH_MAX + 1).parse::<Expression>().unwrap_err().what.contains("too deep"));
    assert!(deep(100_000).parse::<Expression>().is_err());
    let batch = table();
    let built = |levels: usize| (0..levels).fold(col("ok").is_true(), |all, _| all.not());
    let bound = built(DEPTH_MAX - 1);
    assert_eq!(rmp_serde::from_slice::<Expression>(&rmp_serde::to_vec(&bound).unwrap()).unwrap(), bound);
    bound.bind(&batch.schema()).unwrap().evaluate(&batch).unwrap();
    let error = built(DEPTH_MAX).bind(&batch.schema()).unwrap_err();
    assert!(error.to_string().contains("too deep"), "{error}");
    assert!(rmp_serde::to_vec(&built(DEPTH_MAX)).is_err());
    // A row of them is one level.
    let row = vec!["price = 3"; 1000].join(" or ");
    assert_eq!(kept(&row, &batch), [1]);
}

#[test]
fn what_is_built_is_what_is_written() {
    for (built, written) in [
        (col("price").gt(3).and(col("city").is_in(["x", "y"])), "price > 3 and city in ('x', 'y')"),
        (
            col("a").eq(1).and(col("b").ne(2)).and(col("c").le(3)).or(col("d").is_null()),
            "(a = 1 and b != 2 and c <= 3) or d is null",
        ),
        (col("a b").ge(0.1), "\"a b\" >= 1e-1"),
        (col("and").lt(u64::MAX), "\"and\" < 18446744073709551615"),
        (col("a.b").eq(true).not(), "not a.b = true"),
        (col("a").between(-1, lit(Literal::Date("2024-01-31".into()))), "a >= -1 and a <= date '2024-01-31'"),
        (col("a").like("it's%").and(col("b").is_not_null()), "a like 'it''s%' and not b is null"),
        (col("a").eq(f64::NAN), "a = 'nan'"),
        (col("a").eq(col("b")).or(col("c").is_true()), "a = b or c"),
        (col("a").is_in(Vec::<i64>::new()), "false"),
    ] {
        assert_eq!(built.to_string(), written);
        assert_eq!(written.parse::<Expression>().unwrap(), built);
    }
    // A number that is none does not become a part of the condition.
    for (text, what) in [
        ("1 or true", "written as something else"),
        ("price", "written as something else"),
        ("1)", "and, or, or the end"),
    ] {
        let built = col("price").gt(lit(Literal::Number(text.to_owned())));
        let error = built.bind(&table().schema()).unwrap_err().to_string();
        assert!(error.contains(what) && rmp_serde::to_vec(&built).is_err(), "{error}");
    }
    // Places of errors are those in the text that it has.
    let error = col("pirce").gt(3).and(col("ctiy").eq("x")).bind(&table().schema()).unwrap_err();
    assert!(error.to_string().contains("character 1, at \"pirce > 3 and ctiy = 'x'\""), "{error}");
}
