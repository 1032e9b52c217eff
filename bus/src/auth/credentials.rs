//! [`Credentials`]: the tokens that a process knows.

use std::fmt;
use std::sync::Arc;

use super::{Denied, Key, Role, Why};

/// What stands in for a token where there is none; no secret.
const NO_TOKEN: &str = "exobus-no-token-at-all";

/// The tokens that a process knows. Cheap to clone; printed as `***`.
#[derive(Clone)]
pub struct Credentials {
    /// `None`: it is no node.
    nodes: Option<Arc<TokenKey>>,
    submitters: Arc<TokenKey>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Default for Credentials {
    fn default() -> Self {
        Self::open()
    }
}

impl Credentials {
    /// Of a process of a cluster without tokens: whoever reaches the bus may speak, as whoever it likes. For the bus inside a
    /// process, and where it is said in so many words that it is meant.
    pub fn open() -> Self {
        Self::node(None, None)
    }

    /// Of a node. `None`: there is no such token in the cluster.
    pub fn node(nodes: Option<&str>, submitters: Option<&str>) -> Self {
        let nodes = Some(Arc::new(TokenKey::new(Role::Node, nodes)));
        Self { nodes, ..Self::submitter(submitters) }
    }

    /// Of a submitter. `None`: the cluster has no such token.
    pub fn submitter(token: Option<&str>) -> Self {
        Self { nodes: None, submitters: Arc::new(TokenKey::new(Role::Submitter, token)) }
    }

    /// Whether who shows this token may hand in jobs, where it is shown as it is.
    ///
    /// # Errors
    /// It is not the submitters' one, or there is one and none is shown.
    pub fn admits(&self, token: Option<&str>) -> Result<(), Denied> {
        let shown = TokenKey::new(Role::Submitter, token);
        let known = self.submitters.public || self.submitters.key.verifies(&[b"door"], &shown.key.mac(&[b"door"]));
        match (known, token) {
            (true, _) => Ok(()),
            (false, Some(_)) => Err(Denied { token: Role::Submitter, why: Why::Wrong }),
            (false, None) => Err(Denied { token: Role::Submitter, why: Why::Missing }),
        }
    }

    /// What nodes show each other on the data plane, where it goes over the wire as it is: made from the nodes' token, which it does
    /// not give away. `None`: it is no node.
    pub fn data_token(&self) -> Option<String> {
        self.nodes.as_ref().map(|nodes| nodes.key.derive(&[b"data plane"]).to_hex())
    }

    /// The key of a role, where this process knows it.
    pub(super) fn of(&self, role: Role) -> Option<&TokenKey> {
        match role {
            Role::Node => self.nodes.as_deref(),
            Role::Submitter => Some(&self.submitters),
        }
    }

    /// The key that two processes of these names share, where there is one.
    pub(crate) fn between(&self, one: &str, other: &str) -> Option<&Key> {
        let role = match (Role::of(one), Role::of(other)) {
            (Role::Node, Role::Node) => Role::Node,
            (Role::Submitter, Role::Submitter) => return None,
            _ => Role::Submitter,
        };
        self.of(role).map(|token| &token.key)
    }
}

/// A token, as keys.
pub(super) struct TokenKey {
    pub(super) role: Role,
    pub(super) key: Key,
    /// Everybody knows it.
    public: bool,
}

impl TokenKey {
    fn new(role: Role, token: Option<&str>) -> Self {
        let purpose = match role {
            Role::Node => "exobus 2026-11-23 who may speak as a node",
            Role::Submitter => "exobus 2026-11-23 who may speak as a submitter",
        };
        Self { role, key: Key::from_text(purpose, token.unwrap_or(NO_TOKEN)), public: token.is_none() }
    }

    /// What to say to who showed a MAC that is not this key's; `verifies` says whether it is another key's.
    pub(super) fn deny(&self, verifies: impl FnOnce(&Key) -> bool) -> Denied {
        let why = match self.public {
            true => Why::Unwanted,
            false if verifies(&Self::new(self.role, None).key) => Why::Missing,
            false => Why::Wrong,
        };
        Denied { token: self.role, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "the nodes' token of a test";
    const SUBMITTERS: &str = "the submitters' token of a test";

    fn share(a: &Credentials, b: &Credentials, one: &str, other: &str) -> bool {
        match (a.between(one, other), b.between(one, other)) {
            (Some(a), Some(b)) => a.verifies(&[b"x"], &b.mac(&[b"x"])),
            _ => false,
        }
    }

    #[test]
    fn a_submitters_token_never_speaks_as_a_node() {
        let node = Credentials::node(Some(NODES), Some(SUBMITTERS));
        let submitter = Credentials::submitter(Some(SUBMITTERS));
        assert!(share(&node, &submitter, "n1", "client-7"));
        assert!(!share(&node, &submitter, "n1", "n2"), "it does not know the key");
        // Nor where it takes the submitters' token for the nodes' one.
        let impostor = Credentials::node(Some(SUBMITTERS), Some(SUBMITTERS));
        assert!(!share(&node, &impostor, "n1", "n2"));
        assert!(node.between("client-7", "client-8").is_none());
    }

    #[test]
    fn who_has_a_token_and_who_has_none_share_nothing() {
        let (with, without) = (Credentials::node(Some(NODES), None), Credentials::open());
        assert!(!share(&with, &without, "n1", "n2"));
        assert!(share(&with, &without, "n1", "client-7"), "where submitters go without, both do");
        assert!(share(&without, &Credentials::open(), "n1", "n2"));
    }

    #[test]
    fn the_token_of_the_data_plane_is_another_one() {
        let token = Credentials::node(Some(NODES), None).data_token().unwrap();
        assert_eq!(token.len(), 64);
        assert_ne!(token, Credentials::open().data_token().unwrap());
        assert!(Credentials::submitter(Some(SUBMITTERS)).data_token().is_none());
        assert_eq!(format!("{:?}", Credentials::open()), "***");
    }
}
