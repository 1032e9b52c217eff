//! Word counts.

use exobus_actors::job_kind;
use exobus_actors::spec::{Field, Fields, Plan, SpecError};

use super::{PARTIAL, PARTITIONS, STRATEGY, explain_keyed, inputs, output, plan_keyed};
use crate::jobs::WordCount;

const FIELDS: &[Field] = &[
    inputs(
        "[\"/data/books\"]",
        "Text files, or folders of them. Words end at Unicode white space; bytes that are no UTF-8 count as they are.",
    ),
    output("Folder for part-00000, part-00001, ... with lines of word, tab, count; made if missing, must be empty."),
    PARTITIONS,
    STRATEGY,
    PARTIAL,
];

job_kind!("wordcount", "Count the words of text files", FIELDS, plan, explain);

fn plan(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    plan_keyed(fields, WordCount {})
}

fn explain(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    explain_keyed(fields, WordCount {})
}
