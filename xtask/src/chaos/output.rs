//! Output folders, as somebody finds them who knows only what the documentation says.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Stands in a folder whose output is whole.
pub(super) const MANIFEST: &str = "_exobus.json";
/// Stands in a folder that a job writes to.
pub(super) const CLAIM: &str = "_exobus.claim";

/// Files of data, in the order of their names.
pub(super) fn parts(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    paths.retain(|path| path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"_")));
    paths.sort();
    Ok(paths)
}

/// Fails where a folder is not what a job leaves that is done: a manifest, no claim, nothing temporary.
pub(super) fn is_whole(folder: &Path) -> Result<()> {
    ensure!(folder.join(MANIFEST).is_file(), "{} has no manifest", folder.display());
    ensure!(!folder.join(CLAIM).exists(), "{} is still claimed", folder.display());
    for part in parts(folder)? {
        ensure!(
            !part.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")),
            "{} is left",
            part.display()
        );
    }
    Ok(())
}

/// Whether a job writes to a folder, or has left it unfinished.
pub(super) fn is_claimed(folder: &Path) -> bool {
    folder.join(CLAIM).exists()
}

/// Whether files of a job have their names: one that is about to claim a folder makes its own one in there first.
pub(super) fn has_files(folder: &Path) -> bool {
    let is_shown = |name: &std::ffi::OsStr| !matches!(name.as_encoded_bytes().first(), None | Some(b'.' | b'_'));
    fs::read_dir(folder).is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|e| is_shown(&e.file_name()))))
}

/// Whether there is nothing of a job: no folder, or an empty one.
pub(super) fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none()) || !folder.exists()
}
