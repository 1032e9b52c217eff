//! Columns of groups, and their values as people are shown them.

use exobus_actors::registry::TaskError;
use exobus_tables::arrow_array::{Array as _, ArrayRef, RecordBatch};
use exobus_tables::look::Value as Shape;
use serde_json::Value;

use super::answer::{AnswerRow, AnswerRows, OfAggregates, OnlineAnswer, OnlineKey, OnlineValue};
use crate::snapshot::{SHOWN_BYTES_MAX, ShownGroup, ShownValue};

/// Characters of a text that are shown.
const SHOWN_CHARS_MAX: usize = 500;

/// A column of groups that are answered.
#[derive(Clone, Copy)]
pub(super) enum ShownColumn<'a> {
    /// It is written.
    Written(&'a ArrayRef),
    /// It is computed; `None`: of no group it can be.
    Computed(Option<&'a ArrayRef>),
}

impl<'a> ShownColumn<'a> {
    /// The array and the row that a group has there; `None`: it cannot be computed.
    pub(super) fn at(self, row: &AnswerRow) -> Option<(&'a ArrayRef, usize)> {
        match self {
            Self::Written(column) => Some((column, row.written)),
            Self::Computed(column) => column.zip(row.computed),
        }
    }
}

/// What tells groups apart, of rows of what is written of them and of what is answered of these.
pub(super) fn key_columns<'a>(
    (written, answered): (&'a RecordBatch, &'a AnswerRows),
    by: usize,
    shown_as: Option<&OnlineAnswer>,
) -> Vec<ShownColumn<'a>> {
    let Some(OnlineAnswer { keys, .. }) = shown_as else {
        return written.columns()[..by].iter().map(ShownColumn::Written).collect();
    };
    let column = |(name, key): &(String, OnlineKey)| match key {
        OnlineKey::Column(number) => ShownColumn::Written(written.column(*number)),
        OnlineKey::Computed => ShownColumn::Computed(answered.column(name)),
    };
    keys.iter().map(column).collect()
}

/// What is said of groups that are known, likewise.
pub(super) fn known_columns<'a>(
    (written, answered): (&'a RecordBatch, &'a AnswerRows),
    by: usize,
    shown_as: Option<&OnlineAnswer>,
) -> Vec<ShownColumn<'a>> {
    let Some(OnlineAnswer { values, computed, .. }) = shown_as else {
        return written.columns()[by..].iter().map(ShownColumn::Written).collect();
    };
    let column = |(name, value): &(String, OnlineValue)| match value {
        OnlineValue::Estimated(OfAggregates::Aggregate(number)) if computed.is_none() => {
            ShownColumn::Written(written.column(by + number))
        }
        _ => ShownColumn::Computed(answered.column(name)),
    };
    values.iter().map(column).collect()
}

/// What tells a group apart, as it is shown.
pub(super) fn shown_key(columns: &[ShownColumn<'_>], row: &AnswerRow) -> Vec<Value> {
    columns.iter().map(|column| column.at(row).map_or(Value::Null, |(column, row)| shown_value(column, row))).collect()
}

/// A value that is known, of a decimal with the number that it is, about, as bounds.
pub(super) fn known_value(column: &ArrayRef, row: usize) -> ShownValue {
    let value = shown_value(column, row);
    let number = match &value {
        Value::String(text) if column.data_type().is_decimal() => text.parse().ok(),
        other => other.as_f64(),
    };
    ShownValue { low: number, high: number, ..ShownValue::exact(value) }
}

/// The value of a row as it is shown: of a long text the beginning.
pub(super) fn shown_value(column: &ArrayRef, row: usize) -> Value {
    let value = Shape::of(column, row).into_json();
    let text = match &value {
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => value.to_string(),
        _ => return value,
    };
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => value,
        Some((end, _)) => Value::String(format!("{}…", &text[..end])),
    }
}

/// Whether a group is shown beside others that take so many bytes, to which its own are added.
pub(super) fn has_room(bytes: &mut usize, group: &ShownGroup) -> Result<bool, TaskError> {
    *bytes += serde_json::to_vec(group).map_err(TaskError::fatal)?.len();
    Ok(*bytes <= SHOWN_BYTES_MAX)
}
