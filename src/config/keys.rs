//! Every configuration key, once: from this table come `configs/default.toml`, the checks of files and of environment
//! variables, and the text of their errors.

use std::{net::SocketAddr, path::Path};

use exobus_actors::isolation::ExecutorKind;

use super::units::{MemoryBudget, parse_duration, parse_size};

/// A section of the file, in the order of `configs/default.toml`.
pub struct Section {
    /// Its name, dotted where it is nested; `*` stands for a name that users choose.
    pub name: &'static str,
    /// What it is about.
    pub doc: &'static str,
    /// Where users choose the key names themselves (labels, say): the kind of the values and an example line.
    pub free: Option<(Kind, &'static str)>,
    /// Its keys.
    pub keys: &'static [Key],
}

/// One key of a section.
pub struct Key {
    /// Its name within the section.
    pub name: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// The default as TOML; none: not set unless somebody sets it.
    pub default: Option<&'static str>,
    /// An example as TOML, shown as a comment where there is no default.
    pub example: &'static str,
    /// One or more lines for people.
    pub doc: &'static str,
}

/// What values a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A subject token: `[A-Za-z0-9_-]`, 1 to 64 characters.
    Token,
    /// true or false.
    Flag,
    /// An integer from 0.
    Count,
    /// How many servers keep something: 1, 3 or 5.
    Replicas,
    /// Bytes, or a share of the memory that is available.
    Memory,
    /// Bytes.
    Size,
    /// A time with its unit.
    Duration,
    /// The path of a file or folder.
    Path,
    /// Several of them.
    Paths,
    /// Several texts.
    Texts,
    /// `address:port`.
    Listen,
    /// `nats://` or `tls://`, without a password; several separated by commas.
    NatsUrl,
    /// Where functions run.
    Executor,
    /// Who decides who may hand in jobs.
    Submitters,
}

impl Key {
    /// The default as a value.
    pub fn default_value(&self) -> Option<toml::Value> {
        self.default.map(toml_value)
    }

    /// The example as a value, where there is one.
    pub fn example_value(&self) -> Option<toml::Value> {
        (!self.example.is_empty()).then(|| toml_value(self.example))
    }
}

/// A value that stands in the table.
fn toml_value(text: &str) -> toml::Value {
    let table: toml::Table = toml::from_str(&format!("value = {text}")).expect("the table of keys has TOML");
    table["value"].clone()
}

impl Kind {
    /// For "expected ...".
    pub fn expected(self) -> &'static str {
        match self {
            Self::Text => "text in quotes",
            Self::Token => "1 to 64 characters of A-Z a-z 0-9 _ -, in quotes",
            Self::Flag => "true or false",
            Self::Count => "a whole number, 0 or more",
            Self::Replicas => "1, 3 or 5",
            Self::Memory => r#"a size such as "4GiB" or a share of the available memory such as "60%""#,
            Self::Size => r#"a size such as "64MiB""#,
            Self::Duration => r#"a time with its unit such as "3s" or "500ms""#,
            Self::Path => r#"a path in quotes such as "/var/lib/exobus""#,
            Self::Paths => r#"a list of paths such as ["/disk1", "/disk2"]"#,
            Self::Texts => r#"a list of texts such as ["gpu0", "gpu1"]"#,
            Self::Listen => r#"an IP address and a port such as "127.0.0.1:7400" (port 0: any free one)"#,
            Self::NatsUrl => {
                r#"a URL such as "nats://127.0.0.1:4222" or "tls://nats.example.org:4222", without user and password"#
            }
            Self::Executor => r#""thread", "process" or "process-all""#,
            Self::Submitters => r#""token", "nats" or "none""#,
        }
    }

    /// Whether a text is a value of this kind; the kinds that are no texts take none.
    pub fn accepts_text(self, text: &str) -> bool {
        match self {
            Self::Text => true,
            Self::Token => exobus_actors::ids::NodeId::is_valid(text),
            Self::Memory => text.parse::<MemoryBudget>().is_ok(),
            Self::Size => parse_size(text).is_ok(),
            Self::Duration => parse_duration(text).is_ok(),
            Self::Path => !text.is_empty() && !Path::new(text).as_os_str().is_empty(),
            Self::Listen => text.parse::<SocketAddr>().is_ok(),
            Self::NatsUrl => text.split(',').all(is_nats_url),
            Self::Executor => text.parse::<ExecutorKind>().is_ok(),
            Self::Submitters => matches!(text, "token" | "nats" | "none"),
            Self::Flag | Self::Count | Self::Replicas | Self::Paths | Self::Texts => false,
        }
    }

    /// Whether a number is a value of this kind.
    pub fn accepts_number(self, number: u32) -> bool {
        match self {
            Self::Count => true,
            Self::Replicas => matches!(number, 1 | 3 | 5),
            _ => false,
        }
    }

    /// Whether it is written as a list.
    pub fn is_list(self) -> bool {
        matches!(self, Self::Paths | Self::Texts)
    }
}

