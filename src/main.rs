//! The binary: parse, start logging, run, exit code.

use std::process::ExitCode;

use exobus::{
    cli::{self, Cli, Command},
    commands,
    exit::{Exit, Failure},
    limits, logging, node_main,
};

fn main() -> ExitCode {
    node_main::enter();
    let Cli { command } = match node_main::parse(cli::arguments()) {
        Ok(cli) => cli,
        Err(ended) => return ended,
    };
    logging::start(match command {
        // These run for long, and their log is what there is to see.
        Command::Node(_) | Command::Dev(_) => "info",
        _ => "warn",
    });
    node_main::end(limits::check().and_then(|()| run(command)))
}

fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Generate(args) => commands::generate::run(args),
        Command::Validate(args) => commands::validate::run(args),
        Command::Show(args) => commands::show::run(&args),
        Command::Sort(args) => commands::sort::run(&args),
        Command::Shuffle(args) => commands::tables::shuffle_rows(&args),
        Command::Dedupe(args) => commands::tables::dedupe_rows(&args),
        Command::Group(args) => commands::tables::group_rows(&args),
        #[cfg(feature = "sql")]
        Command::Query(args) => commands::query::run(&args),
        Command::Join(args) => commands::tables::join_rows(&args),
        Command::Repartition(args) => commands::tables::repartition_files(&args),
        Command::Convert(args) => commands::tables::convert_files(&args),
        Command::Wordcount(args) => commands::tables::wordcount(&args),
        Command::Aggregate(args) => commands::tables::aggregate(&args),
        Command::Run(args) => commands::spec::run(&args),
        Command::Submit(args) => commands::spec::submit(&args),
        Command::Schema(args) => commands::spec::schema(&args),
        Command::Resume(args) => commands::resume::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Node(args) => commands::node::run(&args),
        Command::Jobs(args) => commands::jobs::list(&args),
        Command::Job(args) => commands::jobs::ask(&args),
        Command::Result(args) => commands::results::run(&args),
        Command::Dev(args) => commands::dev::run(&args),
        Command::Config(args) => commands::config::run(&args),
        Command::Protocols(args) => commands::protocols::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::RunWithParent(args) => commands::run_with_parent::run(&args),
    }
}
