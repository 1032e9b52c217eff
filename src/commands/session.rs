//! What all commands that run a job do alike: configuration, views, progress, interrupts, and where it runs.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use exobus_actors::{
    event::{Event, EventKind, EventSink},
    futures::Futures,
    ids::JobId,
    protocol::host::{JobEnd, JobSpec},
    registry,
    spec::{Plan, Spec},
    task::JobError,
};
use exobus_files::OutputFolder;
use exobus_store::{Clock, SystemClock};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    embedded::{self, Attended, Kept},
    generate::{failure as file_failure, interrupted},
    job_failure,
    kept::{self, Stop},
    resume::Stopped,
    submit::{Submitted, Waited},
};
use crate::{
    cli::{PlaceArgs, ProcessArgs, ResumeArgs, ViewArgs},
    cluster,
    config::{MemoryBudget, NodeConfig, Overrides},
    enough::EnoughKey,
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    page::{Page, State},
    report::{Place, Reporter, Style, Views, command_line, count},
    stdout::print_line,
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
    /// Where people watch what is known before the end.
    page: Option<Page>,
    /// Where what a job of this process has read is kept when it has seen enough: the folder that was said; of one that is taken up again that of its store.
    keep: Option<PathBuf>,
    /// Whether a job that has seen enough is to go on.
    goes_on: bool,
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
    /// Where it has stopped and is kept: its id, and how people have it go on.
    kept: Option<(JobId, String)>,
}

impl Session {
    /// Looks at everything that does not depend on the job, before anything is made.
    pub(super) fn open(args: &ProcessArgs, views: &ViewArgs) -> Result<Self, Failure> {
        Self::with_views(args, || views.open())
    }

    /// The same for a job that nobody needs to look at.
    pub(super) fn without_views(args: &ProcessArgs) -> Result<Self, Failure> {
        Self::with_views(args, || Ok(Views::default()))
    }

    fn with_views(args: &ProcessArgs, views: impl FnOnce() -> Result<Views, Failure>) -> Result<Self, Failure> {
        let process = Overrides {
            memory: args.memory,
            spill_dirs: args.spill.clone(),
            executors: args.executors,
            ..Overrides::default()
        };
        Self::configured(&args.place, &process, || Ok(views()?.as_json(args.json)), Logged::Anew)
    }

    /// For a job that was not finished, and is taken up again in this process.
    pub(super) fn again(args: &ResumeArgs, Stopped { file, spec, setup }: Stopped) -> Result<Self, Failure> {
        // A configuration that is given now is meant for this process.
        let mut setup = setup;
        let keep = setup.kept.pop();
        let mut setup = if args.config.is_some() { Setup::default() } else { setup };
        let said = &args.settings;
        setup.memory_bytes = setup.memory_bytes.filter(|_| !said.names("node.memory"));
        setup.spill_dirs.retain(|_| !said.names("node.spill_dirs"));
        setup.executors = if said.names("node.executors") { 0 } else { setup.executors };
        let process = Overrides {
            memory: args.memory.or(setup.memory_bytes.map(MemoryBudget::Bytes)),
            spill_dirs: if args.spill.is_empty() { setup.spill_dirs } else { args.spill.clone() },
            executors: args.executors.or(Some(setup.executors).filter(|executors| *executors > 0)),
            ..Overrides::default()
        };
        let place = PlaceArgs {
            config: args.config.clone(),
            local: true,
            settings: args.settings.clone(),
            ..PlaceArgs::default()
        };
        let logged = Logged::Again(file, Box::new(spec));
        let session = Self::configured(&place, &process, || Ok(args.views.open()?.as_json(args.json)), logged)?;
        Ok(Self { keep, ..session })
    }

    fn configured(
        place: &PlaceArgs,
        process: &Overrides,
        views: impl FnOnce() -> Result<Views, Failure>,
        logged: Logged,
    ) -> Result<Self, Failure> {
        let interrupt = Interrupt::listen().or_exit(Exit::InputOutput)?;
        let (config, on_cluster) = cluster::place(place, process)?;
        let look = place.flags();
        Ok(Self {
            interrupt,
            config,
            views: views()?,
            on_cluster,
            look,
            logged,
            page: None,
            keep: None,
            goes_on: false,
        })
    }

