//! A sort on a cluster: this process only submits it and shows what it tells.

use std::sync::Arc;

use exobus_actors::{
    event::EventSink,
    host::{Client, ClientOptions, JobSpec},
};
use exobus_shuffle::jobs::sort::{SortParams, SortReport};
use exobus_store::SystemClock;

use super::Outcome;
use crate::{
    cluster,
    commands::client_failure,
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
    events: EventSink,
    interrupt: &Interrupt,
) -> Result<Outcome, Failure> {
    let runtime = cluster::runtime()?;
    runtime.block_on(async {
        let (bus, subjects) = cluster::connect(section, "exobus sort").await?;
        let options = ClientOptions {
            bus: bus.clone(),
            subjects,
            clock: Arc::new(SystemClock::new()),
            deadline: cluster::join_deadline(section),
        };
        let mut client = Client::connect(options).await.map_err(client_failure)?;
        let spec = JobSpec {
            job: client.new_job(),
            tenant: "default".into(),
            program: PROGRAM.into(),
            params: rmp_serde::to_vec_named(params).or_exit(Exit::Usage)?.into(),
        };
        let end = client.run(spec, |event| events.emit(event), interrupt.wait()).await.map_err(client_failure)?;
        client.close().await;
        // What is lost with the connection now nobody waits for.
        let _ = bus.drain().await;
        let report = match &end.result {
            Ok(bytes) => Ok(rmp_serde::from_slice::<SortReport>(bytes).or_exit(Exit::JobFailed)?),
            Err(error) => Err(error.clone()),
        };
        Ok((report, end))
    })
}
