//! `exobus doctor`: what about this machine would make jobs fail or crawl, and what to do about it.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};

use exobus_actors::client::{Client, ClientError, ClientOptions};
use exobus_actors::ids::JobId;
use exobus_actors::joining::takes_as_node;
use exobus_actors::node::{NodeError, memory::store_bytes};
use exobus_actors::task::Resources;
use exobus_bus::{Bus, BusError, Subjects, streams::Usage};

use rustix::{
    fs::{MemfdFlags, OFlags, ftruncate, memfd_create, statfs, statvfs},
    process::{Resource, getrlimit},
};
use serde_json::{Value, json};

use crate::{
    cli::DoctorArgs,
    cluster,
    commands::node::default_spill_dir,
    config::{NodeConfig, units::size},
    exit::{Exit, Failure, OrExit},
    machine,
    report::bytes,
    stdout::print_line,
};

/// Below this, spilling has little room; a warning only, as small jobs need none.
const SPILL_SPACE_LOW_BYTES: u64 = 10_000_000_000;
/// Input, output, spill files and sockets of a large job.
const OPEN_FILES_LOW: u64 = 4096;
/// A node with less has room for a task or two.
const MEMORY_LOW_BYTES: u64 = 1 << 30;

/// What was found about one thing.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    what: String,
    verdict: Verdict,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Good,
    Warning,
    Bad,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Good => "ok",
            Verdict::Warning => "warning",
            Verdict::Bad => "BAD",
        };
        write!(f, "{verdict:<8} {:<14} {}", self.what, self.text)
    }
}

/// Prints all findings; fails when one is bad.
pub fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    let config = cluster::config(&args.place)?;

    let mut findings = vec![memory(&config), shared_memory(), cpus(), open_files()];
    findings.extend(config.node.spill_dirs_or(default_spill_dir).iter().map(|folder| spill_folder(folder)));
    if config.cluster.is_named() {
        findings.extend(cluster_findings(&config)?);
    }
    let worst = findings.iter().map(|finding| finding.verdict).max();
    for finding in &findings {
        print_line(finding);
    }
    if worst == Some(Verdict::Bad) {
        return Err(Failure::text(Exit::InputOutput, "jobs will fail here; see the lines marked BAD"));
    }
    Ok(Exit::Success)
}

fn finding(what: &str, verdict: Verdict, text: String) -> Finding {
    Finding { what: what.to_owned(), verdict, text }
}

fn memory(config: &NodeConfig) -> Finding {
    let available = machine::available_memory_bytes();
    let budget = config.node.memory.bytes(available);
    let text = format!("{} available, budget {} (node.memory = {})", size(available), size(budget), config.node.memory);
    if budget > available {
        return finding("memory", Verdict::Bad, format!("{text}: the budget is more than there is"));
    }
    if let Err(error) = store_bytes(budget) {
        return finding("memory", Verdict::Bad, format!("{text}: {error}"));
    }
    let verdict = if budget < MEMORY_LOW_BYTES { Verdict::Warning } else { Verdict::Good };
    finding("memory", verdict, text)
}

/// The store's region is a memfd: it must be possible to make one and to give it memory.
fn shared_memory() -> Finding {
    let made = memfd_create("exobus-doctor", MemfdFlags::CLOEXEC).and_then(|file| ftruncate(&file, 1 << 20));
    match made {
        Ok(()) => finding("shared memory", Verdict::Good, "memfd works".into()),
        Err(error) => finding("shared memory", Verdict::Bad, format!("no memfd: {error}; the store needs one")),
    }
}

fn cpus() -> Finding {
    let (cpus, executors) = (machine::cpus(), machine::executors());
    finding("cpus", Verdict::Good, format!("{cpus}, so {executors} executors unless node.executors says otherwise"))
}

fn open_files() -> Finding {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit < OPEN_FILES_LOW {
        let text = format!("limit {limit}; raise it to {OPEN_FILES_LOW} or more (`ulimit -n {OPEN_FILES_LOW}`)");
        return finding("open files", Verdict::Warning, text);
    }
    finding("open files", Verdict::Good, format!("limit {limit}"))
}

fn spill_folder(folder: &Path) -> Finding {
    let what = "spill folder";
    let shown = folder.display();
    match probe(folder) {
        Err(error) => finding(what, Verdict::Bad, format!("{shown}: {error}")),
        Ok(Probe { in_memory: true, .. }) => {
            finding(what, Verdict::Bad, format!("{shown} is memory itself; spilling there cannot free any"))
        }
        Ok(Probe { direct: false, .. }) => {
            finding(what, Verdict::Warning, format!("{shown} has no direct I/O; spilling will be slower"))
        }
        Ok(Probe { free_bytes, .. }) if free_bytes < SPILL_SPACE_LOW_BYTES => {
            finding(what, Verdict::Warning, format!("{shown} has only {} free", bytes(free_bytes)))
        }
        Ok(Probe { free_bytes, .. }) => {
            finding(what, Verdict::Good, format!("{shown}: {} free, direct I/O", bytes(free_bytes)))
        }
    }
}

