//! Chores of the project: `cargo xtask test` runs every test, `cargo xtask fuzz` every decoder on made-up bytes,
//! `cargo xtask nats` provides a nats-server, `cargo xtask duckdb` DuckDB and `cargo xtask moto` a server of S3,
//! `cargo xtask chromium` a browser, `cargo xtask chaos` does harm to real processes.

mod chaos;
mod chromium;
mod cloudsort;
mod fuzz;
mod nats;
mod programs;
mod python;
mod structure;
mod tests;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the exobus workspace", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Runs every test of the workspace, with a nats-server and a Chromium provided when PATH has none, and DuckDB below `target/`.
    ///
    /// What follows `--` goes to the test runner, for example a filter; doc tests are then left out.
    Test {
        /// Arguments for `cargo nextest run` (or `cargo test` where nextest is not installed)
        #[arg(last = true)]
        runner_args: Vec<String>,
    },
    /// Runs rows of the fault matrix: real faults, done to real processes of the release binary.
    Chaos {
        /// Only rows of these numbers
        #[arg(long, value_delimiter = ',')]
        rows: Vec<u32>,
        /// The job that harm is done to; the rows about disks and nodes can do it to each
        #[arg(long, value_enum, default_value_t = chaos::Workload::Sort)]
        job: chaos::Workload,
        /// With the binary of the dev profile: sooner there, and slower
        #[arg(long)]
        dev: bool,
        /// Prints the rows there are and runs none
        #[arg(long)]
        list: bool,
    },
    /// Makes, sorts and checks records on object storage, a server on this machine, and says what 100 TB would cost.
    Cloudsort {
        /// How many GB; twice as much room and more is needed
        #[arg(long, default_value_t = 10)]
        gigabytes: u64,
        /// A folder for buckets and spill files; what a run before has left there is in the way
        #[arg(long)]
        folder: PathBuf,
        /// Of the sort
        #[arg(long, default_value = "4GiB")]
        memory: String,
    },
    /// Runs jobs on a cluster while faults happen at random, and checks each result, text and sample of memory.
    Soak {
        /// For how long
        #[arg(long, default_value_t = 60)]
        minutes: u64,
        /// Decides which jobs and faults there are, and in which order
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// This binary, instead of one that is built
        #[arg(long)]
        binary: Option<PathBuf>,
    },
    /// Builds the fuzzer, and runs decoders over the kept corpus and over inputs that coverage guides.
    ///
    /// Fails with the path of the input when a decoder panics.
    Fuzz {
        /// The decoder; all of them where none is named
        target: Option<String>,
        /// For how long each runs at most
        #[arg(long, value_name = "N", default_value_t = 10)]
        seconds: u64,
        /// How many inputs each gets at most
        #[arg(long, value_name = "N")]
        runs: Option<u64>,
        /// Take what reached something new into the corpus in the repository
        #[arg(long)]
        keep: bool,
    },
    /// Counts what makes crates hard to read: lines by kind, circles of modules, large types, long functions, names of two types.
    Structure {
        /// Crates; all of the workspace where none is named
        crates: Vec<String>,
    },
    /// Prints the path of a nats-server, fetching one below `target/` when PATH has none.
    Nats,
    /// Prints the path of a Python that has DuckDB, which results of tables are compared with, fetching it below `target/` when it is not there.
    Duckdb,
    /// Prints the path of a Python that has moto, a server of S3 that the file system of objects is tried with, fetching it likewise.
    Moto,
    /// Prints the path of a Chromium, which opens the web page of a job, fetching one below `target/` when PATH has none.
    Chromium,
}

fn main() -> ExitCode {
    let result = Workspace::find().and_then(|workspace| match Arguments::parse().chore {
        Chore::Test { runner_args } => tests::run(&workspace, &runner_args),
        Chore::Chaos { list: true, .. } => {
            chaos::list();
            Ok(())
        }
        Chore::Soak { minutes, seed, binary } => {
            chaos::soak::run(&workspace, &chaos::soak::Options { minutes, seed, binary })
        }
        Chore::Cloudsort { gigabytes, folder, memory } => cloudsort::run(&workspace, gigabytes, &folder, &memory),
        Chore::Chaos { rows, dev, job, .. } => chaos::run(&workspace, &rows, (job, dev)),
        Chore::Fuzz { target, seconds, runs, keep } => {
            fuzz::run(&workspace, &fuzz::Options { seconds, runs, target, keep })
        }
        Chore::Structure { crates } => structure::run(&workspace, &crates),
        Chore::Chromium => chromium::provide(&workspace).map(|chromium| println!("{}", chromium.path.display())),
        Chore::Moto => python::provide(&workspace, &python::MOTO).map(|python| println!("{}", python.display())),
        Chore::Duckdb => python::provide(&workspace, &python::DUCKDB).map(|python| println!("{}", python.display())),
        Chore::Nats => nats::provide(&workspace).map(|server| println!("{}", server.path.display())),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
