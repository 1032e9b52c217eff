//! A row about many small jobs: nodes, the Scheduler's among them, and the nats-server are killed in turn while clients hand them in and wait.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::Outcome;
use super::cluster::{Cluster, NODES};
use super::ground::{Ground, finish, told};

/// Records of the file that each job sorts.
const RECORDS: u64 = 1000;
/// From one kill to the next: what was killed before is back by then.
const KILL_EVERY: Duration = Duration::from_secs(6);
/// The first one comes sooner.
const FIRST_KILL: Duration = Duration::from_secs(2);
/// Jobs are handed in until there have been so many kills: of each kind one.
const KILLS_MIN: usize = 3;

/// What is killed, one after the other, and started again.
struct Kills<'a, 'g> {
    cluster: &'a Cluster<'g>,
    due: Instant,
    done: usize,
    kinds: BTreeSet<&'static str>,
}

impl Kills<'_, '_> {
    /// Kills the next one where it is time for it.
    #[allow(clippy::disallowed_methods, reason = "real processes are killed in real time")]
    fn when_due(&mut self) -> Result<()> {
        if Instant::now() > self.due {
            self.kinds.insert(self.kill_next()?);
            self.done += 1;
            self.due = Instant::now() + KILL_EVERY;
        }
        Ok(())
    }

    fn kill_next(&self) -> Result<&'static str> {
        let cluster = self.cluster;
        match self.done % 3 {
            0 => {
                let leader = cluster.scheduler()?;
                cluster.signal(&leader, Signal::KILL)?;
                cluster.start_node(&leader)?;
                Ok("Scheduler")
            }
            1 => {
                // Each hosts a third of the jobs.
                let name = NODES[self.done / 3 % NODES.len()];
                cluster.signal(name, Signal::KILL)?;
                cluster.start_node(name)?;
                Ok("host")
            }
            _ => {
                cluster.nats.signal(0, Signal::KILL)?;
                cluster.nats.start_one(0)?;
                Ok("nats-server")
            }
        }
    }
}

/// How many completions of tasks these logs tell of, and of how many tasks they are.
fn tasks_done(logs: &str) -> (usize, usize) {
    let completed = logs.lines().filter(|line| line.contains("task completed"));
    let tasks: Vec<&str> =
        completed.filter_map(|line| line.split("task_id=").nth(1)?.split_whitespace().next()).collect();
    (tasks.len(), tasks.iter().collect::<BTreeSet<_>>().len())
}

/// Fifty clients hand in so many jobs, wait for them, and find their outputs right, while something is killed now and then.
#[allow(clippy::disallowed_methods, reason = "real processes are killed in real time")]
fn wave(ground: &Ground, kills: &mut Kills<'_, '_>, jobs: u64, input: &str) -> Result<()> {
    let spec = ground.text("small.toml");
    let outputs = ground.text("small-out-{n}");
    fs::write(&spec, format!("kind = \"sort\"\ninputs = [{input:?}]\noutput = {outputs:?}\npartitions = 1\n"))?;
    let (url, count) = (kills.cluster.nats.url(), jobs.to_string());
    let args = ["bench", "jobs", "--jobs", &count, "--clients", "50", "--spec", &spec, "--json", "--cluster", &url];
    let (told, said) = (ground.path("small.json"), ground.path("small.log"));
    let mut command = ground.command(&args);
    command.stdin(Stdio::null()).stdout(File::create(&told)?).stderr(File::create(&said)?);
    let mut client = command.spawn()?;
    let status = loop {
        if let Some(status) = client.try_wait()? {
            break status;
        }
        kills.when_due()?;
        std::thread::sleep(Duration::from_millis(50));
    };
    ensure!(status.success(), "{status}: {}", fs::read_to_string(&said)?);
    let figures: Value = serde_json::from_str(&fs::read_to_string(&told)?)?;
    ensure!(figures["jobs_succeeded"] == jobs as f64, "not all have succeeded: {figures}");

    for number in 0..jobs {
        let folder = ground.text(&format!("small-out-{number}"));
        let checked = finish(ground.command(&["validate", "--json", &folder]))?;
        ensure!(checked.code == Some(0), "the output of small job {number} is not valid: {}", checked.stderr);
        let checked: Value = serde_json::from_str(&checked.stdout)?;
        ensure!(checked["records"] == RECORDS, "records are missing in {folder}: {checked}");
        let files = fs::read_dir(&folder)?.count();
        ensure!(files == 2, "{folder} has {files} names and not a part and a manifest");
        fs::remove_dir_all(&folder)?;
    }
    for name in ["small.toml", "small.json", "small.log"] {
        fs::remove_file(ground.path(name))?;
    }
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "real processes are killed in real time")]
pub(super) fn killed_in_turn(ground: &Ground) -> Result<Outcome> {
    // Owners say in the logs of their nodes which tasks are done.
    let environment = vec![("EXOBUS_LOG", "info,async_nats=error,exobus_actors::owner::core=debug".to_owned())];
    let cluster = Cluster::start_with(ground, environment)?;
    let each = told("EXOBUS_CHAOS_JOBS", 300)?;
    let input = ground.text("small-in");
    let made = finish(ground.command(&["generate", "--records", &RECORDS.to_string(), &input]))?;
    ensure!(made.code == Some(0), "{}", made.stderr);

    let began = Instant::now();
    let mut kills = Kills { cluster: &cluster, due: began + FIRST_KILL, done: 0, kinds: BTreeSet::new() };
    let mut jobs = 0;
    // On a fast machine the first ones are over before there was enough to bear.
    while kills.done < KILLS_MIN {
        wave(ground, &mut kills, each, &input)?;
        jobs += each;
    }
    // Each has one record, which is over.
    let (limit, url) = ((2 * jobs).to_string(), cluster.nats.url());
    let listed = finish(ground.command(&["jobs", "--all", "--json", "--limit", &limit, "--cluster", &url]))?;
    ensure!(listed.code == Some(0), "{}", listed.stderr);
    let listed: Value = serde_json::from_str(&listed.stdout)?;
    let listed = listed["jobs"].as_array().context("a list of jobs")?;
    let ids: BTreeSet<_> = listed.iter().filter_map(|job| job["job"].as_str()).collect();
    let done = listed.iter().filter(|job| job["state"] == "succeeded").count();
    ensure!((ids.len() as u64, done as u64) == (jobs, jobs), "{} ids, {done} succeeded of {jobs} jobs", ids.len());
    let again = listed.iter().filter(|job| job["runs"].as_u64() > Some(1)).count();

    let (done, distinct) = tasks_done(&cluster.all_logs()?);
    ensure!(distinct as u64 >= jobs, "{distinct} tasks of {jobs} jobs: nodes did not say which are done");
    let redone = done - distinct;

    fs::remove_dir_all(&input).or_else(|_| fs::remove_file(&input))?;
    let seconds = began.elapsed().as_secs();
    let what = format!(
        "{jobs} jobs of 50 clients in {seconds} s, {} kills of {}; each succeeded once, {again} of them were taken up again, and {:.2} % of {done} \
         finished tasks were done again",
        kills.done,
        kills.kinds.into_iter().collect::<Vec<_>>().join(", "),
        100.0 * redone as f64 / done as f64,
    );
    cluster.end()?;
    Ok(Outcome { what, added: None, more_attempts: redone as u64, bytes_redone: 0 })
}
