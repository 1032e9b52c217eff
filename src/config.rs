//! Configuration: defaults, then the file, then environment variables, then the command line; later wins. Of the command line,
//! options with a name of their own (`--memory`) win over `--set node.memory=...`.
//!
//! All keys stand in one table ([`keys`]); a file is checked against it before anything is started, so that a slip is an
//! error with its line and never a setting that silently does nothing. Environment variables are named after the key,
//! `EXOBUS_NODE__MEMORY` for `node.memory`; without the double underscore they are no configuration (`EXOBUS_LOG`).
//!
//! An older release that is started with the file of a newer one may be told to be lenient: it warns of keys that it does not know.

mod check;
pub mod keys;
pub mod layers;
mod objects;
pub mod schema;
mod security;
pub mod units;

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use config::Config;
use exobus_actors::{isolation::ExecutorKind, printing::Secrets, transfer::tls::DataTls};
use exobus_bus::{BusError, Credentials};
use exobus_store::Clock;
use serde::Deserialize;
use thiserror::Error;

use self::layers::{Layers, Sources};
pub use self::{check::Problem, layers::Setting, objects::ObjectsError, security::SecurityError, units::MemoryBudget};

/// All that a node, or a client of a cluster, is told.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Which cluster, and how to reach it.
    pub cluster: ClusterSection,
    /// This process.
    pub node: NodeSection,
    /// For whom jobs run; none: one, "default".
    #[serde(default)]
    pub tenants: BTreeMap<String, TenantSection>,
    /// Tokens, and permission to go without protection.
    pub security: SecuritySection,
    /// Where files are that are no files of a machine.
    pub objects: ObjectsSection,
}

/// `[cluster]`; the keys are explained in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "keys.rs has the text, once")]
pub struct ClusterSection {
    pub name: String,
    pub nats_url: Option<String>,
    #[serde(deserialize_with = "units::deserialize_duration")]
    pub connect_deadline: Duration,
    pub nats_creds_file: Option<PathBuf>,
    pub nats_nkey_seed_file: Option<PathBuf>,
    pub nats_context: Option<String>,
    pub nats_context_file: Option<PathBuf>,
    pub nats_ca_file: Option<PathBuf>,
    pub nats_cert_file: Option<PathBuf>,
    pub nats_key_file: Option<PathBuf>,
    pub nats_tls_first: bool,
    pub tenant: String,
    pub nats_inbox_prefix: Option<String>,
    pub jetstream_domain: Option<String>,
    pub jetstream_replicas: usize,
}