    /// Whether the job runs on a cluster: its nodes see to input and output then.
    pub(super) fn on_cluster(&self) -> bool {
        self.on_cluster
    }

    /// The job is not to be taken up again: what it works on goes with this process.
    pub(super) fn unlogged(self) -> Self {
        Self { logged: Logged::No, ..self }
    }

    /// With a web page of what is known before the end, on this port, whose address is told; `None`: without one.
    pub(super) fn with_page(self, port: Option<u16>) -> Result<Self, Failure> {
        Ok(Self { page: Page::told(port, command_line)?, ..self })
    }

    /// What was read is kept below this folder when enough was.
    pub(super) fn kept_in(self, folder: Option<&Path>) -> Result<Self, Failure> {
        let keep = folder.map(std::path::absolute).transpose().or_exit(Exit::InputOutput)?;
        Ok(Self { keep, ..self })
    }

    /// The job has seen enough, and is to go on.
    pub(super) fn going_on(self) -> Self {
        Self { goes_on: true, ..self }
    }

    /// What Ctrl-C is seen by, for what is done before the job runs.
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Has the cluster run the job of a spec, or one that `explains` it; on the first Ctrl-C cancels it. Also the program that has run there.
    pub(super) fn hand_in(self, spec: &Spec, explains: bool) -> Result<(Ran<Bytes>, String), Failure> {
        self.waited(|submitted| submitted.spec(spec, explains))
    }

    /// Has the cluster go on with a job that was kept; on the first Ctrl-C cancels it. Also its program.
    pub(super) fn go_on(self, job: &str) -> Result<(Ran<Bytes>, String), Failure> {
        self.waited(|submitted| submitted.go_on(job))
    }

    fn waited(
        self,
        wait: impl FnOnce(&Submitted<'_>) -> Result<Waited, Failure>,
    ) -> Result<(Ran<Bytes>, String), Failure> {
        let Self { interrupt, config, views, look, page, .. } = self;
        let (mut program, mut kept) = (String::new(), None);
        let ran = ran(&interrupt, (views, page), Some(&config.cluster.name), |events, key| {
            let submitted = Submitted {
                config: &config,
                interrupt: &interrupt,
                look: &look,
                events: Some(&events),
                key: Some(key),
            };
            let waited = wait(&submitted)?;
            kept = waited.kept.map(|job| (job, kept::hint(&waited.program, job, &look)));
            program = waited.program;
            Ok((waited.end.result.clone(), waited.end))
        })?;
        Ok((Ran { kept, ..ran }, program))
    }

    /// Runs a plan in this process; on the first Ctrl-C cancels it.
    pub(super) fn run<R: Serialize + DeserializeOwned + 'static>(self, plan: &Plan) -> Result<Ran<R>, Failure> {
        let Self { interrupt, config, views, look, logged, page, keep, goes_on, .. } = self;
        let (stop, mut kept_job) = (Stop::new(), None);
        let ran = ran(&interrupt, (views, page), None, |events, key| {
            let runtime = unfinished::runtime()?;
            let again = matches!(logged, Logged::Again(..));
            let (spec, file, kept) = match logged {
                Logged::Again(file, spec) => (*spec, Some(file), keep),
                Logged::No => (local_spec(plan), None, None),
                Logged::Anew => {
                    let spec = local_spec(plan);
                    let kept = keep.map(|keep| kept::folder_of(&keep, spec.job));
                    let file = JobFile::make(&runtime, spec.job, &setup(&config, kept.as_deref()));
                    if kept.is_some() && file.is_none() {
                        let text = "the job cannot be kept: there is nowhere to log it, below XDG_STATE_HOME or HOME";
                        return Err(Failure::text(Exit::InputOutput, text.to_owned()));
                    }
                    (spec, file, kept)
                }
            };
            let link = file.as_ref().map(JobFile::link).unwrap_or_default();
            let folders = plan.writes.iter().map(|folder| OutputFolder::new(folder, spec.job));
            let folders: Vec<OutputFolder> = folders.collect::<Result<_, _>>().map_err(file_failure)?;
            let program = program(plan)?;
            let attended = Attended { interrupt: &interrupt, key, goes_on };
            let (events, job) = (stop.seeing(events), spec.job);
            let is_kept = kept.as_deref().map(|folder| Kept { folder, stop: (!goes_on).then_some(&stop) });
            let ran = match embedded::run(&config.node, spec, link, program, events, attended, is_kept) {
                Ok(embedded::Ran::Over(over)) => Ok(*over),
                Ok(embedded::Ran::Stopped(snapshot)) => {
                    // Its log and its files stay.
                    kept_job = Some((job, kept::hint(&plan.program, job, &look)));
                    let end = kept::end_of(&plan.program, *snapshot).map_err(job_failure)?;
                    return Ok((end.value(), end));
                }
                Err(failure) => Err(failure),
            };
            // A job that is over is not taken up again, however it ended; one that could not go on here may.
            let over = match &ran {
                Ok((result, _)) => !matches!(result, Err(JobError::Runtime { .. })),
                Err(_) => !again,
            };
            if let (true, Ok((Err(_), _))) = (over, &ran) {
                // The job has given them back. A task that was under way then may have begun a file since, and has ended by now.
                for folder in folders {
                    folder.withdraw(None).unwrap_or_else(|error| eprintln!("{error}"));
                }
            }
            if let Some(file) = file.filter(|_| over) {
                runtime.block_on(file.remove());
                kept.iter().for_each(|folder| kept::remove(folder));
            }
            ran
        })?;
        Ok(Ran { kept: kept_job, ..ran })
    }
}

