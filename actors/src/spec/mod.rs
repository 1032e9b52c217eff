//! Jobs as people write them, and what runs then.
//!
//! A [`Spec`] is a few common fields and those of its [`Kind`]: a text of TOML or JSON with names and words that people know. A
//! [`Plan`] is a program of the [registry](crate::registry) with its parameters, made of a spec once, where the files are. Kinds
//! register themselves; every program of the registry is one, too.

mod common;
mod error;
mod field;
mod fields;
mod json;
mod kind;
mod nearest;
mod parse;
mod plain;
mod plan;
mod schema;
#[cfg(test)]
mod tests;
pub mod units;
mod value;

use std::time::Duration;

use serde_json::{Map, Value};

use crate::registry::{Paths, Roots};

pub use error::{SpecCode, SpecError, shown};
pub(crate) use error::{conceal, conceal_all};
pub use field::{Field, Need, Takes};
pub use fields::{Fields, path_value};
pub use kind::{Kind, kinds};
pub use nearest::nearest;
pub use plain::Plain;
pub use plan::Plan;
pub use schema::{all_schemas, program_schema, schema};

/// Most bytes of the text of a spec.
pub const SPEC_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a plan's parameters.
pub const PLAN_BYTES_MAX: usize = 4 << 20;
/// How deep lists and tables of a spec may be within each other.
pub const DEPTH_MAX: usize = 32;

/// A job as people write it.
#[derive(Clone, PartialEq)]
pub struct Spec {
    /// What is done: the name of a [`Kind`], or a program, "sort@3", "sort".
    pub kind: String,
    /// What whoever submits it calls it.
    pub name: Option<String>,
    /// Jobs of higher priority start first: -100 to 100.
    pub priority: i32,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// `idempotency_key`: a spec that is submitted again with the same one is the same job. 1 to 128 printable ASCII characters.
    pub key: Option<String>,
    /// What the kind is told.
    pub fields: Map<String, Value>,
}

impl Spec {
    /// A spec of a kind that is told these fields, and nothing else.
    pub fn new(kind: impl Into<String>, fields: Map<String, Value>) -> Self {
        Self { kind: kind.into(), name: None, priority: 0, timeout: None, key: None, fields }
    }

    /// Reads a spec from TOML, or from JSON where the first byte that is no blank is `{`.
    ///
    /// # Errors
    /// The text is too large, nested too deep, broken, or a common field is wrong: each says where. Fields of the kind are looked at
    /// by [`Spec::plan`].
    pub fn parse(text: &[u8]) -> Result<Self, SpecError> {
        common::of(parse::table(text)?)
    }

    /// The same with fields that are said otherwise: names, with dots between those of tables in tables, and values as TOML has them,
    /// or as texts where they are no such.
    ///
    /// # Errors
    /// As of [`Spec::parse`], and where a table is none.
    pub fn parse_with(text: &[u8], set: &[(String, String)]) -> Result<Self, SpecError> {
        let mut table = parse::table(text)?;
        set.iter().try_for_each(|(name, value)| common::set(&mut table, name, value))?;
        common::of(table)
    }

    /// The spec as JSON with sorted keys: specs that say the same in the same words are the same bytes.
    pub fn canonical(&self) -> Vec<u8> {
        common::canonical(self)
    }

    /// What runs: made once, when the job is admitted. Kinds may look at the files that are named, so it may block, and whoever
    /// may not use all files checks [`Spec::paths`] before.
    ///
    /// # Errors
    /// There is no such kind or program, or it cannot do with these fields: each says which field, and what was expected.
    pub fn plan(&self) -> Result<Plan, SpecError> {
        kind::plan(self, &Roots::default())
    }

    /// The same for somebody who may look at files below these roots: no link leads a kind out of them.
    ///
    /// # Errors
    /// As of [`Spec::plan`].
    pub fn plan_within(&self, roots: &Roots) -> Result<Plan, SpecError> {
        kind::plan(self, roots)
    }

    /// What runs to say what the job would do; an output need not be named.
    ///
    /// # Errors
    /// As of [`Spec::plan`], and where the kind is a program.
    pub fn explain(&self) -> Result<Plan, SpecError> {
        kind::explain(self, &Roots::default())
    }

    /// The same for somebody who may look at files below these roots.
    ///
    /// # Errors
    /// As of [`Spec::explain`].
    pub fn explain_within(&self, roots: &Roots) -> Result<Plan, SpecError> {
        kind::explain(self, roots)
    }

    /// The paths that it names, as far as it is known without a look at files: what is to be checked before it is planned by somebody
    /// who may not use all files.
    ///
    /// # Errors
    /// There is no such kind or program, or a field is wrong.
    pub fn paths(&self) -> Result<Paths, SpecError> {
        kind::paths(self)
    }

    /// Refuses paths that are seen from a folder: whoever plans for somebody else works in another one.
    ///
    /// # Errors
    /// Those of [`Spec::paths`], and where a path is relative.
    pub fn check_absolute(&self) -> Result<(), SpecError> {
        kind::check_absolute(self)
    }

    /// Makes the paths of a kind absolute, seen from the folder that this process works in. The parameters of a program stay as they
    /// are.
    ///
    /// # Errors
    /// The folder is not known.
    pub fn make_absolute(&mut self) -> std::io::Result<()> {
        kind::make_absolute(self)
    }
}

/// Shows no values: some may be secrets.
impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fields: Vec<String> = self.fields.keys().map(|name| shown(name)).collect();
        f.debug_struct("Spec").field("kind", &shown(&self.kind)).field("fields", &fields).finish_non_exhaustive()
    }
}
