//! `exobus query --online`: what is shown of an answer before it is known.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use crate::queries::{FILES, ROWS, TOTALS, csv, query, sales, totals};
use crate::support::{Scratch, cluster::Cluster, command, exobus, finish, names, parts};

#[test]
fn a_query_shows_what_it_knows_while_it_reads_and_ends_with_the_same_answer() {
    let scratch = sales();
    let text = format!("{TOTALS} ORDER BY n DESC LIMIT 2");
    let batch = query(&scratch, &text, &["--json"]).expect(0, &[]).json();
    let online = query(&scratch, &text, &["--online", "--json", "--seed", "3"]).expect(0, &[]).stdout.clone();
    let mut lines: Vec<Value> = online.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answer = lines.pop().unwrap();
    assert_eq!(answer["rows"], batch["rows"]);
    assert!(lines.len() > 5 && lines.last().unwrap()["final"] == true, "{online}");
    assert_eq!(lines[0]["columns"], json!(["city", "n", "paid"]));
    let stopped = query(&scratch, &text, &["--online", "--until", "error=30%"]);
    assert!(stopped.expect(0, &[]).stdout.contains("error=30% was met"), "{stopped:#?}");
    // What is computed of aggregates has bounds, and the answer is in them.
    let means = "SELECT sum(price) / count(*) AS mean, city, 100.0 * count(*) FILTER (WHERE price > 50) / count(*) AS high FROM 'in' GROUP BY city";
    let online = query(&scratch, means, &["--online", "--json"]).expect(0, &[]).stdout.clone();
    let mut lines: Vec<Value> = online.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answer = lines.pop().unwrap();
    assert_eq!(lines[0]["columns"], json!(["city", "mean", "high"]));
    let (last, before) = (&lines[lines.len() - 1]["groups"][1], &lines[lines.len() - 2]["groups"]);
    let same = before.as_array().unwrap().iter().find(|group| group["key"] == last["key"]).unwrap();
    for (number, name) in ["mean", "high"].into_iter().enumerate() {
        // Decimals are texts.
        let exact = &answer["rows"][1][name];
        let exact = exact.as_f64().or_else(|| exact.as_str()?.parse().ok()).unwrap();
        assert_eq!(last["values"][number]["estimate"], answer["rows"][1][name], "{last} {answer}");
        assert_eq!(last["values"][number]["low"].as_f64(), Some(exact), "{last}");
        let [low, high] = ["low", "high"].map(|bound| same["values"][number][bound].as_f64().unwrap());
        assert!(low <= exact && exact <= high && low < high, "{same} {exact}");
    }
    // What is not shown says so.
    let told = query(&scratch, &format!("{TOTALS} ORDER BY city LIMIT 2 OFFSET 1"), &["--online"]);
    let why = "nothing was shown before the answer was there: OFFSET leaves out rows";
    assert!(told.expect(0, &[]).stdout.contains(why), "{told:#?}");
}

