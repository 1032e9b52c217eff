//! What all commands that run a job do alike: configuration, views, progress, interrupts, and where it runs.

use std::path::Path;

use exobus_actors::{
    futures::Futures,
    ids::JobId,
    protocol::host::{JobEnd, JobSpec},
    task::JobError,
};
use exobus_files::OutputFolder;
use exobus_store::{Clock, SystemClock};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    embedded,
    generate::{failure as file_failure, interrupted},
    job_failure, program_key,
    resume::Stopped,
    submit::Submitted,
};
use crate::{
    cli::{JobArgs, PlaceArgs, ResumeArgs, SetupArgs},
    cluster,
    config::{MemoryBudget, NodeConfig, Overrides},
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    report::{Place, Reporter, Style, Views, command_line, count},
    unfinished::{self, JobFile, Setup},
};

/// A job that is about to run.
pub(super) struct Session {
    interrupt: Interrupt,
    config: NodeConfig,
    views: Views,
    on_cluster: bool,
    /// How commands that look at the cluster are told of it.
    look: String,
    logged: Logged,
}

/// How a job of this process can be taken up again.
enum Logged {
    /// Not at all.
    No,
    /// With a log that is made for it.
    Anew,
    /// As it was before, with the log that it has.
    Again(JobFile, Box<JobSpec>),
}

/// A job that went well.
#[derive(Debug)]
pub(super) struct Ran<R> {
    /// What the program returned.
    pub(super) report: R,
    /// What the nodes say of it.
    pub(super) end: JobEnd,
    /// From its start to its end.
    pub(super) seconds: f64,
    /// Where it ran.
    pub(super) place: Place,
    /// How the views ended.
    seen: Result<(), Failure>,
    failed_attempts: u64,
    copied_tasks: u64,
    replayed_tasks: u64,
    resumed_tasks: u64,
}

impl Session {
    /// Looks at everything that does not depend on the job, before anything is made.
    pub(super) fn open(args: &JobArgs) -> Result<Self, Failure> {
        Self::with_views(&args.setup, || args.views.open())
    }

    /// The same for a job that nobody needs to look at.
    pub(super) fn without_views(args: &SetupArgs) -> Result<Self, Failure> {
        Self::with_views(args, || Ok(Views::default()))
    }

    fn with_views(args: &SetupArgs, views: impl FnOnce() -> Result<Views, Failure>) -> Result<Self, Failure> {
        let process = Overrides {
            memory: args.memory,
            spill_dirs: args.spill.clone(),
            executors: args.executors,
            ..Overrides::default()
        };
        Self::configured(&args.place, &process, views, Logged::Anew)
    }

    /// For a job that was not finished, and is taken up again in this process.
    pub(super) fn again(args: &ResumeArgs, Stopped { file, spec, setup }: Stopped) -> Result<Self, Failure> {
        // A configuration that is given now is meant for this process.
        let setup = if args.config.is_some() { Setup::default() } else { setup };
        let process = Overrides {
            memory: args.memory.or(setup.memory_bytes.map(MemoryBudget::Bytes)),
            spill_dirs: if args.spill.is_empty() { setup.spill_dirs } else { args.spill.clone() },
            executors: args.executors.or(Some(setup.executors).filter(|executors| *executors > 0)),
            ..Overrides::default()
        };
        let place = PlaceArgs { config: args.config.clone(), local: true, ..PlaceArgs::default() };
        let logged = Logged::Again(file, Box::new(spec));
        Self::configured(&place, &process, || args.views.open(), logged)
    }

    fn configured(
        place: &PlaceArgs,
        process: &Overrides,
        views: impl FnOnce() -> Result<Views, Failure>,
        logged: Logged,
    ) -> Result<Self, Failure> {
        let interrupt = Interrupt::listen().or_exit(Exit::InputOutput)?;
        let (config, on_cluster) = cluster::place(place, process)?;
        Ok(Self { interrupt, config, views: views()?, on_cluster, look: place.flags(), logged })
    }

    /// Whether the job runs on a cluster: its nodes see to input and output then.
    pub(super) fn on_cluster(&self) -> bool {
        self.on_cluster
    }

    /// The job is not to be taken up again: what it works on goes with this process.
    pub(super) fn unlogged(self) -> Self {
        Self { logged: Logged::No, ..self }
    }

