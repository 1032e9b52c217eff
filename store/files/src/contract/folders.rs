//! Folders of jobs, from the claim to the commit.

use std::cell::Cell;

use exobus_store::JobId;

use super::{Fixture, buffers, is_missing, names, read, some_bytes};
use crate::{
    ALIGNMENT, Claim, Claimant, Claimed, FileError, Location, MANIFEST, Manifest, OutputFolder, Schema, Token,
    check_output_folder, part_name, visit_files,
};

const PARTS: usize = 3;
const ONE: JobId = JobId::from_u128(1);
const TWO: JobId = JobId::from_u128(2);
/// Of a cluster, which knows of its jobs: whether a process of this machine lives is not every file system's to know.
const LAB: Claimant<'static> = Claimant { program: "test", cluster: Some("lab"), log: None };

fn folder_of(fixture: &Fixture, job: JobId) -> OutputFolder {
    OutputFolder::new(&fixture.folder, job).unwrap()
}

/// The folder, claimed.
fn claimed(fixture: &Fixture, job: JobId) -> OutputFolder {
    let folder = folder_of(fixture, job);
    assert_eq!(folder.claim(&LAB, None).unwrap(), Claimed::Now);
    folder
}

/// What stands in a part: four requests.
fn content(job: JobId, part: usize) -> Vec<u8> {
    some_bytes(7 * ALIGNMENT + 100 * part, job.as_u128() as u8)
}

fn write_part(folder: &OutputFolder, part: usize, attempt: &str) -> Token {
    let mut file = folder.create(&part_name(part, PARTS), attempt, buffers(), 0).unwrap();
    file.write(&content(folder.job(), part)).unwrap();
    file.finish(part as u64).unwrap().0
}

fn write_parts(folder: &OutputFolder, attempt: &str) -> Vec<Token> {
    (0..PARTS).map(|part| write_part(folder, part, attempt)).collect()
}

fn commit(folder: &OutputFolder, tokens: &[Token]) -> Result<(), FileError> {
    folder.commit("1", ("test", &Schema::bytes()), |take| tokens.iter().try_for_each(take))
}

/// The files that a job would read.
fn input(folder: &Location, partial: bool) -> Result<Vec<(Location, u64)>, FileError> {
    let mut files = Vec::new();
    visit_files(
        (&[folder.to_path_buf()], partial),
        |_| Ok(()),
        |file, status| -> Result<(), FileError> {
            files.push((file.clone(), status.bytes));
            Ok(())
        },
    )?;
    Ok(files)
}

#[track_caller]
fn is_whole_output_of(fixture: &Fixture, job: JobId) {
    let parts: Vec<String> = (0..PARTS).map(|part| part_name(part, PARTS)).collect();
    assert_eq!(names(&fixture.folder), parts);
    for (part, (file, bytes)) in input(&fixture.folder, false).unwrap().into_iter().enumerate() {
        assert!(read(&file).unwrap() == content(job, part), "{file}");
        assert_eq!(bytes, content(job, part).len() as u64);
    }
    let manifest = Manifest::read(&fixture.folder).unwrap().unwrap();
    let listed: Vec<_> = manifest.files.iter().map(|file| (file.name.clone(), file.rows)).collect();
    assert_eq!((manifest.job, manifest.program.as_str(), listed), (job, "test", parts.into_iter().zip(0..).collect()));
    assert_eq!(Claim::read(&fixture.folder).unwrap(), None);
    assert_eq!((fixture.count)(&fixture.folder), PARTS + 1, "the parts and the manifest, and nothing that nobody sees");
}

/// Nothing of a job is there: another one may have the folder.
#[track_caller]
fn is_free(fixture: &Fixture) {
    assert_eq!(Claim::read(&fixture.folder).unwrap(), None);
    let system = fixture.folder.system().unwrap();
    assert!(!system.is_there(&fixture.folder.join(MANIFEST)).unwrap());
    let listed = system.list(&fixture.folder);
    assert!(listed.is_err() || names(&fixture.folder).is_empty());
    check_output_folder(&fixture.folder).unwrap();
    assert_eq!((fixture.count)(&fixture.folder), 0);
}

