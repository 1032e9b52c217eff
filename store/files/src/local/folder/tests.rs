//! Folders whose jobs are killed between any two steps, meet other jobs, or find what somebody else has put there.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;
use crate::{AlignedBuffer, IoBuffer, OutputFile, OutputFolder, Planned, Schema, check_output_folder};

const PARTS: usize = 3;
const TEST: Claimant<'static> = Claimant { program: "test", cluster: None, log: None };
const ONE: JobId = JobId::from_u128(1);
const TWO: JobId = JobId::from_u128(2);

/// How many steps are left until others do something, and what.
type Meanwhile = (usize, Box<dyn FnOnce()>);

thread_local! {
    /// How many steps are left until the process is killed.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    /// What is going to happen between two steps.
    static MEANWHILE: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
    /// Whether the file system has neither links nor locks.
    pub(in crate::local) static PLAIN: Cell<bool> = const { Cell::new(false) };
    /// How many files were read to know whose they are.
    pub(super) static READ: Cell<usize> = const { Cell::new(0) };
}

const KILLED: &str = "killed";

pub(super) fn step() -> Result<(), FileError> {
    let due = MEANWHILE.with_borrow_mut(|meanwhile| match meanwhile {
        Some((0, _)) => meanwhile.take(),
        Some((left, _)) => {
            *left -= 1;
            None
        }
        None => None,
    });
    if let Some((_, happens)) = due {
        happens();
    }
    match LEFT.get() {
        Some(0) => Err(FileError::io(Path::new(KILLED), KILLED, 0, io::Error::other(KILLED))),
        left => {
            LEFT.set(left.map(|left| left - 1));
            Ok(())
        }
    }
}

/// Does something and is killed after so many steps; `None`: it was.
fn killed_after<T>(steps: usize, work: impl FnOnce() -> Result<T, FileError>) -> Option<T> {
    LEFT.set(Some(steps));
    let outcome = work();
    LEFT.set(None);
    match outcome {
        Err(FileError::Io { operation: KILLED, .. }) => None,
        outcome => Some(outcome.unwrap()),
    }
}

/// Does something while others do something else once so many steps of it are done; whether it came to that.
fn meanwhile<T>(steps: usize, happens: impl FnOnce() + 'static, work: impl FnOnce() -> T) -> (T, bool) {
    MEANWHILE.set(Some((steps, Box::new(happens))));
    let outcome = work();
    (outcome, MEANWHILE.take().is_none())
}

/// As on a file system without links and locks.
fn on_plain_files(test: impl FnOnce()) {
    PLAIN.set(true);
    test();
    PLAIN.set(false);
}

/// A folder for output, and one job's view of it.
struct World {
    scratch: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self { scratch: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.scratch.path().join("out")
    }

    fn folder(&self, job: JobId) -> LocalFolder {
        LocalFolder::new(&self.path(), job)
    }

    /// The folder, claimed, and its files written.
    fn written(&self, job: JobId) -> LocalFolder {
        assert_eq!(claim(&self.folder(job)).unwrap(), Claimed::Now);
        self.written_only(job)
    }

    /// The folder, and its files written.
    fn written_only(&self, job: JobId) -> LocalFolder {
        let folder = self.folder(job);
        for index in 0..PARTS {
            let token = token(job, index);
            fs::write(folder.temporaries().join(&token.temporary), content(job, index)).unwrap();
        }
        // What a second attempt has left.
        fs::write(folder.temporaries().join(temporary_name("part-00001", "2")), "lost").unwrap();
        folder
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).into_iter().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[track_caller]
    fn is_whole_output_of(&self, job: JobId) {
        assert_eq!(self.names(), [MANIFEST, "part-00000", "part-00001", "part-00002"]);
        let manifest = Manifest::read(self.path()).unwrap().unwrap();
        assert_eq!((manifest.job, manifest.files.len()), (job, PARTS));
        for (index, file) in manifest.files.iter().enumerate() {
            assert_eq!(fs::read(self.path().join(&file.name)).unwrap(), content(job, index));
            assert!(is_file_of(&self.path().join(&file.name), file.bytes, file.hash).unwrap());
        }
    }

