//! The manifest: what says that a folder is whole, and what stands in it.
//!
//! One line for each file, so that it is written and looked through without being held in memory.

use std::io::{self, Write};
use std::path::Path;

use exobus_store::JobId;
use serde::{Deserialize, Serialize};

use super::Made;
use super::format::Format;
use crate::{ContentHash, FileError, Location};

/// Its name in the folder.
pub const MANIFEST: &str = "_exobus.json";

pub(crate) const FORMAT: Format = Format { name: "exobus_manifest", version: 1, bytes_max: 1 << 30 };

/// What the rows of a folder's files are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// "records" of a fixed length, "text" with a row on each line, "csv", or "bytes" of which nothing is known.
    pub format: String,
    /// Length of a record, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_bytes: Option<u64>,
    /// Length of the key at the beginning of a record, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_bytes: Option<u64>,
    /// Names of columns, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// What stands between columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<String>,
    /// Whether each file begins with a line of names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub header: bool,
}

impl Schema {
    /// Rows of which nothing is known.
    pub fn bytes() -> Self {
        let (record_bytes, key_bytes, columns, delimiter) = (None, None, Vec::new(), None);
        Self { format: "bytes".to_owned(), record_bytes, key_bytes, columns, delimiter, header: false }
    }

    /// Records of `record_bytes` bytes, the first `key_bytes` of which are their key.
    pub fn records(record_bytes: u64, key_bytes: u64) -> Self {
        let (record_bytes, key_bytes) = (Some(record_bytes), Some(key_bytes));
        Self { format: "records".to_owned(), record_bytes, key_bytes, ..Self::bytes() }
    }

    /// Lines or CSV records with these columns.
    pub fn columns(format: &str, columns: Vec<String>, delimiter: char, header: bool) -> Self {
        let delimiter = Some(delimiter.to_string());
        Self { format: format.to_owned(), columns, delimiter, header, ..Self::bytes() }
    }
}

/// A file of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Its name in the folder, behind those of the folders in it that it is in.
    pub name: String,
    /// Rows in it.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
    /// The hash of its bytes.
    pub hash: ContentHash,
}

/// What stands in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Manifest {
    /// The job that has made it.
    pub job: JobId,
    /// Its program.
    pub program: String,
    /// What the rows are.
    pub schema: Schema,
    /// The files, in the order of their rows.
    pub files: Vec<ManifestFile>,
}

/// The job that has made a folder.
#[derive(Deserialize)]
struct Maker {
    job: JobId,
}

impl Manifest {
    /// The manifest in `folder`, if there is one.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or of another version.
    pub fn read(folder: impl Into<Location>) -> Result<Option<Self>, FileError> {
        FORMAT.read(&folder.into().join(MANIFEST))
    }

    /// What `bytes` say.
    ///
    /// # Errors
    /// They are damaged, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, FileError> {
        FORMAT.decode(Path::new(MANIFEST), bytes)
    }

    /// Who has made a folder, if it is whole.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn maker(folder: impl Into<Location>) -> Result<Option<JobId>, FileError> {
        Ok(FORMAT.read::<Maker>(&folder.into().join(MANIFEST))?.map(|maker| maker.job))
    }
}

/// Writes a manifest, file by file.
pub struct ManifestWriter<'a> {
    to: &'a mut dyn Write,
    files: u64,
}

impl<'a> ManifestWriter<'a> {
    /// Writes its beginning: who has made the folder, and what the rows are.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn begin(to: &'a mut dyn Write, job: JobId, (program, schema): Made<'_>) -> io::Result<Self> {
        let (program, schema) = (serde_json::to_string(program)?, serde_json::to_string(schema)?);
        let Format { name, version, .. } = FORMAT;
        write!(to, "{{\"{name}\":{version},\"job\":\"{job}\",\"program\":{program},\"schema\":{schema},\"files\":[")?;
        Ok(Self { to, files: 0 })
    }

    /// The next file, in the order of rows.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn add(&mut self, file: &ManifestFile) -> io::Result<()> {
        let comma = if self.files == 0 { "" } else { "," };
        self.files += 1;
        write!(self.to, "{comma}\n{}", serde_json::to_string(file)?)
    }

    /// Writes its end.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn end(self) -> io::Result<()> {
        self.to.write_all(b"\n]}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        let files = [("part-00000", 2, 200, 7), ("part-00001", 0, 0, 0)];
        let file = |(name, rows, bytes, hash): (&str, u64, u64, u128)| {
            let name = name.to_owned();
            ManifestFile { name, rows, bytes, hash: ContentHash(hash) }
        };
        let files = files.into_iter().map(file).collect();
        Manifest { job: JobId::from_u128(0x1234), program: "sort".to_owned(), schema: Schema::records(100, 10), files }
    }

    /// Folders that were made before must be read for ever.
    #[test]
    fn the_stored_sample_is_what_is_written_and_read() {
        let stored = include_bytes!("../../tests/samples/manifest-1.json");
        let mut written = Vec::new();
        let Manifest { job, program, schema, files } = sample();
        let mut writer = ManifestWriter::begin(&mut written, job, (&program, &schema)).unwrap();
        files.iter().for_each(|file| writer.add(file).unwrap());
        writer.end().unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), String::from_utf8_lossy(stored));
        assert_eq!(Manifest::decode(stored).unwrap(), sample());
    }

    #[test]
    fn another_version_is_refused_with_both_numbers_and_what_to_do() {
        let other = br#"{"exobus_manifest":2,"whatever":[1,{"else":null}]}"#;
        let error = Manifest::decode(other).unwrap_err().to_string();
        assert!(
            error.contains("format 2") && error.contains("format 1") && error.contains("use the exobus"),
            "{error}"
        );
        for damaged in ["", "{", "[]", "{\"job\":1}", "{\"exobus_manifest\":1}", "{\"exobus_manifest\":\"1\"}"] {
            let error = Manifest::decode(damaged.as_bytes()).unwrap_err();
            assert!(matches!(error, FileError::Damaged { .. }), "{damaged}: {error}");
        }
    }
}
