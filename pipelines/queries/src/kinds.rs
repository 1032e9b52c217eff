//! What people say of groups of rows of a table, and what runs.

use exobus_actors::job_kind;
use exobus_actors::spec::{Field, Fields, Plan, SpecCode, SpecError, Takes};
use exobus_tables::jobs::TableJob as _;
use exobus_tables::jobs::group::GroupTable;
use exobus_tables::kinds::{GROUP_FIELDS, explain_group, group_table};

use crate::estimators::Kind;
use crate::online::{Online, OnlineGroup};
use crate::stopping::{Until, UntilError};

/// What is said of what is shown before everything was read.
pub const ONLINE: [Field; 6] = [
    Field::new(
        "online",
        Takes::Flag,
        "true",
        "Whether it is shown what is known of the groups while the table is read, with bounds that close in.",
    )
    .or("false"),
    Field::new(
        "until",
        Takes::Text,
        "\"error=1%\"",
        "When enough was read: error=1%, when each value that is shown is known as well as that (error=1%:all, each of all groups; error=1%:guaranteed, by bounds that rest on no assumption), or time=5s. \
         Nothing is written then. Unless it is said, when everything was read.",
    ),
    Field::new(
        "seed",
        Takes::Number(0, u64::MAX),
        "7",
        "From what the order follows in which the table is read.",
    )
    .or("0"),
    Field::new(
        "bounds",
        Takes::Word(bounds),
        "\"guaranteed\"",
        "Which bounds are given before everything was read: approximate, or guaranteed, which rest on no assumption, are wide, and are there for counts of rows, and sums and means of whole numbers and decimals, of files that say how many rows they have and between which values a column is.",
    )
    .or("\"approximate\""),
    Field::new(
        "simultaneous",
        Takes::Flag,
        "true",
        "Whether bounds of all groups hold together with the probability that is said, which makes them wider. Unless it is said, those of each group do.",
    )
    .or("false"),
    Field::new(
        "keep_for",
        Takes::Text,
        "\"10min\"",
        "How long the job can go on to the exact answer after enough was read: it waits that long for who has it go on (`exobus query --continue`), with what it has read, and its output folder is \
         not free. Unless it is said, it ends when enough was read.",
    ),
];

const FIELDS: [Field; GROUP_FIELDS.len() + ONLINE.len()] = {
    let mut fields = [ONLINE[0]; GROUP_FIELDS.len() + ONLINE.len()];
    let mut at = 0;
    while at < fields.len() {
        fields[at] = if at < GROUP_FIELDS.len() { GROUP_FIELDS[at] } else { ONLINE[at - GROUP_FIELDS.len()] };
        at += 1;
    }
    fields
};

job_kind!(
    "group",
    "Say something of groups of rows of a table: counts, sums, averages, quantiles",
    &FIELDS,
    plan,
    explain_group
);

fn bounds() -> Vec<&'static str> {
    vec!["approximate", "guaranteed"]
}

fn plan(fields: &Fields<'_>) -> Result<Plan, SpecError> {
    match online(fields)? {
        None => Plan::of(GroupTable::NAME, &group_table(fields)?),
        Some(online) => Plan::of(OnlineGroup::NAME, &online.of(group_table(fields)?)),
    }
}

/// How it is shown what is known before everything was read, where that is asked for.
///
/// # Errors
/// It is not, and something is said of it; what is said contradicts itself.
pub fn online(fields: &Fields<'_>) -> Result<Option<Online>, SpecError> {
    if !fields.flag("online") {
        if let Some(field) = fields.first_of(&["until", "seed", "bounds", "simultaneous", "keep_for"]) {
            let message = format!("`{field}` is of what is shown before everything was read: `online = true`");
            return Err(SpecError::new(SpecCode::Invalid, message).at(field));
        }
        return Ok(None);
    }
    let invalid = |at: &str, message: String| SpecError::new(SpecCode::Invalid, message).at(at);
    let until: Option<Until> = fields
        .text("until")
        .map(str::parse)
        .transpose()
        .map_err(|error: UntilError| invalid("until", error.to_string()))?;
    let waits_for = until.map_or(Kind::Approximate, |until| until.bounds());
    let bounds = match (fields.text("bounds"), waits_for) {
        (Some("approximate"), Kind::Guaranteed) => {
            let message = "`until` waits for guaranteed bounds, and `bounds = \"approximate\"` gives none".to_owned();
            return Err(invalid("bounds", message));
        }
        (Some("guaranteed"), _) => Kind::Guaranteed,
        (_, waits_for) => waits_for,
    };
    let (seed, simultaneous) = (fields.number("seed").unwrap_or_default(), fields.flag("simultaneous"));
    let keep_for = fields.text("keep_for").map(|text| match humantime::parse_duration(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err(invalid("keep_for", format!("the time {text:?} is none above 0: `10min`, or `1h 30min`"))),
    });
    let keep_for = keep_for.transpose()?;
    Ok(Some(Online { seed, until, bounds, simultaneous, keep_for }))
}
