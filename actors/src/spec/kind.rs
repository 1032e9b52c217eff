//! Kinds of jobs by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use exobus_files::Location;
use serde_json::{Map, Value};

use super::field::{Field, Takes};
use super::fields::{path_of, path_value};
use super::nearest::hint;
use super::{Fields, Plan, Spec, SpecCode, SpecError, conceal_all, shown};
use crate::registry::{self, Paths, Program, Roots};

/// What jobs can be, with words for people. A kind registers itself with [`job_kind!`](crate::job_kind).
pub struct Kind {
    /// Its name, "sort".
    pub name: &'static str,
    /// What it does, in a sentence.
    pub doc: &'static str,
    /// Its fields.
    pub fields: &'static [Field],
    /// The JSON schema of its specs.
    pub schema: fn() -> Value,
    /// Makes a plan of its fields, for who may look below these roots.
    pub plan: fn(&Map<String, Value>, &Roots) -> Result<Plan, SpecError>,
    /// Makes a plan of them that only says what the job would do.
    pub explain: fn(&Map<String, Value>, &Roots) -> Result<Plan, SpecError>,
}

inventory::collect!(Kind);

/// Registers a kind: its name, what it does, its fields, and two functions of [`Fields`] that make plans, of the job and of its
/// explanation.
#[macro_export]
macro_rules! job_kind {
    ($name:literal, $doc:literal, $fields:expr, $plan:path, $explain:path) => {
        $crate::inventory::submit! {
            $crate::spec::Kind {
                name: $name,
                doc: $doc,
                fields: $fields,
                schema: || $crate::spec::schema($name, $doc, $fields),
                plan: |given, roots| $plan(&$crate::spec::Fields::of($name, $fields, (given, roots))?),
                explain: |given, roots| $explain(&$crate::spec::Fields::to_explain($name, $fields, (given, roots))?),
            }
        }
    };
}

/// The kinds of this binary by name.
pub fn kinds() -> &'static BTreeMap<&'static str, &'static Kind> {
    static KINDS: OnceLock<BTreeMap<&'static str, &'static Kind>> = OnceLock::new();
    KINDS.get_or_init(|| {
        let mut kinds = BTreeMap::new();
        for kind in inventory::iter::<Kind> {
            let before = kinds.insert(kind.name, kind);
            assert!(before.is_none(), "two kinds are registered as {}", kind.name);
        }
        kinds
    })
}

