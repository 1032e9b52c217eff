//! What comes of what is printed: lines, without secrets, as many as may be.

use std::time::Duration;

use exobus_bus::codec;
use exobus_bus::{Bus, Pattern, SubscribeOptions, Subscription};
use futures::FutureExt as _;

use super::queue::Piece;
use super::secrets::Filter;
use super::*;

const JOB: JobId = JobId::from_u128(7);
const SECRET: &str = "open-sesame-0123";

fn secrets() -> Secrets {
    let secrets = Secrets::default();
    ["", "abc", SECRET, "open-sesame-0123-and-more", "sesame-9"].iter().for_each(|secret| secrets.add(secret));
    secrets
}

/// What becomes of these pieces.
fn filtered(pieces: &[&str]) -> String {
    let mut filter = Filter::new(secrets());
    let mut clear: Vec<u8> = pieces.iter().flat_map(|piece| filter.push(piece.as_bytes())).collect();
    clear.extend(filter.finish());
    String::from_utf8(clear).unwrap()
}

#[test]
fn a_secret_is_replaced_wherever_it_is_divided() {
    let check = |text: &str, clear: &str| {
        for one in 0..=text.len() {
            for other in one..=text.len() {
                assert_eq!(filtered(&[&text[..one], &text[one..other], &text[other..]]), clear, "at {one} and {other}");
            }
        }
    };
    check("key open-sesame-0123.", "key ***.");
    check("open-sesame-0123-and-more!", "***!");
    check("open-sesame-0123-and-mor", "***-and-mor");
    check("open-sesame-9", "open-***");
    check("open-sesame-01", "open-sesame-01");
    check("open-open-sesame-0123open-sesame-0123", "open-******");
    check("abc is too short to be one", "abc is too short to be one");
    let pieces: Vec<String> = SECRET.chars().map(String::from).collect();
    assert_eq!(filtered(&pieces.iter().map(String::as_str).collect::<Vec<_>>()), "***");
}

#[test]
fn what_cannot_be_a_secret_any_more_is_not_held_back() {
    let mut filter = Filter::new(secrets());
    assert_eq!(filter.push(b"open the door"), b"open the door");
    assert_eq!(filter.push(b"open-"), b"");
    assert_eq!(filter.push(b"x"), b"open-x");
}

fn spec(task: u128, silent: bool) -> Arc<TaskSpec> {
    let plain = TaskSpec::plain(JOB, TaskId::from_u128(task), "f@1");
    Arc::new(TaskSpec { silent, attempt: Attempt::nth(2), ..plain })
}

/// A node whose jobs print, and who watches them.
struct World {
    printing: Arc<Printing>,
    heard: Subscription,
}

impl World {
    async fn new() -> Self {
        let (bus, subjects) = (Bus::in_process(), Subjects::new("test").unwrap());
        let pattern = Pattern::from(subject(&subjects, "t", JOB).unwrap());
        let heard = bus.subscribe(pattern, SubscribeOptions::default()).await.unwrap();
        let printing = Arc::new(Printing::new(NodeId::new("n1"), secrets(), Some((bus, subjects))));
        printing.belongs_to(JOB, &"t".into());
        Self { printing, heard }
    }

    fn task(&self, number: u128) -> Arc<Output> {
        self.printing.of_task(&spec(number << 96, false))
    }

    async fn next(&mut self) -> Printed {
        let heard = tokio::time::timeout(Duration::from_secs(60), self.heard.recv()).await.expect("it is printed");
        codec::decode_checked(&heard.unwrap().message.payload).unwrap()
    }
}

#[tokio::test]
async fn lines_come_with_task_attempt_and_node_and_without_secrets() {
    let mut world = World::new().await;
    let task = world.task(0x1f);
    let mut printer = Printer::to(task.clone());
    printer.line("begins");
    let said = world.next().await;
    let by = PrintedBy::Task { task: TaskId::from_u128(0x1f << 96), attempt: Attempt::nth(2), function: "f@1".into() };
    assert_eq!(said, Printed { node: NodeId::new("n1"), by, text: "begins\n".into() });
    assert_eq!(said.to_string(), "[n1 f@1 0000001f/2] begins");
    // A line is one, however it is written, and so is a secret.
    use std::io::Write as _;
    for piece in ["the tok", "en is open-se", "same-0123, ", "really\nand"] {
        printer.write_all(piece.as_bytes()).unwrap();
    }
    assert_eq!(world.next().await.text, "the token is ***, really\n");
    task.flush();
    assert_eq!(world.next().await.text, "and");
    let program = world.printing.of_program(JOB, &"t".into());
    program.line("plans\nand goes");
    assert_eq!(world.next().await.to_string(), "[n1 program] plans\n[n1 program] and goes");
}