/// Whether the server answers, how fast, whether the cluster takes our tokens, and which nodes are there.
fn cluster_findings(config: &NodeConfig) -> Result<Vec<Finding>, Failure> {
    const PINGS: u32 = 20;
    let runtime = cluster::runtime()?;
    runtime.block_on(async {
        let options = match cluster::connect_client(config, "doctor").await {
            Ok(connected) => connected,
            Err(failure) => return Ok(vec![finding("nats", Verdict::Bad, failure.to_string())]),
        };
        let (bus, clock) = (options.bus.clone(), Arc::clone(&options.clock));
        for _ in 0..PINGS {
            bus.flush().await.or_exit(Exit::Unreachable)?;
        }
        let micros = clock.now().as_micros() / u128::from(PINGS);
        let limit = size(bus.payload_max_bytes() as u64);
        let text = format!("answers in {micros} us, messages up to {limit}");
        let mut findings = vec![finding("nats", Verdict::Good, text)];

        findings.push(streams(bus.stream_usage().await));

        findings.extend(nodes_token(config, &bus, &options.subjects).await?);
        match look_at_nodes(options).await {
            Err(error) => {
                findings.push(finding("cluster", Verdict::Bad, Failure::new(Exit::Unreachable, error).to_string()))
            }
            Ok((denied, nodes)) => {
                findings.extend(denied.map(|denied| finding("token", Verdict::Bad, denied)));
                findings.extend(nodes.iter().map(node_finding));
            }
        }
        Ok(findings)
    })
}

/// Why the cluster takes no jobs of ours, if it does not, and its nodes.
async fn look_at_nodes(options: ClientOptions) -> Result<(Option<String>, Vec<Value>), ClientError> {
    let client = Client::connect(options).await?;
    // No job has this id: what is found out is whether who asks may ask that.
    let asked = client.cancel(JobId::from_u128(0)).await;
    let denied = match asked {
        Err(ClientError::Refused(refused)) if refused.code == "unauthorized" => Some(refused.message),
        _ => None,
    };
    let told: Value = client.ask("nodes", &json!({})).await?;
    Ok((denied, told["nodes"].as_array().cloned().unwrap_or_default()))
}

fn node_finding(node: &Value) -> Finding {
    let name = node["node"].as_str().unwrap_or("?");
    let memory = size(node["memory_bytes"].as_u64().unwrap_or(0));
    let resources: Resources = serde_json::from_value(node["resources"].clone()).unwrap_or_default();
    let text = format!("{name}: {resources}, {memory} for objects, {} leases", node["leases"]);
    match node["up"].as_bool() {
        Some(true) => finding("node", Verdict::Good, text),
        _ => finding("node", Verdict::Warning, format!("{text}, but it is down")),
    }
}

/// Whether the cluster would take a node with this configuration, where it is one of a node. Nobody there to tell is found elsewhere.
async fn nodes_token(config: &NodeConfig, bus: &Bus, subjects: &Subjects) -> Result<Option<Finding>, Failure> {
    if config.security.token_file.is_none() {
        return Ok(None);
    }
    let credentials = match config.node_credentials() {
        Ok(credentials) => credentials,
        Err(error) => return Ok(Some(finding("token", Verdict::Bad, error.to_string()))),
    };
    let bus = bus.with_credentials(credentials);
    Ok(match takes_as_node(&bus, subjects).await {
        Ok(true) => Some(finding("token", Verdict::Good, "the cluster takes this nodes' token".to_owned())),
        Ok(false) => None,
        Err(NodeError::Denied(denied)) => Some(finding("token", Verdict::Bad, denied.to_string())),
        Err(error) => Some(finding("token", Verdict::Warning, error.to_string())),
    })
}

/// Whether the server keeps durable streams. How it syncs them it tells nobody but its own administrators.
fn streams(usage: Result<Usage, BusError>) -> Finding {
    match usage {
        Ok(Usage { streams, bytes: used, bytes_max }) => {
            let most = bytes_max.map_or("the disk".to_owned(), size);
            let text = format!(
                "{streams} streams, {} of {most}; they survive a power cut only if the server's file says `sync_interval: always`",
                bytes(used)
            );
            finding("streams", Verdict::Good, text)
        }
        Err(BusError::Unsupported(_) | BusError::NoResponders { .. }) => {
            let text = "none: the server has no `jetstream { store_dir, sync_interval: always }`, or not for this user";
            finding("streams", Verdict::Warning, text.into())
        }
        Err(error) => finding("streams", Verdict::Warning, error.to_string()),
    }
}

struct Probe {
    in_memory: bool,
    direct: bool,
    free_bytes: u64,
}

/// Writes a file as the store would, in the folder or in the nearest one above it that exists, and removes it.
fn probe(folder: &Path) -> io::Result<Probe> {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    let existing = folder
        .ancestors()
        .find(|path| path.is_dir())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such folder, nor one above it"))?;
    let file = tempfile::NamedTempFile::new_in(existing)?;
    let direct =
        OpenOptions::new().write(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(file.path()).is_ok();
    let kind = statfs(existing)?.f_type as u64;
    let space = statvfs(existing)?;
    fs::remove_file(file.path())?;
    Ok(Probe { in_memory: [TMPFS, RAMFS].contains(&kind), direct, free_bytes: space.f_bavail * space.f_frsize })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_made_is_bad() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // Below a file there is no folder, so the probe goes to the folder of the file.
        assert_ne!(spill_folder(&file.path().join("below")).text, "");
        let finding = spill_folder(Path::new("/proc/self/spill"));
        assert_eq!(finding.verdict, Verdict::Bad, "{finding}");
    }

    #[test]
    fn a_server_without_streams_is_worth_a_warning() {
        let on = streams(Ok(Usage { streams: 2, bytes: 1000, bytes_max: Some(1_000_000_000) }));
        assert!(on.verdict == Verdict::Good && on.text.contains("sync_interval"), "{on}");
        let off = streams(Err(BusError::NoResponders { subject: "$JS.API.INFO".into() }));
        assert!(off.verdict == Verdict::Warning && off.text.contains("jetstream"), "{off}");
    }

    #[test]
    fn memory_file_systems_are_no_place_to_spill() {
        if fs::metadata("/dev/shm").is_ok() {
            let finding = spill_folder(Path::new("/dev/shm/exobus"));
            assert!(finding.text.contains("memory itself"), "{finding}");
        }
    }
}
