//! What a file or a folder is called.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::paths::{self, PathBytes};

/// The name of a file or a folder: the path of a local one, which need not be a text, or a URL, `scheme://...`. A path that looks like
/// a URL is written with `./` before it.
///
/// A `file://` URL of this machine is the path in it. Written as text where it is one, and else as bytes, as
/// paths are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location(OsString);

impl Location {
    /// What `name` names.
    pub fn new(name: impl Into<OsString>) -> Self {
        let name = name.into();
        match local_path_of_url(name.as_bytes()) {
            Some(path) => Self(OsString::from_vec(path)),
            None => Self(name),
        }
    }

    /// The scheme of a URL; `None`: it is a local path.
    pub fn scheme(&self) -> Option<&str> {
        split_url(self.0.as_bytes()).map(|(scheme, _)| scheme)
    }

    /// The path, if it is a local one.
    pub fn as_path(&self) -> Option<&Path> {
        match self.scheme() {
            Some(_) => None,
            None => Some(Path::new(&self.0)),
        }
    }

    /// As it was written: a path, or a URL.
    pub fn as_os_str(&self) -> &OsStr {
        &self.0
    }

    /// As it was written, for what takes paths: the roots of a node, the text of an error.
    pub fn to_path_buf(&self) -> PathBuf {
        PathBuf::from(&self.0)
    }

    /// What is called `name` in this folder.
    #[must_use]
    pub fn join(&self, name: impl AsRef<OsStr>) -> Self {
        let mut joined = self.0.clone();
        if !matches!(joined.as_bytes().last(), None | Some(b'/')) {
            joined.push("/");
        }
        joined.push(name);
        Self(joined)
    }

    /// The last part of the name: that of the file in its folder. `None`: there is none, as of `/` and of `s3://bucket`.
    pub fn file_name(&self) -> Option<&OsStr> {
        match split_url(self.0.as_bytes()) {
            None => Path::new(&self.0).file_name(),
            Some((_, rest)) => {
                let name = rest.strip_suffix(b"/").unwrap_or(rest).rsplitn(2, |byte| *byte == b'/').collect::<Vec<_>>();
                (name.len() == 2 && !name[0].is_empty()).then(|| OsStr::from_bytes(name[0]))
            }
        }
    }

    /// The same from any working directory.
    ///
    /// # Errors
    /// The working directory is gone, or the path empty.
    pub fn absolute(&self) -> std::io::Result<Self> {
        match self.as_path() {
            Some(path) => Ok(Self(std::path::absolute(path)?.into_os_string())),
            None => Ok(self.clone()),
        }
    }

    /// For people.
    pub fn display(&self) -> Cow<'_, str> {
        self.0.to_string_lossy()
    }
}

/// Scheme and rest of a URL with an authority.
fn split_url(name: &[u8]) -> Option<(&str, &[u8])> {
    let end = name.windows(3).position(|at| at == b"://")?;
    let scheme = std::str::from_utf8(&name[..end]).ok()?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme.then_some((scheme, &name[end + 3..]))
}

/// The path in a `file://` URL of this machine, its escapes undone.
fn local_path_of_url(name: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = split_url(name)?;
    let rest = rest.strip_prefix(b"localhost").unwrap_or(rest);
    (scheme.eq_ignore_ascii_case("file") && rest.starts_with(b"/")).then(|| unescaped(rest))
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut bytes, mut at) = (Vec::with_capacity(text.len()), 0);
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    bytes
}

/// Whether what has this name is never input: it begins with `.` or `_`, as temporaries, claims and manifests do.
pub fn is_hidden(name: &OsStr) -> bool {
    matches!(name.as_bytes().first(), Some(b'.' | b'_'))
}

/// Whether a folder of this name says the value of a column: `day=2024-01-31`.
pub fn says_value(name: &OsStr) -> bool {
    name.as_bytes().iter().position(|byte| *byte == b'=').is_some_and(|at| at > 0)
}

/// As it was written, whether it is a path or not: for what takes paths, as the roots of a node do.
impl AsRef<Path> for Location {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl From<&Path> for Location {
    fn from(path: &Path) -> Self {
        Self::new(path)
    }
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Self {
        Self::new(path)
    }
}

impl From<&PathBuf> for Location {
    fn from(path: &PathBuf) -> Self {
        Self::new(path)
    }
}

impl From<&Location> for Location {
    fn from(location: &Location) -> Self {
        location.clone()
    }
}

impl From<&str> for Location {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.display())
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Serialize for Location {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        paths::write(self.as_ref(), to)
    }
}

impl<'de> Deserialize<'de> for Location {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(PathBytes::deserialize(from)?.0.into_os_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_path_whatever_is_in_it_and_a_url_has_a_scheme() {
        for path in ["", "/", "part-00000", "in/a:b", "./s3://odd", "/x//y", "://x", "3s://x", "a b://x"] {
            let location = Location::from(path);
            assert_eq!((location.scheme(), location.as_path()), (None, Some(Path::new(path))), "{path}");
        }
        for (url, scheme) in [("s3://bucket/key", "s3"), ("abfs+x.1://y", "abfs+x.1"), ("file://elsewhere/x", "file")] {
            let location = Location::from(url);
            assert_eq!(
                (location.scheme(), location.as_path(), location.to_string().as_str()),
                (Some(scheme), None, url)
            );
        }
    }

    #[test]
    fn a_file_url_of_this_machine_is_its_path() {
        for (url, path) in [
            ("file:///data/in", &b"/data/in"[..]),
            ("FILE://localhost/data/a%20b%2f%", b"/data/a b/%"),
            ("file:///na%efve", b"/na\xefve"),
        ] {
            assert_eq!(Location::from(url).as_path(), Some(Path::new(OsStr::from_bytes(path))), "{url}");
        }
        assert_eq!(Location::from("file://localhostess/x").scheme(), Some("file"));
    }

    #[test]
    fn a_path_is_made_absolute_and_a_url_is_already() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(Location::from("in/x").absolute().unwrap().as_path(), Some(&*here.join("in/x")));
        for name in ["/in/x", "s3://bucket/../x"] {
            assert_eq!(Location::from(name).absolute().unwrap(), Location::from(name));
        }
    }

    #[test]
    fn names_in_folders_are_joined_and_found_again() {
        for (folder, joined) in [
            ("", "x"),
            ("/", "/x"),
            ("in", "in/x"),
            ("in/", "in/x"),
            ("s3://b", "s3://b/x"),
            ("s3://b/k/", "s3://b/k/x"),
        ] {
            let file = Location::from(folder).join("x");
            assert_eq!((file.to_string().as_str(), file.file_name()), (joined, Some(OsStr::new("x"))), "{folder}");
        }
        assert_eq!(Location::from("s3://b/k/").file_name(), Some(OsStr::new("k")));
        for folder in ["", "/", "..", "s3://bucket", "s3://bucket/"] {
            assert_eq!(Location::from(folder).file_name(), None, "{folder}");
        }
    }

    #[test]
    fn every_name_comes_back_as_it_was_and_texts_are_written_as_texts() {
        for name in [&b"/data/na\xefve"[..], b"in/part-00000", b"s3://bucket/key"] {
            let location = Location::new(OsStr::from_bytes(name));
            let bytes = rmp_serde::to_vec_named(&location).unwrap();
            assert_eq!(rmp_serde::from_slice::<Location>(&bytes).unwrap(), location);
            if let Ok(text) = std::str::from_utf8(name) {
                assert_eq!(bytes, rmp_serde::to_vec_named(text).unwrap());
            }
        }
    }
}
