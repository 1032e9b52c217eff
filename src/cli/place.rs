//! Which cluster a command means, or none: the same for all commands.

use std::path::{Path, PathBuf};

use clap::Args;

use super::nats_url;
use crate::config::{NodeConfig, Overrides, Setting};
use crate::exit::{Exit, Failure, OrExit as _};
use crate::objects::register_configured;

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
    /// Single keys
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// Keys of the configuration that the command line says, and how those are taken that are not known.
#[derive(Debug, Clone, Default, Args)]
pub struct SettingArgs {
    /// Say a key of the configuration otherwise than its file and the environment do, such as cluster.name=lab: the value as in TOML,
    /// or as a text where it is no such; may be repeated
    #[arg(id = "settings", long = "set", value_name = "SECTION.KEY=VALUE", value_parser = Setting::parse)]
    pub set: Vec<Setting>,
    /// Warn of keys and sections of the configuration that this release does not know, instead of refusing them; EXOBUS_LENIENT=1
    /// does the same
    #[arg(long)]
    pub lenient: bool,
}

impl SettingArgs {
    /// What these say.
    pub fn overrides(&self) -> Overrides {
        Overrides { settings: self.set.clone(), lenient: self.lenient, ..Overrides::default() }
    }

    /// Whether the key of this dotted name is said.
    pub fn names(&self, path: &str) -> bool {
        self.set.iter().any(|setting| setting.path == path)
    }

    /// How other commands are told the same.
    fn flags(&self) -> String {
        let set = self.set.iter().map(|setting| format!(" --set {}", quoted(&setting.to_string())));
        set.chain(self.lenient.then(|| " --lenient".to_owned())).collect()
    }
}

/// For a shell.
fn quoted(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-=/:,%@+".contains(letter);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// How a command that needs no cluster reaches files of object stores and web servers.
#[derive(Debug, Clone, Default, Args)]
pub struct FilesArgs {
    /// Configuration file: its [objects] says how URLs of object stores and web servers are reached [default: what EXOBUS_OBJECTS__... and the AWS tools say]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Single keys
    #[command(flatten)]
    pub settings: SettingArgs,
}

impl FilesArgs {
    /// Has URLs mean what these say; where they say nothing, what the environment says is registered by itself.
    ///
    /// # Errors
    /// Exit code 2: what is configured is wrong, or is no setting of `[objects]`.
    pub fn register(&self) -> Result<(), Failure> {
        let SettingArgs { set, lenient } = &self.settings;
        if let Some(other) = set.iter().find(|setting| !setting.path.starts_with("objects")) {
            let what = format!(
                "--set {}: this command takes settings of [objects] alone, as in --set objects.s3_endpoint=URL",
                other.path
            );
            return Err(Failure::text(Exit::Usage, what));
        }
        if self.config.is_none() && set.is_empty() && !lenient {
            return Ok(());
        }
        let config = NodeConfig::load(self.config.as_deref(), &self.settings.overrides()).or_exit(Exit::Usage)?;
        register_configured(&config, true)
    }
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
    /// Single keys
    #[command(flatten)]
    pub settings: SettingArgs,
}

impl PlaceArgs {
    /// How other commands are told of the same cluster.
    pub fn flags(&self) -> String {
        flags(self.cluster.as_deref(), self.config.as_deref()) + &self.settings.flags()
    }
}

fn flags(cluster: Option<&str>, config: Option<&Path>) -> String {
    let cluster = cluster.map(|url| format!(" --cluster {url}"));
    let config = config.map(|file| format!(" --config {}", file.display()));
    [cluster, config].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_commands_are_told_of_the_same_cluster() {
        let set = ["cluster.name=lab", "node.labels={ a = \"it's\" }"].map(|text| Setting::parse(text).unwrap());
        let settings = SettingArgs { set: set.into(), lenient: true };
        let place = PlaceArgs { config: Some("c.toml".into()), settings, ..PlaceArgs::default() };
        let expected = r#" --config c.toml --set cluster.name=lab --set 'node.labels={ a = "it'\''s" }' --lenient"#;
        assert_eq!(place.flags(), expected);
    }
}
