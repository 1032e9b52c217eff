//! Kinds of jobs over keyed rows, and what kinds of jobs over files take alike.

mod aggregate;
#[cfg(test)]
mod tests;
mod wordcount;

use exobus_actors::spec::{Field, Fields, Need, Plan, SpecError, Takes};

use crate::keyed::{ExplainParams, KeyedParams, Registered};
use crate::strategies::Strategy;

/// How many files there are.
pub const PARTITIONS: Field = Field::new(
    "partitions",
    Takes::Number(1, 1_000_000),
    "16",
    "Number of output files. Unless it is said, it is chosen from the input's size and the memory.",
);

/// Which strategy.
pub const STRATEGY: Field = Field::new(
    "strategy",
    Takes::Word(strategies),
    "\"auto\"",
    "When and where data moves; auto: the one that is estimated to be the fastest.",
)
.or("\"auto\"");

/// Whether a folder is read that is not whole.
pub const PARTIAL: Field = Field::new(
    "partial",
    Takes::Flag,
    "true",
    "Whether a folder is read, too, that another job writes to, or has not finished: as far as it is there.",
)
.or("false");

/// What is read.
pub const fn inputs(example: &'static str, doc: &'static str) -> Field {
    Field::new("inputs", Takes::Reads, example, doc).needed(Need::Always)
}

/// Where it is written.
pub const fn output(doc: &'static str) -> Field {
    Field::new("output", Takes::Writes, "\"/data/output\"", doc).needed(Need::ToRun)
}

/// What [`STRATEGY`] says when none is chosen.
const AUTO: &str = "auto";

fn strategies() -> Vec<&'static str> {
    std::iter::once(AUTO).chain(Strategy::ALL.map(Strategy::name)).collect()
}

/// The strategy that is said; `None`: to be chosen.
pub fn strategy(fields: &Fields<'_>) -> Option<Strategy> {
    let name = fields.text(STRATEGY.name)?;
    Strategy::ALL.into_iter().find(|strategy| strategy.name() == name)
}

/// How many files are said.
pub fn partitions(fields: &Fields<'_>) -> Option<u32> {
    fields.number(PARTITIONS.name).and_then(|number| u32::try_from(number).ok())
}

/// The plan of a job over keyed rows.
///
/// # Errors
/// It is too large.
pub fn plan_keyed<J: Registered>(fields: &Fields<'_>, job: J) -> Result<Plan, SpecError> {
    let params = KeyedParams {
        inputs: fields.paths("inputs"),
        output: fields.path("output").unwrap_or_default(),
        partitions: partitions(fields),
        strategy: strategy(fields),
        partial: fields.flag(PARTIAL.name),
        job,
    };
    Plan::of(J::NAME, &params)
}

/// The plan of what explains it.
///
/// # Errors
/// It is too large.
pub fn explain_keyed<J: Registered>(fields: &Fields<'_>, job: J) -> Result<Plan, SpecError> {
    let (inputs, partitions, partial) = (fields.paths("inputs"), partitions(fields), fields.flag(PARTIAL.name));
    Plan::of(&format!("{}.explain", J::NAME), &ExplainParams { inputs, partitions, partial, job })
}
