//! Which cluster a command means, or none: the same for all commands.

use std::path::{Path, PathBuf};

use clap::Args;

use super::nats_url;

/// A cluster, and how it is told. It is the one of `--cluster`, else the one that the configuration file or the environment
/// names; `jobs` and `job`, which are about nothing else, take the server of this machine when nobody names one.
#[derive(Debug, Clone, Default, Args)]
pub struct ClusterArgs {
    /// The cluster behind this NATS server [default: the one that --config or EXOBUS_CLUSTER__NATS_URL names]
    #[arg(long, value_name = "URL", value_parser = nats_url)]
    pub cluster: Option<String>,
    /// Configuration file; its [cluster] says how to reach the cluster: URL, name, credentials, TLS
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// A cluster, or this process: where no cluster is named.
#[derive(Debug, Clone, Default, Args)]
pub struct PlaceArgs {
    /// Run on the cluster behind this NATS server [default: on the one that --config or EXOBUS_CLUSTER__NATS_URL names, else in
    /// this process]; all its nodes must see input and output under the same paths
    #[arg(long, value_name = "URL", value_parser = nats_url)]
    pub cluster: Option<String>,
    /// Configuration file: its [cluster] says how to reach the cluster, or its [node] what this process may use
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Run in this process even if the configuration names a cluster
    #[arg(long, conflicts_with = "cluster")]
    pub local: bool,
}

impl PlaceArgs {
    /// How other commands are told of the same cluster.
    pub fn flags(&self) -> String {
        flags(self.cluster.as_deref(), self.config.as_deref())
    }
}

fn flags(cluster: Option<&str>, config: Option<&Path>) -> String {
    let cluster = cluster.map(|url| format!(" --cluster {url}"));
    let config = config.map(|file| format!(" --config {}", file.display()));
    [cluster, config].into_iter().flatten().collect()
}
