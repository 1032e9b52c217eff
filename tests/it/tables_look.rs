//! Tables as people look at them: `show` and `validate`.

use crate::support;

use std::fs;

use support::{Scratch, exobus};

use crate::tables_read::write_table;

/// The table as Parquet, sorted by its numbers, in row groups of 500 rows.
fn sorted(scratch: &Scratch) -> String {
    let (input, output) = (write_table(scratch), scratch.text("sorted"));
    let args = [
        "sort",
        &input,
        "--output",
        &output,
        "--key",
        "id",
        "--row-group-rows",
        "500",
        "--files",
        "3",
        "--format",
        "parquet",
    ];
    support::with_own_spill(scratch, &args).expect(0, &[]);
    output
}

#[test]
fn the_first_rows_of_a_table_are_shown_as_wide_as_there_is_room() {
    let scratch = Scratch::new();
    let output = sorted(&scratch);
    let shown = exobus(&["show", &output, "--rows", "3"]).expect(0, &[]).stdout.clone();
    let expected = [
        "id    │ city   │ price   │ day",
        "int64 │ text   │ float64 │ date",
        "──────┼────────┼─────────┼───────────",
        "    0 │ null   │     0.5 │ 2024-01-01",
        "    1 │ city 1 │     1.5 │ 2024-01-02",
        "    2 │ city 2 │     2.5 │ 2024-01-03",
        "the first 3 rows",
    ];
    assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
    assert!(!shown.contains('\u{1b}'));
    let narrow = exobus(&["show", &output, "--width", "20", "--rows", "1"]).expect(0, &[]).stdout.clone();
    assert!(narrow.lines().take(4).all(|line| line.chars().count() <= 20), "{narrow}");
    assert!(narrow.contains("more columns: "), "{narrow}");
    // Rows behind the first file, and of text.
    for input in [&output, &scratch.text("table")] {
        let args =
            ["show", input, "--where", "id in (3, 19998) and city is not null", "--select", "price,id", "--json"];
        let shown = exobus(&args).expect(0, &[]).json();
        assert_eq!(shown["rows"], serde_json::json!([{ "price": 3.5, "id": 3 }, { "price": 98.5, "id": 19998 }]));
        assert_eq!(shown["is_all"], true);
    }
    // The files behind those that have the rows are not looked at.
    fs::write(scratch.path("sorted/part-00009.parquet"), "PAR1 but no more").unwrap();
    exobus(&["show", &output, "--partial"]).expect(0, &[]);
    exobus(&["show", &output, "--partial", "--schema"]).expect(1, &["part-00009.parquet"]);
    exobus(&["show", &output, "--where", "ids = 3"]).expect(2, &["did you mean id?"]);
    exobus(&["show", &scratch.text("nothing")]).expect(3, &["nothing"]);
}

#[test]
fn columns_are_shown_as_they_can_be_given_back() {
    let scratch = Scratch::new();
    let output = sorted(&scratch);
    let shown = exobus(&["show", &output, "--schema"]).expect(0, &[]).stdout.clone();
    assert_eq!(shown, "id int64,\ncity text,\nprice float64,\nday date\n");
    let table = scratch.text("table");
    assert_eq!(exobus(&["show", &table, "--schema"]).expect(0, &[]).stdout, shown);
    let types = shown.replace("price float64", "price decimal(10,2)");
    let given = exobus(&["show", &table, "--schema-text", &types, "--json", "--rows", "1"]).expect(0, &[]).json();
    assert_eq!((&given["columns"][2]["type"], &given["rows"][0]["price"]), (&"decimal(10,2)".into(), &"0.50".into()));
}

