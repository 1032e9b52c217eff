//! Record files end to end: generated, listed, cut into chunks, read, validated; and what goes wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_files::contract::memory::MemoryFiles;
use exobus_shuffle::files::{
    ALIGNMENT, AlignedBuffer, ContentHash, FileError, InputFile, MANIFEST, Manifest, REQUEST_BYTES, ReadOptions,
    STRIDE_BYTES, chunks, generate_dir, generate_dir_until, generate_file, generate_file_until, list_files,
    list_inputs, read_chunk, validate_files,
};
use exobus_shuffle::jobs::sort::{CutsFrom, SortParams, sort};
use exobus_shuffle::records::{Generator, Mode, RECORD_BYTES, Summary, row_hash_sum};
use proptest::prelude::*;

fn records(start: u128, rows: usize) -> Vec<u8> {
    let mut bytes = vec![0; rows * RECORD_BYTES];
    Generator::new(Mode::default()).fill(start, &mut bytes);
    bytes
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_generated_file_has_the_records_of_the_generator() {
    let directory = tempfile::tempdir().unwrap();
    // Less than a record stride, more than a request, an exact number of requests, none at all.
    for rows in [1, 2 * REQUEST_BYTES / RECORD_BYTES + 12_345, REQUEST_BYTES / RECORD_BYTES, 0] {
        let path = directory.path().join(format!("{rows}.dat"));
        let generated = generate_file(&path, Mode::default(), 5, rows as u64, 3).unwrap();
        let expected = records(5, rows);
        assert!(fs::read(&path).unwrap() == expected, "{rows} rows");
        let summary = Summary::of(&expected);
        assert_eq!(generated.records, rows as u64);
        assert_eq!(generated.bytes, expected.len() as u64);
        assert_eq!((generated.checksum, generated.row_hash), (summary.checksum, row_hash_sum(&expected)));
        assert_eq!(validate_files(&list_inputs(&[path], false).unwrap(), 3).unwrap(), summary);
    }
    assert!(names(directory.path()).iter().all(|name| name.ends_with(".dat")));
}

#[test]
fn a_generated_directory_holds_the_same_records_in_name_order() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("a/b");
    let mode = Mode { ascii: true, skewed: true };
    let generated = generate_dir(&out, mode, 1 << 70, 250_001, 7, 4).unwrap();
    assert_eq!((names(&out)[0].as_str(), names(&out)[1].as_str(), names(&out).len()), (MANIFEST, "part-00000", 8));
    let manifest = Manifest::read(&out).unwrap().unwrap();
    assert_eq!(manifest.files.iter().map(|file| file.rows).sum::<u64>(), 250_001);
    for file in &manifest.files {
        let path = out.join(&file.name);
        assert_eq!((fs::metadata(&path).unwrap().len(), ContentHash::of_file(&path).unwrap()), (file.bytes, file.hash));
    }
    let mut expected = vec![0; 250_001 * RECORD_BYTES];
    Generator::new(mode).fill(1 << 70, &mut expected);
    let files = list_inputs(std::slice::from_ref(&out), false).unwrap();
    let written: Vec<u8> = files.iter().flat_map(|file| fs::read(&file.path).unwrap()).collect();
    assert!(written == expected);
    let summary = validate_files(&files, 4).unwrap();
    assert_eq!(summary, Summary::of(&expected));
    assert_eq!(generated.checksum, summary.checksum);

    let more_files_than_records = directory.path().join("c");
    generate_dir(&more_files_than_records, mode, 0, 2, 5, 4).unwrap();
    let files = list_inputs(&[more_files_than_records], false).unwrap();
    assert_eq!(files.iter().map(|file| file.bytes).sum::<u64>(), 200);
    assert_eq!(files.len(), 5);
}

#[test]
fn outputs_that_exist_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    fs::write(&path, b"mine").unwrap();
    let error = generate_file(&path, Mode::default(), 0, 10, 2).unwrap_err();
    assert!(matches!(&error, FileError::Exists { path: named } if *named == path), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    let error = generate_dir(directory.path(), Mode::default(), 0, 10, 2, 2).unwrap_err();
    assert!(matches!(&error, FileError::NotEmpty { found, .. } if found == "out"), "{error}");
    let error = generate_dir(&path, Mode::default(), 0, 10, 2, 2).unwrap_err();
    assert!(matches!(&error, FileError::WrongKind { expected: "directory", .. }), "{error}");
    assert_eq!(names(directory.path()), ["out"]);
    let error = generate_file(&directory.path().join("no/where"), Mode::default(), 0, 10, 2).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("no/"), "{error}");
}

