//! Giving a file a name that nothing has yet: nobody's file is ever replaced.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The name is that of the file; the old one may be, too.
    Now,
    /// Something else has the name.
    Taken,
}

/// Gives `from` the name `to`, which nothing may have.
///
/// A link is made, which no file system replaces anything for; while the old name is there, the two are seen to be one file,
/// wherever one looks. Where there are no links the file is renamed, by a call that replaces nothing either.
///
/// # Errors
/// Neither can be done there.
pub fn place(from: &Path, to: &Path) -> io::Result<Placed> {
    #[cfg(not(test))]
    let linked = rustix::fs::link(from, to);
    #[cfg(test)]
    let linked = if super::folder::tests::PLAIN.get() { Err(Errno::PERM) } else { rustix::fs::link(from, to) };
    let done = match linked {
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK | Errno::INVAL) => rename(from, to),
        linked => linked,
    };
    match done {
        Ok(()) => Ok(Placed::Now),
        // The answer to a request that was sent twice over a network may be that of the second one.
        Err(Errno::EXIST) if is_same(from, to)? => Ok(Placed::Now),
        Err(Errno::EXIST) => Ok(Placed::Taken),
        Err(error) => Err(error.into()),
    }
}

fn rename(from: &Path, to: &Path) -> rustix::io::Result<()> {
    renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
}

/// Whether two names are those of one file. A name that is not there is that of no file.
pub(super) fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let look = |path: &Path| match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(|metadata| Some((metadata.dev(), metadata.ino()))),
    };
    let one = look(one)?;
    Ok(one.is_some() && one == look(other)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn nothing_is_replaced_whichever_way_a_file_gets_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to, other) = (folder.path().join("from"), folder.path().join("to"), folder.path().join("other"));
        fs::write(&from, "ours").unwrap();
        fs::write(&other, "theirs").unwrap();
        assert_eq!(place(&from, &other).unwrap(), Placed::Taken);
        assert_eq!(rename(&from, &other), Err(Errno::EXIST));
        assert_eq!(fs::read(&other).unwrap(), b"theirs");
        assert_eq!(place(&from, &to).unwrap(), Placed::Now);
        assert_eq!(place(&from, &to).unwrap(), Placed::Now, "again");
        assert!(is_same(&from, &to).unwrap() && !is_same(&from, &other).unwrap());
        fs::remove_file(&to).unwrap();
        assert_eq!(rename(&from, &to), Ok(()));
        assert_eq!((fs::read(&to).unwrap(), from.exists()), (b"ours".to_vec(), false));
        assert_eq!(place(&from, &to).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
