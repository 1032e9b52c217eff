//! Files by themselves: written once, found, read.

use super::{Fixture, is_file, is_missing, names, read, some_bytes};
use crate::{ALIGNMENT, Access, AlignedBuffer, FileError, Kind, Location, Planned, WriteFile, WriteRequest};

fn planned(bytes: usize, request_bytes: usize) -> Planned {
    Planned { bytes: bytes as u64, request_bytes: request_bytes as u64 }
}

/// Writes a request; what is behind its bytes in the buffer is none of the file.
fn write_request(file: &dyn WriteFile, index: u32, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
    let mut buffer = AlignedBuffer::new(bytes.len().next_multiple_of(ALIGNMENT));
    buffer.fill(0xff);
    buffer[..bytes.len()].copy_from_slice(bytes);
    let length = buffer.len();
    let (buffer, written) = file.write(WriteRequest { index, offset, used: bytes.len(), buffer: Box::new(buffer) });
    assert_eq!(buffer.len(), length, "it comes back, or another one of its length");
    written
}

/// Writes a file in one request.
fn write(file: &Location, bytes: &[u8]) {
    let begun =
        file.system().unwrap().create_new(file, planned(bytes.len(), bytes.len().next_multiple_of(ALIGNMENT))).unwrap();
    write_request(&*begun, 0, 0, bytes).unwrap();
    begun.finish(bytes.len() as u64).unwrap();
}

/// Where there is no file there is none, whoever asks.
pub fn nothing_is_found_where_nothing_is(fixture: &Fixture) {
    let file = fixture.folder.join("missing");
    let system = file.system().unwrap();
    assert!(is_missing(system.look_up(&file)));
    assert!(!system.is_there(&file).unwrap());
    assert_eq!(system.read_small(&file, 10).unwrap(), None);
    let error = system.open(&file, Access::Direct).and_then(|file| file.status()).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("missing"), "{error}");
}

/// A name never shows half a file.
pub fn a_file_is_there_when_it_is_finished_and_not_before(fixture: &Fixture) {
    let file = fixture.folder.join("file");
    let system = file.system().unwrap();
    let begun = system.create_new(&file, planned(5, ALIGNMENT)).unwrap();
    write_request(&*begun, 0, 0, b"whole").unwrap();
    assert!(is_missing(system.look_up(&file)));
    assert_eq!(names(&fixture.folder), [""; 0]);
    begun.finish(5).unwrap();
    assert!(matches!(system.look_up(&file).unwrap(), Kind::File(status) if status.bytes == 5));
    assert_eq!(read(&file).unwrap(), b"whole");
    drop(begun);
    assert_eq!(read(&file).unwrap(), b"whole");
    let empty = fixture.folder.join("empty");
    system.create_new(&empty, Planned::default()).unwrap().finish(0).unwrap();
    assert_eq!(read(&empty).unwrap(), b"");
}

/// Who gives up has nothing to clean.
pub fn nothing_is_left_of_a_file_that_is_dropped_unfinished(fixture: &Fixture) {
    let file = fixture.folder.join("file");
    let system = file.system().unwrap();
    let begun = system.create_new(&file, planned(0, ALIGNMENT)).unwrap();
    write_request(&*begun, 0, 0, &[0; ALIGNMENT]).unwrap();
    drop(begun);
    assert!(is_missing(system.look_up(&file)));
    assert_eq!((fixture.count)(&fixture.folder), 0);
}

/// The first has the name; what others had begun meanwhile does not get it.
pub fn no_file_is_replaced(fixture: &Fixture) {
    let file = fixture.folder.join("file");
    let system = file.system().unwrap();
    let late = system.create_new(&file, planned(0, ALIGNMENT)).unwrap();
    write_request(&*late, 0, 0, &[0; 3]).unwrap();
    (fixture.put)(&file, b"first");
    assert!(matches!(late.finish(3), Err(FileError::Exists { .. })));
    drop(late);
    assert!(matches!(system.create_new(&file, planned(0, ALIGNMENT)), Err(FileError::Exists { .. })));
    assert_eq!((read(&file).unwrap(), names(&fixture.folder)), (b"first".to_vec(), vec!["file".to_owned()]));
}

/// Requests that are under way overtake each other.
pub fn requests_make_up_a_file_in_whatever_order_they_are_done(fixture: &Fixture) {
    let file = fixture.folder.join("file");
    let bytes = some_bytes(2 * ALIGNMENT + 100, 7);
    let begun = file.system().unwrap().create_new(&file, planned(bytes.len(), ALIGNMENT)).unwrap();
    for index in [2, 0, 1] {
        let from = index * ALIGNMENT;
        let used = (bytes.len() - from).min(ALIGNMENT);
        write_request(&*begun, index as u32, from as u64, &bytes[from..from + used]).unwrap();
    }
    begun.finish(bytes.len() as u64).unwrap();
    assert!(read(&file).unwrap() == bytes);
}

