//! The tour of `docs/tables.md` and the first example of the README say what is so: their commands run, one after the other, as a reader would run them.

use std::path::Path;
use std::process::Command;

use crate::support::{self, Scratch};

/// The commands of the part of a page that begins with this line and ends before the next one of its kind.
fn commands(page: &str, heading: &str) -> Vec<String> {
    let part = page.split_once(heading).expect("the page has the heading").1;
    let part = part.split("\n## ").next().unwrap_or(part);
    let blocks = part.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Runs these blocks of commands in a folder of their own; what they print.
fn run_all(blocks: Vec<String>) -> String {
    let scratch = Scratch::new();
    let bin = support::command(&[]).get_program().to_owned();
    let bin = Path::new(&bin).parent().unwrap().to_owned();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    std::fs::create_dir_all(scratch.path("home/target")).unwrap();
    let mut said = String::new();
    for block in blocks {
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &block]).current_dir(scratch.path("home"));
        shell.env("PATH", &path).env("XDG_STATE_HOME", scratch.path("state"));
        let run = shell.output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{block}\n{out}\n{err}");
        said.push_str(&out);
    }
    said
}

#[test]
fn the_commands_of_the_tour_of_tables_run() {
    let blocks = commands(&page("docs/tables.md"), "## A tour\n");
    assert!(blocks.len() >= 6, "{blocks:?}");
    let said = run_all(blocks);
    // What the page says of what they do.
    for words in [
        "sorted 100 000 rows",
        "shuffled 100 000 rows",
        "deduplicated 100 000 rows, 2 of them stayed",
        "joined 100 002 rows, 100 000 rows written",
        "repartitioned 100 000 rows",
        "converted 100 000 rows",
        "8 files in",
    ] {
        assert!(said.contains(words), "{words:?} is not in what they print:\n{said}");
    }
}

/// But for the command that builds the tool, which is built.
#[test]
fn the_first_example_of_the_readme_runs_and_is_a_table() {
    let first = commands(&page("README.md"), "## Start\n").swap_remove(0);
    let (build, example) = first.split_once('\n').unwrap();
    assert!(build.starts_with("cargo build --release"), "{first}");
    let said = run_all(vec![example.to_owned()]);
    assert!(said.contains("sorted 100 000 rows"), "{said}");
    // The dearest of the first city: rows are in the order of both columns.
    assert!(said.contains("oslo") && said.contains("142.29") && said.contains("the first 5 rows"), "{said}");
}
