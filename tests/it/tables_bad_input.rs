//! Tables that cannot be used: named with file, place and what to do, and nothing is left under a final name.

mod arrow;
mod parquet;
mod text;

use std::fs;
use std::path::Path;

use crate::support::{self, Run, Scratch, names};

/// Sorts an input by `id` with more arguments, which fails: with this exit code, these texts on stderr, and nothing left.
#[track_caller]
fn refused(scratch: &Scratch, input: &str, more: &[&str], code: i32, texts: &[&str]) -> Run {
    let (path, output) = (scratch.text(input), scratch.text("out"));
    let mut args = vec!["sort", &path, "--output", &output];
    if !more.contains(&"--key") {
        args.extend(["--key", "id"]);
    }
    args.extend(more);
    let run = support::with_own_spill(scratch, &args);
    run.expect(code, texts);
    assert!(run.stderr.contains("error: "), "{run:#?}");
    nothing_is_left(&scratch.path("out"), &run);
    run
}

/// No file of the output has its final name.
#[track_caller]
fn nothing_is_left(output: &Path, run: &Run) {
    let left = names(output).into_iter().filter(|name| name.starts_with("part-")).collect::<Vec<_>>();
    assert!(left.is_empty(), "{left:?}: {run:#?}");
}

/// Sorts an input by `id`, which works; how many rows there were.
#[track_caller]
fn sorted(scratch: &Scratch, input: &str, output: &str) -> u64 {
    let (path, output) = (scratch.text(input), scratch.text(output));
    let run = support::with_own_spill(scratch, &["sort", &path, "--key", "id", "--output", &output, "--json"]);
    run.expect(0, &[]).json()["rows"].as_u64().unwrap()
}

/// Also by a path that is another one for the same folder, and where the input is below the output.
#[test]
fn no_verb_writes_to_where_its_input_is() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("in/deep")).unwrap();
    fs::write(scratch.path("in/deep/a.csv"), "id\n2\n1\n").unwrap();
    fs::write(scratch.path("in/deep/part-00000"), [7; 300]).unwrap();
    let verbs = [
        ("sort", &["--key", "id"][..], "a.csv"),
        ("shuffle", &["--seed", "1"], "a.csv"),
        ("dedupe", &["--key", "id"], "a.csv"),
        ("convert", &["--format", "parquet"], "a.csv"),
        ("sort", &[], "part-00000"),
        ("shuffle", &["--seed", "1"], "part-00000"),
        ("dedupe", &[], "part-00000"),
        ("convert", &[], "part-00000"),
    ];
    for (verb, more, file) in verbs {
        for output in ["in/deep", "in", "in/../in/deep"] {
            let (input, output) = (scratch.text(&format!("in/deep/{file}")), scratch.text(output));
            let args = [&[verb, &input, "--output", &output][..], more].concat();
            support::with_own_spill(&scratch, &args).expect(3, &["in", "not empty"]);
            assert_eq!(names(&scratch.path("in/deep")), ["a.csv", "part-00000"], "{verb}");
            assert_eq!(names(&scratch.path("in")), ["deep"], "{verb}");
        }
    }
    assert_eq!(fs::read(scratch.path("in/deep/a.csv")).unwrap(), b"id\n2\n1\n");
    assert_eq!(fs::read(scratch.path("in/deep/part-00000")).unwrap(), [7; 300]);
}

#[test]
fn output_in_the_place_of_input_is_refused_and_the_input_stays() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("in")).unwrap();
    fs::write(scratch.path("in/a.csv"), "id\n2\n1\n").unwrap();
    std::os::unix::fs::symlink(scratch.path("in"), scratch.path("link")).unwrap();
    for (output, texts) in
        [("in", ["in", "not empty"]), ("link", ["link", "not empty"]), ("in/a.csv", ["a.csv", "not a directory"])]
    {
        let (input, output) = (scratch.text("in"), scratch.text(output));
        let run = support::with_own_spill(&scratch, &["sort", &input, "--key", "id", "--output", &output]);
        run.expect(3, &texts);
        assert_eq!(names(&scratch.path("in")), ["a.csv"]);
        assert_eq!(fs::read(scratch.path("in/a.csv")).unwrap(), b"id\n2\n1\n");
    }
    // Folders in a folder of input are no input, so output may be there; the next sort reads what the first one did.
    assert_eq!(sorted(&scratch, "in", "in/out"), 2);
    assert_eq!(sorted(&scratch, "in", "again"), 2);
    assert_eq!(names(&scratch.path("in")), ["a.csv", "out"]);
}
