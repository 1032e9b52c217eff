//! The web page of a job, as a browser shows it.
//!
//! The commands print looks as JSON, which nobody reads until the page was looked at: one look alone is more than a pipe holds. So they are still there when
//! everything was read, however long the browser takes, and their pages are, too.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStderr, Command, Stdio},
};

use crate::support::{
    Scratch,
    chromium::{Chromium, Tab},
    cluster::Cluster,
    command, exobus,
};
use crate::tables::alone;

const FILES: usize = 80;
const ROWS: usize = 800;
const CITIES: usize = 200;
/// The city that comes first, which a page must not take for anything but its name.
const MARKUP: &str = "<img src=x onerror=document.title=1>";

/// Sales in many cities, in as many blocks as there are files.
fn sales() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("in")).unwrap();
    for file in 0..FILES {
        let mut text = "city,price\n".to_owned();
        for row in 0..ROWS {
            let mixed = (file * ROWS + row).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let price = mixed / CITIES % 100;
            match mixed % CITIES {
                0 => writeln!(text, "{MARKUP},{price}.5").unwrap(),
                city => writeln!(text, "city {city:03},{price}.5").unwrap(),
            }
        }
        fs::write(scratch.path(&format!("in/{file:02}.csv")), text).unwrap();
    }
    scratch
}

/// A command that serves a page.
struct Serving {
    process: Child,
    stderr: BufReader<ChildStderr>,
    url: String,
}

impl Serving {
    #[track_caller]
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let mut serving = Self { process, stderr, url: String::new() };
        let mut said = String::new();
        while serving.url.is_empty() {
            let start = said.len();
            assert!(serving.stderr.read_line(&mut said).unwrap() > 0, "no page: {said}");
            serving.url = said[start..].trim_end().strip_prefix("page: ").unwrap_or_default().to_owned();
        }
        serving
    }

    /// Reads what it prints, and waits for its end; stdout.
    #[track_caller]
    fn end(mut self) -> String {
        let (mut stdout, mut said) = (String::new(), String::new());
        self.process.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut said).unwrap();
        assert_eq!(self.process.wait().unwrap().code(), Some(0), "{said}");
        stdout
    }
}

/// What a page shows without the token of its job: that it needs it.
#[track_caller]
fn assert_is_locked(tab: &mut Tab<'_>) {
    assert_eq!(tab.texts("#state"), ["nothing is shown without the token of the job"]);
    assert_eq!((tab.texts("td"), tab.texts("circle"), tab.texts("h1")), (vec![], vec![], vec!["exobus".to_owned()]));
}

#[test]
fn a_page_shows_the_answer_and_how_its_error_became_smaller() {
    let scratch = sales();
    let mut browser = Chromium::start();
    let mut tab = browser.tab();
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    let aggregates = "count(*) as n, sum(price), avg(price)";
    let said =
        ["group", &input, "--output", &output, "--by", "city", "--agg", aggregates, "--online", "--page", "--json"];
    let serving = Serving::start(alone(&scratch, &said));
    let (address, token) = serving.url.split_once('#').unwrap();
    tab.open(address, "locked");
    assert_is_locked(&mut tab);
    tab.open(&format!("{address}#{}", "0".repeat(token.len())), "locked");
    assert_is_locked(&mut tab);
    tab.open(&serving.url, "complete");
    assert_eq!(tab.texts("#state"), ["done: everything was read, the answer is exact"]);
    assert!(tab.texts("h1")[0].contains("exobus group"), "{:?}", tab.texts("h1"));
    let facts = tab.texts("#facts span");
    assert_eq!(facts[..2], ["80 of 80 blocks", "64,000 rows"], "{facts:?}");
    assert_eq!(tab.texts("th"), ["city", "n", "sum(price)", "avg(price)"]);
    let keys = tab.texts("td.key");
    assert_eq!((keys.len(), keys[0].as_str(), keys[1].as_str()), (CITIES, MARKUP, "city 001"));
    assert_eq!(
        (tab.value("document.images.length"), tab.value("document.title").as_str().is_some_and(|title| title == "1")),
        (0.into(), false)
    );
    assert_eq!(tab.texts("tr .bounds"), vec!["exact"; CITIES * 3]);
    assert_eq!(tab.texts("tr .bar").len(), CITIES * 3);
    // A point for each look with bounds, and one for the answer.
    let points = tab.texts("#chart svg circle title");
    assert!(points.len() > 2 && points[0].contains("± ") && points.last().unwrap().ends_with("exact"), "{points:?}");
    let path = tab.value("document.querySelector('#chart .curve').getAttribute('d')");
    assert_eq!(path.as_str().unwrap().matches(['M', 'L']).count(), points.len(), "{path}");
    let lines = serving.end();
    assert!(lines.lines().count() > points.len(), "{} lines", lines.lines().count());
    // It stays as it was when the command has gone.
    assert_eq!(tab.texts("#state"), ["done: everything was read, the answer is exact"]);
}

#[cfg(feature = "sql")]
#[test]
fn a_page_shows_bounds_as_bars_and_says_that_not_all_was_read() {
    let scratch = sales();
    let mut browser = Chromium::start();
    let mut tab = browser.tab();
    let query =
        format!("SELECT city, count(*) AS n, sum(price), avg(price) FROM '{}' GROUP BY city", scratch.text("in"));
    let said = ["query", &query, "--online", "--until", "error=50%", "--page", "--json", "--local"];
    let mut command = command(&said);
    command.env("XDG_STATE_HOME", scratch.path("state"));
    let serving = Serving::start(command);
    tab.open(&serving.url, "partial");
    assert_eq!(tab.texts("#state"), ["ended before everything was read: these are the last estimates"]);
    let bounds = tab.texts("tr .bounds");
    assert_eq!(bounds.len(), CITIES * 3);
    assert!(
        bounds.iter().all(|bounds| bounds.contains(" to ") && bounds.contains(", approximate at 9")),
        "{:?}",
        &bounds[..3]
    );
    // A line, and one at each of its ends.
    assert_eq!(tab.texts("tr .whisker").len(), CITIES * 3 * 3);
    let facts = tab.texts("#facts span");
    assert!(facts[0].ends_with(" of 80 blocks") && !facts[0].starts_with("80"), "{facts:?}");
    assert!(!tab.texts("#chart svg circle").is_empty());
    serving.end();
}

#[test]
fn a_page_of_a_job_of_a_cluster_shows_what_is_known_of_it_to_who_comes_late() {
    let cluster = Cluster::of(sales(), &["--memory", "96MiB"]);
    let (input, output) = (cluster.scratch.text("in"), cluster.scratch.text("out"));
    let said = [
        "group",
        &input,
        "--output",
        &output,
        "--by",
        "city",
        "--agg",
        "count(*) as n, sum(price), avg(price)",
        "--online",
    ];
    exobus(&[&said[..], &["--cluster", &cluster.url]].concat()).expect(0, &[]);
    let jobs = exobus(&["jobs", "--all", "--json", "--cluster", &cluster.url]).json();
    let job = jobs["jobs"][0]["job"].as_str().unwrap();
    let mut browser = Chromium::start();
    let mut tab = browser.tab();
    let serving = Serving::start(command(&["job", job, "estimate", "--page", "--json", "--cluster", &cluster.url]));
    tab.open(&serving.url, "answered");
    assert_eq!((tab.texts("h1"), tab.texts("td.key").len()), (vec![format!("job {job}")], CITIES));
    // The end reaches who is connected, though the command ends with it.
    serving.end();
    tab.wait_for("complete");
    cluster.end();
}
