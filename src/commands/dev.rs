//! `exobus dev`: a whole cluster on this machine, for as long as the command runs.

mod children;
mod nats_server;
mod secure;

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

pub use self::children::OnLoss;
use self::children::{Children, Happening};
use crate::{
    cli::DevArgs,
    commands::{config::make_token, node::READY},
    config::{MemoryBudget, Setting},
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    machine,
    stdout::print_line,
    temporary::Temporary,
};

use self::secure::Secured;

/// The configuration of the server, the one that is shipped for one machine.
const NATS_CONFIG: &str = include_str!("../../configs/nats/local.conf");

/// The folder that it names for what the server keeps; ours is another one.
const NATS_STORE: &str = r#""/var/tmp/exobus-nats""#;

/// How long a nats-server may take to listen.
const NATS_READY: Duration = Duration::from_secs(15);
/// How long all nodes may take to be in the cluster.
const NODES_READY: Duration = Duration::from_secs(60);
/// How long nodes may take to stop in order.
const STOP: Duration = Duration::from_secs(12);

/// Runs until Ctrl-C, or until a process ends that is not started again.
pub fn run(args: &DevArgs) -> Result<Exit, Failure> {
    args.set.iter().try_for_each(of_each_node)?;
    let interrupt = Interrupt::listen().or_exit(Exit::InputOutput)?;
    let server = nats_server::find(args.nats_server.as_deref()).or_exit(Exit::Usage)?;
    let folder =
        Folder::make(args.dir.as_deref()).map_err(|failure| failure.context("make the folder of the cluster"))?;

    let mut children = Children::new(interrupt);
    let outcome = start_and_watch(args, &server, folder.path(), &mut children);
    let stopped = children.stop_all(STOP);
    drop(folder);
    outcome?;
    if let Some(late) = stopped {
        return Err(Failure::text(
            Exit::JobFailed,
            format!("{late} did not stop in order within {} s", STOP.as_secs()),
        ));
    }
    Ok(Exit::Success)
}

/// Whether a key may be said of all nodes: what is not of [node], and their names, this command says itself.
fn of_each_node(setting: &Setting) -> Result<(), Failure> {
    setting.check().or_exit(Exit::Usage)?;
    match setting.path.starts_with("node.") && setting.path != "node.name" {
        true => Ok(()),
        false => {
            let text = "exobus dev says it itself; keys of [node] but its name can be said of all nodes";
            Err(Failure::text(Exit::Usage, format!("{} {}: {text}", setting.option, setting.path)))
        }
    }
}

fn start_and_watch(args: &DevArgs, server: &Path, folder: &Path, children: &mut Children) -> Result<(), Failure> {
    let names: Vec<String> = (1..=args.nodes).map(|number| format!("n{number}")).collect();
    let secured = match args.secure {
        true => Some(Secured::prepare(folder, &names, &args.roots).or_exit(Exit::InputOutput)?),
        false => None,
    };
    let Some(port) = start_nats(args, server, folder, secured.as_ref(), children)? else { return Ok(()) };
    let url = match &secured {
        Some(_) => format!("tls://localhost:{port}"),
        None => format!("nats://127.0.0.1:{port}"),
    };

    let program = std::env::current_exe().or_exit(Exit::InputOutput)?;
    // The first one lends the slots of all, as long as it lives: it is the first candidate that there is.
    for together in [&names[..1], &names[1..]] {
        for name in together {
            let config = write_node_config(args, folder, name, &url, secured.as_ref())?;
            let set: Vec<String> = args.set.iter().map(|setting| format!("--set={setting}")).collect();
            let mut node: Vec<&OsStr> = vec!["node".as_ref(), "--config".as_ref(), config.as_os_str()];
            node.extend(set.iter().map(|set| OsStr::new(set.as_str())));
            // One that cannot even start would not the next time.
            children.start(name, &program, &node, OnLoss::End)?;
        }
        if !are_ready(together, children)? {
            return Ok(());
        }
    }

    children.on_loss_of(&names, args.on_loss);
    let client = write_client_config(folder, &url, secured.as_ref())?;
    let client = client.display();
    let sort = match &secured {
        None => format!("exobus sort --config {client} --generate 1GB"),
        Some(secured) => {
            let data = secured.data().display();
            format!(
                "exobus generate --records 10M {data}/in\n            exobus sort --config {client} {data}/in --output {data}/out"
            )
        }
    };
    let (job, whoever) = match &secured {
        None => (
            format!("nats --server {url} req exo.v1.local.api.default.submit \"$(cat job.toml)\""),
            "Any account of this machine may hand in jobs, which read and write what these processes can.\n",
        ),
        Some(_) => (format!("exobus submit job.toml --config {client}"), ""),
    };
    print_line(format!(
        "{} node{} ready at {url}\n\
         \n  sort      {sort}\
         \n  bench     exobus bench tasks --config {client}\
         \n  job       {job}\
         \n  files     {}\
         \n\n{whoever}Ctrl-C stops everything.",
        names.len(),
        if names.len() == 1 { " is" } else { "s are" },
        folder.display(),
    ));
    children.watch_until(None, &mut |_, _| false)?;
    Ok(())
}