/// Others are refused and told whose it is; as input it is refused until it is whole.
pub fn a_folder_is_one_jobs(fixture: &Fixture) {
    check_output_folder(&fixture.folder).unwrap();
    let one = claimed(fixture, ONE);
    assert_eq!(one.claim(&LAB, None).unwrap(), Claimed::Now, "again");
    assert_eq!(Claim::read(&fixture.folder).unwrap().unwrap().job, ONE);
    assert!(matches!(check_output_folder(&fixture.folder), Err(FileError::Claimed { .. })));
    assert!(
        matches!(input(&fixture.folder, false), Err(FileError::Unfinished { claim: Some(claim), .. }) if claim.job == ONE)
    );
    assert!(matches!(input(&fixture.folder, true), Err(FileError::NoFiles { .. })));
    let two = folder_of(fixture, TWO);
    assert_eq!(two.claim(&LAB, None).unwrap(), Claimed::Ask(ONE));
    let refused = two.claim(&LAB, Some((ONE, false))).unwrap_err().to_string();
    assert!(refused.contains(&ONE.to_string()) && refused.contains("cluster lab"), "{refused}");
    let elsewhere = Claimant { cluster: Some("other"), ..LAB };
    assert!(matches!(two.claim(&elsewhere, None), Err(FileError::Claimed { .. })));
    // What it did not claim it does not touch.
    two.withdraw(None).unwrap();
    assert_eq!(Claim::read(&fixture.folder).unwrap().unwrap().job, ONE);
    assert!(commit(&two, &[]).is_err());
    commit(&one, &write_parts(&one, "1")).unwrap();
    is_whole_output_of(fixture, ONE);
}

/// The claim is made on the condition that there is none.
pub fn of_several_jobs_that_want_a_folder_at_once_one_gets_it(fixture: &Fixture) {
    let folders: Vec<OutputFolder> = (1..=8).map(|job| folder_of(fixture, JobId::from_u128(job))).collect();
    let claimed = std::thread::scope(|scope| {
        #[allow(clippy::disallowed_methods, reason = "threads that are in each other's way are what is tested")]
        let threads: Vec<_> = folders.iter().map(|folder| scope.spawn(|| folder.claim(&LAB, None))).collect();
        let claimed = threads.into_iter().map(|thread| thread.join().unwrap());
        claimed.filter(|claimed| matches!(claimed, Ok(Claimed::Now))).count()
    });
    assert_eq!(claimed, 1);
    let owner = Claim::read(&fixture.folder).unwrap().unwrap().job;
    for folder in folders {
        folder.withdraw(None).unwrap();
        let claim = Claim::read(&fixture.folder).unwrap();
        assert_eq!(claim.map(|claim| claim.job), (folder.job() < owner).then_some(owner), "{}", folder.job());
    }
    is_free(fixture);
}

/// Whatever it is, it stays.
pub fn a_folder_in_which_something_is_is_nobodys(fixture: &Fixture) {
    (fixture.put)(&fixture.folder.join("theirs"), b"theirs");
    let named = |error: FileError| matches!(error, FileError::NotEmpty { found, .. } if found == "theirs");
    assert!(check_output_folder(&fixture.folder).is_err_and(named));
    let one = folder_of(fixture, ONE);
    assert!(one.claim(&LAB, None).is_err_and(named));
    one.withdraw(None).unwrap();
    assert_eq!(read(&fixture.folder.join("theirs")).unwrap(), b"theirs");
}

/// A reader sees all of a job's files or none.
pub fn files_have_their_names_from_the_commit_on(fixture: &Fixture) {
    let one = claimed(fixture, ONE);
    let tokens = write_parts(&one, "1");
    assert_eq!(names(&fixture.folder), [""; 0]);
    assert!(is_missing(read(&fixture.folder.join(&tokens[0].name))));
    for (part, token) in tokens.iter().enumerate() {
        let bytes = content(ONE, part);
        assert_eq!((token.bytes, token.hash), (bytes.len() as u64, crate::ContentHash::of_blocks(0, &bytes)));
    }
    commit(&one, &tokens).unwrap();
    is_whole_output_of(fixture, ONE);
}

/// Attempts at one file are in nobody's way.
pub fn the_attempt_whose_token_is_given_is_committed_and_nothing_is_left_of_others(fixture: &Fixture) {
    let one = claimed(fixture, ONE);
    let mut tokens = write_parts(&one, "1");
    let lost = std::mem::replace(&mut tokens[1], write_part(&one, 1, "2"));
    assert_eq!(lost.temporary.len(), tokens[1].temporary.len(), "two attempts of a task return the same length");
    let mut unfinished = one.create(&part_name(1, PARTS), "3", buffers(), 0).unwrap();
    unfinished.write(b"half").unwrap();
    drop(unfinished);
    one.abort(&lost).unwrap();
    one.abort(&lost).unwrap();
    commit(&one, &tokens).unwrap();
    is_whole_output_of(fixture, ONE);
    one.abort(&lost).unwrap();
    is_whole_output_of(fixture, ONE);
}

