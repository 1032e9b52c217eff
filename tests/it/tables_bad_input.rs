//! Tables that cannot be used: named with file, place and what to do, and nothing is left under a final name.

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
