//! What is said of groups of rows. The kind itself is registered in `exobus-queries`, which shows groups before everything was read, too.

use exobus_actors::spec::{Field, Fields, Plan, SpecError, Takes};
use exobus_shuffle::kinds::{PARTIAL, PARTITIONS, STRATEGY, output};

use super::{
    COMPRESSION, FILE_BYTES, FORMAT, HIVE, INPUT_FORMAT, INPUTS, JSON_MIXED, OUTPUT_DOC, ROW_GROUP_ROWS, SCHEMA,
    VERIFY, WHERE, invalid, rewrite, rows_per_file,
};
use crate::aggregates::parse_list;
use crate::jobs::group::{GroupQuery, GroupTable, Top};

/// What is said of a job over groups.
pub const GROUP_FIELDS: &[Field] = &[
    INPUTS,
    output(OUTPUT_DOC),
    Field::new(
        "by",
        Takes::Texts,
        "[\"city\", \"day\"]",
        "Columns of which rows that are alike are a group, or paths to fields of structs. Unless it is said, all rows are one group, also where there are none.",
    )
    .shown(),
    Field::new(
        "agg",
        Takes::Text,
        "\"count(*), sum(price) as total, avg(price)\"",
        "What is said of each group: count(*), count, sum, avg, min, max, first, last, variance, stddev, var_pop, stddev_pop, count_distinct, \
         quantile(COLUMN, 0.9), quantile_cont, median, each of a column and with `as NAME` where it is to have another name than its own text. Unless it is said, \
         groups are listed and nothing more.",
    )
    .shown(),
    Field::new(
        "having",
        Takes::Text,
        "\"total > 100\"",
        "Groups that are written, by their columns and by the names of what is said of them.",
    ),
    Field::new(
        "top",
        Takes::Number(1, u64::MAX),
        "10",
        "How many groups are written, the first ones in the order of `order_by`: of all, or of each value of `per`.",
    ),
    Field::new(
        "order_by",
        Takes::Texts,
        "[\"total:desc\", \"city\"]",
        "In which order groups are for `top`: columns of theirs, or names of what is said of them, each with :desc and :nulls-first where that is wanted; then in that \
         of their keys.",
    ),
    Field::new("per", Takes::Texts, "[\"city\"]", "Some of the columns of groups, of each of whose values `top` groups are written."),
    rows_per_file("Rows of a file, at most; files differ by one row."),
    PARTITIONS,
    STRATEGY,
    PARTIAL,
    INPUT_FORMAT,
    HIVE,
    JSON_MIXED,
    WHERE,
    SCHEMA,
    FORMAT,
    COMPRESSION,
    ROW_GROUP_ROWS,
    FILE_BYTES,
    VERIFY,
];

/// What says what a job would do, of which this is said.
///
/// # Errors
/// It is none.
pub fn explain_group(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    Plan::of("table.group.explain", &group_table(fields)?)
}

/// The job of which this is said.
///
/// # Errors
/// It is none.
pub fn group_table(fields: &Fields<'_>) -> Result<GroupTable, SpecError> {
    let owned = |name| fields.texts(name).into_iter().map(str::to_owned).collect::<Vec<_>>();
    let aggregates = fields.text("agg").map(parse_list).transpose();
    let aggregates = aggregates.map_err(|error| invalid("agg", error.to_string()))?.unwrap_or_default();
    let (order_by, per) = (fields.all_parsed("order_by")?, owned("per"));
    let top = match fields.number("top") {
        Some(rows) => Some(Top { rows, order_by, per }),
        None => match fields.first_of(&["order_by", "per"]) {
            None => None,
            Some(field) => {
                let message = format!(
                    "`{field}` says which groups `top` leaves, and `top` does not say how many; groups are written in the order of their keys"
                );
                return Err(invalid(field, message));
            }
        },
    };
    let query = GroupQuery { by: owned("by"), aggregates, having: fields.parsed("having")?, top };
    query.check().map_err(|(field, message)| invalid(field, message))?;
    Ok(GroupTable { table: rewrite(fields)?, query })
}
