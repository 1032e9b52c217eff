//! `exobus submit` and `exobus schema`: jobs as files say them, in this process.

use crate::support;

use std::{fs, io::Write, process::Stdio};

use serde_json::{Value, json};
use support::{Scratch, command, exobus, parts};

/// A folder with a table, records, and specs.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    let rows: String = (0..3_000).map(|row| format!("{},word{}\n", row * 7 % 3_000, row % 50)).collect();
    fs::write(scratch.path("table.csv"), format!("id,word\n{rows}")).unwrap();
    exobus(&["generate", "--records", "5000", &scratch.text("records")]).expect(0, &[]);
    scratch
}

/// Writes a spec of this kind from an input to an output.
fn spec(scratch: &Scratch, (kind, input, output): (&str, &str, &str), more: &str) -> String {
    let (input, output) = (scratch.text(input), scratch.text(output));
    let file = scratch.text("job.toml");
    fs::write(&file, format!("kind = '{kind}'\ninputs = ['{input}']\noutput = '{output}'\n{more}")).unwrap();
    file
}

fn same_files(scratch: &Scratch, one: &str, other: &str) {
    let names = parts(&scratch.path(one));
    assert!(!names.is_empty() && names == parts(&scratch.path(other)));
    for name in names {
        let read = |folder| fs::read(scratch.path(folder).join(&name)).unwrap();
        assert!(read(one) == read(other), "{name}");
    }
}

const MEMORY: [&str; 2] = ["--memory", "64MiB"];

#[test]
fn a_file_says_what_a_command_says() {
    let scratch = scratch();
    let table = scratch.text("table.csv");
    let joined = format!("right = '{table}'\non = 'id'\nsuffix = '_r'\nright_where = 'id < 9'\npartitions = 2");
    let jobs = [
        (
            "sort",
            "table.csv",
            "key = ['word', 'id:desc']\nformat = 'csv'",
            &["--key", "word,id:desc", "--format", "csv"][..],
        ),
        ("sort", "records", "partitions = 3\ncuts = 'uniform'", &["--partitions", "3", "--cuts", "uniform"]),
        ("shuffle", "table.csv", "seed = 7\nrows_per_file = 900", &["--seed", "7", "--rows-per-file", "900"]),
        ("shuffle", "records", "seed = 7\npartitions = 2", &["--seed", "7", "--files", "2"]),
        ("dedupe", "table.csv", "key = 'word'\nkeep = 'last'", &["--key", "word", "--keep", "last"]),
        (
            "convert",
            "table.csv",
            "where = 'id < 9'\ncompression = 'zstd'",
            &["--where", "id < 9", "--compression", "zstd"],
        ),
        (
            "join",
            "table.csv",
            joined.as_str(),
            &[table.as_str(), "--on", "id", "--suffix", "_r", "--right-where", "id < 9", "--files", "2"],
        ),
        ("wordcount", "table.csv", "partitions = 2", &["--partitions", "2"]),
        (
            "aggregate",
            "table.csv",
            "key = 'word'\nvalue = 'id'\nheader = true\npartitions = 1\nops = ['max', 'count']",
            &["--key", "word", "--value", "id", "--header", "--partitions", "1", "--ops", "max,count"],
        ),
    ];
    for (number, (kind, input, more, options)) in jobs.into_iter().enumerate() {
        let (by_file, by_command) = (format!("file-{number}"), format!("command-{number}"));
        let file = spec(&scratch, (kind, input, &by_file), more);
        let submitted = exobus(&[&["submit", &file, "--json"], &MEMORY[..]].concat());
        submitted.expect(0, &[]);
        let (input, output) = (scratch.text(input), scratch.text(&by_command));
        let command = exobus(&[&[kind, &input, "--output", &output, "--json"], options, &MEMORY].concat());
        command.expect(0, &[]);
        let figures = |run: &support::Run| ["rows", "bytes", "files", "keys"].map(|name| run.json()[name].clone());
        assert_eq!(figures(&submitted), figures(&command), "{kind}: {submitted:#?} {command:#?}");
        same_files(&scratch, &by_file, &by_command);
    }
    // The same words, too.
    let file = spec(&scratch, ("convert", "table.csv", "last"), "");
    let run = exobus(&[&["submit", &file, "--set", "format=arrow"], &MEMORY[..]].concat());
    run.expect(0, &[]);
    assert!(run.stdout.contains("converted") && run.stdout.contains(&scratch.text("last")), "{run:#?}");
    assert_eq!(parts(&scratch.path("last")), ["part-00000.arrow"]);
}

