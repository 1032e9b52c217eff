//! Strategies: when and where the tasks of a shuffle run. One short file each.

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::task::Output;
use serde::{Deserialize, Serialize};

use crate::error::ShuffleError;
use crate::job::Job;
use crate::plan::Plan;

pub mod simple;

/// What a strategy leaves.
#[derive(Debug)]
pub struct Shuffled {
    /// The outputs of the reduces, in order of partitions; they may not exist yet.
    pub outputs: Vec<ObjectRef>,
    /// What all maps sealed together, counted from what they read.
    pub mapped: Output,
}

/// Which strategy; each variant has only its own knobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Reduces pull their part of every map output.
    #[default]
    Simple,
}

impl Strategy {
    /// All names, for help and errors.
    pub const NAMES: [&'static str; 1] = ["simple"];

    /// The name as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
        }
    }

    /// Runs `job` over `maps` inputs; returns when all maps have ended.
    ///
    /// # Errors
    /// A task cannot be submitted or fails.
    pub async fn run(
        self,
        futures: &Futures,
        job: &impl Job,
        maps: usize,
        plan: &Plan,
    ) -> Result<Shuffled, ShuffleError> {
        match self {
            Self::Simple => simple::run(futures, job, maps, plan).await,
        }
    }
}

impl std::str::FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "simple" => Ok(Self::Simple),
            other => Err(format!("unknown strategy {other:?}: choose one of {}", Self::NAMES.join(", "))),
        }
    }
}
