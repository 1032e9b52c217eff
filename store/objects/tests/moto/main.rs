//! The promises of a file system on a second server of S3, moto, which other people have written. Needs a Python that has it; `cargo xtask
//! test` provides one, `cargo xtask moto` alone does, too.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use exobus_files::Location;
use exobus_files::contract::{Fixture, folders, single};
use exobus_objects::{S3Keys, Settings};

/// The server, which ends with the test.
struct Moto {
    child: Child,
    address: String,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Moto {
    fn start() -> Self {
        let fetched = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/moto/venv/bin/python");
        let python = std::env::var_os("EXOBUS_MOTO_PYTHON").map_or_else(fetched, PathBuf::from);
        let mut command = Command::new(&python);
        command.args(["-m", "moto.server", "-p", "0"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let spawned = command.spawn();
        let mut child =
            spawned.unwrap_or_else(|error| panic!("{}: {error}; `cargo xtask moto` fetches it", python.display()));
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let address = said.find_map(|line| Some(line.split_once("Running on http://")?.1.trim().to_owned()));
        let address = address.unwrap_or_else(|| panic!("{} has no moto", python.display()));
        // It writes a line for each request.
        std::thread::Builder::new().spawn(move || said.for_each(drop)).unwrap();
        let server = Self { child, address };
        server.ask("PUT", "/bucket", b"");
        server
    }

    /// The answer to a request of another client.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> String {
        ask(&self.address, method, path, body)
    }
}

fn ask(address: &str, method: &str, path: &str, body: &[u8]) -> String {
    #[allow(clippy::disallowed_methods, reason = "what another client does")]
    let mut connection = TcpStream::connect(address).unwrap();
    // It looks at whose the key is, and at no signature.
    let who = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nAuthorization: {who}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(body).unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with("HTTP/1.1 2") || answer.starts_with("HTTP/1.0 2"), "{method} {path}: {answer}");
    answer
}

/// How many keys in a list begin so.
fn keys(list: &str, prefix: &str) -> usize {
    list.split("<Key>").skip(1).filter(|rest| rest.starts_with(prefix)).count()
}

fn key(location: &Location) -> String {
    location.to_string().strip_prefix("s3://bucket/").unwrap().to_owned()
}

/// A clause, by its name.
macro_rules! clauses {
    ($($room:ident::$clause:ident,)*) => { [$((stringify!($clause), $room::$clause as fn(&Fixture)),)*] };
}

#[test]
fn moto_keeps_what_is_promised_of_files_and_folders() {
    let moto = Moto::start();
    exobus_objects::register(&Settings {
        s3_endpoint: Some(format!("http://{}", moto.address)),
        s3_keys: S3Keys::Given { id: "test".to_owned(), secret: "secret".to_owned() },
        ..Settings::default()
    });
    // All but those that take long or make many requests at once: moto answers one after the other, and slowly.
    let clauses = clauses![
        single::nothing_is_found_where_nothing_is,
        single::a_file_is_there_when_it_is_finished_and_not_before,
        single::nothing_is_left_of_a_file_that_is_dropped_unfinished,
        single::no_file_is_replaced,
        single::requests_make_up_a_file_in_whatever_order_they_are_done,
        single::any_range_is_read_and_an_end_that_comes_early_is_told,
        single::a_file_that_was_replaced_is_not_taken_for_the_one_that_was_listed,
        single::a_folder_lists_what_can_be_input_in_the_order_of_names,
        single::small_files_are_read_up_to_a_length,
        single::files_of_a_table_are_in_folders_that_say_values_too,
        folders::a_folder_is_one_jobs,
        folders::a_folder_in_which_something_is_is_nobodys,
        folders::files_have_their_names_from_the_commit_on,
        folders::the_attempt_whose_token_is_given_is_committed_and_nothing_is_left_of_others,
        folders::a_commit_is_done_again_and_stays,
        folders::nothing_is_left_of_a_job_that_withdraws_and_it_commits_nothing_any_more,
        folders::what_somebody_else_puts_there_fails_the_commit_and_stays,
        folders::files_in_folders_of_it_are_committed_and_withdrawn_as_others_are,
        folders::a_run_that_has_made_something_else_says_so_and_changes_nothing,
        folders::a_job_that_has_committed_and_does_not_know_it_writes_and_commits_again,
        folders::a_folder_is_taken_over_from_a_job_that_is_over,
    ];
    for (number, (name, clause)) in clauses.into_iter().enumerate() {
        eprintln!("{name}");
        let (putting, counting) = (moto.address.clone(), moto.address.clone());
        let put = move |file: &Location, bytes: &[u8]| {
            ask(&putting, "PUT", &format!("/bucket/{}", key(file)), bytes);
        };
        let count = move |folder: &Location| {
            let below = format!("{}/", key(folder));
            let objects = ask(&counting, "GET", "/bucket?list-type=2", b"");
            let uploads = ask(&counting, "GET", "/bucket?uploads", b"");
            keys(&objects, &below) + keys(&uploads, &below)
        };
        let folder = Location::from(&*format!("s3://bucket/test-{number}/folder"));
        clause(&Fixture { folder, put: Box::new(put), count: Rc::new(count), guard: Box::new(()) });
    }
}