#[test]
fn what_is_computed_of_groups_is_computed_of_estimates_until_they_are_known() {
    let scratch = sales();
    let text = "SELECT round(avg(price), 1) AS mean, upper(city) AS town, 'sales' AS of, sum(id) / count(*) AS whole, CASE WHEN count(*) > 100 THEN 'many' ELSE 'few' END AS size, count(*) AS n, round(count(DISTINCT price), 0) AS prices FROM 'in' GROUP BY city HAVING sqrt(count(*)) > 70.0 ORDER BY round(avg(price), 1), town DESC";
    for (text, rows) in [(text.to_owned(), 3), (format!("{text} LIMIT 2"), 2), (text.replace("> 70.0", "> 90.0"), 1)] {
        let batch = query(&scratch, &text, &["--json"]).expect(0, &[]).json();
        let (looks, answer) = looks(&scratch, &text, &[]);
        assert_eq!(answer["rows"], batch["rows"], "{text}");
        assert_eq!(answer["rows"].as_array().unwrap().len(), rows, "{answer}");
        assert!(looks.len() > 5, "{text}: {answer}");
        let columns = json!(["town", "of", "mean", "whole", "size", "n", "prices"]);
        let (last, before) = looks.split_last().unwrap();
        for (row, group) in answer["rows"].as_array().unwrap().iter().zip(last["groups"].as_array().unwrap()) {
            let shown = |name: &str| {
                let at = columns.as_array().unwrap().iter().position(|column| column == name).unwrap();
                if at < 2 { &group["key"][at] } else { &group["values"][at - 2]["estimate"] }
            };
            row.as_object().unwrap().iter().for_each(|(name, value)| assert_eq!(shown(name), value, "{last}"));
        }
        for look in before {
            assert_eq!((&look["columns"], &look["chosen_by_estimates"]), (&columns, &json!(true)));
            let groups = look["groups"].as_array().unwrap();
            assert!(groups.len() <= rows && !groups.is_empty(), "{look}");
            let means: Vec<f64> = groups.iter().map(|group| group["values"][0]["estimate"].as_f64().unwrap()).collect();
            assert!(
                means.is_sorted() && means.iter().all(|mean| (mean * 10.0 - (mean * 10.0).round()).abs() < 1e-9),
                "{look}"
            );
            for group in groups {
                assert!(["OSLO", "LIMA", "ROME"].contains(&group["key"][0].as_str().unwrap()), "{look}");
                let values = group["values"].as_array().unwrap();
                for computed in &values[..3] {
                    let reason = computed["reason"].as_str();
                    assert!(computed["low"].is_null() && reason == Some("it is computed of estimates"), "{look}");
                }
                assert!(values[1]["estimate"].is_i64() && values[2]["estimate"] == "many", "{look}");
                assert!(values[3]["estimate"].is_number(), "{look}");
                let unknown = (&values[4]["estimate"], values[4]["reason"].as_str());
                assert_eq!(unknown, (&Value::Null, Some("it is known when everything was read")), "{look}");
            }
        }
    }
    // What cannot be computed of a group that is left out is no error, and leaves out no other one.
    let oslo = totals()[1].1;
    let text = format!(
        "SELECT upper(city) AS town, 1000 / (count(*) - {oslo}) AS part FROM 'in' GROUP BY city HAVING abs(count(*) - {oslo}) > 0 ORDER BY part, town"
    );
    let (shown, answer) = looks(&scratch, &text, &[]);
    let rows = answer["rows"].as_array().unwrap();
    let row = |group: &Value| json!({ "town": group["key"][0], "part": group["values"][0]["estimate"] });
    let last: Vec<Value> = shown.last().unwrap()["groups"].as_array().unwrap().iter().map(row).collect();
    assert_eq!((rows.len(), &last), (2, rows));
    // One of which something cannot be computed yet is shown behind the others, and is waited for.
    for order in ["", "ORDER BY city DESC", "ORDER BY sqrt(count(*) - 5990), city"] {
        let text =
            format!("SELECT city, avg(price) AS mean, sqrt(count(*) - 5990) AS root FROM 'in' GROUP BY city {order}");
        let (looks, answer) = looks(&scratch, &text, &["--until", "error=90%"]);
        assert_eq!(answer["rows"].as_array().unwrap().len(), 3, "{answer}");
        for look in looks {
            assert_eq!(look["groups"].as_array().unwrap().len(), 3, "{text}: {look}");
        }
    }
    // What is known at the end chooses no groups before.
    for choice in [
        "HAVING coalesce(max(price), 0.0) < 1000.0",
        "ORDER BY max(price) * 2, city LIMIT 2",
        "ORDER BY max(price), city LIMIT 2",
    ] {
        let text = format!("SELECT city, count(*) AS n FROM 'in' GROUP BY city {choice}");
        let told = query(&scratch, &text, &["--online", "--until", "error=90%"]).expect(0, &[]).stdout.clone();
        assert!(
            told.contains("which groups are answered follows from aggregates that are known when"),
            "{text}: {told}"
        );
    }
    // Estimates without bounds are waited for in vain, which is said.
    let text = "SELECT city, round(sum(price), -3) AS paid FROM 'in' GROUP BY city";
    let told = query(&scratch, text, &["--online", "--until", "error=30%"]).expect(0, &[]).stdout.clone();
    assert!(told.contains("error=30% was met at no look"), "{told}");
}