#[test]
fn what_files_say_of_themselves_is_shown_and_what_they_do_not() {
    let scratch = Scratch::new();
    let output = sorted(&scratch);
    let said = exobus(&["show", &output, "--stats", "--json"]).expect(0, &[]).json();
    assert_eq!((&said["rows"], &said["files"]), (&20_000.into(), &3.into()));
    let column = |at: usize| (&said["columns"][at]["nulls"], &said["columns"][at]["min"], &said["columns"][at]["max"]);
    assert_eq!(column(0), (&0.into(), &0.into(), &19_999.into()));
    assert_eq!(column(1), (&2858.into(), &"city 0".into(), &"city 9".into()));
    assert_eq!(column(3), (&0.into(), &"2024-01-01".into(), &"2024-01-28".into()));
    let text = exobus(&["show", &scratch.text("table"), "--stats"]).expect(0, &[]).stdout.clone();
    assert!(
        text.contains("rows: the files do not say, 2 files") && text.contains("? where not all files say it: Parquet"),
        "{text}"
    );
}

#[test]
fn records_are_shown_too() {
    let scratch = Scratch::new();
    let records = scratch.text("part-00000");
    exobus(&["generate", "--ascii", "--records", "7", &records]).expect(0, &[]);
    let shown = exobus(&["show", &records, "--rows", "2"]).expect(0, &[]).stdout.clone();
    assert!(
        shown.contains("the first 2 rows") && shown.contains("FixedSizeBinary(10)") && shown.lines().count() == 6,
        "{shown}"
    );
    let key: String = fs::read(&records).unwrap()[100..110].iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(shown.contains(&format!("x'{key}'")), "{shown}");
    assert!(exobus(&["show", &records, "--stats"]).expect(0, &[]).stdout.contains("7 rows, 1 file, 700 B"));
    let schema = exobus(&["show", &records, "--schema"]).expect(0, &[]).stdout.clone();
    assert_eq!(schema, "key FixedSizeBinary(10),\nvalue FixedSizeBinary(90)\n");
    let found = exobus(&["show", &records, "--where", "key < ''", "--json"]).expect(0, &[]).json();
    assert_eq!(found["rows"], serde_json::json!([]));
    let torn = scratch.text("torn");
    fs::write(&torn, [0; 130]).unwrap();
    exobus(&["show", &torn]).expect(2, &["torn", "130 bytes", "--input-format"]);
}

#[test]
fn what_is_no_file_is_told_with_what_to_do() {
    let scratch = Scratch::new();
    let input = write_table(&scratch);
    let types = ["show", &input, "--schema", "id int32, price text"];
    exobus(&types).expect(2, &["\"id int32, price text\" is no file", "--schema-text \"id int32, price text\""]);
    let missing = exobus(&["show", &input, "--schema", "missing"]);
    missing.expect(3, &["missing: look up: No such file"]);
    fs::create_dir_all(scratch.path("nested/deep")).unwrap();
    fs::write(scratch.path("nested/deep/a.csv"), "id\n1\n").unwrap();
    let (nested, pattern) = (scratch.text("nested"), scratch.text("nested/**/*.csv"));
    exobus(&["show", &nested]).expect(3, &["no files in this directory", "deep", &format!("'{pattern}'")]);
    exobus(&["show", &pattern]).expect(0, &[]);
    let (output, key) = (scratch.text("out"), ["--key", "id"]);
    for option in ["--files", "--partitions"] {
        let args = [&["sort", &input, "--output", &output, option, "0"][..], &key].concat();
        exobus(&args).expect(2, &["--files", "--partitions", "from 1 to 1000000"]);
    }
}

#[test]
fn packed_text_that_was_written_is_shown_and_checked_as_other_files_are() {
    let scratch = Scratch::new();
    let (input, output) = (write_table(&scratch), scratch.text("packed"));
    let args = ["sort", &input, "--output", &output, "--key", "id:desc", "--files", "2", "--compression", "gzip"];
    support::with_own_spill(&scratch, &[&args[..], &["--verify"]].concat()).expect(0, &[]);
    assert_eq!(support::names(&scratch.path("packed")), ["_exobus.json", "part-00000.csv.gz", "part-00001.csv.gz"]);
    let shown = exobus(&["show", &output, "--where", "id = 3", "--select", "price", "--json"]).expect(0, &[]).json();
    assert_eq!(shown["rows"], serde_json::json!([{ "price": 3.5 }]));
    let found = exobus(&["validate", &output, "--key", "id:desc", "--json"]).expect(0, &[]).json();
    assert_eq!((&found["rows"], &found["unordered_rows"], &found["manifests"]), (&20_000.into(), &0.into(), &1.into()));
    let part = scratch.path("packed/part-00001.csv.gz");
    let mut bytes = fs::read(&part).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(&part, bytes).unwrap();
    exobus(&["validate", &output]).expect(1, &["part-00001.csv.gz", "cannot be unpacked"]);
}

