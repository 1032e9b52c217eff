//! The output folder of a job: claimed, written to, committed or given back. The same for all jobs that write files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exobus_actors::futures::{Futures, Home, ObjectRef};
use exobus_actors::ids::JobId;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::JobError;
use exobus_files::{
    ClaimLock, Claimed, FileError, IoBuffer, Location, OutputFile, OutputFolder, Schema, Token, is_inside,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::files::STRIDE_BYTES;
use crate::plan::Plan;

/// What `prepare` is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PrepareParams {
    #[serde(with = "exobus_actors::paths")]
    output: PathBuf,
    program: String,
    home: Home,
    /// A job that has claimed the folder, and whether it is over, as the program has found out.
    verdict: Option<(JobId, bool)>,
}

/// What `prepare` found.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Prepared {
    /// The folder is the job's.
    Claimed,
    /// Another job has claimed it. `over`: that is known to be over; else its cluster has to be asked.
    Another { job: JobId, over: bool },
}

/// Claims the output folder. A task of its own, since what it returns always fits the job's log: a job that is taken up again does
/// not begin anew in a folder with what it has written there.
#[task(name = "shuffle.prepare")]
pub(crate) fn prepare(context: &mut TaskContext<'_>, params: PrepareParams) -> Result<Prepared, TaskError> {
    context.check_path(&params.output)?;
    let folder = OutputFolder::new(&params.output, context.job())?;
    Ok(match folder.claim(&params.home.claimant(&params.program), params.verdict)? {
        Claimed::Now => Prepared::Claimed,
        Claimed::Over(job) => Prepared::Another { job, over: true },
        Claimed::Ask(job) => Prepared::Another { job, over: false },
    })
}

/// What `commit` is told. Each member of its only argument is a value with a field `token`, or with a field `tokens`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CommitParams {
    #[serde(with = "exobus_actors::paths")]
    output: PathBuf,
    program: String,
    schema: Schema,
}

/// What a reduce returns besides what its job wants to know of it: a file, or several in the order of their rows.
#[derive(Deserialize)]
struct Finished {
    #[serde(default)]
    token: Option<Token>,
    #[serde(default)]
    tokens: Option<Vec<Token>>,
}

impl Finished {
    fn of(block: &[u8]) -> Result<Self, TaskError> {
        let finished: Self = rmp_serde::from_slice(block).map_err(TaskError::fatal)?;
        if finished.token.is_none() && finished.tokens.is_none() {
            return Err(TaskError::fatal("an output says of no file whether it wrote one"));
        }
        Ok(finished)
    }

    fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.token.iter().chain(self.tokens.iter().flatten())
    }
}

/// What a commit takes at most without asking for it, bytes.
const COMMIT_BYTES: u64 = 1 << 20;
/// What the name of a file takes in a set of them beside its text.
const NAME_BYTES: u64 = 96;

/// What a commit has in memory of these outputs: the names of all of their files, and all that is said of those of one, bytes.
fn commit_bytes(outputs: &[impl AsRef<[u8]>]) -> Result<u64, TaskError> {
    let (mut names, mut largest) = (0, 0);
    for output in outputs {
        let (mut of_names, mut texts, mut count) = (0, 0, 0);
        for token in Finished::of(output.as_ref())?.tokens() {
            of_names += token.name.len() as u64 + NAME_BYTES;
            texts += (token.name.len() + token.temporary.len()) as u64 + 64;
            count += 1;
        }
        names += of_names;
        // A list grows by doubling.
        largest = largest.max(texts + 2 * count * size_of::<Token>() as u64);
    }
    Ok(names + largest)
}

/// Gives the files of a set of outputs of reduces their final names.
#[task(name = "shuffle.commit", commits = true)]
pub(crate) fn commit(context: &mut TaskContext<'_>, params: CommitParams) -> Result<(), TaskError> {
    context.check_path(&params.output)?;
    let folder = OutputFolder::new(&params.output, context.job())?;
    context.check_path(folder.working_place().as_ref())?;
    let blocks = context.blocks(0);
    let mut memory = context.outside_granted();
    let bytes = commit_bytes(&blocks)?;
    if bytes > COMMIT_BYTES {
        memory.resize(bytes.max(memory.bytes()))?;
    }
    folder.commit(&attempt_name(context), (&params.program, &params.schema), |take| {
        blocks.iter().try_for_each(|block| {
            context.check_cancelled()?;
            Finished::of(block)?.tokens().try_for_each(|token| {
                // Names of files in the folder, and of no others.
                match is_inside(&token.name) && is_inside(&token.temporary) {
                    true => Ok(take(token)?),
                    false => Err(TaskError::fatal(format!("{:?} is no name of a file", token.name))),
                }
            })
        })
    })
}

