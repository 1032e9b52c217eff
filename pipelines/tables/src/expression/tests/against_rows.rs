//! Conditions over random rows, against a plain reading of what they mean, row by row.

use proptest::prelude::*;

use super::*;

/// A row: an integer, a float, a text, a truth value, and a decimal of two digits behind the point.
#[derive(Clone, Debug)]
struct Row {
    int: Option<i64>,
    float: Option<f64>,
    text: Option<String>,
    truth: Option<bool>,
    cents: Option<i64>,
}

fn batch(rows: &[Row]) -> RecordBatch {
    let cents = Decimal128Array::from_iter(rows.iter().map(|row| row.cents.map(i128::from)));
    let texts = StringArray::from_iter(rows.iter().map(|row| row.text.as_deref()));
    let packed: DictionaryArray<Int32Type> = rows.iter().map(|row| row.text.as_deref()).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("int", Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.int)))),
        ("float", Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.float)))),
        ("text", if rows.len().is_multiple_of(2) { Arc::new(texts) } else { Arc::new(packed) }),
        ("truth", Arc::new(BooleanArray::from_iter(rows.iter().map(|row| row.truth)))),
        ("cents", Arc::new(cents.with_precision_and_scale(20, 2).unwrap())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

/// A condition and what it is for a row.
#[derive(Clone, Debug)]
enum Condition {
    Int(Comparison, i64),
    Float(Comparison, f64),
    Text(Comparison, String),
    Cents(Comparison, i64),
    IntAmong(Vec<Option<i64>>),
    Begins(String),
    Truth,
    IntIsNull,
    IntAndFloat(Comparison),
    CentsAndInt(Comparison),
    Not(Box<Condition>),
    And(Vec<Condition>),
    Or(Vec<Condition>),
}

fn compare(column: &str, comparison: Comparison, with: impl Into<Operand>) -> Expression {
    let column = col(column);
    match comparison {
        Comparison::Equal => column.eq(with),
        Comparison::NotEqual => column.ne(with),
        Comparison::Less => column.lt(with),
        Comparison::LessOrEqual => column.le(with),
        Comparison::Greater => column.gt(with),
        Comparison::GreaterOrEqual => column.ge(with),
    }
}

impl Condition {
    fn expression(&self) -> Expression {
        let joined = |all: &[Self], join: fn(Expression, Expression) -> Expression| {
            all.iter().map(Self::expression).reduce(join).expect("one at least")
        };
        match self {
            Self::Int(comparison, with) => compare("int", *comparison, *with),
            Self::Float(comparison, with) => compare("float", *comparison, *with),
            Self::Text(comparison, with) => compare("text", *comparison, with.as_str()),
            Self::Cents(comparison, with) => {
                let literal = Literal::Number(format!("{}.{:03}", with / 1000, (with % 1000).abs()));
                let literal = match with {
                    -999..0 => Literal::Number(format!("-0.{:03}", with.abs())),
                    _ => literal,
                };
                compare("cents", *comparison, literal)
            }
            Self::IntAmong(among) => col("int").is_in(among.iter().map(|one| match one {
                Some(one) => Literal::Number(one.to_string()),
                None => Literal::Null,
            })),
            Self::Begins(beginning) => col("text").like(format!("{beginning}%")),
            Self::Truth => col("truth").is_true(),
            Self::IntIsNull => col("int").is_null(),
            Self::IntAndFloat(comparison) => compare("int", *comparison, col("float")),
            Self::CentsAndInt(comparison) => compare("cents", *comparison, col("int")),
            Self::Not(of) => of.expression().not(),
            Self::And(all) => joined(all, Expression::and),
            Self::Or(all) => joined(all, Expression::or),
        }
    }

    fn of_row(&self, row: &Row) -> Option<bool> {
        let floats = |one: f64, other: f64| match (one.is_nan(), other.is_nan()) {
            (true, true) => std::cmp::Ordering::Equal,
            (true, false) => std::cmp::Ordering::Greater,
            (false, true) => std::cmp::Ordering::Less,
            _ => one.partial_cmp(&other).unwrap(),
        };
        match self {
            Self::Int(comparison, with) => Some(comparison.holds(row.int?.cmp(with))),
            Self::Float(comparison, with) => Some(comparison.holds(floats(row.float?, *with))),
            Self::Text(comparison, with) => Some(comparison.holds(row.text.as_ref()?.as_bytes().cmp(with.as_bytes()))),
            Self::Cents(comparison, with) => Some(comparison.holds((row.cents? * 10).cmp(with))),
            Self::IntAmong(among) => {
                let int = row.int?;
                match among.contains(&Some(int)) {
                    true => Some(true),
                    false if among.contains(&None) => None,
                    false => Some(false),
                }
            }
            Self::Begins(beginning) => Some(row.text.as_ref()?.starts_with(beginning.as_str())),
            Self::Truth => row.truth,
            Self::IntIsNull => Some(row.int.is_none()),
            Self::IntAndFloat(comparison) => {
                let (int, float) = (row.int?, row.float?);
                // The floats of these rows are small or none, so what is lost in them is nothing.
                Some(comparison.holds(floats(int as f64, float)))
            }
            Self::CentsAndInt(comparison) => Some(comparison.holds(row.cents?.cmp(&(row.int? * 100)))),
            Self::Not(of) => of.of_row(row).map(|value| !value),
            Self::And(all) => {
                let all: Vec<_> = all.iter().map(|one| one.of_row(row)).collect();
                if all.contains(&Some(false)) {
                    Some(false)
                } else if all.contains(&None) {
                    None
                } else {
                    Some(true)
                }
            }
            Self::Or(all) => {
                let all: Vec<_> = all.iter().map(|one| one.of_row(row)).collect();
                if all.contains(&Some(true)) {
                    Some(true)
                } else if all.contains(&None) {
                    None
                } else {
                    Some(false)
                }
            }
        }
    }
}

fn floats() -> impl Strategy<Value = f64> {
    prop_oneof![
        (-4i8..4).prop_map(f64::from),
        Just(f64::NAN),
        Just(-f64::NAN),
        Just(-0.0),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(0.5)
    ]
}

fn texts() -> impl Strategy<Value = String> {
    "[ab\u{e9}]{0,2}"
}

fn row() -> impl Strategy<Value = Row> {
    let of = (
        proptest::option::weighted(0.8, -3i64..4),
        proptest::option::weighted(0.8, floats()),
        proptest::option::weighted(0.8, texts()),
        proptest::option::weighted(0.8, any::<bool>()),
        proptest::option::weighted(0.8, -300i64..300),
    );
    of.prop_map(|(int, float, text, truth, cents)| Row { int, float, text, truth, cents })
}

fn comparison() -> impl Strategy<Value = Comparison> {
    use Comparison::*;
    proptest::sample::select(vec![Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual])
}

fn condition() -> impl Strategy<Value = Condition> {
    let one = prop_oneof![
        (comparison(), -3i64..4).prop_map(|(comparison, with)| Condition::Int(comparison, with)),
        (comparison(), floats()).prop_map(|(comparison, with)| Condition::Float(comparison, with)),
        (comparison(), texts()).prop_map(|(comparison, with)| Condition::Text(comparison, with)),
        (comparison(), -3000i64..3000).prop_map(|(comparison, with)| Condition::Cents(comparison, with)),
        proptest::collection::vec(proptest::option::weighted(0.9, -3i64..4), 1..4).prop_map(Condition::IntAmong),
        texts().prop_map(Condition::Begins),
        Just(Condition::Truth),
        Just(Condition::IntIsNull),
        comparison().prop_map(Condition::IntAndFloat),
        comparison().prop_map(Condition::CentsAndInt),
    ];
    one.prop_recursive(4, 24, 3, |inside| {
        prop_oneof![
            inside.clone().prop_map(|of| Condition::Not(Box::new(of))),
            proptest::collection::vec(inside.clone(), 2..4).prop_map(Condition::And),
            proptest::collection::vec(inside, 2..4).prop_map(Condition::Or),
        ]
    })
}

proptest! {
    #[test]
    fn conditions_mean_what_they_mean_for_each_row(rows in proptest::collection::vec(row(), 1..80), condition in condition()) {
        let (batch, expression) = (batch(&rows), condition.expression());
        let text = expression.to_string();
        let parsed: Expression = text.parse().unwrap();
        prop_assert_eq!(&parsed, &expression);
        let expected: Vec<bool> = rows.iter().map(|row| condition.of_row(row) == Some(true)).collect();
        for expression in [expression, parsed] {
            let mask = expression.bind(&batch.schema()).unwrap().evaluate(&batch).unwrap();
            prop_assert_eq!(mask.values().iter().collect::<Vec<_>>(), expected.clone(), "{}", text);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[a-z0-9 '\"().,=<>!%_-]{0,60}|\\PC{0,40}") {
        crate::fuzzing::condition(text.as_bytes());
    }
}
