//! Input: which files the names that a user gave stand for.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use crate::folder::ClaimCheck;
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
    check: impl FnMut(&Location) -> Result<(), E>,
    mut file: impl FnMut(&Location, FileStatus) -> Result<(), E>,
) -> Result<(), E> {
    let file = |location: &Location, status, _| file(location, status);
    Visit { partial, for_values: false, check, file, claims: ClaimCheck::default() }.paths(paths)
}

/// The same of a table: of a folder also the files in folders in it whose names [say a value](says_value) (`day=2024-01-31/city=oslo`), and in those in these.
/// `file` is told, too, in how many folders a file is below what was named: in a folder; behind what is the same in all matches of a pattern; and where several names are given, from the first folder on that
/// says another value in some of these than in others, as a shell makes `t/day=1 t/day=2` of `t/day=*`.
///
/// # Errors
/// As of [`visit_files`]; [`FileError::LinkToValues`], [`FileError::WithoutValue`]: there is a folder whose files would not be read.
pub fn visit_table_files<E: From<FileError>>(
    (paths, partial): (&[PathBuf], bool),
    check: impl FnMut(&Location) -> Result<(), E>,
    file: impl FnMut(&Location, FileStatus, usize) -> Result<(), E>,
) -> Result<(), E> {
    Visit { partial, for_values: true, check, file, claims: ClaimCheck::default() }.paths(paths)
}

/// A visit to all files that some names stand for.
struct Visit<C, F> {
    /// Whether folders are looked at, too, that a job has claimed and not committed.
    partial: bool,
    /// Whether folders in a folder are looked into that say values.
    for_values: bool,
    check: C,
    file: F,
    claims: ClaimCheck,
}

impl<C, F> Visit<C, F> {
    fn paths<E>(&mut self, paths: &[PathBuf]) -> Result<(), E>
    where
        C: FnMut(&Location) -> Result<(), E>,
        F: FnMut(&Location, FileStatus, usize) -> Result<(), E>,
        E: From<FileError>,
    {
        let alike = if self.for_values { values_alike(paths) } else { usize::MAX };
        for path in paths {
            let location = Location::from(path);
            (self.check)(&location)?;
            let looked_up = location.system()?.look_up(&location);
            let is_missing = match &looked_up {
                Err(FileError::Io { source, .. }) => {
                    matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
                }
                _ => false,
            };
            let below = parts_behind(path, alike);
            if is_missing && let Some(pattern) = Pattern::of(&location)? {
                // What is special in it is counted with what matches.
                let below = below.saturating_sub(pattern.parts_of(path));
                for (path, kind) in Search::run(&pattern, &location, self.partial, &mut self.check)? {
                    let (below, location) = (below + pattern.parts_of(&path), Location::from(path));
                    match kind {
                        Kind::File(status) => (self.file)(&location, status, below.saturating_sub(1))?,
                        _ => self.folder(&location, below)?,
                    }
                }
                continue;
            }
            match looked_up? {
                Kind::Folder => self.folder(&location, below)?,
                Kind::File(_) if location.file_name().is_some_and(is_hidden) => {
                    return Err(FileError::NotInput { path: path.clone() }.into());
                }
                Kind::File(status) => (self.file)(&location, status, below.saturating_sub(1))?,
                Kind::Link | Kind::Other => {
                    let expected = "regular file or directory";
                    return Err(FileError::WrongKind { path: path.clone(), expected }.into());
                }
            }
        }
        Ok(())
    }

    fn folder<E>(&mut self, folder: &Location, below: usize) -> Result<(), E>
    where
        C: FnMut(&Location) -> Result<(), E>,
        F: FnMut(&Location, FileStatus, usize) -> Result<(), E>,
        E: From<FileError>,
    {
        let mut first_folder = None;
        match self.files_in((folder, below), &mut first_folder)? {
            true => Ok(()),
            false => Err(FileError::NoFiles { path: folder.to_path_buf(), folder: first_folder }.into()),
        }
    }

