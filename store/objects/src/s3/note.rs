//! Notes of uploads.
//!
//! Nobody sees an upload that is not completed, and a store need not be able to list them. So each upload of a job has a note, an
//! object of its own in the folder of the output, before its first part is sent: who ends a job, wherever that is, finds there what
//! is to be completed or given up.

use exobus_files::{FileError, Format};
use serde::{Deserialize, Serialize};

const FORMAT: Format = Format { name: "exobus_upload", version: 1, bytes_max: 2 << 20 };

/// What a note says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// The version of the format; stands first.
    #[serde(rename = "exobus_upload")]
    version: u64,
    /// What the file will be called in the folder.
    pub(super) name: String,
    /// What the store calls the upload.
    pub(super) upload: String,
    /// What the store calls its parts, in their order; none before it is whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<String>,
}

impl Note {
    /// Of an upload that has just begun.
    pub(super) fn begun(name: &str, upload: &str) -> Self {
        Self { version: FORMAT.version, name: name.to_owned(), upload: upload.to_owned(), parts: Vec::new() }
    }

    /// The same when all parts are there.
    pub(super) fn whole(self, parts: Vec<String>) -> Self {
        Self { parts, ..self }
    }

    /// As an object.
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts are written")
    }

    /// The note that is called `id` in a folder; `None`: there is none.
    pub(super) fn read(folder: &super::bucket::Object, id: &str) -> Result<Option<Self>, FileError> {
        let object = folder.join(id);
        let Some((bytes, _)) = object.small(FORMAT.bytes_max)? else { return Ok(None) };
        Ok(Some(FORMAT.decode(object.location().as_ref(), &bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A later exobus may have to give up what this one has begun.
    #[test]
    fn the_stored_sample_is_what_is_written_and_read() {
        let stored = include_bytes!("../../tests/samples/upload-1.json");
        let parts = vec!["\"e1\"".to_owned(), "\"e2\"".to_owned()];
        let note = Note::begun("day=1/part-00000", "u/1").whole(parts);
        assert_eq!(String::from_utf8(note.encode()).unwrap(), String::from_utf8_lossy(stored).trim_end());
        assert_eq!(FORMAT.decode::<Note>("note".as_ref(), stored).unwrap(), note);
        let other = FORMAT.decode::<Note>("note".as_ref(), br#"{"exobus_upload":2}"#).unwrap_err().to_string();
        assert!(other.contains("format 2") && other.contains("format 1"), "{other}");
    }
}
