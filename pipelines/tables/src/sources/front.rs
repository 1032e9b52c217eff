//! Files of any format, told by their names or by who asks.

use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::format::InputFormat;
use super::ipc::IpcFile;
use super::json::{self, JsonFile, JsonOptions};
use super::memory::MemoryBudget;
use super::parquet::{LastDecoding, ParquetFile};
use super::records::RecordsFile;
use super::schema_text::NamedTypes;
use super::text::{self, Dialect, TextFile, TextState};
use super::{InputFile, Place, SourceBatch, SourceError, Split, check_names};
use crate::TableError;

/// How text is read; of other formats only how large splits are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// As it is written; none: as the format has it.
    pub dialect: Option<Dialect>,
    /// Of JSON lines.
    pub json: JsonOptions,
    /// Types that are said (`--schema`); those of other columns are inferred.
    pub types: NamedTypes,
    /// Whether these are the types of all columns of a table of which the files are some: nothing is inferred, and a file may lack columns.
    pub are_all: bool,
    /// How many bytes splits have of text ([`TextFile::in_splits_of`]) and Arrow files ([`IpcFile::open_in_splits_of`]); `None`: [`text::SPLIT_BYTES`].
    pub split_bytes: Option<u64>,
}

/// A file with rows.
#[derive(Clone)]
pub enum Source {
    /// Parquet.
    Parquet(Arc<ParquetFile>),
    /// CSV and TSV.
    Text(TextFile),
    /// JSON lines.
    Json(JsonFile),
    /// Arrow IPC.
    Ipc(Arc<IpcFile>),
    /// Records of the sort benchmark.
    Records(RecordsFile),
}

/// Rows of a split, in the order of the file; none behind an error.
pub type SourceRows = Box<dyn Iterator<Item = Result<SourceBatch, SourceError>> + Send>;