    fn put(&self, name: &str, content: &str) {
        fs::write(self.path().join(name), content).unwrap();
    }
}

fn content(job: JobId, index: usize) -> Vec<u8> {
    format!("part {index} of {job}").into_bytes()
}

fn token(job: JobId, index: usize) -> Token {
    token_of("1", job, index)
}

/// The token that an attempt at the file gives.
fn token_of(attempt: &str, job: JobId, index: usize) -> Token {
    let (name, content) = (crate::part_name(index, PARTS), content(job, index));
    let (bytes, hash) = (content.len() as u64, ContentHash::of_blocks(0, &content));
    Token { temporary: temporary_name(&name, attempt), name, rows: 1, bytes, hash }
}

fn claim(folder: &LocalFolder) -> Result<Claimed, FileError> {
    folder.claim(&TEST, None)
}

fn commit(folder: &LocalFolder) -> Result<(), FileError> {
    commit_of("1", folder)
}

/// Commits what these attempts at the files have written.
fn commit_of(attempt: &str, folder: &LocalFolder) -> Result<(), FileError> {
    // As jobs do it.
    OutputFolder::new(&folder.path, folder.job)?.commit(attempt, ("test", &Schema::bytes()), |take| {
        (0..PARTS).try_for_each(|index| take(&token_of(attempt, folder.job, index)))
    })
}

/// Makes a claim look as if its process had gone long ago.
fn grow_old(world: &World) {
    let text = fs::read_to_string(world.path().join(CLAIM)).unwrap();
    let mut claim: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let version = claim.remove("exobus_claim").unwrap();
    claim.insert("claimed_unix_ms".into(), 1.into());
    let rest = serde_json::to_string(&claim).unwrap();
    world.put(CLAIM, &format!("{{\"exobus_claim\":{version},{}", &rest[1..]));
}

/// Calls `check` with a world in which `work` was killed after each number of steps in turn; how many there are.
fn killed_at_each_step(
    prepare: impl Fn(&World) -> LocalFolder,
    work: impl Fn(&LocalFolder) -> Result<(), FileError>,
    check: impl Fn(&World, &LocalFolder),
) -> usize {
    for steps in 0.. {
        let world = World::new();
        let folder = prepare(&world);
        let done = killed_after(steps, || work(&folder));
        check(&world, &folder);
        if done.is_some() {
            return steps;
        }
    }
    unreachable!("there are so many steps")
}

#[test]
fn a_commit_that_is_killed_between_any_two_steps_is_done_again_to_its_end() {
    let check = |world: &World, folder: &LocalFolder| {
        commit(folder).unwrap();
        world.is_whole_output_of(ONE);
        commit(folder).unwrap();
        folder.withdraw(None).unwrap();
        world.is_whole_output_of(ONE);
    };
    let steps = killed_at_each_step(|world| world.written(ONE), commit, check);
    assert!(steps >= PARTS + 5, "{steps} steps");
}

/// What is known of the tasks that wrote the files may be lost with the process, so they run again.
#[test]
fn a_commit_that_is_killed_between_any_two_steps_is_done_again_with_what_other_attempts_wrote() {
    let check = |world: &World, folder: &LocalFolder| {
        let whole = world.path().join(MANIFEST).exists();
        if !whole {
            for index in 0..PARTS {
                let token = token_of("10001", ONE, index);
                fs::write(folder.temporaries().join(&token.temporary), content(ONE, index)).unwrap();
            }
        }
        commit_of("10001", folder).unwrap();
        world.is_whole_output_of(ONE);
    };
    killed_at_each_step(|world| world.written(ONE), commit, check);
    let withdrawn = |world: &World, folder: &LocalFolder| {
        let placed = world.names().iter().filter(|name| name.starts_with("part")).count();
        let whole = placed == PARTS;
        if !world.path().join(MANIFEST).exists() {
            let token = token_of("10001", ONE, 0);
            fs::write(folder.temporaries().join(&token.temporary), content(ONE, 0)).unwrap();
            assert_eq!(
                commit_of("10001", folder).is_ok(),
                whole,
                "it has one of the files, and {placed} have their names"
            );
        }
        folder.withdraw(None).unwrap();
        assert_eq!(world.path().exists(), whole, "{:?}", world.names());
    };
    killed_at_each_step(|world| world.written(ONE), commit, withdrawn);
}