/// Waits until these nodes are in the cluster; false when interrupted.
fn are_ready(names: &[String], children: &mut Children) -> Result<bool, Failure> {
    let mut missing: Vec<&str> = names.iter().map(String::as_str).collect();
    if missing.is_empty() {
        return Ok(true);
    }
    let mut all_ready = |who: &str, line: &str| {
        if line.starts_with(READY) {
            missing.retain(|name| *name != who);
        }
        missing.is_empty()
    };
    match children.watch_until(Some(NODES_READY), &mut all_ready)? {
        Happening::Found => Ok(true),
        Happening::Interrupted => Ok(false),
        Happening::TooLate => Err(Failure::text(
            Exit::Unreachable,
            format!("not in the cluster after {} s: {}", NODES_READY.as_secs(), missing.join(", ")),
        )),
    }
}

/// Starts the server; its port, or nothing when interrupted.
fn start_nats(
    args: &DevArgs,
    server: &Path,
    folder: &Path,
    secured: Option<&Secured>,
    children: &mut Children,
) -> Result<Option<u16>, Failure> {
    let config = folder.join("nats.conf");
    let text = match secured {
        None => NATS_CONFIG.replace(NATS_STORE, &format!("{:?}", folder.join("nats"))),
        Some(secured) => secured.server_config().or_exit(Exit::InputOutput)?,
    };
    fs::write(&config, text).or_exit(Exit::InputOutput)?;
    let port = match args.port {
        // What the server calls "any free port".
        Some(0) => "-1".to_owned(),
        Some(port) => port.to_string(),
        None if nats_server::port_is_free(nats_server::DEFAULT_PORT) => nats_server::DEFAULT_PORT.to_string(),
        None => {
            print_line(format!("port {} is taken, using another one", nats_server::DEFAULT_PORT));
            "-1".to_owned()
        }
    };
    let serve: [&OsStr; 4] = ["-c".as_ref(), config.as_os_str(), "-p".as_ref(), port.as_ref()];
    children.start("nats", server, &serve, OnLoss::End)?;
    let mut listening = None;
    let happening = children.watch_until(Some(NATS_READY), &mut |_, line| {
        if let Some((_, address)) = line.split_once("Listening for client connections on ") {
            listening = address.rsplit(':').next().and_then(|port| port.trim().parse().ok());
        }
        line.contains("Server is ready") && listening.is_some()
    })?;
    match happening {
        Happening::Found => Ok(listening),
        Happening::Interrupted => Ok(None),
        Happening::TooLate => {
            Err(Failure::text(Exit::Unreachable, format!("nats-server was not ready after {} s", NATS_READY.as_secs())))
        }
    }
}

