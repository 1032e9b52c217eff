//! A cluster of real processes for rows about nodes and their bus: a nats-server, three nodes, and jobs whose events tell
//! when to do harm.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Outcome;
use super::ground::{Cost, Ground, Run};
use super::lan::Lan;
use super::servers::Servers;
use super::workload::{PARTITIONS, Workload};

/// What waits for so long has failed.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Within so much time a node that runs has given up what it holds of jobs that are over. One that was away when they ended asks the
/// Scheduler every 2 s; a Scheduler that knows nothing of a job waits for 10 s, and looks into the log then.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(20);

/// Who runs jobs: a host of a [`Lan`].
pub(super) const CLIENT: &str = "client";
pub(super) const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// Where nodes that have a host of their own serve objects.
pub(super) const DATA_PORT: u16 = 7400;

/// In what a cluster differs from one on the loopback with one nats-server.
#[derive(Clone, Default)]
pub(super) struct Setup<'a> {
    /// Has a host for each node, the server, and who runs jobs.
    pub(super) lan: Option<&'a Lan>,
    /// How many nats-servers; 0 is 1.
    pub(super) servers: usize,
    /// How many nodes; 0 is three.
    pub(super) nodes: usize,
    /// The memory budget of a node; `None`: 96 MiB.
    pub(super) memory: Option<&'a str>,
    /// Where the servers keep their streams.
    pub(super) streams: Option<PathBuf>,
    /// What nodes are started by: a program and its arguments, for each in the order of [`NODES`].
    pub(super) wrappers: Vec<Vec<String>>,
    /// What nodes find in their environment; `{name}` stands for the node's.
    pub(super) environment: Vec<(&'static str, String)>,
}

impl Setup<'_> {
    /// The names of its nodes.
    fn names(&self) -> Vec<String> {
        let count = if self.nodes == 0 { NODES.len() } else { self.nodes };
        (1..=count).map(|number| format!("n{number}")).collect()
    }

    /// A program on a host.
    pub(super) fn program(&self, host: &str, program: &Path) -> Command {
        let Some(lan) = self.lan else { return Command::new(program) };
        let [first, rest @ ..] = lan.on(host);
        let mut command = Command::new(first);
        command.args(rest).arg(program);
        command
    }

    /// Calls it on a host.
    pub(super) fn within<R: Send>(&self, host: &str, call: impl FnOnce() -> Result<R> + Send) -> Result<R> {
        match self.lan {
            Some(lan) => lan.within(host, call),
            None => call(),
        }
    }
}

/// Processes that are killed when it is dropped.
pub(super) struct Cluster<'a> {
    ground: &'a Ground,
    folder: PathBuf,
    setup: Setup<'a>,
    pub(super) nats: Servers<'a>,
    nodes: RefCell<Vec<(String, Option<Child>)>>,
}

/// What a job has said so far.
pub(super) struct Events(Vec<Value>);

/// Whether an event is of a stage, which is named without its job.
fn is_of(event: &Value, stage: &str) -> bool {
    event["stage"].as_str().is_some_and(|name| name.rsplit('.').next() == Some(stage))
}