#[test]
fn tables_are_validated_by_order_rows_hash_and_manifest() {
    let scratch = Scratch::new();
    let output = sorted(&scratch);
    let validate = |more: &[&str]| exobus(&[&["validate", &output, "--json"][..], more].concat());
    let found = validate(&["--key", "id"]).expect(0, &[]).json();
    assert_eq!((&found["rows"], &found["unordered_rows"], &found["manifests"]), (&20_000.into(), &0.into(), &1.into()));
    // Text and Parquet have the same hash, and rows of the former are in order, too.
    let of_text = exobus(&["validate", &scratch.text("table"), "--key", "id", "--json"]).expect(0, &[]).json();
    assert_eq!(of_text["row_hash"], found["row_hash"]);
    let by_city = validate(&["--key", "city,id"]).expect(1, &[]).json();
    assert!(by_city["unordered_rows"].as_u64().unwrap() > 1_000, "{by_city}");
    assert_eq!(by_city["first_unordered"]["row"], 1);
    assert!(validate(&[]).expect(0, &[]).json()["unordered_rows"].is_null());
    let falling = exobus(&["validate", &output, "--key", "id:desc"]).expect(1, &[]).stdout.clone();
    assert!(falling.contains("ERROR - there are 19 999 unordered rows"), "{falling:#?}");
    validate(&["--key", "idd"]).expect(2, &["did you mean id?"]);
    // Files in another order are out of order where one ends and the next begins.
    let part = |number: u32| format!("{output}/part-0000{number}.parquet");
    let turned = exobus(&["validate", &part(1), &part(0), "--key", "id", "--json"]).expect(1, &[]).json();
    assert_eq!((&turned["unordered_rows"], &turned["first_unordered"]["row"]), (&1.into(), &0.into()));
    assert!(turned["first_unordered"]["file"].as_str().unwrap().ends_with("part-00000.parquet"));
    assert_eq!(turned["first_unordered"]["place"], "row group 0, row 0");
    let turned = exobus(&["validate", &part(1), &part(0), "--key", "id"]).expect(1, &[]).stdout.clone();
    assert!(turned.contains("part-00000.parquet, row group 0, row 0\n"), "{turned}");
    assert!(turned.contains("ERROR - there is 1 unordered row\n"), "{turned}");
    // In text, the line.
    let text = scratch.text("lines.csv");
    fs::write(&text, "id,note\n1,\"two\nlines\"\n\n5,x\n3,y\n4,z\n2,v\n").unwrap();
    let found = exobus(&["validate", &text, "--key", "id", "--where", "id != 4"]).expect(1, &[]).stdout.clone();
    assert!(found.contains("First unordered row: ") && found.contains("lines.csv, line 6\n"), "{found}");
    assert!(found.contains("ERROR - there are 2 unordered rows\n"), "{found}");
    // What is in the folder is not what its manifest says.
    fs::copy(part(1), part(0)).unwrap();
    fs::remove_file(part(2)).unwrap();
    let found = exobus(&["validate", &output]).expect(1, &[]).stdout.clone();
    assert!(found.contains("part-00000.parquet has ") && found.contains("part-00002.parquet is not there"), "{found}");
    fs::copy(part(1), part(7)).unwrap();
    assert!(exobus(&["validate", &output]).expect(1, &[]).stdout.contains("part-00007.parquet is more"));
}
