//! A guide to exobus as a library: programs of your own, from one function to a cluster with a client.
//!
//! 1. [Functions](#functions) that nodes run, and programs that call them.
//! 2. [Outputs](#outputs): a value, one blob, a stream.
//! 3. [Time](#time): what a timeout means.
//! 4. [Nodes and clients](#nodes-and-clients) of your own.
//! 5. [Shuffles](#shuffles): group or sort more than memory with a few functions.
//! 6. [Tables](#tables): files of Parquet, CSV, JSON lines and Arrow, sorted, shuffled, deduplicated and converted.
//!
//! All examples are compiled and run with the tests of exobus, but for the one that needs a NATS server.
//!
//! # Functions
//!
//! A *task function* is registered by name and version with [`task`](crate::task). It takes a [`TaskContext`](crate::TaskContext)
//! and at most one parameter, anything that serde can write. A *program* is an async function over [`Futures`](crate::Futures): it
//! submits tasks and gets references to results that may not exist yet, which other tasks take as arguments. Large data stays where
//! it was made; only what a program reads comes to it.
//!
//! ```standalone_crate
//! use exobus::{Futures, JobError, JobId, Node, NodeOptions, TaskContext, TaskError, task};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Range {
//!     from: u64,
//!     to: u64,
//! }
//!
//! /// `deterministic`: any two attempts give the same, so that one that takes too long may be copied.
//! #[task(name = "guide.primes", version = 1, deterministic = true)]
//! fn primes(context: &mut TaskContext<'_>, range: Range) -> Result<u64, TaskError> {
//!     let mut found = 0;
//!     for number in range.from..range.to {
//!         context.check_cancelled()?;
//!         let is_prime = number > 1 && (2..).take_while(|d| d * d <= number).all(|d| number % d != 0);
//!         found += u64::from(is_prime);
//!     }
//!     Ok(found)
//! }
//!
//! async fn count_primes(futures: Futures) -> Result<u64, JobError> {
//!     // All are submitted before any is waited for: they run side by side.
//!     let ranges = (0..10).map(|n| Range { from: n * 100, to: (n + 1) * 100 });
//!     let counts = ranges.map(|range| futures.submit(primes, &range, &[])).collect::<Result<Vec<_>, _>>()?;
//!     let mut sum = 0;
//!     for count in &counts {
//!         sum += futures.get_value::<u64>(count).await?;
//!     }
//!     Ok(sum)
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::start(NodeOptions::alone(2, 64 << 20))?; // 2 executors, 64 MiB for objects
//! let job = node.run(JobId::new(), "count_primes", None, count_primes);
//! let (count, _end) = tokio::runtime::Runtime::new()?.block_on(job);
//! assert_eq!(count?, 168);
//! # Ok(())
//! # }
//! ```
//!
//! What no node can run is refused with the reason, for want of a GPU, say, or of the function.
//!
//! Functions and programs print with [`TaskContext::print`](crate::TaskContext::print) and [`Futures::print`](crate::Futures::print): on a
//! cluster `exobus job <id> logs` shows it, a node that is alone writes it to stderr ([`printing`](crate::printing) says how much may be).
//!
//! The programs of all jobs of a node share a thread, so what takes one of them long it computes elsewhere
//! ([`Futures::compute`](crate::Futures::compute)): in a function that owns what it works on. What comes of it is logged, like everything
//! that a program learns and that could have been different, so that a program that is run again elsewhere makes the same tasks;
//! [`compute_pure`](crate::Futures::compute_pure) is for what is always the same.
//!
//! ```standalone_crate
//! use exobus::{Futures, JobError, JobId, Node, NodeOptions};
//!
//! async fn plan(futures: Futures) -> Result<u64, JobError> {
//!     let sizes: Vec<u64> = (0..1_000_000).collect();
//!     futures.compute(move || sizes.iter().map(|size| size * size).sum()).await
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::start(NodeOptions::alone(2, 64 << 20))?;
//! let (sum, _end) = tokio::runtime::Runtime::new()?.block_on(node.run(JobId::new(), "plan", None, plan));
//! assert_eq!(sum?, 333_332_833_333_500_000);
//! # Ok(())
//! # }
//! ```
//!
//! # Outputs
//!
//! What a function returns is its output, as a value. For more than a value it writes to
//! [`TaskContext::output`](crate::TaskContext::output), which is a [`std::io::Write`]: whatever can write a file can write an object, and
//! what does not fit into memory goes to disk on the way. (Objects of several parts, for shuffles, are written part by part, see
//! [`ObjectWriter`](crate::store::ObjectWriter); with [`TaskOptions::align`](crate::TaskOptions::align) parts begin where Arrow wants
//! its buffers.) A *stream* is a task that makes one object after the other, of which each can be
//! used while the next is made.
//!
//! ```standalone_crate
//! use std::io::Write as _;
//!
//! use exobus::{Arg, Futures, JobError, JobId, Node, NodeOptions, ObjectRef, TaskContext, TaskError, TaskOptions, task};
//!
//! /// One blob, written like a file.
//! #[task(name = "guide.lines", version = 1)]
//! fn lines(context: &mut TaskContext<'_>, count: u64) -> Result<(), TaskError> {
//!     let file = context.output()?;
//!     for line in 0..count {
//!         writeln!(file, "line {line}")?;
//!     }
//!     Ok(())
//! }
//!
//! /// Takes blobs as arguments, wherever they are.
//! #[task(name = "guide.newlines", version = 1)]
//! fn newlines(context: &mut TaskContext<'_>) -> Result<u64, TaskError> {
//!     let in_one = |index| context.block(index).iter().filter(|byte| **byte == b'\n').count() as u64;
//!     Ok((0..context.args()).map(in_one).sum())
//! }
//!
//! /// A stream: each call of `next_output` seals an object and begins the next.
//! #[task(name = "guide.batches", version = 1)]
//! fn batches(context: &mut TaskContext<'_>, count: u64) -> Result<(), TaskError> {
//!     for batch in 0..count {
//!         write!(context.output()?, "batch {batch}")?;
//!         context.next_output()?;
//!     }
//!     Ok(())
//! }
//!
//! async fn outputs(futures: Futures) -> Result<(u64, Vec<u8>), JobError> {
//!     let files = [futures.submit(lines, &10, &[])?, futures.submit(lines, &20, &[])?];
//!     let args: Vec<Arg> = files.iter().map(ObjectRef::arg).collect();
//!     let counted = futures.submit(newlines, &(), &args)?;
//!
//!     let mut stream = futures.submit_stream(batches, &3, &[], TaskOptions::default())?;
//!     let mut text = Vec::new();
//!     while let Some(batch) = stream.next().await? {
//!         text.extend_from_slice(&futures.get(&batch).await?);
//!     }
//!     Ok((futures.get_value(&counted).await?, text))
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::start(NodeOptions::alone(2, 64 << 20))?;
//! let job = node.run(JobId::new(), "outputs", None, outputs);
//! let (result, _end) = tokio::runtime::Runtime::new()?.block_on(job);
//! assert_eq!(result?, (30, b"batch 0batch 1batch 2".to_vec()));
//! # Ok(())
//! # }
//! ```
//!
//! # Edges
//!
//! What tasks make and others read part by part goes through an [`Edge`](crate::Edge): objects join it, and the job fails unless what
//! comes out of it is what went in, row by row. A function that reads of one says what it has read. A program that has seen enough
//! stops it: what was under way for it is cancelled, and the job ends well.
//!
//! ```standalone_crate
//! use exobus::store::RowHash;
//! use exobus::{EdgeShape, Futures, JobError, JobId, Node, NodeOptions, TaskContext, TaskError, task};
//!
//! /// An object of two parts: an even number, and an odd one.
//! #[task(name = "guide.pair", version = 1)]
//! fn pair(context: &mut TaskContext<'_>, number: u64) -> Result<(), TaskError> {
//!     let writer = context.output()?;
//!     for row in [2 * number, 2 * number + 1] {
//!         let row = row.to_le_bytes();
//!         writer.begin_part(Some(8))?;
//!         writer.write(&row)?;
//!         writer.end_part(1, RowHash::of(&row));
//!     }
//!     Ok(())
//! }
//!
//! /// The sum of one part of several objects.
//! #[task(name = "guide.sum_part", version = 1)]
//! fn sum_part(context: &mut TaskContext<'_>) -> Result<u64, TaskError> {
//!     let (mut sum, mut rows, mut hash) = (0, 0, RowHash::default());
//!     for block in context.blocks(0) {
//!         for row in block.chunks(8) {
//!             sum += u64::from_le_bytes(row.try_into().expect("rows have eight bytes"));
//!             (rows, hash) = (rows + 1, hash + RowHash::of(row));
//!         }
//!     }
//!     context.consumed(0, 8 * rows, rows, hash);
//!     Ok(sum)
//! }
//!
//! async fn even_and_odd(futures: Futures) -> Result<[u64; 3], JobError> {
//!     let edge = futures.edge(EdgeShape::new("pair -> sum", 2))?;
//!     for number in 0..10 {
//!         edge.join(&futures.submit(pair, &number, &[])?)?;
//!     }
//!     let pairs = edge.close()?;
//!     let [even, odd] = [futures.submit(sum_part, &(), &[pairs.part(0)])?, futures.submit(sum_part, &(), &[pairs.part(1)])?];
//!
//!     // The first three of many will do.
//!     let edge = futures.edge(EdgeShape::new("pair -> first", 2))?;
//!     for number in 10..1000 {
//!         edge.join(&futures.submit(pair, &number, &[])?)?;
//!     }
//!     let first = futures.submit(sum_part, &(), &[edge.first(3)?.part(0)])?;
//!     let first = futures.get_value(&first).await?;
//!     edge.stop()?;
//!     Ok([futures.get_value(&even).await?, futures.get_value(&odd).await?, first])
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::start(NodeOptions::alone(2, 64 << 20))?;
//! let job = node.run(JobId::new(), "even_and_odd", None, even_and_odd);
//! let (result, _end) = tokio::runtime::Runtime::new()?.block_on(job);
//! assert_eq!(result?, [90, 100, 66]);
//! # Ok(())
//! # }
//! ```
//!
//! # Time
//!
//! [`TaskOptions::timeout`](crate::TaskOptions::timeout) is how long an attempt may run. Functions run on threads of the node unless
//! it is set up otherwise, and a thread cannot be stopped from outside: there, a timeout is a request, which
//! [`check_cancelled`](crate::TaskContext::check_cancelled) tells the function. One that never looks runs to its end, keeps its slot
//! so long, and what it returns counts. With executors in processes ([`isolation`](crate::isolation)) it is killed.
//!
//! ```standalone_crate
//! use std::time::Duration;
//!
//! use exobus::{Futures, JobId, Node, NodeOptions, TaskContext, TaskError, TaskOptions, task};
//!
//! #[task(name = "guide.endless", version = 1)]
//! fn endless(context: &mut TaskContext<'_>) -> Result<(), TaskError> {
//!     loop {
//!         context.check_cancelled()?; // without this line it would run for ever
//!         std::thread::yield_now();
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::start(NodeOptions::alone(1, 64 << 20))?;
//! let program = async |futures: Futures| {
//!     let options = TaskOptions { timeout: Some(Duration::from_millis(10)), attempts: 1, ..TaskOptions::default() };
//!     futures.ready(&futures.submit_with(endless, &(), &[], options)?).await
//! };
//! let job = node.run(JobId::new(), "too_long", None, program);
//! let (result, _end) = tokio::runtime::Runtime::new()?.block_on(job);
//! assert!(result.unwrap_err().to_string().contains("timed out"));
//! # Ok(())
//! # }
//! ```
//!
//! # Nodes and clients
//!
//! A binary with your functions is a node of a cluster in one line, [`node_main`](fn@crate::node_main): it takes configuration, command
//! line and environment of `exobus node`. Nodes with different functions may be in one cluster; tasks go where their function is.
//!
//! ```no_run,standalone_crate
//! # use exobus::{TaskContext, TaskError, task};
//! #[task(name = "guide.square", version = 1)]
//! fn square(_: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
//!     Ok(number * number)
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     exobus::node_main()
//! }
//! ```
//!
//! ```sh
//! nats-server &
//! my-node --name n1 --scheduler --cluster nats://127.0.0.1:4222 --insecure-no-token
//! ```
//!
//! What runs there is a *registered* program, [`program`](crate::program): a node hosts it, and another takes it up should that one
//! die. A [`Client`](crate::Client) runs it by the type that `program` makes of the function's name, or submits it by name and hears of it. Here the cluster is in this process, over a bus of its own; with
//! `Bus::connect(NatsOptions::url("nats://127.0.0.1:4222"))` in place of `Bus::in_process()` the same client speaks to `my-node`. In a
//! cluster with tokens each says which it knows, by [`Bus::with_credentials`](crate::bus::Bus::with_credentials);
//! [`cluster::connect`](crate::cluster::connect) does both from a configuration file.
//!
//! ```standalone_crate
//! use std::time::Duration;
//!
//! use exobus::bus::{Bus, Subjects};
//! use exobus::{Client, ClientOptions, ClusterOptions, Futures, JobError, JobSpec, Node, NodeOptions};
//! use exobus::{RunError, TaskContext, TaskError, program, task};
//!
//! #[task(name = "guide.square", version = 1)]
//! fn square(_: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
//!     Ok(number * number)
//! }
//!
//! #[program(name = "guide.squares", version = 1)]
//! async fn squares(futures: Futures, upto: u64) -> Result<u64, JobError> {
//!     let squares = (1..=upto).map(|n| futures.submit(square, &n, &[])).collect::<Result<Vec<_>, _>>()?;
//!     let mut sum = 0;
//!     for value in &squares {
//!         sum += futures.get_value::<u64>(value).await?;
//!     }
//!     Ok(sum)
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (bus, subjects) = (Bus::in_process(), Subjects::new("guide")?);
//! let cluster = ClusterOptions {
//!     bus: bus.clone(),
//!     subjects: subjects.clone(),
//!     scheduler: true,
//!     membership: Default::default(),
//!     listen: "127.0.0.1:0".parse()?,
//!     join_deadline: Duration::from_secs(10),
//! };
//! let node = Node::start(NodeOptions { cluster: Some(cluster), ..NodeOptions::alone(2, 64 << 20) })?;
//!
//! let sum = tokio::runtime::Runtime::new()?.block_on(async {
//!     let client = Client::connect(ClientOptions::new(bus, subjects)).await?;
//!     // The type knows what goes in and what comes out.
//!     let sum: Result<u64, RunError> = client.run::<squares>(&10).await;
//!     assert_eq!(sum?, 385);
//!     // By name, where there is no such type here.
//!     let spec = JobSpec::of(client.new_job(), "guide.squares@1", &10_u64)?;
//!     // Events, for progress; and what cancels the job when it resolves.
//!     let end = client.run_spec(spec, |_event| {}, std::future::pending()).await?;
//!     Ok::<u64, Box<dyn std::error::Error>>(end.value()?)
//! })?;
//! assert_eq!(sum, 385);
//! node.stop();
//! # Ok(())
//! # }
//! ```
//!
//! # Shuffles
//!
//! What groups or sorts all of the data is an edge between all tasks. Do not write it over futures: give
//! [`shuffle::keyed`](crate::shuffle::keyed) the functions for a piece of input and for a key, and it does the rest, whatever the size
//! of the data: strategies, spilling, files that appear whole, and the proof that no row was lost. A job that combines rows says what
//! of them is [conserved](crate::shuffle::keyed::KeyedJob::conserved), and is told so where it does not.
//!
//! ```standalone_crate
//! use std::io::Write;
//!
//! use exobus::shuffle::keyed::{self, Emit, Input, KeyedJob, KeyedParams, Split, Values};
//! use exobus::task::Output;
//! use exobus::{JobId, Node, NodeOptions, TaskError};
//! use serde::{Deserialize, Serialize};
//!
//! /// How often each byte occurs.
//! #[derive(Serialize, Deserialize)]
//! struct Histogram;
//!
//! fn count(value: &[u8]) -> u64 {
//!     value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
//! }
//!
//! impl KeyedJob for Histogram {
//!     fn split(&self) -> Split {
//!         Split::Anywhere
//!     }
//!     fn map(&self, input: &mut Input<'_>, emit: Emit<'_>) -> Result<(), TaskError> {
//!         while let Some(byte) = input.next_record(1)? {
//!             emit(byte, &1_u64.to_le_bytes())?;
//!         }
//!         Ok(())
//!     }
//!     fn combines(&self) -> bool {
//!         true
//!     }
//!     fn combine(&self, _key: &[u8], into: &mut Vec<u8>, value: &[u8]) -> Result<(), TaskError> {
//!         *into = (count(into) + count(value)).to_le_bytes().to_vec();
//!         Ok(())
//!     }
//!     fn reduce(&self, key: &[u8], values: Values<'_>, file: &mut dyn Write) -> Result<(), TaskError> {
//!         let mut sum = 0;
//!         values.for_each(|value| sum += count(value));
//!         Ok(writeln!(file, "{} {sum}", key.escape_ascii())?)
//!     }
//!     /// As many bytes as were counted in maps are counted in reduces.
//!     fn conserved(&self, _key: &[u8], value: &[u8]) -> Output {
//!         Output { rows: count(value), ..Output::default() }
//!     }
//! }
//!
//! exobus::shuffle::keyed_job!(Histogram, "guide.histogram", 1);
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let (input, output) = (folder.path().join("in"), folder.path().join("out"));
//! std::fs::write(&input, "to be or not to be")?;
//! let mut options = NodeOptions::alone(2, 64 << 20);
//! options.store.spill_dirs = vec![folder.path().join("spill")];
//! let node = Node::start(options)?;
//! let params =
//!     KeyedParams { inputs: vec![input], output: output.clone(), partitions: None, strategy: None, partial: false, job: Histogram };
//! let program = async move |futures| keyed::run(futures, params).await;
//! let job = node.run(JobId::new(), "histogram", None, program);
//! let (report, _end) = tokio::runtime::Runtime::new()?.block_on(job);
//! assert_eq!(report?.keys, 7);
//! assert!(std::fs::read_to_string(output.join("part-00000"))?.contains("o 4\n"));
//! # Ok(())
//! # }
//! ```
//!
//! # Tables
//!
//! A [`Table`](crate::Table) is files that are read as one: it is told which rows and columns are wanted, and written as it is, in the order of a
//! key, in a random order, with one row of each key, or beside the rows of another table. Its calls ([`sort_by`](crate::Table::sort_by), [`shuffle`](crate::Table::shuffle),
//! [`dedupe`](crate::Table::dedupe), [`group_by`](crate::Table::group_by), [`join`](crate::Table::join), [`repartition`](crate::Table::repartition), none to convert) have an example each; they take what the commands take, and do the same.
//!
//! ```
//! use exobus::{OutputFormat, Table, col};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let (sales, shards) = (folder.path().join("sales"), folder.path().join("shards"));
//! std::fs::create_dir(&sales)?;
//! std::fs::write(sales.join("2024-01.csv"), "id,city,price\n1,oslo,5\n2,rome,1\n")?;
//! std::fs::write(sales.join("2024-02.csv"), "id,city,price\n3,lima,7\n4,rome,9\n")?;
//!
//! let dear = Table::read(sales.join("2024-*.csv")).filter(col("price").ge(5)).select(["id", "city"]);
//! let columns: Vec<String> = dear.schema_of()?.fields().iter().map(|field| field.name().clone()).collect();
//! assert_eq!(columns, ["id", "city"]);
//! # let dear = dear.memory(128 << 20).executors(2);
//! let written = dear.shuffle(7).files(3).output_format(OutputFormat::Parquet).write(&shards)?;
//! assert_eq!((written.rows, written.files), (3, 3));
//! # Ok(())
//! # }
//! ```