impl Events {
    fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a Value, &'a Value)> {
        self.0.iter().filter_map(move |event| Some((event, event["kind"].get(kind)?)))
    }

    /// How many tasks of a stage are done. A stage is named without its job: `map` is `sort.map`, or `group.map`.
    pub(super) fn done(&self, stage: &str) -> usize {
        self.tasks_done(stage).len()
    }

    /// Tasks that were planned for a stage in the last run.
    fn planned(&self, stage: &str) -> u64 {
        let planned = self.of_last_run().iter().filter_map(|event| event["kind"].get("StagePlanned"));
        planned.filter(|it| is_of(it, stage)).filter_map(|it| it["tasks"].as_u64()).sum()
    }

    /// Whether so many hundredths of the tasks of a stage are done, some of them on `node`.
    pub(super) fn are_done(&self, percent: u64, stage: &str, node: &str) -> bool {
        let (done, planned) = (self.done(stage) as u64, self.planned(stage));
        let there = self.of("TaskFinished").any(|(event, it)| event["node"] == node && is_of(it, stage));
        planned > 0 && there && done * 100 >= planned * percent
    }

    /// Tasks that were done and ran again.
    pub(super) fn replayed(&self) -> usize {
        self.of("TaskReplayed").count()
    }

    /// Tasks of a stage that are done in the last run, by name: they have ended, or a run before has kept what they made. One that is to be done again is not done until it has ended once
    /// more.
    fn tasks_done(&self, stage: &str) -> BTreeSet<&str> {
        let mut done = BTreeSet::new();
        for kind in self.of_last_run().iter().map(|event| &event["kind"]) {
            let (ended, replayed) = (kind.get("TaskFinished").or(kind.get("TaskResumed")), kind.get("TaskReplayed"));
            let Some(it) = ended.or(replayed).filter(|it| is_of(it, stage)) else { continue };
            let task = it["task"].as_str().unwrap_or_default();
            if ended.is_some() {
                done.insert(task);
            } else {
                done.remove(task);
            }
        }
        done
    }

    /// Tasks of a stage that have ended, in any run, by name.
    pub(super) fn tasks_finished(&self, stage: &str) -> BTreeSet<&str> {
        let finished = self.of("TaskFinished").filter(|(_, it)| is_of(it, stage));
        finished.filter_map(|(_, it)| it["task"].as_str()).collect()
    }

    /// Events since the job was begun last.
    fn of_last_run(&self) -> &[Value] {
        let begun = self.0.iter().rposition(|event| event["kind"].get("JobStarted").is_some());
        &self.0[begun.unwrap_or(0)..]
    }

    /// Tasks that were done twice.
    pub(super) fn finished_twice(&self) -> Vec<String> {
        let mut seen = std::collections::HashSet::new();
        let again = self.of("TaskFinished").filter(|(_, it)| !seen.insert(it["task"].as_str().unwrap_or_default()));
        again.map(|(_, it)| format!("{} of {}", it["task"], it["stage"])).collect()
    }

    /// Seconds on executors of tasks that had been done before.
    fn seconds_redone(&self) -> f64 {
        let mut seen = std::collections::HashSet::new();
        let again = self.of("TaskFinished").filter(|(_, it)| !seen.insert(it["task"].as_str().unwrap_or_default()));
        again.filter_map(|(_, it)| it["micros"].as_u64()).sum::<u64>() as f64 / 1e6
    }

    /// Tasks that have ended, of any stage.
    fn ended(&self) -> usize {
        self.of("TaskFinished").count()
    }

    /// Whether planned tasks are not done yet.
    fn work_is_left(&self) -> bool {
        let names = self.of("StagePlanned").filter_map(|(_, it)| it["stage"].as_str()?.rsplit('.').next());
        let mut stages: Vec<_> = names.collect();
        stages.dedup();
        stages.iter().any(|stage| (self.done(stage) as u64) < self.planned(stage))
    }

    /// Bytes that the other nodes have received from one.
    pub(super) fn received_from(&self, node: &str) -> u64 {
        let mut most = std::collections::HashMap::new();
        for (event, it) in self.of("Received").filter(|(_, it)| it["from"] == node) {
            let so_far: &mut u64 = most.entry(event["node"].as_str()).or_default();
            *so_far = it["bytes"].as_u64().unwrap_or(0).max(*so_far);
        }
        most.values().sum()
    }

    /// How many attempts failed, and how the first one did.
    pub(super) fn failures(&self) -> String {
        let errors: Vec<_> = self.of("TaskFailed").filter_map(|(_, it)| it["error"].as_str()).collect();
        errors.first().map_or("no attempt failed".into(), |first| format!("{} attempts failed ({first})", errors.len()))
    }

    /// How often the job was begun.
    pub(super) fn runs(&self) -> usize {
        self.of("JobStarted").count()
    }
}

impl<'a> Cluster<'a> {
    /// Three nodes with an executor each, all of them candidates for the Scheduler; they are ready.
    pub(super) fn start(ground: &'a Ground) -> Result<Self> {
        Self::start_as(ground, Setup::default())
    }

