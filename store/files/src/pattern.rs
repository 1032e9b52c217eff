//! Patterns: the files that a name with `*`, `?`, `[...]` or `**` in it stands for.
//!
//! - `*` is any part of a name, `?` one character, `[a-c]` one of these, `[!a-c]` one of all others; `[*]` is a `*`;
//! - `**`, alone between slashes, is any number of folders, none too; links to folders are not followed there;
//! - a folder that matches stands for the files in it, as it does where it is named; of a pattern with `**` only files match.
//!
//! Folders are listed by their file system, so that patterns mean the same everywhere.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::folder::ClaimCheck;
use crate::{FileError, Kind, Location, is_hidden};

/// What a name stands for that is a pattern.
pub(crate) struct Pattern {
    /// What is before the first part with something special.
    base: Location,
    steps: Vec<Step>,
}

/// What a part of a pattern between slashes is.
enum Step {
    /// This name.
    Name(OsString),
    /// Names like that.
    Like(glob::Pattern),
    /// Any name: what `**` at the end is, behind folders.
    Any,
    /// `**`
    Below,
}

/// What a pattern has met, in the order of names.
pub(crate) type Matched = BTreeMap<PathBuf, Kind>;

impl Pattern {
    /// The pattern that a name is; `None`: there is nothing special in it.
    ///
    /// # Errors
    /// [`FileError::Pattern`].
    pub(crate) fn of(name: &Location) -> Result<Option<Self>, FileError> {
        let bytes = name.as_os_str().as_bytes();
        let is_special = |part: &[u8]| part.iter().any(|byte| b"*?[".contains(byte));
        let Some(special) = bytes.iter().position(|byte| b"*?[".contains(byte)) else { return Ok(None) };
        let base_len = bytes[..special].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let mut steps = Vec::new();
        for part in bytes[base_len..].split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let part_text = OsStr::from_bytes(part);
            steps.push(match part {
                b"**" => Step::Below,
                part if is_special(part) => {
                    let pattern = glob::Pattern::new(&part_text.to_string_lossy());
                    let wrong = |error: glob::PatternError| FileError::Pattern {
                        path: name.to_path_buf(),
                        part: part_text.to_string_lossy().into_owned(),
                        reason: error.msg,
                    };
                    Step::Like(pattern.map_err(wrong)?)
                }
                _ => Step::Name(part_text.to_owned()),
            });
        }
        if let Some(Step::Below) = steps.last() {
            steps.push(Step::Any);
        }
        Ok(Some(Self { base: Location::new(OsStr::from_bytes(&bytes[..base_len])), steps }))
    }

    /// How many parts of a name that matches are behind what is before the first part with something special.
    pub(crate) fn parts_of(&self, matched: &Path) -> usize {
        matched.components().count().saturating_sub(self.base.to_path_buf().components().count())
    }
}

/// Looks for what a pattern stands for.
pub(crate) struct Search<'a, C> {
    /// Whether folders are looked at, too, that a job has claimed and not committed.
    partial: bool,
    /// Whether only files match.
    files_only: bool,
    check: &'a mut C,
    claims: ClaimCheck,
    found: Matched,
}

