//! `exobus config`: print the defaults, check a file.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use exobus_actors::random::{Random as _, SystemRandom};

use crate::{
    cli::{ConfigAction, ConfigArgs},
    config::{NodeConfig, Overrides, keys},
    exit::{Exit, Failure, OrExit},
};

/// Runs it.
pub fn run(args: &ConfigArgs) -> Result<Exit, Failure> {
    match &args.action {
        ConfigAction::Default => {
            // A closed pipe (`| head`) is the reader's business.
            let _ = io::stdout().lock().write_all(keys::default_toml().as_bytes());
        }
        ConfigAction::Check { file } => {
            let config = NodeConfig::load(Some(file), &Overrides::default()).or_exit(Exit::Usage)?;
            config.node_credentials().or_exit(Exit::Usage)?;
            println!("{} is right", file.display());
        }
        ConfigAction::Token { file } => {
            let what = format!("make the token file {}", file.display());
            make_token(file).or_exit(Exit::InputOutput).map_err(|failure| failure.context(what))?;
        }
    }
    Ok(Exit::Success)
}

/// Writes a new token of 256 random bits to a new file of mode 0600.
pub fn make_token(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{:032x}{:032x}", SystemRandom.next_u128(), SystemRandom.next_u128())
}