    /// The same, with variables in the environment of the nodes; `{name}` stands for the node's.
    pub(super) fn start_with(ground: &'a Ground, environment: Vec<(&'static str, String)>) -> Result<Self> {
        Self::start_as(ground, Setup { environment, ..Setup::default() })
    }

    /// The same in other circumstances.
    pub(super) fn start_as(ground: &'a Ground, setup: Setup<'a>) -> Result<Self> {
        let folder = ground.path("cluster");
        fs::create_dir(&folder)?;
        let nats = Servers::new(ground, &folder, &setup)?;
        let cluster = Self { ground, folder, setup, nats, nodes: RefCell::default() };
        cluster.nats.start()?;
        let (token, submitters) = (cluster.folder.join("nodes.token"), ground.submitters_token());
        for file in [&token, &submitters] {
            let made = super::ground::finish(ground.command(&["config", "token", &file.display().to_string()]))?;
            ensure!(made.code == Some(0), "no token: {}", made.stderr);
        }
        let mut names = cluster.setup.names();
        for name in &names {
            fs::write(cluster.config_of(name), cluster.config(name, &token)?)?;
            cluster.nodes.borrow_mut().push((name.clone(), None));
        }
        // The first that starts is the Scheduler, and the first by name hosts jobs: not the same.
        names.rotate_right(1);
        for name in &names {
            cluster.start_node(name)?;
        }
        Ok(cluster)
    }

    /// The names of its nodes.
    pub(super) fn names(&self) -> Vec<String> {
        self.setup.names()
    }

    pub(super) fn ground(&self) -> &'a Ground {
        self.ground
    }

    fn config_of(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.toml"))
    }

    /// What a node is told.
    fn config(&self, name: &str, token: &Path) -> Result<String> {
        let (url, replicas, spill) = (self.nats.url(), self.nats.count(), self.ground.path("spill"));
        let (mut node, mut security, memory) = (String::new(), String::new(), self.setup.memory.unwrap_or("96MiB"));
        if let Some(lan) = self.setup.lan {
            node = format!("listen = \"{}:{DATA_PORT}\"\n", lan.address(name)?);
            security = "insecure_no_tls = true\n".to_owned();
        }
        Ok(format!(
            "[cluster]\nnats_url = {url:?}\njetstream_replicas = {replicas}\n[node]\nname = {name:?}\nmemory = {memory:?}\n\
             executors = 1\nscheduler = true\nspill_dirs = [{spill:?}]\n{node}[security]\ntoken_file = {token:?}\ninsecure_any_path = true\n{security}"
        ))
    }

    /// The binary on a host, where there are hosts.
    pub(super) fn command(&self, host: &str, args: &[impl AsRef<str>]) -> Command {
        let wrapper = self.setup.lan.map(|lan| lan.on(host));
        let started_by = NODES.iter().position(|node| *node == host).and_then(|nth| self.setup.wrappers.get(nth));
        let words = wrapper.iter().flatten().chain(started_by.into_iter().flatten());
        let words: Vec<&str> = words.map(String::as_str).collect();
        self.ground.within(&words, args)
    }

    /// Starts the nats-server again.
    pub(super) fn start_nats(&self) -> Result<()> {
        self.nats.start_one(0)
    }

    /// Starts a node that does not run, and waits until it is in the cluster.
    pub(super) fn start_node(&self, name: &str) -> Result<()> {
        let (config, log) = (self.config_of(name), self.folder.join(format!("{name}.log")));
        let mut command = self.command(name, &["node", "--config", &config.display().to_string()]);
        command.env("EXOBUS_LOG", "info,async_nats=error");
        for (variable, value) in &self.setup.environment {
            command.env(variable, value.replace("{name}", name));
        }
        keep(&log, &self.folder.join(format!("{name}.earlier.log")))?;
        let log = File::create(log)?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut nodes = self.nodes.borrow_mut();
        let entry = nodes.iter_mut().find(|(known, _)| known == name).context("a node of this cluster")?;
        entry.1 = Some(child);
        drop(nodes);
        wait(|| Ok(self.log_of(name)?.contains("ready "))).with_context(|| format!("{name}: {:?}", self.log_of(name)))
    }

    /// Where its nats-server listens.
    pub(super) fn port(&self) -> u16 {
        self.nats.port()
    }

    /// What a node has said in this incarnation.
    pub(super) fn log_of(&self, name: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(self.folder.join(format!("{name}.log")))?).into_owned())
    }

    /// What all nodes have said, in all incarnations.
    pub(super) fn all_logs(&self) -> Result<String> {
        let mut all = Vec::new();
        for (name, _) in &*self.nodes.borrow() {
            for log in [format!("{name}.earlier.log"), format!("{name}.log")] {
                match fs::read(self.folder.join(log)) {
                    Ok(said) => all.extend(said),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(String::from_utf8_lossy(&all).into_owned())
    }

    /// The node that hosts the job that was accepted last, and the one that is the Scheduler; the third has neither.
    pub(super) fn bystander(&self) -> Result<String> {
        let mut found = None;
        for name in ["n3", "n2", "n1"] {
            let log = self.log_of(name)?;
            if !log.contains("job accepted") && !log.contains("is the scheduler") {
                found.get_or_insert(name);
            }
        }
        Ok(found.context("every node has a job or the Scheduler")?.to_owned())
    }

    /// The node that is the Scheduler.
    pub(super) fn scheduler(&self) -> Result<String> {
        for name in NODES {
            if self.log_of(name)?.contains("is the scheduler") {
                return Ok(name.to_owned());
            }
        }
        bail!("nobody is the Scheduler")
    }

    /// The node that hosted the job before, and will host the next one.
    pub(super) fn host(&self) -> Result<String> {
        for name in NODES {
            if self.log_of(name)?.contains("job accepted") {
                return Ok(name.to_owned());
            }
        }
        bail!("nobody has hosted a job")
    }

    /// The process of a node.
    pub(super) fn process(&self, name: &str) -> Result<Pid> {
        let nodes = self.nodes.borrow();
        let (_, child) = nodes.iter().find(|(known, _)| known == name).context("a node of this cluster")?;
        pid(child.as_ref().context("it runs")?)
    }

    /// Signals a node; one that is killed is waited for.
    pub(super) fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let mut nodes = self.nodes.borrow_mut();
        let (_, child) = nodes.iter_mut().find(|(known, _)| known == name).context("a node of this cluster")?;
        let running = child.as_mut().context("it runs")?;
        kill_process(pid(running)?, signal)?;
        if signal == Signal::KILL {
            running.wait()?;
            *child = None;
        }
        Ok(())
    }

    /// Tells a node to stop, and waits until it has.
    pub(super) fn stop_node(&self, name: &str) -> Result<()> {
        self.signal(name, Signal::TERM)?;
        self.ends_well(name)
    }

    /// Waits until a node that was told to stop has done so: in order, and without a panic.
    pub(super) fn ends_well(&self, name: &str) -> Result<()> {
        let code = self.ended(name)?;
        let log = self.log_of(name)?;
        ensure!(code == Some(0), "{name} ended with {code:?}: {log}");
        ensure!(!log.contains("panicked"), "{name} panicked: {log}");
        Ok(())
    }

    /// Waits until a node has ended by itself, and how.
    fn ended(&self, name: &str) -> Result<Option<i32>> {
        let mut nodes = self.nodes.borrow_mut();
        let (_, child) = nodes.iter_mut().find(|(known, _)| known == name).context("a node of this cluster")?;
        let mut code = None;
        wait(|| {
            let status = child.as_mut().context("it runs")?.try_wait()?;
            code = status.map(|status| status.code());
            Ok(code.is_some())
        })?;
        *child = None;
        Ok(code.flatten())
    }

    /// Fails where a node has ended that nobody has killed or told to stop.
    pub(super) fn has_not_ended(&self, name: &str) -> Result<()> {
        let mut nodes = self.nodes.borrow_mut();
        let (_, child) = nodes.iter_mut().find(|(known, _)| known == name).context("a node of this cluster")?;
        let ended = child.as_mut().context("it runs")?.try_wait()?;
        drop(nodes);
        ensure!(ended.is_none(), "{name} has ended by itself ({ended:?}): {}", self.log_of(name)?);
        Ok(())
    }

    /// Kills all processes and leaves their folder for a look at it.
    pub(super) fn abandon(mut self) {
        self.folder = PathBuf::new();
    }

    /// Signals the nats-server; one that is killed is waited for.
    pub(super) fn signal_nats(&self, signal: Signal) -> Result<()> {
        self.nats.signal(0, signal)
    }

    /// Kills the nats-server and all nodes, and starts them again.
    pub(super) fn kill_all(&self) -> Result<()> {
        let names: Vec<String> = self.nodes.borrow().iter().map(|(name, _)| name.clone()).collect();
        self.signal_nats(Signal::KILL)?;
        names.iter().try_for_each(|name| self.signal(name, Signal::KILL))?;
        self.start_nats()?;
        names.iter().try_for_each(|name| self.start_node(name))
    }

    /// A sort on this cluster.
    pub(super) fn sort_command(&self, inputs: &[&str], output: &str, strategy: &str) -> Command {
        self.command_of(&[&["sort", "--json", "--partitions", PARTITIONS], inputs].concat(), output, strategy)
    }

    fn command_of(&self, job: &[impl AsRef<str>], output: &str, strategy: &str) -> Command {
        let url = self.nats.url();
        let mut command = self.command(CLIENT, job);
        command.args(["--output", output, "--cluster", &url, "--strategy", strategy]);
        command
    }

    /// Runs the job with a strategy. `harm` is called with the events again and again, until it says that it is done.
    pub(super) fn run(&self, strategy: &str, mut harm: impl FnMut(&Events) -> Result<bool>) -> Result<(Run, Events)> {
        let events = self.folder.join("events");
        let _ = fs::remove_file(&events);
        let [output, trace] = ["out", "trace"].map(|name| self.ground.text(name));
        let mut job = self.ground.workload.args(self.ground);
        if self.ground.workload == Workload::Sort {
            job.extend(["--partitions", PARTITIONS].map(str::to_owned));
        }
        let mut command = self.command_of(&job, &output, strategy);
        command.args(["--timeline", &trace, "--events"]).arg(&events);
        let told = [self.folder.join("job.out"), self.folder.join("job.err")];
        watched(command, &told, &events, |events, _| harm(events))
    }

    /// The job with a strategy; `victim` is signalled when so many hundredths of a stage are done, some of them there.
    pub(super) fn run_and_signal(
        &self,
        (strategy, stage, percent): (&str, &str, u64),
        victim: &str,
        signal: Signal,
    ) -> Result<(Run, Events)> {
        self.run(strategy, |events| {
            let now = events.are_done(percent, stage, victim);
            if now {
                self.signal(victim, signal)?;
            }
            Ok(now)
        })
    }

    /// The job, and nothing is done to it.
    pub(super) fn clean(&self, strategy: &str) -> Result<Cost> {
        // Processes that have not worked before are slower.
        let (warm, _) = self.run(strategy, |_| Ok(true))?;
        self.ground.is_right(&warm)?;
        let (run, _) = self.run(strategy, |events| Ok(events.ended() > 0))?;
        self.ground.is_right(&run)
    }

    /// The outcome of a job that was done harm to.
    pub(super) fn right(&self, clean: &Cost, run: &Run, events: &Events, what: &str) -> Result<Outcome> {
        let cost = self.ground.is_right(run)?;
        cost.has_shown(self.ground.workload, clean)?;
        let what =
            format!("{what}: right; {} tasks replayed, {:.1} s of them", events.replayed(), events.seconds_redone());
        Ok(Outcome {
            what,
            added: Some(cost.seconds - clean.seconds),
            more_attempts: cost.attempts.saturating_sub(clean.attempts),
            bytes_redone: cost.spilled_bytes.saturating_sub(clean.spilled_bytes),
        })
    }

    /// Starts what was killed once more, so that it removes what it had left on its disk, waits until all nodes have given up what
    /// they hold of jobs that are over (a node that stops before that has it until its next incarnation), and stops everything in order:
    /// all must end well, and nothing be left.
    pub(super) fn end(self) -> Result<()> {
        let names: Vec<String> = self.nodes.borrow().iter().map(|(name, _)| name.clone()).collect();
        let runs = |name: &String| self.nodes.borrow().iter().any(|(known, child)| known == name && child.is_some());
        for name in names.iter().filter(|name| !runs(name)) {
            self.start_node(name)?;
        }
        let given_up = wait_for(GIVEN_UP_WITHIN, || Ok(self.spilled().is_empty()));
        given_up.with_context(|| format!("spill files are left while the nodes run: {:?}", self.spilled()))?;
        for name in &names {
            self.signal(name, Signal::TERM)?;
        }
        names.iter().try_for_each(|name| self.ends_well(name))?;
        let left = self.spilled();
        ensure!(left.is_empty(), "spill files are left when the nodes have stopped: {left:?}");
        // Who each node is, and its index, stay for its next incarnation.
        let _ = fs::remove_dir_all(self.ground.path("spill"));
        Ok(())
    }

    /// The spill files of all nodes.
    fn spilled(&self) -> Vec<PathBuf> {
        let nodes = fs::read_dir(self.ground.path("spill")).into_iter().flatten().flatten();
        let files = nodes.flat_map(|node| fs::read_dir(node.path()).into_iter().flatten().flatten());
        let files = files.map(|file| file.path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "spill")).collect()
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let nodes = std::mem::take(self.nodes.get_mut());
        for mut child in nodes.into_iter().filter_map(|(_, child)| child) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if !self.folder.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

pub(super) fn pid(child: &Child) -> Result<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process id")
}

/// Runs a command that tells its events, and what it says in two files. `harm` is called with the events and the process
/// again and again, until it says that it is done: before all work is.
#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
pub(super) fn watched(
    mut command: Command,
    [out, err]: &[PathBuf; 2],
    events: &PathBuf,
    mut harm: impl FnMut(&Events, Pid) -> Result<bool>,
) -> Result<(Run, Events)> {
    let begun = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(File::create(out)?).stderr(File::create(err)?).spawn()?;
    let (mut done, mut left_then) = (false, false);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if !done {
            let so_far = read(events);
            left_then = so_far.work_is_left() || so_far.of("StagePlanned").next().is_none();
            let harmed = pid(&child).and_then(|pid| harm(&so_far, pid));
            done = harmed.inspect_err(|_| drop(child.kill().and_then(|()| child.wait())))?;
        }
        if begun.elapsed() > PATIENCE * 2 {
            let _ = child.kill();
            let _ = child.wait();
            bail!("the job did not end: {}", fs::read_to_string(err)?);
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let seconds = begun.elapsed().as_secs_f64();
    let (stdout, stderr) = (fs::read_to_string(out)?, fs::read_to_string(err)?);
    let events = read(events);
    ensure!(done, "the fault never fired: {stderr}");
    ensure!(status.code() != Some(0) || left_then, "no work was left when the fault fired");
    Ok((Run { code: status.code(), stdout, stderr, seconds }, events))
}

/// What is there of a file that is being written; the last line may be torn.
fn read(events: &PathBuf) -> Events {
    let text = fs::read_to_string(events).unwrap_or_default();
    Events(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

pub(super) fn wait(done: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_for(PATIENCE, done)
}

#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
fn wait_for(patience: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !done()? {
        ensure!(begun.elapsed() < patience, "it did not happen within {patience:?}");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Adds what an incarnation of a node has said to what its earlier ones have: who looks for the cause of a fault needs them all.
fn keep(log: &Path, earlier: &Path) -> Result<()> {
    if let Ok(mut said) = File::open(log) {
        std::io::copy(&mut said, &mut File::options().create(true).append(true).open(earlier)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_reduce(kind: &str, task: &str) -> Value {
        json!({"node": "n1", "kind": {kind: {"stage": "sort.reduce", "task": task}}})
    }

    #[test]
    fn work_is_left_while_a_task_that_was_done_is_to_be_done_again() {
        let planned = json!({"node": "n1", "kind": {"StagePlanned": {"stage": "sort.reduce", "tasks": 2}}});
        let mut events = Events(vec![planned, of_reduce("TaskFinished", "a")]);
        assert!(events.work_is_left(), "of two tasks one is done");

        events.0.extend([of_reduce("TaskReplayed", "a"), of_reduce("TaskFinished", "a")]);
        assert!(events.work_is_left(), "a task that was done twice is one task");

        events.0.push(of_reduce("TaskFinished", "b"));
        assert!(!events.work_is_left(), "both are done");

        events.0.push(of_reduce("TaskReplayed", "b"));
        assert!(events.work_is_left(), "what the second one made is lost");
    }

    #[test]
    fn of_a_job_that_is_begun_anew_work_is_left_until_its_last_run_has_done_all() {
        let begins = || json!({"node": "n1", "kind": {"JobStarted": {"name": "sort"}}});
        let planned = || json!({"node": "n1", "kind": {"StagePlanned": {"stage": "sort.reduce", "tasks": 2}}});
        let mut events = Events(vec![begins(), planned(), of_reduce("TaskFinished", "a"), begins(), planned()]);
        assert!(!events.are_done(50, "reduce", "n1") && events.work_is_left());

        events.0.push(of_reduce("TaskResumed", "a"));
        assert!(events.are_done(50, "reduce", "n1") && events.work_is_left(), "one was kept");
        assert_eq!(events.tasks_finished("reduce").len(), 1);

        events.0.push(of_reduce("TaskFinished", "b"));
        assert!(events.are_done(100, "reduce", "n1") && !events.work_is_left());
    }
}
