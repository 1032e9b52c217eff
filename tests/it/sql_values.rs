//! `exobus query`: what values and types mean in it, where files, floats, times and intervals could mean several things.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Run, Scratch, command, exobus, finish};

/// A query in the folder of its tables.
#[track_caller]
fn query(scratch: &Scratch, text: &str, more: &[&str]) -> Run {
    let spill = scratch.text("spill");
    let mut command = command(&[&["query", text, "--memory", "128MiB", "--spill", &spill][..], more].concat());
    command.current_dir(scratch.path("."));
    finish(command)
}

/// The rows of the answer; decimals are texts.
#[track_caller]
fn rows(scratch: &Scratch, text: &str) -> Vec<Value> {
    let told = query(scratch, text, &["--json"]).expect(0, &[]).json();
    told["rows"].as_array().unwrap().clone()
}

/// What an expression is of the rows of a file, in their order.
#[track_caller]
fn values(scratch: &Scratch, expression: &str, file: &str) -> Vec<Value> {
    let rows = rows(scratch, &format!("SELECT {expression} AS x FROM '{file}' ORDER BY y"));
    rows.into_iter().map(|row| row["x"].clone()).collect()
}

#[test]
fn a_decimal_beside_a_float_is_the_float() {
    let scratch = Scratch::new();
    // No decimal has room for both of the first ones.
    fs::write(scratch.path("f.csv"), "x,y\n1e-17,1\n1e20,2\n3.5,3\n-1.5,4\n").unwrap();
    for (expression, expected) in [
        ("x > 0.0", json!([true, true, true, false])),
        ("0.5 < x", json!([false, true, true, false])),
        ("x BETWEEN 0.0 AND 4.0", json!([true, false, true, false])),
        ("x IN (3.5, 4.0)", json!([false, false, true, false])),
        ("x IS DISTINCT FROM 3.5", json!([true, true, false, true])),
        ("coalesce(x, 0.0)", json!([1e-17, 1e20, 3.5, -1.5])),
        ("greatest(x, 0.5)", json!([0.5, 1e20, 3.5, 0.5])),
        ("nullif(x, 3.5)", json!([1e-17, 1e20, null, -1.5])),
        ("CASE x WHEN 3.5 THEN 'a' ELSE 'b' END", json!(["b", "b", "a", "b"])),
        ("CASE WHEN y > 1 THEN x ELSE 0.5 END", json!([0.5, 1e20, 3.5, -1.5])),
        ("1e300 * 1e-300 / 4", json!([0.25, 0.25, 0.25, 0.25])),
    ] {
        assert_eq!(json!(values(&scratch, expression, "f.csv")), expected, "{expression}");
    }
    let met = |condition: &str| rows(&scratch, &format!("SELECT y FROM 'f.csv' WHERE {condition}")).len();
    assert_eq!((met("x > 0.0"), met("x * 2 > 0.5"), met("x > 1e-3"), met("x >= -1e300")), (3, 2, 2, 4));
    let both = rows(&scratch, "SELECT 0.5 AS x FROM 'f.csv' UNION SELECT x FROM 'f.csv' ORDER BY x");
    assert_eq!(json!(both), json!([{"x": -1.5}, {"x": 1e-17}, {"x": 0.5}, {"x": 3.5}, {"x": 1e20}]));
    fs::write(scratch.path("d.csv"), "d\n3.50\n7.25\n").unwrap();
    let decimals = "(SELECT CAST(d AS decimal(5, 2)) AS d FROM 'd.csv')";
    let joined = rows(&scratch, &format!("SELECT y, d FROM 'f.csv' JOIN {decimals} AS d ON x = d"));
    assert_eq!(json!(joined), json!([{"y": 3, "d": "3.50"}]));
    let among = rows(&scratch, &format!("SELECT y FROM 'f.csv' WHERE x IN {decimals}"));
    assert_eq!(json!(among), json!([{"y": 3}]));
}