/// Who has committed may not know it.
pub fn a_commit_is_done_again_and_stays(fixture: &Fixture) {
    let one = claimed(fixture, ONE);
    let tokens = write_parts(&one, "1");
    for _ in 0..2 {
        commit(&one, &tokens).unwrap();
        is_whole_output_of(fixture, ONE);
    }
    one.withdraw(None).unwrap();
    is_whole_output_of(fixture, ONE);
    assert!(matches!(folder_of(fixture, TWO).claim(&LAB, None), Err(FileError::NotEmpty { .. })));
}

/// By who gives the tokens, at each of them; then it is done with the same attempts, with others, by another job, or not at all.
pub fn a_commit_that_is_stopped_anywhere_is_done_again_or_withdrawn(fixture: &Fixture) {
    let mut round = 0;
    for stop_at in 0.. {
        let mut stopped = false;
        for end in ["again", "others", "taken over", "withdrawn"] {
            round += 1;
            let folder = fixture.folder.join(format!("out-{round}"));
            let (put, count) = (Box::new(|_: &Location, _: &[u8]| {}), fixture.count.clone());
            let fixture = Fixture { folder, put, count, guard: Box::new(()) };
            let one = claimed(&fixture, ONE);
            let tokens = write_parts(&one, "1");
            let given = Cell::new(0);
            let stop = || FileError::NoFiles { path: "stopped".into(), folder: None };
            let done = one.commit("1", ("test", &Schema::bytes()), |take| {
                tokens.iter().try_for_each(|token| {
                    if given.replace(given.get() + 1) == stop_at { Err(stop()) } else { take(token) }
                })
            });
            stopped = done.is_err();
            match end {
                _ if !stopped => {}
                "again" => commit(&one, &tokens).unwrap(),
                "others" => commit(&one, &write_parts(&one, "2")).unwrap(),
                "taken over" => {
                    let two = folder_of(&fixture, TWO);
                    assert_eq!(two.claim(&LAB, Some((ONE, true))).unwrap(), Claimed::Now);
                    commit(&two, &write_parts(&two, "1")).unwrap();
                    is_whole_output_of(&fixture, TWO);
                    continue;
                }
                _ => {
                    one.withdraw(None).unwrap();
                    is_free(&fixture);
                    continue;
                }
            }
            is_whole_output_of(&fixture, ONE);
        }
        if !stopped {
            assert!(stop_at >= PARTS, "the tokens were given once at least");
            return;
        }
    }
}

/// However late it is.
pub fn nothing_is_left_of_a_job_that_withdraws_and_it_commits_nothing_any_more(fixture: &Fixture) {
    let one = claimed(fixture, ONE);
    let tokens = write_parts(&one, "1");
    let begun = one.create(&part_name(0, PARTS), "2", buffers(), 0).unwrap();
    one.withdraw(None).unwrap();
    one.withdraw(None).unwrap();
    drop(begun);
    is_free(fixture);
    assert!(commit(&one, &tokens).is_err());
    is_free(fixture);
    // The folder is another job's now.
    let two = claimed(fixture, TWO);
    assert!(commit(&one, &tokens).is_err());
    one.withdraw(None).unwrap();
    commit(&two, &write_parts(&two, "1")).unwrap();
    is_whole_output_of(fixture, TWO);
}

/// It is never replaced and never removed.
pub fn what_somebody_else_puts_there_fails_the_commit_and_stays(fixture: &Fixture) {
    for name in ["part-00001", "stranger", MANIFEST] {
        let folder = fixture.folder.join(format!("with-{name}"));
        let one = OutputFolder::new(&folder, ONE).unwrap();
        assert_eq!(one.claim(&LAB, None).unwrap(), Claimed::Now);
        let tokens = write_parts(&one, "1");
        (fixture.put)(&folder.join(name), b"{}");
        let error = commit(&one, &tokens).unwrap_err();
        assert!(matches!(&error, FileError::Foreign { path, job: ONE } if path.ends_with(name)), "{error}");
        one.withdraw(None).unwrap();
        assert_eq!(read(&folder.join(name)).unwrap(), b"{}");
        let left = names(&folder);
        assert_eq!(left, if name == MANIFEST { vec![] } else { vec![name.to_owned()] });
    }
}

