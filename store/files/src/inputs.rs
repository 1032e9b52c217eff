//! Input: which files the names that a user gave stand for.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::folder::check_input_folder;
use crate::pattern::{Pattern, Search};
use crate::{FileError, FileStatus, Kind, Location, is_hidden, says_value};

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
    let looks = Looks { partial, for_values: false };
    visit((paths, looks), &mut check, &mut |location, status, _| file(location, status))
}

/// The same of a table: of a folder also the files in folders in it whose names [say a value](says_value) (`day=2024-01-31/city=oslo`), and in those in these; links to folders are not followed there.
/// `file` is told, too, in how many folders a file is below what was named: in a folder, or behind what is the same in all matches of a pattern.
///
/// # Errors
/// As of [`visit_files`].
pub fn visit_table_files<E: From<FileError>>(
    (paths, partial): (&[PathBuf], bool),
    mut check: impl FnMut(&Location) -> Result<(), E>,
    mut file: impl FnMut(&Location, FileStatus, usize) -> Result<(), E>,
) -> Result<(), E> {
    let looks = Looks { partial, for_values: true };
    visit((paths, looks), &mut check, &mut file)
}

/// Which files of a folder are input.
#[derive(Clone, Copy)]
struct Looks {
    /// Those of a folder, too, that a job has claimed and not committed.
    partial: bool,
    /// Those in folders in it, too, that say values.
    for_values: bool,
}

fn visit<E: From<FileError>>(
    (paths, looks): (&[PathBuf], Looks),
    check: &mut impl FnMut(&Location) -> Result<(), E>,
    file: &mut impl FnMut(&Location, FileStatus, usize) -> Result<(), E>,
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
            for (path, kind) in Search::run(&pattern, &location, looks.partial, check)? {
                let (below, location) = (pattern.parts_of(&path), Location::from(path));
                match kind {
                    Kind::File(status) => file(&location, status, below.saturating_sub(1))?,
                    _ => visit_folder((&location, below), looks, check, file)?,
                }
            }
            continue;
        }
        match looked_up? {
            Kind::Folder => visit_folder((&location, 0), looks, check, file)?,
            Kind::File(_) if location.file_name().is_some_and(is_hidden) => {
                return Err(FileError::NotInput { path: path.clone() }.into());
            }
            Kind::File(status) => file(&location, status, 0)?,
            Kind::Link | Kind::Other => {
                let expected = "regular file or directory";
                return Err(FileError::WrongKind { path: path.clone(), expected }.into());
            }
        }
    }
    Ok(())
}

fn visit_folder<E: From<FileError>>(
    (folder, below): (&Location, usize),
    looks: Looks,
    check: &mut impl FnMut(&Location) -> Result<(), E>,
    file: &mut impl FnMut(&Location, FileStatus, usize) -> Result<(), E>,
) -> Result<(), E> {
    let mut first_folder = None;
    match visit_files_in((folder, below), looks, check, file, &mut first_folder)? {
        true => Ok(()),
        false => Err(FileError::NoFiles { path: folder.to_path_buf(), folder: first_folder }.into()),
    }
}

/// Whether there are files. `first_folder`: the first folder in it that was not looked into.
fn visit_files_in<E: From<FileError>>(
    (folder, below): (&Location, usize),
    looks: Looks,
    check: &mut impl FnMut(&Location) -> Result<(), E>,
    file: &mut impl FnMut(&Location, FileStatus, usize) -> Result<(), E>,
    first_folder: &mut Option<String>,
) -> Result<bool, E> {
    if !looks.partial {
        check_input_folder(folder)?;
    }
    let (system, mut any) = (folder.system()?, false);
    for entry in system.list(folder)? {
        let entry = entry?;
        let location = folder.join(&entry.name);
        let kind = match entry.kind {
            Kind::Link => {
                check(&location)?;
                system.look_up(&location)?
            }
            Kind::Folder if looks.for_values && says_value(&entry.name) => {
                any |= visit_files_in((&location, below + 1), looks, check, file, first_folder)?;
                continue;
            }
            kind => kind,
        };
        match kind {
            Kind::File(status) => {
                any = true;
                file(&location, status, below)?;
            }
            Kind::Folder if first_folder.is_none() => {
                *first_folder = Some(entry.name.to_string_lossy().into_owned());
            }
            _ => (),
        }
    }
    Ok(any)
}
