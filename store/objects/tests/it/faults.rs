//! Requests that go wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use exobus_files::{
    Access, AlignedBuffer, Claim, Claimant, Claimed, FileError, IoBuffer, Location, Manifest, OutputFolder, Schema,
    Token,
};
use exobus_objects::Usage;
use exobus_objects::server::{Fault, Faults, Hold};
use exobus_store::JobId;
use http::Method;

use crate::{WORLD, key, prefix, put};

const JOB: JobId = JobId::from_u128(7);
const LAB: Claimant<'static> = Claimant { program: "test", cluster: Some("lab"), log: None };

fn folder() -> Location {
    let _ = &WORLD.server;
    Location::from(&*format!("s3://bucket/{}/out", prefix()))
}

/// Sets what goes wrong below a folder.
fn set(folder: &Location, faults: impl Fn(&Method, &str) -> Option<Fault> + Send + Sync + 'static) {
    let _ = &WORLD.server;
    WORLD.server.set_faults(&format!("/bucket/{}", key(folder)), Some(Box::new(faults) as Faults));
}

/// Every so many requests go wrong, in turn in all of these ways.
fn every(count: usize, ways: Vec<Fault>) -> impl Fn(&Method, &str) -> Option<Fault> + Send + Sync + 'static {
    let (made, wrong) = (AtomicUsize::new(0), AtomicUsize::new(0));
    move |_, _| {
        let is_wrong = made.fetch_add(1, Ordering::Relaxed) % count == count - 1;
        is_wrong.then(|| ways[wrong.fetch_add(1, Ordering::Relaxed) % ways.len()].clone())
    }
}

fn bytes(part: usize) -> Vec<u8> {
    (0..20_000_000_u32 + part as u32 * 100).map(|at| (at % 251) as u8 ^ part as u8).collect()
}

fn write(folder: &OutputFolder, part: usize, attempt: &str) -> Result<Token, FileError> {
    let buffers = (0..2).map(|_| Box::new(AlignedBuffer::new(8 << 20)) as IoBuffer).collect();
    let mut file = folder.create(&format!("part-0000{part}"), attempt, buffers, 0)?;
    file.write(&bytes(part))?;
    Ok(file.finish(part as u64)?.0)
}

fn commit(folder: &OutputFolder, tokens: &[Token]) -> Result<(), FileError> {
    folder.commit("1", ("test", &Schema::bytes()), |take| tokens.iter().try_for_each(take))
}

fn read(file: &Location, access: Access) -> Result<Vec<u8>, FileError> {
    let open = file.open(access)?;
    let mut bytes = vec![0; open.status()?.bytes as usize];
    let needed = bytes.len();
    open.read_at(0, &mut bytes, needed)?;
    Ok(bytes)
}

#[track_caller]
fn is_whole(folder: &Location, parts: usize) {
    for part in 0..parts {
        assert!(read(&folder.join(format!("part-0000{part}")), Access::Direct).unwrap() == bytes(part), "{part}");
    }
    assert_eq!(Manifest::read(folder).unwrap().unwrap().files.len(), parts);
    assert_eq!(Claim::read(folder).unwrap(), None);
    let below = format!("{}/", key(folder));
    assert_eq!((WORLD.server.objects("bucket", &below), WORLD.server.uploads("bucket", &below)), (parts + 1, 0));
}

#[track_caller]
fn is_empty(folder: &Location) {
    let below = format!("{}/", key(folder));
    assert_eq!((WORLD.server.objects("bucket", &below), WORLD.server.uploads("bucket", &below)), (0, 0));
}

#[test]
fn a_folder_is_written_and_read_while_one_in_three_requests_goes_wrong() {
    let at = folder();
    let ways = || {
        vec![
            Fault::Status(503, None),
            Fault::Truncated(1_000_000),
            Fault::Dropped,
            Fault::Status(500, None),
            Fault::Slow(Duration::from_millis(50)),
            Fault::Truncated(0),
            Fault::Status(429, None),
        ]
    };
    let goes_wrong = every(3, ways());
    // An upload that is begun and of which nobody hears is what a rule of the bucket is for.
    set(&at, move |method, path| if path.contains("?uploads") { None } else { goes_wrong(method, path) });
    let before = Usage::now();
    let out = OutputFolder::new(at.clone(), JOB).unwrap();
    assert_eq!(out.claim(&LAB, None).unwrap(), Claimed::Now);
    let tokens: Vec<_> = (0..3).map(|part| write(&out, part, "1").unwrap()).collect();
    commit(&out, &tokens).unwrap();
    is_whole(&at, 3);
    assert!(Usage::now().repeated > before.repeated + 5);
}