#[test]
fn floats_compare_as_keys_of_tables_do() {
    let scratch = Scratch::new();
    fs::write(scratch.path("f.csv"), "x,y\n-0.0,1\n0.0,2\nnan,3\n3.5,4\n").unwrap();
    // The negative of a NaN is one with a sign.
    for (condition, expected) in [
        ("x = 0", vec![1, 2]),
        ("x < 0", vec![]),
        ("-x > 3", vec![3]),
        ("x - 1 > 2", vec![3, 4]),
        ("-x = -x", vec![1, 2, 3, 4]),
        ("-x IN (-x, 7)", vec![1, 2, 3, 4]),
        ("CASE x WHEN 0 THEN true END", vec![1, 2]),
        ("CASE -x WHEN x * 2 THEN true END", vec![1, 2, 3]),
        ("nullif(x, 0) IS NULL", vec![1, 2]),
    ] {
        let rows = rows(&scratch, &format!("SELECT y FROM 'f.csv' WHERE {condition} ORDER BY y"));
        let met: Vec<i64> = rows.iter().map(|row| row["y"].as_i64().unwrap()).collect();
        assert_eq!(met, expected, "{condition}");
    }
}

#[test]
fn files_whose_columns_differ_are_one_table_on_every_way() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("in")).unwrap();
    fs::write(scratch.path("in/1.csv"), "a,b\n1,x\n3,y\n").unwrap();
    fs::write(scratch.path("in/2.csv"), "a,c\n1.5,z\n").unwrap();
    let expected = json!([
        {"h": 0.5, "t": "1.0", "b": "x", "c": null},
        {"h": 0.75, "t": "1.5", "b": null, "c": "z"},
        {"h": 1.5, "t": "3.0", "b": "y", "c": null},
    ]);
    let text = "SELECT a / 2 AS h, CAST(a AS varchar) AS t, b, c FROM 'in'";
    let mut found = rows(&scratch, text);
    found.sort_by(|one, other| one["h"].as_f64().unwrap().total_cmp(&other["h"].as_f64().unwrap()));
    assert_eq!(json!(found), expected);
    assert_eq!(json!(rows(&scratch, &format!("{text} ORDER BY h"))), expected);
    let written = query(&scratch, &format!("{text} ORDER BY h"), &["--output", "out", "--format", "jsonl"]);
    written.expect(0, &[]);
    assert_eq!(rows(&scratch, "SELECT * FROM 'in'").len(), 3);
    assert_eq!(json!(rows(&scratch, "SELECT a FROM 'in' WHERE c = 'z' OR a > 2.5")), json!([{"a": 3.0}, {"a": 1.5}]));
    let shown = exobus(&["show", &scratch.text("in"), "--select", "c,a", "--json"]).expect(0, &[]).stdout.clone();
    assert!(shown.contains("1.5") && shown.contains('z'), "{shown}");
}

#[test]
fn what_has_no_order_or_no_negative_is_refused_and_not_guessed() {
    let scratch = Scratch::new();
    fs::write(
        scratch.path("t.csv"),
        "y,a,b,i\n1,2024-01-01 00:00:00,2024-01-11 00:00:00,-9223372036854775808\n2,2024-01-01 00:00:00,2024-01-03 12:00:00,5\n",
    )
    .unwrap();
    for (expression, expected) in [
        ("b - a > INTERVAL '5 days'", json!([true, false])),
        ("b - a = INTERVAL '60 hours'", json!([false, true])),
        ("b - a BETWEEN INTERVAL '1 day' AND INTERVAL '3 days'", json!([false, true])),
        ("a < now()", json!([true, true])),
        ("b AT TIME ZONE 'UTC' > TIMESTAMPTZ '2024-01-05 00:00:00+00:00'", json!([true, false])),
        ("b AT TIME ZONE 'UTC' > TIMESTAMPTZ '2024-01-03 13:00:00+02:00'", json!([true, true])),
    ] {
        assert_eq!(json!(values(&scratch, expression, "t.csv")), expected, "{expression}");
    }
    for (text, code, told) in [
        ("SELECT b - a > INTERVAL '1 month' FROM 't.csv'", 2, "intervals have no order"),
        ("SELECT INTERVAL '1 month' > INTERVAL '40 days' FROM 't.csv'", 2, "intervals have no order"),
        ("SELECT a AT TIME ZONE 'UTC' > b FROM 't.csv'", 2, "a time with a zone is compared with one without"),
        ("SELECT -i FROM 't.csv'", 1, "t.csv: arithmetic overflow"),
        ("SELECT sum(-i) FROM 't.csv'", 1, "t.csv: arithmetic overflow"),
        ("SELECT sum(i + i) FROM 't.csv'", 1, "t.csv: arithmetic overflow"),
        ("SELECT * FROM ''", 2, "a table has a name"),
    ] {
        query(&scratch, text, &[]).expect(code, &[told]);
    }
}

