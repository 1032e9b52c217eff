//! `exobus dev`: a whole cluster on this machine, for as long as the command runs.

mod children;
mod nats_server;

use std::{
    ffi::OsStr,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

pub use self::children::OnLoss;
use self::children::{Children, Happening};
use crate::{
    cli::DevArgs,
    commands::{config::make_token, node::READY},
    config::MemoryBudget,
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    machine,
    temporary::Temporary,
};

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

fn start_and_watch(args: &DevArgs, server: &Path, folder: &Path, children: &mut Children) -> Result<(), Failure> {
    let Some(port) = start_nats(args, server, folder, children)? else { return Ok(()) };
    let url = format!("nats://127.0.0.1:{port}");

    let names: Vec<String> = (1..=args.nodes).map(|number| format!("n{number}")).collect();
    let program = std::env::current_exe().or_exit(Exit::InputOutput)?;
    // The first one lends the slots of all, as long as it lives: it is the first candidate that there is.
    for together in [&names[..1], &names[1..]] {
        for name in together {
            let config = write_node_config(args, folder, name, &url)?;
            let node: [&OsStr; 3] = ["node".as_ref(), "--config".as_ref(), config.as_os_str()];
            // One that cannot even start would not the next time.
            children.start(name, &program, &node, OnLoss::End)?;
        }
        if !are_ready(together, children)? {
            return Ok(());
        }
    }

    children.on_loss_of(&names, args.on_loss);
    let client = write_client_config(folder, &url)?;
    let client = client.display();
    say(&format!(
        "{} node{} ready at {url}\n\
         \n  sort      exobus sort --config {client} --generate 1GB\
         \n  bench     exobus bench tasks --config {client}\
         \n  files     {}\
         \n\nCtrl-C stops everything.",
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
fn start_nats(args: &DevArgs, server: &Path, folder: &Path, children: &mut Children) -> Result<Option<u16>, Failure> {
    let config = folder.join("nats.conf");
    let store = format!("{:?}", folder.join("nats"));
    fs::write(&config, NATS_CONFIG.replace(NATS_STORE, &store)).or_exit(Exit::InputOutput)?;
    let port = match args.port {
        // What the server calls "any free port".
        Some(0) => "-1".to_owned(),
        Some(port) => port.to_string(),
        None if nats_server::port_is_free(nats_server::DEFAULT_PORT) => nats_server::DEFAULT_PORT.to_string(),
        None => {
            say(&format!("port {} is taken, using another one", nats_server::DEFAULT_PORT));
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

fn write_node_config(args: &DevArgs, folder: &Path, name: &str, url: &str) -> Result<PathBuf, Failure> {
    let share = machine::available_memory_bytes() / u64::from(args.nodes);
    let memory = args.memory.unwrap_or(MemoryBudget::Percent(60).bytes(share));
    let executors = args.executors.unwrap_or((machine::executors() / args.nodes).max(1));
    let (token, submitters) = (token(folder, "nodes.token")?, token(folder, SUBMITTERS_TOKEN)?);
    // Debug of a text is a TOML string, as long as there are no control characters in a path.
    let text = format!(
        "# Made by `exobus dev`.\n\
         [cluster]\nnats_url = {url:?}\n\n\
         [node]\nname = {name:?}\nmemory = \"{memory}\"\nexecutors = {executors}\nscheduler = true\nspill_dirs = [{:?}]\n\n\
         [security]\ntoken_file = {token:?}\nsubmitters_token_file = {submitters:?}\n\
         # Who can read the submitters' token can read what these processes can.\ninsecure_any_path = true\n",
        folder.join("spill"),
    );
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text).or_exit(Exit::InputOutput)?;
    Ok(path)
}

/// What a client needs.
fn write_client_config(folder: &Path, url: &str) -> Result<PathBuf, Failure> {
    let text = format!(
        "# Made by `exobus dev`.\n[cluster]\nnats_url = {url:?}\n\n[security]\nsubmitters_token_file = {:?}\n",
        token(folder, SUBMITTERS_TOKEN)?,
    );
    let path = folder.join("client.toml");
    fs::write(&path, text).or_exit(Exit::InputOutput)?;
    Ok(path)
}

const SUBMITTERS_TOKEN: &str = "submitters.token";

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
    /// Named by the user, and kept.
    Given(PathBuf),
}

impl Folder {
    fn make(given: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = given else {
            return Temporary::make(&machine::big_temporary_folder(), "exobus-dev-")
                .map(Self::Own)
                .or_exit(Exit::InputOutput);
        };
        fs::create_dir_all(path).or_exit(Exit::InputOutput)?;
        Ok(Self::Given(path.canonicalize().or_exit(Exit::InputOutput)?))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Own(folder) => folder.path(),
            Self::Given(path) => path,
        }
    }
}

fn say(text: &str) {
    // A closed stdout is no reason to stop the cluster.
    let _ = writeln!(io::stdout().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_server_configuration_names_the_folder_that_is_replaced() {
        assert_eq!(NATS_CONFIG.matches(NATS_STORE).count(), 1);
    }
}
