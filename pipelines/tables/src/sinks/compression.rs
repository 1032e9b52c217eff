//! How files are compressed, as people name it, which formats can be, and which have row groups.

use std::fmt;
use std::str::FromStr;

use parquet::basic::{Compression as Codec, GzipLevel, ZstdLevel};
use serde::{Deserialize, Serialize};

use super::{GROUP_ROWS, OutputFormat};

/// How files are compressed: the pages of Parquet one by one, text as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Not at all.
    None,
    /// Snappy, which every reader of Parquet knows.
    #[default]
    Snappy,
    /// LZ4, in blocks.
    Lz4,
    /// Zstandard of this level, 1 to 22; of text, 1 to [`TEXT_ZSTD_MAX`].
    Zstd(i32),
    /// Gzip of this level, 1 to 9.
    Gzip(u32),
}

/// The highest level of Zstandard that text has: those above take windows, of the writer's and of each reader's memory, of up to 128 MiB.
pub const TEXT_ZSTD_MAX: i32 = 19;

/// No compression has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no compression: none, snappy, lz4, zstd, zstd:LEVEL with a level of 1 to 22, gzip, or gzip:LEVEL with a level of 1 to 9"
)]
pub struct UnknownCompression(String);

/// A format has no files that are compressed so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{format} is not written with --compression {compression}: it can be {}", self.format.compressions())]
pub struct NotCompressed {
    format: OutputFormat,
    compression: Compression,
}

/// A format has no row groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} has no row groups, Parquet has: leave --row-group-rows out, or write --format parquet")]
pub struct NoRowGroups(OutputFormat);

impl FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(text: &str) -> Result<Self, UnknownCompression> {
        let (name, level) = match text.split_once(':') {
            None => (text, None),
            Some((name, level)) => (name, Some(level.parse::<u32>().map_err(|_| UnknownCompression(text.to_owned()))?)),
        };
        let known = match (name, level) {
            ("none", None) => Some(Self::None),
            ("snappy", None) => Some(Self::Snappy),
            ("lz4", None) => Some(Self::Lz4),
            ("zstd", None) => Some(Self::Zstd(1)),
            ("zstd", Some(level @ 1..=22)) => Some(Self::Zstd(level as i32)),
            ("gzip", None) => Some(Self::Gzip(6)),
            ("gzip", Some(level @ 1..=9)) => Some(Self::Gzip(level)),
            _ => None,
        };
        known.ok_or_else(|| UnknownCompression(text.to_owned()))
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Snappy => f.write_str("snappy"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
            Self::Gzip(level) => write!(f, "gzip:{level}"),
        }
    }
}

impl Compression {
    /// As the library of Parquet has it.
    pub(super) fn codec(self) -> Codec {
        match self {
            Self::None => Codec::UNCOMPRESSED,
            Self::Snappy => Codec::SNAPPY,
            Self::Lz4 => Codec::LZ4_RAW,
            Self::Zstd(level) => Codec::ZSTD(ZstdLevel::try_new(level).unwrap_or_default()),
            Self::Gzip(level) => Codec::GZIP(GzipLevel::try_new(level).unwrap_or_default()),
        }
    }
}

impl OutputFormat {
    /// The compressions that its files can have, in words.
    fn compressions(self) -> &'static str {
        match self {
            Self::Parquet => "none, snappy, lz4, zstd:1 to zstd:22 or gzip:1 to gzip:9",
            Self::Csv | Self::Tsv | Self::JsonLines => "none, zstd:1 to zstd:19 or gzip:1 to gzip:9",
            Self::Arrow | Self::Records => "none",
        }
    }

    fn can_be(self, compression: Compression) -> bool {
        let zstd_max = if self == Self::Parquet { 22 } else { TEXT_ZSTD_MAX };
        match (self, compression) {
            (_, Compression::None) => true,
            (Self::Arrow | Self::Records, _) => false,
            (_, Compression::Zstd(level)) => (1..=zstd_max).contains(&level),
            (_, Compression::Gzip(level)) => (1..=9).contains(&level),
            (format, Compression::Snappy | Compression::Lz4) => format == Self::Parquet,
        }
    }
}

/// What files are written as, how they are compressed, and how many rows a row group has: always what the format can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileForm {
    format: OutputFormat,
    compression: Compression,
    group_rows: u64,
}

impl Default for FileForm {
    fn default() -> Self {
        Self { format: OutputFormat::default(), compression: Compression::default(), group_rows: GROUP_ROWS }
    }
}

impl FileForm {
    /// Of a format, compressed as is said; where nothing is, Parquet has Snappy and the others nothing.
    ///
    /// # Errors
    /// Files of the format cannot be compressed so.
    pub fn new(format: OutputFormat, said: Option<Compression>) -> Result<Self, NotCompressed> {
        let unsaid = if format == OutputFormat::Parquet { Compression::Snappy } else { Compression::None };
        let compression = said.unwrap_or(unsaid);
        match format.can_be(compression) {
            true => Ok(Self { format, compression, group_rows: GROUP_ROWS }),
            false => Err(NotCompressed { format, compression }),
        }
    }

    /// The format.
    pub fn format(self) -> OutputFormat {
        self.format
    }

    /// How files are compressed.
    pub fn compression(self) -> Compression {
        self.compression
    }

