//! The promises of a file system, one function per clause; every file system runs them all:
//!
//! ```ignore
//! exobus_files::file_system_contract!(local, crate::local);   // fn local() -> exobus_files::contract::Fixture
//! ```

pub mod folders;
pub mod memory;
pub mod single;

use std::any::Any;
use std::fmt;
use std::rc::Rc;

use crate::{Access, AlignedBuffer, FileError, IoBuffer, Kind, Location};

/// Puts a file somewhere as somebody else does, in place of what is there.
pub type Put = Box<dyn Fn(&Location, &[u8])>;

/// Counts what is below a folder.
pub type Count = Rc<dyn Fn(&Location) -> usize>;

/// What a clause works on.
pub struct Fixture {
    /// A folder of its own, in which nothing is; where folders are made it is there.
    pub folder: Location,
    /// What others do.
    pub put: Put,
    /// How many files there are below a folder, and how many that are begun: whoever sees them.
    pub count: Count,
    /// Kept until the clause is over.
    pub guard: Box<dyn Any>,
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Makes one test per clause. `$fixture` is the full path (`crate::...`) of a function without arguments that returns a
/// [`Fixture`](crate::contract::Fixture).
#[macro_export]
macro_rules! file_system_contract {
    ($name:ident, $fixture:path) => {
        mod $name {
            $crate::file_system_contract!(@clauses $fixture;
                single::nothing_is_found_where_nothing_is,
                single::a_file_is_there_when_it_is_finished_and_not_before,
                single::nothing_is_left_of_a_file_that_is_dropped_unfinished,
                single::no_file_is_replaced,
                single::requests_make_up_a_file_in_whatever_order_they_are_done,
                single::any_range_is_read_and_an_end_that_comes_early_is_told,
                single::a_file_that_was_replaced_is_not_taken_for_the_one_that_was_listed,
                single::a_folder_lists_what_can_be_input_in_the_order_of_names,
                single::small_files_are_read_up_to_a_length,
                single::a_folder_that_has_folders_alone_says_which_pattern_has_their_files,
                single::files_of_a_table_are_in_folders_that_say_values_too,
                single::what_is_hidden_is_never_input,
                single::a_pattern_stands_for_the_files_that_match,
                folders::a_folder_is_one_jobs,
                folders::of_several_jobs_that_want_a_folder_at_once_one_gets_it,
                folders::a_folder_in_which_something_is_is_nobodys,
                folders::files_have_their_names_from_the_commit_on,
                folders::the_attempt_whose_token_is_given_is_committed_and_nothing_is_left_of_others,
                folders::a_commit_is_done_again_and_stays,
                folders::a_commit_that_is_stopped_anywhere_is_done_again_or_withdrawn,
                folders::nothing_is_left_of_a_job_that_withdraws_and_it_commits_nothing_any_more,
                folders::what_somebody_else_puts_there_fails_the_commit_and_stays,
                folders::files_in_folders_of_it_are_committed_and_withdrawn_as_others_are,
                folders::a_run_that_has_made_something_else_says_so_and_changes_nothing,
                folders::a_job_that_has_committed_and_does_not_know_it_writes_and_commits_again,
                folders::a_folder_is_taken_over_from_a_job_that_is_over,
            );
        }
    };
    (@clauses $fixture:path; $($room:ident::$clause:ident,)*) => {
        $(
            #[test]
            fn $clause() {
                $crate::contract::$room::$clause(&$fixture());
            }
        )*
    };
}

/// The bytes of a file.
fn read(file: &Location) -> Result<Vec<u8>, FileError> {
    let open = file.open(Access::Cached)?;
    let mut bytes = vec![0; open.status()?.bytes as usize];
    let needed = bytes.len();
    open.read_at(0, &mut bytes, needed)?;
    Ok(bytes)
}

/// The names of what can be input in a folder.
fn names(folder: &Location) -> Vec<String> {
    let entries = folder.system().unwrap().list(folder).unwrap();
    entries.map(|entry| entry.unwrap().name.into_string().unwrap()).collect()
}

fn is_missing<T>(found: Result<T, FileError>) -> bool {
    matches!(found, Err(FileError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound)
}

/// Some bytes that are like no others.
fn some_bytes(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ salt).collect()
}

fn buffers() -> Vec<IoBuffer> {
    (0..2).map(|_| Box::new(AlignedBuffer::new(2 * crate::ALIGNMENT)) as IoBuffer).collect()
}

fn is_file(kind: Kind) -> bool {
    matches!(kind, Kind::File(_))
}