#[test]
fn a_spec_comes_from_stdin_and_may_be_json() {
    let scratch = scratch();
    let text =
        json!({ "kind": "sort", "inputs": [scratch.text("records")], "output": scratch.text("out"), "name": "mine" });
    let mut child = command(&["submit", "-", "--memory", "64MiB", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["rows"], 5_000, "{summary}");
}

#[test]
fn a_spec_is_checked_without_running_it() {
    let scratch = scratch();
    let secret = "the key of the safe is 4711-0815-and-nobody-may-see-it";
    let more = format!("key = 'id'\nwhere = \"word = '{secret}'\"\npartitions = 4");
    let file = spec(&scratch, ("sort", "table.csv", "out"), &more);
    let run = exobus(&["submit", &file, "--check"]);
    run.expect(0, &[]);
    let plan = run.json();
    assert_eq!(plan["program"], "table.sort@2");
    assert_eq!(plan["reads"], json!([scratch.text("table.csv")]));
    assert_eq!(plan["writes"], json!([scratch.text("out")]));
    assert_eq!(plan["params"]["key"], json!([{ "column": "id", "descending": false, "nulls": "Last" }]));
    assert!(!run.stdout.contains(secret), "{run:#?}");
    assert!(!scratch.path("out").exists());
    // What a table is, is found where the files are.
    let run = exobus(&["submit", &file, "--check", "--set", "key=[]", "--set", "where=id = 1"]);
    run.expect(2, &["job.toml: key: table.csv: a table is sorted by columns: say which, `key = \"COLUMN\"`"]);
}

#[test]
fn what_is_wrong_with_a_spec_is_said_with_its_place_and_nothing_is_made() {
    let scratch = scratch();
    let whole = ("sort", "table.csv", "out");
    for (more, said) in [
        ("key = 'id", "job.toml: line 4, column 10: the spec is no TOML: "),
        ("kye = 'id'", "job.toml: kye: `kye` is no field of `sort`; did you mean `key`?"),
        ("key = ['id', 7]", "job.toml: key[1]: `key[1]` cannot be 7; expected a list of texts"),
        ("key = 'id:up'", "job.toml: key: \"id:up\" is no column of a key"),
        ("key = 'id'\nfile_bytes = 'large'", "job.toml: file_bytes: `file_bytes` cannot be \"large\"; expected a size"),
        ("key = 'id'\npriority = 1000", "job.toml: priority: "),
    ] {
        let file = spec(&scratch, whole, more);
        exobus(&["submit", &file]).expect(2, &[said]);
    }
    let file = spec(&scratch, ("sorted", "table.csv", "out"), "");
    exobus(&["submit", &file]).expect(2, &["did you mean `sort`?"]);
    exobus(&["submit", &file, "--set", "x"]).expect(2, &["KEY=VALUE"]);
    let file = spec(&scratch, ("map_batches", "table.csv", "out"), "function = 'mine'");
    exobus(&["submit", &file]).expect(2, &["job.toml: function: no function is registered here as \"mine\""]);
    exobus(&["submit", "-"]).expect(2, &["stdin: kind: the spec has no `kind`"]);
    exobus(&["submit", &scratch.text("missing.toml")]).expect(3, &["read the spec", "missing.toml"]);
    fs::write(scratch.path("large.toml"), vec![b'#'; 2 << 20]).unwrap();
    exobus(&["submit", &scratch.text("large.toml")]).expect(2, &["2097152 bytes", "1048576"]);
    let file = spec(&scratch, ("sort", "nothing.csv", "out"), "key = 'id'");
    exobus(&["submit", &file]).expect(3, &["nothing.csv"]);
    let file = spec(&scratch, whole, "key = 'no'");
    exobus(&["submit", &file]).expect(2, &["no column"]);
    let file = spec(&scratch, whole, "key = 'id'");
    exobus(&["submit", &file, "--cluster", "nats://127.0.0.1:1"]).expect(4, &["cannot connect to NATS"]);
    assert!(parts(&scratch.path("out")).is_empty());
}

#[test]
fn a_program_is_submitted_with_its_parameters() {
    let scratch = scratch();
    let inputs = scratch.text("records");
    let file = scratch.text("job.json");
    let params = json!({ "inputs": [inputs], "partitions": 4 });
    fs::write(&file, json!({ "kind": "sort.explain", "params": params }).to_string()).unwrap();
    let run = exobus(&[&["submit", &file, "--json"], &MEMORY[..]].concat());
    run.expect(0, &[]);
    assert_eq!((&run.json()["input_bytes"], &run.json()["plan"]["partitions"]), (&json!(500_000), &json!(4)));
    let run = exobus(&["submit", &file, "--set", "params.partitions=many"]);
    run.expect(2, &["job.json: params: ", "invalid type: string \"many\", expected u32"]);
}

#[test]
fn schemas_say_what_specs_may_say() {
    let schema = exobus(&["schema", "sort"]);
    schema.expect(0, &[]);
    let schema = schema.json();
    assert_eq!(schema["properties"]["cuts"]["enum"], json!(["sampled", "uniform"]));
    assert_eq!(schema["required"], json!(["kind", "inputs", "output"]));
    let all = exobus(&["schema"]).json();
    let titles: Vec<&str> = all["oneOf"].as_array().unwrap().iter().filter_map(|kind| kind["title"].as_str()).collect();
    assert_eq!(
        titles,
        [
            "aggregate",
            "convert",
            "dedupe",
            "group",
            "join",
            "map_batches",
            #[cfg(feature = "sql")]
            "query",
            "repartition",
            "shuffle",
            "sort",
            "wordcount",
            "program"
        ]
    );
    exobus(&["schema", "sotr"]).expect(2, &["did you mean sort?"]);
}
