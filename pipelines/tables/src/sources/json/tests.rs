use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use proptest::prelude::*;

use super::super::{FixedBudget, Misfit, SourceBatch, parse_schema, print_schema};
use super::*;
use crate::samples::{MemoryFile, Value, row};

fn budget(bytes: u64) -> (Arc<FixedBudget>, Arc<dyn MemoryBudget>) {
    let fixed = Arc::new(FixedBudget::new(bytes));
    (fixed.clone(), fixed)
}

fn plenty() -> Arc<dyn MemoryBudget> {
    budget(1 << 30).1
}

fn mixed() -> JsonOptions {
    JsonOptions { mixed: JsonMixed::Text, read: None }
}

/// With these types, and those that are inferred.
fn opened(text: impl Into<Vec<u8>>, options: &JsonOptions, said: &str) -> Result<JsonFile, SourceError> {
    let file = JsonFile::open(MemoryFile::input("t.jsonl", text.into()), options)?;
    let said = if said.is_empty() { NamedTypes::new() } else { parse_schema(said)? };
    let types = infer(std::slice::from_ref(&file), options, &said, &plenty())?;
    file.with_types(&types)
}

fn read_all(file: &JsonFile) -> Result<Vec<SourceBatch>, SourceError> {
    let mut all = Vec::new();
    for split in file.splits() {
        all.extend(file.read(split.index, None, &plenty())?.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(all)
}

fn read(text: impl Into<Vec<u8>>, options: &JsonOptions, said: &str) -> Result<Vec<SourceBatch>, SourceError> {
    read_all(&opened(text, options, said)?)
}

fn one(text: &str, said: &str) -> RecordBatch {
    read(text, &JsonOptions::default(), said).unwrap().remove(0).batch
}

fn rows(batches: &[SourceBatch]) -> Vec<Vec<Value>> {
    batches.iter().flat_map(|one| (0..one.batch.num_rows()).map(|at| row(&one.batch, at))).collect()
}

fn types(file: &JsonFile) -> String {
    print_schema(file.schema().fields().iter().map(|field| (field.name().as_str(), field.data_type())))
}

/// Why a file is not read.
fn refused(text: impl Into<Vec<u8>>) -> String {
    read(text, &JsonOptions::default(), "").unwrap_err().to_string()
}

#[track_caller]
fn has(error: &str, texts: &[&str]) {
    assert!(texts.iter().all(|text| error.contains(text)), "{error}, without one of {texts:?}");
}

#[test]
fn columns_have_the_first_type_that_all_values_have() {
    let long = "1".repeat(50);
    let longer = format!("{{\"a\": {long}}}\n{{\"a\": -1}}");
    for (text, expected) in [
        ("", ""),
        ("{}", ""),
        (r#"{"b": 1, "a": true}"#, "b int64, a bool"),
        ("{\"a\": null}\n{\"b\": \"x\"}", "a text, b text"),
        ("{\"a\": null}\n{\"a\": 5}", "a int64"),
        (r#"{"a": -9223372036854775808}"#, "a int64"),
        (r#"{"a": 18446744073709551615}"#, "a uint64"),
        ("{\"a\": 18446744073709551615}\n{\"a\": -1}", "a decimal(38,0)"),
        (&longer, "a decimal(76,0)"),
        ("{\"a\": 1}\n{\"a\": 1.0}", "a float64"),
        ("{\"a\": 1e3}\n{\"a\": 123456789012345680000}", "a float64"),
        (r#"{"a": "2024-01-31"}"#, "a text"),
        (r#"{"a": []}"#, "a list(text)"),
        ("{\"a\": []}\n{\"a\": [1, null]}\n{\"a\": [2.5]}", "a list(float64)"),
        (r#"{"a": {}}"#, "a struct()"),
        (
            "{\"a\": {}}\n{\"a\": {\"c\": 1}}\n{\"a\": {\"b\": [[]], \"c\": null}}",
            "a struct(c int64, b list(list(text)))",
        ),
        (r#"{"a b": {"c,d": 1}}"#, r#""a b" struct("c,d" int64)"#),
        (r#"{"\u00e9\n": 1}"#, "\"\u{e9}\n\" int64"),
    ] {
        assert_eq!(types(&opened(text, &JsonOptions::default(), "").unwrap()), expected, "{text}");
    }
}

#[test]
fn rows_are_objects_whose_missing_keys_are_null() {
    let text = "\u{feff}{\"a\": 1, \"t\": \"x\\n\\u00e9\\ud83d\\ude00\", \"l\": [{\"b\": 1}, null, {}]}\r\n\n  \t\n{\"l\": null, \"a\": null}\n{\"t\": \"\"}";
    let batch = one(text, "");
    assert_eq!(batch.num_rows(), 3);
    let (a, t) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_string::<i32>());
    assert_eq!((a.value(0), a.null_count()), (1, 2));
    assert_eq!((t.value(0), t.is_null(1), t.is_null(2), t.value(2)), ("x\n\u{e9}\u{1f600}", true, false, ""));
    let list = batch.column(2).as_list::<i32>();
    assert_eq!((list.value_length(0), list.is_null(1), list.is_null(2)), (3, true, true));
    let items = list.value(0);
    let numbers = items.as_struct().column(0);
    assert_eq!([items.is_null(0), items.is_null(1), items.is_null(2)], [false, true, false]);
    assert_eq!([numbers.is_null(0), numbers.is_null(1), numbers.is_null(2)], [false, true, true]);
}

#[test]
fn types_that_are_said_are_read_from_what_json_has_for_them() {
    let said = "d date, t timestamp[us, UTC], p decimal(10,2), m map(text, list(int64)), n null, f float32, u uint8, later int64";
    let text = r#"{"d": "2024-01-31", "t": "2024-01-31T12:00:00+02:00", "p": -12.50, "m": {"x": [1], "": []}, "n": null, "f": 0.1, "u": 255}"#;
    let file = opened(text, &JsonOptions::default(), said).unwrap();
    assert_eq!(types(&file), said);
    let batch = read_all(&file).unwrap().remove(0).batch;
    let shown = (0..8).map(|column| crate::look::Value::of(batch.column(column), 0).to_string());
    let expected = [
        "2024-01-31",
        "2024-01-31 10:00:00Z",
        "-12.50",
        "[{keys: x, values: [1]}, {keys: '', values: []}]",
        "null",
        "0.1",
        "255",
        "null",
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

#[test]
fn decimals_that_are_said_are_read_from_texts_and_exponents_as_far_as_they_fit() {
    let text =
        "{\"p\": \"12.50\"}\n{\"p\": 1.25e1}\n{\"p\": \"-1.2e-1\"}\n{\"p\": \"\\u0037\"}\n{\"p\": 0e99}\n{\"p\": null}";
    let file = opened(text, &JsonOptions::default(), "p decimal(10,2)").unwrap();
    let batch = read_all(&file).unwrap().remove(0).batch;
    let shown: Vec<_> = (0..6).map(|row| crate::look::Value::of(batch.column(0), row).to_string()).collect();
    assert_eq!(shown, ["12.50", "12.50", "-0.12", "7.00", "0.00", "null"]);
    for (value, schema) in [
        ("\"12.505\"", "p decimal(11,3)"),
        ("12505e-3", "p decimal(11,3)"),
        ("\"1e9\"", "p decimal(12,2)"),
        ("\"twelve\"", "p text"),
        ("\"\"", "p text"),
        ("\" 1\"", "p text"),
        ("true", "p text"),
    ] {
        let error = read(format!("{{\"p\": {value}}}"), &JsonOptions::default(), "p decimal(10,2)").unwrap_err();
        let SourceError::Misfit(misfit) = &error else { panic!("{error}") };
        assert_eq!((misfit.line, misfit.value.as_str(), misfit.schema.as_str()), (1, value, schema));
        let options = if misfit.with_mixed { mixed() } else { JsonOptions::default() };
        read(format!("{{\"p\": {value}}}"), &options, schema).unwrap();
    }
    // What was inferred from whole numbers takes no text for one.
    let text = format!("{{\"p\": {}}}\n", "9".repeat(20)).repeat(INFERRED_ROWS) + "{\"p\": \"7\"}";
    assert!(matches!(read(text, &JsonOptions::default(), "").unwrap_err(), SourceError::Misfit(_)));
}

#[test]
fn values_that_have_no_one_type_are_refused_with_both_places_or_are_text() {
    for (text, path, one, other) in [
        ("{\"a\": 1}\n\n{\"a\": \"x\"}", "column a", "1 (in t.jsonl, line 1)", "\"x\" here"),
        ("{\"a\": true}\n{\"a\": 1}", "column a", "true here", "1 (in t.jsonl, line 2)"),
        ("{\"a\": {\"b\": [1, [2]]}}", "column a.b[], which is within a,", "1 here", "[2] (in t.jsonl, line 1)"),
        ("{\"a\": {\"b\": 1}}\n{\"a\": []}", "column a", "[] here", "{\"b\": 1} (in t.jsonl, line 1)"),
        ("{\"a\": 0.5}\n{\"a\": 9007199254740993}", "column a", "0.5 here", "9007199254740993 (in t.jsonl, line 2)"),
        ("{\"a\": 1e400}", "column a", "larger than any", "float64"),
    ] {
        has(
            &refused(text),
            &["t.jsonl, line ", path, one, other, "--json-mixed text", "--schema \"a text\"", "--select"],
        );
        opened(text, &mixed(), "").unwrap();
    }
    let text = "{\"a\": 1, \"b\": {\"c\": [ 1 ]}}\n{\"a\": \"x\\\"\", \"b\": {\"c\": 1e400}}\n{\"a\": { \"y\" : [ 1.50 , \" z \" ] }}\n{\"a\": null}";
    let batches = read(text, &mixed(), "").unwrap();
    let texts = batches[0].batch.column(0).as_string::<i32>();
    assert_eq!((0..3).map(|at| texts.value(at)).collect::<Vec<_>>(), ["1", "x\"", "{\"y\":[1.50,\" z \"]}"]);
    assert!(texts.is_null(3));
    let inside = batches[0].batch.column(1).as_struct().column(0).as_string::<i32>();
    assert_eq!((inside.value(0), inside.value(1)), ("[1]", "1e400"));
}

/// Each error names what lets the value in, and that does.
#[test]
fn a_value_behind_the_rows_that_types_were_inferred_from_is_an_error_that_says_what_lets_it_in() {
    let first = r#"{"i": 1, "f": 0.5, "t": "x", "b": true, "l": [1], "s": {"x": {"y": 1}, "z": [{"w": 1}]}}"#;
    let begin = format!("{first}\n").repeat(INFERRED_ROWS);
    for (last, path, value, schema, is_mixed) in [
        (r#"{"i": 2.5}"#, "i", "2.5", "i float64", false),
        (r#"{"i": 9223372036854775808}"#, "i", "9223372036854775808", "i decimal(38,0)", false),
        (r#"{"i": "7"}"#, "i", "\"7\"", "i text", true),
        (r#"{"f": 9007199254740993}"#, "f", "9007199254740993", "f text", true),
        (r#"{"f": 1e999}"#, "f", "1e999", "f text", true),
        (r#"{"t": 5}"#, "t", "5", "t text", true),
        (r#"{"t": {"u": 5}}"#, "t", "{...}", "t text", true),
        (r#"{"b": 0}"#, "b", "0", "b text", true),
        (r#"{"l": [1, 2, 0.5]}"#, "l[2]", "0.5", "l list(float64)", false),
        (r#"{"l": "none"}"#, "l", "\"none\"", "l text", true),
        (r#"{"s": [1]}"#, "s", "[...]", "s text", true),
        (
            r#"{"s": {"x": {"y": 0.5}}}"#,
            "s.x.y",
            "0.5",
            "s struct(x struct(y float64), z list(struct(w int64)))",
            false,
        ),
        (
            r#"{"s": {"z": [{}, {"w": "v"}]}}"#,
            "s.z[1].w",
            "\"v\"",
            "s struct(x struct(y int64), z list(struct(w text)))",
            true,
        ),
    ] {
        let text = format!("{begin}{last}\n");
        let error = read(text.clone(), &JsonOptions::default(), "").unwrap_err();
        let SourceError::Misfit(misfit) = &error else { panic!("{error}") };
        let Misfit { line, column, value: found, schema: says, with_mixed, .. } = &**misfit;
        let expected = (INFERRED_ROWS as u64 + 1, path, value, schema, is_mixed);
        assert_eq!((*line, column.as_str(), found.as_str(), says.as_str(), *with_mixed), expected);
        assert_eq!(error.to_string().contains("with --json-mixed text"), is_mixed);
        let options = if is_mixed { mixed() } else { JsonOptions::default() };
        read(text, &options, schema).unwrap();
    }
}

#[test]
fn a_key_behind_the_rows_that_types_were_inferred_from_is_an_error_that_says_what_lets_it_in() {
    let begin = "{\"a\": 1, \"s\": {\"x\": 1}}\n".repeat(INFERRED_ROWS);
    for (last, place, schema) in [
        (r#"{"new": {"b": [1, "x"]}}"#, "line 10001: the key \"new\"", "new struct(b list(text))"),
        (r#"{"s": {"y": 0.5}}"#, "line 10001: column s: the key \"y\"", "s struct(x int64, y float64)"),
    ] {
        let text = format!("{begin}{last}");
        let error = refused(text.clone());
        has(&error, &[place, &format!("--schema {schema:?}")]);
        assert_eq!(error.contains("--select"), !place.contains("column s"));
        read(text, &mixed(), schema).unwrap();
    }
    // Who says which columns are read wants no others, of whatever type they are.
    let options = JsonOptions { read: Some(vec!["a".to_owned()]), ..JsonOptions::default() };
    let text = format!("{{\"s\": 1, \"a\": 1}}\n{begin}{{\"new\": 1, \"a\": 2}}");
    let file = opened(text, &options, "").unwrap();
    let batches: Vec<_> = file.read(0, Some(&[1]), &plenty()).unwrap().map(|one| one.unwrap()).collect();
    let rows: usize = batches.iter().map(|one| one.batch.num_rows()).sum();
    assert_eq!((rows, batches[0].batch.num_columns()), (INFERRED_ROWS + 2, 1));
}

#[test]
fn what_is_no_json_is_told_by_line_and_byte_with_what_to_do() {
    let deep = format!("{{\"a\": {}1{}}}", "[".repeat(16), "]".repeat(16));
    for (text, texts) in [
        (&b"{\"a\": 1}\n{\"a\": 1,}\n"[..], &["line 2", "byte 9 of the line", "trailing comma"][..]),
        (b"{\"a\": 1}\n{\"a\": 2", &["line 2", "ends before its object does", "cut off"]),
        (b"{\n  \"a\": 1\n}\n", &["line 1", "ends before its object does", "jq -c"]),
        (b"[\n  {\"a\": 1}\n]\n", &["line 1", "the row is a list", "one JSON document", "jq -c '.[]'"]),
        (b"[{\"a\": 1}, {\"a\": 2}]", &["line 1", "the row is a list", "jq -c '.[]'"]),
        (b"{\"a\": 1}\n7\n", &["line 2", "the row is a number", "rows are JSON objects"]),
        (b"{\"a\": 1}\n\"x\"\n", &["line 2", "the row is text"]),
        (b"null\n", &["line 1", "the row is null"]),
        (b"a,b\n1,2\n", &["line 1", "no JSON at byte 1", "expected value"]),
        (b"{\"a\": 1} {\"a\": 2}\n", &["line 1", "byte 10", "one object and nothing behind it"]),
        (b"{\"a\": NaN}\n", &["line 1", "byte 7", "JSON has no NaN", "null"]),
        (b"{\"a\": -Infinity}\n", &["line 1", "JSON has no -Infinity"]),
        (b"{\"a\": None}\n", &["line 1", "None is not how JSON writes it"]),
        (b"{\"a\": 007}\n", &["line 1", "invalid number"]),
        (b"{'a': 1}\n", &["line 1", "byte 2", "double quotes"]),
        (b"{\"a\": \"\\ud800\"}\n", &["line 1", "column a", "hex escape", "write the characters themselves"]),
        (b"{\"a\": \"x\ty\"}\n", &["line 1", "control character", "\\t"]),
        (b"{\"a\": 1}\n{\"a\": \"\xff\"}\n", &["line 2", "UTF-8", "byte 8", "iconv"]),
        (b"\xff\xfe{\0\"\0", &["UTF-16", "iconv"]),
        (b"{\"a\": 1, \"b\": {\"c\": 1, \"c\": 2}}\n", &["line 1", "column b.c", "twice", "rename"]),
        (b"{\"a\": 1, \"a\": 1}\n", &["line 1", "column a", "twice"]),
        (b"{\"a\": 1, \"A\": 1}\n", &["column a", "column A", "rename"]),
        (b"{\"\": 1}\n", &["no name"]),
        (b"PAR1\x15\x04\x15\0", &["Parquet", "--input-format parquet"]),
        (deep.as_bytes(), &["line 1", "16 deep", "--json-mixed text", "--schema \"a text\""]),
    ] {
        has(&refused(text), &[&["t.jsonl"], texts].concat());
        // Behind the rows that types are inferred from it is said likewise.
        let more = [&b"{\"a\": 1, \"b\": {\"c\": 1}}\n".repeat(INFERRED_ROWS)[..], text].concat();
        if texts.iter().any(|of| of.contains("byte") || of.contains("the row is") || of.contains("twice")) {
            let line = |line: &str| {
                line.strip_prefix("line ").map(|at| format!("line {}", INFERRED_ROWS + at.parse::<usize>().unwrap()))
            };
            let error = refused(more);
            texts
                .iter()
                .filter(|of| !of.starts_with("column"))
                .for_each(|of| has(&error, &[line(of).as_deref().unwrap_or(of)]));
        }
    }
}

#[test]
fn no_depth_overflows_the_stack() {
    for levels in [17, 10_000, 1_000_000] {
        for (open, close) in [("[", "]"), ("{\"x\":", "}")] {
            let value = format!("{}1{}", open.repeat(levels), close.repeat(levels));
            let text = format!("{{\"id\": 1}}\n{{\"id\": 2, \"a\": {value}}}\n");
            has(&refused(text.clone()), &["t.jsonl, line 2", "column a", "16 deep", "--json-mixed text"]);
            let batch = read(text.clone(), &mixed(), "a text").unwrap().remove(0).batch;
            assert_eq!(batch.column(1).as_string::<i32>().value(1), value);
            // Who leaves the column out reads the rest.
            let options = JsonOptions { read: Some(vec!["id".to_owned()]), ..JsonOptions::default() };
            let file = opened(text.clone(), &options, "").unwrap();
            assert_eq!(file.read(0, Some(&[0]), &plenty()).unwrap().next().unwrap().unwrap().batch.num_rows(), 2);
            // Also where the type of the column is known, and none is that deep.
            for said in
                ["a text", "a int64", "a list(list(text))", "a struct(x struct(x text))", "a map(text, text)", "a null"]
            {
                read(text.clone(), &JsonOptions::default(), said).unwrap_err();
            }
            let cut = format!("{{\"id\": 2, \"a\": {}", open.repeat(levels));
            has(&refused(cut), &["ends before its object does"]);
        }
    }
}

#[test]
fn keys_of_maps_that_are_twice_are_refused() {
    let error =
        read("{\"m\": {\"x\": 1, \"y\": 1, \"x\": 2}}", &JsonOptions::default(), "m map(text, int64)").unwrap_err();
    has(&error.to_string(), &["line 1", "column m", "\"x\" twice"]);
}

#[test]
fn keys_that_are_data_are_told_to_be_a_map() {
    let row = |at: usize| {
        format!(
            "{{\"m\": {{{}}}}}\n",
            (0..100).map(|key| format!("\"k{}\": 1", at * 100 + key)).collect::<Vec<_>>().join(", ")
        )
    };
    let text: String = (0..1_001).map(row).collect();
    has(&refused(text.clone()), &["line 1000", "different keys", "map(text, int64)"]);
    assert_eq!(rows(&read(text, &JsonOptions::default(), "m map(text, int64)").unwrap()).len(), 1_001);
}

#[test]
fn packed_files_are_read_as_one_split() {
    let text: String = (0..5_000).map(|at| format!("{{\"a\": {at}, \"b\": [\"{at}\"]}}\n")).collect();
    let expected = rows(&read(text.clone(), &JsonOptions::default(), "").unwrap());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    for packed in [gzip.finish().unwrap(), zstd::bulk::compress(text.as_bytes(), 3).unwrap()] {
        let file = opened(packed, &JsonOptions::default(), "").unwrap();
        assert_eq!(file.splits().len(), 1);
        assert!(rows(&read_all(&file).unwrap()) == expected);
    }
}

#[test]
fn a_line_that_is_too_long_is_refused() {
    let text = format!("{{\"a\": 1}}\n{{\"a\": \"{}\"}}", "x".repeat(2 * super::super::text::ROW_BYTES_MAX));
    has(&refused(text), &["line 2", "more than", "the most that a row may have"]);
}

/// Objects of two bytes that have a hundred columns each.
#[test]
fn what_a_row_makes_grow_is_asked_for_before_it_does() {
    let fields: Vec<_> = (0..100).map(|at| format!("f{at} int64")).collect();
    let said = format!("a list(struct({}))", fields.join(", "));
    let text = format!("{{\"a\": [{}{{}}]}}", "{},".repeat(100_000));
    let file = opened(text, &JsonOptions::default(), &said).unwrap();
    let (fixed, small) = budget(64 << 20);
    let error = file.read(0, None, &small).unwrap().next().unwrap().unwrap_err();
    assert!(matches!(error, SourceError::Memory { .. }), "{error}");
    assert!(fixed.peak_bytes() <= 64 << 20);
    drop(error);
    assert_eq!(fixed.used_bytes(), 0);
    // Looking asks, too.
    let keys: String = (0..50_000).map(|key| format!("{{\"k{key}\": 1}}\n")).collect();
    let file = JsonFile::open(MemoryFile::input("t.jsonl", keys.into_bytes()), &JsonOptions::default()).unwrap();
    let error = infer(&[file], &JsonOptions::default(), &NamedTypes::new(), &budget(8 << 20).1).unwrap_err();
    assert!(matches!(error, SourceError::Memory { .. }), "{error}");
}

#[test]
fn types_are_those_that_all_files_show_together() {
    let options = JsonOptions::default();
    let open = |text: &str| JsonFile::open(MemoryFile::input("t.jsonl", text.as_bytes().to_vec()), &options).unwrap();
    let files = [open("{\"b\": 1, \"a\": {\"x\": 1}}"), open("{\"c\": [], \"a\": {\"y\": 1}, \"b\": 0.5}")];
    let types = infer(&files, &options, &parse_schema("later date").unwrap(), &plenty()).unwrap();
    let printed = print_schema(types.iter().map(|(name, of)| (name.as_str(), of)));
    assert_eq!(printed, "b float64, a struct(x int64, y int64), c list(text), later date");
}

/// A value of JSON, of which one column has many kinds.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        (-1e9..1e9_f64).prop_map(|number| format!("{number:?}")),
        "[ -~\u{e9}]{0,6}".prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
            prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|fields| {
                let fields: Vec<_> = fields.into_iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
                format!("{{{}}}", fields.join(", "))
            }),
        ]
    })
}

fn lines() -> impl Strategy<Value = String> {
    let row = prop::collection::btree_map("[x-z]", value(), 0..3).prop_map(|fields| {
        let fields: Vec<_> = fields.into_iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
        format!("{{{}}}", fields.join(", "))
    });
    let line = prop_oneof![9 => row, 1 => Just(String::new())];
    let ends = prop::collection::vec((line, prop_oneof![Just("\n"), Just("\r\n")]), 0..12);
    ends.prop_map(|lines| lines.into_iter().flat_map(|(line, end)| [line, end.to_owned()]).collect())
}

/// Five splits are within one line: they have no row.
#[test]
fn small_splits_have_the_rows_of_the_file_and_little_more_is_read_than_the_text() {
    let row = |n: usize| {
        format!("{{\"n\": {n}, \"text\": \"{}\"}}\n", "some text".repeat(if n == 9_000 { 40_000 } else { n % 4 }))
    };
    let text: String = (0..20_000).map(row).collect();
    let (input, read_bytes) = MemoryFile::counted("t.jsonl", text.clone().into_bytes());
    let types = parse_schema("n int64, text text").unwrap();
    let whole = JsonFile::open(input, &JsonOptions::default()).unwrap().with_types(&types).unwrap();
    let cut = whole.clone().in_splits_of(1);
    assert_eq!((whole.splits().len(), cut.splits().len()), (1, text.len().div_ceil(64 << 10)));
    read_bytes.store(0, std::sync::atomic::Ordering::Relaxed);
    let of_splits = read_all(&cut).unwrap();
    let read_bytes = read_bytes.load(std::sync::atomic::Ordering::Relaxed);
    assert!(rows(&of_splits) == rows(&read_all(&whole).unwrap()));
    assert!(
        cut.splits().len() - of_splits.iter().map(|one| one.split).collect::<std::collections::BTreeSet<_>>().len()
            >= 4
    );
    // Each split with what may be of the row that ends behind it, and twice the large row at most.
    let most = text.len() * 5 / 4 + 2 * row(9_000).len();
    assert!(read_bytes < most as u64, "{read_bytes} bytes were read of {}, and {most} are enough", text.len());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn splits_of_any_size_have_the_rows_of_the_file(text in lines(), split_bytes in 1..60_u64, mark in any::<bool>()) {
        let count = text.lines().filter(|line| !line.trim().is_empty()).count();
        let text = if mark { format!("\u{feff}{text}") } else { text };
        let whole = opened(text, &mixed(), "").unwrap();
        let expected = rows(&read_all(&whole).unwrap());
        prop_assert_eq!(expected.len(), count);
        // A split ends behind the mark before the text.
        let cut = JsonFile { split_bytes: split_bytes.max(4), ..whole.clone() };
        let batches = read_all(&cut).unwrap();
        prop_assert!(rows(&batches) == expected);
        for batch in batches {
            for row in 0..batch.batch.num_rows() as u64 {
                cut.line_of(batch.split, batch.first_row + row, &plenty()).unwrap();
            }
        }
    }

    /// Where all values of a column have one type, there is nothing to be mixed, and else it is refused.
    #[test]
    fn rows_are_the_same_unless_values_are_mixed(text in lines()) {
        let (plain, as_text) = (read(text.clone(), &JsonOptions::default(), ""), read(text, &mixed(), "").unwrap());
        match plain {
            Ok(plain) => prop_assert!(rows(&plain) == rows(&as_text)),
            Err(error) => prop_assert!(error.to_string().contains("--json-mixed text"), "{}", error),
        }
    }

    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(&b"{}[]\":,\\ntrue10e.-\n"[..])], 0..200)) {
        for options in [JsonOptions::default(), mixed()] {
            let _ = opened(bytes.clone(), &options, "").and_then(|file| read_all(&JsonFile { split_bytes: 50, ..file }));
        }
    }
}
