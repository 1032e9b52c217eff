use std::fs;
use std::path::{Path, PathBuf};

use exobus_files::FileError;
use exobus_tables::expression::col;
use exobus_tables::jobs::join::{JoinKind, Pair};
use exobus_tables::jobs::{FileSize, Folders};
use exobus_tables::semantics::{KeyColumn, Nulls};
use exobus_tables::sinks::OutputFormat;
use exobus_tables::sources::SourceError;

use super::{Convert, Dedupe, Group, Inputs, Join, MapBatches, Repartition, Shuffle, Sort, Table, TableJobError, Verb};

/// A folder with some files of a table.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("1.csv"), "user,ts\nbo,2\nal,3\n").unwrap();
    fs::write(folder.path().join("2.csv"), "user,ts\nbo,1\n").unwrap();
    fs::write(folder.path().join("notes.txt"), "no table").unwrap();
    folder
}

/// Small enough to run beside others.
fn small<V: Verb>(table: Table<V>, folder: &Path) -> Table<V> {
    table.memory(128 << 20).executors(2).spill(folder.join("_spill"))
}

fn text(file: PathBuf) -> String {
    fs::read_to_string(file).unwrap()
}

#[test]
fn inputs_are_one_name_or_several() {
    let one = [PathBuf::from("a")];
    assert!(["a".paths(), "a".to_owned().paths(), Path::new("a").paths(), PathBuf::from("a").paths()] == [&one[..]; 4]);
    let two = vec![PathBuf::from("a"), PathBuf::from("b")];
    let text = ["a".to_owned(), "b".to_owned()];
    assert!([["a", "b"].paths(), text.paths(), two.clone().paths(), (&two[..]).paths()] == [&two[..]; 4]);
}

#[test]
fn every_verb_names_the_program_that_this_build_runs() {
    let is_registered = |program: &str| exobus_actors::registry::programs().contains_key(program);
    let verbs = [
        Convert::PROGRAM,
        Sort::PROGRAM,
        Shuffle::PROGRAM,
        Dedupe::PROGRAM,
        Group::PROGRAM,
        Join::PROGRAM,
        Repartition::PROGRAM,
        MapBatches::PROGRAM,
    ];
    verbs.iter().for_each(|program| assert!(is_registered(program), "{program}"));
}

#[test]
fn what_was_said_is_in_the_parameters_of_the_job() {
    let table = Table::read("in/*").filter(col("a").gt(1)).filter(col("b").lt(2)).select(["a"]).format("csv").partial();
    let falling = KeyColumn { column: "b".into(), descending: true, nulls: Nulls::First };
    let params = table.sort_by(["a".parse().unwrap(), falling.clone()]).file_bytes(1 << 20).job("out").unwrap();
    assert_eq!(params.key, [KeyColumn::rising("a"), falling.clone()]);
    let here = std::env::current_dir().unwrap();
    assert_eq!((params.table.inputs, params.table.output), (vec![here.join("in/*")], here.join("out")));
    assert_eq!(params.table.reading.filter, Some("a > 1 and b < 2".parse().unwrap()));
    assert_eq!((params.table.writing.file_size, params.table.partial), (FileSize::Bytes(1 << 20), true));
    let parts = Table::read("in").hive(false).repartition(3).by(["a"]).partition_by(["b"]).max_folders(0);
    let parts = parts.job("out").unwrap();
    assert_eq!((parts.by, parts.table.reading.hive), (vec![KeyColumn::rising("a")], Some(false)));
    assert_eq!(parts.folders, Some(Folders { columns: vec!["b".to_owned()], folders_max: 1 }));
    assert_eq!(parts.table.writing.file_size, FileSize::Count(3));
    let dedupe = Table::read("in").dedupe(["a"]).order_by(["b:desc:nulls-first"]).job("out").unwrap();
    assert_eq!(dedupe.order_by, [falling]);
    let right = Table::read("right").select(["uid", "x"]).output_format(OutputFormat::Csv).partial();
    let join = Table::read("in").join(right, ["id=uid"]).how(JoinKind::Left).suffix("_r").job("out").unwrap();
    assert_eq!((join.table.inputs, join.right), (vec![here.join("in")], vec![here.join("right")]));
    assert_eq!((join.table.reading.select, join.table.writing.format, join.table.partial), (None, None, true));
    assert_eq!(join.right_reading.select, Some(vec!["uid".into(), "x".into()]));
    assert_eq!((join.query.kind, join.query.suffix.as_deref()), (JoinKind::Left, Some("_r")));
    assert_eq!(join.query.on, [Pair { left: "id".into(), right: "uid".into() }]);
}

