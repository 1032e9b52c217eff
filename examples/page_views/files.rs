//! An hour of page views as a file: text as Wikimedia has it, or Parquet with an index of its pages.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use exobus::tables::arrow_array::builder::{Int64Builder, StringBuilder};
use exobus::tables::arrow_array::{ArrayRef, RecordBatch};
use exobus::tables::arrow_schema::{DataType, Field, Schema, SchemaRef};
use flate2::write::GzEncoder;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};

/// Rows that are kept until they are handed to the writer of Parquet, at most.
const BATCH_ROWS: usize = 8192;
/// Rows of a page, at most: blocks that early answers are of are runs of pages with 25 000 rows or more, which the index tells apart.
const PAGE_ROWS: usize = 5000;

/// Which files are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Row groups with an index of columns and offsets
    Parquet,
    /// Lines of `lang title requests size`, without a header, gzip
    Text,
}

/// How Parquet is written.
#[derive(Clone, Copy, Debug, Args)]
pub struct ParquetArgs {
    /// Rows of a row group, which the writer has in memory
    #[arg(long, value_name = "ROWS", default_value = "1M", value_parser = crate::some)]
    row_group_rows: u64,
    /// How pages are compressed
    #[arg(long, value_enum, default_value = "snappy")]
    compression: Codec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Codec {
    None,
    Snappy,
    Lz4,
    Zstd,
}

/// A row: views of a page in one hour, as one of many servers has counted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageView<'a> {
    pub lang: &'a str,
    pub title: &'a str,
    /// How often it was asked for.
    pub requests: i64,
    /// Bytes that were sent.
    pub size: i64,
}

/// A file that has its name when it is whole. It takes memory for one row group.
pub struct HourFile {
    path: PathBuf,
    under: PathBuf,
    writer: Writer,
}

enum Writer {
    Text(Box<GzEncoder<BufWriter<File>>>),
    Parquet(Box<Parquet>),
}

struct Parquet {
    writer: ArrowWriter<File>,
    schema: SchemaRef,
    /// Rows that are not written yet, and how many these are.
    columns: Columns,
    rows: usize,
}

#[derive(Default)]
struct Columns {
    lang: StringBuilder,
    title: StringBuilder,
    requests: Int64Builder,
    size: Int64Builder,
}

impl HourFile {
    /// `name` is without an extension.
    pub fn create(folder: &Path, name: &str, format: Format, parquet: &ParquetArgs) -> Result<Self> {
        let extension = match format {
            Format::Parquet => "parquet",
            Format::Text => "gz",
        };
        let (path, under) = (folder.join(format!("{name}.{extension}")), folder.join(format!(".{name}.unfinished")));
        let file = File::create(&under).with_context(|| format!("create {}", under.display()))?;
        let writer = match format {
            Format::Text => Writer::Text(Box::new(GzEncoder::new(BufWriter::new(file), flate2::Compression::new(6)))),
            Format::Parquet => {
                let field = |name, of| Field::new(name, of, false);
                let (text, number) = (DataType::Utf8, DataType::Int64);
                let schema = Arc::new(Schema::new(vec![
                    field("lang", text.clone()),
                    field("title", text),
                    field("requests", number.clone()),
                    field("size", number),
                ]));
                let writer = ArrowWriter::try_new(file, schema.clone(), Some(parquet.properties()))?;
                Writer::Parquet(Box::new(Parquet { writer, schema, columns: Columns::default(), rows: 0 }))
            }
        };
        Ok(Self { path, under, writer })
    }

    pub fn write(&mut self, row: &PageView<'_>) -> Result<()> {
        let PageView { lang, title, requests, size } = row;
        match &mut self.writer {
            Writer::Text(text) => writeln!(text, "{lang} {title} {requests} {size}").context("write text"),
            Writer::Parquet(file) => {
                file.columns.lang.append_value(lang);
                file.columns.title.append_value(title);
                file.columns.requests.append_value(*requests);
                file.columns.size.append_value(*size);
                file.rows += 1;
                if file.rows == BATCH_ROWS { file.write() } else { Ok(()) }
            }
        }
    }

    /// Gives the file its name.
    pub fn finish(self) -> Result<()> {
        match self.writer {
            Writer::Text(text) => text.finish()?.flush()?,
            Writer::Parquet(mut file) => {
                file.write()?;
                file.writer.close()?;
            }
        }
        fs::rename(&self.under, &self.path).with_context(|| format!("name {}", self.path.display()))
    }
}

impl Parquet {
    /// Hands rows to the writer, which writes a row group when it has one.
    fn write(&mut self) -> Result<()> {
        self.rows = 0;
        let Columns { lang, title, requests, size } = &mut self.columns;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(lang.finish()),
            Arc::new(title.finish()),
            Arc::new(requests.finish()),
            Arc::new(size.finish()),
        ];
        let batch = RecordBatch::try_new(self.schema.clone(), columns)?;
        self.writer.write(&batch).context("write Parquet")
    }
}

impl ParquetArgs {
    fn properties(&self) -> WriterProperties {
        let compression = match self.compression {
            Codec::None => Compression::UNCOMPRESSED,
            Codec::Snappy => Compression::SNAPPY,
            Codec::Lz4 => Compression::LZ4_RAW,
            Codec::Zstd => Compression::ZSTD(ZstdLevel::default()),
        };
        WriterProperties::builder()
            .set_compression(compression)
            .set_max_row_group_row_count(Some(self.row_group_rows as usize))
            .set_data_page_row_count_limit(PAGE_ROWS)
            // Of pages, too: that is the index of columns; that of offsets is written unless it is switched off.
            .set_statistics_enabled(EnabledStatistics::Page)
            .build()
    }
}

/// A folder that is there, and has nothing in it.
pub fn empty_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    match fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?.next() {
        None => Ok(()),
        Some(_) => bail!("{} is not empty", folder.display()),
    }
}

/// Does something with each of so many files, on as many threads as there are processors. The first error is told, and no further file is begun behind one.
pub fn for_each_file(files: usize, each: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let file = next.fetch_add(1, Ordering::Relaxed);
            if file >= files {
                return Ok(());
            }
            if let Err(error) = each(file) {
                next.store(files, Ordering::Relaxed);
                return Err(error);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(files.max(1));
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        // All are waited for.
        let ended: Vec<Result<()>> = running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        ended.into_iter().collect()
    })
}
