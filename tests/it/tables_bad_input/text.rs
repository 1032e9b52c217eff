//! Text that is no table.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};

use super::{Scratch, refused, support};

#[test]
fn text_that_is_no_table_is_told_by_line_and_column_and_with_what_to_do() {
    let scratch = Scratch::new();
    let many: String = (0..12_000).map(|id| format!("{id},rome\n")).collect();
    let late = format!("id,city\n{many}x,oslo\n");
    for (name, text, texts) in [
        ("more.csv", &b"id,city\n1,rome\n2,oslo,x\n"[..], &["line 3", "3 fields", "2 columns", "delimiter"][..]),
        ("fewer.csv", b"id,city\n1,rome\n2\n", &["line 3", "1 fields", "2 columns"]),
        ("open.csv", b"id,city\n1,rome\n2,\"oslo\n3,bonn\n", &["line 3", "column 2", "closes it", "written twice"]),
        ("behind.csv", b"id,city\n1,\"ro\"me\n", &["line 2", "column 2", "behind the \"", "written twice"]),
        ("utf8.csv", b"id,city\n1,rome\n2,\xff\n", &["line 3", "column city", "UTF-8", "iconv"]),
        ("name.csv", b"id,\xff\n1,rome\n", &["column 2", "UTF-8", "iconv"]),
        ("utf16.csv", b"\xff\xfei\0d\0\n\0", &["UTF-16", "iconv"]),
        ("type.csv", late.as_bytes(), &["line 12002", "column id", "\"x\"", "--schema \"id text\""]),
        ("torn.csv.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\xff and no more", &["damaged at byte", "unpacked"]),
        ("torn.csv.zst", b"\x28\xb5\x2f\xfd\x04\x58 and no more", &["damaged at byte", "unpacked"]),
        ("records", b"id,city\n1,rome\n", &["records", "--input-format"]),
        ("a.avro", b"Obj\x01", &[".avro is none of the extensions", ".parquet", "write it as Parquet or CSV"]),
        ("text.txt", b"id,city\n1,rome\n", &[".txt is none of the extensions", "--input-format csv, tsv or jsonl"]),
        ("parquet.csv", b"PAR1\x15\x04\x15\0", &["Parquet", "--input-format parquet"]),
        ("arrow.tsv", b"ARROW1\0\0\xff\xff\xff\xff", &["Arrow", "--input-format arrow"]),
    ] {
        fs::write(scratch.path(name), text).unwrap();
        refused(&scratch, name, &[], 1, &[&[name], texts].concat());
    }
}

/// Also where text only begins like a file of another format.
#[test]
fn a_header_that_has_no_such_column_is_told_with_what_it_has() {
    let scratch = Scratch::new();
    for (name, text, key, texts) in [
        ("semicolons.csv", "id;city\n1;rome\n", "id", &["no column id", "\"id;city\"", "';'", "no option"][..]),
        ("tabs.csv", "id\tcity\n1\trome\n", "id", &["no column id", "--input-format tsv"]),
        ("zero.csv", "", "id", &["no column id", "no first row"]),
        ("sql.csv", "id,city\n1,rome\n", "id desc", &["no column id desc", "did you mean id:desc?"]),
        ("letters.csv", "PAR1,ARROW1\n1,2\n", "id", &["no column id"]),
    ] {
        fs::write(scratch.path(name), text).unwrap();
        refused(&scratch, name, &["--key", key], 2, texts);
    }
    let select = ["--select", "id city"];
    refused(&scratch, "sql.csv", &select, 2, &["no column id city", "did you mean id,city?"]);
}

#[test]
fn a_file_that_is_no_table_beside_tables_is_told_with_the_pattern_of_these() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("mixed")).unwrap();
    fs::write(scratch.path("mixed/b.csv.gz"), "").unwrap();
    for other in ["README", "notes.txt"] {
        fs::write(scratch.path("mixed").join(other), "of other people").unwrap();
        let pattern = format!("'{}'", scratch.text("mixed/*.csv.gz"));
        refused(&scratch, "mixed", &[], 1, &[other, "b.csv.gz", &pattern]);
        fs::remove_file(scratch.path("mixed").join(other)).unwrap();
    }
}