    /// What Ctrl-C is seen by, for what is done before the job runs.
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Runs the program of a name in this process or on the cluster; on the first Ctrl-C cancels it. `output`: the folder
    /// that it writes to, if any.
    pub(super) fn run<P, R>(
        self,
        name: &str,
        output: Option<&Path>,
        params: P,
        program: impl AsyncFnOnce(Futures, P) -> Result<R, JobError> + Send + 'static,
    ) -> Result<Ran<R>, Failure>
    where
        P: Serialize + Send + 'static,
        R: Serialize + DeserializeOwned + 'static,
    {
        let Self { interrupt, config, views, on_cluster, look, logged } = self;
        if interrupt.came() {
            return Err(interrupted());
        }
        let clock = SystemClock::new();
        let reporter = Reporter::start(Style::of_stderr(), views).or_exit(Exit::InputOutput)?;
        let began = clock.now();
        let ran = if on_cluster {
            let events = reporter.sink();
            let submitted = Submitted { name, params: &params, look: &look, events: Some(&events) };
            submitted.run(&config, &interrupt).and_then(|end| {
                let decode = |bytes: &bytes::Bytes| rmp_serde::from_slice(bytes).or_exit(Exit::JobFailed);
                let result = end.result.as_ref().map_err(Clone::clone).map(decode);
                Ok((result.map_or_else(|error| Ok(Err(error)), |report| report.map(Ok))?, end))
            })
        } else {
            let runtime = unfinished::runtime()?;
            let again = matches!(logged, Logged::Again(..));
            let (spec, file) = match logged {
                Logged::Again(file, spec) => (*spec, Some(file)),
                Logged::No => (local_spec(name, &params)?, None),
                Logged::Anew => {
                    let spec = local_spec(name, &params)?;
                    let file = JobFile::make(&runtime, spec.job, &setup(&config));
                    (spec, file)
                }
            };
            let link = file.as_ref().map(JobFile::link).unwrap_or_default();
            let folder = output.map(|output| OutputFolder::new(output, spec.job)).transpose().map_err(file_failure)?;
            let program = async move |futures| program(futures, params).await;
            let ran = embedded::run(&config.node, spec, link, program, Some(reporter.sink()), &interrupt);
            // A job that is over is not taken up again, however it ended; one that could not go on here may.
            let over = match &ran {
                Ok((result, _)) => !matches!(result, Err(JobError::Runtime { .. })),
                Err(_) => !again,
            };
            if let (Some(folder), true, Ok((Err(_), _))) = (folder, over, &ran) {
                // The job has given it back. A task that was under way then may have begun a file since, and has ended by now.
                folder.withdraw(None).unwrap_or_else(|error| eprintln!("{error}"));
            }
            if let Some(file) = file.filter(|_| over) {
                runtime.block_on(file.remove());
            }
            ran
        };
        let seconds = (clock.now() - began).as_secs_f64();
        let (progress, seen) = reporter.finish();
        if let Err(failure) = &seen {
            eprintln!("error: {failure}");
        }
        let (result, end) = ran?;
        let report = result.map_err(|error| match error {
            JobError::Cancelled if interrupt.came() => interrupted(),
            error => job_failure(error),
        })?;
        let place = Place { cluster: on_cluster.then(|| config.cluster.name.clone()), nodes: end.nodes.len() };
        let (failed_attempts, copied_tasks) = (progress.failed_attempts(), progress.copied_tasks());
        let (replayed_tasks, resumed_tasks) = (progress.replayed_tasks(), progress.resumed_tasks());
        Ok(Ran { report, end, seconds, place, seen, failed_attempts, copied_tasks, replayed_tasks, resumed_tasks })
    }
}

/// How this process is set up, for who goes on with its job.
fn setup(config: &NodeConfig) -> Setup {
    Setup {
        command: command_line(),
        memory_bytes: match config.node.memory {
            MemoryBudget::Bytes(bytes) => Some(bytes),
            MemoryBudget::Percent(_) => None,
        },
        spill_dirs: config.node.spill_dirs.iter().flat_map(std::path::absolute).collect(),
        executors: config.node.executors,
    }
}

fn local_spec(name: &str, params: &impl Serialize) -> Result<JobSpec, Failure> {
    Ok(JobSpec {
        job: JobId::new(),
        tenant: "local".into(),
        program: program_key(name).to_owned(),
        params: rmp_serde::to_vec_named(params).or_exit(Exit::Usage)?.into(),
        sample_ms: 0,
    })
}

impl<R> Ran<R> {
    /// Prints the summary: as JSON, or as it is for people.
    pub(super) fn print(&self, json: bool, summary: &impl Serialize, for_people: &str) -> Result<(), Failure> {
        use std::io::Write;
        let mut stdout = std::io::stdout().lock();
        // A closed stdout changes nothing about the files.
        let _ = match json {
            true => writeln!(stdout, "{}", serde_json::to_string(summary).or_exit(Exit::InputOutput)?),
            false => writeln!(stdout, "{for_people}"),
        };
        if self.failed_attempts > 0 {
            eprintln!("{} attempts failed and ran again", count(self.failed_attempts));
        }
        if self.copied_tasks > 0 {
            eprintln!("{} tasks ran twice, the first time far longer than others", count(self.copied_tasks));
        }
        if self.resumed_tasks > 0 {
            eprintln!("{} tasks were done before the job was taken up again", count(self.resumed_tasks));
        }
        if self.replayed_tasks > 0 {
            eprintln!("{} tasks ran again, since what they had made was lost", count(self.replayed_tasks));
        }
        Ok(())
    }

    /// What the command exits with.
    pub(super) fn exit(self) -> Exit {
        self.seen.map_or_else(|failure| failure.exit, |()| Exit::Success)
    }
}