/// Aligned or not, in memory that is aligned or not, up to the end and beyond.
pub fn any_range_is_read_and_an_end_that_comes_early_is_told(fixture: &Fixture) {
    let (file, bytes) = (fixture.folder.join("file"), some_bytes(3 * ALIGNMENT + 10, 0));
    write(&file, &bytes);
    for access in [Access::Direct, Access::Cached, Access::Ranges] {
        let open = file.open(access).unwrap();
        let mut buffer = AlignedBuffer::new(2 * ALIGNMENT);
        let read = open.read_at(ALIGNMENT as u64, &mut buffer, ALIGNMENT).unwrap();
        assert!(read >= ALIGNMENT && buffer[..read] == bytes[ALIGNMENT..ALIGNMENT + read]);
        assert_eq!(open.read_at(2 * ALIGNMENT as u64, &mut buffer, ALIGNMENT + 10).unwrap(), ALIGNMENT + 10);
        assert_eq!(buffer[..ALIGNMENT + 10], bytes[2 * ALIGNMENT..]);
        let mut odd = [0; 5];
        assert_eq!(open.read_at(7, &mut odd, 5).unwrap(), 5);
        assert_eq!(odd, bytes[7..12]);
        assert_eq!(open.read_at(bytes.len() as u64 - 2, &mut odd, 1).unwrap(), 2);
        let error = open.read_at(bytes.len() as u64 - 3, &mut odd, 5).unwrap_err();
        let (end, wanted) = (bytes.len() as u64, bytes.len() as u64 + 2);
        let told =
            matches!(error, FileError::EndedEarly { offset, expected, .. } if (offset, expected) == (end, wanted));
        assert!(told, "{error}");
    }
}

/// Who reads on after a change either has the old bytes or is told (law 9).
pub fn a_file_that_was_replaced_is_not_taken_for_the_one_that_was_listed(fixture: &Fixture) {
    let file = fixture.folder.join("file");
    (fixture.put)(&file, b"old bytes");
    let Kind::File(listed) = file.system().unwrap().look_up(&file).unwrap() else { panic!("it is a file") };
    let before = file.open(Access::Cached).unwrap();
    before.check(listed).unwrap();
    (fixture.put)(&file, b"new bytes");
    let now = file.open(Access::Cached).unwrap();
    assert!(matches!(now.check(listed), Err(FileError::Changed { path }) if path == file.to_path_buf()));
    let mut buffer = [0; 9];
    match before.read_at(0, &mut buffer, 9) {
        Ok(_) => assert!(buffer == *b"old bytes" || before.check(listed).is_err()),
        Err(error) => assert!(error.is_about_data(), "{error}"),
    }
}

/// By the bytes of names, folders among files, without what is hidden; a folder is found by what is in it.
pub fn a_folder_lists_what_can_be_input_in_the_order_of_names(fixture: &Fixture) {
    let folder = &fixture.folder;
    for name in ["b", "a.b", "_exobus.json", ".hidden", "\u{fc}", "Z"] {
        write(&folder.join(name), name.as_bytes());
    }
    let inner = folder.join("a");
    (fixture.put)(&inner.join("x"), b"in the folder");
    assert_eq!(names(folder), ["Z", "a", "a.b", "b", "\u{fc}"]);
    for entry in folder.system().unwrap().list(folder).unwrap() {
        let entry = entry.unwrap();
        let found = folder.system().unwrap().look_up(&folder.join(&entry.name)).unwrap();
        assert_eq!((entry.kind, is_file(entry.kind)), (found, entry.name != "a"), "{:?}", entry.name);
    }
    assert_eq!((names(&inner), inner.system().unwrap().look_up(&inner).unwrap()), (vec!["x".to_owned()], Kind::Folder));
}

/// What somebody has put in the place of a small file may be any size.
pub fn small_files_are_read_up_to_a_length(fixture: &Fixture) {
    let file = fixture.folder.join("_small");
    (fixture.put)(&file, b"0123456789");
    let system = file.system().unwrap();
    assert_eq!(system.read_small(&file, 100).unwrap().unwrap(), b"0123456789");
    assert_eq!(system.read_small(&file, 4).unwrap().unwrap(), b"0123");
    assert!(system.is_there(&file).unwrap());
}

/// The files that a name stands for, and their lengths.
fn visit(location: &Location) -> Result<Vec<(Location, u64)>, FileError> {
    let mut found = Vec::new();
    let visited = crate::visit_files(
        (&[location.to_path_buf()], false),
        |_| Ok(()),
        |file, status| -> Result<(), FileError> {
            found.push((file.clone(), status.bytes));
            Ok(())
        },
    );
    visited.map(|()| found)
}

