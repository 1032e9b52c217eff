//! Files that are compressed: they are recognized, so that nobody counts their bytes as if they were data.

use std::path::Path;

use exobus_files::{Access, FileError, Location};

/// How files begin that these formats make. Text has no such beginning, and few other files have it by chance.
const SIGNATURES: [(&str, &[u8]); 5] = [
    ("gzip", b"\x1f\x8b\x08"),
    ("zstd", b"\x28\xb5\x2f\xfd"),
    ("xz", b"\xfd7zXZ\x00"),
    ("bzip2", b"BZh"),
    ("zip", b"PK\x03\x04"),
];
/// What follows the first four bytes of a bzip2 file: three letters can be a word.
const BZIP2_BLOCK: &[u8] = b"\x31\x41\x59\x26\x53\x59";
/// So much of a file tells.
pub(crate) const SIGNATURE_BYTES: usize = 10;

/// Which format the file that begins with `start` has, if it is compressed.
fn format(start: &[u8]) -> Option<&'static str> {
    let (format, _) = SIGNATURES.into_iter().find(|(_, signature)| start.starts_with(signature))?;
    (format != "bzip2" || start.get(4..SIGNATURE_BYTES) == Some(BZIP2_BLOCK)).then_some(format)
}

/// Refuses a file whose first bytes, [`SIGNATURE_BYTES`] where it has so many, are those of a compressed one.
///
/// # Errors
/// [`FileError::Compressed`].
pub(crate) fn refuse_compressed(path: &Path, start: &[u8]) -> Result<(), FileError> {
    match format(start) {
        Some(format) => Err(FileError::Compressed { path: path.to_owned(), format }),
        None => Ok(()),
    }
}

/// What is to be said of a file that is not what it should be: that it is compressed, or else `error`.
pub(super) fn compressed_or(path: &Path, error: FileError) -> FileError {
    match start_of(path) {
        Ok(start) => refuse_compressed(path, &start).err().unwrap_or(error),
        // What was wrong before is wrong still.
        Err(_) => error,
    }
}

/// The first [`SIGNATURE_BYTES`] of a file, or all that it has.
fn start_of(path: &Path) -> Result<Vec<u8>, FileError> {
    let file = Location::from(path).open(Access::Cached)?;
    let mut start = vec![0; file.status()?.bytes.min(SIGNATURE_BYTES as u64) as usize];
    let bytes = start.len();
    file.read_at(0, &mut start, bytes)?;
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::format;

    #[test]
    fn compressed_files_are_told_by_their_beginning_and_texts_are_none() {
        assert_eq!(format(b"\x1f\x8b\x08\x08\x22\xa9\x03\x6b\x00\x03"), Some("gzip"));
        assert_eq!(format(b"\x28\xb5\x2f\xfd\x04\x00"), Some("zstd"));
        assert_eq!(format(b"\xfd7zXZ\x00\x00\x04"), Some("xz"));
        assert_eq!(format(b"BZh91AY&SY\xc5"), Some("bzip2"));
        assert_eq!(format(b"PK\x03\x04\x14\x00"), Some("zip"));
        for text in [&b""[..], b"BZh", b"BZhukov,1\n", b"PK,3\n", b"\x1f\x8b", b"city,price\n"] {
            assert_eq!(format(text), None, "{text:?}");
        }
    }
}
