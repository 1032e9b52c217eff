//! `exobus config`: print the defaults, what is in effect and what may be said, check a file.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use exobus_actors::{
    random::{Random as _, SystemRandom},
    transfer::tls::CertifiedNode,
};
use exobus_store::{Clock as _, SystemClock};

use crate::{
    certificates::{Authority, Subject},
    cli::{CertArgs, ConfigAction, ConfigArgs, SettingArgs, ShowConfigArgs},
    config::{
        NodeConfig, environment, keys,
        layers::{Layers, Sources},
        schema,
    },
    exit::{Exit, Failure, OrExit},
    stdout::{print, print_line},
};

/// Runs it.
pub fn run(args: &ConfigArgs) -> Result<Exit, Failure> {
    match &args.action {
        ConfigAction::Default => print(&keys::default_toml()),
        ConfigAction::Show(args) => print(&shown(args)?),
        ConfigAction::Schema => print_line(format_args!("{:#}", schema::schema())),
        ConfigAction::Check { file, settings } => {
            let config = NodeConfig::load(Some(file), &settings.overrides()).or_exit(Exit::Usage)?;
            config.node_credentials().or_exit(Exit::Usage)?;
            config.node_tls(Arc::new(SystemClock::new())).or_exit(Exit::Usage)?;
            print_line(format_args!("{} is right", file.display()));
        }
        ConfigAction::Token { file } => {
            let what = format!("make the token file {}", file.display());
            make_token(file).or_exit(Exit::InputOutput).map_err(|failure| failure.context(what))?;
        }
        ConfigAction::Ca { dir, days } => {
            Authority::make(dir, *days, now()).or_exit(Exit::InputOutput)?;
        }
        ConfigAction::Cert(args) => certify(args)?,
    }
    Ok(Exit::Success)
}

/// The values that are in effect. Whether they are safe is for `check` to say; files that they name are not looked at.
fn shown(args: &ShowConfigArgs) -> Result<String, Failure> {
    let SettingArgs { set, lenient } = &args.settings;
    let sources = Sources { file: args.config.as_deref(), settings: set, lenient: *lenient };
    let layers = Layers::gather(sources, environment()).or_exit(Exit::Usage)?;
    layers.warn_of_ignored();
    NodeConfig::of(&layers).or_exit(Exit::Usage)?;
    Ok(layers.to_toml(args.origin))
}

/// Since 1970, for the times of certificates.
pub fn now() -> Duration {
    Duration::from_millis(SystemClock::new().unix_ms())
}

fn certify(args: &CertArgs) -> Result<(), Failure> {
    let CertArgs { ca, cluster, nodes, servers, clients, days, out } = args;
    let authority = Authority::open(ca, now()).or_exit(Exit::InputOutput)?;
    let nodes: Vec<_> =
        nodes.iter().map(|node| CertifiedNode { cluster: cluster.clone(), node: node.clone() }).collect();
    let server = (!servers.is_empty()).then(|| (Subject::Server(servers), "server"));
    let nodes = nodes.iter().map(|node| (Subject::Node(node), node.node.as_str()));
    let clients = clients.iter().map(|name| (Subject::Client(name), name.as_str()));
    for (subject, name) in nodes.chain(server).chain(clients) {
        let (certificate, key) = authority.sign(&subject, *days, out, name).or_exit(Exit::InputOutput)?;
        print_line(format_args!("{} {}", certificate.display(), key.display()));
    }
    Ok(())
}

/// Writes a new token of 256 random bits to a new file of mode 0600.
pub fn make_token(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{:032x}{:032x}", SystemRandom.next_u128(), SystemRandom.next_u128())
}
