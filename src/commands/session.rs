//! What all commands that run a job do alike: configuration, views, progress, interrupts, and where it runs.

use std::path::Path;

use exobus_actors::{
    futures::Futures,
    host::{JobEnd, JobSpec},
    ids::JobId,
    task::JobError,
};
use exobus_shuffle::files::OutputFolder;
use exobus_store::{Clock, SystemClock};
use serde::{Serialize, de::DeserializeOwned};

use super::{embedded, generate::interrupted, job_failure, submit};
use crate::{
    cli::{JobArgs, ResumeArgs, SetupArgs},
    config::{NodeConfig, Overrides},
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    report::{Reporter, Style, Views, count},
    unfinished::{self, JobFile},
};

/// A job that is about to run.
pub(super) struct Session {
    interrupt: Interrupt,
    config: NodeConfig,
    views: Views,
    on_cluster: bool,
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
        let overrides = Overrides {
            nats_url: args.cluster.clone(),
            memory: args.memory,
            spill_dirs: args.spill.clone(),
            executors: args.executors,
            ..Overrides::default()
        };
        Self::configured(args.config.as_deref(), &overrides, views, Logged::Anew)
    }

    /// For a job that was not finished, and is taken up again in this process.
    pub(super) fn again(args: &ResumeArgs, file: JobFile, spec: JobSpec) -> Result<Self, Failure> {
        let overrides = Overrides {
            memory: args.memory,
            spill_dirs: args.spill.clone(),
            executors: args.executors,
            ..Overrides::default()
        };
        let logged = Logged::Again(file, Box::new(spec));
        Self::configured(args.config.as_deref(), &overrides, || args.views.open(), logged)
    }

    /// It is on a cluster where its server is given.
    fn configured(
        config: Option<&Path>,
        overrides: &Overrides,
        views: impl FnOnce() -> Result<Views, Failure>,
        logged: Logged,
    ) -> Result<Self, Failure> {
        let interrupt = Interrupt::listen().or_exit(Exit::InputOutput)?;
        let config = NodeConfig::load(config, overrides).or_exit(Exit::Usage)?;
        Ok(Self { interrupt, config, views: views()?, on_cluster: overrides.nats_url.is_some(), logged })
    }

    /// The job is not to be taken up again: what it works on goes with this process.
    pub(super) fn unlogged(self) -> Self {
        Self { logged: Logged::No, ..self }
    }

    /// What Ctrl-C is seen by, for what is done before the job runs.
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Runs a program, version 1, in this process or on the cluster; on the first Ctrl-C cancels it. `output`: the folder
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
        R: DeserializeOwned + Send + 'static,
    {
        let Self { interrupt, config, views, on_cluster, logged } = self;
        if interrupt.came() {
            return Err(interrupted());
        }
        let clock = SystemClock::new();
        let reporter = Reporter::start(Style::of_stderr(), views).or_exit(Exit::InputOutput)?;
        let began = clock.now();
        let ran = if on_cluster {
            let (client, events) = (format!("exobus {name}"), reporter.sink());
            submit::run(&config, &client, &format!("{name}@1"), &params, Some(&events), &interrupt).and_then(|end| {
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
                    let file = JobFile::make(&runtime, spec.job);
                    (spec, file)
                }
            };
            let link = file.as_ref().map(JobFile::link).unwrap_or_default();
            let folder = output.map(|output| OutputFolder::new(output, spec.job));
            let program = async move |futures| program(futures, params).await;
            let ran = embedded::run(&config.node, spec, link, program, Some(reporter.sink()), &interrupt);
            // A job that is over is not taken up again, however it ended; one that could not go on here may.
            let over = match &ran {
                Ok((result, _)) => !matches!(result, Err(JobError::Runtime { .. })),
                Err(_) => !again,
            };
            if let (Some(folder), true, Ok((Err(_), _))) = (folder, over, &ran) {
                // The job has given it back. A task that was under way then may have begun a file since, and has ended by now.
                folder.withdraw().unwrap_or_else(|error| eprintln!("{error}"));
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
        let (failed_attempts, copied_tasks) = (progress.failed_attempts(), progress.copied_tasks());
        let (replayed_tasks, resumed_tasks) = (progress.replayed_tasks(), progress.resumed_tasks());
        Ok(Ran { report, end, seconds, seen, failed_attempts, copied_tasks, replayed_tasks, resumed_tasks })
    }
}

fn local_spec(name: &str, params: &impl Serialize) -> Result<JobSpec, Failure> {
    Ok(JobSpec {
        job: JobId::new(),
        tenant: "local".into(),
        program: format!("{name}@1"),
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