    /// With row groups of so many rows at most, 1 at least, where that is said; else they have [`GROUP_ROWS`].
    ///
    /// # Errors
    /// The format has none.
    pub fn with_group_rows(self, said: Option<u64>) -> Result<Self, NoRowGroups> {
        match said {
            Some(_) if self.format != OutputFormat::Parquet => Err(NoRowGroups(self.format)),
            said => Ok(Self { group_rows: said.unwrap_or(GROUP_ROWS).max(1), ..self }),
        }
    }

    /// Most rows of a row group, of Parquet.
    pub fn group_rows(self) -> u64 {
        self.group_rows
    }

    /// The name of a file, by which it is read as what it is: `part-00000.csv.gz`.
    pub fn file_name(self, stem: &str) -> String {
        let packed = match (self.format, self.compression) {
            (OutputFormat::Csv | OutputFormat::Tsv | OutputFormat::JsonLines, Compression::Gzip(_)) => ".gz",
            (OutputFormat::Csv | OutputFormat::Tsv | OutputFormat::JsonLines, Compression::Zstd(_)) => ".zst",
            _ => "",
        };
        match self.format {
            OutputFormat::Records => stem.to_owned(),
            format => format!("{stem}.{format}{packed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressions_have_names() {
        let parse = |text: &str| text.parse::<Compression>();
        assert_eq!((parse("none"), parse("zstd:7")), (Ok(Compression::None), Ok(Compression::Zstd(7))));
        assert_eq!((parse("gzip"), parse("gzip:9")), (Ok(Compression::Gzip(6)), Ok(Compression::Gzip(9))));
        for wrong in ["zstd:23", "zstd:0", "zstd:", "gzip:10", "gzip:-1", "snappy:3", "none:1", "rar"] {
            assert!(parse(wrong).unwrap_err().to_string().contains("zstd:LEVEL"), "{wrong}");
        }
        for one in
            [Compression::None, Compression::Snappy, Compression::Lz4, Compression::Zstd(3), Compression::Gzip(1)]
        {
            assert_eq!(parse(&one.to_string()), Ok(one));
        }
        assert_eq!(Compression::Zstd(7).codec(), Codec::ZSTD(ZstdLevel::try_new(7).unwrap()));
        assert_eq!(Compression::Gzip(7).codec(), Codec::GZIP(GzipLevel::try_new(7).unwrap()));
    }

    #[test]
    fn what_a_format_cannot_be_is_refused_with_what_it_can() {
        let unsaid = OutputFormat::ALL.map(|format| FileForm::new(format, None).unwrap().compression());
        assert_eq!(unsaid[0], Compression::Snappy);
        assert!(unsaid[1..].iter().all(|unsaid| *unsaid == Compression::None));
        for (format, said, can) in [
            (
                OutputFormat::Csv,
                Compression::Snappy,
                "csv is not written with --compression snappy: it can be none, zstd",
            ),
            (OutputFormat::Tsv, Compression::Lz4, "none, zstd:1 to zstd:19 or gzip:1 to gzip:9"),
            (
                OutputFormat::JsonLines,
                Compression::Snappy,
                "jsonl is not written with --compression snappy: it can be none, zstd:1",
            ),
            (OutputFormat::Csv, Compression::Zstd(20), "--compression zstd:20"),
            (
                OutputFormat::Arrow,
                Compression::Gzip(6),
                "arrow is not written with --compression gzip:6: it can be none",
            ),
            (OutputFormat::Records, Compression::Gzip(6), "records is not written with --compression gzip:6"),
            (OutputFormat::Parquet, Compression::Gzip(10), "gzip:9"),
        ] {
            let error = FileForm::new(format, Some(said)).unwrap_err().to_string();
            assert!(error.contains(can), "{error}");
        }
    }

    #[test]
    fn row_groups_are_of_parquet_alone() {
        for format in OutputFormat::ALL {
            let form = FileForm::new(format, None).unwrap();
            assert_eq!(form.with_group_rows(None), Ok(form));
            match form.with_group_rows(Some(7)) {
                Ok(form) => assert_eq!((format, form.group_rows()), (OutputFormat::Parquet, 7)),
                Err(error) => assert!(error.to_string().starts_with(&format!("{format} has no row groups")), "{error}"),
            }
        }
    }

    #[test]
    fn names_of_files_say_how_they_are_compressed_where_the_whole_file_is() {
        let name =
            |format, said: &str| FileForm::new(format, Some(said.parse().unwrap())).unwrap().file_name("part-00000");
        assert_eq!(name(OutputFormat::Csv, "gzip"), "part-00000.csv.gz");
        assert_eq!(name(OutputFormat::Tsv, "zstd:9"), "part-00000.tsv.zst");
        assert_eq!(name(OutputFormat::JsonLines, "zstd"), "part-00000.jsonl.zst");
        assert_eq!(name(OutputFormat::JsonLines, "none"), "part-00000.jsonl");
        assert_eq!(name(OutputFormat::Csv, "none"), "part-00000.csv");
        assert_eq!(name(OutputFormat::Parquet, "gzip"), "part-00000.parquet");
        assert_eq!(name(OutputFormat::Records, "none"), "part-00000");
    }
}
