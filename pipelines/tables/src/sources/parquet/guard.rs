//! The border to the library's decoders.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;

/// Runs the library on bytes that nobody vouches for. Its decoders check most of what they read, and assert the rest (`parquet` 59.3: levels that do not end with
/// their page, lengths that are not multiples, delta blocks that end early); an assertion that fails there says that the file is damaged, not that this program is.
///
/// What ran is not used again by the callers after an error, so nothing sees a state that was left halfway.
pub(super) fn guarded<T>(run: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(text(&error)),
        Err(panic) => Err(format!("its decoder gave up ({})", said(panic.as_ref()))),
    }
}

/// What the library says, without its own name before it.
pub(super) fn text(error: &ParquetError) -> String {
    let text = error.to_string();
    let known = ["Parquet error: ", "EOF: ", "Arrow: ", "NYI: "];
    known.iter().find_map(|head| text.strip_prefix(head)).unwrap_or(&text).to_owned()
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}