#[test]
fn a_commit_that_is_killed_between_any_two_steps_is_whole_or_refused_as_input_and_can_be_withdrawn() {
    let check = |world: &World, folder: &LocalFolder| {
        let whole = world.path().join(MANIFEST).exists();
        let listed = crate::visit_files((&[world.path()], false), |_| Ok(()), |_, _| Ok::<_, FileError>(()));
        assert_eq!(listed.is_ok(), whole, "{listed:?}");
        folder.withdraw(None).unwrap();
        match whole {
            true => world.is_whole_output_of(ONE),
            false => assert!(!world.path().exists(), "it was made for the job: {:?}", world.names()),
        }
    };
    killed_at_each_step(|world| world.written(ONE), commit, check);
}

#[test]
fn a_withdrawal_that_is_killed_between_any_two_steps_is_done_again_to_its_end() {
    // Some files have their names.
    let half_committed = |world: &World| {
        let folder = world.written(ONE);
        assert!(killed_after(4, || commit(&folder)).is_none());
        assert!(world.names().iter().any(|name| name == "part-00001"), "{:?}", world.names());
        world.put("theirs", "theirs");
        folder
    };
    let check = |world: &World, folder: &LocalFolder| {
        folder.withdraw(None).unwrap();
        assert_eq!(world.names(), ["theirs"]);
        assert!(commit(folder).is_err(), "who comes too late commits nothing");
        assert_eq!(world.names(), ["theirs"]);
    };
    let steps = killed_at_each_step(half_committed, |folder| folder.withdraw(None), check);
    assert!(steps >= 5, "{steps} steps");
}

/// The token of a file in folders.
fn token_in_folders(index: usize) -> Token {
    let (name, content) = (format!("day={}/at=x/part-{index:05}", index / 2), content(ONE, index));
    let (bytes, hash) = (content.len() as u64, ContentHash::of_blocks(0, &content));
    Token { temporary: temporary_name(&name, "1"), name, rows: 1, bytes, hash }
}

/// The folder, claimed, and its files in folders written.
fn written_in_folders(world: &World) -> LocalFolder {
    let folder = world.folder(ONE);
    assert_eq!(claim(&folder).unwrap(), Claimed::Now);
    for index in 0..PARTS {
        let path = folder.temporaries().join(token_in_folders(index).temporary);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content(ONE, index)).unwrap();
    }
    folder
}

fn commit_in_folders(folder: &LocalFolder) -> Result<(), FileError> {
    OutputFolder::new(&folder.path, ONE)?
        .commit("1", ("test", &Schema::bytes()), |take| (0..PARTS).try_for_each(|index| take(&token_in_folders(index))))
}

fn is_whole_in_folders(world: &World) -> bool {
    let is_there = |index| {
        let read = fs::read(world.path().join(token_in_folders(index).name));
        read.is_ok_and(|bytes| bytes == content(ONE, index))
    };
    (0..PARTS).all(is_there) && world.names() == [MANIFEST, "day=0", "day=1"]
}

