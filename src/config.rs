//! Configuration: defaults, then the file, then environment variables, then the command line; later wins.
//!
//! All keys stand in one table ([`keys`]); a file is checked against it before anything is started, so that a slip is an
//! error with its line and never a setting that silently does nothing. Environment variables are named after the key,
//! `EXOBUS_NODE__MEMORY` for `node.memory`; without the double underscore they are no configuration (`EXOBUS_LOG`).

mod check;
pub mod keys;
mod security;
pub mod units;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use config::{Config, Environment, File, FileFormat};
use exobus_actors::{isolation::ExecutorKind, printing::Secrets};
use exobus_bus::Credentials;
use serde::Deserialize;
use thiserror::Error;

pub use self::{check::Problem, security::SecurityError, units::MemoryBudget};

/// All that a node, or a client of a cluster, is told.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Which cluster, and how to reach it.
    pub cluster: ClusterSection,
    /// This process.
    pub node: NodeSection,
    /// Tokens, and permission to go without protection.
    pub security: SecuritySection,
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
    pub nats_context_file: Option<PathBuf>,
    pub nats_ca_file: Option<PathBuf>,
    pub nats_cert_file: Option<PathBuf>,
    pub nats_key_file: Option<PathBuf>,
    pub nats_tls_first: bool,
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
        self.nats_url.is_some() || self.nats_context_file.is_some()
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
}

impl NodeConfig {
    /// Puts it together from all layers and checks it.
    ///
    /// # Errors
    /// Every wrong key and value of file and environment at once, with its place; then what would be unsafe.
    pub fn load(file: Option<&Path>, overrides: &Overrides) -> Result<Self, ConfigError> {
        Self::load_with(
            file,
            overrides,
            std::env::vars_os().filter_map(|(name, value)| {
                // What is not Unicode cannot be a value of ours.
                Some((name.into_string().ok()?, value.into_string().ok()?))
            }),
        )
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
        let mut builder = Config::builder().add_source(File::from_str(&keys::default_toml(), FileFormat::Toml));
        let mut problems = Vec::new();

        if let Some(path) = file {
            let text = std::fs::read_to_string(path)
                .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
            problems.extend(check::file(&path.display().to_string(), &text));
            if problems.is_empty() {
                builder = builder.add_source(File::from_str(&text, FileFormat::Toml));
            }
        }

        let variables: HashMap<String, String> =
            environment.filter(|(name, _)| name.starts_with("EXOBUS_") && name.contains("__")).collect();
        let mut in_order: Vec<_> = variables.iter().collect();
        in_order.sort();
        for (name, value) in in_order {
            let path = name["EXOBUS_".len()..].to_ascii_lowercase().replace("__", ".");
            problems.extend(check::variable(name, &path, value));
        }
        if !problems.is_empty() {
            return Err(ConfigError::Wrong(problems));
        }

        let mut variables = Environment::with_prefix("EXOBUS")
            .prefix_separator("_")
            .separator("__")
            .try_parsing(true)
            .list_separator(":")
            .source(Some(variables));
        for (path, _) in keys::all_paths().filter(|(_, kind)| kind.is_list()) {
            variables = variables.with_list_parse_key(&path);
        }
        let mut config: Self = builder.add_source(variables).build()?.try_deserialize()?;
        config.apply(overrides);
        security::check(&config)?;
        Ok(config)
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

    /// The tokens of a node.
    ///
    /// # Errors
    /// When one is missing, its file cannot be read, others can read it too, or the token is too short.
    pub fn node_credentials(&self) -> Result<Credentials, ConfigError> {
        Ok(security::of_node(&self.security)?)
    }

    /// What this process knows and no job may print: tokens, and the keys and passwords that it shows NATS servers.
    ///
    /// # Errors
    /// When a file cannot be read, or others can read it too.
    pub fn secrets(&self) -> Result<Secrets, ConfigError> {
        Ok(security::secrets(self)?)
    }

    /// The token of a client of a cluster, where one is configured.
    ///
    /// # Errors
    /// When its file cannot be read, others can read it too, or the token is too short.
    pub fn submitter_credentials(&self) -> Result<Credentials, ConfigError> {
        Ok(security::of_submitter(&self.security)?)
    }
}
