//! Generator and validator against outputs of the Sort Benchmark's own tools, version 1.5 (`tests/vectors/`).

use exobus_shuffle::records::{Generator, Mode, RECORD_BYTES, Summary, checksum};
use serde::Deserialize;
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
struct Cases<T> {
    cases: Vec<T>,
}

#[derive(Deserialize)]
struct GenerateCase {
    mode: String,
    start: String,
    records: usize,
    sha256: String,
    checksum: String,
}

#[derive(Deserialize)]
struct ValidateCase {
    case: String,
    stderr: Vec<String>,
    exit: u8,
    summary_hex: String,
}

fn generate(mode: Mode, start: u128, records: usize) -> Vec<u8> {
    let mut bytes = vec![0; records * RECORD_BYTES];
    Generator::new(mode).fill(start, &mut bytes);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn mode(name: &str) -> Mode {
    Mode { ascii: name.starts_with("ascii"), skewed: name.ends_with("-skewed") }
}

#[test]
fn generated_bytes_and_checksums_are_those_of_gensort() {
    let cases: Cases<GenerateCase> = serde_json::from_str(include_str!("vectors/gensort.json")).unwrap();
    assert_eq!(cases.cases.len(), 20);
    for case in cases.cases {
        let bytes = generate(mode(&case.mode), case.start.parse().unwrap(), case.records);
        let name = format!("{} from {}, {} records", case.mode, case.start, case.records);
        assert_eq!(format!("{:x}", checksum(&bytes)), case.checksum, "{name}");
        assert_eq!(hex(&Sha256::digest(&bytes)), case.sha256, "{name}");
    }
}

#[test]
fn generated_bytes_are_those_of_the_sample_files() {
    let samples: [(&str, &[u8]); 4] = [
        ("ascii", include_bytes!("vectors/gensort-ascii-from1000-50rec.dat")),
        ("ascii-skewed", include_bytes!("vectors/gensort-ascii-skewed-from1000-50rec.dat")),
        ("binary", include_bytes!("vectors/gensort-binary-from1000-50rec.dat")),
        ("binary-skewed", include_bytes!("vectors/gensort-binary-skewed-from1000-50rec.dat")),
    ];
    for (name, expected) in samples {
        let bytes = generate(mode(name), 1000, 50);
        for (index, (ours, theirs)) in bytes.chunks(RECORD_BYTES).zip(expected.chunks(RECORD_BYTES)).enumerate() {
            assert_eq!(hex(ours), hex(theirs), "{name}, record {}", 1000 + index);
        }
        assert_eq!(bytes.len(), expected.len(), "{name}");
    }
}

/// The inputs that the cases of `valsort.json` name.
fn validated_input(case: &str) -> Vec<u8> {
    let unsorted = generate(Mode::default(), 0, 5000);
    let mut rows: Vec<&[u8]> = unsorted.chunks(RECORD_BYTES).collect();
    match case {
        "records 0..4999 unsorted" => return unsorted,
        "records 0..4999 sorted" => rows.sort(),
        "records 0..4999 sorted, first record twice" => {
            rows.sort();
            rows.insert(0, rows[0]);
        }
        "records 0..4999 sorted, positions 10 and 20 swapped" => {
            rows.sort();
            rows.swap(10, 20);
        }
        other => panic!("no input is known for the case {other:?}"),
    }
    rows.concat()
}

#[test]
fn summaries_and_reports_are_those_of_valsort() {
    let cases: Cases<ValidateCase> = serde_json::from_str(include_str!("vectors/valsort.json")).unwrap();
    assert_eq!(cases.cases.len(), 4);
    for case in cases.cases {
        let input = validated_input(&case.case);
        let summary = Summary::of(&input);
        assert_eq!(hex(&summary.to_bytes()), case.summary_hex, "{}", case.case);
        assert_eq!(summary.lines(), case.stderr, "{}", case.case);
        assert_eq!(u8::from(!summary.is_ordered()), case.exit, "{}", case.case);

        // The same from partitions of uneven size, through summary files that follow each other.
        let file: Vec<u8> =
            input.chunks(777 * RECORD_BYTES).flat_map(|partition| Summary::of(partition).to_bytes()).collect();
        assert_eq!(hex(&Summary::concatenated(&file).unwrap().to_bytes()), case.summary_hex, "{}", case.case);
    }
}
