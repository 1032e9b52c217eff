//! Tables of very many files, which are listed, looked at and read within memory that is asked for.

use crate::support;

use std::fs;
use std::path::Path;

use support::{Scratch, exobus, with_own_spill};

const FILES: usize = 100_000;
/// Names that a file may have, for file systems of which an inode has no more.
const NAMES_PER_FILE: usize = 30_000;

/// A folder in which each file is the same table of two rows.
fn write_files(scratch: &Scratch) -> (String, u64) {
    let (table, one) = (scratch.path("table"), scratch.path("one"));
    fs::write(scratch.path("tiny.csv"), "id,name\n1,a\n2,b\n").unwrap();
    let (input, output) = (scratch.text("tiny.csv"), scratch.text("one"));
    with_own_spill(scratch, &["convert", &input, "--output", &output, "--format", "parquet"]).expect(0, &[]);
    fs::create_dir(&table).unwrap();
    let file = |number: usize| table.join(format!("part-{number:06}.parquet"));
    for number in 0..FILES {
        match number % NAMES_PER_FILE {
            0 => drop(fs::copy(one.join("part-00000.parquet"), file(number)).unwrap()),
            at => fs::hard_link(file(number - at), file(number)).unwrap(),
        }
    }
    (table.to_str().unwrap().to_owned(), fs::metadata(file(0)).unwrap().len())
}

#[test]
fn a_folder_of_a_hundred_thousand_files_is_a_table() {
    let scratch = Scratch::new();
    let (table, bytes) = write_files(&scratch);
    let shown = exobus(&["show", &table, "--schema"]).expect(0, &[]).stdout.clone();
    assert_eq!(shown, "id int64,\nname text\n");
    let explained = exobus(&["explain", "sort", &table, "--key", "id", "--memory", "256MiB", "--json"]);
    assert_eq!(explained.expect(0, &[]).json()["input_bytes"], FILES as u64 * bytes);
    // A tenth of them is read, too, of two chunks of files and more.
    let (tenth, output) = (format!("{table}/part-05*.parquet"), scratch.text("output"));
    let args = ["convert", &tenth, "--where", "id = 2", "--output", &output, "--memory", "128MiB", "--json"];
    let summary = with_own_spill(&scratch, &args).expect(0, &[]).json();
    assert_eq!((&summary["rows"], &summary["files"]), (&(FILES as u64 / 10).into(), &1.into()), "{summary}");
    // The last file is of another type: that is told of it and of the first one.
    let last = Path::new(&table).join("part-059999.parquet");
    fs::remove_file(&last).unwrap();
    fs::write(scratch.path("other.csv"), "id,name\nx,y\n").unwrap();
    let (input, other) = (scratch.text("other.csv"), scratch.text("other"));
    with_own_spill(&scratch, &["convert", &input, "--output", &other, "--format", "parquet"]).expect(0, &[]);
    fs::copy(scratch.path("other/part-00000.parquet"), &last).unwrap();
    let args = ["convert", &tenth, "--output", &scratch.text("not there"), "--memory", "128MiB"];
    with_own_spill(&scratch, &args).expect(1, &["part-050000.parquet", "part-059999.parquet", "--schema"]);
}
