//! `exobus submit` and `exobus schema`: jobs as files say them.

use std::{fs::File, io::Read, path::Path};

use exobus_actors::spec::{Plain, Plan, SPEC_BYTES_MAX, Spec, SpecError, all_schemas, kinds, nearest, program_schema};
use serde_json::{Value, json};

use super::{planned, session::Session};
use crate::{
    cli::{ClusterArgs, HowArgs, LookArgs, PlaceArgs, RunArgs, SchemaArgs, SubmitArgs},
    exit::{Exit, Failure, OrExit},
    stdout::print_line,
};

/// The file that stands for stdin.
const STDIN: &str = "-";

/// Reads the spec, and checks it, or runs its job.
pub fn submit(args: &SubmitArgs) -> Result<Exit, Failure> {
    let text = read(&args.spec)?;
    let name = if args.spec == Path::new(STDIN) { "stdin".into() } else { args.spec.to_string_lossy() };
    let refused = |error: SpecError| Failure::text(Exit::Usage, format!("{name}: {error}"));
    let mut spec = Spec::parse_with(&text, &args.set).map_err(refused)?;
    spec.make_absolute().or_exit(Exit::InputOutput)?;
    run_spec(&spec, &args.how, &name)
}

/// Does with a spec what is asked for.
fn run_spec(spec: &Spec, args: &HowArgs, name: &str) -> Result<Exit, Failure> {
    let refused = |error: SpecError| Failure::text(Exit::Usage, format!("{name}: {error}"));
    if args.check {
        return print(&checked(&spec.plan().map_err(refused)?)?);
    }
    let session = Session::open(&args.process, &args.views)?;
    if session.on_cluster() {
        return on_cluster(spec, args);
    }
    let plan = spec.plan().map_err(refused)?;
    let partial = spec.fields.get("partial").and_then(Value::as_bool).unwrap_or_default();
    planned::look(&plan, partial)?;
    planned::tell(session, &plan, args.process.json, &planned::outputs(&plan.writes))
}

/// Submits a job to a cluster.
fn on_cluster(spec: &Spec, args: &HowArgs) -> Result<Exit, Failure> {
    let PlaceArgs { cluster, config, settings, .. } = args.process.place.clone();
    let look = LookArgs { place: ClusterArgs { cluster, config, settings }, json: args.process.json };
    let wait = (args.wait || args.follow).then_some(args.follow);
    super::jobs::hand_in(&look, &spec.canonical(), wait)
}

/// Runs a program of the registry on a cluster, or in this process.
pub fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let params = match &args.params {
        Some(path) => {
            let text = read(path)?;
            let refused = |error| Failure::text(Exit::Usage, format!("{}: {error}", path.display()));
            serde_json::from_slice::<Value>(&text).map_err(refused)?
        }
        None => Value::Null,
    };
    let mut spec = json!({ "kind": args.program });
    if !params.is_null() {
        spec["params"] = params;
    }
    let refused = |error: SpecError| Failure::text(Exit::Usage, error.to_string());
    run_spec(&Spec::parse(spec.to_string().as_bytes()).map_err(refused)?, &args.how, &args.program)
}

/// Prints the JSON schema of the specs of a kind, or of all.
pub fn schema(args: &SchemaArgs) -> Result<Exit, Failure> {
    let Some(name) = &args.kind else { return print(&all_schemas()) };
    match kinds().get(name.as_str()) {
        Some(kind) => print(&(kind.schema)()),
        None if name == "program" => print(&program_schema()),
        None => {
            let known: Vec<&str> = kinds().keys().copied().chain(["program"]).collect();
            let hint = nearest(name, known.iter().copied()).map(|name| format!("; did you mean {name}?"));
            let text = format!("there is no kind {name:?}, but {}{}", known.join(", "), hint.unwrap_or_default());
            Err(Failure::text(Exit::Usage, text))
        }
    }
}

fn print(value: &Value) -> Result<Exit, Failure> {
    print_line(format_args!("{value:#}"));
    Ok(Exit::Success)
}

/// The text of a file, or of stdin.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    // More than a spec may have, so that who has written more is told how much; what never ends is not read for ever.
    let most = 16 * SPEC_BYTES_MAX as u64;
    let mut text = Vec::new();
    let read = match path == Path::new(STDIN) {
        true => std::io::stdin().lock().take(most).read_to_end(&mut text),
        false => File::open(path).and_then(|file| file.take(most).read_to_end(&mut text)),
    };
    read.or_exit(Exit::InputOutput).map_err(|failure| failure.context(format!("read the spec {}", path.display())))?;
    Ok(text)
}

/// A plan for people: texts of its parameters may be secrets, and are not shown whole.
fn checked(plan: &Plan) -> Result<Value, Failure> {
    let Plan { program, params, reads, writes, needs } = plan;
    let Plain(params) = Plain::of(params).or_exit(Exit::Usage)?.shown();
    let texts = |paths: &[std::path::PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    Ok(json!({ "program": program, "params": params, "reads": texts(reads), "writes": texts(writes), "needs": needs }))
}