    /// Whether there are files. `first_folder`: the first folder in it that was not looked into.
    fn files_in<E>(&mut self, (folder, below): (&Location, usize), first_folder: &mut Option<String>) -> Result<bool, E>
    where
        C: FnMut(&Location) -> Result<(), E>,
        F: FnMut(&Location, FileStatus, usize) -> Result<(), E>,
        E: From<FileError>,
    {
        if !self.partial {
            self.claims.look_at(folder)?;
        }
        let is_of_values = self.for_values && folder.file_name().is_some_and(says_value);
        let (system, mut any) = (folder.system()?, false);
        for entry in system.list(folder)? {
            let entry = entry?;
            let location = folder.join(&entry.name);
            let says_value = self.for_values && says_value(&entry.name);
            let kind = match entry.kind {
                Kind::Link => {
                    (self.check)(&location)?;
                    match system.look_up(&location)? {
                        Kind::Folder if says_value => {
                            return Err(FileError::LinkToValues { path: location.to_path_buf() }.into());
                        }
                        kind => kind,
                    }
                }
                Kind::Folder if says_value => {
                    any |= self.files_in((&location, below + 1), first_folder)?;
                    continue;
                }
                kind => kind,
            };
            match kind {
                Kind::File(status) => {
                    any = true;
                    (self.file)(&location, status, below)?;
                }
                Kind::Folder if is_of_values => {
                    return Err(FileError::WithoutValue { path: location.to_path_buf() }.into());
                }
                Kind::Folder if first_folder.is_none() => {
                    *first_folder = Some(entry.name.to_string_lossy().into_owned());
                }
                _ => (),
            }
        }
        Ok(any)
    }
}

/// The parts of a name that say values, and where they are among all of its parts.
fn parts_of_values(path: &Path) -> impl Iterator<Item = (usize, &OsStr)> {
    path.components().enumerate().filter_map(|(at, part)| match part {
        Component::Normal(name) if says_value(name) => Some((at, name)),
        _ => None,
    })
}

/// With how many values that are the same all names begin that say some.
fn values_alike(paths: &[PathBuf]) -> usize {
    let mut first: Option<Vec<&OsStr>> = None;
    for path in paths {
        let values = parts_of_values(path).map(|(_, name)| name);
        match &mut first {
            Some(first) => {
                let alike = first.iter().zip(values).take_while(|(one, other)| *one == other).count();
                // A name in no such folder is of another table, or none of one.
                if parts_of_values(path).next().is_some() {
                    first.truncate(alike);
                }
            }
            None => first = Some(values.collect()).filter(|values: &Vec<_>| !values.is_empty()),
        }
    }
    first.map_or(usize::MAX, |first| first.len())
}

