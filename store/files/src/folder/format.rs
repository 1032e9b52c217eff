//! Small files that say what a folder is: how they are written and read.
//!
//! Each is one JSON object with the version of its format in a field of the format's own name. Another version is refused, and
//! fields that are not known are ignored.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::{FileError, Location};

/// A kind of file.
#[derive(Debug)]
pub struct Format {
    /// The field that holds the version.
    pub name: &'static str,
    /// The version that is written and read.
    pub version: u64,
    /// A longer file is none of ours, bytes.
    pub bytes_max: u64,
}

impl Format {
    /// Reads a file; `None` when it is not there.
    pub(crate) fn read<T: DeserializeOwned>(&self, file: &Location) -> Result<Option<T>, FileError> {
        let bytes = file.system()?.read_small(file, self.bytes_max)?;
        bytes.map(|bytes| self.decode(file.as_ref(), &bytes)).transpose()
    }

    /// What `bytes` of the file `path` say.
    ///
    /// # Errors
    /// They are damaged, or of another version.
    pub fn decode<T: DeserializeOwned>(&self, path: &Path, bytes: &[u8]) -> Result<T, FileError> {
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
