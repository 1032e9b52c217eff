//! Aggregations of text.

use exobus_actors::job_kind;
use exobus_actors::spec::{Field, Fields, Need, Plan, SpecCode, SpecError, Takes};

use super::{PARTIAL, PARTITIONS, STRATEGY, explain_keyed, inputs, output, plan_keyed};
use crate::jobs::Aggregate;
use crate::jobs::aggregate::{Delimiter, Operation};

const FIELDS: &[Field] = &[
    inputs(
        "[\"/data/sales.csv\"]",
        "CSV files, or folders of them. Fields with delimiters, quotes or line ends are in double quotes.",
    ),
    output("Folder for part-00000, part-00001, ... with a line for each key; made if missing, must be empty."),
    Field::new("key", Takes::Text, "\"1\"", "Column to group by: a name of the header, or a number from 1.")
        .needed(Need::Always),
    Field::new(
        "value",
        Takes::Text,
        "\"2\"",
        "Column of the values, decimal numbers of up to 20 digits before and 18 after the point; needed unless `ops` is count.",
    )
    .shown(),
    Field::new(
        "ops",
        Takes::Words(operations),
        "[\"sum\", \"count\"]",
        "What is made of the values of a key, in the order of the output's columns.",
    )
    .or("[\"sum\", \"count\", \"min\", \"max\"]")
    .shown(),
    Field::new("delimiter", Takes::Text, "\";\"", "What stands between fields: one character of ASCII.").or("\",\""),
    Field::new("header", Takes::Flag, "true", "Whether the first record of each file names its columns.").or("false"),
    PARTITIONS,
    STRATEGY,
    PARTIAL,
];

job_kind!(
    "aggregate",
    "Count, add up, and find the least and greatest values of CSV files by key",
    FIELDS,
    plan,
    explain
);

fn operations() -> Vec<&'static str> {
    Operation::ALL.map(Operation::name).to_vec()
}

fn plan(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    plan_keyed(fields, job(fields)?)
}

fn explain(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    explain_keyed(fields, job(fields)?)
}

fn job(fields: &Fields<'_>) -> Result<Aggregate, SpecError> {
    let of_name = |name| Operation::ALL.into_iter().find(|operation| operation.name() == name);
    let said: Vec<Operation> = fields.texts("ops").into_iter().filter_map(of_name).collect();
    let operations = if said.is_empty() { Operation::ALL.to_vec() } else { said };
    let on_values = operations.iter().find(|operation| **operation != Operation::Count);
    let value = fields.text("value").map(str::to_owned).filter(|_| on_values.is_some());
    if let (Some(operation), None) = (on_values, &value) {
        let message = format!("`ops = {}` needs `value`, the column of the values", operation.name());
        return Err(SpecError::new(SpecCode::Missing, message).at("value"));
    }
    let Delimiter(delimiter) = fields.parsed("delimiter")?.unwrap_or_default();
    let key = fields.text("key").unwrap_or_default().to_owned();
    Ok(Aggregate { key, value, operations, delimiter, header: fields.flag("header") })
}
