//! Paths in parameters and messages. The name of a file is bytes and need not be a text, so `PathBuf`, which `serde` writes as
//! text only, is never written by itself: fields say `#[serde(with = "exobus_files::paths")]`, and what is no field of its
//! own is a [`PathBytes`].
//!
//! A path that is UTF-8 is written as text, any other one as bytes; no two paths are written alike.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path as it is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathBytes(pub PathBuf);

impl Serialize for PathBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for PathBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PathVisitor).map(Self)
    }
}

pub(crate) fn write<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    match path.to_str() {
        Some(text) => serializer.serialize_str(text),
        None => serializer.serialize_bytes(path.as_os_str().as_bytes()),
    }
}

struct PathVisitor;

impl Visitor<'_> for PathVisitor {
    type Value = PathBuf;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path, as text or as bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PathBuf, E> {
        Ok(PathBuf::from(text))
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<PathBuf, E> {
        Ok(PathBuf::from(OsStr::from_bytes(bytes)))
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<PathBuf, E> {
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }
}

/// What has paths in it and nothing else: one, or a list.
pub trait Paths: Sized {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the serializer.
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
    /// Reads it.
    ///
    /// # Errors
    /// Something else is there.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

impl Paths for PathBuf {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(self, serializer)
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(PathBytes::deserialize(deserializer)?.0)
    }
}

impl Paths for Vec<PathBuf> {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Written<'a>(&'a Path);

        impl Serialize for Written<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                write(self.0, serializer)
            }
        }

        serializer.collect_seq(self.iter().map(|path| Written(path)))
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<PathBytes>::deserialize(deserializer)?.into_iter().map(|path| path.0).collect())
    }
}

/// For `#[serde(with = "exobus_files::paths")]`.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<P: Paths, S: Serializer>(paths: &P, serializer: S) -> Result<S::Ok, S::Error> {
    paths.write(serializer)
}

/// For `#[serde(with = "exobus_files::paths")]`.
///
/// # Errors
/// Something else is there.
pub fn deserialize<'de, P: Paths, D: Deserializer<'de>>(deserializer: D) -> Result<P, D::Error> {
    P::read(deserializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Told {
        #[serde(with = "super")]
        one: PathBuf,
        #[serde(with = "super")]
        many: Vec<PathBuf>,
    }

    #[test]
    fn every_path_comes_back_as_it_was_and_text_is_written_as_before() {
        let strange = PathBuf::from(OsStr::from_bytes(b"/data/na\xefve"));
        let told = Told { one: strange.clone(), many: vec![PathBuf::from("/data/in"), strange] };
        let bytes = rmp_serde::to_vec_named(&told).unwrap();
        assert_eq!(rmp_serde::from_slice::<Told>(&bytes).unwrap(), told);

        let plain = PathBuf::from("/data/na\u{ef}ve");
        let bytes = rmp_serde::to_vec_named(&PathBytes(plain.clone())).unwrap();
        assert_eq!(bytes, rmp_serde::to_vec_named(&plain).unwrap());
        assert!(rmp_serde::from_slice::<PathBytes>(&rmp_serde::to_vec_named(&7).unwrap()).is_err());
    }
}
