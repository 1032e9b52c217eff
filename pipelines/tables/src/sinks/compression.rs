//! How pages are compressed, as people name it.

use std::str::FromStr;

use parquet::basic::{Compression as Codec, ZstdLevel};
use serde::{Deserialize, Serialize};

/// How the pages of a file are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Not at all.
    None,
    /// Snappy, which every reader knows.
    #[default]
    Snappy,
    /// LZ4, in blocks.
    Lz4,
    /// Zstandard of this level, 1 to 22.
    Zstd(i32),
}

/// No compression has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no compression: none, snappy, lz4, zstd, or zstd:LEVEL with a level of 1 to 22")]
pub struct UnknownCompression(String);

impl FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(text: &str) -> Result<Self, UnknownCompression> {
        let level = |text: &str| text.parse().ok().filter(|level| (1..=22).contains(level)).map(Self::Zstd);
        let known = match text {
            "none" => Some(Self::None),
            "snappy" => Some(Self::Snappy),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::Zstd(1)),
            _ => text.strip_prefix("zstd:").and_then(level),
        };
        known.ok_or_else(|| UnknownCompression(text.to_owned()))
    }
}

impl Compression {
    /// As the library of Parquet has it.
    pub fn codec(self) -> Codec {
        match self {
            Self::None => Codec::UNCOMPRESSED,
            Self::Snappy => Codec::SNAPPY,
            Self::Lz4 => Codec::LZ4_RAW,
            Self::Zstd(level) => Codec::ZSTD(ZstdLevel::try_new(level).unwrap_or_default()),
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
        assert!(parse("zstd:23").is_err() && parse("gzip").is_err());
        assert_eq!(Compression::Zstd(7).codec(), Codec::ZSTD(ZstdLevel::try_new(7).unwrap()));
    }
}