/// The looks of a query, and its answer behind them.
#[track_caller]
fn looks(scratch: &Scratch, text: &str, more: &[&str]) -> (Vec<Value>, Value) {
    let told = query(scratch, text, &[&["--online", "--json"], more].concat()).expect(0, &[]).stdout.clone();
    let mut lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answer = lines.pop().unwrap();
    (lines, answer)
}

#[test]
fn joins_with_small_tables_are_shown_before_they_are_done() {
    let scratch = sales();
    fs::write(scratch.path("capitals.csv"), "land,capital,people\nnorway,Oslo,5\nitaly,Rome,59\nperu,Lima,34\n")
        .unwrap();
    let join = |what: &str| format!("SELECT {what}");
    let queries = [
        // The large table left and right, one table looked up by what another has given, a join that keeps rows without any.
        join("country, count(*) AS n, sum(price) AS paid FROM 'in' JOIN 'cities.csv' ON city = name GROUP BY country"),
        join(
            "country, avg(price) AS mean FROM 'cities.csv' RIGHT JOIN 'in' ON city = name WHERE id % 3 > 0 GROUP BY country",
        ),
        join(
            "capital, sum(price * people) AS paid FROM 'in' JOIN 'cities.csv' ON city = name JOIN 'capitals.csv' ON country = land WHERE people > 1 GROUP BY capital",
        ),
        join("city, count(*) AS n FROM 'in' WHERE city IN (SELECT name FROM 'cities.csv') GROUP BY city"),
        join(
            "city, count(*) AS n FROM 'in' WHERE NOT EXISTS (SELECT 1 FROM 'cities.csv' WHERE name = city) GROUP BY city",
        ),
        join("count(*) AS n FROM 'in' WHERE price > (SELECT avg(people) FROM 'capitals.csv')"),
        join(
            "coalesce(country, 'none') AS c, count(*) AS n FROM 'in' LEFT JOIN (SELECT name, min(country) AS country FROM 'cities.csv' GROUP BY name) ON city = name GROUP BY c ORDER BY n DESC LIMIT 2",
        ),
    ];
    for text in &queries {
        let batch = query(&scratch, text, &["--json"]).expect(0, &[]).json();
        let (seen, answer) = looks(&scratch, text, &["--seed", "5"]);
        let sorted = |answer: &Value| {
            let mut rows: Vec<String> = answer["rows"].as_array().unwrap().iter().map(Value::to_string).collect();
            rows.sort();
            rows
        };
        assert_eq!(sorted(&answer), sorted(&batch), "{text}");
        assert!(!sorted(&answer).is_empty(), "{text}");
        assert!(seen.len() > 5 && seen.last().unwrap()["final"] == true, "{text}: {seen:?}");
        let bounded = seen[seen.len() - 2]["groups"].as_array().unwrap().iter();
        assert!(
            bounded.flat_map(|group| group["values"].as_array().unwrap()).any(|value| value["low"].is_number()),
            "{text}"
        );
    }
    // Groups that are put in order by what is known of them, which is not only what is asked.
    let text = "SELECT country, sum(price) / count(*) AS mean FROM 'in' JOIN 'cities.csv' ON city = name GROUP BY country ORDER BY count(*) DESC";
    let (seen, answer) = looks(&scratch, text, &[]);
    assert_eq!(
        answer["rows"].as_array().unwrap().iter().map(|row| &row["country"]).collect::<Vec<_>>(),
        ["norway", "italy"]
    );
    for look in &seen {
        let keys: Vec<&Value> = look["groups"].as_array().unwrap().iter().map(|group| &group["key"][0]).collect();
        assert_eq!(keys, ["norway", "italy"], "{look}");
    }
    assert!(seen.len() > 5 && seen.last().unwrap()["final"] == true, "{seen:?}");
    let explained = query(&scratch, &format!("EXPLAIN {}", queries[2]), &[]).expect(0, &[]).stdout.clone();
    assert!(explained.contains("with what step 2 has for each row"), "{explained}");
    let rows = |text: &str| {
        let answer = csv(&scratch, text);
        let mut rows: Vec<String> = answer.lines().skip(1).map(str::to_owned).collect();
        rows.sort();
        rows
    };
    let [lima, oslo, rome] = [0, 1, 2].map(|at| totals()[at].1);
    // Rows of the small table that match none are known to no task alone.
    let outer = |kind: &str| {
        format!("SELECT country, count(id) AS n FROM 'in' {kind} JOIN 'cities.csv' ON city = name GROUP BY country")
    };
    let of_cities = ["france,0".to_owned(), format!("italy,{rome}"), format!("norway,{oslo}")];
    assert_eq!(rows(&outer("RIGHT")), of_cities);
    assert_eq!(rows(&outer("FULL")), [&[format!(",{lima}")][..], &of_cities].concat());
    // Rows that are left out need not have a key, and keys need not be as columns are read.
    fs::write(scratch.path("numbers.csv"), "number,kind\n100,odd\n").unwrap();
    let text = "SELECT kind, count(*) AS n FROM 'in' JOIN 'numbers.csv' ON 100 / (id % 2) = number WHERE id % 2 = 1 GROUP BY kind";
    assert_eq!(rows(text), ["odd,12000"]);
    let text = "SELECT country, count(*) AS n FROM 'in' JOIN 'cities.csv' ON replace(city, 'o', '0') = replace(name, 'o', '0') GROUP BY country";
    assert_eq!(rows(text), of_cities[1..]);
    // The first groups of one order are put into another one.
    let text = "SELECT * FROM (SELECT city, count(*) AS n FROM 'in' GROUP BY city ORDER BY n DESC LIMIT 1) AS most ORDER BY city";
    let (seen, answer) = looks(&scratch, text, &[]);
    assert_eq!(answer["rows"], json!([{ "city": "oslo", "n": oslo }]));
    assert!(seen.len() > 5 && seen.iter().all(|look| look["groups"].as_array().unwrap().len() == 1), "{seen:?}");
    // Each of two rows of a key would be one of the answer: that is a join.
    fs::write(scratch.path("twice.csv"), "name,day\noslo,1\noslo,2\nrome,1\n").unwrap();
    let text = "SELECT day, count(*) AS n FROM 'in' JOIN 'twice.csv' ON city = name GROUP BY day";
    let told = query(&scratch, text, &["--online"]).expect(0, &[]).stdout.clone();
    assert!(told.contains("a table has several rows of one key (name) for each row of another"), "{told}");
    let (seen, answer) = looks(&scratch, text, &[]);
    let days: BTreeMap<u64, u64> = answer["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["day"].as_u64().unwrap(), row["n"].as_u64().unwrap()))
        .collect();
    assert_eq!(days, BTreeMap::from([(1, oslo + rome), (2, oslo)]));
    assert!(seen.is_empty(), "{seen:?}");
}

#[test]
fn what_is_wrong_in_files_ends_an_early_answer_as_it_ends_another() {
    let scratch = sales();
    query(&scratch, "SELECT * FROM 'in'", &["--format", "parquet", "--output", "whole", "--row-group-rows", "500"])
        .expect(0, &[]);
    let whole = fs::read(scratch.path("whole").join(&parts(&scratch.path("whole"))[0])).unwrap();
    fs::write(scratch.path("cut.parquet"), &whole[..whole.len() / 2]).unwrap();
    // Bytes of pages in the middle, which have a checksum or are packed.
    let mut broken = whole.clone();
    broken[whole.len() / 3..][..40].fill(0xff);
    fs::write(scratch.path("broken.parquet"), broken).unwrap();
    for online in [&[][..], &["--online"]] {
        for (text, told) in [
            (
                TOTALS.replace("in", "cut.parquet"),
                "cut.parquet is damaged at its footer: the file does not end with PAR1",
            ),
            (
                "SELECT city, sum(id) AS s, sum(price) AS paid FROM 'broken.parquet' GROUP BY city".to_owned(),
                "broken.parquet is damaged at row group",
            ),
            ("SELECT sum(id * 9223372036854775) AS s FROM 'in'".to_owned(), "arithmetic overflow"),
            ("SELECT city, sum(id / (id - 4321)) AS s FROM 'in' GROUP BY city".to_owned(), "divide by zero"),
        ] {
            let run = query(&scratch, &text, online);
            run.expect(1, &[told]);
        }
    }
}

#[test]
fn groups_that_are_asked_for_are_followed_however_few_rows_they_have() {
    // More groups than are followed, each with a row in six files; those with the largest values come last by their keys.
    const GROUPS: usize = 40_000;
    const LARGE: usize = 5;
    let scratch = Scratch::new();
    let mut files = vec![String::from("k,v\n"); FILES];
    for group in 0..GROUPS {
        let is_large = group >= GROUPS - LARGE;
        for row in 0..6 {
            let mixed = (6 * group + row).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let value = if is_large { 1_000 * (GROUPS - group) } else { mixed % 10 };
            files[mixed % FILES].push_str(&format!("{}{group:05},{value}\n", if is_large { "z" } else { "a" }));
        }
    }
    fs::create_dir(scratch.path("many")).unwrap();
    (0..).zip(files).for_each(|(file, rows)| fs::write(scratch.path(&format!("many/{file:02}.csv")), rows).unwrap());
    let text = "SELECT k, sum(v) AS s FROM 'many' GROUP BY k ORDER BY s DESC LIMIT 5";
    let mut command = command(&["query", text, "--online", "--json", "--seed", "1", "--memory", "1GiB"]);
    command.current_dir(scratch.path("."));
    let told = finish(command).expect(0, &[]).stdout.clone();
    let mut looks: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answer = looks.pop().unwrap();
    let largest: Vec<&str> = answer["rows"].as_array().unwrap().iter().flat_map(|row| row["k"].as_str()).collect();
    assert_eq!(largest, ["z39995", "z39996", "z39997", "z39998", "z39999"]);
    let last = &looks[looks.len() - 2];
    assert!(last["blocks_seen"].as_u64().unwrap() < FILES as u64 && last["groups_seen"] == 8_192, "{last}");
    let shown: Vec<&str> =
        last["groups"].as_array().unwrap().iter().flat_map(|group| group["key"][0].as_str()).collect();
    // The fourth was in no file that had been read when it was chosen which are followed.
    assert_eq!(shown[..4], ["z39995", "z39996", "z39997", "z39999"], "{last}");
}

#[test]
fn tables_of_few_rows_or_groups_are_answered_early_as_at_once() {
    let scratch = sales();
    fs::write(scratch.path("none.csv"), "a,b\n").unwrap();
    fs::write(scratch.path("one.csv"), "a,b\n1,x\n").unwrap();
    fs::create_dir(scratch.path("other")).unwrap();
    fs::write(scratch.path("other/1.csv"), "city,price\noslo,1\n").unwrap();
    fs::write(scratch.path("other/2.csv"), "price,city,more\n2.5,oslo,x\n,rome,\n").unwrap();
    for (text, rows) in [
        ("SELECT b, count(*) AS n FROM 'none.csv' GROUP BY b", 0),
        ("SELECT count(*) AS n, sum(length(a)) AS s FROM 'none.csv'", 1),
        ("SELECT b, sum(a) AS s FROM 'one.csv' GROUP BY b", 1),
        ("SELECT count(*) AS n, avg(price) AS m FROM 'in'", 1),
        ("SELECT id, count(*) AS n FROM 'in' GROUP BY id ORDER BY n DESC, id LIMIT 40", 40),
        ("SELECT city, count(*) AS n FROM 'in' WHERE price > 1e9 GROUP BY city", 0),
        ("SELECT count(*) AS n, sum(price) AS s FROM 'in' WHERE price > 1e9", 1),
        ("SELECT city, count(more) AS n, sum(price) AS s FROM 'other' GROUP BY city", 2),
    ] {
        let batch = query(&scratch, text, &["--json"]).expect(0, &[]).json();
        let (looks, answer) = looks(&scratch, text, &[]);
        assert_eq!(answer["rows"], batch["rows"], "{text}");
        assert_eq!(answer["rows"].as_array().unwrap().len(), rows, "{text}");
        let last = looks.last().unwrap();
        assert_eq!((&last["final"], last["groups"].as_array().unwrap().len()), (&json!(true), rows), "{text}: {last}");
    }
}

#[test]
fn what_would_be_divided_by_zero_is_no_estimate_and_ends_no_query() {
    let scratch = sales();
    let none = "sum(CASE WHEN price > 1e9 THEN price ELSE 0.0 END)";
    let text = format!("SELECT city, sum(price) / {none} AS part, count(*) AS n FROM 'in' GROUP BY city");
    let batch = query(&scratch, &text, &["--json"]).expect(0, &[]).json();
    let (looks, answer) = looks(&scratch, &text, &[]);
    assert_eq!(answer["rows"], batch["rows"]);
    assert_eq!(answer["rows"].as_array().unwrap().len(), 3);
    for look in &looks[..looks.len() - 1] {
        for group in look["groups"].as_array().unwrap() {
            let part = &group["values"][0];
            assert!(part["estimate"].is_null() && part["reason"].is_string() && part["low"].is_null(), "{look}");
            assert!(group["values"][1]["estimate"].is_number(), "{look}");
        }
    }
    let having = format!(
        "SELECT city, count(*) AS n FROM 'in' GROUP BY city HAVING sum(price) / {none} > 1 ORDER BY n DESC LIMIT 2"
    );
    let batch = query(&scratch, &having, &["--json"]).expect(0, &[]).json();
    assert_eq!(self::looks(&scratch, &having, &[]).1["rows"], batch["rows"]);
}

#[test]
fn guaranteed_bounds_of_a_query_hold_and_are_waited_for() {
    let scratch = sales();
    query(
        &scratch,
        "SELECT id, city, CAST(id % 100 AS SMALLINT) AS small FROM 'in'",
        &["--format", "parquet", "--output", "whole", "--row-group-rows", "100"],
    )
    .expect(0, &[]);
    let from = "FROM 'whole' GROUP BY town";
    // Of a column of fewer bytes, and beside what is computed, files say as much.
    let computed =
        "upper(city) AS town, count(*) AS n, sum(id) AS s, sum(small) AS t, avg(small) AS m, sum(id + 1) AS u";
    for (text, names) in [
        (format!("SELECT city AS town, count(*) AS n, sum(id) AS s {from}"), &["n", "s"][..]),
        (format!("SELECT {computed} {from}"), &["n", "s", "t", "m", "u"]),
    ] {
        let (shown, answer) = looks(&scratch, &text, &["--bounds", "guaranteed"]);
        let mut bounded: BTreeMap<&str, u64> = BTreeMap::new();
        for look in &shown[..shown.len() - 1] {
            for (group, row) in look["groups"].as_array().unwrap().iter().zip(answer["rows"].as_array().unwrap()) {
                assert_eq!(group["key"][0], row["town"]);
                for (value, name) in group["values"].as_array().unwrap().iter().zip(names) {
                    let Some((low, high)) = value["low"].as_f64().zip(value["high"].as_f64()) else { continue };
                    // Sums of whole numbers are texts.
                    let exact = row[name].as_f64().or_else(|| row[name].as_str()?.parse().ok()).unwrap();
                    assert!(value["kind"] == "guaranteed" && low <= exact && exact <= high, "{value} {exact}");
                    *bounded.entry(name).or_default() += 1;
                }
            }
        }
        let known: Vec<&str> = names.iter().copied().filter(|name| *name != "u").collect();
        assert_eq!(bounded.keys().copied().collect::<BTreeSet<_>>(), known.into_iter().collect(), "{text}");
        assert!(bounded.values().all(|bounded| *bounded > 6), "{bounded:?}");
    }
    let counts = "SELECT city, count(*) AS n FROM 'whole' GROUP BY city";
    let (shown, answer) = looks(&scratch, counts, &["--until", "error=90%:guaranteed"]);
    assert!(answer["online"]["ended"].as_str().unwrap().contains("was met"), "{answer}");
    let last = &shown[shown.len() - 1];
    assert!(last["final"] == false && last["groups"][0]["values"][0]["kind"] == "guaranteed", "{last}");
}

#[test]
fn of_many_groups_the_twenty_largest_are_waited_for_unless_all_are() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("many")).unwrap();
    for file in 0..FILES {
        let mixed = |row: usize| (file * ROWS + row).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let rows: String = (0..ROWS).map(|row| format!("a{:02},{}\n", mixed(row) % 20, row % 7)).collect();
        // Five groups have one row each, so that they have no bounds at any look.
        let rare = if file % 16 == 3 { format!("b{file},1\n") } else { String::new() };
        fs::write(scratch.path(&format!("many/{file:02}.csv")), format!("k,v\n{rows}{rare}")).unwrap();
    }
    let text = "SELECT k, count(*) AS n, sum(v) AS s FROM 'many' GROUP BY k";
    let ended = |until: &str| looks(&scratch, text, &["--until", until]).1["online"]["ended"].clone();
    assert_eq!(ended("error=30%"), "error=30% was met");
    let all = ended("error=30%:all");
    assert!(all.as_str().unwrap().contains("was met at no look"), "{all}");
}

