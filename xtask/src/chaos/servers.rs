//! The nats-servers of a cluster: one, or three that replicate their streams.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::cluster::{Setup, pid, wait};
use super::ground::Ground;

/// The host of the server where there are hosts.
pub(super) const HOST: &str = "hub";

/// See the module; servers that run are killed when it is dropped.
pub(super) struct Servers<'a> {
    ground: &'a Ground,
    setup: Setup<'a>,
    folder: PathBuf,
    /// Where each keeps its streams, by number.
    streams: PathBuf,
    servers: Vec<Server>,
}

struct Server {
    client: SocketAddr,
    /// Answers questions about the server, over HTTP.
    monitor: SocketAddr,
    config: PathBuf,
    child: RefCell<Option<Child>>,
}

impl<'a> Servers<'a> {
    /// Writes what they are told, and starts none.
    pub(super) fn new(ground: &'a Ground, folder: &Path, setup: &Setup<'a>) -> Result<Self> {
        let (count, host) = match setup.lan {
            Some(lan) => (1, lan.address(HOST)?),
            None => (setup.servers.max(1), Ipv4Addr::LOCALHOST),
        };
        let mut ports = ports(count * 3)?.into_iter();
        let mut next = || ports.next().map(|port| SocketAddr::from((host, port))).context("a port");
        let mut servers = Vec::new();
        let mut routes = Vec::new();
        for number in 0..count {
            let config = folder.join(format!("nats-{number}.conf"));
            servers.push(Server { client: next()?, monitor: next()?, config, child: RefCell::default() });
            routes.push(next()?);
        }
        let streams = setup.streams.clone().unwrap_or_else(|| folder.join("nats"));
        for (number, Server { client, monitor, config, .. }) in servers.iter().enumerate() {
            let store = streams.join(number.to_string());
            let mut text = format!(
                "server_name: s{number}\nlisten: \"{client}\"\nhttp: \"{monitor}\"\nping_interval: \"2s\"\nping_max: 2\n\
                 write_deadline: \"2s\"\njetstream {{ store_dir: {store:?}, sync_interval: always, max_file_store: 10GB }}\n"
            );
            if count > 1 {
                let all: Vec<String> = routes.iter().map(|route| format!("\"nats://{route}\"")).collect();
                let (own, all) = (routes[number], all.join(", "));
                writeln!(text, "cluster {{ name: chaos, listen: \"{own}\", routes: [{all}] }}")?;
            }
            fs::write(config, text)?;
        }
        Ok(Self { ground, setup: setup.clone(), folder: folder.to_owned(), streams, servers })
    }

    /// For clients.
    pub(super) fn url(&self) -> String {
        let urls: Vec<_> = self.servers.iter().map(|server| format!("nats://{}", server.client)).collect();
        urls.join(",")
    }

    /// Where the first one listens for clients.
    pub(super) fn port(&self) -> u16 {
        self.servers.first().map_or(0, |server| server.client.port())
    }

    pub(super) fn count(&self) -> usize {
        self.servers.len()
    }

    /// Starts them all.
    pub(super) fn start(&self) -> Result<()> {
        (0..self.count()).try_for_each(|number| self.launch(number))?;
        (0..self.count()).try_for_each(|number| self.is_ready(number))
    }

    /// Starts one that does not run.
    pub(super) fn start_one(&self, number: usize) -> Result<()> {
        self.launch(number)?;
        self.is_ready(number)
    }

    /// Removes everything that one keeps which does not run.
    pub(super) fn empty(&self, number: usize) -> Result<()> {
        let store = self.streams.join(number.to_string());
        fs::remove_dir_all(&store).with_context(|| format!("remove {}", store.display()))
    }

    fn launch(&self, number: usize) -> Result<()> {
        let server = self.server(number)?;
        let mut command = self.setup.program(HOST, &self.ground.nats_server);
        command.arg("-c").arg(&server.config);
        let log = File::options().create(true).append(true).open(self.folder.join(format!("nats-{number}.log")))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        server.child.replace(Some(child));
        Ok(())
    }

    /// Waits until it takes clients and its streams are up to date.
    fn is_ready(&self, number: usize) -> Result<()> {
        let healthy = || Ok(self.ask(number, "healthz").is_ok_and(|answer| answer["status"] == "ok"));
        wait(healthy).with_context(|| format!("nats-server {number}: {}", self.log_of(number)))
    }

    pub(super) fn log_of(&self, number: usize) -> String {
        fs::read_to_string(self.folder.join(format!("nats-{number}.log"))).unwrap_or_default()
    }

    fn server(&self, number: usize) -> Result<&Server> {
        self.servers.get(number).context("a server of this cluster")
    }

    /// What a server says about itself.
    #[allow(clippy::disallowed_methods, reason = "a real server is asked")]
    pub(super) fn ask(&self, number: usize, what: &str) -> Result<Value> {
        let monitor = self.server(number)?.monitor;
        let answer = self.setup.within(HOST, || {
            let mut stream = TcpStream::connect_timeout(&monitor, Duration::from_secs(2))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            write!(stream, "GET /{what} HTTP/1.0\r\nHost: {monitor}\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        serde_json::from_str(body).with_context(|| format!("{what}: {answer}"))
    }

    /// Signals one; if it is killed it is waited for.
    pub(super) fn signal(&self, number: usize, signal: Signal) -> Result<()> {
        let mut child = self.server(number)?.child.borrow_mut();
        let running = child.as_mut().context("it runs")?;
        kill_process(pid(running)?, signal)?;
        if signal == Signal::KILL {
            running.wait()?;
            *child = None;
        }
        Ok(())
    }
}

impl Drop for Servers<'_> {
    fn drop(&mut self) {
        for mut child in self.servers.iter_mut().filter_map(|server| server.child.get_mut().take()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Ports of this machine that nobody else has: all are taken before any is given back.
#[allow(clippy::disallowed_methods, reason = "ports of this machine, for servers of its own")]
fn ports(count: usize) -> Result<Vec<u16>> {
    let taken: std::io::Result<Vec<_>> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    taken?.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
