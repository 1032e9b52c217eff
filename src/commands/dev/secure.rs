//! What `exobus dev --secure` puts into the configurations: an authority and certificates, an nkey for each role of the shipped server
//! configuration, roots. All of it is in the cluster's folder, and stays as it is when the folder is used again.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use exobus_actors::transfer::tls::CertifiedNode;
use nkeys::KeyPair;
use serde_json::json;

use crate::{
    certificates::{AUTHORITY_FILE, Authority, Subject},
    commands::config::now,
};

/// The configuration of a server that strangers reach, as it is shipped: its permissions are those of the roles.
const NATS_CONFIG: &str = include_str!("../../../configs/nats/cluster.conf");

/// The roles, in the order in which the users of that file come, with the permissions that it includes for each.
const ROLES: [(&str, &str); 4] = [
    ("node", include_str!("../../../configs/nats/roles/node.conf")),
    ("submitter", include_str!("../../../configs/nats/roles/submitter.conf")),
    ("viewer", include_str!("../../../configs/nats/roles/viewer.conf")),
    ("operator", include_str!("../../../configs/nats/roles/operator.conf")),
];

/// What stands in that file for what it cannot know. The cluster there is called `lab`.
const LISTEN: &str = "\"0.0.0.0:4222\"";
const FILES: &str = "\"/etc/nats/";
const STORE: &str = "\"/var/lib/nats\"";
const SUBJECTS: &str = "exo.v1.lab.";
const NKEY: &str = "nkey: \"";

/// How that file includes the permissions of a role.
fn include_of(role: &str) -> String {
    format!("include \"roles/{role}.conf\"")
}

/// Where contexts of the `nats` command are, seen from what `XDG_CONFIG_HOME` says.
const CONTEXTS: &str = "contexts/nats/context";

/// The name of the cluster.
const CLUSTER: &str = "local";
/// As long as anybody keeps such a cluster.
const DAYS: u32 = 3650;

/// A folder with all that a secure cluster needs.
pub struct Secured {
    folder: PathBuf,
    roots: Vec<PathBuf>,
}

impl Secured {
    /// Makes what is not there yet.
    pub fn prepare(folder: &Path, nodes: &[String], roots: &[PathBuf]) -> Result<Self> {
        let mut all = vec![folder.join("data")];
        fs::create_dir_all(&all[0]).with_context(|| format!("make {}", all[0].display()))?;
        for root in roots {
            all.push(root.canonicalize().with_context(|| format!("the root {}", root.display()))?);
        }
        let secured = Self { folder: folder.to_owned(), roots: all };
        secured.certify(nodes)?;
        for (role, _) in ROLES {
            secured.seed(role)?;
        }
        Ok(secured)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The folder that jobs may read and write in any case.
    pub fn data(&self) -> &Path {
        &self.roots[0]
    }

    fn certify(&self, nodes: &[String]) -> Result<()> {
        let ca = self.at("ca");
        let authority = match ca.join(AUTHORITY_FILE).exists() {
            true => Authority::open(&ca, now())?,
            false => Authority::make(&ca, DAYS, now())?,
        };
        let sign = |subject: &Subject<'_>, name: &str| -> Result<()> {
            if !self.at(&format!("{name}.pem")).exists() {
                authority.sign(subject, DAYS, &self.folder, name)?;
            }
            Ok(())
        };
        sign(&Subject::Server(&["localhost".to_owned(), "127.0.0.1".to_owned()]), "server")?;
        for name in nodes {
            let node = CertifiedNode { cluster: CLUSTER.to_owned(), node: name.clone() };
            sign(&Subject::Node(&node), name)?;
        }
        // Nodes show what they show each other.
        ROLES[1..].iter().try_for_each(|(role, _)| sign(&Subject::Client(role), role))
    }