#[test]
fn columns_that_cannot_be_told_apart_are_named_with_their_files() {
    let scratch = Scratch::new();
    for (name, header, texts) in [
        ("twice.csv", "id,city,id", ["column id", "rename"]),
        ("none.csv", "id,,city", ["no name", "give it one"]),
        ("case.csv", "id,city,City", ["column City", "rename"]),
    ] {
        fs::write(scratch.path(name), format!("{header}\n1,2,3\n")).unwrap();
        refused(&scratch, name, &[], 1, &[&[name], &texts[..]].concat());
    }
    fs::create_dir(scratch.path("files")).unwrap();
    fs::write(scratch.path("files/a.csv"), "id,city\n1,rome\n").unwrap();
    fs::write(scratch.path("files/b.csv"), "id,CITY\n1,rome\n").unwrap();
    refused(&scratch, "files", &[], 1, &["a.csv", "b.csv", "column city", "column CITY", "rename"]);
}

#[test]
fn a_column_that_is_not_there_has_a_name_like_it() {
    let scratch = Scratch::new();
    fs::write(scratch.path("t.csv"), "id,city\n1,rome\n").unwrap();
    refused(&scratch, "t.csv", &["--key", "id,ctiy:desc"], 2, &["no column ctiy", "did you mean city?"]);
    let like = &["no column ctiy", "did you mean city?"];
    for option in ["--schema=ctiy text", "--select=id,ctiy", "--where=ctiy = 'rome'", "--where=id = 1 or ctiy is null"]
    {
        refused(&scratch, "t.csv", &["--key", "id", option], 2, like);
    }
    let (input, output) = (scratch.text("t.csv"), scratch.text("out"));
    for more in [&["--key", "ctiy"][..], &["--key", "id", "--order-by", "ctiy:desc"]] {
        let args = [&["dedupe", &input, "--output", &output][..], more].concat();
        let run = support::with_own_spill(&scratch, &args);
        run.expect(2, like);
        super::nothing_is_left(&scratch.path("out"), &run);
    }
}

#[test]
fn a_field_of_300_mb_is_refused_with_its_line_in_little_memory() {
    let scratch = Scratch::new();
    for (name, quote) in [("bare.csv", ""), ("quoted.csv", "\"")] {
        let mut file = BufWriter::new(File::create(scratch.path(name)).unwrap());
        write!(file, "id,note\n1,short\n2,{quote}").unwrap();
        (0..300).for_each(|_| file.write_all(&[b'x'; 1_000_000]).unwrap());
        write!(file, "{quote}\n3,short\n").unwrap();
        file.into_inner().unwrap();
        // A node that cannot have a row of the largest kind in memory says so, and where.
        refused(&scratch, name, &["--memory", "64MiB"], 2, &[name, "byte", "give more memory", "--memory"]);
        let most = if quote.is_empty() { "more than 33554432 bytes" } else { "within 33554432 bytes" };
        refused(&scratch, name, &["--memory", "600MiB"], 1, &[name, "line 3", "column 2", most]);
    }
}

#[test]
fn a_file_that_grows_changes_or_vanishes_while_it_is_sorted_is_named() {
    let scratch = Scratch::new();
    for (way, code, text) in [("grows", 1, "changed"), ("changes", 1, "changed"), ("vanishes", 3, "No such file")] {
        let folder = scratch.path(way);
        fs::create_dir(&folder).unwrap();
        for file in 0..4 {
            let rows: String = (0..60_000).map(|id| format!("{},a note of {id}\n", (id * 7919) % 60_000)).collect();
            fs::write(folder.join(format!("{file}.csv")), format!("id,note\n{rows}")).unwrap();
        }
        let (input, output, spill) = (scratch.text(way), scratch.text("out"), scratch.text("spill"));
        let args = ["sort", &input, "--key", "id", "--output", &output, "--executors", "1", "--spill", &spill];
        let mut command = support::command(&args);
        command.args(["--memory", "192MiB"]);
        let mut touched = false;
        let (run, _) = support::cluster::watched(&scratch, command, |events, _| {
            if !touched && events.finished("table.describe") == 1 {
                let last = folder.join("3.csv");
                match way {
                    "grows" => {
                        fs::OpenOptions::new().append(true).open(last).unwrap().write_all(b"1,one more\n").unwrap()
                    }
                    "vanishes" => fs::remove_file(last).unwrap(),
                    // As long as it was, and another file.
                    _ => {
                        let text = fs::read_to_string(&last).unwrap().replace("note of 7", "note of 8");
                        fs::write(folder.join("new"), text).unwrap();
                        fs::rename(folder.join("new"), last).unwrap();
                    }
                }
                touched = true;
            }
        });
        assert!(touched);
        run.expect(code, &["3.csv", text]);
        super::nothing_is_left(&scratch.path("out"), &run);
    }
}
