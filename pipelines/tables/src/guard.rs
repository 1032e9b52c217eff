//! The border to decoders of libraries.

use std::any::Any;
use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is caught here.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Sees to it that nothing is printed of panics that are caught here: the error says what they do, and that the file is damaged. Of all others as much is printed as
/// before.
fn print_no_guarded_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_GUARDED.get() {
                before(panic);
            }
        }));
    });
}

/// Runs a library on bytes that nobody vouches for. Decoders check most of what they read, and assert the rest (`parquet` 59.3: levels that do not end with
/// their page, lengths that are not multiples, delta blocks that end early; `arrow-ipc` 59.3: types of a schema that there are not); an assertion that fails there says that the
/// file is damaged, not that this program is.
///
/// What ran is not used again by the callers after an error, so nothing sees a state that was left halfway.
pub(crate) fn guarded<T, E: Display>(run: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    print_no_guarded_panics();
    let outer = IS_GUARDED.replace(true);
    let ran = catch_unwind(AssertUnwindSafe(run));
    IS_GUARDED.set(outer);
    match ran {
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