/// `[node]`; the keys are explained in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "keys.rs has the text, once")]
pub struct NodeSection {
    pub name: Option<String>,
    pub listen: SocketAddr,
    pub memory: MemoryBudget,
    #[serde(default)]
    pub spill_dirs: Vec<PathBuf>,
    pub executors: u32,
    pub executor: ExecutorKind,
    #[serde(deserialize_with = "units::deserialize_size")]
    pub job_log: u64,
    pub scheduler: bool,
    #[serde(deserialize_with = "units::deserialize_duration")]
    pub results_kept: Duration,
    #[serde(default)]
    pub resources: ResourcesSection,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl ClusterSection {
    /// Whether a cluster is named: commands that can do without one work there then.
    pub fn is_named(&self) -> bool {
        self.nats_url.is_some() || self.nats_context.is_some() || self.nats_context_file.is_some()
    }

    /// The file of the context, where one is set.
    ///
    /// # Errors
    /// `Config`: two are set, or there is no place for one of that name.
    pub fn context_file(&self) -> Result<Option<PathBuf>, BusError> {
        match (&self.nats_context, &self.nats_context_file) {
            (Some(_), Some(_)) => {
                Err(BusError::Config("cluster.nats_context and cluster.nats_context_file are both set: one is".into()))
            }
            (Some(name), None) => exobus_bus::context_path(name).map(Some),
            (None, file) => Ok(file.clone()),
        }
    }
}

impl NodeSection {
    /// The spill folders, or the one that is taken when none is set.
    pub fn spill_dirs_or(&self, default: impl FnOnce() -> PathBuf) -> Vec<PathBuf> {
        if self.spill_dirs.is_empty() { vec![default()] } else { self.spill_dirs.clone() }
    }
}

/// `[node.resources]`; the keys are explained in `configs/default.toml`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "keys.rs has the text, once")]
pub struct ResourcesSection {
    pub cpu_milli: Option<u32>,
    #[serde(default)]
    pub gpus: Vec<String>,
}

/// `[tenants.NAME]`; the keys are explained in `configs/default.toml`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "keys.rs has the text, once")]
pub struct TenantSection {
    #[serde(default)]
    pub roots: Vec<PathBuf>,
    pub jobs: Option<u32>,
    pub jobs_running: Option<u32>,
    #[serde(default, deserialize_with = "units::deserialize_size_if_any")]
    pub job_log: Option<u64>,
    #[serde(default, deserialize_with = "units::deserialize_size_if_any")]
    pub job_stored: Option<u64>,
    #[serde(default, deserialize_with = "units::deserialize_size_if_any")]
    pub job_output: Option<u64>,
    pub s3_profile: Option<String>,
}

/// `[objects]`; the keys are explained in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "keys.rs has the text, once")]
pub struct ObjectsSection {
    pub s3_endpoint: Option<String>,
    pub s3_region: Option<String>,
    pub s3_path_style: Option<bool>,
    pub s3_profile: Option<String>,
    #[serde(default)]
    pub networks: Vec<String>,
    pub requests: u32,
}

/// `[security]`; the keys are explained in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "keys.rs has the text, once")]
pub struct SecuritySection {
    pub token_file: Option<PathBuf>,
    pub submitters: Submitters,
    pub submitters_token_file: Option<PathBuf>,
    #[serde(default)]
    pub roots: Vec<PathBuf>,
    pub data_ca_file: Option<PathBuf>,
    pub data_cert_file: Option<PathBuf>,
    pub data_key_file: Option<PathBuf>,
    pub insecure_no_tls: bool,
    pub insecure_no_token: bool,
    pub insecure_any_path: bool,
}

/// Who decides who may hand in jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Submitters {
    /// The submitters' token.
    Token,
    /// The permissions of the NATS server.
    Nats,
    /// Nobody: whoever reaches the NATS server may, which listens on this machine only.
    None,
}

/// A text that prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps it.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the one place that sends or compares it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Why there is no configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("read the configuration {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Keys or values are wrong; one line for each.
    #[error("{}", lines(.0))]
    Wrong(Vec<Problem>),
    /// What the checks of single keys let pass but the whole does not.
    #[error("put the configuration together")]
    Rejected(#[from] config::ConfigError),
    /// It would be unsafe.
    #[error(transparent)]
    Unsafe(#[from] SecurityError),
    /// What is said of object stores makes no sense.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n       ")
}

/// What the command line sets; none leaves the value of file and environment.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `node.name`.
    pub name: Option<String>,
    /// `cluster.nats_url`.
    pub nats_url: Option<String>,
    /// `node.listen`.
    pub listen: Option<SocketAddr>,
    /// `node.memory`.
    pub memory: Option<MemoryBudget>,
    /// `node.spill_dirs`; empty leaves them.
    pub spill_dirs: Vec<PathBuf>,
    /// `node.executors`.
    pub executors: Option<u32>,
    /// `node.scheduler`, when true.
    pub scheduler: bool,
    /// `security.insecure_no_tls`, when true.
    pub insecure_no_tls: bool,
    /// `security.insecure_no_token`, when true.
    pub insecure_no_token: bool,
    /// `security.insecure_any_path`, when true.
    pub insecure_any_path: bool,
    /// Keys by their names; all of the above win over these.
    pub settings: Vec<Setting>,
    /// Whether keys and sections that are not known are let pass, with a warning.
    pub lenient: bool,
}

/// The environment variables of this process that can be values of ours: those that are Unicode.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

impl NodeConfig {
    /// Puts it together from all layers and checks it.
    ///
    /// # Errors
    /// Every wrong key and value of file and environment at once, with its place; then what would be unsafe.
    pub fn load(file: Option<&Path>, overrides: &Overrides) -> Result<Self, ConfigError> {
        Self::load_with(file, overrides, environment())
    }