#[tokio::test]
async fn what_a_task_prints_is_cut_with_a_line_that_says_so_and_others_are_not() {
    let mut world = World::new().await;
    let task = world.task(1);
    let line = "x".repeat(999);
    let mut bytes = 0;
    let cut = loop {
        Printer::to(task.clone()).line(&line);
        let text = world.next().await.text;
        match text.split_once("[exobus: ") {
            Some((before, cut)) => {
                bytes += before.len();
                break cut.to_owned();
            }
            None => bytes += text.len(),
        }
    };
    assert_eq!(
        (bytes, &*cut),
        (TASK_BYTES_MAX + 1, "cut here: a task may print 1048576 bytes]\n"),
        "and the end of a line"
    );
    Printer::to(task).line("more");
    Printer::to(world.task(2)).line("another");
    assert_eq!(world.next().await.text, "another\n");
}

#[tokio::test]
async fn what_a_job_prints_is_cut_for_all_of_its_tasks() {
    let mut world = World::new().await;
    // What others have printed before.
    world.printing.job(JOB, None).take(JOB_BYTES_MAX - 10);
    let task = world.task(1);
    Printer::to(task.clone()).line("0123456789abc");
    let cut = "0123456789\n[exobus: cut here: a job may print 67108864 bytes]\n";
    assert_eq!(world.next().await.text, cut);
    assert_eq!(task.sent_bytes(), 10);
    // It is said once.
    let task = world.task(2);
    Printer::to(task.clone()).line("x");
    assert_eq!(task.sent_bytes(), 0);
    let other = world.printing.of_program(JobId::from_u128(8), &"t".into());
    Printer::to(world.task(3)).line("y");
    drop((task, other));
    world.printing.close();
    assert!(world.heard.recv().now_or_never().is_none());
}

#[tokio::test]
async fn an_attempt_that_is_handed_out_when_its_job_has_printed_all_that_it_may_prints_nothing() {
    let mut world = World::new().await;
    Printer::to(world.task(1)).line("before");
    assert_eq!(world.next().await.text, "before\n");
    let silent = world.printing.of_task(&spec(2, true));
    Printer::to(silent.clone()).line("after");
    assert_eq!(world.next().await.text, "[exobus: cut here: a job may print 67108864 bytes]\n");
    assert_eq!(silent.sent_bytes(), 0);
}

#[test]
fn who_does_not_read_costs_nothing_and_what_is_dropped_is_counted() {
    // Nobody takes anything out of this queue.
    let (bus, subjects) = (Bus::in_process(), Subjects::new("test").unwrap());
    let printing = Arc::new(Printing::new(NodeId::new("n1"), Secrets::default(), Some((bus, subjects))));
    printing.belongs_to(JOB, &"t".into());
    printing.close();
    let task = printing.of_task(&spec(1, false));
    for _ in 0..10_000 {
        Printer::to(task.clone()).line("it does not wait");
    }
    assert_eq!(task.dropped(), 170_000);
}

/// A node of which the test takes what is printed, and which knows no job.
fn without_jobs() -> (Arc<Printing>, std::sync::mpsc::Receiver<Piece>, std::sync::mpsc::SyncSender<()>) {
    let (queue, pieces, end) = Queue::taken_by_hand();
    let (node, secrets, jobs) = (NodeId::new("n1"), Secrets::default(), Mutex::default());
    (Arc::new(Printing(Arc::new(Inner { node, secrets, queue, jobs }))), pieces, end)
}

/// The same; it knows the job.
fn taken_by_hand() -> (Arc<Printing>, std::sync::mpsc::Receiver<Piece>, std::sync::mpsc::SyncSender<()>) {
    let (printing, pieces, end) = without_jobs();
    printing.belongs_to(JOB, &"t".into());
    (printing, pieces, end)
}

