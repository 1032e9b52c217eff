//! Where a job reads and writes: what the user named, or what was made for `sort --generate`.

use std::path::{Path, PathBuf};

use crate::{
    commands::generate::{failure as file_failure, interrupted, io_threads},
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    machine,
    report::bytes,
    temporary::Temporary,
};
use exobus_files::{FileError, Location, check_output_folder};
use exobus_shuffle::{
    files::{Generated, generate_dir_until},
    records::{Mode, RECORD_BYTES},
};

/// Generated input lies in so many files, so that reading begins at several places.
const GENERATED_FILES: usize = 4;

/// Input and output, made and cleaned up.
pub(super) struct Folders {
    inputs: Vec<PathBuf>,
    output: PathBuf,
    /// What was generated, with `--generate`.
    pub(super) generated: Option<Generated>,
    /// Holds the generated input, and the output unless that was named.
    temporary: Option<Temporary>,
}

impl Folders {
    /// Looks at the input with `look`, and at the output folder, which the job claims. On a cluster the nodes do both: they
    /// work in other folders than we do.
    pub(super) fn named(
        inputs: &[PathBuf],
        output: &Path,
        on_cluster: bool,
        look: impl FnOnce(&[PathBuf]) -> Result<(), FileError>,
    ) -> Result<Self, Failure> {
        let mut folders = Self { inputs: inputs.to_vec(), output: output.to_owned(), generated: None, temporary: None };
        if !on_cluster {
            // The job lists it; what is wrong with a name is a plain error here.
            look(inputs).map_err(file_failure)?;
            check_output_folder(output).map_err(file_failure)?;
        }
        // A job may be taken up again by a process elsewhere.
        folders.make_absolute()?;
        Ok(folders)
    }

    /// Generates about `size` bytes of records; the output goes beside them unless it is named.
    pub(super) fn generate(
        size: u64,
        output: Option<&Path>,
        on_cluster: bool,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let temporary = make_temporary()?;
        let output = output.map_or_else(|| temporary.path().join("output"), Path::to_owned);
        // What is wrong with the output should be known before gigabytes are made.
        check_output_folder(&output).map_err(file_failure)?;
        let input = temporary.path().join("input");
        let records = (size / RECORD_BYTES as u64).max(1);
        eprintln!("generating {} in {}", bytes(records * RECORD_BYTES as u64), input.display());
        let mut folders = Self { inputs: vec![input.clone()], output, generated: None, temporary: Some(temporary) };
        let files = GENERATED_FILES.min(records as usize);
        let stop = || interrupt.came();
        let made = generate_dir_until(&input, Mode::default(), 0, records, files, io_threads(), &stop);
        folders.generated = Some(made.map_err(file_failure)?.ok_or_else(interrupted)?);
        if on_cluster {
            folders.make_absolute()?;
        }
        Ok(folders)
    }

    fn make_absolute(&mut self) -> Result<(), Failure> {
        for path in self.inputs.iter_mut().chain([&mut self.output]) {
            *path = Location::from(&*path).absolute().or_exit(Exit::Usage)?.to_path_buf();
        }
        Ok(())
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
}

fn make_temporary() -> Result<Temporary, Failure> {
    let parent = machine::big_temporary_folder();
    Temporary::make(&parent, "exobus-sort-")
        .or_exit(Exit::InputOutput)
        .map_err(|failure| failure.context(format!("make a temporary folder in {}", parent.display())))
}
