//! What is in a folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::kind;
use crate::{Entries, Entry, FileError, is_hidden};

/// Names are read at once, to be put into order; what they are is looked up one by one.
pub(super) fn list(folder: &Path) -> Result<Entries, FileError> {
    let mut names = visible_names(folder)?;
    names.sort_unstable();
    let mut entries = Listing { folder: folder.to_owned(), names: names.into_iter() };
    Ok(Box::new(std::iter::from_fn(move || entries.next())))
}

/// Names in a folder that are not hidden, of whatever is there, in no order.
pub(super) fn visible_names(folder: &Path) -> Result<Vec<OsString>, FileError> {
    // The directory of a relative path of one name is the empty path.
    let failed = |error| FileError::io(folder, "list", 0, error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if !is_hidden(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

struct Listing {
    folder: PathBuf,
    names: std::vec::IntoIter<OsString>,
}

impl Listing {
    fn next(&mut self) -> Option<Result<Entry, FileError>> {
        let name = self.names.next()?;
        let path = self.folder.join(&name);
        match std::fs::symlink_metadata(&path) {
            Ok(metadata) => Some(Ok(Entry { name, kind: kind(&metadata) })),
            Err(error) => {
                self.names = Vec::new().into_iter();
                Some(Err(FileError::io(&*path, "look up", 0, error)))
            }
        }
    }
}
