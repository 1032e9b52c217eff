//! What may listen where, and who may speak: a listener that others can reach needs a token, TLS and roots for the files of jobs,
//! or the word for each that is missing; wherever anybody is kept from handing in jobs, there are roots, or the word for going without.

use std::{
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use exobus_actors::{
    printing::Secrets,
    transfer::tls::{CertifiedNode, DataTls, OwnFiles, TlsError, TlsFiles},
};
use exobus_bus::{BusError, Credentials};
use exobus_store::Clock;
use thiserror::Error;

use super::{NodeConfig, Secret, SecuritySection, Submitters};

/// A configuration that would be unsafe, or secrets that are not kept as such.
#[derive(Debug, Error)]
pub enum SecurityError {
    /// The context of the `nats` command is not as it should be.
    #[error(transparent)]
    Context(#[from] BusError),
    /// Others can reach the listener, and a protection is missing.
    #[error(
        "node.listen = \"{listen}\" can be reached from other machines and {missing}, or say {flag} if that is meant"
    )]
    OpenListener {
        /// The address.
        listen: String,
        /// What to add.
        missing: &'static str,
        /// The flag that goes without it.
        flag: &'static str,
    },
    /// A node without a token.
    #[error(
        "a node needs security.token_file, the nodes' token, the same on all nodes of a cluster (`exobus config token FILE` makes \
         one), or say --insecure-no-token if everybody who reaches the NATS server or its port may speak as a node"
    )]
    NoToken,
    /// A node that is told by no token whose jobs it may run.
    #[error(
        "a node needs security.submitters_token_file, the token of who hands in jobs, the same on all nodes and for all clients of a \
         cluster (`exobus config token FILE` makes one); or say security.submitters = \"nats\" if the NATS server's permissions \
         decide who does, or --insecure-no-token if everybody who reaches that server may"
    )]
    NoSubmittersToken,
    /// NATS is to decide, and there is a token all the same.
    #[error(
        "security.submitters is \"nats\", so that NATS's permissions decide who hands in jobs: remove security.submitters_token_file"
    )]
    UnusedSubmittersToken,
    /// Nobody is to be asked who he is who hands in jobs, and others can reach the cluster.
    #[error(
        "security.submitters is \"none\", so that whoever reaches the NATS server may hand in jobs: that is for a server and a node of this \
         machine alone, and {what} is not on it"
    )]
    NobodyIsAsked {
        /// What others can reach.
        what: String,
    },
    /// NATS is to decide, and does not ask.
    #[error(
        "security.submitters is \"nats\", so that NATS's permissions decide who hands in jobs, and the server asks nobody who he is: give it \
         users with permissions (configs/nats/cluster.conf), or set a submitters' token"
    )]
    NatsDoesNotAsk,
    /// Who hands in jobs could speak as a node.
    #[error(
        "security.token_file and security.submitters_token_file hold the same token: who hands in jobs could speak as a node"
    )]
    OneToken,
    /// A node that keeps strangers out, without roots.
    #[error(
        "{because} and security.roots is not: name the folders that jobs are kept to, or say --insecure-any-path if \
         jobs may read and write all files that the node may"
    )]
    NoRoots {
        /// What keeps them out.
        because: &'static str,
    },
    /// Others on this machine can read the secret.
    #[error("{path}: mode is {mode:04o}, but a secret must be readable by its owner only; chmod 600 it")]
    ReadableByOthers {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file cannot be read.
    #[error("read the secret in {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The token is too short to keep anybody out.
    #[error("{path}: the token has {length} characters; 16 are the least (`exobus config token FILE` makes one)")]
    TokenTooShort {
        /// The file.
        path: PathBuf,
        /// How many it has.
        length: usize,
    },
    /// A certificate without its key, or the other way round.
    #[error("cluster.nats_cert_file and cluster.nats_key_file go together; only one is set")]
    HalfAKeyPair,
    /// The same for data connections.
    #[error("security.data_cert_file and security.data_key_file go together; only one is set")]
    HalfADataKeyPair,
    /// A certificate, and nobody's to check.
    #[error(
        "security.data_cert_file is set and security.data_ca_file is not: whose certificates does this node believe?"
    )]
    NoDataAuthority,
    /// A node that would check others and show nothing.
    #[error(
        "security.data_ca_file is set, and a node needs security.data_cert_file and security.data_key_file, too \
         (`exobus config cert` makes them)"
    )]
    NoDataCertificate,
    /// A certificate has a name.
    #[error("security.data_cert_file is set and node.name is not: set the name that the certificate is for")]
    NamelessCertificate,
    /// What is in the files is not right.
    #[error("TLS of data connections")]
    DataTls(#[from] TlsError),
}

/// Shortest token that is accepted, characters.
const TOKEN_LENGTH_MIN: usize = 16;

