//! Where the workspace and its build outputs are, and how cargo is called.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, bail, ensure};

/// The workspace that this xtask belongs to.
pub struct Workspace {
    /// The folder of the root `Cargo.toml`.
    pub root: PathBuf,
    /// Where cargo puts what it builds; respects `CARGO_TARGET_DIR` and `build.target-dir`.
    pub target_dir: PathBuf,
    /// Its packages, by name.
    pub crates: Vec<CrateRoot>,
}

/// Where the sources of a package begin.
pub struct CrateRoot {
    /// The name of the package.
    pub name: String,
    /// The file of its library, or of its program where it has no library.
    pub root: PathBuf,
}

impl Workspace {
    /// Asks cargo.
    pub fn find() -> Result<Self> {
        let output = Command::new(cargo_program())
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .context("run `cargo metadata`")?;
        ensure!(output.status.success(), "`cargo metadata`: {}", String::from_utf8_lossy(&output.stderr));
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("read `cargo metadata`")?;
        let path = |key: &str| {
            metadata[key].as_str().map(PathBuf::from).with_context(|| format!("`cargo metadata` has no {key}"))
        };
        let packages = metadata["packages"].as_array().context("`cargo metadata` has no packages")?;
        let mut crates: Vec<_> = packages.iter().filter_map(crate_root).collect();
        crates.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { root: path("workspace_root")?, target_dir: path("target_directory")?, crates })
    }

    /// A cargo command in the root of the workspace, as if from a terminal: what cargo says to a program that it runs would
    /// change how build scripts see the world, and crates would be built again after each change between the two.
    pub fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(cargo_program());
        command.args(args).current_dir(&self.root);
        let told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(told)) {
            command.env_remove(name);
        }
        command
    }
}

fn crate_root(package: &serde_json::Value) -> Option<CrateRoot> {
    let targets = package["targets"].as_array()?;
    let of_kind = |wanted: &str| {
        let is = |target: &&serde_json::Value| {
            target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|it| it == wanted))
        };
        targets.iter().find(is)
    };
    let target = of_kind("lib").or_else(|| of_kind("proc-macro")).or_else(|| of_kind("bin"))?;
    Some(CrateRoot { name: package["name"].as_str()?.to_owned(), root: target["src_path"].as_str()?.into() })
}

/// The cargo that runs us, so that a `cargo +toolchain xtask` keeps its toolchain.
fn cargo_program() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs a command with its output visible; an error when it does not end with status 0.
pub fn run_visibly(command: &mut Command) -> Result<()> {
    let line = display(command);
    eprintln!("xtask: {line}");
    let status = command.status().with_context(|| format!("start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// Runs a command silently; an error that carries the last lines of what it said.
pub fn run_quietly(command: &mut Command) -> Result<String> {
    let line = display(command);
    let output = command.output().with_context(|| format!("start `{line}`"))?;
    if !output.status.success() {
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let mut tail: Vec<&str> = said.lines().filter(|text| !text.trim().is_empty()).rev().take(3).collect();
        tail.reverse();
        bail!("`{line}` ended with {}: {}", output.status, tail.join(" / "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn display(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    std::iter::once(name)
        .chain(command.get_args().map(|arg| arg.to_string_lossy().into_owned()))
        .collect::<Vec<_>>()
        .join(" ")
}