#[test]
fn a_disk_without_room_leaves_nothing_under_any_name() {
    let directory = tempfile::tempdir().unwrap();
    // More than any disk has: the space is claimed before the first record is made.
    let path = directory.path().join("huge");
    let error = generate_file(&path, Mode::default(), 0, 1 << 45, 2).unwrap_err();
    assert!(matches!(error, FileError::DiskFull { .. } | FileError::Io { .. }), "{error}");
    assert!(error.to_string().contains("huge"), "{error}");
    assert_eq!(names(directory.path()), [""; 0]);
    let out = directory.path().join("dir");
    generate_dir(&out, Mode::default(), 0, 1 << 45, 2, 2).unwrap_err();
    assert!(!out.exists(), "the directory was made for this");
}

#[test]
fn listing_takes_visible_files_in_name_order_and_refuses_torn_ones() {
    let directory = tempfile::tempdir().unwrap();
    let list = |path: &Path| list_inputs(&[path.to_path_buf()], false);
    assert!(matches!(list(directory.path()).unwrap_err(), FileError::NoFiles { .. }));
    for (name, bytes) in [("part-00001", 200), ("part-00000", 100), (".part.tmp", 7), ("_done", 3), ("part-2", 0)] {
        fs::write(directory.path().join(name), vec![0; bytes]).unwrap();
    }
    fs::create_dir(directory.path().join("sub")).unwrap();
    let files = list(directory.path()).unwrap();
    let listed: Vec<_> =
        files.iter().map(|file| (file.path.file_name().unwrap().to_str().unwrap(), file.bytes)).collect();
    assert_eq!(listed, [("part-00000", 100), ("part-00001", 200), ("part-2", 0)]);

    let torn = directory.path().join("part-00001");
    fs::write(&torn, vec![0; 250]).unwrap();
    let error = list(directory.path()).unwrap_err();
    assert!(matches!(&error, FileError::Truncated { path, bytes: 250, offset: 200 } if *path == torn), "{error}");
    assert!(error.is_bad_input() && !error.retry_is_of_use());
    let error = list(&directory.path().join("missing")).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("missing"), "{error}");
}

#[test]
fn a_file_that_was_cut_after_listing_is_an_error_with_its_offset() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cut");
    fs::write(&path, vec![7; 30_000]).unwrap();
    let files = list_inputs(std::slice::from_ref(&path), false).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(12_345).unwrap();
    let error = validate_files(&files, 2).unwrap_err();
    assert!(matches!(&error, FileError::EndedEarly { offset: 12_345, expected: 30_000, .. }), "{error}");
    assert!(error.to_string().contains("cut"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunks_cover_every_record_once(rows in proptest::collection::vec(0u64..40_000, 0..5), chunk_bytes in 1u64..5_000_000) {
        let file = |(index, rows): (usize, &u64)| InputFile { path: PathBuf::from(index.to_string()), bytes: rows * 100 };
        let files: Vec<InputFile> = rows.iter().enumerate().map(file).collect();
        let chunks = chunks(&files, chunk_bytes);
        for file in &files {
            let mut offset = 0;
            for chunk in chunks.iter().filter(|chunk| chunk.path == file.path) {
                prop_assert_eq!(chunk.offset, offset);
                prop_assert!(chunk.bytes > 0 && chunk.bytes % 100 == 0);
                prop_assert!(chunk.bytes <= chunk_bytes + STRIDE_BYTES as u64);
                prop_assert_eq!(chunk.offset % ALIGNMENT as u64, 0);
                offset += chunk.bytes;
            }
            prop_assert_eq!(offset, file.bytes);
        }
    }

    /// Any range, also one that begins inside a block, by requests of any size, into memory of any alignment.
    #[test]
    fn a_chunk_reads_as_the_bytes_of_the_file(
        from in 0usize..900, rows in 0usize..900, request in 1usize..60_000, in_flight in 0usize..5, shift in 0usize..2,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("input");
        let bytes = records(0, 1000);
        fs::write(&path, &bytes).unwrap();
        let rows = rows.min(1000 - from);
        let chunk = exobus_shuffle::files::Chunk { path, offset: from as u64 * 100, bytes: rows as u64 * 100 };
        let mut scratch = AlignedBuffer::new(chunk.scratch_bytes() + shift);
        let options = ReadOptions { request_bytes: request, requests_in_flight: in_flight };
        let read = read_chunk(&chunk, &mut scratch[shift..], &options).unwrap();
        prop_assert!(*read == bytes[from * 100..(from + rows) * 100]);
    }
}

#[test]
fn file_systems_without_direct_io_work_too() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else { return };
    let out = directory.path().join("out");
    generate_dir(&out, Mode::default(), 0, 100_001, 2, 3).unwrap();
    let files = list_inputs(&[out], false).unwrap();
    assert_eq!(validate_files(&files, 3).unwrap(), Summary::of(&records(0, 100_001)));
}