impl<'a, C> Search<'a, C> {
    /// What matches: files, and folders that stand for what is in them. What leads anywhere is checked first.
    ///
    /// # Errors
    /// [`FileError::NoMatch`]; [`FileError::Unfinished`]; those of `check`.
    pub(crate) fn run<E>(pattern: &Pattern, name: &Location, partial: bool, check: &'a mut C) -> Result<Matched, E>
    where
        C: FnMut(&Location) -> Result<(), E>,
        E: From<FileError>,
    {
        let files_only = pattern.steps.iter().any(|step| matches!(step, Step::Below));
        let mut search = Self { partial, files_only, check, claims: ClaimCheck::default(), found: Matched::new() };
        search.walk(&pattern.base, &pattern.steps)?;
        match search.found.is_empty() {
            true => Err(FileError::NoMatch { path: name.to_path_buf() }.into()),
            false => Ok(search.found),
        }
    }

    /// Adds what matches the steps from a folder on.
    fn walk<E>(&mut self, folder: &Location, steps: &[Step]) -> Result<(), E>
    where
        C: FnMut(&Location) -> Result<(), E>,
        E: From<FileError>,
    {
        let Some((step, rest)) = steps.split_first() else { return Ok(()) };
        match step {
            Step::Name(name) => {
                let kind = self.behind(&folder.join(name))?;
                return self.meet((folder, name), kind, rest);
            }
            Step::Below => self.walk(folder, rest)?,
            Step::Like(_) | Step::Any => {}
        }
        for entry in entries(folder)? {
            let entry = entry?;
            let is_match = match step {
                Step::Like(pattern) => pattern.matches(&entry.name.to_string_lossy()),
                Step::Any => true,
                Step::Name(_) | Step::Below => false,
            };
            match (step, entry.kind) {
                (Step::Below, Kind::Folder) => self.walk(&folder.join(&entry.name), steps)?,
                (_, Kind::Link) if is_match => {
                    let kind = self.behind(&folder.join(&entry.name))?;
                    self.meet((folder, &entry.name), kind, rest)?;
                }
                (_, kind) if is_match => self.meet((folder, &entry.name), Some(kind), rest)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// What has a name, which may lead anywhere.
    fn behind<E>(&mut self, location: &Location) -> Result<Option<Kind>, E>
    where
        C: FnMut(&Location) -> Result<(), E>,
        E: From<FileError>,
    {
        (self.check)(location)?;
        Ok(found(location.system()?.look_up(location))?)
    }

    /// Goes on from what matches a step.
    fn meet<E>(&mut self, (folder, name): (&Location, &OsStr), kind: Option<Kind>, rest: &[Step]) -> Result<(), E>
    where
        C: FnMut(&Location) -> Result<(), E>,
        E: From<FileError>,
    {
        let location = folder.join(name);
        match kind {
            Some(Kind::Folder) if !rest.is_empty() => self.walk(&location, rest)?,
            Some(Kind::Folder) if !self.files_only => {
                self.found.insert(location.to_path_buf(), Kind::Folder);
            }
            Some(Kind::File(status)) if rest.is_empty() && !is_hidden(name) => {
                if !self.partial {
                    self.claims.look_at(folder)?;
                }
                self.found.insert(location.to_path_buf(), Kind::File(status));
            }
            _ => {}
        }
        Ok(())
    }
}

/// What is in a folder; nothing, where it is not there.
fn entries(folder: &Location) -> Result<crate::Entries, FileError> {
    let here = match folder.as_os_str().is_empty() {
        true => Location::from("."),
        false => folder.clone(),
    };
    Ok(found(here.system()?.list(&here))?.unwrap_or_else(|| Box::new(std::iter::empty())))
}

/// `None`: nothing is there.
fn found<T>(looked_up: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match looked_up {
        Ok(found) => Ok(Some(found)),
        Err(FileError::Io { source, .. })
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// What `pattern` stands for in `folder`, by names below it.
    fn matched(folder: &Path, pattern: &str) -> Result<Vec<String>, FileError> {
        let mut files = Vec::new();
        crate::visit_files(
            (&[folder.join(pattern)], false),
            |_| Ok(()),
            |location, _| -> Result<(), FileError> {
                let below = location.as_path().unwrap().strip_prefix(folder).unwrap();
                files.push(below.to_str().unwrap().to_owned());
                Ok(())
            },
        )?;
        Ok(files)
    }

    fn table() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["a/1.csv", "a/2.csv", "a/3.txt", "a/_4.csv", "a-b/5.csv", "a/c/6.csv", "d[1].csv", "d1.csv", ".e/7.csv"]
        {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        folder
    }

    #[test]
    fn a_pattern_stands_for_what_matches_in_the_order_of_names() {
        let folder = table();
        for (pattern, files) in [
            ("a/*.csv", &["a/1.csv", "a/2.csv"][..]),
            ("a/[!1]*", &["a/2.csv", "a/3.txt", "a/c/6.csv"]),
            ("a/?.txt", &["a/3.txt"]),
            ("*/*.csv", &["a/1.csv", "a/2.csv", "a-b/5.csv"]),
            ("*/c/6.csv", &["a/c/6.csv"]),
            ("a*", &["a/1.csv", "a/2.csv", "a/3.txt", "a-b/5.csv"]),
            ("**/*.csv", &["a/1.csv", "a/2.csv", "a/c/6.csv", "a-b/5.csv", "d1.csv", "d[1].csv"]),
            ("a/**", &["a/1.csv", "a/2.csv", "a/3.txt", "a/c/6.csv"]),
            ("**/c/**/*.csv", &["a/c/6.csv"]),
            ("**/**/6.csv", &["a/c/6.csv"]),
            // What has this very name is meant.
            ("d[1].csv", &["d[1].csv"]),
            ("d[[]1].csv", &["d[1].csv"]),
            ("d[0-9].csv", &["d1.csv"]),
        ] {
            assert_eq!(matched(folder.path(), pattern).unwrap(), files, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_without_a_match_says_so() {
        let folder = table();
        for pattern in ["a/*.parquet", "missing/*", "a/1.csv/*", "a/_*.csv", ".*/7.csv", "a/*/missing"] {
            let error = matched(folder.path(), pattern).unwrap_err();
            assert!(matches!(&error, FileError::NoMatch { path } if path.ends_with(pattern)), "{pattern}: {error}");
        }
        for (pattern, part) in [("a/[1.csv", "[1.csv"), ("a/**.csv", "**.csv")] {
            let error = matched(folder.path(), pattern).unwrap_err().to_string();
            assert!(error.contains(&format!("{part:?} is no pattern")), "{error}");
        }
    }

    #[test]
    fn links_are_checked_before_they_are_followed_and_not_followed_into_any_depth() {
        let (folder, elsewhere) = (table(), table());
        symlink(elsewhere.path().join("a"), folder.path().join("link")).unwrap();
        symlink(folder.path(), folder.path().join("a/c/loop")).unwrap();
        assert_eq!(matched(folder.path(), "**/6.csv").unwrap(), ["a/c/6.csv"]);
        assert_eq!(matched(folder.path(), "l*/1.csv").unwrap(), ["link/1.csv"]);
        let visit = |pattern: &str| {
            let refuse = |location: &Location| match location.as_os_str().as_bytes().ends_with(b"link") {
                true => Err(FileError::NotInput { path: location.to_path_buf() }),
                false => Ok(()),
            };
            crate::visit_files((&[folder.path().join(pattern)], false), refuse, |_, _| Ok(()))
        };
        assert!(matches!(visit("l*/1.csv"), Err(FileError::NotInput { .. })));
        assert!(matches!(visit("l*"), Err(FileError::NotInput { .. })));
        // Whoever goes up behind a pattern is checked, too.
        let mut seen = Vec::new();
        let see = |location: &Location| -> Result<(), FileError> {
            seen.push(location.to_path_buf());
            Ok(())
        };
        crate::visit_files((&[folder.path().join("a-*/../a/1.csv")], false), see, |_, _| Ok(())).unwrap();
        assert!(seen.contains(&folder.path().join("a-b/..")), "{seen:?}");
    }

    #[test]
    fn files_of_a_job_that_is_not_finished_are_refused_behind_a_pattern_too() {
        let folder = table();
        fs::write(folder.path().join("a").join(crate::CLAIM), "{}").unwrap();
        assert!(matched(folder.path(), "a/*.csv").is_err());
        assert!(matched(folder.path(), "*/[5].csv").is_ok());
    }
}