fn write_node_config(
    args: &DevArgs,
    folder: &Path,
    name: &str,
    url: &str,
    secured: Option<&Secured>,
) -> Result<PathBuf, Failure> {
    let share = machine::available_memory_bytes() / u64::from(args.nodes);
    let memory = args.memory.unwrap_or(MemoryBudget::Percent(60).bytes(share));
    let executors = args.executors.unwrap_or((machine::executors() / args.nodes).max(1));
    let token = token(folder, "nodes.token")?;
    let (cluster, security) = match secured {
        Some(secured) => {
            let submitters = self::token(folder, SUBMITTERS_TOKEN)?;
            let security = secured.security_lines(name);
            (secured.cluster_lines("node", name), format!("submitters_token_file = {submitters:?}\n{security}"))
        }
        None => (String::new(), ANYBODY.to_owned()),
    };
    // Debug of a text is a TOML string, as long as there are no control characters in a path.
    let text = format!(
        "# Made by `exobus dev`.\n\
         [cluster]\nnats_url = {url:?}\n{cluster}\n\
         [node]\nname = {name:?}\nmemory = \"{memory}\"\nexecutors = {executors}\nscheduler = true\nspill_dirs = [{:?}]\n\n\
         [security]\ntoken_file = {token:?}\n{security}",
        folder.join("spill"),
    );
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text).or_exit(Exit::InputOutput)?;
    Ok(path)
}

const SUBMITTERS_TOKEN: &str = "submitters.token";

/// What a cluster says of its security that is not `--secure`.
const ANYBODY: &str = "\
# Any account of this machine may hand in jobs, and its jobs read and write what these processes can.
submitters = \"none\"
insecure_any_path = true
";

/// What a client needs.
fn write_client_config(folder: &Path, url: &str, secured: Option<&Secured>) -> Result<PathBuf, Failure> {
    let mut text = format!("# Made by `exobus dev`.\n[cluster]\nnats_url = {url:?}\n");
    if let Some(secured) = secured {
        let (cluster, security) = (secured.cluster_lines("submitter", "submitter"), secured.client_security_lines());
        let submitters = token(folder, SUBMITTERS_TOKEN)?;
        text.push_str(&format!("{cluster}\n[security]\nsubmitters_token_file = {submitters:?}\n{security}"));
        secured.write_contexts(url).or_exit(Exit::InputOutput)?;
    }
    let path = folder.join("client.toml");
    fs::write(&path, text).or_exit(Exit::InputOutput)?;
    Ok(path)
}

/// A token in the folder; made when it is not there.
fn token(folder: &Path, name: &str) -> Result<PathBuf, Failure> {
    let path = folder.join(name);
    if !path.exists() {
        make_token(&path).or_exit(Exit::InputOutput)?;
    }
    Ok(path)
}

/// Where configurations and spill files of the cluster are.
enum Folder {
    /// Made by us, and removed when dropped.
    Own(Temporary),
    /// Named by the user, and kept. The lock is held as long as the cluster runs: two in one folder would take each other's streams and spill files.
    Given { path: PathBuf, _lock: fs::File },
}

/// The file of that lock.
const LOCK: &str = "lock";

impl Folder {
    fn make(given: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = given else {
            return Temporary::make(&machine::big_temporary_folder(), "exobus-dev-")
                .map(Self::Own)
                .or_exit(Exit::InputOutput);
        };
        fs::create_dir_all(path).or_exit(Exit::InputOutput)?;
        let path = path.canonicalize().or_exit(Exit::InputOutput)?;
        let lock = fs::File::create(path.join(LOCK)).or_exit(Exit::InputOutput)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self::Given { path, _lock: lock }),
            Err(Errno::WOULDBLOCK) => {
                let text = format!("a cluster of another exobus dev runs in {}: say another --dir", path.display());
                Err(Failure::text(Exit::Usage, text))
            }
            Err(error) => Err(Failure::new(Exit::InputOutput, std::io::Error::from(error))),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Own(folder) => folder.path(),
            Self::Given { path, .. } => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_server_configuration_names_the_folder_that_is_replaced() {
        assert_eq!(NATS_CONFIG.matches(NATS_STORE).count(), 1);
    }
}