/// Checks listeners and the files of secrets.
pub fn check(config: &NodeConfig) -> Result<(), SecurityError> {
    let cluster = &config.cluster;
    if cluster.nats_cert_file.is_some() != cluster.nats_key_file.is_some() {
        return Err(SecurityError::HalfAKeyPair);
    }
    let security = &config.security;
    if security.data_cert_file.is_some() != security.data_key_file.is_some() {
        return Err(SecurityError::HalfADataKeyPair);
    }
    if security.data_cert_file.is_some() && security.data_ca_file.is_none() {
        return Err(SecurityError::NoDataAuthority);
    }
    for path in files_of_secrets(config) {
        readable_by_owner_only(path)?;
    }

    if security.submitters == Submitters::Nats && security.submitters_token_file.is_some() {
        return Err(SecurityError::UnusedSubmittersToken);
    }
    if security.submitters == Submitters::None {
        let listen = config.node.listen;
        let urls = cluster.nats_url.as_deref().unwrap_or_default().split(',');
        let elsewhere = urls.filter(|url| !url.is_empty()).find(|url| !is_of_this_machine(url)).map(str::to_owned);
        let open = (!is_loopback(listen.ip())).then(|| listen.to_string());
        if let Some(what) = elsewhere.or(open) {
            return Err(SecurityError::NobodyIsAsked { what });
        }
    }
    let tenants = &config.tenants;
    let each_has_roots = !tenants.is_empty() && tenants.values().all(|tenant| !tenant.roots.is_empty());
    let kept_to_roots = !security.roots.is_empty() || each_has_roots || security.insecure_any_path;
    if is_loopback(config.node.listen.ip()) {
        return match keeps_strangers_out(security) {
            Some(because) if !kept_to_roots => Err(SecurityError::NoRoots { because }),
            _ => Ok(()),
        };
    }
    let open = |missing, flag| SecurityError::OpenListener { listen: config.node.listen.to_string(), missing, flag };
    if security.token_file.is_none() && !security.insecure_no_token {
        return Err(open("needs security.token_file", "--insecure-no-token"));
    }
    if security.data_cert_file.is_none() && !security.insecure_no_tls {
        let missing = "has no TLS: set security.data_ca_file, data_cert_file and data_key_file (`exobus config ca` and `exobus config \
                       cert` make them)";
        return Err(open(missing, "--insecure-no-tls"));
    }
    if !kept_to_roots {
        return Err(open("has no security.roots, the folders that jobs are kept to", "--insecure-any-path"));
    }
    Ok(())
}

/// Files that hold keys, one or more lines each.
fn files_of_secrets(config: &NodeConfig) -> impl Iterator<Item = &PathBuf> {
    let (cluster, security) = (&config.cluster, &config.security);
    let files =
        [&cluster.nats_creds_file, &cluster.nats_nkey_seed_file, &cluster.nats_key_file, &security.data_key_file];
    files.into_iter().flatten()
}

/// What a node shows on its data connections.
pub fn tls_of_node(config: &NodeConfig, clock: Arc<dyn Clock>) -> Result<Option<DataTls>, SecurityError> {
    let security = &config.security;
    let own = match (&security.data_ca_file, &security.data_cert_file, &security.data_key_file) {
        (None, _, _) => return Ok(None),
        (Some(_), Some(certificate), Some(key)) => OwnFiles { certificate: certificate.clone(), key: key.clone() },
        (Some(_), _, _) => return Err(SecurityError::NoDataCertificate),
    };
    let node = config.node.name.clone().ok_or(SecurityError::NamelessCertificate)?;
    let me = CertifiedNode { cluster: config.cluster.name.clone(), node };
    let authorities = security.data_ca_file.clone().unwrap_or_default();
    Ok(Some(DataTls::of_node(TlsFiles { authorities, own: Some(own) }, me, clock)?))
}

/// Whom a client believes.
pub fn tls_of_client(config: &NodeConfig, clock: Arc<dyn Clock>) -> Result<Option<DataTls>, SecurityError> {
    let Some(authorities) = config.security.data_ca_file.clone() else { return Ok(None) };
    Ok(Some(DataTls::of_client(authorities, &config.cluster.name, clock)?))
}

/// What of a node's configuration keeps strangers out, if anything does: then jobs are kept to roots, as who may hand one in is not who may
/// read everything. A client, which names no nodes' token and does not say that there is none, runs no jobs of others.
fn keeps_strangers_out(security: &SecuritySection) -> Option<&'static str> {
    match security {
        SecuritySection { token_file: Some(_), .. } => Some("security.token_file is set"),
        SecuritySection { insecure_no_token: false, .. } => None,
        SecuritySection { submitters_token_file: Some(_), .. } => Some("security.submitters_token_file is set"),
        SecuritySection { submitters: Submitters::Nats, .. } => Some("security.submitters is \"nats\""),
        _ => None,
    }
}

