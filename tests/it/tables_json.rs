//! JSON lines by every verb over tables, as they are and packed.

use std::fmt::Write as _;
use std::fs;

use crate::support::{self, Scratch, exobus, parts};

const ROWS: u64 = 20_000;

/// Two files, with numbers, texts, lists and objects, some of which are missing.
fn write_table(scratch: &Scratch) -> String {
    fs::create_dir_all(scratch.path("table")).unwrap();
    for file in 0..2 {
        let mut text = String::new();
        for row in 0..ROWS / 2 {
            let id = row * 2 + file;
            let tags = ["null", "[]", "[\"a\"]", "[\"b\", null]"][id as usize % 4];
            write!(text, "{{\"id\": {id}, \"city\": \"c\\\"{}\", \"tags\": {tags}", id % 10).unwrap();
            if !id.is_multiple_of(3) {
                write!(text, ", \"at\": {{\"x\": {}.25, \"y\": [{{\"z\": {id}}}, null]}}", id % 100).unwrap();
            }
            text.push_str("}\n");
        }
        fs::write(scratch.path(&format!("table/{file}.ndjson")), text).unwrap();
    }
    scratch.text("table")
}

/// Rows and hash of what is in a folder or a file, with options of reading.
fn validated(input: &str, more: &[&str]) -> (u64, String) {
    let found = exobus(&[&["validate", input, "--json"], more].concat()).expect(0, &[]).json();
    (found["rows"].as_u64().unwrap(), found["row_hash"].to_string())
}

#[test]
fn json_lines_go_through_every_verb_and_come_back_packed_and_by_way_of_parquet() {
    let scratch = Scratch::new();
    let table = write_table(&scratch);
    let expected = validated(&table, &[]);
    assert_eq!(expected.0, ROWS);
    let run = |verb: &[&str], input: &str, output: &str, more: &[&str]| {
        let (input, output) = (scratch.text(input), scratch.text(output));
        let args = [verb, &[&input, "--output", &output, "--verify", "--json"], more].concat();
        let summary = support::with_own_spill(&scratch, &args).expect(0, &[]).json();
        assert_eq!(summary["row_hash_in"], summary["row_hash_out"]);
        output
    };
    // As what was read, then packed in both ways, as Parquet, and as JSON lines again.
    let sorted = run(&["sort", "--key", "city,id:desc"], "table", "sorted", &["--files", "3"]);
    assert_eq!(parts(&scratch.path("sorted")), [0, 1, 2].map(|at| format!("part-0000{at}.jsonl")));
    assert_eq!(validated(&sorted, &["--key", "city,id:desc"]), expected);
    let first = fs::read_to_string(scratch.path("sorted/part-00000.jsonl")).unwrap();
    let line = r#"{"id":19990,"city":"c\"0","tags":["a"],"at":{"x":90.25,"y":[{"z":19990},null]}}"#;
    assert_eq!(first.lines().next(), Some(line));
    let shuffled = run(&["shuffle", "--seed", "7"], "sorted", "shuffled", &["--compression", "gzip", "--files", "2"]);
    assert_eq!(parts(&scratch.path("shuffled")), ["part-00000.jsonl.gz", "part-00001.jsonl.gz"]);
    assert_eq!(validated(&shuffled, &[]), expected);
    let deduped = run(&["dedupe", "--key", "id"], "shuffled", "deduped", &["--compression", "zstd", "--files", "1"]);
    assert_eq!(parts(&scratch.path("deduped")), ["part-00000.jsonl.zst"]);
    assert_eq!(validated(&deduped, &["--key", "id"]), expected);
    let parquet = run(&["convert"], "deduped", "parquet", &["--format", "parquet"]);
    assert_eq!(validated(&parquet, &["--key", "id"]), expected);
    let again = run(&["convert"], "parquet", "again", &["--format", "jsonl", "--rows-per-file", "7000"]);
    assert_eq!(parts(&scratch.path("again")).len(), 3);
    assert_eq!(validated(&again, &["--key", "id"]), expected);
    let schema = "id int64,\ncity text,\ntags list(text),\nat struct(x float64, y list(struct(z int64)))\n";
    for folder in [&table, &parquet, &again] {
        assert_eq!(exobus(&["show", folder, "--schema"]).expect(0, &[]).stdout, schema);
    }
    let some = ["--where", "at.x > 99 and id < 1000", "--select", "tags,id", "--rows", "1000000", "--json"];
    let shown = [&table, &parquet].map(|folder| {
        let shown = exobus(&[&["show", folder][..], &some].concat()).expect(0, &[]).json();
        let mut rows: Vec<_> = shown["rows"].as_array().unwrap().iter().map(ToString::to_string).collect();
        rows.sort();
        rows
    });
    assert_eq!((shown[0].len(), &shown[0]), (6, &shown[1]));
    exobus(&["explain", "sort", &table, "--key", "id"]).expect(0, &[]);
}

