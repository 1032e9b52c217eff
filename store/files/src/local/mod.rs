//! The files of this machine.

mod direct;
mod folder;
mod list;
mod place;
mod ranges;
mod small;
mod write;

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

pub use direct::DirectFile;
use exobus_store::JobId;
pub use place::{Placed, place};
use ranges::RangesFile;
pub use write::sync_dir;

use self::folder::LocalFolder;
use self::write::AttemptFile;
use crate::{
    Access, CLAIM, Entries, FileError, FileStatus, FileSystem, FolderBackend, Kind, Location, LockState, Planned,
    ReadFile, Version, WriteFile,
};

/// The file system of this machine: of all paths, and of URLs `file:///path`.
#[derive(Debug, Default)]
pub struct LocalFiles;

impl FileSystem for LocalFiles {
    fn look_up(&self, location: &Location) -> Result<Kind, FileError> {
        let path = path_of(location)?;
        let metadata = std::fs::metadata(path).map_err(|error| FileError::io(path, "look up", 0, error))?;
        Ok(kind(&metadata))
    }

    fn list(&self, folder: &Location) -> Result<Entries, FileError> {
        list::list(path_of(folder)?)
    }

    fn open(&self, file: &Location, access: Access) -> Result<Arc<dyn ReadFile>, FileError> {
        let path = path_of(file)?;
        Ok(Arc::new(match access {
            Access::Direct => DirectFile::open(path)?,
            Access::Cached => DirectFile::open_cached(path)?,
            Access::Ranges => return Ok(Arc::new(RangesFile::open(path)?)),
        }))
    }

    fn is_there(&self, location: &Location) -> Result<bool, FileError> {
        let path = path_of(location)?;
        match path.symlink_metadata() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(FileError::io(path, "look up", 0, error)),
        }
    }

    fn read_small(&self, file: &Location, bytes_max: u64) -> Result<Option<Vec<u8>>, FileError> {
        small::read_small(path_of(file)?, bytes_max)
    }

    fn create_new(&self, file: &Location, planned: Planned) -> Result<Arc<dyn WriteFile>, FileError> {
        let path = path_of(file)?;
        if path.symlink_metadata().is_ok() {
            return Err(FileError::Exists { path: path.to_path_buf() });
        }
        let Some(name) = path.file_name() else {
            return Err(FileError::WrongKind { path: path.to_path_buf(), expected: "name for a file" });
        };
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let begun = format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id());
        Ok(Arc::new(AttemptFile::begin(directory, &begun, Some(path), planned.bytes)?))
    }

    fn output_folder(&self, folder: &Location, job: JobId) -> Result<Box<dyn FolderBackend>, FileError> {
        Ok(Box::new(LocalFolder::new(path_of(folder)?, job)))
    }

    fn check_output_folder(&self, folder: &Location) -> Result<(), FileError> {
        folder::check_output_folder(path_of(folder)?)
    }

    fn lock_claim(&self, folder: &Location) -> Result<LockState, FileError> {
        let path = path_of(folder)?;
        folder::lock(path).map_err(|error| FileError::io(path.join(CLAIM), "lock the claim", 0, error))
    }
}

/// The path of a local file.
fn path_of(location: &Location) -> Result<&Path, FileError> {
    let elsewhere = || std::io::Error::new(std::io::ErrorKind::Unsupported, "it is not on this machine");
    location.as_path().ok_or_else(|| FileError::io(location.clone(), "look up", 0, elsewhere()))
}

fn kind(metadata: &Metadata) -> Kind {
    let kind = metadata.file_type();
    if kind.is_file() {
        Kind::File(status(metadata))
    } else if kind.is_dir() {
        Kind::Folder
    } else if kind.is_symlink() {
        Kind::Link
    } else {
        Kind::Other
    }
}

