//! Directories: made, looked through, removed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use super::super::write::sync_dir;
use super::LOOKS_MAX;
use crate::{FileError, is_hidden};

/// Makes sure that a folder is there; true when it was made.
pub(super) fn make_folder(path: &Path) -> Result<bool, FileError> {
    let failed = |operation| move |error| FileError::io(path, operation, 0, error);
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => {
            return Err(FileError::WrongKind { path: path.to_path_buf(), expected: "directory" });
        }
        Ok(_) => {
            // An attempt before this one may have made it, and ended there. Who may not read the parent did not.
            let _ = path.parent().map(sync_dir);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_there = |folder: &Path| folder.as_os_str().is_empty() || folder.exists();
            let new: Vec<&Path> = path.ancestors().take_while(|folder| !is_there(folder)).collect();
            fs::create_dir_all(path).map_err(failed("create the directory"))?;
            // As with files: what a log says to be there has to be.
            new.into_iter().filter_map(Path::parent).try_for_each(sync_dir)?;
            return Ok(true);
        }
        Err(error) => return Err(failed("look up")(error)),
    }
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(|error| failed("write to the directory")(error.into()))?;
    Ok(false)
}

pub(super) fn make_dir(path: &Path) -> Result<(), FileError> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(FileError::io(path, "create the directory", 0, error))
        }
        _ => Ok(()),
    }
}

pub(super) fn is_empty_but(path: &Path, excepted: impl Fn(&str) -> bool) -> Result<(), FileError> {
    let failed = |error| FileError::io(path, "list", 0, error);
    let mut found: Option<String> = None;
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        // Always the same one of several.
        if !excepted(&name) && found.as_ref().is_none_or(|found| name < *found) {
            found = Some(name);
        }
    }
    found.map_or(Ok(()), |found| Err(FileError::NotEmpty { path: path.to_path_buf(), found }))
}

/// Makes sure that these folders are in one that is there, one in the other (`a/b`), and that their names are on the disk.
pub(super) fn make_dirs(path: &Path, folders: &str) -> Result<(), FileError> {
    let mut inside = path.to_owned();
    for folder in folders.split('/') {
        let parent = inside.clone();
        inside.push(folder);
        make_dir(&inside)?;
        sync_dir(&parent)?;
    }
    Ok(())
}

/// The names in a folder that would be input, and in folders in it, behind the names of these; of a folder that has no such name its own.
pub(super) fn visible_names(path: &Path) -> Result<BTreeSet<String>, FileError> {
    let mut names = BTreeSet::new();
    add_visible_names(path, "", &mut names)?;
    Ok(names)
}

fn add_visible_names(path: &Path, before: &str, names: &mut BTreeSet<String>) -> Result<(), FileError> {
    let failed = |error| FileError::io(path, "list", 0, error);
    let entries = match fs::read_dir(path) {
        // Who withdraws may have removed it since it was seen.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !before.is_empty() => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if is_hidden(&entry.file_name()) {
            continue;
        }
        let (name, others) = (format!("{before}{}", entry.file_name().to_string_lossy()), names.len());
        if entry.file_type().map_err(failed)?.is_dir() {
            add_visible_names(&entry.path(), &format!("{name}/"), names)?;
        }
        if names.len() == others {
            names.insert(name);
        }
    }
    Ok(())
}

pub(super) fn remove_file(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::io(path, "remove", 0, error)),
        _ => Ok(()),
    }
}

/// Removes a folder of temporaries, in which tasks that still run may begin files meanwhile.
pub(super) fn remove_dir(path: &Path) -> Result<(), FileError> {
    let mut last = io::Error::from(io::ErrorKind::DirectoryNotEmpty);
    for _ in 0..LOOKS_MAX {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => return Ok(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) => {
                last = error
            }
            Err(error) => return Err(FileError::io(path, "remove", 0, error)),
        }
    }
    Err(FileError::io(path, "remove", 0, last))
}
