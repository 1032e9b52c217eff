//! A job on a cluster: this process only submits it and hears of it.

use exobus_actors::{
    client::{Client, ClientError},
    event::EventSink,
    protocol::host::{JobEnd, JobSpec},
};
use serde::Serialize;

use super::{client_failure, program_key};
use crate::{
    cluster,
    config::NodeConfig,
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
};

/// What is submitted, and who hears of it.
pub(super) struct Submitted<'a, P> {
    /// Of the program and, after "exobus ", of the connection.
    pub(super) name: &'a str,
    pub(super) params: &'a P,
    /// How commands that look at the cluster are told of it.
    pub(super) look: &'a str,
    pub(super) events: Option<&'a EventSink>,
}

impl<P: Serialize> Submitted<'_, P> {
    /// Submits it and waits for its end; the first Ctrl-C cancels it.
    pub(super) fn run(&self, config: &NodeConfig, interrupt: &Interrupt) -> Result<JobEnd, Failure> {
        let Self { name, params, look, events } = self;
        let runtime = cluster::runtime()?;
        runtime.block_on(async {
            let options = cluster::connect_client(config, name).await?;
            let bus = options.bus.clone();
            let mut client = Client::connect(options).await.map_err(client_failure)?;
            let job = client.new_job();
            let spec = JobSpec {
                job,
                tenant: "default".into(),
                program: program_key(name).to_owned(),
                params: rmp_serde::to_vec_named(params).or_exit(Exit::Usage)?.into(),
                sample_ms: events.map_or(0, EventSink::sample_ms),
            };
            let news = |event| {
                if let Some(events) = events {
                    events.emit(event);
                }
            };
            let ended = client.run(spec, news, interrupt.wait()).await;
            let end = ended.map_err(|error| match error {
                error @ ClientError::HostSilent { .. } => Failure::text(
                    Exit::Unreachable,
                    format!(
                        "{error}; the job may go on without this command: `exobus jobs{look}` lists it, \
                         `exobus job {job} why{look}` says how it stands"
                    ),
                ),
                error => client_failure(error),
            })?;
            client.close().await;
            // What is lost with the connection now nobody waits for.
            let _ = bus.drain().await;
            Ok(end)
        })
    }
}
