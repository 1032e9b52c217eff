//! Formats of files, which their names tell.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;

use exobus_files::Location;

/// How a file has its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputFormat {
    /// Parquet.
    Parquet,
    /// Text with commas.
    Csv,
    /// Text with tabs.
    Tsv,
    /// Text with an object of JSON in each line.
    JsonLines,
    /// Arrow IPC, as a file or a stream.
    Arrow,
    /// Records of 100 bytes, as those of the sort benchmark: keys of 10 bytes and values of 90.
    Records,
}

/// Extensions that say a format.
const EXTENSIONS: [(&str, InputFormat); 12] = [
    ("parquet", InputFormat::Parquet),
    ("parq", InputFormat::Parquet),
    ("pq", InputFormat::Parquet),
    ("csv", InputFormat::Csv),
    ("tsv", InputFormat::Tsv),
    ("tab", InputFormat::Tsv),
    ("jsonl", InputFormat::JsonLines),
    ("ndjson", InputFormat::JsonLines),
    ("arrow", InputFormat::Arrow),
    ("arrows", InputFormat::Arrow),
    ("ipc", InputFormat::Arrow),
    ("feather", InputFormat::Arrow),
];

/// What a name ends with, in any case and without dots: `csv` and `gz` of `a.CSV.gz`.
struct Ending {
    extension: Option<String>,
    packing: Option<&'static str>,
}

impl Ending {
    fn of(name: &str) -> Self {
        let name = name.to_lowercase();
        let name = name.rsplit('/').next().unwrap_or(&name);
        let stem = |packing: &'static str| Some((name.strip_suffix(packing)?.strip_suffix('.')?, Some(packing)));
        let (unpacked, packing) = stem("gz").or(stem("zst")).unwrap_or((name, None));
        Self { extension: unpacked.rsplit_once('.').map(|(_, extension)| extension.to_owned()), packing }
    }

    /// The format that it says; only text is packed as a whole.
    fn format(&self) -> Option<InputFormat> {
        let (_, format) = EXTENSIONS.iter().find(|(known, _)| Some(*known) == self.extension.as_deref())?;
        (self.packing.is_none() || format.is_text()).then_some(*format)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        [self.extension.as_deref(), self.packing].into_iter().flatten().try_for_each(|part| write!(f, ".{part}"))
    }
}

impl InputFormat {
    /// What `--input-format` calls them.
    pub const NAMES: [(&str, Self); 6] = [
        ("parquet", Self::Parquet),
        ("csv", Self::Csv),
        ("tsv", Self::Tsv),
        ("jsonl", Self::JsonLines),
        ("arrow", Self::Arrow),
        ("records", Self::Records),
    ];

    /// The format of a file of that name, by its extension in any case, before `.gz` and `.zst` where text is packed; records where it has none that is known.
    pub fn of(location: &Location) -> Self {
        Ending::of(&location.to_string()).format().unwrap_or(Self::Records)
    }

    /// Whether it is text, whose columns have the types that are said or inferred.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Csv | Self::Tsv | Self::JsonLines)
    }
}

/// Why a file of this name is not known to be a table by its name, and what to do; `None`: it has no extension.
pub(super) fn unknown_extension(name: &str) -> Option<String> {
    let ending = Ending::of(name);
    let extension = ending.extension.as_deref().or(ending.packing)?;
    let what_to_do = match (extension, ending.packing) {
        (known, Some(packing)) if EXTENSIONS.iter().any(|(extension, _)| *extension == known) => {
            format!("only text is read as .{packing}: unpack it first")
        }
        ("json", _) => "say --input-format jsonl if it has an object in each line; of a file that is one document, `jq -c '.[]' FILE` makes such lines".to_owned(),
        ("xlsx" | "xls" | "orc" | "avro", _) => {
            "exobus does not read what such files have: write it as Parquet or CSV".to_owned()
        }
        _ => "say --input-format csv, tsv or jsonl if it is text with commas or tabs, or an object of JSON in each line".to_owned(),
    };
    let known: Vec<_> = EXTENSIONS.iter().map(|(known, _)| format!(".{known}")).collect();
    Some(format!("{ending} is none of the extensions of tables ({}); {what_to_do}", known.join(", ")))
}

/// The pattern that stands for the files that are beside one and have its extension.
pub(crate) fn alike(location: &Location) -> String {
    let pattern = format!("*{}", Ending::of(&location.to_string()));
    location.to_path_buf().with_file_name(OsStr::new(&pattern)).display().to_string()
}

impl fmt::Display for InputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, format)| format == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for InputFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::NAMES.map(|(name, _)| name).join(", ");
        let format = Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, format)| *format);
        format.ok_or_else(|| format!("{text} is no format; known are {}", known()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn names_say_formats() {
        for (name, format) in [
            ("a/part.parquet", InputFormat::Parquet),
            ("a/B.CSV", InputFormat::Csv),
            ("b.csv.gz", InputFormat::Csv),
            ("b.tsv.zst", InputFormat::Tsv),
            ("b.jsonl", InputFormat::JsonLines),
            ("b.NDJSON.zst", InputFormat::JsonLines),
            ("b.parquet.gz", InputFormat::Records),
            ("x.arrow", InputFormat::Arrow),
            ("x.csv/part-00000", InputFormat::Records),
            ("part-00000", InputFormat::Records),
        ] {
            assert_eq!(InputFormat::of(&Path::new(name).into()), format, "{name}");
        }
        for (name, format) in InputFormat::NAMES {
            assert_eq!((name.parse::<InputFormat>().unwrap(), format.to_string()), (format, name.to_owned()));
        }
        assert!("cvs".parse::<InputFormat>().unwrap_err().contains("parquet, csv, tsv, jsonl, arrow, records"));
    }

    #[test]
    fn names_that_say_no_format_are_told_with_what_to_do() {
        for (name, texts) in [
            ("in/a.json", [".json is none of", "--input-format jsonl"]),
            ("in/a.avro", [".avro is none of", "write it as Parquet or CSV"]),
            ("in/a.TXT", [".txt is none of", "--input-format csv, tsv or jsonl"]),
            ("in/a.parquet.gz", [".parquet.gz is none of", "only text is read as .gz"]),
            ("in/a.gz", [".gz is none of", ".parquet, .parq, .pq, .csv"]),
        ] {
            let text = unknown_extension(name).unwrap();
            assert!(texts.iter().all(|what| text.contains(what)), "{text}");
        }
        assert_eq!(unknown_extension("in.json/part-00000"), None);
        for (name, pattern) in [("in/a.csv", "in/*.csv"), ("a.b.tsv.gz", "*.tsv.gz"), ("in/part-00000", "in/*")] {
            assert_eq!(alike(&Path::new(name).into()), pattern);
        }
    }
}