#[test]
fn a_pattern_is_the_files_that_match_for_every_call() {
    let folder = folder();
    let (pattern, output) = (folder.path().join("?.csv"), folder.path().join("out"));
    let written = small(Table::read(&pattern).sort_by(["user", "ts"]), folder.path()).write(&output).unwrap();
    assert_eq!((written.rows, written.row_hash_in), (3, written.row_hash_out));
    assert_eq!(text(output.join("part-00000.csv")), "user,ts\nal,3\nbo,1\nbo,2\n");
    let found = Table::read(&pattern).first_rows(10).unwrap();
    assert_eq!((found.files_read, found.is_all), (2, true));
    assert_eq!(Table::read(&pattern).schema_of().unwrap().fields().len(), 2);
    // The spill folder was made for the job.
    assert!(!folder.path().join("_spill").exists());
}

#[test]
fn what_is_wrong_is_said_by_the_call_that_does_the_work_and_leaves_nothing() {
    let folder = folder();
    let (input, output) = (folder.path().join("*.csv"), folder.path().join("out"));
    let read = || small(Table::read(&input), folder.path());
    let failure = |written: Result<_, TableJobError>| {
        let error = written.map(|_: exobus_tables::jobs::Rewritten| ()).unwrap_err();
        assert!(!output.exists(), "{error}");
        error
    };

    let error = failure(read().sort_by(["user", "ts:down"]).write(&output));
    assert!(matches!(&error, TableJobError::Key(_)) && error.to_string().contains("\"ts:down\""), "{error}");
    assert!(matches!(failure(read().dedupe([""; 0]).write(&output)), TableJobError::NoKey));
    let error = failure(read().dedupe(["user"]).order_by([":desc"]).write(&output));
    assert!(matches!(error, TableJobError::Key(_)), "{error}");

    let error = failure(read().join(Table::read(&input), ["user="]).write(&output));
    assert!(matches!(error, TableJobError::Pair(_)), "{error}");
    assert!(matches!(failure(read().join(Table::read(&input), [""; 0]).write(&output)), TableJobError::NoKey));
    let missing = folder.path().join("none.csv");
    let error = failure(read().join(Table::read(&missing), ["user"]).write(&output));
    assert!(matches!(&error, TableJobError::File(_)) && error.to_string().contains("none.csv"), "{error}");

    let error = failure(read().sort_by(["usr"]).write(&output));
    assert!(matches!(&error, TableJobError::Job(_)) && error.to_string().contains("user"), "{error}");
    let error = failure(read().filter(col("usr").eq("al")).shuffle(1).write(&output));
    assert!(error.to_string().contains("user"), "{error}");
    let error = failure(read().format("cvs").write(&output));
    assert!(error.to_string().contains("cvs"), "{error}");
    let error = failure(read().memory(1 << 20).write(&output));
    assert!(matches!(error, TableJobError::Node { .. }), "{error}");

    let missing = folder.path().join("*.parquet");
    let error = failure(small(Table::read(&missing), folder.path()).write(&output));
    assert!(matches!(&error, TableJobError::File(FileError::NoMatch { path }) if *path == missing), "{error}");
    let error = Table::read(&missing).schema_of().unwrap_err();
    assert!(matches!(error, TableJobError::File(FileError::NoMatch { .. })), "{error}");
    let error = read().select(["usr"]).schema_of().unwrap_err();
    assert!(
        matches!(&error, TableJobError::Table(SourceError::Table { .. })) && error.to_string().contains("user"),
        "{error}"
    );

    fs::create_dir(&output).unwrap();
    fs::write(output.join("theirs"), "theirs").unwrap();
    let error = read().write(&output).unwrap_err();
    assert!(matches!(error, TableJobError::File(FileError::NotEmpty { .. })), "{error}");
}