/// In the order of their names, whatever is a folder here.
pub fn a_pattern_stands_for_the_files_that_match(fixture: &Fixture) {
    let folder = fixture.folder.join("folder");
    let files = ["a/1.csv", "a/2.csv", "a/3.txt", "b/c/4.csv"].map(|name| folder.join(name));
    files.iter().for_each(|file| (fixture.put)(file, b"text"));
    for (pattern, matches) in [("a/*.csv", vec![0, 1]), ("**/*.csv", vec![0, 1, 3]), ("[a]", vec![0, 1, 2])] {
        let matches: Vec<_> = matches.into_iter().map(|at: usize| (files[at].clone(), 4)).collect();
        assert_eq!(visit(&folder.join(pattern)).unwrap(), matches, "{pattern}");
    }
    let missing = folder.join("*/*.parquet");
    assert!(matches!(visit(&missing), Err(FileError::NoMatch { path }) if path == missing.to_path_buf()));
}

/// Files in folders of a folder are input by a pattern, which the error says.
pub fn a_folder_that_has_folders_alone_says_which_pattern_has_their_files(fixture: &Fixture) {
    let folder = fixture.folder.join("folder");
    let files = ["y=1/a.csv", "y=2/m=3/b.csv"].map(|name| folder.join(name));
    files.iter().for_each(|file| (fixture.put)(file, b"text"));
    let error = visit(&folder).unwrap_err().to_string();
    assert!(error.contains("no files in this directory, but folders (\"y=1\")"), "{error}");
    for pattern in ["**", "**/*.csv"].map(|end| folder.join(end)) {
        assert!(error.contains(&format!("'{pattern}'")), "{pattern}: {error}");
        assert_eq!(visit(&pattern).unwrap(), files.clone().map(|file| (file, 4)));
    }
}

/// Of tables: in the order of names, with how many folders there are below what was named.
pub fn files_of_a_table_are_in_folders_that_say_values_too(fixture: &Fixture) {
    let folder = fixture.folder.join("table");
    let names = ["a.csv", "day=1/at=x/c.csv", "day=1/b.csv", "day=2/_hidden=1/d.csv", "other/e.csv"];
    names.iter().for_each(|name| (fixture.put)(&folder.join(name), b"text"));
    let visit = |name: &str| -> Result<Vec<(String, usize)>, FileError> {
        let (mut found, named) = (Vec::new(), if name.is_empty() { folder.clone() } else { folder.join(name) });
        let add = |file: &Location, _, below| -> Result<(), FileError> {
            found.push((file.to_string().trim_start_matches(&folder.to_string()).to_owned(), below));
            Ok(())
        };
        crate::visit_table_files((&[named.to_path_buf()], false), |_| Ok(()), add)?;
        Ok(found)
    };
    let of =
        |found: &[(&str, usize)]| found.iter().map(|(name, below)| ((*name).to_owned(), *below)).collect::<Vec<_>>();
    assert_eq!(visit("").unwrap(), of(&[("/a.csv", 0), ("/day=1/at=x/c.csv", 2), ("/day=1/b.csv", 1)]));
    assert_eq!(visit("day=1").unwrap(), of(&[("/day=1/at=x/c.csv", 1), ("/day=1/b.csv", 0)]));
    assert_eq!(visit("day=1/b.csv").unwrap(), of(&[("/day=1/b.csv", 0)]));
    assert_eq!(visit("day=[1-9]").unwrap_err().to_string(), visit("day=2").unwrap_err().to_string());
    assert_eq!(visit("day=*/*.csv").unwrap(), of(&[("/day=1/b.csv", 1)]));
    assert_eq!(visit("d*1").unwrap(), of(&[("/day=1/at=x/c.csv", 2), ("/day=1/b.csv", 1)]));
    assert!(is_missing(visit("other/none=1")));
    // Others have no such folders.
    assert!(matches!(self::visit(&folder.join("day=2")), Err(FileError::NoFiles { .. })));
    (fixture.put)(&folder.join(crate::CLAIM), b"{}");
    assert!(visit("day=1").is_err(), "a job writes there");
}

/// By whatever name it is given; a folder may be called so.
pub fn what_is_hidden_is_never_input(fixture: &Fixture) {
    let folder = fixture.folder.join("_folder");
    let (seen, hidden) = (folder.join("seen"), [folder.join("_hidden"), folder.join(".hidden")]);
    hidden.iter().for_each(|file| (fixture.put)(file, b"hidden"));
    assert!(matches!(visit(&folder), Err(FileError::NoFiles { path, folder: None }) if path == folder.to_path_buf()));
    (fixture.put)(&seen, b"seen");
    assert_eq!(visit(&folder).unwrap(), [(seen.clone(), 4)]);
    assert_eq!(visit(&seen).unwrap(), [(seen, 4)]);
    for file in hidden {
        assert!(matches!(visit(&file), Err(FileError::NotInput { path }) if path == file.to_path_buf()));
    }
    assert!(is_missing(visit(&folder.join("missing"))));
}
