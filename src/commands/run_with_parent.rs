//! `exobus run-with-parent PROGRAM...`, hidden: becomes the program, which the kernel ends when our parent dies.
//!
//! So `exobus dev` leaves nothing behind even when it is killed. The setting survives `execve`, which makes it safe code
//! here where setting it between `fork` and `execve` would not be.

use std::{os::unix::process::CommandExt, process::Command};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::{
    cli::RunWithParentArgs,
    exit::{Exit, Failure, OrExit},
};

/// Does not return when all goes well.
pub fn run(args: &RunWithParentArgs) -> Result<Exit, Failure> {
    set_parent_process_death_signal(Some(Signal::TERM)).or_exit(Exit::InputOutput)?;
    // The parent may have died before that.
    if getppid().map(Pid::as_raw_nonzero).map(std::num::NonZero::get) != Some(args.parent) {
        return Err(Failure::text(Exit::Interrupted, "the parent is gone"));
    }
    let error = Command::new(&args.program[0]).args(&args.program[1..]).exec();
    Err(Failure::new(Exit::InputOutput, error).context(format!("start {}", args.program[0].display())))
}