/// What was done may be done again: claims, completions, everything.
#[test]
fn answers_that_are_lost_change_nothing() {
    let at = folder();
    set(&at, every(2, vec![Fault::AnswerLost]));
    let out = OutputFolder::new(at.clone(), JOB).unwrap();
    assert_eq!(out.claim(&LAB, None).unwrap(), Claimed::Now);
    let tokens: Vec<_> = (0..2).map(|part| write(&out, part, "1").unwrap()).collect();
    commit(&out, &tokens).unwrap();
    commit(&out, &tokens).unwrap();
    WORLD.server.set_faults(&format!("/bucket/{}", key(&at)), None);
    for part in 0..2 {
        assert!(read(&at.join(format!("part-0000{part}")), Access::Direct).unwrap() == bytes(part));
    }
    assert_eq!(Manifest::read(&at).unwrap().unwrap().files.len(), 2);
    assert_eq!(Claim::read(&at).unwrap(), None);
    let below = format!("{}/", key(&at));
    assert_eq!(WORLD.server.objects("bucket", &below), 3);
}

/// A server that asks for a time is given it.
#[test]
fn what_retry_after_says_is_waited() {
    let at = folder();
    let (asked, first) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    set(&at, move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        (first.fetch_add(1, Ordering::Relaxed) == 0).then_some(Fault::Status(503, Some(1)))
    });
    put(&at.join("file"), b"x");
    #[allow(clippy::disallowed_methods, reason = "how long a server is not asked is what is tested")]
    let began = std::time::Instant::now();
    assert_eq!(read(&at.join("file"), Access::Cached).unwrap(), b"x");
    assert!(began.elapsed() >= Duration::from_secs(1), "it was asked again before its time");
}

/// The commit says so, and the job gives everything back.
#[test]
fn a_part_that_is_lost_fails_the_commit_and_nothing_is_left() {
    let at = folder();
    set(&at, |method, path| (*method == Method::PUT && path.contains("partNumber=2")).then_some(Fault::PartLost));
    let out = OutputFolder::new(at.clone(), JOB).unwrap();
    out.claim(&LAB, None).unwrap();
    let token = write(&out, 0, "1").unwrap();
    let error = commit(&out, &[token]).unwrap_err();
    assert!(error.to_string().contains("InvalidPart"), "{error}");
    out.withdraw(None).unwrap();
    is_empty(&at);
}

/// The process is gone between any two requests; another one of the job goes on, or gives up.
#[test]
fn a_job_that_is_killed_between_any_two_requests_is_gone_on_with_or_withdrawn() {
    for end in ["commit", "withdraw", "take over"] {
        for kill_at in 0.. {
            let at = folder();
            let out = OutputFolder::new(at.clone(), JOB).unwrap();
            let made = AtomicUsize::new(0);
            // A process that is gone makes no request.
            set(&at, move |_, _| (made.fetch_add(1, Ordering::Relaxed) >= kill_at).then_some(Fault::Status(403, None)));
            let run = || {
                out.claim(&LAB, None)?;
                let token = small(&out, "1")?;
                commit(&out, &[token])
            };
            let done = run();
            WORLD.server.set_faults(&format!("/bucket/{}", key(&at)), None);
            let job = match end {
                "withdraw" => {
                    out.withdraw(None).unwrap();
                    let is_whole = Manifest::read(&at).unwrap().is_some();
                    assert_eq!(Claim::read(&at).unwrap(), None);
                    let below = format!("{}/", key(&at));
                    assert_eq!(WORLD.server.objects("bucket", &below), if is_whole { 2 } else { 0 }, "{kill_at}");
                    // The one upload of which no note could be written is what a rule of the bucket is for.
                    assert!(WORLD.server.uploads("bucket", &below) <= 1, "{kill_at}");
                    if done.is_ok() {
                        break;
                    }
                    continue;
                }
                "take over" if Manifest::read(&at).unwrap().is_none() => JobId::from_u128(8),
                _ => JOB,
            };
            let again = OutputFolder::new(at.clone(), job).unwrap();
            assert_eq!(again.claim(&LAB, Some((JOB, true))).unwrap(), Claimed::Now, "{end} {kill_at}");
            let token = small(&again, "2").unwrap();
            commit(&again, &[token]).unwrap();
            let content = read(&at.join("part-00000"), Access::Cached).unwrap();
            assert_eq!(content, format!("content of {job}").as_bytes());
            assert_eq!(Manifest::read(&at).unwrap().unwrap().job, job);
            assert_eq!(Claim::read(&at).unwrap(), None);
            let below = format!("{}/", key(&at));
            assert_eq!(WORLD.server.objects("bucket", &below), 2, "{end} {kill_at}");
            assert!(WORLD.server.uploads("bucket", &below) <= 1, "{end} {kill_at}");
            if done.is_ok() {
                break;
            }
        }
    }
}

