//! Rows of a table, for people and for programs.

use exobus_tables::{arrow_array::RecordBatch, arrow_schema::Schema, look::Value, sources::print_type};
use serde_json::json;

use super::{DrawnColumn, DrawnTable};

/// Rows of a schema.
#[derive(Clone, Copy)]
pub struct ShownRows<'a> {
    /// Names and types of the columns.
    pub schema: &'a Schema,
    /// The rows.
    pub batches: &'a [RecordBatch],
}

impl ShownRows<'_> {
    fn values(&self) -> impl Iterator<Item = Vec<Value>> {
        let of = |batch: &RecordBatch, row| batch.columns().iter().map(|column| Value::of(column, row)).collect();
        self.batches.iter().flat_map(move |batch| (0..batch.num_rows()).map(move |row| of(batch, row)))
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.batches.iter().map(|batch| batch.num_rows() as u64).sum()
    }

    /// As a table.
    pub fn drawn(&self) -> DrawnTable {
        let columns = self.schema.fields().iter().map(|field| DrawnColumn {
            name: field.name().clone(),
            kind: print_type(field.data_type()),
            is_right: field.data_type().is_numeric(),
        });
        DrawnTable::new(columns.collect(), self.values().collect())
    }

    /// Names, types and nullability of the columns.
    pub fn columns_json(&self) -> Vec<serde_json::Value> {
        let column =
            |name: &str, kind: String, nullable: bool| json!({ "name": name, "type": kind, "nullable": nullable });
        let fields = self.schema.fields().iter();
        fields.map(|field| column(field.name(), print_type(field.data_type()), field.is_nullable())).collect()
    }

    /// The rows as objects.
    pub fn rows_json(&self) -> Vec<serde_json::Value> {
        let object = |values: Vec<Value>| -> serde_json::Value {
            let fields = self.schema.fields().iter();
            fields.zip(values).map(|(field, value)| (field.name().clone(), value.into_json())).collect()
        };
        self.values().map(object).collect()
    }
}
