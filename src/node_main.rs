//! [`node_main`]: a binary of one's own as a node.

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;

use crate::{
    allocator,
    cli::{NodeArgs, exit_codes},
    commands,
    exit::{Exit, Failure},
    isolation, limits, logging, objects, stdout,
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
    let args = match parse(std::env::args_os()) {
        Ok(NodeCommand { args }) => args,
        Err(ended) => return ended,
    };
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

/// The command line that these arguments are.
///
/// # Errors
/// They ask for help, which was printed: the process ends so. Where they are wrong it ends here.
pub fn parse<C: Parser>(arguments: impl Iterator<Item = OsString>) -> Result<C, ExitCode> {
    C::try_parse_from(arguments).map_err(|error| {
        if error.use_stderr() {
            error.exit();
        }
        // Whether it could be written is looked at by `end`.
        let _ = stdout::written(|| error.print());
        end(Ok(Exit::Success))
    })
}

/// How a command ended, for the shell; says on stderr why it failed, or why what it printed is not there.
pub fn end(result: Result<Exit, Failure>) -> ExitCode {
    match result.and_then(|exit| stdout::check().map(|()| exit)) {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit.code())
        }
    }
}