/// How many parts a name has from the first one on that says a value behind so many others; 0: there is none.
fn parts_behind(path: &Path, values: usize) -> usize {
    parts_of_values(path).nth(values).map_or(0, |(at, _)| path.components().count() - at)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn table(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        folder
    }

    /// The files of a table that these names in a folder stand for, and how many folders there are below what was named.
    fn visit(folder: &Path, names: &[&str]) -> Result<Vec<(String, usize)>, FileError> {
        let (mut files, names) = (Vec::new(), names.iter().map(|name| folder.join(name)).collect::<Vec<_>>());
        let add = |location: &Location, _, below| -> Result<(), FileError> {
            let name = location.as_path().unwrap().strip_prefix(folder).unwrap();
            files.push((name.to_str().unwrap().to_owned(), below));
            Ok(())
        };
        visit_table_files((&names, false), |_| Ok(()), add)?;
        Ok(files)
    }

    #[track_caller]
    fn finds(folder: &Path, names: &[&str], found: &[(&str, usize)]) {
        let found: Vec<_> = found.iter().map(|(name, below)| ((*name).to_owned(), *below)).collect();
        assert_eq!(visit(folder, names).unwrap(), found, "{names:?}");
    }

    #[test]
    fn folders_of_values_that_would_not_be_read_are_refused_wherever_they_are() {
        let folder = table(&["t/day=1/a.csv", "t/notes/b.csv", "elsewhere/c.csv"]);
        let (at, elsewhere) = (|name: &str| folder.path().join(name), folder.path().join("elsewhere"));
        finds(folder.path(), &["t"], &[("t/day=1/a.csv", 1)]);
        // Files may be behind links, and a folder stands for the files in it.
        symlink(elsewhere.join("c.csv"), at("t/day=1/c.csv")).unwrap();
        symlink(&elsewhere, at("t/other")).unwrap();
        finds(folder.path(), &["t"], &[("t/day=1/a.csv", 1), ("t/day=1/c.csv", 1)]);

        symlink(&elsewhere, at("t/day=2")).unwrap();
        let error = visit(folder.path(), &["t"]).unwrap_err();
        assert!(matches!(&error, FileError::LinkToValues { path } if *path == at("t/day=2")), "{error}");
        // Whoever names it means it.
        finds(folder.path(), &["t/day=[12]"], &[("t/day=1/a.csv", 1), ("t/day=1/c.csv", 1), ("t/day=2/c.csv", 1)]);
        fs::remove_file(at("t/day=2")).unwrap();

        let refused = |names: &[&str], place: &str| {
            let error = visit(folder.path(), names).unwrap_err();
            assert!(matches!(&error, FileError::WithoutValue { path } if *path == at(place)), "{error}");
            assert!(error.is_bad_input() && error.to_string().contains("t/day=1/*/*'"), "{error}");
        };
        fs::create_dir(at("t/day=1/more")).unwrap();
        refused(&["t"], "t/day=1/more");
        refused(&["t/day=*"], "t/day=1/more");
        refused(&["t/day=1"], "t/day=1/more");
        fs::remove_dir(at("t/day=1/more")).unwrap();
        symlink(&elsewhere, at("t/day=1/link")).unwrap();
        refused(&["t"], "t/day=1/link");
        // Without folders that are columns there is nothing to be read in them.
        visit_files((&[at("t/day=1")], false), |_| Ok(()), |_, _| Ok::<_, FileError>(())).unwrap();
    }

    #[test]
    fn several_names_are_in_folders_as_the_pattern_is_that_stands_for_them() {
        let folder = table(&[
            "t/day=1/at=x/a.csv",
            "t/day=1/at=y/b.csv",
            "t/day=2/at=x/c.csv",
            "t/d.csv",
            "u/day=1/e.csv",
            "run=5/t/f.csv",
            "run=6/t/g.csv",
        ]);
        let all = [("t/day=1/at=x/a.csv", 2), ("t/day=1/at=y/b.csv", 2), ("t/day=2/at=x/c.csv", 2)];
        finds(folder.path(), &["t/day=*"], &all);
        finds(folder.path(), &["t/day=1", "t/day=2"], &all);
        finds(folder.path(), &["t/day=1*", "t/day=2"], &all);
        finds(folder.path(), &["t/day=1/*", "t/day=2/*"], &all);
        finds(folder.path(), &["t/day=1/at=x", "t/day=1/at=y/b.csv", "t/day=2"], &all);
        finds(folder.path(), &["t/day=1/at=x/a.csv", "t/day=1/at=y/b.csv", "t/day=2/at=x/c.csv"], &all);
        // What all of them have is named.
        let of_one_day = [("t/day=1/at=x/a.csv", 1), ("t/day=1/at=y/b.csv", 1)];
        finds(folder.path(), &["t/day=1/at=*"], &of_one_day);
        finds(folder.path(), &["t/day=1/at=x", "t/day=1/at=y"], &of_one_day);
        finds(folder.path(), &["t/day=1"], &of_one_day);
        finds(
            folder.path(),
            &["t/day=1/at=x", "t/day=1/at=x"],
            &[("t/day=1/at=x/a.csv", 0), ("t/day=1/at=x/a.csv", 0)],
        );
        finds(folder.path(), &["t/day=1/at=x", "u/day=1"], &[("t/day=1/at=x/a.csv", 1), ("u/day=1/e.csv", 0)]);
        // One that says a value is as it is alone, whatever is beside it; several are not.
        finds(folder.path(), &["u/day=1", "t/d.csv"], &[("u/day=1/e.csv", 0), ("t/d.csv", 0)]);
        let with_others = [all[0], all[1], all[2], ("t/d.csv", 0)];
        finds(folder.path(), &["t/day=1", "t/day=2", "t/d.csv"], &with_others);
        finds(folder.path(), &["run=5/t", "run=6/t"], &[("run=5/t/f.csv", 2), ("run=6/t/g.csv", 2)]);
    }

    #[test]
    fn a_folder_of_values_is_refused_while_a_job_writes_to_it_or_above_it() {
        let folder = table(&["t/day=1/a.csv", "t/day=2/b.csv"]);
        for claimed in ["t", "t/day=2"] {
            let claim = folder.path().join(claimed).join(crate::CLAIM);
            fs::write(&claim, "{}").unwrap();
            for names in [&["t"][..], &["t/day=2"], &["t/day=*"], &["t/day=*/*.csv"], &["t/day=1", "t/day=2"]] {
                assert!(visit(folder.path(), names).is_err(), "{claimed}: {names:?}");
            }
            assert_eq!(visit(folder.path(), &["t/day=1"]).is_ok(), claimed != "t");
            fs::remove_file(claim).unwrap();
        }
    }
}
