//! How files are read, as far as somebody says.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow_schema::Schema;
use exobus_files::Location;
use serde::{Deserialize, Serialize};

use super::Computed;
use crate::TableError;
use crate::expression::Expression;
use crate::hint::{did_you_mean, no_column};
use crate::semantics::{KeyColumn, find_column};
use crate::sources::json::{JsonMixed, JsonOptions};
use crate::sources::parquet::LastDecoding;
use crate::sources::text::INFERRED_FILES;
use crate::sources::{
    InputFile, InputFormat, MemoryBudget, NamedTypes, Source, SourceError, TextOptions, alike, folder_types,
    parse_schema, print_schema,
};

/// How the files of a table are read, as far as somebody says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadOptions {
    /// The format, one of [`InputFormat::NAMES`]; `None`: by the names of files.
    pub format: Option<String>,
    /// Types of columns of text, as [`parse_schema`] reads them; those of others are inferred.
    pub schema: Option<String>,
    /// What is made of values of JSON lines that have no one type; `None`: they are refused.
    #[serde(default)]
    pub json_mixed: Option<JsonMixed>,
    /// The columns that are read, in the order that they are to have; `None`: all.
    #[serde(default)]
    pub select: Option<Vec<String>>,
    /// What rows have to meet; it may look at columns that are not selected.
    #[serde(default)]
    pub filter: Option<Expression>,
    /// Whether folders below what is named that say values (`day=2024-01-31`) are looked into and are columns; `None`: they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hive: Option<bool>,
    /// Types of the columns that folders are, as [`parse_schema`] reads them, once all files are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folders: Option<String>,
    /// Columns that a job looks at, or paths to fields of structs: where they are said and no columns are selected, no others are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<Vec<String>>,
    /// What is computed of the columns of the files: rows have these columns instead, and `select` and `needed` are among them. `filter` is of columns of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computed: Option<Computed>,
    /// How many bytes splits of text and of Arrow files have, where somebody wants smaller ones, once all files are listed; `None`: 64 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_bytes: Option<u64>,
}

impl ReadOptions {
    /// The format of a file.
    ///
    /// # Errors
    /// The one that is said is none.
    pub fn format(&self, location: &Location) -> Result<InputFormat, String> {
        self.format.as_ref().map_or_else(|| Ok(InputFormat::of(location)), |name| name.parse())
    }

    /// The format of the first of some files, where there is one. All of them have records, or none has; one is text at least, where types of text are said, and one JSON lines,
    /// where it is said what is made of their values.
    ///
    /// # Errors
    /// [`SourceError::Names`]: the one that is said is none; some have records, and others not. [`SourceError::Schema`]: no file is text. [`SourceError::NoJson`]: none is JSON lines.
    pub fn formats(&self, files: impl Iterator<Item = Location>) -> Result<Option<InputFormat>, SourceError> {
        let (mut first, mut has_text, mut has_json) = (None, false, false);
        for location in files {
            let named = |what| SourceError::Names { file: location.to_string().into(), what };
            let format = self.format(&location).map_err(named)?;
            has_text |= format.is_text();
            has_json |= format == InputFormat::JsonLines;
            let (other, of_other) = first.get_or_insert_with(|| (location.clone(), format));
            let table = match (format, *of_other) {
                (InputFormat::Records, InputFormat::Records) => None,
                (InputFormat::Records, _) => Some(&*other),
                (_, InputFormat::Records) => Some(&location),
                _ => None,
            };
            if let Some(table) = table {
                let pattern = alike(table);
                return Err(named(format!(
                    "by its name it has {format}, and {other} has {of_other}: records, as which all files without an extension that is known are read, \
                     go together with no other format; say which files are meant, such as '{pattern}', or --input-format if all have the same"
                )));
            }
        }
        if let (Some(_), Some((first, format)), false) = (self.json_mixed, &first, has_json) {
            return Err(SourceError::NoJson { first: first.to_string(), format: *format });
        }
        match (&self.schema, first) {
            (Some(schema), Some((first, format))) if !has_text => {
                let what = format!(
                    "types of columns of text are said, and no file is text, as {first} is of {format}: leave --schema out"
                );
                Err(SourceError::Schema { at: schema.clone(), what })
            }
            (_, first) => Ok(first.map(|(_, format)| format)),
        }
    }

