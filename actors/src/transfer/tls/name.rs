//! Names of nodes in certificates.

use std::fmt;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// How such a name begins.
const FORM: &str = "exobus:node:";

/// Which node a certificate is of. It stands there as a URI among the alternative names of the subject,
/// `exobus:node:<cluster>:<node>`: as it is, upper and lower case and all, so that two nodes never have one name. (In a DNS name `N1` is
/// `n1`, and a part of it has 63 characters where a node's name has up to 64.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedNode {
    /// The cluster's name.
    pub cluster: String,
    /// The node's name; empty: no node in particular.
    pub node: String,
}

impl CertifiedNode {
    /// As it stands in a certificate.
    pub fn uri(&self) -> String {
        format!("{FORM}{}:{}", self.cluster, self.node)
    }

    fn parse(uri: &str) -> Option<Self> {
        let (cluster, node) = uri.strip_prefix(FORM)?.split_once(':')?;
        let valid = crate::ids::NodeId::is_valid;
        (valid(cluster) && valid(node)).then(|| Self { cluster: cluster.to_owned(), node: node.to_owned() })
    }

    /// The node of a certificate; `None`: it names none, or several, or is none at all.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let mut names = certificate.valid_uri_names().filter(|uri| uri.starts_with(FORM));
        let name = Self::parse(names.next()?)?;
        names.next().is_none().then_some(name)
    }

    /// Whether a certificate of this node is one of who was wanted.
    pub(super) fn is(&self, wanted: &Self) -> bool {
        self.cluster == wanted.cluster && (wanted.node.is_empty() || self.node == wanted.node)
    }
}

impl fmt::Display for CertifiedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node.as_str() {
            "" => write!(f, "a node of cluster {}", self.cluster),
            node => write!(f, "node {node} of cluster {}", self.cluster),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written_and_nothing_else_is_one() {
        let long = "N-_9".repeat(16);
        for (cluster, node) in [("lab", "n1"), ("Lab", "N1"), (long.as_str(), long.as_str())] {
            let name = CertifiedNode { cluster: cluster.to_owned(), node: node.to_owned() };
            assert_eq!(CertifiedNode::parse(&name.uri()), Some(name));
        }
        for other in [
            "",
            "exobus:node:",
            "exobus:node:lab",
            "exobus:node:lab:",
            "exobus:node::n1",
            "exobus:node:lab:n1:n2",
            "exobus:node:lab:n.1",
            "EXOBUS:node:lab:n1",
            "https://exobus:node:lab:n1",
        ] {
            assert_eq!(CertifiedNode::parse(other), None, "{other}");
        }
    }
}
