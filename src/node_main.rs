//! [`node_main`]: a binary of one's own as a node.

use std::process::ExitCode;

use clap::Parser;

use crate::{
    allocator,
    cli::{NodeArgs, exit_codes},
    commands,
    exit::{Exit, Failure},
    isolation, limits, logging, objects,
};

/// Runs a node of a cluster until Ctrl-C or SIGTERM; takes the options of `exobus node`
#[derive(Debug, Parser)]
#[command(version, after_help = exit_codes())]
struct NodeCommand {
    #[command(flatten)]
    args: NodeArgs,
}

/// The whole `main` of a binary that is a node with the functions and programs that are linked into it, besides those of exobus.
/// Its command line is that of `exobus node`: configuration, name, cluster, memory, and so on; `--help` lists them. Executors in
/// processes of their own (`node.executor = "process"`) are this binary again.
///
/// ```no_run,standalone_crate
/// use exobus::{TaskContext, TaskError, task};
///
/// #[task(name = "square", version = 1)]
/// fn square(_: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
///     Ok(number * number)
/// }
///
/// fn main() -> std::process::ExitCode {
///     exobus::node_main()
/// }
/// ```
pub fn node_main() -> ExitCode {
    enter();
    let NodeCommand { args } = NodeCommand::parse();
    logging::start("info");
    end(limits::check().and_then(|()| commands::node::run(&args)))
}

/// First thing in `main`: an executor process goes no further.
pub fn enter() {
    allocator::settle();
    if isolation::is_executor() {
        logging::start("warn");
        objects::register_handed_on();
        isolation::enter();
    }
    objects::register_by_itself();
}

/// How a command ended, for the shell; says on stderr why it failed.
pub fn end(result: Result<Exit, Failure>) -> ExitCode {
    match result {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit.code())
        }
    }
}
