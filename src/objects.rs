//! Object stores, as this process and its executors reach them.

use std::{
    env,
    ffi::OsString,
    sync::{Mutex, Once, PoisonError},
};

pub use exobus_objects::{Addresses, AddressesError, S3Keys, Settings, Usage};

use crate::{
    config::{NodeConfig, Overrides, environment},
    exit::{Exit, Failure, OrExit},
};

/// Tells an executor process what this process was told. It has no double underscore, as it is no configuration.
const HANDED_ON: &str = "EXOBUS_OBJECTS";

static LAST: Mutex<Option<Settings>> = Mutex::new(None);
static BY_ITSELF: Once = Once::new();

/// Has URLs of object stores and web servers mean what these settings say, in all of the process, from now on: for who does not want what
/// `EXOBUS_OBJECTS__...` and the AWS tools say.
pub fn register(settings: &Settings) {
    BY_ITSELF.call_once(|| {});
    register_and_note(settings);
}

fn register_and_note(settings: &Settings) {
    exobus_objects::register(settings);
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings.clone());
}

/// The same for a configuration. `is_alone`: this process runs the jobs of whoever started it, and no others.
pub(crate) fn register_configured(config: &NodeConfig, is_alone: bool) -> Result<(), Failure> {
    register(&config.objects(is_alone).or_exit(Exit::Usage)?);
    Ok(())
}

/// Registers what the environment says, where nothing was registered: for commands and libraries that read no configuration.
pub(crate) fn register_by_itself() {
    BY_ITSELF.call_once(|| {
        let config = NodeConfig::load_with(None, &Overrides::default(), environment());
        // A command that needs it says what is wrong with it.
        register_and_note(&config.and_then(|config| config.objects(true)).unwrap_or_default());
    });
}

/// Registers what the node of this executor process was told. Where that was nothing, no URL is known: it would have the rights of the
/// process.
pub(crate) fn register_handed_on() {
    if let Some(settings) = env::var(HANDED_ON).ok().and_then(|text| serde_json::from_str(&text).ok()) {
        exobus_objects::register(&settings);
    }
}

/// What executor processes of this one find in their environment.
pub(crate) fn handed_on() -> Vec<(&'static str, OsString)> {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let text = last.as_ref().and_then(|settings| serde_json::to_string(settings).ok());
    text.map(|text| (HANDED_ON, text.into())).into_iter().collect()
}
