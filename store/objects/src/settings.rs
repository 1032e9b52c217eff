//! Where objects are, whose rights are used, and which addresses a job may name.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Addresses;

/// What somebody has configured; a job has no say in it (law 12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Where a server of S3 is: `http://127.0.0.1:9000`. `None`: what the AWS tools would take (`AWS_ENDPOINT_URL_S3`,
    /// `AWS_ENDPOINT_URL`, `endpoint_url` of the profile), and Amazon's own of the region where nobody says any.
    pub s3_endpoint: Option<String>,
    /// The region of its buckets. `None`: what the AWS tools would take, else `us-east-1`.
    pub s3_region: Option<String>,
    /// Buckets are the first part of the path (`http://host/bucket/key`), not of the host's name. `None`: where an endpoint is named.
    pub s3_path_style: Option<bool>,
    /// Whose rights are used.
    pub s3_keys: S3Keys,
    /// The profiles of the AWS tools whose rights are used below these URLs, in place of the others: those of tenants, below their roots.
    pub s3_profiles: BTreeMap<String, String>,
    /// Addresses of web servers that `http://` and `https://` URLs may lead to.
    pub addresses: Addresses,
    /// Requests under way at a time, in this process.
    pub requests: usize,
}

/// Whose rights are used in S3.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum S3Keys {
    /// Those that the AWS tools would find: in the environment, in the profile that it names or the default one, at the services of the
    /// machine.
    #[default]
    Found,
    /// Those of a profile of the AWS tools, and no others.
    Profile(String),
    /// These.
    Given {
        /// The id of the key.
        id: String,
        /// The key.
        secret: String,
    },
}

/// Without the key.
impl fmt::Debug for S3Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found => f.write_str("Found"),
            Self::Profile(name) => f.debug_tuple("Profile").field(name).finish(),
            Self::Given { id, .. } => f.debug_struct("Given").field("id", id).finish_non_exhaustive(),
        }
    }
}

/// Scheme and host, with its port, of the URL of a server: without a user, a path and a query. `None`: it is none.
pub(crate) fn server(url: &str) -> Option<(&str, &str)> {
    let (scheme, host) = url.trim_end_matches('/').split_once("://")?;
    let is_host = !host.is_empty() && !host.contains(['/', '@', ' ', '?', '#']);
    (matches!(scheme, "http" | "https") && is_host).then_some((scheme, host))
}

impl Settings {
    /// Whether a text may be an endpoint: the URL of a server, and of nothing on it.
    pub fn is_endpoint(text: &str) -> bool {
        server(text).is_some()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            s3_endpoint: None,
            s3_region: None,
            s3_path_style: None,
            s3_keys: S3Keys::Found,
            s3_profiles: BTreeMap::new(),
            addresses: Addresses::default(),
            requests: 32,
        }
    }
}
