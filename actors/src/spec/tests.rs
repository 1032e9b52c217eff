//! Texts of specs, good and bad, and what is said of them.

use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::futures::Futures;
use crate::task::JobError;

/// What the program of these tests is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    word: String,
    #[serde(default)]
    times: u32,
    #[serde(default, with = "exobus_files::paths")]
    input: PathBuf,
}

fn told_paths(told: &Told) -> Paths {
    Paths { reads: vec![told.input.clone()], writes: Vec::new() }
}

#[crate::program(name = "spec.tells", version = 2, paths = told_paths)]
async fn tells(_futures: Futures, told: Told) -> Result<String, JobError> {
    Ok(told.word)
}

#[crate::program(name = "spec.tells", version = 1)]
async fn tells_before(_futures: Futures) -> Result<(), JobError> {
    Ok(())
}

const FIELDS: &[Field] = &[
    Field::new("inputs", Takes::Reads, r#"["/data/in"]"#, "What is read.").needed(Need::Always),
    Field::new("output", Takes::Writes, r#""/data/out""#, "Where it is written.").needed(Need::ToRun),
    Field::new("columns", Takes::Texts, r#"["a", "b"]"#, "Columns."),
    Field::new("count", Takes::Number(1, 9), "3", "How many.").or("2"),
    Field::new("size", Takes::Size, r#""64MiB""#, "How large."),
    Field::new("color", Takes::Word(|| vec!["red", "green"]), r#""red""#, "Which color."),
    Field::new("ops", Takes::Words(|| vec!["sum", "min"]), r#"["sum"]"#, "What is done."),
    Field::new("dry", Takes::Flag, "true", "Whether it is dry."),
];

fn planned(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    let word = format!("{:?} {:?} {:?}", fields.texts("columns"), fields.size("size"), fields.flag("dry"));
    let input = fields.paths("inputs").remove(0);
    let times = fields.number("count").unwrap_or(2) as u32;
    Plan::of("spec.tells", &Told { word, times, input })
}

crate::job_kind!("painting", "Paints what there is.", FIELDS, planned, planned);

fn parse(text: &str) -> Spec {
    Spec::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Code, place and message of what is wrong with a text.
#[track_caller]
fn refused(text: &str) -> (SpecCode, String, String) {
    let error = Spec::parse(text.as_bytes()).and_then(|spec| spec.plan()).expect_err(text);
    assert_eq!(error.to_string().chars().filter(|char| char.is_control()).count(), 0, "{error}");
    (error.code, error.at.unwrap_or_default(), error.message)
}

#[test]
fn toml_and_json_say_the_same() {
    let toml = "kind = 'sort'\nname = 'my sort'\npriority = -7\ntimeout = '1m 30s'\nidempotency_key = 'k 1'\n\
                inputs = ['/a', '/b']\nratio = 0.5\n[more]\ndeep = [{ x = 1 }]\n";
    let json = r#" {"more": {"deep": [{"x": 1}]}, "kind": "sort", "name": "my sort", "priority": -7, "timeout": "90s",
                    "idempotency_key": "k 1", "inputs": ["/a", "/b"], "ratio": 5e-1}"#;
    let spec = parse(toml);
    assert_eq!(spec, parse(json));
    assert_eq!((spec.kind.as_str(), spec.name.as_deref(), spec.priority), ("sort", Some("my sort"), -7));
    assert_eq!((spec.timeout, spec.key.as_deref()), (Some(Duration::from_secs(90)), Some("k 1")));
    assert_eq!(
        Value::Object(spec.fields.clone()),
        json!({"inputs": ["/a", "/b"], "ratio": 0.5, "more": {"deep": [{"x": 1}]}})
    );
    assert_eq!(spec.canonical(), parse(json).canonical());
    assert_eq!(parse(std::str::from_utf8(&spec.canonical()).unwrap()), spec);
}

#[test]
fn fields_are_said_otherwise() {
    let set = |pairs: &[(&str, &str)]| {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Spec::parse_with(b"kind = 'sort'\ncount = 1\n[params]\nword = 'x'", &pairs)
    };
    let spec = set(&[
        ("count", "7"),
        ("output", "/out dir"),
        ("params.word", "'7'"),
        ("params.a.b", "[1]"),
        ("priority", "3"),
    ]);
    let spec = spec.unwrap();
    let fields = json!({"count": 7, "output": "/out dir", "params": {"word": "7", "a": {"b": [1]}}});
    assert_eq!((Value::Object(spec.fields), spec.priority), (fields, 3));
    // What looks like more than a value is a text.
    let spec = set(&[("name", "1\nother = 2")]);
    assert_eq!(spec.unwrap_err().at.as_deref(), Some("name"));
    assert_eq!(set(&[("count.x", "1")]).unwrap_err().code, SpecCode::WrongType);
    assert_eq!(set(&[(&vec!["a"; 9_000].join("."), "1")]).unwrap_err().code, SpecCode::TooDeep);
}

#[test]
fn a_text_that_is_broken_is_refused_with_its_place() {
    use SpecCode::*;
    for (text, code, at) in [
        ("", Missing, "kind"),
        ("kind = ", BadSpec, "line 1, column 8"),
        ("kind = 'sort'\nx = [1,\n  2 3]", BadSpec, "line 3, column 3"),
        ("kind = 'sort'\nkind = 'sort'", BadSpec, "line 2, column 1"),
        ("kind = 'sort'\nwhen = 2024-01-02T03:04:05Z", WrongType, "line 2, column 8"),
        ("kind = 'sort'\nx = [1, nan]", WrongType, "line 2, column 9"),
        ("kind = 'sort'\nx = inf", WrongType, "line 2, column 5"),
        ("kind = 'sort'\nx = 9223372036854775808", WrongType, "line 2, column 5"),
        ("kind = 'sort'\nx = 0xffffffffffffffffff", WrongType, "line 2, column 5"),
        ("kind = 'sort'\nx = 1e999", WrongType, "line 2, column 5"),
        ("{\"kind\": \"sort\",\n \"x\": }", BadSpec, "line 2, column 7"),
        ("{\"kind\": \"sort\"", BadSpec, "line 1, column 15"),
        ("{\"kind\": \"sort\"} x", BadSpec, "line 1, column 18"),
        ("{\"kind\": \"sort\",\n \"kind\": \"sort\"}", BadSpec, "line 2, column 7"),
        ("{\"kind\": \"a\\\"b 99999999999999999999\",\n \"x\": -99999999999999999999}", WrongType, "line 2, column 7"),
        ("{\"kind\": \"sort\", \"x\": 1e999}", BadSpec, "line 1, column 27"),
        ("{\"kind\": \"sort\", \"x\": NaN}", BadSpec, "line 1, column 23"),
        ("kind = 7", WrongType, "kind"),
        ("kind = 'sort'\npriority = 101", Invalid, "priority"),
        ("kind = 'sort'\npriority = '3'", WrongType, "priority"),
        ("kind = 'sort'\ntimeout = '3'", Invalid, "timeout"),
        ("kind = 'sort'\ntimeout = 3", WrongType, "timeout"),
        ("kind = 'sort'\nname = ''", Invalid, "name"),
        ("kind = 'sort'\nidempotency_key = 'a\\u00e9'\n", UnknownKind, "kind"),
        ("kind = 'sort'\nidempotency_key = \"\\u00e9\"", Invalid, "idempotency_key"),
    ] {
        let (found, place, message) = refused(text);
        assert_eq!((found, place.as_str()), (code, at), "{text}: {message}");
    }
    let error = Spec::parse(b"kind = 'sort'\n# \xff").unwrap_err();
    assert_eq!((error.code, error.at.as_deref()), (BadSpec, Some("line 2, column 3")));
}

#[test]
fn a_text_that_is_too_large_or_too_deep_is_refused_with_both_sizes() {
    let large = format!("kind = 'sort'\n#{}", "x".repeat(SPEC_BYTES_MAX));
    let (code, _, message) = refused(&large);
    assert_eq!(code, SpecCode::TooLarge);
    assert!(message.contains(&large.len().to_string()) && message.contains("1048576"), "{message}");

    let lists = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    // The table of all fields is one, too.
    for (depth, is_fine) in [(31, true), (32, false), (81, false), (50_000, false)] {
        let dotted = vec!["a"; depth].join(".");
        for text in [
            format!("kind = 'x'\nx = {}", lists(depth)),
            format!("{{\"kind\": \"x\", \"x\": {}}}", lists(depth)),
            format!("kind = 'x'\n{dotted}.b = 1"),
            format!("kind = 'x'\n[{dotted}]"),
        ] {
            match Spec::parse(text.as_bytes()) {
                Ok(spec) => assert!(is_fine && spec.fields.len() == 1, "{depth}"),
                Err(error) => assert!(!is_fine && error.code == SpecCode::TooDeep, "{depth}: {error}"),
            }
        }
    }
}

#[test]
fn a_kind_is_told_what_it_takes() {
    let spec = parse("kind = 'painting'\ninputs = '/in'\noutput = '/out'\ncolumns = 'a,b'\nsize = '1 KiB'\ncount = 5");
    let plan = spec.plan().unwrap();
    assert_eq!((plan.program.as_str(), &plan.reads[..]), ("spec.tells@2", &[PathBuf::from("/in")][..]));
    let told: Told = rmp_serde::from_slice(&plan.params).unwrap();
    assert_eq!((told.word.as_str(), told.times), ("[\"a\", \"b\"] Some(1024) false", 5));
    let paths = Paths { reads: vec!["/in".into()], writes: vec!["/out".into()] };
    assert_eq!(spec.paths().unwrap(), paths);
    assert!(parse("kind = 'painting'\ninputs = ['/in']").explain().is_ok());
}

#[test]
fn what_a_kind_does_not_take_is_refused_with_its_place_and_what_it_takes() {
    use SpecCode::*;
    let whole = "inputs = ['/in']\noutput = '/out'\n";
    for (text, code, at, said) in [
        ("kind = 'paintin'", UnknownKind, "kind", "did you mean `painting`?"),
        ("kind = 'spec.tell'", UnknownKind, "kind", "did you mean `spec.tells`?"),
        ("kind = 'spec.tells@3'", UnknownKind, "kind", "did you mean `spec.tells@"),
        ("kind = 'nothing of ours'", UnknownKind, "kind", "`exobus schema`"),
        ("kind = 'painting'\ninput = '/a'", UnknownField, "input", "did you mean `inputs`?"),
        ("kind = 'painting'\npriorty = 1", UnknownField, "priorty", "did you mean `priority`?"),
        ("kind = 'painting'\nsomething = 1", UnknownField, "something", "`exobus schema painting`"),
        ("kind = 'painting'\ninputs = '/a'", Missing, "output", "output = \"/data/out\""),
        ("kind = 'painting'\noutput = '/a'", Missing, "inputs", "inputs = [\"/data/in\"]"),
        ("kind = 'painting'\ninputs = []", Invalid, "inputs", "no path"),
        ("kind = 'painting'\ninputs = ['/a', 7]", WrongType, "inputs[1]", "cannot be 7; expected a list of paths"),
        ("kind = 'painting'\ninputs = ['/a', '']", Invalid, "inputs[1]", "a list of paths"),
        ("kind = 'painting'\noutput = ['/a']", WrongType, "output", "cannot be a list; expected a path"),
        ("kind = 'painting'\noutput = \"a\\u0000\"", Invalid, "output", "a path"),
        ("kind = 'painting'\ncount = 10", Invalid, "count", "cannot be 10; expected a whole number from 1 to 9"),
        ("kind = 'painting'\ncount = -1", Invalid, "count", "a whole number"),
        ("kind = 'painting'\ncount = 1.0", WrongType, "count", "a whole number"),
        ("kind = 'painting'\nsize = 7", WrongType, "size", "\"64MiB\""),
        ("kind = 'painting'\nsize = '7 bananas'", Invalid, "size", "\"64MiB\""),
        ("kind = 'painting'\ncolor = 'blue'", Invalid, "color", "cannot be \"blue\"; expected \"red\" or \"green\""),
        ("kind = 'painting'\nops = ['sum', 'max']", Invalid, "ops[1]", "\"sum\" or \"min\""),
        ("kind = 'painting'\nops = 'sum,max'", Invalid, "ops", "\"sum\" or \"min\""),
        ("kind = 'painting'\ndry = 'yes'", WrongType, "dry", "true or false"),
    ] {
        let text = match text.contains("inputs") || text.contains("output") || !text.contains('\n') {
            true => text.to_owned(),
            false => format!("{text}\n{whole}"),
        };
        let (found, place, message) = refused(&text);
        assert_eq!((found, place.as_str()), (code, at), "{text}: {message}");
        assert!(message.contains(said), "{text}: {message}");
    }
}

#[test]
fn a_program_is_a_kind_that_takes_its_parameters() {
    let plan = parse("kind = 'spec.tells'\n[params]\nword = 'hello'\ninput = '/in'").plan().unwrap();
    assert_eq!((plan.program.as_str(), &plan.reads[..]), ("spec.tells@2", &[PathBuf::from("/in")][..]));
    let told: Told = rmp_serde::from_slice(&plan.params).unwrap();
    assert_eq!((told.word.as_str(), told.times), ("hello", 0));
    assert_eq!(parse("kind = 'spec.tells@1'").plan().unwrap().program, "spec.tells@1");
    let relative = parse("kind = 'spec.tells'\n[params]\nword = 'hello'\ninput = 'in'");
    assert_eq!(relative.check_absolute().unwrap_err().code, SpecCode::Invalid);
    for (text, code, at, said) in [
        ("kind = 'spec.tells'", SpecCode::Invalid, "params", "Told"),
        ("kind = 'spec.tells'\nparams = { word = 7 }", SpecCode::Invalid, "params", "expected a string"),
        ("kind = 'spec.tells'\nparams = { words = '' }", SpecCode::Invalid, "params", "unknown field `words`"),
        ("kind = 'spec.tells'\nword = ''", SpecCode::UnknownField, "word", "`params`"),
    ] {
        let (found, place, message) = refused(text);
        assert_eq!((found, place.as_str()), (code, at), "{text}: {message}");
        assert!(message.contains(said), "{text}: {message}");
    }
    assert_eq!(parse("kind = 'spec.tells@1'").explain().unwrap_err().code, SpecCode::Invalid);
}

#[test]
fn a_plan_that_is_too_large_is_refused_with_both_sizes() {
    // No text of a spec is that long, but a kind may make more of it.
    let words = "x".repeat(PLAN_BYTES_MAX);
    let error = Plan::of("spec.tells", &Told { word: words, times: 0, input: PathBuf::new() }).unwrap_err();
    assert_eq!(error.code, SpecCode::TooLarge);
    assert!(error.message.contains("4194304") && error.message.contains("41943"), "{error}");
}

#[test]
fn no_error_and_no_plan_shows_much_of_what_somebody_sent() {
    let secret = "hunter2-".repeat(12) + "\\u0007\\u001b";
    let long = format!("{}{secret}", "/some/where/");
    for text in [
        format!("kind = \"{secret}\""),
        format!("kind = \"painting\"\n\"{secret}\" = 1"),
        format!("kind = \"painting\"\nname = \"{secret}\"\ninputs = \"{long}\""),
        format!("kind = \"painting\"\ninputs = \"/a\"\ncolor = \"{secret}\""),
        format!("kind = \"painting\"\ninputs = \"/a\"\nsize = \"{secret}\""),
        format!("kind = \"painting\"\ntimeout = \"{secret}\""),
        format!("kind = \"spec.tells\"\n\"{secret}\" = \"x\""),
        format!("kind = \"spec.tells\"\nparams = {{ word = \"x\", times = \"{secret}\" }}"),
        format!("kind = \"spec.tells\"\nparams = {{ \"{secret}\" = \"x\" }}"),
        format!("kind = \"spec.tells\"\nparams = \"{secret}\""),
        format!("\"{secret}\" = 1\n\"{secret}\" = 2"),
        format!("{{\"kind\": \"x\", \"{secret}\": 1, \"{secret}\": 2}}"),
        format!("kind = {secret}"),
        format!("x = {}", "9".repeat(90)),
        format!("{{\"x\": {}}}", "9".repeat(90)),
    ] {
        let error = Spec::parse(text.as_bytes()).and_then(|spec| spec.plan()).expect_err(&text);
        let said = format!("{error} {error:?}");
        assert!(!said.contains(&"hunter2-".repeat(6)), "{said}");
        assert!(!said.contains(&"9".repeat(41)) && !said.contains(['\u{7}', '\u{1b}']), "{said}");
    }
    let spec = parse(&format!("kind = \"spec.tells\"\nparams = {{ word = \"{secret}\" }}"));
    let said = format!("{spec:?} {:?}", spec.plan().unwrap());
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn a_message_is_left_as_it_is_but_for_what_it_repeats() {
    let long: String = ('a'..='z').chain('A'..='Z').collect();
    let shown = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLM\u{2026}";
    assert_eq!(conceal(&format!("x {long} y {long}"), &long), format!("x {shown} y {shown}"));
    assert_eq!(conceal("x \u{7} y", "x"), "x \u{fffd} y");
    assert_eq!(conceal(&long, &long[..40]), long);
    assert_eq!(conceal(&format!("{:?}", long.clone() + "\""), &(long + "\"")), format!("\"{shown}\""));
}

#[test]
fn a_kind_has_a_schema_of_its_fields() {
    let schema = (kinds()["painting"].schema)();
    assert_eq!(schema["required"], json!(["kind", "inputs", "output"]));
    assert_eq!(schema["properties"]["kind"]["const"], "painting");
    assert_eq!(schema["properties"]["color"]["enum"], json!(["red", "green"]));
    let count = json!({ "type": "integer", "minimum": 1, "maximum": 9, "default": 2, "examples": [3], "description": "How many." });
    assert_eq!(schema["properties"]["count"], count);
    assert!(schema["properties"]["idempotency_key"].is_object());
    assert!(all_schemas()["oneOf"].as_array().unwrap().contains(&program_schema_without_draft()));
    let example = kinds()["painting"].example_toml();
    assert!(example.contains("\n# count = 3\n") && example.contains("\noutput = \"/data/out\"\n"), "{example}");
    parse(&example).plan().unwrap();
    // What is a comment there is a value that is taken.
    let all = example.lines().map(|line| line.strip_prefix("# ").filter(|line| line.contains(" = ")).unwrap_or(line));
    parse(&all.collect::<Vec<_>>().join("\n")).plan().unwrap();
}

fn program_schema_without_draft() -> Value {
    let mut schema = program_schema();
    schema.as_object_mut().unwrap().remove("$schema");
    schema
}

#[test]
fn paths_become_absolute_and_need_be_no_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let odd = std::path::Path::new(std::ffi::OsStr::from_bytes(b"/odd/\xff"));
    let mut spec = parse("kind = 'painting'\ninputs = ['in', '/a/b']\noutput = 'out'");
    spec.fields["inputs"].as_array_mut().unwrap().push(path_value(odd));
    let error = spec.check_absolute().unwrap_err();
    assert!(error.code == SpecCode::Invalid && error.message.starts_with("\"in\" is relative"), "{error}");
    spec.make_absolute().unwrap();
    spec.check_absolute().unwrap();
    let here = std::env::current_dir().unwrap();
    let reads = vec![here.join("in"), "/a/b".into(), odd.to_owned()];
    assert_eq!(spec.paths().unwrap(), Paths { reads, writes: vec![here.join("out")] });
    assert_eq!(Spec::parse(&spec.canonical()).unwrap(), spec);
}

#[test]
fn errors_and_plans_are_written_as_programs_read_them() {
    for code in SpecCode::ALL {
        assert_eq!(serde_json::to_value(code).unwrap(), code.token());
    }
    let error = Spec::parse(b"kind = 'x'\npriority = 'high'").unwrap_err();
    let written = serde_json::to_value(&error).unwrap();
    assert_eq!(written, json!({ "code": "wrong_type", "message": error.message, "at": "priority" }));
    let plan = parse("kind = 'spec.tells'\nparams = { word = 'x', input = '/in' }").plan().unwrap();
    let bytes = rmp_serde::to_vec_named(&plan).unwrap();
    assert_eq!(rmp_serde::from_slice::<Plan>(&bytes).unwrap(), plan);
}

/// Values that specs can have.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|table| Value::Object(table.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_a_spec_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Spec::parse(&bytes).map(|spec| spec.plan().map(drop));
    }

    #[test]
    fn any_text_that_is_alike_is_a_spec_or_an_error(text in "[{}\\[\\]\"'=.,:#\nkind0-9eE+_ -]{0,200}") {
        for text in [text.clone(), format!("{{{text}"), format!("kind = 'painting'\n{text}")] {
            let _ = Spec::parse(text.as_bytes()).map(|spec| spec.plan().map(drop));
        }
    }

    #[test]
    fn what_is_stored_is_what_was_said(
        fields in prop::collection::btree_map("[a-z]{6,9}x", values(), 0..5),
        priority in -100..=100i32,
        timeout in prop::option::of((0..u64::from(u32::MAX), 1..1_000_000_000u32)),
    ) {
        let timeout = timeout.map(|(seconds, nanos)| Duration::new(seconds, nanos));
        let (kind, fields) = ("x".to_owned(), fields.into_iter().collect());
        let spec = Spec { kind, name: None, priority, timeout, key: Some("~ k".into()), fields };
        let stored = spec.canonical();
        let read = Spec::parse(&stored).unwrap();
        prop_assert_eq!(&read, &spec);
        prop_assert_eq!(read.canonical(), stored);
    }
}