    /// As [`NodeConfig::load`] with these environment variables.
    ///
    /// # Errors
    /// As there.
    pub fn load_with(
        file: Option<&Path>,
        overrides: &Overrides,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let sources = Sources { file, settings: &overrides.settings, lenient: overrides.lenient };
        let layers = Layers::gather(sources, environment)?;
        layers.warn_of_ignored();
        let mut config = Self::of(&layers)?;
        config.apply(overrides);
        security::check(&config)?;
        config.objects(true)?;
        Ok(config)
    }

    /// What the layers say, whether or not it is safe.
    ///
    /// # Errors
    /// What the checks of single keys let pass but the whole does not.
    pub fn of(layers: &Layers) -> Result<Self, ConfigError> {
        Ok(Config::builder().add_source(layers.clone()).build()?.try_deserialize()?)
    }

    fn apply(&mut self, overrides: &Overrides) {
        let set = overrides.clone();
        self.node.name = set.name.or(self.node.name.take());
        self.cluster.nats_url = set.nats_url.or(self.cluster.nats_url.take());
        self.node.listen = set.listen.unwrap_or(self.node.listen);
        self.node.memory = set.memory.unwrap_or(self.node.memory);
        if !set.spill_dirs.is_empty() {
            self.node.spill_dirs = set.spill_dirs;
        }
        self.node.executors = set.executors.unwrap_or(self.node.executors);
        self.node.scheduler |= set.scheduler;
        self.security.insecure_no_tls |= set.insecure_no_tls;
        self.security.insecure_no_token |= set.insecure_no_token;
        self.security.insecure_any_path |= set.insecure_any_path;
    }

    /// What is configured of object stores. `is_alone`: for a process that runs somebody's jobs and nobody else's.
    ///
    /// # Errors
    /// A network is none; the URLs of two tenants overlap, and their profiles are not one.
    pub fn objects(&self, is_alone: bool) -> Result<exobus_objects::Settings, ConfigError> {
        Ok(objects::settings(self, is_alone)?)
    }

    /// The tokens of a node.
    ///
    /// # Errors
    /// When one is missing, its file cannot be read, others can read it too, or the token is too short.
    pub fn node_credentials(&self) -> Result<Credentials, ConfigError> {
        Ok(security::of_node(&self.security)?)
    }

    /// Whether what is configured makes sense with the NATS server, which asks who connects to it, or does not.
    ///
    /// # Errors
    /// It is to decide who may hand in jobs, and does not ask.
    pub fn check_server(&self, asks: Option<bool>) -> Result<(), ConfigError> {
        Ok(security::check_server(&self.security, asks)?)
    }

    /// What this process knows and no job may print: tokens, and the keys and passwords that it shows NATS servers.
    ///
    /// # Errors
    /// When a file cannot be read, or others can read it too.
    pub fn secrets(&self) -> Result<Secrets, ConfigError> {
        Ok(security::secrets(self)?)
    }

    /// The submitters' token as it is, where one is configured, for who shows it at the door.
    ///
    /// # Errors
    /// As [`submitter_credentials`](Self::submitter_credentials).
    pub fn submitters_token(&self) -> Result<Option<Secret>, ConfigError> {
        Ok(security::submitters_token(&self.security)?)
    }

    /// What a node shows on its data connections, and whom it believes; `None`: they are without TLS.
    ///
    /// # Errors
    /// When a file is missing or not what it should be; when the certificate is not this node's.
    pub fn node_tls(&self, clock: Arc<dyn Clock>) -> Result<Option<DataTls>, ConfigError> {
        Ok(security::tls_of_node(self, clock)?)
    }

    /// Whom a client believes that fetches data from nodes; `None`: these connections are without TLS.
    ///
    /// # Errors
    /// When the file of the authority is not what it should be.
    pub fn client_tls(&self, clock: Arc<dyn Clock>) -> Result<Option<DataTls>, ConfigError> {
        Ok(security::tls_of_client(self, clock)?)
    }

    /// The token of a client of a cluster, where one is configured.
    ///
    /// # Errors
    /// When its file cannot be read, others can read it too, or the token is too short.
    pub fn submitter_credentials(&self) -> Result<Credentials, ConfigError> {
        Ok(security::of_submitter(&self.security)?)
    }
}