    /// The types that are said.
    ///
    /// # Errors
    /// [`SourceError::Schema`].
    pub fn types(&self) -> Result<NamedTypes, SourceError> {
        self.schema.as_deref().map_or(Ok(Vec::new()), parse_schema)
    }

    /// Whether folders may be columns.
    pub fn reads_folders(&self) -> bool {
        self.hive != Some(false)
    }

    /// The same once all files are listed, each with how many of its folders may be columns: with the types of these columns, which are no longer among those of columns of text.
    ///
    /// # Errors
    /// [`SourceError::Names`]: files are in folders of other columns; [`SourceError::Schema`].
    pub(crate) fn with_folders<'a>(
        self,
        files: impl Iterator<Item = (&'a Path, usize)> + Clone,
    ) -> Result<Self, SourceError> {
        let mut said = self.types()?;
        let folders = folder_types(files, &said)?;
        if folders.is_empty() {
            return Ok(self);
        }
        said.retain(|(name, _)| folders.iter().all(|(folder, _)| folder != name));
        let printed = |types: &NamedTypes| print_schema(types.iter().map(|(name, of)| (name.as_str(), of)));
        let schema = (!said.is_empty()).then(|| printed(&said));
        Ok(Self { schema, folders: Some(printed(&folders)), ..self })
    }

    /// The columns that folders are, once all files are listed.
    ///
    /// # Errors
    /// [`SourceError::Schema`], of a text that [`with_folders`](Self::with_folders) has not made.
    pub(crate) fn folder_types(&self) -> Result<NamedTypes, SourceError> {
        self.folders.as_deref().map_or(Ok(Vec::new()), parse_schema)
    }

    /// Whether the column of this name is looked at: it is selected, or the condition may mean it or a field of it.
    pub(crate) fn reads(&self, name: &str) -> bool {
        self.read().is_none_or(|read| read.iter().any(|other| other == name))
    }

    /// The same with what texts select: names of columns, or also expressions, where this was built with SQL. Without any, all columns.
    #[must_use]
    pub fn selected_by(self, texts: &[impl AsRef<str>]) -> Self {
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        let computed = Computed::selected(&texts);
        let names = || texts.iter().map(|text| (*text).to_owned()).collect();
        let select = (computed.is_none() && !texts.is_empty()).then(names);
        Self { select, computed, ..self }
    }

    /// Whether there are rows that are not to be read, so that nobody knows how many are before they are looked at.
    pub(crate) fn leaves_out(&self) -> bool {
        self.filter.is_some() || self.computed.as_ref().is_some_and(|computed| computed.leaves_out)
    }

    /// Folders of tables in which rows are looked up while these are read.
    pub(crate) fn beside(&self) -> impl Iterator<Item = &PathBuf> {
        self.computed.iter().flat_map(|computed| &computed.beside.folders)
    }

    /// Bytes that tables take in which rows are looked up while these are read.
    pub(crate) fn beside_bytes(&self) -> u64 {
        self.computed.as_ref().map_or(0, |computed| computed.beside.bytes)
    }

    /// The columns at the top that are looked at: those that are selected or needed, and those that the condition may mean; `None`: all.
    fn read(&self) -> Option<Vec<String>> {
        let mut read = match (&self.computed, &self.select, &self.needed) {
            (Some(computed), ..) => computed.reads.clone()?,
            (None, Some(select), _) => select.clone(),
            (None, None, Some(_)) => Vec::new(),
            (None, None, None) => return None,
        };
        let is_needed = self.computed.is_none() && self.select.is_none();
        let needed = self.needed.iter().filter(|_| is_needed).flatten().map(String::as_str);
        for path in self.filter.iter().flat_map(|filter| filter.columns()).chain(needed) {
            let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
            read.extend(ends.map(|end| path[..end].to_owned()));
        }
        Some(read)
    }

