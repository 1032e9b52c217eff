//! The border to decoders of libraries.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a library on bytes that nobody vouches for. Decoders check most of what they read, and assert the rest (`parquet` 59.3: levels that do not end with
/// their page, lengths that are not multiples, delta blocks that end early; `arrow-ipc` 59.3: types of a schema that there are not); an assertion that fails there says that the
/// file is damaged, not that this program is.
///
/// What ran is not used again by the callers after an error, so nothing sees a state that was left halfway.
pub(crate) fn guarded<T, E: Display>(run: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(text(&error.to_string())),
        Err(panic) => Err(format!("its decoder gave up ({})", said(panic.as_ref()))),
    }
}

/// What a library says, without its own names before it.
fn text(error: &str) -> String {
    let known = [
        "Parquet error: ",
        "Parquet argument error: ",
        "External: ",
        "EOF: ",
        "Arrow: ",
        "NYI: ",
        "Ipc error: ",
        "Parser error: ",
        "Invalid argument error: ",
    ];
    let mut text = error;
    while let Some(rest) = known.iter().find_map(|head| text.strip_prefix(head)) {
        text = rest;
    }
    text.to_owned()
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}
