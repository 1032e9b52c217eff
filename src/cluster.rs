//! From configuration to a connection with the cluster.

use std::{sync::Arc, time::Duration};

use exobus_actors::{client::ClientOptions, random::SystemRandom};
use exobus_bus::{Bus, BusError, NatsOptions, Role, Subjects};
use exobus_store::{Clock, SystemClock};
use tracing::warn;

use crate::{
    cli::{ClusterArgs, PlaceArgs, SettingArgs},
    config::{ClusterSection, NodeConfig, Overrides, Setting},
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    objects,
};

/// How long a node tries before it may say that nobody answers.
const ROUND: Duration = Duration::from_secs(2);
/// How often it says so.
const SAY_EVERY: Duration = Duration::from_secs(30);

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
    let bus = Bus::connect(nats_options(section, name)?).await.map_err(failure)?;
    Ok((bus.with_credentials(credentials), subjects))
}

/// Connects as [`connect`] does, to speak there as a client; `command` is what the server is told that this is.
///
/// # Errors
/// As [`connect`].
pub async fn connect_client(config: &NodeConfig, command: &str) -> Result<ClientOptions, Failure> {
    let (bus, subjects) = connect(config, Role::Submitter, &format!("exobus {command}")).await?;
    let (clock, random) = (Arc::new(SystemClock::new()), Arc::new(SystemRandom));
    let token = config.submitters_token().or_exit(Exit::Usage)?.map(|token| token.reveal().into());
    Ok(ClientOptions {
        tenant: config.cluster.tenant.as_str().into(),
        token,
        who: who(),
        clock,
        random,
        deadline: join_deadline(&config.cluster),
        ..ClientOptions::new(bus, subjects)
    })
}

/// Who runs this command, for people who look at its jobs.
fn who() -> Option<Arc<str>> {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok()?;
    let host = sysinfo::System::host_name().unwrap_or_default();
    let who: String = format!("{user}@{host}").chars().filter(|char| !char.is_control()).take(64).collect();
    Some(who.trim().into())
}

/// What is configured, and whether a command that can do without a cluster is to work on one: where one is named, by the command
/// line, the configuration file or the environment, unless the command line says otherwise.
///
/// # Errors
/// Exit code 2: what is configured is wrong; settings for this process are given, and it is not this process that works.
pub fn place(args: &PlaceArgs, process: &Overrides) -> Result<(NodeConfig, bool), Failure> {
    let SettingArgs { set: settings, lenient } = args.settings.clone();
    let overrides = Overrides { nats_url: args.cluster.clone(), settings, lenient, ..process.clone() };
    let config = NodeConfig::load(args.config.as_deref(), &overrides).or_exit(Exit::Usage)?;
    objects::register_configured(&config, true)?;
    let on_cluster = config.cluster.is_named() && !args.local;
    let flags = [
        ("--memory", process.memory.is_some()),
        ("--spill", !process.spill_dirs.is_empty()),
        ("--executors", process.executors.is_some()),
    ];
    let flag = flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag.to_owned());
    let of_node = |setting: &Setting| setting.path == "node" || setting.path.starts_with("node.");
    let set = || args.settings.set.iter().find(|setting| of_node(setting));
    let flag = flag.or_else(|| set().map(|setting| format!("{} {}", setting.option, setting.path)));
    match flag.filter(|_| on_cluster) {
        Some(flag) => Err(Failure::text(
            Exit::Usage,
            format!(
                "{flag} is a setting of this process, and this runs on the cluster {}: its nodes have their own \
                 (--local runs it here)",
                config.cluster.name
            ),
        )),
        None => Ok((config, on_cluster)),
    }
}

/// What is configured for a command that is about a cluster and nothing else.
///
/// # Errors
/// Exit code 2: what is configured is wrong.
pub fn config(args: &ClusterArgs) -> Result<NodeConfig, Failure> {
    let overrides = Overrides { nats_url: args.cluster.clone(), ..args.settings.overrides() };
    NodeConfig::load(args.config.as_deref(), &overrides).or_exit(Exit::Usage)
}

/// The same for a node: while no server answers it goes on trying, and says so now and then. `None`: it
/// was told to stop meanwhile.
///
/// # Errors
/// What is configured cannot work.
pub async fn connect_patiently(
    config: &NodeConfig,
    name: &str,
    interrupt: &Interrupt,
) -> Result<Option<(Bus, Subjects)>, Failure> {
    let section = &config.cluster;
    let credentials = config.node_credentials().or_exit(Exit::Usage)?;
    let subjects = Subjects::new(&section.name).or_exit(Exit::Usage)?;
    let (clock, mut told) = (SystemClock::new(), None);
    loop {
        let mut options = nats_options(section, name)?;
        options.connect_deadline = options.connect_deadline.min(ROUND);
        let tried = tokio::select! {
            biased;
            () = interrupt.wait() => return Ok(None),
            tried = Bus::connect(options) => tried,
        };
        match tried {
            Ok(bus) => return Ok(Some((bus.with_credentials(credentials), subjects))),
            Err(error @ BusError::Connect { retryable: true, .. }) => {
                say_now_and_then(&clock, &mut told, &failure(error));
            }
            Err(error) => return Err(failure(error)),
        }
    }
}

/// Says what a node waits for that goes on trying, unless it did a moment ago.
pub fn say_now_and_then(clock: &SystemClock, told: &mut Option<Duration>, error: &Failure) {
    let now = clock.now();
    if told.is_none_or(|at| now.saturating_sub(at) >= SAY_EVERY) {
        *told = Some(now);
        warn!(%error, "the NATS server does not answer: this node goes on trying");
    }
}

fn failure(error: BusError) -> Failure {
    let exit = match &error {
        BusError::Connect { .. } | BusError::TimedOut { .. } => Exit::Unreachable,
        _ => Exit::Usage,
    };
    Failure::new(exit, error)
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

fn nats_options(section: &ClusterSection, name: &str) -> Result<NatsOptions, Failure> {
    Ok(NatsOptions {
        url: section.nats_url.clone().unwrap_or_default(),
        name: name.to_owned(),
        context_file: section.context_file().map_err(failure)?,
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
    })
}
