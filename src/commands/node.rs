//! `exobus node`: one node of a cluster, until Ctrl-C or SIGTERM.

use std::{path::PathBuf, sync::Arc, time::Duration};

use exobus_actors::{
    futures::ComputeThreads,
    ids::NodeId,
    isolation::Isolation,
    joblog::LogsLink,
    jobs::quotas::Quotas,
    membership::MembershipOptions,
    node::{ClusterOptions, Node, NodeError, NodeOptions, memory},
    printing::Secrets,
    random::{Random as _, SystemRandom},
    registry::Roots,
    task::Resources,
    tenants::{DEFAULT_TENANT, Tenant, Tenants},
    transfer::network::RealNetwork,
};
use exobus_store::{RealDisk, StoreError, StoreOptions, SystemClock};
use tracing::info;

use crate::{
    allocator,
    cli::NodeArgs,
    cluster,
    config::{NodeConfig, NodeSection, TenantSection},
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    limits, machine, objects,
    stdout::print_line,
};

/// How the line begins that a node writes to stdout once it is in the cluster; `exobus dev` waits for it.
pub const READY: &str = "ready ";

/// How often we look whether the node has ended by itself.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Runs until told to stop. A node that ends by itself is a failure.
pub fn run(args: &NodeArgs) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen().or_exit(Exit::InputOutput)?;
    let config = NodeConfig::load(args.config.as_deref(), &args.overrides()).or_exit(Exit::Usage)?;
    objects::register_configured(&config, false)?;
    let name = NodeId::new(&config.node.name.clone().unwrap_or_else(made_up_name));

    // What is wrong with it is said before anything is waited for.
    let tls = config.node_tls(Arc::new(SystemClock::new())).or_exit(Exit::Usage)?;
    let runtime = cluster::runtime()?;
    let (clock, mut told) = (SystemClock::new(), None);
    let (node, bus) = loop {
        let connected = runtime.block_on(cluster::connect_patiently(&config, name.as_str(), &interrupt))?;
        let Some((bus, subjects)) = connected else { return Ok(Exit::Success) };
        config.check_server(bus.asks_who_connects()).or_exit(Exit::Usage)?;
        let mut options = options(&config.node, name.clone())?;
        // One with a made-up name has another one next time.
        options.store.keep_files = config.node.name.is_some();
        let options = NodeOptions {
            cluster: Some(ClusterOptions {
                bus: bus.clone(),
                subjects,
                scheduler: config.node.scheduler,
                membership: MembershipOptions::default(),
                listen: config.node.listen,
                join_deadline: cluster::join_deadline(&config.cluster),
            }),
            labels: config.node.labels.clone(),
            tenants: tenants(&config)?,
            secrets: config.secrets().or_exit(Exit::Usage)?,
            tls: tls.clone(),
            ..options
        };
        let interrupted = interrupt.clone();
        match Node::start_unless(options, async move { interrupted.wait().await }) {
            Ok(node) => break (node, bus),
            Err(NodeError::Stopped) => return Ok(Exit::Success),
            // The server has gone away again.
            Err(error) if !bus.connection().borrow().connected && error.is_of_the_bus() => {
                cluster::say_now_and_then(&clock, &mut told, &failure(error));
            }
            Err(error) => return Err(failure(error)),
        }
    };

    print_line(format_args!("{READY}{name} in cluster {}", config.cluster.name));
    let ended = runtime.block_on(async {
        loop {
            tokio::select! {
                () = interrupt.wait() => return None,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            if let Some(fatal) = node.fatal() {
                return Some(fatal);
            }
        }
    });
    if let Some(fatal) = ended {
        return Err(Failure::text(Exit::JobFailed, format!("the node ended: {}: {}", fatal.actor, fatal.reason)));
    }
    info!(node = %name, "leaving the cluster");
    node.stop();
    // What is lost with the connection now nobody waits for.
    let _ = runtime.block_on(bus.drain());
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(Exit::Success)
}