#[test]
fn what_is_no_number_is_shown_as_such() {
    let scratch = sales();
    fs::create_dir(scratch.path("few")).unwrap();
    for file in 0..FILES {
        let row = |row: usize| match (file, row) {
            (7, 10) => "a,nan\n".to_owned(),
            _ => format!("{},{}\n", ["a", "b"][row % 2], (file * row) % 100),
        };
        let rows: String = (0..ROWS).map(row).collect();
        fs::write(scratch.path(&format!("few/{file:02}.csv")), format!("k,x\n{rows}")).unwrap();
    }
    let text = "SELECT k, sum(x) AS s, count(x) AS n FROM 'few' GROUP BY k";
    let (looks, answer) = looks(&scratch, text, &[]);
    let batch = query(&scratch, text, &["--json"]).expect(0, &[]).json();
    assert_eq!(answer["rows"], batch["rows"]);
    assert_eq!(answer["rows"][0], json!({ "k": "a", "s": "NaN", "n": 12_000 }));
    let of = |look: &Value| {
        let groups = look["groups"].as_array().unwrap();
        groups.iter().find(|group| group["key"] == json!(["a"])).unwrap()["values"].clone()
    };
    let (last, before) = (of(&looks[looks.len() - 1]), of(&looks[looks.len() - 2]));
    assert_eq!(
        (&last[0]["estimate"], &last[0]["low"], &last[1]["low"]),
        (&json!("NaN"), &Value::Null, &json!(12_000.0))
    );
    // All blocks but some were read, and that with what is no number with them.
    let why = json!("what was read so far gives no number");
    assert_eq!((&before[0]["estimate"], &before[0]["reason"]), (&Value::Null, &why), "{before}");
    assert!(before[1]["low"].is_f64() || before[1]["reason"].is_string(), "{before}");
}

