//! `exobus result`: the results that jobs of a cluster have left.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use exobus_actors::{
    ids::JobId,
    results::{
        ResultClient, ResultError,
        record::FileKey,
        request::{Code, ResultInfo, ResultList},
    },
};
use exobus_shuffle::files::{Placed, place};
use exobus_store::{Clock, SystemClock};
use serde_json::json;

use crate::{
    cli::{LookArgs, ResultAction, ResultArgs, ResultGetArgs, Way},
    cluster,
    config::units,
    exit::{Exit, Failure, OrExit},
    report::duration,
};

/// Whose results: there is one tenant so far.
const TENANT: &str = "default";

/// Does what is asked of results.
pub fn run(args: &ResultArgs) -> Result<Exit, Failure> {
    match &args.action {
        ResultAction::List(look) => with_client(look, async |client| list(look, &client).await),
        ResultAction::Get(get) => with_client(&get.look, async |client| self::get(get, &client).await),
        ResultAction::Delete { id, look } => with_client(look, async |client| {
            client.delete(*id).await.map_err(failure)?;
            if look.json {
                print(&json!({ "deleted": id.to_string() }).to_string());
            }
            Ok(Exit::Success)
        }),
    }
}

fn with_client(
    look: &LookArgs,
    work: impl AsyncFnOnce(ResultClient) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let config = cluster::config(&look.place)?;
    let runtime = cluster::runtime()?;
    runtime.block_on(async {
        let options = cluster::connect_client(&config, "result").await?;
        let client = ResultClient::new(options.bus.clone(), options.subjects.clone(), TENANT);
        let outcome = work(client).await;
        // What is lost with the connection now nobody waits for.
        let _ = options.bus.drain().await;
        outcome
    })
}

fn print(text: &str) {
    // A closed stdout changes nothing.
    let _ = writeln!(io::stdout().lock(), "{text}");
}

async fn list(look: &LookArgs, client: &ResultClient) -> Result<Exit, Failure> {
    let list = client.list().await.map_err(failure)?;
    match look.json {
        true => print(&serde_json::to_string(&list).or_exit(Exit::InputOutput)?),
        false => print(&table(&list, SystemClock::new().unix_ms())),
    }
    for result in &list.unreadable {
        eprintln!("{} is not listed: {}", result.id, result.message);
    }
    if list.more > 0 {
        eprintln!("{} more results are not listed", list.more);
    }
    Ok(Exit::Success)
}

fn table(ResultList { results, .. }: &ResultList, now_unix_ms: u64) -> String {
    let row = |info: &ResultInfo| {
        let left = std::time::Duration::from_millis(info.until_unix_ms.saturating_sub(now_unix_ms));
        let state = if info.complete { "" } else { ", grows" };
        let files = if info.file_count == 1 { "file" } else { "files" };
        format!(
            "{}  {} in {} {files}{state}, for {}",
            info.id,
            units::size(info.bytes),
            info.file_count,
            duration(left)
        )
    };
    match results.is_empty() {
        true => "no results".to_owned(),
        false => results.iter().map(row).collect::<Vec<_>>().join("\n"),
    }
}

/// Where a file of a result is written to.
#[derive(Clone)]
enum Sink {
    Stdout,
    /// A file beside its place, which it takes when it is whole.
    File(Arc<File>),
}

impl Sink {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().lock().write_all(bytes),
            Self::File(file) => (&**file).write_all(bytes),
        }
    }

    /// As if nothing had been written. False: what was cannot be taken back.
    fn begin_again(&self) -> io::Result<bool> {
        match self {
            Self::Stdout => Ok(false),
            Self::File(file) => {
                use std::io::Seek;
                file.set_len(0)?;
                (&**file).rewind()?;
                Ok(true)
            }
        }
    }
}

