//! Word count, aggregation, random shuffle and jobs with functions of the user on one node, compared with what is computed in
//! memory.

/// A test for each strategy, `$check(strategy)`, in a module of its own: they run side by side.
macro_rules! for_every_strategy {
    ($module:ident, $check:path) => {
        mod $module {
            for_every_strategy!(@tests $check, simple Simple, riffle Riffle, push Push, two_stage TwoStage, streaming Streaming);
        }
    };
    (@tests $check:path, $($name:ident $strategy:ident),*) => {
        $(
            #[tokio::test]
            async fn $name() {
                $check(exobus_shuffle::Strategy::$strategy).await;
            }
        )*
    };
}

mod bad_input;
mod bad_jobs;
mod bench;
mod own_jobs;
mod shuffles;
mod small_files;
mod tables;
mod words;