/// Folders in it are made by the commit, and go with the files in them; what somebody else has put there stays.
pub fn files_in_folders_of_it_are_committed_and_withdrawn_as_others_are(fixture: &Fixture) {
    const NAMES: [&str; 4] =
        ["day=1/part-00000", "day=1/part-00001", "day=2/at=%2F/part-00001", "day=2/at=x/part-00001"];
    let write = |folder: &OutputFolder| -> Vec<Token> {
        let file = |(part, name): (usize, &str)| {
            let mut file = folder.create(name, "1", buffers(), 0).unwrap();
            file.write(&content(folder.job(), part)).unwrap();
            file.finish(part as u64).unwrap().0
        };
        NAMES.into_iter().enumerate().map(file).collect()
    };
    for end in ["committed", "withdrawn", "stranger"] {
        let folder = fixture.folder.join(end);
        let one = OutputFolder::new(&folder, ONE).unwrap();
        assert_eq!(one.claim(&LAB, None).unwrap(), Claimed::Now);
        let tokens = write(&one);
        assert!(names(&folder).is_empty());
        if end == "stranger" {
            (fixture.put)(&folder.join("day=1").join("stranger"), b"{}");
            let error = commit(&one, &tokens).unwrap_err();
            assert!(
                matches!(&error, FileError::Foreign { path, job: ONE } if path.ends_with("day=1/stranger")),
                "{error}"
            );
        }
        if end != "committed" {
            one.withdraw(None).unwrap();
            let left = if end == "stranger" { vec!["day=1"] } else { vec![] };
            let listed = folder.system().unwrap().look_up(&folder).map_or_else(|_| Vec::new(), |_| names(&folder));
            assert_eq!(listed, left, "{end}");
            continue;
        }
        commit(&one, &tokens).unwrap();
        commit(&one, &tokens).unwrap();
        one.withdraw(None).unwrap();
        let manifest = Manifest::read(&folder).unwrap().unwrap();
        assert_eq!(manifest.files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), NAMES);
        for (part, name) in NAMES.into_iter().enumerate() {
            let file = name.split('/').fold(folder.clone(), |folder, name| folder.join(name));
            assert!(read(&file).unwrap() == content(ONE, part), "{name}");
        }
        assert_eq!((fixture.count)(&folder), NAMES.len() + 1);
    }
}

/// A function of the job is not deterministic.
pub fn a_run_that_has_made_something_else_says_so_and_changes_nothing(fixture: &Fixture) {
    let one = claimed(fixture, ONE);
    let mut tokens = write_parts(&one, "1");
    commit(&one, &tokens).unwrap();
    assert!(matches!(commit(&one, &tokens[1..]), Err(FileError::Differs { .. })));
    tokens[2].rows += 1;
    assert!(matches!(commit(&one, &tokens), Err(FileError::Differs { path, .. }) if path.ends_with("part-00002")));
    is_whole_output_of(fixture, ONE);
}

/// Its log has lost that.
pub fn a_job_that_has_committed_and_does_not_know_it_writes_and_commits_again(fixture: &Fixture) {
    let one = claimed(fixture, ONE);
    commit(&one, &write_parts(&one, "1")).unwrap();
    // As a task does that runs again, and as a job does that is run from its beginning.
    one.reopen().unwrap();
    assert!(!one.is_closed().unwrap());
    commit(&one, &write_parts(&one, "2")).unwrap();
    is_whole_output_of(fixture, ONE);
    assert_eq!(one.claim(&LAB, None).unwrap(), Claimed::Now);
    commit(&one, &write_parts(&one, "3")).unwrap();
    is_whole_output_of(fixture, ONE);
    folder_of(fixture, TWO).reopen().unwrap();
    is_whole_output_of(fixture, ONE);
}

/// It is told that it has lost the folder.
pub fn a_folder_is_taken_over_from_a_job_that_is_over(fixture: &Fixture) {
    let one = claimed(fixture, ONE);
    let tokens = write_parts(&one, "1");
    let two = folder_of(fixture, TWO);
    assert_eq!(two.claim(&LAB, None).unwrap(), Claimed::Ask(ONE));
    assert_eq!(two.claim(&LAB, Some((ONE, true))).unwrap(), Claimed::Now);
    assert_eq!(Claim::read(&fixture.folder).unwrap().unwrap().job, TWO);
    let late = commit(&one, &tokens).unwrap_err();
    assert!(matches!(&late, FileError::ClaimLost { job: ONE, now: Some(now), .. } if now.job == TWO), "{late}");
    one.withdraw(None).unwrap();
    commit(&two, &write_parts(&two, "1")).unwrap();
    is_whole_output_of(fixture, TWO);
}
