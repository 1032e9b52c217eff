//! A sort on a cluster: this process only submits it and shows what it tells.

use exobus_actors::event::EventSink;
use exobus_shuffle::jobs::sort::{SortParams, SortReport};

use super::Outcome;
use crate::{
    commands::submit,
    config::ClusterSection,
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
};

/// The program that nodes know.
const PROGRAM: &str = "sort@1";

/// Submits the job and waits for its end; on the first Ctrl-C cancels it.
pub(super) fn run(
    section: &ClusterSection,
    params: &SortParams,
    events: &EventSink,
    interrupt: &Interrupt,
) -> Result<Outcome, Failure> {
    let end = submit::run(section, "exobus sort", PROGRAM, params, Some(events), interrupt)?;
    let report = match &end.result {
        Ok(bytes) => Ok(rmp_serde::from_slice::<SortReport>(bytes).or_exit(Exit::JobFailed)?),
        Err(error) => Err(error.clone()),
    };
    Ok((report, end))
}