/// What the temporaries of an attempt are called. As long for every attempt: what two attempts of a task return must agree (law
/// 4).
fn attempt_name(context: &TaskContext<'_>) -> String {
    format!("{}-{:05}", context.task(), context.attempt().makes().get())
}

/// Begins a file of a task in the folder `output`. `bytes_hint`: how long it will be, where that is known, else 0.
pub fn create_file(
    context: &TaskContext<'_>,
    (output, name): (&Path, &str),
    buffers: Vec<IoBuffer>,
    bytes_hint: u64,
) -> Result<OutputFile, TaskError> {
    // The name comes with the parameters, too.
    context.check_path(&output.join(name))?;
    let folder = OutputFolder::new(output, context.job())?;
    context.check_path(folder.working_place().as_ref())?;
    if context.attempt().run() > 0 {
        // Not for attempts of the run that has committed: one of those that comes late finds nothing.
        folder.reopen()?;
    }
    match folder.create(name, &attempt_name(context), buffers, bytes_hint) {
        // A host from which the job was taken has committed just now.
        Err(error) if folder.is_closed()? => Err(TaskError::Files { retry: true, message: error.to_string() }),
        created => Ok(created?),
    }
}

/// Ends a file of a task, with so many rows in it; the buffers that it was written with may be those of the next one.
pub fn finish_file(
    context: &mut TaskContext<'_>,
    output: &Path,
    file: OutputFile,
    rows: u64,
) -> Result<(Token, Vec<IoBuffer>), TaskError> {
    let (token, buffers) = file.finish(rows)?;
    if context.cancelled() {
        OutputFolder::new(output, context.job())?.abort(&token)?;
        return Err(TaskError::Cancelled);
    }
    context.wrote_outside(token.bytes);
    Ok((token, buffers))
}

/// A file of a task for what writes bytes and knows I/O errors only.
#[derive(Debug)]
pub struct PartFile {
    output: OutputFile,
    failure: PartFailure,
}

/// What went wrong with a [`PartFile`], which an I/O error cannot say.
#[derive(Clone, Debug, Default)]
pub struct PartFailure(Arc<Mutex<Option<FileError>>>);

impl PartFile {
    /// Of a file that was begun.
    pub fn new(output: OutputFile) -> Self {
        Self { output, failure: PartFailure::default() }
    }

    /// Where it will be said what went wrong with it.
    pub fn failure(&self) -> PartFailure {
        self.failure.clone()
    }

    /// The file, to be finished.
    pub fn into_output(self) -> OutputFile {
        self.output
    }
}

impl PartFailure {
    /// The last failure there was.
    pub fn take(&self) -> Option<FileError> {
        self.0.lock().take()
    }
}

