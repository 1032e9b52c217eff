//! Jobs in one process, with a folder of their own for what they tell and for the logs of their jobs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use rustix::process::Pid;

use super::cluster::{Events, watched};
use super::ground::{Ground, Run};

/// See the module. The folder is removed when it is dropped.
pub(super) struct Alone<'a> {
    ground: &'a Ground,
    folder: PathBuf,
}

impl<'a> Alone<'a> {
    pub(super) fn new(ground: &'a Ground) -> Result<Self> {
        let folder = ground.path("alone");
        fs::create_dir(&folder)?;
        Ok(Self { ground, folder })
    }

    /// A path in its folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A command of the binary, to be run below another program where there is one.
    pub(super) fn command(&self, wrapper: &[&str], args: &[impl AsRef<str>]) -> Command {
        let mut command = self.ground.within(wrapper, args);
        command.env("XDG_STATE_HOME", self.path("state")).env("EXOBUS_LOG", "info");
        command
    }

    /// The job that spills, with more arguments.
    pub(super) fn job(&self, wrapper: &[&str], more: &[&str]) -> Command {
        let mut args = self.ground.job_args();
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        self.command(wrapper, &args)
    }

    /// Runs such a command. `harm` is called with its events and its process until it says that it is done.
    pub(super) fn run(
        &self,
        mut command: Command,
        harm: impl FnMut(&Events, Pid) -> Result<bool>,
    ) -> Result<(Run, Events)> {
        let events = self.path("events");
        let _ = fs::remove_file(&events);
        command.arg("--events").arg(&events);
        watched(command, &["out", "err"].map(|name| self.path(name)), &events, harm)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
