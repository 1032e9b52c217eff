//! Where a sort reads and writes: what the user named, or what was made for `--generate`.

use std::path::{Path, PathBuf};

use crate::{
    cli::SortArgs,
    commands::generate::{failure as file_failure, interrupted, io_threads},
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    machine,
    report::bytes,
    temporary::Temporary,
};
use exobus_shuffle::{
    files::{Generated, generate_dir_until, list_inputs, prepare_output_dir},
    records::{Mode, RECORD_BYTES},
};

/// Generated input lies in so many files, so that reading begins at several places.
const GENERATED_FILES: usize = 4;

/// Input and output, made and cleaned up.
pub(super) struct Folders {
    inputs: Vec<PathBuf>,
    output: PathBuf,
    /// Whether the output folder was made for this sort and goes when nothing came of it.
    made_output: bool,
    /// What was generated, with `--generate`.
    pub(super) generated: Option<Generated>,
    /// Holds the generated input, and the output unless that was named.
    temporary: Option<Temporary>,
}

impl Folders {
    /// Looks at the input, prepares the output folder, generates what is to be generated.
    pub(super) fn prepare(args: &SortArgs, interrupt: &Interrupt) -> Result<Self, Failure> {
        let temporary = args.generate.map(|_| make_temporary()).transpose()?;
        let inside = |name: &str| temporary.as_ref().map(|folder| folder.path().join(name));
        let output = args.output.clone().or_else(|| inside("output")).expect("clap requires one of them");

        let mut made_output = false;
        let (inputs, generated) = match args.generate {
            Some(size) => {
                // What is wrong with the output should be known before gigabytes are made.
                made_output = prepare_output_dir(&output).map_err(file_failure)?;
                let input = inside("input").expect("made for --generate");
                let records = (size / RECORD_BYTES as u64).max(1);
                eprintln!("generating {} in {}", bytes(records * RECORD_BYTES as u64), input.display());
                let files = GENERATED_FILES.min(records as usize);
                let stop = || interrupt.came();
                let made = generate_dir_until(&input, Mode::default(), 0, records, files, io_threads(), &stop)
                    .map_err(file_failure)
                    .and_then(|made| made.ok_or_else(interrupted));
                if made.is_err() && made_output {
                    let _ = std::fs::remove_dir(&output);
                }
                (vec![input], Some(made?))
            }
            None => {
                if args.cluster.is_none() {
                    // The job looks again; here it costs nothing and the error is the plain one.
                    list_inputs(&args.input).map_err(file_failure)?;
                    made_output = prepare_output_dir(&output).map_err(file_failure)?;
                }
                (args.input.clone(), None)
            }
        };
        let mut folders = Self { inputs, output, made_output, generated, temporary };
        if args.cluster.is_some() {
            // The nodes work in other folders than we do.
            folders.output = std::path::absolute(&folders.output).or_exit(Exit::Usage)?;
            for input in &mut folders.inputs {
                *input = std::path::absolute(&*input).or_exit(Exit::Usage)?;
            }
        }
        Ok(folders)
    }

    pub(super) fn inputs(&self) -> &[PathBuf] {
        &self.inputs
    }

    pub(super) fn output(&self) -> &Path {
        &self.output
    }

    /// The output folder for people.
    pub(super) fn describe_output(&self) -> String {
        let temporary = self.temporary.as_ref().is_some_and(|folder| self.output.starts_with(folder.path()));
        match temporary {
            true => "a temporary folder (--output DIR keeps them)".into(),
            false => self.output.display().to_string(),
        }
    }

    /// The sort went well: its output stays.
    pub(super) fn keep_output(&mut self) {
        self.made_output = false;
    }
}

fn make_temporary() -> Result<Temporary, Failure> {
    let parent = machine::big_temporary_folder();
    Temporary::make(&parent, "exobus-sort-")
        .or_exit(Exit::InputOutput)
        .map_err(|failure| failure.context(format!("make a temporary folder in {}", parent.display())))
}

impl Drop for Folders {
    fn drop(&mut self) {
        if self.made_output {
            // Only when it is empty: what somebody else has put there is not ours.
            let _ = std::fs::remove_dir(&self.output);
        }
    }
}