/// A file of a job, small.
fn small(folder: &OutputFolder, attempt: &str) -> Result<Token, FileError> {
    let buffers = vec![Box::new(AlignedBuffer::new(4096)) as IoBuffer];
    let mut file = folder.create("part-00000", attempt, buffers, 0)?;
    file.write(format!("content of {}", folder.job()).as_bytes())?;
    Ok(file.finish(1)?.0)
}

/// Whatever another process does between any two requests of a commit, the folder is whole with all files of one job, or nothing of the job is there; and
/// who is told that it has committed has.
#[test]
fn a_commit_in_which_somebody_comes_between_any_two_requests_is_whole_or_nothing() {
    for other in ["commits", "withdraws", "takes over"] {
        for held_at in 0.. {
            let at = folder();
            let one = OutputFolder::new(at.clone(), JOB).unwrap();
            one.claim(&LAB, None).unwrap();
            let token = small(&one, "1").unwrap();
            let second = small(&one, "2").unwrap();
            let (hold, made) = (Hold::default(), AtomicUsize::new(0));
            let held = hold.clone();
            set(&at, move |_, _| (made.fetch_add(1, Ordering::Relaxed) == held_at).then(|| Fault::Held(held.clone())));
            let committing = {
                let at = at.clone();
                let run = move || commit(&OutputFolder::new(at, JOB).unwrap(), &[token]);
                std::thread::Builder::new().spawn(run).unwrap()
            };
            while !hold.holds() && !committing.is_finished() {
                std::thread::yield_now();
            }
            let was_held = hold.holds();
            WORLD.server.set_faults(&format!("/bucket/{}", key(&at)), None);
            let taking = JobId::from_u128(8);
            let mut took = false;
            if was_held {
                match other {
                    "commits" => commit(&one, &[second]).unwrap(),
                    "withdraws" => one.withdraw(None).unwrap(),
                    _ => {
                        let two = OutputFolder::new(at.clone(), taking).unwrap();
                        took = two.claim(&LAB, Some((JOB, true))).is_ok();
                        // It is refused where the folder is whole already.
                        if !took {
                            two.withdraw(None).unwrap();
                        }
                    }
                }
            }
            hold.let_go();
            let committed = committing.join().unwrap();
            let manifest = Manifest::read(&at).unwrap();
            let why = format!("{other} {held_at}: {committed:?}");
            match &manifest {
                Some(manifest) => {
                    assert_eq!(manifest.job, JOB, "{why}");
                    let content = read(&at.join("part-00000"), Access::Cached).unwrap();
                    assert_eq!(content, format!("content of {JOB}").as_bytes(), "{why}");
                }
                None => assert!(read(&at.join("part-00000"), Access::Cached).is_err(), "{why}"),
            }
            assert_eq!(committed.is_ok(), manifest.is_some(), "{why}");
            if other == "commits" {
                assert!(committed.is_ok(), "{why}");
            }
            let below = format!("{}/", key(&at));
            if took {
                let two = OutputFolder::new(at.clone(), taking).unwrap();
                assert_eq!(two.claim(&LAB, None).unwrap(), Claimed::Now, "{why}");
                let token = small(&two, "1").unwrap();
                commit(&two, &[token]).unwrap();
                let content = read(&at.join("part-00000"), Access::Cached).unwrap();
                assert_eq!(content, format!("content of {taking}").as_bytes(), "{why}");
            } else {
                one.withdraw(None).unwrap();
            }
            let left = (WORLD.server.objects("bucket", &below), WORLD.server.uploads("bucket", &below));
            assert_eq!(left, (if took || manifest.is_some() { 2 } else { 0 }, 0), "{why}");
            if !was_held {
                assert!(held_at > 5, "a commit makes some requests");
                break;
            }
        }
    }
}

