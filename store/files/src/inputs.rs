//! Input: which files the names that a user gave stand for.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::folder::check_input_folder;
use crate::pattern::{Matched, Pattern, Search};
use crate::{FileError, FileStatus, Kind, Location, is_hidden};

/// Calls `file` for each file that `paths` name: a file stands for itself, a folder for the files in it, in order of their names, without those whose
/// names begin with `.` or `_` (temporaries, markers): these are never input. Empty files are kept. A name with `*`, `?`, `[...]` or `**` in it
/// that nothing has stands for what is named like that, in the order of names. Before it looks at what could lead
/// anywhere (a name that is given, a link in a folder) it calls `check`.
///
/// A folder that a job has claimed and not committed is refused, unless what is there by now will do: `partial`.
///
/// # Errors
/// A name of nothing or of what cannot be read, a folder without files, [`FileError::NoMatch`], [`FileError::Pattern`], [`FileError::Unfinished`], [`FileError::NotInput`]; those of `check` and
/// `file`.
pub fn visit_files<E: From<FileError>>(
    (paths, partial): (&[PathBuf], bool),
    mut check: impl FnMut(&Location) -> Result<(), E>,
    mut file: impl FnMut(&Location, FileStatus) -> Result<(), E>,
) -> Result<(), E> {
    for path in paths {
        let location = Location::from(path);
        check(&location)?;
        let looked_up = location.system()?.look_up(&location);
        let is_missing = match &looked_up {
            Err(FileError::Io { source, .. }) => {
                matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
            }
            _ => false,
        };
        if is_missing && let Some(pattern) = Pattern::of(&location)? {
            let matched = Search::run(&pattern, &location, partial, &mut check)?;
            visit_matches(matched, partial, &mut check, &mut file)?;
            continue;
        }
        match looked_up? {
            Kind::Folder => visit_folder((&location, partial), &mut check, &mut file)?,
            Kind::File(_) if location.file_name().is_some_and(is_hidden) => {
                return Err(FileError::NotInput { path: path.clone() }.into());
            }
            Kind::File(status) => file(&location, status)?,
            Kind::Link | Kind::Other => {
                let expected = "regular file or directory";
                return Err(FileError::WrongKind { path: path.clone(), expected }.into());
            }
        }
    }
    Ok(())
}

fn visit_matches<E: From<FileError>>(
    matched: Matched,
    partial: bool,
    check: &mut impl FnMut(&Location) -> Result<(), E>,
    file: &mut impl FnMut(&Location, FileStatus) -> Result<(), E>,
) -> Result<(), E> {
    for (path, kind) in matched {
        let location = Location::from(path);
        match kind {
            Kind::File(status) => file(&location, status)?,
            _ => visit_folder((&location, partial), check, file)?,
        }
    }
    Ok(())
}

fn visit_folder<E: From<FileError>>(
    (folder, partial): (&Location, bool),
    check: &mut impl FnMut(&Location) -> Result<(), E>,
    file: &mut impl FnMut(&Location, FileStatus) -> Result<(), E>,
) -> Result<(), E> {
    if !partial {
        check_input_folder(folder)?;
    }
    let system = folder.system()?;
    let (mut any, mut first_folder) = (false, None);
    for entry in system.list(folder)? {
        let entry = entry?;
        let location = folder.join(&entry.name);
        let kind = match entry.kind {
            Kind::Link => {
                check(&location)?;
                system.look_up(&location)?
            }
            kind => kind,
        };
        match kind {
            Kind::File(status) => {
                any = true;
                file(&location, status)?;
            }
            Kind::Folder if first_folder.is_none() => {
                first_folder = Some(entry.name.to_string_lossy().into_owned());
            }
            _ => (),
        }
    }
    match any {
        true => Ok(()),
        false => Err(FileError::NoFiles { path: folder.to_path_buf(), folder: first_folder }.into()),
    }
}