    /// How text is read, of whose columns these types are said.
    fn text(&self, types: NamedTypes, are_all: bool) -> TextOptions {
        let json = JsonOptions { mixed: self.json_mixed.unwrap_or_default(), read: self.read() };
        TextOptions { dialect: None, json, types, are_all, split_bytes: self.split_bytes }
    }

    /// The schema of the selected columns of a table whose files have all of these.
    ///
    /// # Errors
    /// [`TableError::NoComputation`]; [`TableError::NoColumn`]; [`TableError::SelectedTwice`]; [`TableError::KeyNotSelected`]: a column of the key is there and not selected.
    pub fn selected(&self, table: &Schema, key: &[KeyColumn]) -> Result<Schema, TableError> {
        let computed = self.computed.as_ref().map(|computed| computed.schema(table)).transpose()?;
        let table = computed.as_deref().unwrap_or(table);
        let Some(select) = &self.select else { return self.needed(table) };
        let mut columns = Vec::with_capacity(select.len());
        for name in select {
            let column = table.index_of(name).map_err(|_| not_selected(table, name))?;
            if columns.contains(&column) {
                return Err(TableError::SelectedTwice { column: name.clone() });
            }
            columns.push(column);
        }
        let selected = table.project(&columns)?;
        for key in key {
            let is_missing = find_column(selected.fields(), &key.column)?.is_none();
            if is_missing && find_column(table.fields(), &key.column)?.is_some() {
                return Err(TableError::KeyNotSelected { column: key.column.clone() });
            }
        }
        Ok(selected)
    }

    /// The columns of a table that a job looks at.
    fn needed(&self, table: &Schema) -> Result<Schema, TableError> {
        let Some(needed) = &self.needed else { return Ok(table.clone()) };
        let column = |path: &String| {
            let found = find_column(table.fields(), path)?;
            found.map(|(path, _)| path[0]).ok_or_else(|| no_column(table, path))
        };
        let mut columns = needed.iter().map(column).collect::<Result<Vec<usize>, TableError>>()?;
        if columns.is_empty() {
            // Rows are counted by one that costs little.
            let fields = table.fields().iter().enumerate();
            columns.extend(
                fields
                    .min_by_key(|(_, field)| field.data_type().primitive_width().unwrap_or(usize::MAX))
                    .map(|(at, _)| at),
            );
        }
        columns.sort_unstable();
        columns.dedup();
        Ok(table.project(&columns)?)
    }

    /// The same for a job that looks at these columns, or paths to fields of structs, alone; where there are none, at one of the table, for its rows.
    pub(crate) fn of_columns(&self, needed: Vec<String>) -> Self {
        Self { needed: Some(needed), ..self.clone() }
    }

    /// The same once it is known which columns are read.
    pub(crate) fn selecting(self, selected: &Schema) -> Self {
        match self.needed {
            None => self,
            Some(_) => {
                let names = selected.fields().iter().map(|field| field.name().clone());
                Self { select: Some(names.collect()), needed: None, ..self }
            }
        }
    }

    /// What opens files of a table one behind the other; the types of text are those of all its columns.
    pub(crate) fn opener(&self) -> Opener {
        Opener { options: self.clone(), text: OnceLock::new(), last: LastDecoding::default() }
    }