/// The tokens of a node.
pub fn of_node(section: &SecuritySection) -> Result<Credentials, SecurityError> {
    let nodes = match &section.token_file {
        Some(path) => Some(read_token(path)?),
        None if section.insecure_no_token => None,
        None => return Err(SecurityError::NoToken),
    };
    let submitters = match (&section.submitters_token_file, section.submitters) {
        (_, Submitters::None) => None,
        (Some(path), _) => Some(read_token(path)?),
        (None, Submitters::Nats) => None,
        (None, Submitters::Token) if section.insecure_no_token => None,
        (None, Submitters::Token) => return Err(SecurityError::NoSubmittersToken),
    };
    if nodes.is_some() && nodes == submitters {
        return Err(SecurityError::OneToken);
    }
    Ok(Credentials::node(nodes.as_ref().map(Secret::reveal), submitters.as_ref().map(Secret::reveal)))
}

/// The token of a client: none where none is named. Whether the cluster does without, the cluster says.
pub fn of_submitter(section: &SecuritySection) -> Result<Credentials, SecurityError> {
    let token = submitters_token(section)?;
    Ok(Credentials::submitter(token.as_ref().map(Secret::reveal)))
}

/// The submitters' token as it is, where one is named.
pub fn submitters_token(section: &SecuritySection) -> Result<Option<Secret>, SecurityError> {
    section.submitters_token_file.as_deref().map(read_token).transpose()
}

/// Everything that is secret in the files that a configuration names.
pub fn secrets(config: &NodeConfig) -> Result<Secrets, SecurityError> {
    let (secrets, cluster, security) = (Secrets::default(), &config.cluster, &config.security);
    for path in [&security.token_file, &security.submitters_token_file].into_iter().flatten() {
        secrets.add(read_token(path)?.reveal());
    }
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|source| SecurityError::Unreadable { path: path.to_owned(), source })
    };
    // What the AWS tools are told so is in the environment of executor processes, too.
    for name in ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"] {
        std::env::var(name).iter().for_each(|secret| secrets.add(secret));
    }
    for path in files_of_secrets(config) {
        // Each line by itself, but for those that say what it is.
        read(path)?.lines().map(str::trim).filter(|line| !line.starts_with('-')).for_each(|line| secrets.add(line));
    }
    if let Some(path) = cluster.context_file()? {
        exobus_bus::context_secrets(&path)?.iter().for_each(|secret| secrets.add(secret));
    }
    Ok(secrets)
}

/// Reads a token file: its first line.
fn read_token(path: &Path) -> Result<Secret, SecurityError> {
    readable_by_owner_only(path)?;
    let text =
        std::fs::read_to_string(path).map_err(|source| SecurityError::Unreadable { path: path.to_owned(), source })?;
    let token = text.lines().next().unwrap_or_default().trim().to_owned();
    let length = token.chars().count();
    if length < TOKEN_LENGTH_MIN {
        return Err(SecurityError::TokenTooShort { path: path.to_owned(), length });
    }
    Ok(Secret::new(token))
}