fn status(metadata: &Metadata) -> FileStatus {
    let known = [metadata.ino(), metadata.len(), metadata.mtime() as u64, metadata.mtime_nsec() as u64];
    FileStatus { bytes: metadata.len(), version: Version::of(known.map(u64::to_le_bytes).as_flattened()) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::{ALIGNMENT, AlignedBuffer, Entry};

    #[test]
    fn a_folder_lists_what_can_be_input_in_the_order_of_names_and_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [("b", 3), ("a", 0), ("a.b", 1), ("_exobus.json", 7), (".hidden", 7)] {
            fs::write(folder.path().join(name), vec![0; bytes]).unwrap();
        }
        fs::create_dir(folder.path().join("Z")).unwrap();
        symlink("b", folder.path().join("c")).unwrap();
        symlink("nowhere", folder.path().join("d")).unwrap();
        let location = Location::from(folder.path());
        let entries = location.system().unwrap().list(&location).unwrap().map(Result::unwrap);
        let found: Vec<_> = entries.map(|Entry { name, kind }| (name.into_string().unwrap(), kind)).collect();
        let file = |name: &str| LocalFiles.look_up(&location.join(name)).unwrap();
        let expected = [
            ("Z", Kind::Folder),
            ("a", file("a")),
            ("a.b", file("a.b")),
            ("b", file("b")),
            ("c", Kind::Link),
            ("d", Kind::Link),
        ];
        assert_eq!(found, expected.map(|(name, kind)| (name.to_owned(), kind)));
        assert!(matches!(file("b"), Kind::File(FileStatus { bytes: 3, .. })));
        assert_eq!(file("c"), file("b"), "who looks a link up gets what it leads to");
        let error = LocalFiles.look_up(&location.join("d")).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("/d: look up"), "{error}");
    }

    #[test]
    fn ranges_are_read_whatever_they_are_and_an_end_that_comes_early_is_an_error_with_its_offset() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..3 * ALIGNMENT + 10).map(|at| (at % 251) as u8).collect();
        let location = Location::from(folder.path()).join("file");
        fs::write(location.as_path().unwrap(), &bytes).unwrap();
        for access in [Access::Direct, Access::Cached, Access::Ranges] {
            let file = location.system().unwrap().open(&location, access).unwrap();
            assert_eq!(file.status().unwrap().bytes, bytes.len() as u64);
            let mut buffer = AlignedBuffer::new(2 * ALIGNMENT);
            let read = file.read_at(ALIGNMENT as u64, &mut buffer, ALIGNMENT).unwrap();
            assert!(read >= ALIGNMENT && buffer[..read] == bytes[ALIGNMENT..ALIGNMENT + read]);
            // The last block is not full; the request is as long as if it were.
            assert_eq!(file.read_at(2 * ALIGNMENT as u64, &mut buffer, ALIGNMENT + 10).unwrap(), ALIGNMENT + 10);
            let mut odd = [0; 5];
            assert_eq!(file.read_at(7, &mut odd, 5).unwrap(), 5);
            assert_eq!(odd, bytes[7..12]);
            let error = file.read_at(bytes.len() as u64 - 3, &mut odd, 5).unwrap_err();
            let (end, wanted) = (bytes.len() as u64, bytes.len() as u64 + 2);
            assert!(
                matches!(error, FileError::EndedEarly { offset, expected, .. } if (offset, expected) == (end, wanted))
            );
        }
        let missing = location.join("not a folder");
        assert!(LocalFiles.open(&missing, Access::Cached).unwrap_err().is_bad_input());
    }

    #[test]
    fn a_file_that_was_written_to_or_replaced_is_known_from_the_one_that_was_listed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("file"), folder.path().join("other"));
        fs::write(&path, "first").unwrap();
        let listed = fs::metadata(&path).unwrap();
        let file = LocalFiles.open(&Location::from(&*path), Access::Cached).unwrap();
        file.check(status(&listed)).unwrap();
        let written = fs::File::options().write(true).open(&path).unwrap();
        // As a writer does whose clock tells the time in ns.
        written.set_modified(listed.modified().unwrap() + std::time::Duration::from_nanos(1)).unwrap();
        assert!(matches!(file.check(status(&listed)), Err(FileError::Changed { .. })));
        written.set_modified(listed.modified().unwrap()).unwrap();
        file.check(status(&listed)).unwrap();
        written.set_len(4).unwrap();
        written.set_modified(listed.modified().unwrap()).unwrap();
        assert!(matches!(file.check(status(&listed)), Err(FileError::Changed { .. })), "it is shorter");

        fs::write(&other, "other").unwrap();
        fs::File::options().write(true).open(&other).unwrap().set_modified(listed.modified().unwrap()).unwrap();
        fs::rename(&other, &path).unwrap();
        let file = LocalFiles.open(&Location::from(&*path), Access::Cached).unwrap();
        assert!(file.check(status(&listed)).unwrap_err().to_string().contains("changed"), "another file has its name");
    }

    #[test]
    fn a_url_of_an_unknown_scheme_is_refused_with_the_schemes_that_are_known() {
        let error = Location::from("gopher://host/file").system().unwrap_err();
        assert!(error.is_bad_input());
        assert_eq!(
            error.to_string(),
            "gopher://host/file: there are no files of scheme gopher here; known are paths and file"
        );
    }
}