/// Passwords do not belong in URLs: those end in logs and process lists.
fn is_nats_url(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("nats://").or_else(|| text.strip_prefix("tls://")) else { return false };
    let host = rest.split_once(':').map_or(rest, |(host, _)| host);
    let port_is_right = match rest.strip_prefix('[') {
        // An IPv6 address: its own colons are inside the brackets.
        Some(rest) => match rest.split_once(']') {
            Some((_, "")) => true,
            Some((_, port)) => port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok()),
            None => false,
        },
        None => rest.split_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_ok()),
    };
    !host.is_empty() && !rest.contains(['@', '/', ' ', ',']) && port_is_right
}

const fn key(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    example: &'static str,
    doc: &'static str,
) -> Key {
    Key { name, kind, default, example, doc }
}

/// All of them.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "cluster",
        doc: "Which cluster, and how to reach its NATS servers.",
        free: None,
        keys: &[
            key(
                "name",
                Kind::Token,
                Some(r#""local""#),
                "",
                "Clusters of different names share a NATS server without seeing each other.",
            ),
            key(
                "nats_url",
                Kind::NatsUrl,
                None,
                r#""nats://127.0.0.1:4222""#,
                "One server, which tells about the others, or several separated by commas: who starts while one is away needs another.\nCommands for jobs work on this cluster where it is set, or a context is. Not set: the context's; nodes and `exobus jobs` take the one of the example.",
            ),
            key(
                "connect_deadline",
                Kind::Duration,
                Some(r#""10s""#),
                "",
                "How long to try before giving up with exit code 4. A node goes on trying while no server answers.",
            ),
            key(
                "nats_creds_file",
                Kind::Path,
                None,
                r#""/etc/exobus/node.creds""#,
                "Credentials (JWT and seed); mode 0600.",
            ),
            key("nats_nkey_seed_file", Kind::Path, None, r#""/etc/exobus/node.nk""#, "Seed of an nkey; mode 0600."),
            key(
                "nats_context",
                Kind::Text,
                None,
                r#""lab""#,
                "A context of the `nats` command by its name: URL, credentials, nkey, TLS files and inbox at once. What is set here wins over it.",
            ),
            key(
                "nats_context_file",
                Kind::Path,
                None,
                r#""/home/me/.config/nats/context/lab.json""#,
                "The same by its path; one of both is set. Where a password, a token or a seed is in it, its mode is 0600.",
            ),
            key(
                "nats_ca_file",
                Kind::Path,
                None,
                r#""/etc/exobus/ca.pem""#,
                "Certificates that the server's is checked against, besides the system's.",
            ),
            key(
                "nats_cert_file",
                Kind::Path,
                None,
                r#""/etc/exobus/node.pem""#,
                "Our own certificate, for mutual TLS; needs nats_key_file.",
            ),
            key("nats_key_file", Kind::Path, None, r#""/etc/exobus/node.key""#, "Its private key; mode 0600."),
            key(
                "nats_tls_first",
                Kind::Flag,
                Some("false"),
                "",
                "Begin with TLS instead of upgrading after the server's greeting.",
            ),
            key("tenant", Kind::Token, Some(r#""default""#), "", "For whom a client's jobs run."),
            key(
                "nats_inbox_prefix",
                Kind::Text,
                None,
                r#""_INBOX_node1""#,
                "For accounts that may subscribe only to their own inbox.",
            ),
            key(
                "jetstream_domain",
                Kind::Token,
                None,
                r#""hub""#,
                "JetStream domain that keeps what must outlive processes; the same for all nodes. Not set: the server's own.",
            ),
            key(
                "jetstream_replicas",
                Kind::Replicas,
                Some("1"),
                "",
                "How many NATS servers keep it: 1, 3 or 5. What is there already stays as it is.",
            ),
        ],
    },
    Section {
        name: "node",
        doc: "This process.",
        free: None,
        keys: &[
            key(
                "name",
                Kind::Token,
                None,
                r#""n1""#,
                "Unique in the cluster; a node that is started again under its name finds its spill files again. Not set: the host's name and a random number, new at each start.",
            ),
            key(
                "listen",
                Kind::Listen,
                Some(r#""127.0.0.1:0""#),
                "",
                "Where other nodes fetch data. Port 0: any free one.",
            ),
            key(
                "memory",
                Kind::Memory,
                Some(r#""60%""#),
                "",
                "What the process of the node may use, 64 MiB or more; data that does not fit goes to the spill folders.\nA size, or a share of what is available (the limit of a control group counts).",
            ),
            key(
                "spill_dirs",
                Kind::Paths,
                None,
                r#"["/disk1/exobus", "/disk2/exobus"]"#,
                "Folders for spill files, best one for each disk; not on a memory file system.\nNot set: exobus in /var/tmp (a sort in one process: a temporary folder there).",
            ),
            key(
                "executors",
                Kind::Count,
                Some("0"),
                "",
                "Tasks that run at a time; 0: two for each cpu, fewer where the memory is small.",
            ),
            key(
                "executor",
                Kind::Executor,
                Some(r#""thread""#),
                "",
                "Where functions run: \"thread\": in this process; \"process\": those of users, and tasks with a memory limit, in\nprocesses of their own, which may crash; \"process-all\": all of them.",
            ),
            key(
                "job_log",
                Kind::Size,
                Some(r#""64MiB""#),
                "",
                "What the log of a job that this node hosts may take, some 150 bytes for each task. At that the job goes on, and cannot be\ntaken up again when the node ends. The logs of all jobs of a cluster that are not over share 256 MiB.",
            ),
            key(
                "scheduler",
                Kind::Flag,
                Some("false"),
                "",
                "Whether this node may be the cluster's Scheduler: those that say true elect one, again when it is gone.\nWithout JetStream there is no election, and exactly one node says true.",
            ),
            key(
                "results_kept",
                Kind::Duration,
                Some(r#""1h""#),
                "",
                "How long the results of jobs that this node hosts are there after their jobs, a second or more.",
            ),
        ],
    },
    Section {
        name: "node.resources",
        doc: "What tasks can ask for. Not set: 1000 milli-cpu for each executor, no gpu.",
        free: None,
        keys: &[
            key("cpu_milli", Kind::Count, None, "2000", "In thousandths of a cpu."),
            key("gpus", Kind::Texts, None, r#"["gpu0"]"#, "Names of devices."),
        ],
    },
    Section {
        name: "node.labels",
        doc: "Names and texts of your own that tasks can ask for.",
        free: Some((Kind::Text, r#"zone = "a""#)),
        keys: &[],
    },
    Section {
        name: "tenants",
        doc: "For whom jobs run. Not set: there is one tenant, default, with the roots of [security].",
        free: None,
        keys: &[],
    },
    Section {
        name: "tenants.*",
        doc: "A tenant; the same on all nodes. Who asks for it publishes on api.NAME.>, as the NATS server's permissions let him. Where any is named,\nthere is no tenant default unless it is, too.",
        free: None,
        keys: &[
            key(
                "roots",
                Kind::Paths,
                None,
                r#"["/data/analysts"]"#,
                "Its jobs read and write files only below these folders, or URLs. Not set: those of [security].",
            ),
            key(
                "jobs",
                Kind::Count,
                None,
                "1000",
                "Its jobs that are not over, those that wait included. Not set: 20000.",
            ),
            key(
                "jobs_running",
                Kind::Count,
                None,
                "8",
                "Its jobs under way at a time; more wait. Not set: as many as the cluster has room for.",
            ),
            key(
                "job_log",
                Kind::Size,
                None,
                r#""64MiB""#,
                "What the log of one of its jobs may take. Not set: node.job_log.",
            ),
            key(
                "job_stored",
                Kind::Size,
                None,
                r#""1TiB""#,
                "Intermediate data that one of its jobs may have at a time, in memory and on disks of all nodes; a job with more fails. Not set: what\nthere is room for.",
            ),
            key(
                "job_output",
                Kind::Size,
                None,
                r#""1TiB""#,
                "Bytes of files that one of its jobs may write; a job with more fails. Not set: what there is room for.",
            ),
            key(
                "s3_profile",
                Kind::Text,
                None,
                r#""analysts""#,
                "The profile of the AWS tools whose keys are used below the roots of the tenant that are URLs. Not set: objects.s3_profile.",
            ),
        ],
    },
    Section {
        name: "objects",
        doc: "Files that are no files of a machine: objects of S3 and of what speaks it (s3://bucket/key), and of web servers (https://host/path).",
        free: None,
        keys: &[
            key(
                "s3_endpoint",
                Kind::Text,
                None,
                r#""http://127.0.0.1:9000""#,
                "Where a server of S3 is. Not set: as the AWS tools find it (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url of the profile), or Amazon's.",
            ),
            key(
                "s3_region",
                Kind::Text,
                None,
                r#""eu-central-1""#,
                "The region of its buckets. Not set: as the AWS tools find it, or us-east-1.",
            ),
            key(
                "s3_path_style",
                Kind::Flag,
                None,
                "true",
                "Whether buckets are the first part of the path (http://host/bucket/key) and not of the host's name. Not set: true where an endpoint is named.",
            ),
            key(
                "s3_profile",
                Kind::Text,
                None,
                r#""exobus""#,
                "The profile of the AWS tools whose keys are used, and no others. Not set: the keys are found as these tools find them: in the environment,\nin the default profile, at the services of the machine.",
            ),
            key(
                "networks",
                Kind::Texts,
                None,
                r#"["10.0.0.0/8", "192.168.1.7"]"#,
                "Networks that http:// and https:// URLs of jobs may lead to besides public addresses. A command that runs alone reaches all but link-local ones.",
            ),
            key(
                "requests",
                Kind::Count,
                Some("32"),
                "",
                "Requests to object stores and web servers under way at a time, in one process.",
            ),
        ],
    },
    Section {
        name: "security",
        doc: "Who may speak as a node, and who may hand in jobs. A listener on any other address than loopback needs a token, TLS and roots, or the word for each that it goes without;\na node that keeps strangers from handing in jobs needs roots on any address, or the word for going without.",
        free: None,
        keys: &[
            key(
                "token_file",
                Kind::Path,
                None,
                r#""/etc/exobus/nodes.token""#,
                "The nodes' token, the same on all nodes of the cluster and nowhere else: one line, 16 characters or more; mode 0600.\n`exobus config token FILE` makes one.",
            ),
            key(
                "submitters",
                Kind::Submitters,
                Some(r#""token""#),
                "",
                "Who decides who may hand in jobs: \"token\": whoever knows the submitters' token may; \"nats\": whoever the NATS server's\npermissions allow to publish on api.<tenant>.submit; \"none\": whoever reaches the server, which has to be on this machine.",
            ),
            key(
                "submitters_token_file",
                Kind::Path,
                None,
                r#""/etc/exobus/submitters.token""#,
                "The submitters' token, another one: the same on all nodes and for all clients of the cluster; mode 0600.",
            ),
            key(
                "roots",
                Kind::Paths,
                None,
                r#"["/data"]"#,
                "Jobs read and write files only below these folders of the node, or URLs (\"s3://bucket/team\"). Not set: all that the process may.",
            ),
            key(
                "data_ca_file",
                Kind::Path,
                None,
                r#""/etc/exobus/data-ca.pem""#,
                "Certificates of the authority that nodes' are checked against where data goes between nodes and to clients (PEM; two while one\nreplaces the other): these connections have TLS then, on all nodes or on none. `exobus config ca` makes one. All a client needs.",
            ),
            key(
                "data_cert_file",
                Kind::Path,
                None,
                r#""/etc/exobus/data.pem""#,
                "This node's certificate from that authority, with its name and the cluster's (`exobus config cert` makes it); needs data_key_file.\nFiles that change are read again.",
            ),
            key("data_key_file", Kind::Path, None, r#""/etc/exobus/data.key""#, "Its private key; mode 0600."),
            key(
                "insecure_no_tls",
                Kind::Flag,
                Some("false"),
                "",
                "No TLS for the data connections: data, and what nodes show each other, may cross the network unencrypted.",
            ),
            key(
                "insecure_no_token",
                Kind::Flag,
                Some("false"),
                "",
                "No tokens: everybody who reaches the NATS server may speak as a node and hand in jobs, who reaches the port may read the data.",
            ),
            key(
                "insecure_any_path",
                Kind::Flag,
                Some("false"),
                "",
                "No roots: jobs may read and write all files that the process may.",
            ),
        ],
    },
];

/// The section of this name.
pub fn section(name: &str) -> Option<&'static Section> {
    let is_it = |section: &&Section| match section.name.strip_suffix('*') {
        Some(before) => name.strip_prefix(before).is_some_and(|chosen| Kind::Token.accepts_text(chosen)),
        None => section.name == name,
    };
    SECTIONS.iter().find(is_it)
}

/// Dotted names of all keys.
pub fn all_paths() -> impl Iterator<Item = (String, Kind)> {
    SECTIONS
        .iter()
        .flat_map(|section| section.keys.iter().map(move |key| (format!("{}.{}", section.name, key.name), key.kind)))
}

/// The kind of the key with this dotted name.
pub fn kind_of(path: &str) -> Option<Kind> {
    let (section_name, name) = path.rsplit_once('.')?;
    let section = section(section_name)?;
    section.free.map(|(kind, _)| kind).or_else(|| section.keys.iter().find(|key| key.name == name).map(|key| key.kind))
}

/// The known key or section that is most like `unknown`, where one is like it.
pub fn nearest(unknown: &str) -> Option<String> {
    let sections = SECTIONS.iter().map(|section| section.name.to_owned());
    exobus_actors::spec::nearest(unknown, all_paths().map(|(path, _)| path).chain(sections))
}

/// `configs/default.toml`: every key with its meaning, unset ones as comments.
pub fn default_toml() -> String {
    let mut text = String::from(
        "# Every key with its default. Made by `exobus config default`; a test keeps it so.\n\
         # Later wins: these defaults, the file, environment variables (EXOBUS_NODE__MEMORY=8GiB), command line.\n",
    );
    for section in SECTIONS {
        let (mark, name) = match section.name.strip_suffix('*') {
            // Nobody has chosen a name yet.
            Some(before) => ("# ", format!("{before}NAME")),
            None => ("", section.name.to_owned()),
        };
        text.push_str(&format!("\n# {}\n{mark}[{name}]\n", section.doc.replace('\n', "\n# ")));
        if let Some((_, example)) = section.free {
            text.push_str(&format!("# {example}\n"));
        }
        for key in section.keys {
            text.push_str(&format!("# {}\n", key.doc.replace('\n', "\n# ")));
            match key.default {
                Some(default) => text.push_str(&format!("{} = {default}\n", key.name)),
                None => text.push_str(&format!("# {} = {}\n", key.name, key.example)),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_key() {
        let check = |unknown, known: Option<&str>| assert_eq!(nearest(unknown).as_deref(), known, "{unknown}");
        check("node.memroy", Some("node.memory"));
        check("node.nats_url", Some("cluster.nats_url"));
        check("node.spill_dir", Some("node.spill_dirs"));
        check("security.insecure_notls", Some("security.insecure_no_tls"));
        check("nodes", Some("node"));
        check("node.colour", None);
    }

    #[test]
    fn nats_urls_have_a_scheme_a_host_and_no_password() {
        for good in ["nats://127.0.0.1:4222", "tls://nats.example.org", "nats://[::1]:4222", "nats://host"] {
            assert!(is_nats_url(good), "{good}");
        }
        for bad in [
            "",
            "127.0.0.1:4222",
            "http://host",
            "nats://",
            "nats://me:secret@host:4222",
            "nats://host:port",
            "nats://h:70000",
            "nats://a,b",
        ] {
            assert!(!is_nats_url(bad), "{bad}");
        }
        assert!(Kind::NatsUrl.accepts_text("nats://a:4222,tls://b"));
        for bad in ["nats://a,b", "nats://a,", "nats://a, nats://b", "nats://a,nats://me:secret@b"] {
            assert!(!Kind::NatsUrl.accepts_text(bad), "{bad}");
        }
    }
}