impl io::Write for PartFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.output.write(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(failure) => {
                self.failure.0.lock().replace(failure);
                Err(io::Error::other("the part file cannot be written"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The output folder of a program, from the claim to the commit. What the job has not committed when it is over goes from it then, and not
/// before: as long as the job is not over, another run of it may go on with what is there.
#[derive(Debug)]
pub struct Output {
    futures: Futures,
    path: PathBuf,
    program: &'static str,
}

/// Frees the output folder of a job that is over, unless it is whole.
pub fn give_back(job: JobId, output: &Path) {
    withdraw(job, output, None);
}

/// A job of which nobody can say how it stands may run.
fn known_to_be_over(over: Result<bool, JobError>) -> Result<bool, JobError> {
    match over {
        Err(JobError::Runtime { .. }) => Ok(false),
        known => known,
    }
}

fn withdraw(job: JobId, output: &Path, lock: Option<ClaimLock>) {
    if let Err(error) = OutputFolder::new(output, job).and_then(|folder| folder.withdraw(lock)) {
        tracing::warn!(job_id = %job, %error, "the output folder is not as it was");
    }
}

impl Output {
    /// Claims `path` for the job.
    pub async fn claim(futures: &Futures, path: &Path, program: &'static str) -> Result<Self, JobError> {
        let output = Self { futures: futures.clone(), path: path.to_owned(), program };
        let lock = Arc::<Mutex<Option<ClaimLock>>>::default();
        let (job, folder, locked) = (futures.job(), output.path.clone(), lock.clone());
        // Before the task runs: a job may end while it does.
        futures.when_over(move || withdraw(job, &folder, locked.lock().take()));
        let (home, name) = (futures.home().clone(), program.to_owned());
        let mut params = PrepareParams { output: output.path.clone(), program: name, home, verdict: None };
        loop {
            match futures.get_value(&futures.submit(prepare, &params, &[])?).await? {
                Prepared::Claimed => break,
                Prepared::Another { job, .. } if params.verdict.is_some() => {
                    let path = output.path.display();
                    return Err(JobError::program(format!("{path}: job {job} has claimed it meanwhile")));
                }
                Prepared::Another { job, over } => {
                    let over = over || known_to_be_over(futures.is_over(job).await)?;
                    if over {
                        let path = output.path.display();
                        futures.say(&format!("{path} was claimed by job {job}, which is over: taking it over"))?;
                    }
                    params.verdict = Some((job, over));
                }
            }
        }
        let folder = OutputFolder::new(&output.path, futures.job()).map_err(JobError::program)?;
        *lock.lock() = folder.lock();
        Ok(output)
    }

    /// Gives the files of these outputs of reduces their names: the last thing that a job does.
    pub async fn commit(self, reduced: &[ObjectRef], schema: Schema) -> Result<(), JobError> {
        let files = self.futures.set(reduced)?;
        let params = CommitParams { output: self.path.clone(), program: self.program.to_owned(), schema };
        self.futures.ready(&self.futures.submit(commit, &params, &[files.arg()])?).await
    }
}

/// How long each of the buffers is that files of a plan are written with in the folder `output`: as the plan says, and where the file
/// system wants longer requests and files are as long on average, as that says.
pub fn buffer_bytes(plan: &Plan, output: &Path) -> u64 {
    let wanted = Location::from(output).system().map_or(0, |system| system.write_bytes());
    let file_bytes = plan.input_bytes / u64::from(plan.partitions.max(1));
    // Both buffers of all executors have a quarter of the memory at most, as what they merge has.
    let wanted = wanted.min(file_bytes).min(plan.merge_memory_bytes / 2);
    plan.output_buffer_bytes.max(wanted.next_multiple_of(STRIDE_BYTES as u64))
}

/// The two buffers of `bytes` bytes that a file is written with. A task that takes them asks for them, each, when it is
/// submitted.
///
/// # Errors
/// It did not, and there is no room.
pub fn output_buffers(context: &mut TaskContext<'_>, bytes: u64) -> Result<Vec<IoBuffer>, TaskError> {
    let mut buffer = || -> Result<IoBuffer, TaskError> { Ok(Box::new(context.scratch(bytes)?)) };
    Ok(vec![buffer()?, buffer()?])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use exobus_files::ContentHash;

    use super::*;

    #[derive(Serialize)]
    struct Reduced {
        tokens: Vec<Token>,
    }

    #[test]
    fn a_commit_asks_for_what_the_names_of_very_many_files_take() {
        let token = |output: usize, file: usize| {
            let name = format!("day=2024-01-31/city=number {file}/part-{output:05}");
            let hash = ContentHash::of_blocks(0, name.as_bytes());
            Token { temporary: format!("{name}.{}-00001", "f".repeat(32)), name, rows: 1, bytes: 1, hash }
        };
        let output = |output, files| {
            let tokens = (0..files).map(|file| token(output, file)).collect();
            rmp_serde::to_vec_named(&Reduced { tokens }).unwrap()
        };
        let outputs = [output(0, 10), output(1, 20_000), output(2, 0)];
        let names: BTreeSet<String> = (0..20_000).map(|file| token(1, file).name).collect();
        let of_names: usize = names.iter().map(|name| size_of::<String>() + name.capacity()).sum();
        let decoded = Finished::of(&outputs[1]).unwrap();
        let texts: usize = decoded.tokens().map(|token| token.name.capacity() + token.temporary.capacity()).sum();
        let list = decoded.tokens.as_ref().map_or(0, Vec::capacity) * size_of::<Token>();
        let asked = commit_bytes(&outputs).unwrap();
        assert!((of_names + texts + list) as u64 <= asked, "{asked} for {of_names}, {texts} and {list}");
        assert!(asked > COMMIT_BYTES && commit_bytes(&outputs[..1]).unwrap() < COMMIT_BYTES);
        assert!(commit_bytes(&[rmp_serde::to_vec_named(&()).unwrap()]).is_err());
    }
}