#[test]
fn a_commit_of_files_in_folders_that_is_killed_between_any_two_steps_is_done_again_or_withdrawn() {
    let on_any_files = || {
        let again = |world: &World, folder: &LocalFolder| {
            commit_in_folders(folder).unwrap();
            assert!(is_whole_in_folders(world), "{:?}", world.names());
        };
        let steps = killed_at_each_step(written_in_folders, commit_in_folders, again);
        assert!(steps >= PARTS + 5 + 8, "{steps} steps");
        let withdrawn = |world: &World, folder: &LocalFolder| {
            let whole = world.path().join(MANIFEST).exists();
            folder.withdraw(None).unwrap();
            assert!(whole == world.path().exists() && whole == is_whole_in_folders(world), "{:?}", world.names());
        };
        killed_at_each_step(written_in_folders, commit_in_folders, withdrawn);
    };
    on_any_files();
    on_plain_files(on_any_files);
}

/// A job that is over, and had folders of the same names, removes those that are empty.
#[test]
fn a_folder_that_a_late_withdrawal_has_removed_is_made_once_more_by_the_commit() {
    let on_any_files = || {
        let removed = Rc::new(Cell::new(0));
        for steps in 0.. {
            let world = World::new();
            let (folder, path, count) = (written_in_folders(&world), world.path(), removed.clone());
            let withdraws = move || {
                for name in ["day=0/at=x", "day=0", "day=1/at=x", "day=1"] {
                    count.set(count.get() + usize::from(fs::remove_dir(path.join(name)).is_ok()));
                }
            };
            let (committed, withdrawn) = meanwhile(steps, withdraws, || commit_in_folders(&folder));
            committed.unwrap();
            assert!(is_whole_in_folders(&world), "{:?}", world.names());
            if !withdrawn {
                break;
            }
        }
        assert!(removed.get() >= 6, "{} folders were removed", removed.get());
    };
    on_any_files();
    on_plain_files(on_any_files);
}

#[test]
fn a_withdrawal_that_another_one_of_the_job_overtakes_anywhere_leaves_nothing_and_says_nothing() {
    for commit_steps in [2, 8, 12] {
        for steps in 0.. {
            let world = World::new();
            let folder = written_in_folders(&world);
            assert!(killed_after(commit_steps, || commit_in_folders(&folder)).is_none());
            let other = folder.clone();
            let overtakes = move || other.withdraw(None).unwrap();
            let (withdrawn, overtaken) = meanwhile(steps, overtakes, || folder.withdraw(None));
            withdrawn.unwrap();
            assert!(!world.path().exists(), "{:?}", world.names());
            if !overtaken {
                assert!(steps >= 6, "{steps} steps");
                break;
            }
        }
    }
}

#[test]
fn a_claim_that_is_killed_between_any_two_steps_is_made_again() {
    let check = |world: &World, folder: &LocalFolder| {
        assert_eq!(claim(folder).unwrap(), Claimed::Now);
        assert_eq!(world.names(), [".exobus-00000000000000000000000000000001", CLAIM]);
        folder.withdraw(None).unwrap();
        assert_eq!(world.names(), [""; 0]);
    };
    killed_at_each_step(|world| world.folder(ONE), |folder| claim(folder).map(drop), check);
}

#[test]
fn taking_a_folder_over_that_is_killed_between_any_two_steps_is_done_again_to_its_end() {
    let abandoned = |world: &World| {
        let folder = world.written(ONE);
        assert!(killed_after(4, || commit(&folder)).is_none());
        grow_old(world);
        world.folder(TWO)
    };
    let take_over = |folder: &LocalFolder| folder.claim(&TEST, Some((ONE, true))).map(drop);
    let check = |world: &World, folder: &LocalFolder| {
        take_over(folder).unwrap();
        assert_eq!(Claim::read(world.path()).unwrap().unwrap().job, TWO);
        assert_eq!(world.names(), [".exobus-00000000000000000000000000000002", CLAIM], "nothing of the other is left");
    };
    let steps = killed_at_each_step(abandoned, take_over, check);
    assert!(steps >= 5, "{steps} steps");
}

