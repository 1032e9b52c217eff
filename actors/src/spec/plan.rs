//! What runs.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{PLAN_BYTES_MAX, SpecCode, SpecError};
use crate::registry::{self, Paths};
use crate::task::Resources;

/// What runs: a program and what it is told.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Name and version of the program, "sort@3": a key of [`registry::programs`].
    pub program: String,
    /// Its parameters as MessagePack with field names.
    pub params: Bytes,
    /// Files and folders that it reads, or patterns of such.
    #[serde(with = "exobus_files::paths")]
    pub reads: Vec<PathBuf>,
    /// Folders that it writes.
    #[serde(with = "exobus_files::paths")]
    pub writes: Vec<PathBuf>,
    /// What the largest of its tasks needs of a node, as far as the program says so.
    #[serde(default)]
    pub needs: Resources,
}

impl Plan {
    /// The latest version of the program of this name with these parameters.
    ///
    /// # Errors
    /// There is no such program here, or the parameters are none of it, or too large.
    pub fn of(name: &str, params: &impl Serialize) -> Result<Self, SpecError> {
        let program = registry::latest(name)
            .ok_or_else(|| SpecError::new(SpecCode::UnknownKind, format!("no program is registered here as {name}")))?;
        Self::with(program, params)
    }

    /// This program with these parameters.
    ///
    /// # Errors
    /// The parameters are none of it, or too large.
    pub fn with(program: &registry::Program, params: &impl Serialize) -> Result<Self, SpecError> {
        let invalid = |text: String| SpecError::new(SpecCode::Invalid, text);
        let params = rmp_serde::to_vec_named(params).map_err(|error| invalid(error.to_string()))?;
        Self::again(program, params.into())
    }

    /// This program with parameters that a plan had.
    ///
    /// # Errors
    /// They are none of it, or too large.
    pub fn again(program: &registry::Program, params: Bytes) -> Result<Self, SpecError> {
        if params.len() > PLAN_BYTES_MAX {
            let text = format!("the plan has {} bytes, and may have {PLAN_BYTES_MAX}", params.len());
            return Err(SpecError::new(SpecCode::TooLarge, text));
        }
        let Paths { reads, writes } =
            (program.check)(&params).map_err(|text| SpecError::new(SpecCode::Invalid, text))?;
        let needs = (program.needs)(&params);
        Ok(Self { program: program.key(), params, reads, writes, needs })
    }
}

/// Shows no parameters: some may be secrets.
impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("program", &self.program)
            .field("params_bytes", &self.params.len())
            .field("reads", &self.reads.len())
            .field("writes", &self.writes.len())
            .finish()
    }
}
