//! Small files that say what a folder is: how they are written and read.
//!
//! Each is one JSON object with the version of its format in a field of the format's own name. Another version is refused, and
//! fields that are not known are ignored.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use serde::de::DeserializeOwned;

use super::super::FileError;

/// A kind of file.
pub(super) struct Format {
    /// The field that holds the version.
    pub(super) name: &'static str,
    /// The version that is written and read.
    pub(super) version: u64,
    /// A longer file is none of ours, bytes.
    pub(super) bytes_max: u64,
}

impl Format {
    /// Reads a file; `None` when it is not there.
    pub(super) fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>, FileError> {
        match self.bytes(path) {
            Ok(bytes) => self.decode(path, &bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError::io(path, "read", 0, error)),
        }
    }

    fn bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        // Whatever somebody has put there: no link is followed, and nobody is waited for who opens the other end of a pipe.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(self.bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// What `bytes` of the file `path` say.
    pub(super) fn decode<T: DeserializeOwned>(&self, path: &Path, bytes: &[u8]) -> Result<T, FileError> {
        let damaged =
            |error: serde_json::Error| FileError::Damaged { path: path.to_owned(), reason: error.to_string() };
        // What another version is like nobody knows but that it has its number here.
        let fields: Versioned = serde_json::from_slice(bytes).map_err(damaged)?;
        match fields.0.get(self.name) {
            Some(version) if *version == Some(self.version) => serde_json::from_slice(bytes).map_err(damaged),
            Some(Some(found)) => Err(FileError::Version { path: path.to_owned(), found: *found, known: self.version }),
            _ => {
                let reason = format!("it has no version of {:?}", self.name);
                Err(FileError::Damaged { path: path.to_owned(), reason })
            }
        }
    }
}

/// The numbers among the fields of an object.
struct Versioned(std::collections::BTreeMap<String, Option<u64>>);

impl<'de> serde::Deserialize<'de> for Versioned {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> serde::de::Visitor<'de> for Fields {
            type Value = Versioned;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Versioned, A::Error> {
                let mut fields = std::collections::BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    // Only the version is looked at, which is a number and stands first.
                    if fields.is_empty() {
                        fields.insert(name, map.next_value::<serde_json::Value>()?.as_u64());
                    } else {
                        map.next_value::<serde::de::IgnoredAny>()?;
                    }
                }
                Ok(Versioned(fields))
            }
        }

        from.deserialize_map(Fields)
    }
}

/// Writes a file that is not there yet, and returns when it is on the disk. One that is there may be anybody's, under another name as well:
/// that is an error.
pub(super) fn write_new(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), FileError> {
    let failed = |error| FileError::io(path, "write", 0, error);
    let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
    let mut buffered = io::BufWriter::new(&file);
    write(&mut buffered).map_err(failed)?;
    buffered.flush().map_err(failed)?;
    drop(buffered);
    file.sync_all().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A draft may have got its final name meanwhile, under which others read it.
    #[test]
    fn a_file_that_is_there_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("draft");
        let write = |text: &'static str| write_new(&path, |to| to.write_all(text.as_bytes()));
        write("first").unwrap();
        assert!(write("second").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
    }
}