/// Runs a job on a cluster of this name or, without one, here, and shows what happens meanwhile.
fn ran<R>(
    interrupt: &Interrupt,
    (views, page): (Views, Option<Page>),
    cluster: Option<&str>,
    run: impl FnOnce(EventSink, &EnoughKey) -> Result<(Result<R, JobError>, JobEnd), Failure>,
) -> Result<Ran<R>, Failure> {
    if interrupt.came() {
        return Err(interrupted());
    }
    let clock = SystemClock::new();
    let style = Style::of_stderr();
    let key = EnoughKey::of_terminal(style == Style::Bars && !views.are_estimates_json());
    let hint = if key.is_there() { ENOUGH_HINT } else { "" };
    let reporter = Reporter::with_hint(style, views, hint).or_exit(Exit::InputOutput)?;
    let began = clock.now();
    let ended = run(shown_on(page.as_ref(), reporter.sink(), &key), &key);
    drop(key);
    let seconds = (clock.now() - began).as_secs_f64();
    if let Some(page) = &page {
        match &ended {
            Ok((Ok(_), _)) => page.board().done(),
            Ok((Err(JobError::Cancelled), _)) => page.board().ended(State::Cancelled, ""),
            Ok((Err(error), _)) => page.board().ended(State::Failed, &error.to_string()),
            Err(failure) => page.board().ended(State::Failed, &failure.to_string()),
        }
    }
    let (progress, seen) = reporter.finish();
    if let Some(page) = page {
        page.close(interrupt);
    }
    if let Err(failure) = &seen {
        eprintln!("error: {failure}");
    }
    let (result, end) = ended?;
    let report = result.map_err(|error| match error {
        JobError::Cancelled if interrupt.came() => interrupted(),
        error => job_failure(error),
    })?;
    let place = Place { cluster: cluster.map(str::to_owned), nodes: end.nodes.len() };
    let (failed_attempts, copied_tasks) = (progress.failed_attempts(), progress.copied_tasks());
    let (replayed_tasks, resumed_tasks) = (progress.replayed_tasks(), progress.resumed_tasks());
    let kept = None;
    Ok(Ran { report, end, seconds, place, seen, failed_attempts, copied_tasks, replayed_tasks, resumed_tasks, kept })
}

