use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use proptest::prelude::*;

use super::super::{FixedBudget, Misfit, Place, SourceBatch, parse_schema, print_schema};
use super::*;
use crate::samples::{MemoryFile, Value, row};

fn budget(bytes: u64) -> (Arc<FixedBudget>, Arc<dyn MemoryBudget>) {
    let fixed = Arc::new(FixedBudget::new(bytes));
    (fixed.clone(), fixed)
}

fn plenty() -> Arc<dyn MemoryBudget> {
    budget(1 << 30).1
}

fn open(text: impl Into<Vec<u8>>, dialect: &Dialect) -> Result<TextFile, SourceError> {
    TextFile::open(MemoryFile::input("t.csv", text.into()), dialect, &plenty())
}

/// With the types that are inferred.
fn inferred(text: impl Into<Vec<u8>>, dialect: &Dialect) -> Result<TextFile, SourceError> {
    let file = open(text, dialect)?;
    let types = infer(std::slice::from_ref(&file), &Vec::new(), &plenty())?;
    file.with_types(&types)
}

fn read(file: &TextFile) -> Result<Vec<SourceBatch>, SourceError> {
    let budget = plenty();
    let states = file.states(&budget)?;
    let mut all = Vec::new();
    for (split, state) in states.into_iter().enumerate() {
        all.extend(file.read(split, state, None, &budget)?.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(all)
}

fn rows(batches: &[SourceBatch]) -> Vec<Vec<Value>> {
    batches.iter().flat_map(|one| (0..one.batch.num_rows()).map(|at| row(&one.batch, at))).collect()
}

fn texts(file: &TextFile) -> Vec<Vec<Option<String>>> {
    let of = |value: &Value| match value {
        Value::Bytes(bytes) => Some(String::from_utf8(bytes.clone()).unwrap()),
        _ => None,
    };
    rows(&read(file).unwrap()).iter().map(|row| row.iter().map(of).collect()).collect()
}

fn one(file: &TextFile) -> RecordBatch {
    read(file).unwrap().remove(0).batch
}

fn gzipped(text: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(text).unwrap();
    gzip.finish().unwrap()
}

#[test]
fn fields_are_values_and_types_are_inferred() {
    let text = "id,price,name,when,ok\n1,2.5,\"a, \"\"b\"\"\",2025-01-02 12:30,true\n-2,,\"\",,\n";
    let file = inferred(text, &Dialect::csv()).unwrap();
    let types = file.schema().fields().iter().map(|field| (field.name().as_str(), field.data_type()));
    assert_eq!(print_schema(types), "id int64, price float64, name text, when timestamp[us], ok bool");
    let batch = one(&file);
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().values(), &[1, -2]);
    assert_eq!(batch.column(1).as_primitive::<Float64Type>().value(0), 2.5);
    let names = batch.column(2).as_string::<i32>();
    // Empty text is null, unless it is quoted.
    assert_eq!((names.value(0), names.value(1), names.null_count()), ("a, \"b\"", "", 0));
    assert_eq!([1, 3, 4].map(|column| batch.column(column).is_null(1)), [true; 3]);
}

#[test]
fn every_way_to_end_a_file_gives_the_same_rows() {
    let text = "a,b\n1,x\n2,y\n";
    let expected = rows(&read(&inferred(text, &Dialect::csv()).unwrap()).unwrap());
    assert_eq!(expected.len(), 2);
    let zstd = zstd::bulk::compress(text.as_bytes(), 1).unwrap();
    for text in [
        b"a,b\n1,x\n2,y".to_vec(),
        b"a,b\r\n1,x\r\n2,y\r\n".to_vec(),
        b"a,b\r\n1,x\r\n2,\"y\"\r\n".to_vec(),
        b"a,b\n1,x\n2,\"y\"".to_vec(),
        b"a,b\n1,x\n\n2,y\n\n\n".to_vec(),
        [&BYTE_ORDER_MARK, text.as_bytes()].concat(),
        [&BYTE_ORDER_MARK[..], b"\"a\",b\n1,x\n2,y\n"].concat(),
        gzipped(text.as_bytes()),
        gzipped(&[&BYTE_ORDER_MARK, text.as_bytes()].concat()),
        zstd,
    ] {
        let file = inferred(text.clone(), &Dialect::csv()).unwrap();
        assert_eq!(file.schema().field(0).name(), "a");
        assert_eq!(rows(&read(&file).unwrap()), expected, "{}", String::from_utf8_lossy(&text));
    }
    let tsv = inferred("a\tb\n1\tx\n2\ty\n", &Dialect::tsv()).unwrap();
    assert_eq!(rows(&read(&tsv).unwrap()), expected);
}

#[test]
fn dialects_differ_in_what_they_say() {
    let null = Dialect { null: "NA".to_owned(), ..Dialect::csv() };
    let file = open("a,b\nNA,\"NA\"\n,x\n", &null).unwrap();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(texts(&file), [[None, some("NA")], [None, some("x")]]);
    let none = Dialect { quote: None, header: false, ..Dialect::csv() };
    let file = open("\"a,b\n\"c,d\n", &none).unwrap();
    assert_eq!(file.schema().field(1).name(), "column2");
    assert_eq!(texts(&file), [[some("\"a"), some("b")], [some("\"c"), some("d")]]);
    // A column of one's own has a null in an empty line.
    let single = open("a\nx\n\ny\n", &Dialect::csv()).unwrap();
    assert_eq!(texts(&single), [[some("x")], [None], [some("y")]]);
    assert_eq!(texts(&open("a,b\n", &Dialect::csv()).unwrap()).len(), 0);
    let empty = open("", &Dialect::csv()).unwrap();
    assert_eq!((empty.schema().fields().len(), texts(&empty).len()), (0, 0));
}

#[test]
fn what_is_said_of_types_counts() {
    let file = open("id,price\n007,3.10\n8,2\n", &Dialect::csv()).unwrap();
    let said = parse_schema("price decimal(5,2)").unwrap();
    let types = infer(std::slice::from_ref(&file), &said, &plenty()).unwrap();
    assert_eq!(types, parse_schema("id text, price decimal(5,2)").unwrap());
    let batch = one(&file.clone().with_types(&types).unwrap());
    assert_eq!(batch.column(1).as_primitive::<Decimal128Type>().values(), &[310, 200]);
    let unknown = infer(&[file], &parse_schema("prize int64").unwrap(), &plenty()).unwrap_err();
    assert_eq!(unknown.to_string(), "t.csv has no column prize; did you mean price?");
    // Without a header the schema has the names, too.
    let bare = open("1,x\n", &Dialect { header: false, ..Dialect::csv() }).unwrap();
    let said = parse_schema("id int64, name text").unwrap();
    let types = infer(std::slice::from_ref(&bare), &said, &plenty()).unwrap();
    let typed = bare.with_types(&types).unwrap();
    assert_eq!((typed.schema().field(1).name().as_str(), one(&typed).num_rows()), ("name", 1));
}

#[test]
fn types_are_those_of_all_files() {
    let files = ["a,b\n1,x\n", "b,a,c\ny,2.5,2025-01-02\n", "a\n\n"].map(|text| open(text, &Dialect::csv()).unwrap());
    let types = infer(&files, &Vec::new(), &plenty()).unwrap();
    assert_eq!(types, parse_schema("a float64, b text, c date").unwrap());
}

#[test]
fn a_value_of_another_type_is_an_error_that_helps() {
    let mut text = "id,when\n".to_owned();
    (0..INFERRED_ROWS).for_each(|id| writeln_to(&mut text, &format!("{id},2025-01-02")));
    let check = |behind: &str, line: u64, column: &str, value: &str, schema: &str| {
        let file = inferred(format!("{text}{behind}"), &Dialect::csv()).unwrap();
        let error = read(&file).unwrap_err();
        let SourceError::Misfit(misfit) = &error else { panic!("{error}") };
        let Misfit { line: found, column: of, value: bad, schema: helps, .. } = misfit.as_ref();
        assert_eq!((*found, of.as_str(), bad.as_str(), helps.as_str()), (line, column, value, schema));
        assert!(error.to_string().contains(&format!("--schema \"{schema}\"")), "{error}");
        let said = parse_schema(helps).unwrap();
        let types = infer(std::slice::from_ref(&file), &said, &plenty()).unwrap();
        read(&file.with_types(&types).unwrap()).unwrap();
    };
    let line = INFERRED_ROWS as u64 + 2;
    check("3.5,2025-01-02\n", line, "id", "3.5", "id float64");
    check("1,2025-01-02 12:30\n", line, "when", "2025-01-02 12:30", "when timestamp[us]");
    check("1,2025-01-02\n\"x\ny\",2025-01-02\n", line + 1, "id", "x\ny", "id text");
}

fn writeln_to(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

#[test]
fn rows_that_are_none_say_where_and_what_to_do() {
    let says = |text: Vec<u8>, line: u64, what: &str| {
        let file = open(text, &Dialect::csv());
        let error = file.and_then(|file| read(&file)).unwrap_err();
        let SourceError::Text { line: found, .. } = &error else { panic!("{error}") };
        assert!(*found == line && error.to_string().contains(what), "{error}");
    };
    says(b"a,b\n1,2\n\"x\ny\",2\n1\n".to_vec(), 5, "the row has 1 fields, and the table 2 columns");
    says(b"a,b\n1,2,3\n".to_vec(), 2, "the row has 3 fields");
    says(b"a,b\n1,\"2\n3,4\n".to_vec(), 2, "column 2 begins with \", and no \" closes it to the end of the file");
    says(b"a,b\n\"1\n1\",\"2\n3,4\n".to_vec(), 3, "column 2 begins with \"");
    says(b"a,b\n1,\"2\"3\n".to_vec(), 2, "in column 2, \"3\\n\" stands behind the \" that closes it");
    says(b"a,b\n1,\xff\xfe\n".to_vec(), 2, "column b is no UTF-8");
    let large = vec![b'x'; 2 * ROW_BYTES_MAX];
    says([b"a,b\n1,2\n1,", &large[..], b"\n"].concat(), 3, "in column 2, has more than 33554432 bytes");
    says([b"a,b\n1,2\n1,\"", &large[..], b"\"\n"].concat(), 3, "no \" closes it within 33554432 bytes");
    let error = open(b"\xff\xfea\0,\0b\0".to_vec(), &Dialect::csv()).unwrap_err();
    assert!(error.to_string().contains("UTF-16"), "{error}");
    let error = open("a,b,a\n", &Dialect::csv()).unwrap_err();
    assert!(error.to_string().contains("column a in t.csv"), "{error}");
}

#[test]
fn lines_are_those_of_the_file_in_each_split() {
    let mut text = "a,b\n".to_owned();
    (0..100).for_each(|n| text.push_str(&format!("{n},\"two\nlines\"\n")));
    text.push_str("100\n");
    let file = TextFile { split_bytes: 64, ..open(text, &Dialect::csv()).unwrap() };
    assert!(file.splits().len() > 10);
    let error = read(&file).unwrap_err();
    assert!(matches!(&error, SourceError::Text { line: 202, .. }), "{error}");
}

/// Splits begin within quotes, and five of them within one row: they have no row.
#[test]
fn small_splits_have_the_rows_of_the_file_and_little_more_is_read_than_the_text() {
    let row = |n: usize| format!("{n},\"{}\"\n", "two, or\nmore lines".repeat(if n == 9_000 { 20_000 } else { n % 4 }));
    let text = "a,b\n".to_owned() + &(0..20_000).map(row).collect::<String>();
    let (input, read_bytes) = MemoryFile::counted("t.csv", text.clone().into_bytes());
    let whole = TextFile::open(input, &Dialect::csv(), &plenty()).unwrap();
    let cut = whole.clone().in_splits_of(1);
    assert_eq!((whole.splits().len(), cut.splits().len()), (1, text.len().div_ceil(SPLIT_BYTES_MIN as usize)));
    read_bytes.store(0, std::sync::atomic::Ordering::Relaxed);
    let of_splits = read(&cut).unwrap();
    let read_bytes = read_bytes.load(std::sync::atomic::Ordering::Relaxed);
    assert!(rows(&of_splits) == rows(&read(&whole).unwrap()));
    assert!(
        cut.splits().len() - of_splits.iter().map(|one| one.split).collect::<std::collections::BTreeSet<_>>().len()
            >= 4
    );
    // Once for how splits begin; each split with what may be of the row that ends behind it; and twice the large row at most.
    let most = text.len() * 9 / 4 + 2 * row(9_000).len();
    assert!(read_bytes < most as u64, "{read_bytes} bytes were read of {}, and {most} are enough", text.len());
}

#[test]
fn memory_is_asked_for_and_given_back() {
    let text: String =
        std::iter::once("a,b\n".to_owned()).chain((0..400_000).map(|n| format!("{n},text {n}\n"))).collect();
    let file = inferred(text, &Dialect::csv()).unwrap();
    let (fixed, enough) = budget(64 << 20);
    let all: Vec<_> = file.read(0, TextState::Row, None, &enough).unwrap().map(Result::unwrap).collect();
    assert!(all.len() > 5 && all.iter().all(|one| one.batch.num_rows() <= super::super::BATCH_ROWS_MAX));
    assert!(fixed.used_bytes() >= all.iter().map(|one| one.batch.get_array_memory_size() as u64).sum::<u64>() / 2);
    drop(all);
    assert_eq!(fixed.used_bytes(), 0);
    // One batch at a time takes little more than a batch.
    file.read(0, TextState::Row, None, &enough).unwrap().for_each(|one| drop(one.unwrap()));
    assert!(fixed.peak_bytes() < 64 << 20);
    let (fixed, little) = budget(3 << 20);
    let error = file.read(0, TextState::Row, None, &little).unwrap().find_map(Result::err).unwrap();
    assert!(matches!(&error, SourceError::Memory { place: Place::Line(_), .. }), "{error}");
    assert_eq!(fixed.used_bytes(), 0);
}

/// Fields that make splits hard: quotes, doubled ones, line ends and delimiters within them.
fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,3}",
        "[a-z\"]{0,3}x",
        "[a-z,\\n\\r\"]{0,6}".prop_map(|text| format!("\"{}\"", text.replace('"', "\"\""))),
    ]
    .prop_map(|text| if text.starts_with('"') && !text.ends_with('"') { format!("z{text}") } else { text })
    .prop_filter("a field that begins with a quote ends with it", |text| {
        !text.starts_with('"') || {
            let inside = text.len() >= 2 && text.ends_with('"');
            inside && !text[1..text.len() - 1].replace("\"\"", "").contains('"')
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_size_of_splits_gives_the_same_rows(
        table in proptest::collection::vec((field(), field()), 0..20),
        split_bytes in 1..40_u64,
        returns in any::<bool>(),
        mark in any::<bool>(),
    ) {
        let end = if returns { "\r\n" } else { "\n" };
        let mut text = if mark { "\u{feff}a,b".to_owned() } else { "a,b".to_owned() } + end;
        table.iter().for_each(|(a, b)| text.push_str(&format!("{a},{b}{end}")));
        let whole = open(text.clone(), &Dialect::csv()).unwrap();
        let expected = rows(&read(&whole).unwrap());
        prop_assert_eq!(expected.len(), table.len());
        // The header is in the first split.
        let split_bytes = split_bytes.max(9);
        let cut = TextFile { split_bytes, ..whole };
        prop_assert_eq!(rows(&read(&cut).unwrap()), expected.clone());
        // And as jobs do it: all at once, those again that began otherwise.
        let (budget, mut state, mut all) = (plenty(), TextState::Row, Vec::new());
        for split in 0..cut.splits().len() {
            let assumed = cut.assumed(split).unwrap();
            let mut first = cut.read(split, assumed, None, &budget).unwrap();
            let batches: Result<Vec<_>, _> = first.by_ref().collect();
            let ends = first.ends().unwrap();
            prop_assert_eq!(ends, cut.ends(split, &budget).unwrap());
            let batches = match state == assumed {
                true => batches.unwrap(),
                false => cut.read(split, state, None, &budget).unwrap().collect::<Result<Vec<_>, _>>().unwrap(),
            };
            let mut next = 0;
            for one in &batches {
                prop_assert_eq!((one.split, one.first_row), (split, next));
                next += one.batch.num_rows() as u64;
            }
            all.extend(rows(&batches));
            state = ends.of(state);
        }
        prop_assert_eq!(all, expected);
    }

    #[test]
    fn any_bytes_are_rows_or_an_error(bytes in proptest::collection::vec(prop_oneof![Just(b'"'), Just(b','), Just(b'\n'), any::<u8>()], 0..200)) {
        let _ = inferred(bytes, &Dialect::csv()).and_then(|file| read(&TextFile { split_bytes: 50, ..file }));
    }
}
