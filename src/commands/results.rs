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
use exobus_files::{Placed, place};
use exobus_store::{Clock, SystemClock};
use serde_json::json;

use crate::{
    cli::{LookArgs, ResultAction, ResultArgs, ResultGetArgs, Way},
    cluster,
    config::units,
    exit::{Exit, Failure, OrExit},
    report::duration,
    stdout::{self, print_line},
};

/// Does what is asked of results.
pub fn run(args: &ResultArgs) -> Result<Exit, Failure> {
    match &args.action {
        ResultAction::List(look) => with_client(look, async |client| list(look, &client).await),
        ResultAction::Get(get) => with_client(&get.look, async |client| self::get(get, &client).await),
        ResultAction::Delete { id, look } => with_client(look, async |client| {
            client.delete(*id).await.map_err(failure)?;
            if look.json {
                print_line(json!({ "deleted": id.to_string() }));
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
    let tls = config.client_tls(Arc::new(SystemClock::new())).or_exit(Exit::Usage)?;
    let runtime = cluster::runtime()?;
    runtime.block_on(async {
        let options = cluster::connect_client(&config, "result").await?;
        let client = ResultClient::new(options.bus.clone(), options.subjects.clone(), &options.tenant).with_tls(tls);
        let outcome = work(client).await;
        // What is lost with the connection now nobody waits for.
        let _ = options.bus.drain().await;
        outcome
    })
}

async fn list(look: &LookArgs, client: &ResultClient) -> Result<Exit, Failure> {
    let list = client.list().await.map_err(failure)?;
    match look.json {
        true => print_line(serde_json::to_string(&list).or_exit(Exit::InputOutput)?),
        false => print_line(table(&list, SystemClock::new().unix_ms())),
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
            Self::Stdout => stdout::write(bytes),
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
    if args.output == Path::new("-") {
        return copy(args, client, &file, &Sink::Stdout).await.map(|_| Exit::Success);
    }
    let begun = Begun::new(&args.output, place)?;
    let bytes = copy(args, client, &file, &Sink::File(begun.file.clone())).await?;
    begun.take_place()?;
    if args.look.json {
        print_line(json!({ "id": args.id.to_string(), "bytes": bytes, "path": args.output }));
    }
    Ok(Exit::Success)
}

/// How a file gets a name that nothing may have.
type Place = fn(&Path, &Path) -> io::Result<Placed>;

/// A file that is written beside its place, and takes that when it is whole. Where it does not, it is gone.
struct Begun {
    file: Arc<File>,
    path: PathBuf,
    to: PathBuf,
    place: Place,
}

impl Begun {
    /// Begins a file for a place, where nothing is, and where a file can take it: who has fetched all of a result is not told that it cannot.
    fn new(to: &Path, place: Place) -> Result<Self, Failure> {
        if to.exists() {
            let text = format!("{} exists, and is not replaced", to.display());
            return Err(Failure::text(Exit::Usage, text));
        }
        let path = beside(to, "");
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = Arc::new(made.map_err(|error| write_failure(&path, &error))?);
        let begun = Self { file, path, to: to.to_owned(), place };
        begun.try_place().map_err(|error| {
            let text =
                format!("write {}: no file can take its name there without replacing another: {error}", to.display());
            Failure::text(Exit::InputOutput, text)
        })?;
        Ok(begun)
    }

    /// Gives the file another name and takes it away again.
    fn try_place(&self) -> io::Result<()> {
        let tried = beside(&self.to, ".try");
        let placed = (self.place)(&self.path, &tried);
        // Where there are no links it has that name alone.
        match self.path.exists() {
            true if matches!(placed, Ok(Placed::Now)) => fs::remove_file(&tried)?,
            true => {}
            false => fs::rename(&tried, &self.path)?,
        }
        match placed? {
            Placed::Now => Ok(()),
            Placed::Taken => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
        }
    }

    fn take_place(self) -> Result<(), Failure> {
        match (self.place)(&self.path, &self.to).map_err(|error| write_failure(&self.to, &error))? {
            Placed::Now => Ok(()),
            Placed::Taken => Err(write_failure(&self.to, &io::Error::from(io::ErrorKind::AlreadyExists))),
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // Under its place it is there, or there is none.
        let _ = fs::remove_file(&self.path);
    }
}

/// Where a file is until it is whole: names that begin with a dot are nobody's input.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}{ending}", std::process::id()));
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
        let begun = beside(Path::new("/a/b.csv"), "");
        assert_eq!(begun.parent(), Some(Path::new("/a")));
        assert!(begun.file_name().unwrap().to_str().unwrap().starts_with(".b.csv."));
    }

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_takes_its_place_whichever_way_files_get_names_there_and_leaves_nothing_beside_it() {
        let renamed: Place = |from, to| fs::rename(from, to).map(|()| Placed::Now);
        for place in [place as Place, renamed] {
            let folder = tempfile::tempdir().unwrap();
            let to = folder.path().join("rows.csv");
            let begun = Begun::new(&to, place).unwrap_or_else(|failure| panic!("{:#}", failure.error));
            Sink::File(begun.file.clone()).write(b"rows").unwrap();
            assert!(!to.exists() && names(folder.path()).len() == 1);
            assert!(begun.take_place().is_ok());
            assert_eq!((names(folder.path()), fs::read(&to).unwrap()), (vec!["rows.csv".to_owned()], b"rows".to_vec()));
            let failure = Begun::new(&to, place).err().unwrap();
            assert_eq!(failure.exit, Exit::Usage);
        }
    }

    #[test]
    fn where_no_file_can_take_its_place_that_is_said_before_anything_is_fetched() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("rows.csv");
        let failure = Begun::new(&to, |_, _| Err(io::Error::from(io::ErrorKind::Unsupported))).err().unwrap();
        assert_eq!(failure.exit, Exit::InputOutput);
        let text = format!("{:#}", failure.error);
        assert!(text.contains("rows.csv: no file can take its name there without replacing another"), "{text}");
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn what_takes_the_place_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("rows.csv");
        let begun = Begun::new(&to, place).unwrap_or_else(|failure| panic!("{:#}", failure.error));
        fs::write(&to, "theirs").unwrap();
        assert_eq!(begun.take_place().err().unwrap().exit, Exit::InputOutput);
        assert_eq!((names(folder.path()), fs::read(&to).unwrap()), (vec!["rows.csv".to_owned()], b"theirs".to_vec()));
    }
}