/// What whoever sees early answers can do.
const ENOUGH_HINT: &str = "Enter: that is enough, end with this";

/// A sink whose looks at a result are on a page, too, and known to the key that says that they are enough.
fn shown_on(page: Option<&Page>, sink: EventSink, key: &EnoughKey) -> EventSink {
    let (board, shows) = (page.map(Page::board).cloned(), key.shows());
    let sample_ms = sink.sample_ms();
    let receive = move |event: Event| {
        if let EventKind::Estimated { snapshot } = &event.kind {
            board.iter().for_each(|board| board.look(snapshot));
            shows();
        }
        sink.emit(event);
    };
    EventSink::new(receive).sampled_every(sample_ms)
}

impl Ran<Bytes> {
    /// As the program that has run returns it.
    pub(super) fn decoded<R: DeserializeOwned>(self) -> Result<Ran<R>, Failure> {
        let report = rmp_serde::from_slice(&self.report).or_exit(Exit::JobFailed)?;
        let Self { end, seconds, place, seen, kept, .. } = self;
        let Self { failed_attempts, copied_tasks, replayed_tasks, resumed_tasks, .. } = self;
        Ok(Ran {
            report,
            end,
            seconds,
            place,
            seen,
            failed_attempts,
            copied_tasks,
            replayed_tasks,
            resumed_tasks,
            kept,
        })
    }
}

/// How this process is set up, for who goes on with its job.
fn setup(config: &NodeConfig, kept: Option<&Path>) -> Setup {
    Setup {
        command: command_line(),
        memory_bytes: match config.node.memory {
            MemoryBudget::Bytes(bytes) => Some(bytes),
            MemoryBudget::Percent(_) => None,
        },
        spill_dirs: config.node.spill_dirs.iter().flat_map(std::path::absolute).collect(),
        executors: config.node.executors,
        kept: kept.map(Path::to_owned).into_iter().collect(),
    }
}

fn local_spec(plan: &Plan) -> JobSpec {
    JobSpec {
        job: JobId::new(),
        tenant: "local".into(),
        program: plan.program.clone(),
        params: plan.params.clone(),
        sample_ms: 0,
        plan_pieces: 0,
    }
}

/// The program of a plan, with what it is told.
fn program<R: DeserializeOwned>(
    plan: &Plan,
) -> Result<impl AsyncFnOnce(Futures) -> Result<R, JobError> + Send + 'static, Failure> {
    let known = registry::programs().get(&plan.program).copied();
    let unknown = || Failure::text(Exit::Usage, format!("no program is registered here as {}", plan.program));
    let (program, params) = (known.ok_or_else(unknown)?, plan.params.clone());
    Ok(async move |futures: Futures| {
        let result = (program.run)(futures, &params).await?;
        rmp_serde::from_slice(&result).map_err(JobError::program)
    })
}

impl<R> Ran<R> {
    /// Prints the summary: as JSON, or as it is for people.
    pub(super) fn print(&self, json: bool, summary: &impl Serialize, for_people: &str) -> Result<(), Failure> {
        match json {
            true => print_line(serde_json::to_string(summary).or_exit(Exit::InputOutput)?),
            false => print_line(for_people),
        }
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
            eprintln!(
                "{} tasks ran again: what they had made was lost, or was asked for again when it had been dropped",
                count(self.replayed_tasks)
            );
        }
        Ok(())
    }

    /// The job, where it has stopped and is kept.
    pub(super) fn kept_job(&self) -> Option<String> {
        self.kept.as_ref().map(|(job, _)| job.to_string())
    }

    /// What the command exits with; of a job that is kept it is said how it goes on.
    pub(super) fn exit(self) -> Exit {
        if let Some((_, hint)) = &self.kept {
            eprintln!("{hint}");
        }
        self.seen.map_or_else(|failure| failure.exit, |()| Exit::Success)
    }
}
