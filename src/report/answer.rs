//! What a query has answered, for people and for programs.

use exobus_actors::protocol::host::JobEnd;
use exobus_sql::program::{Answered, Shown};
use exobus_tables::{arrow_array::RecordBatch, arrow_schema::SchemaRef};
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use super::{GROUPS_DRAWN, OnlineSummary, Place, ShownRows, TableSummary, TableWords, count, counted, snapshot_table};

/// What a query has answered. As JSON, the keys are these names.
#[derive(Clone, Debug, Serialize)]
pub struct AnswerSummary {
    /// Names and types of the columns of the answer; none where it has files, or is not there.
    pub columns: Vec<Value>,
    /// Its first rows, as objects.
    pub rows: Vec<Value>,
    /// Whether these are all.
    pub is_all: bool,
    /// The hash of what it was planned as, 32 hexadecimal digits; empty where it was only explained.
    pub plan: String,
    /// How many operators ran, one after the other.
    pub steps: u64,
    /// Rows that were read of tables.
    pub rows_read: u64,
    /// From start to end.
    pub seconds: f64,
    /// Why nothing was shown before the answer was there, though that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_online: Option<String>,
    /// How it would be done, where that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explained: Option<String>,
    /// Where it was shown before everything was read: how it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub online: Option<OnlineSummary>,
    /// Where the answer has files: what was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<TableSummary>,
}

/// What a job has returned, as JSON: a query's with columns and rows as in [`AnswerSummary`], in place of the stream of Arrow that has them; any other one as it is.
pub fn with_rows(mut returned: Value) -> Value {
    let Some(fields) = returned.as_object_mut() else { return returned };
    let shown = fields.get("shown").and_then(|shown| Shown::deserialize(shown).ok());
    let Some((shown, Ok((schema, batches)))) = shown.map(|shown| (shown.is_all, shown.batches())) else {
        return returned;
    };
    let rows = ShownRows { schema: &schema, batches: &batches };
    fields.remove("shown");
    fields.insert("columns".to_owned(), rows.columns_json().into());
    fields.insert("rows".to_owned(), rows.rows_json().into());
    fields.insert("is_all".to_owned(), shown.into());
    returned
}

const ANSWERED: TableWords = TableWords { did: "answered", made: Some("rows") };

impl AnswerSummary {
    /// From what the program and the nodes say. `rows`: what [`Answered::shown`] has.
    pub fn new(
        report: &Answered,
        (schema, batches): &(SchemaRef, Vec<RecordBatch>),
        end: &JobEnd,
        (place, seconds): (&Place, f64),
    ) -> Self {
        let rows = ShownRows { schema, batches };
        let Answered { shown, written, steps, rows_read, plan, explained, not_online, online } = report;
        Self {
            columns: rows.columns_json(),
            rows: rows.rows_json(),
            is_all: shown.is_all,
            plan: plan.clone(),
            steps: *steps,
            rows_read: *rows_read,
            seconds,
            not_online: not_online.clone(),
            explained: explained.clone(),
            online: online.as_ref().map(|online| OnlineSummary::new(online, end, place, seconds)),
            written: written.as_ref().map(|written| TableSummary::new(written, end, place, seconds)),
        }
    }

    /// The answer as a table, and lines for people; `output` says where files are.
    pub fn for_people(
        &self,
        report: &Answered,
        (schema, batches): &(SchemaRef, Vec<RecordBatch>),
        (place, output): (&Place, &str),
    ) -> String {
        if let Some(explained) = &self.explained {
            return explained.clone();
        }
        let mut lines = Vec::new();
        let stopped = report.online.as_ref().filter(|online| online.written.is_none());
        match (&self.written, stopped) {
            (_, Some(online)) => lines.push(snapshot_table(&online.snapshot, GROUPS_DRAWN, None)),
            (Some(written), None) => lines.push(written.for_people(ANSWERED, place, output)),
            (None, None) => lines.push(ShownRows { schema, batches }.drawn().drawn(None)),
        }
        if let Some(why) = &self.not_online {
            lines.push(format!("nothing was shown before the answer was there: {why}"));
        }
        lines.extend(self.online.as_ref().map(|online| online.ended.clone()));
        if self.written.is_none() && stopped.is_none() {
            let rows = report.shown.rows;
            let of_rows = match self.is_all {
                true => counted(rows, "row"),
                false => format!("the first {}: --output writes all of them", counted(rows, "row")),
            };
            let read = match self.rows_read {
                0 => String::new(),
                read => format!(", of {} read", count(read)),
            };
            lines.push(format!("{of_rows}{read}, in {:.1} s", self.seconds));
        }
        lines.join("\n")
    }
}