/// What a spec names.
enum Named {
    Kind(&'static Kind),
    Program(&'static Program),
}

impl Named {
    /// A kind wins over a program of the same name.
    fn of(spec: &Spec) -> Result<Self, SpecError> {
        let name = spec.kind.as_str();
        let kind = kinds().get(name).map(|kind| Self::Kind(kind));
        let program = || registry::programs().get(name).copied().or_else(|| registry::latest(name));
        kind.or_else(|| program().map(Self::Program)).ok_or_else(|| unknown(name))
    }
}

fn unknown(name: &str) -> SpecError {
    let kinds = kinds().keys().map(|kind| (*kind).to_owned());
    let programs = registry::programs().values().map(|program| program.name.to_owned());
    let versions = registry::programs().keys().cloned();
    let hint = hint(name, kinds.chain(programs).chain(versions), "`exobus schema` prints all that there are");
    SpecError::new(SpecCode::UnknownKind, format!("there is no kind of job `{}`; {hint}", shown(name))).at("kind")
}

pub(super) fn plan(spec: &Spec, roots: &Roots) -> Result<Plan, SpecError> {
    match Named::of(spec)? {
        Named::Kind(kind) => (kind.plan)(&spec.fields, roots),
        Named::Program(program) if spec.fields.contains_key(PARAMS_MSGPACK) => {
            with_msgpack(program, spec).map_err(|error| error.at(PARAMS_MSGPACK))
        }
        Named::Program(program) => {
            let params = params(spec)?;
            Plan::with(program, params).map_err(|error| {
                let message = conceal_all(&error.message, &all_texts(params));
                SpecError { message, ..error }.at("params")
            })
        }
    }
}

pub(super) fn explain(spec: &Spec, roots: &Roots) -> Result<Plan, SpecError> {
    match Named::of(spec)? {
        Named::Kind(kind) => (kind.explain)(&spec.fields, roots),
        Named::Program(program) => {
            let message = format!("`{}` is a program, and only kinds can be explained", program.key());
            Err(SpecError::new(SpecCode::Invalid, message).at("kind"))
        }
    }
}

/// What a program is told.
fn params(spec: &Spec) -> Result<&Value, SpecError> {
    if let Some(field) = spec.fields.keys().find(|field| *field != "params") {
        let message = format!("a program takes `params`, a table, and no `{}` beside it", shown(field));
        return Err(SpecError::new(SpecCode::UnknownField, message).at(shown(field)));
    }
    Ok(spec.fields.get("params").unwrap_or(&Value::Null))
}

/// The parameters of a program as MessagePack in base64, for who has types that JSON has not.
const PARAMS_MSGPACK: &str = "params_msgpack";

fn with_msgpack(program: &Program, spec: &Spec) -> Result<Plan, SpecError> {
    if spec.fields.len() > 1 {
        let text = format!("a program takes `params` or `{PARAMS_MSGPACK}`, and nothing beside it");
        return Err(SpecError::new(SpecCode::UnknownField, text));
    }
    let text = spec.fields[PARAMS_MSGPACK].as_str();
    let text = text.ok_or_else(|| SpecError::new(SpecCode::WrongType, "MessagePack in base64 is a text"))?;
    let params = BASE64.decode(text);
    let params = params.map_err(|error| SpecError::new(SpecCode::Invalid, format!("this is no base64: {error}")))?;
    Plan::again(program, params.into())
}

/// All texts in a value, names included.
fn all_texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().flat_map(all_texts).collect(),
        Value::Object(table) => {
            table.iter().flat_map(|(name, value)| std::iter::once(name.as_str()).chain(all_texts(value))).collect()
        }
        _ => Vec::new(),
    }
}

pub(super) fn paths(spec: &Spec) -> Result<Paths, SpecError> {
    match Named::of(spec)? {
        Named::Program(_) => plan(spec, &Roots::default()).map(|Plan { reads, writes, .. }| Paths { reads, writes }),
        Named::Kind(kind) => {
            let roots = Roots::default();
            let fields = Fields::to_explain(kind.name, kind.fields, (&spec.fields, &roots))?;
            let of = |is_wanted: fn(&Takes) -> bool| {
                let wanted = kind.fields.iter().filter(|field| is_wanted(&field.takes));
                wanted.flat_map(|field| fields.paths(field.name)).collect()
            };
            let reads = of(|takes| matches!(takes, Takes::Reads));
            Ok(Paths { reads, writes: of(|takes| matches!(takes, Takes::Writes)) })
        }
    }
}

pub(super) fn check_absolute(spec: &Spec) -> Result<(), SpecError> {
    let Paths { reads, writes } = paths(spec)?;
    let is_relative = |path: &&PathBuf| Location::from(path.as_path()).as_path().is_some_and(Path::is_relative);
    match reads.iter().chain(&writes).find(is_relative) {
        None => Ok(()),
        Some(path) => {
            let path = shown(&path.to_string_lossy());
            let message = format!(
                "{path:?} is relative, and nodes work in other folders: paths of jobs for a cluster are absolute"
            );
            Err(SpecError::new(SpecCode::Invalid, message))
        }
    }
}

/// Makes the paths of a kind absolute.
pub(super) fn make_absolute(spec: &mut Spec) -> std::io::Result<()> {
    let Some(kind) = kinds().get(spec.kind.as_str()) else { return Ok(()) };
    for field in kind.fields.iter().filter(|field| matches!(field.takes, Takes::Reads | Takes::Writes)) {
        let values = match spec.fields.get_mut(field.name) {
            Some(Value::Array(list)) => list.iter_mut().collect(),
            Some(value) => vec![value],
            None => Vec::new(),
        };
        for value in values {
            let Some(path) = path_of(value).filter(|path| !path.as_os_str().is_empty()) else { continue };
            *value = path_value(&Location::from(path.as_path()).absolute()?.to_path_buf());
        }
    }
    Ok(())
}
