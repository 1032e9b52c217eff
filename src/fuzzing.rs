//! Everything that reads bytes of strangers, as targets for fuzzing: none may panic, whatever the bytes.
//!
//! `cargo xtask fuzz` runs them guided by coverage; a test of the ordinary suite runs them over the kept corpus and over
//! seeded mutations ([`mutate`]). A new decoder gets a line in [`TARGETS`] and, where it can, [`seeds`].

mod mutate;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use exobus_actors::fuzzing as actors;
use exobus_actors::spec::kinds;
use exobus_actors::{
    protocol::host::HostMsg, protocol::membership::MembershipMsg, protocol::merger::MergerMsg,
    protocol::node_manager::NodeMsg, protocol::owner::OwnerMsg, protocol::results::ResultsMsg,
    protocol::scheduler::SchedulerMsg,
};
use exobus_bus::fuzzing as bus;
use exobus_files::{Claim, Manifest};
use exobus_store::fuzzing as store;
use exobus_tables::fuzzing as tables;

pub use mutate::Mutator;

use crate::{
    commands::protocols,
    config::{MemoryBudget, NodeConfig, Overrides, keys, units},
    temporary::Temporary,
};

/// Something that reads bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// What reads them.
    pub run: fn(&[u8]),
    /// Of how many runs that others get it gets one: it writes files.
    pub rare: u32,
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run, rare: 1 }
}

/// All of them.
pub const TARGETS: [Target; 37] = [
    target("codec", bus::value),
    target("session_frame", bus::session_frame),
    target("session", bus::session),
    target("sealed_message", bus::sealed_message),
    target("subject", bus::subject),
    target("stream_record", bus::stream_record),
    target("stream_rows", bus::stream_rows),
    Target { rare: 100, ..target("stream_file", stream_file) },
    target("scheduler", actors::message::<SchedulerMsg>),
    target("host", actors::message::<HostMsg>),
    target("owner", actors::message::<OwnerMsg>),
    target("node", actors::message::<NodeMsg>),
    target("merger", actors::message::<MergerMsg>),
    target("results", actors::message::<ResultsMsg>),
    target("result_request", actors::result_request),
    target("spec", actors::spec),
    target("membership", actors::message::<MembershipMsg>),
    target("answers", actors::answers),
    target("post_item", actors::post_item),
    target("joblog", actors::joblog),
    target("executor", actors::executor),
    target("transfer_server", actors::transfer_server),
    target("transfer_client", actors::transfer_client),
    target("transfer_directory", actors::transfer_directory),
    target("spill_footer", spill_footer),
    target("index_entry", store::index_entry),
    Target { rare: 10, ..target("config", config) },
    target("units", units),
    target("claim", |bytes| drop(Claim::decode(bytes))),
    target("manifest", |bytes| drop(Manifest::decode(bytes))),
    target("table_layout", tables::layout),
    target("table_part", tables::part),
    target("table_sums", tables::sums),
    target("table_condition", tables::condition),
    target("table_key", tables::key),
    target("table_aggregates", tables::aggregates),
    target("table_json", tables::json_lines),
];

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// A trailer, or a payload: the first byte says which.
fn spill_footer(bytes: &[u8]) {
    match bytes.split_first() {
        Some((0, trailer)) => store::footer_trailer(trailer),
        Some((_, payload)) => store::footer_payload(payload),
        None => {}
    }
}

fn stream_file(bytes: &[u8]) {
    if let Ok(folder) = Temporary::make(&std::env::temp_dir(), "exobus-fuzz-") {
        bus::open_stream_file(bytes, folder.path());
    }
}

/// A file of configuration, and one of the environment's variables.
fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(folder) = Temporary::make(&std::env::temp_dir(), "exobus-fuzz-") else { return };
    let path = folder.path().join("fuzz.toml");
    if fs::write(&path, text).is_err() {
        return;
    }
    let variable = text.split_once('=').map(|(key, value)| (format!("EXOBUS_{}", key.trim()), value.to_owned()));
    if let Err(error) = NodeConfig::load_with(Some(&path), &Overrides::default(), variable.into_iter()) {
        assert!(!error.to_string().is_empty());
    }
}

/// Sizes, times and budgets as people write them.
fn units(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(size) = units::parse_size(text) {
        assert!(size > 0);
        let _ = units::size(size);
    }
    let _ = units::parse_duration(text);
    if let Ok(budget) = text.parse::<MemoryBudget>() {
        let _ = (budget.to_string(), budget.bytes(u64::MAX));
    }
}