/// For whom jobs run, and what these may do.
fn tenants(config: &NodeConfig) -> Result<Tenants, Failure> {
    let open = |roots: &[PathBuf], of: &str| {
        if roots.is_empty() {
            info!("security.roots is not set: {of} may read and write all files that this process may");
        }
        Roots::open(roots).or_exit(Exit::Usage)
    };
    let NodeConfig { tenants, security, .. } = config;
    if tenants.is_empty() {
        let tenant = Tenant { roots: open(&security.roots, "jobs")?, ..Tenant::default() };
        return Ok(Tenants::of([(DEFAULT_TENANT.into(), tenant)]));
    }
    let tenant = |(name, section): (&String, &TenantSection)| {
        let roots = if section.roots.is_empty() { &security.roots } else { &section.roots };
        let roots = open(roots, &format!("jobs of tenant {name}"))?;
        let quotas = Quotas {
            jobs: section.jobs.map_or(Quotas::default().jobs, |jobs| jobs as usize),
            jobs_running: section.jobs_running.map(|jobs| jobs as usize),
            job_log_bytes: section.job_log,
            job_stored_bytes: section.job_stored,
            job_output_bytes: section.job_output,
        };
        Ok((Arc::from(name.as_str()), Tenant { roots, quotas }))
    };
    tenants.iter().map(tenant).collect::<Result<Vec<_>, Failure>>().map(Tenants::of)
}

/// The options of a node that are the same whether it is alone or in a cluster.
///
/// # Errors
/// The memory is too little for a node, or more than this process may have.
pub(super) fn options(section: &NodeSection, name: NodeId) -> Result<NodeOptions, Failure> {
    let (options, memory_bytes) = options_within(section, name)?;
    allocator::keep(memory_bytes);
    Ok(options)
}

/// The same, and the memory that the node has in all, for who is a part of somebody's process: nothing is said to its allocator.
///
/// # Errors
/// As [`options`].
pub(super) fn options_within(section: &NodeSection, name: NodeId) -> Result<(NodeOptions, u64), Failure> {
    let memory_bytes = section.memory.bytes(machine::available_memory_bytes());
    let store_bytes = memory::store_bytes(memory_bytes).map_err(failure)?;
    limits::memory(memory_bytes, machine::group_memory_bytes())?;
    let executors = match section.executors {
        0 => memory::executors_within(memory_bytes, machine::executors()),
        executors => executors,
    };
    let mut resources = Resources::cpu(section.resources.cpu_milli.map_or(1000 * u64::from(executors), u64::from));
    if !section.resources.gpus.is_empty() {
        resources = resources.with("gpu", 1000 * section.resources.gpus.len() as u64);
    }
    let options = NodeOptions {
        name,
        executors: executors as usize,
        isolation: Isolation { executor: section.executor, environment: objects::handed_on(), ..Isolation::default() },
        resources,
        labels: section.labels.clone(),
        functions: None,
        tenants: Tenants::default(),
        secrets: Secrets::default(),
        store: StoreOptions {
            memory_bytes: store_bytes,
            spill_dirs: section.spill_dirs_or(default_spill_dir),
            release: Some(allocator::release),
            ..StoreOptions::default()
        },
        disk: Arc::new(RealDisk::default()),
        logs: LogsLink::default(),
        log_quota_bytes: section.job_log,
        cluster: None,
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
        compute: Arc::new(ComputeThreads),
        results_kept: section.results_kept.max(Duration::from_secs(1)),
        network: Arc::new(RealNetwork::new()),
        tls: None,
    };
    Ok((options, memory_bytes))
}

/// Where a node spills unless its configuration says where.
pub(super) fn default_spill_dir() -> PathBuf {
    machine::big_temporary_folder().join("exobus")
}

/// What a node that does not start means for the shell.
pub(super) fn failure(error: NodeError) -> Failure {
    let exit = match &error {
        NodeError::TooLittleMemory { .. }
        | NodeError::Store(StoreError::BudgetTooSmall { .. })
        | NodeError::Denied(_)
        | NodeError::Sealed { .. }
        | NodeError::NameTaken { .. } => Exit::Usage,
        NodeError::NoScheduler { .. } | NodeError::StoresNothing { .. } | NodeError::Bus(_) => Exit::Unreachable,
        _ => Exit::InputOutput,
    };
    Failure::new(exit, error)
}

/// The host's name, as far as it fits a subject, and a random number.
fn made_up_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host: String = host
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' })
        .take(40)
        .collect();
    format!("{host}-{:08x}", SystemRandom.next_u128() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_up_name_is_valid_and_new_each_time() {
        let (one, other) = (made_up_name(), made_up_name());
        assert!(NodeId::is_valid(&one), "{one}");
        assert_ne!(one, other);
    }
}
