//! The table of formats in docs/formats.md is what the code says: each version, each sample, and no format that is left out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The constants of a source that are versions of formats, by their names.
fn constants(source: &str) -> Vec<(String, u64)> {
    let is_version = |name: &str| ["VERSION", "VERSIONS", "FORMAT"].contains(&name) || name.ends_with("_VERSION");
    let lines = source.lines().filter_map(|line| line.trim().split_once("const "));
    let declared = lines.filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
    let constant = declared.filter_map(|(_, rest)| {
        let (name, rest) = rest.split_once(':')?;
        let value = rest.split_once('=')?.1.split(';').next()?;
        let value = value.split_once("version:").map_or(value, |(_, version)| version);
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
        let numbers: Vec<u64> = value.split(['(', ',', ' ', ';']).filter_map(digits).collect();
        // The highest of those that are spoken; of a format, its version, which stands before its size.
        let version = if name == "FORMAT" { numbers.first() } else { numbers.last() };
        is_version(name).then(|| version.map(|version| (name.to_owned(), *version)))?
    });
    constant.collect()
}

struct Row {
    constant: String,
    file: String,
    version: u64,
    samples: Vec<String>,
    refusal: String,
}

fn rows() -> Vec<Row> {
    let text = read("docs/formats.md");
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, _, constant, version, samples, refusal] = cells[..] else { panic!("six cells: {line}") };
        let [constant, file] = quoted(constant)[..] else { panic!("a constant and its file: {line}") };
        Row {
            constant: constant.to_owned(),
            file: file.to_owned(),
            version: version.parse().unwrap_or_else(|error| panic!("{line}: {error}")),
            samples: quoted(samples).into_iter().map(str::to_owned).collect(),
            refusal: refusal.to_owned(),
        }
    })
    .collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
}

#[test]
fn each_row_has_the_version_of_the_code_and_a_sample_that_is_read_by_a_test() {
    let rows = rows();
    assert!(rows.len() >= 10, "{} rows", rows.len());
    for Row { constant, file, version, samples, refusal } in &rows {
        let known = constants(&read(file));
        let found = known.iter().find(|(name, _)| name == constant);
        assert_eq!(found.map(|(_, version)| version), Some(version), "{constant} in {file}");
        assert!(!samples.is_empty() && !refusal.is_empty(), "{constant} in {file}");
        for sample in samples {
            let name = Path::new(sample).file_stem().unwrap().to_str().unwrap();
            let ending = format!("-{version}");
            assert!(name.ends_with(&ending), "{sample} is of version {version}");
            assert!(std::fs::metadata(root().join(sample)).is_ok_and(|file| file.len() > 0), "{sample} is not there");
            let mut tests = Vec::new();
            let of_crate = root().join(sample.split("/tests/").next().unwrap());
            sources(&of_crate.join("src"), &mut tests);
            sources(&of_crate.join("tests"), &mut tests);
            let name = Path::new(sample).file_name().unwrap().to_str().unwrap();
            let is_read = |path: &PathBuf| {
                let text = std::fs::read_to_string(path).unwrap();
                text.contains(&format!("samples/{name}\")"))
            };
            assert!(tests.iter().any(is_read), "no test reads {sample}");
        }
    }
}

#[test]
fn no_version_of_the_code_is_left_out() {
    let listed: BTreeSet<(String, String)> = rows().into_iter().map(|row| (row.file, row.constant)).collect();
    let mut files = Vec::new();
    for part in [
        "bus/src",
        "store/src",
        "store/files/src",
        "store/objects/src",
        "actors/src",
        "shuffle/src",
        "pipelines/tables/src",
        "pipelines/queries/src",
        "pipelines/sql/src",
        "src",
    ] {
        sources(&root().join(part), &mut files);
    }
    let mut found = BTreeSet::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let file = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        // Versions of functions belong to their names; those of tests to nobody.
        for (name, version) in constants(&text).into_iter().filter(|_| !file.contains("test")) {
            if !(name == "VERSION" && file.starts_with("actors/src/simulation")) {
                assert!(version > 0, "{name} in {file}");
                found.insert((file.clone(), name));
            }
        }
    }
    assert_eq!(found, listed, "versions in the code, and those in docs/formats.md");
}

#[test]
fn versions_are_found_in_the_ways_that_they_are_written() {
    let check = |line: &str, expected: Option<u64>| {
        let found = constants(line);
        assert_eq!(found.first().map(|(_, version)| *version), expected, "{line}");
    };
    check("pub const VERSION: u16 = 2;", Some(2));
    check("    pub(crate) const VERSIONS: (u16, u16) = (3, 4);", Some(4));
    check(
        "pub(super) const FORMAT: Format = Format { name: \"exobus_claim\", version: 1, bytes_max: 64 << 10 };",
        Some(1),
    );
    check("pub const LOG_VERSION: u8 = 12; // 3", Some(12));
    check("    const VERSION: u32;", None);
    check("const MAGIC: u8 = 5;", None);
}
