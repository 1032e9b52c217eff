//! What a job takes back that gives its folder up: all that has got a name out of its folder of temporaries.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use super::directory::{remove_dir, remove_file, visible_names};
use super::{LocalFolder, is_file_of, step};
use crate::folder::MANIFEST_FORMAT;
use crate::local::place::is_same;
use crate::{FileError, Manifest};

impl LocalFolder {
    /// Removes the job's files, but for the claim.
    pub(super) fn withdraw_files(&self) -> Result<(), FileError> {
        let (temporaries, withdrawn) = (self.temporaries(), self.withdrawn());
        // What was begun before is ended first: the name has to be free.
        for from in [None, Some(&temporaries)] {
            match from.map_or(Ok(()), |from| fs::rename(from, &withdrawn)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                renamed => renamed.map_err(self.failed("withdraw"))?,
            }
            step()?;
            self.remove_placed(&withdrawn)?;
            step()?;
            remove_dir(&withdrawn)?;
        }
        Ok(())
    }

    /// Removes the files and folders that were given their names before the job withdrew.
    fn remove_placed(&self, withdrawn: &Path) -> Result<(), FileError> {
        // Nobody can place a manifest any more.
        if !withdrawn.exists() || self.is_whole()? {
            return Ok(());
        }
        let mut left = match visible_names(&self.path) {
            // Another attempt has withdrawn meanwhile.
            Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
            names => names?,
        };
        let mut folders = Vec::new();
        self.remove_linked(withdrawn, "", (&mut left, &mut folders))?;
        // Only where files are renamed is any of those that are left the job's.
        if !left.is_empty()
            && let Some(draft) = MANIFEST_FORMAT.read::<Manifest>(&withdrawn.join("manifest").into())?
        {
            for file in draft.files.iter().filter(|file| left.contains(&file.name)) {
                let path = self.path.join(&file.name);
                if is_file_of(&path, file.bytes, file.hash)? {
                    remove_file(&path)?;
                }
            }
        }
        for folder in folders {
            // Unless there is something in it.
            let _ = fs::remove_dir(self.path.join(folder));
            step()?;
        }
        Ok(())
    }

    /// Removes the files that are linked to temporaries in this folder and in those in it, whose names begin so; `folders`: these, each behind those in it.
    fn remove_linked(
        &self,
        withdrawn: &Path,
        before: &str,
        (left, folders): (&mut BTreeSet<String>, &mut Vec<String>),
    ) -> Result<(), FileError> {
        let failed = self.failed("withdraw");
        step()?;
        let entries = match fs::read_dir(withdrawn) {
            // Another attempt removes these folders, too, once it has done what is to be done here.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(&failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(&failed)?;
            let (path, Some(name)) = (entry.path(), entry.file_name().to_str().map(|name| format!("{before}{name}")))
            else {
                continue;
            };
            let is_folder = match entry.file_type() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                of => of.map_err(&failed)?.is_dir(),
            };
            if is_folder {
                self.remove_linked(&path, &format!("{name}/"), (&mut *left, &mut *folders))?;
                folders.push(name);
                continue;
            }
            let Some((of, _attempt)) = name.rsplit_once('.') else { continue };
            if left.contains(of) && is_same(&path, &self.path.join(of)).map_err(&failed)? {
                remove_file(&self.path.join(of))?;
                step()?;
                left.remove(of);
            }
        }
        Ok(())
    }
}