#[test]
fn an_object_is_removed_on_the_condition_that_it_is_the_one_that_was_read() {
    let at = folder();
    let one = OutputFolder::new(at.clone(), JOB).unwrap();
    one.claim(&LAB, None).unwrap();
    let hold = Hold::default();
    let held = hold.clone();
    set(&at, move |method, path| {
        (*method == Method::DELETE && path.contains("claim")).then(|| Fault::Held(held.clone()))
    });
    let withdrawing = std::thread::Builder::new().spawn(move || one.withdraw(None)).unwrap();
    hold.wait();
    WORLD.server.set_faults(&format!("/bucket/{}", key(&at)), None);
    // The job that wants it has been told that the other one is over.
    let two = OutputFolder::new(at.clone(), JobId::from_u128(8)).unwrap();
    assert_eq!(two.claim(&LAB, Some((JOB, true))).unwrap(), Claimed::Now);
    hold.let_go();
    withdrawing.join().unwrap().unwrap();
    assert_eq!(Claim::read(&at).unwrap().map(|claim| claim.job), Some(JobId::from_u128(8)));
    two.withdraw(None).unwrap();
    is_empty(&at);
}

#[test]
fn a_bucket_is_a_folder_and_no_file() {
    put(&folder().join("file"), b"x");
    for name in ["s3://bucket", "s3://bucket/"] {
        let bucket = Location::from(name);
        let system = bucket.system().unwrap();
        assert!(matches!(system.look_up(&bucket).unwrap(), exobus_files::Kind::Folder), "{name}");
        assert!(system.list(&bucket).unwrap().any(|entry| entry.unwrap().name.to_str().unwrap().starts_with("test-")));
        assert!(matches!(bucket.open(Access::Cached), Err(FileError::WrongKind { .. })), "{name}");
    }
}

/// More than a store lists at once.
#[test]
fn all_of_a_folder_is_listed_and_what_is_no_path_is_refused() {
    let at = folder();
    for number in 0..1_100 {
        put(&at.join(format!("file-{number:04}")), b"");
    }
    put(&at.join("file").join("inside"), b"");
    let names: Vec<_> = at.system().unwrap().list(&at).unwrap().map(|entry| entry.unwrap().name).collect();
    assert_eq!((names.len(), names[0].to_str(), names[1_100].to_str()), (1_101, Some("file"), Some("file-1099")));
    for name in ["s3://bucket//x", "s3://bucket/x//y", "s3://../x"] {
        let location = Location::from(name);
        let error = location.system().unwrap().look_up(&location).unwrap_err();
        assert!(matches!(error, FileError::WrongKind { .. }), "{name}: {error}");
    }
}

#[test]
fn an_object_that_is_replaced_while_it_is_read_fails_the_reader() {
    let at = folder().join("file");
    put(&at, b"one two three");
    let open = at.open(Access::Ranges).unwrap();
    let mut word = [0; 3];
    open.read_at(0, &mut word, 3).unwrap();
    put(&at, b"two three one");
    let error = open.read_at(4, &mut word, 3).unwrap_err();
    assert!(matches!(error, FileError::Changed { .. }), "{error}");
}

#[test]
fn what_cannot_be_had_is_told_with_what_the_server_says() {
    let missing = Location::from("s3://nowhere/file");
    let _ = &WORLD.server;
    let error = missing.system().unwrap().look_up(&missing).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("no such bucket"), "{error}");
    let error = OutputFolder::new(missing.clone(), JOB).unwrap().claim(&LAB, None).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("no such bucket"), "{error}");
    let at = folder();
    put(&at.join("file"), b"x");
    set(&at, |method, _| (*method == Method::GET).then_some(Fault::Status(403, None)));
    let error = read(&at.join("file"), Access::Cached).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("403"), "{error}");
    set(&at, |_, _| Some(Fault::Redirect("http://127.0.0.1:1/elsewhere".to_owned())));
    let error = read(&at.join("file"), Access::Cached).unwrap_err();
    assert!(error.to_string().contains("sends to http://127.0.0.1:1/elsewhere, which is not followed"), "{error}");
    for name in ["s3://", "s3:///key", "s3://bu cket/key", "s3://bucket/a//b", "s3://bucket/../x"] {
        let location = Location::from(name);
        let error = location.system().unwrap().look_up(&location).unwrap_err();
        assert!(matches!(error, FileError::WrongKind { .. }), "{name}: {error}");
    }
}
