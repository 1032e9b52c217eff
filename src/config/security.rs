//! What may listen where, and who may speak: a listener that others can reach needs a token, TLS and roots for the files of jobs,
//! or the word for each that is missing; wherever anybody is kept from handing in jobs, there are roots, or the word for going without.

use std::{
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use exobus_actors::printing::Secrets;
use exobus_bus::Credentials;
use thiserror::Error;

use super::{NodeConfig, Secret, SecuritySection, Submitters};

/// A configuration that would be unsafe, or secrets that are not kept as such.
#[derive(Debug, Error)]
pub enum SecurityError {
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
}

/// Shortest token that is accepted, characters.
const TOKEN_LENGTH_MIN: usize = 16;

/// Checks listeners and the files of secrets.
pub fn check(config: &NodeConfig) -> Result<(), SecurityError> {
    let cluster = &config.cluster;
    if cluster.nats_cert_file.is_some() != cluster.nats_key_file.is_some() {
        return Err(SecurityError::HalfAKeyPair);
    }
    for path in [&cluster.nats_creds_file, &cluster.nats_nkey_seed_file, &cluster.nats_key_file].into_iter().flatten() {
        readable_by_owner_only(path)?;
    }

    let security = &config.security;
    if security.submitters == Submitters::Nats && security.submitters_token_file.is_some() {
        return Err(SecurityError::UnusedSubmittersToken);
    }
    let kept_to_roots = !security.roots.is_empty() || security.insecure_any_path;
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
    // The data plane speaks no TLS yet, so an open listener is always without.
    if !security.insecure_no_tls {
        return Err(open("has no TLS: put it on a private network or behind a tunnel", "--insecure-no-tls"));
    }
    if !kept_to_roots {
        return Err(open("has no security.roots, the folders that jobs are kept to", "--insecure-any-path"));
    }
    Ok(())
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
    let token = section.submitters_token_file.as_deref().map(read_token).transpose()?;
    Ok(Credentials::submitter(token.as_ref().map(Secret::reveal)))
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
    for path in [&cluster.nats_creds_file, &cluster.nats_nkey_seed_file, &cluster.nats_key_file].into_iter().flatten() {
        // Each line by itself, but for those that say what it is.
        read(path)?.lines().map(str::trim).filter(|line| !line.starts_with('-')).for_each(|line| secrets.add(line));
    }
    if let Some(path) = &cluster.nats_context_file {
        let context: serde_json::Value = serde_json::from_str(&read(path)?).unwrap_or_default();
        for name in ["password", "token", "user_jwt", "user_seed"] {
            context[name].as_str().into_iter().for_each(|secret| secrets.add(secret));
        }
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
}