#[test]
fn a_query_shows_what_a_cluster_knows_and_whoever_comes_late_sees_the_last_look() {
    let cluster = Cluster::of(sales(), &["--memory", "96MiB"]);
    let scratch = &cluster.scratch;
    let (input, steps) = (scratch.text("in"), scratch.text("steps"));
    let text = format!(
        "SELECT city, count(*) AS n, sum(price) AS paid FROM '{input}' GROUP BY city ORDER BY paid DESC LIMIT 2"
    );
    let alone = query(scratch, &text, &["--json", "--local"]).expect(0, &[]).json();
    let online = ["query", &text, "--online", "--seed", "3", "--scratch", &steps, "--json"];
    let (told, _) = cluster.run(&online, |_, _| ());
    let mut lines: Vec<Value> =
        told.expect(0, &[]).stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answer = lines.pop().unwrap();
    assert_eq!(answer["rows"], alone["rows"], "{answer}");
    let last = lines.last().unwrap();
    assert_eq!(last["seed"], 3, "{last}");
    assert_eq!((&last["final"], &last["groups"][0]["key"][0]), (&json!(true), &alone["rows"][0]["city"]), "{last}");
    // The same as a spec, which nobody waits for.
    let spec = json!({ "kind": "query", "sql": text, "scratch": steps, "online": true, "seed": 3 });
    fs::write(scratch.path("job.json"), spec.to_string()).unwrap();
    let ask = |args: &[&str]| exobus(&[args, &["--cluster", &cluster.url]].concat());
    let submitted = ask(&["submit", &scratch.text("job.json"), "--wait", "--json"]).expect(0, &[]).json();
    let job = submitted["job"].as_str().unwrap();
    let result = ask(&["job", job, "result", "--json"]).expect(0, &[]).json();
    assert_eq!((&result["value"]["rows"], &result["value"]["is_all"]), (&alone["rows"], &json!(true)), "{result}");
    let answered = &result["value"]["online"];
    assert_eq!(
        (&answered["ended"]["exact"], &answered["snapshot"]["groups"]),
        (&json!({ "missed": null }), &last["groups"])
    );
    let late = ask(&["job", job, "estimate", "--json"]).expect(0, &[]).json();
    assert_eq!((&late["final"], &late["groups"]), (&json!(true), &last["groups"]));
    // What ends before its time leaves nothing, and the next query is answered.
    let (stopped, _) = cluster.run(&[&online[..], &["--until", "error=50%"]].concat(), |_, _| ());
    assert!(stopped.expect(0, &[]).stdout.contains("error=50% was met"), "{stopped:#?}");
    assert_eq!(names(&scratch.path("steps")), [""; 0]);
    let (again, _) = cluster.run(&["query", &text, "--scratch", &steps, "--json"], |_, _| ());
    assert_eq!(again.expect(0, &[]).json()["rows"], alone["rows"]);
    cluster.end();
}

#[test]
fn tables_are_joined_by_the_columns_that_both_have() {
    let scratch = sales();
    fs::write(scratch.path("countries.csv"), "city,country\noslo,norway\nrome,italy\nparis,france\n").unwrap();
    let text = "SELECT country, count(*) AS n, sum(price) AS paid FROM 'in' JOIN 'countries.csv' USING (city) GROUP BY country";
    let (looks, answer) = looks(&scratch, text, &[]);
    let [_, (_, oslo, oslo_paid), (_, rome, rome_paid)] = totals()[..] else { panic!("three cities") };
    let expected = json!([
        { "country": "italy", "n": rome, "paid": rome_paid },
        { "country": "norway", "n": oslo, "paid": oslo_paid },
    ]);
    assert_eq!(answer["rows"], expected);
    assert!(looks.len() > 5, "{answer}");
    assert_eq!(query(&scratch, text, &["--json"]).expect(0, &[]).json()["rows"], expected);
}