    /// The seed of a role's nkey, in a file of its own.
    fn seed(&self, role: &str) -> Result<KeyPair> {
        let path = self.at(&format!("{role}.nk"));
        let what = || format!("the nkey in {}", path.display());
        if path.exists() {
            let seed = fs::read_to_string(&path).with_context(what)?;
            return KeyPair::from_seed(seed.trim()).with_context(what);
        }
        let pair = KeyPair::new_user();
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).with_context(what)?;
        writeln!(file, "{}", pair.seed().with_context(what)?).with_context(what)?;
        Ok(pair)
    }

    /// The configuration of the server.
    pub fn server_config(&self) -> Result<String> {
        let mut text = NATS_CONFIG.to_owned();
        let mut at = 0;
        for (role, permissions) in ROLES {
            let next = text[at..].find(NKEY).with_context(|| format!("no user for the role {role}"))?;
            at += next + NKEY.len();
            let public = self.seed(role)?.public_key();
            ensure!(text[..at].contains(&format!("# {role}:")), "the users of the roles come in another order");
            text.replace_range(at..at + public.len(), &public);
            // One file says all.
            let include = include_of(role);
            ensure!(text.contains(&include), "the user of the role {role} includes no permissions");
            text = text.replace(&include, &format!("\n{permissions}"));
        }
        let here = format!("{:?}", self.folder);
        let here = here.trim_end_matches('"');
        Ok(text
            .replace(LISTEN, "\"127.0.0.1:4222\"")
            .replace(&format!("{FILES}ca.pem\""), &format!("{here}/ca/{AUTHORITY_FILE}\""))
            .replace(FILES, &format!("{here}/"))
            .replace(STORE, &format!("{here}/nats\""))
            .replace(SUBJECTS, &format!("exo.v1.{CLUSTER}.")))
    }

    /// A context of the `nats` command for each role of people.
    pub fn write_contexts(&self, url: &str) -> Result<()> {
        let folder = self.at(CONTEXTS);
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        for (role, _) in &ROLES[1..] {
            let context = json!({
                "description": format!("{CLUSTER}, as {role}"),
                "url": url,
                "ca": self.at("ca").join(AUTHORITY_FILE),
                "cert": self.at(&format!("{role}.pem")),
                "key": self.at(&format!("{role}.key")),
                "nkey": self.at(&format!("{role}.nk")),
                // What a person types has the usual one.
                "inbox_prefix": if *role == "operator" { "_INBOX".to_owned() } else { format!("_INBOX_{role}") },
            });
            let path = folder.join(format!("{role}.json"));
            fs::write(&path, format!("{context:#}\n")).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }

    /// How a role reaches the server; `certificate` is what it shows.
    pub fn cluster_lines(&self, role: &str, certificate: &str) -> String {
        format!(
            "name = {CLUSTER:?}\nnats_ca_file = {:?}\nnats_cert_file = {:?}\nnats_key_file = {:?}\nnats_nkey_seed_file = {:?}\n\
             nats_inbox_prefix = \"_INBOX_{role}\"\n",
            self.at("ca").join(AUTHORITY_FILE),
            self.at(&format!("{certificate}.pem")),
            self.at(&format!("{certificate}.key")),
            self.at(&format!("{role}.nk")),
        )
    }

    /// What a node shows the others, and where its jobs are kept to.
    pub fn security_lines(&self, node: &str) -> String {
        format!(
            "{}data_cert_file = {:?}\ndata_key_file = {:?}\nroots = {:?}\n",
            self.client_security_lines(),
            self.at(&format!("{node}.pem")),
            self.at(&format!("{node}.key")),
            self.roots,
        )
    }

    /// Which nodes a client believes.
    pub fn client_security_lines(&self) -> String {
        format!("data_ca_file = {:?}\n", self.at("ca").join(AUTHORITY_FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_server_configuration_has_what_is_replaced() {
        for (text, times) in [(LISTEN, 1), (FILES, 3), (STORE, 1), (NKEY, ROLES.len())] {
            assert_eq!(NATS_CONFIG.matches(text).count(), times, "{text}");
        }
        for (role, permissions) in ROLES {
            assert_eq!(NATS_CONFIG.matches(&include_of(role)).count(), 1, "{role}");
            assert!(role == "operator" || permissions.contains(&format!("_INBOX_{role}.")), "{role}");
            assert!(permissions.contains(SUBJECTS), "{role}");
        }
    }

    #[test]
    fn a_folder_that_is_used_again_keeps_its_keys() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = ["n1".to_owned(), "n2".to_owned()];
        let first = Secured::prepare(folder.path(), &nodes[..1], &[]).unwrap().server_config().unwrap();
        let shown = || fs::read(folder.path().join("n1.pem")).unwrap();
        let certificate = shown();
        let second = Secured::prepare(folder.path(), &nodes, &[]).unwrap().server_config().unwrap();
        assert_eq!((first, certificate), (second, shown()));
        assert!(folder.path().join("n2.pem").exists());
    }
}
