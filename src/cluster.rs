//! From configuration to a connection with the cluster.

use std::time::Duration;

use exobus_bus::{Bus, BusError, NatsOptions, Role, Subjects};

use crate::{
    config::{ClusterSection, NodeConfig},
    exit::{Exit, Failure, OrExit},
};

/// Connects to the cluster's NATS server, to speak there as `role`; call it on the runtime that the connection shall live on.
///
/// # Errors
/// Exit code 4 when no server answers in time, 2 when what is configured cannot work, tokens included.
pub async fn connect(config: &NodeConfig, role: Role, name: &str) -> Result<(Bus, Subjects), Failure> {
    let section = &config.cluster;
    let credentials = match role {
        Role::Node => config.node_credentials(),
        Role::Submitter => config.submitter_credentials(),
    };
    let credentials = credentials.or_exit(Exit::Usage)?;
    let subjects = Subjects::new(&section.name).or_exit(Exit::Usage)?;
    let bus = Bus::connect(nats_options(section, name)).await.map_err(|error| {
        let exit = match &error {
            BusError::Connect { .. } | BusError::TimedOut { .. } => Exit::Unreachable,
            _ => Exit::Usage,
        };
        Failure::new(exit, error)
    })?;
    Ok((bus.with_credentials(credentials), subjects))
}

/// A runtime for the client of NATS alone, so that nothing else delays its pings and answers.
///
/// # Errors
/// When the system has no thread left.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("nats")
        .enable_all()
        .build()
        .or_exit(Exit::InputOutput)
}

/// How long to look for nodes and their Scheduler once the server has answered.
pub fn join_deadline(section: &ClusterSection) -> Duration {
    section.connect_deadline
}

fn nats_options(section: &ClusterSection, name: &str) -> NatsOptions {
    NatsOptions {
        url: section.nats_url.clone().unwrap_or_default(),
        name: name.to_owned(),
        context_file: section.nats_context_file.clone(),
        creds_file: section.nats_creds_file.clone(),
        nkey_seed_file: section.nats_nkey_seed_file.clone(),
        tls_ca_file: section.nats_ca_file.clone(),
        tls_cert_file: section.nats_cert_file.clone(),
        tls_key_file: section.nats_key_file.clone(),
        tls_first: section.nats_tls_first,
        inbox_prefix: section.nats_inbox_prefix.clone(),
        stream_domain: section.jetstream_domain.clone(),
        stream_replicas: section.jetstream_replicas,
        connect_deadline: section.connect_deadline,
        ..NatsOptions::default()
    }
}
