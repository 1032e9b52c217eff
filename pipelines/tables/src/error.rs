//! What can go wrong with tables.

use arrow_schema::{ArrowError, DataType};

use crate::expression::col;
use crate::sources::print_type;

/// Why something about a table could not be done. Nothing here is healed by a retry but what the store says itself.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A column has a type that tables do not have.
    #[error("column {column} is {}: {why}", print_type(.data_type))]
    Unsupported {
        /// Path of names from the top, with dots.
        column: String,
        /// Its type.
        data_type: DataType,
        /// Why not, and what to do.
        why: &'static str,
    },
    /// Columns that are not those of the records of the sort benchmark.
    #[error(
        "records are a column of FixedSizeBinary(10) and one of FixedSizeBinary(90), and the table has {columns}: --select two such columns, or write another --format"
    )]
    NotRecords {
        /// Names and types of the columns.
        columns: String,
    },
    /// A column cannot be a key.
    #[error("column {column} cannot be a key: {} has no order ({why})", print_type(.data_type))]
    NoOrder {
        /// Path of names from the top, with dots.
        column: String,
        /// Its type.
        data_type: DataType,
        /// Why it has none.
        why: &'static str,
    },
    /// Times with a zone, which are instants, meet times without one, which are none.
    #[error("column {column}: {} and {} do not compare: {why}", apart(.left, .right)[0], apart(.left, .right)[1])]
    ZonesMixed {
        /// Path of names from the top, with dots.
        column: String,
        /// One type.
        left: DataType,
        /// The other one.
        right: DataType,
        /// Why not, and what to do.
        why: &'static str,
    },
    /// Columns of one name in two files have types that no type holds both of.
    #[error(transparent)]
    NotUnified(Box<NotUnified>),
    /// Names of columns that mean one thing to some readers: the same twice, or different by case alone.
    #[error(
        "column {left} in {left_place} and column {right} in {right_place} have one name, but for case: rename one of them"
    )]
    NamesAlike {
        /// One name.
        left: String,
        /// Which file it is from.
        left_place: String,
        /// The other one.
        right: String,
        /// Which file that is from.
        right_place: String,
    },
    /// Columns of two tables that would have one name where they are joined.
    #[error(
        "column {left:?} and column {right:?} of the right table would have one name{}: rename one of them, leave one out with --select or --right-select, or say {} --suffix for those of the right table",
        suffix.as_ref().map(|suffix| format!(" also with {suffix:?} behind it")).unwrap_or_default(),
        if suffix.is_some() { "another" } else { "a" }
    )]
    JoinedAlike {
        /// One name, of the left table, or of a column before it of the right one.
        left: String,
        /// The name in the right table.
        right: String,
        /// What was to tell them apart.
        suffix: Option<String>,
    },
    /// A column is in a file, and folders say values of it, too.
    #[error(
        "column {column} is in {file}, and the folders of {folder} say values of it, too: --hive false reads those in files; or rename one of them"
    )]
    InFileAndFolder {
        /// Its name.
        column: String,
        /// A file that has it.
        file: String,
        /// A file whose folders say a value of it.
        folder: String,
    },
    /// A column whose name is empty: nobody can say which one is meant.
    #[error("a column in {place} has no name: give it one")]
    NoName {
        /// Which file it is in.
        place: String,
    },
    /// There is no column of this name.
    #[error("no column {column}{}", hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
    NoColumn {
        /// The name, or a path of names with dots.
        column: String,
        /// What may help, such as the name that is most like it.
        hint: Option<String>,
    },
    /// A column was selected twice.
    #[error("column {column} is selected twice: name it once")]
    SelectedTwice {
        /// Its name.
        column: String,
    },
    /// A column of the key is not among those that were selected.
    #[error("key column {column} is not selected: select it, too")]
    KeyNotSelected {
        /// Its name, or the path of names to it.
        column: String,
    },
    /// A condition that is none for rows of the table.
    #[error(transparent)]
    Expression(#[from] crate::expression::ExpressionError),
    /// What is to be computed cannot be, whatever the rows are.
    #[error("{what}")]
    NoComputation {
        /// Why not.
        what: String,
    },
    /// Something cannot be computed of the values of some rows.
    #[error("{what}")]
    NotComputed {
        /// Why not.
        what: String,
    },
    /// A text that is no aggregate.
    #[error(transparent)]
    Aggregate(#[from] crate::aggregates::AggregateError),
    /// A value is not one of the type that its column is to have.
    #[error("column {column}, row {row}: {value} is no value of {}", print_type(.data_type))]
    NotOfType {
        /// Path of names from the top, with dots.
        column: String,
        /// Which row of the batch, from 0.
        row: usize,
        /// The value.
        value: String,
        /// The type.
        data_type: DataType,
    },
    /// Keys of one batch are longer than can be counted.
    #[error("the keys of {rows} rows take more than 4 GiB, with 8 bytes for each of them: take fewer rows at a time")]
    KeysTooLarge {
        /// How many rows.
        rows: usize,
    },
    /// A key of no column.
    #[error("there is no key: name a column at least")]
    NoKey,
    /// Values of two columns do not compare, or a batch is not of the schema that was said.
    #[error("column {column} is {}, not {}", apart(.found, .expected)[0], apart(.found, .expected)[1])]
    TypeDiffers {
        /// Path of names from the top, with dots.
        column: String,
        /// What was said.
        expected: DataType,
        /// What it is.
        found: DataType,
    },
    /// Another column, or another field of a struct, stands where one was said to stand.
    #[error("column {found} stands where column {expected} belongs")]
    NameDiffers {
        /// Path of names from the top, with dots, as was said.
        expected: String,
        /// The last name of the path, as it is.
        found: String,
    },
    /// A list has more elements than are looked at.
    #[error("a list of column {column} has {elements} elements; it may have {elements_max}")]
    TooManyElements {
        /// Path of names from the top, with dots.
        column: String,
        /// How many.
        elements: u64,
        /// How many it may have.
        elements_max: u64,
    },
    /// A null in a column that says that it has none.
    #[error(
        "row {row} of batch {batch} has a null in column {column}, whose field says that there is none: make the field nullable"
    )]
    NullInColumn {
        /// Path of names from the top, with dots.
        column: String,
        /// Which of the batches that rows are taken from, from 0.
        batch: u32,
        /// Which row of it, from 0.
        row: u32,
    },
    /// A null on its way to records, which have none.
    #[error(
        "row {row} has a null in column {column}, and records have none: leave such rows out, or write another format"
    )]
    NullInRecords {
        /// Its name.
        column: String,
        /// Which row of the batch, from 0.
        row: usize,
    },
    /// A batch has another number of columns than was said.
    #[error("{found} columns, not {expected}")]
    ColumnsDiffer {
        /// How many were said.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// No block can hold the row.
    #[error("row {row} of batch {batch} takes {}; a row may take {bytes_max} bytes", bytes_of(*bytes))]
    RowTooLarge {
        /// Which of the batches that rows are taken from, from 0.
        batch: u32,
        /// Which row of it, from 0.
        row: u32,
        /// How many bytes a message with this row alone has; `u64::MAX`: more than offsets of its columns can count, or than may be noted on the way.
        bytes: u64,
        /// How many it may have.
        bytes_max: u64,
    },
    /// There is no room for the header of a message.
    #[error("messages of {columns} columns need a scratch of more than {bytes_min} bytes each, not of {bytes}")]
    ScratchTooSmall {
        /// How many columns there are, those inside others too.
        columns: usize,
        /// How many bytes there are.
        bytes: usize,
        /// How many there have to be at least.
        bytes_min: usize,
    },
    /// The schema of blocks was written by another release.
    #[error("blocks are of version {found}, this release reads version {expected}: use the exobus that wrote them")]
    BlockVersion {
        /// The version that was found.
        found: u32,
        /// The one that this release writes and reads.
        expected: u32,
    },
    /// A message of a block was written for another schema.
    #[error("the block at byte {at} was written for the schema {found}, not for {expected}, which it is read with")]
    LayoutDiffers {
        /// Where in the part.
        at: usize,
        /// The hash of the schema that it was written for.
        found: String,
        /// The hash of the schema that it is read with.
        expected: String,
    },
    /// Bytes that are no block.
    #[error("not a block, at byte {at}: {what}")]
    NotABlock {
        /// Where in the part.
        at: usize,
        /// What is wrong there.
        what: String,
    },
    /// What is wrong with a part of an object.
    #[error("part {part} of object {object}: {source}")]
    InPart {
        /// The object.
        object: exobus_store::CopyId,
        /// Which part of it, from 0.
        part: u32,
        /// What is wrong.
        source: Box<TableError>,
    },
    /// A sum is outside what its type can hold.
    #[error("sum of column {column} is outside {}", print_type(.data_type))]
    SumOverflows {
        /// Name of the column.
        column: String,
        /// The type of the sum.
        data_type: DataType,
        /// Which of the groups that results were asked for has it, from 0; `None`: there is one sum.
        row: Option<usize>,
    },
    /// Something about one of many groups.
    #[error("{source}: of the group {group}")]
    OfGroup {
        /// Its columns and their values.
        group: String,
        /// What.
        source: Box<TableError>,
    },
    /// Decimals of two scales meet in one sum.
    #[error("column {column} has {found} digits behind the point where a sum has {expected}")]
    ScaleDiffers {
        /// Name of the column.
        column: String,
        /// The scale of the sum.
        expected: i8,
        /// The other one.
        found: i8,
    },
    /// A sum was written by another release.
    #[error("a sum is of version {found}, this release reads version {expected}: use the exobus that wrote it")]
    SumVersion {
        /// The version that was found.
        found: u8,
        /// The one that this release writes and reads.
        expected: u8,
    },
    /// Bytes that are no sum.
    #[error("bytes that are no sum")]
    NotASum,
    /// Columns that are no states of an aggregate.
    #[error("column {column} of the states of an aggregate has {what}")]
    NotAState {
        /// Name of the column.
        column: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// States or results of groups are longer than a column can count.
    #[error("what {rows} groups have takes more than 2 GiB: take fewer groups at a time")]
    StatesTooLarge {
        /// How many groups.
        rows: usize,
    },
    /// Bytes that are no key.
    #[error("bytes that are no key, in what column {column} has: {what}")]
    NotAKey {
        /// Its name, or the path of names to it.
        column: String,
        /// What is wrong there.
        what: &'static str,
    },
    /// The store gave no memory, or its disk failed.
    #[error(transparent)]
    Store(#[from] exobus_store::StoreError),
    /// Arrow refused something that was checked before.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

/// What a row takes that was measured, or that was given up.
pub(crate) fn bytes_of(bytes: u64) -> String {
    match bytes {
        u64::MAX => "more than can be gathered".to_owned(),
        bytes => format!("{bytes} bytes"),
    }
}

/// Which column of which files has no one type.
#[derive(Debug, thiserror::Error)]
#[error("column {column} is {} in {left_place} and {} in {right_place}: {why}", apart(.left, .right)[0], apart(.left, .right)[1])]
pub struct NotUnified {
    /// Path of names from the top, with dots.
    pub column: String,
    /// One type.
    pub left: DataType,
    /// Which file it is from.
    pub left_place: String,
    /// The other one.
    pub right: DataType,
    /// Which file that is from.
    pub right_place: String,
    /// Why no type holds both, and what to do.
    pub why: &'static str,
}

/// Two types that are not the same, as people call them; as Arrow does where they have one name.
fn apart(one: &DataType, other: &DataType) -> [String; 2] {
    let named = [one, other].map(print_type);
    if named[0] == named[1] { [one, other].map(DataType::to_string) } else { named }
}

impl TableError {
    /// Which row of which of the batches that were given, both from 0, this is about, and what is wrong with it in words that name neither: batches are nobody's
    /// but the program's, so whoever knows where they are from says where the row is.
    pub fn of_row(&self) -> Option<(usize, usize, String)> {
        match self {
            Self::NotOfType { column, row, value, data_type } => {
                Some((0, *row, format!("column {column}: {value} is no value of {}", print_type(data_type))))
            }
            Self::NullInColumn { column, batch, row } => {
                let what = format!(
                    "column {column} has a null, and its field says that there is none: make the field nullable where the file is written"
                );
                Some((*batch as usize, *row as usize, what))
            }
            Self::NullInRecords { column, row } => {
                let what = format!(
                    "column {column} has a null, and records have none: leave such rows out, as --where '{}' does, or write another --format",
                    col(column).is_not_null()
                );
                Some((0, *row, what))
            }
            Self::RowTooLarge { batch, row, bytes, bytes_max } => {
                let what = format!(
                    "the row takes {}; a row may take {bytes_max} bytes: make its values smaller, or leave it out, as --where does",
                    bytes_of(*bytes)
                );
                Some((*batch as usize, *row as usize, what))
            }
            _ => None,
        }
    }

    /// The same about another row of the same batch: of elements, which one has them.
    pub(crate) fn with_row(self, row_of: impl FnOnce(usize) -> usize) -> Self {
        match self {
            Self::NotOfType { column, row, value, data_type } => {
                Self::NotOfType { column, row: row_of(row), value, data_type }
            }
            Self::NullInRecords { column, row } => Self::NullInRecords { column, row: row_of(row) },
            Self::NullInColumn { column, batch, row } => {
                Self::NullInColumn { column, batch, row: row_of(row as usize) as u32 }
            }
            Self::RowTooLarge { batch, row, bytes, bytes_max } => {
                Self::RowTooLarge { batch, row: row_of(row as usize) as u32, bytes, bytes_max }
            }
            other => other,
        }
    }

    /// Whether the data or the request is to blame, rather than this program or its store.
    pub fn is_of_the_input(&self) -> bool {
        match self {
            Self::InPart { source, .. } | Self::OfGroup { source, .. } => source.is_of_the_input(),
            Self::Store(_)
            | Self::Arrow(_)
            | Self::NotABlock { .. }
            | Self::LayoutDiffers { .. }
            | Self::NotASum
            | Self::NotAState { .. }
            | Self::NotAKey { .. } => false,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_types_are_told_apart() {
        assert_eq!(apart(&DataType::Utf8, &DataType::Int64), ["text", "int64"]);
        let decimals = apart(&DataType::Decimal128(10, 2), &DataType::Decimal256(10, 2));
        assert_eq!(decimals, ["Decimal128(10, 2)", "Decimal256(10, 2)"]);
    }
}