async fn get(args: &ResultGetArgs, client: &ResultClient) -> Result<Exit, Failure> {
    let file = match &args.file {
        None => FileKey::default(),
        Some(text) => text.parse().map_or_else(|_| FileKey::Name(text.clone()), FileKey::Ordinal),
    };
    let path = (args.output != Path::new("-")).then_some(args.output.as_path());
    let begun = match path {
        None => None,
        Some(path) if path.exists() => {
            let text = format!("{} exists, and is not replaced", path.display());
            return Err(Failure::text(Exit::Usage, text));
        }
        Some(path) => Some(begun(path)),
    };
    let sink = match &begun {
        None => Sink::Stdout,
        Some(begun) => {
            let made = OpenOptions::new().write(true).create_new(true).open(begun);
            Sink::File(Arc::new(made.map_err(|error| write_failure(begun, &error))?))
        }
    };
    let copied = copy(args, client, &file, &sink).await;
    let (Some(path), Some(begun)) = (path, &begun) else { return copied.map(|_| Exit::Success) };
    let whole = copied.and_then(|bytes| match place(begun, path).map_err(|error| write_failure(path, &error))? {
        Placed::Now => Ok(bytes),
        Placed::Taken => Err(write_failure(path, &io::Error::from(io::ErrorKind::AlreadyExists))),
    });
    // Under its place it is there, or there is none.
    let _ = fs::remove_file(begun);
    let bytes = whole?;
    if args.look.json {
        print(&json!({ "id": args.id.to_string(), "bytes": bytes, "path": path }).to_string());
    }
    Ok(Exit::Success)
}

/// Where a file is until it is whole: names that begin with a dot are nobody's input.
fn begun(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

fn write_failure(path: &Path, error: &io::Error) -> Failure {
    Failure::text(Exit::InputOutput, format!("write {}: {error}", path.display()))
}

async fn copy(args: &ResultGetArgs, client: &ResultClient, file: &FileKey, sink: &Sink) -> Result<u64, Failure> {
    let id: JobId = args.id;
    if args.way != Way::Nats {
        let (to, clock) = (sink.clone(), Arc::new(SystemClock::new()));
        let fetched = client.fetch_file(id, file, clock, move |piece| to.write(piece)).await;
        match fetched {
            Ok(bytes) => return Ok(bytes),
            // Whoever cannot reach the nodes gets the bytes the other way; what the cluster says is the same there.
            Err(ResultError::Transfer(error)) if args.way == Way::Auto => {
                if !sink.begin_again().or_exit(Exit::InputOutput)? {
                    return Err(failure(ResultError::Transfer(error)));
                }
                eprintln!("over NATS, since {error}");
            }
            Err(ResultError::Wrong { .. }) if args.way == Way::Auto => {
                if !sink.begin_again().or_exit(Exit::InputOutput)? {
                    return Err(Failure::text(Exit::InputOutput, "the result is not complete; --way nats follows it"));
                }
            }
            Err(error) => return Err(failure(error)),
        }
    }
    let to = sink.clone();
    client.read_file(id, file, move |piece| to.write(piece)).await.map_err(failure)
}

/// What a result that cannot be had means for the shell.
fn failure(error: ResultError) -> Failure {
    let exit = match &error {
        ResultError::Refused(refused) => match refused.code {
            Code::BadRequest | Code::LengthTooLarge | Code::Unknown | Code::NoSuchFile | Code::OffsetBeyondEnd => {
                Exit::Usage
            }
            Code::Expired | Code::Lost | Code::Unreadable => Exit::DataWrong,
            Code::Unreachable | Code::Unavailable => Exit::Unreachable,
        },
        ResultError::Bus(_) | ResultError::Transfer(_) => Exit::Unreachable,
        ResultError::Wrong { .. } => Exit::DataWrong,
        ResultError::Take(_) => Exit::InputOutput,
    };
    Failure::new(exit, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_how_large_a_result_is_and_how_long_it_is_there() {
        let info = ResultInfo {
            id: "019000000000700080000000000000af".into(),
            made_unix_ms: 0,
            until_unix_ms: 61_000,
            files: Vec::new(),
            file_count: 1,
            bytes: 3 << 20,
            complete: false,
        };
        let list = ResultList { results: vec![info], more: 0, unreadable: Vec::new() };
        let expected = "019000000000700080000000000000af  3.0 MiB in 1 file, grows, for 60.0 s";
        assert_eq!(table(&list, 1000), expected);
        assert_eq!(table(&ResultList { results: Vec::new(), more: 0, unreadable: Vec::new() }, 0), "no results");
    }

    #[test]
    fn a_file_is_beside_its_place_until_it_is_whole() {
        let begun = begun(Path::new("/a/b.csv"));
        assert_eq!(begun.parent(), Some(Path::new("/a")));
        assert!(begun.file_name().unwrap().to_str().unwrap().starts_with(".b.csv."));
    }
}