fn readable_by_owner_only(path: &Path) -> Result<(), SecurityError> {
    let metadata =
        std::fs::metadata(path).map_err(|source| SecurityError::Unreadable { path: path.to_owned(), source })?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(SecurityError::ReadableByOthers { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Whether a NATS URL is one of this machine alone.
fn is_of_this_machine(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse().is_ok_and(is_loopback)
}

/// Refuses to let NATS decide where it asks nobody.
pub fn check_server(section: &SecuritySection, asks: Option<bool>) -> Result<(), SecurityError> {
    match (section.submitters, asks) {
        (Submitters::Nats, Some(false)) => Err(SecurityError::NatsDoesNotAsk),
        _ => Ok(()),
    }
}

/// An IPv4 address in IPv6 clothes counts as what it is.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a configuration loads without roots, of all that there are on a loopback listener.
    #[test]
    fn a_node_has_roots_unless_anybody_may_hand_in_jobs() {
        use Submitters::{Nats, Token};
        let file = || Some(PathBuf::from("/a/token"));
        let table = [
            // Nodes.
            (file(), false, Token, None, Some("security.token_file is set")),
            (file(), false, Token, file(), Some("security.token_file is set")),
            (file(), false, Nats, None, Some("security.token_file is set")),
            (file(), true, Token, None, Some("security.token_file is set")),
            (file(), true, Token, file(), Some("security.token_file is set")),
            (file(), true, Nats, None, Some("security.token_file is set")),
            (None, true, Token, file(), Some("security.submitters_token_file is set")),
            (None, true, Nats, None, Some("security.submitters is \"nats\"")),
            (None, true, Token, None, None),
            // Clients, and what is no node for want of a token.
            (None, false, Token, None, None),
            (None, false, Token, file(), None),
            (None, false, Nats, None, None),
        ];
        for (token_file, insecure_no_token, submitters, submitters_token_file, asks) in table {
            let said = format!("{token_file:?} {insecure_no_token} {submitters:?} {submitters_token_file:?}");
            let mut config = NodeConfig::load_with(None, &Default::default(), std::iter::empty()).unwrap();
            config.security.token_file = token_file;
            config.security.insecure_no_token = insecure_no_token;
            config.security.submitters = submitters;
            config.security.submitters_token_file = submitters_token_file;
            match (check(&config), asks) {
                (Ok(()), None) => {}
                (Err(SecurityError::NoRoots { because }), Some(asks)) => assert_eq!(because, asks, "{said}"),
                (found, _) => panic!("{said}: {found:?}"),
            }
            config.security.insecure_any_path = true;
            check(&config).expect(&said);
            config.security.insecure_any_path = false;
            config.security.roots = vec!["/data".into()];
            check(&config).expect(&said);
        }
    }

    #[test]
    fn nats_decides_who_hands_in_jobs_only_where_its_server_asks_who_connects() {
        let config = NodeConfig::load_with(None, &Default::default(), std::iter::empty()).unwrap();
        let of = |submitters| SecuritySection { submitters, ..config.security.clone() };
        for (submitters, asks, is_refused) in [
            (Submitters::Nats, Some(false), true),
            (Submitters::Nats, Some(true), false),
            // A bus inside of this process, where nobody else is.
            (Submitters::Nats, None, false),
            (Submitters::Token, Some(false), false),
            (Submitters::None, Some(false), false),
        ] {
            match (check_server(&of(submitters), asks), is_refused) {
                (Ok(()), false) => {}
                (Err(error @ SecurityError::NatsDoesNotAsk), true) => {
                    assert!(error.to_string().contains("the server asks nobody who he is"), "{error}");
                }
                (found, _) => panic!("{submitters:?} {asks:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn that_nobody_is_asked_who_hands_in_jobs_is_for_one_machine_alone() {
        let other = "10.0.0.7:7400";
        let table = [
            ("nats://127.0.0.1:4222", "127.0.0.1:0", None),
            ("nats://localhost:4222", "127.0.0.1:0", None),
            ("localhost", "[::1]:7400", None),
            ("nats://[::1]:4222", "127.0.0.1:0", None),
            ("tls://127.8.0.1", "127.0.0.1:0", None),
            ("nats://127.0.0.1:4222,nats://127.0.0.1:4223", "127.0.0.1:0", None),
            // Where none is named there is the one of this machine.
            ("", "127.0.0.1:0", None),
            ("nats://10.0.0.7:4222", "127.0.0.1:0", Some("nats://10.0.0.7:4222")),
            ("nats://nats1.lab.internal:4222", "127.0.0.1:0", Some("nats://nats1.lab.internal:4222")),
            ("nats://localhost.example.org", "127.0.0.1:0", Some("nats://localhost.example.org")),
            ("nats://127.0.0.1.example.org:4222", "127.0.0.1:0", Some("nats://127.0.0.1.example.org:4222")),
            ("nats://[2001:db8::1]:4222", "127.0.0.1:0", Some("nats://[2001:db8::1]:4222")),
            ("nats://[::ffff:10.0.0.7]:4222", "127.0.0.1:0", Some("nats://[::ffff:10.0.0.7]:4222")),
            ("nats://0.0.0.0:4222", "127.0.0.1:0", Some("nats://0.0.0.0:4222")),
            ("nats://127.0.0.1:4222,nats://10.0.0.7:4222", "127.0.0.1:0", Some("nats://10.0.0.7:4222")),
            ("nats://127.0.0.1:4222", other, Some(other)),
            ("nats://127.0.0.1:4222", "0.0.0.0:7400", Some("0.0.0.0:7400")),
        ];
        for (url, listen, elsewhere) in table {
            let mut config = NodeConfig::load_with(None, &Default::default(), std::iter::empty()).unwrap();
            config.cluster.nats_url = (!url.is_empty()).then(|| url.to_owned());
            config.node.listen = listen.parse().unwrap();
            // All that a listener needs that others reach, so that it is this rule which refuses it.
            config.security = SecuritySection {
                insecure_no_token: true,
                insecure_no_tls: true,
                insecure_any_path: true,
                ..config.security
            };
            check(&config).unwrap_or_else(|error| panic!("{url} {listen}: {error}"));
            config.security.submitters = Submitters::None;
            match (check(&config), elsewhere) {
                (Ok(()), None) => {}
                (Err(SecurityError::NobodyIsAsked { what }), Some(elsewhere)) => assert_eq!(what, elsewhere),
                (found, _) => panic!("{url} {listen}: {found:?}"),
            }
        }
    }
}