#[test]
fn values_of_two_types_are_refused_with_both_places_unless_they_are_to_be_text() {
    let scratch = Scratch::new();
    fs::write(scratch.path("a.jsonl"), "{\"id\": 1, \"v\": 5}\n{\"id\": 2, \"v\": {\"w\": [ 1.50 ]}}\n").unwrap();
    fs::write(scratch.path("a.csv"), "id\n1\n").unwrap();
    let (input, output) = (scratch.text("a.jsonl"), scratch.text("out"));
    let convert = ["convert", &input, "--output", &output, "--files", "1"];
    let texts =
        ["a.jsonl, line 1:", "a.jsonl, line 2)", "column v has 5 here", "{\"w\": [ 1.50 ]} (in", "--json-mixed text"];
    support::with_own_spill(&scratch, &convert).expect(1, &texts);
    support::with_own_spill(&scratch, &[&convert[..], &["--json-mixed", "text", "--verify"]].concat()).expect(0, &[]);
    let written = fs::read_to_string(scratch.path("out/part-00000.jsonl")).unwrap();
    assert_eq!(written, "{\"id\":1,\"v\":\"5\"}\n{\"id\":2,\"v\":\"{\\\"w\\\":[1.50]}\"}\n");
    // Who leaves the column out needs no type of it.
    exobus(&["show", &input, "--select", "id"]).expect(0, &[]);
    exobus(&["show", &input, "--json-mixed", "text"]).expect(0, &[]);
    let text = scratch.text("a.csv");
    let other = ["convert", &text, "--output", &scratch.text("other"), "--json-mixed", "text"];
    support::with_own_spill(&scratch, &other).expect(2, &["--json-mixed", "a.csv", "csv", "leave it out"]);
    exobus(&["show", &text, "--json-mixed", "text"]).expect(2, &["--json-mixed", "leave it out"]);
}

#[test]
fn what_is_no_json_lines_is_told_by_file_line_and_what_to_do() {
    let scratch = Scratch::new();
    let many = "{\"id\": 1}\n".repeat(12_000);
    let deep =
        |levels: usize| format!("{{\"id\": 1}}\n{{\"id\": 2, \"a\": {}1{}}}\n", "[".repeat(levels), "]".repeat(levels));
    for (name, text, texts) in [
        ("document.jsonl", "[\n{\"id\": 1}\n]\n".to_owned(), &["line 1", "JSON document", "jq -c '.[]'"][..]),
        ("pretty.jsonl", "{\n  \"id\": 1\n}\n".to_owned(), &["line 1", "ends before its object does", "jq"]),
        (
            "late.jsonl",
            format!("{many}{{\"id\": \"x\"}}\n"),
            &["line 12001", "column id", "--schema \"id text\" with --json-mixed text"],
        ),
        (
            "key.jsonl",
            format!("{many}{{\"id\": 1, \"new\": [0.5]}}\n"),
            &["line 12001", "\"new\"", "--schema \"new list(float64)\""],
        ),
        ("deep.jsonl", deep(10_000), &["line 2", "column a", "16 deep", "--json-mixed text"]),
        ("deeper.jsonl", deep(1_000_000), &["line 2", "column a", "16 deep"]),
        ("twice.jsonl", "{\"id\": 1, \"id\": 2}\n".to_owned(), &["line 1", "column id", "twice"]),
        ("nan.jsonl", "{\"id\": NaN}\n".to_owned(), &["line 1", "JSON has no NaN"]),
        ("a.json", "{\"id\": 1}\n".to_owned(), &[".json is none of the extensions", "--input-format jsonl", "jq"]),
    ] {
        fs::write(scratch.path(name), text).unwrap();
        let (input, output) = (scratch.text(name), scratch.text("out"));
        let args = ["sort", &input, "--output", &output, "--key", "id"];
        support::with_own_spill(&scratch, &args).expect(1, &[&[name], texts].concat());
        assert!(support::names(&scratch.path("out")).iter().all(|name| !name.starts_with("part-")));
    }
    exobus(&["show", &scratch.text("a.json"), "--input-format", "jsonl"]).expect(0, &[]);
}

#[test]
fn what_json_has_not_is_refused_where_it_is_written() {
    let scratch = Scratch::new();
    fs::write(scratch.path("a.csv"), "id,x\n1,0.5\n2,nan\n3,-inf\n").unwrap();
    let (input, output) = (scratch.text("a.csv"), scratch.text("out"));
    let convert = ["convert", &input, "--output", &output, "--format", "jsonl"];
    support::with_own_spill(&scratch, &convert).expect(1, &["row 1 of the file", "NaN", "column x", "--where"]);
    let some = ["--where", "x <> 'nan' and x <> '-inf'"];
    support::with_own_spill(&scratch, &[&convert[..], &some].concat()).expect(0, &[]);
    assert_eq!(fs::read_to_string(scratch.path("out/part-00000.jsonl")).unwrap(), "{\"id\":1,\"x\":0.5}\n");
    fs::write(scratch.path("records"), [7; 100]).unwrap();
    let (input, output) = (scratch.text("records"), scratch.text("bytes"));
    let convert = ["convert", &input, "--output", &output, "--format", "jsonl"];
    support::with_own_spill(&scratch, &convert).expect(2, &["column key", "JSON is UTF-8", "Parquet"]);
}