#[test]
fn groups_that_having_leaves_out_are_left_out_of_looks_too() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("in")).unwrap();
    for file in 0..60 {
        let lines: String = (0..300)
            .map(|row| format!("{},{},{}.5\n", ["oslo", "oslo", "rome", "lima"][row % 4], file * 300 + row, row % 7))
            .collect();
        fs::write(scratch.path(&format!("in/{file:02}.csv")), format!("city,n,price\n{lines}")).unwrap();
    }
    for having in [
        "count(*) > 6000",
        "sum(n) > 50000000",
        "sum(price) > 20000.5 AND avg(price) > 1.5",
        "count(*) IN (9000, 1) AND sum(n) IS NOT NULL",
        "sum(n) + count(*) > 60000000 AND sqrt(count(*)) > 80.0",
    ] {
        let text = format!("SELECT city, count(*) AS c, sum(n) AS s FROM 'in' GROUP BY city HAVING {having}");
        let batch = rows(&scratch, &text);
        assert_eq!((batch.len(), &batch[0]["city"]), (1, &json!("oslo")), "{having}");
        let told = query(&scratch, &text, &["--online", "--json"]).expect(0, &[]).stdout.clone();
        let mut lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let answer = lines.pop().unwrap();
        assert_eq!(answer["rows"], json!(batch), "{having}");
        assert_eq!(answer["plan"].as_str().unwrap().len(), 32, "{answer}");
        let last = lines.pop().unwrap();
        assert_eq!((last["groups"].as_array().unwrap().len(), &last["final"]), (1, &json!(true)), "{having}: {last}");
        assert!(lines.len() > 3, "{told}");
    }
    let text = "SELECT city, 1.0 * sum(n) / count(*) AS m, sum(n) AS s FROM 'in' GROUP BY city HAVING count(*) > 1000 ORDER BY s DESC";
    let told = query(&scratch, text, &["--online", "--json"]).expect(0, &[]).stdout.clone();
    assert!(told.contains(r#""chosen_by_estimates":true"#) && told.contains(r#""key":["oslo"]"#), "{told}");
}

#[test]
fn what_is_chosen_among_numbers_has_a_type_that_all_of_them_fit() {
    let scratch = Scratch::new();
    fs::write(scratch.path("f.csv"), "y,x\n1,1e-17\n2,1e20\n3,0.75\n").unwrap();
    for (expression, expected) in [
        ("CASE WHEN y = 9 THEN 1 ELSE x END > 0.0", json!([true, true, true])),
        ("x > CASE WHEN y < 3 THEN 1 ELSE 0.5 END", json!([false, true, true])),
        ("coalesce(y, 1.5)", json!(["1.0", "2.0", "3.0"])),
        (
            "concat(x, '|', CAST('12345678901234567890.12' AS decimal(30, 2)))",
            json!(["1e-17|12345678901234567890.12", "1e20|12345678901234567890.12", "0.75|12345678901234567890.12"]),
        ),
        ("x IN (-0e0, 0.75)", json!([false, false, true])),
    ] {
        assert_eq!(json!(values(&scratch, expression, "f.csv")), expected, "{expression}");
    }
    let both = "(SELECT y, y AS v FROM 'f.csv' UNION ALL SELECT y, x FROM 'f.csv')";
    let found = rows(&scratch, &format!("SELECT count(*) AS n FROM {both} AS b WHERE v > 0.5"));
    assert_eq!(json!(found), json!([{"n": 5}]));
    let first = "SELECT y FROM 'f.csv' QUALIFY row_number() OVER (PARTITION BY y > 1 ORDER BY -y) = 1 ORDER BY y";
    assert_eq!(json!(rows(&scratch, first)), json!([{"y": 1}, {"y": 3}]));
}

#[test]
fn patterns_times_and_zones_mean_what_is_written() {
    let scratch = Scratch::new();
    fs::write(scratch.path("k.csv"), "k,y\nab,1\na\\b,2\nxa%,3\n").unwrap();
    for (expression, expected) in [
        (r"k LIKE 'a\b'", [false, true, false]),
        (r"k ~~ 'a\b'", [false, true, false]),
        (r"k !~~ 'a\b'", [true, false, true]),
        (r"k ~~* 'A\B'", [false, true, false]),
        (r"k LIKE 'xa!%' ESCAPE '!'", [false, false, true]),
        (r"k LIKE replace(k, 'b', '_')", [true, true, true]),
        (r"k ~ 'a\\b'", [false, true, false]),
        (r"upper(k) ~ 'A\\B'", [false, true, false]),
        (r"regexp_like(k, 'a\\')", [false, true, false]),
    ] {
        assert_eq!(json!(values(&scratch, expression, "k.csv")), json!(expected), "{expression}");
        let met = rows(&scratch, &format!("SELECT y FROM 'k.csv' WHERE {expression}"));
        assert_eq!(met.len(), expected.iter().filter(|is_met| **is_met).count(), "WHERE {expression}");
    }
    for expression in [
        "TIMESTAMP '1500-01-01 00:00:00' < TIMESTAMP '2500-01-01 00:00:00.5'",
        "DATE '1500-01-01' < TIMESTAMP '1500-01-01 00:00:01'",
        "DATE '2024-01-01' < '2024-01-01 00:00:00.0000001'",
        "TIMESTAMP '2024-01-01 00:00:00 America/New_York' = TIMESTAMPTZ '2024-01-01 05:00:00Z'",
        "TIMESTAMP '2024-01-01t00:00:00-05' = TIMESTAMPTZ '2024-01-01 05:00:00Z'",
        "TIMESTAMP(3) '2024-01-01 00:00:00+02:00' = TIMESTAMPTZ '2023-12-31 22:00:00Z'",
    ] {
        assert_eq!(json!(values(&scratch, expression, "k.csv")), json!([true, true, true]), "{expression}");
    }
    let zoned = "SELECT DATE '2024-01-01' < '2024-01-01 00:00:00-05' AS x FROM 'k.csv'";
    query(&scratch, zoned, &[]).expect(2, &["a time with a zone is compared with one without"]);
    fs::write(scratch.path("days.csv"), "d,y\n1500-01-01,1\n2024-05-05,2\n").unwrap();
    fs::write(scratch.path("times.csv"), "t\n1500-01-01 00:00:00\n2024-05-05 12:00:00\n").unwrap();
    let joined = rows(&scratch, "SELECT y FROM 'days.csv' JOIN 'times.csv' ON d = t");
    assert_eq!(json!(joined), json!([{"y": 1}]));
    let told = query(&scratch, "EXPLAIN SELECT y FROM 'days.csv' WHERE d < TIMESTAMP '2024-05-05 12:00:00'", &[]);
    assert!(told.stdout.contains("(row groups and pages without such rows are not read)"), "{}", told.stdout);
}