#[test]
fn of_a_job_whose_tenant_is_not_known_nobody_hears() {
    let (printing, pieces, _end) = without_jobs();
    Printer::to(printing.of_task(&spec(1, false))).line("whose?");
    assert!(pieces.try_recv().is_err());
    printing.belongs_to(JOB, &"t".into());
    Printer::to(printing.of_task(&spec(2, false))).line("t's");
    let (tenant, _, printed) = pieces.recv().unwrap();
    assert_eq!((&*tenant, &*printed.text), ("t", "t's\n"));
}

#[test]
fn what_finds_256_pieces_waiting_is_dropped_and_the_next_piece_says_how_much() {
    let (printing, pieces, _end) = taken_by_hand();
    let task = printing.of_task(&spec(1, false));
    let print = |line: &str| Printer::to(task.clone()).line(line);
    (0..256).for_each(|_| print("it waits"));
    assert_eq!((task.dropped(), task.sent_bytes()), (0, 256 * 9));
    print("it is dropped");
    print("so is that");
    assert_eq!((task.dropped(), task.sent_bytes()), (25, 256 * 9));
    let next = || pieces.recv().unwrap().2.text;
    assert_eq!([next(), next()], ["it waits\n", "it waits\n"]);
    print("there is room");
    print("and more");
    assert_eq!((task.dropped(), task.sent_bytes()), (0, 256 * 9 + 23));
    for _ in 2..256 {
        assert_eq!(next(), "it waits\n");
    }
    let said = "[exobus: 25 bytes are not shown, since more was printed than could be sent]\nthere is room\n";
    assert_eq!([&*next(), &*next()], [said, "and more\n"], "it is said once");
}

#[test]
fn a_node_that_ends_waits_for_what_was_printed_before_and_takes_nothing_more() {
    let (printing, pieces, end) = taken_by_hand();
    let task = printing.of_task(&spec(1, false));
    (0..200).for_each(|_| Printer::to(task.clone()).line("before"));
    let (printed, over) = (&AtomicUsize::new(0), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Until nothing more can come.
            for _ in pieces {
                printed.fetch_add(1, Ordering::Relaxed);
            }
            over.store(true, Ordering::Relaxed);
            drop(end);
        });
        printing.close();
        assert_eq!((printed.load(Ordering::Relaxed), over.load(Ordering::Relaxed)), (200, true));
    });
    Printer::to(task.clone()).line("after");
    assert_eq!(task.dropped(), 6);
}

#[test]
fn a_line_without_an_end_goes_in_pieces_of_whole_letters() {
    let letters = "\u{e4}\u{20ac}".repeat(4000);
    let mut at = 0;
    while at < letters.len() {
        let rest = &letters.as_bytes()[at..];
        let bytes = super::output::whole_letters(&rest[..rest.len().min(8191)]);
        assert!(letters.is_char_boundary(at + bytes) && bytes > 8000.min(rest.len() - 1));
        at += bytes;
    }
    assert_eq!(super::output::whole_letters(&[0xff, 0xfe, 0xfd]), 3, "no letters at all");
}

#[tokio::test]
async fn a_long_line_comes_with_all_of_its_letters_and_the_end_with_what_might_have_been_a_secret() {
    let mut world = World::new().await;
    let task = world.task(1);
    let letters = "\u{e4}\u{20ac}".repeat(4000);
    let mut printer = Printer::to(task.clone());
    use std::io::Write as _;
    printer.write_all(letters.as_bytes()).unwrap();
    printer.write_all(b"open-ses").unwrap();
    task.flush();
    let (expected, mut came) = (format!("{letters}open-ses"), String::new());
    while came.len() < expected.len() {
        came.push_str(&world.next().await.text);
    }
    assert_eq!(came, expected);
}

#[test]
fn of_the_latest_jobs_a_node_knows_how_much_they_have_printed() {
    let printing = Printing::new(NodeId::new("n1"), Secrets::default(), None);
    for job in 0..=JOBS_MAX as u128 {
        printing.belongs_to(JobId::from_u128(job), &"t".into());
    }
    let jobs: Vec<JobId> = printing.0.jobs.lock().keys().copied().collect();
    assert_eq!(jobs.len(), JOBS_MAX);
    assert_eq!([jobs[0], jobs[JOBS_MAX - 1]], [1, JOBS_MAX as u128].map(JobId::from_u128));
}
