//! A job on a cluster: this process only submits it and hears of it.

use std::sync::Arc;

use exobus_actors::{
    event::EventSink,
    host::{Client, ClientOptions, JobEnd, JobSpec},
    random::SystemRandom,
};
use exobus_bus::Role;
use exobus_store::SystemClock;
use serde::Serialize;

use super::client_failure;
use crate::{
    cluster,
    config::NodeConfig,
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
};

/// Submits `program` ("sort@1") and waits for its end; `events` hear of it, and the first Ctrl-C cancels it. `name` is that
/// of the connection.
pub(super) fn run(
    config: &NodeConfig,
    name: &str,
    program: &str,
    params: &impl Serialize,
    events: Option<&EventSink>,
    interrupt: &Interrupt,
) -> Result<JobEnd, Failure> {
    let runtime = cluster::runtime()?;
    runtime.block_on(async {
        let (bus, subjects) = cluster::connect(config, Role::Submitter, name).await?;
        let options = ClientOptions {
            bus: bus.clone(),
            subjects,
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom),
            deadline: cluster::join_deadline(&config.cluster),
        };
        let mut client = Client::connect(options).await.map_err(client_failure)?;
        let spec = JobSpec {
            job: client.new_job(),
            tenant: "default".into(),
            program: program.into(),
            params: rmp_serde::to_vec_named(params).or_exit(Exit::Usage)?.into(),
            sample_ms: events.map_or(0, EventSink::sample_ms),
        };
        let news = |event| {
            if let Some(events) = events {
                events.emit(event);
            }
        };
        let end = client.run(spec, news, interrupt.wait()).await.map_err(client_failure)?;
        client.close().await;
        // What is lost with the connection now nobody waits for.
        let _ = bus.drain().await;
        Ok(end)
    })
}