#[test]
fn names_that_begin_with_a_dot_or_an_underscore_are_never_input() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["_records", ".records"] {
        let path = directory.path().join(name);
        fs::write(&path, vec![0; 100]).unwrap();
        for partial in [false, true] {
            let error = list_files(std::slice::from_ref(&path), partial).unwrap_err();
            assert!(matches!(&error, FileError::NotInput { path: named } if *named == path), "{error}");
        }
    }
    // A folder may be called so.
    let folder = directory.path().join("_folder");
    generate_dir(&folder, Mode::default(), 0, 10, 1, 1).unwrap();
    assert_eq!(list_files(&[folder], false).unwrap().len(), 1);
}

#[test]
fn generating_that_is_stopped_leaves_nothing() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let directory = tempfile::tempdir().unwrap();
    let mode = Mode::default();
    // Some ranges of 8 MB are written before somebody says stop.
    let asked = AtomicU32::new(0);
    let stop = || asked.fetch_add(1, Ordering::Relaxed) >= 3;
    let path = directory.path().join("out");
    assert_eq!(generate_file_until(&path, mode, 0, 1_000_000, 2, &stop).unwrap(), None);
    assert!(asked.load(Ordering::Relaxed) >= 4, "it was under way");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);

    asked.store(0, Ordering::Relaxed);
    assert_eq!(generate_dir_until(&path, mode, 0, 1_000_000, 3, 2, &stop).unwrap(), None);
    assert!(!path.exists(), "the folder was made for it");

    let never = || false;
    let all = generate_file_until(&path, mode, 0, 100_001, 2, &never).unwrap().unwrap();
    assert_eq!(all.records, 100_001);
}

/// Whether a sort of `inputs` to `output` went well.
fn sort_on_a_node(inputs: &str, output: &str) -> Result<u64, String> {
    let spill = tempfile::tempdir().unwrap();
    let mut options = NodeOptions::alone(2, 256 << 20);
    options.store.spill_dirs = vec![spill.path().to_owned()];
    let node = Node::start(options).unwrap();
    let (inputs, output) = (vec![inputs.into()], output.into());
    let params =
        SortParams { inputs, output, partitions: Some(3), strategy: None, cuts: CutsFrom::default(), partial: false };
    let program = async move |futures| sort(futures, params).await;
    let (report, _) = futures::executor::block_on(node.run(JobId::new(), "sort", None, program));
    report.map(|report| report.rows).map_err(|error| error.to_string())
}

/// No verb knows of a file system: what is registered is read and written, one as object stores are for instance.
#[test]
fn records_are_made_sorted_and_validated_where_nothing_can_be_renamed() {
    let files = MemoryFiles::default();
    exobus_files::register("memory", Arc::new(files.clone()));
    let (input, output) = ("memory://bucket/in", "memory://bucket/sorted");
    let generated = generate_dir(Path::new(input), Mode::default(), 0, 300_001, 3, 2).unwrap();
    assert_eq!(files.count(), (4, 0), "three files and the manifest, and no upload is left");
    assert_eq!(sort_on_a_node(input, output), Ok(300_001));
    let sorted = list_inputs(&[output.into()], false).unwrap();
    assert!(sorted.iter().all(|file| file.path.starts_with(output)) && sorted.len() == 3, "{sorted:?}");
    let summary = validate_files(&sorted, 2).unwrap();
    assert!(summary.is_ordered());
    assert_eq!((summary.records, summary.checksum), (300_001, generated.checksum));
    assert_eq!(files.count(), (8, 0));

    let error = sort_on_a_node(input, output).unwrap_err();
    assert!(error.contains("memory://bucket/sorted: directory is not empty"), "{error}");
    // A file ends inside a record, and the folder is not claimed for good.
    files.put(&"memory://bucket/torn/part".into(), &[0; 150]);
    let error = sort_on_a_node("memory://bucket/torn", "memory://bucket/other").unwrap_err();
    assert!(error.contains("memory://bucket/torn/part: truncated record file: 150 bytes"), "{error}");
    assert_eq!(files.count(), (9, 0));
    let error = sort_on_a_node("memoir://bucket/in", output).unwrap_err();
    assert!(error.contains("no files of scheme memoir here; known are paths and file, memory"), "{error}");

    let (one, stop) = ("memory://bucket/one", || true);
    generate_file(Path::new(one), Mode::default(), 0, 10, 1).unwrap();
    assert!(matches!(generate_file(Path::new(one), Mode::default(), 0, 10, 1), Err(FileError::Exists { .. })));
    let given_up = generate_file_until(Path::new("memory://bucket/two"), Mode::default(), 0, 10, 1, &stop);
    assert_eq!((given_up.unwrap(), files.count()), (None, (10, 0)));
}