    /// Types of the columns of text of some files: what is said, and of others what files at even distances show together.
    ///
    /// # Errors
    /// Those of opening and reading them.
    pub(crate) fn types_of_text(
        &self,
        text: &[(impl Fn() -> Result<InputFile, SourceError>, InputFormat)],
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<NamedTypes, SourceError> {
        let count = text.len().min(INFERRED_FILES);
        let looked_at = (0..count).map(|at| &text[at * text.len() / count]);
        let looked_at = looked_at.map(|(open, format)| Ok((open()?, *format)));
        let options = self.text(self.types()?, false);
        let sources = Source::open_all(looked_at.collect::<Result<_, SourceError>>()?, &options, budget)?;
        // In the order in which they are met, which is that of the columns of JSON lines: those files do not say which they have.
        let mut types = NamedTypes::new();
        for field in sources.iter().flat_map(|source| source.schema().fields()) {
            if types.iter().all(|(name, _)| name != field.name()) {
                types.push((field.name().clone(), field.data_type().clone()));
            }
        }
        for (name, of) in options.types {
            if types.iter().all(|(other, _)| *other != name) {
                types.push((name, of));
            }
        }
        Ok(types)
    }
}

/// Why no column is selected by a name; names between which a comma is missing are told.
fn not_selected(table: &Schema, name: &str) -> TableError {
    let words: Vec<&str> = name.split_whitespace().collect();
    match words.len() > 1 && words.iter().all(|word| table.index_of(word).is_ok()) {
        true => TableError::NoColumn { column: name.to_owned(), hint: Some(did_you_mean(words.join(","))) },
        false => no_column(table, name),
    }
}

/// Opens files of a table one behind the other: what is alike for all of them is worked out once.
pub(crate) struct Opener {
    options: ReadOptions,
    /// How text is read, once the first file was opened.
    text: OnceLock<TextOptions>,
    last: LastDecoding,
}

impl Opener {
    /// As of [`ReadOptions::leaves_out`].
    pub(crate) fn leaves_out(&self) -> bool {
        self.options.leaves_out()
    }

    /// The columns that folders are.
    ///
    /// # Errors
    /// As of [`ReadOptions::folder_types`].
    pub(crate) fn folder_types(&self) -> Result<NamedTypes, SourceError> {
        self.options.folder_types()
    }

    /// Opens a file.
    ///
    /// # Errors
    /// Those of [`Source::open`]; [`SourceError::Schema`].
    pub(crate) fn open(
        &self,
        file: InputFile,
        format: InputFormat,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Source, SourceError> {
        let text = match self.text.get() {
            Some(text) => text,
            None => {
                let types = self.options.types()?;
                self.text.get_or_init(|| self.options.text(types, true))
            }
        };
        Source::open_after((file, format), text, &self.last, budget)
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};

    use super::*;

    #[test]
    fn columns_are_selected_by_name_once_each_and_with_those_of_the_key() {
        let city = DataType::Struct(vec![Field::new("zip", DataType::Utf8, true)].into());
        let fields = [("id", DataType::Int64), ("price", DataType::Float64), ("city", city)];
        let table = Schema::new(fields.map(|(name, of)| Field::new(name, of, true)).to_vec());
        let options = |select: &[&str], filter: Option<&str>| ReadOptions {
            select: Some(select.iter().map(|name| (*name).to_owned()).collect()),
            filter: filter.map(|text| text.parse().unwrap()),
            ..ReadOptions::default()
        };
        let key = ["city.zip"].map(KeyColumn::rising);
        let selected = options(&["city", "id"], None).selected(&table, &key).unwrap();
        assert_eq!(selected.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["city", "id"]);
        let refused = |select: &[&str]| options(select, None).selected(&table, &key).unwrap_err().to_string();
        assert_eq!(refused(&["id", "pirce"]), "no column pirce; did you mean price?");
        assert_eq!(refused(&["id city"]), "no column id city; did you mean id,city?");
        assert_eq!(refused(&["id town"]), "no column id town; did you mean id?");
        assert!(refused(&["id", "city", "id"]).contains("id is selected twice"));
        assert!(refused(&["id"]).contains("key column city.zip is not selected"));
        let read = options(&["id"], Some("city.zip = '1' and x > 1"));
        assert_eq!(["id", "price", "city", "cit", "x"].map(|name| read.reads(name)), [true, false, true, false, true]);
    }
}
