//! The constants of expressions, and the types that they name: columns of one batch of Arrow, so that each value and type of Arrow can be one.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use datafusion_common::{DataFusionError, ScalarValue};
use serde::{Deserialize, Serialize};

/// Where a constant is: the number of its type, and its number among those of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place(u32, u32);

/// Constants, by their types.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constants(Vec<(DataType, Vec<ScalarValue>)>);

/// Why constants cannot be written down, or are none.
#[derive(Debug, thiserror::Error)]
#[error("constants of a query: {0}")]
pub struct NoConstants(String);

impl From<ArrowError> for NoConstants {
    fn from(error: ArrowError) -> Self {
        Self(error.to_string())
    }
}

impl From<DataFusionError> for NoConstants {
    fn from(error: DataFusionError) -> Self {
        Self(error.strip_backtrace())
    }
}

impl Constants {
    /// The number of a type.
    pub fn add_type(&mut self, data_type: &DataType) -> u32 {
        let known = self.0.iter().position(|(known, _)| known == data_type);
        known.unwrap_or_else(|| {
            self.0.push((data_type.clone(), Vec::new()));
            self.0.len() - 1
        }) as u32
    }

    /// The place of a constant.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&mut self, value: &ScalarValue) -> Result<Place, NoConstants> {
        let of = self.add_type(&value.data_type());
        let values = &mut self.0[of as usize].1;
        let at = match values.last() == Some(value) {
            true => values.len() - 1,
            false => {
                values.push(value.clone());
                values.len() - 1
            }
        };
        let at = u32::try_from(at).map_err(|_| NoConstants("there are too many".to_owned()))?;
        Ok(Place(of, at))
    }

    /// The constant of a place.
    pub fn value(&self, place: Place) -> Option<ScalarValue> {
        self.0.get(place.0 as usize)?.1.get(place.1 as usize).cloned()
    }

    /// The type of a number.
    pub fn data_type(&self, number: u32) -> Option<DataType> {
        self.0.get(number as usize).map(|(data_type, _)| data_type.clone())
    }

    /// As bytes.
    ///
    /// # Errors
    /// A type that Arrow's files have not.
    pub fn encode(&self) -> Result<Vec<u8>, NoConstants> {
        let rows = self.0.iter().map(|(_, values)| values.len()).max().unwrap_or(0).max(1);
        let (mut fields, mut columns) = (Vec::new(), Vec::<ArrayRef>::new());
        for (number, (data_type, values)) in self.0.iter().enumerate() {
            let null = ScalarValue::try_from(data_type)?;
            let nulls = std::iter::repeat_n(null, rows - values.len());
            columns.push(ScalarValue::iter_to_array(values.iter().cloned().chain(nulls))?);
            fields.push(Field::new(format!("{number} {}", values.len()), data_type.clone(), true));
        }
        let schema = Arc::new(Schema::new(fields));
        let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
        if !columns.is_empty() {
            writer.write(&RecordBatch::try_new(schema, columns)?)?;
        }
        Ok(writer.into_inner()?)
    }

    /// Of such bytes.
    ///
    /// # Errors
    /// They are others.
    pub fn decode(bytes: &[u8]) -> Result<Self, NoConstants> {
        let reader = StreamReader::try_new(bytes, None)?;
        let schema = reader.schema();
        let Some(batch) = reader.into_iter().next().transpose()? else { return Ok(Self::default()) };
        let of_column = |(field, column): (&Arc<Field>, &ArrayRef)| {
            let count = field.name().split(' ').nth(1).and_then(|count| count.parse::<usize>().ok());
            let count = count.filter(|count| *count <= column.len());
            let count = count.ok_or_else(|| NoConstants(format!("{} is no column of them", field.name())))?;
            let values = (0..count).map(|row| ScalarValue::try_from_array(column, row)).collect::<Result<_, _>>()?;
            Ok((field.data_type().clone(), values))
        };
        schema.fields().iter().zip(batch.columns()).map(of_column).collect::<Result<_, NoConstants>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_of_any_type_are_what_they_were_when_they_were_written() {
        let interval = datafusion_common::arrow::datatypes::IntervalMonthDayNano::new(1, -2, 3);
        let values = [
            ScalarValue::Null,
            ScalarValue::Boolean(None),
            ScalarValue::Int64(Some(i64::MIN)),
            ScalarValue::Int64(Some(3)),
            ScalarValue::UInt64(Some(u64::MAX)),
            ScalarValue::Float64(Some(f64::NAN)),
            ScalarValue::Float64(Some(-0.0)),
            ScalarValue::Decimal128(Some(-12345), 38, 10),
            ScalarValue::Utf8View(Some("a text that is longer than twelve bytes".to_owned())),
            ScalarValue::Utf8(Some(String::new())),
            ScalarValue::Binary(Some(vec![0, 255])),
            ScalarValue::Date32(Some(-1)),
            ScalarValue::TimestampMicrosecond(Some(1), Some("Europe/Oslo".into())),
            ScalarValue::IntervalMonthDayNano(Some(interval)),
        ];
        let mut constants = Constants::default();
        let places: Vec<Place> = values.iter().map(|value| constants.add(value).unwrap()).collect();
        let only_a_type = constants.add_type(&DataType::Date64);
        let read = Constants::decode(&constants.encode().unwrap()).unwrap();
        for (place, value) in places.into_iter().zip(&values) {
            let found = read.value(place).unwrap();
            assert_eq!((&found, found.data_type()), (value, value.data_type()));
        }
        assert_eq!(read.data_type(only_a_type), Some(DataType::Date64));
        assert_eq!(Constants::decode(&Constants::default().encode().unwrap()).unwrap(), Constants::default());
        assert!(Constants::decode(b"no bytes of Arrow").is_err());
    }
}
