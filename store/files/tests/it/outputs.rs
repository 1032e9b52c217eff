//! Files of attempts on this machine: what is written, under which names, and what is left.

use std::fs;
use std::path::Path;

use exobus_files::{ALIGNMENT, AlignedBuffer, Claimant, Claimed, ContentHash, IoBuffer, OutputFolder, part_name};
use exobus_store::JobId;
use proptest::prelude::*;

fn buffers(count: usize, bytes: usize) -> Vec<IoBuffer> {
    (0..count).map(|_| Box::new(AlignedBuffer::new(bytes)) as IoBuffer).collect()
}

/// The names of what attempts have written.
fn written(folder: &OutputFolder) -> Vec<String> {
    let entries = fs::read_dir(folder.working_place()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.starts_with("claim."));
    names.sort();
    names
}

/// A folder that a job has claimed.
fn claimed(directory: &Path) -> OutputFolder {
    let folder = OutputFolder::new(directory, JobId::new()).unwrap();
    assert_eq!(folder.claim(&Claimant::default(), None).unwrap(), Claimed::Now);
    folder
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_output_file_holds_what_was_written(
        pieces in proptest::collection::vec(0usize..9_000, 0..30), count in 1usize..4, blocks in 1usize..4, shift in 0usize..50,
        hint in 0u64..100_000,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let folder = claimed(directory.path());
        let buffers = buffers(count, blocks * ALIGNMENT + shift);
        let mut output = folder.create("part-00000", "a1", buffers, hint).unwrap();
        let mut expected = Vec::new();
        for (index, piece) in pieces.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..piece).map(|at| (at * 7 + index) as u8).collect();
            if index % 2 == 0 {
                output.write(&bytes).unwrap();
                expected.extend_from_slice(&bytes);
            } else {
                let room = output.spare().unwrap();
                prop_assert!(!room.is_empty());
                let filled = room.len().min(bytes.len());
                room[..filled].copy_from_slice(&bytes[..filled]);
                output.advance(filled);
                expected.extend_from_slice(&bytes[..filled]);
            }
            prop_assert_eq!(output.bytes(), expected.len() as u64);
        }
        let (token, buffers) = output.finish(7).unwrap();
        prop_assert_eq!(buffers.len(), count);
        prop_assert_eq!(token.bytes, expected.len() as u64);
        prop_assert_eq!(written(&folder), ["part-00000.a1"]);
        prop_assert_eq!((token.name.as_str(), token.temporary.as_str(), token.rows), ("part-00000", "part-00000.a1", 7));
        let path = folder.working_place().join(&token.temporary).to_path_buf();
        prop_assert!(fs::read(&path).unwrap() == expected);
        prop_assert_eq!(ContentHash::of_file(&path).unwrap(), token.hash);
        folder.abort(&token).unwrap();
        folder.abort(&token).unwrap();
        prop_assert_eq!(written(&folder), [""; 0]);
    }
}

#[test]
fn attempts_do_not_touch_each_other_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let folder = claimed(directory.path());
    let write = |attempt: &str, byte: u8| {
        let mut output = folder.create("part", attempt, buffers(2, 4096), 0).unwrap();
        output.write(&[byte; 10_000]).unwrap();
        output
    };
    let (lost, _) = write("1", 1).finish(0).unwrap();
    let (won, _) = write("2", 2).finish(0).unwrap();
    drop(write("3", 3));
    assert_eq!(written(&folder), ["part.1", "part.2"]);
    folder.abort(&lost).unwrap();
    assert_eq!(written(&folder), ["part.2"]);
    assert_eq!(fs::read(folder.working_place().join(won.temporary)).unwrap(), [2; 10_000]);
}

#[test]
fn a_file_for_which_there_is_no_room_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let folder = claimed(directory.path());
    // More than any disk has.
    let error = folder.create("part", "1", buffers(1, 4096), 1 << 52).unwrap_err();
    assert!(error.to_string().contains("part.1"), "{error}");
    assert_eq!(written(&folder), [""; 0]);
}

#[test]
fn names_of_parts_sort_as_their_numbers() {
    assert_eq!(part_name(7, 80), "part-00007");
    assert_eq!(part_name(99_999, 100_000), "part-99999");
    assert_eq!(part_name(7, 100_001), "part-000007");
}
