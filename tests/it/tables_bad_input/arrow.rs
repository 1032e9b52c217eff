//! Files of Arrow that are damaged, or that other formats name.

use std::fs;

use super::{Scratch, refused, sorted, support};

#[test]
fn arrow_that_is_cut_or_garbled_is_told_by_its_place() {
    let scratch = Scratch::new();
    let rows: String = (0..5_000).map(|id| format!("{},the name of {id}\n", id * 7919 % 5_000)).collect();
    fs::write(scratch.path("t.csv"), format!("id,name\n{rows}")).unwrap();
    let (input, output) = (scratch.text("t.csv"), scratch.text("arrow"));
    support::with_own_spill(&scratch, &["convert", &input, "--format", "arrow", "--output", &output]).expect(0, &[]);
    assert_eq!(sorted(&scratch, "arrow", "sorted"), 5_000);
    let good = fs::read(scratch.path("arrow/part-00000.arrow")).unwrap();
    let garbled = |from: usize, to: usize| {
        let mut bytes = good.clone();
        bytes[from..to].fill(0xff);
        bytes
    };
    // A message begins with four bytes of ones: the first one is the schema, the second one a batch.
    let messages: Vec<usize> =
        (0..good.len() / 8).map(|at| at * 8).filter(|at| good[*at..][..4] == [0xff; 4]).collect();
    let batch = messages[1];
    let tail = good.len() - 10;
    for (what, bytes, texts) in [
        ("begins", good[..5].to_vec(), &["--input-format"][..]),
        ("end", good[..good.len() - 3].to_vec(), &["damaged"]),
        ("footer", garbled(tail - 60, tail), &["damaged at its footer"]),
        ("length", garbled(tail, tail + 4), &["damaged at its footer"]),
        ("batch", garbled(batch + 8, batch + 40), &["damaged at"]),
        ("other", b"id,city\n1,rome\n".to_vec(), &["--input-format"]),
    ] {
        let name = format!("{what}.arrow");
        fs::write(scratch.path(&name), bytes).unwrap();
        let run = refused(&scratch, &name, &[], 1, &[&[name.as_str()], texts].concat());
        assert_eq!(run.stderr.trim_end().lines().count(), 1, "{run:#?}");
    }
}