#[test]
fn a_folder_is_one_jobs_and_the_refusal_names_it() {
    let world = World::new();
    let one = world.written(ONE);
    let lock = one.lock().unwrap();
    let refused = claim(&world.folder(TWO)).unwrap_err().to_string();
    for text in [&ONE.to_string(), "(test on this machine)", "which runs"] {
        assert!(refused.contains(text), "{refused}");
    }
    assert!(check_output_folder(world.path()).is_err());
    // What it did not claim it does not touch.
    world.folder(TWO).withdraw(None).unwrap();
    drop(lock);
    commit(&one).unwrap();
    world.is_whole_output_of(ONE);
    let refused = claim(&world.folder(TWO)).unwrap_err();
    assert!(matches!(&refused, FileError::NotEmpty { .. }), "{refused}");
    world.is_whole_output_of(ONE);
}

#[test]
fn of_several_jobs_that_want_a_folder_at_once_one_gets_it() {
    for _ in 0..20 {
        let world = World::new();
        let claimed = std::thread::scope(|scope| {
            #[allow(clippy::disallowed_methods, reason = "threads that are in each other's way are what is tested")]
            let threads: Vec<_> = (1..=8)
                .map(|job| {
                    let folder = world.folder(JobId::from_u128(job));
                    scope.spawn(move || {
                        let claimed = claim(&folder).is_ok();
                        if !claimed {
                            folder.withdraw(None).unwrap();
                        }
                        claimed
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|claimed| *claimed).count()
        });
        assert_eq!((claimed, world.names().len()), (1, 2), "{:?}", world.names());
    }
}

#[test]
fn a_job_that_is_over_is_told_of_and_then_taken_over() {
    let world = World::new();
    world.written(ONE);
    let two = world.folder(TWO);
    assert!(claim(&two).is_err(), "its process may not have locked it yet");
    grow_old(&world);
    check_output_folder(world.path()).unwrap();
    assert_eq!(claim(&two).unwrap(), Claimed::Over(ONE));
    assert_eq!(Claim::read(world.path()).unwrap().unwrap().job, ONE, "not before it was said");
    assert_eq!(two.claim(&TEST, Some((ONE, true))).unwrap(), Claimed::Now);
    assert!(commit(&world.folder(ONE)).unwrap_err().to_string().contains(&TWO.to_string()));
    commit(&world.written(TWO)).unwrap();
    world.is_whole_output_of(TWO);
}

#[test]
fn a_cluster_is_asked_for_its_own_jobs_only() {
    let world = World::new();
    let lab = Claimant { cluster: Some("lab"), ..TEST };
    assert_eq!(world.folder(ONE).claim(&lab, None).unwrap(), Claimed::Now);
    let two = world.folder(TWO);
    assert_eq!(two.claim(&lab, None).unwrap(), Claimed::Ask(ONE));
    let runs = two.claim(&lab, Some((ONE, false))).unwrap_err().to_string();
    assert!(runs.contains("cluster lab") && runs.contains("which runs"), "{runs}");
    for home in [TEST, Claimant { cluster: Some("other"), ..TEST }] {
        let refused = two.claim(&home, None).unwrap_err().to_string();
        assert!(refused.contains("cluster lab") && refused.contains("exobus resume --drop"), "{refused}");
    }
    assert_eq!(two.claim(&lab, Some((ONE, true))).unwrap(), Claimed::Now);
}

#[test]
fn what_somebody_else_puts_there_fails_the_commit_and_stays() {
    for name in ["part-00001", "stranger", MANIFEST] {
        let world = World::new();
        let folder = world.written(ONE);
        world.put(name, "{}");
        commit(&folder).unwrap_err();
        assert!(!world.names().contains(&"part-00000".to_owned()), "it is seen before anything has its name");
        folder.withdraw(None).unwrap();
        assert_eq!(world.names(), [name]);
        assert_eq!(fs::read(world.path().join(name)).unwrap(), b"{}");
    }
}

#[test]
fn what_somebody_else_puts_there_during_the_commit_fails_it_and_stays() {
    let put = |world: &World| {
        let folder = world.written(ONE);
        assert!(killed_after(3, || commit(&folder)).is_none());
        world.put("stranger", "theirs");
        folder
    };
    let world = World::new();
    let folder = put(&world);
    let error = commit(&folder).unwrap_err();
    assert!(matches!(&error, FileError::Foreign { path, job: ONE } if path.ends_with("stranger")), "{error}");
    folder.withdraw(None).unwrap();
    assert_eq!(world.names(), ["stranger"]);
    // What can never be input is nobody's business.
    let world = World::new();
    let folder = world.written(ONE);
    world.put(".hidden", "theirs");
    commit(&folder).unwrap();
}

/// A file of the same name and length is not the job's own.
#[test]
fn a_repeated_commit_knows_its_own_files_from_others_of_the_same_name_and_length() {
    let world = World::new();
    let folder = world.written(ONE);
    assert!(killed_after(4, || commit(&folder)).is_none());
    let path = world.path().join("part-00001");
    let theirs = "x".repeat(content(ONE, 1).len());
    fs::remove_file(&path).unwrap();
    world.put("part-00001", &theirs);
    let error = commit(&folder).unwrap_err();
    assert!(matches!(&error, FileError::Foreign { path: found, .. } if *found == path), "{error}");
    folder.withdraw(None).unwrap();
    assert_eq!((world.names(), fs::read_to_string(&path).unwrap()), (vec!["part-00001".to_owned()], theirs));
}

/// Where there are no links, a file that has its name has no temporary.
#[test]
fn files_that_were_renamed_are_known_by_length_and_hash() {
    let rename = |world: &World, folder: &LocalFolder| {
        let token = token(ONE, 0);
        fs::rename(folder.temporaries().join(token.temporary), world.path().join(token.name)).unwrap();
    };
    let world = World::new();
    let folder = world.written(ONE);
    rename(&world, &folder);
    commit(&folder).unwrap();
    world.is_whole_output_of(ONE);

    let world = World::new();
    let folder = world.written(ONE);
    assert!(killed_after(1, || commit(&folder)).is_none());
    rename(&world, &folder);
    folder.withdraw(None).unwrap();
    assert!(!world.path().exists(), "{:?}", world.names());

    let world = World::new();
    let folder = world.written(ONE);
    assert!(killed_after(1, || commit(&folder)).is_none());
    rename(&world, &folder);
    world.put("part-00000", &"x".repeat(content(ONE, 0).len()));
    assert!(matches!(commit(&folder), Err(FileError::Foreign { .. })));
    folder.withdraw(None).unwrap();
    assert_eq!(world.names(), ["part-00000"]);
}

#[test]
fn a_file_that_has_become_shorter_is_not_committed() {
    let world = World::new();
    let folder = world.written(ONE);
    fs::write(folder.temporaries().join(token(ONE, 2).temporary), "torn").unwrap();
    assert!(matches!(commit(&folder), Err(FileError::Damaged { .. })));
}

#[test]
fn a_claim_that_nobody_can_read_is_in_the_way_and_says_why() {
    let world = World::new();
    fs::create_dir(world.path()).unwrap();
    for (text, said) in [("", "damaged"), ("{\"exobus_claim\":9}", "format 9")] {
        world.put(CLAIM, text);
        let error = claim(&world.folder(ONE)).unwrap_err().to_string();
        assert!(error.contains(CLAIM) && error.contains(said), "{error}");
    }
    fs::remove_file(world.path().join(CLAIM)).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, world.path().join(CLAIM), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    assert!(claim(&world.folder(ONE)).is_err(), "nobody waits for who opens the other end");
}

/// Attempts at one task run at a time where a node was silent for a while, and a late one may find what the job has done since.
#[test]
fn an_attempt_at_a_claim_that_another_one_overtakes_anywhere_takes_nothing_from_the_job() {
    let overtaken = || {
        // The other one claims, or the job also commits: in part, and to the end.
        for commit_steps in [None, Some(4), Some(usize::MAX)] {
            for steps in 0.. {
                let world = Rc::new(World::new());
                let (late, of_job) = (world.folder(ONE), world.clone());
                let overtakes = move || {
                    let folder = of_job.written(ONE);
                    if let Some(steps) = commit_steps {
                        killed_after(steps, || commit(&folder));
                    }
                };
                let (_told_nobody, overtaken) = meanwhile(steps, overtakes, || claim(&late));
                if !overtaken {
                    assert!(steps >= 3, "{steps} steps");
                    break;
                }
                assert!(world.path().join(MANIFEST).exists() || late.own_claim().unwrap().is_some());
                commit(&late).unwrap();
                world.is_whole_output_of(ONE);
            }
        }
    };
    overtaken();
    on_plain_files(overtaken);
}

#[test]
fn a_claim_that_another_job_takes_over_while_it_is_given_back_is_that_jobs() {
    let taken_over = || {
        for steps in 0.. {
            let world = Rc::new(World::new());
            let (one, two) = (world.written(ONE), world.folder(TWO));
            grow_old(&world);
            let take_over = move || assert!(two.claim(&TEST, Some((ONE, true))).is_ok());
            let (withdrawn, taken_over) = meanwhile(steps, take_over, || one.withdraw(None));
            withdrawn.unwrap();
            if !taken_over {
                assert!(steps >= 3, "{steps} steps");
                break;
            }
            assert_eq!(Claim::read(world.path()).unwrap().map(|claim| claim.job), Some(TWO), "after {steps} steps");
            world.written_only(TWO);
            commit(&world.folder(TWO)).unwrap();
            world.is_whole_output_of(TWO);
        }
    };
    taken_over();
    on_plain_files(taken_over);
}

/// The claim is the job's own, or nobody's, until the job is over.
#[test]
fn nobody_takes_a_folder_over_while_who_gives_it_back_has_its_lock() {
    for steps in 0.. {
        let world = Rc::new(World::new());
        let (one, two) = (world.written(ONE), world.folder(TWO));
        grow_old(&world);
        let lock = one.lock();
        assert!(lock.is_some());
        let claimed = Rc::<RefCell<Option<Result<Claimed, FileError>>>>::default();
        let told = claimed.clone();
        let take_over = move || drop(told.replace(Some(two.claim(&TEST, Some((ONE, true))))));
        let (withdrawn, came_between) = meanwhile(steps, take_over, || one.withdraw(lock));
        withdrawn.unwrap();
        if !came_between {
            break;
        }
        let now = Claim::read(world.path()).unwrap().map(|claim| claim.job);
        match claimed.take().unwrap() {
            Ok(claimed) => assert_eq!((claimed, now), (Claimed::Now, Some(TWO)), "the claim was gone"),
            Err(error) => {
                assert!(matches!(error, FileError::Claimed { standing: Standing::Runs, .. }), "{error}");
                assert_eq!(now, None);
            }
        }
    }
}

#[test]
fn a_file_is_read_to_commit_it_only_where_it_was_renamed_before_and_once() {
    on_plain_files(|| {
        let world = World::new();
        let folder = world.written(ONE);
        READ.set(0);
        commit(&folder).unwrap();
        assert_eq!(READ.get(), 0, "this attempt has placed all of them");
        world.is_whole_output_of(ONE);
        let again = |world: &World, folder: &LocalFolder| {
            let placed = world.names().iter().filter(|name| name.starts_with("part")).count();
            READ.set(0);
            let whole = world.path().join(MANIFEST).exists();
            commit(folder).unwrap();
            assert_eq!(READ.get(), if whole { 0 } else { placed });
            world.is_whole_output_of(ONE);
        };
        killed_at_each_step(|world| world.written(ONE), commit, again);
    });
}

#[test]
fn without_links_and_locks_a_job_that_is_killed_anywhere_goes_on_as_well() {
    on_plain_files(|| {
        a_commit_that_is_killed_between_any_two_steps_is_whole_or_refused_as_input_and_can_be_withdrawn();
        a_withdrawal_that_is_killed_between_any_two_steps_is_done_again_to_its_end();
        a_claim_that_is_killed_between_any_two_steps_is_made_again();
        taking_a_folder_over_that_is_killed_between_any_two_steps_is_done_again_to_its_end();
    });
}

/// What was known of the job is lost, and its output is not.
#[test]
fn a_job_that_is_run_from_its_beginning_finds_its_output_whole() {
    for gives_up in [false, true] {
        let world = World::new();
        commit(&world.written(ONE)).unwrap();
        let folder = world.written(ONE);
        match gives_up {
            false => commit(&folder).unwrap(),
            true => folder.withdraw(None).unwrap(),
        }
        world.is_whole_output_of(ONE);
    }
}

/// It has the lock of a claim as long as it lives, and was declared dead long ago.
#[test]
fn a_claim_whose_lock_a_frozen_host_has_is_given_back() {
    let world = World::new();
    let frozen = world.written(ONE).lock().unwrap();
    world.folder(ONE).withdraw(None).unwrap();
    assert!(!world.path().exists(), "{:?}", world.names());
    drop(frozen);
}

/// As a job does whose host and servers died when it had committed, and lost the end of its log.
#[test]
fn a_job_that_has_committed_and_does_not_know_it_writes_its_files_and_commits_again() {
    let (world, job, other) = (World::new(), JobId::from_u128(1), JobId::from_u128(2));
    commit(&world.written(job)).unwrap();
    let folder = world.folder(job);
    assert!(!folder.temporaries().exists());
    folder.reopen().unwrap();
    world.folder(other).reopen().unwrap();
    assert!(!world.folder(other).temporaries().exists(), "the folder is not that job's");
    let buffers = vec![Box::new(AlignedBuffer::new(4096)) as IoBuffer];
    let file = OutputFile::new(folder.begin("part-00000", "2", Planned::default()).unwrap(), "part-00000", buffers);
    // A host that was frozen while it committed goes on with that.
    commit(&folder).unwrap();
    assert!(!folder.temporaries().exists());
    file.finish(0).unwrap();
    folder.reopen().unwrap();
    commit_of("2", &world.written_only(job)).unwrap();
    world.is_whole_output_of(job);
}

#[test]
fn a_run_that_has_made_something_else_than_what_the_job_has_committed_says_so_and_changes_nothing() {
    let (world, job) = (World::new(), JobId::from_u128(1));
    let folder = world.written(job);
    commit(&folder).unwrap();
    let schema = Schema::records(100, 10);
    let of_jobs = OutputFolder::new(&folder.path, job).unwrap();
    let error = of_jobs.commit("2", ("test", &schema), |take| {
        (0..PARTS).try_for_each(|index| take(&Token { rows: 2, ..token(job, index) }))
    });
    assert!(matches!(error, Err(FileError::Differs { .. })), "{error:?}");
    let fewer = of_jobs.commit("2", ("test", &schema), |take| take(&token(job, 0)));
    assert!(matches!(fewer, Err(FileError::Differs { .. })), "{fewer:?}");
    world.is_whole_output_of(job);
}

#[test]
fn a_commit_that_a_frozen_host_of_the_job_overtakes_anywhere_ends_well() {
    for steps in 0.. {
        let (world, job) = (World::new(), JobId::from_u128(1));
        let (folder, other) = (world.written(job), world.folder(job));
        let (outcome, overtaken) = meanwhile(steps, move || commit(&other).unwrap(), || commit(&folder));
        outcome.unwrap();
        world.is_whole_output_of(job);
        if !overtaken {
            return;
        }
    }
}

#[test]
fn nothing_is_made_for_a_job_that_has_given_up() {
    let (world, job) = (World::new(), JobId::from_u128(1));
    let folder = world.written(job);
    folder.withdraw(None).unwrap();
    folder.reopen().unwrap();
    assert!(!world.path().exists());
}
