//! The tour of `docs/tables.md` says what is so: its commands run, one after the other, as a reader would run them.

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

#[test]
fn the_commands_of_the_tour_of_tables_run() {
    let scratch = Scratch::new();
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tables.md")).unwrap();
    let blocks = commands(&page, "## A tour\n");
    assert!(blocks.len() >= 6, "{blocks:?}");
    let bin = support::command(&[]).get_program().to_owned();
    let bin = Path::new(&bin).parent().unwrap().to_owned();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    std::fs::create_dir_all(scratch.path("home")).unwrap();
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
    // What the page says of what they do.
    for words in [
        "sorted 100 000 rows",
        "shuffled 100 000 rows",
        "deduplicated 100 000 rows, 2 of them stayed",
        "converted 100 000 rows",
        "8 files in",
    ] {
        assert!(said.contains(words), "{words:?} is not in what they print:\n{said}");
    }
}
