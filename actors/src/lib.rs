//! The actors of exobus, and the futures API that programs see.

extern crate self as exobus_actors;

mod admission;
pub mod api;
mod arena;
pub mod client;
mod durable;
pub mod election;
pub mod event;
pub mod futures;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod host;
pub mod ids;
pub mod isolation;
pub mod joblog;
pub mod jobs;
pub mod joining;
pub mod membership;
pub mod merger;
pub mod node;
pub mod node_manager;
pub mod owner;
pub mod printing;
pub mod protocol;
pub mod random;
pub mod registry;
pub mod results;
pub mod scheduler;
mod services;
pub mod shell;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod spec;
pub mod task;
pub mod tenants;
pub mod transfer;
pub mod words;

#[cfg(test)]
mod protocol_tests;

pub use exobus_files::paths;

pub use ::futures::future::LocalBoxFuture;
pub use exobus_macros::{program, task};
pub use inventory;

/// The text of a panic, as far as it has one.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}

/// An error with its causes, outermost first.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string);
    causes.collect::<Vec<_>>().join(": ")
}

/// Decodes the parameters of a task or a program: what the macros call.
///
/// # Errors
/// The bytes are no such parameters.
#[doc(hidden)]
pub fn decode_params<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, registry::TaskError> {
    task::decode(bytes).map_err(|error| registry::TaskError::fatal(format!("parameters: {error}")))
}

/// Decodes the parameters of a program before it runs: what the macros call.
///
/// # Errors
/// The bytes are no such parameters.
#[doc(hidden)]
pub fn check_params<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    task::decode(bytes).map_err(|error| {
        // What MessagePack's reader says of a wrong type is for programmers; what JSON's says of the same value names both types.
        let value = spec::Plain::of(bytes).ok();
        let in_words = value.and_then(|spec::Plain(value)| serde_json::from_value::<T>(value).err());
        in_words.map_or_else(|| error.to_string(), |error| error.to_string())
    })
}

/// Encodes what a program returned: what the macros call.
///
/// # Errors
/// The value cannot be encoded.
#[doc(hidden)]
pub fn encode_result<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, task::JobError> {
    rmp_serde::to_vec_named(value).map_err(task::JobError::program)
}
