//! `exobus config`: print the defaults, check a file.

use std::io::Write;

use crate::{
    cli::{ConfigAction, ConfigArgs},
    config::{NodeConfig, Overrides, keys},
    exit::{Exit, Failure, OrExit},
};

/// Runs it.
pub fn run(args: &ConfigArgs) -> Result<(), Failure> {
    match &args.action {
        ConfigAction::Default => {
            // A closed pipe (`| head`) is the reader's business.
            let _ = std::io::stdout().lock().write_all(keys::default_toml().as_bytes());
        }
        ConfigAction::Check { file } => {
            let config = NodeConfig::load(Some(file), &Overrides::default()).or_exit(Exit::Usage)?;
            config.token().or_exit(Exit::Usage)?;
            println!("{} is right", file.display());
        }
    }
    Ok(())
}
