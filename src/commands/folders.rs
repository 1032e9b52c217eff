//! Where `sort --generate` reads and writes: what was made for it.

use std::path::{Path, PathBuf};

use crate::{
    commands::generate::{failure as file_failure, interrupted, io_threads},
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    machine,
    report::bytes,
    temporary::Temporary,
};
use exobus_files::check_output_folder;
use exobus_shuffle::{
    files::{Generated, generate_dir_until},
    records::{Mode, RECORD_BYTES},
};

/// Generated input lies in so many files, so that reading begins at several places.
const GENERATED_FILES: usize = 4;

/// Input and output, made and cleaned up.
pub(super) struct Folders {
    input: PathBuf,
    output: PathBuf,
    generated: Generated,
    /// Holds the generated input, and the output unless that was named.
    temporary: Temporary,
}

impl Folders {
    /// Generates about `size` bytes of records; the output goes beside them unless it is named.
    pub(super) fn generate(size: u64, output: Option<&Path>, interrupt: &Interrupt) -> Result<Self, Failure> {
        let temporary = make_temporary()?;
        let output = output.map_or_else(|| temporary.path().join("output"), Path::to_owned);
        // What is wrong with the output should be known before gigabytes are made.
        check_output_folder(&output).map_err(file_failure)?;
        let input = temporary.path().join("input");
        let records = (size / RECORD_BYTES as u64).max(1);
        eprintln!("generating {} in {}", bytes(records * RECORD_BYTES as u64), input.display());
        let files = GENERATED_FILES.min(records as usize);
        let stop = || interrupt.came();
        let made = generate_dir_until(&input, Mode::default(), 0, records, files, io_threads(), &stop);
        let generated = made.map_err(file_failure)?.ok_or_else(interrupted)?;
        Ok(Self { input, output, generated, temporary })
    }

    /// What was generated.
    pub(super) fn generated(&self) -> &Generated {
        &self.generated
    }

    pub(super) fn inputs(&self) -> &[PathBuf] {
        std::slice::from_ref(&self.input)
    }

    pub(super) fn output(&self) -> &Path {
        &self.output
    }

    /// The output folder for people.
    pub(super) fn describe_output(&self) -> String {
        match self.output.starts_with(self.temporary.path()) {
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