/// What the target reads when all is well.
///
/// # Errors
/// A file of the repository, or a temporary one, cannot be read.
pub fn seeds(target: &str, repository: &Path) -> io::Result<Vec<Vec<u8>>> {
    let tagged = |tag: u8, items: Vec<Vec<u8>>| items.into_iter().map(move |item| [&[tag][..], &item].concat());
    let samples = |protocol: &str| protocols::encoded(Some(protocol)).map_err(io::Error::other);
    let [server, client, directory] = actors::transfer_frames();
    Ok(match target {
        "scheduler" | "host" | "client" | "owner" | "node" | "merger" | "results" | "membership" => samples(target)?,
        "codec" => protocols::encoded(None).map_err(io::Error::other)?,
        "answers" => samples("owner")?.into_iter().chain(samples("scheduler")?).collect(),
        "post_item" => {
            let about = [&[1_u8][..], &[7; 36]].concat();
            let message = |tag, sample: Vec<u8>| [&[tag, 0][..], &sample].concat();
            let about = |tag, sample: Vec<u8>| [&[tag][..], &about, &sample].concat();
            let reply = [&[2_u8, 2][..], &1_u64.to_be_bytes(), &[1, 0xc0]].concat();
            let rejected = [&[0_u8, 3][..], &[7; 36], b"why"].concat();
            let owner = samples("owner")?.into_iter().map(|sample| message(0, sample));
            owner.chain(samples("node")?.into_iter().map(|sample| about(1, sample))).chain([reply, rejected]).collect()
        }
        "result_request" => [
            r#"{"id": "00000000000000000000000000000001", "file": "f", "offset": 7, "length": 9}"#,
            r#"{"op": "list"}"#,
        ]
        .map(Vec::from)
        .into(),
        "spec" => {
            let json = r#"{"kind": "table.sort", "params": {"key": [], "table": 7}, "x": [1.5e3, -1, {"y": null}]}"#;
            let examples = kinds().values().map(|kind| kind.example_toml().into_bytes());
            examples.chain([json.into()]).collect()
        }
        "joblog" => actors::joblogs(),
        "executor" => actors::executor_messages(),
        "session_frame" => session_frames(),
        "session" => vec![session_frames().iter().flat_map(|frame| length_and(frame)).collect()],
        "sealed_message" => bus::sealed_messages(),
        "subject" => {
            ["exo.v1.c.node.n1.beat", "exo.v1.c.ctl.scheduler.where", "exo.v1.c.job.t.*.>"].map(Vec::from).into()
        }
        "stream_record" => {
            let numbers = [1_u64, 1_700_000_000_000, 0].map(u64::to_le_bytes).concat();
            vec![[&numbers[..], &[1, 5], b"exo.a", &[1, 0x80], b"payload"].concat()]
        }
        "stream_rows" => bus::saved_rows(),
        "stream_file" => bus::stream_files(&Temporary::make(&std::env::temp_dir(), "exobus-fuzz-")?.path().join("s")),
        "transfer_server" => server,
        "transfer_client" => client,
        "transfer_directory" => directory,
        "spill_footer" => {
            let [payloads, trailers] = store::footers();
            tagged(0, trailers).chain(tagged(1, payloads)).collect()
        }
        "index_entry" => store::index_entries(),
        "config" => {
            let mut seeds = vec![keys::default_toml().into_bytes()];
            for folder in ["local", "cluster/one", "cluster/three", "cluster/hundred", "invalid"] {
                for path in files(&repository.join("configs").join(folder))? {
                    seeds.push(fs::read(path)?);
                }
            }
            seeds
        }
        "units" => ["4GiB", "1.5 GB", "60%", "1000", "3s", "1m 30s", "500ms"].map(Vec::from).into(),
        "claim" => vec![fs::read(repository.join("store/files/tests/samples/claim-1.json"))?],
        "manifest" => vec![fs::read(repository.join("store/files/tests/samples/manifest-1.json"))?],
        "table_layout" => tables::layouts(),
        "table_part" => tables::parts(),
        "table_sums" => {
            let whole = fs::read(repository.join("pipelines/tables/tests/samples/exact-sum-1.bin"))?;
            std::iter::once(whole).chain(tables::float_sums()).collect()
        }
        "table_condition" => tables::conditions(),
        "table_key" => tables::keys(),
        "table_aggregates" => tables::aggregate_lists(),
        "table_json" => tables::json_texts(),
        _ => Vec::new(),
    })
}

/// What was kept for a target: inputs that reached something new once, and those that were wrong once.
///
/// # Errors
/// A file that cannot be read; a folder that is not there is none.
pub fn corpus(target: &str, repository: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let folder = repository.join("fuzz/corpus").join(target);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    files(&folder)?.into_iter().map(|path| Ok((path.clone(), fs::read(path)?))).collect()
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<_> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.sort();
    Ok(files)
}

fn length_and(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u16).to_le_bytes()[..], frame].concat()
}

/// A hello, a data frame with two items, an acknowledgement: what a session begins with.
fn session_frames() -> Vec<Vec<u8>> {
    bus::frames()
}