impl Source {
    /// Opens files of which each has a format: what all files of text together show of the types of columns is the types of each.
    ///
    /// # Errors
    /// What is wrong with a file; names of columns that cannot be told apart.
    pub fn open_all(
        files: Vec<(InputFile, InputFormat)>,
        options: &TextOptions,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Vec<Self>, SourceError> {
        Self::open_all_after(files, options, &LastDecoding::default(), budget)
    }

    fn open_all_after(
        files: Vec<(InputFile, InputFormat)>,
        options: &TextOptions,
        last: &LastDecoding,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Vec<Self>, SourceError> {
        let opened = files.into_iter().map(|(file, format)| Self::open_one((file, format), options, last, budget));
        let mut sources = opened.collect::<Result<Vec<_>, _>>()?;
        let texts: Vec<TextFile> = sources.iter().filter_map(Self::text).cloned().collect();
        if !texts.is_empty() {
            let types = match options.are_all {
                true => options.types.clone(),
                false => text::infer(&texts, &options.types, budget)?,
            };
            let mut typed = texts.into_iter().map(|text| text.with_types(&types));
            for source in sources.iter_mut().filter(|source| source.text().is_some()) {
                *source = Self::Text(typed.next().expect("one for each file of text")?);
            }
        }
        let lines: Vec<JsonFile> = sources.iter().filter_map(Self::json).cloned().collect();
        if !lines.is_empty() {
            let types = match options.are_all {
                true => options.types.clone(),
                false => json::infer(&lines, &options.json, &options.types, budget)?,
            };
            let mut typed = lines.into_iter().map(|file| file.with_types(&types));
            for source in sources.iter_mut().filter(|source| source.json().is_some()) {
                *source = Self::Json(typed.next().expect("one for each file of JSON lines")?);
            }
        }
        Ok(sources)
    }

    /// Opens a file; see [`open_all`](Self::open_all).
    ///
    /// # Errors
    /// As there.
    pub fn open(
        file: InputFile,
        format: InputFormat,
        options: &TextOptions,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, SourceError> {
        Self::open_after((file, format), options, &LastDecoding::default(), budget)
    }

    /// The same behind another file, which may be of the same schema.
    pub(crate) fn open_after(
        file: (InputFile, InputFormat),
        options: &TextOptions,
        last: &LastDecoding,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, SourceError> {
        let mut one = Self::open_all_after(vec![file], options, last, budget)?;
        Ok(one.remove(0))
    }

    fn open_one(
        (file, format): (InputFile, InputFormat),
        options: &TextOptions,
        last: &LastDecoding,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, SourceError> {
        let split_bytes = options.split_bytes.unwrap_or(text::SPLIT_BYTES);
        let text = |file: InputFile, of: Dialect| {
            let opened = TextFile::open(file, options.dialect.as_ref().unwrap_or(&of), budget)?;
            Ok::<_, SourceError>(Self::Text(opened.in_splits_of(split_bytes)))
        };
        let source = match format {
            InputFormat::Parquet => Self::Parquet(Arc::new(ParquetFile::open_after(file, last, budget)?)),
            InputFormat::Csv => text(file, Dialect::csv())?,
            InputFormat::Tsv => text(file, Dialect::tsv())?,
            InputFormat::JsonLines => Self::Json(JsonFile::open(file, &options.json)?.in_splits_of(split_bytes)),
            InputFormat::Arrow => Self::Ipc(Arc::new(IpcFile::open_in_splits_of(split_bytes, file, budget)?)),
            InputFormat::Records => Self::Records(RecordsFile::open(file)?),
        };
        check_names(source.file().name(), source.schema())?;
        Ok(source)
    }

    fn text(&self) -> Option<&TextFile> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn json(&self) -> Option<&JsonFile> {
        match self {
            Self::Json(file) => Some(file),
            _ => None,
        }
    }

    /// The file.
    pub fn file(&self) -> &InputFile {
        match self {
            Self::Parquet(file) => file.file(),
            Self::Text(file) => file.file(),
            Self::Json(file) => file.file(),
            Self::Ipc(file) => file.file(),
            Self::Records(file) => file.file(),
        }
    }

    /// Names and plain types of its columns.
    pub fn schema(&self) -> &SchemaRef {
        match self {
            Self::Parquet(file) => file.schema(),
            Self::Text(file) => file.schema(),
            Self::Json(file) => file.schema(),
            Self::Ipc(file) => file.schema(),
            Self::Records(_) => super::records::schema(),
        }
    }

    /// Its splits: they follow from the file alone.
    ///
    /// # Errors
    /// [`SourceError::Damaged`], where the file says that a split is less than nothing.
    pub fn splits(&self) -> Result<Vec<Split>, SourceError> {
        match self {
            Self::Parquet(file) => file.splits(),
            Self::Text(file) => Ok(file.splits()),
            Self::Json(file) => Ok(file.splits()),
            Self::Ipc(file) => Ok(file.splits()),
            Self::Records(file) => Ok(file.splits()),
        }
    }

    /// The state in which each split of text with quotes begins, which has to be known to read it and takes a look at all of the text; empty for other formats.
    ///
    /// # Errors
    /// Those of reading.
    pub fn states(&self, budget: &Arc<dyn MemoryBudget>) -> Result<Vec<TextState>, SourceError> {
        self.text().map_or(Ok(Vec::new()), |text| text.states(budget))
    }

    /// The rows of a split: those columns of [`schema`](Self::schema), in that order; all where none are said. `state`: of [`states`](Self::states), for text.
    ///
    /// # Errors
    /// Those of reading; each batch may be one, and is the last one then.
    ///
    /// # Panics
    /// There is no such split, or no such column.
    pub fn read(
        &self,
        split: usize,
        state: Option<TextState>,
        columns: Option<&[usize]>,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<SourceRows, SourceError> {
        Ok(match self {
            Self::Parquet(file) => Box::new(file.read(split, columns, budget)?),
            Self::Text(file) => {
                let state = state.map_or_else(|| file.assumed(split), Ok)?;
                Box::new(file.read(split, state, columns, budget)?)
            }
            Self::Json(file) => Box::new(file.read(split, columns, budget)?),
            Self::Ipc(file) => Box::new(file.read(split, columns, budget)?),
            Self::Records(file) => Box::new(file.read(split, columns, budget)),
        })
    }

    /// Where a row of a split is in the file: in text its line, for which the split is looked at once more. `state`: as the split was read.
    ///
    /// # Errors
    /// Those of that look.
    pub fn place_of(
        &self,
        (split, state): (usize, Option<TextState>),
        row: u64,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Place, SourceError> {
        match self {
            Self::Text(text) => text.line_of(split, state.unwrap_or(TextState::Row), row, budget).map(Place::Line),
            Self::Json(file) => file.line_of(split, row, budget).map(Place::Line),
            Self::Parquet(_) | Self::Ipc(_) | Self::Records(_) => Ok(Place::Row(split, row)),
        }
    }

    /// What is wrong with rows that were read of a split, with the place of the one that it is about, where it is about one. `row_of`: which row of the split it is.
    pub fn row_error(
        &self,
        error: TableError,
        split: (usize, Option<TextState>),
        row_of: impl FnOnce(usize) -> u64,
        budget: &Arc<dyn MemoryBudget>,
    ) -> SourceError {
        let file = self.file().name().clone();
        let Some((_, row, what)) = error.of_row() else { return SourceError::Table { file, error } };
        match self.place_of(split, row_of(row), budget) {
            Ok(place) => SourceError::Row { file, place, what },
            Err(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Int64Array, RecordBatch};
    use exobus_files::{LocalFiles, Location};

    use super::super::FixedBudget;
    use super::*;

    #[test]
    fn every_format_gives_the_same_rows() {
        let folder = tempfile::tempdir().unwrap();
        let ids = Int64Array::from_iter_values(0..1000);
        let batch = RecordBatch::try_from_iter([("id", Arc::new(ids) as arrow_array::ArrayRef)]).unwrap();
        let create = |name: &str| std::fs::File::create(folder.path().join(name)).unwrap();
        let mut parquet = parquet::arrow::ArrowWriter::try_new(create("a.parquet"), batch.schema(), None).unwrap();
        parquet.write(&batch).unwrap();
        parquet.close().unwrap();
        let mut arrow = arrow_ipc::writer::FileWriter::try_new(create("b.arrow"), &batch.schema()).unwrap();
        arrow.write(&batch).unwrap();
        arrow.finish().unwrap();
        let lines: String = (0..1000).map(|id| format!("{id}\n")).collect();
        std::fs::write(folder.path().join("c.csv"), format!("id\n{lines}")).unwrap();
        let lines: String = (0..1000).map(|id| format!("{{\"id\": {id}}}\n")).collect();
        std::fs::write(folder.path().join("d.jsonl"), lines).unwrap();

        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(64 << 20));
        let files = ["a.parquet", "b.arrow", "c.csv", "d.jsonl"].map(|name| {
            let location: Location = folder.path().join(name).as_path().into();
            (InputFile::open(&LocalFiles, &location).unwrap(), InputFormat::of(&location))
        });
        let sources = Source::open_all(files.to_vec(), &TextOptions::default(), &budget).unwrap();
        for source in &sources {
            assert_eq!(source.schema().field(0).data_type(), &arrow_schema::DataType::Int64);
            let states = source.states(&budget).unwrap();
            let mut next = 0;
            for split in source.splits().unwrap() {
                let state = states.get(split.index).copied();
                for one in source.read(split.index, state, None, &budget).unwrap() {
                    for id in one.unwrap().batch.column(0).as_primitive::<Int64Type>().values() {
                        assert_eq!(*id, next);
                        next += 1;
                    }
                }
            }
            assert_eq!(next, 1000, "{}", source.file().name());
            source.file().check().unwrap();
        }
        // A file that was changed is not the one that was listed.
        std::fs::write(folder.path().join("c.csv"), "id\n1\n").unwrap();
        let error = sources[2].file().check().unwrap_err();
        assert!(matches!(error, SourceError::File(exobus_files::FileError::Changed { .. })), "{error}");
    }

    #[test]
    fn a_row_that_cannot_be_is_told_by_its_place_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let numbers = Int64Array::from_iter_values((0..5000).map(|at| if at == 4321 { 300 } else { at % 100 }));
        let batch = RecordBatch::try_from_iter([("n", Arc::new(numbers) as arrow_array::ArrayRef)]).unwrap();
        let properties = parquet::file::properties::WriterProperties::builder();
        let properties = properties.set_max_row_group_row_count(Some(1000)).build();
        let file = std::fs::File::create(folder.path().join("a.parquet")).unwrap();
        let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let row = |at: i64| format!("{},\"two\nlines\"\n", if at == 4321 { 300 } else { at % 100 });
        std::fs::write(folder.path().join("b.csv"), format!("n,t\n\n{}", (0..5000).map(row).collect::<String>()))
            .unwrap();

        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(64 << 20));
        let narrow = arrow_schema::Schema::new(vec![arrow_schema::Field::new("n", arrow_schema::DataType::Int8, true)]);
        let told = |name: &str| {
            let location: Location = folder.path().join(name).as_path().into();
            let file = InputFile::open(&LocalFiles, &location).unwrap();
            let source = Source::open(file, InputFormat::of(&location), &TextOptions::default(), &budget).unwrap();
            for split in source.splits().unwrap() {
                for batch in source.read(split.index, None, Some(&[0]), &budget).unwrap() {
                    let batch = batch.unwrap();
                    if let Err(error) = crate::semantics::conformed(&batch.batch, &narrow) {
                        let row_of = |row| batch.first_row + row as u64;
                        return source.row_error(error, (batch.split, None), row_of, &budget).to_string();
                    }
                }
            }
            panic!("no row was refused")
        };
        let what = "column n: 300 is no value of int8";
        assert!(
            told("a.parquet").ends_with(&format!("a.parquet, row group 4, row 321: {what}")),
            "{}",
            told("a.parquet")
        );
        // Behind the names and a line without anything each row has two lines.
        assert!(told("b.csv").ends_with(&format!("b.csv, line {}: {what}", 3 + 2 * 4321)), "{}", told("b.csv"));
    }
}
