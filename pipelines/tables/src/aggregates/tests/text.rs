use super::*;

#[test]
fn aggregates_are_what_they_print() {
    let text = r#"COUNT(*), sum( price ) AS s, mean(a.b), count(distinct user), min("unit, price"), quantile(x,0.5), median(x) as "as", var_samp(x) as "x y", first("*"), count("distinct"), count(distinct)as n"#;
    let list = parse_list(text).unwrap();
    let shown: Vec<String> = list.iter().map(Aggregate::to_string).collect();
    let expected = [
        "count(*)",
        "sum(price) as s",
        "avg(a.b)",
        "count_distinct(user)",
        r#"min("unit, price")"#,
        "quantile(x, 0.5)",
        "quantile_cont(x, 0.5) as as",
        r#"variance(x) as "x y""#,
        r#"first("*")"#,
        r#"count("distinct")"#,
        r#"count("distinct") as n"#,
    ];
    assert_eq!(shown, expected);
    assert_eq!(list[1].name, "s");
    assert_eq!(list[4].column.as_deref(), Some("unit, price"));
    assert_eq!(parse_list(&shown.join(",")).unwrap(), list);
    for one in &list {
        assert_eq!(one.to_string().parse::<Aggregate>().as_ref(), Ok(one));
        let packed = serde_json::to_string(one).unwrap();
        assert_eq!(serde_json::from_str::<Aggregate>(&packed).unwrap(), *one);
    }
}

#[test]
fn what_is_wrong_with_a_text_is_said_with_what_to_do() {
    for (text, what) in [
        ("", "say one at least"),
        ("  ", "say one at least"),
        ("sun(price)", "there is no function sun; did you mean sum?"),
        ("zzz(x)", "there is no function zzz; there are count, sum, avg"),
        ("sum", "sum has its argument in brackets: sum(price)"),
        ("sum()", "sum of which column? The argument is missing: sum(price)"),
        ("sum(*)", "sum takes one column, sum(price); count(*) alone is of rows"),
        ("count()", "count of which column? The argument is missing: count(*) or count(price)"),
        ("count_distinct(*)", "count_distinct takes one column"),
        ("sum(a, b)", "sum takes no more arguments"),
        ("sum(a b)", "a bracket belongs here"),
        ("sum(a", "the closing bracket is missing"),
        ("sum(\"a)", "there is no \" at its end"),
        ("sum('a')", "names are in double quotes, or in none"),
        ("sum(\"\")", "nothing between the quotes"),
        ("quantile(x)", "quantile takes the part of the values, too, from 0 to 1: quantile(price, 0.9)"),
        ("quantile(x, 1.5)", "quantile takes a number from 0 to 1, not \"1.5\""),
        ("quantile(x, nan)", "quantile takes a number from 0 to 1, not \"nan\""),
        ("quantile(x, )", "quantile takes a number from 0 to 1, not \"\""),
        ("median(x, 0.5)", "median takes no more arguments"),
        ("sum(x) as", "a name belongs behind as"),
        ("sum(x) s", "a comma or as NAME belongs behind an aggregate"),
        ("sum(x),", "a function belongs here"),
        ("sum(x), sum(x)", "sum(x) and sum(x) have the same name: give one of them another one, with as NAME"),
        ("sum(x) as s, min(x) as S", "s and S have one name but for case"),
        ("avg(x), mean(x)", "have the same name"),
    ] {
        let error = parse_list(text).unwrap_err().to_string();
        assert!(error.contains(what), "{text}: {error}");
    }
    let error = parse_list("sum(x), größe(y)").unwrap_err();
    assert_eq!((error.at, error.character()), (8, 9));
    assert!(error.to_string().starts_with("aggregates sum(x), größe(y), character 9: "), "{error}");
    assert!("sum(x), sum(y)".parse::<Aggregate>().is_err());
}

#[test]
fn columns_are_looked_up_and_asked_what_they_can_be_asked() {
    let fields = ["n", "t", "m"].into_iter().zip([
        DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Int32)),
        DataType::Utf8View,
        DataType::Interval(arrow_schema::IntervalUnit::YearMonth),
    ]);
    let schema = Schema::new(fields.map(|(name, of)| Field::new(name, of, true)).collect::<Vec<_>>());
    let bind = |text: &str| text.parse::<Aggregate>().unwrap().bind(&schema);
    for (text, data_type) in [
        ("count(m)", DataType::Int64),
        ("sum(n)", DataType::Decimal128(38, 0)),
        ("avg(n)", DataType::Float64),
        ("min(n)", DataType::Int32),
        ("max(t)", DataType::Utf8),
        ("first(m)", DataType::Interval(arrow_schema::IntervalUnit::YearMonth)),
        ("count_distinct(t)", DataType::Int64),
        ("quantile(t, 0.1)", DataType::Utf8),
        ("median(n)", DataType::Float64),
        ("stddev(n)", DataType::Float64),
    ] {
        let bound = bind(text).unwrap();
        assert_eq!(*bound.output_field().data_type(), data_type, "{text}");
        assert_eq!(bound.accumulator().unwrap().is_none(), bound.is_of_values(), "{text}");
        assert_eq!(bound.needs_places(), text.starts_with("first"));
    }
    for (text, what) in [
        (
            "sum(t)",
            "column t is text: sum adds integers, decimals and floats; count, min and max take what is no number",
        ),
        ("variance(t)", "column t is text: variance and stddev are of"),
        ("median(t)", "column t is text: quantile_cont and median are of integers"),
        ("min(m)", "column m cannot be a key: Interval(YearMonth) has no order"),
        ("sum(N)", "no column N; did you mean n?"),
    ] {
        let error = bind(text).unwrap_err().to_string();
        assert!(error.starts_with(what), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in r#"[a-z(),"* .0-9']{0,40}|(sum|count|quantile)\(("[^"]{0,5}"|\*|[a-c]{0,2})[,) ]{0,2}( as )?.{0,4}"#) {
        if let Ok(list) = parse_list(&text) {
            let shown: Vec<String> = list.iter().map(Aggregate::to_string).collect();
            prop_assert_eq!(parse_list(&shown.join(", ")).unwrap(), list);
        }
    }
}
