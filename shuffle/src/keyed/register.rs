//! How a type becomes a program and six task functions by name.

use std::marker::PhantomData;
use std::sync::Arc;

use exobus_actors::registry::TaskFunction;

use super::KeyedJob;
use super::merging::{MergeParams, ReduceParams, Reduced};
use super::tasks::{Found, ListParams, Listed, MapParams, ProbeParams, Probed, SplitParams};

/// A job with a name; implemented by [`keyed_job!`](crate::keyed_job).
pub trait Registered: KeyedJob {
    /// Its name.
    const NAME: &'static str;
    /// Changes whenever its results change.
    const VERSION: u32;
    /// Name and version of a stage's task function.
    fn key(stage: &'static str) -> Arc<str> {
        Arc::from(format!("{}.{stage}@{}", Self::NAME, Self::VERSION))
    }
}

/// A stage of every job.
#[doc(hidden)]
pub trait Stage {
    const NAME: &'static str;
    type Params<J: Registered>: serde::Serialize;
    type Value: serde::de::DeserializeOwned;
}

macro_rules! stages {
    ($($(#[$doc:meta])* $stage:ident $name:literal ($params:ty) -> $value:ty;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $stage;

            impl Stage for $stage {
                const NAME: &'static str = $name;
                type Params<J: Registered> = $params;
                type Value = $value;
            }
        )*
    };
}

/// The stages, as types.
pub(super) mod stage {
    use super::*;

    stages! {
        /// Lists the input.
        List "list" (ListParams<J>) -> Listed;
        /// Finds where rows begin.
        Split "split" (SplitParams<J>) -> Found;
        /// Sees how large rows are.
        Probe "probe" (ProbeParams<J>) -> Probed;
        /// Makes rows.
        Map "map" (MapParams<J>) -> ();
        /// Merges parts.
        Merge "merge" (MergeParams<J>) -> ();
        /// Makes a file.
        Reduce "reduce" (ReduceParams<J>) -> Reduced;
    }
}

/// The task function of stage `S` of job `J`, for where it is submitted.
#[derive(Debug)]
pub struct KeyedFunction<J, S>(PhantomData<(J, S)>);

impl<J, S> KeyedFunction<J, S> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<J: Registered, S: Stage> TaskFunction for KeyedFunction<J, S> {
    type Params = S::Params<J>;
    type Value = S::Value;
    /// Of the stage; the whole name, with the job's, is in the key.
    const NAME: &'static str = S::NAME;
    const VERSION: u32 = J::VERSION;
    // Nothing holds functions of users to the same bytes.
    const DETERMINISTIC: bool = false;

    fn key() -> Arc<str> {
        J::key(S::NAME)
    }
}

/// Registers a type that implements [`KeyedJob`](crate::keyed::KeyedJob) under a name and a version: a program of that name,
/// one that explains it ("name.explain"), and a task function for each stage ("name.map@1").
///
/// ```ignore
/// exobus_shuffle::keyed_job!(WordCount, "wordcount", 1);
/// ```
#[macro_export]
macro_rules! keyed_job {
    ($job:ty, $name:literal, $version:literal) => {
        impl $crate::keyed::Registered for $job {
            const NAME: &'static str = $name;
            const VERSION: u32 = $version;
        }

        $crate::keyed_job!(@stages $job, $name, $version, Whole, list split probe map);
        $crate::keyed_job!(@stages $job, $name, $version, Either, merge reduce);

        $crate::keyed_job!(@program $job, $name, $version, run, KeyedParams, Some(|job, bytes| {
            if let Ok(params) = $crate::actors::decode_params::<$crate::keyed::KeyedParams<$job>>(bytes) {
                $crate::keyed::give_back(job, &params.output);
            }
        }));
        $crate::keyed_job!(@program $job, concat!($name, ".explain"), $version, explain, ExplainParams, None);
    };
    (@program $job:ty, $name:expr, $version:literal, $run:ident, $params:ident, $give_back:expr) => {
        $crate::actors::inventory::submit! {
            $crate::actors::registry::Program {
                name: $name,
                version: $version,
                run: |futures, bytes| {
                    ::std::boxed::Box::pin(async move {
                        let params = $crate::actors::decode_params::<$crate::keyed::$params<$job>>(bytes)
                            .map_err($crate::actors::task::JobError::program)?;
                        $crate::actors::encode_result(&$crate::keyed::$run(futures, params).await?)
                    })
                },
                give_back: $give_back,
                needs: |_| $crate::actors::task::Resources::default(),
                check: |bytes| {
                    let params = $crate::actors::check_params::<$crate::keyed::$params<$job>>(bytes)?;
                    Ok(params.paths())
                },
            }
        }
    };
    (@stages $job:ty, $name:literal, $version:literal, $mode:ident, $($stage:ident)*) => {
        $(
            $crate::actors::inventory::submit! {
                $crate::actors::registry::Function {
                    name: concat!($name, ".", stringify!($stage)),
                    version: $version,
                    modes: &[$crate::actors::registry::Mode::$mode],
                    setup: None,
                    deterministic: false,
                    module: ::core::module_path!(),
                    call: $crate::keyed::call::$stage::<$job>,
                }
            }
        )*
    };
}
